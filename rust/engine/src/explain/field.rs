//! Values of reasons: as data, and numbers with their nouns.

use penstock_jobspec::job_id::JobId;

use crate::QueueId;

/// A value of a reason, for output.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// A job's id.
    Job(JobId),
    /// A queue.
    Queue(QueueId),
    /// A number.
    Count(u64),
    /// Seconds since the epoch.
    Time(f64),
    /// Text.
    Text(String),
}

/// Formats a number with its noun, which gets an `s` unless the number is 1.
pub(super) fn amount(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
