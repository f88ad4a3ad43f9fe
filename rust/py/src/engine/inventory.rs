//! The inventory, and the state of its nodes.

use std::collections::BTreeMap;

use penstock_engine::{Accuracy, Engine, Options, QueueOptions};
use penstock_idset::IdSet;
use penstock_rset::{Error, Operation, ResourceSet, Scheduling};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use serde_json::json;

use super::core_state::{CoreState, EngineCore, Shapes};
use crate::errors::{EngineError, raised};
use crate::idset::PyIdSet;
use crate::resource::{PyResourceSet, convert};

impl CoreState {
    /// Fails if a rank is neither in the inventory nor among `others`.
    pub(super) fn know(&self, ranks: &IdSet, others: &IdSet) -> PyResult<()> {
        let known = self.engine.ranks();
        let strange = ranks.difference(known).difference(others);
        if strange.is_empty() {
            return Ok(());
        }
        Err(EngineError::new_err(format!(
            "ranks: expected ranks of the inventory ({known}), found {strange}"
        )))
    }

    /// Marks these targets up or down in the engine.
    fn mark(&mut self, ranks: &IdSet) {
        let out = self.down.union(&self.drained);
        self.engine.mark_up(&ranks.difference(&out));
        self.engine.mark_down(&ranks.intersection(&out));
    }
}

/// Both sets of targets, valid as long as the first.
fn grown(inventory: &ResourceSet, more: &ResourceSet) -> Result<ResourceSet, Error> {
    let mut more = more.clone();
    more.set_expiration(None)?;
    more.set_starttime(inventory.starttime())?;
    more.set_expiration(inventory.expiration())?;
    inventory.combine(Operation::Union, &more, Scheduling::Left)
}

#[pymethods]
impl EngineCore {
    #[new]
    fn new(
        py: Python<'_>,
        r: &Bound<'_, PyAny>,
        policy: &str,
        selection: &str,
        overlong: &str,
        up: bool,
    ) -> PyResult<Self> {
        let r = convert::extract(r)?;
        let options = Options {
            policy: policy.parse().map_err(raised)?,
            selection: selection.parse().map_err(raised)?,
            overlong: overlong.parse().map_err(raised)?,
        };
        let engine = py.detach(|| Engine::with_options(&r, options));
        let engine = engine.map_err(raised)?;
        let ranks = engine.ranks().clone();
        let mut state = CoreState {
            engine,
            inventory: (*r).clone(),
            down: if up { IdSet::new() } else { ranks.clone() },
            drained: IdSet::new(),
            submitted: FxHashMap::default(),
            arranged: FxHashMap::default(),
            by_priority: false,
            accuracy: Accuracy::new(),
            shapes: Shapes::default(),
            queues: BTreeMap::new(),
        };
        state.mark(&ranks);
        Ok(Self::of(state))
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<Self> {
        let mut state = self.lock()?;
        let state = &mut *state;
        Ok(Self::of(py.detach(|| {
            state.engine.share();
            state.clone()
        })))
    }

    #[getter]
    fn up(&self) -> PyResult<PyIdSet> {
        Ok(PyIdSet::new(self.lock()?.engine.up()))
    }

    #[getter]
    fn ranks(&self) -> PyResult<PyIdSet> {
        Ok(PyIdSet::new(self.lock()?.engine.ranks().clone()))
    }

    #[getter]
    fn drained(&self) -> PyResult<PyIdSet> {
        Ok(PyIdSet::new(self.lock()?.drained.clone()))
    }

    /// All resources, whatever their state.
    #[getter]
    fn inventory(&self) -> PyResult<PyResourceSet> {
        Ok(PyResourceSet::new(self.lock()?.inventory.clone()))
    }

    /// Policy, selection and so on, as JSON.
    #[getter]
    fn options(&self) -> PyResult<String> {
        let state = self.lock()?;
        let options = state.engine.options();
        let queue = |(name, options): (&String, &QueueOptions)| {
            let options = json!({
                "group": options.group,
                "order": options.order.to_string(),
                "max_jobs": options.max_jobs,
                "max_nodes": options.max_nodes,
                "max_cores": options.max_cores,
            });
            (name.clone(), options)
        };
        let queues: serde_json::Map<_, _> = state.queues.iter().map(queue).collect();
        let options = json!({
            "policy": options.policy.to_string(),
            "selection": options.selection.to_string(),
            "overlong": options.overlong.name(),
            "queues": queues,
        });
        Ok(options.to_string())
    }

    #[getter]
    fn down(&self) -> PyResult<PyIdSet> {
        Ok(PyIdSet::new(self.lock()?.down.clone()))
    }

    #[getter]
    fn allocated(&self) -> PyResult<PyResourceSet> {
        let allocated = self.lock()?.engine.allocated().map_err(raised)?;
        Ok(PyResourceSet::new(allocated))
    }

    fn mark_up(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut state) = (convert::ids(ranks)?, self.lock()?);
        state.know(&ranks, &IdSet::new())?;
        state.down = state.down.difference(&ranks);
        state.mark(&ranks);
        Ok(())
    }

    fn mark_down(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut state) = (convert::ids(ranks)?, self.lock()?);
        state.know(&ranks, &IdSet::new())?;
        state.down = state.down.union(&ranks);
        state.mark(&ranks);
        Ok(())
    }

    fn drain(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut state) = (convert::ids(ranks)?, self.lock()?);
        state.know(&ranks, &IdSet::new())?;
        state.drained = state.drained.union(&ranks);
        state.mark(&ranks);
        Ok(())
    }

    fn undrain(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut state) = (convert::ids(ranks)?, self.lock()?);
        state.know(&ranks, &IdSet::new())?;
        state.drained = state.drained.difference(&ranks);
        state.mark(&ranks);
        Ok(())
    }

    fn grow(&self, r: &Bound<'_, PyAny>, up: bool) -> PyResult<()> {
        let (r, mut state) = (convert::extract(r)?, self.lock()?);
        let inventory = grown(&state.inventory, &r);
        let inventory = inventory.map_err(raised)?;
        state.engine.grow(&r).map_err(raised)?;
        state.inventory = inventory;
        let ranks = r.ranks();
        if !up {
            state.down = state.down.union(&ranks);
        }
        state.mark(&ranks);
        Ok(())
    }

    fn shrink(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut state) = (convert::ids(ranks)?, self.lock()?);
        state.know(&ranks, &IdSet::new())?;
        state.engine.shrink(&ranks);
        state.inventory.remove_ranks(&ranks);
        state.down = state.down.difference(&ranks);
        state.drained = state.drained.difference(&ranks);
        Ok(())
    }

    fn add_property(&self, name: &str, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut state) = (convert::ids(ranks)?, self.lock()?);
        let done = state.engine.add_property(name, &ranks);
        done.map_err(raised)?;
        let done = state.inventory.add_property(name, &ranks);
        done.map_err(raised)
    }

    fn remove_property(&self, name: &str, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut state) = (convert::ids(ranks)?, self.lock()?);
        state.engine.remove_property(name, &ranks);
        state.inventory.remove_property(name, &ranks);
        Ok(())
    }

    fn set_inventory_expiration(&self, expiration: Option<f64>) -> PyResult<()> {
        let mut state = self.lock()?;
        let done = state.inventory.set_expiration(expiration);
        done.map_err(raised)?;
        state.engine.set_inventory_expiration(expiration);
        Ok(())
    }
}
