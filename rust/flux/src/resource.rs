//! The service `resource`, as administrators see it. Acquisition is in [`acquire`](crate::acquire).

use std::collections::BTreeMap;

use penstock_idset::IdSet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::payload::{Json, Payload, Text, objects, objects_by_name};

/// `resource.drain` and `resource.undrain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRequest<'a> {
    /// An idset of ranks, or a hostlist.
    #[serde(borrow)]
    pub targets: Text<'a>,
    /// The human-readable reason.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text<'a>>,
    /// Treatment of targets that are already drained (`update`, `overwrite`, `force-overwrite`) or, for undrain, not
    /// drained (`force`).
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Text<'a>>,
}

/// `resource.shrink` and `resource.unmonitor`: targets alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetsRequest<'a> {
    /// An idset of ranks, or a hostlist.
    #[serde(borrow)]
    pub targets: Text<'a>,
}

/// `resource.grow` (Penstock's own).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrowRequest<'a> {
    /// R of the new resources.
    #[serde(borrow, rename = "R")]
    pub r: Json<'a>,
}

/// `resource.reload`: the inventory becomes that of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReloadRequest<'a> {
    /// The file.
    #[serde(borrow)]
    pub path: Text<'a>,
    /// Whether the path is a directory of hwloc's XML files, not an R.
    pub xml: bool,
    /// Whether what is doubtful is done.
    pub force: bool,
}

/// `resource.property-add` and `resource.property-remove` (Penstock's own).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyRequest<'a> {
    /// An idset of ranks, or a hostlist.
    #[serde(borrow)]
    pub targets: Text<'a>,
    /// The property.
    #[serde(borrow)]
    pub name: Text<'a>,
}

/// `resource.expiration` (Penstock's own).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpirationRequest {
    /// When the resources expire, seconds since the epoch; 0 for never.
    pub expiration: f64,
}

/// `resource.monitor`, streaming: ranks are online until the stream ends (Penstock's own).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorRequest<'a> {
    /// An idset of ranks.
    #[serde(borrow)]
    pub ranks: Text<'a>,
}

/// The response to `resource.monitor`: the request is being served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MonitorResponse {
    /// The ranks that are online until the stream ends.
    pub ranks: IdSet,
}

/// The response to `resource.stats-get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatsResponse {
    /// The ranks of the inventory.
    pub ranks: IdSet,
    /// The ranks that may be allocated.
    pub up: IdSet,
    /// The number of drained ranks.
    pub drained: u64,
    /// Whether a scheduler holds the resources.
    pub acquired: bool,
    /// The number of `resource.monitor` streams.
    pub monitors: u64,
    /// The number of events in the resource log.
    pub events: u64,
}

/// `resource.history` (Penstock's own).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRequest<'a> {
    /// Events about these targets only: an idset of ranks, or a hostlist.
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Text<'a>>,
}

/// The response to `resource.history`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryResponse {
    /// Events of the resource log (RFC 18), the oldest first.
    #[serde(deserialize_with = "objects")]
    pub events: Vec<Map<String, Value>>,
}

/// A response to `resource.journal`, streaming: events of the resource log, none after all past ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JournalResponse<'a> {
    /// The events (RFC 18), the oldest first.
    #[serde(deserialize_with = "objects")]
    pub events: Vec<Map<String, Value>>,
    /// The inventory, with the event `resource-define`.
    #[serde(borrow, rename = "R", skip_serializing_if = "Option::is_none")]
    pub r: Option<Json<'a>>,
}

/// The reason and the time of a drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drain {
    /// Seconds since the epoch.
    pub timestamp: f64,
    /// The human-readable reason.
    #[serde(default)]
    pub reason: String,
}

/// The response to `resource.status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusResponse<'a> {
    /// R of the inventory.
    #[serde(borrow, rename = "R")]
    pub r: Json<'a>,
    /// Drained ranks, by idset.
    #[serde(deserialize_with = "objects_by_name")]
    pub drain: BTreeMap<String, Drain>,
    /// An idset of the ranks that are online.
    #[serde(borrow)]
    pub online: Text<'a>,
    /// An idset of the ranks that are offline.
    #[serde(borrow)]
    pub offline: Text<'a>,
    /// An idset of the ranks that configuration excludes from scheduling.
    #[serde(borrow)]
    pub exclude: Text<'a>,
    /// An idset of the ranks that do not respond.
    #[serde(borrow, default)]
    pub torpid: Text<'a>,
}

/// The response to `resource.sched-status`: R of the schedulable resources, by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedStatusResponse<'a> {
    /// All schedulable resources.
    #[serde(borrow)]
    pub all: Json<'a>,
    /// Resources of ranks that are down.
    #[serde(borrow)]
    pub down: Json<'a>,
    /// Resources allocated to jobs.
    #[serde(borrow)]
    pub allocated: Json<'a>,
}

impl Payload for DrainRequest<'_> {}
impl Payload for TargetsRequest<'_> {}
impl Payload for GrowRequest<'_> {}
impl Payload for ReloadRequest<'_> {}
impl Payload for PropertyRequest<'_> {}
impl Payload for ExpirationRequest {}
impl Payload for MonitorRequest<'_> {}
impl Payload for MonitorResponse {}
impl Payload for StatsResponse {}
impl Payload for HistoryRequest<'_> {}
impl Payload for HistoryResponse {}
impl Payload for JournalResponse<'_> {}
impl Payload for StatusResponse<'_> {}
impl Payload for SchedStatusResponse<'_> {}
