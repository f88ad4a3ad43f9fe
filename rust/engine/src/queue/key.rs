//! Keys: the order of jobs by descending effective priority, then ascending id.

use penstock_jobspec::job_id::JobId;

use crate::ids::JobHandle;

/// A job's key in the order, with its handle; the least key comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u128);

impl Key {
    /// The key after all jobs.
    pub const NONE: Self = Self(u128::MAX);

    pub fn new(priority: u32, id: JobId, handle: JobHandle) -> Self {
        Self(u128::from(!priority) << 96 | u128::from(id.get()) << 32 | u128::from(handle.get()))
    }

    pub fn priority(self) -> u32 {
        !((self.0 >> 96) as u32)
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes the fields apart")]
    pub fn id(self) -> JobId {
        JobId::new((self.0 >> 32) as u64)
    }

    #[expect(clippy::cast_possible_truncation, reason = "takes the fields apart")]
    pub fn handle(self) -> JobHandle {
        JobHandle::new(self.0 as u32)
    }

    /// Whether it is [`NONE`](Self::NONE), no job.
    pub fn is_absent(self) -> bool {
        self == Self::NONE
    }
}

/// A tree that has the least of many keys at its root, and is updated key by key.
#[derive(Clone, Debug)]
pub(crate) struct MinTree {
    /// The root is `tree[1]`, the children of `i` are `2 i` and `2 i + 1`.
    tree: Vec<Key>,
    leaves: usize,
}

impl Default for MinTree {
    fn default() -> Self {
        Self {
            tree: vec![Key::NONE; 2],
            leaves: 1,
        }
    }
}

impl MinTree {
    /// The least key.
    pub fn first(&self) -> Key {
        self.tree[1]
    }

    pub fn get(&self, slot: u32) -> Key {
        self.tree[self.leaves + slot as usize]
    }

    /// All keys in order of their slots; unused slots have [`Key::NONE`].
    pub fn all(&self) -> &[Key] {
        &self.tree[self.leaves..]
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.tree.capacity() * size_of::<Key>()
    }

    /// The slot of the least key.
    pub fn slot(&self) -> u32 {
        let mut at = 1;
        while at < self.leaves {
            at *= 2;
            if self.tree[at] != self.tree[1] {
                at += 1;
            }
        }
        u32::try_from(at - self.leaves).unwrap_or(u32::MAX)
    }

    /// Sets the key of a slot, which may be new.
    pub fn set(&mut self, slot: u32, key: Key) {
        let slot = slot as usize;
        if slot >= self.leaves {
            let mut leaves = self.all().to_vec();
            leaves.resize((slot + 1).next_power_of_two(), Key::NONE);
            self.leaves = leaves.len();
            self.tree = vec![Key::NONE; self.leaves];
            self.tree.extend(leaves);
            for at in (1..self.leaves).rev() {
                self.tree[at] = self.tree[2 * at].min(self.tree[2 * at + 1]);
            }
        }
        let mut at = self.leaves + slot;
        self.tree[at] = key;
        while at > 1 {
            at /= 2;
            let least = self.tree[2 * at].min(self.tree[2 * at + 1]);
            if self.tree[at] == least {
                return;
            }
            self.tree[at] = least;
        }
    }
}
