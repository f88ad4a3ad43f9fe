//! Conversion of the Python arguments of a `ResourceSet`.
use std::sync::Arc;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_rset::{Error, ResourceSet, Scheduling};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyMapping, PyString};
use serde_json::value::RawValue;

use super::set::{MIN_DETACHED_SIZE, PyResourceSet};
use crate::errors::{JsonDocument, ResourceSetError, raised};
use crate::hostlist::Hostlist as PyHostlist;
use crate::idset::PyIdSet;
use crate::json::{self, JsonError};
use crate::shared::{detach_if, type_name};

pub(super) fn parsed<'py>(
    py: Python<'py>,
    raw: Option<&RawValue>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    raw.map(|raw| object(py, raw.get())).transpose()
}

fn json_error(error: JsonError) -> PyErr {
    JsonDocument::ResourceSet.raised(error)
}

pub(super) fn object<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    json::decode(py, text).map_err(json_error)
}

/// Converts an argument to a resource set: a set, JSON as text or UTF-8, or a mapping.
pub(crate) fn extract(source: &Bound<'_, PyAny>) -> PyResult<Arc<ResourceSet>> {
    let py = source.py();
    if let Ok(set) = source.cast::<PyResourceSet>() {
        return Ok(set.get().snapshot());
    }
    with_text(source, |text| {
        let parsed = detach_if(py, text.len() > MIN_DETACHED_SIZE, || {
            ResourceSet::from_json(text)
        });
        parsed.map(Arc::new).map_err(raised)
    })
}

/// The problems of an argument that should be a resource set.
pub(super) fn problems(source: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if source.cast::<PyResourceSet>().is_ok() {
        return Ok(Vec::new());
    }
    document_problems(source, ResourceSet::problems)
}

/// The problems of an argument that should be a resource set, and of its resource graph.
pub(super) fn problems_with_graph(source: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(set) = source.cast::<PyResourceSet>() {
        let set = set.get().snapshot();
        return Ok(texts(&source.py().detach(|| set.graph_problems())));
    }
    document_problems(source, ResourceSet::problems_with_graph)
}

fn texts(problems: &[Error]) -> Vec<String> {
    problems.iter().map(Error::to_string).collect()
}

fn document_problems(
    source: &Bound<'_, PyAny>,
    find: fn(&str) -> Vec<Error>,
) -> PyResult<Vec<String>> {
    let py = source.py();
    let found = with_text(source, |text| {
        let problems = detach_if(py, text.len() > MIN_DETACHED_SIZE, || find(text));
        Ok(texts(&problems))
    });
    match found {
        Err(error) if error.is_instance_of::<ResourceSetError>(py) => {
            Ok(vec![error.value(py).to_string()])
        }
        found => found,
    }
}

/// Calls `read` with the JSON text of a source; fails for an object without one.
fn with_text<R>(source: &Bound<'_, PyAny>, read: impl FnOnce(&str) -> PyResult<R>) -> PyResult<R> {
    if let Ok(text) = source.cast::<PyString>() {
        let text = text.to_str().map_err(|_| {
            let problem = "the text holds a lone surrogate";
            json_error(JsonError::Invalid(problem.to_owned(), None))
        })?;
        return read(text);
    }
    if let Ok(bytes) = source.extract::<PyBackedBytes>() {
        return match std::str::from_utf8(&bytes) {
            Ok(text) => read(text),
            Err(error) => Err(raised(Error::from(error))),
        };
    }
    if source.cast::<PyMapping>().is_ok() {
        return read(&json::encode(source).map_err(json_error)?);
    }
    let kind = type_name(source);
    Err(PyTypeError::new_err(format!(
        "expected a ResourceSet, or R as str, bytes or dict, not {kind}"
    )))
}

/// Raises the first of several problems, with the others as its notes.
pub(super) fn raise_all(py: Python<'_>, problems: &[Error]) -> PyResult<()> {
    let Some((first, others)) = problems.split_first() else {
        return Ok(());
    };
    let raised = raised(first);
    for problem in others {
        raised
            .value(py)
            .call_method1("add_note", (problem.to_string(),))?;
    }
    Err(raised)
}

/// Converts the argument `scheduling` of an operation.
pub(super) fn scheduling(argument: Option<&str>) -> PyResult<Scheduling> {
    match argument {
        None => Ok(Scheduling::Same),
        Some("left") => Ok(Scheduling::Left),
        Some("drop") => Ok(Scheduling::Drop),
        Some(other) => Err(PyValueError::new_err(format!(
            "expected scheduling to be None, 'left' or 'drop', found {other:?}"
        ))),
    }
}

/// The ids of an `IDset`, or of an argument of its constructor.
pub(crate) fn ids(source: &Bound<'_, PyAny>) -> PyResult<IdSet> {
    let py = source.py();
    if let Ok(set) = source.cast::<PyIdSet>() {
        return Ok(set.get().snapshot(py));
    }
    let made = py.get_type::<PyIdSet>().call1((source,))?;
    Ok(made.cast::<PyIdSet>()?.get().snapshot(py))
}

/// The hosts of a `Hostlist`, or of an argument of its constructor.
pub(super) fn hosts(source: &Bound<'_, PyAny>) -> PyResult<Arc<Hostlist>> {
    if let Ok(list) = source.cast::<PyHostlist>() {
        return Ok(list.get().snapshot());
    }
    let made = source.py().get_type::<PyHostlist>().call1((source,))?;
    Ok(made.cast::<PyHostlist>()?.get().snapshot())
}
