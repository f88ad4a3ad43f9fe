//! `ResourceSet`: R of RFC 20.
#![expect(
    clippy::doc_markdown,
    clippy::doc_link_with_quotes,
    reason = "what documents a class documents it to Python"
)]

mod algebra;
pub(crate) mod constraint;
pub(crate) mod convert;
mod nodes;
mod set;

use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_rset::{Error, ResourceSet};
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use self::convert::{
    extract, hosts, ids, object, parsed, problems, problems_with_graph, raise_all,
};
use self::nodes::{NodeIterator, make_node};
use self::set::MIN_DETACHED_SIZE;
pub(crate) use self::set::PyResourceSet;
use crate::errors::{NotFoundError, ResourceSetError, raised};
use crate::hostlist::Hostlist as PyHostlist;
use crate::idset::PyIdSet;
use crate::shared::detach_if;

/// Characters of the summary that `repr` shows.
const MAX_REPR_CHARACTERS: usize = 200;

impl PyResourceSet {
    /// A snapshot of a set that has ranks.
    fn ranked(&self) -> PyResult<Arc<ResourceSet>> {
        let set = self.snapshot();
        set.require_execution().map_err(raised)?;
        Ok(set)
    }

    fn change(&self, change: impl FnOnce(&mut ResourceSet) -> Result<(), Error>) -> PyResult<()> {
        self.0.change(change).map_err(raised)
    }
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

    /// uniform(ranks: str | Iterable[int], nodelist: str | Iterable[str], cores: str | Iterable[int], gpus: str | Iterable[int] | None = None) -> ResourceSet
    ///
    /// Makes a set of nodes with the same cores and gpus, at the price of one.
    ///
    /// Args:
    ///     ranks: the execution targets.
    ///     nodelist: their hosts, in the order of the ranks.
    ///     cores: the logical cores of each.
    ///     gpus: the logical gpus of each; None for none.
    ///
    /// Raises:
    ///     ResourceSetError: the number of hosts is not the number of ranks.
    ///     IdsetError: an argument is not an idset.
    ///     HostlistError: `nodelist` is not a hostlist.
    #[staticmethod]
    #[pyo3(signature = (ranks, nodelist, cores, gpus = None))]
    fn uniform(
        ranks: &Bound<'_, PyAny>,
        nodelist: &Bound<'_, PyAny>,
        cores: &Bound<'_, PyAny>,
        gpus: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let gpus = gpus.map(ids).transpose()?.unwrap_or_default();
        let set = ResourceSet::uniform(&ids(ranks)?, &*hosts(nodelist)?, ids(cores)?, gpus);
        set.map(Self::new).map_err(raised)
    }

    /// verify(source: ResourceSet | str | bytes | bytearray | Mapping[str, Any], /, *, jgf: bool = False) -> list[str]
    ///
    /// Lists all problems of a document; the constructor raises the first one.
    ///
    /// Args:
    ///     source: a document, as for the constructor.
    ///     jgf: whether to check the resource graph in `scheduling` too, as `validate_scheduling` does.
    ///
    /// Returns:
    ///     A text for each problem, with its place; none if the document is valid.
    ///
    /// >>> from penstock import ResourceSet
    /// >>> for problem in ResourceSet.verify({"version": 2, "execution": {"R_lite": [{}]}}):
    /// ...     print(problem)
    /// invalid R: version: expected 1, found 2
    /// invalid R: execution.R_lite[0].rank: expected an idset, found nothing
    /// invalid R: execution.R_lite[0].children: expected an object, found nothing
    /// invalid R: execution.nodelist: expected an array of hostlists, found nothing
    #[staticmethod]
    #[pyo3(signature = (source, /, *, jgf = false))]
    fn verify(source: &Bound<'_, PyAny>, jgf: bool) -> PyResult<Vec<String>> {
        if jgf {
            problems_with_graph(source)
        } else {
            problems(source)
        }
    }

    /// validate_scheduling() -> None
    ///
    /// Checks the resource graph in `scheduling` (JSON Graph Format, RFC 20); no other method reads it.
    ///
    /// The ids of vertices must be unique, vertices must have their eight keys of data (`type uuid basename name id
    /// properties size unit`), edges must join vertices that are there and have `subsystem` and `relationship`. A set
    /// without `scheduling` passes.
    ///
    /// Raises:
    ///     ResourceSetError: something is wrong with the graph. The text names the first place, such as
    ///         `scheduling.graph.nodes[3].metadata.size`; the notes of the exception name the others.
    fn validate_scheduling(&self, py: Python<'_>) -> PyResult<()> {
        let set = self.snapshot();
        let problems = py.detach(|| set.graph_problems());
        raise_all(py, &problems)
    }

    #[classattr]
    fn version() -> u32 {
        1
    }

    /// The execution targets.
    #[getter]
    fn ranks(&self) -> PyIdSet {
        PyIdSet::new(self.0.with(ResourceSet::ranks))
    }

    /// The hosts, one for each target, in the order of ranks.
    #[getter]
    fn nodelist(&self) -> PyHostlist {
        PyHostlist::new(self.0.with(ResourceSet::nodelist))
    }

    /// The number of execution targets.
    #[getter]
    fn nnodes(&self) -> usize {
        self.0.with(ResourceSet::nnodes)
    }

    /// The number of cores on all targets.
    #[getter]
    fn ncores(&self) -> u64 {
        self.0.with(ResourceSet::ncores)
    }

    /// The number of gpus on all targets.
    #[getter]
    fn ngpus(&self) -> u64 {
        self.0.with(ResourceSet::ngpus)
    }

    /// Since when the set is valid, in seconds since the epoch; None (0 in the document) is always.
    ///
    /// Setting it raises ResourceSetError if it is negative, not finite, or not before the expiration.
    #[getter]
    fn starttime(&self) -> Option<f64> {
        self.0.with(ResourceSet::starttime)
    }

    #[setter]
    fn set_starttime(&self, starttime: Option<f64>) -> PyResult<()> {
        self.change(|set| set.set_starttime(starttime))
    }

    /// Until when the set is valid, in seconds since the epoch; None (0 in the document) is without end.
    ///
    /// Setting it raises ResourceSetError if it is negative, not finite, or not after the start.
    #[getter]
    fn expiration(&self) -> Option<f64> {
        self.0.with(ResourceSet::expiration)
    }

    #[setter]
    fn set_expiration(&self, expiration: Option<f64>) -> PyResult<()> {
        self.change(|set| set.set_expiration(expiration))
    }

    /// The number of task slots of an allocation.
    #[getter]
    fn nslots(&self) -> Option<u64> {
        self.0.with(ResourceSet::nslots)
    }

    #[setter]
    fn set_nslots(&self, nslots: Option<i64>) -> PyResult<()> {
        let Ok(nslots) = nslots.map(u64::try_from).transpose() else {
            let found = nslots.unwrap_or_default();
            return Err(ResourceSetError::new_err(format!(
                "expected nslots of at least 0, found {found}"
            )));
        };
        self.change(|set| {
            set.require_execution()?;
            set.set_nslots(nslots);
            Ok(())
        })
    }

    /// The properties and the ranks for which each holds, as a copy; by name.
    #[getter]
    fn properties<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let properties = PyDict::new(py);
        for (name, ranks) in self.snapshot().properties() {
            properties.set_item(name, PyIdSet::new(ranks.clone()))?;
        }
        Ok(properties)
    }

    /// The value of the key `scheduling`, or None.
    #[getter]
    fn scheduling<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        parsed(py, self.snapshot().scheduling())
    }

    /// The value of the key `attributes`, or None.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        parsed(py, self.snapshot().attributes())
    }

    /// nodes() -> Iterator[Node]
    ///
    /// Iterates over the nodes by ascending rank, as of the time of the call.
    fn nodes(&self) -> NodeIterator {
        NodeIterator::new(self.snapshot())
    }

    /// node(rank: int) -> Node
    ///
    /// Describes one node.
    ///
    /// Raises:
    ///     NotFoundError: the rank is not in the set.
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

    /// host_ranks(hosts: str | Iterable[str]) -> list[int]
    ///
    /// Finds the ranks on hosts.
    ///
    /// Args:
    ///     hosts: names of hosts.
    ///
    /// Returns:
    ///     The ranks in the order of `hosts`; a host that carries several ranks gives all of them.
    ///
    /// Raises:
    ///     NotFoundError: a host is not in the set; the text names all that are not.
    ///     HostlistError: `hosts` is not a hostlist.
    fn host_ranks(&self, hosts: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
        let requested_hosts = convert::hosts(hosts)?;
        let len = requested_hosts.len();
        if Vec::<u32>::new().try_reserve_exact(len).is_err() {
            let text = format!("no memory for the ranks of {len} hosts");
            return Err(PyMemoryError::new_err(text));
        }
        let ranks = self.snapshot().host_ranks(&requested_hosts);
        ranks.map_err(raised)
    }

    /// insert(rank: int, host: str, cores: str | Iterable[int], gpus: str | Iterable[int] | None = None) -> None
    ///
    /// Adds cores and gpus to a rank, which need not be in the set before.
    ///
    /// Args:
    ///     rank: the execution target.
    ///     host: its host.
    ///     cores: logical cores, in addition to those it has.
    ///     gpus: logical gpus, in addition to those it has.
    ///
    /// Raises:
    ///     ResourceSetError: the rank is on another host, or `host` is not the name of a host.
    #[pyo3(signature = (rank, host, cores, gpus = None))]
    fn insert(
        &self,
        rank: i64,
        host: &str,
        cores: &Bound<'_, PyAny>,
        gpus: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let gpus = gpus.map(ids).transpose()?.unwrap_or_default();
        let cores = ids(cores)?;
        let Ok(rank) = u32::try_from(rank) else {
            let most = IdSet::MAX_ID;
            return Err(ResourceSetError::new_err(format!(
                "expected a rank from 0 to {most}, found {rank}"
            )));
        };
        self.change(|set| set.insert(rank, host, cores, gpus))
    }

    /// remove_ranks(ranks: str | Iterable[int]) -> None
    ///
    /// Removes nodes; ranks outside the set are ignored.
    fn remove_ranks(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let targets = ids(ranks)?;
        self.change(|set| {
            set.require_execution()?;
            set.remove_ranks(&targets);
            Ok(())
        })
    }

    /// add_property(name: str, ranks: str | Iterable[int]) -> None
    ///
    /// Adds a property to ranks.
    ///
    /// Args:
    ///     name: the property's name; one that starts with `+` is local to the instance.
    ///     ranks: ranks of the set.
    ///
    /// Raises:
    ///     ResourceSetError: the name is empty or has one of ``! & ' " ^ ` | ( )``, or a rank is not in the set.
    fn add_property(&self, name: &str, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let targets = ids(ranks)?;
        self.change(|set| set.add_property(name, &targets))
    }

    /// remove_property(name: str, ranks: str | Iterable[int] | None = None) -> None
    ///
    /// Removes a property from ranks, whether or not they have it; from all ranks if `ranks` is None.
    #[pyo3(signature = (name, ranks = None))]
    fn remove_property(&self, name: &str, ranks: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let targets = ranks.map(ids).transpose()?;
        self.0.change(|set| {
            let targets = targets.unwrap_or_else(|| set.ranks());
            set.remove_property(name, &targets);
        });
        Ok(())
    }

    /// to_json() -> str
    ///
    /// Writes R as compact JSON (RFC 20).
    ///
    /// Ranks with equal resources share an entry of `R_lite`; `nodelist` is one folded hostlist; times that are not
    /// set are 0.0.
    fn to_json(&self, py: Python<'_>) -> String {
        let set = self.snapshot();
        detach_if(py, set.nnodes() > MIN_DETACHED_SIZE, || set.to_json())
    }

    /// encode() -> str
    ///
    /// Writes R as `to_json` does, under the name of the method in flux.
    fn encode(&self, py: Python<'_>) -> String {
        self.to_json(py)
    }

    /// Writes R as `to_json` does, as UTF-8.
    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.to_json(py).as_bytes())
    }

    /// to_dict() -> dict[str, Any]
    ///
    /// Returns the document of `to_json` as a dict.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        object(py, &self.to_json(py))
    }

    /// summary() -> str
    ///
    /// Writes the short form, as in `rank[0-3]/core[0-7],gpu0`; ranks with unlike resources apart by blanks.
    fn summary(&self) -> String {
        self.snapshot().summary()
    }

    /// copy() -> ResourceSet
    ///
    /// Returns a copy; memory is shared until one of the two changes.
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
        let equal = || detach_if(py, left.nnodes() > MIN_DETACHED_SIZE, || left == right);
        let answer = match op {
            CompareOp::Eq => equal(),
            CompareOp::Ne => !equal(),
            _ => return Ok(py.NotImplemented().into_bound(py)),
        };
        Ok(answer.into_pyobject(py)?.to_owned().into_any())
    }

    fn __iter__(&self) -> NodeIterator {
        self.nodes()
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
        match summary.char_indices().nth(MAX_REPR_CHARACTERS) {
            Some((end, _)) => format!("<ResourceSet {}…>", &summary[..end]),
            None if summary.is_empty() => "<ResourceSet empty>".to_owned(),
            None => format!("<ResourceSet {summary}>"),
        }
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyResourceSet>()
}
