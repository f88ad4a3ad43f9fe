//! The owner of the simulated instance, and the cores of its execution targets.

use std::collections::BTreeSet;

use penstock_rset::ResourceSet;

/// The user id of the instance owner.
pub const OWNER: u32 = 1000;

/// A core of an execution target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Core {
    /// The execution target.
    pub rank: u32,
    /// The core's id on it.
    pub id: u32,
}

/// The cores of an R.
pub fn cores_of(r: &ResourceSet) -> BTreeSet<Core> {
    let runs = r.runs();
    let cores = runs.flat_map(|(ranks, cores, _)| {
        ranks.flat_map(move |rank| cores.iter().map(move |id| Core { rank, id }))
    });
    cores.collect()
}
