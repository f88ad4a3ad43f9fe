//! Verdicts of passes: a job starts, is denied, or stays pending for a cause. Verdicts to be
//! carried out leave the engine as decisions.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use penstock_jobspec::job_id::JobId;

use crate::Error;
use crate::node_table::{Allocation, Infeasible};
use crate::queues::{LimitExceeded, ReachedLimit};

/// The decision of a policy about a job.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// It may start with this allocation.
    Start(Allocation),
    /// It stays pending, and so does every other job of its class to which the cause applies.
    Pending(Cause),
}

/// The cause for which a pass leaves a job pending.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cause {
    /// Its shape does not fit into the free resources.
    Unfit,
    /// Its shape would not fit if every running job had ended: nodes are down. It blocks no other job.
    Unreachable,
    /// Its queue is at a limit. It blocks no other job.
    QueueFull(ReachedLimit),
    /// It may not pass the blocked head of its group.
    Behind,
    /// It would delay a reservation unless it ended before that begins.
    Delays {
        delayed: ReservedStart,
        /// Whether that may change when other jobs start.
        transient: bool,
        /// The units of the reservation that it would take, if the policy counts them.
        interference: Option<Interference>,
    },
    /// It would leave a reservation too little of the limits of its queue, unless it ended by a
    /// time, seconds since the epoch.
    DelaysByLimit {
        delayed: ReservedStart,
        /// That time.
        by: f64,
    },
    /// It has a reservation for a time, seconds since the epoch.
    Reserved {
        /// That time.
        at: f64,
    },
}

// Every class with pending jobs has one.
const _: () = assert!(size_of::<Cause>() <= 40);

impl Cause {
    /// The time, in seconds since the epoch, by which a job of the class would have to end so as to
    /// delay nothing; `None` if the cause does not depend on its end.
    pub fn latest_end(self) -> Option<f64> {
        match self {
            // A job without a limit never ends, so it delays a start at an unknown time, too.
            Self::Delays { delayed, .. } => Some(delayed.start.min(f64::MAX)),
            Self::DelaysByLimit { by, .. } => Some(by),
            _ => None,
        }
    }
}

/// The reserved start of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReservedStart {
    pub job: JobId,
    /// In seconds since the epoch; infinite if unknown.
    pub start: f64,
}

/// The effect of starting a job on the blocked head's reservation, under EASY backfill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interference {
    /// Units of the reserved shape that it would take at the shadow time.
    pub takes: NonZeroU64,
    /// Units that are spare at the shadow time.
    pub spare: u64,
}

/// A decision of the engine, for the caller to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The job is allocated resources: [`Engine::r`](crate::Engine::r) has them.
    Alloc {
        /// The job.
        id: JobId,
        /// Whether an earlier job of its group of queues is still pending.
        backfilled: bool,
    },
    /// The job can never run here.
    Deny {
        /// The job.
        id: JobId,
        /// The note: which requirement is impossible, and the available maximum.
        note: String,
    },
}

/// Treatment of jobs whose time limit exceeds the expiration of the resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlong {
    /// Shorten: the job's R expires with the resources.
    #[default]
    Shorten,
    /// Deny the job when it would start.
    Deny,
}

impl Overlong {
    /// All treatments.
    pub const ALL: [Self; 2] = [Self::Shorten, Self::Deny];

    /// The name of the treatment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shorten => "shorten",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Overlong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Overlong {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL
            .into_iter()
            .find(|overlong| overlong.name() == text);
        known.ok_or_else(|| Error::new(format!("overlong `{text}`: expected `shorten` or `deny`")))
    }
}

/// The reason why a job can never run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Impossible {
    /// The whole inventory cannot run it.
    Infeasible(Infeasible),
    /// A limit of its queue is less than it needs.
    QueueLimit(LimitExceeded),
}

impl From<&Infeasible> for Impossible {
    fn from(reason: &Infeasible) -> Self {
        Self::Infeasible(reason.clone())
    }
}

impl From<LimitExceeded> for Impossible {
    fn from(reason: LimitExceeded) -> Self {
        Self::QueueLimit(reason)
    }
}

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Infeasible(reason) => reason.fmt(f),
            Self::QueueLimit(reason) => reason.fmt(f),
        }
    }
}

/// The reason why a job would run past the expiration of the resources. Times are in seconds since
/// the epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PastExpiration {
    /// Its time limit ends later.
    Ends {
        /// In seconds.
        limit: f64,
        now: f64,
        end: f64,
        expiration: f64,
    },
    /// They have expired.
    Expired,
}

impl fmt::Display for PastExpiration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ends {
                limit,
                now,
                end,
                expiration,
            } => write!(
                f,
                "a time limit of {limit} s from {now} on ends at {end}, the resources end at \
                 {expiration}"
            ),
            Self::Expired => f.write_str("the resources have expired"),
        }
    }
}
