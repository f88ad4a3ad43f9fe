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
    use penstock_jobspec::{Constraint, Count, Request};
    use penstock_rset::ResourceSet;

    use crate::{Engine, Job, QueueId};

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

    /// A request for some slots on some hosts.
    fn constrained(number: u32) -> Request {
        let host = Constraint::Hostlist(format!("node{}", number % 10).parse().unwrap());
        let other = Constraint::Properties(vec![format!("p{number}")]);
        Request {
            nnodes: None,
            exclusive: false,
            slots: Count::exactly(1 + number % 7),
            cores_per_slot: Count::exactly(1),
            gpus_per_slot: Count::exactly(0),
            duration: 60.0,
            constraint: Some(Constraint::Or(vec![host, other])),
        }
    }

    fn job(id: u32, request: Request) -> Job {
        Job {
            id: JobId::new(id.into()),
            priority: 16,
            request,
            queue: QueueId::default(),
        }
    }

    #[test]
    fn requests_of_jobs_that_have_left_are_forgotten() {
        let jobs = 5000;
        let mut engine = engine(10);
        let running = constrained(3);
        engine.submit(job(0, running.clone())).unwrap();
        assert_eq!(engine.schedule(1.0, usize::MAX).len(), 1);
        let pinned = engine.shape(&constrained(4));
        let known = |engine: &Engine| engine.state.node_table.known_shapes();
        let most = 300;
        for id in 1..=jobs {
            engine.submit(job(id, constrained(id))).unwrap();
            if id % 2 == 0 {
                assert!(engine.cancel(JobId::new(id.into())));
            }
        }
        let half = jobs as usize / 2;
        let (shapes, constraints) = known(&engine);
        assert!((half..half + most).contains(&shapes) && constraints <= shapes);
        // Each pending job has its own request, whatever was forgotten.
        for id in (1..=jobs).step_by(2) {
            let expected = job(id, constrained(id));
            assert_eq!(engine.job(JobId::new(id.into())), Some(expected));
        }
        for id in (1..=jobs).step_by(2) {
            assert!(engine.cancel(JobId::new(id.into())));
        }
        let (shapes, constraints) = known(&engine);
        assert!(
            shapes <= most && constraints <= most,
            "{shapes} {constraints}"
        );
        // Checks of requests leave few.
        for number in 0..jobs {
            assert!(engine.feasible(&constrained(number)).is_ok());
        }
        let (shapes, constraints) = known(&engine);
        assert!(
            shapes <= most && constraints <= most,
            "{shapes} {constraints}"
        );
        // The request of the running job is known, and so is that of `shape`.
        assert_eq!(engine.job(JobId::new(0)), Some(job(0, running)));
        let (id, queue) = (JobId::new(9999), QueueId::default());
        engine.submit_shape(id, 16, pinned, 60.0, queue).unwrap();
        assert_eq!(engine.job(id), Some(job(9999, constrained(4))));
    }

    #[test]
    fn time_limits_of_jobs_that_have_left_take_no_memory() {
        let jobs = 20_000;
        let mut engine = engine(10);
        let before = engine.queue_bytes();
        for remaining in [0, 1] {
            submit(&mut engine, jobs, 1, jobs);
            assert!(engine.queue_bytes() > 150 * jobs as usize);
            for id in remaining..jobs {
                assert!(engine.cancel(JobId::new(id.into())));
            }
            let after = engine.queue_bytes();
            // Of lanes beside one with a job the keys alone are removed.
            let most = before + 200_000 + 120 * (remaining * jobs) as usize;
            assert!(after <= most, "{after} of at most {most} bytes");
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
