//! `Manager`: owns the jobs and the peers, and performs the effects of each message.

use std::collections::{BTreeSet, HashMap, VecDeque};

use penstock_flux::RequestError;
use penstock_flux::errno::EBUSY;
use penstock_flux::job_manager::StatsResponse;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_store::Store;
use penstock_wire::Message;

use crate::census::Census;
use crate::context::{Context, milliseconds};
use crate::depend::Dependencies;
use crate::effect::{Effect, ExpirationCause, ExpirationChange};
use crate::elastic::Elastic;
use crate::error::Error;
use crate::exec::ExecPeer;
use crate::hooks::Hooks;
use crate::log::Log;
use crate::purge::{self, Purger};
use crate::queries::Queries;
use crate::queues::Queues;
use crate::record::Record;
use crate::scheduler::SchedulerPeer;
use crate::settings::Settings;
use crate::state::State;
use crate::update;

/// Where the store keeps the instance's epoch of job ids (RFC 19).
const EPOCH_META: &str = "epoch_ms";

/// The job manager of one instance: messages in, messages out, everything durable in between.
///
/// [`handle`](Self::handle) and [`advance`](Self::advance) change the state and collect messages;
/// [`flush`](Self::flush) makes the changes durable and only then hands the messages out.
#[derive(Debug)]
pub struct Manager {
    pub(crate) cx: Context,
    pub(crate) scheduler: SchedulerPeer,
    pub(crate) exec: ExecPeer,
    pub(crate) hooks: Hooks,
    pub(crate) elastic: Elastic,
    pub(crate) queries: Queries,
    pub(crate) dependencies: Dependencies,
    pub(crate) census: Census,
    pub(crate) purger: Purger,
    /// Jobs for which a step may be due.
    pub(crate) due: VecDeque<JobId>,
    out: Vec<Message>,
    log: Log,
    #[cfg(debug_assertions)]
    check: crate::replay_check::ReplayCheck,
}

impl Manager {
    /// Opens a manager over a store. `now` is in seconds since the epoch; the first start of an
    /// instance makes it the epoch of its job ids (RFC 19). The jobs in the store are to be
    /// [restored](Self::open).
    pub(crate) fn over(mut store: Store, settings: Settings, now: f64) -> Result<Self, Error> {
        let epoch_ms = if let Some(text) = store.meta(EPOCH_META)? {
            let epoch = text.parse();
            epoch.map_err(|_| Error::corrupt(EPOCH_META, &text, "milliseconds"))?
        } else {
            let epoch = milliseconds(now);
            store.set_meta(EPOCH_META, &epoch.to_string())?;
            epoch
        };
        let mut cx = Context::new(store, settings, epoch_ms, now);
        cx.queues = Queues::restore(cx.store())?;
        purge::restore(&mut cx)?;
        let exec = ExecPeer::restore(cx.store())?;
        Ok(Self {
            cx,
            scheduler: SchedulerPeer::default(),
            exec,
            hooks: Hooks::default(),
            elastic: Elastic::default(),
            queries: Queries::default(),
            dependencies: Dependencies::default(),
            census: Census::default(),
            purger: Purger::default(),
            due: VecDeque::new(),
            out: Vec::new(),
            log: Log::default(),
            #[cfg(debug_assertions)]
            check: crate::replay_check::ReplayCheck::default(),
        })
    }

    /// Begins a call at this time.
    pub(crate) fn begin(&mut self, now: f64) {
        self.log.advance(now);
        self.cx.now = now;
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
            Effect::Submitted(ids) => {
                for id in ids {
                    if let Some(record) = cx.jobs.record(id) {
                        self.census.enter(record, State::New);
                    }
                    self.due.push_back(id);
                }
            }
            Effect::Logged {
                id,
                event,
                before,
                after,
            } => {
                if before != after {
                    if let Some(record) = cx.jobs.record(id) {
                        self.census.count_transition(record, before, after);
                    }
                    self.due.push_back(id);
                }
                self.queries.watchers.send_event(cx, id, &event);
                self.elastic.observe(id);
            }
            Effect::Send(message) => self.out.push(message),
            Effect::Revisit(id) => self.due.push_back(id),
            Effect::LogLine(line) => self.log.log_line(line),
            Effect::Complain(line) => self.log.complain(line),
            Effect::Free(free) => self.scheduler.free(cx, free),
            Effect::Withdraw(id) => self.scheduler.withdraw(cx, id),
            Effect::Reprioritize { id, old, new } => self.scheduler.reprioritize(cx, id, old, new),
            Effect::RequestExpiration {
                id,
                duration,
                cause,
            } => self.scheduler.request_expiration(cx, id, duration, cause),
            Effect::Kill { id, signum } => self.exec.kill(cx, id, signum),
            Effect::Shrink { id, ranks } => self.exec.shrink(cx, id, &ranks),
            Effect::Purged(id) => self.elastic.forget(id),
            Effect::ElasticRequested(id) => self.elastic.queue_probe(id),
            Effect::Denied { id, note } => {
                let record = cx.jobs.record(id);
                if record.is_some_and(|record| record.elastic_request().is_some()) {
                    self.elastic.follow_denial(cx, id, &note);
                } else {
                    cx.fail_job(id, "alloc", &note);
                }
            }
            Effect::SchedulerLost => self.elastic.forget_probes(cx),
            Effect::ExpirationDecided(change, decision) => {
                self.handle_expiration_decision(change, decision);
            }
            Effect::ExpirationBusy(change) => self.handle_busy_expiration(change),
        }
    }

    fn handle_expiration_decision(
        &mut self,
        change: ExpirationChange,
        decision: Result<(), RequestError>,
    ) {
        let cx = &mut self.cx;
        let (id, expiration) = (change.id, change.expiration);
        let result = decision.and_then(|()| update::apply_expiration(cx, &change));
        if result.is_ok() {
            self.elastic.follow_expiration(cx, id, expiration);
            self.exec.set_expiration(cx, id, expiration);
            self.scheduler.correct_expiration(cx, id, expiration);
        }
        match (change.cause, result) {
            (ExpirationCause::Update(request), Ok(())) => cx.respond(&request, None),
            (ExpirationCause::Update(request), Err(error)) => cx.reject(&request, &error),
            (ExpirationCause::Elastic(key, granted), result) => {
                self.elastic.handle_time_decision(cx, key, granted, result);
            }
            (ExpirationCause::Manager, Ok(())) => {}
            (ExpirationCause::Manager, Err(error)) => {
                cx.log_line(format!("expiration of job {id}: {}", error.text));
            }
        }
        self.elastic.retry_times(cx, id);
    }

    fn handle_busy_expiration(&mut self, change: ExpirationChange) {
        let text = format!("job {} is being updated already", change.id);
        match change.cause {
            ExpirationCause::Update(request) => {
                let error = RequestError::new(EBUSY, text);
                self.cx.reject(&request, &error);
            }
            // It is requested again when the outstanding request is decided.
            ExpirationCause::Elastic(..) => {}
            ExpirationCause::Manager => self.cx.log_line(text),
        }
    }

    /// Makes every change durable, then returns the messages to be sent, in order. Long responses come
    /// in parts, one part per call: see [`has_more`](Self::has_more).
    ///
    /// # Errors
    ///
    /// The store failed. No messages are returned, and the manager must not be used again.
    pub fn flush(&mut self) -> Result<Vec<Message>, penstock_store::Error> {
        let cx = &mut self.cx;
        self.queries.listings.take_turn(cx);
        self.scheduler.send_allocs(cx);
        self.elastic.send_probe(cx);
        self.scheduler.begin_turn();
        self.perform();
        self.assert_records();
        self.exec.record_unsent(&mut self.cx);
        self.cx.commit()?;
        Ok(std::mem::take(&mut self.out))
    }

    /// Asserts that replaying the eventlogs yields the facts of the jobs.
    #[cfg(debug_assertions)]
    pub(crate) fn assert_records(&mut self) {
        let check = &mut self.check;
        check.assert_records(&mut self.cx, &self.elastic);
    }

    #[cfg(not(debug_assertions))]
    #[expect(clippy::unused_self, reason = "a check of debug builds")]
    pub(crate) fn assert_records(&self) {}

    /// Whether the next [`flush`](Self::flush) has messages without further input: there is an open
    /// listing, or a job to request resources for, and the send buffer of its peer is not full.
    pub fn has_more(&self) -> bool {
        self.queries.listings.has_more(&self.cx) || self.scheduler.has_more(&self.cx)
    }

    /// The peers that receive messages in bulk, by route: those with an open listing, and the
    /// scheduler.
    pub fn readers(&self) -> BTreeSet<Vec<u8>> {
        let listings = self.queries.listings.readers();
        let readers = listings.chain(self.scheduler.reader());
        readers.map(<[u8]>::to_vec).collect()
    }

    /// Sets the peers whose send buffers are full: listings and requests for resources to them pause.
    pub fn set_backlogged(&mut self, peers: BTreeSet<Vec<u8>>) {
        self.cx.backlogged = peers;
    }

    /// When [`advance`](Self::advance) is due next, seconds since the epoch.
    pub fn deadline(&self) -> Option<f64> {
        let times = [
            self.dependencies.deadline(),
            self.purger.deadline(&self.cx, &self.census),
            self.log.deadline(),
            self.elastic.deadline(),
        ];
        times.into_iter().flatten().min_by(f64::total_cmp)
    }

    /// Takes the lines for the daemon's log since the last call.
    pub fn take_log(&mut self) -> Vec<String> {
        self.log.take()
    }

    /// Takes the jobs that were purged since the last call.
    pub fn take_purged(&mut self) -> Vec<JobId> {
        self.purger.take_purged()
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

    /// Sets the route that has registered each service name: no other may execute jobs under it.
    pub fn set_services(&mut self, services: HashMap<String, Vec<u8>>) {
        self.exec.set_registered(services);
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
        let records = self.cx.jobs.iter().map(|job| &job.record);
        let allocated = records.filter(|record| record.has_resources());
        let parts = allocated.filter_map(Record::unfreed);
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

    /// The statistics of `stats-get`.
    pub(crate) fn stats(&self) -> StatsResponse<'_> {
        let tally = self.census.tally(None);
        let (active, running) = (tally.active(), tally.running());
        StatsResponse {
            active_jobs: active,
            inactive_jobs: tally.in_state(State::Inactive),
            pending: active - running,
            running,
            max_jobid: self.cx.jobs.greatest_id(),
            commits: self.cx.commits(),
            sched: self.scheduler.stats(),
            exec: self.exec.stats(),
            waiting: self.queries.watchers.stats(),
        }
    }
}
