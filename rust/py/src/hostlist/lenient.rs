//! Lenient parsing of hostlists.
use penstock_hostlist as hostlist;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::list::{Hostlist, MIN_DETACHED_SIZE};
use super::operand::{required, text};
use crate::errors::{raised, warn_mended};
use crate::shared::detach_if;

/// Parses a text leniently; returns the list and the corrections.
pub(super) fn read(text: &Bound<'_, PyString>) -> PyResult<(hostlist::Hostlist, Vec<String>)> {
    let py = text.py();
    let text = text.to_string_lossy();
    let long = text.len() > MIN_DETACHED_SIZE;
    let read = detach_if(py, long, || hostlist::Hostlist::parse_lenient(&text));
    let (list, mended) = read.map_err(raised)?;
    Ok((list, mended.iter().map(ToString::to_string).collect()))
}

/// Parses a text leniently; warns of corrections.
fn read_aloud(text: &Bound<'_, PyString>) -> PyResult<hostlist::Hostlist> {
    let (list, mended) = read(text)?;
    warn_mended(text, &mended)?;
    Ok(list)
}

/// Converts an argument to a list, with lenient parsing of its texts.
pub(super) fn list(hosts: &Bound<'_, PyAny>) -> PyResult<hostlist::Hostlist> {
    if let Ok(text) = hosts.cast::<PyString>() {
        return read_aloud(text);
    }
    if hosts.cast::<Hostlist>().is_err()
        && let Ok(items) = hosts.try_iter()
    {
        let mut list = hostlist::Hostlist::new();
        for item in items {
            let appended = list.append(&read_aloud(text(&item?)?)?);
            appended.map_err(raised)?;
        }
        return Ok(list);
    }
    required(hosts).map(|list| list.as_ref().clone())
}
