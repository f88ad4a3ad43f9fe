//! `Context`: the state that the manager and its peers share (store, settings, jobs, queues, claims),
//! and the list of effects.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use penstock_flux::eventlog::Exception;
use penstock_flux::exec::JobExceptionEvent;
use penstock_flux::job_manager::RejectedStats;
use penstock_flux::{
    JobspecDocument, Matchtags, Payload, RequestError, RequestedResources, TypedPayload, errno,
    flags, topic,
};
use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::{FluidGenerator, JobId, MAX_TIME_MS};
use penstock_rset::ResourceSet;
use penstock_store::{
    BadRow, Commit, EndedClass, EndedJob, Error as StoreError, JobRecord, JobRow, JobUsage, Store,
    Submission,
};
use penstock_wire::Message;

use crate::claims::Claims;
use crate::dialogue::{Dialogue, StoredStart};
use crate::disk_space::DiskSpace;
use crate::effect::Effect;
use crate::ended::hash_of;
use crate::event::Event;
use crate::handshake::Handshake;
use crate::jobs::{
    Copies, ExecWriter, Jobs, Logged, SchedulerWriter, Unwritten, Writers, is_evictable,
};
use crate::jobspec_cache::{JobspecCache, SentJobspec};
use crate::meta::{MetaKey, MetaReader};
use crate::queues::Queues;
use crate::record::Record;
use crate::rpc;
use crate::settings::Settings;
use crate::spec::{Checked, Spec, Stored};
use crate::state::State;
use crate::storage::{Storage, TextBytes};
use crate::unadded_jobs::UnaddedJobs;

/// The epoch of job ids (RFC 19), in milliseconds since that of the clock.
pub(crate) const EPOCH: MetaKey<u64> = MetaKey {
    name: "epoch_ms",
    parse: |text| text.parse().ok(),
    expected: "milliseconds",
};

const MILLISECONDS_PER_DAY: u64 = 24 * 60 * 60 * 1000;

/// The number of bytes of text after which a slice of a request reads no more jobs from the store.
const MAX_BYTES_READ_PER_SLICE: u64 = 256 * 1024;

/// Added to the time of an event for the next one of the same moment, in seconds.
const EVENT_STEP_S: f64 = 1e-6;

/// The longest time by which events are ahead of the clock, in seconds.
const MAX_EVENT_LEAD_S: f64 = 1.0;

/// The number of ended jobs that are stored together, for the next start. Few in debug builds, whose tests have few jobs.
const ENDED_JOBS_PER_ROW: usize = if cfg!(debug_assertions) { 2 } else { 512 };

/// The greatest number of inactive jobs that a call has read from the store and still has in memory.
const MAX_LOADED_JOBS: usize = 1000;

/// The time for which a token names a submission, in seconds.
pub(crate) const TOKEN_LIFETIME_S: f64 = 24.0 * 3600.0;
/// Expired tokens that are removed at a time: some milliseconds' work, and seconds until the next ones.
const TOKENS_PER_SLICE: u32 = 500;
const TOKEN_SLICE_INTERVAL_S: f64 = 0.05;
/// The interval in which it is looked whether the clock is right, in seconds.
const TOKEN_RETRY_S: f64 = 60.0;

/// The use that a manager may make of its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Reading,
    Writing,
}

/// When ranks that a running job has released are free for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ShrunkRanks {
    /// At once: the execution service does not say when nothing runs there any longer.
    FreeAtOnce,
    /// When the execution service, this one or the next, releases them.
    #[default]
    FreeOnRelease,
}

/// The execution service that has said hello, as far as other peers may know it.
#[derive(Debug)]
pub(crate) struct ExecService {
    /// The name of the service that requests are sent to.
    pub(crate) name: String,
    /// When ranks that a running job has released are free.
    pub(crate) shrunk_ranks: ShrunkRanks,
}

impl ExecService {
    /// The topic of one of its methods.
    pub(crate) fn topic(&self, method: &str) -> String {
        format!("{}.{method}", self.name)
    }

    /// Whether a topic is that of one of its methods.
    pub(crate) fn has_topic(&self, topic: &str, method: &str) -> bool {
        let rest = topic.strip_prefix(&*self.name);
        rest.and_then(|rest| rest.strip_prefix('.')) == Some(method)
    }
}

/// Ended jobs that are still to be stored as such, many in a row.
#[derive(Debug, Default)]
struct EndedRows(Vec<(EndedClass, Vec<(EndedJob, JobUsage)>)>);

impl EndedRows {
    /// Adds an inactive job, unless other jobs refer to it, and stores those of a whole row.
    fn add(&mut self, storage: &mut Storage, record: &Record) {
        if let Some((class, jobs)) = self.collect(record)
            && jobs.len() >= ENDED_JOBS_PER_ROW
        {
            storage.run(|store| store.add_ended_jobs(class, jobs));
            jobs.clear();
        }
    }

    /// Adds an inactive job, unless other jobs refer to it. Returns the row in which it is.
    fn collect(&mut self, record: &Record) -> Option<&mut (EndedClass, Vec<(EndedJob, JobUsage)>)> {
        let (class, job, usage) = ended_facts(record).filter(|_| is_evictable(record))?;
        let known = self.0.iter().position(|(known, _)| *known == class);
        let index = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((class, Vec::new()));
        }
        let row = self.0.get_mut(index)?;
        row.1.push((job, usage));
        Some(row)
    }
}

/// The limit of what a slice of a request reads from the store: the jobs are short, or few.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimit(u64);

impl ReadLimit {
    /// Whether the slice is to end.
    pub(crate) fn is_reached(self, cx: &Context) -> bool {
        cx.storage.read_bytes() >= self.0
    }
}

/// The shared state of one manager, and the effects that are still to be performed.
///
/// A peer gets it for each message or step. It reads what it needs, logs events, and leaves the
/// other effects in the list; it never calls another peer.
#[derive(Debug)]
pub(crate) struct Context {
    /// The time of this call, seconds since the epoch.
    pub(crate) now: f64,
    /// The time of the monotonic clock at this call, in seconds, for durations.
    pub(crate) monotonic: f64,
    last_event_time: f64,
    pub(crate) settings: Settings,
    /// The number of changes of settings by which jobs request other resources: the constraint of a queue.
    pub(crate) constraint_changes: u64,
    pub(crate) jobs: Jobs,
    pub(crate) claims: Claims,
    pub(crate) queues: Queues,
    /// The error of submissions while they are rejected.
    pub(crate) rejection: Option<RequestError>,
    /// When [`remove_expired_tokens`](Self::remove_expired_tokens) is due; `None` if the store has no token.
    pub(crate) token_expiry: Option<f64>,
    /// The error of requests for a change while the store cannot be written.
    pub(crate) outage: Option<RequestError>,
    rejected: Cell<RejectedStats>,
    /// The space of the file system with the store, if it is known.
    pub(crate) disk_space: Option<DiskSpace>,
    pub(crate) unadded_jobs: UnaddedJobs,
    /// Set by `SchedulerPeer`.
    handshake: Handshake,
    /// Set by `ExecPeer`.
    exec_service: Option<Arc<ExecService>>,
    /// Private: only the methods of this type write to the store.
    storage: Storage,
    pub(crate) jobspecs: JobspecCache,
    ended: EndedRows,
    /// Peers whose send buffers are full, by route.
    pub(crate) backlogged: BTreeSet<Vec<u8>>,
    ids: FluidGenerator,
    epoch_ms: u64,
    matchtags: Matchtags,
    effects: Vec<Effect>,
}

impl Context {
    /// Counts a request that a limit rejects.
    pub(crate) fn count_rejection(&self, limit: impl FnOnce(&mut RejectedStats) -> &mut u64) {
        let mut rejected = self.rejected.get();
        *limit(&mut rejected) += 1;
        self.rejected.set(rejected);
    }

    /// The requests that limits have rejected.
    pub(crate) fn rejected(&self) -> RejectedStats {
        self.rejected.get()
    }

    /// The context of a manager over a store, without its jobs, and the writers of what belongs to one peer
    /// each. The first start of an instance makes `now` the epoch of its job ids (RFC 19).
    pub(crate) fn open(
        mut store: Store,
        settings: Settings,
        now: f64,
        access: Access,
    ) -> Result<(Self, Writers), StoreError> {
        let mut meta = MetaReader::new(&store);
        let known_epoch = meta.read(&EPOCH)?;
        let queues = Queues::restore(&mut meta)?;
        let bad = meta.bad;
        let epoch_ms = match known_epoch {
            Some(epoch) => epoch,
            None => new_epoch(&store, now)?,
        };
        if known_epoch.is_none() && access == Access::Writing {
            store.set_meta(EPOCH.name, &epoch_ms.to_string())?;
        }
        let (jobs, writers) = Jobs::new();
        let mut cx = Self {
            now,
            monotonic: 0.0,
            last_event_time: 0.0,
            settings,
            constraint_changes: 0,
            jobs,
            claims: Claims::default(),
            queues,
            rejection: None,
            token_expiry: None,
            outage: None,
            rejected: Cell::default(),
            disk_space: None,
            unadded_jobs: UnaddedJobs::default(),
            handshake: Handshake::default(),
            exec_service: None,
            storage: Storage::new(store),
            jobspecs: JobspecCache::default(),
            ended: EndedRows::default(),
            backlogged: BTreeSet::new(),
            ids: FluidGenerator::new(0),
            epoch_ms,
            matchtags: Matchtags::default(),
            effects: Vec::new(),
        };
        cx.log_bad_rows(&bad);
        Ok((cx, writers))
    }

    /// Reads a value of the instance, which is left out if it is invalid.
    pub(crate) fn read_meta<T>(&mut self, key: &MetaKey<T>) -> Result<Option<T>, StoreError> {
        let mut meta = MetaReader::new(self.store());
        let value = meta.read(key)?;
        let bad = meta.bad;
        self.log_bad_rows(&bad);
        Ok(value)
    }

    fn log_bad_rows(&mut self, bad: &[BadRow]) {
        for row in bad {
            self.log_line(format!("store: {row}"));
        }
    }

    /// The state of the handshake with the scheduler.
    pub(crate) fn handshake(&self) -> Handshake {
        self.handshake
    }

    /// Sets the state of the handshake.
    pub(crate) fn set_handshake(&mut self, _: &SchedulerWriter, handshake: Handshake) {
        self.handshake = handshake;
    }

    /// The topic of a method of the execution service, if there is one.
    pub(crate) fn exec_topic(&self, method: &str) -> Option<String> {
        Some(self.exec_service.as_ref()?.topic(method))
    }

    /// When ranks that a running job has released are free.
    pub(crate) fn shrunk_ranks(&self) -> ShrunkRanks {
        let service = self.exec_service.as_ref();
        service.map_or_else(ShrunkRanks::default, |service| service.shrunk_ranks)
    }

    /// Whether there is an execution service.
    pub(crate) fn has_exec_service(&self) -> bool {
        self.exec_service.is_some()
    }

    /// Sets the execution service.
    pub(crate) fn set_exec_service(&mut self, _: &ExecWriter, service: Option<Arc<ExecService>>) {
        self.exec_service = service;
    }

    /// Takes the effects in their order. `spare` becomes the next list.
    pub(crate) fn take_effects(&mut self, spare: Vec<Effect>) -> Vec<Effect> {
        for row in self.storage.take_damaged() {
            self.complain(row);
        }
        std::mem::replace(&mut self.effects, spare)
    }

    /// Whether there are effects to be performed.
    pub(crate) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    /// Adds an effect.
    pub(crate) fn add_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Adds a job of the manager's own, whose id is allotted already, with its `submit` event.
    pub(crate) fn add_job(&mut self, id: JobId, userid: u32, stored: &Stored, submit: &Event) {
        let (t_submit, key) = (submit.timestamp, stored.spec.key);
        self.storage
            .run(|store| store.add_job(id, userid, t_submit, key));
        let record = Record::new(id, userid, Arc::clone(&stored.spec));
        let dialogue = Dialogue::new(Arc::clone(&stored.requested));
        self.jobs.insert(record, dialogue);
        self.jobs.log(id, submit);
        self.effects.push(Effect::Submitted(id));
    }

    /// Stores the events of several jobs once, for all those with ids from `first` to `last`. A second call with the same
    /// `first` and a greater `last` extends the range.
    pub(crate) fn store_common_events(&mut self, lines: &str, first: JobId, last: JobId) {
        self.storage
            .run(|store| store.add_common_events(first, last, lines));
    }

    /// Adds the next one of several jobs, whose id is allotted already.
    pub(crate) fn add_copy(&mut self, copies: &Copies, id: JobId) {
        let record = copies.record();
        self.storage.run(|store| {
            store.add_job(id, record.userid(), record.t_submit(), record.spec().key)?;
            match copies.lines() {
                "" => Ok(()),
                lines => store.append_events(id, 0, lines),
            }
        });
        self.jobs.insert_copy(copies, id);
    }

    /// Hides jobs of a submission that is not complete, and has a restart discard them.
    pub(crate) fn hide_jobs(&mut self, first: JobId, last: JobId) {
        self.jobs.hide(first, last);
        self.storage.run(|store| store.open_submission(first, last));
    }

    /// Shows the jobs from `first` on that were hidden, and has a restart keep them.
    pub(crate) fn show_jobs(&mut self, first: JobId) {
        self.jobs.show(first);
        self.storage.run(|store| store.close_submission(first));
    }

    /// Removes a job of a submission that is rejected. Returns its facts.
    pub(crate) fn discard_job(&mut self, id: JobId) -> Option<Record> {
        self.storage.run(|store| store.discard_job(id));
        self.jobs.discard(id)
    }

    /// Has an inactive job in memory for the rest of this call, if there is one with this id. To be called before the job
    /// is looked up by an id that may be of any age. Returns the number of bytes of text that were read.
    pub(crate) fn load(&mut self, id: JobId) -> usize {
        if self.jobs.is_in_memory(id) {
            return 0;
        }
        let Some(stored) = self.stored_job(id) else {
            return 0;
        };
        let texts = [stored.row.r.as_deref(), stored.common_events.as_deref()];
        let texts = texts.map(|text| text.map_or(0, str::len));
        let bytes = texts.iter().sum::<usize>() + stored.own_events.len();
        let Some((jobspec, jobspec_bytes)) = self.jobspec_of_inactive(stored.row.spec) else {
            return bytes;
        };
        if let Some(record) = inactive_record(&stored, &jobspec.spec) {
            let requested = Arc::clone(&jobspec.requested);
            let dialogue = Dialogue::resume(&record, requested, StoredStart::Unmarked);
            self.jobs.insert_loaded(record, dialogue);
        }
        bytes + jobspec_bytes
    }

    /// The jobspec of an inactive job in the store, and the number of bytes of text that were read: often it is that of the
    /// one before.
    pub(crate) fn jobspec_of_inactive(&mut self, key: i64) -> Option<(Stored, usize)> {
        if let Some(last) = self.jobspecs.read_last(key) {
            return Some((last.clone(), 0));
        }
        let (read, bytes) = self.read_jobspec_and_size(key)?;
        self.jobspecs.set_read_last(&read);
        Some((read, bytes))
    }

    /// The row of a job in the store; `None` if there is none, or if it cannot be read.
    pub(crate) fn stored_row(&self, id: JobId) -> Option<JobRow> {
        self.read_undamaged(|store| store.job_row(id))
    }

    /// The facts of a job, whether it is in memory or not.
    pub(crate) fn record(&self, id: JobId) -> Option<Cow<'_, Record>> {
        if self.jobs.is_in_memory(id) {
            return self.jobs.record(id).map(Cow::Borrowed);
        }
        let stored = self.stored_job(id)?;
        let jobspec = self.read_jobspec(stored.row.spec)?;
        inactive_record(&stored, &jobspec.spec).map(Cow::Owned)
    }

    /// Removes the inactive jobs that were read from the store in this call, if there are many.
    pub(crate) fn unload_surplus(&mut self) {
        if self.jobs.loaded() >= MAX_LOADED_JOBS {
            self.jobs.unload();
        }
    }

    /// Removes inactive jobs from memory: those that were read, and those that ended longest ago.
    pub(crate) fn evict_jobs(&mut self) {
        self.jobs.unload();
        while let Some(record) = self.jobs.evict() {
            self.jobspecs.evict(record.into_spec());
        }
    }

    /// Marks the end of a job as reported to the requests that follow it. Returns the job if it was not yet.
    pub(crate) fn mark_reported(&mut self, id: JobId) -> Option<&Record> {
        let record = self.jobs.mark_reported(id)?;
        self.ended.add(&mut self.storage, record);
        Some(record)
    }

    /// Stores that a job of an earlier start has ended, together with others: the next start does not read its eventlog.
    pub(crate) fn store_ended(&mut self, record: &Record) {
        self.ended.add(&mut self.storage, record);
    }

    /// The same without a change of the store, which is read alone.
    pub(crate) fn collect_ended(&mut self, record: &Record) {
        let _ = self.ended.collect(record);
    }

    /// The ended jobs that are in no row of the store yet, by class. Some may have been purged since.
    pub(crate) fn ended_without_row(&self) -> &[(EndedClass, Vec<(EndedJob, JobUsage)>)] {
        &self.ended.0
    }

    /// Removes what the store has of ended jobs that were purged, from the rows after one: all of them, or the next `max`.
    /// Returns the last of these if there may be later ones.
    pub(crate) fn remove_unused_ended(&mut self, after: i64, max: Option<u32>) -> Option<i64> {
        self.storage
            .run(|store| store.remove_unused_ended_jobs(after, max))
    }

    /// Removes the rows of ended jobs that may have a job.
    pub(crate) fn remove_ended_rows_of(&mut self, id: JobId) {
        self.storage.run(|store| store.remove_ended_rows_of(id));
    }

    /// A job in the store; `None` if there is none, or if it cannot be read.
    fn stored_job(&self, id: JobId) -> Option<JobRecord> {
        self.read_undamaged(|store| store.job(id))
    }

    pub(crate) fn read_jobspec(&self, key: i64) -> Option<Stored> {
        self.read_jobspec_and_size(key).map(|(stored, _)| stored)
    }

    fn read_jobspec_and_size(&self, key: i64) -> Option<(Stored, usize)> {
        let text = self.read_undamaged(|store| store.jobspec(key))?;
        let jobspec = Jobspec::from_json(&text).ok()?;
        let stored = Stored {
            spec: Arc::new(Spec::new(key, &jobspec)),
            requested: Arc::new(RequestedResources::of(&jobspec)),
        };
        Some((stored, text.len()))
    }

    /// Reads what is absent if it is damaged.
    fn read_undamaged<T: TextBytes>(
        &self,
        read: impl Fn(&Store) -> Result<Option<T>, StoreError>,
    ) -> Option<T> {
        self.read_store(|store| match read(store) {
            Err(error) if error.is_damaged() => Ok(None),
            read => read,
        })
    }

    /// The time of an event that is logged now. No two events have the same: a reader of the journal continues after the
    /// time of the last event that it has seen.
    pub(crate) fn event_time(&mut self) -> f64 {
        let lead = self.last_event_time - self.now;
        // A clock that is set back by more than that is followed.
        self.last_event_time = if (0.0..MAX_EVENT_LEAD_S).contains(&lead) {
            self.last_event_time + EVENT_STEP_S
        } else {
            self.now
        };
        self.last_event_time
    }

    /// Logs an event of a job and applies it to the job's record.
    pub(crate) fn log(&mut self, id: JobId, mut event: Event) {
        event.timestamp = self.event_time();
        if let Some(logged) = self.jobs.log(id, &event) {
            let Logged { before, after, .. } = logged;
            if logged.counted_bytes > 0 {
                let bytes = logged.counted_bytes;
                self.storage.run(|store| store.count_job_bytes(id, bytes));
            }
            event.document = None;
            self.effects.push(Effect::Logged {
                id,
                event,
                before,
                after,
            });
        }
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, message: Message) {
        self.effects.push(Effect::Send(message));
    }

    /// Sends a request that expects no response.
    pub(crate) fn notify(&mut self, topic: &str, payload: &impl Payload) {
        self.send(rpc::notification(topic, payload));
    }

    /// Answers a request with a payload of `rust/flux`.
    pub(crate) fn respond_with(&mut self, request: &Message, payload: &impl Payload) {
        if !request.is_noresponse() {
            self.send(Message::success_to(request, payload));
        }
    }

    /// Answers a request with a payload, as the wire has it.
    pub(crate) fn respond_with_payload(&mut self, request: &Message, payload: Vec<u8>) {
        if !request.is_noresponse() {
            self.send(Message::response_to(request, 0, Some(payload)));
        }
    }

    /// Answers a request with an empty response.
    pub(crate) fn respond_empty(&mut self, request: &Message) {
        if !request.is_noresponse() {
            self.send(Message::response_to(request, 0, None));
        }
    }

    /// Answers a request with an error.
    pub(crate) fn reject(&mut self, request: &Message, error: &RequestError) {
        if !request.is_noresponse() {
            self.send(rpc::error_response(request, error));
        }
    }

    /// Ends a stream of responses (RFC 6).
    pub(crate) fn end_stream(&mut self, request: &Message) {
        self.reject(request, &RequestError::end_of_stream());
    }

    /// Schedules another check of the steps that are due for a job.
    pub(crate) fn revisit(&mut self, id: JobId) {
        self.effects.push(Effect::Revisit(id));
    }

    /// Writes a line to the daemon's log.
    pub(crate) fn log_line(&mut self, line: String) {
        self.effects.push(Effect::LogLine(line));
    }

    /// Writes a line on a peer's fault to the daemon's log.
    pub(crate) fn complain(&mut self, line: String) {
        self.effects.push(Effect::Complain(line));
    }

    /// Allots the matchtag of a request.
    pub(crate) fn next_matchtag(&mut self) -> u32 {
        self.matchtags.allot()
    }

    /// Releases the matchtag of a request that is no longer outstanding.
    pub(crate) fn release_matchtag(&mut self, matchtag: u32) {
        self.matchtags.release(matchtag);
    }

    fn since_epoch_ms(&self) -> u64 {
        milliseconds(self.now).saturating_sub(self.epoch_ms)
    }

    /// Whether submissions are rejected, perhaps because of the clock, or would be because of it.
    pub(crate) fn may_clock_be_wrong(&self) -> bool {
        self.rejection.is_some() || self.since_epoch_ms() > MAX_TIME_MS
    }

    /// Allots a job id.
    ///
    /// # Errors
    ///
    /// The time since the instance's first start, or the last id, exceeds the range of ids.
    pub(crate) fn next_id(&mut self) -> Result<JobId, RequestError> {
        let since_epoch = self.since_epoch_ms();
        self.ids.next(since_epoch).ok_or_else(|| {
            let days = |milliseconds: u64| milliseconds / MILLISECONDS_PER_DAY;
            let text = format!(
                "job ids are exhausted: the clock is {} days past the first start of the instance, \
                 ids have a range of {} days\nhint: correct the clock",
                days(since_epoch),
                days(MAX_TIME_MS)
            );
            RequestError::new(errno::EOVERFLOW, text)
        })
    }

    /// Allots ids that follow each other, at least one. Returns the first and the last one; fails as
    /// [`Self::next_id`] does.
    pub(crate) fn next_ids(&mut self, count: u64) -> Result<(JobId, JobId), RequestError> {
        let first = self.next_id()?;
        let mut last = first;
        for _ in 1..count {
            last = self.next_id()?;
        }
        Ok((first, last))
    }

    /// Reserves all ids up to this one: they are not allotted.
    pub(crate) fn reserve_id(&mut self, id: JobId) {
        self.ids.observe(id);
    }

    /// Reads from the store, the open transaction included. A failure yields a default value and makes
    /// the next commit fail.
    pub(crate) fn read_store<T: Default + TextBytes>(
        &self,
        operation: impl FnOnce(&Store) -> Result<T, StoreError>,
    ) -> T {
        self.storage.read(operation)
    }

    /// The limit of what a slice reads from the store from now on. Texts of a job have up to some MiB.
    pub(crate) fn read_limit(&self) -> ReadLimit {
        ReadLimit(
            self.storage
                .read_bytes()
                .saturating_add(MAX_BYTES_READ_PER_SLICE),
        )
    }

    /// The store, for callers that handle the errors of reading.
    pub(crate) fn store(&self) -> &Store {
        self.storage.store()
    }

    /// Whether an operation on the store has failed since the last commit.
    #[cfg(debug_assertions)]
    pub(crate) fn has_store_failed(&self) -> bool {
        self.storage.has_failed()
    }

    /// Commits all changes, without waiting for a slow disk: see [`Store::begin_commit`].
    pub(crate) fn begin_commit(&mut self) -> Result<Commit, StoreError> {
        self.write_events();
        self.storage.begin_commit()
    }

    /// Waits for the end of the sync that a commit has begun, if there is one.
    pub(crate) fn finish_sync(&mut self) -> Result<bool, StoreError> {
        self.storage.finish_sync()
    }

    /// Has a thread sync the commits while the disk is slow.
    pub(crate) fn sync_in_thread(
        &mut self,
        notify: impl Fn() + Send + 'static,
    ) -> Result<(), StoreError> {
        self.storage.sync_in_thread(notify)
    }

    /// Closes the store: every later call of it fails.
    pub(crate) fn close(&mut self) {
        self.storage.close();
    }

    /// Closes the store, which is the database at `path`, and opens it for reading.
    pub(crate) fn reopen_store_for_reading(&mut self, path: &Path) -> Result<Store, StoreError> {
        self.storage.reopen_for_reading(path)
    }

    /// Forgets that the store has taken the place of another one.
    pub(crate) fn forget_replaced(&mut self) {
        self.storage.run(Store::forget_replaced);
    }

    /// Whether there are changes that are not durable yet.
    pub(crate) fn has_uncommitted(&self) -> bool {
        self.jobs.has_unwritten() || self.storage.has_uncommitted()
    }

    /// The number of commits so far.
    pub(crate) fn commits(&self) -> u64 {
        self.storage.commits()
    }

    /// Puts the unwritten events into the open transaction.
    pub(crate) fn write_events(&mut self) {
        let unwritten = self.jobs.take_unwritten();
        self.append_events(unwritten);
    }

    /// Puts those into the open transaction that are [settled](Jobs::take_unwritten_settled).
    pub(crate) fn write_settled_events(&mut self) {
        let unwritten = self.jobs.take_unwritten_settled();
        self.append_events(unwritten);
    }

    fn append_events(&mut self, unwritten: Unwritten) {
        let jobs = unwritten.into_iter();
        let jobs = jobs.map(|(id, (seq, lines))| (id, seq, lines));
        self.storage.run(|store| store.append_events_of(jobs));
        for id in self.jobs.take_due_facts() {
            let record = self.jobs.record(id);
            let facts = record.and_then(|record| Some((record.events(), record.pending_facts()?)));
            if let Some((events, facts)) = facts {
                self.storage
                    .run(|store| store.set_pending_facts(id, events, &facts));
            }
        }
    }

    /// Removes the facts of a pending job that cannot be read.
    pub(crate) fn remove_pending_facts(&mut self, id: JobId) {
        self.storage.run(|store| store.remove_pending_facts(id));
    }

    /// Stores R as committed for a job's outstanding request.
    pub(crate) fn store_r(&mut self, id: JobId, text: &str) {
        self.storage.run(|store| store.set_r(id, text));
    }

    /// Removes a job's R from the store.
    pub(crate) fn clear_r(&mut self, id: JobId) {
        self.storage.run(|store| store.clear_r(id));
    }

    /// Puts a jobspec into the store, unless an equal one is there.
    pub(crate) fn intern_jobspec(&mut self, userid: u32, checked: Checked) -> Stored {
        self.jobspecs.intern(&mut self.storage, userid, checked)
    }

    /// Adds a jobspec to the store. Returns its key.
    #[cfg(test)]
    pub(crate) fn add_jobspec(&mut self, userid: u32, document: JobspecDocument) -> i64 {
        self.jobspecs.add(&mut self.storage, userid, document)
    }

    /// A jobspec in the store.
    pub(crate) fn jobspec(&mut self, key: i64) -> Option<Arc<JobspecDocument>> {
        self.jobspecs.document(&mut self.storage, key)
    }

    /// The jobspec of a job; of a copy with its id in it.
    pub(crate) fn jobspec_of(&mut self, id: JobId) -> Option<Arc<JobspecDocument>> {
        let spec = self.jobs.record(id)?.spec();
        let (key, copy) = (spec.key, spec.copy_of(id));
        let document = self.jobspec(key)?;
        self.storage.count_read(document.text().len());
        Some(match copy {
            Some(copy) => Arc::new(document.copy(copy)),
            None => document,
        })
    }

    /// See [`JobspecCache::sent`].
    pub(crate) fn sent_jobspec(&mut self, key: i64) -> Result<(SentJobspec, usize), RequestError> {
        let Self {
            storage, settings, ..
        } = self;
        self.jobspecs
            .sent(storage, settings, self.constraint_changes, key)
    }

    /// Removes a jobspec from the store.
    pub(crate) fn remove_jobspec(&mut self, key: i64) {
        self.jobspecs.remove(&mut self.storage, key);
    }

    /// Stores what became of a submission with a token.
    pub(crate) fn store_submission(&mut self, userid: u32, token: &str, submission: &Submission) {
        let now = self.now;
        let expiry = now + TOKEN_LIFETIME_S;
        // Another one may be of a clock that was ahead.
        self.token_expiry = Some(self.token_expiry.map_or(expiry, |time| time.min(expiry)));
        self.storage
            .run(|store| store.add_submission(userid, token, now, submission));
    }

    /// Removes the next submissions whose tokens have expired, if one has; not while the clock may be wrong.
    pub(crate) fn remove_expired_tokens(&mut self) {
        if self.token_expiry.is_none_or(|time| time > self.now) {
            return;
        }
        if self.may_clock_be_wrong() {
            self.token_expiry = Some(self.now + TOKEN_RETRY_S);
            return;
        }
        let expired = self.now - TOKEN_LIFETIME_S;
        self.storage
            .run(|store| store.remove_expired_submissions(expired, TOKENS_PER_SLICE));
        self.find_token_expiry();
    }

    /// Finds when the oldest token expires.
    pub(crate) fn find_token_expiry(&mut self) {
        let oldest = self.read_store(Store::oldest_submission);
        let expiry = oldest.map(|time| time + TOKEN_LIFETIME_S);
        // Others have their turn between two slices.
        self.token_expiry = expiry.map(|time| time.max(self.now + TOKEN_SLICE_INTERVAL_S));
    }

    /// Makes a job refer to another jobspec in the store.
    pub(crate) fn store_spec(&mut self, id: JobId, key: i64) {
        self.storage.run(|store| store.set_spec(id, key));
    }

    /// Marks a job in the store: its start was sent to no execution service.
    pub(crate) fn mark_unsent_start(&mut self, id: JobId) {
        self.storage.run(|store| store.add_unsent_start(id));
    }

    /// Removes that mark.
    pub(crate) fn unmark_unsent_start(&mut self, id: JobId) {
        self.storage.run(|store| store.remove_unsent_start(id));
    }

    /// Removes jobs from the store. Returns the key of the jobspec of each.
    pub(crate) fn remove_jobs(&mut self, ids: &[JobId]) -> Vec<(JobId, i64)> {
        self.storage.run(|store| store.remove_jobs(ids))
    }

    /// The pages of the store without data.
    pub(crate) fn free_pages(&self) -> u64 {
        self.storage.read(Store::space).free_pages
    }

    /// Whether the store has more free pages than it keeps for later writes.
    pub(crate) fn has_excess_pages(&self) -> bool {
        self.storage.read(Store::space).excess_pages() > 0
    }

    /// Releases free pages of the store, `max` at most. Returns their number.
    pub(crate) fn release_pages(&mut self, max: u64) -> u64 {
        self.storage.run(|store| store.release_pages(max))
    }

    /// Removes jobs from those that the store remembers as purged.
    pub(crate) fn forget_purged(&mut self, ids: &[JobId]) {
        if !ids.is_empty() {
            self.storage.run(|store| store.forget_purged(ids));
        }
    }

    /// Stores the status of the queues at the next start of the instance.
    pub(crate) fn save_queues(&mut self) {
        self.queues.save(&mut self.storage);
    }

    /// Stores a value of the instance itself.
    pub(crate) fn store_meta(&mut self, key: &str, value: &str) {
        self.storage.run(|store| store.set_meta(key, value));
    }

    /// Stores a value that is no document of a job; without one, removes it.
    pub(crate) fn store_value(&mut self, key: &str, value: Option<&[u8]>) {
        self.storage.run(|store| match value {
            Some(value) => store.set_value(key, value),
            None => store.remove_value(key),
        });
    }

    /// Appends a line to the log of a job's standard input.
    pub(crate) fn store_input(&mut self, id: JobId, line: &str) {
        self.storage.run(|store| store.append_input(id, line));
    }

    /// Appends an event of the resource service.
    pub(crate) fn append_resource_event(&mut self, line: &str) -> Result<(), StoreError> {
        self.storage
            .try_run(|store| store.append_resource_event(line))
    }

    /// Raises an exception: logs it, and announces it to execution services.
    pub(crate) fn raise(&mut self, id: JobId, event: Event) {
        let announced = event.raised().map(|exception| JobExceptionEvent {
            id,
            kind: exception.kind.clone(),
            severity: exception.severity,
            wait_status: exception.wait_status,
        });
        self.log(id, event);
        if let Some(announced) = announced {
            self.announce_exception(announced);
        }
    }

    /// Raises a fatal exception on behalf of the instance.
    pub(crate) fn fail_job(&mut self, id: JobId, kind: &str, note: &str) {
        let exception = Exception {
            kind: kind.to_owned().into(),
            severity: 0,
            note: note.to_owned().into(),
            userid: Some(self.settings.owner),
            wait_status: None,
        };
        self.raise(id, Event::exception(self.now, exception));
    }

    /// Announces the fatal exception of a job again, to an execution service that has just received
    /// the job.
    pub(crate) fn repeat_exception(&mut self, id: JobId) {
        let record = self.jobs.record(id);
        let fatal = record.and_then(|record| record.fatal_exception());
        let announced = fatal.map(|fatal| JobExceptionEvent {
            id,
            kind: fatal.kind.clone(),
            severity: 0,
            wait_status: fatal.wait_status,
        });
        if let Some(announced) = announced {
            self.announce_exception(announced);
        }
    }

    fn announce_exception(&mut self, announced: JobExceptionEvent<'static>) {
        let event = Message::event(topic::JOB_EXCEPTION, "", 0)
            .with_typed(TypedPayload::JobException(announced));
        // Private: the event is for the instance owner's services; other subscribers may not see the job.
        let flags = event.flags | flags::PRIVATE;
        self.send(event.with_flags(flags));
    }
}

/// The facts of a stored job if it is inactive: an active one that is not in memory could not be restored.
fn inactive_record(stored: &JobRecord, spec: &Arc<Spec>) -> Option<Record> {
    let r = stored
        .row
        .r
        .as_deref()
        .and_then(|r| ResourceSet::from_json(r).ok());
    let r = r.map(Arc::new);
    let spec = Arc::clone(spec);
    let eventlog = stored.eventlog();
    let record = Record::replay(
        stored.id,
        stored.row.userid,
        spec,
        r.as_ref(),
        &eventlog,
        |_| {},
    );
    record
        .ok()
        .filter(|record| record.state() == State::Inactive)
}

/// The epoch of an instance that has none: `now`, or so long before that the next id follows the greatest one.
fn new_epoch(store: &Store, now: f64) -> Result<u64, StoreError> {
    let last = store.ids_before(None, 1)?.first().copied();
    let greatest = store.greatest_id().max(last.unwrap_or_default());
    Ok(milliseconds(now).saturating_sub(greatest.milliseconds()))
}

/// The facts of an ended job for a start and sums of usage; `None` if it has not ended.
pub(crate) fn ended_facts(record: &Record) -> Option<(EndedClass, EndedJob, JobUsage)> {
    let class = EndedClass {
        queue: record.spec().queue.as_deref().map(Arc::from),
        result: record.result()? as u8,
    };
    let job = EndedJob {
        id: record.id(),
        spec: record.spec().key,
        end: record.t_inactive(),
        userid: record.userid(),
        name_hash: hash_of(&record.name()),
        t_submit: record.t_submit(),
    };
    Some((class, job, record.job_usage()))
}

/// Seconds since the epoch as whole milliseconds, rounded down; 0 before the epoch.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float out of range saturates"
)]
pub(crate) fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}

/// Whole milliseconds since the epoch as seconds.
#[allow(
    clippy::cast_precision_loss,
    reason = "milliseconds of any real date are exact in a float"
)]
pub(crate) fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}
