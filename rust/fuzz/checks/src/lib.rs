//! What holds for idsets, hostlists and resource sets whatever bytes come in.
//!
//! Each check takes any bytes, and panics where a crate breaks its word. The fuzz targets beside this crate look for
//! such bytes; `tests/corpus.rs` replays the ones that are kept in `corpus/`, on any toolchain.

pub mod hostlist_ops;
pub mod hostlist_text;
pub mod idset_ops;
pub mod idset_text;
pub mod intervals;
pub mod rset_text;

use std::hash::{DefaultHasher, Hash, Hasher};

/// A check of any bytes.
pub type Check = fn(&[u8]);

/// Every check by the name of its fuzz target and of its folder in `corpus/`.
pub const CHECKS: [(&str, Check); 5] = [
    ("hostlist_ops", hostlist_ops::check),
    ("hostlist_text", hostlist_text::check),
    ("idset_ops", idset_ops::check),
    ("idset_text", idset_text::check),
    ("rset_text", rset_text::check),
];

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
