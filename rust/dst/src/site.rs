//! The owner of the simulated instance, and the cores of its execution targets.

use std::collections::BTreeSet;

use penstock_rset::ResourceSet;

/// The user id of the instance owner.
pub const OWNER: u32 = 1000;

/// A core of an execution target.
pub type Core = (u32, u32);

/// The cores of an R.
pub fn cores_of(r: &ResourceSet) -> BTreeSet<Core> {
    let runs = r.runs();
    let cores = runs.flat_map(|(ranks, cores, _)| {
        ranks.flat_map(move |rank| cores.iter().map(move |core| (rank, core)))
    });
    cores.collect()
}
