use crate::availability_profile::Interval;
use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use super::{Footprint, Plan, PlannedStart};
use crate::ids::NodeIndex;
use crate::node_table::NodeAmount;
use crate::{Engine, Job, QueueId};

fn nodes(nnodes: u32, cores: u32, duration: f64) -> Request {
    Request {
        nnodes: Some(nnodes.into()),
        exclusive: false,
        slots: 1.into(),
        cores_per_slot: cores.into(),
        gpus_per_slot: 0.into(),
        duration,
        constraint: None,
    }
}

fn whole_nodes(nnodes: u32, duration: f64) -> Request {
    Request {
        exclusive: true,
        ..nodes(nnodes, 1, duration)
    }
}

fn cores(cores: u32, duration: f64) -> Request {
    Request {
        nnodes: None,
        slots: cores.into(),
        ..nodes(1, 1, duration)
    }
}

/// Two nodes of four cores. The first job runs, the others are pending.
fn engine(running: Request, pending: &[Request]) -> Engine {
    let mut r = ResourceSet::new();
    for rank in 0..2 {
        r.insert(rank, &format!("n{rank}"), (0..4).collect(), IdSet::new())
            .unwrap();
    }
    let mut engine = Engine::new(&r).unwrap();
    engine.mark_up(&r.ranks());
    let submit = |engine: &mut Engine, id, request: Request| {
        let job = Job {
            id,
            priority: 16,
            request,
            queue: QueueId::default(),
        };
        engine.submit(job).unwrap();
    };
    submit(&mut engine, JobId::new(1), running);
    engine.schedule(0.0, 1);
    for (id, request) in (2..).zip(pending) {
        submit(&mut engine, JobId::new(id), request.clone());
    }
    engine
}

/// The footprint of these cores: node and number.
fn on_nodes(cores: &[(u32, u32)]) -> Footprint {
    let amount = |(node, cores): &(u32, u32)| NodeAmount {
        node: NodeIndex::new(*node),
        cores: *cores,
        gpus: 0,
    };
    Footprint::Nodes(cores.iter().map(amount).collect())
}

fn plan(engine: &mut Engine) -> Plan {
    let group = engine.state.queues.group(QueueId::default());
    Plan::of(&mut engine.state, group, 0.0)
}

/// The start of a job with this footprint.
fn start(time: f64, footprint: Footprint) -> PlannedStart {
    PlannedStart { time, footprint }
}

/// The earliest start of a request.
fn earliest(engine: &mut Engine, plan: &mut Plan, request: &Request) -> PlannedStart {
    let shape = engine.shape(request);
    plan.earliest(
        &engine.state.node_table,
        shape,
        Interval::from(0.0),
        request.duration,
    )
}

#[test]
fn requests_for_any_cores_or_any_whole_nodes_are_counted() {
    let mut any = engine(cores(3, 10.0), &[cores(6, 5.0)]);
    let mut sums = plan(&mut any);
    assert!(matches!(sums, Plan::Aggregate(_)));
    let found = earliest(&mut any, &mut sums, &cores(6, 5.0));
    assert_eq!(found, start(10.0, Footprint::Units(6)));

    let mut whole = engine(whole_nodes(1, 10.0), &[whole_nodes(2, 5.0)]);
    let mut sums = plan(&mut whole);
    assert!(matches!(sums, Plan::Aggregate(_)));
    let found = earliest(&mut whole, &mut sums, &whole_nodes(2, 5.0));
    assert_eq!(found, start(10.0, Footprint::Units(2)));

    // With half a node in use, or requested, it matters which nodes are taken.
    let mut part = engine(cores(3, 10.0), &[whole_nodes(2, 5.0)]);
    assert!(matches!(plan(&mut part), Plan::PerNode(_)));
    let mut mixed = engine(cores(3, 10.0), &[cores(1, 5.0), nodes(1, 2, 5.0)]);
    assert!(matches!(plan(&mut mixed), Plan::PerNode(_)));
}

#[test]
fn a_reservation_excludes_others_until_it_is_released() {
    let first = nodes(2, 4, 5.0);
    let mut engine = engine(cores(3, 10.0), std::slice::from_ref(&first));
    let mut plan = plan(&mut engine);
    let found = earliest(&mut engine, &mut plan, &first);
    assert_eq!(found, start(10.0, on_nodes(&[(0, 4), (1, 4)])));
    let footprint = found.footprint;
    let node_table = &engine.state.node_table;
    assert!(plan.has_room(node_table, &footprint, Interval::new(10.0, 15.0)));
    plan.reserve(&footprint, Interval::new(10.0, 15.0));
    assert!(!plan.has_room(node_table, &footprint, Interval::new(10.0, 15.0)));
    assert!(!plan.check_overfull());

    // Before it, beside the running job, and after it.
    let before = earliest(&mut engine, &mut plan, &nodes(1, 4, 10.0));
    assert_eq!(before, start(0.0, on_nodes(&[(1, 4)])));
    let after = earliest(&mut engine, &mut plan, &nodes(1, 4, 11.0));
    assert_eq!(after, start(15.0, on_nodes(&[(0, 4)])));

    plan.reserve(&footprint, Interval::new(12.0, 13.0));
    assert!(plan.check_overfull());
    plan.release(&footprint, Interval::new(12.0, 13.0));
    plan.release(&footprint, Interval::new(10.0, 15.0));
    let free = earliest(&mut engine, &mut plan, &nodes(1, 4, 11.0));
    assert_eq!(free, start(0.0, on_nodes(&[(1, 4)])));
}

#[test]
fn a_node_that_is_down_is_in_no_plan() {
    let mut engine = engine(cores(3, 10.0), &[nodes(1, 4, 5.0)]);
    engine.mark_down(&IdSet::from_iter([1]));
    let mut plan = plan(&mut engine);
    let one = earliest(&mut engine, &mut plan, &nodes(1, 4, 5.0));
    assert_eq!(one, start(10.0, on_nodes(&[(0, 4)])));
    let two = earliest(&mut engine, &mut plan, &nodes(2, 4, 5.0));
    assert_eq!(two, start(f64::INFINITY, Footprint::Nodes(Vec::new())));
}

#[test]
fn an_overdue_job_is_planned_to_end_in_a_second() {
    let mut engine = engine(cores(8, 10.0), &[cores(8, 5.0)]);
    let group = engine.state.queues.group(QueueId::default());
    let mut plan = Plan::of(&mut engine.state, group, 20.0);
    let shape = engine.shape(&cores(8, 5.0));
    let found = plan.earliest(&engine.state.node_table, shape, Interval::from(20.0), 5.0);
    assert_eq!(found, start(21.0, Footprint::Units(8)));
}
