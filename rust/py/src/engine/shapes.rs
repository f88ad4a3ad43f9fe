//! Shapes: requests of jobs, interned by number.

use penstock_jobspec::{Constraint, Count, Request};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyString};
use serde_json::json;

use super::core_state::{CoreState, EngineCore, NamedShape};
use crate::errors::{EngineError, JobspecError, raised_for};
use crate::jobspec::jobspec;
use crate::resource::constraint;
use crate::shared::type_name;

/// A number or a range, at least `least`.
fn count(source: &Bound<'_, PyAny>, name: &str, least: u32) -> PyResult<Count> {
    let count = if let Ok(text) = source.cast::<PyString>() {
        let text = text.to_str()?;
        text.parse::<Count>().map_err(raised_for(name))?
    } else if source.is_instance_of::<PyInt>() || source.hasattr("__index__")? {
        let number = source.extract::<u32>().map_err(|_| {
            JobspecError::new_err(format!(
                "{name}: expected {least} to {}, found {source}",
                u32::MAX
            ))
        })?;
        Count::exactly(number)
    } else {
        let kind = type_name(source);
        return Err(PyTypeError::new_err(format!(
            "{name}: expected a number or the text of a range, found {kind}"
        )));
    };
    if count.min() < least {
        return Err(JobspecError::new_err(format!(
            "{name}: expected at least {least}, found {source}"
        )));
    }
    Ok(count)
}

impl CoreState {
    /// The number of a request's shape.
    fn number_of(&mut self, request: &Request) -> u32 {
        let shape = self.engine.shape(request);
        self.shapes.name(shape, request)
    }

    /// The shape of a number from Python.
    pub(super) fn shape_at(&self, place: &str, number: u32) -> PyResult<&NamedShape> {
        self.shapes.at(number).ok_or_else(|| {
            let expected = match self.shapes.count() {
                0 => "a shape, but none was named yet".to_owned(),
                shapes => format!("a shape from 0 to {}", shapes - 1),
            };
            EngineError::new_err(format!("{place}: expected {expected}, found {number}"))
        })
    }
}

#[pymethods]
impl EngineCore {
    fn shape(
        &self,
        nodes: Option<&Bound<'_, PyAny>>,
        slots: &Bound<'_, PyAny>,
        cores: &Bound<'_, PyAny>,
        gpus: &Bound<'_, PyAny>,
        exclusive: bool,
        constraint: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u32> {
        if exclusive && nodes.is_none() {
            let problem = "exclusive: expected a number of nodes as well";
            return Err(JobspecError::new_err(problem));
        }
        let request = Request {
            nnodes: nodes.map(|nodes| count(nodes, "nodes", 1)).transpose()?,
            exclusive,
            slots: count(slots, "slots", 1)?,
            cores_per_slot: count(cores, "cores", 1)?,
            gpus_per_slot: count(gpus, "gpus", 0)?,
            duration: 0.0,
            constraint: constraint.map(constraint::extract).transpose()?,
        };
        Ok(self.lock()?.number_of(&request))
    }

    fn jobspec_shape(&self, text: &str) -> PyResult<u32> {
        let jobspec = jobspec(text)?;
        Ok(self.lock()?.number_of(jobspec.request()))
    }

    #[getter]
    fn nshapes(&self) -> PyResult<u32> {
        Ok(self.lock()?.shapes.count())
    }

    /// The arguments that make a shape, as JSON.
    fn shape_request(&self, shape: u32) -> PyResult<String> {
        let state = self.lock()?;
        let request = &state.shape_at("shape", shape)?.request;
        let request = json!({
            "nodes": request.nnodes.as_ref().map(argument),
            "slots": argument(&request.slots),
            "cores": argument(&request.cores_per_slot),
            "gpus": argument(&request.gpus_per_slot),
            "exclusive": request.exclusive,
            "constraint": request.constraint.as_ref().map(Constraint::to_value),
        });
        Ok(request.to_string())
    }

    /// The reason why a shape is infeasible here, or `None`.
    fn infeasible(&self, shape: u32) -> PyResult<Option<String>> {
        let mut state = self.lock()?;
        let request = state.shape_at("shape", shape)?.request.clone();
        let reason = state.engine.feasible(&request).err();
        Ok(reason.map(|reason| reason.to_string()))
    }
}

/// A count as `shape` takes it.
fn argument(count: &Count) -> serde_json::Value {
    if count.is_exact() {
        json!(count.min())
    } else {
        json!(count.to_string())
    }
}
