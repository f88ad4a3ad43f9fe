//! The engine itself: requests in, decisions out.

use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_rset::ResourceSet;

use crate::Error;
use crate::books::Books;
use crate::job::{Job, Jobs, State};
use crate::machine::{Allocation, Machine, Selection, ShapeId};
use crate::policy::{Policy, Scratch};
use crate::queue::{Key, Queue, QueueId};
use crate::queues::{QueueOptions, Queues};
use crate::running::Runs;
use crate::turnover::Turnover;

/// What the engine has decided. It never acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The job gets resources: [`Engine::r`] has them.
    Alloc {
        /// The job.
        id: u64,
        /// Whether an earlier job of its group of queues waits.
        backfilled: bool,
    },
    /// The job can never run here.
    Deny {
        /// The job.
        id: u64,
        /// What is impossible, and the most there is.
        note: String,
    },
}

/// What becomes of a job whose time limit is later than the end of the resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlong {
    /// Its R expires with the resources.
    #[default]
    Shorten,
    /// It is denied when its turn comes.
    Deny,
}

/// What an engine is made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which of the nodes that fit a job gets.
    pub selection: Selection,
    /// Which jobs start while others wait.
    pub policy: Policy,
    /// What becomes of jobs that would outlive the resources.
    pub overlong: Overlong,
}

/// Inventory, queue and running jobs.
///
/// A clone is a snapshot. Jobs that have come, gone or started since [`share`](Self::share) are
/// copied, a few hundred at a time; so are the arrays of nodes, and what is kept of each shape.
#[derive(Clone, Debug)]
pub struct Engine {
    pub(crate) books: Books,
    pub(crate) policy: Policy,
    pub(crate) scratch: Scratch,
    /// Jobs that may have become impossible, the first in line last.
    suspects: Vec<u64>,
    /// Whether every job in the queue has become a suspect.
    recheck: bool,
}

/// A duration as a time limit: infinite for none.
fn limit(duration: f64) -> f64 {
    if duration > 0.0 {
        duration
    } else {
        f64::INFINITY
    }
}

impl Engine {
    /// An engine for these resources, first come first served. Every target is down until it is
    /// marked up.
    pub fn new(inventory: &ResourceSet) -> Result<Self, Error> {
        Self::with_options(inventory, Options::default())
    }

    /// An engine for these resources. Every target is down until it is marked up.
    pub fn with_options(inventory: &ResourceSet, options: Options) -> Result<Self, Error> {
        let mut machine = Machine::new(inventory)?;
        machine.set_selection(options.selection);
        let books = Books {
            machine,
            jobs: Jobs::default(),
            queue: Queue::default(),
            queues: Queues::default(),
            runs: Runs::default(),
            timeline: None,
            overlong: options.overlong,
            partial: 0,
            freed: None,
            changes: 0,
            told: 0,
            turnover: Turnover::default(),
            moves: 0,
            starts: 0,
            any_node: Vec::new(),
            reachable: Vec::new(),
        };
        Ok(Self {
            books,
            policy: options.policy,
            scratch: Scratch::default(),
            suspects: Vec::new(),
            recheck: false,
        })
    }

    /// Makes the next clones cheap: what there is now of jobs is shared with them, until one of both
    /// changes it. Costs little where little has changed since the last time.
    pub fn share(&mut self) {
        self.books.jobs.share();
        self.books.queue.share();
        self.books.runs.share();
    }

    /// The options it has.
    pub fn options(&self) -> Options {
        Options {
            selection: self.books.machine.selection(),
            policy: self.policy,
            overlong: self.books.overlong,
        }
    }

    /// Changes the options from the next decision on.
    pub fn set_options(&mut self, options: Options) {
        self.books.machine.set_selection(options.selection);
        self.books.overlong = options.overlong;
        if options.policy != self.policy {
            // What another policy has planned is nobody's.
            self.policy = options.policy;
            self.scratch = Scratch::default();
            self.books.turnover = Turnover::default();
        }
    }

    /// The queue with this name, made where there is none. The empty name is the default queue.
    pub fn queue(&mut self, name: &str) -> QueueId {
        self.books.queues.id(name)
    }

    /// The name of a queue.
    pub fn queue_name(&self, queue: QueueId) -> &str {
        self.books.queues.name(queue)
    }

    /// Says what a queue is to be like.
    pub fn set_queue(&mut self, queue: QueueId, options: QueueOptions) {
        self.books.queues.set(queue, options);
        self.books.changes += 1;
        // Its jobs go where its group and its order are now: all of them leave, so that no class
        // of before is left.
        let books = &mut self.books;
        let waiting = books.jobs.iter().filter_map(|(handle, it)| match it.state {
            State::Waits(lane) => Some((handle, lane)),
            _ => None,
        });
        let waiting: Vec<(u32, u32)> = waiting.collect();
        let mut moved = Vec::new();
        for (handle, lane) in waiting {
            let (class, limit) = books.queue.lane(lane);
            if class.queue == queue {
                moved.push((handle, class.shape, limit));
                books.queue.remove(&mut books.jobs, handle, lane);
            }
        }
        for (handle, shape, limit) in moved {
            books.enqueue(handle, shape, queue, limit);
        }
    }

    /// The shape of a request, for [`submit_shape`](Self::submit_shape). Requests that differ in
    /// their duration only have the same.
    pub fn shape(&mut self, request: &Request) -> ShapeId {
        self.books.machine.shape(request)
    }

    /// Queues a job.
    pub fn submit(&mut self, job: Job) -> Result<(), Error> {
        let Job {
            id,
            priority,
            request,
            queue,
        } = job;
        let shape = self.shape(&request);
        self.submit_shape(id, priority, shape, request.duration, queue)
    }

    /// Queues a job whose shape is known. `duration` is in seconds, 0 for no limit. With less than
    /// a nanosecond it is planned to end when it starts.
    pub fn submit_shape(
        &mut self,
        id: u64,
        priority: u32,
        shape: ShapeId,
        duration: f64,
        queue: QueueId,
    ) -> Result<(), Error> {
        if !self.books.queues.has(queue) {
            return Err(Error::new(format!(
                "job {id}: its queue is not one of this engine's"
            )));
        }
        let Some(handle) = self.books.jobs.insert(id, priority) else {
            return Err(Error::new(format!("job {id} is known already")));
        };
        self.books.enqueue(handle, shape, queue, limit(duration));
        Ok(())
    }

    /// A job that waits, or that runs and came through the queue.
    pub fn job(&self, id: u64) -> Option<Job> {
        let known = self.books.jobs.at(self.books.jobs.find(id)?);
        let (shape, queue, limit) = match known.state {
            State::Waits(lane) => {
                let (class, limit) = self.books.queue.lane(lane);
                (class.shape, class.queue, limit)
            }
            State::Runs(run) => {
                let running = self.books.runs.at(run)?;
                let asked = running.asked?;
                (asked.shape, running.queue, asked.limit)
            }
            State::Unused(_) => return None,
        };
        let mut request = self.books.machine.request(shape).clone();
        request.duration = if limit.is_finite() { limit } else { 0.0 };
        Some(Job {
            id,
            priority: known.priority,
            request,
            queue,
        })
    }

    /// The handle and the lane of a job that waits.
    pub(crate) fn waiting(&self, id: u64) -> Option<(u32, u32)> {
        let handle = self.books.jobs.find(id)?;
        match self.books.jobs.at(handle).state {
            State::Waits(lane) => Some((handle, lane)),
            _ => None,
        }
    }

    /// Takes a job out of the queue. Returns whether it was there.
    pub fn cancel(&mut self, id: u64) -> bool {
        let Some((handle, _)) = self.waiting(id) else {
            return false;
        };
        self.books.drop_waiting(handle);
        true
    }

    /// Gives queued jobs other priorities. Returns how many of them are in the queue.
    pub fn prioritize(&mut self, jobs: &[(u64, u32)]) -> usize {
        let mut found = 0;
        for (id, priority) in jobs {
            if let Some((handle, lane)) = self.waiting(*id) {
                let books = &mut self.books;
                books
                    .queue
                    .prioritize(&mut books.jobs, handle, lane, *priority);
                found += 1;
            }
        }
        found
    }

    /// When a job that waits is to start, where the policy has given it a reservation in the last
    /// pass (conservative and hybrid backfill); infinite where it has found no time for it.
    pub fn reservation(&self, id: u64) -> Option<f64> {
        let start = self.scratch.reserved(self.policy, id);
        start.filter(|_| self.is_queued(id))
    }

    /// Whether a pass at a time would change nothing, as far as the policy knows.
    pub(crate) fn is_settled(&mut self, now: f64) -> bool {
        !self.recheck
            && self.suspects.is_empty()
            && self.policy == Policy::Conservative
            && self.scratch.is_settled(&mut self.books, now)
    }

    /// Whether a job waits.
    pub fn is_queued(&self, id: u64) -> bool {
        self.waiting(id).is_some()
    }

    /// Jobs in the queue.
    pub fn queue_len(&self) -> usize {
        self.books.queue.len()
    }

    /// The job that is next, where there is one that is not held.
    pub fn head(&self) -> Option<u64> {
        let heads = self.books.queue.groups.iter().map(|it| it.heads.first());
        let first = heads.min().filter(|key| !key.is_none());
        first.map(Key::id)
    }

    /// The jobs in the queue that are not held, in order.
    pub fn queued(&mut self) -> Vec<u64> {
        let keys = self.books.queue.in_order(&self.books.jobs);
        keys.into_iter().map(Key::id).collect()
    }

    /// Something that jobs may need is there no more: looks at every job in the queue again.
    pub(crate) fn reconsider(&mut self) {
        self.books.queue.doubt();
        self.books.reachable.clear();
        self.recheck = true;
        self.books.changes += 1;
    }

    /// Decides which jobs start now, and which never will: passes over the queue, in order, until
    /// nothing more starts, or `max` decisions are made. `now` is in seconds since the epoch.
    pub fn schedule(&mut self, now: f64, max: usize) -> Vec<Decision> {
        let groups = self.books.queue.groups.iter().filter(|it| it.has_jobs());
        let groups = groups.count();
        let mut decisions = self.pass(now, max);
        // What one job takes may be what keeps another from doing harm, or what another group has
        // reserved.
        let again = match self.policy {
            Policy::Fcfs => false,
            Policy::Easy | Policy::Hybrid { .. } => true,
            Policy::Conservative => groups > 1,
        };
        if again {
            let mut before = 0;
            while before < decisions.len() && decisions.len() < max {
                before = decisions.len();
                self.scratch
                    .run(self.policy, &mut self.books, now, max, &mut decisions);
            }
        }
        decisions
    }

    /// As [`schedule`](Self::schedule), with a single pass: for those who have something to tell
    /// the engine before the next one.
    pub fn pass(&mut self, now: f64, max: usize) -> Vec<Decision> {
        let mut decisions = self.deny_impossible(max);
        let books = &mut self.books;
        self.scratch
            .run(self.policy, books, now, max, &mut decisions);
        decisions
    }

    /// Denies jobs, wherever they are in line, that cannot be run any more after a change.
    fn deny_impossible(&mut self, max: usize) -> Vec<Decision> {
        let books = &mut self.books;
        if std::mem::take(&mut self.recheck) {
            let classes = 0..u32::try_from(books.queue.classes.len()).unwrap_or(u32::MAX);
            let impossible: Vec<bool> = classes.map(|it| books.possible(it).is_err()).collect();
            let mut suspects: Vec<Key> = Vec::new();
            if impossible.contains(&true) {
                for (handle, it) in books.jobs.iter() {
                    if let State::Waits(lane) = it.state
                        && impossible[books.queue.class_of(lane) as usize]
                    {
                        suspects.push(Key::new(it.rank, it.id, handle));
                    }
                }
            }
            suspects.sort_unstable();
            self.suspects = suspects.into_iter().rev().map(Key::id).collect();
        }
        let mut decisions = Vec::new();
        while decisions.len() < max {
            let Some(id) = self.suspects.pop() else {
                break;
            };
            let Some((handle, lane)) = self.waiting(id) else {
                continue;
            };
            let books = &mut self.books;
            let class = books.queue.class_of(lane);
            if let Err(note) = books.possible(class) {
                books.drop_waiting(handle);
                decisions.push(Decision::Deny { id, note });
            }
        }
        decisions
    }

    /// Whether the request could ever be met: the inventory as a whole, empty and up. The error
    /// is the note that a denial would have.
    pub fn feasible(&mut self, request: &Request) -> Result<(), String> {
        let shape = self.shape(request);
        self.books.machine.feasible(shape)
    }

    /// What a job holds, with start time and expiration.
    pub fn r(&self, id: u64) -> Result<ResourceSet, Error> {
        let wrap = |error: penstock_rset::Error| Error::new(error.to_string());
        let running = self.run(id)?;
        let mut r = self.books.machine.r(&running.shares)?;
        r.set_starttime(Some(running.start).filter(|start| *start > 0.0))
            .map_err(wrap)?;
        r.set_expiration(running.expiration()).map_err(wrap)?;
        let slots = running.shares.slots();
        r.set_nslots(Some(slots).filter(|slots| *slots > 0));
        Ok(r)
    }

    /// Appends the JSON text of what a job holds.
    pub fn write_r(&self, id: u64, text: &mut String) -> Result<(), Error> {
        let running = self.run(id)?;
        let slots = running.shares.slots();
        self.books.machine.write_r(
            &running.shares,
            Some(running.start),
            running.expiration(),
            Some(slots).filter(|slots| *slots > 0),
            text,
        );
        Ok(())
    }

    /// Bytes on the heap for nodes and for what finds them; shapes, queues and jobs are left out.
    pub fn machine_bytes(&self) -> usize {
        self.books.machine.heap_bytes()
    }

    /// Everything that jobs hold.
    pub fn allocated(&self) -> Result<ResourceSet, Error> {
        let shares = self.books.runs.iter().flat_map(|(_, it)| it.shares.iter());
        let mut all = Allocation::default();
        all.merge(shares.cloned().collect());
        self.books.machine.r(&all)
    }

    /// The ranks of the inventory, up or not.
    pub fn ranks(&self) -> &IdSet {
        self.books.machine.ranks()
    }

    /// The targets that are up.
    pub fn up(&self) -> IdSet {
        self.books.machine.up()
    }
}
