//! The space of the file system with the store.

/// The part of the file system that is kept for the instance owner at most: one of this many.
const MAX_RESERVED_PART: u64 = 10;

/// The space of the file system with the store, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Free bytes.
    pub free: u64,
    /// All bytes.
    pub total: u64,
}

impl DiskSpace {
    /// The bytes that are kept for the instance owner, if these are configured.
    pub(crate) fn reserve(self, configured: u64) -> u64 {
        configured.min(self.total / MAX_RESERVED_PART)
    }
}
