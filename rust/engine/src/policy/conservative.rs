//! Conservative backfill: every job that waits has a reservation, at the earliest time that
//! disturbs no other when it comes. When something becomes free earlier than planned, each
//! reservation in order is moved to its earliest time with all others kept, until none moves. One
//! gets later only where running jobs outrun their limits, or nodes are lost.

use std::collections::HashMap;

use crate::books::Books;
use crate::engine::Decision;
use crate::machine::{Machine, Shares};
use crate::plan::{Hold, Plan, length};
use crate::queue::Key;

#[derive(Clone, Debug)]
struct Reservation {
    start: f64,
    hold: Hold,
}

/// A job in line, as a pass sees it.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    key: Key,
    class: u32,
    /// How long it is planned to run.
    limit: f64,
}

/// Reservations of a group of queues.
#[derive(Clone, Debug, Default)]
struct Reserved {
    by_id: HashMap<u64, Reservation, rustc_hash::FxBuildHasher>,
    /// Whether they are units of the whole machine, or parts of nodes.
    in_units: Option<bool>,
    /// When the last pass was, and what the books had seen then.
    last: f64,
    changes: u64,
}

/// The reservations of all groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conservative {
    groups: Vec<Reserved>,
}

impl Conservative {
    /// When a job is to start, where it has a reservation.
    pub fn start(&self, id: u64) -> Option<f64> {
        let found = self.groups.iter().find_map(|it| it.by_id.get(&id));
        found.map(|it| it.start)
    }

    /// One pass.
    pub fn run(&mut self, books: &mut Books, now: f64, max: usize, out: &mut Vec<Decision>) {
        let groups = books.queue.groups.len();
        self.groups.resize_with(groups, Reserved::default);
        let mut lines: Vec<Vec<Waiting>> = vec![Vec::new(); groups];
        // By group, the first that its queue has no room for.
        let mut stopped = vec![Key::NONE; groups];
        for key in books.queue.in_order(&books.jobs) {
            if out.len() >= max {
                return;
            }
            let Some((class, limit)) = books.waits(key.handle()) else {
                continue;
            };
            if let Err(note) = books.possible(class) {
                out.push(books.deny(key, note));
                continue;
            }
            let it = &books.queue.classes[class as usize];
            if books.may_run(it.shape, it.queue) {
                let limit = length(limit);
                lines[it.group as usize].push(Waiting { key, class, limit });
            } else {
                let first = &mut stopped[it.group as usize];
                *first = key.min(*first);
            }
        }
        let freed = books.freed.take();
        for (group, line) in (0_u32..).zip(lines) {
            let reserved = &mut self.groups[group as usize];
            let early = freed.is_some_and(|(first, last)| {
                last > now || (first <= reserved.last && reserved.last + 1.0 > now)
            });
            let changed = reserved.changes != books.changes;
            (reserved.last, reserved.changes) = (now, books.changes);
            if line.is_empty() {
                reserved.by_id.clear();
                continue;
            }
            let plan = Plan::of(books, group, now);
            let plan = reserved.plan(books, plan, &line, now, early || changed);
            let ahead = stopped[group as usize];
            reserved.start_due(books, plan, (&line, ahead), (now, max), out);
        }
    }
}

impl Reserved {
    /// Gives every job a reservation.
    fn plan(
        &mut self,
        books: &Books,
        running: Plan,
        line: &[Waiting],
        now: f64,
        early: bool,
    ) -> Plan {
        let machine = &books.machine;
        let in_units = matches!(running, Plan::Units(_));
        if self.in_units != Some(in_units) {
            self.by_id.clear();
            self.in_units = Some(in_units);
        }
        let mut plan = running.clone();
        let mut kept = 0;
        let mut broken = false;
        for it in line {
            if let Some(reservation) = self.by_id.get(&it.key.id()) {
                kept += 1;
                let start = reservation.start;
                broken |= start < now || !reservation.hold.is_up(machine);
                plan.hold(machine, &reservation.hold, (start, start + it.limit), false);
            }
        }
        let lost = kept < self.by_id.len();
        if lost {
            self.keep(line);
        }
        broken |= plan.is_overfull();
        if broken {
            plan = self.repair(books, running, line, now);
        }
        if broken || lost || early {
            while self.compress(books, &mut plan, line, now) {}
        }
        for it in line {
            self.by_id.entry(it.key.id()).or_insert_with(|| {
                let shape = books.queue.classes[it.class as usize].shape;
                let (start, hold) = plan.earliest(machine, shape, now, it.limit);
                plan.hold(machine, &hold, (start, start + it.limit), false);
                Reservation { start, hold }
            });
        }
        plan
    }

    /// Forgets jobs that are in line no more.
    fn keep(&mut self, line: &[Waiting]) {
        let mut before = std::mem::take(&mut self.by_id);
        for it in line {
            if let Some(reservation) = before.remove(&it.key.id()) {
                self.by_id.insert(it.key.id(), reservation);
            }
        }
    }

    /// Moves later what no longer fits: in order, each as little as possible.
    fn repair(&mut self, books: &Books, mut plan: Plan, line: &[Waiting], now: f64) -> Plan {
        let machine = &books.machine;
        for it in line {
            if let Some(reservation) = self.by_id.get_mut(&it.key.id()) {
                let shape = books.queue.classes[it.class as usize].shape;
                let not_before = reservation.start.max(now);
                let (start, hold) = plan.earliest(machine, shape, not_before, it.limit);
                plan.hold(machine, &hold, (start, start + it.limit), false);
                *reservation = Reservation { start, hold };
            }
        }
        plan
    }

    /// Moves each to its earliest time, all others kept. Returns whether one has moved.
    fn compress(&mut self, books: &Books, plan: &mut Plan, line: &[Waiting], now: f64) -> bool {
        let machine = &books.machine;
        let mut moved = false;
        for it in line {
            let Some(reservation) = self.by_id.get_mut(&it.key.id()) else {
                continue;
            };
            if reservation.start <= now {
                continue;
            }
            let before = (reservation.start, reservation.start + it.limit);
            plan.hold(machine, &reservation.hold, before, true);
            let shape = books.queue.classes[it.class as usize].shape;
            let (start, hold) = plan.earliest(machine, shape, now, it.limit);
            if start < reservation.start {
                *reservation = Reservation { start, hold };
                moved = true;
            }
            let span = (reservation.start, reservation.start + it.limit);
            plan.hold(machine, &reservation.hold, span, false);
        }
        moved
    }

    /// Starts the jobs whose reservation is now. `stopped` is the first that is not in line for
    /// want of room in its queue.
    fn start_due(
        &mut self,
        books: &mut Books,
        mut plan: Plan,
        (line, stopped): (&[Waiting], Key),
        (now, max): (f64, usize),
        out: &mut Vec<Decision>,
    ) {
        let mut behind = false;
        for it in line {
            let Some(reservation) = self.by_id.get(&it.key.id()) else {
                continue;
            };
            if reservation.start > now || out.len() >= max {
                behind = true;
                continue;
            }
            let span = (now, now + it.limit);
            plan.hold(&books.machine, &reservation.hold, span, true);
            let shares = plan.place(books, it.class, now, it.limit);
            let shares = shares
                .ok()
                .or_else(|| picked(&books.machine, &reservation.hold));
            let queue = books.queue.classes[it.class as usize].queue;
            let Some(shares) = shares.filter(|shares| books.may_take(queue, shares)) else {
                plan.hold(&books.machine, &reservation.hold, span, false);
                behind = true;
                continue;
            };
            match books.end(it.key.handle(), now) {
                Ok(end) => {
                    let need = books.queue.classes[it.class as usize].need;
                    let hold = plan.hold_of(need, &shares);
                    plan.hold(&books.machine, &hold, span, false);
                    books.start(it.key.handle(), shares, now, end);
                    out.push(Decision::Alloc {
                        id: it.key.id(),
                        backfilled: behind || it.key > stopped,
                    });
                }
                Err(note) => out.push(books.deny(it.key, note)),
            }
            self.by_id.remove(&it.key.id());
        }
    }
}

/// What is held, if it is free.
fn picked(machine: &Machine, hold: &Hold) -> Option<Shares> {
    let Hold::Places(parts) = hold else {
        return None;
    };
    let pick = |(place, cores, gpus): &(u32, u32, u32)| {
        let free = machine.free(*place);
        let fits = free.cores >= *cores && free.gpus >= *gpus && machine.is_up(*place);
        fits.then(|| machine.pick(*place, *cores, *gpus))
    };
    let shares: Option<Vec<_>> = parts.iter().map(pick).collect();
    Some(shares?.into_iter().collect())
}
