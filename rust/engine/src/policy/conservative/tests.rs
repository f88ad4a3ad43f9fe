//! The incremental plan, and reservations of which only some are moved up at once, in random
//! histories.

use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use proptest::prelude::*;

use super::pass::Reservation;
use super::reservations::MAX_MOVED_RESERVATIONS;
use crate::availability_profile::Interval;
use crate::ids::{GroupId, NodeIndex};
use crate::plan::{Plan, length};
use crate::state::{EngineState, PendingClass};
use crate::{Engine, Job, Options, Policy, QueueId, QueueOptions};

const NODES: u32 = 3;
const CORES: u32 = 4;

#[derive(Clone, Debug)]
enum Deed {
    Submit(Request, bool),
    Cancel(usize),
    /// Cancels a job and submits another one with the same id.
    Replace(usize, Request),
    End(usize),
    /// A running job releases its cores on the first of its nodes.
    Part(usize),
    /// A running job releases one core.
    Core(usize),
    Extend(usize, Request),
    Expire(usize, u32),
    /// A running job that has this core is registered.
    Hello(u32, u32, u32),
    Mark(u32, bool),
    Wait(f64),
}

fn request() -> impl Strategy<Value = Request> {
    let units = prop_oneof![Just(None), (1_u32..3).prop_map(Some)];
    (units, any::<bool>(), 1_u32..4, 1_u32..3, 0_u32..8).prop_map(
        |(nodes, exclusive, slots, cores, limit)| Request {
            nnodes: nodes.map(Into::into),
            exclusive: exclusive && nodes.is_some(),
            slots: slots.into(),
            cores_per_slot: cores.into(),
            gpus_per_slot: 0.into(),
            duration: f64::from(limit) * 10.0,
            constraint: None,
        },
    )
}

/// Jobs of any cores alone, of whole nodes alone, or of any kind.
fn request_of(kind: u32) -> BoxedStrategy<Request> {
    request()
        .prop_map(move |request| match kind {
            0 => Request {
                nnodes: None,
                exclusive: false,
                cores_per_slot: 1.into(),
                ..request
            },
            1 => Request {
                nnodes: Some(request.nnodes.unwrap_or(1.into())),
                exclusive: true,
                ..request
            },
            _ => request,
        })
        .boxed()
}

fn deed(kind: u32) -> impl Strategy<Value = Deed> {
    let which = 0_usize..1000;
    prop_oneof![
        8 => (request_of(kind), any::<bool>()).prop_map(|(request, other)| Deed::Submit(request, other)),
        1 => which.clone().prop_map(Deed::Cancel),
        1 => (which.clone(), request_of(kind)).prop_map(|(at, request)| Deed::Replace(at, request)),
        4 => which.clone().prop_map(Deed::End),
        1 => which.clone().prop_map(Deed::Part),
        1 => which.clone().prop_map(Deed::Core),
        1 => (which.clone(), request_of(kind)).prop_map(|(at, request)| Deed::Extend(at, request)),
        1 => (which, 0_u32..90).prop_map(|(at, end)| Deed::Expire(at, end)),
        1 => (0..NODES, 0..CORES, 0_u32..90).prop_map(|(rank, core, end)| Deed::Hello(rank, core, end)),
        1 => (0..NODES, any::<bool>()).prop_map(|(rank, up)| Deed::Mark(rank, up)),
        6 => (0_u32..25).prop_map(|time| Deed::Wait(f64::from(time))),
        3 => (1_u32..8).prop_map(|time| Deed::Wait(f64::from(time) / 8.0)),
    ]
}

/// An engine with the state that the test tracks.
struct History {
    engine: Engine,
    other: QueueId,
    now: f64,
    next: u64,
    running: Vec<JobId>,
}

impl History {
    fn new(near: usize, apart: bool) -> Self {
        let mut r = ResourceSet::new();
        for rank in 0..NODES {
            let cores = (0..CORES).collect();
            r.insert(rank, &format!("n{rank}"), cores, IdSet::new())
                .unwrap();
        }
        let options = Options {
            policy: Policy::Conservative,
            ..Options::default()
        };
        let mut engine = Engine::with_options(&r, options).unwrap();
        engine.mark_up(&r.ranks());
        let other = engine.queue("other");
        if !apart {
            for queue in [QueueId::default(), other] {
                let options = QueueOptions {
                    group: Some("one".to_owned()),
                    ..QueueOptions::default()
                };
                engine.set_queue(queue, options);
            }
        }
        let groups = &mut engine.policy_state.conservative.groups;
        groups.resize_with(4, Arc::default);
        for group in groups {
            Arc::make_mut(group).near = near;
        }
        Self {
            engine,
            other,
            now: 100.0,
            next: 1,
            running: Vec::new(),
        }
    }

    fn submit(&mut self, id: JobId, request: Request, other: bool) {
        let queue = if other {
            self.other
        } else {
            QueueId::default()
        };
        let job = Job {
            id,
            priority: 16,
            request,
            queue,
        };
        self.engine.submit(job).unwrap();
    }

    fn one_running(&self, at: usize) -> Option<JobId> {
        let some = !self.running.is_empty();
        some.then(|| self.running[at % self.running.len()])
    }

    fn one_waiting(&mut self, at: usize) -> Option<JobId> {
        let waiting = self.engine.queue_order();
        let some = !waiting.is_empty();
        some.then(|| waiting[at % waiting.len()])
    }

    /// Performs an operation. Returns whether it may make reservations later.
    fn act(&mut self, deed: Deed) -> bool {
        let engine = &self.engine;
        self.running.retain(|id| engine.is_running(*id));
        match deed {
            Deed::Submit(request, other) => {
                self.next += 1;
                self.submit(JobId::new(self.next), request, other);
            }
            Deed::Cancel(at) => {
                if let Some(id) = self.one_waiting(at) {
                    self.engine.cancel(id);
                }
            }
            Deed::Replace(at, request) => {
                if let Some(id) = self.one_waiting(at) {
                    self.engine.cancel(id);
                    self.submit(id, request, false);
                }
                return true;
            }
            Deed::End(at) => {
                if let Some(id) = self.one_running(at) {
                    self.engine.free(id, None).unwrap();
                }
            }
            Deed::Part(at) => {
                if let Some(id) = self.one_running(at) {
                    let ranks = self.engine.r(id).unwrap().ranks();
                    let first = ranks.iter().take(1).collect();
                    self.engine.free(id, Some(&first)).unwrap();
                }
            }
            Deed::Core(at) => {
                if let Some(id) = self.one_running(at) {
                    let r = self.engine.r(id).unwrap();
                    let node = r.nodes().next().unwrap();
                    let core = node.cores.iter().take(1).collect();
                    let mut given = ResourceSet::new();
                    given
                        .insert(node.rank, &node.host, core, IdSet::new())
                        .unwrap();
                    self.engine.shrink_allocation(id, &given).unwrap();
                }
            }
            Deed::Extend(at, request) => {
                if let Some(id) = self.one_running(at) {
                    // The job may be overdue, or no resources may be free.
                    let _ = self.engine.extend(id, &request, self.now);
                }
                return true;
            }
            Deed::Expire(at, after) => {
                if let Some(id) = self.one_running(at) {
                    let end = if after == 0 {
                        0.0
                    } else {
                        self.now + f64::from(after)
                    };
                    self.engine.set_expiration(id, end).unwrap();
                }
                return true;
            }
            Deed::Hello(rank, core, after) => {
                let mut r = ResourceSet::new();
                let cores = IdSet::from_iter([core]);
                r.insert(rank, &format!("n{rank}"), cores, IdSet::new())
                    .unwrap();
                r.set_expiration((after > 0).then(|| self.now + f64::from(after)))
                    .unwrap();
                self.next += 1;
                if self.engine.allocate(JobId::new(self.next), &r).is_ok() {
                    self.running.push(JobId::new(self.next));
                }
                return true;
            }
            Deed::Mark(rank, up) => {
                let ranks = IdSet::from_iter([rank]);
                if up {
                    self.engine.mark_up(&ranks);
                } else {
                    self.engine.mark_down(&ranks);
                }
                return true;
            }
            Deed::Wait(step) => {
                self.now += step;
                return true;
            }
        }
        false
    }

    fn pass(&mut self) {
        for decision in self.engine.schedule(self.now, usize::MAX) {
            if let crate::Decision::Alloc { id, .. } = decision {
                self.running.push(id);
            }
        }
    }

    /// The reserved start of each pending job.
    fn starts(&self) -> Vec<(JobId, f64)> {
        let groups = self.engine.policy_state.conservative.groups.iter();
        let starts = groups.flat_map(|group| {
            let reserved = group.by_id.iter();
            reserved.map(|(id, reservation)| (*id, reservation.start))
        });
        starts.collect()
    }

    /// The free cores of each node at a time in a plan; a single sum in an aggregate plan.
    fn free(&self, plan: &mut Plan, time: f64) -> Vec<i64> {
        let node_table = &self.engine.state.node_table;
        match plan {
            Plan::Aggregate(sums) => vec![sums.profile.least_during(Interval::lasting(time, 0.0))],
            Plan::PerNode(places) => {
                let free = (0..NODES).map(|node| {
                    places.window(
                        node_table,
                        NodeIndex::new(node),
                        Interval::lasting(time, 0.0),
                    )
                });
                free.map(|amount| amount.cores.into()).collect()
            }
        }
    }

    /// The incremental plan equals a recomputed one; and no pending job could start now without
    /// delaying another reservation.
    fn check(&mut self) -> Result<(), TestCaseError> {
        let all = self.engine.policy_state.conservative.groups.clone();
        for (group, reserved) in (0_u32..).zip(&all) {
            let Some(kept) = &reserved.incremental else {
                continue;
            };
            let planned_again = |without: Option<JobId>, state: &mut EngineState| {
                let mut plan = Plan::of(state, GroupId::new(group), self.now);
                // Jobs that have started a little late keep their planned end.
                for (handle, until) in kept.until() {
                    let running = state.running(handle).unwrap();
                    let footprint = plan.footprint_of(&running.shares);
                    plan.release(&footprint, Interval::new(until, running.end.max(until)));
                }
                for (id, reservation) in &reserved.by_id {
                    if Some(*id) != without {
                        plan.reserve(&reservation.footprint, reservation.interval());
                    }
                }
                plan
            };
            let state = &mut self.engine.state;
            let mut other = planned_again(None, state);
            if !kept.is_in_step(state) || other.is_aggregate() != kept.plan.is_aggregate() {
                // Jobs of another group have started since, or the last job of a kind has.
                continue;
            }
            prop_assert!(!other.check_overfull());
            let mut plan = kept.plan.clone();
            let ends = reserved.by_id.values().map(Reservation::interval);
            let times = ends
                .flat_map(|interval| [interval.start, interval.end])
                .filter(|time| time.is_finite());
            let runs = self
                .engine
                .state
                .running_jobs
                .iter()
                .map(|(_, running)| running.end);
            let runs = runs.filter(|end| end.is_finite() && *end >= self.now);
            let times: Vec<f64> = times
                .chain(runs)
                .chain([self.now, self.now + 1.0])
                .collect();
            for time in times {
                let (kept, other) = (self.free(&mut plan, time), self.free(&mut other, time));
                prop_assert_eq!(kept, other, "at {} of {}", time, self.now);
            }
            for id in reserved.by_id.keys() {
                let state = &mut self.engine.state;
                let mut without = planned_again(Some(*id), state);
                let handle = state.jobs.find(*id).unwrap();
                let PendingClass { class, limit } = state.pending_class(handle).unwrap();
                let shape = state.queue.classes[class.index()].shape;
                let now = Interval::new(self.now, self.now.next_up());
                let found = without.earliest(&state.node_table, shape, now, length(limit));
                prop_assert!(found.time.is_infinite(), "job {} can start now", id.get());
            }
        }
        Ok(())
    }
}

/// The number of near reservations, whether the queues are separate groups, and the operations,
/// most of them followed by a pass.
fn histories() -> impl Strategy<Value = (usize, bool, Vec<(Deed, bool)>)> {
    let near = prop_oneof![Just(1), Just(2), Just(MAX_MOVED_RESERVATIONS)];
    let deeds = (0_u32..4).prop_flat_map(|kind| {
        let deed = (deed(kind), prop::bool::weighted(0.7));
        prop::collection::vec(deed, 1..80)
    });
    (near, any::<bool>(), deeds)
}

proptest! {
    #[test]
    fn an_incremental_plan_equals_a_recomputed_one((near, apart, deeds) in histories()) {
        let mut history = History::new(near, apart);
        let mut disturbed = false;
        for (deed, passes) in deeds {
            let before = history.starts();
            disturbed |= history.act(deed);
            if !passes {
                continue;
            }
            history.pass();
            history.check()?;
            let disturbs = std::mem::take(&mut disturbed);
            if !disturbs && !apart {
                let after = history.starts();
                for (id, start) in before {
                    let now = after.iter().find(|(other, _)| *other == id);
                    let kept = now.is_none_or(|(_, now)| *now <= start);
                    // A running job that was overdue is planned to end a second later.
                    prop_assert!(kept || start <= history.now + 1.0, "job {} is delayed", id.get());
                }
            }
        }
    }
}

#[test]
fn a_job_with_the_id_of_another_gets_what_it_asks_for_itself() {
    let job = |slots: u32, limit: f64| Request {
        nnodes: None,
        exclusive: false,
        slots: slots.into(),
        cores_per_slot: 2.into(),
        gpus_per_slot: 0.into(),
        duration: limit,
        constraint: None,
    };
    let mut history = History::new(MAX_MOVED_RESERVATIONS, false);
    history.submit(JobId::new(1), job(6, 10.0), false);
    history.pass();
    history.submit(JobId::new(2), job(1, 10.0), false);
    history.submit(JobId::new(3), job(5, 10.0), false);
    history.pass();
    assert_eq!(history.engine.reservation(JobId::new(2)), Some(110.0));
    history.engine.cancel(JobId::new(2));
    history.submit(JobId::new(2), job(4, 10.0), false);
    history.pass();
    // Beside the third there is room for one slot.
    assert_eq!(history.engine.reservation(JobId::new(3)), Some(110.0));
    assert_eq!(history.engine.reservation(JobId::new(2)), Some(120.0));
    history.engine.free(JobId::new(1), None).unwrap();
    history.now = 110.0;
    history.pass();
    history.engine.free(JobId::new(3), None).unwrap();
    history.pass();
    assert_eq!(history.engine.r(JobId::new(2)).unwrap().ncores(), 8);
}
