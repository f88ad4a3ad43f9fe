//! Texts as Flux reads them, for `penstock.compat.flux`.

use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::raised;
use crate::hostlist::Hostlist;
use crate::idset::PyIdSet;

/// An idset's text, in which empty parts are left out.
#[pyfunction]
fn parse_flux_idset(text: &Bound<'_, PyString>) -> PyResult<PyIdSet> {
    let ids = penstock_compat::parse_idset(&text.to_string_lossy());
    ids.map(PyIdSet::new).map_err(raised)
}

/// A hostlist's text, in which blanks separate hosts and a range has the width of its first number.
#[pyfunction]
fn parse_flux_hostlist(text: &Bound<'_, PyString>) -> PyResult<Hostlist> {
    let (py, text) = (text.py(), text.to_string_lossy());
    let hosts = py.detach(|| penstock_compat::parse_hostlist(&text));
    hosts.map(Hostlist::new).map_err(raised)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(parse_flux_idset, module)?)?;
    module.add_function(wrap_pyfunction!(parse_flux_hostlist, module)?)
}
