//! Another group and order of a queue, in slices: while one is under way, jobs may be queued, removed and prioritized, and
//! no pass is made.
//!
//! One class moves after the other. If its order is another one, so do its lanes: the keys of a lane are taken out, and
//! added again in the new order.

use std::collections::{BTreeMap, BTreeSet};

use super::keys::Keys;
use super::order::Order;
use crate::ids::{GroupId, LaneId, QueueId};

/// The progress of new groups and orders.
#[derive(Clone, Debug)]
pub(super) struct Reordering {
    /// The queues that have other ones.
    pub queues: BTreeMap<QueueId, (GroupId, Order)>,
    /// The next class, or the present one.
    pub class: usize,
    /// Whether its lanes are being put in order.
    pub is_in_class: bool,
    /// The time limit of the last one of these that was begun.
    pub limit: Option<f64>,
    pub lane: LaneId,
    /// The keys of that lane in the former order.
    pub keys: Keys,
    /// The classes some of whose lanes may have a former order.
    pub incomplete: BTreeSet<usize>,
}

impl Default for Reordering {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            class: 0,
            is_in_class: false,
            limit: None,
            lane: LaneId::NONE,
            keys: Keys::default(),
            incomplete: BTreeSet::new(),
        }
    }
}
