//! `ResourceSet`s combined, and parts of them.

use penstock_rset::Operation;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::constraint;
use super::convert::{self, ids, scheduling};
use super::set::{MIN_DETACHED_SIZE, PyResourceSet};
use crate::errors::raised;
use crate::shared::detach_if;

impl PyResourceSet {
    fn combine(
        &self,
        other: &Bound<'_, Self>,
        operation: Operation,
        kept: Option<&str>,
    ) -> PyResult<Self> {
        let py = other.py();
        let scheduling = scheduling(kept)?;
        let (left, right) = (self.snapshot(), other.get().snapshot());
        let long = left.nnodes() > MIN_DETACHED_SIZE || right.nnodes() > MIN_DETACHED_SIZE;
        let result = detach_if(py, long, || left.combine(operation, &right, scheduling));
        result.map(Self::new).map_err(raised)
    }

    /// The result of an operator; `NotImplemented` if the other operand is not a set.
    fn operator<'py>(
        &self,
        other: &Bound<'py, PyAny>,
        operation: Operation,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        match other.cast::<Self>() {
            Ok(other) => Ok(Bound::new(py, self.combine(other, operation, None)?)?.into_any()),
            Err(_) => Ok(py.NotImplemented().into_bound(py)),
        }
    }
}

#[pymethods]
impl PyResourceSet {
    /// union(other: ResourceSet, *, scheduling: Literal['left', 'drop'] | None = None) -> ResourceSet
    ///
    /// Returns the cores and gpus that are in either set.
    ///
    /// Times are this set's. `nslots` is the sum if both have it and share nothing.
    ///
    /// Args:
    ///     other: the other set.
    ///     scheduling: how to combine `scheduling` and `attributes`, which are opaque. None: they are
    ///         those of the set that has them, and it is an error if both have different ones. "left": they are this
    ///         set's, or the other's if this set has none. "drop": the result has none.
    ///
    /// Raises:
    ///     ResourceSetError: a rank has different hosts in the sets, a set has no ranks because it has `scheduling`
    ///         alone, or both sets have a different `scheduling` or `attributes`.
    ///     ValueError: `scheduling` has another value.
    ///
    /// >>> from penstock import ResourceSet
    /// >>> r = ResourceSet.uniform("0-1", "n[0-1]", cores="0-3")
    /// >>> str(r.union(ResourceSet.uniform("1-2", "n[1-2]", cores="2-5")))
    /// 'rank0/core[0-3] rank1/core[0-5] rank2/core[2-5]'
    #[pyo3(signature = (other, *, scheduling = None))]
    fn union(&self, other: &Bound<'_, Self>, scheduling: Option<&str>) -> PyResult<Self> {
        self.combine(other, Operation::Union, scheduling)
    }

    /// intersection(other: ResourceSet, *, scheduling: Literal['left', 'drop'] | None = None) -> ResourceSet
    ///
    /// Returns the cores and gpus that are in both sets.
    ///
    /// Ranks without remaining resources are omitted. The set starts with the later of both, and ends with the
    /// earlier. Properties are this set's. The arguments are those of `union`.
    ///
    /// Raises:
    ///     ResourceSetError: as for `union`; or the sets are not valid at the same time.
    #[pyo3(signature = (other, *, scheduling = None))]
    fn intersection(&self, other: &Bound<'_, Self>, scheduling: Option<&str>) -> PyResult<Self> {
        self.combine(other, Operation::Intersection, scheduling)
    }

    /// difference(other: ResourceSet, *, scheduling: Literal['left', 'drop'] | None = None) -> ResourceSet
    ///
    /// Returns the cores and gpus that are in this set but not in the other.
    ///
    /// Ranks without remaining resources are omitted. Times and properties are this set's. The arguments are those of
    /// `union`.
    ///
    /// Raises:
    ///     ResourceSetError: as for `union`.
    #[pyo3(signature = (other, *, scheduling = None))]
    fn difference(&self, other: &Bound<'_, Self>, scheduling: Option<&str>) -> PyResult<Self> {
        self.combine(other, Operation::Difference, scheduling)
    }

    /// symmetric_difference(other: ResourceSet, *, scheduling: Literal['left', 'drop'] | None = None) -> ResourceSet
    ///
    /// Returns the cores and gpus that are in exactly one of the sets.
    ///
    /// It is the union of the two differences. The arguments are those of `union`.
    ///
    /// Raises:
    ///     ResourceSetError: as for `union`.
    #[pyo3(signature = (other, *, scheduling = None))]
    fn symmetric_difference(
        slf: &Bound<'_, Self>,
        other: &Bound<'_, Self>,
        scheduling: Option<&str>,
    ) -> PyResult<Self> {
        let left = slf
            .get()
            .combine(other, Operation::Difference, scheduling)?;
        let right = other
            .get()
            .combine(slf, Operation::Difference, scheduling)?;
        left.combine(&Bound::new(slf.py(), right)?, Operation::Union, scheduling)
    }

    fn __xor__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = other.py();
        match other.cast::<Self>() {
            Ok(other) => {
                let made = Self::symmetric_difference(slf, other, None)?;
                Ok(Bound::new(py, made)?.into_any())
            }
            Err(_) => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    /// append(other: ResourceSet, *, scheduling: Literal['left', 'drop'] | None = None) -> ResourceSet
    ///
    /// Returns this set's nodes and the other's, renumbered to follow this set's last rank.
    ///
    /// Times are this set's; `nslots` is the sum if both have it. The arguments are those of `union`.
    ///
    /// Raises:
    ///     ResourceSetError: there are not enough ranks, or as for `union`.
    #[pyo3(signature = (other, *, scheduling = None))]
    fn append(&self, other: &Bound<'_, Self>, scheduling: Option<&str>) -> PyResult<Self> {
        self.combine(other, Operation::Append, scheduling)
    }

    /// issubset(other: ResourceSet) -> bool
    ///
    /// Returns whether every rank, core and gpu of this set is in the other; hosts are not compared.
    fn issubset(&self, other: &Bound<'_, Self>) -> bool {
        self.snapshot().is_subset(&other.get().snapshot())
    }

    /// isdisjoint(other: ResourceSet) -> bool
    ///
    /// Returns whether the sets share no core and no gpu; hosts are not compared.
    fn isdisjoint(&self, other: &Bound<'_, Self>) -> bool {
        self.snapshot().is_disjoint(&other.get().snapshot())
    }

    /// restrict(*, ranks: str | Iterable[int] | None = None, hosts: str | Iterable[str] | None = None, constraint: Mapping[str, Any] | str | None = None) -> ResourceSet
    ///
    /// Returns the nodes that match all arguments.
    ///
    /// Args:
    ///     ranks: their ranks; ranks outside the set are ignored.
    ///     hosts: their hosts; hosts outside the set are ignored (`host_ranks` rejects them).
    ///     constraint: a constraint (RFC 31) as a dict or as JSON text, or the short text of RFC 35: properties
    ///         (with `^` in front: must be absent), host names, ranks, and, or, not. Hosts outside
    ///         the set are ignored.
    ///
    /// Raises:
    ///     JobspecError: `constraint` is invalid.
    ///     ResourceSetError: the set has `scheduling` alone.
    ///     TypeError: no argument is given.
    ///
    /// >>> from penstock import ResourceSet
    /// >>> r = ResourceSet.uniform("0-9", "node[0-9]", cores="0-3")
    /// >>> r.add_property("fast", "0-4")
    /// >>> str(r.restrict(constraint={"and": [{"properties": ["fast"]}, {"ranks": ["3-9"]}]}))
    /// 'rank[3-4]/core[0-3]'
    /// >>> str(r.restrict(constraint="-fast host:node[0-6]").ranks)
    /// '5-6'
    #[pyo3(signature = (*, ranks = None, hosts = None, constraint = None))]
    fn restrict(
        &self,
        py: Python<'_>,
        ranks: Option<&Bound<'_, PyAny>>,
        hosts: Option<&Bound<'_, PyAny>>,
        constraint: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        if ranks.is_none() && hosts.is_none() && constraint.is_none() {
            return Err(PyTypeError::new_err(
                "expected ranks, hosts, a constraint or several of them",
            ));
        }
        let set = self.ranked()?;
        let ranks = ranks.map(ids).transpose()?;
        let hosts = hosts.map(convert::hosts).transpose()?;
        let constraint = constraint.map(constraint::extract).transpose()?;
        let restrict = || {
            let hosts = hosts.map(|hosts| set.ranks_on(&hosts));
            let met = constraint.map(|constraint| constraint::matching(&set, &constraint));
            let wanted = [ranks, hosts, met].into_iter().flatten();
            let wanted = wanted.reduce(|wanted, more| wanted.intersection(&more));
            set.restrict(&wanted.unwrap_or_default())
        };
        let part = detach_if(py, set.nnodes() > MIN_DETACHED_SIZE, restrict);
        Ok(Self::new(part))
    }

    /// rerank() -> ResourceSet
    ///
    /// Makes a set of the same nodes in the same order with the ranks 0, 1, 2 …
    fn rerank(&self) -> PyResult<Self> {
        Ok(Self::new(self.ranked()?.rerank()))
    }

    /// without_local_properties() -> ResourceSet
    ///
    /// Makes a set without the properties that start with `+`, as a job's R has to be.
    fn without_local_properties(&self) -> Self {
        Self::new(self.snapshot().without_local_properties())
    }

    fn __or__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operator(other, Operation::Union)
    }

    fn __and__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operator(other, Operation::Intersection)
    }

    fn __sub__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operator(other, Operation::Difference)
    }

    fn __add__<'py>(&self, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.operator(other, Operation::Append)
    }
}
