//! The reasons for which a pending job is denied; their texts are the notes of denials.

use std::fmt;

use crate::machine::Infeasible;
use crate::queues::LimitExceeded;

/// The reason why a job can never run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Impossible {
    /// The whole machine cannot run it.
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
