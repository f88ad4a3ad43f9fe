//! `Handshake`: the state of the handshake with a scheduler (RFC 27), and its transition table.
//!
//! Not in `dialogue.rs`, which is about one job: there is one handshake for all.

/// The state of the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// No scheduler has said hello, or it has gone.
    #[default]
    Suspended,
    /// `sched-hello` was answered, `sched-ready` is awaited.
    Greeted(FreeMode),
    /// `sched.alloc` may be sent.
    Ready(FreeMode, AllocMode),
}

/// The manner in which an allocation is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreeMode {
    /// As a whole, by one `sched.free`.
    Whole,
    /// In parts (`partial-ok`).
    Parts,
}

/// The limit of outstanding `sched.alloc` requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocMode {
    /// Any number.
    Unlimited,
    /// At most this many.
    Limited(usize),
}

/// A message of the handshake. The loss of a scheduler is not an input: it suspends the handshake in any state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeInput {
    /// `sched-hello`.
    Hello { from: Sender, mode: FreeMode },
    /// `sched-ready`.
    Ready { from: Sender, mode: AllocMode },
}

/// The sender of a message of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// The scheduler that has said hello last.
    Known,
    /// Any other.
    Other,
}

/// Why a message of the handshake is out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeFault {
    /// `sched-hello` while another scheduler is ready: that one could not be notified of its
    /// replacement.
    Busy,
    /// `sched-ready` without `sched-hello`.
    NotGreeted,
    /// `sched-ready` twice after one `sched-hello`.
    ReadyBefore,
}

impl std::fmt::Display for HandshakeFault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Busy => "another scheduler has said hello and is ready",
            Self::NotGreeted => "sched-ready without sched-hello",
            Self::ReadyBefore => "sched-ready twice after one sched-hello",
        })
    }
}

impl Handshake {
    /// The state after `input`: the transition table.
    ///
    /// # Errors
    ///
    /// The input is not allowed in this state.
    pub(crate) fn after(self, input: HandshakeInput) -> Result<Self, HandshakeFault> {
        use HandshakeInput as In;
        use Sender::{Known, Other};
        Ok(match (self, input) {
            (Self::Ready(..), In::Hello { from: Other, .. }) => return Err(HandshakeFault::Busy),
            (_, In::Hello { mode, .. }) => Self::Greeted(mode),
            (Self::Greeted(free), In::Ready { from: Known, mode }) => Self::Ready(free, mode),
            (Self::Ready(..), In::Ready { from: Known, .. }) => {
                return Err(HandshakeFault::ReadyBefore);
            }
            (_, In::Ready { .. }) => return Err(HandshakeFault::NotGreeted),
        })
    }

    /// Whether `sched.alloc` may be sent.
    pub(crate) fn is_ready(self) -> bool {
        matches!(self, Self::Ready(..))
    }

    /// Whether a part of an allocation is available to other jobs as soon as it is freed.
    pub(crate) fn takes_parts(self) -> bool {
        !matches!(
            self,
            Self::Greeted(FreeMode::Whole) | Self::Ready(FreeMode::Whole, _)
        )
    }

    /// The name of the state in `stats-get`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Suspended => "suspended",
            Self::Greeted(_) => "greeted",
            Self::Ready(..) => "ready",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AllocMode, FreeMode, Handshake, HandshakeFault, HandshakeInput as In, Sender};

    #[test]
    fn the_handshake_table_is_this_one() {
        use AllocMode::{Limited, Unlimited};
        use FreeMode::{Parts, Whole};
        use Handshake::{Greeted, Ready, Suspended};
        use HandshakeFault::{Busy, NotGreeted, ReadyBefore};
        use Sender::{Known, Other};
        let hello = |from, mode| In::Hello { from, mode };
        let ready = |from, mode| In::Ready { from, mode };
        #[rustfmt::skip]
        let table = [
            //                          Suspended            Greeted(Whole)               Ready(Parts, Limited(1))
            (hello(Known, Parts),      [Ok(Greeted(Parts)),  Ok(Greeted(Parts)),          Ok(Greeted(Parts))]),
            (hello(Other, Whole),      [Ok(Greeted(Whole)),  Ok(Greeted(Whole)),          Err(Busy)]),
            (ready(Known, Limited(2)), [Err(NotGreeted),     Ok(Ready(Whole, Limited(2))), Err(ReadyBefore)]),
            (ready(Known, Unlimited),  [Err(NotGreeted),     Ok(Ready(Whole, Unlimited)), Err(ReadyBefore)]),
            (ready(Other, Unlimited),  [Err(NotGreeted),     Err(NotGreeted),             Err(NotGreeted)]),
        ];
        let states = [Suspended, Greeted(Whole), Ready(Parts, Limited(1))];
        for (input, expected) in table {
            for (state, expected) in states.into_iter().zip(expected) {
                assert_eq!(state.after(input), expected, "{state:?} {input:?}");
            }
        }
    }

    #[test]
    fn parts_are_taken_unless_the_scheduler_takes_whole_allocations() {
        for (state, expected) in [
            (Handshake::Suspended, true),
            (Handshake::Greeted(FreeMode::Whole), false),
            (Handshake::Greeted(FreeMode::Parts), true),
            (
                Handshake::Ready(FreeMode::Whole, AllocMode::Unlimited),
                false,
            ),
            (
                Handshake::Ready(FreeMode::Parts, AllocMode::Unlimited),
                true,
            ),
        ] {
            assert_eq!(state.takes_parts(), expected, "{state:?}");
        }
    }
}
