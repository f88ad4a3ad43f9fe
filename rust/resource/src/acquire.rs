//! The provider of `resource.acquire` (RFC 28).

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_flux::acquire::AcquireRequest;
use penstock_flux::errno::{EBUSY, ENODATA, EPROTO};
use penstock_flux::{Inventory, InventoryChange, TypedPayload, read};
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_wire::Message;

type Properties = BTreeMap<String, IdSet>;

/// The one `resource.acquire` stream of an instance: the inventory and its changes, for one scheduler at a time.
///
/// An additional response is the difference between the inventory of [`AcquireProvider::update`] and the one that the
/// scheduler knows. So it has transitions only, never contradicts itself, and omits changes that cancel each other.
///
/// RFC 28 has no key for growth. `grow`, an R of new targets, is for a scheduler that sends `{"grow-ok": true}` with
/// its request; these targets are also in `up` if they are available, and bring their properties with them. Any other
/// scheduler learns of new targets at its next acquire, and never of a target that was not in its `resources`.
/// A target that configuration excludes while a scheduler holds the resources goes down, and stays known to it.
#[derive(Debug)]
pub struct AcquireProvider {
    resources: Arc<ResourceSet>,
    /// Ranks that may be scheduled: the inventory less the excluded ones.
    ranks: IdSet,
    up: IdSet,
    holder: Option<Holder>,
    /// Whether there was an update since the last response to the holder.
    updated: bool,
}

/// The scheduler that holds the resources.
#[derive(Debug)]
struct Holder {
    request: Message,
    grow_ok: bool,
    /// The inventory as its responses describe it.
    ranks: IdSet,
    up: IdSet,
    properties: Properties,
    expiration: f64,
}

impl AcquireProvider {
    /// Creates the provider of an inventory, of which `exclude` is excluded from scheduling and `up` is available.
    pub fn new(resources: Arc<ResourceSet>, exclude: &IdSet, up: &IdSet) -> Self {
        let ranks = &resources.ranks() - exclude;
        Self {
            up: up & &ranks,
            resources,
            ranks,
            holder: None,
            updated: false,
        }
    }

    /// Replaces the inventory; [`AcquireProvider::take_changes`] reports the change to the scheduler.
    ///
    /// A rank of the former inventory that the new one lacks is gone for good.
    pub fn update(&mut self, resources: Arc<ResourceSet>, exclude: &IdSet, up: &IdSet) {
        self.ranks = &resources.ranks() - exclude;
        self.up = up & &self.ranks;
        self.resources = resources;
        self.updated = true;
    }

    /// Whether a scheduler holds the resources.
    pub fn is_acquired(&self) -> bool {
        self.holder.is_some()
    }

    /// The resources that may be allocated: the inventory less the excluded targets.
    pub fn schedulable(&self) -> ResourceSet {
        self.resources.restrict(&self.ranks)
    }

    /// The targets that are available.
    pub fn up(&self) -> &IdSet {
        &self.up
    }

    /// Answers `resource.acquire` with the initial response (RFC 28, "Initial Acquire Response").
    ///
    /// The response is the error `EBUSY` while another scheduler holds the resources, and `EPROTO` without the
    /// streaming flag or for a malformed payload.
    pub fn acquire(&mut self, request: &Message) -> Message {
        if self.holder.is_some() {
            return Message::error_to(request, EBUSY, "");
        }
        if let Err(error) = request.require_streaming() {
            return Message::error_to(request, error.errnum, &error.text);
        }
        let options: AcquireRequest = match read(request.payload_json()) {
            Ok(options) => options,
            Err(error) => {
                let text = format!("resource.acquire: {error}");
                return Message::error_to(request, EPROTO, &text);
            }
        };
        let resources = Arc::new(self.schedulable());
        let inventory = Inventory {
            resources: Arc::clone(&resources),
            up: self.up.clone(),
        };
        let response = Message::typed_success_to(request, TypedPayload::Inventory(inventory));
        let mut request = request.clone();
        request.set_payload(None);
        self.holder = Some(Holder {
            request,
            grow_ok: options.grow_ok,
            ranks: self.ranks.clone(),
            up: self.up.clone(),
            properties: resources.properties().clone(),
            expiration: resources.expiration().unwrap_or(0.0),
        });
        self.updated = false;
        response
    }

    /// Ends the stream at its holder's own request (RFC 6); returns its last response, `ENODATA`.
    ///
    /// `None` if there is no such stream.
    pub fn cancel(&mut self, origin: &[u8], matchtag: u32) -> Option<Message> {
        let holder = self.holder.take_if(|holder| {
            holder.request.matchtag == matchtag
                && holder.request.origin().unwrap_or_default() == origin
        })?;
        Some(Message::error_to(&holder.request, ENODATA, ""))
    }

    /// Frees the resources if the peer that has disconnected held them; returns whether it did.
    pub fn disconnect(&mut self, peer: &[u8]) -> bool {
        let held = self
            .holder
            .take_if(|holder| holder.request.origin().unwrap_or_default() == peer);
        held.is_some()
    }

    /// The additional response with all that has changed since the last one (RFC 28, "Additional Acquire Responses").
    ///
    /// `None` if no scheduler holds the resources, or nothing has changed.
    pub fn take_changes(&mut self) -> Option<Message> {
        if !std::mem::take(&mut self.updated) {
            return None;
        }
        let holder = self.holder.as_mut()?;
        let shrink = &holder.ranks - &self.resources.ranks();
        // A target that is excluded from now on stays known: it may come back.
        let kept = &holder.ranks - &shrink;
        let new = if holder.grow_ok {
            &self.ranks - &kept
        } else {
            IdSet::new()
        };
        let ranks = &kept | &new;
        let up = &self.up & &ranks;
        let properties = within(self.resources.properties(), &ranks);
        let expiration = self.resources.expiration().unwrap_or(0.0);
        let change = InventoryChange {
            grow: (!new.is_empty()).then(|| Arc::new(self.resources.restrict(&new))),
            up: some(&up - &holder.up, IdSet::is_empty),
            down: some(&holder.up - &up, IdSet::is_empty),
            property_add: some(
                difference(&properties, &holder.properties, &kept),
                Properties::is_empty,
            ),
            property_remove: some(
                difference(&holder.properties, &properties, &kept),
                Properties::is_empty,
            ),
            expiration: Some(expiration).filter(|end| end.to_bits() != holder.expiration.to_bits()),
            shrink: some(shrink, IdSet::is_empty),
        };
        holder.ranks = ranks;
        holder.up = up;
        holder.properties = properties;
        holder.expiration = expiration;
        (!change.is_empty()).then(|| {
            let change = TypedPayload::InventoryChange(change);
            Message::typed_success_to(&holder.request, change)
        })
    }
}

/// The value, unless it is empty.
fn some<T>(value: T, is_empty: impl Fn(&T) -> bool) -> Option<T> {
    (!is_empty(&value)).then_some(value)
}

/// The properties that some of these ranks have.
fn within(properties: &Properties, ranks: &IdSet) -> Properties {
    let within = properties
        .iter()
        .map(|(name, targets)| (name.clone(), targets & ranks));
    within.filter(|(_, targets)| !targets.is_empty()).collect()
}

/// The properties that some of `ranks` have in `left` and lack in `right`.
fn difference(left: &Properties, right: &Properties, ranks: &IdSet) -> Properties {
    let mut found = within(left, ranks);
    found.retain(|name, targets| {
        if let Some(others) = right.get(name) {
            targets.subtract(others);
        }
        !targets.is_empty()
    });
    found
}

#[cfg(test)]
#[path = "acquire_tests.rs"]
mod tests;
