//! The pass over the pending jobs in queue order; the policy decides which jobs may pass a blocked
//! head.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::last_pass::{LastPass, completed};
use crate::ids::{ClassId, GroupId, GroupedClass};
use crate::node_table::Allocation;
use crate::queue::Key;
use crate::state::EngineState;
use crate::verdict::{Cause, Decision, Interference, Verdict};

/// Which later jobs a pass visits once a job is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Later {
    /// No later job of the group.
    Nothing,
    /// Later jobs, except jobs that are known not to start.
    Fitting,
    /// Every later job: the policy has to see each blocked job.
    Everything,
}

/// A queue policy. Jobs are identified by their group and class.
pub(crate) trait Backfill {
    /// Whether the pass skips a job that could not start even if all running jobs had ended.
    const PASSES_UNREACHABLE: bool = true;

    /// Places a job when no earlier job of its group is blocked.
    fn place(
        &mut self,
        state: &mut EngineState,
        GroupedClass { class, .. }: GroupedClass,
        _key: Key,
        _limit: f64,
    ) -> Option<Allocation> {
        state.place(class)
    }

    /// Decides whether a job keeps its reservation although the limits of its queue exclude it now,
    /// because they admit it by then.
    fn judge_reservation(&mut self, _: &mut EngineState, _: GroupedClass, _: Key) -> bool {
        false
    }

    /// Records that a job is blocked, as the blocked head of its group or behind it. Returns which
    /// later jobs to visit.
    fn block(&mut self, state: &mut EngineState, of: GroupedClass, key: Key, limit: f64) -> Later;

    /// Decides whether a job of a class may start behind the blocked head.
    fn judge(&mut self, state: &mut EngineState, of: GroupedClass, key: Key, limit: f64)
    -> Verdict;

    /// The reserved start of a job as of the last pass, if there is one.
    fn reserved(&self, _: &mut EngineState, _: GroupId, _: Key) -> Option<f64> {
        None
    }

    /// The units of the blocked head's reservation that an allocation would take, if the policy
    /// counts them and they are more than are spare.
    fn interference(&self, _: &EngineState, _: GroupId, _: &Allocation) -> Option<Interference> {
        None
    }

    /// The planned run time of a job with this time limit, in seconds.
    fn length(&self, limit: f64) -> f64 {
        limit
    }

    /// Records that a job is about to start with this allocation.
    fn admit(&mut self, state: &EngineState, of: GroupedClass, limit: f64, shares: &Allocation);
}

/// First come first served: starts no job behind a blocked head.
#[derive(Debug)]
pub(crate) struct Fcfs;

impl Backfill for Fcfs {
    const PASSES_UNREACHABLE: bool = false;

    fn block(&mut self, _: &mut EngineState, _: GroupedClass, _: Key, _: f64) -> Later {
        Later::Nothing
    }

    fn judge(&mut self, _: &mut EngineState, _: GroupedClass, _: Key, _: f64) -> Verdict {
        Verdict::Pending(Cause::Unfit)
    }

    fn admit(&mut self, _: &EngineState, _: GroupedClass, _: f64, _: &Allocation) {}
}

/// The way to find the next job of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Mode {
    /// The first one: every job so far has started.
    #[default]
    All,
    /// The first one that ends by a time.
    Short(f64),
    /// The one after the last one visited.
    Behind,
}

/// The state of a class in the pass.
#[derive(Clone, Copy, Debug)]
struct ClassProgress {
    pass: u64,
    mode: Mode,
    /// Its valid entry in the heap, [`Key::NONE`] for none; other entries are stale.
    entry: Key,
    /// Whether a visited job of the class has not started: `causes` has the reason.
    is_pending: bool,
}

impl ClassProgress {
    /// The state of a class that the pass has not visited.
    const fn unvisited(pass: u64) -> Self {
        Self {
            pass,
            mode: Mode::All,
            entry: Key::NONE,
            is_pending: false,
        }
    }
}

/// A job to be visited, the first of its class; the greatest offer is the first in queue order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offer {
    key: Key,
    class: ClassId,
}

impl Ord for Offer {
    /// Compares keys only: a job has one class.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key)
    }
}

impl PartialOrd for Offer {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The state of a pass, kept to reuse its memory and for explanations.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueuePass {
    /// An offer before all in the heap, if known: mostly there is a single class to offer.
    next: Option<Offer>,
    heap: BinaryHeap<Offer>,
    pass: u64,
    progress: Vec<ClassProgress>,
    /// By class: why it is pending, if `progress` says so. Apart from it, so that a pass that starts
    /// every job it visits does not read it.
    causes: Vec<Cause>,
    /// By group: which later jobs are visited, once a job is blocked.
    blocked: Vec<Option<Later>>,
    /// By group: the blocked head, once a job is blocked.
    heads: Vec<Key>,
    /// By group: whether a job has been skipped because its queue is at a limit, or because it
    /// needs nodes that are down.
    stopped: Vec<bool>,
    /// By group: whether the heads of all classes are offered.
    open: Vec<bool>,
    /// Classes that fit but would delay a reservation, for now.
    harmful: Vec<ClassId>,
    /// Whether any queue has a limit.
    limited: bool,
    /// The longest possible run time of a job that starts now.
    longest: f64,
    /// The time of the pass.
    now: f64,
    /// The [work](EngineState::work) of the pass so far, without placements.
    work: u64,
}

/// The work of the decision about one job, without its placement.
const VISIT_WORK: u64 = 8;

impl QueuePass {
    /// The blocked head of a group in the last pass: the first job that did not fit.
    pub fn head(&self, group: GroupId) -> Option<Key> {
        let is_blocked = (*self.blocked.get(group.index())?).is_some();
        let head = self.heads.get(group.index()).copied();
        head.filter(|_| is_blocked)
    }

    /// Why the last pass left a job of a class pending; `None` if the pass would have started it.
    /// `ends_by` returns whether the job is planned to end by a time.
    pub fn cause(
        &self,
        GroupedClass { group, class }: GroupedClass,
        ends_by: impl Fn(f64) -> bool,
    ) -> Option<Cause> {
        let progress = self.progress.get(class.index());
        let is_pending =
            progress.is_some_and(|progress| progress.pass == self.pass && progress.is_pending);
        let cause = self.causes.get(class.index()).filter(|_| is_pending);
        match cause {
            Some(cause) if cause.latest_end().is_some_and(ends_by) => None,
            Some(cause) => Some(*cause),
            None => match self.blocked.get(group.index())?.as_ref()? {
                Later::Nothing => Some(Cause::Behind),
                // Only classes that may fit have been offered.
                Later::Fitting | Later::Everything => Some(Cause::Unfit),
            },
        }
    }

    /// Whether a job with a time limit that started in the last pass would end by a time.
    pub fn ends_by(&self, policy: &impl Backfill, limit: f64, by: f64) -> bool {
        self.now + policy.length(limit.min(self.longest)) <= by
    }

    #[inline]
    fn progress(&mut self, class: ClassId) -> &mut ClassProgress {
        let progress = &mut self.progress[class.index()];
        if progress.pass != self.pass {
            *progress = ClassProgress::unvisited(self.pass);
        }
        progress
    }

    /// Makes room for `count` classes, at once rather than class by class, which would copy them.
    #[cold]
    fn add_classes(&mut self, count: usize) {
        // No pass has the number 0.
        self.progress.resize(count, ClassProgress::unvisited(0));
        self.causes.resize(count, Cause::Unfit);
    }

    /// Records why a job of a class stays pending.
    #[inline]
    fn leave_pending(&mut self, class: ClassId, cause: Cause) {
        self.progress(class).is_pending = true;
        self.causes[class.index()] = cause;
    }

    #[inline]
    fn offer(&mut self, class: ClassId, key: Key) {
        self.progress(class).entry = key;
        if !key.is_absent() {
            self.work += 1;
            self.put(Offer { key, class });
        }
    }

    #[inline]
    fn put(&mut self, mut offer: Offer) {
        let is_first = match &self.next {
            Some(next) => offer.key < next.key,
            None => self.heap.peek().is_none_or(|first| offer.key < first.key),
        };
        if is_first {
            match self.next.replace(offer) {
                Some(next) => offer = next,
                None => return,
            }
        }
        self.heap.push(offer);
    }

    /// Removes the first offer.
    #[inline]
    fn take(&mut self) -> Option<Offer> {
        let next = self.next.take();
        next.or_else(|| self.heap.pop())
    }

    /// Offers the head of a group.
    fn enter_first(&mut self, state: &EngineState, group: GroupId) {
        let known = &state.queue.groups[group.index()];
        let key = known.heads.first();
        if !key.is_absent() {
            let class = known.classes[known.heads.slot() as usize];
            self.offer(class, key);
        }
    }

    /// Offers the heads of all classes of a group.
    fn enter_all(&mut self, state: &EngineState, group: GroupId) {
        let known = &state.queue.groups[group.index()];
        self.work += known.classes.len() as u64;
        for (key, class) in known.heads.all().iter().zip(&known.classes) {
            // The class of an unused slot may belong to another slot by now.
            if !key.is_absent() {
                self.offer(*class, *key);
            }
        }
    }

    /// Offers the heads of the classes of a group that may fit, and of the classes to be denied.
    fn enter_fitting(&mut self, state: &mut EngineState, group: GroupId) {
        let mut unknown = std::mem::take(&mut state.queue.groups[group.index()].unchecked);
        self.work += unknown.len() as u64;
        unknown.retain(|class| {
            let known = &state.queue.classes[class.index()];
            let key = known.first_within(|_| true);
            if known.group != group || !known.has_jobs() || state.possible(*class).is_ok() {
                return false;
            }
            self.offer(*class, key);
            true
        });
        let generation = state.node_table.generation();
        let of_group = &mut state.queue.groups[group.index()];
        of_group.unchecked = unknown;
        for alike in of_group.classes_by_unit.iter() {
            self.work += 1;
            let Some(least) = alike.least() else {
                continue;
            };
            let shape = least.shape;
            if !state.node_table.may_have(shape, least.need) {
                continue;
            }
            for slot in alike.within(state.node_table.units_now(shape)) {
                self.work += 1;
                let (key, class) = (of_group.heads.get(slot), of_group.classes[slot as usize]);
                let known = &state.queue.classes[class.index()];
                if !key.is_absent() && known.failed != Some(generation) {
                    self.offer(class, key);
                }
            }
        }
    }

    /// Makes one pass. Returns whether a job has started or been denied.
    pub fn pass<P: Backfill>(
        &mut self,
        state: &mut EngineState,
        policy: &mut P,
        now: f64,
        max: usize,
        out: &mut Vec<Decision>,
    ) -> bool {
        let before = out.len();
        self.pass += 1;
        if self.progress.len() < state.queue.classes.len() {
            self.add_classes(state.queue.classes.len());
        }
        self.next = None;
        self.heap.clear();
        self.harmful.clear();
        self.blocked.clear();
        self.blocked.resize(state.queue.groups.len(), None);
        self.heads.resize(state.queue.groups.len(), Key::NONE);
        self.stopped.clear();
        self.stopped.resize(state.queue.groups.len(), false);
        self.limited = state.queues.any_limited();
        self.longest = state.longest(now);
        self.now = now;
        self.work = 0;
        self.open.clear();
        self.open.resize(state.queue.groups.len(), self.limited);
        for group in (0..self.blocked.len()).map(GroupId::from_usize) {
            if self.limited {
                self.enter_all(state, group);
            } else {
                self.enter_first(state, group);
            }
        }
        while out.len() < max {
            let Some(Offer { key, class }) = self.take() else {
                break;
            };
            let progress = self.progress(class);
            if progress.entry != key {
                continue;
            }
            progress.entry = Key::NONE;
            if let Err(reason) = state.possible(class) {
                let group = state.queue.classes[class.index()].group;
                out.push(state.deny(key, &reason));
                self.next(state, policy, group, class, key, now);
                continue;
            }
            self.work += VISIT_WORK;
            self.visit(state, policy, Offer { key, class }, now, out);
        }
        state.work += self.work;
        out.len() > before
    }

    /// Visits one job.
    fn visit<P: Backfill>(
        &mut self,
        state: &mut EngineState,
        policy: &mut P,
        Offer { key, class }: Offer,
        now: f64,
        out: &mut Vec<Decision>,
    ) {
        let known = &state.queue.classes[class.index()];
        let (group, queue, shape) = (known.group, known.queue, known.shape);
        let behind = self.blocked[group.index()];
        if behind == Some(Later::Nothing) {
            return;
        }
        let requested = state.limit(key.handle());
        let limit = requested.min(self.longest);
        if self.limited
            && let Err(reached) = state.may_run(shape, queue)
        {
            self.leave_pending(class, Cause::QueueFull(reached));
            if behind != Some(Later::Fitting)
                && policy.judge_reservation(state, GroupedClass { group, class }, key)
            {
                self.block(state, policy, Offer { key, class }, limit);
            } else {
                self.stopped[group.index()] = true;
            }
            return;
        }
        let verdict = if behind.is_some() {
            policy.judge(state, GroupedClass { group, class }, key, limit)
        } else {
            match policy.place(state, GroupedClass { group, class }, key, limit) {
                Some(shares) => Verdict::Start(shares),
                None => Verdict::Pending(Cause::Unfit),
            }
        };
        let shares = match verdict {
            Verdict::Start(shares) => shares,
            Verdict::Pending(cause) => {
                let Some(by) = cause.latest_end() else {
                    let passes = P::PASSES_UNREACHABLE && behind != Some(Later::Fitting);
                    if passes && !state.check_reachable(shape) {
                        return self.pass_over(state, group, class);
                    }
                    self.leave_pending(class, cause);
                    self.block(state, policy, Offer { key, class }, limit);
                    return;
                };
                self.leave_pending(class, cause);
                if !self.block(state, policy, Offer { key, class }, limit) {
                    self.progress(class).mode = Mode::Short(by);
                    if let Cause::Delays {
                        transient: true, ..
                    } = cause
                    {
                        self.harmful.push(class);
                    }
                    self.next(state, policy, group, class, key, now);
                }
                return;
            }
        };
        if self.limited
            && let Err(reached) = state.may_take(queue, &shares)
        {
            self.stopped[group.index()] = true;
            // Behind a blocked job, another allocation may be within the limits.
            let cause = match behind {
                None => Cause::QueueFull(reached),
                Some(_) => Cause::Behind,
            };
            self.leave_pending(class, cause);
            return;
        }
        match state.end_after(requested, now) {
            Ok(end) => {
                policy.admit(state, GroupedClass { group, class }, limit, &shares);
                state.start(key.handle(), shares, now, end);
                out.push(Decision::Alloc {
                    id: key.id(),
                    backfilled: behind.is_some() || self.stopped[group.index()],
                });
                if behind.is_some() {
                    self.soften(state, policy, key);
                }
            }
            Err(reason) => out.push(state.deny(key, &reason)),
        }
        self.next(state, policy, group, class, key, now);
    }

    /// Skips a class that needs nodes that are down; it blocks no other.
    fn pass_over(&mut self, state: &EngineState, group: GroupId, class: ClassId) {
        self.stopped[group.index()] = true;
        self.leave_pending(class, Cause::Unreachable);
        if !std::mem::replace(&mut self.open[group.index()], true)
            && self.blocked[group.index()].is_none()
        {
            self.enter_all(state, group);
            self.progress(class).entry = Key::NONE;
        }
    }

    /// Records that a job is blocked. Returns whether the next job of its class has been offered.
    fn block<P: Backfill>(
        &mut self,
        state: &mut EngineState,
        policy: &mut P,
        Offer { key, class }: Offer,
        limit: f64,
    ) -> bool {
        let group = state.queue.classes[class.index()].group;
        let before = self.blocked[group.index()];
        if before == Some(Later::Fitting) {
            return false;
        }
        let later = policy.block(state, GroupedClass { group, class }, key, limit);
        self.blocked[group.index()] = Some(later);
        if before.is_none() {
            self.heads[group.index()] = key;
        }
        if before.is_none() && !self.open[group.index()] {
            match later {
                Later::Nothing => {}
                Later::Fitting => self.enter_fitting(state, group),
                Later::Everything => self.enter_all(state, group),
            }
        }
        if later != Later::Everything {
            return false;
        }
        self.progress(class).mode = Mode::Behind;
        let next = state.queue.after(class, key, |_| true);
        self.offer(class, next);
        true
    }

    /// Offers the next job after one of this class has been visited.
    fn next<P: Backfill>(
        &mut self,
        state: &mut EngineState,
        policy: &P,
        group: GroupId,
        class: ClassId,
        key: Key,
        now: f64,
    ) {
        if self.blocked[group.index()].is_none() && !self.open[group.index()] {
            return self.enter_first(state, group);
        }
        let longest = self.longest;
        let queue = &mut state.queue;
        let known = &queue.classes[class.index()];
        let next = match self.progress(class).mode {
            Mode::All => known.first_within(|_| true),
            Mode::Short(by) => {
                known.first_within(|limit| now + policy.length(limit.min(longest)) <= by)
            }
            Mode::Behind => queue.after(class, key, |_| true),
        };
        self.offer(class, next);
    }

    /// Judges the classes that would have delayed a reservation again, after a job has started.
    fn soften<P: Backfill>(&mut self, state: &mut EngineState, policy: &mut P, key: Key) {
        let mut index = 0;
        while let Some(class) = self.harmful.get(index).copied() {
            self.work += VISIT_WORK;
            let group = state.queue.classes[class.index()].group;
            match policy.judge(state, GroupedClass { group, class }, key, f64::INFINITY) {
                Verdict::Pending(Cause::Delays { .. } | Cause::DelaysByLimit { .. }) => {
                    index += 1;
                    continue;
                }
                Verdict::Pending(_) => {}
                Verdict::Start(_) => {
                    self.progress(class).mode = Mode::Behind;
                    let next = state.queue.after(class, key, |_| true);
                    self.offer(class, next);
                }
            }
            self.harmful.swap_remove(index);
        }
    }
}

/// A pass with the policy that decided in it.
pub(super) struct PassOf<'a, P> {
    pub pass: &'a QueuePass,
    pub policy: &'a P,
}

impl<P: Backfill> LastPass for PassOf<'_, P> {
    fn head(&self, group: GroupId) -> Option<Key> {
        self.pass.head(group)
    }

    fn cause(&self, state: &mut EngineState, of: GroupedClass, key: Key) -> Option<Cause> {
        let reserved = self.policy.reserved(state, of.group, key);
        if let Some(at) = reserved.filter(|at| at.is_finite()) {
            return Some(Cause::Reserved { at });
        }
        let limit = state.limit(key.handle());
        let ends_by = |by| self.pass.ends_by(self.policy, limit, by);
        let cause = self.pass.cause(of, ends_by)?;
        let cause = completed(state, of.class, cause, |state, shares| {
            self.policy.interference(state, of.group, shares)
        });
        // The pass does not visit a job that cannot fit, so it may not have found out why.
        let shape = state.queue.classes[of.class.index()].shape;
        let passes = P::PASSES_UNREACHABLE && cause == Cause::Unfit;
        Some(if passes && !state.check_reachable(shape) {
            Cause::Unreachable
        } else {
            cause
        })
    }
}
