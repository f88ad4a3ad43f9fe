//! Any bytes as a conversation with the scheduler.

use std::collections::BTreeSet;

use penstock_sched::{Options, Phase, Scheduler};
use penstock_wire::Message;

use crate::conversation::{Service, hold};

impl Service for Scheduler {
    fn handle(&mut self, message: &Message, _: f64) {
        if !matches!(self.phase(), Phase::Failed(_)) {
            Self::handle(self, message);
        }
    }

    fn take_messages(&mut self, now: f64) -> Vec<Message> {
        while self.schedule(now) || self.advance_forecasts(now) {}
        if self.deadline().is_some_and(|time| time <= now) {
            self.annotate(now);
        }
        let _ = self.take_log();
        self.take_out()
    }
}

/// Holds a conversation with a scheduler from its start on.
///
/// # Panics
///
/// Panics if a response belongs to no open request, and where the scheduler does.
pub fn check(data: &[u8]) {
    topics(data);
}

fn topics(data: &[u8]) -> BTreeSet<String> {
    let mut scheduler = Scheduler::new(Options::default());
    scheduler.start();
    hold(scheduler, data)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_allocates_and_frees() {
        let topics = super::topics(include_bytes!(
            "../../corpus/scheduler_messages/alloc-and-free"
        ));
        for topic in ["job-manager.sched-ready", "kvs.commit", "sched.alloc"] {
            assert!(topics.contains(topic), "{topic} is not in {topics:?}");
        }
    }
}
