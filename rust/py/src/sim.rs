//! `Workload`, `Simulation` and `SimResult`: workloads replayed in virtual time.

mod away;
mod result;
mod simulation;
mod workload;

use pyo3::prelude::*;

use crate::errors::WorkloadError;

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> PyResult<T> {
    let parsed = text.parse();
    parsed.map_err(|error: T::Err| WorkloadError::new_err(error.to_string()))
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<workload::Workload>()?;
    module.add_class::<simulation::Simulation>()?;
    module.add_class::<result::SimResult>()
}
