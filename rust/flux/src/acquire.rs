//! RFC 28: the conversation of resource service and scheduler about the inventory.

use std::collections::BTreeMap;

use penstock_idset::IdSet;
use serde::{Deserialize, Serialize};

use crate::payload::{Json, Payload};

/// `resource.acquire`: a scheduler requests the inventory and its changes.
///
/// RFC 28 gives the request no payload; the keys are Penstock's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquireRequest {
    /// Whether the scheduler understands `grow`.
    #[serde(rename = "grow-ok", default)]
    pub grow_ok: bool,
}

/// The first response: the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InventoryResponse<'a> {
    /// R of all schedulable resources.
    #[serde(borrow)]
    pub resources: Json<'a>,
    /// The ranks that are up.
    pub up: IdSet,
}

/// A further response: what has changed. Absent keys are unchanged.
///
/// `R` is the form of an R: its JSON text, or a value in
/// [`InventoryChange`](crate::InventoryChange).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ChangeResponse<R> {
    /// R of new resources, sent to a scheduler with `grow-ok` (Penstock's own).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grow: Option<R>,
    /// Ranks that have been removed from the inventory (current version).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shrink: Option<IdSet>,
    /// Ranks that are up now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<IdSet>,
    /// Ranks that are down now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<IdSet>,
    /// Properties and the ranks that have them now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub property_add: Option<BTreeMap<String, IdSet>>,
    /// Properties and the ranks that no longer have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub property_remove: Option<BTreeMap<String, IdSet>>,
    /// When the resources expire, seconds since the epoch; 0 for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration: Option<f64>,
}

impl<R> ChangeResponse<R> {
    /// Whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        let Self {
            grow,
            shrink,
            up,
            down,
            property_add,
            property_remove,
            expiration,
        } = self;
        let ranks = [shrink, up, down];
        let properties = [property_add, property_remove];
        grow.is_none()
            && ranks.iter().all(|ranks| ranks.is_none())
            && properties.iter().all(|properties| properties.is_none())
            && expiration.is_none()
    }

    /// The same change with R of the new resources in another form.
    pub fn with_grow<S>(self, grow: Option<S>) -> ChangeResponse<S> {
        ChangeResponse {
            grow,
            shrink: self.shrink,
            up: self.up,
            down: self.down,
            property_add: self.property_add,
            property_remove: self.property_remove,
            expiration: self.expiration,
        }
    }
}

impl Payload for AcquireRequest {}
impl Payload for InventoryResponse<'_> {}
impl Payload for ChangeResponse<Json<'_>> {}
