//! Host lists beside sets of ranks: one host for each rank, in the order of ranks.

use std::ops::Range;

use penstock_hostlist::{Hostlist, Slicer};
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
    let (ours, theirs) = (of_part(left, &common), of_part(right, &common));
    if ours == theirs {
        return Ok(());
    }
    let mut part = 0..ours.len();
    while part.len() > 1 {
        let middle = part.start + part.len() / 2;
        if ours.slice(part.start..middle) == theirs.slice(part.start..middle) {
            part.start = middle;
        } else {
            part.end = middle;
        }
    }
    let rank = common.nth(part.start as u64).unwrap_or_default();
    let name = |hosts: &Hostlist| hosts.get(part.start).unwrap_or_default();
    Err(Error::rejected(format!(
        "rank {rank} is on host `{}` in one set, and on `{}` in the other",
        name(&ours),
        name(&theirs)
    )))
}

/// Returns the hosts of the ranks in either set.
pub(crate) fn of_either(left: &Execution, right: &Execution) -> Result<Hostlist, Error> {
    if right.ranks.is_subset(&left.ranks) {
        return Ok(left.hosts.clone());
    }
    let mut hosts = Collector::new([&left.hosts, &right.hosts]);
    for part in align(&left.ranks, &right.ranks) {
        match (part.left, part.right) {
            (Some(ours), _) => hosts.push(Side::Left, ours)?,
            (None, Some(theirs)) => hosts.push(Side::Right, theirs)?,
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

/// One of two sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// Collects slices of two host lists; copies consecutive slices of one list at once.
struct Collector<'a> {
    hosts: Hostlist,
    left: Slicer<'a>,
    right: Slicer<'a>,
    pending: Option<(Side, Range<usize>)>,
}

impl<'a> Collector<'a> {
    fn new([left, right]: [&'a Hostlist; 2]) -> Self {
        Self {
            hosts: Hostlist::new(),
            left: left.slicer(),
            right: right.slicer(),
            pending: None,
        }
    }

    /// Appends the hosts of one of the lists at the positions `range`.
    fn push(&mut self, side: Side, range: Range<usize>) -> Result<(), Error> {
        match &mut self.pending {
            Some((list, pending)) if *list == side && pending.end == range.start => {
                pending.end = range.end;
            }
            _ => {
                self.flush()?;
                self.pending = Some((side, range));
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let Some((side, range)) = self.pending.take() else {
            return Ok(());
        };
        let slicer = match side {
            Side::Left => &mut self.left,
            Side::Right => &mut self.right,
        };
        let appended = slicer.append_to(range, &mut self.hosts);
        appended.map_err(|error| rejected(&error))
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
