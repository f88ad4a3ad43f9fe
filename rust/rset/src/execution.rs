//! The value of the key `execution` of R (RFC 20).

use std::collections::BTreeMap;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;

use crate::raw::Carried;
use crate::segments::Segments;

/// The value of the key `execution`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Execution {
    pub(crate) segments: Segments,
    /// The ranks of `segments`.
    pub(crate) ranks: IdSet,
    /// One host for each rank, in the order of ranks.
    pub(crate) hosts: Hostlist,
    pub(crate) properties: BTreeMap<String, IdSet>,
    pub(crate) starttime: Option<f64>,
    pub(crate) expiration: Option<f64>,
    pub(crate) nslots: Option<u64>,
    /// Keys of `execution` that RFC 20 does not name.
    pub(crate) others: BTreeMap<String, Carried>,
}
