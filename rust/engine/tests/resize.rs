//! Running jobs that are extended, release a part, or are registered with a part of their
//! allocation.

mod machines;

use std::collections::{BTreeMap, BTreeSet};

use machines::{engine, inventory, nodes, random_request, ranks, slots, submit, submit_to};
use penstock_engine::{Decision, Engine, Job, Options, Policy, QueueId, QueueOptions, Selection};
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use proptest::prelude::*;

fn held(engine: &Engine, id: u64) -> String {
    engine.r(JobId::new(id)).unwrap().summary()
}

/// R of some cores of one node.
fn part(rank: u32, cores: &str) -> ResourceSet {
    let mut r = ResourceSet::new();
    let host = format!("node{rank}");
    r.insert(rank, &host, cores.parse().unwrap(), ranks(""))
        .unwrap();
    r
}

#[test]
fn a_job_that_is_to_end_when_it_has_started_has_an_r() {
    let mut engine = engine(Policy::Fcfs, &[(2, 0)]);
    submit(&mut engine, 1, slots(1, 1, 0, 60.0));
    assert_eq!(engine.schedule(100.0, 1).len(), 1);
    engine.set_expiration(JobId::new(1), 100.0).unwrap();
    let r = engine.r(JobId::new(1)).unwrap();
    assert_eq!(r.expiration(), Some(101.0));
    let mut text = String::new();
    engine.write_r(JobId::new(1), &mut text).unwrap();
    assert_eq!(text, r.to_json());
}

#[test]
fn a_running_job_gets_more_cores_and_nodes() {
    let mut engine = engine(Policy::Easy, &[(4, 0), (4, 1), (4, 0)]);
    submit(&mut engine, 1, slots(2, 1, 0, 60.0));
    engine.schedule(100.0, 10);
    // The added resources expire with the job, whatever the request says.
    let added = engine
        .extend(JobId::new(1), &slots(3, 1, 0, 5.0), 110.0)
        .unwrap();
    assert_eq!(added.summary(), "rank0/core[2-3] rank1/core0");
    assert_eq!(added.starttime(), Some(110.0));
    assert_eq!(added.expiration(), Some(160.0));
    assert_eq!(added.nslots(), Some(3));
    assert_eq!(held(&engine, 1), "rank0/core[0-3] rank1/core0");
    let r = engine.r(JobId::new(1)).unwrap();
    assert_eq!(
        (r.starttime(), r.expiration(), r.nslots()),
        (Some(100.0), Some(160.0), Some(5))
    );
    let added = engine
        .extend(JobId::new(1), &nodes(1, 1, 1, 0.0), 110.0)
        .unwrap();
    assert_eq!(added.summary(), "rank1/core1,gpu0");
    assert_eq!(held(&engine, 1), "rank0/core[0-3] rank1/core[0-1],gpu0");
    let added = engine
        .extend_with(JobId::new(1), &part(2, "1,3"), 110.0)
        .unwrap();
    assert_eq!(added.summary(), "rank2/core[1,3]");
    // The number of slots in them is unknown.
    assert_eq!(engine.r(JobId::new(1)).unwrap().nslots(), None);
    engine.free(JobId::new(1), None).unwrap();
    assert!(engine.allocated().unwrap().ranks().is_empty());
}

#[test]
fn resources_that_cannot_be_added_are_rejected_with_the_reason() {
    let mut engine = engine(Policy::Easy, &[(4, 0), (4, 0)]);
    let queue = engine.queue("small");
    let options = QueueOptions {
        max_nodes: Some(1),
        max_cores: Some(4),
        ..QueueOptions::default()
    };
    engine.set_queue(queue, options);
    submit(&mut engine, 1, slots(5, 1, 0, 60.0));
    submit_to(&mut engine, 2, queue, slots(1, 1, 0, 60.0));
    engine.schedule(100.0, 10);
    let mut rejected = |id, request: Request, now, text: &str| {
        let error = engine.extend(id, &request, now).unwrap_err();
        assert_eq!(error.to_string(), text);
        error
    };
    let error = rejected(
        JobId::new(3),
        slots(1, 1, 0, 0.0),
        100.0,
        "job 3 holds no resources",
    );
    assert!(error.is_unknown_job());
    let error = rejected(
        JobId::new(1),
        slots(3, 1, 0, 0.0),
        100.0,
        "job 1 cannot get more: needs 3 cores: 2 are free",
    );
    assert!(error.is_unavailable());
    let error = rejected(
        JobId::new(1),
        slots(1, 5, 0, 0.0),
        100.0,
        "job 1 cannot get more: 5 cores per slot requested, no node has more than 4",
    );
    assert!(error.is_impossible());
    let error = rejected(
        JobId::new(1),
        slots(1, 1, 0, 0.0),
        160.0,
        "job 1 cannot get more: its time was over at 160, it is 160",
    );
    assert!(error.is_impossible());
    let error = engine
        .extend_with(JobId::new(1), &part(1, "0"), 100.0)
        .unwrap_err();
    assert_eq!(error.to_string(), "core 0 of rank 1 is allocated already");
    assert!(error.is_unavailable());
    engine.mark_down(&ranks("1"));
    let error = engine
        .extend_with(JobId::new(1), &part(1, "3"), 100.0)
        .unwrap_err();
    assert_eq!(error.to_string(), "job 1 cannot get more: rank 1 is down");
    assert!(error.is_unavailable());
    engine.mark_up(&ranks("1"));
    assert_eq!(held(&engine, 1), "rank0/core[0-3] rank1/core0");

    // The second job is alone in its queue, on rank 1: two more cores there, not one elsewhere.
    engine
        .extend(JobId::new(2), &slots(2, 1, 0, 0.0), 100.0)
        .unwrap();
    engine
        .shrink_allocation(JobId::new(1), &part(0, "0-3"))
        .unwrap();
    let error = engine
        .extend(JobId::new(2), &slots(1, 1, 0, 0.0), 100.0)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "job 2 cannot get more: queue `small` is limited to 1 node at a time: its jobs hold 1, this one would take 1"
    );
    assert!(error.is_unavailable());
}

#[test]
fn a_job_releases_cores() {
    let mut engine = engine(Policy::Easy, &[(4, 1), (4, 0)]);
    submit(&mut engine, 1, nodes(2, 4, 0, 60.0));
    engine.schedule(100.0, 10);
    submit(&mut engine, 2, slots(2, 1, 0, 60.0));
    assert_eq!(engine.schedule(100.0, 10), []);
    engine
        .shrink_allocation(JobId::new(1), &part(1, "1-2"))
        .unwrap();
    assert_eq!(held(&engine, 1), "rank0/core[0-3] rank1/core[0,3]");
    assert_eq!(engine.r(JobId::new(1)).unwrap().nslots(), None);
    engine.schedule(100.0, 10);
    assert_eq!(held(&engine, 2), "rank1/core[1-2]");
    for (rank, cores) in [(1, "1"), (1, "0-1"), (0, "4"), (7, "0")] {
        let error = engine
            .shrink_allocation(JobId::new(1), &part(rank, cores))
            .unwrap_err();
        assert!(error.to_string().starts_with("job 1: rank "), "{error}");
    }
    assert_eq!(held(&engine, 1), "rank0/core[0-3] rank1/core[0,3]");
    engine
        .shrink_allocation(JobId::new(1), &part(0, "0-3"))
        .unwrap();
    engine
        .shrink_allocation(JobId::new(1), &part(1, "0,3"))
        .unwrap();
    assert!(!engine.is_running(JobId::new(1)));
    assert!(
        engine
            .shrink_allocation(JobId::new(1), &part(1, "0"))
            .is_err()
    );
}

#[test]
fn a_job_comes_with_a_part_of_its_ranks() {
    // As after a restart: it had ranks 0 to 3, released 1, and 3 has left the inventory.
    let mut engine = engine(Policy::Easy, &[(2, 0), (2, 0), (2, 0)]);
    let mut r = inventory(&[(2, 0), (2, 0), (2, 0), (2, 0)]);
    r.set_starttime(Some(100.0)).unwrap();
    r.set_expiration(Some(200.0)).unwrap();
    r.remove_ranks(&ranks("1"));
    assert_eq!(engine.adopt(JobId::new(1), &r).unwrap(), ranks("3"));
    assert_eq!(held(&engine, 1), "rank[0,2]/core[0-1]");
    submit(&mut engine, 2, slots(6, 1, 0, 0.0));
    submit(&mut engine, 3, slots(2, 1, 0, 0.0));
    submit(&mut engine, 4, slots(2, 1, 0, 90.0));
    engine.schedule(110.0, 10);
    assert_eq!(held(&engine, 4), "rank1/core[0-1]");
    assert_eq!(
        engine.estimate_of(110.0, &[JobId::new(2)])[0].start,
        Some(200.0)
    );
    // Resources outside the inventory are freed as well, by part and by rank.
    engine
        .shrink_allocation(JobId::new(1), &part(3, "0"))
        .unwrap();
    assert!(
        engine
            .shrink_allocation(JobId::new(1), &part(3, "0-1"))
            .is_err()
    );
    engine.free(JobId::new(1), Some(&ranks("0,2"))).unwrap();
    assert!(engine.is_running(JobId::new(1)));
    engine
        .shrink_allocation(JobId::new(1), &part(3, "1"))
        .unwrap();
    assert!(!engine.is_running(JobId::new(1)));
}

#[derive(Clone, Debug)]
enum Step {
    Submit(Request, bool),
    Schedule(u32),
    Extend(usize, Request),
    /// Releases a number of the cores that the job holds, from an index on.
    Shrink(usize, usize, usize),
    Ranks(usize, u32),
    Limit(usize, u32),
    /// Removes the job and registers it again as by a hello, without some ranks.
    Hello(usize, u32),
    Mark(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (random_request(), any::<bool>()).prop_map(|(request, limited)| Step::Submit(request, limited)),
        3 => (0_u32..20).prop_map(Step::Schedule),
        4 => (0_usize..9, random_request()).prop_map(|(job, request)| Step::Extend(job, request)),
        3 => (0_usize..9, 0_usize..9, 1_usize..5).prop_map(|(a, b, c)| Step::Shrink(a, b, c)),
        2 => (0_usize..9, 0_u32..64).prop_map(|(job, ranks)| Step::Ranks(job, ranks)),
        1 => (0_usize..9, 0_u32..90).prop_map(|(job, seconds)| Step::Limit(job, seconds)),
        1 => (0_usize..9, 0_u32..64).prop_map(|(job, pick)| Step::Hello(job, pick)),
        1 => (0_u32..64).prop_map(Step::Mark),
    ]
}

/// Cores (even numbers) and gpus (odd ones) by rank.
type Parts = BTreeSet<(u32, u32)>;

fn parts(r: &ResourceSet) -> Parts {
    let parts = r.nodes().flat_map(|node| {
        let cores = node.cores.iter().map(|core| 2 * core);
        let gpus = node.gpus.iter().map(|gpu| 2 * gpu + 1);
        let parts: Vec<_> = cores.chain(gpus).map(|part| (node.rank, part)).collect();
        parts
    });
    parts.collect()
}

fn cores(parts: &Parts) -> usize {
    parts.iter().filter(|(_, part)| part % 2 == 0).count()
}

fn nodes_of(parts: &Parts) -> usize {
    parts
        .iter()
        .map(|(rank, _)| rank)
        .collect::<BTreeSet<_>>()
        .len()
}

fn bits(mask: u32) -> penstock_idset::IdSet {
    (0..6).filter(|rank| mask >> rank & 1 == 1).collect()
}

/// The same with an empty queue.
fn alone(engine: &Engine) -> Engine {
    let mut engine = engine.clone();
    for waiting in engine.pending_jobs() {
        engine.cancel(waiting.id);
    }
    engine
}

const MAX_CORES: usize = 6;
const MAX_NODES: usize = 3;

struct Checked {
    engine: Engine,
    sizes: Vec<(u32, u32)>,
    limited: QueueId,
    held: BTreeMap<u64, Parts>,
    /// Of these, the jobs of the queue with limits.
    counted: BTreeSet<u64>,
    now: f64,
}

impl Checked {
    fn pick(&self, index: usize) -> Option<u64> {
        self.held
            .keys()
            .nth(index % self.held.len().max(1))
            .copied()
    }

    /// Removes a job that has no resources left.
    fn drop_empty(&mut self, id: u64) {
        if self.held[&id].is_empty() {
            self.held.remove(&id);
            self.counted.remove(&id);
        }
    }

    fn take(&mut self, id: u64, step: Step) {
        let engine = &mut self.engine;
        match step {
            Step::Extend(_, request) => {
                let before = engine.r(JobId::new(id)).unwrap();
                let Ok(added) = engine.extend(JobId::new(id), &request, self.now) else {
                    assert_eq!(engine.r(JobId::new(id)).unwrap(), before);
                    return;
                };
                let added = parts(&added);
                let up = engine.up();
                assert!(added.iter().all(|(rank, _)| up.contains(*rank)));
                let known = self.held.get_mut(&id).unwrap();
                assert!(known.is_disjoint(&added));
                known.extend(added);
            }
            Step::Shrink(_, first, count) => {
                let known = self.held.get_mut(&id).unwrap();
                let gone: Parts = known.iter().skip(first).take(count).copied().collect();
                let mut r = ResourceSet::new();
                for rank in gone.iter().map(|(rank, _)| *rank).collect::<BTreeSet<_>>() {
                    let of = |odd| {
                        let here = gone
                            .iter()
                            .filter(|(its_rank, part)| *its_rank == rank && part % 2 == odd);
                        here.map(|(_, part)| part / 2).collect()
                    };
                    r.insert(rank, &format!("node{rank}"), of(0), of(1))
                        .unwrap();
                }
                known.retain(|part| !gone.contains(part));
                engine.shrink_allocation(JobId::new(id), &r).unwrap();
                self.drop_empty(id);
            }
            Step::Ranks(_, mask) => {
                engine.free(JobId::new(id), Some(&bits(mask))).unwrap();
                let known = self.held.get_mut(&id).unwrap();
                known.retain(|(rank, _)| mask >> rank & 1 == 0);
                self.drop_empty(id);
            }
            Step::Limit(_, seconds) => {
                let end = self.now + f64::from(seconds);
                engine.set_expiration(JobId::new(id), end).unwrap();
            }
            Step::Hello(_, mask) => {
                let mut r = engine.r(JobId::new(id)).unwrap();
                r.remove_ranks(&bits(mask));
                engine.free(JobId::new(id), None).unwrap();
                self.counted.remove(&id);
                let known = self.held.get_mut(&id).unwrap();
                known.retain(|(rank, _)| mask >> rank & 1 == 0);
                if known.is_empty() {
                    self.held.remove(&id);
                } else {
                    assert!(engine.adopt(JobId::new(id), &r).unwrap().is_empty());
                }
            }
            Step::Submit(..) | Step::Schedule(_) | Step::Mark(_) => {}
        }
    }

    fn check(&self) {
        let engine = &self.engine;
        assert_eq!(engine.running(), self.held.len());
        let mut all = Parts::new();
        for (id, known) in &self.held {
            let r = engine.r(JobId::new(*id)).unwrap();
            assert_eq!(&parts(&r), known, "job {id}");
            let mut text = String::new();
            engine.write_r(JobId::new(*id), &mut text).unwrap();
            assert_eq!(text, r.to_json(), "job {id}");
            assert!(all.is_disjoint(known), "job {id} holds what another does");
            all.extend(known);
        }
        assert_eq!(parts(&engine.allocated().unwrap()), all);

        let counted = self.counted.iter().map(|id| &self.held[id]);
        let (nodes, used) = counted.fold((0, 0), |(nodes, used), held| {
            (nodes + nodes_of(held), used + cores(held))
        });
        assert!(nodes <= MAX_NODES && used <= MAX_CORES);
        self.check_limits(nodes, used, &all);

        // An engine in which all jobs are registered now has the same free resources, and the same
        // plan.
        let mut fresh = Engine::with_options(&inventory(&self.sizes), engine.options()).unwrap();
        fresh.mark_up(&engine.up());
        for id in self.held.keys() {
            fresh
                .allocate(JobId::new(*id), &engine.r(JobId::new(*id)).unwrap())
                .unwrap();
        }
        for (probe, share) in [(1_000_000, 1), (1_000_001, 3), (1_000_002, 2)] {
            let up = engine.up();
            let total: u32 = up.iter().map(|rank| self.sizes[rank as usize].0).sum();
            let request = slots((total / share).max(1), 1, 0, 5.0);
            let mut starts = Vec::new();
            for engine in [engine, &fresh] {
                let mut engine = alone(engine);
                submit(&mut engine, probe, request.clone());
                starts.push(engine.estimate_of(self.now, &[JobId::new(probe)])[0].start);
            }
            assert_eq!(starts[0], starts[1], "{request:?}");
        }
    }

    /// Checks whether one more core is within the limits of the queue.
    fn check_limits(&self, nodes: usize, used: usize, all: &Parts) {
        let mut engine = alone(&self.engine);
        let id = 1_000_000;
        engine
            .submit(Job {
                id: JobId::new(id),
                priority: u32::MAX,
                request: slots(1, 1, 0, 5.0),
                queue: self.limited,
            })
            .unwrap();
        engine.schedule(self.now, usize::MAX);
        let up = engine.up();
        let total: u32 = up.iter().map(|rank| self.sizes[rank as usize].0).sum();
        let busy = all
            .iter()
            .filter(|(rank, part)| part % 2 == 0 && up.contains(*rank));
        let room = busy.count() < total as usize && nodes < MAX_NODES && used < MAX_CORES;
        assert_eq!(
            engine.is_running(JobId::new(id)),
            room,
            "{nodes} nodes, {used} cores in use"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn counters_are_right_whatever_jobs_get_and_release(
        sizes in prop::collection::vec((1_u32..6, 0_u32..3), 1..6),
        policy in machines::policy(),
        selection in prop::sample::select(vec![
            Selection::First, Selection::Pack, Selection::Spread, Selection::Thrifty,
            Selection::Contiguous,
        ]),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut engine = engine(policy, &sizes);
        engine.set_options(Options { selection, ..engine.options() });
        let limited = engine.queue("limited");
        engine.set_queue(limited, QueueOptions {
            max_nodes: Some(MAX_NODES as u64),
            max_cores: Some(MAX_CORES as u64),
            ..QueueOptions::default()
        });
        let mut checked = Checked {
            engine,
            sizes,
            limited,
            held: BTreeMap::new(),
            counted: BTreeSet::new(),
            now: 100.0,
        };
        let mut next = 0;
        let mut queues = BTreeMap::new();
        for step in steps {
            match step {
                Step::Submit(request, to_limited) => {
                    next += 1;
                    let queue = if to_limited { limited } else { QueueId::default() };
                    queues.insert(next, to_limited);
                    submit_to(&mut checked.engine, next, queue, request);
                }
                Step::Schedule(seconds) => {
                    checked.now += f64::from(seconds);
                    for decision in checked.engine.schedule(checked.now, usize::MAX) {
                        if let Decision::Alloc { id, .. } = decision {
                            let held = parts(&checked.engine.r(id).unwrap());
                            checked.held.insert(id.get(), held);
                            if queues[&id.get()] {
                                checked.counted.insert(id.get());
                            }
                        }
                    }
                }
                Step::Mark(down) => {
                    let all = checked.engine.ranks().clone();
                    let down = bits(down & down >> 1).intersection(&all);
                    checked.engine.mark_up(&all.difference(&down));
                    checked.engine.mark_down(&down);
                }
                Step::Extend(job, _) | Step::Shrink(job, ..) | Step::Ranks(job, _)
                | Step::Limit(job, _) | Step::Hello(job, _) => {
                    if let Some(id) = checked.pick(job) {
                        checked.take(id, step);
                    }
                }
            }
            checked.check();
        }
    }
}
