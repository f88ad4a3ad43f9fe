//! An index over leaves with a number each: finds the first leaf at or after a place whose number
//! lies in a range, without looking at the others, and counts numbers.

mod scale;
mod tree;

pub(crate) use tree::{Query, Tree};
