//! The world of a run: daemon, machine, scheduler process and clients, connected by the network, on virtual time.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_sched::Phase;
use penstock_wire::{DEFAULT_MAX_FRAME_BYTES, Decoder};
use rusqlite::Connection;

use crate::client::{Client, ListAttempt, Promises};
use crate::constraint::ExcludedProperties;
use crate::daemon::{CLOCK_STEP_LIMIT_S, Daemon, STORE};
use crate::dependents::DependentsCheck;
use crate::disk::Disk;
use crate::machine::Machine;
use crate::network::{End, Input, LinkId, Network};
use crate::random::Random;
use crate::scheduling::{CheckedScheduler, Placement};
use crate::script::Setup;
use crate::site::{OWNER, cores_of};
use crate::vfs::{self, with_disk};

/// The execution targets, each with as many cores.
pub(crate) const RANKS: u32 = 4;
pub(crate) const CORES: u32 = 4;
/// The number of clients.
pub(crate) const CLIENTS: usize = 4;
/// Their users, if there are guests; otherwise all are the owner's.
const USERS: [u32; CLIENTS] = [OWNER, OWNER, 1001, 1002];
/// Seconds since the epoch at which a run begins.
const START: f64 = 1_800_000_000.0;
/// Deliveries after which the world should have fallen silent.
const MAX_DELIVERIES: usize = 20_000;
/// Seconds until what has ended is started again.
const RECONNECT_S: f64 = 0.5;

/// A violated invariant: its name, and the observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The name: scripts are shortened as long as it stays the same.
    pub invariant: &'static str,
    /// The observation.
    pub text: String,
}

impl Violation {
    /// A violation.
    pub fn new(invariant: &'static str, text: impl Into<String>) -> Self {
        Self {
            invariant,
            text: text.into(),
        }
    }
}

/// A scheduler in a process of its own.
struct SchedulerProcess {
    scheduler: CheckedScheduler,
    link: LinkId,
    decoder: Decoder,
    unsent: Vec<u8>,
}

impl SchedulerProcess {
    fn run(&mut self, now: f64, network: &mut Network) {
        while self.scheduler.schedule(now) {}
        for message in self.scheduler.take_out() {
            message.encode(&mut self.unsent);
        }
        let sent = network.send(self.link, End::Daemon, &self.unsent);
        self.unsent.drain(..sent);
    }
}

/// The rounds of the daemon after an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounds {
    /// At once.
    Now,
    /// With a later input.
    Later,
}

/// All that exists in a run.
pub struct World {
    pub(crate) network: Rc<RefCell<Network>>,
    pub(crate) daemon: Option<Daemon>,
    pub(crate) machine: Machine,
    scheduler: Option<SchedulerProcess>,
    pub(crate) setup: Setup,
    /// The constraint of the queue.
    pub(crate) excluded: ExcludedProperties,
    /// The jobs whose prolog has succeeded.
    pub(crate) prepared: BTreeSet<u64>,
    /// The jobs that the job manager has purged, perhaps before a crash.
    pub(crate) purged: BTreeSet<u64>,
    /// The result of the last start of the daemon, which is still to be checked.
    pub(crate) last_start: Option<Result<(), Box<dyn Error>>>,
    pub(crate) clients: Vec<Client>,
    pub(crate) promises: Promises,
    /// The list that each client sends in parts.
    pub(crate) lists: BTreeMap<usize, ListAttempt>,
    base: Arc<ResourceSet>,
    /// The number of execution targets that were to be added, and whether one was to be removed.
    pub(crate) added_ranks: u32,
    pub(crate) has_shrunk: bool,
    /// Whether the clock was set.
    pub(crate) has_clock_steps: bool,
    pub(crate) dependents: DependentsCheck,
    /// Another program that reads the database: the log is copied up to its snapshot alone.
    pub(crate) reader: Option<Connection>,
    pub(crate) now: f64,
    /// `now` without the steps of the clock.
    monotonic: f64,
    pub(crate) violations: Vec<Violation>,
    digest: u64,
}

impl World {
    /// An instance that has just been started for the first time, on this thread's disk.
    pub fn new(setup: Setup) -> Self {
        vfs::register();
        vfs::format_disk();
        let mut base = ResourceSet::new();
        let cores: IdSet = (0..CORES).collect();
        for rank in 0..RANKS {
            let inserted = base.insert(rank, &format!("n{rank}"), cores.clone(), IdSet::new());
            assert!(inserted.is_ok(), "each rank is inserted once");
        }
        let mut world = Self {
            network: Rc::default(),
            daemon: None,
            machine: Machine::new(START, setup),
            scheduler: None,
            setup,
            excluded: ExcludedProperties::default(),
            prepared: BTreeSet::new(),
            purged: BTreeSet::new(),
            last_start: None,
            clients: USERS
                .map(|user| Client::new(if setup.guests.exist() { user } else { OWNER }))
                .into(),
            promises: Promises::default(),
            lists: BTreeMap::new(),
            base: Arc::new(base),
            added_ranks: 0,
            has_shrunk: false,
            has_clock_steps: false,
            dependents: DependentsCheck::default(),
            reader: None,
            now: START,
            monotonic: 0.0,
            violations: Vec::new(),
            digest: 0xcbf2_9ce4_8422_2325,
        };
        world.start();
        world.run();
        world
    }

    fn report(&mut self, invariant: &'static str, text: impl Into<String>) {
        self.violations.push(Violation::new(invariant, text));
    }

    // --- processes

    /// Starts and connects what does not run.
    pub fn start(&mut self) {
        if self.daemon.is_none() {
            let network = Rc::clone(&self.network);
            let base = Arc::clone(&self.base);
            let (now, monotonic) = (self.now, self.monotonic);
            let started = Daemon::start(network, base, self.setup, self.excluded, now, monotonic);
            self.last_start = Some(match started {
                Ok(daemon) => {
                    self.daemon = Some(daemon);
                    self.settle_daemon();
                    Ok(())
                }
                Err(error) => Err(error),
            });
        }
        self.machine.start(&mut self.network.borrow_mut());
        self.connect();
    }

    /// Connects every peer that is not connected.
    fn connect(&mut self) {
        if self.daemon.is_none() {
            return;
        }
        if self.machine.has_service() && self.machine.link().is_none() {
            let link = self.open(OWNER);
            self.machine.connect(link, &mut self.network.borrow_mut());
        }
        for index in 0..self.clients.len() {
            let client = self.clients.get(index);
            let Some(client) = client.filter(|client| client.link().is_none()) else {
                continue;
            };
            let link = self.open(client.userid());
            if let Some(client) = self.clients.get_mut(index) {
                client.connect(link);
            }
        }
        if self.setup.scheduler == Placement::Process && self.scheduler.is_none() {
            let link = self.open(OWNER);
            let mut process = SchedulerProcess {
                scheduler: CheckedScheduler::start(),
                link,
                decoder: Decoder::new(DEFAULT_MAX_FRAME_BYTES),
                unsent: Vec::new(),
            };
            process.run(self.now, &mut self.network.borrow_mut());
            self.scheduler = Some(process);
        }
    }

    fn open(&mut self, userid: u32) -> LinkId {
        let link = self.network.borrow_mut().open();
        if let Some(daemon) = &mut self.daemon {
            daemon.accept(link, userid);
        }
        link
    }

    /// Notices that the daemon was killed in a disk operation.
    pub(crate) fn settle_daemon(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            if daemon.has_doubtful_commit() {
                self.promises.doubt_outstanding();
            }
            self.prepared.extend(daemon.take_prepared());
            for job in std::mem::take(&mut daemon.purged) {
                self.purged.insert(job);
                self.machine.output.remove(job);
                if self.machine.is_occupied_by(job) {
                    let text = format!("job {job} is purged, and its processes run");
                    self.violations.push(Violation::new("purged-active", text));
                }
            }
        }
        if with_disk(|disk| disk.is_killed()) {
            self.bury_daemon();
        }
        if let Some(daemon) = &mut self.daemon {
            for text in daemon.take_violations() {
                self.violations
                    .push(Violation::new("allocated-while-down", text));
            }
            for text in daemon.take_former_constraints() {
                self.violations
                    .push(Violation::new("former-constraint", text));
            }
            for line in daemon.log.drain(..) {
                if line.starts_with("store:") {
                    self.violations.push(Violation::new("store-damaged", line));
                }
            }
        }
    }

    /// Has another program take a snapshot of the database, unless it has one.
    pub(crate) fn begin_reading(&mut self) {
        if self.reader.is_none() {
            self.reader = vfs::open_snapshot(STORE).ok();
        }
    }

    /// Ends the daemon's process as SIGKILL does.
    pub(crate) fn bury_daemon(&mut self) {
        with_disk(Disk::kill);
        self.daemon = None;
        with_disk(Disk::revive);
        self.close_daemon_ends();
    }

    fn close_daemon_ends(&mut self) {
        let mut network = self.network.borrow_mut();
        for link in network.links() {
            network.close(link, End::Daemon);
        }
    }

    pub(crate) fn end_daemon(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            // A failed commit is reported to no one: nothing was sent.
            let _ = daemon.end();
        }
        self.settle_daemon();
        self.daemon = None;
        with_disk(Disk::revive);
        self.close_daemon_ends();
    }

    pub(crate) fn end_scheduler_process(&mut self) {
        if let Some(process) = self.scheduler.take() {
            self.network.borrow_mut().close(process.link, End::Peer);
        }
    }

    /// Records the events that clients could have been shown until now as seen.
    fn record_readable(&mut self) {
        let store = self.daemon.as_ref().and_then(Daemon::readable_store);
        let Some(jobs) = store.and_then(|store| store.jobs().ok()) else {
            return;
        };
        for job in jobs.records {
            let log = job.eventlog();
            let seen = self.promises.events.entry(job.id.get()).or_default();
            if log.lines().count() > seen.len() {
                *seen = log.lines().map(str::to_owned).collect();
            }
        }
    }

    pub(crate) fn lose_power(&mut self, seed: u32) {
        self.record_readable();
        let mut random = Random::new(seed.into());
        with_disk(Disk::kill);
        self.daemon = None;
        self.reader = None;
        with_disk(|disk| {
            disk.revive();
            disk.lose_power(&mut random);
        });
        self.machine
            .lose_power(&mut random, &mut self.network.borrow_mut());
        self.end_scheduler_process();
        for client in &mut self.clients {
            client.disconnect(&mut self.network.borrow_mut());
        }
        self.close_daemon_ends();
    }

    // --- deliveries

    /// The ends of connections at which something arrives, if the peer there reads.
    pub(crate) fn readable(&self) -> Vec<(LinkId, End)> {
        let slow = self.clients.iter().filter(|client| !client.is_reading);
        let slow: BTreeSet<_> = slow.filter_map(Client::link).collect();
        let mut readable = self.network.borrow().readable();
        readable.retain(|(link, at)| *at == End::Daemon || !slow.contains(link));
        readable
    }

    pub(crate) fn deliver(&mut self, link: LinkId, at: End, most: usize, rounds: Rounds) {
        let Some(input) = self.network.borrow_mut().receive(link, at, most) else {
            return;
        };
        self.record_input(link, at, &input);
        match at {
            End::Daemon => self.deliver_to_daemon(link, input, rounds),
            End::Peer => self.deliver_to_peer(link, input),
        }
    }

    /// Adds an input to the digest of the run (FNV-1a).
    fn record_input(&mut self, link: LinkId, at: End, input: &Input) {
        let mut add = |byte: u8| {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        };
        link.to_le_bytes().into_iter().for_each(&mut add);
        add(u8::from(at == End::Daemon));
        if let Input::Data(bytes) = input {
            bytes.iter().copied().for_each(&mut add);
        }
    }

    /// A digest of everything that has arrived.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    fn deliver_to_daemon(&mut self, link: LinkId, input: Input, rounds: Rounds) {
        let Some(daemon) = &mut self.daemon else {
            return;
        };
        match input {
            Input::Data(bytes) => daemon.receive(link, &bytes),
            Input::End => daemon.disconnect(link),
        }
        if rounds == Rounds::Now {
            daemon.run();
        }
        self.settle_daemon();
        self.flush_peers();
    }

    /// Lets peers send what the sockets take now.
    fn flush_peers(&mut self) {
        let mut network = self.network.borrow_mut();
        for client in &mut self.clients {
            client.flush(&mut network);
        }
    }

    fn deliver_to_peer(&mut self, link: LinkId, input: Input) {
        let network = Rc::clone(&self.network);
        let mut network = network.borrow_mut();
        if self.machine.link() == Some(link) {
            match input {
                Input::Data(bytes) => self.machine.receive(&bytes, &mut network),
                Input::End => self.machine.disconnect(&mut network),
            }
        } else if let Some(process) = self
            .scheduler
            .as_mut()
            .filter(|process| process.link == link)
        {
            let mut messages = Vec::new();
            let is_over = match input {
                Input::Data(bytes) => process.decoder.feed(&bytes, &mut messages).is_err(),
                Input::End => true,
            };
            for message in &messages {
                process.scheduler.handle(message);
            }
            process.run(self.now, &mut network);
            let violations = process.scheduler.take_violations();
            if is_over || matches!(process.scheduler.phase(), Phase::Failed(_)) {
                network.close(link, End::Peer);
                self.scheduler = None;
            }
            for text in violations {
                self.report("allocated-while-down", text);
            }
        } else if let Some(client) = self
            .clients
            .iter_mut()
            .find(|client| client.link() == Some(link))
        {
            match input {
                Input::Data(bytes) => {
                    if let Err(broken) = client.receive(&bytes, &mut self.promises) {
                        let text = broken.to_string();
                        self.violations.push(Violation::new("response", text));
                    }
                }
                Input::End => client.disconnect(&mut network),
            }
        } else {
            network.close(link, End::Peer);
        }
    }

    fn deliver_one(&mut self) -> bool {
        if let Some((link, at)) = self.readable().first().copied() {
            self.deliver(link, at, usize::MAX, Rounds::Now);
            return true;
        }
        if self.machine.deliver_to_reaper() {
            return true;
        }
        let network = Rc::clone(&self.network);
        let mut network = network.borrow_mut();
        self.machine.deliver_from_reaper(&mut network)
            || self.machine.advance_setups()
            || self.machine.end_short_count(&mut network)
    }

    /// Ends the sync of the store that is under way. Returns whether there was one.
    fn end_sync(&mut self) -> bool {
        let has_ended = self.daemon.as_mut().is_some_and(Daemon::end_slow_sync);
        self.settle_daemon();
        has_ended
    }

    /// Delivers everything that is under way.
    pub fn run(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.run();
        }
        self.settle_daemon();
        for _ in 0..MAX_DELIVERIES {
            if !self.deliver_one() && !self.end_sync() {
                let mut daemon = self.daemon.iter();
                if !daemon.any(Daemon::has_open_request) {
                    return;
                }
                self.tick();
            }
            if !self.violations.is_empty() {
                return;
            }
        }
        self.report("silence", "the world never falls silent");
    }

    // --- time

    fn deadline(&self) -> Option<f64> {
        let daemon = self.daemon.as_ref().and_then(Daemon::deadline);
        let scheduler = self
            .scheduler
            .as_ref()
            .and_then(|process| process.scheduler.deadline());
        let times = [daemon, scheduler, self.machine.deadline()];
        times.into_iter().flatten().min_by(f64::total_cmp)
    }

    fn set_time(&mut self, now: f64) {
        self.monotonic += now - self.now;
        self.now = now;
        self.record_time();
    }

    fn record_time(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.set_time(self.now, self.monotonic);
        }
        self.machine.set_time(self.now);
    }

    /// Lets what is due happen.
    fn tick(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.advance();
        }
        self.settle_daemon();
        let network = Rc::clone(&self.network);
        self.machine.advance(&mut network.borrow_mut());
        if let Some(process) = &mut self.scheduler {
            process.run(self.now, &mut network.borrow_mut());
        }
    }

    /// Lets time pass; what has ended is started again after a while.
    pub fn advance(&mut self, seconds: f64) {
        let end = self.now + seconds;
        // A deadline in the past is due now, and may stay due.
        for _ in 0..100 {
            let Some(at) = self.deadline().filter(|at| *at <= end) else {
                break;
            };
            self.set_time(at.max(self.now));
            self.tick();
            if self.now >= end {
                break;
            }
        }
        self.set_time(end);
        self.tick();
        if seconds >= RECONNECT_S {
            self.start();
        }
    }

    pub(crate) fn set_clock(&mut self, forward: u32, backward: u32) {
        self.has_clock_steps = true;
        self.now += f64::from(forward) - f64::from(backward);
        self.record_time();
        self.tick();
    }

    /// Ends the faults, and starts what does not run.
    pub fn heal(&mut self) {
        with_disk(|disk| disk.faults = crate::disk::Faults::default());
        self.reader = None;
        self.machine.release_setups();
        self.machine.output.enlarge();
        self.machine.free_disk(&mut self.network.borrow_mut());
        for client in &mut self.clients {
            client.is_reading = true;
        }
        self.run();
        // A daemon that rejects submissions because of the clock does so until it is restarted.
        if self.now - self.monotonic - START > CLOCK_STEP_LIMIT_S {
            self.end_daemon();
        }
        self.start();
        for _ in 0..3 {
            self.advance(2.0);
            self.run();
        }
    }

    /// Restarts the daemon in order.
    pub fn restart_daemon(&mut self) {
        self.end_daemon();
        self.start();
    }

    /// The scheduler, in the daemon or outside, if it is ready.
    pub(crate) fn ready_scheduler(&self) -> Option<&CheckedScheduler> {
        let outside = self.scheduler.as_ref().map(|process| &process.scheduler);
        let inside = self.daemon.as_ref().and_then(Daemon::scheduler);
        let scheduler = outside.or(inside)?;
        (*scheduler.phase() == Phase::Running).then_some(scheduler)
    }

    /// All cores that the inventory can have had.
    pub(crate) fn all_cores(&self) -> usize {
        cores_of(&self.base).len() + (self.added_ranks * CORES) as usize
    }
}
