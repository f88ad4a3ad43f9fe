//! A pass: the engine's decisions are denied or committed, and queries are answered.

use penstock_engine::Decision;

use crate::Scheduler;

/// The greatest number of allocations in one commit.
const MAX_COMMIT_JOBS: usize = 1024;

/// The number of pending jobs that are put in another order of their queue in one call: some milliseconds.
const MAX_REORDERED_JOBS: usize = 16_384;

impl Scheduler {
    /// Runs a pass if anything has changed since the last one, then answers the queries that have
    /// arrived. `now` is in seconds since the epoch.
    ///
    /// Denials are answered at once; allocations are committed to the KVS first. Returns whether
    /// another call may do more.
    ///
    /// After a reload with another order of a queue, the first calls put its pending jobs in this order, some of them each.
    pub fn schedule(&mut self, now: f64) -> bool {
        self.retry_commits(now);
        if let Some(engine) = &mut self.engine
            && engine.is_reordering()
        {
            engine.reorder(MAX_REORDERED_JOBS);
            return true;
        }
        let more = self.run_pass(now);
        self.answer_queries(now);
        more
    }

    fn run_pass(&mut self, now: f64) -> bool {
        if !self.is_pass_due() {
            return false;
        }
        self.needs_pass = false;
        let Some(engine) = &mut self.engine else {
            return false;
        };
        let decisions = engine.schedule(now, MAX_COMMIT_JOBS);
        let more = decisions.len() >= MAX_COMMIT_JOBS;
        let mut allocated = Vec::new();
        for decision in decisions {
            match decision {
                Decision::Alloc { id, .. } => {
                    self.accuracy.record_start(id, now);
                    allocated.push(id);
                }
                Decision::Deny { id, note } => self.deny(id, &note),
            }
        }
        if !allocated.is_empty() {
            self.commit(&allocated);
        }
        self.needs_pass = more;
        self.annotate_head(now);
        more
    }
}
