//! Where a shape fits now if it may not take everything.

use std::sync::Arc;

use smallvec::SmallVec;

use super::feasibility;
use super::matching::{Pick, Search};
use super::select::{Pack, Spread, Walk};
use super::share::Shares;
use super::{Machine, ShapeId};

/// What may be taken at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cap {
    pub nodes: u64,
    pub cores: u64,
}

impl Cap {
    /// Everything.
    pub const NONE: Self = Self {
        nodes: u64::MAX,
        cores: u64::MAX,
    };

    /// The least of two.
    pub fn min(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.min(other.nodes),
            cores: self.cores.min(other.cores),
        }
    }

    /// Whether shares are no more than that.
    pub fn holds(self, shares: &Shares) -> bool {
        let cores: u64 = shares.iter().map(|it| u64::from(it.ncores())).sum();
        shares.len() as u64 <= self.nodes && cores <= self.cores
    }
}

impl Machine {
    /// Whether a shape that is feasible could have what it needs of the nodes that are up, were
    /// nothing in use.
    pub fn is_reachable(&self, id: ShapeId) -> bool {
        if self.nodes.all_up() {
            return true;
        }
        let mut left = self.need(id);
        (0..self.nodes()).any(|place| {
            let units = self.units(id, place, self.total(place));
            left = left.saturating_sub(units.into());
            left == 0
        })
    }

    /// The least that a shape can have, given that it is feasible: the fewest nodes, and the
    /// fewest cores.
    pub fn least(&mut self, id: ShapeId) -> Cap {
        let constraint = self.shapes.get(id).constraint;
        let census = Arc::clone(&self.allow(constraint).census);
        let (nodes, cores) = feasibility::least(&census, self.request(id));
        Cap { nodes, cores }
    }

    /// The most nodes and cores that a shape can have with the least of its counts.
    pub fn most(&mut self, id: ShapeId) -> Cap {
        let constraint = self.shapes.get(id).constraint;
        let census = Arc::clone(&self.allow(constraint).census);
        let (nodes, cores) = feasibility::most(&census, self.request(id));
        Cap { nodes, cores }
    }

    /// As [`place`](Self::place), within a cap: of a range as much as fits below it. Where the
    /// nodes that the selection policy picks are too many or too large, it places on the fewest
    /// or on the smallest nodes.
    pub fn place_within(&mut self, id: ShapeId, cap: Cap) -> Option<Shares> {
        if self.known[id.0 as usize].failed > self.generation {
            return None;
        }
        let view = self.prepare(id);
        let there = self.views.units(view, self.shapes.get(id));
        self.search(id, view).place_within(there, cap)
    }
}

impl Search<'_> {
    fn place_within(self, there: u64, cap: Cap) -> Option<Shares> {
        let (shape, request) = (self.shape, &self.shape.request);
        let whole = shape.has_nodes() && request.exclusive;
        let mut most = there;
        if shape.has_nodes() {
            most = most.min(cap.nodes);
        }
        if !whole && let Some(units) = cap.cores.checked_div(u64::from(shape.cores)) {
            most = most.min(units);
        }
        let want = self.up_to(most)?;
        let picks = self.walk(want, |_, _| true)?;
        let shares = self.shares(&picks, Some(cap));
        if cap.holds(&shares) {
            return Some(shares);
        }
        let tree = self.view.tree();
        let mut picks = if whole {
            self.spare(Pack::new(tree, shape.least), want, cap)
        } else {
            self.spare(Spread::new(tree, shape.least), want, cap)
        };
        let picked: u32 = picks.iter().map(|it| it.1).sum();
        let mut more = picked - self.up_to(picked.into())?;
        while let Some(last) = picks.last_mut().filter(|_| more > 0) {
            let less = more.min(last.1);
            last.1 -= less;
            more -= less;
            if last.1 == 0 {
                picks.pop();
            }
        }
        picks.sort_unstable();
        Some(self.shares(&picks, Some(cap)))
    }

    /// The most units that will do and are no more than that.
    fn up_to(self, most: u64) -> Option<u32> {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let units = self.shape.units().largest_up_to(most);
        units.filter(|units| *units >= self.shape.need)
    }

    /// Nodes in the order of a walk, as long as the cap allows.
    fn spare(self, mut walk: impl Walk, want: u32, cap: Cap) -> SmallVec<[Pick; 4]> {
        let tree = self.view.tree();
        let whole = self.shape.has_nodes() && self.shape.request.exclusive;
        let mut picks = SmallVec::new();
        let (mut left, mut cores) = (want, cap.cores);
        while left > 0
            && (picks.len() as u64) < cap.nodes
            && let Some(leaf) = walk.next(tree)
        {
            let place = self.view.place(leaf);
            if whole {
                let size = self.nodes.kind(place).cores.len;
                let Some(rest) = cores.checked_sub(u64::from(size)) else {
                    break;
                };
                cores = rest;
            }
            let units = self.shape.units_at(tree.get(leaf)).min(left);
            picks.push((place, units));
            left -= units;
        }
        picks
    }
}
