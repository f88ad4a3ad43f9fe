//! Decisions of the engine.

use std::fmt;
use std::str::FromStr;

use penstock_jobspec::job_id::JobId;

use crate::Error;

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
