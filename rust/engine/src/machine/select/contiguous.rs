//! Those that span the fewest ranks.

use std::collections::VecDeque;

use super::{First, Walk};
use crate::machine::index::Tree;

/// Leaves that fit that are looked at: a span beyond them is not found.
pub(in super::super) const LOOKED_AT: usize = 4096;

/// The first leaf of the smallest span of ranks that has so many units; of equal ones the first.
///
/// `units` says how many units a leaf has, `rank` what its rank is; `shortest` is a span than
/// which there is none shorter.
pub(in super::super) fn smallest_span(
    tree: &Tree,
    least: u32,
    want: u32,
    shortest: u32,
    units: impl Fn(u32) -> u32,
    rank: impl Fn(u32) -> u32,
) -> Option<u32> {
    let mut walk = First::new(tree, least, 0);
    let mut window: VecDeque<(u32, u32)> = VecDeque::new();
    let mut sum = 0_u64;
    let mut best: Option<(u32, u32)> = None;
    let mut looked_at = 0;
    while let Some(leaf) = walk.next(tree) {
        let here = units(leaf);
        window.push_back((leaf, here));
        sum += u64::from(here);
        while let Some((_, front)) = window.front()
            && sum - u64::from(*front) >= u64::from(want)
        {
            sum -= u64::from(*front);
            window.pop_front();
        }
        looked_at += 1;
        if sum >= u64::from(want)
            && let Some((front, _)) = window.front()
        {
            let span = rank(leaf) - rank(*front);
            if best.is_none_or(|(known, _)| span < known) {
                best = Some((span, *front));
            }
            if span <= shortest {
                break;
            }
        }
        if looked_at >= LOOKED_AT && best.is_some() {
            break;
        }
    }
    best.map(|(_, front)| front)
}
