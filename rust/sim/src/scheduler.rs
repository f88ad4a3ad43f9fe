//! The engine as the event loop uses it.

use penstock_engine::{Decision, Engine, Estimate, Options, Overlong, QueueId, ShapeId};
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use crate::Error;
use crate::failures::Failure;
use crate::setup::Setup;
use crate::workload::{Priority, QueueIndex, ShapeIndex};

/// An engine with the shapes and the queues of a workload.
pub(crate) struct Scheduler {
    engine: Engine,
    shapes: Vec<ShapeId>,
    queues: Vec<QueueId>,
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
            shapes: requests
                .iter()
                .map(|request| engine.shape(request))
                .collect(),
            queues: queues.iter().map(|name| engine.queue(name)).collect(),
            engine,
        })
    }

    /// Queues a job; `limit` is in seconds, infinite for none.
    pub fn submit(
        &mut self,
        id: JobId,
        limit: f64,
        shape: ShapeIndex,
        priority: Priority,
        queue: QueueIndex,
    ) -> Result<(), Error> {
        let duration = if limit.is_infinite() {
            0.0
        } else {
            // The engine takes 0 for no limit. The smallest positive number vanishes when it is
            // added to a time: such a job is planned to end as it starts.
            limit.max(f64::MIN_POSITIVE)
        };
        let shape = self.shapes[shape.index()];
        let queue = self.queues[queue.index()];
        let queued = self
            .engine
            .submit_shape(id, priority.get(), shape, duration, queue);
        queued.map_err(Error::bug)
    }

    /// Makes one pass.
    pub fn pass(&mut self, now: f64) -> Vec<Decision> {
        self.engine.pass(now, usize::MAX)
    }

    /// Stores the ranks of a running job in `ranks`. Returns the number of its cores.
    pub fn ranks_of(&self, id: JobId, ranks: &mut Vec<u32>) -> u64 {
        ranks.clear();
        let mut cores = 0;
        for node in self.engine.node_allocations(id) {
            ranks.push(node.rank);
            cores += u64::from(node.cores);
        }
        cores
    }

    /// Ends a running job.
    pub fn finish(&mut self, id: JobId) -> Result<(), Error> {
        match self.engine.finish(&[id]) {
            1 => Ok(()),
            _ => Err(Error::bug(format!("job {} is not running", id.get()))),
        }
    }

    /// Marks nodes up or down.
    pub fn mark(&mut self, failure: &Failure) {
        if failure.up {
            self.engine.mark_up(&failure.ranks);
        } else {
            self.engine.mark_down(&failure.ranks);
        }
    }

    /// Estimates the starts of pending jobs, if no other job arrives and all end as planned;
    /// infinite for jobs that will not start. `None` once `may_continue` returns `false`.
    pub fn forecast(
        &self,
        pending: &[JobId],
        now: f64,
        may_continue: &mut dyn FnMut() -> bool,
    ) -> Option<Vec<f64>> {
        let estimates = self.engine.estimate_of_while(now, pending, may_continue)?;
        let start = |estimate: &Estimate| estimate.start.unwrap_or(f64::INFINITY);
        Some(estimates.iter().map(start).collect())
    }
}
