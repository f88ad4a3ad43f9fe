//! The class `Hostlist`; its methods are in the modules above.
#![expect(clippy::doc_markdown, reason = "docstrings are Python's")]

use std::sync::Arc;

use penstock_hostlist as hostlist;
use pyo3::prelude::*;

use crate::shared::Shared;

/// Bytes of a text, or hosts of a list, above which work releases the GIL.
pub(super) const MIN_DETACHED_SIZE: usize = 4096;

/// Hostlist(hosts: str | Iterable[str] | None = None, /, *, lenient: bool = False)
///
/// An ordered list of host names, repeats kept (RFC 29): a `collections.abc.MutableSequence` of str. See
/// `penstock.hostlist`.
///
/// Args:
///     hosts: The text of a list, an iterable of names or texts, or another Hostlist; the empty list if omitted.
///     lenient: Correct texts that do not quite follow RFC 29, as `parse_lenient` does, with a `MendedWarning`.
///
/// Raises:
///     HostlistError: A text is not a hostlist, or the list would be too long.
///     TypeError: `hosts` has another type.
#[pyclass(module = "penstock.hostlist", name = "Hostlist", frozen)]
#[derive(Debug)]
pub(crate) struct Hostlist(pub(super) Shared<hostlist::Hostlist>);

impl Hostlist {
    pub(crate) fn new(list: impl Into<Arc<hostlist::Hostlist>>) -> Self {
        Self(Shared::new(list))
    }

    pub(crate) fn snapshot(&self) -> Arc<hostlist::Hostlist> {
        self.0.snapshot()
    }
}
