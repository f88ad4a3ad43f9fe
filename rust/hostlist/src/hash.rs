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

/// Finds the numbers of things that are kept elsewhere by their hashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// A hash with a number and one, or zeroes; as many places as a power of two, half of them free.
    places: Vec<(u64, u32)>,
    len: u32,
}

impl Table {
    /// The place after, around the end.
    fn mask(&self) -> usize {
        self.places.len() - 1
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits do")]
    fn place(&self, hash: u64) -> usize {
        hash as usize & self.mask()
    }

    /// The number of something with that hash which `is` the one.
    pub(crate) fn find(&self, hash: u64, mut is: impl FnMut(usize) -> bool) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let mut place = self.place(hash);
        loop {
            let (other, number) = self.places[place];
            let number = number.checked_sub(1)?;
            if other == hash && is(number as usize) {
                return Some(number);
            }
            place = (place + 1) & self.mask();
        }
    }

    /// Adds the number that comes next: as many as there are.
    pub(crate) fn push(&mut self, hash: u64) -> u32 {
        let number = self.len;
        self.len += 1;
        if self.len as usize * 2 > self.places.len() {
            let more = vec![(0, 0); (self.places.len() * 2).max(16)];
            for (hash, number) in std::mem::replace(&mut self.places, more) {
                if number > 0 {
                    self.put(hash, number);
                }
            }
        }
        self.put(hash, self.len);
        number
    }

    fn put(&mut self, hash: u64, number: u32) {
        let mut place = self.place(hash);
        while self.places[place].1 > 0 {
            place = (place + 1) & self.mask();
        }
        self.places[place] = (hash, number);
    }
}
