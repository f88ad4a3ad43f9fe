//! `Workload`, `Simulation` and `SimResult`: workloads replayed in virtual time.

mod away;
mod result;
mod simulation;
mod workload;

use pyo3::prelude::*;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<workload::Workload>()?;
    module.add_class::<simulation::Simulation>()?;
    module.add_class::<result::SimResult>()
}
