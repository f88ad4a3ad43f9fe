//! `SharedValues`: values of which many jobs have the same.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash};
use std::sync::{Arc, Weak};

use foldhash::quality::RandomState;

/// The number of entries at which those without jobs are first dropped.
const MIN_SWEEP_SIZE: usize = 1024;

/// The values that jobs refer to, by a hash of each. Of two with the same hash, only the later is in the table.
#[derive(Debug)]
pub(crate) struct SharedValues<T> {
    by_hash: HashMap<u64, Weak<T>, RandomState>,
    /// The number of entries at which those without jobs are dropped next.
    sweep_size: usize,
}

impl<T> Default for SharedValues<T> {
    fn default() -> Self {
        Self {
            by_hash: HashMap::default(),
            sweep_size: MIN_SWEEP_SIZE,
        }
    }
}

impl<T> SharedValues<T> {
    /// A hash, keyed by a random number. Values with the same hash displace each other, and are compared before they are shared.
    pub(crate) fn hash(&self, value: impl Hash) -> u64 {
        self.by_hash.hasher().hash_one(value)
    }

    /// The value with a hash, if a job refers to it.
    pub(crate) fn get(&self, hash: u64) -> Option<Arc<T>> {
        self.by_hash.get(&hash)?.upgrade()
    }

    /// Enters a value.
    pub(crate) fn insert(&mut self, hash: u64, value: &Arc<T>) {
        if self.by_hash.len() >= self.sweep_size {
            self.by_hash.retain(|_, value| value.strong_count() > 0);
            self.sweep_size = MIN_SWEEP_SIZE.max(2 * self.by_hash.len());
        }
        self.by_hash.insert(hash, Arc::downgrade(value));
    }
}

impl<T: Hash + PartialEq> SharedValues<T> {
    /// The value that is equal to this one and to which a job refers, if there is one.
    pub(crate) fn find(&self, value: &T) -> Option<Arc<T>> {
        self.get(self.hash(value))
            .filter(|shared| **shared == *value)
    }

    /// The value that is equal to this one and to which a job refers, or this one.
    pub(crate) fn share(&mut self, value: Arc<T>) -> Arc<T> {
        let hash = self.hash(&value);
        match self.get(hash) {
            Some(shared) if *shared == *value => shared,
            _ => {
                self.insert(hash, &value);
                value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MIN_SWEEP_SIZE, SharedValues};
    use std::sync::Arc;

    #[test]
    fn equal_values_are_one_and_unequal_ones_with_the_same_hash_are_not() {
        let mut values = SharedValues::default();
        let one = values.share(Arc::new("one"));
        assert!(Arc::ptr_eq(&one, &values.share(Arc::new("one"))));
        let hash = values.hash("two");
        values.insert(hash, &one);
        let two = values.share(Arc::new("two"));
        assert_eq!(*two, "two");
        assert!(Arc::ptr_eq(&two, &values.share(Arc::new("two"))));
    }

    #[test]
    fn values_without_jobs_are_dropped() {
        let mut values = SharedValues::default();
        let kept = values.share(Arc::new(0));
        for value in 1..10 * MIN_SWEEP_SIZE {
            values.share(Arc::new(value));
        }
        assert!(values.by_hash.len() <= MIN_SWEEP_SIZE + 1);
        assert!(Arc::ptr_eq(&kept, &values.share(Arc::new(0))));
    }
}
