//! Quotas: how much the limits of queues leave over time, beside running jobs and reservations, so
//! that no job finds its queue full when its reservation is due.

use std::ops::Neg;

use crate::availability_profile::AvailabilityProfile;
use crate::books::Books;
use crate::ids::ClassId;
use crate::interval::Interval;
use crate::machine::{Allocation, Size};
use crate::plan::{Footprint, Plan, planned_end};
use crate::queue::QueueId;
use crate::verdict::Cause;

/// The most start times that are tried for a job that needs more nodes than its queue has left.
const MAX_STARTS_TRIED: usize = 1000;

/// Jobs, nodes and cores, as the limits of a queue count them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage([i64; 3]);

impl Usage {
    /// One job with these nodes and cores.
    fn of_job(size: Size) -> Self {
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        Self([1, signed(size.nodes), signed(size.cores)])
    }

    /// A job with this allocation.
    pub fn of(allocation: &Allocation) -> Self {
        Self::of_job(allocation.size())
    }

    /// A job of a class with this reservation; the least that it can have if only units are
    /// reserved.
    fn of_footprint(books: &mut Books, class: ClassId, footprint: &Footprint) -> Self {
        let Footprint::Nodes(amounts) = footprint else {
            return Self::least(books, class);
        };
        Self::of_job(Size {
            nodes: amounts.len() as u64,
            cores: amounts.iter().map(|amount| u64::from(amount.cores)).sum(),
        })
    }

    /// A job of a class with the most that it can have with the least of its counts.
    fn most(books: &mut Books, class: ClassId) -> Self {
        let class = &books.queue.classes[class.index()];
        let limit = books.queues.most(class.queue);
        Self::of_job(books.machine.max_size(class.shape).min(limit))
    }

    /// A job of a class with the least that it can have.
    pub fn least(books: &mut Books, class: ClassId) -> Self {
        let shape = books.queue.classes[class.index()].shape;
        Self::of_job(books.machine.min_size(shape))
    }
}

impl Neg for Usage {
    type Output = Self;

    fn neg(self) -> Self {
        Self(self.0.map(i64::neg))
    }
}

/// How much each limit of a queue leaves over time: of jobs, of nodes, of cores; `None` without
/// such a limit.
type Quota = [Option<AvailabilityProfile>; 3];

/// The quotas of queues, each computed when it is first asked for.
#[derive(Clone, Debug)]
pub(crate) struct Quotas {
    now: f64,
    queues: Vec<(QueueId, Quota)>,
}

fn quota(books: &Books, queue: QueueId, now: f64) -> Quota {
    let mut endings: Vec<_> = books
        .runs
        .iter()
        .filter(|(_, running)| running.queue == queue && running.end.is_finite())
        .map(|(_, running)| {
            (
                planned_end(running.end, now),
                Usage::of_job(running.counted),
            )
        })
        .collect();
    endings.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let [jobs, nodes, cores] = books.queues.left(queue);
    let profile = |left: Option<i64>, which: usize| {
        let released = endings.iter().map(|(end, usage)| (*end, usage.0[which]));
        left.map(|left| AvailabilityProfile::rising(now, left, released))
    };
    [profile(jobs, 0), profile(nodes, 1), profile(cores, 2)]
}

impl Quotas {
    /// The quotas that the running jobs leave.
    pub fn new(now: f64) -> Self {
        let queues = Vec::new();
        Self { now, queues }
    }

    /// The quota of a queue; `None` if it has no limits.
    fn of(&mut self, books: &Books, queue: QueueId) -> Option<&mut Quota> {
        let known = self.queues.iter().position(|(known, _)| *known == queue);
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

    /// Counts a reservation of a job of a class.
    pub fn reserve(
        &mut self,
        books: &mut Books,
        class: ClassId,
        footprint: &Footprint,
        span: (f64, f64),
    ) {
        let queue = books.queue.classes[class.index()].queue;
        if self.of(books, queue).is_some() {
            let usage = Usage::of_footprint(books, class, footprint);
            self.add(queue, -usage, span);
        }
    }

    /// No longer counts a reservation of a job of a class.
    pub fn release(
        &mut self,
        books: &mut Books,
        class: ClassId,
        footprint: &Footprint,
        span: (f64, f64),
    ) {
        let queue = books.queue.classes[class.index()].queue;
        if self.of(books, queue).is_some() {
            let usage = Usage::of_footprint(books, class, footprint);
            self.add(queue, usage, span);
        }
    }

    /// Counts a job of a class from `start` on, on unknown nodes: as much as it may need.
    pub fn reserve_most(&mut self, books: &mut Books, class: ClassId, start: f64) {
        let queue = books.queue.classes[class.index()].queue;
        if self.of(books, queue).is_some() {
            let usage = Usage::most(books, class);
            self.add(queue, -usage, (start, f64::INFINITY));
        }
    }

    /// Counts a job that starts with this allocation.
    pub fn take(&mut self, queue: QueueId, shares: &Allocation, span: (f64, f64)) {
        self.add(queue, -Usage::of(shares), span);
    }

    /// Adds to what a queue has left from a time until before another.
    fn add(&mut self, queue: QueueId, usage: Usage, (start, end): (f64, f64)) {
        let Some((_, quota)) = self.queues.iter_mut().find(|(known, _)| *known == queue) else {
            // Running jobs are counted when the quota is computed.
            return;
        };
        if !start.is_finite() {
            return;
        }
        for (profile, amount) in quota.iter_mut().zip(usage.0) {
            if let Some(profile) = profile {
                profile.add(Interval::new(start, end), amount);
            }
        }
    }

    /// The earliest time, not before `not_before`, from which the least of a class is left for
    /// `limit` seconds; infinite for never.
    pub fn earliest(
        &mut self,
        books: &mut Books,
        class: ClassId,
        not_before: f64,
        limit: f64,
    ) -> f64 {
        let queue = books.queue.classes[class.index()].queue;
        if self.of(books, queue).is_none() {
            return not_before;
        }
        let usage = Usage::least(books, class);
        self.earliest_of(books, queue, usage, not_before, limit)
    }

    /// The earliest time, not before `not_before`, from which a queue has so much left for `limit`
    /// seconds; infinite for never.
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
                    start = profile.earliest(Interval::from(start), limit, amount);
                }
            }
            if start <= before || !start.is_finite() {
                return start;
            }
        }
    }

    /// Whether the least of a class is left by a promised time, or as soon as the overdue jobs end.
    pub fn leaves_by(&mut self, books: &mut Books, class: ClassId, time: f64) -> bool {
        let start = self.earliest(books, class, self.now, f64::INFINITY);
        start.is_finite() && start <= time.max(self.now + 1.0)
    }

    /// The first time at which a queue no longer has so much left; infinite for never.
    pub fn until(&mut self, books: &Books, queue: QueueId, usage: Usage) -> f64 {
        let now = self.now;
        let quota = self.of(books, queue).into_iter().flatten().zip(usage.0);
        let until = |(profile, amount): (&mut Option<AvailabilityProfile>, i64)| {
            profile.as_ref().map(|profile| profile.until(now, amount))
        };
        quota.filter_map(until).fold(f64::INFINITY, f64::min)
    }

    /// The nodes and cores that a queue has left for a job that runs for `limit` seconds from now
    /// on.
    fn room(&mut self, books: &Books, queue: QueueId, limit: f64) -> Size {
        let now = self.now;
        let mut least = [u64::MAX; 3];
        for (least, profile) in least
            .iter_mut()
            .zip(self.of(books, queue).into_iter().flatten())
        {
            if let Some(profile) = profile {
                *least =
                    u64::try_from(profile.least_during(Interval::lasting(now, limit))).unwrap_or(0);
            }
        }
        let [_, nodes, cores] = least;
        Size { nodes, cores }
    }

    /// Finds an allocation for a class by `find`, within what its queue has left for `limit`
    /// seconds; `None` if there is none. The error is the time by which the job would have to end.
    pub fn place(
        &mut self,
        books: &mut Books,
        class: ClassId,
        limit: f64,
        find: impl FnOnce(&mut Books) -> Option<Allocation>,
    ) -> Option<Result<Allocation, f64>> {
        let queue = books.queue.classes[class.index()].queue;
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
            // If the limits exclude the job even now, the caller finds out.
            return Some(Ok(shares));
        }
        Some(Err(until))
    }

    /// As [`Plan::place`], within what the limits leave; else why the class cannot start.
    pub fn place_in(
        &mut self,
        plan: &Plan,
        books: &mut Books,
        class: ClassId,
        limit: f64,
    ) -> Result<Allocation, Cause> {
        let now = self.now;
        let mut by = now;
        let found = self.place(books, class, limit, |books| {
            let found = plan.place(books, class, now, limit);
            found.map_err(|until| by = until).ok()
        });
        match found {
            Some(Ok(shares)) => Ok(shares),
            Some(Err(by)) if by > now => Err(Cause::DelaysByLimit { by }),
            None if by > now => {
                let usage = Usage::least(books, class);
                let queue = books.queue.classes[class.index()].queue;
                let until = self.until(books, queue, usage);
                Err(if until < by {
                    Cause::DelaysByLimit { by: until }
                } else {
                    Cause::Delays {
                        by,
                        transient: false,
                    }
                })
            }
            _ => Err(Cause::Unfit),
        }
    }

    /// The earliest time within a range at which a class fits into a plan and into the quota of its
    /// queue for `limit` seconds, infinite for none; and what it would reserve.
    pub fn earliest_in(
        &mut self,
        plan: &mut Plan,
        books: &mut Books,
        class: ClassId,
        (mut from, before): (f64, f64),
        limit: f64,
    ) -> (f64, Footprint) {
        let pending = &books.queue.classes[class.index()];
        let (shape, queue) = (pending.shape, pending.queue);
        // No job starts after the resources expire; once they have, jobs are denied.
        let expiration = books.machine.expiration();
        let expiration = expiration.filter(|expiration| *expiration > self.now);
        let before = before.min(expiration.unwrap_or(f64::INFINITY));
        if self.of(books, queue).is_none() {
            return plan.earliest(&books.machine, shape, (from, before), limit);
        }
        for _ in 0..MAX_STARTS_TRIED {
            let (start, footprint) = plan.earliest(&books.machine, shape, (from, before), limit);
            if !start.is_finite() {
                return (start, footprint);
            }
            let usage = Usage::of_footprint(books, class, &footprint);
            if self.earliest_of(books, queue, usage, start, limit) <= start {
                return (start, footprint);
            }
            // It may fit on fewer nodes.
            let sparing = plan
                .sparing_footprint(&books.machine, shape, start, limit)
                .unwrap_or(footprint);
            let usage = Usage::of_footprint(books, class, &sparing);
            let allowed = self.earliest_of(books, queue, usage, start, limit);
            if allowed <= start {
                return (start, sparing);
            }
            // It may fit on fewer nodes once more is free.
            from = allowed.min(plan.next_change(start));
            if from >= before {
                return (f64::INFINITY, sparing);
            }
        }
        (f64::INFINITY, Footprint::Units(0))
    }

    /// Whether more is reserved than the limits allow.
    pub fn is_overfull(&self) -> bool {
        let mut profiles = self.queues.iter().flat_map(|(_, quota)| quota).flatten();
        profiles.any(|profile| profile.least() < 0)
    }
}
