//! The reservations of the first jobs in line, as a hybrid policy makes them in a pass.

use crate::books::Books;
use crate::plan::{Hold, Plan, length};
use crate::policy::Scratch;
use crate::queue::Key;

/// A job with a reservation.
#[derive(Debug)]
struct Reserved {
    key: Key,
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
        let mut line = Vec::new();
        for (key, class) in jobs {
            let limit = length(books.limit(key.handle()));
            let shape = books.queue.classes[*class as usize].shape;
            let machine = &books.machine;
            let made = scratch.reservation(key.id());
            let made = made.filter(|(start, hold)| {
                *start > now && planned.has_room(machine, hold, (*start, *start + limit))
            });
            let (start, hold) = match made {
                Some((start, hold)) => (start, hold.clone()),
                None => planned.earliest(machine, shape, now, limit),
            };
            let end = start + limit;
            if start.is_finite() {
                planned.hold(machine, &hold, (start, end), false);
            }
            line.push(Reserved {
                key: *key,
                start,
                end,
                hold,
            });
        }
        Self {
            line,
            running,
            planned,
        }
    }

    /// When a job is to start; infinite where it never can. `None` where it has no reservation.
    pub fn start(&self, key: Key) -> Option<f64> {
        let found = self.line.iter().find(|it| it.key == key);
        found.map(|it| it.start)
    }

    /// The first reservation that a job of a class would disturb, and when it begins.
    pub fn disturbed(
        &self,
        books: &mut Books,
        class: u32,
        now: f64,
        limit: f64,
    ) -> Option<(Key, f64)> {
        if self.planned.place(books, class, now, limit).is_ok() {
            return None;
        }
        let mut plan = self.running.clone();
        for it in self.line.iter().filter(|it| it.start.is_finite()) {
            plan.hold(&books.machine, &it.hold, (it.start, it.end), false);
            if plan.place(books, class, now, limit).is_err() {
                return Some((it.key, it.start));
            }
        }
        None
    }
}
