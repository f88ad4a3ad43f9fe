//! RFC 28 as its consumer: the inventory, and what changes in it.

use std::collections::BTreeMap;

use penstock_engine::Engine;
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{ENODATA, Phase, Scheduler, Sent, Settings, describe, payload};

#[derive(Deserialize)]
struct Initial {
    resources: Box<RawValue>,
    up: String,
}

/// What may change. Everything but `grow`, which is Penstock's own, is RFC 28's.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Change {
    grow: Option<Box<RawValue>>,
    shrink: Option<String>,
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
        match response.errnum() {
            0 => {}
            ENODATA => return self.fail("the resources have been taken back".to_owned()),
            _ => return self.fail(describe(response)),
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
        let options = self.options.settings.engine();
        let engine = Engine::with_options(&inventory, options);
        let mut engine = engine.map_err(|error| error.to_string())?;
        engine.mark_up(&idset(&initial.up)?);
        self.options
            .settings
            .set_queues(&mut engine, &Settings::default());
        self.engine = Some(engine);
        self.queues.clear();
        Ok(())
    }

    fn take_change(&mut self, response: &Message) -> Result<(), String> {
        let change: Change = payload(response)?;
        let Some(engine) = &mut self.engine else {
            return Err("a change before the inventory".to_owned());
        };
        // New ranks come first: the other keys may name them.
        if let Some(more) = &change.grow {
            let more = ResourceSet::from_json(more.get()).map_err(|error| error.to_string())?;
            engine.grow(&more).map_err(|error| error.to_string())?;
        }
        if let Some(shrink) = &change.shrink {
            engine.shrink(&idset(shrink)?);
        }
        if let Some(up) = &change.up {
            engine.mark_up(&idset(up)?);
        }
        // A job on a target that is down is left alone: the execution system acts on it.
        if let Some(down) = &change.down {
            engine.mark_down(&idset(down)?);
        }
        for (name, ranks) in change.property_add.iter().flatten() {
            // Ranks that we were not given may be named; they do not matter.
            let ranks = idset(ranks)?.intersection(engine.ranks());
            let added = engine.add_property(name, &ranks);
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
