//! Any bytes as a conversation with the job manager.

use std::collections::BTreeSet;

use penstock_manager::{Manager, Settings};
use penstock_rset::ResourceSet;
use penstock_store::Store;
use penstock_wire::Message;

use crate::conversation::{OWNER, START_S, Service, hold};

/// The largest number of rounds in which the manager does what is due in one step.
const MAX_ROUNDS: usize = 1000;
const INVENTORY: &str = r#"{"version":1,"execution":{"R_lite":[{"rank":"0-1","children":{"core":"0-3"}}],"nodelist":["n[0-1]"],"starttime":0.0,"expiration":0.0}}"#;

impl Service for Manager {
    fn handle(&mut self, message: &Message, now: f64) {
        Self::handle(self, message, now);
    }

    fn take_messages(&mut self, now: f64) -> Vec<Message> {
        let mut out = Vec::new();
        for _ in 0..MAX_ROUNDS {
            out.extend(self.flush().expect("a store in memory"));
            let is_due = self.deadline().is_some_and(|time| time <= now);
            if is_due {
                self.advance(now);
            } else if !self.has_more() {
                break;
            }
        }
        let _ = self.take_log();
        out
    }
}

/// Holds a conversation with a job manager that accepts guests and has a prolog.
///
/// # Panics
///
/// Panics if a response belongs to no open request, if the job manager panics, and in debug builds if the state of a
/// job differs from the replay of its log.
pub fn check(data: &[u8]) {
    topics(data);
}

fn topics(data: &[u8]) -> BTreeSet<String> {
    let store = Store::in_memory().expect("a store in memory");
    let settings = Settings {
        owner: OWNER,
        guests: true,
        prolog: true,
        ..Settings::default()
    };
    let mut manager = Manager::open(store, settings, START_S).expect("an empty store");
    manager.set_inventory(ResourceSet::from_json(INVENTORY).expect("a valid R"));
    hold(manager, data)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_job_of_the_corpus_is_allocated_and_ends() {
        let topics = super::topics(include_bytes!("../../corpus/manager_messages/exec-start"));
        for topic in ["job-exec.start", "hooks.prolog", "sched.free"] {
            assert!(topics.contains(topic), "{topic} is not in {topics:?}");
        }
    }
}
