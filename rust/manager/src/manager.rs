//! The job manager: owns the jobs, logs their events, and moves each one on.

use std::collections::{BTreeMap, HashMap, VecDeque};

use penstock_jobspec::fluid::FluidGenerator;
use penstock_rset::ResourceSet;
use penstock_store::Store;
use penstock_wire::{Kind, Message};
use serde_json::{Value, json};

use crate::alloc::Allocator;
use crate::census::Census;
use crate::claims::Claims;
use crate::depend::Dependencies;
use crate::elastic::Elastic;
use crate::event::Event;
use crate::exception::Raised;
use crate::exec::Executor;
use crate::hooks::Hooks;
use crate::job::{Alloc, Job};
use crate::job_list::Listings;
use crate::log::Log;
use crate::purge::Purged;
use crate::queues::Queues;
use crate::row;
use crate::rpc::{self, ENOSYS, RequestError};
use crate::settings::Settings;
use crate::state::State;
use crate::update::Updates;
use crate::watch::Watchers;

/// The job manager of one instance: messages in, messages out, everything durable in between.
///
/// [`handle`](Self::handle) and [`advance`](Self::advance) change the state and collect what is
/// to be sent; [`flush`](Self::flush) makes the changes durable and only then hands it out.
#[derive(Debug)]
pub struct Manager {
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    pub(crate) ids: FluidGenerator,
    pub(crate) epoch_ms: u64,
    pub(crate) jobs: BTreeMap<u64, Job>,
    pub(crate) allocator: Allocator,
    pub(crate) claims: Claims,
    pub(crate) executor: Executor,
    pub(crate) dependencies: Dependencies,
    pub(crate) census: Census,
    pub(crate) queues: Queues,
    pub(crate) updates: Updates,
    pub(crate) purged: Purged,
    pub(crate) hooks: Hooks,
    pub(crate) elastic: Elastic,
    pub(crate) watchers: Watchers,
    /// Who serves what, by the route of the connection; none where nobody tells.
    pub(crate) services: Option<HashMap<String, Vec<u8>>>,
    pub(crate) listings: Listings,
    pub(crate) out: Vec<Message>,
    /// Events not yet in the store: a job's first sequence number, and the lines.
    lines: BTreeMap<u64, (u32, String)>,
    /// Jobs that may be able to move on.
    pub(crate) work: VecDeque<u64>,
    log: Log,
    failure: Option<penstock_store::Error>,
    commits: u64,
    /// The time of the last call, seconds since the epoch.
    pub(crate) now: f64,
}

impl Manager {
    /// Opens the manager over a store and brings back what is in it. `now` is in seconds since
    /// the epoch; the first start of an instance makes it the epoch of its job ids (RFC 19).
    pub fn open(mut store: Store, settings: Settings, now: f64) -> Result<Self, String> {
        let stored = store.meta("epoch_ms").map_err(|error| error.to_string())?;
        let epoch_ms = if let Some(text) = stored {
            text.parse()
                .map_err(|_| format!("store: invalid epoch `{text}`: expected milliseconds"))?
        } else {
            let epoch = milliseconds(now);
            let set = store.set_meta("epoch_ms", &epoch.to_string());
            set.map_err(|error| error.to_string())?;
            epoch
        };
        let mut manager = Self {
            store,
            settings,
            ids: FluidGenerator::new(0),
            epoch_ms,
            jobs: BTreeMap::new(),
            allocator: Allocator::default(),
            claims: Claims::default(),
            executor: Executor::default(),
            dependencies: Dependencies::default(),
            census: Census::default(),
            queues: Queues::default(),
            updates: Updates::default(),
            purged: Purged::default(),
            hooks: Hooks::default(),
            elastic: Elastic::default(),
            watchers: Watchers::default(),
            services: None,
            listings: Listings::default(),
            out: Vec::new(),
            lines: BTreeMap::new(),
            work: VecDeque::new(),
            log: Log::default(),
            failure: None,
            commits: 0,
            now,
        };
        manager.restore_queues()?;
        manager.restore_purged()?;
        manager.replay(now)?;
        Ok(manager)
    }

    /// Takes one message in. Answers and further requests come out of [`flush`](Self::flush).
    pub fn handle(&mut self, message: &Message, now: f64) {
        self.log.at(now);
        self.now = now;
        match message.kind {
            Kind::Request => self.handle_request(message, now),
            Kind::Response => self.handle_response(message, now),
            Kind::Event | Kind::Control => {}
        }
        self.settle(now);
    }

    fn handle_request(&mut self, request: &Message, now: f64) {
        let outcome = match request.topic() {
            "job-ingest.submit" => self.submit(request, now).map(Some),
            "job-manager.raise" => self.raise(request, now).map(filled),
            "job-manager.kill" => self.kill(request).map(Some),
            "job-manager.urgency" => self.set_urgency(request, now).map(Some),
            "job-manager.prioritize" => self.prioritize(request, now).map(Some),
            "job-manager.memo" => self.memo(request, now).map(filled),
            "job-manager.update" => return self.update(request, now),
            "job-manager.purge" => self.purge(request, now).map(Some),
            "job-manager.queue-list" => Ok(Some(self.queue_list())),
            "job-manager.queue-status" => self.queue_status(request).map(Some),
            "job-manager.queue-enable" => self.queue_enable(request).map(filled),
            "job-manager.queue-start" => self.queue_start(request).map(filled),
            "job-manager.history.get" => self.history(request).map(Some),
            "job-manager.drain" => return self.wait_quiet(request, false),
            "job-manager.idle" => return self.wait_quiet(request, true),
            "job-manager.drain-cancel" | "job-manager.idle-cancel" => {
                self.quiet_cancel(request).map(filled)
            }
            "job-manager.sched-hello" => return self.sched_hello(request),
            "job-manager.sched-ready" => return self.sched_ready(request),
            "job-manager.exec-hello" => return self.exec_hello(request),
            "job-list.list" => return self.list(request),
            "job-list.list-cancel" => return self.list_cancel(request),
            "job-list.list-id" => self.list_id(request).map(Some),
            "job-list.list-attrs" => Ok(Some(row::attributes())),
            "job-list.job-stats" => Ok(Some(self.census.describe())),
            "job-list.wait" => return self.wait(request),
            "job-info.lookup" => self.lookup(request).map(Some),
            "job-info.eventlog-watch" => return self.eventlog_watch(request),
            "job-info.eventlog-watch-cancel" | "job-list.wait-cancel" => {
                return self.watch_cancel(request);
            }
            "kvs.commit" => self.kvs_commit(request).map(Some),
            "kvs.lookup" => self.kvs_lookup(request).map(Some),
            "pmix.alloc" => return self.pmix_alloc(request, now),
            "pmix.cancel" => self.pmix_cancel(request, now).map(Some),
            "pmix.query" => self.pmix_query(request).map(Some),
            "pmix.events" => return self.pmix_events(request),
            "pmix.alloc-cancel" => self.pmix_alloc_cancel(request).map(filled),
            "pmix.events-cancel" => return self.pmix_events_cancel(request),
            topic => match request.method() {
                "disconnect" => return self.disconnect(request),
                "ping" => rpc::payload(request).map(Some),
                "stats-get" => Ok(Some(self.stats())),
                _ => Err(RequestError::new(
                    ENOSYS,
                    format!("unknown method `{topic}`"),
                )),
            },
        };
        match outcome {
            Ok(payload) => self.respond(request, payload.as_ref()),
            Err(refusal) => self.refuse(request, &refusal),
        }
    }

    fn handle_response(&mut self, response: &Message, now: f64) {
        if response.userid != self.settings.owner {
            return self.complain(format!(
                "response of another user to {}: ignored",
                response.topic()
            ));
        }
        match response.topic() {
            "sched.alloc" => self.alloc_response(response, now),
            "sched.free" => self.free_response(response),
            "sched.expiration" => self.expiration_response(response, now),
            "sched.explain" => self.probe_response(response, now),
            "hooks.prolog" | "hooks.epilog" => self.hook_response(response, now),
            _ if response.method() == "start" => self.start_response(response, now),
            _ => {}
        }
    }

    pub(crate) fn respond(&mut self, request: &Message, payload: Option<&Value>) {
        if !request.is_noresponse() {
            self.out.push(rpc::answer(request, payload));
        }
    }

    pub(crate) fn refuse(&mut self, request: &Message, refusal: &RequestError) {
        if !request.is_noresponse() {
            self.out.push(rpc::refuse(request, refusal));
        }
    }

    /// Puts the events of this batch into the open transaction.
    pub(crate) fn write_lines(&mut self) {
        for (id, (seq, lines)) in std::mem::take(&mut self.lines) {
            let stored = self.store.append_events(id, seq, &lines);
            self.keep(stored);
        }
    }

    /// The number of the commit that the changes made now will be part of.
    pub(crate) fn next_commit(&self) -> u64 {
        self.commits + 1
    }

    /// Makes every change durable, then hands out what may now be sent, in order. Long answers
    /// come in parts, one at a time: see [`has_more`](Self::has_more).
    /// After an error nothing is handed out and the manager must not be used any more.
    pub fn flush(&mut self) -> Result<Vec<Message>, penstock_store::Error> {
        self.list_part();
        self.send_allocs();
        self.send_probe();
        self.allocator.end_turn();
        self.write_lines();
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        if self.store.commit()? {
            self.commits += 1;
        }
        Ok(std::mem::take(&mut self.out))
    }

    /// Does what time alone brings: jobs whose `begin-time` has come.
    pub fn advance(&mut self, now: f64) {
        self.log.at(now);
        self.now = now;
        self.begin_due(now);
        self.purge_by_limits(now);
        self.elastic_due(now);
        self.settle(now);
    }

    /// When [`advance`](Self::advance) has something to do next.
    pub fn deadline(&self) -> Option<f64> {
        let times = [
            self.dependencies.next_begin(),
            self.next_purge(),
            self.log.deadline(),
            self.elastic.deadline(),
        ];
        times.into_iter().flatten().min_by(f64::total_cmp)
    }

    /// Lines for the daemon's log since the last call.
    pub fn take_log(&mut self) -> Vec<String> {
        self.log.take()
    }

    pub(crate) fn note(&mut self, line: String) {
        self.log.note(line);
    }

    /// Notes what a peer has done wrong; of many such lines a second only the first.
    pub(crate) fn complain(&mut self, line: String) {
        self.log.complain(line);
    }

    /// Keeps the result of a store operation. A failure stops the manager at the next flush.
    pub(crate) fn keep<T: Default>(&mut self, result: Result<T, penstock_store::Error>) -> T {
        result.unwrap_or_else(|error| {
            self.failure.get_or_insert(error);
            T::default()
        })
    }

    /// The store, for the resource service's own events.
    pub fn store(&mut self) -> &mut Store {
        &mut self.store
    }

    /// Sets what may be allocated to jobs: R that a scheduler commits must lie within it.
    pub fn set_inventory(&mut self, inventory: ResourceSet) {
        self.claims.set_inventory(inventory);
    }

    /// Says who serves what: only who has registered a name may execute jobs under it.
    pub fn set_services(&mut self, services: HashMap<String, Vec<u8>>) {
        self.services = Some(services);
    }

    /// The resources that jobs hold now.
    pub fn held(&self) -> Result<ResourceSet, penstock_rset::Error> {
        let jobs = self
            .jobs
            .values()
            .filter(|job| job.alloc == Alloc::Allocated);
        let parts = jobs.filter_map(|job| {
            let r = job.r.as_ref()?;
            Some(r.restrict(&r.ranks().difference(&job.freed)))
        });
        // The times and slots of the first count in a union: those of no job.
        let nothing = std::iter::once(ResourceSet::new());
        let mut parts: Vec<ResourceSet> = nothing.chain(parts).collect();
        // In pairs: one after the other would walk through all that is held for every job.
        while parts.len() > 1 {
            let pairs = parts.chunks(2).map(|pair| match pair {
                [one, other] => one.union(other),
                one => Ok(one[0].clone()),
            });
            parts = pairs.collect::<Result<_, _>>()?;
        }
        Ok(parts.pop().unwrap_or_default())
    }

    fn stats(&self) -> Value {
        let tally = self.census.tally(None);
        let (active, running) = (tally.active(), tally.running());
        json!({
            "active_jobs": active,
            "inactive_jobs": tally.in_state(State::Inactive),
            "pending": active - running,
            "running": running,
            "max_jobid": self.greatest_id(),
            "commits": self.commits,
            "sched": self.allocator.describe(),
            "exec": self.executor.describe(),
            "waiting": self.watchers.describe(),
        })
    }

    /// Logs an event: the store's copy, the watchers' copy, and its effect on the job.
    pub(crate) fn post(&mut self, id: u64, event: &Event) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (_, lines) = self
            .lines
            .entry(id)
            .or_insert_with(|| (job.events, String::new()));
        let start = lines.len();
        event.write(lines);
        self.watchers
            .event(id, &lines[start..], event.name == "clean", &mut self.out);
        let before = job.state;
        job.apply(event);
        self.elastic.apply(id, event);
        if job.state != before {
            self.census.moved(job, before);
            self.work.push_back(id);
        }
    }

    /// Takes a job in, new or from the store.
    pub(crate) fn admit(&mut self, job: Job) {
        self.census.enter(&job);
        self.jobs.insert(job.id, job);
    }

    /// Logs an exception and tells whoever listens for it.
    pub(crate) fn post_exception(
        &mut self,
        id: u64,
        now: f64,
        kind: &str,
        severity: i64,
        note: &str,
        userid: u32,
    ) {
        let raised = Raised {
            kind,
            severity,
            note,
            userid,
            wait_status: None,
        };
        self.raise_exception(id, now, &raised);
    }

    /// An exception that the instance itself raises.
    pub(crate) fn fail_job(&mut self, id: u64, now: f64, kind: &str, note: &str) {
        let owner = self.settings.owner;
        self.post_exception(id, now, kind, 0, note, owner);
    }
}

/// A response's payload: none where there is nothing to tell.
fn filled(payload: Value) -> Option<Value> {
    Some(payload).filter(|it| !it.is_null())
}

/// Seconds since the epoch as whole milliseconds; the past before it counts as the epoch.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float out of range saturates, which is what a broken clock deserves"
)]
pub(crate) fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}
