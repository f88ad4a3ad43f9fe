//! The machine: the inventory, and the state of its nodes.

use std::collections::BTreeMap;

use penstock_engine::{Accuracy, Engine, Options, Overlong, QueueOptions};
use penstock_idset::IdSet;
use penstock_rset::{Error, Operation, ResourceSet, Scheduling};
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use serde_json::json;

use super::shapes::Shapes;
use super::{Books, EngineCore};
use crate::errors::{EngineError, raised};
use crate::idset::PyIdSet;
use crate::resource::{PyResourceSet, convert};

impl Books {
    /// Fails where there is a rank that is neither in the inventory nor among some others.
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

    /// Tells the engine which of these targets may be allocated.
    fn tell(&mut self, ranks: &IdSet) {
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
            overlong: match overlong {
                "shorten" => Overlong::Shorten,
                "deny" => Overlong::Deny,
                _ => {
                    return Err(EngineError::new_err(format!(
                        "overlong `{overlong}`: expected `shorten` or `deny`"
                    )));
                }
            },
        };
        let engine = py.detach(|| Engine::with_options(&r, options));
        let engine = engine.map_err(raised)?;
        let ranks = engine.ranks().clone();
        let mut books = Books {
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
        books.tell(&ranks);
        Ok(Self::of(books))
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<Self> {
        let mut books = self.books()?;
        let books = &mut *books;
        Ok(Self::of(py.detach(|| {
            books.engine.share();
            books.clone()
        })))
    }

    #[getter]
    fn up(&self) -> PyResult<PyIdSet> {
        Ok(PyIdSet::new(self.books()?.engine.up()))
    }

    #[getter]
    fn ranks(&self) -> PyResult<PyIdSet> {
        Ok(PyIdSet::new(self.books()?.engine.ranks().clone()))
    }

    #[getter]
    fn drained(&self) -> PyResult<PyIdSet> {
        Ok(PyIdSet::new(self.books()?.drained.clone()))
    }

    /// Everything there is.
    #[getter]
    fn inventory(&self) -> PyResult<PyResourceSet> {
        Ok(PyResourceSet::new(self.books()?.inventory.clone()))
    }

    /// Policy, selection and so on, as JSON.
    #[getter]
    fn options(&self) -> PyResult<String> {
        let books = self.books()?;
        let options = books.engine.options();
        let queue = |(name, it): (&String, &QueueOptions)| {
            let options = json!({
                "group": it.group,
                "order": it.order.to_string(),
                "max_jobs": it.max_jobs,
                "max_nodes": it.max_nodes,
                "max_cores": it.max_cores,
            });
            (name.clone(), options)
        };
        let queues: serde_json::Map<_, _> = books.queues.iter().map(queue).collect();
        let options = json!({
            "policy": options.policy.to_string(),
            "selection": options.selection.to_string(),
            "overlong": match options.overlong {
                Overlong::Shorten => "shorten",
                Overlong::Deny => "deny",
            },
            "queues": queues,
        });
        Ok(options.to_string())
    }

    #[getter]
    fn down(&self) -> PyResult<PyIdSet> {
        Ok(PyIdSet::new(self.books()?.down.clone()))
    }

    #[getter]
    fn allocated(&self) -> PyResult<PyResourceSet> {
        let allocated = self.books()?.engine.allocated().map_err(raised)?;
        Ok(PyResourceSet::new(allocated))
    }

    fn mark_up(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut books) = (convert::ids(ranks)?, self.books()?);
        books.know(&ranks, &IdSet::new())?;
        books.down = books.down.difference(&ranks);
        books.tell(&ranks);
        Ok(())
    }

    fn mark_down(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut books) = (convert::ids(ranks)?, self.books()?);
        books.know(&ranks, &IdSet::new())?;
        books.down = books.down.union(&ranks);
        books.tell(&ranks);
        Ok(())
    }

    fn drain(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut books) = (convert::ids(ranks)?, self.books()?);
        books.know(&ranks, &IdSet::new())?;
        books.drained = books.drained.union(&ranks);
        books.tell(&ranks);
        Ok(())
    }

    fn undrain(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut books) = (convert::ids(ranks)?, self.books()?);
        books.know(&ranks, &IdSet::new())?;
        books.drained = books.drained.difference(&ranks);
        books.tell(&ranks);
        Ok(())
    }

    fn grow(&self, r: &Bound<'_, PyAny>, up: bool) -> PyResult<()> {
        let (r, mut books) = (convert::extract(r)?, self.books()?);
        let inventory = grown(&books.inventory, &r);
        let inventory = inventory.map_err(raised)?;
        books.engine.grow(&r).map_err(raised)?;
        books.inventory = inventory;
        let ranks = r.ranks();
        if !up {
            books.down = books.down.union(&ranks);
        }
        books.tell(&ranks);
        Ok(())
    }

    fn shrink(&self, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut books) = (convert::ids(ranks)?, self.books()?);
        books.know(&ranks, &IdSet::new())?;
        books.engine.shrink(&ranks);
        books.inventory.remove_ranks(&ranks);
        books.down = books.down.difference(&ranks);
        books.drained = books.drained.difference(&ranks);
        Ok(())
    }

    fn add_property(&self, name: &str, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut books) = (convert::ids(ranks)?, self.books()?);
        let done = books.engine.add_property(name, &ranks);
        done.map_err(raised)?;
        let done = books.inventory.add_property(name, &ranks);
        done.map_err(raised)
    }

    fn remove_property(&self, name: &str, ranks: &Bound<'_, PyAny>) -> PyResult<()> {
        let (ranks, mut books) = (convert::ids(ranks)?, self.books()?);
        books.engine.remove_property(name, &ranks);
        books.inventory.remove_property(name, &ranks);
        Ok(())
    }

    fn set_inventory_expiration(&self, expiration: Option<f64>) -> PyResult<()> {
        let mut books = self.books()?;
        let done = books.inventory.set_expiration(expiration);
        done.map_err(raised)?;
        books.engine.set_inventory_expiration(expiration);
        Ok(())
    }
}
