//! `Workload`, `Simulation` and `SimResult`: workloads replayed in virtual time.

mod result;
mod simulation;
mod worker_thread;
mod workload;

use pyo3::prelude::*;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<workload::Workload>()?;
    module.add_class::<simulation::Simulation>()?;
    module.add_class::<result::SimResult>()
}
