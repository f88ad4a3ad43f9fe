//! `Message`, `Batch` and `Decoder`: the wire (RFC 3).

mod batch;
mod message;

use pyo3::prelude::*;

pub(crate) use self::batch::Batch;
pub(crate) use self::message::Message;
use crate::errors::{WireError, with_attribute};

fn error_at(py: Python<'_>, text: String, offset: usize) -> PyErr {
    with_attribute(py, WireError::new_err(text), "offset", offset)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<message::Message>()?;
    module.add_class::<Batch>()?;
    module.add_class::<batch::Decoder>()
}
