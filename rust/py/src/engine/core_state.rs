//! The engine behind `penstock.Engine`, and the facts that only its Python interface needs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use penstock_engine::{Accuracy, Engine, QueueOptions, ShapeId};
use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;

use crate::errors::EngineError;

/// An engine, and the state that its Python class adds.
#[derive(Clone)]
pub(super) struct CoreState {
    pub engine: Engine,
    /// All resources, whatever their state.
    pub inventory: ResourceSet,
    pub shapes: Shapes,
    /// Queues with other options than the default.
    pub queues: BTreeMap<String, QueueOptions>,
    /// Targets that were marked down.
    pub down: IdSet,
    /// Drained targets. A target in neither set is up in the engine.
    pub drained: IdSet,
    /// Submission times of pending jobs, where known.
    pub submitted: FxHashMap<JobId, f64>,
    pub accuracy: Accuracy,
    /// The priorities of jobs whose position in the engine's queue a callable chose.
    pub arranged: FxHashMap<JobId, u32>,
    /// Whether all queues are ordered by priority, so that the choice takes effect.
    pub by_priority: bool,
}

impl CoreState {
    /// Forgets what is known of jobs that have left the queue.
    pub fn forget(&mut self, ids: impl Iterator<Item = JobId>) {
        for id in ids {
            self.submitted.remove(&id);
            self.arranged.remove(&id);
            self.accuracy.forget(id);
        }
    }
}

/// Shapes by the numbers that Python has for them.
/// A shape that has a number, with its request, which has no duration.
#[derive(Clone)]
pub(super) struct NamedShape {
    pub shape: ShapeId,
    pub request: Request,
}

#[derive(Clone, Default)]
pub(super) struct Shapes(Arc<Named>);

#[derive(Clone, Default)]
struct Named {
    shapes: Vec<NamedShape>,
    numbers: FxHashMap<ShapeId, u32>,
}

impl Shapes {
    /// The number of shapes.
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.shapes.len()).unwrap_or(u32::MAX)
    }

    /// The number of a shape; a new one if it has none.
    pub fn name(&mut self, shape: ShapeId, request: &Request) -> u32 {
        if let Some(number) = self.number(shape) {
            return number;
        }
        let number = self.count();
        let named = Arc::make_mut(&mut self.0);
        let mut request = request.clone();
        request.duration = 0.0;
        named.shapes.push(NamedShape { shape, request });
        named.numbers.insert(shape, number);
        number
    }

    /// The number of a shape that has one.
    pub fn number(&self, shape: ShapeId) -> Option<u32> {
        self.0.numbers.get(&shape).copied()
    }

    /// The shape with a number.
    pub fn at(&self, number: u32) -> Option<&NamedShape> {
        self.0.shapes.get(number as usize)
    }
}

/// The compiled part of `penstock.Engine`.
#[pyclass(module = "penstock._core", frozen)]
pub(crate) struct EngineCore(Mutex<CoreState>);

impl EngineCore {
    pub(super) fn of(state: CoreState) -> Self {
        Self(Mutex::new(state))
    }

    /// The state, unless another thread uses it.
    pub(super) fn lock(&self) -> PyResult<MutexGuard<'_, CoreState>> {
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
