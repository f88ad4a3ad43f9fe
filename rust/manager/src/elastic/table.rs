//! The table of requests and loans, which follows from the eventlogs.

use std::collections::{BTreeMap, BTreeSet};

use penstock_elastic::{Account, Entry, Ledger};
use penstock_flux::eventlog;
use penstock_jobspec::job_id::JobId;

use super::usage::Usage;
use crate::context::Context;
use crate::effect::RequestKey;
use crate::elastic_state::ElasticRequest;
use crate::event::{Event, EventContext};
use crate::record::Record;
use crate::state::State;

/// Per first request job: the request jobs of the further parts.
#[derive(Debug, Default)]
struct Parts(BTreeMap<JobId, BTreeSet<JobId>>);

impl Parts {
    /// Adds the request job of a further part.
    fn insert(&mut self, first: JobId, id: JobId) {
        self.0.entry(first).or_default().insert(id);
    }

    /// The request job of the last part requested so far, given that of the first.
    fn last(&self, first: JobId) -> JobId {
        let others = self.0.get(&first);
        others.and_then(BTreeSet::last).copied().unwrap_or(first)
    }

    /// The request jobs of all parts requested so far, given that of the first.
    fn all(&self, first: JobId) -> Vec<JobId> {
        let others = self.0.get(&first).into_iter().flatten();
        std::iter::once(first).chain(others.copied()).collect()
    }

    /// Whether this has all parts that `replayed` has, except those of purged requests.
    #[cfg(debug_assertions)]
    fn agrees_with(&self, replayed: &Self) -> bool {
        replayed.0.iter().all(|(first, ids)| {
            let known = self.0.get(first);
            known.is_none_or(|known| ids.is_subset(known))
        })
    }

    /// Forgets the parts of a request whose first request job is purged.
    fn forget(&mut self, first: JobId) {
        self.0.remove(&first);
    }
}

/// The requests and loans of all jobs. It changes by events alone, live and in replay.
#[derive(Debug, Default)]
pub(super) struct RequestTable {
    ledger: Ledger,
    parts: Parts,
    /// Request jobs and what they use, for the site's limits.
    usage: Usage,
}

impl RequestTable {
    /// Logs an event of an elastic allocation and applies it.
    pub(super) fn log(&mut self, cx: &mut Context, id: JobId, event: Event) {
        self.apply(id, &event);
        cx.log(id, event);
    }

    /// Marks a job for recounting after any event of it.
    pub(super) fn observe(&mut self, id: JobId) {
        self.usage.touch(id);
    }

    /// Applies an event from before a restart.
    pub(super) fn replay(&mut self, id: JobId, event: &Event) {
        self.observe(id);
        if event.name.starts_with(eventlog::OWN_PREFIX) {
            self.apply(id, event);
        }
    }

    fn apply(&mut self, id: JobId, event: &Event) {
        if event.name == eventlog::REQUEST {
            self.usage.insert(id);
            let request: Option<ElasticRequest> = event.read();
            if let Some(request) = request.filter(|request| !request.before.is_empty()) {
                self.parts.insert(request.first(id), id);
            }
        }
        let context = event.context.as_ref().map(EventContext::text);
        self.ledger.apply(id, &event.name, context);
    }

    /// The requests and loans of a job.
    pub(super) fn account(&self, job: JobId) -> Option<&Account> {
        self.ledger.account(job)
    }

    /// The other jobs that may have requests or loans for an allocation.
    pub(super) fn about(&self, target: JobId) -> impl Iterator<Item = (JobId, &Account)> {
        self.ledger.about(target)
    }

    /// A request.
    pub(super) fn entry(&self, key: RequestKey) -> Option<&Entry> {
        self.account(key.job)?.entry(key.seq)
    }

    /// The identity of a job's next request.
    pub(super) fn next_key(&self, job: JobId) -> RequestKey {
        let seq = self.account(job).map_or(1, Account::next);
        RequestKey { job, seq }
    }

    /// When an open request times out, seconds since the epoch.
    pub(super) fn timeout_of(&self, key: RequestKey) -> Option<f64> {
        let entry = self.entry(key)?;
        entry.deadline.filter(|_| entry.is_open())
    }

    /// Whether a request is open and this is the request job of it, or of one of its parts.
    pub(super) fn is_carried_by(&self, cx: &Context, key: RequestKey, id: JobId) -> bool {
        let request = cx.jobs.record(id).and_then(Record::elastic_request);
        let first = request.map(|request| request.first(id));
        let entry = self.entry(key);
        entry.is_some_and(|entry| entry.is_open() && entry.alloc == first)
    }

    /// The request job of the last part requested so far, given that of the first.
    pub(super) fn last_part(&self, first: JobId) -> JobId {
        self.parts.last(first)
    }

    /// The request jobs of all parts requested so far, given that of the first.
    pub(super) fn all_parts(&self, first: JobId) -> Vec<JobId> {
        self.parts.all(first)
    }

    /// The usage of request jobs, recounted for those that have changed.
    pub(super) fn recount(&mut self, cx: &Context) -> &Usage {
        self.usage.recount(&cx.jobs, &cx.claims);
        &self.usage
    }

    /// The times of the timers that follow from a job's events: the end of a running request job, the
    /// timeouts of open requests and the ends of loans. None if the job has ended.
    pub(super) fn times_of(&self, record: &Record) -> Vec<f64> {
        if record.state() == State::Inactive {
            return Vec::new();
        }
        let is_running = record.elastic_request().is_some() && record.state() == State::Run;
        let end = record.expiration().filter(|_| is_running);
        let account = self.account(record.id());
        let open = account.into_iter().flat_map(Account::open);
        let loans = account.into_iter().flat_map(Account::loans);
        end.into_iter()
            .chain(open.filter_map(|entry| entry.deadline))
            .chain(loans.filter_map(|(_, lend)| lend.until))
            .collect()
    }

    /// Forgets the usage of a request job that has ended.
    pub(super) fn forget_request_job(&mut self, id: JobId) {
        self.usage.remove(id);
    }

    /// Forgets a purged job.
    pub(super) fn forget(&mut self, id: JobId) {
        self.ledger.forget(id);
        self.parts.forget(id);
        self.usage.remove(id);
    }

    /// The jobs with requests or loans.
    #[cfg(debug_assertions)]
    pub(super) fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.ledger.jobs()
    }

    /// Whether the facts of a job agree with `replayed`, which has them from the job's events alone: the
    /// requests and loans, and the position among the parts of a request.
    #[cfg(debug_assertions)]
    pub(super) fn agrees_on(&self, id: JobId, replayed: &Self) -> bool {
        self.account(id) == replayed.account(id) && self.parts.agrees_with(&replayed.parts)
    }

    /// Whether a job is counted as its record says.
    #[cfg(debug_assertions)]
    pub(super) fn counts(&self, record: &Record) -> bool {
        self.usage.counts(record)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(job: u64, before: &[u64]) -> Event {
        let context = json!({"job": job, "seq": 1, "directive": "new", "id": null, "joins": null,
            "demand": {"nodes": 2, "cpus": 0}, "attempt": "full", "before": before});
        Event::with(1.0, eventlog::REQUEST, &context)
    }

    #[test]
    fn the_parts_of_a_request_follow_from_the_events_of_their_request_jobs() {
        let mut table = RequestTable::default();
        let [first, second, third] = [7, 8, 9].map(JobId::new);
        table.replay(first, &request(1, &[]));
        assert_eq!(table.last_part(first), first);
        table.replay(second, &request(1, &[7]));
        table.replay(third, &request(1, &[7, 8]));
        assert_eq!(table.last_part(first), third);
        assert_eq!(table.all_parts(first), [first, second, third]);
        table.forget(first);
        assert_eq!(table.all_parts(first), [first]);
    }

    #[test]
    fn requests_of_a_job_are_numbered() {
        let mut table = RequestTable::default();
        let job = JobId::new(1);
        let key = table.next_key(job);
        assert_eq!(key.seq, 1);
        let context = json!({"seq": 1, "directive": "new", "nodes": 2, "deadline": 60.0});
        let begin = Event::with(1.0, eventlog::ALLOC_REQUEST, &context);
        table.replay(job, &begin);
        assert_eq!(table.next_key(job).seq, 2);
        assert!(table.timeout_of(key).is_some());
        let context = json!({"seq": 1, "status": 0});
        table.replay(job, &Event::with(2.0, eventlog::ALLOC_END, &context));
        assert_eq!(table.timeout_of(key), None);
    }
}
