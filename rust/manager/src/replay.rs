//! Restart: rebuilds every job from its eventlog and resumes the active ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use penstock_flux::eventlog;
use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_store::{EndedClass, EndedJob, Error, JobRecord, Jobs, Store};

use crate::census::{Census, Class};
use crate::context::{Access, Context};
use crate::depend::Dependencies;
use crate::dialogue::{AllocState, Dialogue, ExecState};
use crate::elastic::Elastic;
use crate::event::{Event, EventTime};
use crate::exec::ExecPeer;
use crate::hooks::Hooks;
use crate::jobs::{Job, is_evictable};
use crate::policy;
use crate::priority;
use crate::purge;
use crate::record::Record;
use crate::scheduler::SchedulerPeer;
use crate::settings::Settings;
use crate::spec::{Spec, Stored};
use crate::state::{JobResult, State};
use crate::store_check::find_wrong_submission;

/// Why one job in the store cannot be restored.
type RestoreFault = Box<dyn std::error::Error>;

/// The number of jobs read from the store at a time.
const JOBS_PER_READ: usize = 1000;

/// The number of jobspecs of inactive jobs that are in memory at a start.
const MAX_RESTORED_JOBSPECS: usize = 4096;

/// The number of pending jobs resumed in one slice: some milliseconds' work.
const RESUMED_JOBS_PER_SLICE: usize = 150;

/// The parts of a manager that have a state in the store.
pub(crate) struct Restored {
    pub(crate) cx: Context,
    pub(crate) scheduler: SchedulerPeer,
    pub(crate) exec: ExecPeer,
    pub(crate) hooks: Hooks,
    pub(crate) elastic: Elastic,
    pub(crate) dependencies: Dependencies,
    pub(crate) census: Census,
    pub(crate) resumption: Resumption,
}

/// The pending jobs that are still to be resumed, in slices, so that a long queue does not delay a start.
///
/// The scheduler gets them in the order of their priorities: what it starts meanwhile is what it would have started first.
#[derive(Debug, Default)]
pub(crate) struct Resumption {
    left: std::vec::IntoIter<JobId>,
}

impl Resumption {
    fn new(cx: &Context, mut ids: Vec<JobId>) -> Self {
        ids.sort_by_cached_key(|id| {
            let priority = cx.jobs.record(*id).map(Record::priority);
            (Reverse(priority), *id)
        });
        let left = ids.into_iter();
        Self { left }
    }

    /// Resumes the next jobs.
    pub(crate) fn run_next_slice(&mut self, cx: &mut Context) {
        for id in self.left.by_ref().take(RESUMED_JOBS_PER_SLICE) {
            if cx.jobs.get(id).is_some_and(is_to_be_resumed) {
                cx.revisit(id);
            }
        }
    }

    /// Whether [`run_next_slice`](Self::run_next_slice) has something to do.
    pub(crate) fn is_open(&self) -> bool {
        self.left() > 0
    }

    /// The number of jobs that are still to be resumed.
    pub(crate) fn left(&self) -> u64 {
        self.left.len() as u64
    }
}

/// Whether a restored job is pending, and nothing has happened to it since the restart that sends it to the scheduler.
fn is_to_be_resumed(job: &Job) -> bool {
    job.record.state() == State::Sched
        && job.record.elastic().is_none()
        && job.dialogue.scheduler.alloc() == AllocState::Idle
}

impl Restored {
    /// Restores what is in the store, and resumes the jobs that were active. A job that cannot be read
    /// is left out and named in the log.
    pub(crate) fn from_store(store: Store, settings: Settings, now: f64) -> Result<Self, Error> {
        let mut restored = Self::without_jobs(store, settings, now, Access::Writing)?;
        let active = restored.restore_jobs(Access::Writing)?;
        restored.resume_jobs(&active)?;
        Ok(restored)
    }

    /// Restores what is in the store, and changes nothing.
    pub(crate) fn for_reading(store: Store, settings: Settings, now: f64) -> Result<Self, Error> {
        let mut restored = Self::without_jobs(store, settings, now, Access::Reading)?;
        for id in restored.restore_jobs(Access::Reading)? {
            restored.restore_claim(id);
        }
        Ok(restored)
    }

    fn without_jobs(
        store: Store,
        settings: Settings,
        now: f64,
        access: Access,
    ) -> Result<Self, Error> {
        let (mut cx, writers) = Context::open(store, settings, now, access)?;
        purge::restore(&mut cx)?;
        let exec = ExecPeer::restore(writers.exec, &mut cx)?;
        Ok(Self {
            cx,
            scheduler: SchedulerPeer::new(writers.scheduler),
            exec,
            hooks: Hooks::new(writers.hooks),
            elastic: Elastic::default(),
            dependencies: Dependencies::default(),
            census: Census::default(),
            resumption: Resumption::default(),
        })
    }

    /// Restores all jobs. Returns the active ones.
    fn restore_jobs(&mut self, access: Access) -> Result<Vec<JobId>, Error> {
        for warning in self.cx.store().warnings().to_vec() {
            self.cx.log_line(format!("store: {warning}"));
        }
        self.cx.reserve_id(self.cx.store().greatest_id());
        let mut specs: BTreeMap<i64, Stored> = BTreeMap::new();
        // By jobspec: the number of jobs that stay in the store alone.
        let mut evicted: HashMap<i64, u32> = HashMap::new();
        let mut active = Vec::new();
        let mut read = Jobs::default();
        let mut previous = None;
        if access == Access::Writing {
            self.cx.remove_unused_ended(i64::MIN, None);
        }
        let ended = self.cx.store().ended_jobs()?;
        loop {
            read = self
                .cx
                .store()
                .jobs_to_restore(read.last, JOBS_PER_READ, &ended)?;
            for (job, class) in read.ended.drain(..) {
                self.restore_ended(&job, &class);
                *evicted.entry(job.spec).or_default() += 1;
            }
            for id in read.stale.drain(..) {
                let text =
                    format!("store: job {id} is read from its events: it differs in `ended_jobs`");
                self.cx.log_line(text);
                if access == Access::Writing {
                    self.cx.remove_ended_rows_of(id);
                }
            }
            for damaged in read.damaged.drain(..) {
                self.cx.log_line(format!("store: {damaged}"));
            }
            for job in read.records.drain(..) {
                let id = job.id;
                self.cx.reserve_id(id);
                let stored = match specs.get(&job.row.spec) {
                    Some(stored) => Ok(stored.clone()),
                    None => self.stored_spec(job.row.spec)?,
                };
                let restored = stored.and_then(|stored| {
                    specs.insert(job.row.spec, stored.clone());
                    self.restore_job(&job, previous.as_ref(), &stored, access)
                });
                match restored {
                    Ok(State::Inactive) => {
                        if !self.cx.jobs.is_in_memory(id) {
                            *evicted.entry(job.row.spec).or_default() += 1;
                        }
                    }
                    Ok(_) => active.push(id),
                    Err(fault) => {
                        self.cx
                            .log_line(format!("store: job {id} is left out: {fault}"));
                    }
                }
                previous = Some(job);
            }
            // Jobs refer to those of some, and a jobspec is often that of the jobs before.
            if specs.len() > MAX_RESTORED_JOBSPECS {
                specs.retain(|_, stored| Arc::strong_count(&stored.spec) > 1);
            }
            if read.last.is_none() {
                break;
            }
        }
        self.restore_references(evicted, &specs);
        Ok(active)
    }

    /// Counts the references to jobspecs of jobs that stay in the store alone.
    fn restore_references(&mut self, evicted: HashMap<i64, u32>, specs: &BTreeMap<i64, Stored>) {
        for (key, jobs) in evicted {
            let spec = specs.get(&key).map(|stored| Arc::downgrade(&stored.spec));
            let spec = spec.filter(|spec| spec.strong_count() > 1);
            if jobs > 1 || spec.is_some() {
                let spec = spec.unwrap_or_default();
                self.cx.jobspecs.restore_evicted(key, jobs, spec);
            }
        }
    }

    /// Resumes the jobs that were active, most of the pending ones later.
    fn resume_jobs(&mut self, active: &[JobId]) -> Result<(), Error> {
        let replaced = self.cx.store().replaced()?;
        let mut pending = Vec::new();
        for id in active.iter().copied() {
            if replaced.is_none() && self.cx.jobs.get(id).is_some_and(is_to_be_resumed) {
                pending.push(id);
            } else {
                self.resume(id);
            }
        }
        if let Some(reason) = replaced {
            self.hold_active(active, &reason);
        }
        self.resumption = Resumption::new(&self.cx, pending);
        self.resumption.run_next_slice(&mut self.cx);
        Ok(())
    }

    /// Prevents a second run of jobs that may have run since the database was written, which has taken the place of a
    /// later one: pending jobs are held, and jobs that were about to start fail. A job whose start may have been sent runs
    /// only if its execution service knows it: see [`ExecPeer::forget_journal`].
    fn hold_active(&mut self, active: &[JobId], reason: &str) {
        let cx = &mut self.cx;
        let mut held = 0_usize;
        for id in active.iter().copied() {
            let Some(job) = cx.jobs.get(id) else {
                continue;
            };
            if !job.record.has_resources() && job.record.state() <= State::Sched {
                priority::hold(cx, id);
                held += 1;
            } else if job.record.state() == State::Run
                && !matches!(job.dialogue.exec, ExecState::Queued { .. })
            {
                let note = format!("{reason}: the job may have run since");
                cx.fail_job(id, "restore", &note);
            }
        }
        cx.log_line(format!(
            "store: {reason}: {held} pending jobs are held, because they may have run since; \
             `penstock urgency ID 16` releases a job"
        ));
        cx.forget_replaced();
        self.exec.forget_journal(cx);
    }

    /// A jobspec in the store; the outer error is the store's.
    fn stored_spec(&mut self, key: i64) -> Result<Result<Stored, RestoreFault>, Error> {
        let text = match self.cx.store().jobspec(key) {
            Err(error) if error.is_damaged() => {
                return Ok(Err(RestoreFault::from(error.to_string())));
            }
            read => read?,
        };
        let text = text.ok_or_else(|| RestoreFault::from("it has no jobspec"));
        Ok(text.and_then(|text| {
            let jobspec = Jobspec::from_json(&text)?;
            let spec = Spec::new(key, &jobspec);
            let requested = policy::requested(jobspec, &self.cx.settings)?;
            Ok(self.cx.jobspecs.index(&text, spec, requested))
        }))
    }

    /// Restores one job. Returns its state. Jobs of one submission that are pending have the same events: `previous` is the
    /// job before.
    fn restore_job(
        &mut self,
        job: &JobRecord,
        previous: Option<&JobRecord>,
        stored: &Stored,
        access: Access,
    ) -> Result<State, RestoreFault> {
        let same = previous.filter(|previous| differs_by_id_alone(previous, job));
        let record = match same.and_then(|previous| self.cx.jobs.record(previous.id)) {
            // The entries of a job in the tables of the elastic module are its own.
            Some(record) if record.elastic().is_none() => {
                self.elastic.observe(job.id);
                record.with_id(job.id)
            }
            _ => self.replay_job(job, stored, access)?,
        };
        let state = record.state();
        if state >= State::Cleanup {
            self.elastic.forget_request_job(job.id);
        }
        self.census.enter(&record, state);
        if state == State::Inactive && is_evictable(&record) {
            self.cx.jobs.record_evicted(job.id);
            match access {
                Access::Writing => self.cx.store_ended(&record),
                Access::Reading => self.cx.collect_ended(&record),
            }
            return Ok(state);
        }
        let dialogue = Dialogue::resume(
            &record,
            Arc::clone(&stored.requested),
            self.exec.stored_start(job.id),
        );
        self.cx.jobs.insert(record, dialogue);
        Ok(state)
    }

    /// Restores a job that has ended, without its eventlog.
    fn restore_ended(&mut self, job: &EndedJob, class: &EndedClass) {
        let id = job.id;
        self.cx.reserve_id(id);
        self.cx.jobs.record_evicted(id);
        self.elastic.observe(id);
        let class = Class {
            userid: job.userid,
            queue: class.queue.as_deref(),
            result: JobResult::of_bit(class.result),
        };
        let end = (EventTime::new(job.end), id);
        let t_submit = EventTime::new(job.t_submit);
        self.census.enter_ended(class, end, job.name_hash, t_submit);
    }

    /// Replays a job: the events since its stored facts if it has some, else all its events.
    fn replay_job(
        &mut self,
        job: &JobRecord,
        stored: &Stored,
        access: Access,
    ) -> Result<Record, RestoreFault> {
        let Some(facts) = &job.facts else {
            return self.replay_from(None, job, stored);
        };
        let spec = Arc::clone(&stored.spec);
        let known = Record::from_facts(job.id, job.row.userid, spec, facts.events, &facts.text);
        let error = match known {
            Ok(known) => return self.replay_from(Some(known), job, stored),
            Err(error) => error,
        };
        let id = job.id;
        let text =
            format!("store: job {id} is read from all its events, not `pending_facts`: {error}");
        self.cx.log_line(text);
        if access == Access::Writing {
            self.cx.remove_pending_facts(id);
        }
        let whole = self.cx.store().job(id)?;
        let whole = whole.ok_or_else(|| RestoreFault::from("it is gone"))?;
        self.replay_from(None, &whole, stored)
    }

    /// The facts of a job by known ones and the events that follow.
    fn replay_from(
        &mut self,
        known: Option<Record>,
        job: &JobRecord,
        stored: &Stored,
    ) -> Result<Record, RestoreFault> {
        let r = job.row.r.as_deref().map(ResourceSet::from_json).transpose();
        let r = r.unwrap_or_else(|error| {
            let id = job.id;
            self.cx.log_line(format!(
                "store: the resources of job {id} are lost: {error}"
            ));
            None
        });
        let r = r.map(Arc::new);
        let spec = Arc::clone(&stored.spec);
        let elastic = &mut self.elastic;
        let (id, userid) = (job.id, job.row.userid);
        elastic.observe(id);
        let mut observe = |event: &Event| elastic.replay(id, event);
        let mut record = known.unwrap_or_else(|| Record::new(id, userid, spec));
        record.apply_lines(&job.eventlog(), r.as_ref(), &mut observe)?;
        match find_wrong_submission(job, &record) {
            Some(fault) => Err(fault.into()),
            None => Ok(record),
        }
    }

    /// Restores the claim of a job to its resources, if it has any.
    fn restore_claim(&mut self, id: JobId) {
        let cx = &mut self.cx;
        let Some(job) = cx.jobs.get(id).filter(|job| job.record.has_resources()) else {
            return;
        };
        if let Some(r) = job.record.r().cloned()
            && let Err(error) = cx.claims.restore(id, &r, &job.record.freed().clone())
        {
            cx.log_line(format!("store: {error}"));
        }
    }

    /// Resumes a job that was active before the restart.
    fn resume(&mut self, id: JobId) {
        let cx = &mut self.cx;
        let Some(job) = cx.jobs.get(id) else {
            return;
        };
        if matches!(job.dialogue.exec, ExecState::Queued { .. }) {
            self.exec.resume(cx, id);
        }
        let has_resources = job.record.has_resources();
        let is_without_r = has_resources && job.record.r().is_none();
        self.restore_claim(id);
        let cx = &mut self.cx;
        self.dependencies.resume(cx, id);
        self.elastic.resume(cx, id);
        // To other jobs nothing has happened, and a queue may live through many restarts.
        if has_resources {
            cx.log(id, Event::new(cx.now, eventlog::FLUX_RESTART));
        }
        if is_without_r {
            cx.fail_job(id, "alloc", "its resources cannot be read from the store");
        }
        cx.revisit(id);
    }
}

/// Whether two jobs without resources have the same owner, jobspec and events.
fn differs_by_id_alone(one: &JobRecord, other: &JobRecord) -> bool {
    let facts = |job: &JobRecord| (job.row.userid, job.row.spec, job.row.t_submit.to_bits());
    let common = |job: &JobRecord| job.common_events.as_ref().map(Arc::as_ptr);
    facts(one) == facts(other)
        && one.facts.is_none()
        && other.facts.is_none()
        && one.row.r.is_none()
        && other.row.r.is_none()
        && common(one) == common(other)
        && one.own_events == other.own_events
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use penstock_jobspec::job_id::JobId;
    use penstock_store::Store;

    use super::Restored;
    use crate::fixture::{add_pending_job, context};
    use crate::settings::Settings;
    use crate::store_check::check_jobs;

    /// The number of events of the job before its facts.
    const KNOWN: u32 = 40;

    /// A store with a pending job of forty events, of which some are missing, the facts that follow from them, and a later event.
    fn store(facts: impl Fn(&str) -> String, missing: std::ops::Range<u32>) -> (Store, JobId) {
        let mut cx = context(Settings::default());
        let id = add_pending_job(&mut cx);
        let jobspec = cx.jobs.record(id).unwrap().spec().key;
        let jobspec = cx.store().jobspec(jobspec).unwrap().unwrap();
        let t_submit = cx.jobs.record(id).unwrap().t_submit();
        cx.write_events();
        let mut lines = cx.store().eventlog(id).unwrap();
        let mut record = cx.jobs.record(id).unwrap().clone();
        for priority in record.events()..KNOWN {
            let line = format!(
                "{{\"timestamp\":{t_submit},\"name\":\"priority\",\"context\":{{\"priority\":{priority}}}}}\n"
            );
            record.apply_lines(&line, None, &mut |_| {}).unwrap();
            lines.write_str(&line).unwrap();
        }
        let mut store = Store::in_memory().unwrap();
        let key = store.add_jobspec(1000, &jobspec).unwrap();
        store.add_job(id, 1000, t_submit, key).unwrap();
        for (seq, line) in (0..).zip(lines.split_inclusive('\n')) {
            if !missing.contains(&seq) {
                store.append_events(id, seq, line).unwrap();
            }
        }
        let facts = facts(&record.pending_facts().unwrap());
        store.set_pending_facts(id, KNOWN, &facts).unwrap();
        let line = "{\"timestamp\":2000,\"name\":\"memo\",\"context\":{\"a\":1}}\n";
        store.append_events(id, KNOWN, line).unwrap();
        store.commit().unwrap();
        (store, id)
    }

    /// The priority and the number of events of the job after a start; `None` if the job was left out.
    fn restored(store: Store, id: JobId) -> Option<(u32, u32)> {
        let settings = Settings::default();
        let restored = Restored::from_store(store, settings, 3000.0).unwrap();
        let record = restored.cx.jobs.record(id)?;
        assert_eq!(record.memo().unwrap()["a"], 1);
        Some((record.priority(), record.events()))
    }

    #[test]
    fn a_start_reads_the_facts_of_a_pending_job_and_the_events_since() {
        for missing in [0..0, 5..KNOWN] {
            let (store, id) = store(str::to_owned, missing);
            assert_eq!(restored(store, id), Some((KNOWN - 1, KNOWN + 1)));
        }
        let missing = KNOWN..KNOWN;
        let (mut store, id) = store(str::to_owned, missing);
        // An event after the facts is missing.
        store.append_events(id, KNOWN + 2, "{}\n").unwrap();
        assert_eq!(restored(store, id), None);
    }

    #[test]
    fn facts_that_cannot_be_read_follow_from_the_events() {
        for text in ["", "{\"state\":\"SCHED\"}"] {
            let (store, id) = store(|_| text.to_owned(), 0..0);
            assert_eq!(check_jobs(&store).unwrap().len(), 1);
            assert_eq!(restored(store, id), Some((KNOWN - 1, KNOWN + 1)));
        }
    }

    #[test]
    fn the_check_finds_facts_that_differ_from_the_events() {
        let (store, _) = store(str::to_owned, 0..0);
        assert_eq!(check_jobs(&store).unwrap(), []);
        let other = |facts: &str| facts.replace("\"urgency\":16", "\"urgency\":17");
        let (store, id) = self::store(other, 0..0);
        let problems = check_jobs(&store).unwrap();
        let reason = "its facts in `pending_facts` differ from its events";
        assert_eq!((problems[0].id, problems[0].reason.as_str()), (id, reason));
    }
}
