//! The class `ResourceSet`; its methods are in the modules above.
#![expect(clippy::doc_markdown, reason = "docstrings are Python's")]

use std::sync::Arc;

use penstock_rset::ResourceSet;
use pyo3::prelude::*;

use crate::shared::Shared;

/// Bytes of a text, or nodes of a set, above which work releases the GIL.
pub(super) const MIN_DETACHED_SIZE: usize = 4096;
/// ResourceSet(source: ResourceSet | str | bytes | bytearray | Mapping[str, Any] | None = None, /)
///
/// Which cores and gpus of which execution targets: *R* of RFC 20, version 1.
///
/// A set maps ranks to their host and to sets of cores and gpus. It has properties, a start and an end time, and
/// carries `scheduling`, `attributes` and keys that the RFC does not name unharmed. Neighbouring ranks with equal
/// resources share one entry, so that 10,000 equal nodes take the memory of one.
///
/// A set can be changed, so it has no hash. `|`, `&`, `-` and `+` are union, intersection, difference and append;
/// `len` is the number of nodes; two sets are equal if their contents are, whatever the form of their JSON.
///
/// An R that has `scheduling` alone is valid and is preserved: it has no nodes, and methods that need nodes raise
/// `ResourceSetError`.
///
/// >>> from penstock import ResourceSet
/// >>> r = ResourceSet.uniform("0-3", "node[0-3]", cores="0-7", gpus="0")
/// >>> r.ncores, r.ngpus
/// (32, 4)
/// >>> str(r.restrict(hosts="node[1-2]"))
/// 'rank[1-2]/core[0-7],gpu0'
///
/// Args:
///     source: R as JSON text, as UTF-8 or as a dict; another set to copy; None for an empty set.
///
/// Raises:
///     ResourceSetError: `source` is not a valid R. The text names the place, as in `invalid R:
///         execution.R_lite[0].children.core: invalid idset "0-x": expected a number at byte 2`; the attributes
///         `path` and `offset` (in the string at the path) say it again.
///     TypeError: `source` is something else.
#[pyclass(module = "penstock.resource", name = "ResourceSet", frozen)]
#[derive(Debug)]
pub(crate) struct PyResourceSet(pub(super) Shared<ResourceSet>);

impl PyResourceSet {
    pub(crate) fn new(set: impl Into<Arc<ResourceSet>>) -> Self {
        Self(Shared::new(set))
    }

    pub(crate) fn snapshot(&self) -> Arc<ResourceSet> {
        self.0.snapshot()
    }
}
