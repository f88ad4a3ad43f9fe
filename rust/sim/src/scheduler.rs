//! The engine, as the event loop asks it.

use penstock_engine::{Decision, Engine, Options, Overlong, QueueId, ShapeId};
use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_rset::ResourceSet;

use crate::Error;
use crate::setup::Setup;

/// An engine with the shapes and the queues of a workload.
pub(crate) struct Scheduler {
    engine: Engine,
    shapes: Vec<ShapeId>,
    queues: Vec<QueueId>,
}

fn bug(error: impl std::fmt::Display) -> Error {
    Error::new(format!("the scheduler contradicts itself: {error}"))
}

impl Scheduler {
    pub fn new(
        resources: &ResourceSet,
        setup: &Setup,
        requests: &[Request],
        queues: &[String],
    ) -> Result<Self, Error> {
        let options = Options {
            selection: setup.selection,
            policy: setup.policy,
            overlong: Overlong::default(),
        };
        let mut engine = Engine::with_options(resources, options)
            .map_err(|error| Error::new(error.to_string()))?;
        engine.mark_up(&resources.ranks());
        Ok(Self {
            shapes: requests.iter().map(|it| engine.shape(it)).collect(),
            queues: queues.iter().map(|it| engine.queue(it)).collect(),
            engine,
        })
    }

    /// Queues a job; `limit` is in seconds, infinite for none.
    pub fn submit(
        &mut self,
        id: u64,
        priority: u32,
        shape: u32,
        limit: f64,
        queue: u16,
    ) -> Result<(), Error> {
        let duration = if limit.is_infinite() {
            0.0
        } else {
            // No limit is 0 to the engine. The least number there is, added to a time, is that
            // time: such a job is planned to end when it starts.
            limit.max(f64::MIN_POSITIVE)
        };
        let shape = self.shapes[shape as usize];
        let queue = self.queues[usize::from(queue)];
        let queued = self
            .engine
            .submit_shape(id, priority, shape, duration, queue);
        queued.map_err(bug)
    }

    /// One pass.
    pub fn pass(&mut self, now: f64) -> Vec<Decision> {
        self.engine.pass(now, usize::MAX)
    }

    /// Writes down the ranks that a job is on; returns how many cores it holds.
    pub fn held(&self, id: u64, ranks: &mut Vec<u32>) -> u64 {
        ranks.clear();
        let mut cores = 0;
        for held in self.engine.node_allocations(id) {
            ranks.push(held.rank);
            cores += u64::from(held.cores);
        }
        cores
    }

    /// Frees everything that a job holds.
    pub fn finish(&mut self, id: u64) -> Result<(), Error> {
        match self.engine.finish(&[id]) {
            1 => Ok(()),
            _ => Err(bug(format!("job {id} holds nothing"))),
        }
    }

    /// Nodes come back or fail.
    pub fn mark(&mut self, ranks: &IdSet, up: bool) {
        if up {
            self.engine.mark_up(ranks);
        } else {
            self.engine.mark_down(ranks);
        }
    }

    /// When these jobs, which wait, will start, if no other comes and all end as planned; infinite
    /// for those that will not. Nothing once `go_on` says no.
    pub fn forecast(
        &self,
        waiting: &[u64],
        now: f64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Option<Vec<f64>> {
        let estimates = self.engine.estimate_of_while(now, waiting, go_on)?;
        let starts = estimates.iter().map(|it| it.start.unwrap_or(f64::INFINITY));
        Some(starts.collect())
    }
}
