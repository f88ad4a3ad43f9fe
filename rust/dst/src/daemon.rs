//! The daemon: router, job manager, resource module and scheduler as in production, and the rounds of
//! `python/penstock/instance/broker.py`, which move messages between them, commit, and then let connections write.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::error::Error;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use penstock_broker::{Delivery, PeerId, Router};
use penstock_flux::broker::{ServiceRequest, SubscriptionRequest};
use penstock_flux::{Credentials, RequestError, errno, role, topic};
use penstock_idset::IdSet;
use penstock_manager::{Manager, Queue, Settings};
use penstock_resource::{Config, Effect, ResourceModule};
use penstock_rset::ResourceSet;
use penstock_sched::Phase;
use penstock_store::{Commit, LogLimits, Store, Synchronous};
use penstock_wire::{Message, MessageType};

use crate::connection::{Commitment, Connection, Failure};
use crate::constraint::{ConstraintCheck, ExcludedProperties};
use crate::copies;
use crate::hooks::{HookRunner, RunningHook};
use crate::network::{End, LinkId, Network};
use crate::scheduling::{CheckedScheduler, Placement};
use crate::script::Setup;
use crate::site::OWNER;
use crate::vfs::{sync_file, with_disk};

/// The database.
pub(crate) const STORE: &str = "/store";
const STORE_LOG: &str = "/store-wal";
const MANAGER_NAMES: [&str; 6] = [
    "job-manager",
    "job-ingest",
    "job-list",
    "job-info",
    "kvs",
    "pmix",
];
const RESOURCE_NAMES: [&str; 2] = ["resource", "groups"];
const CONTROL_NAMES: [&str; 2] = ["service", "event"];
const HOOK_NAMES: [&str; 1] = ["hooks"];
/// Services within the daemon exchange messages this often before a commit.
const MAX_EXCHANGES: usize = 16;
/// Rounds without input from outside, after which services only talk to each other.
const MAX_ROUNDS: usize = 200;
const MAX_COMMIT_DELAY_S: f64 = 0.05;
/// Seconds that a sync apart from its commit takes.
const SYNC_S: f64 = 0.005;
/// It ends before, after fewer rounds than these.
const MAX_ROUNDS_OF_SYNC: u32 = 4;
/// Seconds from the failure of a service to its restart.
const RESTART_PAUSE_S: f64 = 1.0;
/// The lengths of the log of the store: a run has some hundred commits.
const LOG_LIMITS: LogLimits = LogLimits {
    piece: 8,
    restart: 16,
    rest: 12,
    max: 64,
};
/// The most disk operations of a copy of the log after a round.
const MAX_COPY_TURN: u32 = 5;
/// The clock may be set forward by this much before submissions are rejected, in seconds.
pub const CLOCK_STEP_LIMIT_S: f64 = 86_400.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Manager,
    Resource,
    Control,
    Scheduler,
    Hooks,
}

impl Role {
    /// Whether all that the service does with a message is in memory, and in the messages that it posts.
    fn is_in_memory(self) -> bool {
        matches!(self, Self::Manager | Self::Resource | Self::Scheduler)
    }
}

/// The receiver of responses, and the routes and the matchtag of their request.
type ResponseKey = (PeerId, Option<Vec<Vec<u8>>>, u32);

fn response_key(receiver: PeerId, response: &Message) -> ResponseKey {
    (receiver, response.routes.clone(), response.matchtag)
}

/// Messages of a peer that are to be routed.
struct Posted {
    from: PeerId,
    messages: Vec<Message>,
    /// Of a service in memory, whether a commit has succeeded since they were posted.
    commitment: Commitment,
    /// Whether that is so when the sync under way has succeeded.
    is_before_sync: bool,
}

/// A sync of the last commit that is under way.
struct Syncing {
    /// When it ends.
    by: f64,
    /// The rounds after which it ends if they come before.
    rounds: u32,
}

/// One run of the daemon's process.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a condition of its own"
)]
pub struct Daemon {
    router: Router,
    network: Rc<RefCell<Network>>,
    manager: Manager,
    resource: ResourceModule,
    scheduler: Option<CheckedScheduler>,
    hooks: HookRunner,
    setup: Setup,
    excluded: ExcludedProperties,
    constraint: ConstraintCheck,
    base: Arc<ResourceSet>,
    peers: BTreeMap<Role, PeerId>,
    roles: BTreeMap<PeerId, Role>,
    failures: BTreeMap<Role, Failure>,
    /// The times of restarts, without the steps of the clock.
    restart_at: BTreeMap<Role, f64>,
    connections: BTreeMap<PeerId, Connection>,
    uuids: BTreeMap<PeerId, Vec<u8>>,
    last_peer: PeerId,
    posted: VecDeque<Posted>,
    is_in_round: bool,
    abandoned: Vec<Role>,
    /// The requests that the last failure of the store has answered in place of their responses.
    retracted: BTreeSet<ResponseKey>,
    is_nudged: bool,
    rounds: u32,
    /// Whether the failed job manager, which is closed, has left such a commit.
    has_doubtful_commit: bool,
    commit_by: Option<f64>,
    syncing: Option<Syncing>,
    clock_offset: f64,
    has_rejection: bool,
    /// The clients of the failed job manager with services of their own.
    lost_peers: Vec<PeerId>,
    /// The lines of the job manager's log.
    pub log: Vec<String>,
    /// The jobs that were purged, perhaps not yet in the store.
    pub purged: Vec<u64>,
    now: f64,
    monotonic: f64,
}

/// The one queue, which jobs are in by default.
const QUEUE: &str = "batch";

fn settings(setup: Setup, excluded: ExcludedProperties) -> Settings {
    let queue = Queue {
        requires: excluded.requirements(),
        ..Queue::default()
    };
    Settings {
        owner: OWNER,
        queues: BTreeMap::from([(QUEUE.to_owned(), queue)]),
        default_queue: Some(QUEUE.to_owned()),
        guests: setup.guests.exist(),
        inactive_num_limit: setup.inactive_num_limit.map_or(-1, i64::from),
        prolog: setup.prolog,
        epilog: setup.epilog,
        ..Settings::default()
    }
}

fn open_manager(
    setup: Setup,
    excluded: ExcludedProperties,
    now: f64,
) -> Result<Manager, Box<dyn Error>> {
    let mut store = Store::open_without_counter(Path::new(STORE), Synchronous::Full)?;
    store.set_log_limits(LOG_LIMITS);
    store.sync_copies_by(Path::new(STORE), || {
        let synced = sync_file(STORE);
        synced.map_err(|fault| io::Error::other(format!("I/O error: {fault:?}")))
    });
    store.wait_for_copies_by(copies::finish);
    if setup.has_slow_syncs {
        store.sync_log_by(Path::new(STORE_LOG), || {
            let synced = sync_file(STORE_LOG);
            synced.map_err(|fault| io::Error::other(format!("I/O error: {fault:?}")))
        });
    }
    let mut manager = Manager::open(store, settings(setup, excluded), now)?;
    // A request about several jobs is open for some time.
    manager.set_slice(1);
    manager.set_max_ended(0);
    Ok(manager)
}

fn make_resource(
    base: &Arc<ResourceSet>,
    manager: &Manager,
    now: f64,
) -> Result<ResourceModule, Box<dyn Error>> {
    let events = manager.store().resource_events()?;
    let events = events.iter().map(|(row, line)| (*row, line.as_str()));
    Ok(ResourceModule::new(
        Arc::clone(base),
        Config::default(),
        None,
        events,
        now,
    )?)
}

impl Daemon {
    /// Starts the daemon.
    ///
    /// # Errors
    ///
    /// The store or the resource eventlog cannot be read.
    pub fn start(
        network: Rc<RefCell<Network>>,
        base: Arc<ResourceSet>,
        setup: Setup,
        excluded: ExcludedProperties,
        now: f64,
        monotonic: f64,
    ) -> Result<Self, Box<dyn Error>> {
        let manager = open_manager(setup, excluded, now)?;
        let resource = make_resource(&base, &manager, now)?;
        let mut daemon = Self {
            router: Router::new("broker", OWNER),
            network,
            manager,
            resource,
            scheduler: None,
            hooks: HookRunner::default(),
            setup,
            excluded,
            constraint: ConstraintCheck::default(),
            base,
            peers: BTreeMap::new(),
            roles: BTreeMap::new(),
            failures: BTreeMap::new(),
            restart_at: BTreeMap::new(),
            connections: BTreeMap::new(),
            uuids: BTreeMap::new(),
            last_peer: 0,
            posted: VecDeque::new(),
            is_in_round: false,
            abandoned: Vec::new(),
            retracted: BTreeSet::new(),
            is_nudged: true,
            rounds: 0,
            has_doubtful_commit: false,
            commit_by: None,
            syncing: None,
            clock_offset: now - monotonic,
            has_rejection: false,
            lost_peers: Vec::new(),
            log: Vec::new(),
            purged: Vec::new(),
            now,
            monotonic,
        };
        daemon.attach(Role::Manager, &MANAGER_NAMES);
        daemon.attach(Role::Resource, &RESOURCE_NAMES);
        daemon.attach(Role::Control, &CONTROL_NAMES);
        daemon.attach(Role::Hooks, &HOOK_NAMES);
        if setup.scheduler == Placement::Inside {
            daemon.start_scheduler();
        }
        daemon.run();
        Ok(daemon)
    }

    /// The job manager.
    pub fn manager(&self) -> &Manager {
        &self.manager
    }

    /// The execution targets of the inventory.
    pub fn inventory(&self) -> IdSet {
        self.resource.ledger().resources().ranks()
    }

    /// Whether the job manager serves requests.
    pub fn is_healthy(&self) -> bool {
        self.failures.is_empty()
    }

    /// Whether a commit has failed that the store may have when it is opened again.
    pub fn has_doubtful_commit(&self) -> bool {
        self.has_doubtful_commit || self.manager.store().has_doubtful_commit()
    }

    /// The store, if clients can be shown all that it has: the daemon serves reads, and nothing is uncommitted.
    pub fn readable_store(&self) -> Option<&Store> {
        let is_committed = !self.failures.contains_key(&Role::Manager)
            && !self.manager.has_uncommitted()
            && self.syncing.is_none();
        (is_committed || self.manager.is_reading()).then(|| self.manager.store())
    }

    /// The scheduler within the daemon.
    pub fn scheduler(&self) -> Option<&CheckedScheduler> {
        self.scheduler.as_ref()
    }

    /// Takes the violations that the scheduler within the daemon was seen to commit.
    pub fn take_violations(&mut self) -> Vec<String> {
        let scheduler = self.scheduler.as_mut();
        scheduler
            .map(CheckedScheduler::take_violations)
            .unwrap_or_default()
    }

    /// Takes the uses of a former constraint of the queue.
    pub fn take_former_constraints(&mut self) -> Vec<String> {
        self.constraint.take_violations()
    }

    /// Makes all changes durable, as at the end of the daemon.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub fn end(&mut self) -> Result<(), penstock_store::Error> {
        if self.failures.contains_key(&Role::Manager) {
            return Ok(());
        }
        self.manager.flush().map(drop)
    }

    // --- peers

    fn name_peer(&mut self) -> (PeerId, String) {
        self.last_peer += 1;
        let uuid = format!("peer-{}", self.last_peer);
        self.uuids.insert(self.last_peer, uuid.clone().into_bytes());
        (self.last_peer, uuid)
    }

    fn remove_peer(&mut self, id: PeerId) {
        let notices = self.router.remove_peer(id);
        self.uuids.remove(&id);
        self.notify_services();
        self.deliver(notices, 0, Commitment::Uncommitted);
        self.is_nudged = true;
    }

    fn attach(&mut self, role: Role, names: &[&str]) {
        let (id, uuid) = self.name_peer();
        self.router.add_peer(id, &uuid, Credentials::owner(OWNER));
        if role.is_in_memory() {
            self.router.track_requests(id);
        }
        self.peers.insert(role, id);
        self.roles.insert(id, role);
        for name in names {
            let added = self.router.add_service(name, id);
            assert!(added.is_ok(), "`{name}` is registered once");
        }
        self.notify_services();
    }

    fn detach(&mut self, role: Role) {
        self.answer_abandoned();
        self.failures.remove(&role);
        if let Some(id) = self.peers.remove(&role) {
            self.roles.remove(&id);
            self.remove_peer(id);
        }
    }

    fn start_scheduler(&mut self) {
        self.attach(Role::Scheduler, &[]);
        self.scheduler = Some(CheckedScheduler::start());
        self.is_nudged = true;
    }

    fn notify_services(&mut self) {
        if self.failures.contains_key(&Role::Manager) {
            return;
        }
        let route =
            |(name, peer): (&str, PeerId)| Some((name.to_owned(), self.uuids.get(&peer)?.clone()));
        let services: HashMap<_, _> = self.router.services().filter_map(route).collect();
        self.manager.set_services(services);
        self.is_nudged = true;
    }

    /// Accepts a connection of a user.
    pub fn accept(&mut self, link: LinkId, userid: u32) {
        let (id, uuid) = self.name_peer();
        let credentials = if userid == OWNER {
            Credentials::owner(OWNER)
        } else {
            let rolemask = role::USER | role::LOCAL;
            Credentials { userid, rolemask }
        };
        self.router.add_remote_peer(id, &uuid, credentials);
        self.connections.insert(id, Connection::new(link));
    }

    fn peer_of(&self, link: LinkId) -> Option<PeerId> {
        let mut connections = self.connections.iter();
        let found = connections.find(|(_, connection)| connection.link == link);
        found.map(|(id, _)| *id)
    }

    /// Takes bytes of a connection in, without a round.
    pub fn receive(&mut self, link: LinkId, bytes: &[u8]) {
        let Some(id) = self.peer_of(link) else {
            return;
        };
        let mut messages = Vec::new();
        if let Some(connection) = self.connections.get_mut(&id) {
            let fed = connection.decoder.feed(bytes, &mut messages);
            assert!(fed.is_ok(), "peers send valid frames: {fed:?}");
        }
        if !messages.is_empty() {
            self.push_posted(id, messages);
        }
    }

    /// Handles the end of a connection.
    pub fn disconnect(&mut self, link: LinkId) {
        if let Some(id) = self.peer_of(link) {
            self.connections.remove(&id);
            self.network.borrow_mut().close(link, End::Daemon);
            self.remove_peer(id);
        }
    }

    // --- time

    /// Sets the time. `monotonic` advances without the steps of the clock.
    pub fn set_time(&mut self, now: f64, monotonic: f64) {
        self.now = now;
        self.monotonic = monotonic;
    }

    /// Whether a request is done in slices, one in each call of [`advance`](Self::advance).
    pub fn has_open_request(&self) -> bool {
        !self.failures.contains_key(&Role::Manager) && self.manager.has_open_request()
    }

    /// When [`advance`](Self::advance) is due.
    pub fn deadline(&self) -> Option<f64> {
        let wall = |at: &f64| self.now + (at - self.monotonic);
        let mut times: Vec<f64> = self.restart_at.values().map(wall).collect();
        if !self.failures.contains_key(&Role::Manager) {
            times.extend(self.manager.deadline());
            times.extend(self.commit_by);
            times.extend(self.syncing.as_ref().map(|syncing| syncing.by));
        }
        times.extend(self.scheduler.as_ref().and_then(CheckedScheduler::deadline));
        times.extend(self.hooks.deadline());
        times.into_iter().min_by(f64::total_cmp)
    }

    /// Does what is due by time: commits, restarts of services, deadlines of the job manager.
    pub fn advance(&mut self) {
        // As `now` is computed from it, it may be a rounding error away.
        let is_due = |at: &f64| *at <= self.monotonic + 1e-6;
        let due = self.restart_at.iter().filter(|(_, at)| is_due(at));
        for role in due.map(|(role, _)| *role).collect::<Vec<_>>() {
            self.restart(role);
        }
        if self
            .syncing
            .as_ref()
            .is_some_and(|sync| sync.by <= self.now)
        {
            self.end_sync();
        }
        if self.commit_by.as_ref().is_some_and(|at| *at <= self.now) {
            self.commit_by = None;
            self.commit();
        }
        if !self.failures.contains_key(&Role::Manager) {
            copies::finish();
            self.manager.advance(self.now);
        }
        let responses = self.hooks.advance(self.now);
        self.post(Role::Hooks, responses);
        self.is_nudged = true;
        self.run();
    }

    // --- prolog and epilog

    /// The commands of hooks that run.
    pub fn running_hooks(&self) -> impl Iterator<Item = RunningHook<'_>> {
        self.hooks.hooks()
    }

    /// Takes the jobs whose prolog has succeeded.
    pub fn take_prepared(&mut self) -> Vec<u64> {
        self.hooks.take_prepared()
    }

    /// Ends a command of a hook.
    pub fn end_hook(&mut self, index: usize, code: u8) {
        let responses = self.hooks.end(index, code, self.now);
        self.post(Role::Hooks, responses);
        self.run();
    }

    /// Lets the service of the hooks fail: until its restart its requests are rejected, and its commands continue.
    pub fn fail_hooks(&mut self, more_seconds: f64) {
        self.fail(Role::Hooks, Failure::new("the service has failed"));
        let restart_at = self.monotonic + RESTART_PAUSE_S + more_seconds;
        self.restart_at.insert(Role::Hooks, restart_at);
        self.run();
    }

    /// Applies a changed constraint of the queue. Returns whether it was applied: a failed job manager rejects it.
    pub fn reload(&mut self, excluded: ExcludedProperties) -> bool {
        if self.failures.contains_key(&Role::Manager) {
            return false;
        }
        self.excluded = excluded;
        let settings = settings(self.setup, excluded);
        self.manager.set_settings(settings, self.now);
        self.is_nudged = true;
        self.run();
        true
    }

    /// Lets the job manager fail by a fault of its own: it is built again from the store.
    pub fn kill_manager(&mut self) {
        if !self.failures.contains_key(&Role::Manager) {
            self.fail_manager(&Failure::new("the service has failed"));
            self.run();
        }
    }

    // --- rounds

    /// Runs rounds until nothing is left to route.
    pub fn run(&mut self) {
        for _ in 0..MAX_ROUNDS {
            if self.posted.is_empty() && !self.is_nudged && self.abandoned.is_empty() {
                return;
            }
            self.is_nudged = false;
            self.run_round();
            self.remove_ended();
        }
        assert!(
            self.posted.is_empty(),
            "the services of the daemon never fall silent"
        );
    }

    /// Ends the sync that is under way. Returns whether there was one.
    pub fn end_slow_sync(&mut self) -> bool {
        let is_syncing = self.syncing.is_some();
        if is_syncing {
            self.end_sync();
            self.run();
        }
        is_syncing
    }

    fn run_round(&mut self) {
        self.is_in_round = true;
        for _ in 0..MAX_EXCHANGES {
            self.exchange();
            if self.posted.is_empty() {
                break;
            }
        }
        if self.connections.values().any(Connection::is_unflushed) {
            self.commit();
        }
        self.continue_copy();
        self.is_in_round = false;
        match &mut self.syncing {
            Some(Syncing { rounds: 0, .. }) => self.end_sync(),
            Some(syncing) => syncing.rounds -= 1,
            None => {}
        }
        self.flush();
    }

    /// Has the copy of the log that is due make some disk operations: others come after the next commits.
    fn continue_copy(&mut self) {
        if !copies::is_open()
            && let Some(due) = self.manager.store().due_copy()
        {
            copies::begin(due);
        }
        self.rounds = self.rounds.wrapping_add(1);
        copies::advance(1 + self.rounds % MAX_COPY_TURN);
    }

    fn remove_ended(&mut self) {
        let ended = self
            .connections
            .values()
            .filter(|connection| connection.is_ended);
        for link in ended.map(|connection| connection.link).collect::<Vec<_>>() {
            self.disconnect(link);
        }
    }

    /// Commits, or leaves that to the end of the sync under way.
    fn commit(&mut self) {
        if self.syncing.is_some() {
            for connection in self.connections.values_mut() {
                connection.release_committed();
            }
            return self.flush();
        }
        if self.failures.contains_key(&Role::Manager) {
            return self.release();
        }
        match self.manager.begin_commit() {
            Ok(Commit::Syncing) => {
                self.syncing = Some(Syncing {
                    by: self.now + SYNC_S,
                    rounds: self.rounds % MAX_ROUNDS_OF_SYNC,
                });
                for posted in &mut self.posted {
                    posted.is_before_sync = true;
                }
                for connection in self.connections.values_mut() {
                    connection.hold_for_sync();
                    connection.release_committed();
                }
                self.flush();
            }
            Ok(_) => {
                for posted in &mut self.posted {
                    posted.commitment = Commitment::Committed;
                }
                self.release();
            }
            Err(error) => self.fail_manager(&Failure::of(&error)),
        }
    }

    /// Commits the changes so far, and has them durable at once.
    fn commit_durably(&mut self) {
        self.finish_sync();
        self.commit();
        self.finish_sync();
    }

    /// Sends the messages held for the sync of the last commit, and commits later changes.
    fn end_sync(&mut self) {
        self.finish_sync();
        self.commit();
    }

    fn finish_sync(&mut self) {
        if let Err(error) = self.send_synced() {
            self.fail_manager(&Failure::of(&error));
        }
    }

    /// Sends the messages held for the sync that is under way, if there is one.
    fn send_synced(&mut self) -> Result<(), penstock_store::Error> {
        if self.syncing.take().is_none() {
            return Ok(());
        }
        self.manager.finish_sync()?;
        for posted in &mut self.posted {
            if std::mem::take(&mut posted.is_before_sync) {
                posted.commitment = Commitment::Committed;
            }
        }
        for connection in self.connections.values_mut() {
            connection.release_synced();
        }
        self.flush();
        Ok(())
    }

    /// Lets connections send the messages of the round.
    fn release(&mut self) {
        for connection in self.connections.values_mut() {
            connection.release();
        }
        self.flush();
    }

    /// Lets connections write: services first.
    fn flush(&mut self) {
        if with_disk(|disk| disk.is_killed()) {
            return;
        }
        let mut network = self.network.borrow_mut();
        for is_service in [true, false] {
            for connection in self.connections.values_mut() {
                if connection.is_service == is_service {
                    connection.flush(&mut network);
                }
            }
        }
    }

    fn exchange(&mut self) {
        while let Some(posted) = self.posted.pop_front() {
            let deliveries = self.router.route(posted.from, posted.messages);
            self.deliver(deliveries, posted.from, posted.commitment);
        }
        self.answer_abandoned();
        for role in [Role::Manager, Role::Resource, Role::Scheduler] {
            let is_reading = role == Role::Manager && self.manager.is_reading();
            let is_served = is_reading || !self.failures.contains_key(&role);
            if self.peers.contains_key(&role) && is_served {
                self.post_output(role);
            }
        }
    }

    fn post(&mut self, role: Role, messages: Vec<Message>) {
        if let Some(id) = self.peers.get(&role)
            && !messages.is_empty()
        {
            self.push_posted(*id, messages);
        }
    }

    fn push_posted(&mut self, from: PeerId, messages: Vec<Message>) {
        self.posted.push_back(Posted {
            from,
            messages,
            commitment: Commitment::Uncommitted,
            is_before_sync: false,
        });
    }

    fn post_output(&mut self, role: Role) {
        match role {
            Role::Manager => {
                let connections = self.connections.iter();
                let backlogged = connections.filter(|(_, connection)| connection.is_backlogged());
                let backlogged = backlogged.filter_map(|(id, _)| self.uuids.get(id).cloned());
                self.manager.set_backlogged(backlogged.collect());
                let messages = self.manager.take_messages();
                self.constraint.observe_sent(self.excluded, &messages);
                self.is_nudged |= self.manager.has_more();
                self.log.extend(self.manager.take_log());
                let purged = self.manager.take_purged();
                self.manager.forget_purged(&purged);
                self.purged.extend(purged.iter().map(|id| id.get()));
                if self.manager.has_uncommitted() && self.commit_by.is_none() {
                    self.commit_by = Some(self.now + MAX_COMMIT_DELAY_S);
                }
                self.post(role, messages);
            }
            Role::Resource => {
                let effects = self.resource.take_output();
                let messages = self.perform(effects);
                self.post(role, messages);
            }
            Role::Scheduler => {
                let Some(scheduler) = &mut self.scheduler else {
                    return;
                };
                self.is_nudged |= scheduler.schedule(self.now);
                let messages = scheduler.take_out();
                let has_failed = matches!(scheduler.phase(), Phase::Failed(_));
                self.post(role, messages);
                if has_failed {
                    self.replace(role);
                }
            }
            Role::Control | Role::Hooks => {}
        }
    }

    /// Performs effects of the resource module. Returns the messages to be sent.
    fn perform(&mut self, effects: Vec<Effect>) -> Vec<Message> {
        let mut messages = Vec::new();
        for effect in effects {
            match effect {
                Effect::Append(line) => {
                    if let Err(error) = self.manager.append_resource_event(&line) {
                        self.fail(Role::Resource, Failure::of(&error));
                    }
                }
                Effect::ReadEvents(request) => {
                    let events = self.manager.store().resource_events();
                    let events =
                        events.map(|events| events.into_iter().map(|(_, line)| line).collect());
                    let events = events.map_err(penstock_resource::Error::store);
                    self.resource.respond_events(&request, events);
                }
                Effect::ReadAllocated(request) => {
                    let allocated = self.manager.allocated();
                    let allocated = allocated.map_err(penstock_resource::Error::store);
                    self.resource.respond_sched_status(&request, allocated);
                }
                Effect::ReadFile(reload) => {
                    let text = Err("there are no files".to_owned());
                    let allocated = self.manager.allocated();
                    let allocated = allocated.map_err(penstock_resource::Error::store);
                    self.resource.respond_reload(&reload, text, allocated);
                }
                Effect::SetInventory(inventory) => self.manager.set_inventory(*inventory),
                Effect::Send(message) => messages.push(message),
                Effect::Warn(_) => {}
            }
        }
        messages
    }

    /// Passes on messages that were routed at once. If a commit between them fails, the job manager has posted the messages behind
    /// it before that failure: they are not sent.
    fn deliver(&mut self, deliveries: Vec<Delivery>, sender: PeerId, mut commitment: Commitment) {
        let sending_role = self.roles.get(&sender).copied();
        let was_healthy = !self.failures.contains_key(&Role::Manager);
        for (peer, messages) in deliveries {
            let role = self.roles.get(&peer).copied();
            // The effects of these peers are not in memory alone.
            let needs_commit = role.is_some_and(|role| {
                matches!(role, Role::Control | Role::Hooks) && !self.failures.contains_key(&role)
            });
            // Of others it is known that they tell nothing uncommitted.
            let is_in_memory = sending_role.is_some_and(Role::is_in_memory);
            if needs_commit && is_in_memory && commitment == Commitment::Uncommitted {
                self.commit_posted();
                if was_healthy && !self.failures.contains_key(&Role::Manager) {
                    commitment = Commitment::Committed;
                }
            }
            let failure = self.failures.get(&Role::Manager);
            if sending_role == Some(Role::Manager)
                && was_healthy
                && commitment == Commitment::Uncommitted
                && let Some(failure) = failure.cloned()
            {
                self.withhold(peer, messages, &failure);
            } else if let Some(role) = role {
                self.serve(role, &messages);
            } else if let Some(connection) = self.connections.get_mut(&peer) {
                let sent = if is_in_memory {
                    commitment
                } else {
                    Commitment::Committed
                };
                connection.send(messages, sent);
            }
        }
    }

    /// Commits before a delivery, in a round with the messages that follow from what the job manager has handled: if a later commit
    /// of the round fails, the responses to what this one has committed are sent.
    fn commit_posted(&mut self) {
        if self.is_in_round && !self.failures.contains_key(&Role::Manager) {
            self.post_output(Role::Manager);
        }
        self.commit_durably();
    }

    /// Sends errors in place of responses that tell changes which are not committed.
    fn withhold(&mut self, peer: PeerId, mut messages: Vec<Message>, failure: &Failure) {
        messages.retain(|message| !self.retracted.contains(&response_key(peer, message)));
        if let Some(connection) = self.connections.get_mut(&peer) {
            connection.send(messages, Commitment::Uncommitted);
        }
        self.retract(peer, failure);
    }

    /// Sends errors in place of the responses since the last commit.
    fn retract(&mut self, peer: PeerId, failure: &Failure) {
        if let Some(connection) = self.connections.get_mut(&peer) {
            let retracted = connection.retract(failure);
            self.router.end_requests(peer, &retracted);
            let keys = retracted
                .iter()
                .map(|response| response_key(peer, response));
            self.retracted.extend(keys);
        }
    }

    fn serve(&mut self, role: Role, messages: &[Message]) {
        if let Some(failure) = self.failures.get(&role).cloned() {
            // Requests from before the failure are answered with its error first.
            if role == Role::Manager && self.manager.is_reading() && !self.abandoned.contains(&role)
            {
                for message in messages {
                    self.manager.handle(message, self.now);
                }
                return self.post_output(role);
            }
            return self.reject(role, &failure, messages);
        }
        match role {
            Role::Manager => {
                self.check_clock();
                for message in messages {
                    self.constraint.observe_received(self.excluded, message);
                    self.manager.handle(message, self.now);
                }
            }
            // The changes would be lost when the job manager is built again.
            Role::Resource if self.failures.contains_key(&Role::Manager) => {
                let failure = Failure::new("the job manager has failed");
                self.reject(role, &failure, messages);
            }
            Role::Resource => {
                self.is_nudged = true;
                for message in messages {
                    self.resource.handle(message, self.now);
                    let mut effects = self.resource.take_effects();
                    while !effects.is_empty() {
                        let sent = self.perform(effects);
                        self.post(role, sent);
                        effects = self.resource.take_effects();
                    }
                }
            }
            Role::Control => self.control(messages),
            Role::Hooks => {
                for message in messages {
                    let responses = self.hooks.handle(message, self.now);
                    self.post(role, responses);
                }
            }
            Role::Scheduler => {
                if let Some(scheduler) = &mut self.scheduler {
                    for message in messages {
                        scheduler.handle(message);
                    }
                }
            }
        }
    }

    fn reject(&mut self, role: Role, failure: &Failure, messages: &[Message]) {
        let is_answered = |message: &&Message| {
            message.kind == MessageType::Request
                && !message.is_noresponse()
                && message.method() != topic::DISCONNECT
        };
        let responses = messages.iter().filter(is_answered).map(|request| {
            let text = format!("{}: {}", request.topic(), failure.text);
            Message::error_to(request, failure.errnum, &text)
        });
        let responses = responses.collect();
        self.post(role, responses);
    }

    fn control(&mut self, messages: &[Message]) {
        for request in messages {
            if request.kind != MessageType::Request || request.method() == topic::DISCONNECT {
                continue;
            }
            let result = self.control_one(request);
            if request.is_noresponse() {
                continue;
            }
            let response = match result {
                Ok(()) => Message::response_to(request, 0, None),
                Err(error) => Message::error_to(request, error.errnum, &error.text),
            };
            self.post(Role::Control, vec![response]);
        }
    }

    fn control_one(&mut self, request: &Message) -> Result<(), RequestError> {
        let peer = request.origin().and_then(|origin| self.router.peer(origin));
        let peer = peer.ok_or_else(|| RequestError::new(errno::EHOSTUNREACH, "it has gone"))?;
        match request.topic() {
            topic::service::ADD => {
                let ServiceRequest { service } = request.read_request()?;
                let added = self.router.add_service(&service, peer);
                added.map_err(|error| RequestError::new(error.errnum(), ""))?;
                if let Some(connection) = self.connections.get_mut(&peer) {
                    connection.is_service = true;
                }
                self.notify_services();
            }
            topic::event::SUBSCRIBE => {
                let SubscriptionRequest { topic } = request.read_request()?;
                self.router.subscribe(peer, &topic);
            }
            _ => return Err(RequestError::unknown_method(request.topic())),
        }
        Ok(())
    }

    /// Rejects submissions while the clock is far ahead.
    fn check_clock(&mut self) {
        let step = self.now - self.monotonic - self.clock_offset;
        let has_rejection = step > CLOCK_STEP_LIMIT_S;
        if has_rejection != self.has_rejection {
            self.has_rejection = has_rejection;
            let text = "the clock was set forward";
            let reason = has_rejection.then(|| RequestError::new(errno::EAGAIN, text));
            self.manager.set_rejection(reason);
        }
    }

    // --- failures

    fn fail_manager(&mut self, failure: &Failure) {
        // The last commit may be durable.
        let _ = self.send_synced();
        self.fail(Role::Manager, failure.clone());
        self.open_for_reading(failure);
        if !self.failures.contains_key(&Role::Resource) {
            let effects = self.resource.take_output().into_iter();
            let responses = effects.filter_map(|effect| match effect {
                Effect::Send(message) => Some(message),
                _ => None,
            });
            self.post(Role::Resource, responses.collect());
        }
        self.retracted.clear();
        // The changes of services in memory are in the transaction that was rolled back.
        for posted in std::mem::take(&mut self.posted) {
            let role = self.roles.get(&posted.from).copied();
            let is_in_memory = role.is_some_and(Role::is_in_memory);
            if !is_in_memory || posted.commitment == Commitment::Committed {
                self.posted.push_back(posted);
                continue;
            }
            for (receiver, messages) in self.router.route(posted.from, posted.messages) {
                self.withhold(receiver, messages, failure);
            }
        }
        let connections = self.connections.iter();
        let holding = connections.filter(|(_, connection)| connection.holds_messages());
        for peer in holding.map(|(peer, _)| *peer).collect::<Vec<_>>() {
            self.retract(peer, failure);
        }
        self.release();
    }

    /// Has requests that change nothing served from the store by another job manager, until one can write it.
    fn open_for_reading(&mut self, failure: &Failure) {
        self.has_doubtful_commit |= self.manager.store().has_doubtful_commit();
        let outage = RequestError::new(failure.errnum, &failure.text);
        let settings = settings(self.setup, self.excluded);
        let store = self.manager.reopen_store_for_reading(Path::new(STORE));
        let opened =
            store.and_then(|store| Manager::open_for_reading(store, settings, self.now, outage));
        if let Ok(manager) = opened {
            self.manager = manager;
        }
    }

    fn fail(&mut self, role: Role, failure: Failure) {
        self.failures.insert(role, failure);
        self.restart_at
            .insert(role, self.monotonic + RESTART_PAUSE_S);
        self.abandoned.push(role);
    }

    fn replace(&mut self, role: Role) {
        if !self.failures.contains_key(&role) && self.peers.contains_key(&role) {
            self.fail(role, Failure::new("the service is restarted"));
            if role == Role::Scheduler {
                self.scheduler = None;
                self.detach(role);
            }
        }
    }

    /// Ends the scheduler within the daemon by a fault; another one follows.
    pub fn kill_scheduler(&mut self) {
        self.replace(Role::Scheduler);
        self.is_nudged = true;
        self.run();
    }

    fn answer_abandoned(&mut self) {
        for role in std::mem::take(&mut self.abandoned) {
            if let (Some(failure), Some(peer)) =
                (self.failures.get(&role).cloned(), self.peers.get(&role))
            {
                let deliveries = self
                    .router
                    .abandon_requests(*peer, failure.errnum, &failure.text);
                self.deliver(deliveries, 0, Commitment::Uncommitted);
            }
        }
    }

    fn restart(&mut self, role: Role) {
        self.restart_at.remove(&role);
        let restarted = match role {
            Role::Manager => self.rebuild_manager(),
            Role::Resource if self.failures.contains_key(&Role::Manager) => Err(()),
            Role::Resource => make_resource(&self.base, &self.manager, self.now)
                .map(|resource| self.resource = resource)
                .map_err(drop),
            // Its commands continue.
            Role::Control | Role::Hooks => Ok(()),
            Role::Scheduler => {
                self.failures.remove(&role);
                return self.start_scheduler();
            }
        };
        if restarted.is_err() {
            self.restart_at
                .insert(role, self.monotonic + RESTART_PAUSE_S);
            return;
        }
        self.detach(role);
        match role {
            Role::Manager => {
                self.attach(role, &MANAGER_NAMES);
                for peer in std::mem::take(&mut self.lost_peers) {
                    if let Some(connection) = self.connections.get_mut(&peer) {
                        connection.is_ended = true;
                    }
                }
                self.replace(Role::Resource);
                if self.setup.scheduler == Placement::Inside {
                    self.replace(Role::Scheduler);
                }
            }
            Role::Resource => self.attach(role, &RESOURCE_NAMES),
            Role::Hooks => self.attach(role, &HOOK_NAMES),
            Role::Control | Role::Scheduler => {}
        }
        self.remove_ended();
        self.is_nudged = true;
    }

    /// Builds the job manager from its store, as at a start.
    fn rebuild_manager(&mut self) -> Result<(), ()> {
        let (setup, excluded, now) = (self.setup, self.excluded, self.now);
        let open = || open_manager(setup, excluded, now);
        let rebuilt = self.manager.rebuild(Path::new(STORE), open);
        rebuilt.map_err(drop)?;
        self.constraint = ConstraintCheck::default();
        self.has_doubtful_commit = false;
        self.has_rejection = false;
        self.commit_by = None;
        self.syncing = None;
        let peer = self.peers.get(&Role::Manager).copied().unwrap_or_default();
        self.lost_peers = self.router.serving_clients(peer);
        Ok(())
    }
}
