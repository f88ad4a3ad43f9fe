//! The nodes of a `ResourceSet`, one by one.
use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_rset::{Node, ResourceSet};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::idset::PyIdSet;

/// Nodes that an iterator reads ahead at a time.
const BLOCK_NODES: usize = 256;

/// A `penstock.resource.Node`.
pub(super) fn make_node<'py>(
    py: Python<'py>,
    rank: u32,
    host: &str,
    cores: IdSet,
    gpus: IdSet,
) -> PyResult<Bound<'py, PyAny>> {
    static NODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = NODE.get_or_try_init(py, || {
        py.import("penstock.resource")?
            .getattr("Node")
            .map(Bound::unbind)
    })?;
    class
        .bind(py)
        .call1((rank, host, PyIdSet::new(cores), PyIdSet::new(gpus)))
}

/// Iterates over the nodes of a snapshot of a set.
#[pyclass(module = "penstock.resource")]
pub(super) struct NodeIterator {
    set: Arc<ResourceSet>,
    /// The least rank that was not read ahead; none at the end.
    next: Option<u32>,
    ahead: std::vec::IntoIter<(u32, String, IdSet, IdSet)>,
}

impl NodeIterator {
    pub(super) fn new(set: Arc<ResourceSet>) -> Self {
        Self {
            set,
            next: Some(0),
            ahead: Vec::new().into_iter(),
        }
    }
}

#[pymethods]
impl NodeIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.ahead.len() == 0
            && let Some(next) = self.next
        {
            let nodes = self.set.nodes_from(next).take(BLOCK_NODES);
            let own =
                |node: Node<'_>| (node.rank, node.host, node.cores.clone(), node.gpus.clone());
            let nodes: Vec<_> = nodes.map(own).collect();
            self.next = nodes.last().and_then(|(rank, ..)| rank.checked_add(1));
            self.ahead = nodes.into_iter();
        }
        let node = self.ahead.next();
        node.map(|(rank, host, cores, gpus)| make_node(py, rank, &host, cores, gpus))
            .transpose()
    }
}
