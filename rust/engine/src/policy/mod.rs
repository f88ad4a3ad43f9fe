//! Queue policies: which of the pending jobs start now.

mod conservative;
mod easy;
mod fcfs;
mod hybrid;
mod shadow;
mod walk;

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::books::Books;
use crate::decision::Decision;
use crate::ids::{ClassId, GroupId};
use crate::machine::{Allocation, Relocation};
use crate::queue::{Key, QueueId};
use crate::verdict::Cause;

/// A queue policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// First come first served: the first job that does not fit ends the pass.
    #[default]
    Fcfs,
    /// EASY backfill: later jobs start if they do not delay the blocked head.
    Easy,
    /// Conservative backfill: every pending job has a reservation.
    Conservative,
    /// Hybrid backfill: the first `depth` jobs that have to wait get reservations.
    Hybrid {
        /// The number of reservations.
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

/// The state of all policies, from pass to pass.
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

    /// Under conservative backfill, whether no reservation is due by a time.
    pub fn is_before_reservations(&self, now: f64) -> bool {
        self.conservative.is_before_reservations(now)
    }

    /// The blocked head of a group in the last pass.
    pub fn head(&self, policy: Policy, group: GroupId) -> Option<Key> {
        match policy {
            Policy::Conservative => self.conservative.head(group),
            _ => self.walker.head(group),
        }
    }

    /// Why the last pass left a job of a class pending; `None` if it would have let it start.
    /// Nothing has changed since.
    pub fn cause(
        &self,
        policy: Policy,
        books: &mut Books,
        (group, class): (GroupId, ClassId),
        key: Key,
    ) -> Option<Cause> {
        let (walker, limit) = (&self.walker, books.limit(key.handle()));
        let reserved = match policy {
            Policy::Conservative => return self.conservative.cause(books, (group, class), key),
            Policy::Easy if walker.head(group) == Some(key) => {
                let at = self.easy.start_of_head(books, group);
                Some(at.filter(|at| at.is_finite()).unwrap_or(f64::INFINITY))
            }
            Policy::Hybrid { .. } => self.hybrid.start(key.id()),
            Policy::Fcfs | Policy::Easy => None,
        };
        match reserved {
            Some(at) if at.is_finite() => return Some(Cause::Reserved { at }),
            Some(_) => return Some(Cause::Unfit),
            None => {}
        }
        walker.cause((group, class), |by| match policy {
            Policy::Hybrid { .. } => walker.ends_by(&self.hybrid, limit, by),
            _ => walker.ends_by(&self.easy, limit, by),
        })
    }

    /// The job whose reservation begins at a time, and when just that is; infinite if nobody knows.
    /// `queue` is for jobs of one queue only.
    pub fn reservation_at(
        &self,
        policy: Policy,
        books: &mut Books,
        group: GroupId,
        (by, queue): (f64, Option<QueueId>),
    ) -> Option<(u64, f64)> {
        match policy {
            Policy::Fcfs => None,
            Policy::Easy => {
                let head = self.walker.head(group)?;
                Some((head.id(), self.easy.start_of_head(books, group)?))
            }
            Policy::Hybrid { .. } => self.hybrid.reservation_at(books, group, (by, queue)),
            Policy::Conservative => self.conservative.reservation_at(group, (by, queue)),
        }
    }

    /// Under EASY backfill, how many units of the blocked head's shape shares would take away when
    /// that can start, and how many can be spared then.
    pub fn interference(
        &self,
        books: &Books,
        group: GroupId,
        shares: &Allocation,
    ) -> Option<(u64, u64)> {
        self.easy.interference(books, group, shares)
    }

    /// Renumbers the nodes of all reservations.
    pub fn relocate(&mut self, moves: &Relocation) {
        self.conservative.relocate(moves);
    }

    /// Makes one pass, of at most `max` decisions.
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
