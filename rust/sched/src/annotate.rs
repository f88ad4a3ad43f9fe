//! What the jobs that wait are told: why, and until when (RFC 27, Alloc Annotate).
//!
//! The first jobs in line are told, as many as the settings say, and only what has changed. That
//! is no part of a pass: whoever runs the scheduler calls [`Scheduler::annotate`] when
//! [`Scheduler::deadline`] has come, and by [`Scheduler::rest`] says when the next time may be, so
//! that reasons never cost more than a small share of the time.

use std::collections::HashMap;

use penstock_engine::Engine;
use serde_json::{Map, Value, json};

use crate::alloc::ANNOTATE;
use crate::{Phase, Scheduler};

/// Starts that differ by less, in seconds, are the same.
const SAME: f64 = 1.0;
/// When jobs are told again although nothing has changed, in seconds: running jobs may last longer
/// than was planned.
const REFRESH: f64 = 60.0;

/// What a job has been told last.
#[derive(Debug, Default)]
struct Told {
    reason: String,
    start: Option<f64>,
}

/// What jobs that wait have been told, and when they are to be told more.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    told: HashMap<u64, Told>,
    /// Something has changed since jobs were told.
    stale: bool,
    /// Not before this time.
    rest: f64,
    /// Again at this time, whatever has happened.
    refresh: f64,
}

impl Notes {
    pub fn forget(&mut self, id: u64) {
        self.told.remove(&id);
    }

    /// Whether the job has been told of a start.
    pub fn has_start(&self, id: u64) -> bool {
        self.told.get(&id).is_some_and(|told| told.start.is_some())
    }
}

/// What is new of a start: nothing, another time, or that there is none any more.
fn new_start(before: Option<f64>, after: Option<f64>) -> Option<Value> {
    match (before, after) {
        (None, None) => None,
        (Some(before), Some(after)) if (before - after).abs() < SAME => None,
        (_, after) => Some(json!(after)),
    }
}

impl Scheduler {
    /// A pass has ended: what jobs were told may not hold any more. The first in line is told at
    /// once, if it has not been told anything yet.
    pub(crate) fn pass_ended(&mut self, now: f64) {
        self.notes.stale = true;
        if self.stale {
            return;
        }
        let first = self.engine.as_ref().and_then(Engine::head);
        if let Some(id) = first.filter(|id| !self.notes.told.contains_key(id))
            && let Some(reason) = self.note(id, now)
        {
            self.tell(id, now, reason, None);
        }
    }

    /// When [`annotate`](Self::annotate) is to be called, in seconds since the epoch; `None` while
    /// nobody waits who is to be told why.
    pub fn deadline(&self) -> Option<f64> {
        let nobody = self.engine.as_ref().is_none_or(|it| it.queue_len() == 0);
        if nobody || self.phase != Phase::Running || self.options.settings.annotate == 0 {
            return None;
        }
        Some(if self.notes.stale {
            self.notes.rest
        } else {
            self.notes.refresh
        })
    }

    /// No earlier than this is [`annotate`](Self::annotate) to be called again.
    pub fn rest(&mut self, until: f64) {
        self.notes.rest = until;
        self.notes.refresh = self.notes.refresh.max(until);
    }

    /// Tells the first jobs in line why they wait, and when they are expected to start, where that
    /// is news.
    pub fn annotate(&mut self, now: f64) {
        if self.phase != Phase::Running {
            return;
        }
        self.notes.stale = false;
        self.notes.refresh = now + REFRESH;
        let notes = self.first_notes(now);
        let ids: Vec<u64> = notes.iter().map(|(id, _)| *id).collect();
        let starts = self.starts(&ids, now);
        let mut left = std::mem::take(&mut self.notes.told);
        for ((id, reason), start) in notes.into_iter().zip(starts) {
            if let Some(told) = left.remove(&id) {
                self.notes.told.insert(id, told);
            }
            self.tell(id, now, reason, start);
        }
        // Those that are not among the first any more: what they were told will not be kept true.
        let mut left: Vec<u64> = left.into_keys().collect();
        left.sort_unstable();
        for id in left {
            let nothing = json!({"sched": {"reason_pending": null, "t_estimate": null}});
            self.answer(id, ANNOTATE, &json!({ "annotations": nothing }));
        }
    }

    /// Tells a job what it has not been told yet.
    fn tell(&mut self, id: u64, now: f64, reason: String, start: Option<f64>) {
        if let Some(start) = start {
            self.accuracy.expect(id, now, start);
        }
        let told = self.notes.told.entry(id).or_default();
        let mut news = Map::new();
        if told.reason != reason {
            news.insert("reason_pending".to_owned(), json!(reason));
            told.reason = reason;
        }
        if let Some(news_of_start) = new_start(told.start, start) {
            news.insert("t_estimate".to_owned(), news_of_start);
            told.start = start;
        }
        if !news.is_empty() {
            self.answer(id, ANNOTATE, &json!({"annotations": {"sched": news}}));
        }
    }
}
