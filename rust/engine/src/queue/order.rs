//! Orders of queues.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// The order of a queue's jobs; equal jobs are ordered by ascending id.
///
/// A job with priority 0 is held in any order; one with the highest priority, 4294967295, is
/// expedited: it comes before all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The highest priority first.
    #[default]
    Priority,
    /// In the order of submission, that is by id alone.
    Fifo,
    /// The shortest time limit first, jobs without a limit last. Limits that differ by less than a
    /// ten-millionth are equal.
    Shortest,
    /// The fewest cores first.
    Smallest,
    /// The most cores first.
    Largest,
}

impl Order {
    /// The priority of a job in this order, highest first; 0 if it is held.
    pub(crate) fn effective_priority(self, priority: u32, limit: f64, cores: u64) -> u32 {
        const LAST_PRIORITY: u32 = 1;
        const FIRST_PRIORITY: u32 = u32::MAX - 1;
        if matches!(priority, 0 | u32::MAX) {
            return priority;
        }
        let size = || {
            u32::try_from(cores)
                .unwrap_or(FIRST_PRIORITY)
                .clamp(LAST_PRIORITY, FIRST_PRIORITY)
        };
        match self {
            Self::Priority => priority,
            Self::Fifo => LAST_PRIORITY,
            // The bits of non-negative numbers sort as the numbers do.
            #[expect(
                clippy::cast_possible_truncation,
                reason = "only close limits become equal"
            )]
            Self::Shortest => FIRST_PRIORITY - (limit.max(0.0) as f32).to_bits(),
            Self::Smallest => u32::MAX - size(),
            Self::Largest => size(),
        }
    }
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 5] = [
        Self::Priority,
        Self::Fifo,
        Self::Shortest,
        Self::Smallest,
        Self::Largest,
    ];

    /// The name of the order.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Priority => "priority",
            Self::Fifo => "fifo",
            Self::Shortest => "shortest",
            Self::Smallest => "smallest",
            Self::Largest => "largest",
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Order {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|order| order.name() == text);
        known.ok_or_else(|| {
            Error::new(format!(
                "order `{text}`: expected `priority`, `fifo`, `shortest`, `smallest` or `largest`"
            ))
        })
    }
}
