//! Jobs that stand for requests, and what they come to: limits are checked without looking at them
//! all.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use penstock_elastic::{Ask, Refusal as Denial, Status};

use super::submission::denied;
use crate::claims::Claims;
use crate::job::Job;
use crate::manager::Manager;
use crate::policy;
use crate::rpc::RequestError;
use crate::settings::{ElasticLimits, ElasticSettings};
use crate::state::State;

/// Jobs that stand for requests or for what they were granted, and are not over.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    ids: BTreeSet<u64>,
    /// Those that are to be counted anew.
    stale: BTreeSet<u64>,
    counted: HashMap<u64, Counted>,
    by_job: HashMap<u64, Use>,
    by_user: HashMap<u32, Use>,
    /// What is waited for, by the allocation that it is to join.
    wanted: HashMap<u64, Use>,
}

/// What was counted of one, and where.
#[derive(Clone, Copy, Debug)]
struct Counted {
    job: u64,
    user: u32,
    held: Use,
    joins: Option<u64>,
    waits: Use,
}

impl Counted {
    fn of(job: &Job, claims: &Claims) -> Option<Self> {
        let requested = job.requested()?;
        let waits = job.state < State::Run;
        let joins = requested.joins.filter(|_| waits);
        Some(Self {
            job: requested.job,
            user: job.userid,
            held: Use::of(job, claims),
            joins,
            waits: Use::size_of(&requested.ask),
        })
    }
}

impl OpenRequests {
    pub(super) fn insert(&mut self, id: u64) {
        self.ids.insert(id);
        self.stale.insert(id);
    }

    pub(super) fn remove(&mut self, id: u64) {
        if self.ids.remove(&id) {
            self.stale.insert(id);
        }
    }

    /// Something has happened to a job.
    pub(super) fn touch(&mut self, id: u64) {
        if self.ids.contains(&id) {
            self.stale.insert(id);
        }
    }

    fn recount(&mut self, jobs: &BTreeMap<u64, Job>, claims: &Claims) {
        for id in std::mem::take(&mut self.stale) {
            if let Some(old) = self.counted.remove(&id) {
                leave(&mut self.by_job, &old.job, &old.held);
                leave(&mut self.by_user, &old.user, &old.held);
                if let Some(target) = old.joins {
                    leave(&mut self.wanted, &target, &old.waits);
                }
            }
            let job = jobs.get(&id).filter(|_| self.ids.contains(&id));
            let Some(new) = job.and_then(|it| Counted::of(it, claims)) else {
                continue;
            };
            self.by_job.entry(new.job).or_default().join(&new.held);
            self.by_user.entry(new.user).or_default().join(&new.held);
            if let Some(target) = new.joins {
                self.wanted.entry(target).or_default().join(&new.waits);
            }
            self.counted.insert(id, new);
        }
    }

    fn of_job(&self, job: u64) -> Use {
        self.by_job.get(&job).copied().unwrap_or_default()
    }

    fn of_user(&self, user: u32) -> Use {
        self.by_user.get(&user).copied().unwrap_or_default()
    }

    fn wanted_for(&self, target: u64) -> Use {
        self.wanted.get(&target).copied().unwrap_or_default()
    }
}

fn leave<K: std::hash::Hash + Eq>(sums: &mut HashMap<K, Use>, key: &K, less: &Use) {
    if let Some(sum) = sums.get_mut(key) {
        sum.leave(less);
        if sum.is_nothing() {
            sums.remove(key);
        }
    }
}

impl Manager {
    fn recount(&mut self) {
        self.elastic.standing.recount(&self.jobs, &self.claims);
    }

    /// Whether the site lets the job, and its owner, ask for so much more.
    pub(super) fn within_limits(&mut self, job: u64, ask: &Ask) -> Result<(), Denial> {
        let Some(owner) = self.jobs.get(&job).map(|it| it.userid) else {
            return Ok(());
        };
        self.recount();
        let standing = &self.elastic.standing;
        let more = Use::of_ask(ask, &self.claims);
        let most: &ElasticSettings = &self.settings.elastic;
        more.check(&standing.of_job(job), &most.job, "job")?;
        more.check(&standing.of_user(owner), &most.user, "user")
    }

    /// Whether the allocations that are to have so much may have it, and with `whole` can have all of
    /// it. Without `joins` it is an allocation of its own.
    pub(super) fn may_have(
        &mut self,
        job: u64,
        joins: Option<u64>,
        ask: &Ask,
        whole: bool,
    ) -> Result<(), Denial> {
        let Some(joins) = joins else {
            // What is one job is held to the limits when its jobspec is taken.
            if ask.rest.is_empty() {
                return Ok(());
            }
            let queue = self.jobs.get(&job).and_then(|it| it.spec.queue.as_deref());
            let queue = ask.queue.as_deref().filter(|_| ask.only_queue).or(queue);
            let would = Use::size_of(ask);
            let may = policy::check_growth(would.nodes, would.cores, queue, &self.settings);
            return may.map_err(denied);
        };
        self.recount();
        let mut targets: BTreeMap<u64, Use> = BTreeMap::new();
        for part in ask.parts() {
            let target = part.joins.unwrap_or(joins);
            let sum = targets.entry(target).or_default();
            sum.join(&Use::part(part));
        }
        for (target, asked) in targets {
            self.may_grow(target, &asked).map_err(denied)?;
            if whole {
                self.can_grow(target, ask, &asked)?;
            }
        }
        Ok(())
    }

    /// Whether an allocation, with what it was granted and waits for, may have so much more.
    fn may_grow(&self, target: u64, asked: &Use) -> Result<(), RequestError> {
        let Some(job) = self.jobs.get(&target) else {
            return Ok(());
        };
        let mut would = *asked;
        if let Some(r) = job.extent() {
            would.add(0, r.nnodes() as u64, r.ncores());
        }
        would.join(&self.elastic.standing.wanted_for(target));
        let queue = job.spec.queue.as_deref();
        policy::check_growth(would.nodes, would.cores, queue, &self.settings)
    }

    /// Whether there is so much beside what an allocation never gives up: one of its nodes.
    fn can_grow(&self, target: u64, ask: &Ask, asked: &Use) -> Result<(), Denial> {
        let extent = self.jobs.get(&target).and_then(|it| it.extent());
        let (Some(extent), Some((nodes, cores))) = (extent, self.claims.size()) else {
            return Ok(());
        };
        let least = extent.nodes().map(|it| it.cores.len()).min();
        let (what, wanted, kept, all) = if ask.cpus == 0 {
            ("nodes", asked.nodes, 1, nodes)
        } else {
            ("cores", asked.cores, least.unwrap_or(0), cores)
        };
        if wanted.saturating_add(kept) > all {
            let reason = format!(
                "{wanted} {what} more can never be: there are {all}, of which it keeps {kept}"
            );
            return Err(Denial::new(Status::OUT_OF_RESOURCE, reason));
        }
        Ok(())
    }
}

/// What requests have, or ask for.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    requests: u64,
    nodes: u64,
    cores: u64,
}

impl Use {
    fn of(job: &Job, claims: &Claims) -> Self {
        let ask = job.requested().map(|it| &it.ask);
        if job.state < State::Run {
            return ask.map(|it| Self::of_ask(it, claims)).unwrap_or_default();
        }
        let mut held = Self::default();
        if let Some(r) = job.r.as_ref().filter(|_| ask.is_none_or(|it| !it.own)) {
            let left = r.restrict(&r.ranks().difference(&job.freed));
            held.add(0, left.nnodes() as u64, left.ncores());
        }
        held
    }

    /// What somebody asks for, as the limits of requests count it: of whole nodes all cores that they
    /// can have, and nothing where it was the job's own before.
    fn of_ask(ask: &Ask, claims: &Claims) -> Self {
        let mut sum = Self::default();
        for part in ask.parts().filter(|it| !it.own) {
            sum.requests = 1;
            let mut one = Self::part(part);
            if part.cpus == 0 {
                let named = part.hosts.as_ref().filter(|_| part.only_hosts);
                let among = named.or(part.among.as_ref());
                let among = among.and_then(|it| it.parse().ok());
                one.cores = claims.most_cores(one.nodes, among.as_ref());
            }
            sum.join(&one);
        }
        sum
    }

    fn size_of(ask: &Ask) -> Self {
        let mut sum = Self::default();
        for part in ask.parts() {
            sum.join(&Self::part(part));
        }
        sum
    }

    /// What a part alone asks for.
    fn part(ask: &Ask) -> Self {
        let nodes = ask.nodes;
        Self {
            requests: 0,
            nodes: nodes.unwrap_or(0).into(),
            cores: u64::from(ask.cpus) * u64::from(nodes.unwrap_or(1)),
        }
    }

    fn add(&mut self, requests: u64, nodes: u64, cores: u64) {
        self.requests = self.requests.saturating_add(requests);
        self.nodes = self.nodes.saturating_add(nodes);
        self.cores = self.cores.saturating_add(cores);
    }

    fn join(&mut self, other: &Self) {
        self.add(other.requests, other.nodes, other.cores);
    }

    fn is_nothing(&self) -> bool {
        (self.requests, self.nodes, self.cores) == (0, 0, 0)
    }

    fn leave(&mut self, other: &Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.nodes = self.nodes.saturating_sub(other.nodes);
        self.cores = self.cores.saturating_sub(other.cores);
    }

    /// Whether the site allows so much beside what there is.
    fn check(&self, there: &Self, most: &ElasticLimits, whose: &str) -> Result<(), Denial> {
        let amounts = [
            (
                "requests that wait",
                self.requests,
                there.requests,
                most.requests,
            ),
            ("nodes from requests", self.nodes, there.nodes, most.nnodes),
            ("cores from requests", self.cores, there.cores, most.ncores),
        ];
        for (what, more, there, most) in amounts {
            let most = most.and_then(|it| u64::try_from(it).ok());
            let would = there.saturating_add(more);
            if let Some(most) = most.filter(|most| more > 0 && would > *most) {
                let reason =
                    format!("the policy allows a {whose} {most} {what}: it would be {would}");
                return Err(Denial::new(Status::OUT_OF_RESOURCE, reason));
            }
        }
        Ok(())
    }
}
