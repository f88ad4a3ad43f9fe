//! Constraints (RFC 31) on the ranks of a `ResourceSet`.
use penstock_idset::IdSet;
use penstock_jobspec::Constraint;
use penstock_rset::ResourceSet;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyMapping, PyString};

use crate::errors::{JsonDocument, raised};
use crate::json;
use crate::shared::type_name;

/// Converts an argument to a constraint: a mapping, JSON text, or the short text of RFC 35.
pub(crate) fn extract(source: &Bound<'_, PyAny>) -> PyResult<Constraint> {
    if let Ok(text) = source.cast::<PyString>() {
        let text = text.to_str()?;
        return if text.trim_start().starts_with('{') {
            Constraint::from_json(text).map_err(raised)
        } else {
            from_mapping(&short(text, source.py())?)
        };
    }
    if source.cast::<PyMapping>().is_ok() {
        return from_mapping(source);
    }
    let kind = type_name(source);
    Err(PyTypeError::new_err(format!(
        "expected a constraint as dict or str, not {kind}"
    )))
}

/// The mapping of a text in the syntax of RFC 35.
fn short<'py>(text: &str, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
    static PARSE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let parse = PARSE.get_or_try_init(py, || {
        let module = py.import("penstock.constraint")?;
        module.getattr("parse_requires").map(Bound::unbind)
    })?;
    parse.bind(py).call1((text,))
}

fn from_mapping(mapping: &Bound<'_, PyAny>) -> PyResult<Constraint> {
    let text = json::encode(mapping).map_err(|error| JsonDocument::Constraint.raised(error))?;
    Constraint::from_json(&text).map_err(raised)
}

/// The ranks of a set that meet a constraint: an operation on sets of ranks for each part of it.
pub(super) fn matching(set: &ResourceSet, constraint: &Constraint) -> IdSet {
    let all = |parts: &[Constraint]| {
        let parts = parts.iter().map(|part| matching(set, part));
        parts.fold(set.ranks(), |met, part| met.intersection(&part))
    };
    match constraint {
        Constraint::And(parts) => all(parts),
        Constraint::Or(parts) if parts.is_empty() => set.ranks(),
        Constraint::Or(parts) => {
            let parts = parts.iter().map(|part| matching(set, part));
            parts.fold(IdSet::new(), |met, part| met.union(&part))
        }
        Constraint::Not(parts) => set.ranks().difference(&all(parts)),
        Constraint::Properties(names) => {
            let names = names.iter();
            names.fold(set.ranks(), |met, name| match name.strip_prefix('^') {
                Some(absent) => met.difference(&set.ranks_with_property(absent)),
                None => met.intersection(&set.ranks_with_property(name)),
            })
        }
        Constraint::Hostlist(hosts) => set.ranks_on(hosts),
        Constraint::Ranks(ranks) => ranks.intersection(&set.ranks()),
    }
}
