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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ChangeResponse<'a> {
    /// R of new resources, sent to a scheduler with `grow-ok` (Penstock's own).
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub grow: Option<Json<'a>>,
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

impl Payload for AcquireRequest {}
impl Payload for InventoryResponse<'_> {}
impl Payload for ChangeResponse<'_> {}
