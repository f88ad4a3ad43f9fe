//! The numbers of the reaper's descriptors that users have, and the jobs that are held for some.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::JobId;

/// The user of a job: `None` for the owner.
type User = Option<u32>;

/// The descriptors of jobs that were started, and the held jobs of guests.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    jobs: BTreeMap<JobId, (User, u64)>,
    users: BTreeMap<User, u64>,
    total: u64,
    /// The guests with held jobs.
    held: BTreeMap<u32, HeldJobs>,
    /// The starts of guests' jobs so far.
    starts: u64,
    /// By guest, the number of the last one since a job was held.
    last_starts: BTreeMap<u32, u64>,
}

/// The held jobs of a guest.
#[derive(Debug, Default)]
struct HeldJobs {
    ids: BTreeSet<JobId>,
    /// The starts of guests' jobs before the wait of the first one began.
    since: u64,
}

/// The answer to a guest's job that is ready to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    /// When others have ended.
    Later,
    /// After older jobs of its user.
    AfterOlder,
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

    /// Whether descriptors of a job are counted.
    pub(super) fn contains(&self, id: JobId) -> bool {
        self.jobs.contains_key(&id)
    }

    /// Whether a guest's job may start that needs `count` of `limit`.
    pub(super) fn turn(&self, id: JobId, guest: u32, count: u64, limit: u64) -> Turn {
        let held = self.held.get(&guest);
        if held.is_some_and(|held| held.ids.range(..id).next().is_some()) {
            Turn::AfterOlder
        } else if self.has_room(guest, count, limit) && !self.is_behind_another(guest) {
            Turn::Now
        } else {
            Turn::Later
        }
    }

    /// Whether a guest may have `count` more. One that has none may have more than the share: a job of many tasks.
    fn has_room(&self, guest: u32, count: u64, limit: u64) -> bool {
        let used = self.users.get(&Some(guest)).copied().unwrap_or(0);
        let free = limit.saturating_sub(self.total);
        let left = free.saturating_sub(count);
        count <= free && (used == 0 || used + count <= left)
    }

    /// Whether a job of a guest has started since another guest, who has no descriptor, waits for some. That one is next: its job gets
    /// all that become free.
    fn is_behind_another(&self, guest: u32) -> bool {
        let Some(last) = self.last_starts.get(&guest) else {
            return false;
        };
        self.held.iter().any(|(other, held)| {
            *other != guest && held.since < *last && !self.users.contains_key(&Some(*other))
        })
    }

    /// Counts those of a guest's job that starts now. Returns whether it was held.
    pub(super) fn start(&mut self, id: JobId, guest: u32, count: u64) -> bool {
        self.add(id, Some(guest), count);
        self.starts += 1;
        let was_held = self.end_wait(id, guest);
        if let Some(held) = self.held.get_mut(&guest) {
            held.since = self.starts;
        }
        if !self.held.is_empty() {
            self.last_starts.insert(guest, self.starts);
        }
        was_held
    }

    /// Holds a guest's job. Returns whether it was not held before.
    pub(super) fn hold(&mut self, id: JobId, guest: u32) -> bool {
        let since = self.starts;
        let held = self.held.entry(guest).or_insert_with(|| HeldJobs {
            ids: BTreeSet::new(),
            since,
        });
        held.ids.insert(id)
    }

    /// Ends the wait of a job. Returns whether it was held.
    pub(super) fn end_wait(&mut self, id: JobId, guest: u32) -> bool {
        let Some(held) = self.held.get_mut(&guest) else {
            return false;
        };
        let was_held = held.ids.remove(&id);
        if held.ids.is_empty() {
            self.held.remove(&guest);
        }
        if self.held.is_empty() {
            self.last_starts.clear();
        }
        was_held
    }

    /// The first held job of each guest.
    pub(super) fn first_held(&self) -> impl Iterator<Item = JobId> {
        self.held
            .values()
            .filter_map(|held| held.ids.first().copied())
    }

    pub(super) fn held(&self) -> impl Iterator<Item = JobId> {
        self.held.values().flat_map(|held| &held.ids).copied()
    }
}
