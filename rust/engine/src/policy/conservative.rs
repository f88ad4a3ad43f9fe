//! Conservative backfill: every job that waits has a reservation, at the earliest time that
//! disturbs no other when it comes. When something becomes free earlier than planned, each
//! reservation in order is moved to its earliest time with all others kept, until none moves. One
//! gets later only where running jobs outrun their limits, or nodes are lost.
//!
//! A job that starts gets what the selection policy says, as far as that is nobody else's. What it
//! had reserved instead is free then, as if something had ended early.

use std::collections::HashMap;

use crate::books::Books;
use crate::engine::Decision;
use crate::machine::{Machine, Shares};
use crate::plan::{Hold, Plan, length, pick};
use crate::queue::Key;
use crate::quotas::Quotas;

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

/// What a pass has made of a job in line.
#[derive(Debug)]
enum Outcome {
    /// It waits.
    Waits,
    /// Its queue has no room for it, after all.
    Stopped,
    /// It has started, or is denied; an allocation is to be told with whether it was backfilled.
    Decided(Decision),
}

/// A group's line in a pass.
#[derive(Debug)]
struct Pass<'a> {
    line: &'a [Waiting],
    outcomes: Vec<Outcome>,
    plan: Plan,
    quotas: Quotas,
    now: f64,
    /// Decisions that may still be made.
    left: usize,
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
    moves: u64,
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

    /// The job of a group that is to start first, and when.
    pub fn first(&self, group: u32) -> Option<(u64, f64)> {
        let reserved = self.groups.get(group as usize)?.by_id.iter();
        let starts = reserved.map(|(id, it)| (*id, it.start));
        let starts = starts.filter(|it| it.1.is_finite());
        starts.min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))
    }

    /// One pass.
    pub fn run(&mut self, books: &mut Books, now: f64, max: usize, out: &mut Vec<Decision>) {
        let groups = books.queue.groups.len();
        self.groups.resize_with(groups, Reserved::default);
        let mut lines: Vec<Vec<Waiting>> = vec![Vec::new(); groups];
        // By group, the first that its queue has no room for.
        let mut stopped = vec![Key::NONE; groups];
        let mut quotas = Quotas::new(now);
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
            let group = it.group as usize;
            let reserved = self.groups[group].by_id.get(&key.id()).map(|it| it.start);
            // What it has reserved it keeps, if the limits of its queue let it run by then.
            if books.may_run(it.shape, it.queue)
                || reserved.is_some_and(|start| quotas.leaves_by(books, class, start))
            {
                let limit = length(limit);
                lines[group].push(Waiting { key, class, limit });
            } else {
                let first = &mut stopped[group];
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
            let mut pass = Pass {
                line: &line,
                outcomes: line.iter().map(|_| Outcome::Waits).collect(),
                plan: Plan::of(books, group, now),
                quotas: quotas.clone(),
                now,
                left: max.saturating_sub(out.len()),
            };
            reserved.keep_up(books, &mut pass, early || changed);
            while reserved.start_due(books, &mut pass) {
                while reserved.compress(books, &mut pass) {}
            }
            for index in 0..line.len() {
                reserved.come(books, &mut pass, index);
            }
            let ahead = stopped[group as usize];
            let mut behind = false;
            for (it, outcome) in line.iter().zip(pass.outcomes) {
                match outcome {
                    Outcome::Waits | Outcome::Stopped => behind = true,
                    Outcome::Decided(Decision::Alloc { id, .. }) => out.push(Decision::Alloc {
                        id,
                        backfilled: behind || it.key > ahead,
                    }),
                    Outcome::Decided(denial) => out.push(denial),
                }
            }
        }
    }
}

impl Reserved {
    /// Brings the reservations that there are in step with what runs.
    fn keep_up(&mut self, books: &mut Books, pass: &mut Pass, early: bool) {
        let in_units = Some(matches!(pass.plan, Plan::Units(_)));
        // What they hold is of another kind, or elsewhere.
        let mut moved = std::mem::replace(&mut self.in_units, in_units) != in_units;
        moved |= std::mem::replace(&mut self.moves, books.moves) != books.moves;
        let mut plan = pass.plan.clone();
        let mut quotas = pass.quotas.clone();
        let mut kept = 0;
        let mut broken = moved;
        for it in pass.line {
            if let Some(reservation) = self.by_id.get(&it.key.id()) {
                kept += 1;
                let start = reservation.start;
                if !broken {
                    broken = start < pass.now || !reservation.hold.is_up(&books.machine);
                    let span = (start, start + it.limit);
                    plan.hold(&books.machine, &reservation.hold, span, false);
                    quotas.reserve(books, it.class, span, false);
                }
            }
        }
        let lost = kept < self.by_id.len();
        if lost {
            self.keep(pass.line);
        }
        if broken || plan.is_overfull() || quotas.is_overfull() {
            broken = true;
            self.repair(books, pass, moved);
        } else {
            (pass.plan, pass.quotas) = (plan, quotas);
        }
        if broken || lost || early {
            while self.compress(books, pass) {}
        }
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

    /// Moves later what no longer fits: in order, each as little as possible. Where only what they
    /// hold is to be found anew, in the order of their starts: then none need move.
    fn repair(&mut self, books: &mut Books, pass: &mut Pass, by_start: bool) {
        let starts = pass.line.iter().filter_map(|it| {
            let reservation = self.by_id.get(&it.key.id())?;
            Some((reservation.start, *it))
        });
        let mut line: Vec<(f64, Waiting)> = starts.collect();
        if by_start {
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        for (start, it) in line {
            let (start, hold) = pass.earliest(books, it, start.max(pass.now));
            pass.hold(books, it, &hold, start, false);
            self.by_id.insert(it.key.id(), Reservation { start, hold });
        }
    }

    /// Moves each to its earliest time, all others kept. Returns whether one has moved.
    fn compress(&mut self, books: &mut Books, pass: &mut Pass) -> bool {
        let mut moved = false;
        for it in pass.line {
            let Some(reservation) = self.by_id.get_mut(&it.key.id()) else {
                continue;
            };
            if reservation.start <= pass.now {
                continue;
            }
            let before = reservation.start;
            let known = pass.plan.known();
            pass.hold(books, *it, &reservation.hold, before, true);
            let (start, hold) = pass.earliest(books, *it, pass.now);
            if start < before {
                *reservation = Reservation { start, hold };
                moved = true;
                pass.hold(books, *it, &reservation.hold, start, false);
            } else {
                pass.hold(books, *it, &reservation.hold, before, false);
                pass.plan.know(known);
            }
        }
        moved
    }

    /// Starts the jobs whose reservation is now. Returns whether any has left something of it to
    /// others.
    fn start_due(&mut self, books: &mut Books, pass: &mut Pass) -> bool {
        let mut left = false;
        let in_units = matches!(pass.plan, Plan::Units(_));
        for index in 0..pass.line.len() {
            let it = pass.line[index];
            let id = it.key.id();
            let due = self.by_id.get(&id).filter(|it| it.start <= pass.now);
            let Some(hold) = due.map(|it| it.hold.clone()).filter(|_| pass.left > 0) else {
                if in_units {
                    // Sums are kept wherever a job starts: those that come have their place in line.
                    self.come(books, pass, index);
                }
                continue;
            };
            pass.hold(books, it, &hold, pass.now, true);
            let (plan, now) = (&pass.plan, pass.now);
            let shares = pass.quotas.place(books, it.class, it.limit, |books| {
                let shares = plan.place(books, it.class, now, it.limit);
                shares.ok().or_else(|| picked(&books.machine, &hold))
            });
            let Some(Ok(shares)) = shares else {
                pass.hold(books, it, &hold, pass.now, false);
                continue;
            };
            self.by_id.remove(&id);
            left |= pass.decide(books, index, shares) != Some(hold);
            if matches!(pass.outcomes[index], Outcome::Stopped) {
                // It comes anew.
                pass.outcomes[index] = Outcome::Waits;
            }
        }
        left
    }

    /// Gives a job that has none yet a reservation, or starts it.
    fn come(&mut self, books: &mut Books, pass: &mut Pass, index: usize) {
        let it = pass.line[index];
        let known = self.by_id.contains_key(&it.key.id());
        if known || !matches!(pass.outcomes[index], Outcome::Waits) {
            return;
        }
        let class = &books.queue.classes[it.class as usize];
        if !books.may_run(class.shape, class.queue) {
            // One that has started has taken what its queue may have.
            return;
        }
        let (start, hold) = pass.earliest(books, it, pass.now);
        if start <= pass.now
            && pass.left > 0
            && let Ok(shares) = pass.quotas.place_in(&pass.plan, books, it.class, it.limit)
        {
            pass.decide(books, index, shares);
            return;
        }
        pass.hold(books, it, &hold, start, false);
        self.by_id.insert(it.key.id(), Reservation { start, hold });
    }
}

impl Pass<'_> {
    /// The earliest time, not before one, at which a job can start, and what it would hold.
    fn earliest(&mut self, books: &mut Books, it: Waiting, not_before: f64) -> (f64, Hold) {
        let plan = &mut self.plan;
        self.quotas
            .earliest_in(plan, books, it.class, not_before, it.limit)
    }

    /// Reserves something for a job from a time on, or with `back` gives that up.
    fn hold(&mut self, books: &mut Books, it: Waiting, hold: &Hold, start: f64, back: bool) {
        let span = (start, start + it.limit);
        self.plan.hold(&books.machine, hold, span, back);
        self.quotas.reserve(books, it.class, span, back);
    }

    /// Starts a job with these resources, unless its queue or the end of the resources is in the
    /// way. Returns what it holds.
    fn decide(&mut self, books: &mut Books, index: usize, shares: Shares) -> Option<Hold> {
        let it = self.line[index];
        let class = &books.queue.classes[it.class as usize];
        if !books.may_take(class.queue, &shares) {
            self.outcomes[index] = Outcome::Stopped;
            return None;
        }
        self.left -= 1;
        let end = match books.end(it.key.handle(), self.now) {
            Ok(end) => end,
            Err(note) => {
                self.outcomes[index] = Outcome::Decided(books.deny(it.key, note));
                return None;
            }
        };
        let hold = self.plan.hold_of(class, &shares);
        let span = (self.now, self.now + it.limit);
        self.plan.hold(&books.machine, &hold, span, false);
        self.quotas.take(class.queue, &shares, span);
        books.start(it.key.handle(), shares, self.now, end);
        self.outcomes[index] = Outcome::Decided(Decision::Alloc {
            id: it.key.id(),
            backfilled: false,
        });
        Some(hold)
    }
}

/// What is held, if it is free.
fn picked(machine: &Machine, hold: &Hold) -> Option<Shares> {
    let Hold::Places(parts) = hold else {
        return None;
    };
    let is_free = |(place, cores, gpus): &(u32, u32, u32)| {
        let free = machine.free(*place);
        free.cores >= *cores && free.gpus >= *gpus && machine.is_up(*place)
    };
    parts.iter().all(is_free).then(|| pick(machine, parts))
}
