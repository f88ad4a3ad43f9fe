//! The extension module `penstock._core`: the only crate that names pyo3, one file a group of classes.

use pyo3::prelude::*;

mod array;
mod broker;
mod compat;
mod engine;
mod errors;
mod flux;
mod guarded;
mod hostlist;
mod idset;
mod jobspec;
mod json;
mod layout;
mod manager;
mod mockexec;
mod resource;
mod resource_module;
mod sched;
mod shared;
mod sim;
mod store;
mod wire;

#[global_allocator]
static ALLOCATOR: penstock_malloc::Malloc = penstock_malloc::Malloc;

/// return_memory() -> None
///
/// Return the memory that this thread has freed to the system. The allocator does so by itself only when more is freed
/// later.
#[pyfunction]
#[expect(clippy::doc_markdown, reason = "docstrings are Python's")]
fn return_memory() {
    penstock_malloc::return_memory();
}

/// The compiled core of Penstock.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    // Whether the manager compares every record with a replay of its log.
    module.add("HAS_CHECKS", cfg!(debug_assertions))?;
    let panic = module.py().get_type::<pyo3::panic::PanicException>();
    module.add("PanicException", panic)?;
    module.add_function(wrap_pyfunction!(return_memory, module)?)?;
    idset::register(module)?;
    hostlist::register(module)?;
    resource::register(module)?;
    compat::register(module)?;
    jobspec::register(module)?;
    layout::register(module)?;
    engine::register(module)?;
    flux::register(module)?;
    wire::register(module)?;
    broker::register(module)?;
    manager::register(module)?;
    resource_module::register(module)?;
    sched::register(module)?;
    mockexec::register(module)?;
    store::register(module)?;
    sim::register(module)
}
