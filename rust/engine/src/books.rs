//! The books: what exists, who waits, who holds what, and when it comes back.

use crate::engine::{Decision, Overlong};
use crate::ids::NodeIndex;
use crate::job::{Jobs, State};
use crate::machine::{Allocation, Machine, ShapeId, Size};
use crate::plan::NodeAmount;
use crate::queue::{Key, Kind, Queue, QueueId};
use crate::queues::Queues;
use crate::running::{Asked, Running, Runs};
use crate::timeline::{Ending, Timeline};
use crate::turnover::Turnover;

/// A lesser time limit is none at all: the job is planned to end when it starts.
pub(crate) const INSTANT: f64 = 1e-9;

/// What policies work on.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    pub machine: Machine,
    pub jobs: Jobs,
    pub queue: Queue,
    pub queues: Queues,
    pub runs: Runs,
    /// Built when it is asked for, and kept in step from then on.
    pub timeline: Option<Timeline>,
    pub overlong: Overlong,
    /// Running jobs that hold a part of a node.
    pub partial: usize,
    /// The first and the last planned end of those that have given something back since a policy
    /// last asked.
    pub freed: Option<(f64, f64)>,
    /// Grows when nodes, or planned ends, change in any other way, and when jobs come that run
    /// already.
    pub changes: u64,
    /// How many of these changes the turnover tells.
    pub told: u64,
    /// What running jobs have taken and given back.
    pub turnover: Turnover,
    /// Grows when nodes get other places.
    pub moves: u64,
    /// Jobs started so far.
    pub starts: u64,
    /// By shape, whether any node will do, where that is known (see [`takes_any_node`]).
    pub any_node: Vec<Option<bool>>,
    /// By shape, whether the nodes that are up would do (see [`Self::is_reachable`]), where that is
    /// known since nodes have changed.
    pub reachable: Vec<Option<bool>>,
}

impl Books {
    /// Running jobs by planned end.
    pub fn timeline(&mut self) -> &mut Timeline {
        let (machine, runs) = (&self.machine, &self.runs);
        self.timeline.get_or_insert_with(|| {
            let ending = |(run, it): (u32, &Running)| Ending {
                end: it.end,
                run,
                cores: cores_up(machine, &it.shares),
            };
            Timeline::of(runs.iter().map(ending).collect())
        })
    }

    /// Cores that a running job gives back on nodes that are up.
    pub fn cores_up(&self, run: u32) -> u32 {
        let running = self.runs.at(run);
        running.map_or(0, |it| cores_up(&self.machine, &it.shares))
    }

    /// Whether a unit of a shape is any whole node.
    pub fn takes_any_node(&mut self, shape: ShapeId) -> bool {
        let index = shape.0 as usize;
        if index >= self.any_node.len() {
            self.any_node.resize(index + 1, None);
        }
        let machine = &self.machine;
        *self.any_node[index].get_or_insert_with(|| takes_any_node(machine, shape))
    }

    /// Whether a shape could start if all that run had ended, on the nodes that are up.
    pub fn is_reachable(&mut self, shape: ShapeId) -> bool {
        let known = &mut self.reachable;
        let index = shape.0 as usize;
        if index >= known.len() {
            known.resize(index + 1, None);
        }
        let machine = &self.machine;
        *known[index].get_or_insert_with(|| machine.is_reachable(shape))
    }

    /// What a job holds that runs.
    pub fn running(&self, handle: u32) -> Option<&Running> {
        match self.jobs.at(handle).state {
            State::Runs(run) => self.runs.at(run),
            _ => None,
        }
    }

    /// Takes a waiting job out of the queue and forgets it.
    pub fn drop_waiting(&mut self, handle: u32) {
        if let State::Waits(lane) = self.jobs.at(handle).state {
            self.queue.remove(&mut self.jobs, handle, lane);
            self.jobs.remove(handle);
        }
    }

    /// The class and the time limit of a job that waits.
    pub fn waits(&self, handle: u32) -> Option<(u32, f64)> {
        match self.jobs.at(handle).state {
            State::Waits(lane) => Some((self.queue.class_of(lane), self.queue.lane(lane).1)),
            _ => None,
        }
    }

    /// The time limit of a job that waits, infinite for none.
    pub fn limit(&self, handle: u32) -> f64 {
        match self.jobs.at(handle).state {
            State::Waits(lane) => self.queue.lane(lane).1,
            _ => f64::INFINITY,
        }
    }

    /// Whether a class can be met by the machine as a whole, and by its queue; else the note of a
    /// denial.
    pub fn possible(&mut self, class: u32) -> Result<(), String> {
        let it = &mut self.queue.classes[class as usize];
        if it.possible {
            return Ok(());
        }
        self.machine.feasible(it.shape)?;
        if self.queues.is_limited(it.queue) {
            let least = self.machine.min_size(it.shape);
            self.queues.may_ever(it.queue, least)?;
        }
        it.possible = true;
        Ok(())
    }

    /// Where a class fits now. Of a range it takes as much as the limits of its queue allow; where
    /// they allow nothing of what fits, the shares are more than they allow.
    pub fn place(&mut self, class: u32) -> Option<Allocation> {
        let generation = self.machine.generation();
        let it = &mut self.queue.classes[class as usize];
        if it.failed == Some(generation) {
            return None;
        }
        let (shape, queue) = (it.shape, it.queue);
        let shares = self.machine.place(shape);
        let Some(placed) = &shares else {
            it.failed = Some(generation);
            return None;
        };
        let cap = self.queues.room(queue);
        if cap == Size::UNLIMITED || cap.admits(placed) {
            return shares;
        }
        self.machine.place_within(shape, cap).or(shares)
    }

    /// Where a class fits now within a cap and the limits of its queue.
    pub fn place_within(&mut self, class: u32, cap: Size) -> Option<Allocation> {
        let it = &self.queue.classes[class as usize];
        let cap = cap.min(self.queues.room(it.queue));
        self.machine.place_within(it.shape, cap)
    }

    /// When a job that waits would end if it started now; else why it cannot start at all.
    pub fn end(&self, handle: u32, now: f64) -> Result<f64, String> {
        self.end_after(self.limit(handle), now)
    }

    /// The same of a job with a time limit.
    #[inline]
    pub fn end_after(&self, limit: f64, now: f64) -> Result<f64, String> {
        let expiration = self.machine.expiration().unwrap_or(f64::INFINITY);
        let end = if limit < INSTANT { now } else { now + limit };
        if end > expiration && limit.is_finite() && self.overlong == Overlong::Deny {
            return Err(format!(
                "a time limit of {limit} s from {now} on ends at {end}, the resources end at \
                 {expiration}"
            ));
        }
        let end = end.min(expiration);
        if expiration <= now {
            return Err("the resources have expired".to_owned());
        }
        Ok(end)
    }

    /// How long a job can run that starts now, infinite for no end: with the resources it ends.
    pub fn longest(&self, now: f64) -> f64 {
        let expiration = self.machine.expiration().filter(|it| *it > now);
        let Some(end) = expiration.filter(|_| self.overlong == Overlong::Shorten) else {
            return f64::INFINITY;
        };
        let mut longest = end - now;
        while now + longest > end {
            longest = longest.next_down();
        }
        longest
    }

    /// Whether the limits of a queue let one more job of a shape run, as far as the shape says.
    pub fn may_run(&self, shape: ShapeId, queue: QueueId) -> bool {
        let request = self.machine.request(shape);
        let nodes = u64::from(request.least_nodes().unwrap_or(1));
        let cores = request.total_cores();
        self.queues.admits(queue, nodes, cores).is_ok()
    }

    /// Whether the limits of a queue let one more job take these resources.
    pub fn may_take(&self, queue: QueueId, shares: &Allocation) -> bool {
        let cores = shares.iter().map(|it| u64::from(it.ncores())).sum();
        self.queues
            .admits(queue, shares.len() as u64, cores)
            .is_ok()
    }

    /// Starts a job that waits, with these resources, until then.
    pub fn start(&mut self, handle: u32, shares: Allocation, now: f64, end: f64) {
        let State::Waits(lane) = self.jobs.at(handle).state else {
            return;
        };
        let (class, limit) = self.queue.lane(lane);
        let (shape, queue) = (class.shape, class.queue);
        self.starts += 1;
        self.queue.remove(&mut self.jobs, handle, lane);
        self.machine.allocate(&shares);
        let running = Running {
            handle,
            queue,
            asked: Some(Asked { shape, limit }),
            counted: size(&shares),
            shares,
            outside: None,
            start: now,
            end,
        };
        let run = self.hold(running);
        self.jobs.at_mut(handle).state = State::Runs(run);
    }

    /// Writes down what a job holds. What it holds is taken already.
    #[inline]
    pub fn hold(&mut self, running: Running) -> u32 {
        let (nodes, cores) = running.counted;
        self.queues.count(running.queue, nodes, cores, true);
        self.partial += usize::from(!is_whole(&self.machine, &running.shares));
        let end = running.end;
        let up = self
            .timeline
            .is_some()
            .then(|| cores_up(&self.machine, &running.shares));
        let turnover = &mut self.turnover;
        turnover.push(running.handle, &running.shares, f64::NEG_INFINITY, end);
        let run = self.runs.insert(running);
        if let (Some(timeline), Some(cores)) = (&mut self.timeline, up) {
            timeline.insert(Ending { end, run, cores });
        }
        run
    }

    /// Strikes out what a job holds. It is the caller's to give it back.
    pub fn release(&mut self, run: u32) -> Option<Running> {
        let running = self.runs.remove(run)?;
        let (nodes, cores) = running.counted;
        self.queues.count(running.queue, nodes, cores, false);
        self.partial -= usize::from(!is_whole(&self.machine, &running.shares));
        let end = running.end;
        let turnover = &mut self.turnover;
        turnover.push(running.handle, &running.shares, end, f64::NEG_INFINITY);
        let (first, last) = self.freed.unwrap_or((end, end));
        self.freed = Some((first.min(end), last.max(end)));
        if let Some(timeline) = &mut self.timeline {
            timeline.remove(end, run);
        }
        Some(running)
    }

    /// Lets the jobs with the next planned end be over. Returns when that is.
    pub fn end_next(&mut self) -> Option<f64> {
        let time = self.timeline().first()?.end;
        if !time.is_finite() {
            return None;
        }
        while let Some(ending) = self.timeline().first().filter(|it| it.end <= time) {
            let running = self.release(ending.run)?;
            self.machine.release(&running.shares);
            self.jobs.remove(running.handle);
        }
        Some(time)
    }

    /// Gives jobs that should have ended before a time another planned end.
    pub fn end_overdue(&mut self, end: f64, now: f64) {
        let late = self.runs.iter().filter(|(_, it)| it.end <= now);
        let late: Vec<u32> = late.map(|(run, _)| run).collect();
        for run in &late {
            if let Some(running) = self.runs.at_mut(*run) {
                running.end = end;
            }
        }
        if !late.is_empty() {
            self.timeline = None;
            self.changes += 1;
        }
    }

    /// Puts a job whose state is nothing yet into the queue.
    pub fn enqueue(&mut self, handle: u32, shape: ShapeId, queue: QueueId, limit: f64) {
        let (machine, queues) = (&self.machine, &self.queues);
        let kind = || kind(machine, queues, shape, queue);
        self.queue
            .push(&mut self.jobs, handle, (shape, queue), limit, kind);
    }

    /// Denies the job with a key. Returns the decision.
    pub fn deny(&mut self, key: Key, note: String) -> Decision {
        self.drop_waiting(key.handle());
        Decision::Deny { id: key.id(), note }
    }
}

/// How a shape is known in a queue.
fn kind(machine: &Machine, queues: &Queues, shape: ShapeId, queue: QueueId) -> Kind {
    Kind {
        shape,
        queue,
        group: queues.group(queue),
        unit: machine.unit(shape),
        need: machine.need(shape),
        fungible: machine.is_fungible(shape),
        cores: machine.request(shape).total_cores(),
        order: queues.order(queue),
    }
}

/// Nodes and cores of shares.
#[inline]
pub(crate) fn size(shares: &Allocation) -> (u32, u64) {
    let nodes = u32::try_from(shares.len()).unwrap_or(u32::MAX);
    (nodes, shares.iter().map(|it| u64::from(it.ncores())).sum())
}

/// The cores and gpus that so many units of a shape take of a node, which has them free.
pub(crate) fn amount(machine: &Machine, shape: ShapeId, node: NodeIndex, units: u32) -> NodeAmount {
    let request = machine.request(shape);
    if request.exclusive {
        let total = machine.total(node);
        return NodeAmount {
            node,
            cores: total.cores,
            gpus: total.gpus,
        };
    }
    let slots = match request.nnodes {
        Some(_) => request.slots.min(),
        None => units,
    };
    NodeAmount {
        node,
        cores: request.cores_per_slot.min().saturating_mul(slots),
        gpus: request.gpus_per_slot.min().saturating_mul(slots),
    }
}

/// Whether any node that there is, wholly free, is a unit of a shape.
fn takes_any_node(machine: &Machine, shape: ShapeId) -> bool {
    let request = machine.request(shape);
    request.exclusive
        && request.nnodes.is_some()
        && request.is_exact()
        && request.constraint.is_none()
        && machine.node_indices().all(|node| {
            let total = machine.total(node);
            let slots = request.slots.min();
            let cores = request.cores_per_slot.min().saturating_mul(slots);
            let gpus = request.gpus_per_slot.min().saturating_mul(slots);
            cores <= total.cores && gpus <= total.gpus
        })
}

/// Whether every share is a whole node.
#[inline]
pub(crate) fn is_whole(machine: &Machine, shares: &Allocation) -> bool {
    let mut shares = shares.iter();
    shares.all(|it| machine.is_whole_node(it.node, it.ncores(), it.ngpus()))
}

/// Cores of shares on nodes that are up.
fn cores_up(machine: &Machine, shares: &Allocation) -> u32 {
    let up = shares.iter().filter(|share| machine.is_up(share.node));
    up.fold(0, |sum, share| sum.saturating_add(share.ncores()))
}
