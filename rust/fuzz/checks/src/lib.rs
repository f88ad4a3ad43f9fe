//! Invariants of the formats, the wire and the services for arbitrary input.
//!
//! Each check takes any bytes, and panics if an invariant is violated. The fuzz targets beside this crate search for
//! such bytes; `tests/corpus.rs` replays the inputs in `corpus/`, on any toolchain.

mod conversation;
pub mod hostlist_ops;
pub mod hostlist_text;
pub mod idset_ops;
pub mod idset_text;
pub mod intervals;
pub mod jobspec_text;
pub mod manager_messages;
pub mod resource_messages;
pub mod rset_text;
pub mod scheduler_messages;
pub mod wire_frames;

use std::hash::{DefaultHasher, Hash, Hasher};

use arbitrary::{Arbitrary, Result, Unstructured};

/// A check of any bytes.
pub type Check = fn(&[u8]);

/// Every check by the name of its fuzz target and of its folder in `corpus/`.
pub const CHECKS: [(&str, Check); 10] = [
    ("hostlist_ops", hostlist_ops::check),
    ("hostlist_text", hostlist_text::check),
    ("idset_ops", idset_ops::check),
    ("idset_text", idset_text::check),
    ("jobspec_text", jobspec_text::check),
    ("manager_messages", manager_messages::check),
    ("resource_messages", resource_messages::check),
    ("rset_text", rset_text::check),
    ("scheduler_messages", scheduler_messages::check),
    ("wire_frames", wire_frames::check),
];

/// The most operations that are done.
const OPS: usize = 64;

/// The bytes as operations, as far as they go.
fn operations<'a, Op: Arbitrary<'a>>(data: &'a [u8]) -> impl Iterator<Item = Op> {
    let mut u = Unstructured::new(data);
    let next = move || {
        if u.is_empty() {
            None
        } else {
            u.arbitrary().ok()
        }
    };
    std::iter::from_fn(next).take(OPS)
}

/// Up to eight values. A `Vec` would mostly have none or one.
#[derive(Clone, Debug)]
struct Few<T>(Vec<T>);

impl<'a, T: Arbitrary<'a>> Arbitrary<'a> for Few<T> {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let count = u.int_in_range(0..=8)?;
        let values: Result<_> = (0..count).map(|_| u.arbitrary()).collect();
        values.map(Self)
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
