//! Queue policies: which of the waiting jobs start now.

mod conservative;
mod easy;
mod fcfs;
mod hybrid;
mod shadow;
mod walk;

pub(crate) use shadow::{Overlay, Shadow};

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::books::Books;
use crate::engine::Decision;
use crate::machine::Relocation;
use crate::plan::Hold;

/// How jobs that wait are let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// First come first served: the first job that does not fit ends the pass.
    #[default]
    Fcfs,
    /// EASY backfill: later jobs start where they do not delay the first that waits.
    Easy,
    /// Conservative backfill: every waiting job has a reservation.
    Conservative,
    /// The first `depth` jobs that wait have reservations.
    Hybrid {
        /// Jobs with reservations.
        depth: u32,
    },
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fcfs => f.write_str("fcfs"),
            Self::Easy => f.write_str("easy"),
            Self::Conservative => f.write_str("conservative"),
            Self::Hybrid { depth } => write!(f, "hybrid:{depth}"),
        }
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let depth = |it: &str| it.parse().ok().filter(|depth| *depth > 0);
        match text {
            "fcfs" => Ok(Self::Fcfs),
            "easy" => Ok(Self::Easy),
            "conservative" => Ok(Self::Conservative),
            _ => match text.strip_prefix("hybrid:").and_then(depth) {
                Some(depth) => Ok(Self::Hybrid { depth }),
                None => Err(Error::new(format!(
                    "invalid policy `{text}`: expected `fcfs`, `easy`, `conservative` or `hybrid:N` with \
                     N of at least 1"
                ))),
            },
        }
    }
}

/// Memory that passes use again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    walker: walk::Walker,
    easy: easy::Easy,
    conservative: conservative::Conservative,
    hybrid: hybrid::Hybrid,
}

impl Scratch {
    /// When a job that waits is to start, where the policy has a reservation for it.
    pub fn reserved(&self, policy: Policy, id: u64) -> Option<f64> {
        match policy {
            Policy::Fcfs | Policy::Easy => None,
            Policy::Conservative => self.conservative.start(id),
            Policy::Hybrid { .. } => self.hybrid.start(id),
        }
    }

    /// When a job that waits was to start, as of the last pass, whatever the limits of its queue
    /// are now.
    pub fn told(&self, policy: Policy, group: u32, id: u64) -> Option<f64> {
        match policy {
            Policy::Easy => self.easy.start(group, id),
            _ => self.reserved(policy, id),
        }
    }

    /// Under conservative backfill, whether a pass would change nothing.
    pub fn is_settled(&self, books: &mut Books, now: f64) -> bool {
        self.conservative.is_settled(books, now)
    }

    /// Under conservative backfill, the job of a group that is to start first, and when.
    pub fn first_reserved(&self, group: u32) -> Option<(u64, f64)> {
        self.conservative.first(group)
    }

    /// When a job is to start under a hybrid policy, and what it is to hold.
    pub fn reservation(&self, books: &Books, id: u64) -> Option<(f64, &Hold)> {
        self.hybrid.reservation(books, id)
    }

    /// The places of nodes have changed.
    pub fn relocate(&mut self, moves: &Relocation) {
        self.conservative.relocate(moves);
    }

    /// One pass, of at most `max` decisions.
    pub fn run(
        &mut self,
        policy: Policy,
        books: &mut Books,
        now: f64,
        max: usize,
        out: &mut Vec<Decision>,
    ) {
        match policy {
            Policy::Fcfs => {
                self.walker.pass(books, &mut fcfs::Fcfs, now, max, out);
            }
            Policy::Easy => {
                self.easy.begin(books, now);
                self.walker.pass(books, &mut self.easy, now, max, out);
            }
            Policy::Conservative => self.conservative.run(books, now, max, out),
            Policy::Hybrid { depth } => {
                self.hybrid.begin(books, depth, now);
                self.walker.pass(books, &mut self.hybrid, now, max, out);
            }
        }
    }
}
