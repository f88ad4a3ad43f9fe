//! `Message`, `Batch` and `Decoder`: the wire (RFC 3).

mod batch;
mod message;

use pyo3::prelude::*;

pub(crate) use self::batch::Batch;
pub(crate) use self::message::Message;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<message::Message>()?;
    module.add_class::<Batch>()?;
    module.add_class::<batch::Decoder>()
}
