//! Conversion of the Python arguments of a `Hostlist`: names, texts, iterables.
use std::sync::Arc;

use penstock_hostlist as hostlist;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};

use super::list::{Hostlist, MIN_DETACHED_SIZE};
use crate::errors::raised;
use crate::shared::{detach_if, type_name};

/// The object as a string: a name or a text.
pub(super) fn text<'a, 'py>(object: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyString>> {
    object.cast::<PyString>().map_err(|_| {
        let kind = type_name(object);
        PyTypeError::new_err(format!("expected a host name (str), not {kind}"))
    })
}

/// A host name or text of a Python string, without a copy.
enum Host<'py> {
    Text(Bound<'py, PyString>),
    /// A lone surrogate is shown by its replacement character, and rejected like any other invalid character.
    Lossy(String),
}

impl<'py> Host<'py> {
    fn new(object: Bound<'py, PyAny>) -> PyResult<Self> {
        text(&object)?;
        let text = object.cast_into::<PyString>()?;
        Ok(if text.to_str().is_ok() {
            Self::Text(text)
        } else {
            Self::Lossy(text.to_string_lossy().into_owned())
        })
    }
}

/// The hosts of an iterable, up to the first error.
///
/// Visits several objects before it reads the first one, so that the processor fetches their strings in parallel.
struct Hosts<'py, I> {
    items: I,
    ahead: std::vec::IntoIter<Host<'py>>,
    failed: Option<PyErr>,
}

/// Python objects converted at a time: few enough to stay in the first-level cache.
const BLOCK_ITEMS: usize = 128;

impl<'py, I: Iterator<Item = PyResult<Bound<'py, PyAny>>>> Hosts<'py, I> {
    fn read(items: I) -> PyResult<hostlist::Hostlist> {
        let mut hosts = Self {
            items,
            ahead: Vec::new().into_iter(),
            failed: None,
        };
        let read = hostlist::Hostlist::try_from_hosts(&mut hosts);
        // An invalid name precedes a failure of the iterator: that came while names were read ahead.
        let list = read.map_err(raised)?;
        hosts.failed.map_or(Ok(list), Err)
    }
}

impl<'py, I: Iterator<Item = PyResult<Bound<'py, PyAny>>>> Iterator for Hosts<'py, I> {
    type Item = Host<'py>;

    fn next(&mut self) -> Option<Host<'py>> {
        if let Some(host) = self.ahead.next() {
            return Some(host);
        }
        if self.failed.is_some() {
            return None;
        }
        let mut ahead = Vec::with_capacity(BLOCK_ITEMS);
        for item in self.items.by_ref().take(BLOCK_ITEMS) {
            match item.and_then(Host::new) {
                Ok(host) => ahead.push(host),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        self.ahead = ahead.into_iter();
        self.ahead.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl AsRef<str> for Host<'_> {
    fn as_ref(&self) -> &str {
        match self {
            // It has been seen to be UTF-8, which Python keeps.
            Self::Text(text) => text.to_str().unwrap_or("\u{fffd}"),
            Self::Lossy(text) => text,
        }
    }
}

/// The list of the one host that an object names.
pub(super) fn name(object: &Bound<'_, PyAny>) -> PyResult<hostlist::Hostlist> {
    let mut list = hostlist::Hostlist::new();
    let pushed = list.push(Host::new(object.clone())?.as_ref());
    pushed.map_err(raised)?;
    Ok(list)
}

/// Converts the other operand of an operator: a list, its text, an iterable of names or texts. `None` for other types.
pub(super) fn operand(other: &Bound<'_, PyAny>) -> PyResult<Option<Arc<hostlist::Hostlist>>> {
    let py = other.py();
    if let Ok(list) = other.cast::<Hostlist>() {
        return Ok(Some(list.get().snapshot()));
    }
    let list = if let Ok(text) = other.cast::<PyString>() {
        let text = text.to_string_lossy();
        let read = detach_if(py, text.len() > MIN_DETACHED_SIZE, || text.parse());
        read.map_err(raised)?
    } else if let Ok(list) = other.cast_exact::<PyList>() {
        Hosts::read(list.iter().map(Ok))?
    } else if let Ok(items) = other.try_iter() {
        Hosts::read(items)?
    } else {
        return Ok(None);
    };
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
