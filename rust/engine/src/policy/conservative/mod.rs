//! Conservative backfill: every pending job has a reservation, made at the earliest time that
//! delays no earlier reservation. When something becomes free earlier than planned, the next
//! reservations, in the order of their starts, are each moved to the earliest time with all others
//! kept, until none moves; of those farther away, the ones that can start at once. A reservation
//! moves later only if running jobs outrun their limits, or nodes are lost. If a job starts less
//! than a quarter of a second late because its nodes were not free on time, others are moved only
//! if it is still running when its planned end has passed.
//!
//! A job that starts gets what the selection policy picks, as far as no other job has reserved it.
//! What it had reserved itself is then free, as if a job had ended early.
//!
//! The plan is updated from pass to pass. A reservation can only move to where something has become
//! free since it was last examined, so most are not examined.

mod freed_intervals;
mod pass;
mod reservation;
mod reservations;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use self::pass::{JobDecision, Waiting};
use self::reservations::Reserved;
use crate::books::Books;
use crate::decision::Decision;
use crate::ids::{ClassId, GroupId};
use crate::machine::Relocation;
use crate::plan::{IncrementalPlan, length};
use crate::queue::{Key, QueueId};
use crate::quotas::Quotas;
use crate::verdict::Cause;

/// The reservations of all groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conservative {
    /// Shared with snapshots until either side makes a pass.
    groups: Vec<Arc<Reserved>>,
    /// The time of the last pass.
    now: f64,
    /// When the first reservation is due.
    next: f64,
}

impl Conservative {
    /// The reserved start of a job.
    pub fn start(&self, id: u64) -> Option<f64> {
        let found = self.groups.iter().find_map(|it| it.by_id.get(&id));
        found.map(|it| it.start)
    }

    /// Whether no reservation of the last pass is due by a time.
    pub fn is_before_reservations(&self, now: f64) -> bool {
        self.next > now
    }

    /// The first job of a group that the last pass left pending, except jobs that the limits of
    /// their queue or nodes that are down exclude.
    pub fn head(&self, group: GroupId) -> Option<Key> {
        self.groups.get(group.index())?.head
    }

    /// Why the last pass left a job of a class pending; `None` if it would have let it start.
    pub fn cause(
        &self,
        books: &mut Books,
        (group, class): (GroupId, ClassId),
        key: Key,
    ) -> Option<Cause> {
        let reserved = self.groups.get(group.index())?;
        let Some(reservation) = reserved.by_id.get(&key.id()) else {
            return Some(Cause::QueueFull);
        };
        if reservation.start.is_finite() {
            return Some(Cause::Reserved {
                at: reservation.start,
            });
        }
        // No time fits as planned: others have reserved what is free now.
        let plan = &reserved.kept.as_ref()?.plan;
        Some(
            match plan.place(books, class, self.now, reservation.limit) {
                Err(by) if by <= self.now => Cause::Unfit,
                Err(by) => Cause::Delays {
                    by,
                    transient: false,
                },
                Ok(_) => Cause::DelaysByLimit { by: self.now },
            },
        )
    }

    /// The job of a group whose reservation begins closest to a time, and that start; with `queue`
    /// only among its jobs.
    pub fn reservation_at(
        &self,
        group: GroupId,
        (time, queue): (f64, Option<QueueId>),
    ) -> Option<(u64, f64)> {
        let reserved = self.groups.get(group.index())?.by_id.iter();
        let reserved = reserved.filter(|(_, it)| queue.is_none_or(|queue| it.asked.1 == queue));
        let starts = reserved.map(|(id, it)| (*id, it.start));
        let distance = |it: &(u64, f64)| (it.1 - time).abs();
        let starts = starts.filter(|it| it.1.is_finite());
        starts.min_by(|a, b| distance(a).total_cmp(&distance(b)).then(a.0.cmp(&b.0)))
    }

    /// Renumbers the nodes of all reservations.
    pub fn relocate(&mut self, relocation: &Relocation) {
        for reserved in &mut self.groups {
            Arc::make_mut(reserved).relocate(relocation);
        }
    }

    /// Makes one pass.
    pub fn run(&mut self, books: &mut Books, now: f64, max: usize, out: &mut Vec<Decision>) {
        let groups = books.queue.groups.len();
        self.groups.resize_with(groups, Arc::default);
        self.now = now;
        self.next = f64::INFINITY;
        let mut lines: Vec<Vec<Waiting>> = vec![Vec::new(); groups];
        // By group, the first job that its queue has no room for.
        let mut stopped = vec![Key::NONE; groups];
        let mut quotas = Quotas::new(now);
        for key in books.queue.in_order(&books.jobs) {
            if out.len() >= max {
                return;
            }
            let Some((class, limit)) = books.waits(key.handle()) else {
                continue;
            };
            if let Err(reason) = books.possible(class) {
                out.push(books.deny(key, &reason));
                continue;
            }
            let it = &books.queue.classes[class.index()];
            let group = it.group.index();
            let reserved = self.groups[group].by_id.get(&key.id()).map(|it| it.start);
            // It keeps its reservation if the limits of its queue admit it by then.
            if books.may_run(it.shape, it.queue)
                || reserved.is_some_and(|start| quotas.leaves_by(books, class, start))
            {
                let limit = length(limit);
                lines[group].push(Waiting {
                    key,
                    class,
                    limit,
                    start: None,
                });
            } else {
                let first = &mut stopped[group];
                *first = key.min(*first);
            }
        }
        for (group, line) in (0_u32..).zip(lines) {
            let group = GroupId::new(group);
            let reserved = Arc::make_mut(&mut self.groups[group.index()]);
            if line.is_empty() {
                reserved.by_id.clear();
                reserved.kept = None;
                reserved.head = None;
                continue;
            }
            let mut pass = reserved.begin(books, (group, now), line, quotas.clone());
            pass.left = max.saturating_sub(out.len());
            reserved.compress(books, &mut pass);
            while reserved.start_due(books, &mut pass) {
                reserved.compress(books, &mut pass);
            }
            for index in 0..pass.line.len() {
                reserved.come(books, &mut pass, index);
            }
            pass.kept.finish(books);
            reserved.kept = Some(pass.kept);
            let ahead = stopped[group.index()];
            let mut behind = false;
            reserved.head = None;
            for (it, outcome) in pass.line.iter().zip(pass.decisions) {
                match outcome {
                    JobDecision::Pending => {
                        behind = true;
                        let Some(start) = it.start else {
                            continue;
                        };
                        self.next = self.next.min(start);
                        let shape = books.queue.classes[it.class.index()].shape;
                        if reserved.head.is_none() && books.is_reachable(shape) {
                            reserved.head = Some(it.key);
                        }
                    }
                    JobDecision::Stopped => behind = true,
                    JobDecision::Decided(Decision::Alloc { id, .. }) => out.push(Decision::Alloc {
                        id,
                        backfilled: behind || it.key > ahead,
                    }),
                    JobDecision::Decided(denial) => out.push(denial),
                }
            }
        }
        let kept = self.groups.iter().filter_map(|it| it.kept.as_ref());
        let followed = kept.map(IncrementalPlan::next_change).min();
        books
            .allocation_log
            .drop_before(followed.unwrap_or(usize::MAX));
    }
}
