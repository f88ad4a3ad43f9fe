//! What the engine says of jobs that wait, as answers and annotations have it.

use std::collections::{HashMap, HashSet};

use penstock_engine::{Engine, Field, Reason};
use penstock_jobspec::fluid::Fluid;
use serde_json::{Map, Value, json};

use crate::Scheduler;

/// How people see a job.
fn name(id: u64) -> String {
    Fluid(id).to_string()
}

/// A reason as a row of an answer.
fn row(engine: &Engine, id: u64, reason: &Reason, now: f64) -> Value {
    let mut details = Map::new();
    for (key, field) in reason.fields() {
        let value = match field {
            Field::Job(id) | Field::Count(id) => json!(id),
            Field::Queue(queue) => json!(engine.queue_name(queue)),
            Field::Time(time) => json!(time),
            Field::Text(text) => json!(text),
        };
        details.insert(key.to_owned(), value);
    }
    json!({
        "id": id,
        "kind": reason.kind(),
        "reason": reason.sentence(now, &name),
        "details": details,
    })
}

/// A reason as an annotation, which is read at any later time: no time is told from now.
fn note(reason: &Reason, now: f64) -> String {
    match reason {
        Reason::Reserved {
            shortage: Some(shortage),
            ..
        } => shortage.to_string(),
        Reason::Reserved { .. } => "fits, but would delay others: it has a reservation".to_owned(),
        Reason::BehindReservation { job, .. } | Reason::BehindLimit { job, .. } => {
            format!("fits, but would delay {}, which is before it", name(*job))
        }
        _ => reason.sentence(now, &name),
    }
}

impl Scheduler {
    /// Why a job waits, as a row of an answer.
    pub(crate) fn reason(&mut self, id: u64, now: f64) -> Value {
        let reason = self.engine.as_mut().and_then(|it| it.explain(id, now));
        match (&self.engine, reason) {
            (Some(engine), Some(reason)) => row(engine, id, &reason, now),
            _ => json!({ "id": id, "kind": "unknown", "reason": "", "details": {} }),
        }
    }

    /// Why a job waits, as an annotation.
    pub(crate) fn note(&mut self, id: u64, now: f64) -> Option<String> {
        let reason = self.engine.as_mut()?.explain(id, now)?;
        Some(note(&reason, now))
    }

    /// The first jobs in line, as many as are to be told, and why each waits.
    pub(crate) fn first_notes(&mut self, now: f64) -> Vec<(u64, String)> {
        let most = self.options.settings.annotate;
        let reasons = self.engine.as_mut();
        let reasons = reasons.map_or_else(Vec::new, |it| it.explain_all(now, most));
        let notes = reasons.into_iter();
        notes.map(|(id, reason)| (id, note(&reason, now))).collect()
    }
}

impl Scheduler {
    /// When these jobs are expected to start; `None` where that cannot be told.
    pub(crate) fn starts(&mut self, ids: &[u64], now: f64) -> Vec<Option<f64>> {
        let Some(engine) = self.engine.as_mut().filter(|_| !ids.is_empty()) else {
            return vec![None; ids.len()];
        };
        let wanted: HashSet<u64> = ids.iter().copied().collect();
        let last = engine.queued().iter().rposition(|id| wanted.contains(id));
        engine.share();
        let known = engine.forecast(now, last.map_or(0, |last| last + 1));
        let known = known.unwrap_or_default().into_iter();
        let known: HashMap<u64, Option<f64>> = known.map(|(id, it)| (id, it.time())).collect();
        let start = |id: &u64| known.get(id).copied().flatten();
        ids.iter().map(start).collect()
    }

    /// The first jobs in line, at most so many; 0 for all.
    pub(crate) fn first_in_line(&mut self, most: Option<u64>) -> Vec<u64> {
        let most = usize::try_from(most.unwrap_or(0)).unwrap_or(usize::MAX);
        let mut ids = self.engine.as_mut().map_or_else(Vec::new, Engine::queued);
        if most > 0 {
            ids.truncate(most);
        }
        ids
    }
}
