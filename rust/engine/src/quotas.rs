//! Quotas: the amounts that the limits of queues leave over time beside running jobs and
//! reservations, so that no queue is at a limit when the reservation of one of its jobs is due.

use std::ops::Neg;

use crate::availability_profile::{AvailabilityProfile, Interval};
use crate::ids::{ClassId, QueueId};
use crate::node_table::{Allocation, Size};
use crate::plan::{Footprint, Plan, PlannedJob, PlannedStart, Unplaced, planned_end};
use crate::state::EngineState;

/// Maximum number of start times tried for a job that needs more nodes than its queue has left.
const MAX_STARTS_TRIED: usize = 1000;

/// Jobs, nodes and cores, as the limits of a queue count them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    jobs: i64,
    nodes: i64,
    cores: i64,
}

impl Usage {
    /// One job with these nodes and cores.
    fn of_job(size: Size) -> Self {
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        Self {
            jobs: 1,
            nodes: signed(size.nodes),
            cores: signed(size.cores),
        }
    }

    /// A job with this allocation.
    pub fn of(allocation: &Allocation) -> Self {
        Self::of_job(allocation.size())
    }

    /// A job of a class with this reservation; its minimum if only units are reserved.
    fn of_footprint(state: &mut EngineState, class: ClassId, footprint: &Footprint) -> Self {
        let Footprint::Nodes(amounts) = footprint else {
            return Self::least(state, class);
        };
        Self::of_job(Size {
            nodes: amounts.len() as u64,
            cores: amounts.iter().map(|amount| u64::from(amount.cores)).sum(),
        })
    }

    /// A job of a class with the maximum size that it can have with its minimum counts.
    fn most(state: &mut EngineState, class: ClassId) -> Self {
        let class = &state.queue.classes[class.index()];
        let limit = state.queues.most(class.queue);
        Self::of_job(state.node_table.max_size(class.shape).min(limit))
    }

    /// A job of a class with its minimum size.
    pub fn least(state: &mut EngineState, class: ClassId) -> Self {
        let shape = state.queue.classes[class.index()].shape;
        Self::of_job(state.node_table.min_size(shape))
    }
}

impl Neg for Usage {
    type Output = Self;

    fn neg(self) -> Self {
        Self {
            jobs: -self.jobs,
            nodes: -self.nodes,
            cores: -self.cores,
        }
    }
}

/// The amount that each limit of a queue leaves over time; `None` without such a limit.
#[derive(Clone, Debug)]
struct Quota {
    jobs: Option<AvailabilityProfile>,
    nodes: Option<AvailabilityProfile>,
    cores: Option<AvailabilityProfile>,
}

impl Quota {
    fn profiles(&self) -> impl Iterator<Item = &AvailabilityProfile> {
        [&self.jobs, &self.nodes, &self.cores].into_iter().flatten()
    }

    /// Each profile with the amount that a job uses of it.
    fn with_usage(&self, usage: Usage) -> impl Iterator<Item = (&AvailabilityProfile, i64)> {
        [
            (&self.jobs, usage.jobs),
            (&self.nodes, usage.nodes),
            (&self.cores, usage.cores),
        ]
        .into_iter()
        .filter_map(|(profile, amount)| Some((profile.as_ref()?, amount)))
    }

    /// Adds to the remaining amounts during an interval.
    fn add(&mut self, during: Interval, usage: Usage) {
        for (profile, amount) in [
            (&mut self.jobs, usage.jobs),
            (&mut self.nodes, usage.nodes),
            (&mut self.cores, usage.cores),
        ] {
            if let Some(profile) = profile {
                profile.add(during, amount);
            }
        }
    }
}

/// The quotas of queues, each computed on first use.
#[derive(Clone, Debug)]
pub(crate) struct Quotas {
    now: f64,
    queues: Vec<(QueueId, Quota)>,
}

fn quota(state: &EngineState, queue: QueueId, now: f64) -> Quota {
    let mut endings: Vec<_> = state
        .running_jobs
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
    let [jobs, nodes, cores] = state.queues.left(queue);
    let profile = |left: Option<i64>, released: fn(&Usage) -> i64| {
        let released = endings.iter().map(|(end, usage)| (*end, released(usage)));
        left.map(|left| AvailabilityProfile::rising(now, left, released))
    };
    Quota {
        jobs: profile(jobs, |usage| usage.jobs),
        nodes: profile(nodes, |usage| usage.nodes),
        cores: profile(cores, |usage| usage.cores),
    }
}

impl Quotas {
    /// The quotas that the running jobs leave.
    pub fn new(now: f64) -> Self {
        let queues = Vec::new();
        Self { now, queues }
    }

    /// The quota of a queue; `None` if it has no limits.
    fn of(&mut self, state: &EngineState, queue: QueueId) -> Option<&mut Quota> {
        let known = self.queues.iter().position(|(known, _)| *known == queue);
        let at = match known {
            Some(at) => at,
            None if state.queues.is_limited(queue) => {
                self.queues.push((queue, quota(state, queue, self.now)));
                self.queues.len() - 1
            }
            None => return None,
        };
        Some(&mut self.queues[at].1)
    }

    /// Counts a reservation of a job of a class.
    pub fn reserve(
        &mut self,
        state: &mut EngineState,
        class: ClassId,
        footprint: &Footprint,
        during: Interval,
    ) {
        let queue = state.queue.classes[class.index()].queue;
        if self.of(state, queue).is_some() {
            let usage = Usage::of_footprint(state, class, footprint);
            self.add(queue, -usage, during);
        }
    }

    /// Removes a reservation of a job of a class.
    pub fn release(
        &mut self,
        state: &mut EngineState,
        class: ClassId,
        footprint: &Footprint,
        during: Interval,
    ) {
        let queue = state.queue.classes[class.index()].queue;
        if self.of(state, queue).is_some() {
            let usage = Usage::of_footprint(state, class, footprint);
            self.add(queue, usage, during);
        }
    }

    /// Counts a job of a class from `start` on, on unknown nodes, with the maximum that it may
    /// need.
    pub fn reserve_most(&mut self, state: &mut EngineState, class: ClassId, start: f64) {
        let queue = state.queue.classes[class.index()].queue;
        if self.of(state, queue).is_some() {
            let usage = Usage::most(state, class);
            self.add(queue, -usage, Interval::from(start));
        }
    }

    /// Counts a job that starts with this allocation.
    pub fn take(&mut self, queue: QueueId, shares: &Allocation, during: Interval) {
        self.add(queue, -Usage::of(shares), during);
    }

    /// Adds to the remaining amounts of a queue during an interval.
    fn add(&mut self, queue: QueueId, usage: Usage, during: Interval) {
        let Some((_, quota)) = self.queues.iter_mut().find(|(known, _)| *known == queue) else {
            // Running jobs are counted when the quota is computed.
            return;
        };
        if !during.start.is_finite() {
            return;
        }
        quota.add(during, usage);
    }

    /// The earliest time, not before `not_before`, from which the minimum of a class is left for
    /// `limit` seconds; infinite for never.
    pub fn earliest(
        &mut self,
        state: &mut EngineState,
        class: ClassId,
        not_before: f64,
        limit: f64,
    ) -> f64 {
        let queue = state.queue.classes[class.index()].queue;
        if self.of(state, queue).is_none() {
            return not_before;
        }
        let usage = Usage::least(state, class);
        self.earliest_of(state, queue, usage, not_before, limit)
    }

    /// The earliest time, not before `not_before`, from which a queue has `usage` left for `limit`
    /// seconds; infinite for never.
    fn earliest_of(
        &mut self,
        state: &EngineState,
        queue: QueueId,
        usage: Usage,
        not_before: f64,
        limit: f64,
    ) -> f64 {
        let mut start = not_before;
        loop {
            let before = start;
            let quota = self.of(state, queue).into_iter();
            for (profile, amount) in quota.flat_map(|quota| quota.with_usage(usage)) {
                if start.is_finite() {
                    start = profile.earliest(Interval::from(start), limit, amount);
                }
            }
            if start <= before || !start.is_finite() {
                return start;
            }
        }
    }

    /// Returns whether the queue of a class has this footprint left for `limit` seconds from `start`
    /// on.
    pub fn check_admission(
        &mut self,
        state: &mut EngineState,
        class: ClassId,
        footprint: &Footprint,
        start: f64,
        limit: f64,
    ) -> bool {
        let queue = state.queue.classes[class.index()].queue;
        if self.of(state, queue).is_none() {
            return true;
        }
        let usage = Usage::of_footprint(state, class, footprint);
        self.earliest_of(state, queue, usage, start, limit) <= start
    }

    /// Returns whether the minimum of a class is left by a reserved start, or as soon as the overdue
    /// jobs end.
    pub fn check_left_by(&mut self, state: &mut EngineState, class: ClassId, time: f64) -> bool {
        let start = self.earliest(state, class, self.now, f64::INFINITY);
        start.is_finite() && start <= time.max(self.now + 1.0)
    }

    /// The first time at which a queue no longer has `usage` left; infinite for never.
    pub fn until(&mut self, state: &EngineState, queue: QueueId, usage: Usage) -> f64 {
        let now = self.now;
        let quota = self.of(state, queue).into_iter();
        quota
            .flat_map(|quota| quota.with_usage(usage))
            .map(|(profile, amount)| profile.until(now, amount))
            .fold(f64::INFINITY, f64::min)
    }

    /// The first time at which the minimum of a class is no longer left; infinite for never.
    pub fn find_admission_end(&mut self, state: &mut EngineState, class: ClassId) -> f64 {
        let queue = state.queue.classes[class.index()].queue;
        if self.of(state, queue).is_none() {
            return f64::INFINITY;
        }
        let usage = Usage::least(state, class);
        self.until(state, queue, usage)
    }

    /// As [`Plan::find_delayed`], for the limits of the queue of a class, which admit it from now
    /// until `until`. The jobs are of the same queue.
    pub fn find_delayed(
        &mut self,
        state: &mut EngineState,
        class: ClassId,
        until: f64,
        jobs: &[PlannedJob<'_>],
    ) -> Option<usize> {
        let last = jobs.len().checked_sub(1)?;
        let mut first = jobs.len();
        while first > 0 && self.find_admission_end(state, class) <= until {
            first -= 1;
            let job = jobs[first];
            self.release(state, job.class, job.footprint, job.during);
        }
        for job in &jobs[first..] {
            self.reserve(state, job.class, job.footprint, job.during);
        }
        // The minimum of the class may leave enough to all, although more than that does not.
        Some(first.min(last))
    }

    /// The nodes and cores that a queue has left for a job that runs for `limit` seconds from now
    /// on.
    fn room(&mut self, state: &EngineState, queue: QueueId, limit: f64) -> Size {
        let during = Interval::lasting(self.now, limit);
        let least = |profile: Option<&AvailabilityProfile>| {
            profile.map_or(u64::MAX, |profile| {
                u64::try_from(profile.least_during(during)).unwrap_or(0)
            })
        };
        let quota = self.of(state, queue);
        let quota = quota.as_deref();
        Size {
            nodes: least(quota.and_then(|quota| quota.nodes.as_ref())),
            cores: least(quota.and_then(|quota| quota.cores.as_ref())),
        }
    }

    /// Finds an allocation for a class by `find`, within the quota of its queue for `limit`
    /// seconds; `None` if nothing fits. The error is the time by which the job would have to end.
    pub fn place(
        &mut self,
        state: &mut EngineState,
        class: ClassId,
        limit: f64,
        find: impl FnOnce(&mut EngineState) -> Option<Allocation>,
    ) -> Option<Result<Allocation, f64>> {
        let queue = state.queue.classes[class.index()].queue;
        if self.of(state, queue).is_none() {
            return find(state).map(Ok);
        }
        let room = self.room(state, queue, limit);
        state.queues.restrict(queue, room);
        let shares = find(state);
        state.queues.restrict(queue, Size::UNLIMITED);
        let shares = shares?;
        let until = self.until(state, queue, Usage::of(&shares));
        if self.now + limit <= until || state.may_take(queue, &shares).is_err() {
            // If the limits exclude the job even now, the caller detects it.
            return Some(Ok(shares));
        }
        Some(Err(until))
    }

    /// As [`Plan::place`], within the quotas.
    pub fn place_in(
        &mut self,
        plan: &Plan,
        state: &mut EngineState,
        class: ClassId,
        limit: f64,
    ) -> Result<Allocation, Unplaced> {
        let now = self.now;
        let mut unplaced = Unplaced::Unfit;
        let found = self.place(state, class, limit, |state| {
            let found = plan.place(state, class, now, limit);
            found.map_err(|cause| unplaced = cause).ok()
        });
        match (found, unplaced) {
            (Some(Ok(shares)), _) => Ok(shares),
            (Some(Err(by)), _) => Err(Unplaced::AdmittedUntil(by)),
            (None, Unplaced::FitsUntil(by)) => {
                let until = self.find_admission_end(state, class);
                Err(if until < by {
                    Unplaced::AdmittedUntil(until)
                } else {
                    unplaced
                })
            }
            (None, _) => Err(unplaced),
        }
    }

    /// The earliest start within `starts` at which a class fits into a plan and into the quota of
    /// its queue for `limit` seconds.
    pub fn earliest_in(
        &mut self,
        plan: &mut Plan,
        state: &mut EngineState,
        class: ClassId,
        starts: Interval,
        limit: f64,
    ) -> PlannedStart {
        let pending = &state.queue.classes[class.index()];
        let (shape, queue) = (pending.shape, pending.queue);
        // No job starts after the resources expire; once they have, jobs are denied.
        let expiration = state.node_table.expiration();
        let expiration = expiration.filter(|expiration| *expiration > self.now);
        let before = starts.end.min(expiration.unwrap_or(f64::INFINITY));
        let mut from = starts.start;
        if self.of(state, queue).is_none() {
            return plan.earliest(&state.node_table, shape, Interval::new(from, before), limit);
        }
        for _ in 0..MAX_STARTS_TRIED {
            let mut found =
                plan.earliest(&state.node_table, shape, Interval::new(from, before), limit);
            if !found.time.is_finite() {
                return found;
            }
            if self.check_admission(state, class, &found.footprint, found.time, limit) {
                return found;
            }
            // It may fit on fewer nodes.
            let sparing = plan.sparing_footprint(&state.node_table, shape, found.time, limit);
            found.footprint = sparing.unwrap_or(found.footprint);
            let usage = Usage::of_footprint(state, class, &found.footprint);
            let allowed = self.earliest_of(state, queue, usage, found.time, limit);
            if allowed <= found.time {
                return found;
            }
            // It may fit on fewer nodes once more is free.
            from = allowed.min(plan.next_change(found.time));
            if from >= before {
                return PlannedStart {
                    time: f64::INFINITY,
                    ..found
                };
            }
        }
        PlannedStart::NEVER
    }

    /// Whether more is reserved than the limits allow.
    pub fn is_overfull(&self) -> bool {
        let mut profiles = self.queues.iter().flat_map(|(_, quota)| quota.profiles());
        profiles.any(|profile| profile.least() < 0)
    }
}
