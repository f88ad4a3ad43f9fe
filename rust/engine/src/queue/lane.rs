//! Lanes: pending jobs that differ only in id and priority.

use super::key::Key;
use super::keys::Keys;
use crate::ids::ClassId;

/// A lane.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    /// The class of the lane.
    pub class: ClassId,
    pub limit: f64,
    /// The number of its jobs, held ones included.
    pub jobs: u32,
    /// The keys of its jobs that are not held.
    pub keys: Keys,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            class: ClassId::new(0),
            limit: f64::INFINITY,
            jobs: 0,
            keys: Keys::default(),
        }
    }
}

impl Lane {
    /// The first job.
    pub fn first(&self) -> Key {
        self.keys.first().unwrap_or(Key::NONE)
    }

    /// The first job after a key.
    pub fn after(&self, key: Key) -> Key {
        self.keys.after(key).next().unwrap_or(Key::NONE)
    }
}
