//! Debug assertion: replaying the store, as a start does, and the unwritten events of a job yields its facts.
//!
//! Compared are the record; the claim to resources, which is that of the record or of the commit for an
//! outstanding request; the PMIx requests, loans and parts; what a request job counts for the limits; and that
//! the timers are set which a restart would set by the log. Not covered, because no event records
//! it and a restart resets it: the dialogue, the time in which the scheduler is to decide about a request
//! job, postponed returns, and the cores of whole nodes that a pending request job is counted with, which
//! depend on the inventory at the time of the count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use crate::context::Context;
use crate::elastic::Elastic;
use crate::jobs::{Job, Jobs, is_evictable};
use crate::record::{InvalidEvent, Record};
use crate::spec::Spec;
use crate::state::State;

/// The greatest number of jobs of which each is checked after every step, changed or not.
const MAX_FULLY_CHECKED_JOBS: usize = 32;
/// The greatest number of changed jobs checked after the step that changed them: of a larger number, every n-th.
/// The others are checked after later steps, as many in each.
const MAX_CHANGED_JOBS_PER_CHECK: usize = 64;
/// The number of unchanged jobs checked after a step that has changed others.
const UNCHANGED_JOBS_PER_CHECK: usize = 4;
/// A longer eventlog is checked each time that it has grown by an eighth, and at its job's end.
const MAX_OFTEN_CHECKED_EVENTS: u32 = 256;

/// The jobs to be checked next.
#[derive(Debug, Default)]
pub(crate) struct ReplayCheck {
    /// The last job checked though it had not changed.
    last: JobId,
    /// Changed jobs that are not checked yet.
    backlog: BTreeSet<JobId>,
    /// For long eventlogs: the number of events at which each is due.
    due: BTreeMap<JobId, u32>,
}

impl ReplayCheck {
    /// Asserts that replay yields the facts of the jobs: of all if they are few, else of the changed
    /// ones and of some others in turn.
    pub(crate) fn assert_records(&mut self, cx: &mut Context, elastic: &Elastic) {
        for id in self.select(&mut cx.jobs, elastic) {
            if !cx
                .jobs
                .record(id)
                .is_none_or(|record| self.take_due(record))
            {
                continue;
            }
            if let Err(difference) = compare(cx, elastic, id) {
                panic!("job {id}: {difference}");
            }
        }
    }

    /// Returns whether a job is due for a check. If so, a long eventlog is due again when it has grown.
    fn take_due(&mut self, record: &Record) -> bool {
        let events = record.events();
        if events <= MAX_OFTEN_CHECKED_EVENTS {
            return true;
        }
        let due = self.due.entry(record.id()).or_default();
        let has_ended = record.state() == State::Inactive;
        if *due == u32::MAX || (events < *due && !has_ended) {
            return false;
        }
        *due = if has_ended {
            u32::MAX
        } else {
            events.saturating_add(events / 8)
        };
        true
    }

    fn select(&mut self, jobs: &mut Jobs, elastic: &Elastic) -> BTreeSet<JobId> {
        let changed = jobs.take_unchecked();
        if changed.is_empty() && self.backlog.is_empty() {
            return changed;
        }
        let ids = || jobs.iter().map(|job| job.record.id());
        if ids().take(MAX_FULLY_CHECKED_JOBS + 1).count() <= MAX_FULLY_CHECKED_JOBS {
            return std::mem::take(&mut self.backlog)
                .into_iter()
                .chain(changed)
                .chain(ids())
                .chain(elastic.jobs())
                .collect();
        }
        let step = changed.len().div_ceil(MAX_CHANGED_JOBS_PER_CHECK).max(1);
        let mut selected = BTreeSet::new();
        for _ in 0..MAX_CHANGED_JOBS_PER_CHECK {
            selected.extend(self.backlog.pop_first());
        }
        for (position, id) in changed.into_iter().enumerate() {
            if position % step == 0 {
                selected.insert(id);
            } else {
                self.backlog.insert(id);
            }
        }
        let after = jobs.range((Bound::Excluded(self.last), Bound::Unbounded));
        let after = after
            .map(|(id, _)| id)
            .chain(ids())
            .take(UNCHANGED_JOBS_PER_CHECK);
        for id in after {
            self.last = id;
            selected.insert(id);
        }
        selected
    }
}

/// Compares the facts of a job with what the store and the unwritten events say. The error names the
/// difference.
fn compare(cx: &mut Context, elastic: &Elastic, id: JobId) -> Result<(), Difference> {
    let stored = cx.read_store(|store| store.job_to_restore(id));
    let key = stored.as_ref().map(|stored| stored.row.spec);
    let text = key.and_then(|key| cx.read_store(|store| store.jobspec(key)));
    // The next commit reports the failure; until then the store may lack what was written.
    if cx.has_store_failed() {
        return Ok(());
    }
    let jobs = &cx.jobs;
    let (record, stored) = match (jobs.record(id), stored) {
        (record, Some(stored)) => (record, stored),
        (Some(_), None) => return Err(Difference::NotStored),
        (None, None) if !elastic.agrees_on(id, &Elastic::default()) => {
            return Err(Difference::RequestsLeft);
        }
        (None, None) if !cx.claims.agrees_on(id, None, &IdSet::new()) => {
            return Err(Difference::ClaimLeft);
        }
        (None, None) => return Ok(()),
    };
    let text = text.ok_or(Difference::NoJobspec)?;
    let jobspec = Jobspec::from_json(&text).map_err(Difference::Jobspec)?;
    let spec = Arc::new(Spec::new(stored.row.spec, &jobspec));
    let eventlog = stored.eventlog() + jobs.unwritten(id);
    // As at a restart: R that cannot be read is left out.
    let r = stored
        .row
        .r
        .and_then(|text| ResourceSet::from_json(&text).ok());
    let r = r.map(Arc::new);
    let mut requests = Elastic::default();
    requests.observe(id);
    let userid = stored.row.userid;
    let mut replayed = match &stored.facts {
        Some(facts) => Record::from_facts(id, userid, spec, facts.events, &facts.text)
            .map_err(Difference::Facts)?,
        None => Record::new(id, userid, spec),
    };
    replayed
        .apply_lines(&eventlog, r.as_ref(), &mut |event| {
            requests.replay(id, event);
        })
        .map_err(Difference::Eventlog)?;
    if let Some(record) = record
        && replayed != *record
    {
        return Err(Difference::Record {
            eventlog,
            replayed: Box::new(replayed),
            live: Box::new(record.clone()),
        });
    }
    if replayed.t_submit().to_bits() != stored.row.t_submit.to_bits() {
        return Err(Difference::SubmissionTime { eventlog });
    }
    let Some(record) = record else {
        return compare_evicted(cx, elastic, &replayed);
    };
    if !has_claim(cx, id) {
        return Err(Difference::Claim { eventlog });
    }
    if !elastic.agrees_on(id, &requests) {
        return Err(Difference::Requests { eventlog });
    }
    if !elastic.counts(record) {
        return Err(Difference::Usage { eventlog });
    }
    if !elastic.has_timers_of(record, cx.now) {
        return Err(Difference::Timers { eventlog });
    }
    Ok(())
}

/// Checks that a job that is in the store alone has ended, and that nothing else is left of it in memory.
fn compare_evicted(cx: &Context, elastic: &Elastic, record: &Record) -> Result<(), Difference> {
    let id = record.id();
    if record.state() != State::Inactive || !is_evictable(record) {
        return Err(Difference::OnlyStored);
    }
    if !elastic.agrees_on(id, &Elastic::default()) {
        return Err(Difference::RequestsLeft);
    }
    if !cx.claims.agrees_on(id, None, &IdSet::new()) {
        return Err(Difference::ClaimLeft);
    }
    Ok(())
}

/// Whether a job claims what it holds: its resources but the freed ranks or, without any, what is committed
/// for its request.
fn has_claim(cx: &Context, id: JobId) -> bool {
    let Some(Job { record, dialogue }) = cx.jobs.get(id) else {
        return true;
    };
    if record.has_resources() {
        let r = record.r().map(|r| &**r);
        return cx.claims.agrees_on(id, r, record.freed());
    }
    let committed = dialogue.scheduler.committed().map(|r| &**r);
    cx.claims.agrees_on(id, committed, &IdSet::new())
}

/// A difference between the facts of a job and its eventlog or documents.
#[derive(Debug)]
enum Difference {
    NotStored,
    OnlyStored,
    RequestsLeft,
    ClaimLeft,
    NoJobspec,
    Jobspec(penstock_jobspec::Error),
    Eventlog(InvalidEvent),
    Facts(serde_json::Error),
    SubmissionTime {
        eventlog: String,
    },
    Record {
        eventlog: String,
        replayed: Box<Record>,
        live: Box<Record>,
    },
    Claim {
        eventlog: String,
    },
    Requests {
        eventlog: String,
    },
    Usage {
        eventlog: String,
    },
    Timers {
        eventlog: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStored => out.write_str("it is not in the store"),
            Self::OnlyStored => out.write_str("it is in the store alone"),
            Self::RequestsLeft => out.write_str("its PMIx requests are left"),
            Self::ClaimLeft => out.write_str("its claim is left"),
            Self::NoJobspec => out.write_str("its jobspec is not in the store"),
            Self::Jobspec(error) => write!(out, "its jobspec: {error}"),
            Self::Eventlog(error) => write!(out, "its eventlog: {error}"),
            Self::Facts(error) => write!(out, "its stored facts: {error}"),
            Self::SubmissionTime { eventlog } => {
                write!(
                    out,
                    "its row has another time of submission than\n{eventlog}"
                )
            }
            Self::Record {
                eventlog,
                replayed,
                live,
            } => write!(
                out,
                "its eventlog gives another record:\n{eventlog}replayed: {replayed:?}\nlive: {live:?}"
            ),
            Self::Claim { eventlog } => {
                write!(out, "its eventlog gives another claim:\n{eventlog}")
            }
            Self::Requests { eventlog } => {
                write!(out, "its eventlog gives other PMIx requests:\n{eventlog}")
            }
            Self::Usage { eventlog } => {
                write!(out, "its eventlog gives another usage:\n{eventlog}")
            }
            Self::Timers { eventlog } => {
                write!(out, "a timer of its eventlog is not set:\n{eventlog}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use penstock_flux::eventlog::ResourceUpdate;
    use penstock_idset::IdSet;
    use penstock_jobspec::job_id::JobId;
    use serde_json::json;

    use super::{
        MAX_CHANGED_JOBS_PER_CHECK, MAX_FULLY_CHECKED_JOBS, MAX_OFTEN_CHECKED_EVENTS, ReplayCheck,
        compare,
    };
    use crate::context::Context;
    use crate::elastic::Elastic;
    use crate::event::{Document, Event};
    use crate::fixture::{R, add_pending_job, context, ranks};
    use crate::settings::Settings;

    /// A running job whose R is committed, as a scheduler does.
    fn running_job(cx: &mut Context) -> JobId {
        let id = add_pending_job(cx);
        cx.store_r(id, R);
        let r = Arc::new(penstock_rset::ResourceSet::from_json(R).unwrap());
        cx.claims.restore(id, &r, &IdSet::new()).unwrap();
        let event = Event::new(cx.now, "alloc").with_document(Document::R(r));
        cx.log(id, event);
        id
    }

    fn difference(cx: &mut Context, elastic: &Elastic, id: JobId) -> Option<String> {
        let text = compare(cx, elastic, id).err()?.to_string();
        text.lines().next().map(str::to_owned)
    }

    #[test]
    fn an_event_is_compared_before_it_is_in_the_store() {
        let mut cx = context(Settings::default());
        let elastic = Elastic::default();
        let id = running_job(&mut cx);
        assert_eq!(difference(&mut cx, &elastic, id), None);
        cx.write_events();
        assert_eq!(difference(&mut cx, &elastic, id), None);
        cx.log(id, Event::new(cx.now, "start"));
        // An event that is applied and never written.
        cx.jobs.take_unwritten();
        let found = difference(&mut cx, &elastic, id);
        assert_eq!(found.unwrap(), "its eventlog gives another record:");
    }

    #[test]
    fn a_claim_that_the_record_does_not_give_is_found() {
        let mut cx = context(Settings::default());
        let elastic = Elastic::default();
        let id = running_job(&mut cx);
        assert_eq!(difference(&mut cx, &elastic, id), None);
        let rank = ranks("1");
        cx.claims.release(id, &rank);
        let found = difference(&mut cx, &elastic, id);
        assert_eq!(found.unwrap(), "its eventlog gives another claim:");
        let context = json!({"ranks": "1", "final": false});
        cx.log(id, Event::with(cx.now, "release", &context));
        assert_eq!(difference(&mut cx, &elastic, id), None);
        cx.claims.drop(id);
        let found = difference(&mut cx, &elastic, id);
        assert_eq!(found.unwrap(), "its eventlog gives another claim:");
        let other = add_pending_job(&mut cx);
        let r = Arc::clone(cx.jobs.record(id).unwrap().r().unwrap());
        cx.claims.restore(other, &r, &IdSet::new()).unwrap();
        let found = difference(&mut cx, &elastic, other);
        assert_eq!(found.unwrap(), "its eventlog gives another claim:");
        cx.jobs.purge(other);
        cx.remove_jobs(&[other]);
        let found = difference(&mut cx, &elastic, other);
        assert_eq!(found.unwrap(), "its claim is left");
    }

    #[test]
    fn an_expiration_that_is_not_logged_is_found() {
        let mut cx = context(Settings::default());
        let id = running_job(&mut cx);
        let late = R.replace(r#""expiration":0.0"#, r#""expiration":60.0"#);
        cx.store_r(id, &late);
        let found = difference(&mut cx, &Elastic::default(), id);
        assert_eq!(found.unwrap(), "its eventlog gives another record:");
    }

    #[test]
    fn a_logged_expiration_comes_from_the_log_alone() {
        let mut cx = context(Settings::default());
        let id = running_job(&mut cx);
        let context = ResourceUpdate { expiration: 60.0 };
        cx.log(id, Event::with(cx.now, "resource-update", &context));
        assert_eq!(difference(&mut cx, &Elastic::default(), id), None);
        let record = cx.jobs.record(id).unwrap();
        assert_eq!(record.expiration(), Some(60.0));
    }

    #[test]
    fn another_jobspec_than_the_stored_one_is_found() {
        let mut cx = context(Settings::default());
        let (first, second) = (add_pending_job(&mut cx), add_pending_job(&mut cx));
        let key = cx.jobs.record(second).unwrap().spec().key;
        cx.store_spec(first, key);
        let elastic = Elastic::default();
        let found = difference(&mut cx, &elastic, first);
        assert_eq!(found.unwrap(), "its eventlog gives another record:");
        assert_eq!(difference(&mut cx, &elastic, second), None);
    }

    #[test]
    fn a_job_in_the_store_or_in_memory_alone_is_found() {
        let mut cx = context(Settings::default());
        let (first, second) = (add_pending_job(&mut cx), add_pending_job(&mut cx));
        cx.remove_jobs(&[first]);
        cx.jobs.purge(second);
        let elastic = Elastic::default();
        let found = [first, second].map(|id| difference(&mut cx, &elastic, id).unwrap());
        assert_eq!(
            found,
            ["it is not in the store", "it is in the store alone"]
        );
        cx.remove_jobs(&[second]);
        assert_eq!(difference(&mut cx, &elastic, second), None);
    }

    #[test]
    fn a_request_that_is_not_in_the_log_is_found() {
        let mut cx = context(Settings::default());
        let mut elastic = Elastic::default();
        let id = running_job(&mut cx);
        let context = json!({"seq": 1, "directive": "new", "nodes": 2});
        let event = Event::with(cx.now, "penstock.alloc-request", &context);
        elastic.replay(id, &event);
        let found = difference(&mut cx, &elastic, id);
        assert_eq!(found.unwrap(), "its eventlog gives other PMIx requests:");
        cx.log(id, event);
        assert_eq!(difference(&mut cx, &elastic, id), None);
        let found = difference(&mut cx, &Elastic::default(), id);
        assert_eq!(found.unwrap(), "its eventlog gives other PMIx requests:");
        // Requests of a job that does not exist.
        cx.jobs.purge(id);
        cx.remove_jobs(&[id]);
        let found = difference(&mut cx, &elastic, id);
        assert_eq!(found.unwrap(), "its PMIx requests are left");
    }

    #[test]
    fn a_timer_that_is_not_set_is_found() {
        let mut cx = context(Settings::default());
        let mut elastic = Elastic::default();
        let id = running_job(&mut cx);
        let context = json!({"seq": 1, "directive": "new", "nodes": 2, "deadline": cx.now + 60.0});
        let event = Event::with(cx.now, "penstock.alloc-request", &context);
        elastic.replay(id, &event);
        cx.log(id, event);
        let found = difference(&mut cx, &elastic, id);
        assert_eq!(found.unwrap(), "a timer of its eventlog is not set:");
        elastic.resume(&mut cx, id);
        assert_eq!(difference(&mut cx, &elastic, id), None);
    }

    #[test]
    fn no_timer_of_an_ended_job_is_expected() {
        let mut cx = context(Settings::default());
        let mut elastic = Elastic::default();
        let id = running_job(&mut cx);
        let loan = json!({
            "nodes": 1, "cpus": 4, "gpus": 0, "whole": true, "own": true, "hosts": "n1",
            "until": cx.now + 60.0,
        });
        let end = json!({"seq": 1, "status": 0, "reason": "", "results": [], "lent": [loan]});
        for (name, context) in [
            (
                "penstock.alloc-request",
                json!({"seq": 1, "directive": "release", "nodes": 1}),
            ),
            ("penstock.alloc-end", end),
        ] {
            let event = Event::with(cx.now, name, &context);
            elastic.replay(id, &event);
            cx.log(id, event);
        }
        let found = difference(&mut cx, &elastic, id);
        assert_eq!(found.unwrap(), "a timer of its eventlog is not set:");
        // A restart resumes the jobs that have not ended.
        for (name, context) in [
            ("finish", json!({"status": 0})),
            ("release", json!({"ranks": "all", "final": true})),
            ("free", json!({})),
            ("clean", json!({})),
        ] {
            cx.log(id, Event::with(cx.now, name, &context));
        }
        cx.claims.drop(id);
        assert_eq!(difference(&mut cx, &elastic, id), None);
    }

    #[test]
    fn a_request_job_that_is_not_counted_is_found() {
        let mut cx = context(Settings::default());
        let mut elastic = Elastic::default();
        let id = add_pending_job(&mut cx);
        let context = json!({"job": 1, "seq": 1, "directive": "new", "id": null, "joins": null,
            "demand": {"nodes": 2, "cpus": 0}, "attempt": "full"});
        let event = Event::with(cx.now, "penstock.request", &context);
        cx.log(id, event.clone());
        assert!(cx.jobs.record(id).unwrap().elastic_request().is_some());
        let found = difference(&mut cx, &elastic, id);
        assert_eq!(found.unwrap(), "its eventlog gives another usage:");
        elastic.replay(id, &event);
        assert_eq!(difference(&mut cx, &elastic, id), None);
    }

    #[test]
    fn every_job_is_compared_with_few_and_in_turn_with_many() {
        let mut cx = context(Settings::default());
        let (mut check, elastic) = (ReplayCheck::default(), Elastic::default());
        let first = add_pending_job(&mut cx);
        for _ in 1..MAX_FULLY_CHECKED_JOBS {
            add_pending_job(&mut cx);
        }
        assert_eq!(
            check.select(&mut cx.jobs, &elastic).len(),
            MAX_FULLY_CHECKED_JOBS
        );
        assert!(check.select(&mut cx.jobs, &elastic).is_empty());
        cx.log(first, Event::new(cx.now, "debug"));
        assert_eq!(
            check.select(&mut cx.jobs, &elastic).len(),
            MAX_FULLY_CHECKED_JOBS
        );
        add_pending_job(&mut cx);
        let mut seen = check.select(&mut cx.jobs, &elastic);
        for _ in 0..MAX_FULLY_CHECKED_JOBS {
            cx.log(first, Event::new(cx.now, "debug"));
            let selected = check.select(&mut cx.jobs, &elastic);
            assert!(selected.contains(&first) && selected.len() < MAX_FULLY_CHECKED_JOBS);
            seen.extend(selected);
        }
        assert_eq!(seen.len(), MAX_FULLY_CHECKED_JOBS + 1);
    }

    #[test]
    fn of_many_changed_jobs_every_one_is_compared_after_some_steps() {
        let mut cx = context(Settings::default());
        let (mut check, elastic) = (ReplayCheck::default(), Elastic::default());
        let count = 3 * MAX_CHANGED_JOBS_PER_CHECK;
        let ids: BTreeSet<JobId> = (0..count).map(|_| add_pending_job(&mut cx)).collect();
        let mut seen = BTreeSet::new();
        for _ in 0..3 {
            seen.extend(check.select(&mut cx.jobs, &elastic));
        }
        assert_eq!(seen, ids);
        assert!(check.select(&mut cx.jobs, &elastic).is_empty());
    }

    #[test]
    fn a_long_eventlog_is_due_now_and_then_and_at_the_end() {
        let mut cx = context(Settings::default());
        let mut check = ReplayCheck::default();
        let id = add_pending_job(&mut cx);
        let mut due = 0;
        for _ in 0..8 * MAX_OFTEN_CHECKED_EVENTS {
            cx.log(id, Event::new(cx.now, "debug"));
            due += u32::from(check.take_due(cx.jobs.record(id).unwrap()));
        }
        assert!(
            (MAX_OFTEN_CHECKED_EVENTS..2 * MAX_OFTEN_CHECKED_EVENTS).contains(&due),
            "{due}"
        );
        let cancel = json!({"type": "cancel", "severity": 0, "note": ""});
        cx.log(id, Event::with(cx.now, "exception", &cancel));
        cx.log(id, Event::new(cx.now, "clean"));
        let record = cx.jobs.record(id).unwrap();
        assert!(check.take_due(record) && !check.take_due(record));
    }

    #[test]
    #[should_panic(expected = "its eventlog gives another record")]
    fn a_difference_is_a_panic() {
        let mut cx = context(Settings::default());
        let id = running_job(&mut cx);
        cx.clear_r(id);
        ReplayCheck::default().assert_records(&mut cx, &Elastic::default());
    }
}
