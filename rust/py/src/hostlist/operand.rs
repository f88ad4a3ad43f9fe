//! What Python hands to a `Hostlist`: names, texts, iterables.
use std::borrow::Cow;
use std::sync::Arc;

use penstock_hostlist as hostlist;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{Hostlist, LONG};
use crate::errors::hostlist_error;
use crate::shared::{detached, type_name};

fn host<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let text = object.cast::<PyString>().map_err(|_| {
        let kind = type_name(object);
        PyTypeError::new_err(format!("expected a host name (str), not {kind}"))
    })?;
    Ok(text.clone())
}

/// The list of one host, which is what the object names.
pub(super) fn name(object: &Bound<'_, PyAny>) -> PyResult<hostlist::Hostlist> {
    let mut list = hostlist::Hostlist::new();
    // What is not UTF-8 (lone surrogates) is shown by its replacement and refused as any other character.
    let pushed = list.push(&host(object)?.to_string_lossy());
    pushed.map_err(|error| hostlist_error(object.py(), &error))?;
    Ok(list)
}

/// What can stand beside an operator: a list, its text, an iterable of names or texts. None for anything else.
pub(super) fn operand(other: &Bound<'_, PyAny>) -> PyResult<Option<Arc<hostlist::Hostlist>>> {
    let py = other.py();
    if let Ok(list) = other.cast::<Hostlist>() {
        return Ok(Some(list.get().snapshot()));
    }
    let read = if let Ok(text) = other.cast::<PyString>() {
        let text = text.to_string_lossy();
        detached(py, text.len() > LONG, || text.parse())
    } else {
        let Ok(items) = other.try_iter() else {
            return Ok(None);
        };
        let hosts: Vec<_> = items.map(|item| host(&item?)).collect::<PyResult<_>>()?;
        let texts: Vec<Cow<'_, str>> = hosts.iter().map(|host| host.to_string_lossy()).collect();
        detached(py, texts.len() > LONG, || {
            hostlist::Hostlist::try_from_hosts(&texts)
        })
    };
    let list = read.map_err(|error: hostlist::Error| hostlist_error(py, &error))?;
    Ok(Some(Arc::new(list)))
}

pub(super) fn required(other: &Bound<'_, PyAny>) -> PyResult<Arc<hostlist::Hostlist>> {
    operand(other)?.ok_or_else(|| {
        PyTypeError::new_err(format!(
            "expected a Hostlist, its text or an iterable of host names, not {}",
            type_name(other)
        ))
    })
}
