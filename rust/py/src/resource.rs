//! `ResourceSet`: R of RFC 20.
use std::sync::Arc;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_rset::{Error, Node, ResourceSet};
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyMapping, PyString};
use serde_json::value::RawValue;

use crate::errors::{NotFoundError, ResourceSetError, with_attribute};
use crate::hostlist::Hostlist as PyHostlist;
use crate::idset::PyIdSet;
use crate::json::{self, JsonError};
use crate::shared::{Shared, detached};

/// Texts of more bytes, and sets of more nodes, are worked on without the GIL.
const LONG: usize = 4096;
/// Characters of the summary that `repr` shows.
const SHOWN: usize = 200;
/// Nodes that an iterator reads ahead.
const AHEAD: usize = 256;

/// Which cores and gpus of which execution targets.
#[pyclass(module = "penstock.resource", name = "ResourceSet", frozen)]
#[derive(Debug)]
pub(crate) struct PyResourceSet(Shared<ResourceSet>);

impl PyResourceSet {
    pub(crate) fn new(set: impl Into<Arc<ResourceSet>>) -> Self {
        Self(Shared::new(set))
    }

    pub(crate) fn snapshot(&self) -> Arc<ResourceSet> {
        self.0.snapshot()
    }

    /// A snapshot of a set that has ranks.
    fn ranked(&self, py: Python<'_>) -> PyResult<Arc<ResourceSet>> {
        let set = self.snapshot();
        set.require_execution()
            .map_err(|error| resource_error(py, &error))?;
        Ok(set)
    }

    fn change(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut ResourceSet) -> Result<(), Error>,
    ) -> PyResult<()> {
        self.0
            .change(change)
            .map_err(|error| resource_error(py, &error))
    }

    fn combine(
        &self,
        other: &Bound<'_, Self>,
        operation: impl FnOnce(&ResourceSet, &ResourceSet) -> Result<ResourceSet, Error> + Send,
    ) -> PyResult<Self> {
        let py = other.py();
        let (left, right) = (self.snapshot(), other.get().snapshot());
        let long = left.nnodes() > LONG || right.nnodes() > LONG;
        let result = detached(py, long, || operation(&left, &right));
        result
            .map(Self::new)
            .map_err(|error| resource_error(py, &error))
    }

    /// What an operator gives: `NotImplemented` unless beside another set.
    fn operator<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        operation: impl FnOnce(&ResourceSet, &ResourceSet) -> Result<ResourceSet, Error> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        match other.cast::<Self>() {
            Ok(other) => Ok(Bound::new(py, self.combine(other, operation)?)?.into_any()),
            Err(_) => Ok(py.NotImplemented().into_bound(py)),
        }
    }
}

fn parsed<'py>(py: Python<'py>, raw: Option<&RawValue>) -> PyResult<Option<Bound<'py, PyAny>>> {
    raw.map(|raw| object(py, raw.get())).transpose()
}

/// The exception of an error: `NotFoundError` for hosts that are not there, else `ResourceSetError` with the
/// attributes `path` and `offset`.
pub(crate) fn resource_error(py: Python<'_>, error: &Error) -> PyErr {
    if error.is_not_found() {
        return NotFoundError::new_err(error.to_string());
    }
    let mut raised = ResourceSetError::new_err(error.to_string());
    if error.is_document() {
        raised = with_attribute(py, raised, "path", error.path());
    }
    if let Some(offset) = error.offset() {
        raised = with_attribute(py, raised, "offset", offset);
    }
    raised
}

fn json_error(error: JsonError) -> PyErr {
    match error {
        JsonError::Invalid(problem, _) => {
            ResourceSetError::new_err(format!("invalid R: {problem}"))
        }
        JsonError::Other(error) => error,
    }
}

fn object<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyAny>> {
    json::decode(py, text).map_err(json_error)
}

fn parse(py: Python<'_>, text: &str) -> PyResult<Arc<ResourceSet>> {
    let parsed = detached(py, text.len() > LONG, || ResourceSet::from_json(text));
    parsed
        .map(Arc::new)
        .map_err(|error| resource_error(py, &error))
}

/// The set that an object stands for: a set, JSON as text or UTF-8, or a mapping.
pub(crate) fn extract(source: &Bound<'_, PyAny>) -> PyResult<Arc<ResourceSet>> {
    let py = source.py();
    if let Ok(set) = source.cast::<PyResourceSet>() {
        return Ok(set.get().snapshot());
    }
    if let Ok(text) = source.cast::<PyString>() {
        return match text.to_str() {
            Ok(text) => parse(py, text),
            Err(_) => Err(ResourceSetError::new_err(
                "invalid R: the text holds a lone surrogate",
            )),
        };
    }
    if let Ok(bytes) = source.extract::<PyBackedBytes>() {
        return match std::str::from_utf8(&bytes) {
            Ok(text) => parse(py, text),
            Err(error) => {
                let offset = error.valid_up_to();
                let raised = ResourceSetError::new_err(format!(
                    "invalid R: expected UTF-8 at byte {offset}"
                ));
                Err(with_attribute(py, raised, "offset", offset))
            }
        };
    }
    if source.cast::<PyMapping>().is_ok() {
        return parse(py, &json::encode(source).map_err(json_error)?);
    }
    let kind = source.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "expected a ResourceSet, or R as str, bytes or dict, not {kind}"
    )))
}

/// The ids of an `IDset`, or of what makes one.
fn ids(source: &Bound<'_, PyAny>) -> PyResult<Arc<IdSet>> {
    if let Ok(set) = source.cast::<PyIdSet>() {
        return Ok(set.get().snapshot());
    }
    let made = source.py().get_type::<PyIdSet>().call1((source,))?;
    Ok(made.cast::<PyIdSet>()?.get().snapshot())
}

/// The hosts of a `Hostlist`, or of what makes one.
fn hosts(source: &Bound<'_, PyAny>) -> PyResult<Arc<Hostlist>> {
    if let Ok(list) = source.cast::<PyHostlist>() {
        return Ok(list.get().snapshot());
    }
    let made = source.py().get_type::<PyHostlist>().call1((source,))?;
    Ok(made.cast::<PyHostlist>()?.get().snapshot())
}

/// A `penstock.resource.Node`.
fn make_node<'py>(
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

#[pymethods]
impl PyResourceSet {
    #[new]
    #[pyo3(signature = (source = None, /))]
    fn py_new(source: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        match source {
            Some(source) => extract(source).map(Self::new),
            None => Ok(Self::new(ResourceSet::new())),
        }
    }

    #[staticmethod]
    #[pyo3(signature = (ranks, nodelist, cores, gpus = None))]
    fn uniform(
        ranks: &Bound<'_, PyAny>,
        nodelist: &Bound<'_, PyAny>,
        cores: &Bound<'_, PyAny>,
        gpus: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let gpus = gpus.map(ids).transpose()?.unwrap_or_default();
        let (cores, gpus) = (ids(cores)?.as_ref().clone(), gpus.as_ref().clone());
        let set = ResourceSet::uniform(&*ids(ranks)?, &*hosts(nodelist)?, cores, gpus);
        set.map(Self::new)
            .map_err(|error| resource_error(ranks.py(), &error))
    }

    #[classattr]
    fn version() -> u32 {
        1
    }

    #[getter]
    fn ranks(&self) -> PyIdSet {
        PyIdSet::new(self.0.with(ResourceSet::ranks))
    }

    #[getter]
    fn nodelist(&self) -> PyHostlist {
        PyHostlist::new(self.0.with(ResourceSet::nodelist))
    }

    #[getter]
    fn nnodes(&self) -> usize {
        self.0.with(ResourceSet::nnodes)
    }

    #[getter]
    fn ncores(&self) -> u64 {
        self.0.with(ResourceSet::ncores)
    }

    #[getter]
    fn ngpus(&self) -> u64 {
        self.0.with(ResourceSet::ngpus)
    }

    #[getter]
    fn starttime(&self) -> Option<f64> {
        self.0.with(ResourceSet::starttime)
    }

    #[setter]
    fn set_starttime(&self, py: Python<'_>, starttime: Option<f64>) -> PyResult<()> {
        self.change(py, |set| set.set_starttime(starttime))
    }

    #[getter]
    fn expiration(&self) -> Option<f64> {
        self.0.with(ResourceSet::expiration)
    }

    #[setter]
    fn set_expiration(&self, py: Python<'_>, expiration: Option<f64>) -> PyResult<()> {
        self.change(py, |set| set.set_expiration(expiration))
    }

    #[getter]
    fn nslots(&self) -> Option<u64> {
        self.0.with(ResourceSet::nslots)
    }

    #[setter]
    fn set_nslots(&self, py: Python<'_>, nslots: Option<i64>) -> PyResult<()> {
        let nslots = match nslots.map(u64::try_from).transpose() {
            Ok(nslots) => nslots,
            Err(_) => {
                return Err(ResourceSetError::new_err(format!(
                    "expected nslots of at least 0, found {}",
                    nslots.unwrap_or_default()
                )));
            }
        };
        self.change(py, |set| {
            set.require_execution()?;
            set.set_nslots(nslots);
            Ok(())
        })
    }

    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let properties = PyDict::new(py);
        for (name, ranks) in self.snapshot().properties() {
            properties.set_item(name, PyIdSet::new(ranks.clone()))?;
        }
        Ok(properties)
    }

    #[getter]
    fn scheduling<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        parsed(py, self.snapshot().scheduling())
    }

    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        parsed(py, self.snapshot().attributes())
    }

    fn nodes(&self) -> NodeIterator {
        NodeIterator {
            set: self.snapshot(),
            next: Some(0),
            ahead: Vec::new().into_iter(),
        }
    }

    fn node<'py>(&self, py: Python<'py>, rank: i64) -> PyResult<Bound<'py, PyAny>> {
        let set = self.snapshot();
        let node = u32::try_from(rank).ok().and_then(|rank| set.node(rank));
        match node {
            Some(node) => make_node(
                py,
                node.rank,
                &node.host,
                node.cores.clone(),
                node.gpus.clone(),
            ),
            None => Err(NotFoundError::new_err(format!(
                "rank {rank} is not in the set"
            ))),
        }
    }

    fn host_ranks(&self, hosts_: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let ranks = self.snapshot().host_ranks(&*hosts(hosts_)?);
        ranks.map_err(|error| resource_error(hosts_.py(), &error))
    }

    #[pyo3(signature = (rank, host, cores, gpus = None))]
    fn insert(
        &self,
        py: Python<'_>,
        rank: i64,
        host: &str,
        cores: &Bound<'_, PyAny>,
        gpus: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let gpus = gpus.map(ids).transpose()?.unwrap_or_default();
        let (cores, gpus) = (ids(cores)?.as_ref().clone(), gpus.as_ref().clone());
        let Ok(rank) = u32::try_from(rank) else {
            let most = IdSet::MAX_ID;
            return Err(ResourceSetError::new_err(format!(
                "expected a rank from 0 to {most}, found {rank}"
            )));
        };
        self.change(py, |set| set.insert(rank, host, cores, gpus))
    }

    fn remove_ranks(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let targets = ids(ranks)?;
        self.change(ranks.py(), |set| {
            set.require_execution()?;
            set.remove_ranks(&targets);
            Ok(())
        })
    }

    fn add_property(&self, py: Python<'_>, name: &str, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let targets = ids(ranks)?;
        self.change(py, |set| set.add_property(name, &targets))
    }

    #[pyo3(signature = (name, ranks = None))]
    fn remove_property(&self, name: &str, ranks: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let targets = ranks.map(ids).transpose()?;
        self.0.change(|set| {
            let targets = targets.map_or_else(|| set.ranks(), |targets| targets.as_ref().clone());
            set.remove_property(name, &targets);
        });
        Ok(())
    }

    fn union(&self, other: &Bound<'_, Self>) -> PyResult<Self> {
        self.combine(other, ResourceSet::union)
    }

    fn intersection(&self, other: &Bound<'_, Self>) -> PyResult<Self> {
        self.combine(other, ResourceSet::intersection)
    }

    fn difference(&self, other: &Bound<'_, Self>) -> PyResult<Self> {
        self.combine(other, ResourceSet::difference)
    }

    fn append(&self, other: &Bound<'_, Self>) -> PyResult<Self> {
        self.combine(other, ResourceSet::append)
    }

    fn issubset(&self, other: &Bound<'_, Self>) -> bool {
        self.snapshot().is_subset(&other.get().snapshot())
    }

    fn isdisjoint(&self, other: &Bound<'_, Self>) -> bool {
        self.snapshot().is_disjoint(&other.get().snapshot())
    }

    #[pyo3(signature = (*, ranks = None, hosts = None))]
    fn restrict(
        &self,
        py: Python<'_>,
        ranks: Option<&Bound<'_, PyAny>>,
        hosts: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let set = self.ranked(py)?;
        let named = hosts.map(|hosts| self.host_ranks(hosts)).transpose()?;
        let named: Option<IdSet> = named.map(|ranks| ranks.into_iter().collect());
        let wanted = match (ranks.map(ids).transpose()?, named) {
            (Some(ranks), Some(named)) => ranks.intersection(&named),
            (Some(ranks), None) => ranks.as_ref().clone(),
            (None, Some(named)) => named,
            (None, None) => return Err(PyTypeError::new_err("expected ranks, hosts or both")),
        };
        Ok(Self::new(detached(py, set.nnodes() > LONG, || {
            set.restrict(&wanted)
        })))
    }

    fn rerank(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self::new(self.ranked(py)?.rerank()))
    }

    fn without_local_properties(&self) -> Self {
        Self::new(self.snapshot().without_local_properties())
    }

    fn to_json(&self, py: Python<'_>) -> String {
        let set = self.snapshot();
        detached(py, set.nnodes() > LONG, || set.to_json())
    }

    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        object(py, &self.to_json(py))
    }

    fn summary(&self) -> String {
        self.snapshot().summary()
    }

    fn copy(&self) -> Self {
        Self::new(self.snapshot())
    }

    fn __copy__(&self) -> Self {
        self.copy()
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> Self {
        self.copy()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> (Bound<'py, PyAny>, (String,)) {
        (py.get_type::<Self>().into_any(), (self.to_json(py),))
    }

    fn __or__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operator(other, ResourceSet::union)
    }

    fn __and__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operator(other, ResourceSet::intersection)
    }

    fn __sub__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operator(other, ResourceSet::difference)
    }

    fn __add__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operator(other, ResourceSet::append)
    }

    fn __richcmp__<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        op: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        let Ok(other) = other.cast::<Self>() else {
            return Ok(py.NotImplemented().into_bound(py));
        };
        let (left, right) = (self.snapshot(), other.get().snapshot());
        let equal = || detached(py, left.nnodes() > LONG, || left == right);
        let answer = match op {
            CompareOp::Eq => equal(),
            CompareOp::Ne => !equal(),
            _ => return Ok(py.NotImplemented().into_bound(py)),
        };
        Ok(answer.into_pyobject(py)?.to_owned().into_any())
    }

    fn __len__(&self) -> usize {
        self.nnodes()
    }

    fn __str__(&self) -> String {
        self.summary()
    }

    fn __repr__(&self) -> String {
        let set = self.snapshot();
        if !set.has_execution() {
            return "<ResourceSet with scheduling alone>".to_owned();
        }
        let summary = set.summary();
        match summary.char_indices().nth(SHOWN) {
            Some((end, _)) => format!("<ResourceSet {}…>", &summary[..end]),
            None if summary.is_empty() => "<ResourceSet empty>".to_owned(),
            None => format!("<ResourceSet {summary}>"),
        }
    }
}

/// Goes through the nodes of a set as it was when the iterator was made.
#[pyclass(module = "penstock.resource")]
struct NodeIterator {
    set: Arc<ResourceSet>,
    /// The least rank that was not read ahead; none at the end.
    next: Option<u32>,
    ahead: std::vec::IntoIter<(u32, String, IdSet, IdSet)>,
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
            let nodes = self.set.nodes_from(next).take(AHEAD);
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

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyResourceSet>()
}
