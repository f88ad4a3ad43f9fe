//! RFC 28 as its consumer: the inventory, and what changes in it.

use std::collections::BTreeMap;

use penstock_engine::Engine;
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Phase, Scheduler, Sent, describe, payload};

#[derive(Deserialize)]
struct Initial {
    resources: Box<RawValue>,
    up: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Change {
    up: Option<String>,
    down: Option<String>,
    property_add: Option<BTreeMap<String, String>>,
    property_remove: Option<BTreeMap<String, String>>,
    expiration: Option<f64>,
}

fn idset(text: &str) -> Result<IdSet, String> {
    text.parse()
        .map_err(|error: penstock_idset::Error| error.to_string())
}

impl Scheduler {
    /// A response to `resource.acquire`: the stream stays open.
    pub(crate) fn acquired(&mut self, tag: u32, response: &Message) {
        if response.errnum() != 0 {
            return self.fail(describe(response));
        }
        self.sent.insert(tag, Sent::Acquire);
        let outcome = if self.phase == Phase::Acquiring {
            self.take_inventory(response)
        } else {
            self.take_change(response)
        };
        match outcome {
            Err(error) => self.fail(format!("resource.acquire: {error}")),
            Ok(()) if self.phase == Phase::Acquiring => self.greet(),
            Ok(()) => self.stale = true,
        }
    }

    fn take_inventory(&mut self, response: &Message) -> Result<(), String> {
        let initial: Initial = payload(response)?;
        let inventory = ResourceSet::from_json(initial.resources.get());
        let inventory = inventory.map_err(|error| error.to_string())?;
        let mut engine = Engine::new(&inventory).map_err(|error| error.to_string())?;
        engine.mark_up(&idset(&initial.up)?);
        self.engine = Some(engine);
        Ok(())
    }

    fn take_change(&mut self, response: &Message) -> Result<(), String> {
        let change: Change = payload(response)?;
        let Some(engine) = &mut self.engine else {
            return Err("a change before the inventory".to_owned());
        };
        if let Some(up) = &change.up {
            engine.mark_up(&idset(up)?);
        }
        if let Some(down) = &change.down {
            engine.mark_down(&idset(down)?);
        }
        for (name, ranks) in change.property_add.iter().flatten() {
            let added = engine.add_property(name, &idset(ranks)?);
            added.map_err(|error| error.to_string())?;
        }
        for (name, ranks) in change.property_remove.iter().flatten() {
            engine.remove_property(name, &idset(ranks)?);
        }
        if let Some(expiration) = change.expiration {
            engine.set_inventory_expiration(Some(expiration).filter(|it| *it > 0.0));
        }
        Ok(())
    }
}
