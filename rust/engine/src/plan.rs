//! What will be free when: running jobs until their planned ends, and reservations ahead.
//!
//! Where every waiting job asks for any cores, or for whole nodes of which any will do, sums
//! decide; else each node has steps of its own.

use smallvec::SmallVec;

use crate::books::{Books, INSTANT, amount};
use crate::machine::{Free, Machine, ShapeId, Share, Shares};
use crate::profile::Profile;

/// A plan from now on.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// Units, wherever they are.
    Units(Profile),
    /// Cores and gpus of each node.
    Places(Places),
}

/// What a job is to hold.
#[derive(Clone, Debug)]
pub(crate) enum Hold {
    /// So many units.
    Units(i64),
    /// So many cores and gpus of these nodes.
    Places(Vec<(u32, u32, u32)>),
}

impl Hold {
    /// Whether all nodes that it names are up.
    pub fn is_up(&self, machine: &Machine) -> bool {
        match self {
            Self::Units(_) => true,
            Self::Places(parts) => parts.iter().all(|it| machine.is_up(it.0)),
        }
    }
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

/// How long a job is planned to run: one that is to end when it starts is taken to end a second
/// later.
pub(crate) fn length(limit: f64) -> f64 {
    if limit < INSTANT { 1.0 } else { limit }
}

/// The planned end of a job that runs now.
fn planned(end: f64, now: f64) -> f64 {
    if end <= now { now + 1.0 } else { end }
}

impl Plan {
    /// The running jobs, as the waiting ones of a group have to see them.
    pub fn of(books: &mut Books, group: u32, now: f64) -> Self {
        let classes = books.queue.groups[group as usize].classes.iter();
        let waiting = classes.map(|class| &books.queue.classes[*class as usize]);
        let waiting = waiting.filter(|it| it.has_jobs() && it.group == group);
        let waiting: Vec<_> = waiting.map(|it| (it.shape, it.fungible)).collect();
        let cores = waiting.iter().all(|it| it.1);
        let nodes = books.partial == 0 && waiting.iter().all(|it| books.takes_any_node(it.0));
        let shape = waiting.first().map(|it| it.0);
        match shape {
            Some(shape) if cores || nodes => {
                let free = books.machine.units_now(shape);
                let mut profile = Profile::new(now, signed(free));
                for (_, it) in books.runs.iter() {
                    let up = it.shares.iter().filter(|it| books.machine.is_up(it.place));
                    let units: u64 = if cores {
                        up.map(|it| u64::from(it.ncores())).sum()
                    } else {
                        up.count() as u64
                    };
                    profile.add(planned(it.end, now), f64::INFINITY, signed(units));
                }
                Self::Units(profile)
            }
            _ => {
                let mut places = Places::new(&books.machine, now);
                for (_, it) in books.runs.iter() {
                    let end = planned(it.end, now);
                    for share in &it.shares {
                        places.give_back(&books.machine, share, end);
                    }
                }
                places.sort(0);
                Self::Places(places)
            }
        }
    }

    /// Where a class fits now, for so long, beside everything planned; else until when it fits.
    pub fn place(
        &self,
        books: &mut Books,
        class: u32,
        now: f64,
        limit: f64,
    ) -> Result<Shares, f64> {
        let Some(shares) = books.place(class) else {
            return Err(now);
        };
        let it = &books.queue.classes[class as usize];
        match self {
            Self::Units(profile) => {
                let until = profile.until(now, signed(it.need));
                if now + limit <= until {
                    Ok(shares)
                } else {
                    Err(until)
                }
            }
            Self::Places(places) => {
                let (shape, need) = (it.shape, it.need);
                let machine = &books.machine;
                if places.admits(machine, &shares, now, now + limit) {
                    return Ok(shares);
                }
                match places.choose(machine, shape, need, now, now + limit) {
                    Some(parts) => {
                        let pick = |(place, cores, gpus): (u32, u32, u32)| {
                            machine.pick(place, cores, gpus)
                        };
                        Ok(parts.into_iter().map(pick).collect())
                    }
                    None => Err(places.until(machine, shape, need, now)),
                }
            }
        }
    }

    /// The earliest time, not before one, at which a shape fits for so long, infinite for never;
    /// and what it would hold.
    pub fn earliest(
        &self,
        machine: &Machine,
        shape: ShapeId,
        not_before: f64,
        limit: f64,
    ) -> (f64, Hold) {
        let need = machine.need(shape);
        match self {
            Self::Units(profile) => {
                let units = signed(need);
                (
                    profile.earliest(not_before, limit, units),
                    Hold::Units(units),
                )
            }
            Self::Places(places) => {
                let start = places.earliest(machine, shape, need, not_before, limit);
                let parts = places.choose(machine, shape, need, start, start + limit);
                (start, Hold::Places(parts.unwrap_or_default()))
            }
        }
    }

    /// Holds, or with `back` gives back, something from a time until before another.
    pub fn hold(&mut self, machine: &Machine, hold: &Hold, (start, end): (f64, f64), back: bool) {
        let sign = if back { 1 } else { -1 };
        match (self, hold) {
            (Self::Units(profile), Hold::Units(units)) => profile.add(start, end, sign * units),
            (Self::Places(places), Hold::Places(parts)) => {
                let sorted = places.events.len();
                for (place, cores, gpus) in parts {
                    let (cores, gpus) = (i64::from(*cores), i64::from(*gpus));
                    places.add(machine, *place, (start, end), sign * cores, sign * gpus);
                }
                places.sort(sorted);
            }
            _ => {}
        }
    }

    /// Whether more is planned than there is.
    pub fn is_overfull(&self) -> bool {
        match self {
            Self::Units(profile) => profile.least() < 0,
            Self::Places(places) => {
                let mut steps = places.steps.iter().flatten();
                steps.any(|it| it.cores < 0 || it.gpus < 0)
            }
        }
    }

    /// What shares are in this plan, for a job of a class.
    pub fn hold_of(&self, need: u64, shares: &[Share]) -> Hold {
        match self {
            Self::Units(_) => Hold::Units(signed(need)),
            Self::Places(_) => {
                let part = |it: &Share| (it.place, it.ncores(), it.ngpus());
                Hold::Places(shares.iter().map(part).collect())
            }
        }
    }
}

/// From a time on, so much of a node is free.
#[derive(Clone, Copy, Debug)]
struct Step {
    time: f64,
    cores: i64,
    gpus: i64,
}

/// Steps of each node.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    now: f64,
    /// By place; none where nothing changes.
    steps: Vec<SmallVec<[Step; 2]>>,
    /// Places with anything free at first: others have nothing now, whatever is held or given
    /// back.
    idle: Vec<u32>,
    /// When something changes, and where.
    events: Vec<(f64, u32)>,
}

fn now_free(machine: &Machine, place: u32, now: f64) -> Step {
    let free = machine.free(place);
    Step {
        time: now,
        cores: i64::from(free.cores),
        gpus: i64::from(free.gpus),
    }
}

fn free(machine: &Machine, place: u32, cores: i64, gpus: i64) -> Free {
    let cores = u32::try_from(cores.max(0)).unwrap_or(u32::MAX);
    let gpus = u32::try_from(gpus.max(0)).unwrap_or(u32::MAX);
    Free {
        cores,
        gpus,
        whole: machine.whole_with(place, cores, gpus),
    }
}

impl Places {
    fn new(machine: &Machine, now: f64) -> Self {
        let nodes = machine.nodes();
        Self {
            now,
            steps: vec![SmallVec::new(); nodes as usize],
            idle: (0..nodes)
                .filter(|place| machine.free(*place).cores > 0)
                .collect(),
            events: Vec::new(),
        }
    }

    /// A share comes back at a time. The events are to be sorted when all have come.
    fn give_back(&mut self, machine: &Machine, share: &Share, end: f64) {
        let steps = &mut self.steps[share.place as usize];
        if steps.is_empty() {
            steps.push(now_free(machine, share.place, self.now));
        }
        let at = steps.partition_point(|step| step.time < end);
        if end.is_finite() && steps.get(at).is_none_or(|step| step.time > end) {
            let before = steps[at.saturating_sub(1)];
            steps.insert(
                at,
                Step {
                    time: end,
                    ..before
                },
            );
            self.events.push((end, share.place));
        }
        for step in steps.iter_mut().filter(|step| step.time >= end) {
            step.cores += i64::from(share.ncores());
            step.gpus += i64::from(share.ngpus());
        }
    }

    /// Sorts the events, so many of which are in order already.
    fn sort(&mut self, sorted: usize) {
        let by = |a: &(f64, u32), b: &(f64, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let mut fresh = self.events.split_off(sorted);
        fresh.sort_unstable_by(by);
        if sorted == 0 {
            self.events = fresh;
            return;
        }
        // From the last one on, each goes to its place: what is behind it is moved once.
        self.events.extend_from_slice(&fresh);
        let mut end = sorted;
        for (count, event) in fresh.iter().enumerate().rev() {
            let place = self.events[..end].partition_point(|it| by(it, event).is_le());
            self.events.copy_within(place..end, place + count + 1);
            self.events[place + count] = *event;
            end = place;
        }
    }

    /// Adds to what is free of a node from a time until before another. The events are to be
    /// sorted afterwards.
    fn add(
        &mut self,
        machine: &Machine,
        place: u32,
        (start, end): (f64, f64),
        cores: i64,
        gpus: i64,
    ) {
        let steps = &mut self.steps[place as usize];
        if steps.is_empty() {
            steps.push(now_free(machine, place, self.now));
        }
        for time in [start, end] {
            let at = steps.partition_point(|step| step.time < time);
            if time.is_finite() && steps.get(at).is_none_or(|step| step.time > time) {
                let before = steps[at.saturating_sub(1)];
                steps.insert(at, Step { time, ..before });
                self.events.push((time, place));
            }
        }
        let within = steps
            .iter_mut()
            .filter(|step| start <= step.time && step.time < end);
        for step in within {
            step.cores += cores;
            step.gpus += gpus;
        }
    }

    /// What of a node is free all the time from one until before another.
    fn window(&self, machine: &Machine, place: u32, start: f64, end: f64) -> Free {
        let steps = &self.steps[place as usize];
        let first = steps
            .partition_point(|step| step.time <= start)
            .saturating_sub(1);
        let within = steps
            .iter()
            .skip(first)
            .take_while(|step| step.time < end || step.time <= start);
        let least = within.map(|step| (step.cores, step.gpus));
        let least = least.reduce(|a, b| (a.0.min(b.0), a.1.min(b.1)));
        match least {
            Some((cores, gpus)) => free(machine, place, cores, gpus),
            None => machine.free(place),
        }
    }

    fn units(&self, machine: &Machine, shape: ShapeId, place: u32, start: f64, end: f64) -> u32 {
        machine.units(shape, place, self.window(machine, place, start, end))
    }

    /// Places that may give units to a job that starts then, and perhaps others.
    fn candidates(&self, start: f64) -> impl Iterator<Item = u32> + '_ {
        let all = if start <= self.now {
            0
        } else {
            u32::try_from(self.steps.len()).unwrap_or(u32::MAX)
        };
        let idle = if all == 0 { &self.idle[..] } else { &[] };
        idle.iter().copied().chain(0..all)
    }

    /// Units of each place that a shape can have for a time, and of all.
    fn units_of_all(
        &self,
        machine: &Machine,
        shape: ShapeId,
        start: f64,
        end: f64,
    ) -> (Vec<u32>, u64) {
        let mut units = vec![0; self.steps.len()];
        let mut total = 0;
        for place in self.candidates(start) {
            let there = self.units(machine, shape, place, start, end);
            units[place as usize] = there;
            total += u64::from(there);
        }
        (units, total)
    }

    /// Whether the plan leaves these shares free.
    fn admits(&self, machine: &Machine, shares: &[Share], start: f64, end: f64) -> bool {
        shares.iter().all(|share| {
            let free = self.window(machine, share.place, start, end);
            free.cores >= share.ncores() && free.gpus >= share.ngpus()
        })
    }

    /// The lowest places that a shape can have for a time: cores and gpus of each.
    fn choose(
        &self,
        machine: &Machine,
        shape: ShapeId,
        need: u64,
        start: f64,
        end: f64,
    ) -> Option<Vec<(u32, u32, u32)>> {
        if !start.is_finite() {
            return None;
        }
        let mut left = need;
        let mut parts = Vec::new();
        for place in self.candidates(start) {
            let units = u64::from(self.units(machine, shape, place, start, end)).min(left);
            if units > 0 {
                let units = u32::try_from(units).unwrap_or(u32::MAX);
                let (cores, gpus) = amount(machine, shape, place, units);
                parts.push((place, cores, gpus));
                left -= u64::from(units);
                if left == 0 {
                    return Some(parts);
                }
            }
        }
        None
    }

    /// The first time at which a shape that fits now fits no more.
    fn until(&self, machine: &Machine, shape: ShapeId, need: u64, now: f64) -> f64 {
        let (mut units, mut total) = self.units_of_all(machine, shape, now, now);
        if total < need {
            return now;
        }
        for (time, place) in &self.events {
            // What has nothing now, has nothing all the time from now on.
            if *time > now && units[*place as usize] > 0 {
                let after = self.units(machine, shape, *place, now, time.next_up());
                let before = std::mem::replace(&mut units[*place as usize], after);
                total = total - u64::from(before) + u64::from(after);
                if total < need {
                    return *time;
                }
            }
        }
        f64::INFINITY
    }

    /// The earliest time, not before one, at which a shape fits for so long.
    fn earliest(
        &self,
        machine: &Machine,
        shape: ShapeId,
        need: u64,
        not_before: f64,
        limit: f64,
    ) -> f64 {
        let mut start = not_before;
        let at = |place: u32, start: f64| self.units(machine, shape, place, start, start + limit);
        let (mut units, mut total) = self.units_of_all(machine, shape, start, start + limit);
        let mut begins = self.events.partition_point(|it| it.0 <= start);
        let mut ends = self.events.partition_point(|it| it.0 < start + limit);
        while total < need {
            let Some((time, _)) = self.events.get(begins) else {
                return f64::INFINITY;
            };
            start = *time;
            let passed = self.events[begins..].iter().take_while(|it| it.0 <= start);
            let passed = begins + passed.count();
            let entered = self.events[ends..].iter();
            let entered = entered.take_while(|it| it.0 < start + limit);
            let entered = ends + entered.count();
            let changed = self.events[begins..passed].iter();
            for (_, place) in changed.chain(&self.events[ends..entered]) {
                let after = at(*place, start);
                let before = std::mem::replace(&mut units[*place as usize], after);
                total = total - u64::from(before) + u64::from(after);
            }
            (begins, ends) = (passed, entered);
        }
        start
    }
}
