//! Queue policies: which of the pending jobs start now.

mod conservative;
mod easy;
mod hybrid;
mod last_pass;
mod queue_pass;
mod shadow;

use penstock_jobspec::job_id::JobId;
use std::fmt;
use std::str::FromStr;

pub(crate) use self::last_pass::LastPass;
use self::queue_pass::{Fcfs, PassOf};
use crate::Error;
use crate::node_table::Relocation;
use crate::state::EngineState;
use crate::verdict::Decision;

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

    /// The last pass, which `policy` made. The state must be unchanged since.
    pub fn last_pass(&self, policy: Policy) -> Box<dyn LastPass + '_> {
        let pass = &self.queue_pass;
        match policy {
            Policy::Fcfs => Box::new(PassOf {
                pass,
                policy: &Fcfs,
            }),
            Policy::Easy => Box::new(PassOf {
                pass,
                policy: &self.easy,
            }),
            Policy::Hybrid { .. } => Box::new(PassOf {
                pass,
                policy: &self.hybrid,
            }),
            Policy::Conservative => Box::new(&self.conservative),
        }
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
                self.queue_pass.pass(state, &mut Fcfs, now, max, out);
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
