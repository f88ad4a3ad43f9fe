//! RFC 28: the inventory, and its changes.

use std::sync::Arc;

use penstock_engine::Engine;
use penstock_flux::acquire::{ChangeResponse, InventoryResponse};
use penstock_flux::errno::ENODATA;
use penstock_flux::{Inventory, InventoryChange, Json, TypedPayload};
use penstock_rset::{Operation, ResourceSet, Scheduling};
use penstock_wire::Message;

use crate::error::{Error, failure_text};
use crate::scheduler::OutstandingRequest;
use crate::{Phase, Scheduler, Settings};

impl Scheduler {
    /// Handles a response to `resource.acquire`: the stream stays open.
    pub(crate) fn handle_acquire_response(&mut self, tag: u32, response: &Message) {
        match response.errnum() {
            0 => {}
            ENODATA => {
                return self.fail("the resource service has withdrawn the resources".to_owned());
            }
            _ => return self.fail(failure_text(response)),
        }
        self.outstanding.insert(tag, OutstandingRequest::Acquire);
        let is_first = self.phase == Phase::Acquiring;
        let applied = if is_first {
            self.build_engine(response)
        } else {
            self.change_inventory(response)
        };
        match applied {
            Err(error) => self.fail(format!("resource.acquire: {error}")),
            Ok(()) if is_first => self.send_hello(),
            Ok(()) => self.needs_pass = true,
        }
    }

    fn build_engine(&mut self, response: &Message) -> Result<(), Error> {
        let Inventory { resources, up } = read_inventory(response)?;
        let settings = &self.options.settings;
        let mut engine = Engine::with_options(&resources, settings.engine_options())?;
        engine.mark_up(&up);
        settings.configure_queues(&mut engine, &Settings::default());
        self.engine = Some(engine);
        self.inventory = resources;
        self.queues.clear();
        Ok(())
    }

    fn change_inventory(&mut self, response: &Message) -> Result<(), Error> {
        let change = read_change(response)?;
        let Some(engine) = &mut self.engine else {
            return Err(Error::BeforeInventory("a change"));
        };
        // New ranks come first: the other keys may name them.
        if let Some(added) = &change.grow {
            engine.grow(added)?;
            let grown = self
                .inventory
                .combine(Operation::Union, added, Scheduling::Left);
            self.inventory = Arc::new(grown?);
        }
        if let Some(shrink) = &change.shrink {
            engine.shrink(shrink);
        }
        if let Some(up) = &change.up {
            engine.mark_up(up);
        }
        // A job on a target that is down keeps its allocation: the execution system acts on it.
        if let Some(down) = &change.down {
            engine.mark_down(down);
        }
        for (name, ranks) in change.property_add.iter().flatten() {
            // Ranks outside the inventory may be named; they do not matter.
            let ranks = ranks.intersection(engine.ranks());
            engine.add_property(name, &ranks)?;
        }
        for (name, ranks) in change.property_remove.iter().flatten() {
            engine.remove_property(name, ranks);
        }
        if let Some(expiration) = change.expiration {
            engine.set_inventory_expiration(Some(expiration).filter(|time| *time > 0.0));
        }
        Ok(())
    }
}

/// The inventory in the first response: a value from this process, else JSON.
fn read_inventory(response: &Message) -> Result<Inventory, Error> {
    if let Some(TypedPayload::Inventory(inventory)) = response.typed() {
        return Ok(inventory.clone());
    }
    let InventoryResponse { resources, up } = response.read()?;
    let resources = Arc::new(ResourceSet::from_json(resources.as_str())?);
    Ok(Inventory { resources, up })
}

/// The change in a further response: a value from this process, else JSON.
fn read_change(response: &Message) -> Result<InventoryChange, Error> {
    if let Some(TypedPayload::InventoryChange(change)) = response.typed() {
        return Ok(change.clone());
    }
    let change: ChangeResponse<Json<'_>> = response.read()?;
    let grow = change.grow.map(|r| ResourceSet::from_json(r.as_str()));
    let grow = grow.transpose()?.map(Arc::new);
    Ok(change.with_grow(grow))
}
