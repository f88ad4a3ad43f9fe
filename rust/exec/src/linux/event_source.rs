//! The sources of the events of the reaper's epoll instance, and their tokens there.

use rustix::event::epoll;

use crate::types::{CgroupId, Pid};

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventSource {
    /// The socket to which services connect.
    Listener,
    /// The descriptor that receives SIGCHLD.
    ChildSignal,
    /// A connection, by its number.
    Connection(u64),
    /// A watched process that is no child of the reaper.
    Process(Pid),
    /// The process of a task that `penstock-imp` sets up.
    Setup(Pid),
    /// The event file of a cgroup.
    Cgroup(CgroupId),
    /// A pipe or terminal of a task, by its number.
    Stream(u64),
}

/// A token is the kind of the source in the upper bits, and its number in these.
const NUMBER_BITS: u32 = 56;

impl EventSource {
    /// The token as epoll takes it.
    pub(super) fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(self.token())
    }

    fn token(self) -> u64 {
        let (kind, number): (u64, u64) = match self {
            Self::Listener => (0, 0),
            Self::ChildSignal => (1, 0),
            Self::Connection(number) => (2, number),
            Self::Process(pid) => (3, pid.0.into()),
            Self::Setup(pid) => (4, pid.0.into()),
            Self::Cgroup(cgroup) => (5, cgroup.0.into()),
            Self::Stream(number) => (6, number),
        };
        debug_assert!(number >> NUMBER_BITS == 0, "{self:?}");
        kind << NUMBER_BITS | number
    }

    /// The source of a token; `None` if none has it.
    pub(super) fn from_token(token: u64) -> Option<Self> {
        let number = token & ((1 << NUMBER_BITS) - 1);
        let small = u32::try_from(number).ok();
        match token >> NUMBER_BITS {
            0 => Some(Self::Listener),
            1 => Some(Self::ChildSignal),
            2 => Some(Self::Connection(number)),
            3 => small.map(|pid| Self::Process(Pid(pid))),
            4 => small.map(|pid| Self::Setup(Pid(pid))),
            5 => small.map(|number| Self::Cgroup(CgroupId(number))),
            6 => Some(Self::Stream(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_has_a_token_of_its_own() {
        let sources = [
            EventSource::Listener,
            EventSource::ChildSignal,
            EventSource::Connection(7),
            EventSource::Process(Pid(7)),
            EventSource::Setup(Pid(7)),
            EventSource::Cgroup(CgroupId(7)),
            EventSource::Stream(7),
        ];
        for source in sources {
            assert_eq!(EventSource::from_token(source.token()), Some(source));
        }
        assert_eq!(EventSource::from_token(u64::MAX), None);
    }
}
