//! What will be free when: running jobs until their planned ends, and reservations ahead.
//!
//! Where every waiting job asks for any cores, or for whole nodes of which any will do, sums
//! decide; else each node has steps of its own.

mod floors;
mod kept;
mod places;
mod stretches;
mod sums;
#[cfg(test)]
mod tests;

use self::floors::Floors;
pub(crate) use self::kept::Kept;
use self::places::Places;
use self::sums::Sums;
use crate::books::{Books, INSTANT, is_whole};
use crate::ids::NodeIndex;
use crate::machine::{Allocation, Machine, NodeShare, Relocation, ShapeId, Size};
use crate::queue::QueueId;

/// A plan from now on.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// Units, wherever they are.
    Units(Sums),
    /// Cores and gpus of each node.
    Places(Places),
}

/// Cores and gpus of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeAmount {
    pub node: NodeIndex,
    pub cores: u32,
    pub gpus: u32,
}

/// What a job is to hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Hold {
    /// So many units.
    Units(i64),
    /// So many cores and gpus of these nodes.
    Places(Vec<NodeAmount>),
}

impl Hold {
    /// Whether a job of a shape can have it, as far as nodes are up and are allowed: of units, or
    /// parts of nodes, as the plan is.
    pub fn suits(&self, machine: &Machine, shape: ShapeId, in_units: bool) -> bool {
        match self {
            Self::Units(_) => in_units,
            Self::Places(parts) => {
                let is_usable = |node| machine.is_up(node) && machine.is_eligible(shape, node);
                !in_units && parts.iter().all(|part| is_usable(part.node))
            }
        }
    }

    /// The places of nodes have changed: what it is now, nothing of the plan's kind where a node is
    /// gone.
    pub fn relocate(&mut self, moves: &Relocation) {
        if let Self::Places(parts) = self {
            let still = parts.iter().map(|part| {
                Some(NodeAmount {
                    node: moves.new_index(part.node)?,
                    ..*part
                })
            });
            *self = match still.collect() {
                Some(parts) => Self::Places(parts),
                None => Self::Units(0),
            };
        }
    }
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

/// What a plan is to be made of.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Sums of cores, or of whole nodes; and a shape that wants them.
    Units {
        by_cores: bool,
        shape: ShapeId,
    },
    Places,
}

impl Kind {
    /// What the waiting jobs of a group need.
    fn of(books: &mut Books, group: u32) -> Self {
        let classes = books.queue.groups[group as usize].classes.iter();
        let waiting = classes.map(|class| &books.queue.classes[*class as usize]);
        let waiting = waiting.filter(|it| it.has_jobs() && it.group == group);
        let waiting: Vec<_> = waiting
            .map(|it| (it.shape, it.fungible, it.queue))
            .collect();
        let Some((shape, ..)) = waiting.first().copied() else {
            return Self::Places;
        };
        let limited = waiting.iter().any(|it| depends(books, it.0, it.2));
        if limited {
            return Self::Places;
        }
        let by_cores = waiting.iter().all(|it| it.1);
        let whole = books.partial == 0;
        if by_cores || (whole && waiting.iter().all(|it| books.takes_any_node(it.0))) {
            return Self::Units { by_cores, shape };
        }
        Self::Places
    }
}

/// Whether it depends on where a shape is placed what it takes of the limits of a queue.
fn depends(books: &mut Books, shape: ShapeId, queue: QueueId) -> bool {
    let most = books.queues.most(queue);
    if most == Size::UNLIMITED {
        return false;
    }
    let (least, needs) = (books.machine.min_size(shape), books.machine.max_size(shape));
    (most.nodes < u64::MAX && least.nodes < needs.nodes)
        || (most.cores < u64::MAX && least.cores < needs.cores)
}

/// Units that shares are, where sums decide.
fn units_of<'a>(by_cores: bool, shares: impl Iterator<Item = &'a NodeShare>) -> i64 {
    signed(if by_cores {
        shares.map(|it| u64::from(it.ncores())).sum()
    } else {
        shares.count() as u64
    })
}

/// So much of nodes, of which they have it free.
pub(crate) fn pick(machine: &Machine, amounts: &[NodeAmount]) -> Allocation {
    amounts
        .iter()
        .map(|part| machine.lowest_free(part.node, part.cores, part.gpus))
        .collect()
}

/// How long a job is planned to run: one that is to end when it starts is taken to end a second
/// later.
pub(crate) fn length(limit: f64) -> f64 {
    if limit < INSTANT { 1.0 } else { limit }
}

/// The planned end of a job that runs now.
pub(crate) fn planned(end: f64, now: f64) -> f64 {
    if end <= now { now + 1.0 } else { end }
}

impl Plan {
    /// The running jobs, as the waiting ones of a group have to see them.
    pub fn of(books: &mut Books, group: u32, now: f64) -> Self {
        if let Kind::Units { by_cores, shape } = Kind::of(books, group) {
            let free = books.machine.units_now(shape);
            let mut sums = Sums::new(now, signed(free), by_cores);
            for (_, it) in books.runs.iter() {
                let up = it.shares.iter().filter(|it| books.machine.is_up(it.node));
                let span = (planned(it.end, now), f64::INFINITY);
                sums.add(span, units_of(by_cores, up));
            }
            return Self::Units(sums);
        }
        let mut places = Places::new(&books.machine, now);
        for (_, it) in books.runs.iter() {
            let end = planned(it.end, now);
            for share in &it.shares {
                places.give_back(share, end);
            }
        }
        Self::Places(places)
    }

    /// Whether it is of the kind that the waiting jobs of a group need.
    fn suits(&self, books: &mut Books, group: u32) -> bool {
        match (self, Kind::of(books, group)) {
            (Self::Units(sums), Kind::Units { by_cores, .. }) => sums.by_cores == by_cores,
            (Self::Places(_), Kind::Places) => true,
            _ => false,
        }
    }

    /// Whether sums decide.
    pub fn is_of_units(&self) -> bool {
        matches!(self, Self::Units(_))
    }

    /// Time has come to here.
    fn advance(&mut self, machine: &Machine, now: f64) {
        match self {
            Self::Units(sums) => sums.advance(now),
            Self::Places(places) => places.advance(machine, now),
        }
    }

    /// Where a class fits now, for so long, beside everything planned; else until when it fits.
    pub fn place(
        &self,
        books: &mut Books,
        class: u32,
        now: f64,
        limit: f64,
    ) -> Result<Allocation, f64> {
        let Some(shares) = books.place(class) else {
            return Err(now);
        };
        let it = &books.queue.classes[class as usize];
        match self {
            Self::Units(Sums {
                profile, by_cores, ..
            }) => {
                let units = units_of(*by_cores, shares.iter());
                let need = signed(it.need);
                if now + limit <= profile.until(now, units) {
                    return Ok(shares);
                }
                let until = profile.until(now, need);
                if now + limit > until {
                    return Err(until);
                }
                // Of a range, as much as nobody else is to have.
                let free = profile.least_in(now, now + limit);
                let cap = Size {
                    cores: u64::try_from(free).unwrap_or(0),
                    ..Size::UNLIMITED
                };
                books.place_within(class, cap).ok_or(now)
            }
            Self::Places(places) => {
                let (shape, need) = (it.shape, it.need);
                let machine = &books.machine;
                if places.admits(machine, &shares, now, now + limit) {
                    return Ok(shares);
                }
                let room = books.queues.room(it.queue);
                match places.choose(machine, shape, need, now, now + limit) {
                    Some(parts) => {
                        let shares = pick(machine, &parts);
                        if room.admits(&shares) {
                            return Ok(shares);
                        }
                        let sparing = places.choose_sparing(machine, shape, need, now, now + limit);
                        let sparing = sparing.map(|parts| pick(machine, &parts));
                        Ok(sparing.filter(|it| room.admits(it)).unwrap_or(shares))
                    }
                    None => Err(places.until(machine, shape, need, now)),
                }
            }
        }
    }

    /// The earliest time from one on, and before another, at which a shape fits for so long,
    /// infinite where there is none; and what it would hold.
    pub fn earliest(
        &mut self,
        machine: &Machine,
        shape: ShapeId,
        within: (f64, f64),
        limit: f64,
    ) -> (f64, Hold) {
        let need = machine.need(shape);
        match self {
            Self::Units(sums) => {
                let start = sums.earliest(machine.demand(shape), need, within, limit);
                (start, Hold::Units(signed(need)))
            }
            Self::Places(places) => {
                let (start, parts) = places.earliest(machine, shape, need, within, limit);
                (start, Hold::Places(parts))
            }
        }
    }

    /// Holds, or with `back` gives back, something from a time until before another.
    pub fn hold(&mut self, hold: &Hold, (start, end): (f64, f64), back: bool) {
        if !start.is_finite() {
            return;
        }
        let sign = if back { 1 } else { -1 };
        match (self, hold) {
            (Self::Units(sums), Hold::Units(units)) => sums.add((start, end), sign * units),
            (Self::Places(places), Hold::Places(parts)) => {
                for part in parts {
                    let (cores, gpus) = (i64::from(part.cores), i64::from(part.gpus));
                    places.add(part.node, (start, end), sign * cores, sign * gpus);
                }
                if back {
                    places.floors.give_back(start);
                }
            }
            _ => {}
        }
    }

    /// What is known of the earliest starts, to be [put back](Self::know) when the plan is again as
    /// it is now, or fuller.
    pub fn known(&self) -> Floors {
        match self {
            Self::Units(sums) => sums.floors.clone(),
            Self::Places(places) => places.floors.clone(),
        }
    }

    /// Knows again what was known.
    pub fn know(&mut self, known: Floors) {
        match self {
            Self::Units(sums) => sums.floors = known,
            Self::Places(places) => places.floors = known,
        }
    }

    /// What a shape would hold if it started then for so long, where it fits.
    pub fn hold_at(
        &self,
        machine: &Machine,
        shape: ShapeId,
        start: f64,
        limit: f64,
    ) -> Option<Hold> {
        let need = machine.need(shape);
        match self {
            Self::Units(Sums { profile, .. }) => {
                let units = signed(need);
                (start + limit <= profile.until(start, units)).then_some(Hold::Units(units))
            }
            Self::Places(places) => places
                .choose(machine, shape, need, start, start + limit)
                .map(Hold::Places),
        }
    }

    /// The same, on the fewest or the smallest nodes.
    pub fn hold_sparing(
        &self,
        machine: &Machine,
        shape: ShapeId,
        start: f64,
        limit: f64,
    ) -> Option<Hold> {
        let Self::Places(places) = self else {
            return None;
        };
        let parts =
            places.choose_sparing(machine, shape, machine.need(shape), start, start + limit);
        parts.map(Hold::Places)
    }

    /// The first time after one at which something changes; infinite where nothing does.
    pub fn next(&self, time: f64) -> f64 {
        match self {
            Self::Units(Sums { profile, .. }) => profile.next(time),
            Self::Places(places) => places.next(time),
        }
    }

    /// Whether it is free from a time until before another.
    pub fn has_room(&self, machine: &Machine, hold: &Hold, (start, end): (f64, f64)) -> bool {
        match (self, hold) {
            (Self::Units(Sums { profile, .. }), Hold::Units(units)) => {
                end <= profile.until(start, *units)
            }
            (Self::Places(places), Hold::Places(parts)) => parts.iter().all(|part| {
                let free = places.window(machine, part.node, start, end);
                free.cores >= part.cores && free.gpus >= part.gpus && machine.is_up(part.node)
            }),
            _ => false,
        }
    }

    /// Whether this plan can hold it.
    pub fn has_kind_of(&self, hold: &Hold) -> bool {
        matches!(
            (self, hold),
            (Self::Units(_), Hold::Units(_)) | (Self::Places(_), Hold::Places(_))
        )
    }

    /// Whether more is planned than there is.
    pub fn is_overfull(&mut self) -> bool {
        match self {
            Self::Units(Sums { profile, .. }) => profile.least() < 0,
            Self::Places(places) => places.is_overfull(),
        }
    }

    /// Whether shares of a running job are so many of the plan's units: a part of a node is no node.
    fn has_units_of(&self, machine: &Machine, shares: &Allocation) -> bool {
        match self {
            Self::Units(sums) => sums.by_cores || is_whole(machine, shares),
            Self::Places(_) => true,
        }
    }

    /// What shares of a running job are in this plan: sums have no nodes that are down.
    fn hold_of_running(&self, machine: &Machine, shares: &[NodeShare]) -> Hold {
        match self {
            Self::Units(sums) => {
                let up = shares.iter().filter(|it| machine.is_up(it.node));
                Hold::Units(units_of(sums.by_cores, up))
            }
            Self::Places(_) => self.hold_of(shares),
        }
    }

    /// What shares are in this plan.
    pub fn hold_of(&self, shares: &[NodeShare]) -> Hold {
        match self {
            Self::Units(sums) => Hold::Units(units_of(sums.by_cores, shares.iter())),
            Self::Places(_) => {
                let amount = |share: &NodeShare| NodeAmount {
                    node: share.node,
                    cores: share.ncores(),
                    gpus: share.ngpus(),
                };
                Hold::Places(shares.iter().map(amount).collect())
            }
        }
    }
}
