//! `lay_out` and `tasks_by_node`: the placement of a job's tasks on its nodes.

use penstock_jobspec::{Layout, TaskPlacement};
use pyo3::prelude::*;

use crate::errors::raised;
use crate::idset::PyIdSet;
use crate::jobspec::jobspec;
use crate::resource::PyResourceSet;

/// One task of a job: its rank, its node, and the cores and gpus that it may use there.
#[pyclass(module = "penstock._core", name = "TaskPlacement", frozen)]
struct PyTaskPlacement(TaskPlacement);

#[pymethods]
impl PyTaskPlacement {
    #[getter]
    fn task_rank(&self) -> u64 {
        self.0.task_rank
    }

    #[getter]
    fn local_rank(&self) -> u64 {
        self.0.local_rank
    }

    #[getter]
    fn node_index(&self) -> usize {
        self.0.node_index
    }

    #[getter]
    fn target(&self) -> u32 {
        self.0.target
    }

    #[getter]
    fn host(&self) -> &str {
        &self.0.host
    }

    #[getter]
    fn cores(&self) -> PyIdSet {
        PyIdSet::new(self.0.cores.clone())
    }

    #[getter]
    fn gpus(&self) -> PyIdSet {
        PyIdSet::new(self.0.gpus.clone())
    }
}

/// Places the tasks of a jobspec, given as its text, on its R.
#[pyfunction]
fn lay_out(text: &str, resources: &Bound<'_, PyResourceSet>) -> PyResult<Vec<PyTaskPlacement>> {
    let (spec, resources) = (jobspec(text)?, resources.get().snapshot());
    let layout = Layout::new(&spec, &resources);
    let layout = layout.map_err(raised)?;
    Ok(layout.tasks().map(PyTaskPlacement).collect())
}

/// The number of tasks of a jobspec, given as its text, on each node of its R. Ranks ascend from node to node.
#[pyfunction]
fn tasks_by_node(text: &str, resources: &Bound<'_, PyResourceSet>) -> PyResult<Vec<u64>> {
    let (spec, resources) = (jobspec(text)?, resources.get().snapshot());
    let layout = Layout::new(&spec, &resources).map_err(raised)?;
    Ok(layout.tasks_by_node().collect())
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTaskPlacement>()?;
    module.add_function(wrap_pyfunction!(lay_out, module)?)?;
    module.add_function(wrap_pyfunction!(tasks_by_node, module)?)
}
