//! The numbers of the reaper's descriptors that users have, and the jobs that are held for some.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::JobId;

/// The user of a job: `None` for the owner.
type User = Option<u32>;

/// The descriptors of jobs that were started, and the jobs that wait for some.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    pub(super) jobs: BTreeMap<JobId, (User, u64)>,
    users: BTreeMap<User, u64>,
    total: u64,
    /// By guest.
    pub(super) waiting: BTreeMap<u32, BTreeSet<JobId>>,
}

impl Descriptors {
    /// Counts those of a job that was started.
    pub(super) fn add(&mut self, id: JobId, user: User, count: u64) {
        self.remove(id);
        if count > 0 {
            self.jobs.insert(id, (user, count));
            *self.users.entry(user).or_default() += count;
            self.total += count;
        }
    }

    /// Ends the use of a job.
    pub(super) fn remove(&mut self, id: JobId) {
        if let Some((user, count)) = self.jobs.remove(&id) {
            self.total -= count;
            if let Some(used) = self.users.get_mut(&user) {
                *used -= count;
                if *used == 0 {
                    self.users.remove(&user);
                }
            }
        }
    }

    /// Ends the wait of a job. Returns whether it has waited.
    pub(super) fn end_wait(&mut self, id: JobId, guest: u32) -> bool {
        let Some(jobs) = self.waiting.get_mut(&guest) else {
            return false;
        };
        let has_waited = jobs.remove(&id);
        if jobs.is_empty() {
            self.waiting.remove(&guest);
        }
        has_waited
    }

    /// Whether a guest may have `count` more. One that has none may have more than the share: a job of many tasks.
    pub(super) fn has_room(&self, guest: u32, count: u64, limit: u64) -> bool {
        let used = self.users.get(&Some(guest)).copied().unwrap_or(0);
        let free = limit.saturating_sub(self.total);
        let left = free.saturating_sub(count);
        count <= free && (used == 0 || used + count <= left)
    }

    /// The first job of each guest that waits.
    pub(super) fn first_waiting(&self) -> impl Iterator<Item = JobId> {
        self.waiting
            .values()
            .filter_map(|jobs| jobs.first().copied())
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = JobId> {
        self.waiting.values().flatten().copied()
    }
}
