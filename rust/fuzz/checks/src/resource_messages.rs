//! Any bytes as a conversation with the resource module.

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_resource::{Config, Effect, ResourceModule};
use penstock_rset::ResourceSet;
use penstock_wire::Message;

use crate::conversation::{Service, hold};

const INVENTORY: &str = r#"{"version":1,"execution":{"R_lite":[{"rank":"0-3","children":{"core":"0-1"}}],"nodelist":["n[0-3]"],"properties":{"p":"1-2"},"starttime":0.0,"expiration":0.0}}"#;

fn inventory() -> Arc<ResourceSet> {
    Arc::new(ResourceSet::from_json(INVENTORY).expect("a valid R"))
}

/// The module with its eventlog.
struct Resource {
    module: ResourceModule,
    eventlog: Vec<String>,
}

impl Resource {
    /// Checks that the eventlog restores the state.
    fn check_eventlog(&self) {
        let lines = self.eventlog.iter().map(String::as_str);
        let lines = (1..).zip(lines);
        let replayed = ResourceModule::new(inventory(), Config::default(), None, lines, 0.0)
            .expect("the module's own events");
        let (live, replayed) = (self.module.ledger(), replayed.ledger());
        assert_eq!(replayed.resources(), live.resources());
        assert_eq!(replayed.drains(), live.drains());
    }
}

impl Service for Resource {
    fn handle(&mut self, message: &Message, now: f64) {
        self.module.handle(message, now);
    }

    fn take_messages(&mut self, _: f64) -> Vec<Message> {
        let mut out = Vec::new();
        loop {
            let effects = self.module.take_output();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                match effect {
                    Effect::Append(line) => self.eventlog.push(line),
                    Effect::ReadEvents(request) => {
                        self.module
                            .respond_events(&request, Ok(self.eventlog.clone()));
                    }
                    Effect::ReadAllocated(request) => {
                        let allocated = inventory().restrict(&"0-1".parse().expect("ranks"));
                        self.module.respond_sched_status(&request, Ok(allocated));
                    }
                    Effect::ReadFile(reload) => {
                        // The text of a file is its path.
                        let text = Ok(reload.path.to_string_lossy().into_owned());
                        let allocated = inventory().restrict(&"0-1".parse().expect("ranks"));
                        self.module.respond_reload(&reload, text, Ok(allocated));
                    }
                    Effect::Send(message) => out.push(message),
                    Effect::SetInventory(_) | Effect::Warn(_) => {}
                }
            }
        }
        self.check_eventlog();
        out
    }
}

/// Holds a conversation with a resource module of four nodes.
///
/// # Panics
///
/// Panics if a response belongs to no open request, if the module panics, and if its eventlog does not restore its
/// state.
pub fn check(data: &[u8]) {
    topics(data);
}

fn topics(data: &[u8]) -> BTreeSet<String> {
    let module = ResourceModule::new(inventory(), Config::default(), None, [], 0.0)
        .expect("an inventory without events");
    let eventlog = Vec::new();
    hold(Resource { module, eventlog }, data)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_drains_and_adds_nodes() {
        let topics = super::topics(include_bytes!(
            "../../corpus/resource_messages/grow-and-shrink"
        ));
        for topic in ["resource.acquire", "resource.grow", "resource.shrink"] {
            assert!(topics.contains(topic), "{topic} is not in {topics:?}");
        }
    }
}
