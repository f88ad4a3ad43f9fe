//! Queue policies: which of the pending jobs start now.

mod conservative;
mod easy;
mod hybrid;
mod queue_pass;
mod shadow;

use penstock_jobspec::job_id::JobId;
use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::ids::{GroupId, GroupedClass, QueueId};
use crate::machine::{Allocation, Relocation};
use crate::queue::Key;
use crate::state::EngineState;
use crate::verdict::{Cause, Decision};

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
    /// Hybrid backfill: the first `depth` blocked jobs get reservations.
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
        let depth = |number: &str| number.parse().ok().filter(|depth| *depth > 0);
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
pub(crate) struct PolicyState {
    queue_pass: queue_pass::QueuePass,
    easy: easy::Easy,
    conservative: conservative::Conservative,
    hybrid: hybrid::Hybrid,
}

impl PolicyState {
    /// The reserved start of a pending job, if the policy has a reservation for it.
    pub fn reserved(&self, policy: Policy, id: JobId) -> Option<f64> {
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
            _ => self.queue_pass.head(group),
        }
    }

    /// Why the last pass left a job of a class pending; `None` if the pass would have started it.
    /// The state must be unchanged since.
    pub fn cause(
        &self,
        policy: Policy,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        key: Key,
    ) -> Option<Cause> {
        let (queue_pass, limit) = (&self.queue_pass, state.limit(key.handle()));
        let reserved = match policy {
            Policy::Conservative => {
                return self
                    .conservative
                    .cause(state, GroupedClass { group, class }, key);
            }
            Policy::Easy if queue_pass.head(group) == Some(key) => {
                let at = self.easy.start_of_head(state, group);
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
        queue_pass.cause(GroupedClass { group, class }, |by| match policy {
            Policy::Hybrid { .. } => queue_pass.ends_by(&self.hybrid, limit, by),
            _ => queue_pass.ends_by(&self.easy, limit, by),
        })
    }

    /// The job whose reservation begins at a time, and the exact start; infinite if unknown.
    /// `queue` restricts the search to one queue.
    pub fn reservation_at(
        &self,
        policy: Policy,
        state: &mut EngineState,
        group: GroupId,
        (by, queue): (f64, Option<QueueId>),
    ) -> Option<(JobId, f64)> {
        match policy {
            Policy::Fcfs => None,
            Policy::Easy => {
                let head = self.queue_pass.head(group)?;
                Some((head.id(), self.easy.start_of_head(state, group)?))
            }
            Policy::Hybrid { .. } => self.hybrid.reservation_at(state, group, (by, queue)),
            Policy::Conservative => self.conservative.reservation_at(group, (by, queue)),
        }
    }

    /// Under EASY backfill, the number of units of the blocked head's shape that shares would take
    /// at its shadow time, and the number that is spare then.
    pub fn interference(
        &self,
        state: &EngineState,
        group: GroupId,
        shares: &Allocation,
    ) -> Option<(u64, u64)> {
        self.easy.interference(state, group, shares)
    }

    /// Renumbers the nodes of all reservations.
    pub fn relocate(&mut self, moves: &Relocation) {
        self.conservative.relocate(moves);
    }

    /// Makes one pass, of at most `max` decisions.
    pub fn run(
        &mut self,
        policy: Policy,
        state: &mut EngineState,
        now: f64,
        max: usize,
        out: &mut Vec<Decision>,
    ) {
        match policy {
            Policy::Fcfs => {
                self.queue_pass
                    .pass(state, &mut queue_pass::Fcfs, now, max, out);
            }
            Policy::Easy => {
                self.easy.begin(state, now);
                self.queue_pass.pass(state, &mut self.easy, now, max, out);
            }
            Policy::Conservative => self.conservative.run(state, now, max, out),
            Policy::Hybrid { depth } => {
                self.hybrid.begin(state, depth, now);
                self.queue_pass.pass(state, &mut self.hybrid, now, max, out);
            }
        }
    }
}
