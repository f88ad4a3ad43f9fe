//! The reservations of the first jobs in line, as a hybrid policy makes them in a pass.

use crate::books::Books;
use crate::plan::{Hold, Plan, length};
use crate::policy::Scratch;
use crate::queue::{Key, QueueId};
use crate::quotas::Quotas;

/// A job with a reservation.
#[derive(Debug)]
struct Reserved {
    key: Key,
    class: u32,
    start: f64,
    end: f64,
    hold: Hold,
}

/// The reservations of a group of queues.
#[derive(Debug)]
pub(super) struct Ahead {
    line: Vec<Reserved>,
    /// The running jobs alone, and with the reservations.
    running: Plan,
    planned: Plan,
    /// What the limits of queues leave beside the reservations.
    quotas: Quotas,
}

/// A reservation that a job would disturb.
#[derive(Clone, Copy, Debug)]
pub(super) struct Disturbed {
    pub key: Key,
    /// When it begins.
    pub at: f64,
    /// The queue of both, where its limits do not leave enough for both.
    pub limit: Option<QueueId>,
}

impl Ahead {
    /// The reservations of these jobs, given in order with their classes: those of the last pass, or
    /// what they would be.
    pub fn of(
        books: &mut Books,
        scratch: &Scratch,
        group: u32,
        jobs: &[(Key, u32)],
        now: f64,
    ) -> Self {
        let running = Plan::of(books, group, now);
        let mut planned = running.clone();
        let mut quotas = Quotas::new(now);
        let mut line = Vec::new();
        for (key, class) in jobs {
            let limit = length(books.limit(key.handle()));
            let machine = &books.machine;
            let made = scratch.reservation(books, key.id());
            let made = made.filter(|(start, hold)| {
                *start > now && planned.has_room(machine, hold, (*start, *start + limit))
            });
            let made =
                made.filter(|(start, hold)| quotas.leaves(books, *class, hold, (*start, limit)));
            let (start, hold) = if let Some((start, hold)) = made {
                (start, hold.clone())
            } else {
                let within = (now, f64::INFINITY);
                quotas.earliest_in(&mut planned, books, *class, within, limit)
            };
            let end = start + limit;
            if start.is_finite() {
                planned.hold(&hold, (start, end), false);
                quotas.reserve(books, *class, &hold, (start, end), false);
            }
            line.push(Reserved {
                key: *key,
                class: *class,
                start,
                end,
                hold,
            });
        }
        Self {
            line,
            running,
            planned,
            quotas,
        }
    }

    /// When a job is to start; infinite where it never can. `None` where it has no reservation.
    pub fn start(&self, key: Key) -> Option<f64> {
        let found = self.line.iter().find(|it| it.key == key);
        found.map(|it| it.start)
    }

    /// The first reservation that a job of a class would disturb.
    pub fn disturbed(
        &mut self,
        books: &mut Books,
        class: u32,
        now: f64,
        limit: f64,
    ) -> Option<Disturbed> {
        let placed = self
            .quotas
            .place_in(&self.planned, books, class, length(limit));
        if placed.is_ok() {
            return None;
        }
        let queue = books.queue.classes[class as usize].queue;
        let mut quotas = Quotas::new(now);
        let mut plan = self.running.clone();
        for it in self.line.iter().filter(|it| it.start.is_finite()) {
            plan.hold(&it.hold, (it.start, it.end), false);
            quotas.reserve(books, it.class, &it.hold, (it.start, it.end), false);
            let by_place = plan.place(books, class, now, length(limit)).is_err();
            let placed = quotas.place_in(&plan, books, class, length(limit));
            if by_place || placed.is_err() {
                return Some(Disturbed {
                    key: it.key,
                    at: it.start,
                    limit: (!by_place).then_some(queue),
                });
            }
        }
        None
    }
}
