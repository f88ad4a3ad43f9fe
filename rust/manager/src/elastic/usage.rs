//! Request jobs and what they use, counted so that checking a limit does not visit all of them.

use std::collections::{BTreeSet, HashMap};

use penstock_elastic::Demand;
use penstock_jobspec::job_id::JobId;

use crate::claims::Claims;
use crate::jobs::Jobs;
use crate::record::Record;
use crate::state::State;

/// Amounts that requests hold or request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Amount {
    pub(super) requests: u64,
    pub(super) nodes: u64,
    pub(super) cores: u64,
}

impl Amount {
    /// The amount that a request job holds or, while pending, requests.
    fn of(record: &Record, claims: &Claims) -> Self {
        let demand = record.elastic_request().map(|request| &request.demand);
        if record.state() < State::Run {
            return demand.map_or_else(Self::default, |demand| Self::requested(demand, claims));
        }
        let mut held = Self::default();
        // Nodes that were the requesting job's own are not counted.
        if demand.is_none_or(|demand| !demand.own)
            && let Some(unfreed) = record.unfreed()
        {
            held.add(0, unfreed.nnodes() as u64, unfreed.ncores());
        }
        held
    }

    /// The requested amount as the limits count it: whole nodes with all cores that they can have, and
    /// nothing for resources that were the job's own.
    pub(super) fn requested(demand: &Demand, claims: &Claims) -> Self {
        let mut sum = Self::default();
        for part in demand.parts().filter(|part| !part.own) {
            sum.requests = 1;
            let mut amount = Self::of_part(part);
            if part.cpus == 0 {
                let named = part.hosts.as_ref().filter(|_| part.only_hosts);
                let among = named.or(part.among.as_ref());
                let among = among.and_then(|hosts| hosts.parse().ok());
                amount.cores = claims.most_cores(amount.nodes, among.as_ref());
            }
            sum.add_amount(&amount);
        }
        sum
    }

    /// The sum of the parts of a request, without the cores of whole nodes.
    pub(super) fn of_parts(demand: &Demand) -> Self {
        let mut sum = Self::default();
        for part in demand.parts() {
            sum.add_amount(&Self::of_part(part));
        }
        sum
    }

    /// One part of a request, without the cores of whole nodes.
    pub(super) fn of_part(demand: &Demand) -> Self {
        let nodes = demand.nodes;
        Self {
            requests: 0,
            nodes: nodes.unwrap_or(0).into(),
            cores: u64::from(demand.cpus) * u64::from(nodes.unwrap_or(1)),
        }
    }

    pub(super) fn add(&mut self, requests: u64, nodes: u64, cores: u64) {
        self.requests = self.requests.saturating_add(requests);
        self.nodes = self.nodes.saturating_add(nodes);
        self.cores = self.cores.saturating_add(cores);
    }

    pub(super) fn add_amount(&mut self, other: &Self) {
        self.add(other.requests, other.nodes, other.cores);
    }

    fn subtract(&mut self, other: &Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.nodes = self.nodes.saturating_sub(other.nodes);
        self.cores = self.cores.saturating_sub(other.cores);
    }

    fn is_zero(&self) -> bool {
        (self.requests, self.nodes, self.cores) == (0, 0, 0)
    }
}

/// The amount counted for one request job, and the sums that include it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counted {
    job: JobId,
    user: u32,
    amount: Amount,
    /// The allocation that a pending request job will join.
    joins: Option<JobId>,
    pending: Amount,
}

impl Counted {
    fn of(record: &Record, claims: &Claims) -> Option<Self> {
        let request = record.elastic_request()?;
        let is_pending = record.state() < State::Run;
        Some(Self {
            job: request.job,
            user: record.userid(),
            amount: Amount::of(record, claims),
            joins: request.joins.filter(|_| is_pending),
            pending: Amount::of_parts(&request.demand),
        })
    }
}

/// The request jobs that have not ended, with the sums of their amounts.
#[derive(Debug, Default)]
pub(super) struct Usage {
    ids: BTreeSet<JobId>,
    /// Request jobs to be counted again.
    stale: BTreeSet<JobId>,
    counted: HashMap<JobId, Counted>,
    by_job: HashMap<JobId, Amount>,
    by_user: HashMap<u32, Amount>,
    /// Pending amounts, by the allocation that they will join.
    pending: HashMap<JobId, Amount>,
}

impl Usage {
    /// Adds a request job.
    pub(super) fn insert(&mut self, id: JobId) {
        self.ids.insert(id);
        self.stale.insert(id);
    }

    /// Removes a request job.
    pub(super) fn remove(&mut self, id: JobId) {
        if self.ids.remove(&id) {
            self.stale.insert(id);
        }
    }

    /// Marks a changed job to be counted again.
    pub(super) fn touch(&mut self, id: JobId) {
        if self.ids.contains(&id) {
            self.stale.insert(id);
        }
    }

    /// Counts the request jobs that have changed.
    pub(super) fn recount(&mut self, jobs: &Jobs, claims: &Claims) {
        for id in std::mem::take(&mut self.stale) {
            if let Some(old) = self.counted.remove(&id) {
                subtract(&mut self.by_job, &old.job, &old.amount);
                subtract(&mut self.by_user, &old.user, &old.amount);
                if let Some(target) = old.joins {
                    subtract(&mut self.pending, &target, &old.pending);
                }
            }
            let record = jobs.record(id).filter(|_| self.ids.contains(&id));
            let Some(new) = record.and_then(|record| Counted::of(record, claims)) else {
                continue;
            };
            self.by_job
                .entry(new.job)
                .or_default()
                .add_amount(&new.amount);
            self.by_user
                .entry(new.user)
                .or_default()
                .add_amount(&new.amount);
            if let Some(target) = new.joins {
                let pending = self.pending.entry(target).or_default();
                pending.add_amount(&new.pending);
            }
            self.counted.insert(id, new);
        }
    }

    /// Whether a job is counted if and only if it is a request job that has not ended, and, if it needs
    /// no recount, with the amounts of its record.
    #[cfg(debug_assertions)]
    pub(super) fn counts(&self, record: &Record) -> bool {
        let id = record.id();
        let is_counted = record.elastic_request().is_some() && record.state() < State::Cleanup;
        if self.stale.contains(&id) {
            return self.ids.contains(&id) == is_counted;
        }
        // The cores of whole nodes depend on the inventory at the time of the count.
        let without_cores = |mut counted: Counted| {
            if record.state() < State::Run {
                counted.amount.cores = 0;
            }
            counted
        };
        let known = self.counted.get(&id).copied().map(without_cores);
        let expected = Counted::of(record, &Claims::default()).map(without_cores);
        known == expected.filter(|_| is_counted)
    }

    /// The sum for the requests of a job.
    pub(super) fn of_job(&self, job: JobId) -> Amount {
        self.by_job.get(&job).copied().unwrap_or_default()
    }

    /// The sum for the requests of a user's jobs.
    pub(super) fn of_user(&self, user: u32) -> Amount {
        self.by_user.get(&user).copied().unwrap_or_default()
    }

    /// The sum that is pending for an allocation.
    pub(super) fn pending_for(&self, target: JobId) -> Amount {
        self.pending.get(&target).copied().unwrap_or_default()
    }
}

fn subtract<K: std::hash::Hash + Eq>(sums: &mut HashMap<K, Amount>, key: &K, amount: &Amount) {
    if let Some(sum) = sums.get_mut(key) {
        sum.subtract(amount);
        if sum.is_zero() {
            sums.remove(key);
        }
    }
}
