//! EASY backfill: the blocked head of each group of queues has a shadow time, the earliest at which
//! it can start as planned. Later jobs start if they end by then, or take only spare units.

use penstock_jobspec::job_id::JobId;

use super::queue_pass::{Backfill, Later};
use super::shadow::{AtShadowTime, Overlay, Shadow};
use crate::availability_profile::Interval;
use crate::ids::{ClassId, GroupId, GroupedClass, QueueId};
use crate::node_table::{Allocation, ShapeId, Size};
use crate::plan::length;
use crate::queue::Key;
use crate::quotas::Quotas;
use crate::state::EngineState;
use crate::timeline::Timeline;
use crate::verdict::{Cause, Interference, ReservedStart, Verdict};

/// The blocked head of a group.
#[derive(Clone, Copy, Debug, Default)]
struct First {
    shape: Option<ShapeId>,
    id: JobId,
    class: ClassId,
    /// Computed when a later job fits.
    shadow: Option<Shadow>,
    /// Expected `starts` and `changes` of the state if only this policy has started jobs since the
    /// shadow was computed.
    starts: u64,
    changes: u64,
}

impl First {
    /// Its shadow time; if that has not been computed, the one that it had before.
    fn start_or(&self, before: Option<ReservedStart>) -> Option<ReservedStart> {
        self.shape?;
        let computed = self.shadow.map(|shadow| self.start_at(shadow));
        computed.or(before.filter(|before| before.job == self.id))
    }

    /// Its start as planned, given its shadow.
    fn start_at(&self, shadow: Shadow) -> ReservedStart {
        ReservedStart {
            job: self.id,
            start: shadow.time,
        }
    }
}

/// The state of the policy, by group. Shadows are reused in the next pass if running jobs have
/// ended as planned and only the counted jobs have started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Easy {
    firsts: Vec<First>,
    /// The blocked heads of the former pass, if their shadows may still hold.
    before: Vec<First>,
    overlays: Vec<Overlay>,
    /// By group: the quotas left beside the blocked head, if its queue has limits and they were
    /// needed.
    quotas: Vec<Option<Quotas>>,
    /// By group: the blocked head at the last shadow computation, with that shadow time.
    former_heads: Vec<Option<ReservedStart>>,
    now: f64,
}

impl Easy {
    /// Prepares a pass.
    pub fn begin(&mut self, state: &mut EngineState, now: f64) {
        let groups = state.queue.groups.len();
        let freed = state.freed.take();
        let as_planned = freed.is_none_or(|ends| ends.first > self.now && ends.last <= now);
        let ends = state.timeline.as_ref().and_then(Timeline::first);
        let steady = as_planned && ends.is_none_or(|ending| ending.end > now);
        self.former_heads.resize(groups, None);
        for (index, former) in self.former_heads.iter_mut().enumerate() {
            let first = self.firsts.get(index);
            *former = first.and_then(|first| first.start_or(*former));
        }
        std::mem::swap(&mut self.firsts, &mut self.before);
        if !steady {
            self.before.clear();
        }
        self.before.resize(groups, First::default());
        self.firsts.clear();
        self.firsts.resize(groups, First::default());
        self.overlays.resize_with(groups, Overlay::default);
        self.quotas.clear();
        self.quotas.resize(groups, None);
        self.now = now;
    }

    /// The shadow time of the blocked head of a group; infinite if it cannot start after any
    /// planned end. `None` if there is no blocked head. Recomputed if the pass did not need it.
    fn start_of_head(&self, state: &mut EngineState, group: GroupId) -> Option<f64> {
        let first = self.firsts.get(group.index())?;
        let shape = first.shape?;
        let shadow = first.shadow;
        let shadow =
            shadow.unwrap_or_else(|| Shadow::of(state, shape, self.now, &mut Overlay::default()));
        Some(shadow.time)
    }

    fn shadow(&mut self, state: &mut EngineState, group: GroupId) -> Option<Shadow> {
        let first = &mut self.firsts[group.index()];
        if first.shadow.is_none() {
            let overlay = &mut self.overlays[group.index()];
            first.shadow = Some(Shadow::of(state, first.shape?, self.now, overlay));
        }
        first.shadow
    }
}

impl Easy {
    /// Whether a job has to leave room in the limits of its queue: the blocked head is of the same
    /// queue, and the job may still run at the shadow time.
    fn shares_quota(
        &self,
        state: &EngineState,
        GroupedClass { group, class }: GroupedClass,
        limit: f64,
    ) -> bool {
        let first = &self.firsts[group.index()];
        let queue = |class: ClassId| -> QueueId { state.queue.classes[class.index()].queue };
        state.queues.is_limited(queue(class))
            && queue(first.class) == queue(class)
            && first
                .shadow
                .is_none_or(|shadow| !shadow.sees_end(self.now, limit))
    }

    /// Estimates whether a class costs no more units than are spare on some nodes: each spare unit
    /// admits as many cores as the largest node has.
    fn estimate_spare(
        &mut self,
        state: &EngineState,
        group: GroupId,
        shadow: Shadow,
        class: ClassId,
    ) -> bool {
        let node_table = &state.node_table;
        let shape = state.queue.classes[class.index()].shape;
        let room = if shadow.fungible {
            shadow.spare
        } else {
            let harmless = shadow.room(node_table, &mut self.overlays[group.index()]);
            let most = shadow.spare.saturating_mul(node_table.max_cores_per_node());
            harmless.saturating_add(most)
        };
        node_table.request(shape).total_cores() <= room
    }

    /// Whether a class may fit without delaying the blocked head. False is definite: the class costs
    /// at least one unit of the shadow, or more than are spare.
    fn check_room(
        &mut self,
        state: &EngineState,
        group: GroupId,
        shadow: Shadow,
        class: ClassId,
    ) -> bool {
        let node_table = &state.node_table;
        let shape = state.queue.classes[class.index()].shape;
        let room = if shadow.fungible {
            shadow.spare
        } else {
            shadow.room(node_table, &mut self.overlays[group.index()])
        };
        node_table.request(shape).total_cores() <= room
    }
}

impl Backfill for Easy {
    fn judge_reservation(
        &mut self,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        key: Key,
    ) -> bool {
        self.former_heads[group.index()]
            .filter(|head| head.job == key.id() && head.start.is_finite())
            .is_some_and(|head| Quotas::new(self.now).check_left_by(state, class, head.start))
    }

    fn block(
        &mut self,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        key: Key,
        _: f64,
    ) -> Later {
        let shape = Some(state.queue.classes[class.index()].shape);
        let before = self.before[group.index()];
        let holds = before.shape == shape
            && (before.starts, before.changes) == (state.starts, state.changes)
            && before
                .shadow
                .is_some_and(|shadow| shadow.time.is_finite() && shadow.time > self.now);
        self.firsts[group.index()] = First {
            shape,
            id: key.id(),
            class,
            shadow: before.shadow.filter(|_| holds),
            starts: state.starts,
            changes: state.changes,
        };
        Later::Fitting
    }

    fn judge(
        &mut self,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        _: Key,
        limit: f64,
    ) -> Verdict {
        if !self.shares_quota(state, GroupedClass { group, class }, limit) {
            return self.find(state, GroupedClass { group, class }, limit);
        }
        let Some(shadow) = self.shadow(state, group) else {
            return Verdict::Pending(Cause::Unfit);
        };
        let known = self.quotas[group.index()].take();
        let first = self.firsts[group.index()];
        let mut quotas = known.unwrap_or_else(|| shadow.quotas(state, first.class, self.now));
        let mut verdict = Verdict::Pending(Cause::Unfit);
        let placed = quotas.place(state, class, limit, |state| {
            match self.find(state, GroupedClass { group, class }, limit) {
                Verdict::Start(shares) => Some(shares),
                pending @ Verdict::Pending(_) => {
                    verdict = pending;
                    None
                }
            }
        });
        self.quotas[group.index()] = Some(quotas);
        match placed {
            None => verdict,
            Some(Ok(shares)) => Verdict::Start(shares),
            Some(Err(by)) => Verdict::Pending(Cause::DelaysByLimit {
                delayed: first.start_at(shadow),
                by,
            }),
        }
    }

    fn reserved(&self, state: &mut EngineState, group: GroupId, key: Key) -> Option<f64> {
        let first = self.firsts.get(group.index())?;
        (first.shape.is_some() && first.id == key.id())
            .then(|| self.start_of_head(state, group))
            .flatten()
    }

    fn interference(
        &self,
        state: &EngineState,
        group: GroupId,
        shares: &Allocation,
    ) -> Option<Interference> {
        let shadow = self.firsts.get(group.index())?.shadow?;
        let overlay = self.overlays.get(group.index())?;
        shadow.interference(&state.node_table, overlay, shares)
    }

    fn admit(
        &mut self,
        state: &EngineState,
        GroupedClass { group, class }: GroupedClass,
        limit: f64,
        shares: &Allocation,
    ) {
        let first = &mut self.firsts[group.index()];
        if first.shape.is_none() {
            return;
        }
        first.starts += 1;
        if let Some(quotas) = &mut self.quotas[group.index()] {
            let queue = state.queue.classes[class.index()].queue;
            quotas.take(queue, shares, Interval::lasting(self.now, length(limit)));
        }
        let Some(shadow) = &mut first.shadow else {
            return;
        };
        let overlay = &mut self.overlays[group.index()];
        let then = if shadow.sees_end(self.now, limit) {
            AtShadowTime::Released
        } else {
            let cost = shadow.cost(&state.node_table, overlay, shares);
            shadow.spare = shadow.spare.saturating_sub(cost);
            AtShadowTime::Allocated
        };
        shadow.update_overlay(&state.node_table, overlay, shares, then);
    }
}

impl Easy {
    /// As [`judge`](Backfill::judge), without regard to the limits of queues.
    fn find(
        &mut self,
        state: &mut EngineState,
        GroupedClass { group, class }: GroupedClass,
        limit: f64,
    ) -> Verdict {
        let first = self.firsts[group.index()];
        if let Some(shadow) = first.shadow
            && !shadow.sees_end(self.now, limit)
            && !self.estimate_spare(state, group, shadow, class)
        {
            return Verdict::Pending(Cause::Delays {
                delayed: first.start_at(shadow),
                // Spare cores do not increase.
                transient: !shadow.fungible,
                interference: None,
            });
        }
        let Some(shares) = state.place(class) else {
            return Verdict::Pending(Cause::Unfit);
        };
        let Some(shadow) = self.shadow(state, group) else {
            return Verdict::Pending(Cause::Unfit);
        };
        if shadow.sees_end(self.now, limit) {
            return Verdict::Start(shares);
        }
        let has_room = self.check_room(state, group, shadow, class);
        let overlay = &mut self.overlays[group.index()];
        let (node_table, shape) = (
            &mut state.node_table,
            state.queue.classes[class.index()].shape,
        );
        let interference = shadow.interference(node_table, overlay, &shares);
        if interference.is_none() {
            return Verdict::Start(shares);
        }
        if shadow.fungible {
            // The cost is the same on any nodes, unless the amount depends on the nodes.
            let request = node_table.request(shape);
            let transient = request.exclusive || !request.is_exact();
            if !request.is_exact() {
                let cores = shadow.spare;
                let cap = Size {
                    cores,
                    ..Size::UNLIMITED
                };
                if let Some(less) = state.place_within(class, cap) {
                    return Verdict::Start(less);
                }
            }
            return Verdict::Pending(Cause::Delays {
                delayed: first.start_at(shadow),
                transient,
                interference,
            });
        }
        let beside = has_room.then(|| shadow.place_beside(node_table, overlay, shape));
        match beside.flatten() {
            Some(shares) => Verdict::Start(shares),
            None => Verdict::Pending(Cause::Delays {
                delayed: first.start_at(shadow),
                transient: true,
                interference,
            }),
        }
    }
}
