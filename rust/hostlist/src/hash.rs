//! Hashing: fast, and with a secret of the process in it, so that no text can be made to collide.
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// An odd number with no pattern in it: the fraction of the golden ratio.
const HASH_MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A random number of this process, unknown to others.
fn secret() -> u64 {
    static SECRET: OnceLock<u64> = OnceLock::new();
    *SECRET.get_or_init(|| RandomState::new().hash_one(HASH_MULTIPLIER))
}

/// Both halves of the product in one.
#[expect(clippy::cast_possible_truncation, reason = "the halves are meant")]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// Hashes texts and numbers one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixer(u64, u64);

impl Default for Mixer {
    fn default() -> Self {
        let secret = secret();
        Self(secret, secret | 1)
    }
}

impl Mixer {
    fn add(&mut self, value: u64) {
        self.0 = fold(self.0 ^ value, self.1 ^ HASH_MULTIPLIER);
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        fold(self.0, HASH_MULTIPLIER)
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // The length tells what is padding.
        self.add(u64::from_le_bytes(last));
        self.add(bytes.len() as u64);
    }

    fn write_u8(&mut self, value: u8) {
        self.add(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.add(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }
}

/// Makes [`Mixer`]s, for the maps of the standard library.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixed(Mixer);

impl BuildHasher for Mixed {
    type Hasher = Mixer;

    fn build_hasher(&self) -> Mixer {
        self.0
    }
}

pub(crate) type Map<K, V> = std::collections::HashMap<K, V, Mixed>;

/// A hash table with open addressing of the indices of a list, whose items are stored elsewhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// The hash of an item and its index plus 1; an empty bucket has zeroes. Their number is a power of two, and at
    /// least half of them are empty.
    buckets: Vec<(u64, u32)>,
    len: u32,
}

impl Table {
    /// The highest index of a bucket: all of its low bits are set.
    fn mask(&self) -> usize {
        self.buckets.len() - 1
    }

    /// The bucket at which the search for a hash begins.
    #[expect(clippy::cast_possible_truncation, reason = "any bits do")]
    fn first_bucket(&self, hash: u64) -> usize {
        hash as usize & self.mask()
    }

    /// The index of the item with this hash for which `is_equal` returns true.
    pub(crate) fn find(&self, hash: u64, mut is_equal: impl FnMut(usize) -> bool) -> Option<u32> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut bucket = self.first_bucket(hash);
        loop {
            let (other, next) = self.buckets[bucket];
            let index = next.checked_sub(1)?;
            if other == hash && is_equal(index as usize) {
                return Some(index);
            }
            bucket = (bucket + 1) & self.mask();
        }
    }

    /// Adds the hash of the next item of the list, and returns the item's index.
    pub(crate) fn push(&mut self, hash: u64) -> u32 {
        let index = self.len;
        self.len += 1;
        if self.len as usize * 2 > self.buckets.len() {
            let larger = vec![(0, 0); (self.buckets.len() * 2).max(16)];
            for (hash, next) in std::mem::replace(&mut self.buckets, larger) {
                if next > 0 {
                    self.insert(hash, next);
                }
            }
        }
        self.insert(hash, self.len);
        index
    }

    /// Writes a hash and its index plus 1 to the first empty bucket.
    fn insert(&mut self, hash: u64, next: u32) {
        let mut bucket = self.first_bucket(hash);
        while self.buckets[bucket].1 > 0 {
            bucket = (bucket + 1) & self.mask();
        }
        self.buckets[bucket] = (hash, next);
    }
}
