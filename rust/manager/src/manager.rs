//! `Manager`: owns the jobs and the peers, and performs the effects of each message.

use std::collections::{BTreeSet, VecDeque};

use penstock_flux::Histogram;
use penstock_flux::job_manager::{HousekeepingStats, StatsResponse};
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_store::{Commit, Store};
use penstock_wire::{Body, Message};

use crate::bulk::BulkRequests;
use crate::census::Census;
use crate::context::Context;
use crate::depend::Dependencies;
use crate::effect::Effect;
use crate::elastic::Elastic;
use crate::exec::ExecPeer;
use crate::expiration;
use crate::hooks::Hooks;
use crate::ingest::Submissions;
use crate::log::Log;
use crate::purge::Purger;
use crate::queries::Queries;
use crate::reload::Renewal;
use crate::replay::{Restored, Resumption};
use crate::scheduler::SchedulerPeer;
use crate::state::State;

/// Requests about many jobs, submissions among them, that a peer may have open before no more is read of it.
const MAX_OPEN_REQUESTS: usize = 64;
/// The ids that these requests name.
const MAX_OPEN_IDS: usize = 100_000;
/// The memory of the jobspecs of these submissions, in bytes.
const MAX_OPEN_BYTES: usize = 16 * 1024 * 1024;
/// The memory of the jobspecs of all open submissions, in bytes, with which no more is read of any peer that has some.
const MAX_ALL_OPEN_BYTES: usize = 64 * 1024 * 1024;

/// The job manager of one instance: messages in, messages out, everything durable in between.
///
/// [`handle`](Self::handle) and [`advance`](Self::advance) change the state and collect messages;
/// [`take_messages`](Self::take_messages) hands them out, and [`commit`](Self::commit) makes the changes
/// durable. A change must be durable before a message that reports it leaves the process or acts on the outside:
/// [`flush`](Self::flush) does both.
#[derive(Debug)]
pub struct Manager {
    pub(crate) cx: Context,
    pub(crate) scheduler: SchedulerPeer,
    pub(crate) exec: ExecPeer,
    pub(crate) hooks: Hooks,
    pub(crate) elastic: Elastic,
    pub(crate) queries: Queries,
    pub(crate) bulk: BulkRequests,
    pub(crate) submissions: Submissions,
    pub(crate) resumption: Resumption,
    pub(crate) renewal: Renewal,
    pub(crate) dependencies: Dependencies,
    pub(crate) census: Census,
    pub(crate) purger: Purger,
    /// Jobs for which a step may be due.
    pub(crate) due: VecDeque<JobId>,
    out: Vec<Message>,
    /// The size of the payloads of these messages.
    out_bytes: usize,
    log: Log,
    /// The durations of the store's checkpoints.
    checkpoints: Histogram,
    #[cfg(debug_assertions)]
    check: crate::replay_check::ReplayCheck,
}

impl Manager {
    /// A manager of the restored jobs, before their due steps.
    pub(crate) fn new(restored: Restored) -> Self {
        let purger = Purger::new(&restored.cx);
        Self {
            cx: restored.cx,
            scheduler: restored.scheduler,
            exec: restored.exec,
            hooks: restored.hooks,
            elastic: restored.elastic,
            queries: Queries::default(),
            bulk: BulkRequests::default(),
            submissions: Submissions::default(),
            resumption: restored.resumption,
            renewal: Renewal::default(),
            dependencies: restored.dependencies,
            census: restored.census,
            purger,
            due: VecDeque::new(),
            out: Vec::new(),
            out_bytes: 0,
            log: Log::default(),
            checkpoints: Histogram::of_work(),
            #[cfg(debug_assertions)]
            check: crate::replay_check::ReplayCheck::default(),
        }
    }

    /// Begins a call at this time.
    pub(crate) fn begin(&mut self, now: f64) {
        self.log.advance(now);
        self.cx.now = now;
        self.cx.evict_jobs();
    }

    /// Performs the effects in their order; effects that result from performing one come before the
    /// next.
    pub(crate) fn perform(&mut self) {
        let mut spare = Vec::new();
        while self.cx.has_effects() {
            let mut effects = self.cx.take_effects(spare);
            for effect in effects.drain(..) {
                self.perform_one(effect);
                if self.cx.has_effects() {
                    self.perform();
                }
            }
            spare = effects;
        }
        if spare.capacity() > 0 {
            self.cx.take_effects(spare);
        }
    }

    fn perform_one(&mut self, effect: Effect) {
        let cx = &mut self.cx;
        match effect {
            Effect::Submitted(id) => {
                if let Some(record) = cx.jobs.record(id) {
                    self.census.enter_new(record);
                }
                self.queries.add_jobs(id, id);
                self.due.push_back(id);
            }
            Effect::Accepted { first, last } => self.queries.add_jobs(first, last),
            Effect::Logged {
                id,
                event,
                before,
                after,
            } => {
                if let Some(record) = cx.jobs.record(id) {
                    self.census.count_stage(record, &event, before, after);
                    if before != after {
                        self.census.count_transition(record, before, after);
                    }
                }
                if before != after {
                    self.due.push_back(id);
                }
                self.queries.send_event(cx, id, &event);
                self.elastic.observe(id);
            }
            Effect::Send(message) => {
                self.out_bytes += message.payload.as_ref().map_or(0, Body::written_len);
                self.out.push(message);
            }
            Effect::Revisit(id) => self.due.push_back(id),
            Effect::LogLine(line) => self.log.log_line(line),
            Effect::Complain(line) => self.log.complain(line),
            Effect::Free(free) => self.scheduler.free(cx, free),
            Effect::Withdraw(id) => {
                self.scheduler.withdraw(cx, id);
            }
            Effect::Reprioritize { id, old, new } => {
                self.dependencies.reprioritize(cx, id, old, new);
                self.scheduler.reprioritize(cx, id, old, new);
            }
            Effect::Probe(probe) => self.scheduler.probe(cx, probe),
            Effect::Probed { probe, answer } => {
                self.elastic.handle_probe_answer(cx, probe, answer);
            }
            Effect::RequestExpiration {
                id,
                duration,
                cause,
            } => expiration::request(cx, &mut self.scheduler, id, duration, cause),
            Effect::Kill { id, signum } => self.exec.kill(cx, id, signum),
            Effect::Shrink { id, ranks } => self.exec.shrink(cx, id, &ranks),
            Effect::Purged(id) => {
                self.elastic.forget(id);
                self.queries.results.forget(id);
            }
            Effect::ElasticRequested(id) => self.elastic.queue_probe(id),
            Effect::ElasticDenied { id, note } => self.elastic.follow_denial(cx, id, &note),
            Effect::ElasticBegun(key) => self.elastic.report_queued(cx, key),
            Effect::SchedulerLost => self.elastic.forget_probes(cx),
            Effect::ExpirationAccepted(change) => expiration::accept(cx, change),
            Effect::ExpirationRejected { id, cause, error } => {
                expiration::finish(cx, id, cause, Err(error));
            }
            Effect::ExpirationChanged { id, expiration } => {
                self.elastic.follow_expiration(cx, id, expiration);
                self.exec.set_expiration(cx, id, expiration);
                self.scheduler.correct_expiration(cx, id, expiration);
            }
            Effect::TimeDecided {
                key,
                granted,
                result,
            } => self.elastic.handle_time_decision(cx, key, granted, result),
            Effect::ExpirationFinished(id) => self.elastic.retry_times(cx, id),
            Effect::QueuesChanged => self.elastic.retry_postponed_returns(cx),
        }
    }

    /// Makes every change durable, then returns the messages to be sent, in order.
    ///
    /// # Errors
    ///
    /// The store failed. No messages are returned, and the manager must not be used again.
    pub fn flush(&mut self) -> Result<Vec<Message>, penstock_store::Error> {
        let messages = self.take_messages();
        self.commit()?;
        Ok(messages)
    }

    /// Makes every change durable. Returns whether there were any.
    ///
    /// # Errors
    ///
    /// The store failed. Messages taken since the last commit must not be sent, and the manager must not
    /// be used again.
    pub fn commit(&mut self) -> Result<bool, penstock_store::Error> {
        let commit = self.begin_commit()?;
        self.finish_sync()?;
        Ok(commit != Commit::Unchanged)
    }

    /// Commits every change, without waiting for a slow disk: after [`Commit::Syncing`] the messages that were taken must not
    /// be sent until [`finish_sync`](Self::finish_sync) has succeeded. Later changes are those of the next commit, which waits
    /// for the end of the sync.
    ///
    /// # Errors
    ///
    /// As for [`commit`](Self::commit).
    pub fn begin_commit(&mut self) -> Result<Commit, penstock_store::Error> {
        self.exec.record_unsent(&mut self.cx);
        let commit = self.cx.begin_commit()?;
        if commit != Commit::Unchanged {
            self.submissions.begin_commit();
        }
        for duration in self.cx.store().take_checkpoint_durations() {
            self.checkpoints.observe(duration.as_secs_f64());
        }
        Ok(commit)
    }

    /// Waits for the end of the sync that [`begin_commit`](Self::begin_commit) has begun, if there is one. Returns whether
    /// there was.
    ///
    /// # Errors
    ///
    /// As for [`commit`](Self::commit).
    pub fn finish_sync(&mut self) -> Result<bool, penstock_store::Error> {
        self.cx.finish_sync()
    }

    /// Has a thread sync the commits while the disk is slow. It calls `notify` at the end of each sync.
    ///
    /// # Errors
    ///
    /// The log of the store cannot be opened.
    pub fn sync_in_thread(
        &mut self,
        notify: impl Fn() + Send + 'static,
    ) -> Result<(), penstock_store::Error> {
        self.cx.sync_in_thread(notify)
    }

    /// Sets the time of the monotonic clock at the messages that follow, in seconds: the statistics have durations by it.
    pub fn set_monotonic(&mut self, seconds: f64) {
        self.cx.monotonic = seconds;
    }

    /// Records for the statistics that a [`commit`](Self::commit), or the sync of one, has ended at this time of the monotonic
    /// clock.
    pub fn record_commit(&mut self, monotonic: f64) {
        self.submissions.record_commit(monotonic);
    }

    /// Closes the store, and discards every change since the last commit: another manager can be opened on the same
    /// database. This one must not be used again.
    pub fn close(&mut self) {
        self.cx.close();
    }

    /// Whether there are changes that are not durable yet.
    pub fn has_uncommitted(&self) -> bool {
        self.cx.has_uncommitted()
    }

    /// Takes the messages to be sent, in order: to peers that outlive the process only after a
    /// [`commit`](Self::commit). Long responses come in parts, one part per call: see
    /// [`has_more`](Self::has_more).
    pub fn take_messages(&mut self) -> Vec<Message> {
        self.queries.send_listing_parts(&mut self.cx, &self.census);
        self.take_short_messages()
    }

    /// As [`take_messages`](Self::take_messages), without parts of long responses: for exchanges with other services in
    /// memory, during which the peers' send buffers are not looked at.
    pub fn take_short_messages(&mut self) -> Vec<Message> {
        let cx = &mut self.cx;
        self.scheduler.send_allocs(cx);
        self.scheduler.send_cancels(cx);
        self.elastic.probe_scheduler(cx);
        self.queries.send_ended(cx);
        self.scheduler.begin_batch();
        self.perform();
        self.assert_records();
        self.out_bytes = 0;
        std::mem::take(&mut self.out)
    }

    /// The size of the payloads of the messages that are to be taken, in bytes. A payload that is written when it is sent
    /// does not count.
    pub fn out_bytes(&self) -> usize {
        self.out_bytes
    }

    /// Asserts, in debug builds, that replaying the eventlogs yields the facts of the jobs.
    pub(crate) fn assert_records(&mut self) {
        // One that only answers questions sets no timers.
        #[cfg(debug_assertions)]
        if self.cx.outage.is_none() {
            self.check.assert_records(&mut self.cx, &self.elastic);
        }
    }

    /// Whether the next [`take_messages`](Self::take_messages) has messages without further input: there is an open
    /// listing, or a job to request resources for, and the send buffer of its peer is not full.
    pub fn has_more(&self) -> bool {
        self.queries.has_more(&self.cx) || self.scheduler.has_more(&self.cx)
    }

    /// The peers that receive messages in bulk, by route: those with an open listing, and the
    /// scheduler.
    pub fn readers(&self) -> BTreeSet<Vec<u8>> {
        let listings = self.queries.readers();
        let readers = listings.chain(self.scheduler.reader(&self.cx));
        readers.map(<[u8]>::to_vec).collect()
    }

    /// Sets the peers whose send buffers are full: listings and requests for resources to them pause.
    pub fn set_backlogged(&mut self, peers: BTreeSet<Vec<u8>>) {
        self.cx.backlogged = peers;
    }

    /// When [`advance`](Self::advance) is due next, seconds since the epoch: at once while a request about many jobs, or
    /// for many, is open.
    pub fn deadline(&self) -> Option<f64> {
        let times = [
            self.has_slices().then_some(self.cx.now),
            self.dependencies.deadline(),
            self.submissions.deadline(),
            self.purger.deadline(&self.cx, &self.census),
            self.log.deadline(),
            self.elastic.deadline(),
        ];
        times.into_iter().flatten().min_by(f64::total_cmp)
    }

    /// Whether something is done in slices: a request about many jobs, or for many, the resumption of pending jobs, the end
    /// of requests to a lost scheduler or execution service, the responses to hello, many start requests, the renewal of
    /// requests after a reload, or the release of jobs that depend on another one.
    fn has_slices(&self) -> bool {
        self.bulk.is_open()
            || self.submissions.is_open()
            || self.resumption.is_open()
            || self.scheduler.has_slices()
            || self.exec.has_slices()
            || self.renewal.is_open()
            || self.dependencies.is_open()
    }

    /// Whether a request is done in slices, or dependents are released: [`advance`](Self::advance) does the next one.
    pub fn has_open_request(&self) -> bool {
        self.bulk.is_open()
            || self.submissions.is_open()
            || self.purger.is_open()
            || self.scheduler.has_slices()
            || self.exec.has_slices()
            || self.renewal.is_open()
            || self.dependencies.is_open()
    }

    /// Whether a peer has sent more requests about many jobs than it should: no more is to be read of it until slices have
    /// ended some.
    pub fn is_ahead(&self, origin: &[u8]) -> bool {
        let open = self.submissions.open_of(origin)
            + self.bulk.open_of(origin)
            + self.purger.open_of(origin);
        let bytes = self.submissions.open_bytes_of(origin);
        open > MAX_OPEN_REQUESTS
            || self.bulk.open_ids_of(origin) > MAX_OPEN_IDS
            || bytes > MAX_OPEN_BYTES
            || (bytes > 0 && self.submissions.open_bytes() > MAX_ALL_OPEN_BYTES)
    }

    /// Whether the slices that are due delay any of these users: all requests that are done in slices, and jobs that are
    /// released, are those of other users, or there are none and jobs are removed by the configured limits.
    pub fn delays(&self, users: &[u32]) -> bool {
        let bulk = self.bulk.users();
        let submissions = self.submissions.users(&self.cx);
        let is_owners =
            self.renewal.is_open() || self.scheduler.has_slices() || self.exec.has_slices();
        let owner = is_owners.then_some(self.cx.settings.owner);
        let others = self.purger.users().chain(self.dependencies.users());
        let others = others.chain(owner);
        let open: BTreeSet<u32> = bulk.chain(submissions).chain(others).collect();
        if open.is_empty() {
            let due = self.purger.deadline(&self.cx, &self.census);
            return !users.is_empty() && due.is_some_and(|due| due <= self.cx.now);
        }
        users.iter().any(|user| !open.contains(user))
    }

    /// Sets the number of jobs in a slice of a submission, of a request about many jobs and of a purge, for simulation: it
    /// has few jobs.
    pub fn set_slice(&mut self, jobs: u64) {
        self.submissions.set_slice(jobs);
        let jobs = usize::try_from(jobs).unwrap_or(usize::MAX);
        self.bulk.set_slice(jobs);
        self.renewal.set_slice(jobs);
        self.scheduler.set_slice(jobs);
        self.exec.set_slice(jobs);
        self.dependencies.set_slice(jobs);
        self.purger.set_slice(jobs);
    }

    /// Sets the number of jobs that stay in memory after their end, for simulation: it has few jobs.
    pub fn set_max_ended(&mut self, jobs: usize) {
        self.cx.jobs.set_max_ended(jobs);
    }

    /// Takes the lines for the daemon's log since the last call.
    pub fn take_log(&mut self) -> Vec<String> {
        self.log.take()
    }

    /// Takes the jobs that were purged since the last call.
    pub fn take_purged(&mut self) -> Vec<JobId> {
        self.purger.take_purged()
    }

    /// Forgets purged jobs: no module has data of theirs any longer.
    pub fn forget_purged(&mut self, ids: &[JobId]) {
        self.cx.forget_purged(ids);
    }

    /// The store, the open transaction included. Writing is the manager's.
    pub fn store(&self) -> &Store {
        self.cx.store()
    }

    /// Appends an event of the resource service to the store.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub fn append_resource_event(&mut self, line: &str) -> Result<(), penstock_store::Error> {
        self.cx.append_resource_event(line)
    }

    /// Sets the resources that may be allocated to jobs: R that a scheduler commits must lie within
    /// them.
    pub fn set_inventory(&mut self, inventory: ResourceSet) {
        self.cx.claims.set_inventory(inventory);
    }

    /// Requests no more resources: pending jobs stay pending for the next start of the instance.
    pub fn stop_scheduling(&mut self) {
        self.scheduler.stop();
    }

    /// The resources that are allocated to jobs.
    ///
    /// # Errors
    ///
    /// The resources of two jobs contradict each other.
    pub fn allocated(&self) -> Result<ResourceSet, penstock_rset::Error> {
        self.cx.jobs.allocated()
    }

    /// The statistics of `stats-get`.
    pub(crate) fn stats(&self) -> StatsResponse<'_> {
        let tally = self.census.tally(None);
        let (active, running) = (tally.active(), tally.running());
        let unstepped = self.submissions.unstepped() + self.resumption.left();
        let space = self.cx.store().space().unwrap_or_default();
        StatsResponse {
            active_jobs: active,
            inactive_jobs: tally.in_state(State::Inactive),
            pending: active - running,
            running,
            max_jobid: self.cx.jobs.greatest_id(),
            commits: self.cx.commits(),
            sched: self.scheduler.stats(&self.cx, unstepped),
            exec: self.exec.stats(),
            outstanding: self.queries.stats(),
            rejected: self.cx.rejected(),
            states: self.census.state_stats(),
            queues: self.census.queue_stats(),
            submitted: self.census.submitted(),
            ended: self.census.result_stats(),
            purged: self.census.purged(),
            stages: self.census.stage_stats(),
            submissions: self.submissions.durations(),
            checkpoints: self.checkpoints.stats(),
            store_log_bytes: self.cx.store().log_bytes(),
            store_bytes: space.pages * space.page_bytes,
            store_free_bytes: space.free_pages * space.page_bytes,
            store_released_bytes: self.purger.released_pages() * space.page_bytes,
            housekeeping: HousekeepingStats::default(),
        }
    }
}
