//! Hybrid backfill: the first jobs in queue order that have to wait get reservations, up to a given
//! number; others start if they delay none.
//!
//! Reservations are made anew in every pass, in order. Those of the former pass tell where they
//! should be: a job takes what a later one has reserved only if nothing else fits at that time.

use super::walk::{Backfill, Later};
use crate::books::Books;
use crate::ids::{ClassId, GroupId};
use crate::job::JobState;
use crate::machine::Allocation;
use crate::plan::{Footprint, Plan, length};
use crate::queue::{Key, QueueId};
use crate::quotas::Quotas;
use crate::verdict::{Cause, Verdict};

#[derive(Clone, Debug)]
struct Reservation {
    job: u64,
    start: f64,
    end: f64,
    footprint: Footprint,
}

/// The reservations of a group.
#[derive(Clone, Debug, Default)]
struct Ahead {
    /// The reservations of the former pass, of jobs that this one has not reached.
    before: Vec<Reservation>,
    /// The reserved starts as of the former pass.
    told: Vec<(u64, f64)>,
    /// The former reservation of the job that is visited.
    own: Option<Reservation>,
    made: Vec<Reservation>,
    /// The number of jobs that have to wait so far.
    waiting: u32,
    /// The plan of running jobs and reservations, once a job has to wait.
    plan: Option<Plan>,
    /// What the limits of queues leave beside them.
    quotas: Option<Quotas>,
    /// The plan with the former reservations in addition.
    with_before: Option<Plan>,
}

/// The state of the policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hybrid {
    groups: Vec<Ahead>,
    depth: u32,
    now: f64,
    /// The counters of the books at the last pass.
    changes: u64,
}

impl Hybrid {
    /// The start that the last pass has reserved for a job.
    pub fn start(&self, id: u64) -> Option<f64> {
        self.find(id).map(|it| it.start)
    }

    /// The job of a group whose reservation begins at a time, and when just that is. `queue` is for
    /// jobs of one queue only.
    pub fn reservation_at(
        &self,
        books: &Books,
        group: GroupId,
        (time, queue): (f64, Option<QueueId>),
    ) -> Option<(u64, f64)> {
        let is_in = |job: u64| {
            let class = books.jobs.find(job).and_then(|handle| books.waits(handle));
            class.is_some_and(|it| Some(books.queue.classes[it.0.index()].queue) == queue)
        };
        let made = self.groups.get(group.index())?.made.iter();
        let made = made.filter(|it| queue.is_none() || is_in(it.job));
        let distance = |it: &Reservation| (it.start - time).abs();
        let nearest = made.min_by(|a, b| distance(a).total_cmp(&distance(b)));
        nearest.map(|it| (it.job, it.start))
    }

    fn find(&self, id: u64) -> Option<&Reservation> {
        let mut made = self.groups.iter().flat_map(|it| &it.made);
        made.find(|it| it.job == id)
    }

    /// Prepares a pass.
    pub fn begin(&mut self, books: &Books, depth: u32, now: f64) {
        let steady = self.changes == books.changes;
        self.groups
            .resize_with(books.queue.groups.len(), Ahead::default);
        for ahead in &mut self.groups {
            ahead.before = std::mem::take(&mut ahead.made);
            let told = ahead.before.iter().map(|it| (it.job, it.start));
            ahead.told = told.collect();
            ahead
                .before
                .retain(|it| steady && it.end > now && waits(books, it.job));
            ahead.own = None;
            ahead.waiting = 0;
            ahead.plan = None;
            ahead.quotas = None;
            ahead.with_before = None;
        }
        self.depth = depth;
        self.now = now;
        self.changes = books.changes;
    }
}

/// Whether a job is pending and not held.
fn waits(books: &Books, id: u64) -> bool {
    let known = books.jobs.find(id).map(|handle| books.jobs.at(handle));
    known.is_some_and(|it| it.effective_priority > 0 && matches!(it.state, JobState::Pending(_)))
}

impl Ahead {
    /// Notes that the pass has reached a job: its former reservation no longer excludes it.
    fn come_to(&mut self, job: u64, now: f64) {
        self.own.take_if(|it| it.job != job);
        let Some(at) = self.before.iter().position(|it| it.job == job) else {
            return;
        };
        let it = self.own.insert(self.before.remove(at));
        if self.before.is_empty() {
            self.with_before = None;
        } else if let Some(plan) = &mut self.with_before {
            let span = (it.start.max(now), it.end);
            plan.release(&it.footprint, span);
        }
    }

    /// The plan with the former reservations, if there are any.
    fn with_before(&mut self, books: &mut Books, group: GroupId, now: f64) -> Option<&mut Plan> {
        if self.before.is_empty() {
            return None;
        }
        if self.with_before.is_none() {
            let known = self.plan.clone();
            let mut plan = known.unwrap_or_else(|| Plan::of(books, group, now));
            // In order of start: if their resources have to be found anew, they still fit.
            let own = self.own.as_ref().map(|it| it.job);
            self.before.extend(self.own.take());
            self.before.sort_by(|a, b| a.start.total_cmp(&b.start));
            self.before.retain_mut(|it| {
                let span = (it.start.max(now), it.end);
                if !plan.can_reserve(&it.footprint) {
                    let handle = books.jobs.find(it.job);
                    let class = handle.and_then(|handle| books.waits(handle));
                    let footprint = class.and_then(|(class, _)| {
                        let shape = books.queue.classes[class.index()].shape;
                        plan.footprint_at(&books.machine, shape, span.0, span.1 - span.0)
                    });
                    let Some(footprint) = footprint else {
                        return false;
                    };
                    it.footprint = footprint;
                }
                plan.reserve(&it.footprint, span);
                true
            });
            let own = self.before.iter().position(|it| Some(it.job) == own);
            if let Some(own) = own.map(|at| self.before.remove(at)) {
                let span = (own.start.max(now), own.end);
                plan.release(&own.footprint, span);
                self.own = Some(own);
            }
            self.with_before = Some(plan);
        }
        self.with_before.as_mut()
    }

    /// Places a class now on nothing that was reserved in the former pass.
    fn place(
        &mut self,
        books: &mut Books,
        (group, class): (GroupId, ClassId),
        now: f64,
        limit: f64,
    ) -> Option<Allocation> {
        let it = &books.queue.classes[class.index()];
        let in_units = matches!(self.before.first()?.footprint, Footprint::Units(_));
        if in_units && books.machine.request(it.shape).is_exact() {
            // It takes as much wherever it is placed.
            return None;
        }
        let plan = self.with_before(books, group, now)?;
        let shares = plan.place(books, class, now, length(limit)).ok();
        let queue = books.queue.classes[class.index()].queue;
        shares.filter(|shares| books.may_take(queue, shares))
    }

    /// The earliest start of a class, and what it would reserve.
    fn earliest(
        &mut self,
        books: &mut Books,
        (group, class): (GroupId, ClassId),
        now: f64,
        limit: f64,
    ) -> (f64, Footprint) {
        let shape = books.queue.classes[class.index()].shape;
        if self.plan.is_none() {
            let plan = Plan::of(books, group, now);
            let other = self.before.first().map(|it| &it.footprint);
            let other = other.is_some_and(|it| !plan.can_reserve(it));
            self.plan = Some(plan);
            if other {
                self.with_before = None;
                self.with_before(books, group, now);
            }
        }
        let Some(plan) = &mut self.plan else {
            return (f64::INFINITY, Footprint::Units(0));
        };
        let quotas = self.quotas.get_or_insert_with(|| Quotas::new(now));
        let (start, footprint) =
            quotas.earliest_in(plan, books, class, (now, f64::INFINITY), limit);
        // Its former reservation, if that is as early.
        if let Some(own) = self.own.take().filter(|it| it.start <= start)
            && plan.has_room(&books.machine, &own.footprint, (start, start + limit))
        {
            return (start, own.footprint);
        }
        let undisturbed = self
            .with_before(books, group, now)
            .filter(|_| start.is_finite())
            .map(|plan| plan.footprint_at(&books.machine, shape, start, limit));
        (start, undisturbed.flatten().unwrap_or(footprint))
    }

    /// Reserves resources in both plans.
    fn reserve(&mut self, footprint: &Footprint, span: (f64, f64)) {
        for plan in self.plan.iter_mut().chain(&mut self.with_before) {
            plan.reserve(footprint, span);
        }
    }
}

impl Backfill for Hybrid {
    fn place(
        &mut self,
        books: &mut Books,
        (group, class): (GroupId, ClassId),
        key: Key,
        limit: f64,
    ) -> Option<Allocation> {
        let ahead = &mut self.groups[group.index()];
        ahead.come_to(key.id(), self.now);
        let shares = books.place(class)?;
        let beside = ahead.place(books, (group, class), self.now, limit);
        Some(beside.unwrap_or(shares))
    }

    fn keeps(&mut self, books: &mut Books, (group, class): (GroupId, ClassId), key: Key) -> bool {
        let ahead = &mut self.groups[group.index()];
        let Some((_, at)) = ahead.told.iter().find(|it| it.0 == key.id()) else {
            return false;
        };
        let quotas = &mut ahead.quotas;
        let quotas = quotas.get_or_insert_with(|| Quotas::new(self.now));
        quotas.leaves_by(books, class, *at)
    }

    fn wait(
        &mut self,
        books: &mut Books,
        (group, class): (GroupId, ClassId),
        key: Key,
        limit: f64,
    ) -> Later {
        let ahead = &mut self.groups[group.index()];
        ahead.come_to(key.id(), self.now);
        let limit = length(limit);
        let (start, footprint) = ahead.earliest(books, (group, class), self.now, limit);
        if start.is_finite() {
            let end = start + limit;
            ahead.reserve(&footprint, (start, end));
            if let Some(quotas) = &mut ahead.quotas {
                quotas.reserve(books, class, &footprint, (start, end));
            }
            ahead.made.push(Reservation {
                job: key.id(),
                start,
                end,
                footprint,
            });
        }
        ahead.waiting += 1;
        if ahead.waiting < self.depth {
            Later::Everything
        } else {
            ahead.before.clear();
            ahead.with_before = None;
            Later::Fitting
        }
    }

    fn judge(
        &mut self,
        books: &mut Books,
        (group, class): (GroupId, ClassId),
        key: Key,
        limit: f64,
    ) -> Verdict {
        let ahead = &mut self.groups[group.index()];
        ahead.come_to(key.id(), self.now);
        let Some(plan) = &ahead.plan else {
            return Verdict::Pending(Cause::Unfit);
        };
        let mut quotas = ahead.quotas.take().unwrap_or_else(|| Quotas::new(self.now));
        let placed = quotas.place_in(plan, books, class, length(limit));
        let verdict = match placed {
            Ok(shares) => {
                let beside = quotas.place(books, class, length(limit), |books| {
                    ahead.place(books, (group, class), self.now, limit)
                });
                let beside = beside.and_then(Result::ok);
                Verdict::Start(beside.unwrap_or(shares))
            }
            Err(cause) => Verdict::Pending(cause),
        };
        ahead.quotas = Some(quotas);
        verdict
    }

    fn length(&self, limit: f64) -> f64 {
        length(limit)
    }

    fn admit(
        &mut self,
        books: &Books,
        (group, class): (GroupId, ClassId),
        limit: f64,
        shares: &Allocation,
    ) {
        let ahead = &mut self.groups[group.index()];
        let class = &books.queue.classes[class.index()];
        let plan = ahead.plan.as_ref().or(ahead.with_before.as_ref());
        if let Some(footprint) = plan.map(|plan| plan.footprint_of(shares)) {
            let span = (self.now, self.now + length(limit));
            ahead.reserve(&footprint, span);
            if let Some(quotas) = &mut ahead.quotas {
                quotas.take(class.queue, shares, span);
            }
        }
    }
}
