//! Indices of the engine's tables, one type each, so that none is passed for another.

/// Defines an index type: a `u32` that the compiler keeps apart from the others.
macro_rules! index_types {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub(crate) struct $name(u32);

        #[allow(dead_code, reason = "no index type needs every conversion")]
        impl $name {
            /// The index with this number.
            #[inline]
            pub const fn new(number: u32) -> Self {
                Self(number)
            }

            /// An index that no table has.
            pub const NONE: Self = Self(u32::MAX);

            /// The index of an item in a table. Tables are shorter than `u32::MAX`.
            #[inline]
            pub fn from_usize(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }

            /// The number itself, to be stored in a set or packed into a key.
            #[inline]
            pub const fn get(self) -> u32 {
                self.0
            }

            /// The index as the standard library's containers take it.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

index_types! {
    /// A node of the inventory, counted in rank order. It changes when the inventory grows or
    /// shrinks; the rank does not.
    NodeIndex;
    /// Nodes with the same cores and gpus.
    NodeClassId;
    /// A pending or running job, until it ends.
    JobHandle;
    /// A running job in the table of running jobs.
    RunId;
    /// A lane of the queue: pending jobs with the same shape, time limit and queue.
    LaneId;
    /// A class of the queue: lanes with the same shape and queue.
    ClassId;
    /// A group of queues, which share one order.
    GroupId;
}

/// A named queue, by number; the default one has no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct QueueId(pub(crate) u32);

/// A class of the queue, with the group that it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupedClass {
    pub group: GroupId,
    pub class: ClassId,
}
