//! EASY backfill: the blocked head of each group of queues has a shadow time, the earliest at which
//! it can start as planned. Later jobs start if they end by then, or take only what is spare.

use super::shadow::{Overlay, Shadow};
use super::walk::{Backfill, Later};
use crate::books::Books;
use crate::ids::{ClassId, GroupId};
use crate::machine::{Allocation, ShapeId, Size};
use crate::plan::length;
use crate::queue::{Key, QueueId};
use crate::quotas::Quotas;
use crate::timeline::Timeline;
use crate::verdict::{Cause, Verdict};

/// The blocked head of a group.
#[derive(Clone, Copy, Debug, Default)]
struct First {
    shape: Option<ShapeId>,
    id: u64,
    class: ClassId,
    /// Computed when a later job fits.
    shadow: Option<Shadow>,
    /// Expected counters of the books if only this policy has started jobs since the shadow was
    /// computed.
    starts: u64,
    changes: u64,
}

/// The state of the policy, by group. Shadows are reused in the next pass as long as running jobs
/// end as planned and only the jobs counted have started.
#[derive(Clone, Debug, Default)]
pub(crate) struct Easy {
    firsts: Vec<First>,
    /// The blocked heads of the former pass, if their shadows may still hold.
    before: Vec<First>,
    overlays: Vec<Overlay>,
    /// By group: what the limits leave beside the blocked head, if its queue has limits and they
    /// were needed.
    quotas: Vec<Option<Quotas>>,
    /// Per group: the blocked head at the last shadow computation, and that shadow time.
    told: Vec<Option<(u64, f64)>>,
    now: f64,
}

impl Easy {
    /// Prepares a pass.
    pub fn begin(&mut self, books: &mut Books, now: f64) {
        let groups = books.queue.groups.len();
        let freed = books.freed.take();
        let as_planned = freed.is_none_or(|(first, last)| first > self.now && last <= now);
        let ends = books.timeline.as_ref().and_then(Timeline::first);
        let steady = as_planned && ends.is_none_or(|it| it.end > now);
        self.told.resize(groups, None);
        for (group, told) in (0_u32..).zip(&mut self.told) {
            *told = Self::told(&self.firsts, *told, GroupId::new(group));
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

    fn told(firsts: &[First], before: Option<(u64, f64)>, group: GroupId) -> Option<(u64, f64)> {
        let first = firsts.get(group.index())?;
        first.shape?;
        let now = first.shadow.map(|shadow| (first.id, shadow.time));
        now.or(before.filter(|it| it.0 == first.id))
    }

    /// When the blocked head of a group can start as planned; infinite if no planned end lets it.
    /// `None` if nothing waits. Recomputed if the pass had no use for it.
    pub fn start_of_head(&self, books: &mut Books, group: GroupId) -> Option<f64> {
        let first = self.firsts.get(group.index())?;
        let shape = first.shape?;
        let shadow = first.shadow;
        let shadow =
            shadow.unwrap_or_else(|| Shadow::of(books, shape, self.now, &mut Overlay::default()));
        Some(shadow.time)
    }

    /// How many units of the blocked head's shape shares would take away at its shadow time, and how
    /// many can be spared then; `None` if the pass had no use for the shadow time.
    pub fn interference(
        &self,
        books: &Books,
        group: GroupId,
        shares: &Allocation,
    ) -> Option<(u64, u64)> {
        let shadow = self.firsts.get(group.index())?.shadow?;
        let overlay = self.overlays.get(group.index())?;
        Some((shadow.cost(&books.machine, overlay, shares), shadow.spare))
    }

    fn shadow(&mut self, books: &mut Books, group: GroupId) -> Option<Shadow> {
        let first = &mut self.firsts[group.index()];
        if first.shadow.is_none() {
            let overlay = &mut self.overlays[group.index()];
            first.shadow = Some(Shadow::of(books, first.shape?, self.now, overlay));
        }
        first.shadow
    }
}

impl Easy {
    /// Whether a job has to leave room in the limits of its queue: the blocked head is of the same
    /// queue, and the job may still run when it is to start.
    fn shares_quota(&self, books: &Books, (group, class): (GroupId, ClassId), limit: f64) -> bool {
        let first = &self.firsts[group.index()];
        let queue = |class: ClassId| -> QueueId { books.queue.classes[class.index()].queue };
        books.queues.is_limited(queue(class))
            && queue(first.class) == queue(class)
            && first
                .shadow
                .is_none_or(|shadow| !shadow.sees_end(self.now, limit))
    }

    /// Whether a class may cost no more units than are spare on some nodes: each spare unit admits
    /// as many cores as the largest node has.
    fn may_spare(&mut self, books: &Books, group: GroupId, shadow: Shadow, class: ClassId) -> bool {
        let machine = &books.machine;
        let shape = books.queue.classes[class.index()].shape;
        let room = if shadow.fungible {
            shadow.spare
        } else {
            let harmless = shadow.room(machine, &mut self.overlays[group.index()]);
            let most = shadow.spare.saturating_mul(machine.max_cores_per_node());
            harmless.saturating_add(most)
        };
        machine.request(shape).total_cores() <= room
    }

    /// Whether as many cores as a class needs can be taken at no cost, or are spare if any core is
    /// a unit. Otherwise it costs at least one unit of the shadow, or more than are spare.
    fn has_room(&mut self, books: &Books, group: GroupId, shadow: Shadow, class: ClassId) -> bool {
        let machine = &books.machine;
        let shape = books.queue.classes[class.index()].shape;
        let room = if shadow.fungible {
            shadow.spare
        } else {
            shadow.room(machine, &mut self.overlays[group.index()])
        };
        machine.request(shape).total_cores() <= room
    }
}

impl Backfill for Easy {
    fn keeps(&mut self, books: &mut Books, (group, class): (GroupId, ClassId), key: Key) -> bool {
        let told = self.told[group.index()].filter(|it| it.0 == key.id() && it.1.is_finite());
        told.is_some_and(|(_, at)| Quotas::new(self.now).leaves_by(books, class, at))
    }

    fn wait(
        &mut self,
        books: &mut Books,
        (group, class): (GroupId, ClassId),
        key: Key,
        _: f64,
    ) -> Later {
        let shape = Some(books.queue.classes[class.index()].shape);
        let before = self.before[group.index()];
        let holds = before.shape == shape
            && (before.starts, before.changes) == (books.starts, books.changes)
            && before
                .shadow
                .is_some_and(|it| it.time.is_finite() && it.time > self.now);
        self.firsts[group.index()] = First {
            shape,
            id: key.id(),
            class,
            shadow: before.shadow.filter(|_| holds),
            starts: books.starts,
            changes: books.changes,
        };
        Later::Fitting
    }

    fn judge(
        &mut self,
        books: &mut Books,
        (group, class): (GroupId, ClassId),
        _: Key,
        limit: f64,
    ) -> Verdict {
        if !self.shares_quota(books, (group, class), limit) {
            return self.find(books, (group, class), limit);
        }
        let Some(shadow) = self.shadow(books, group) else {
            return Verdict::Pending(Cause::Unfit);
        };
        let known = self.quotas[group.index()].take();
        let first = self.firsts[group.index()].class;
        let mut quotas = known.unwrap_or_else(|| shadow.quotas(books, first, self.now));
        let mut verdict = Verdict::Pending(Cause::Unfit);
        let placed = quotas.place(books, class, limit, |books| {
            match self.find(books, (group, class), limit) {
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
            Some(Err(by)) => Verdict::Pending(Cause::DelaysByLimit { by }),
        }
    }

    fn admit(
        &mut self,
        books: &Books,
        (group, class): (GroupId, ClassId),
        limit: f64,
        shares: &Allocation,
    ) {
        let first = &mut self.firsts[group.index()];
        if first.shape.is_none() {
            return;
        }
        first.starts += 1;
        if let Some(quotas) = &mut self.quotas[group.index()] {
            let queue = books.queue.classes[class.index()].queue;
            quotas.take(queue, shares, (self.now, self.now + length(limit)));
        }
        let Some(shadow) = &mut first.shadow else {
            return;
        };
        let overlay = &mut self.overlays[group.index()];
        let back = shadow.sees_end(self.now, limit);
        if !back {
            let cost = shadow.cost(&books.machine, overlay, shares);
            shadow.spare = shadow.spare.saturating_sub(cost);
        }
        shadow.settle(&books.machine, overlay, shares, back);
    }
}

impl Easy {
    /// As [`judge`](Backfill::judge), without regard to the limits of queues.
    fn find(
        &mut self,
        books: &mut Books,
        (group, class): (GroupId, ClassId),
        limit: f64,
    ) -> Verdict {
        if let Some(shadow) = self.firsts[group.index()].shadow
            && !shadow.sees_end(self.now, limit)
            && !self.may_spare(books, group, shadow, class)
        {
            return Verdict::Pending(Cause::Delays {
                by: shadow.bound(),
                // Spare cores do not increase.
                transient: !shadow.fungible,
            });
        }
        let Some(shares) = books.place(class) else {
            return Verdict::Pending(Cause::Unfit);
        };
        let Some(shadow) = self.shadow(books, group) else {
            return Verdict::Pending(Cause::Unfit);
        };
        if shadow.sees_end(self.now, limit) {
            return Verdict::Start(shares);
        }
        let has_room = self.has_room(books, group, shadow, class);
        let overlay = &mut self.overlays[group.index()];
        let (machine, shape) = (&mut books.machine, books.queue.classes[class.index()].shape);
        if shadow.cost(machine, overlay, &shares) <= shadow.spare {
            return Verdict::Start(shares);
        }
        if shadow.fungible {
            // The cost is the same on any nodes, unless the amount depends on the nodes.
            let request = machine.request(shape);
            let transient = request.exclusive || !request.is_exact();
            if !request.is_exact() {
                let cores = shadow.spare;
                let cap = Size {
                    cores,
                    ..Size::UNLIMITED
                };
                if let Some(less) = books.place_within(class, cap) {
                    return Verdict::Start(less);
                }
            }
            let by = shadow.bound();
            return Verdict::Pending(Cause::Delays { by, transient });
        }
        let beside = has_room.then(|| shadow.place_beside(machine, overlay, shape));
        match beside.flatten() {
            Some(shares) => Verdict::Start(shares),
            None => Verdict::Pending(Cause::Delays {
                by: shadow.bound(),
                transient: true,
            }),
        }
    }
}
