//! What a request means: which allocation, which loan.

use std::collections::BTreeSet;

use penstock_elastic::{Directive, Entry, Progress, Refusal as Denial, Request, Status};
use penstock_idset::IdSet;
use penstock_jobspec::fluid::Fluid;
use penstock_jobspec::{Jobspec, Layout};

use super::calls::Asker;
use crate::manager::Manager;
use crate::state::State;

/// The allocation that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The requester's, with all that it was granted.
    Own,
    /// One of its owner's that a request has made.
    Allocation(u64),
    /// One grant of the requester's.
    Grant(u64),
}

impl Manager {
    /// Settles what `pmix.alloc.id` means: an allocation or, alone and where there is no such
    /// one, the user's id of this request.
    pub(super) fn meant(&self, job: u64, wanted: &mut Request) -> Result<Target, Denial> {
        let mut meant = Target::Own;
        let account = self.elastic.ledger.account(job);
        let lent = |id: &str| {
            account.is_some_and(|it| it.lends().any(|(_, lend)| lend.id.as_deref() == Some(id)))
        };
        if wanted.directive == Directive::Reacquire && wanted.alloc.is_none() {
            // The name of a loan may be the request's as well.
            wanted.alloc = wanted.id.clone().filter(|id| lent(id));
        }
        if let Some(text) = wanted.alloc.clone() {
            if wanted.directive == Directive::Reacquire && lent(&text) {
                // It stays where it is: the name of a loan.
            } else if let Some(found) = self.allocation(job, &text, wanted.directive) {
                meant = found;
            } else if wanted.id.is_none() && self.may_be_new(&text, wanted) {
                wanted.id = wanted.alloc.take();
            } else {
                let what = match wanted.directive {
                    Directive::Reacquire => "loan",
                    _ => "allocation",
                };
                let known = self.allocation(job, &text, Directive::Extend).is_some();
                let text = text.escape_debug();
                if known && wanted.directive == Directive::New {
                    let reason =
                        format!("`pmix.alloc.id`: `{text}` is there, a new allocation is another");
                    return Err(Denial::new(Status::BAD_PARAM, reason));
                }
                let reason = format!("`pmix.alloc.id`: there is no {what} `{text}`");
                return Err(Denial::new(Status::NOT_FOUND, reason));
            }
        }
        if let Some(id) = &wanted.id
            && account
                .and_then(|it| it.named(id))
                .is_some_and(Entry::is_open)
        {
            let id = id.escape_debug();
            let reason = format!("a request `{id}` of this job waits already");
            wanted.id = None;
            return Err(Denial::new(Status::BAD_PARAM, reason));
        }
        Ok(meant)
    }

    /// Whether `pmix.alloc.id`, which names no allocation, may be the user's id of this request.
    /// Not where that would cost the job nodes that it did not name, nor where it is the id of a
    /// job: an allocation that has ended.
    fn may_be_new(&self, text: &str, wanted: &Request) -> bool {
        let job = text.parse::<Fluid>().ok().map(|it| it.0);
        match wanted.directive {
            Directive::New => !wanted.alloc_required,
            Directive::Release => false,
            _ => !wanted.alloc_required && job.is_none_or(|id| !self.jobs.contains_key(&id)),
        }
    }

    /// What there is by this id of a job, or by the name of the request that made it: the newest of
    /// several. Requests that have made nothing, or whose allocation is over, do not count.
    fn allocation(&self, job: u64, text: &str, directive: Directive) -> Option<Target> {
        if directive == Directive::New {
            return None;
        }
        let named = text.parse::<Fluid>().ok().map(|it| it.0);
        let account = self.elastic.ledger.account(job);
        let asked = account.into_iter().flat_map(|it| it.all_named(text));
        let granted = asked.filter(|it| it.progress() == Progress::Granted);
        let mut ids = named.into_iter().chain(granted.filter_map(|it| it.alloc));
        ids.find_map(|id| self.living(job, id))
    }

    /// What a job is to one that asks, if it is of the same owner and is not over.
    fn living(&self, job: u64, id: u64) -> Option<Target> {
        if id == job {
            return Some(Target::Own);
        }
        let owner = self.jobs.get(&job)?.userid;
        let found = self.jobs.get(&id)?;
        let runs = |id: &u64| self.jobs.get(id).is_some_and(|it| it.state == State::Run);
        if found.userid != owner || !self.elastic.all_parts(id).iter().any(runs) {
            return None;
        }
        match found.requested()?.joins {
            None => Some(Target::Allocation(id)),
            Some(joined) if joined == job => Some(Target::Grant(id)),
            Some(_) => None,
        }
    }

    /// The ranks of a job on which the asker runs; none for the job as a whole. Where it cannot
    /// be told, all of the job's own.
    pub(super) fn own_node(&mut self, asker: &Asker) -> IdSet {
        let Some(job) = self.jobs.get(&asker.job) else {
            return IdSet::new();
        };
        let (Some(r), key) = (job.r.clone(), job.spec.key) else {
            return IdSet::new();
        };
        if let Some(host) = &asker.host
            && let Ok(hosts) = host.parse()
        {
            let ranks = r.ranks_on(&hosts);
            if !ranks.is_empty() {
                return ranks;
            }
        }
        let Some(task) = asker.rank else {
            return IdSet::new();
        };
        let text = self.store.jobspec(key);
        let jobspec = self.keep(text).and_then(|it| Jobspec::from_json(&it).ok());
        let layout = jobspec.and_then(|jobspec| Layout::new(&jobspec, &r).ok());
        let target = layout.and_then(|layout| layout.target_of(task.into()));
        target.map_or_else(|| r.ranks(), |rank| IdSet::from(rank..=rank))
    }
}

/// Ids, for lookups that must not change while they go on.
pub(super) fn ids(set: &BTreeSet<u64>) -> Vec<u64> {
    set.iter().copied().collect()
}
