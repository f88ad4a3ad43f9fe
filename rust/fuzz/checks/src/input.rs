//! Values from arbitrary bytes.

use std::hash::{DefaultHasher, Hash, Hasher};

use arbitrary::{Arbitrary, Result, Unstructured};

/// The greatest number of operations that are done.
const MAX_OPERATIONS: usize = 64;

/// The bytes as operations, as far as they go.
pub(crate) fn operations<'a, Op: Arbitrary<'a>>(data: &'a [u8]) -> impl Iterator<Item = Op> {
    let mut u = Unstructured::new(data);
    let next = move || {
        if u.is_empty() {
            None
        } else {
            u.arbitrary().ok()
        }
    };
    std::iter::from_fn(next).take(MAX_OPERATIONS)
}

/// Up to eight values. A `Vec` would mostly have none or one.
#[derive(Clone, Debug)]
pub(crate) struct UpToEight<T>(pub(crate) Vec<T>);

impl<'a, T: Arbitrary<'a>> Arbitrary<'a> for UpToEight<T> {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let count = u.int_in_range(0..=8)?;
        let values: Result<_> = (0..count).map(|_| u.arbitrary()).collect();
        values.map(Self)
    }
}

/// The hash of a value.
pub(crate) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
