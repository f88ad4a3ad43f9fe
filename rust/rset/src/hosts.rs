//! Host lists beside sets of ranks: one host for each rank, in the order of ranks.

use std::ops::Range;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;

use crate::Error;
use crate::execution::Execution;
use crate::overlay::{OverlayRun, overlay, ranges};

/// Appends `more` to `hosts`; fails if the list would be too long.
pub(crate) fn append(hosts: &mut Hostlist, more: &Hostlist) -> Result<(), Error> {
    hosts.append(more).map_err(|error| rejected(&error))
}

/// Converts the error of a hostlist to the rejection of an operation, with the same text.
pub(crate) fn rejected(error: &penstock_hostlist::Error) -> Error {
    Error::rejected(error.to_string())
}

/// The error of requested hosts that are not in a set.
pub(crate) fn unknown(missing: &Hostlist) -> Error {
    let what = if missing.len() == 1 { "host" } else { "hosts" };
    Error::not_found(format!("unknown {what} `{missing}`"))
}

/// A run of ranks in both sets or in one of them, with the positions of their hosts.
struct Aligned {
    first: u32,
    left: Option<Range<usize>>,
    right: Option<Range<usize>>,
}

fn align(left: &IdSet, right: &IdSet) -> impl Iterator<Item = Aligned> {
    let (mut at_left, mut at_right) = (0, 0);
    let positions = |at: &mut usize, part: &OverlayRun<(), ()>, has: Option<()>| {
        has.map(|()| {
            let start = *at;
            *at += part.len();
            start..*at
        })
    };
    overlay(ranges(left), ranges(right)).map(move |part| Aligned {
        first: part.first,
        left: positions(&mut at_left, &part, part.left),
        right: positions(&mut at_right, &part, part.right),
    })
}

/// Fails if a rank has different hosts in the sets.
pub(crate) fn check_same(left: &Execution, right: &Execution) -> Result<(), Error> {
    if left.ranks == right.ranks && left.hosts == right.hosts {
        return Ok(());
    }
    let common = left.ranks.intersection(&right.ranks);
    if of_part(left, &common) == of_part(right, &common) {
        return Ok(());
    }
    for part in align(&left.ranks, &right.ranks) {
        let (Some(ours), Some(theirs)) = (part.left, part.right) else {
            continue;
        };
        // For a short stretch a comparison name by name is cheaper than two lists.
        let same = if ours.len() < 4 {
            left.hosts
                .iter_range(ours.clone())
                .eq(right.hosts.iter_range(theirs.clone()))
        } else {
            left.hosts.slice(ours.clone()) == right.hosts.slice(theirs.clone())
        };
        if !same {
            return Err(different(
                part.first,
                (&left.hosts, ours),
                (&right.hosts, theirs),
            ));
        }
    }
    Ok(())
}

/// The error of two different stretches of hosts, which begin at rank `first`.
fn different(
    mut first: u32,
    (ours, mut here): (&Hostlist, Range<usize>),
    (theirs, mut there): (&Hostlist, Range<usize>),
) -> Error {
    while here.len() > 1 {
        let half = here.len() / 2;
        let (middle, other) = (here.start + half, there.start + half);
        if ours.slice(here.start..middle) == theirs.slice(there.start..other) {
            (here.start, there.start) = (middle, other);
            first = first.saturating_add(u32::try_from(half).unwrap_or(u32::MAX));
        } else {
            (here.end, there.end) = (middle, other);
        }
    }
    let name = |hosts: &Hostlist, at: usize| hosts.get(at).unwrap_or_default();
    Error::rejected(format!(
        "rank {first} is on host `{}` in one set, and on `{}` in the other",
        name(ours, here.start),
        name(theirs, there.start)
    ))
}

/// Returns the hosts of the ranks in either set.
pub(crate) fn of_either(left: &Execution, right: &Execution) -> Result<Hostlist, Error> {
    if right.ranks.is_subset(&left.ranks) {
        return Ok(left.hosts.clone());
    }
    let mut hosts = Collector::default();
    for part in align(&left.ranks, &right.ranks) {
        match (part.left, part.right) {
            (Some(ours), _) => hosts.push(&left.hosts, ours)?,
            (None, Some(theirs)) => hosts.push(&right.hosts, theirs)?,
            (None, None) => {}
        }
    }
    hosts.finish()
}

/// Returns the hosts of some of the ranks of a set.
pub(crate) fn of_part(whole: &Execution, ranks: &IdSet) -> Hostlist {
    if *ranks == whole.ranks {
        return whole.hosts.clone();
    }
    let parts = align(&whole.ranks, ranks);
    whole
        .hosts
        .slices(parts.filter_map(|part| part.left.filter(|_| part.right.is_some())))
}

/// Collects slices of host lists; copies consecutive slices of one list at once.
#[derive(Default)]
struct Collector<'a> {
    hosts: Hostlist,
    pending: Option<(&'a Hostlist, Range<usize>)>,
}

impl<'a> Collector<'a> {
    /// Appends the hosts of `from` at the positions `range`.
    fn push(&mut self, from: &'a Hostlist, range: Range<usize>) -> Result<(), Error> {
        match &mut self.pending {
            Some((list, pending)) if std::ptr::eq(*list, from) && pending.end == range.start => {
                pending.end = range.end;
            }
            _ => {
                self.flush()?;
                self.pending = Some((from, range));
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        match self.pending.take() {
            Some((list, range)) => append(&mut self.hosts, &list.slice(range)),
            None => Ok(()),
        }
    }

    fn finish(mut self) -> Result<Hostlist, Error> {
        self.flush()?;
        Ok(self.hosts)
    }
}

/// Whether the list has no host twice.
pub(crate) fn are_distinct(hosts: &Hostlist) -> bool {
    let mut distinct = hosts.clone();
    distinct.uniq();
    distinct.len() == hosts.len()
}

/// Returns the ranks at these positions, which ascend.
pub(crate) fn ranks_at(ranks: &IdSet, positions: &[Range<usize>]) -> IdSet {
    let mut found = IdSet::new();
    let mut positions = positions.iter().cloned();
    let mut wanted = positions.next();
    let mut at = 0;
    for range in ranks.ranges() {
        let end = at + (range.end() - range.start()) as usize + 1;
        let rank = |position: usize| {
            range
                .start()
                .saturating_add(u32::try_from(position - at).unwrap_or(u32::MAX))
        };
        while let Some(next) = wanted.clone().filter(|next| next.start < end) {
            if next.is_empty() {
                wanted = positions.next();
                continue;
            }
            let stop = next.end.min(end);
            found.insert_range(rank(next.start)..=rank(stop - 1));
            wanted = if next.end > end {
                Some(end..next.end)
            } else {
                positions.next()
            };
        }
        at = end;
    }
    found
}
