//! `UnaddedJobs`: accepted jobs whose rows are still to be added to the store, by user.

use std::collections::BTreeMap;

/// The numbers of accepted jobs whose rows are still to be added, by user.
#[derive(Debug, Default)]
pub(crate) struct UnaddedJobs(BTreeMap<u32, u64>);

impl UnaddedJobs {
    /// Counts accepted jobs of a user.
    pub(crate) fn accept(&mut self, userid: u32, count: u64) {
        *self.0.entry(userid).or_default() += count;
    }

    /// Counts jobs of a user that are added now, or are discarded before that.
    pub(crate) fn end(&mut self, userid: u32, count: u64) {
        if let Some(jobs) = self.0.get_mut(&userid) {
            *jobs = jobs.saturating_sub(count);
            if *jobs == 0 {
                self.0.remove(&userid);
            }
        }
    }

    /// The number of jobs of a user.
    pub(crate) fn of(&self, userid: u32) -> u64 {
        self.0.get(&userid).copied().unwrap_or_default()
    }
}
