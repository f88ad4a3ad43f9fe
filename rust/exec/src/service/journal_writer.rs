//! Records on their way to the journal, and the steps that follow them.
//!
//! Only these steps wait while the journal cannot be written: starts, forgetting, and the end of tasks on released
//! execution targets. The write is retried by a timer.

use std::{io, mem};

use super::effect::Effect;
use super::journal::Record;
use crate::types::JobId;

/// Delay before a failed write is retried, in seconds.
const RETRY_INTERVAL_S: f64 = 1.0;
/// Size of a journal below which it is not compacted.
const MIN_COMPACTED_BYTES: usize = 256 << 10;

/// A step that follows a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextStep {
    None,
    /// Hand the tasks of the job to the reaper. If the intent cannot be written, it is dropped.
    Start(JobId),
    /// End the tasks of the job on the execution targets that it has released.
    EndShrunkTasks(JobId),
    /// Send the signal before the end of the allocation. It does not wait for a write that fails.
    Warn(JobId, u32),
    /// Let the reaper forget the job.
    Forget(JobId),
}

/// The result of a write of the journal.
#[derive(Debug)]
pub(super) struct WriteResult {
    /// The steps to take.
    pub(super) steps: Vec<NextStep>,
    /// Jobs whose start waits until the journal can be written.
    pub(super) postponed: Vec<JobId>,
    /// A line for the service's log.
    pub(super) log: Option<String>,
}

/// The writer of the journal.
#[derive(Debug)]
pub(super) struct JournalWriter {
    /// Records that are not in the journal yet.
    pending: Vec<(Record, NextStep)>,
    /// The bytes of the outstanding write, and whether it replaces the journal.
    outstanding: Option<(usize, WriteKind)>,
    len: usize,
    compact_at: usize,
    rewrite: Rewrite,
    /// When a failed write is retried.
    retry_at: Option<f64>,
    is_failure_logged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteKind {
    Append,
    Rewrite,
}

/// Whether the journal is to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rewrite {
    No,
    /// It has records of forgotten jobs.
    Useful,
    /// It has no header, or may have a torn tail: nothing can be appended.
    Necessary,
}

impl JournalWriter {
    /// A writer that replaces the journal of an earlier service.
    pub(super) fn new() -> Self {
        Self {
            pending: Vec::new(),
            outstanding: None,
            len: 0,
            compact_at: 0,
            rewrite: Rewrite::Necessary,
            retry_at: None,
            is_failure_logged: false,
        }
    }

    pub(super) fn add(&mut self, record: Record, step: NextStep) {
        self.pending.push((record, step));
    }

    /// Whether the last write has failed and is not yet retried.
    pub(super) fn is_blocked(&self) -> bool {
        self.retry_at.is_some()
    }

    /// Whether every record is in the journal.
    pub(super) fn is_written(&self) -> bool {
        self.pending.is_empty() && self.rewrite != Rewrite::Necessary
    }

    /// When a failed write is retried.
    pub(super) fn retry_at(&self) -> Option<f64> {
        self.retry_at
    }

    /// Sets the time of the retry back with the clock.
    pub(super) fn set_back(&mut self, step: f64) {
        if let Some(at) = &mut self.retry_at {
            *at -= step;
        }
    }

    /// Ends the delay after a failed write if it has expired. Returns whether it has.
    pub(super) fn end_delay(&mut self, now: f64) -> bool {
        let has_expired = self.retry_at.is_some_and(|at| now >= at);
        if has_expired {
            self.retry_at = None;
        }
        has_expired
    }

    /// The next write, if one is due; its result goes to [`finish`](Self::finish). `contents` makes a journal of the jobs
    /// that were not forgotten, without the records that are pending.
    pub(super) fn begin(&mut self, contents: impl FnOnce() -> Vec<u8>) -> Option<Effect> {
        if self.is_blocked() || self.outstanding.is_some() {
            return None;
        }
        if self.len > self.compact_at && self.rewrite == Rewrite::No {
            self.rewrite = Rewrite::Useful;
        }
        let kind = match self.rewrite {
            Rewrite::No if self.pending.is_empty() => return None,
            Rewrite::No => WriteKind::Append,
            Rewrite::Useful | Rewrite::Necessary => WriteKind::Rewrite,
        };
        let mut bytes = match kind {
            WriteKind::Append => Vec::new(),
            WriteKind::Rewrite => contents(),
        };
        for (record, _) in &self.pending {
            record.encode(&mut bytes);
        }
        self.outstanding = Some((bytes.len(), kind));
        Some(match kind {
            WriteKind::Append => Effect::Append(bytes),
            WriteKind::Rewrite => Effect::Rewrite(bytes),
        })
    }

    /// Handles the result of the outstanding write.
    pub(super) fn finish(&mut self, result: io::Result<()>, now: f64) -> WriteResult {
        let written = self.outstanding.take();
        let error = match (result, written) {
            (Ok(()), Some((bytes, kind))) => return self.complete(bytes, kind),
            (Err(_), Some((_, WriteKind::Rewrite))) if self.rewrite == Rewrite::Useful => {
                // The journal is unchanged, only longer than necessary.
                self.rewrite = Rewrite::No;
                self.compact_at = self.len.saturating_mul(2);
                return WriteResult::empty();
            }
            (Ok(()), None) => return WriteResult::empty(),
            (Err(error), _) => error,
        };
        self.retry_at = Some(now + RETRY_INTERVAL_S);
        let mut result = WriteResult::empty();
        let text = format!("cannot write the journal: {error}: no job starts until that succeeds");
        result.log = (!mem::replace(&mut self.is_failure_logged, true)).then_some(text);
        for (record, step) in mem::take(&mut self.pending) {
            match step {
                NextStep::Start(id) => result.postponed.push(id),
                NextStep::Warn(..) => {
                    result.steps.push(step);
                    self.pending.push((record, NextStep::None));
                }
                _ => self.pending.push((record, step)),
            }
        }
        result
    }

    fn complete(&mut self, bytes: usize, kind: WriteKind) -> WriteResult {
        match kind {
            WriteKind::Append => self.len += bytes,
            WriteKind::Rewrite => {
                self.len = bytes;
                self.compact_at = bytes.saturating_mul(4).max(MIN_COMPACTED_BYTES);
                self.rewrite = Rewrite::No;
            }
        }
        let pending = mem::take(&mut self.pending);
        let text = "the journal can be written again".to_owned();
        WriteResult {
            steps: pending.into_iter().map(|(_, step)| step).collect(),
            postponed: Vec::new(),
            log: mem::take(&mut self.is_failure_logged).then_some(text),
        }
    }
}

impl WriteResult {
    fn empty() -> Self {
        Self {
            steps: Vec::new(),
            postponed: Vec::new(),
            log: None,
        }
    }
}
