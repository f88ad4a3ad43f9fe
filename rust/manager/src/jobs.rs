//! `Jobs`: the jobs of the instance. No other module logs their events.

use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};
use std::ops::RangeBounds;
use std::sync::Arc;

use penstock_flux::{RequestError, RequestedResources, eventlog, job_ingest};
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use serde_json::{Map, Value};

use crate::dialogue::{AllocState, Dialogue, ExecState, HookCalls, SchedulerDialogue};
use crate::event::{Event, counted_event_bytes};
use crate::held_values::{Addresses, HeldValues};
use crate::record::{HookStage, Record};
use crate::settings::Settings;
use crate::spec::{Spec, Stored};
use crate::state::State;

/// A job: its facts, and the state of the conversations about it.
#[derive(Debug)]
pub struct Job {
    /// The facts that follow from the eventlog.
    pub record: Record,
    /// The state that is not in the eventlog, and that a restart forgets.
    pub dialogue: Dialogue,
}

impl Job {
    /// The job's resources: allocated, or committed for its outstanding request.
    pub(crate) fn r(&self) -> Option<&Arc<ResourceSet>> {
        self.record.r().or(self.dialogue.scheduler.committed())
    }

    /// The addresses of the values that it shares with other jobs.
    pub(crate) fn addresses(&self) -> Addresses {
        Addresses::of(self.record.spec(), self.dialogue.scheduler.requested())
    }

    /// Whether the job has had no resources and no hook, and carries no PMIx request.
    pub(crate) fn has_only_been_pending(&self) -> bool {
        let (record, dialogue) = (&self.record, &self.dialogue);
        !record.has_resources()
            && record.elastic().is_none()
            && record.prolog() == HookStage::Idle
            && record.epilog() == HookStage::Idle
            && dialogue.exec == ExecState::Idle
            && dialogue.scheduler.alloc() != AllocState::Surplus
    }

    /// The job's annotations: of the allocation, or of the pending job.
    pub(crate) fn annotations(&self) -> &Map<String, Value> {
        let pending = self.dialogue.scheduler.annotations();
        pending.unwrap_or_else(|| self.record.annotations())
    }

    /// Whether the job was submitted as waitable, and its end is to be reported.
    fn is_awaited(&self) -> bool {
        self.record.flags() & job_ingest::WAITABLE != 0 && !self.dialogue.is_reported()
    }

    /// Whether an epilog that has not begun is due for a job with resources: its prolog or its tasks
    /// may have run, and no resources were freed without an epilog.
    pub(crate) fn is_epilog_due(&self, settings: &Settings) -> bool {
        let record = &self.record;
        let may_have_run = record.prolog() != HookStage::Idle
            || record.has_started()
            || self.dialogue.exec.was_sent();
        // Resources that the job itself released were freed without an epilog.
        let is_whole = match record.elastic() {
            Some(elastic) => record.freed().is_subset(&elastic.released),
            None => record.freed().is_empty(),
        };
        settings.epilog
            && record.epilog() == HookStage::Idle
            && record.has_resources()
            && is_whole
            && may_have_run
            && record.elastic_request().is_none()
    }

    /// Whether ranks that the execution service releases now are retained until the epilog has
    /// finished. Once some are, all are.
    pub(crate) fn retains_release(&self, settings: &Settings) -> bool {
        self.record.epilog() == HookStage::Begun
            || !self.record.retained().is_empty()
            || self.is_epilog_due(settings)
    }
}

/// The right to change the conversation with the scheduler: of each job, and its handshake.
#[derive(Debug)]
pub(crate) struct SchedulerWriter(());

/// The right to change the conversation with the execution service.
#[derive(Debug)]
pub(crate) struct ExecWriter(());

/// The right to change the conversation with the `hooks` service.
#[derive(Debug)]
pub(crate) struct HooksWriter(());

/// One writer for each peer.
#[derive(Debug)]
pub(crate) struct Writers {
    pub(crate) scheduler: SchedulerWriter,
    pub(crate) exec: ExecWriter,
    pub(crate) hooks: HooksWriter,
}

/// The jobs of a submission that differ by their ids alone.
#[derive(Clone, Debug)]
pub(crate) struct Copies {
    /// The facts of each, but for its id.
    record: Record,
    /// The events of each that are not in the store as [common](Self::take_common_events) ones.
    lines: String,
    requested: Arc<RequestedResources>,
}

impl Copies {
    /// Jobs of a user before their first event.
    pub(crate) fn new(userid: u32, stored: &Stored) -> Self {
        Self {
            record: Record::new(JobId::default(), userid, Arc::clone(&stored.spec)),
            lines: String::new(),
            requested: Arc::clone(&stored.requested),
        }
    }

    /// The same with another jobspec, whose jobs have the same events.
    pub(crate) fn with_jobspec(&self, stored: &Stored) -> Self {
        Self {
            record: self.record.with_spec(Arc::clone(&stored.spec)),
            lines: self.lines.clone(),
            requested: Arc::clone(&stored.requested),
        }
    }

    /// Logs an event of each job that is added from now on.
    pub(crate) fn log(&mut self, event: &Event) {
        event.write(&mut self.lines);
        self.record.apply(event);
    }

    /// The facts of each, but for its id.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// The events that are to be stored with each job.
    pub(crate) fn lines(&self) -> &str {
        &self.lines
    }

    /// Takes the events, which are to be stored once for all jobs that are added from now on.
    pub(crate) fn take_common_events(&mut self) -> String {
        std::mem::take(&mut self.lines)
    }

    /// Replaces what is requested of the scheduler, for the jobs that are added from now on.
    pub(crate) fn set_requested(&mut self, requested: Arc<RequestedResources>) {
        self.requested = requested;
    }
}

/// An event that was logged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Logged {
    /// The state before it.
    pub(crate) before: State,
    /// The state after it.
    pub(crate) after: State,
    /// The bytes that it counts in the store.
    pub(crate) counted_bytes: u64,
}

/// The jobs of submissions that are not complete: ranges of ids, the last one by the first one.
#[derive(Clone, Debug, Default)]
pub(crate) struct HiddenJobs(BTreeMap<JobId, JobId>);

impl HiddenJobs {
    /// Whether a job is one of them.
    pub(crate) fn contains(&self, id: JobId) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let range = self.0.range(..=id).next_back();
        range.is_some_and(|(_, last)| id <= *last)
    }
}

/// The number of jobs with events that are not in the store yet above which they are written before the commit.
const MIN_WRITTEN_JOBS: usize = 500;

/// The number of jobs that stay in memory after their end: these are often asked for. Few in debug builds, which are to
/// show what depends on more.
const RECENT_JOBS: usize = if cfg!(debug_assertions) { 2 } else { 2048 };

/// Events that are not in the store yet, by job: the sequence number of the first one, and the lines.
pub(crate) type Unwritten = BTreeMap<JobId, (u32, String)>;

/// The active jobs of a user.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ActiveJobs {
    pub(crate) count: u64,
    /// The number of their dependencies.
    pub(crate) dependencies: u64,
    /// The size of their memos.
    pub(crate) memo_bytes: u64,
}

impl ActiveJobs {
    pub(crate) fn without_dependencies(count: u64) -> Self {
        Self {
            count,
            ..Self::default()
        }
    }

    /// Jobs with this spec that are to be added.
    pub(crate) fn of(spec: &Spec, count: u64) -> Self {
        Self {
            dependencies: count.saturating_mul(spec.dependencies.len() as u64),
            ..Self::without_dependencies(count)
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.dependencies += other.dependencies;
        self.memo_bytes += other.memo_bytes;
    }

    fn subtract(&mut self, other: Self) {
        self.count = self.count.saturating_sub(other.count);
        self.dependencies = self.dependencies.saturating_sub(other.dependencies);
        self.memo_bytes = self.memo_bytes.saturating_sub(other.memo_bytes);
    }
}

/// The jobs by id, and their events that are not in the store yet.
///
/// These are the active jobs, those that ended last, inactive jobs with PMIx requests, and until the end of a call the
/// inactive jobs that it [has read](crate::context::Context::load) from the store. Jobs of submissions that are not complete are [hidden](HiddenJobs): no query finds them.
///
/// [`log`](Self::log) is the only access to a `&mut Record`: every event applied to a record is in its
/// log. A part of a [`Dialogue`] is changed with the writer of its peer.
#[derive(Debug)]
pub struct Jobs {
    /// Boxed: the nodes of a tree that grows at its end are half empty.
    by_id: BTreeMap<JobId, Box<Job>>,
    hidden: HiddenJobs,
    /// The inactive jobs that are [to be evicted](Self::evict), in the order of their ends.
    ended: VecDeque<JobId>,
    /// The number of these that stay in memory.
    max_ended: usize,
    /// The inactive jobs that were read from the store.
    loaded: BTreeSet<JobId>,
    /// The greatest id of a job that is in the store alone.
    greatest_evicted: JobId,
    /// Per job: sequence number of the first unwritten event, and the lines.
    unwritten: Unwritten,
    /// The pending jobs whose facts are to be stored when their events are written.
    due_facts: BTreeSet<JobId>,
    /// The length in bytes of the eventlogs of active jobs for which it was [set](Self::set_eventlog_bytes).
    eventlog_bytes: BTreeMap<JobId, u64>,
    greatest_purged: JobId,
    /// The jobs that have resources.
    holders: BTreeSet<JobId>,
    /// The active jobs of each user who has any.
    active_by_user: BTreeMap<u32, ActiveJobs>,
    /// The number of [awaited](Job::is_awaited) jobs, without hidden ones.
    awaited: u64,
    /// The values of active jobs in memory: unlike `active_by_user`, without the jobs that a submission has yet to add.
    held_values: HeldValues,
    /// Jobs added, changed or removed since the last check of their records.
    #[cfg(debug_assertions)]
    unchecked: BTreeSet<JobId>,
}

impl Jobs {
    /// No jobs, and the writers of their conversations: one of each, which its peer keeps.
    pub(crate) fn new() -> (Self, Writers) {
        let jobs = Self {
            by_id: BTreeMap::new(),
            hidden: HiddenJobs::default(),
            ended: VecDeque::new(),
            max_ended: RECENT_JOBS,
            loaded: BTreeSet::new(),
            greatest_evicted: JobId::default(),
            unwritten: Unwritten::new(),
            due_facts: BTreeSet::new(),
            eventlog_bytes: BTreeMap::new(),
            greatest_purged: JobId::default(),
            holders: BTreeSet::new(),
            active_by_user: BTreeMap::new(),
            awaited: 0,
            held_values: HeldValues::default(),
            #[cfg(debug_assertions)]
            unchecked: BTreeSet::new(),
        };
        let writers = Writers {
            scheduler: SchedulerWriter(()),
            exec: ExecWriter(()),
            hooks: HooksWriter(()),
        };
        (jobs, writers)
    }

    /// The job with this id.
    pub(crate) fn get(&self, id: JobId) -> Option<&Job> {
        let job = self.by_id.get(&id).map(AsRef::as_ref);
        job.filter(|_| !self.hidden.contains(id))
    }

    /// The facts of the job with this id.
    pub(crate) fn record(&self, id: JobId) -> Option<&Record> {
        self.get(id).map(|job| &job.record)
    }

    /// The facts of the job with this id, and its conversation with the scheduler for change.
    pub(crate) fn scheduler_mut(
        &mut self,
        _: &SchedulerWriter,
        id: JobId,
    ) -> Option<(&Record, &mut SchedulerDialogue)> {
        let job = self.by_id.get_mut(&id)?;
        Some((&job.record, &mut job.dialogue.scheduler))
    }

    /// The facts of the job with this id, and its conversation with the execution service for change.
    pub(crate) fn exec_mut(
        &mut self,
        _: &ExecWriter,
        id: JobId,
    ) -> Option<(&Record, &mut ExecState)> {
        let job = self.by_id.get_mut(&id)?;
        Some((&job.record, &mut job.dialogue.exec))
    }

    /// The facts of the job with this id, and its requests to the `hooks` service for change.
    pub(crate) fn hooks_mut(
        &mut self,
        _: &HooksWriter,
        id: JobId,
    ) -> Option<(&Record, &mut HookCalls)> {
        let job = self.by_id.get_mut(&id)?;
        Some((&job.record, &mut job.dialogue.hooks))
    }

    /// Replaces what is requested of the scheduler for a job, unless it is the same. An outstanding request keeps the old
    /// form. Returns whether it was replaced.
    pub(crate) fn set_requested(&mut self, id: JobId, requested: &Arc<RequestedResources>) -> bool {
        let Some(job) = self.by_id.get_mut(&id) else {
            return false;
        };
        let addresses = job.addresses();
        let is_replaced = job.dialogue.set_requested(requested);
        Self::follow_values(&mut self.held_values, job, addresses);
        is_replaced
    }

    /// Marks the end of a job as reported to the requests that follow it. Returns the job if it was not yet.
    pub(crate) fn mark_reported(&mut self, id: JobId) -> Option<&Record> {
        let job = self.by_id.get_mut(&id)?;
        let was_awaited = job.is_awaited();
        if !job.dialogue.mark_reported() {
            return None;
        }
        self.awaited -= u64::from(was_awaited);
        if is_evictable(&job.record) {
            self.ended.push_back(id);
        }
        Some(&job.record)
    }

    /// Sets the number of jobs that stay in memory after their end.
    pub(crate) fn set_max_ended(&mut self, jobs: usize) {
        self.max_ended = jobs;
    }

    /// Whether a job is in memory, hidden or not; if not, the store may have it.
    pub(crate) fn is_in_memory(&self, id: JobId) -> bool {
        self.by_id.contains_key(&id) || id > self.greatest_evicted
    }

    /// Adds an inactive job that was read from the store, for the rest of this call.
    pub(crate) fn insert_loaded(&mut self, record: Record, dialogue: Dialogue) {
        let id = record.id();
        self.loaded.insert(id);
        self.by_id.insert(id, Box::new(Job { record, dialogue }));
    }

    /// The number of inactive jobs that were read from the store.
    pub(crate) fn loaded(&self) -> usize {
        self.loaded.len()
    }

    /// Removes the inactive jobs that were read from the store.
    pub(crate) fn unload(&mut self) {
        let (by_id, unwritten) = (&mut self.by_id, &self.unwritten);
        self.loaded.retain(|id| {
            let is_kept = unwritten.contains_key(id);
            if !is_kept {
                by_id.remove(id);
            }
            is_kept
        });
    }

    /// Removes the job that ended longest ago from memory, if there are enough later ones and its events are in the store.
    pub(crate) fn evict(&mut self) -> Option<Record> {
        while self.ended.len() > self.max_ended {
            let id = *self.ended.front()?;
            if self.unwritten.contains_key(&id) {
                return None;
            }
            self.ended.pop_front();
            // Unless it was purged.
            if let Some(job) = self.by_id.remove(&id) {
                self.record_evicted(id);
                return Some(job.record);
            }
        }
        None
    }

    /// Notes that an inactive job is in the store alone.
    pub(crate) fn record_evicted(&mut self, id: JobId) {
        self.greatest_evicted = self.greatest_evicted.max(id);
    }

    /// All jobs, the oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.range(..).map(|(_, job)| job)
    }

    /// The oldest job whose id is in a range, hidden or not.
    pub(crate) fn next_with_hidden(&self, ids: impl RangeBounds<JobId>) -> Option<&Job> {
        let next = self.by_id.range(ids).next();
        next.map(|(_, job)| job.as_ref())
    }

    /// The jobs whose ids are in a range, the oldest first.
    pub(crate) fn range(
        &self,
        ids: impl RangeBounds<JobId>,
    ) -> impl DoubleEndedIterator<Item = (JobId, &Job)> {
        let jobs = self.by_id.range(ids);
        let shown = jobs.filter(|(id, _)| !self.hidden.contains(**id));
        shown.map(|(id, job)| (*id, job.as_ref()))
    }

    /// Whether there is a job with this id.
    pub(crate) fn contains(&self, id: JobId) -> bool {
        self.by_id.contains_key(&id) && !self.hidden.contains(id)
    }

    /// Adds a job, new or from the store. Of inactive jobs only those with PMIx requests are kept.
    pub(crate) fn insert(&mut self, record: Record, dialogue: Dialogue) {
        #[cfg(debug_assertions)]
        self.unchecked.insert(record.id());
        if record.state() != State::Inactive {
            let active = self.active_by_user.entry(record.userid()).or_default();
            active.add(ActiveJobs {
                memo_bytes: record.memo_bytes(),
                ..ActiveJobs::of(record.spec(), 1)
            });
            let requested = dialogue.scheduler.requested();
            self.held_values
                .add(record.userid(), record.spec(), requested);
        }
        let id = record.id();
        if record.has_resources() {
            self.holders.insert(id);
        }
        let job = Job { record, dialogue };
        self.awaited += u64::from(job.is_awaited());
        self.by_id.insert(id, Box::new(job));
    }

    /// Adds the next one of several jobs, which [`count_active`](Self::count_active) has counted.
    pub(crate) fn insert_copy(&mut self, copies: &Copies, id: JobId) {
        #[cfg(debug_assertions)]
        self.unchecked.insert(id);
        let record = copies.record.with_id(id);
        self.held_values
            .add(record.userid(), record.spec(), &copies.requested);
        let dialogue = Dialogue::new(Arc::clone(&copies.requested));
        self.by_id.insert(id, Box::new(Job { record, dialogue }));
    }

    /// Counts jobs of a user as active before they are added.
    pub(crate) fn count_active(&mut self, userid: u32, jobs: ActiveJobs) {
        self.active_by_user.entry(userid).or_default().add(jobs);
    }

    /// Counts the waitable jobs of a submission that is complete.
    pub(crate) fn count_awaited(&mut self, jobs: u64) {
        self.awaited += jobs;
    }

    /// Whether a job was submitted as waitable, and its end is to be reported.
    pub(crate) fn is_awaited(&self, id: JobId) -> bool {
        self.get(id).is_some_and(Job::is_awaited)
    }

    /// The number of these jobs.
    pub(crate) fn awaited(&self) -> u64 {
        debug_assert_eq!(
            self.iter().filter(|job| job.is_awaited()).count() as u64,
            self.awaited
        );
        self.awaited
    }

    /// The number of dependencies of a user's active jobs.
    pub(crate) fn dependencies_of(&self, userid: u32) -> u64 {
        let active = self.active_by_user.get(&userid);
        active.map_or(0, |active| active.dependencies)
    }

    /// Removes a job of a submission that is rejected.
    pub(crate) fn discard(&mut self, id: JobId) -> Option<Record> {
        let job = *self.by_id.remove(&id)?;
        self.held_values
            .remove(job.record.userid(), job.addresses());
        Some(job.record)
    }

    /// Counts the values of a job in place of those at the addresses of its former values, which may no longer exist.
    fn follow_values(held_values: &mut HeldValues, job: &Job, before: Addresses) {
        if job.addresses() != before {
            let (record, requested) = (&job.record, job.dialogue.scheduler.requested());
            held_values.remove(record.userid(), before);
            held_values.add(record.userid(), record.spec(), requested);
        }
    }

    /// The memory of what active jobs refer to, by user.
    pub(crate) fn held_values(&self) -> &HeldValues {
        &self.held_values
    }

    /// Hides the jobs with ids from `first` to `last`, and jobs with these ids that are added later. A second call with
    /// the same `first` and a greater `last` extends the range.
    pub(crate) fn hide(&mut self, first: JobId, last: JobId) {
        self.hidden.0.insert(first, last);
        #[cfg(debug_assertions)]
        self.unchecked.retain(|id| !(first..=last).contains(id));
    }

    /// Shows the jobs from `first` on that were hidden.
    pub(crate) fn show(&mut self, first: JobId) {
        self.hidden.0.remove(&first);
    }

    /// The jobs that are hidden now.
    pub(crate) fn hidden(&self) -> &HiddenJobs {
        &self.hidden
    }

    /// Marks a job, which was hidden, for the next check of records.
    #[cfg(debug_assertions)]
    pub(crate) fn check_again(&mut self, id: JobId) {
        self.unchecked.insert(id);
    }

    /// The jobs that have been added of those with ids from `first` to `last`, hidden or not.
    pub(crate) fn added(&self, first: JobId, last: JobId) -> impl Iterator<Item = JobId> {
        self.by_id.range(first..=last).map(|(id, _)| *id)
    }

    /// The number of active jobs of a user, those of submissions that are not complete included.
    pub(crate) fn active_of(&self, userid: u32) -> u64 {
        self.active_by_user
            .get(&userid)
            .copied()
            .unwrap_or_default()
            .count
    }

    /// The size of the memos of a user's active jobs, in bytes.
    pub(crate) fn memo_bytes_of(&self, userid: u32) -> u64 {
        let active = self.active_by_user.get(&userid);
        active.map_or(0, |active| active.memo_bytes)
    }

    /// The active jobs of all users but the instance owner.
    pub(crate) fn active_of_guests(&self, owner: u32) -> ActiveJobs {
        let users = self.active_by_user.iter();
        let guests = users.filter(|(userid, _)| **userid != owner);
        guests.fold(ActiveJobs::default(), |mut all, (_, active)| {
            all.add(*active);
            all
        })
    }

    /// Counts jobs of a user as active no longer.
    pub(crate) fn uncount_active(&mut self, userid: u32, jobs: ActiveJobs) {
        Self::count_ends(&mut self.active_by_user, userid, jobs);
    }

    fn count_end(active_by_user: &mut BTreeMap<u32, ActiveJobs>, record: &Record) {
        let ended = ActiveJobs {
            memo_bytes: record.memo_bytes(),
            ..ActiveJobs::of(record.spec(), 1)
        };
        Self::count_ends(active_by_user, record.userid(), ended);
    }

    fn count_ends(active_by_user: &mut BTreeMap<u32, ActiveJobs>, userid: u32, ended: ActiveJobs) {
        if let btree_map::Entry::Occupied(mut entry) = active_by_user.entry(userid) {
            let active = entry.get_mut();
            active.subtract(ended);
            if active.count == 0 {
                entry.remove();
            }
        }
    }

    /// Removes a purged job. Returns it if it was in memory and not read from the store.
    pub(crate) fn purge(&mut self, id: JobId) -> Option<Job> {
        #[cfg(debug_assertions)]
        self.unchecked.insert(id);
        self.greatest_purged = self.greatest_purged.max(id);
        let job = *self.by_id.remove(&id)?;
        self.awaited -= u64::from(job.is_awaited());
        self.holders.remove(&id);
        self.eventlog_bytes.remove(&id);
        if job.record.state() != State::Inactive {
            Self::count_end(&mut self.active_by_user, &job.record);
            self.held_values
                .remove(job.record.userid(), job.addresses());
        }
        (!self.loaded.remove(&id)).then_some(job)
    }

    /// The greatest id of any purged job.
    pub(crate) fn greatest_purged(&self) -> JobId {
        self.greatest_purged
    }

    /// Restores the greatest id of any purged job.
    pub(crate) fn set_greatest_purged(&mut self, id: JobId) {
        self.greatest_purged = id;
    }

    /// The greatest id that any job has had.
    pub(crate) fn greatest_id(&self) -> JobId {
        let known = self.by_id.last_key_value().map(|(id, _)| *id);
        let gone = self.greatest_evicted.max(self.greatest_purged);
        known.unwrap_or_default().max(gone)
    }

    /// Logs an event: appends its line and applies it to the record. `None` if there is no such job.
    pub(crate) fn log(&mut self, id: JobId, event: &Event) -> Option<Logged> {
        let job = self.by_id.get_mut(&id)?;
        let (before, position) = (job.record.state(), job.record.events());
        let (_, lines) = self
            .unwritten
            .entry(id)
            .or_insert_with(|| (job.record.events(), String::new()));
        let length = lines.len();
        event.write(lines);
        let length = lines.len() - length;
        if let Some(bytes) = self.eventlog_bytes.get_mut(&id) {
            *bytes += length as u64;
        }
        #[cfg(debug_assertions)]
        self.unchecked.insert(id);
        let memo_bytes = (event.name == eventlog::MEMO).then(|| job.record.memo_bytes());
        let was_holder = job.record.has_resources();
        let was_awaited = job.is_awaited();
        let addresses = job.addresses();
        job.record.apply(event);
        job.dialogue.follow(event, &job.record);
        if job.record.are_facts_due() {
            self.due_facts.insert(id);
        }
        match (was_holder, job.record.has_resources()) {
            (false, true) => self.holders.insert(id),
            (true, false) => self.holders.remove(&id),
            _ => false,
        };
        // By its first event, which has the flags.
        if !was_awaited && job.is_awaited() {
            self.awaited += 1;
        }
        let after = job.record.state();
        if before != State::Inactive {
            Self::follow_values(&mut self.held_values, job, addresses);
        }
        if before != State::Inactive && after == State::Inactive {
            Self::count_end(&mut self.active_by_user, &job.record);
            self.held_values
                .remove(job.record.userid(), job.addresses());
            self.eventlog_bytes.remove(&id);
        } else if let Some(memo_bytes) = memo_bytes
            && let Some(active) = self.active_by_user.get_mut(&job.record.userid())
        {
            let others = active.memo_bytes.saturating_sub(memo_bytes);
            active.memo_bytes = others + job.record.memo_bytes();
        }
        Some(Logged {
            before,
            after,
            counted_bytes: counted_event_bytes(position, length),
        })
    }

    /// Whether there are events that are not in the store yet.
    pub(crate) fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// Takes the events that are not in the store yet: job, first sequence number, lines.
    pub(crate) fn take_unwritten(&mut self) -> Unwritten {
        std::mem::take(&mut self.unwritten)
    }

    /// The same without those of jobs whose request to the scheduler is being cancelled: `clean` follows when it has
    /// responded, and needs no write of its own then. None if there are few.
    pub(crate) fn take_unwritten_settled(&mut self) -> Unwritten {
        if self.unwritten.len() < MIN_WRITTEN_JOBS {
            return Unwritten::new();
        }
        let by_id = &self.by_id;
        let is_settled = |id: &JobId| {
            let job = by_id.get(id);
            let alloc = job.map(|job| job.dialogue.scheduler.alloc());
            !matches!(alloc, Some(AllocState::Cancelling(_)))
        };
        if self.unwritten.keys().all(is_settled) {
            return self.take_unwritten();
        }
        let unwritten = std::mem::take(&mut self.unwritten).into_iter();
        let (settled, others) = unwritten.partition(|(id, _)| is_settled(id));
        self.unwritten = others;
        settled
    }

    /// Takes the jobs whose facts are to be stored, and whose events are all written.
    pub(crate) fn take_due_facts(&mut self) -> BTreeSet<JobId> {
        let unwritten = &self.unwritten;
        let due = std::mem::take(&mut self.due_facts);
        let (left, written) = due.into_iter().partition(|id| unwritten.contains_key(id));
        self.due_facts = left;
        written
    }

    /// The length of a job's eventlog in bytes, if it was set.
    pub(crate) fn eventlog_bytes(&self, id: JobId) -> Option<u64> {
        self.eventlog_bytes.get(&id).copied()
    }

    /// Sets the length of the eventlog of an active job in bytes, to which later events are added.
    pub(crate) fn set_eventlog_bytes(&mut self, id: JobId, bytes: u64) {
        self.eventlog_bytes.insert(id, bytes);
    }

    /// The lines of a job that are not in the store yet.
    pub(crate) fn unwritten(&self, id: JobId) -> &str {
        self.unwritten.get(&id).map_or("", |(_, lines)| lines)
    }

    /// Takes the jobs that were added, changed or removed since the last call.
    #[cfg(debug_assertions)]
    pub(crate) fn take_unchecked(&mut self) -> BTreeSet<JobId> {
        std::mem::take(&mut self.unchecked)
    }

    /// The resources that are allocated to jobs; an error if those of two jobs contradict each other.
    pub(crate) fn allocated(&self) -> Result<ResourceSet, penstock_rset::Error> {
        debug_assert!(
            self.iter()
                .filter(|job| job.record.has_resources())
                .map(|job| job.record.id())
                .eq(self.holders.iter().copied()),
            "holders of resources: {:?}",
            self.holders
        );
        let records = self.holders.iter().filter_map(|id| self.record(*id));
        let parts = records.filter_map(Record::unfreed);
        // A union has the times and slots of its first operand: an empty set has those of no job.
        let nothing = std::iter::once(ResourceSet::new());
        let mut parts: Vec<ResourceSet> = nothing.chain(parts).collect();
        // In pairs: a single growing union would be traversed again for every job.
        while parts.len() > 1 {
            let pairs = parts.chunks(2).map(|pair| match pair {
                [one, other] => one.union(other),
                one => Ok(one[0].clone()),
            });
            parts = pairs.collect::<Result<_, _>>()?;
        }
        Ok(parts.pop().unwrap_or_default())
    }

    /// The error for an unknown id: the job never existed, or was purged.
    pub(crate) fn unknown(&self, id: JobId) -> RequestError {
        let text = if id <= self.greatest_purged {
            format!("no job {id}: it may have been purged")
        } else {
            format!("no job {id}")
        };
        RequestError::not_found(text)
    }

    /// The job with this id.
    pub(crate) fn known(&self, id: JobId) -> Result<&Job, RequestError> {
        self.get(id).ok_or_else(|| self.unknown(id))
    }

    /// The job with this id if it is not inactive.
    pub(crate) fn active(&self, id: JobId) -> Result<&Job, RequestError> {
        let job = self.known(id)?;
        if job.record.state() == State::Inactive {
            let text = format!("job {id} is inactive");
            return Err(RequestError::not_found(text));
        }
        Ok(job)
    }
}

/// Whether an inactive job can leave memory: other jobs refer to those with PMIx requests.
pub(crate) fn is_evictable(record: &Record) -> bool {
    record.elastic().is_none()
}

#[cfg(test)]
mod tests {
    use super::Job;

    /// A million jobs may be pending: facts that few of them have are boxed.
    #[test]
    fn a_job_is_small() {
        assert!(size_of::<Job>() <= 160, "{} bytes", size_of::<Job>());
    }
}
