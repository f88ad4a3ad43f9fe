//! `EngineCore`: the implementation of `penstock.Engine`, which documents its methods.

mod arrangement;
mod columns;
mod core_state;
mod decisions;
mod inventory;
mod jobs;
mod parts;
mod queries;
mod shapes;

use pyo3::prelude::*;

use self::core_state::EngineCore;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<EngineCore>()?;
    module.add_class::<decisions::Decisions>()
}
