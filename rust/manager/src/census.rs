//! How many jobs are in which state, and which are over, in the order in which they ended.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::job::Job;
use crate::manager::milliseconds;
use crate::state::{JobResult, State};

const STATES: [State; 7] = [
    State::New,
    State::Depend,
    State::Priority,
    State::Sched,
    State::Run,
    State::Cleanup,
    State::Inactive,
];

/// Jobs by state, and the inactive ones by how they ended.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    states: [u64; 7],
    outcomes: [u64; 4],
    purged: u64,
}

fn place(bit: u8) -> usize {
    bit.trailing_zeros() as usize
}

impl Tally {
    /// Jobs in a state.
    pub fn in_state(&self, state: State) -> u64 {
        self.states[place(state.bit())]
    }

    /// Jobs that are not over.
    pub fn active(&self) -> u64 {
        let all: u64 = self.states.iter().sum();
        all - self.in_state(State::Inactive)
    }

    /// Jobs in RUN or CLEANUP (RFC 21).
    pub fn running(&self) -> u64 {
        self.in_state(State::Run) + self.in_state(State::Cleanup)
    }

    fn add(&mut self, state: State) {
        self.states[place(state.bit())] += 1;
    }

    fn take(&mut self, state: State) {
        let count = &mut self.states[place(state.bit())];
        *count = count.saturating_sub(1);
    }

    fn ended(&mut self, outcome: Option<JobResult>) {
        if let Some(outcome) = outcome {
            self.outcomes[place(outcome as u8)] += 1;
        }
    }

    fn forget(&mut self, outcome: Option<JobResult>) {
        self.take(State::Inactive);
        self.purged += 1;
        if let Some(outcome) = outcome {
            let count = &mut self.outcomes[place(outcome as u8)];
            *count = count.saturating_sub(1);
        }
    }

    /// As `job-list.job-stats` shows it.
    pub(crate) fn describe(&self) -> Value {
        let states = STATES.iter().map(|state| {
            let name = state.name().to_ascii_lowercase();
            (name, Value::from(self.in_state(*state)))
        });
        let mut states: Map<String, Value> = states.collect();
        let total: u64 = self.states.iter().sum();
        states.insert("total".to_owned(), total.into());
        let [completed, failed, canceled, timeout] = self.outcomes;
        json!({
            "job_states": states,
            "successful": completed,
            "failed": failed + canceled + timeout,
            "canceled": canceled,
            "timeout": timeout,
            "inactive_purged": self.purged,
        })
    }
}

/// The jobs of the instance, counted.
#[derive(Debug, Default)]
pub struct Census {
    whole: Tally,
    queues: BTreeMap<String, Tally>,
    /// Inactive jobs, the one that ended first first: time in milliseconds, and id.
    over: BTreeSet<(u64, u64)>,
}

impl Census {
    fn each(&mut self, queue: Option<&str>, change: impl Fn(&mut Tally)) {
        change(&mut self.whole);
        if let Some(name) = queue {
            if let Some(tally) = self.queues.get_mut(name) {
                return change(tally);
            }
            change(self.queues.entry(name.to_owned()).or_default());
        }
    }

    /// A job is there, new or from the store.
    pub(crate) fn enter(&mut self, job: &Job) {
        let outcome = job.result();
        self.each(job.spec.queue.as_deref(), |tally| {
            tally.add(job.state);
            tally.ended(outcome);
        });
        if job.state == State::Inactive {
            self.rest(job);
        }
    }

    /// A job has gone from one state to another.
    pub(crate) fn moved(&mut self, job: &Job, before: State) {
        let outcome = job.result();
        self.each(job.spec.queue.as_deref(), |tally| {
            tally.take(before);
            tally.add(job.state);
            tally.ended(outcome);
        });
    }

    /// Everybody has been told that a job is over: it may be purged.
    pub(crate) fn rest(&mut self, job: &Job) {
        self.over.insert((milliseconds(job.t_inactive), job.id));
    }

    /// A job is purged.
    pub(crate) fn leave(&mut self, job: &Job) {
        let outcome = job.result();
        self.each(job.spec.queue.as_deref(), |tally| tally.forget(outcome));
        self.over.remove(&(milliseconds(job.t_inactive), job.id));
    }

    /// The jobs of a queue, or of all.
    pub(crate) fn tally(&self, queue: Option<&str>) -> Tally {
        match queue {
            None => self.whole.clone(),
            Some(name) => self.queues.get(name).cloned().unwrap_or_default(),
        }
    }

    /// The inactive jobs, the one that ended first first.
    pub(crate) fn over(&self) -> &BTreeSet<(u64, u64)> {
        &self.over
    }

    /// As `job-list.job-stats` answers it.
    pub(crate) fn describe(&self) -> Value {
        let mut value = self.whole.describe();
        let queues = self.queues.iter().map(|(name, tally)| {
            let mut row = tally.describe();
            row["name"] = name.as_str().into();
            row
        });
        value["queues"] = queues.collect();
        value
    }
}
