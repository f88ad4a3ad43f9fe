//! What the limits of queues leave, from now on, beside running jobs and reservations: those that
//! have reservations are not to find their queue full when their time comes.

use crate::books::{Books, size};
use crate::machine::{Allocation, Size};
use crate::plan::{Hold, Plan, planned};
use crate::profile::Profile;
use crate::queue::QueueId;

/// Times that are looked at for a job that needs more nodes than its queue has left.
const TRIES: usize = 1000;

/// Jobs, nodes and cores, as the limits of a queue count them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage([i64; 3]);

impl Usage {
    /// One job with these nodes and cores.
    fn new(nodes: u64, cores: u64) -> Self {
        let signed = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
        Self([1, signed(nodes), signed(cores)])
    }

    /// A job that holds shares.
    pub fn of(shares: &Allocation) -> Self {
        let (nodes, cores) = size(shares);
        Self::new(nodes.into(), cores)
    }

    /// A job of a class that is to hold this; the least that it can have, where sums decide.
    fn of_hold(books: &mut Books, class: u32, hold: &Hold) -> Self {
        let Hold::Places(parts) = hold else {
            return Self::least(books, class);
        };
        let cores = parts.iter().map(|part| u64::from(part.cores)).sum();
        Self::new(parts.len() as u64, cores)
    }

    /// A job of a class, if it gets the most that it can have with the least of its counts.
    fn most(books: &mut Books, class: u32) -> Self {
        let it = &books.queue.classes[class as usize];
        let most = books
            .machine
            .max_size(it.shape)
            .min(books.queues.most(it.queue));
        Self::new(most.nodes, most.cores)
    }

    /// A job of a class, if it gets the least that it can have.
    pub fn least(books: &mut Books, class: u32) -> Self {
        let least = books
            .machine
            .min_size(books.queue.classes[class as usize].shape);
        Self::new(least.nodes, least.cores)
    }
}

/// What each limit of a queue leaves over time; `None` where there is no such limit.
type Quota = [Option<Profile>; 3];

/// The queues that have been asked for.
#[derive(Clone, Debug)]
pub(crate) struct Quotas {
    now: f64,
    queues: Vec<(QueueId, Quota)>,
}

fn quota(books: &Books, queue: QueueId, now: f64) -> Quota {
    let ending = books.runs.iter().filter(|(_, it)| it.queue == queue);
    let ending = ending.filter(|(_, it)| it.end.is_finite());
    let mut ending: Vec<_> = ending
        .map(|(_, it)| (planned(it.end, now), it.counted))
        .collect();
    ending.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let [jobs, nodes, cores] = books.queues.left(queue);
    let profile = |left: Option<i64>, which: usize| {
        let back = ending.iter().map(|(end, (nodes, cores))| {
            let usage = Usage::new((*nodes).into(), *cores);
            (*end, usage.0[which])
        });
        left.map(|left| Profile::rising(now, left, back))
    };
    [profile(jobs, 0), profile(nodes, 1), profile(cores, 2)]
}

impl Quotas {
    /// What the running jobs leave.
    pub fn new(now: f64) -> Self {
        let queues = Vec::new();
        Self { now, queues }
    }

    /// The quota of a queue that has limits.
    fn of(&mut self, books: &Books, queue: QueueId) -> Option<&mut Quota> {
        let known = self.queues.iter().position(|it| it.0 == queue);
        let at = match known {
            Some(at) => at,
            None if books.queues.is_limited(queue) => {
                self.queues.push((queue, quota(books, queue, self.now)));
                self.queues.len() - 1
            }
            None => return None,
        };
        Some(&mut self.queues[at].1)
    }

    /// A job of a class has, or with `back` gives up, a reservation of this from a time until before
    /// another.
    pub fn reserve(
        &mut self,
        books: &mut Books,
        class: u32,
        hold: &Hold,
        span: (f64, f64),
        back: bool,
    ) {
        let queue = books.queue.classes[class as usize].queue;
        if self.of(books, queue).is_some() {
            let usage = Usage::of_hold(books, class, hold);
            self.count(queue, usage, span, back);
        }
    }

    /// A job of a class is to start at a time, nobody knows where: it may need as much as it can
    /// have.
    pub fn reserve_most(&mut self, books: &mut Books, class: u32, start: f64) {
        let queue = books.queue.classes[class as usize].queue;
        if self.of(books, queue).is_some() {
            let usage = Usage::most(books, class);
            self.count(queue, usage, (start, f64::INFINITY), false);
        }
    }

    /// A job that is about to start with these shares takes them of a queue's quota.
    pub fn take(&mut self, queue: QueueId, shares: &Allocation, span: (f64, f64)) {
        self.count(queue, Usage::of(shares), span, false);
    }

    fn count(&mut self, queue: QueueId, usage: Usage, (start, end): (f64, f64), back: bool) {
        let sign = if back { 1 } else { -1 };
        let Some((_, quota)) = self.queues.iter_mut().find(|it| it.0 == queue) else {
            // What runs is counted when the queue is asked for.
            return;
        };
        if !start.is_finite() {
            return;
        }
        for (profile, amount) in quota.iter_mut().zip(usage.0) {
            if let Some(profile) = profile {
                profile.add(start, end, sign * amount);
            }
        }
    }

    /// The earliest time, not before one, from which on the least of a class is left for so long;
    /// infinite for never.
    pub fn earliest(&mut self, books: &mut Books, class: u32, not_before: f64, limit: f64) -> f64 {
        let queue = books.queue.classes[class as usize].queue;
        if self.of(books, queue).is_none() {
            return not_before;
        }
        let usage = Usage::least(books, class);
        self.earliest_of(books, queue, usage, not_before, limit)
    }

    /// The earliest time, not before one, from which on a queue has so much left for so long;
    /// infinite for never.
    fn earliest_of(
        &mut self,
        books: &Books,
        queue: QueueId,
        usage: Usage,
        not_before: f64,
        limit: f64,
    ) -> f64 {
        let mut start = not_before;
        loop {
            let before = start;
            for (profile, amount) in self.of(books, queue).into_iter().flatten().zip(usage.0) {
                if let Some(profile) = profile.as_ref().filter(|_| start.is_finite()) {
                    start = profile.earliest((start, f64::INFINITY), limit, amount);
                }
            }
            if start <= before || !start.is_finite() {
                return start;
            }
        }
    }

    /// Whether a class can hold this from a time on for so long.
    pub fn leaves(
        &mut self,
        books: &mut Books,
        class: u32,
        hold: &Hold,
        (start, limit): (f64, f64),
    ) -> bool {
        let queue = books.queue.classes[class as usize].queue;
        if self.of(books, queue).is_none() {
            return true;
        }
        let usage = Usage::of_hold(books, class, hold);
        self.earliest_of(books, queue, usage, start, limit) <= start
    }

    /// Whether a class has the least that it can have by a time that was told, or as soon as those
    /// end that are overdue.
    pub fn leaves_by(&mut self, books: &mut Books, class: u32, time: f64) -> bool {
        let start = self.earliest(books, class, self.now, f64::INFINITY);
        start.is_finite() && start <= time.max(self.now + 1.0)
    }

    /// The first time at which a queue has not so much left; infinite for never.
    pub fn until(&mut self, books: &Books, queue: QueueId, usage: Usage) -> f64 {
        let now = self.now;
        let quota = self.of(books, queue).into_iter().flatten().zip(usage.0);
        let until = |(profile, amount): (&mut Option<Profile>, i64)| {
            profile.as_ref().map(|it| it.until(now, amount))
        };
        quota.filter_map(until).fold(f64::INFINITY, f64::min)
    }

    /// Nodes and cores that a queue has left for a job that runs from now on for so long.
    fn room(&mut self, books: &Books, queue: QueueId, limit: f64) -> Size {
        let now = self.now;
        let mut least = [u64::MAX; 3];
        for (least, profile) in least
            .iter_mut()
            .zip(self.of(books, queue).into_iter().flatten())
        {
            if let Some(profile) = profile {
                *least = u64::try_from(profile.least_in(now, now + limit)).unwrap_or(0);
            }
        }
        let [_, nodes, cores] = least;
        Size { nodes, cores }
    }

    /// Finds shares for a class, no more than its queue has left for so long, where the caller
    /// does; else the time by which it has to end.
    pub fn place(
        &mut self,
        books: &mut Books,
        class: u32,
        limit: f64,
        find: impl FnOnce(&mut Books) -> Option<Allocation>,
    ) -> Option<Result<Allocation, f64>> {
        let queue = books.queue.classes[class as usize].queue;
        if self.of(books, queue).is_none() {
            return find(books).map(Ok);
        }
        let room = self.room(books, queue, limit);
        books.queues.restrict(queue, room);
        let shares = find(books);
        books.queues.restrict(queue, Size::UNLIMITED);
        let shares = shares?;
        let until = self.until(books, queue, Usage::of(&shares));
        if self.now + limit <= until || !books.may_take(queue, &shares) {
            // What the limits do not let in now is the caller's to see.
            return Some(Ok(shares));
        }
        Some(Err(until))
    }

    /// As [`Plan::place`], with what is left of the limits.
    pub fn place_in(
        &mut self,
        plan: &Plan,
        books: &mut Books,
        class: u32,
        limit: f64,
    ) -> Result<Allocation, f64> {
        let now = self.now;
        let mut by = now;
        let found = self.place(books, class, limit, |books| {
            let found = plan.place(books, class, now, limit);
            found.map_err(|until| by = until).ok()
        });
        found.unwrap_or(Err(by))
    }

    /// The earliest time from one on, and before another, at which a class fits into a plan and its
    /// queue has as much left, for so long, infinite where there is none; and what it would hold.
    pub fn earliest_in(
        &mut self,
        plan: &mut Plan,
        books: &mut Books,
        class: u32,
        (mut from, before): (f64, f64),
        limit: f64,
    ) -> (f64, Hold) {
        let it = &books.queue.classes[class as usize];
        let (shape, queue) = (it.shape, it.queue);
        // Nothing starts when the resources have ended; once they have, it is denied.
        let expiration = books.machine.expiration().filter(|it| *it > self.now);
        let before = before.min(expiration.unwrap_or(f64::INFINITY));
        if self.of(books, queue).is_none() {
            return plan.earliest(&books.machine, shape, (from, before), limit);
        }
        for _ in 0..TRIES {
            let (start, hold) = plan.earliest(&books.machine, shape, (from, before), limit);
            if !start.is_finite() {
                return (start, hold);
            }
            let usage = Usage::of_hold(books, class, &hold);
            if self.earliest_of(books, queue, usage, start, limit) <= start {
                return (start, hold);
            }
            // On as few nodes as it can have, perhaps.
            let sparing = plan.hold_sparing(&books.machine, shape, start, limit);
            let sparing = sparing.unwrap_or(hold);
            let usage = Usage::of_hold(books, class, &sparing);
            let allowed = self.earliest_of(books, queue, usage, start, limit);
            if allowed <= start {
                return (start, sparing);
            }
            // On fewer, once there is more free.
            from = allowed.min(plan.next(start));
            if from >= before {
                return (f64::INFINITY, sparing);
            }
        }
        (f64::INFINITY, Hold::Units(0))
    }

    /// Whether more is reserved than the limits allow.
    pub fn is_overfull(&self) -> bool {
        let mut all = self.queues.iter().flat_map(|it| &it.1).flatten();
        all.any(|it| it.least() < 0)
    }
}
