//! Jobs that wait, in order of priority (descending), then id (ascending).

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use penstock_jobspec::Request;

/// A job to be scheduled.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// FLUID (RFC 19).
    pub id: u64,
    /// 0 (held, never started) to 4294967295.
    pub priority: u32,
    /// What it asks for.
    pub request: Request,
}

/// The pending jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    order: BTreeSet<(Reverse<u32>, u64)>,
    jobs: HashMap<u64, Job>,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn contains(&self, id: u64) -> bool {
        self.jobs.contains_key(&id)
    }

    pub fn get(&self, id: u64) -> Option<&Job> {
        self.jobs.get(&id)
    }

    /// Every job, the last in line first.
    pub fn backwards(&self) -> impl Iterator<Item = u64> {
        self.order.iter().rev().map(|(_, id)| *id)
    }

    pub fn push(&mut self, job: Job) {
        self.order.insert((Reverse(job.priority), job.id));
        self.jobs.insert(job.id, job);
    }

    pub fn remove(&mut self, id: u64) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        self.order.remove(&(Reverse(job.priority), id));
        Some(job)
    }

    pub fn prioritize(&mut self, id: u64, priority: u32) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        self.order.remove(&(Reverse(job.priority), id));
        job.priority = priority;
        self.order.insert((Reverse(priority), id));
        true
    }

    /// The first job that is not held.
    pub fn first(&self) -> Option<&Job> {
        let (Reverse(priority), id) = self.order.first()?;
        if *priority == 0 {
            return None;
        }
        self.jobs.get(id)
    }
}
