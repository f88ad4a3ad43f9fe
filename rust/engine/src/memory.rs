//! Memory use, computed from the capacities of vectors and tables.

use crate::Engine;

impl Engine {
    /// Bytes on the heap for pending jobs, and for the tables of all jobs; of shapes, only the data
    /// in the queue.
    pub fn queue_bytes(&self) -> usize {
        self.state.jobs.heap_bytes() + self.state.queue.heap_bytes()
    }

    /// Bytes on the heap for the allocations of running jobs. Memory shared with snapshots is
    /// counted in each of them.
    pub fn running_bytes(&self) -> usize {
        self.state.running_jobs.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use penstock_idset::IdSet;
    use penstock_jobspec::job_id::JobId;
    use penstock_jobspec::{Count, Request};
    use penstock_rset::ResourceSet;

    use crate::{Engine, QueueId};

    fn engine(nodes: u32) -> Engine {
        let hosts = format!("node[0-{}]", nodes - 1).parse().unwrap();
        let (ranks, cores) = (IdSet::from(0..=nodes - 1), IdSet::from(0..=63));
        let set = ResourceSet::uniform(&ranks, &hosts, cores, IdSet::new()).unwrap();
        let mut engine = Engine::new(&set).unwrap();
        engine.mark_up(&ranks);
        engine
    }

    /// Submits jobs of `shapes` shapes, with `limits` time limits each.
    fn submit(engine: &mut Engine, jobs: u32, shapes: u32, limits: u32) {
        for job in 0..jobs {
            let request = Request {
                nnodes: None,
                exclusive: false,
                slots: Count::exactly(1 + job % shapes),
                cores_per_slot: Count::exactly(1),
                gpus_per_slot: Count::exactly(0),
                duration: 0.0,
                constraint: None,
            };
            let shape = engine.shape(&request);
            let limit = f64::from(60 + job / shapes % limits);
            let queue = QueueId::default();
            engine
                .submit_shape(JobId::new(job.into()), 16, shape, limit, queue)
                .unwrap();
        }
    }

    #[test]
    fn a_node_takes_at_most_64_bytes() {
        let nodes = 10_000;
        let mut engine = engine(nodes);
        submit(&mut engine, 1, 1, 1);
        assert_eq!(engine.schedule(1.0, 1).len(), 1);
        let bytes = engine.node_table_bytes();
        assert!((1..=64 * nodes as usize).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_pending_job_takes_at_most_120_bytes_with_few_shapes() {
        let jobs = 40_000;
        for (shapes, limits, most) in [(1, 1, 120), (100, 10, 120), (1000, 20, 400)] {
            let mut engine = engine(10);
            submit(&mut engine, jobs, shapes, limits);
            let bytes = engine.queue_bytes() / jobs as usize;
            assert!((40..=most).contains(&bytes), "{shapes} x {limits}: {bytes}");
        }
    }

    /// In any order in which they leave, and if some remain.
    #[test]
    fn jobs_that_have_left_the_queue_take_no_memory() {
        let jobs = 100_000;
        let mut engine = engine(10);
        let before = engine.queue_bytes();
        let orders: [fn(u32) -> u32; 3] = [
            |number| number,
            |number| 99_999 - number,
            |number| number * 7_919 % 100_000,
        ];
        for (order, remaining) in orders.into_iter().zip([100, 200, 5000]) {
            submit(&mut engine, jobs, 1, 1);
            let full = engine.queue_bytes();
            assert!(full > 40 * jobs as usize);
            for id in (0..jobs).map(order).filter(|id| *id >= remaining) {
                assert!(engine.cancel(JobId::new(id.into())));
            }
            assert_eq!(engine.queue_len(), remaining as usize);
            let after = engine.queue_bytes();
            // Two chunks of handles stay, a block of keys, and tables up to eight times as large as what they hold.
            let most = before + 3 * 1024 * 24 + 1024 * 16 + 200 * remaining as usize;
            assert!(after <= most, "{after} of {full} bytes");
            let mut left: Vec<u64> = engine.queue_order().iter().map(|id| id.get()).collect();
            left.sort_unstable();
            assert!(left.into_iter().eq(0..u64::from(remaining)));
            for id in 0..remaining {
                assert!(engine.cancel(JobId::new(id.into())));
            }
        }
    }

    #[test]
    fn a_running_job_takes_at_most_160_bytes() {
        let jobs = 6_400;
        let mut engine = engine(100);
        submit(&mut engine, jobs, 1, 1);
        assert_eq!(engine.schedule(1.0, usize::MAX).len(), jobs as usize);
        let bytes = engine.running_bytes() / jobs as usize;
        assert!((100..=160).contains(&bytes), "{bytes}");
    }
}
