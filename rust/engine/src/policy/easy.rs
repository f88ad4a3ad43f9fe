//! EASY backfill: in each group of queues, the first job that does not fit has a shadow time, the
//! earliest at which it can start as planned. Later jobs start where they end by then, or take
//! only what it leaves over.

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

/// The job of a group that waits.
#[derive(Clone, Copy, Debug, Default)]
struct First {
    shape: Option<ShapeId>,
    id: u64,
    class: ClassId,
    /// Found when a later job fits.
    shadow: Option<Shadow>,
    /// What the books will have counted when nothing has started but by this policy.
    starts: u64,
    changes: u64,
}

/// What the policy knows of each group. Shadows are kept from one pass to the next, as long as
/// running jobs end as planned and nothing starts but what has been counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Easy {
    firsts: Vec<First>,
    /// Those of the pass before, where they may still hold.
    before: Vec<First>,
    overlays: Vec<Overlay>,
    /// By group, where the first is of a queue with limits and they are asked for: what they leave
    /// beside it.
    quotas: Vec<Option<Quotas>>,
    /// By group, the job that was the first when its shadow was looked for last, and that.
    told: Vec<Option<(u64, f64)>>,
    now: f64,
}

impl Easy {
    /// To be called before a pass.
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
    /// Whether a job has to leave room in the limits of its queue: it may still run when the first
    /// one, of the same queue, is to start.
    fn shares_quota(&self, books: &Books, (group, class): (GroupId, ClassId), limit: f64) -> bool {
        let first = &self.firsts[group.index()];
        let queue = |class: ClassId| -> QueueId { books.queue.classes[class.index()].queue };
        books.queues.is_limited(queue(class))
            && queue(first.class) == queue(class)
            && first
                .shadow
                .is_none_or(|shadow| !shadow.sees_end(self.now, limit))
    }

    /// Whether a class may cost no more units than are spare, wherever it is placed: each lets it
    /// have no more cores than a node has.
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

    /// Whether there may be as many cores as a class needs that do no harm, or that are spare where
    /// any core is a unit. What has no room costs one of the shadow's units at least, or more than
    /// are spare.
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
    /// As [`judge`](Backfill::judge), whatever the limits of queues are to leave.
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
                // Spare cores get no more.
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
            // What a placement costs is the same wherever it is, unless the nodes say how much
            // it takes.
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
