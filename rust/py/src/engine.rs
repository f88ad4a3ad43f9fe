//! `EngineCore`: what `penstock.Engine` is made of. Its methods are documented there.

mod answers;
mod arrangement;
mod columns;
mod decisions;
mod jobs;
mod machine;
mod parts;
mod shapes;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, TryLockError};

use penstock_engine::{Accuracy, Engine, QueueOptions};
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use self::shapes::Shapes;
use crate::errors::EngineError;

/// An engine, and what its Python face knows beyond it.
#[derive(Clone)]
struct Books {
    engine: Engine,
    /// Everything there is.
    inventory: ResourceSet,
    shapes: Shapes,
    /// Queues that are not as queues are by default.
    queues: BTreeMap<String, QueueOptions>,
    /// Targets that were marked down.
    down: IdSet,
    /// Targets that were drained. What is in neither set is up in the engine.
    drained: IdSet,
    /// When jobs of the queue were submitted, as far as that was told.
    submitted: FxHashMap<u64, f64>,
    accuracy: Accuracy,
    /// The priorities of jobs whose place in the engine's queue is a callable's choice.
    arranged: FxHashMap<u64, u32>,
    /// Whether all queues are ordered by priority, so that the choice takes effect.
    by_priority: bool,
}

impl Books {
    /// Forgets what is known of jobs that have left the queue.
    fn forget(&mut self, ids: impl Iterator<Item = u64>) {
        for id in ids {
            self.submitted.remove(&id);
            self.arranged.remove(&id);
            self.accuracy.forget(id);
        }
    }
}

/// The compiled part of `penstock.Engine`.
#[pyclass(module = "penstock._core", frozen)]
pub(super) struct EngineCore(Mutex<Books>);

impl EngineCore {
    fn of(books: Books) -> Self {
        Self(Mutex::new(books))
    }

    /// The books, unless another thread is at work on them.
    fn books(&self) -> PyResult<MutexGuard<'_, Books>> {
        self.0.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => EngineError::new_err(
                "the engine is at work in another thread: use one engine from one thread at a \
                 time\nhint: `snapshot()` gives each thread an engine of its own",
            ),
            TryLockError::Poisoned(_) => EngineError::new_err(
                "the engine has failed in an earlier call: its state is no longer reliable",
            ),
        })
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<EngineCore>()?;
    module.add_class::<decisions::Decisions>()
}
