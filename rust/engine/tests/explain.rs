//! Reasons of pending jobs: each one by example, and all of them compared with a model.

mod machines;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use machines::{engine, nodes, random_request, ranks, slots, submit, submit_to};
use penstock_engine::{
    Engine, Interference, Job, Options, Overlong, Policy, QueueId, QueueOptions, Reason, Shortage,
};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Request};
use penstock_rset::ResourceSet;
use proptest::prelude::*;
use serde_json::json;

/// The kind and the sentence of a job's reason at time 100.
fn explained(engine: &mut Engine, id: u64) -> (&'static str, String) {
    let reason = engine.explain(JobId::new(id), 100.0).unwrap();
    let sentence = reason.sentence(100.0, &|id| format!("job {}", id.get()));
    (reason.kind(), sentence)
}

fn expect(engine: &mut Engine, id: u64, kind: &str, sentence: &str) {
    assert_eq!(
        explained(engine, id),
        (kind, sentence.to_owned()),
        "job {id}"
    );
}

#[test]
fn a_job_that_is_not_pending_has_no_reason() {
    let mut engine = engine(Policy::Easy, &[(4, 0)]);
    submit(&mut engine, 1, slots(4, 1, 0, 60.0));
    engine.schedule(100.0, 10);
    assert_eq!(engine.explain(JobId::new(1), 100.0), None);
    assert_eq!(engine.explain(JobId::new(2), 100.0), None);
}

/// Reasons are in annotations, eventlogs and lists.
#[test]
fn a_reason_repeats_the_beginning_of_a_long_constraint() {
    let odd: Vec<String> = (0..100_000)
        .map(|rank| (2 * rank + 1).to_string())
        .collect();
    let odd = json!({"ranks": [odd.join(",")]});
    let request = |cores| Request {
        constraint: Some(Constraint::from_value(&odd).unwrap()),
        ..slots(1, cores, 0, 0.0)
    };
    let mut engine = engine(Policy::Easy, &[(4, 0), (4, 0)]);
    engine.mark_down(&ranks("1"));
    for (id, cores, kind) in [(1, 1, "down"), (2, 5, "impossible")] {
        submit(&mut engine, id, request(cores));
        let (found, sentence) = explained(&mut engine, id);
        assert_eq!(found, kind);
        assert!(
            sentence.contains("the constraint rank:1,3,5,"),
            "{sentence}"
        );
        assert!(sentence.len() < 1200, "{}", sentence.len());
    }
}

#[test]
fn held_impossible_and_unconsidered() {
    let mut engine = engine(Policy::Easy, &[(4, 0), (4, 0)]);
    submit(&mut engine, 1, slots(1, 1, 0, 0.0));
    expect(
        &mut engine,
        1,
        "unconsidered",
        "fits: the next pass starts it",
    );
    engine.prioritize(&[(JobId::new(1), 0)]);
    expect(&mut engine, 1, "held", "held: its priority is 0");
    submit(&mut engine, 2, slots(1, 5, 0, 0.0));
    expect(
        &mut engine,
        2,
        "impossible",
        "can never run here: 5 cores per slot requested, no node has more than 4",
    );
}

#[test]
fn cores_are_short() {
    let mut engine = engine(Policy::Easy, &[(4, 0), (4, 0), (4, 0)]);
    submit(&mut engine, 1, slots(5, 1, 0, 60.0));
    engine.schedule(100.0, 10);
    engine.mark_down(&ranks("2"));
    submit(&mut engine, 2, slots(4, 1, 0, 30.0));
    submit(&mut engine, 3, slots(4, 1, 0, 30.0));
    engine.schedule(100.0, 10);
    expect(
        &mut engine,
        2,
        "reserved",
        "can start in 1 min, as planned: needs 4 cores: 3 are free, 4 on nodes that are down",
    );
    expect(
        &mut engine,
        3,
        "insufficient",
        "needs 4 cores: 3 are free, 4 on nodes that are down; job 2 is before it",
    );
    let Some(Reason::Insufficient { shortage, behind }) = engine.explain(JobId::new(3), 100.0)
    else {
        panic!("job 3 waits for cores")
    };
    let Shortage {
        need,
        free,
        used,
        down,
        nodes,
        nodes_up,
        ..
    } = shortage;
    assert_eq!((need, free, used, down), (4, 3, 5, 4));
    assert_eq!((nodes, nodes_up, behind), (3, 2, Some(JobId::new(2))));
    assert_eq!(shortage.nearest, None);
}

#[test]
fn what_is_free_is_not_together() {
    let mut engine = engine(Policy::Fcfs, &[(4, 0), (4, 0)]);
    for id in [1, 2] {
        submit(&mut engine, id, nodes(1, 3 - u32::from(id == 2), 0, 0.0));
    }
    engine.schedule(100.0, 10);
    // The second is placed beside no other job: three cores on one node, two on the other.
    submit(&mut engine, 3, nodes(1, 3, 0, 0.0));
    engine.schedule(100.0, 10);
    expect(
        &mut engine,
        3,
        "insufficient",
        "needs 1 node with 3 cores: none is free; there is enough, but not together; nearest is \
         node1, with 2 of the 3 cores free",
    );
}

#[test]
fn gpus_and_whole_nodes_are_short() {
    let mut engine = engine(Policy::Fcfs, &[(4, 2), (4, 2), (4, 0)]);
    submit(&mut engine, 1, slots(3, 1, 1, 0.0));
    engine.schedule(100.0, 10);
    submit(&mut engine, 2, nodes(2, 1, 1, 0.0));
    let whole = Request {
        exclusive: true,
        ..nodes(2, 1, 0, 0.0)
    };
    submit(&mut engine, 3, whole);
    engine.schedule(100.0, 10);
    expect(
        &mut engine,
        2,
        "insufficient",
        "needs 2 nodes with 1 core and 1 gpu: 1 is free; gpus are short; nearest is node0, with no \
         gpu free",
    );
    expect(
        &mut engine,
        3,
        "insufficient",
        "needs 2 whole nodes: 1 is free; there is enough, but not together; nearest is node1, with \
         3 of 4 cores free; job 2 is before it",
    );
}

#[test]
fn whole_nodes_are_not_together_where_their_cores_are_elsewhere() {
    let mut engine = engine(Policy::Fcfs, &[(4, 0), (2, 0), (4, 0), (4, 0)]);
    for rank in ["0", "2", "3"] {
        let r = json!({"version": 1, "execution": {
            "R_lite": [{"rank": rank, "children": {"core": "0"}}], "nodelist": [format!("node{rank}")]}});
        let r = ResourceSet::from_json(&r.to_string()).unwrap();
        engine
            .allocate(JobId::new(10 + rank.parse::<u64>().unwrap()), &r)
            .unwrap();
    }
    let whole = |count, cores| Request {
        exclusive: true,
        ..nodes(count, cores, 0, 0.0)
    };
    // Of 11 free cores, node1 has 2; it is large enough for the first, not for the second.
    submit(&mut engine, 1, whole(2, 1));
    submit(&mut engine, 2, whole(3, 4));
    engine.schedule(100.0, 10);
    expect(
        &mut engine,
        1,
        "insufficient",
        "needs 2 whole nodes: 1 is free; there is enough, but not together; nearest is node0, with \
         3 of 4 cores free",
    );
    expect(
        &mut engine,
        2,
        "insufficient",
        "needs 3 whole nodes: none is free; nearest is node0, with 3 of 4 cores free; job 1 is before it",
    );
}

#[test]
fn no_node_is_up() {
    let mut engine = engine(Policy::Fcfs, &[(4, 0), (4, 0), (4, 0)]);
    engine.mark_down(&ranks("1"));
    let odd = json!({"properties": ["odd"]});
    let request = Request {
        constraint: Some(Constraint::from_value(&odd).unwrap()),
        ..slots(1, 1, 0, 0.0)
    };
    submit(&mut engine, 1, request);
    expect(
        &mut engine,
        1,
        "down",
        "no node that is up meets the constraint odd: 1 node does, but is down",
    );
    engine.mark_down(&ranks("0-2"));
    submit(&mut engine, 2, slots(1, 1, 0, 0.0));
    expect(&mut engine, 2, "down", "no node is up, of 3");
}

#[test]
fn the_resources_end_too_early() {
    let mut engine = engine(Policy::Fcfs, &[(4, 0)]);
    engine.set_options(Options {
        overlong: Overlong::Deny,
        ..engine.options()
    });
    engine.set_inventory_expiration(Some(150.0));
    submit(&mut engine, 1, slots(1, 1, 0, 60.0));
    expect(
        &mut engine,
        1,
        "outlives",
        "its time limit is 1 min, but the resources end in 50 s",
    );
    engine.set_inventory_expiration(Some(100.0));
    expect(&mut engine, 1, "outlives", "the resources have expired");
}

#[test]
fn a_queue_has_a_limit() {
    let mut engine = engine(Policy::Easy, &[(8, 0)]);
    let queue = engine.queue("batch");
    let options = QueueOptions {
        max_cores: Some(4),
        ..QueueOptions::default()
    };
    engine.set_queue(queue, options);
    for id in [1, 2] {
        submit_to(&mut engine, id, queue, slots(3, 1, 0, 60.0));
    }
    engine.schedule(100.0, 10);
    expect(
        &mut engine,
        2,
        "queue-limit",
        "queue `batch` is limited to 4 cores at a time: its jobs hold 3, this one would take 3",
    );
}

#[test]
fn first_come_first_served_lets_nothing_past() {
    let mut engine = engine(Policy::Fcfs, &[(4, 0)]);
    submit(&mut engine, 1, slots(3, 1, 0, 60.0));
    submit(&mut engine, 2, slots(2, 1, 0, 60.0));
    submit(&mut engine, 3, slots(1, 1, 0, 60.0));
    engine.schedule(100.0, 10);
    expect(
        &mut engine,
        3,
        "behind",
        "fits, but job 2 is before it and pending",
    );
    // In another queue it would start.
    let other = engine.queue("other");
    submit_to(&mut engine, 4, other, slots(1, 1, 0, 60.0));
    assert_eq!(
        engine.explain(JobId::new(4), 100.0),
        Some(Reason::Unconsidered)
    );
}

#[test]
fn backfill_keeps_a_reservation() {
    let mut engine = engine(Policy::Easy, &[(4, 0)]);
    submit(&mut engine, 1, slots(3, 1, 0, 3900.0));
    submit(&mut engine, 2, slots(4, 1, 0, 60.0));
    submit(&mut engine, 3, slots(1, 1, 0, 7200.0));
    engine.schedule(100.0, 10);
    expect(
        &mut engine,
        3,
        "behind-reservation",
        "fits, but would not end before job 2 can start, in 1 h 5 min, and would take 1 unit of the \
         reservation of job 2 (spare: 0)",
    );
    let names = |reason: &Reason| -> Vec<&str> {
        reason.fields().into_iter().map(|(name, _)| name).collect()
    };
    let reasons = engine.explain_all(100.0, 10);
    assert_eq!(names(&reasons[1].1), ["behind", "at", "takes", "spare"]);
}

#[test]
fn the_start_of_a_head_behind_jobs_without_a_limit_is_unknown() {
    let mut engine = engine(Policy::Easy, &[(4, 0)]);
    submit(&mut engine, 1, slots(3, 1, 0, 0.0));
    submit(&mut engine, 2, slots(4, 1, 0, 60.0));
    submit(&mut engine, 3, slots(1, 1, 0, 0.0));
    engine.schedule(100.0, 10);
    expect(
        &mut engine,
        3,
        "behind-reservation",
        "fits, but job 2 is before it, with an unknown start time, and it would take 1 unit of the \
         reservation of job 2 (spare: 0)",
    );
    let reason = engine.explain(JobId::new(3), 100.0).unwrap();
    let names: Vec<&str> = reason.fields().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["behind", "takes", "spare"]);
}

#[test]
fn several_jobs_have_reservations() {
    for (policy, third) in [
        (Policy::Hybrid { depth: 1 }, "insufficient"),
        (Policy::Hybrid { depth: 2 }, "reserved"),
        (Policy::Conservative, "reserved"),
    ] {
        let mut engine = engine(policy, &[(4, 0)]);
        submit(&mut engine, 1, slots(3, 1, 0, 60.0));
        submit(&mut engine, 2, slots(4, 1, 0, 60.0));
        submit(&mut engine, 3, slots(2, 1, 0, 600.0));
        submit(&mut engine, 4, slots(1, 1, 0, 600.0));
        engine.schedule(100.0, 10);
        let (kind, _) = explained(&mut engine, 3);
        assert_eq!(kind, third, "{policy}");
        if policy == Policy::Conservative {
            expect(
                &mut engine,
                4,
                "reserved",
                "can start in 2 min, as planned, without delaying others",
            );
        } else {
            expect(
                &mut engine,
                4,
                "behind-reservation",
                "fits, but would not end before job 2 can start, in 1 min",
            );
        }
        expect(
            &mut engine,
            2,
            "reserved",
            "can start in 1 min, as planned: needs 4 cores: 1 is free",
        );
    }
}

/// Two pairs of nodes, `p` and `q`; on one node of each pair a job runs until 200. Jobs 3 and 4 need
/// a pair each, `p` and `q`, from 200 on. Job 5 needs a node of `q` for longer than until then.
fn reservations_of_two_pairs(policy: Policy) -> Engine {
    let r = json!({"version": 1, "execution": {
        "R_lite": [{"rank": "0-3", "children": {"core": "0-3"}}],
        "nodelist": ["node[0-3]"],
        "properties": {"p": "0-1", "q": "2-3", "a": "0", "c": "2"}}});
    let r = ResourceSet::from_json(&r.to_string()).unwrap();
    let options = Options {
        policy,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&r, options).unwrap();
    engine.mark_up(&r.ranks());
    let whole = |count, property: &str, limit| Request {
        exclusive: true,
        constraint: Some(Constraint::from_value(&json!({"properties": [property]})).unwrap()),
        ..nodes(count, 1, 0, limit)
    };
    submit(&mut engine, 1, whole(1, "a", 100.0));
    submit(&mut engine, 2, whole(1, "c", 100.0));
    engine.schedule(100.0, 10);
    submit(&mut engine, 3, whole(2, "p", 50.0));
    submit(&mut engine, 4, whole(2, "q", 50.0));
    submit(&mut engine, 5, whole(1, "q", 500.0));
    engine.schedule(100.0, 10);
    engine
}

#[test]
fn of_reservations_from_the_same_time_the_one_that_would_be_delayed_is_named() {
    let mut engine = reservations_of_two_pairs(Policy::Hybrid { depth: 2 });
    for id in [3, 4] {
        let reason = engine.explain(JobId::new(id), 100.0).unwrap();
        assert!(matches!(reason, Reason::Reserved { at: 200.0, .. }), "{id}");
    }
    expect(
        &mut engine,
        5,
        "behind-reservation",
        "fits, but would not end before job 4 can start, in 1 min 40 s",
    );
    for (other, starts) in [(3, false), (4, true)] {
        let mut without = engine.clone();
        without.cancel(JobId::new(other));
        without.schedule(100.0, 10);
        assert_eq!(without.is_running(JobId::new(5)), starts, "without {other}");
    }
}

#[test]
fn of_reservations_that_count_units_the_first_without_enough_is_named() {
    let mut engine = engine(Policy::Hybrid { depth: 2 }, &[(8, 0)]);
    submit(&mut engine, 1, slots(6, 1, 0, 100.0));
    engine.schedule(100.0, 10);
    submit(&mut engine, 2, slots(5, 1, 0, 60.0));
    submit(&mut engine, 3, slots(3, 1, 0, 60.0));
    submit(&mut engine, 4, slots(2, 1, 0, 600.0));
    engine.schedule(100.0, 10);
    // At 200, 6 cores are left beside job 4: enough for job 2, not for job 3 as well.
    expect(
        &mut engine,
        4,
        "behind-reservation",
        "fits, but would not end before job 3 can start, in 1 min 40 s",
    );
}

#[test]
fn of_reservations_in_a_queue_the_first_beyond_its_limit_is_named() {
    let mut engine = engine(Policy::Hybrid { depth: 2 }, &[(8, 0)]);
    let queue = engine.queue("batch");
    let options = QueueOptions {
        max_jobs: Some(2),
        ..QueueOptions::default()
    };
    engine.set_queue(queue, options);
    submit_to(&mut engine, 1, queue, slots(6, 1, 0, 100.0));
    engine.schedule(100.0, 10);
    for id in [2, 3] {
        submit_to(&mut engine, id, queue, slots(3, 1, 0, 60.0));
    }
    submit_to(&mut engine, 4, queue, slots(2, 1, 0, 600.0));
    engine.schedule(100.0, 10);
    let Some(Reason::BehindLimit { job, at, .. }) = engine.explain(JobId::new(4), 100.0) else {
        panic!("a third job would be in the queue at 200")
    };
    assert_eq!((job, at), (JobId::new(3), 200.0));
}

/// Jobs 4 and 5 run without a limit once they start, so no later time suits job 6.
#[test]
fn a_job_for_which_no_time_is_planned_names_the_one_that_it_would_delay() {
    let mut engine = engine(Policy::Conservative, &[(4, 0), (4, 0), (4, 0), (4, 0)]);
    let of = |odd: bool, count, limit| {
        let property = json!({"properties": ["odd"]});
        let property = if odd {
            property
        } else {
            json!({"not": [property]})
        };
        Request {
            exclusive: true,
            constraint: Some(Constraint::from_value(&property).unwrap()),
            ..nodes(count, 1, 0, limit)
        }
    };
    submit(&mut engine, 1, of(false, 1, 100.0));
    submit(&mut engine, 2, of(true, 1, 100.0));
    engine.schedule(100.0, 10);
    submit(&mut engine, 4, of(false, 2, 0.0));
    submit(&mut engine, 5, of(true, 2, 0.0));
    submit(&mut engine, 6, of(true, 1, 500.0));
    engine.schedule(100.0, 10);
    expect(
        &mut engine,
        6,
        "behind-reservation",
        "fits, but would not end before job 5 can start, in 1 min 40 s",
    );
}

#[test]
fn nodes_go_before_the_next_pass() {
    for policy in [
        Policy::Fcfs,
        Policy::Easy,
        Policy::Hybrid { depth: 1 },
        Policy::Conservative,
    ] {
        let mut engine = engine(policy, &[(1, 0), (1, 0), (2, 0), (2, 0), (4, 0)]);
        let whole = Request {
            exclusive: true,
            ..nodes(1, 4, 0, 100.0)
        };
        submit(&mut engine, 1, whole);
        submit(&mut engine, 2, nodes(3, 2, 0, 10.0));
        engine.schedule(1.0, 10);
        assert_eq!(engine.queue_order(), [JobId::new(2)], "{policy}");
        engine.shrink(&ranks("0"));
        let kind = |reason: &Reason| reason.kind();
        let expected = if policy == Policy::Fcfs {
            "insufficient"
        } else {
            "reserved"
        };
        let reason = engine.explain(JobId::new(2), 1.0).unwrap();
        assert_eq!(kind(&reason), expected, "{policy}");
        assert_eq!(
            engine.explain_all(1.0, 10),
            [(JobId::new(2), reason)],
            "{policy}"
        );
        assert_eq!(engine.estimate(1.0)[0].start, Some(101.0), "{policy}");
    }
}

#[test]
fn reasons_of_many_come_in_the_order_of_the_queue() {
    let mut engine = engine(Policy::Easy, &[(4, 0)]);
    submit(&mut engine, 1, slots(4, 1, 0, 60.0));
    engine.schedule(100.0, 10);
    for id in 2..50 {
        submit(
            &mut engine,
            id,
            slots(u32::try_from(id).unwrap() % 4 + 1, 1, 0, 60.0),
        );
    }
    engine.prioritize(&[(JobId::new(7), 0), (JobId::new(40), 100)]);
    let reasons = engine.explain_all(100.0, 5);
    let ids: Vec<u64> = reasons.iter().map(|(id, _)| id.get()).collect();
    assert_eq!(ids, [40, 2, 3, 4, 5]);
    for (id, reason) in engine.explain_all(100.0, 100) {
        assert_eq!(engine.explain(id, 100.0), Some(reason));
    }
}

// The same by hand.

#[derive(Clone, Debug)]
struct Node {
    cores: u32,
    gpus: u32,
    free_cores: u32,
    free_gpus: u32,
    up: bool,
}

impl Node {
    fn units(&self, request: &Request, empty: bool) -> u64 {
        let (cores, gpus) = if empty {
            (self.cores, self.gpus)
        } else {
            (self.free_cores, self.free_gpus)
        };
        let whole = (cores, gpus) == (self.cores, self.gpus);
        let (each, gpus_each) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
        let mut slots = 0;
        while (slots + 1) * each <= cores && (slots + 1) * gpus_each <= gpus {
            slots += 1;
        }
        if request.nnodes.is_some() {
            let fits = slots >= request.slots.min() && (whole || !request.exclusive);
            return u64::from(fits);
        }
        slots.into()
    }
}

fn allowed(request: &Request, rank: usize) -> bool {
    match &request.constraint {
        None => true,
        Some(Constraint::Not(_)) => rank.is_multiple_of(2),
        Some(_) => !rank.is_multiple_of(2),
    }
}

fn need(request: &Request) -> u64 {
    let units = request.nnodes.as_ref().unwrap_or(&request.slots);
    units.min().into()
}

/// The state of the machine, from the engine's public interface.
fn look(engine: &Engine, sizes: &[(u32, u32)]) -> Vec<Node> {
    let up = engine.up();
    let mut nodes: Vec<Node> = (0_u32..)
        .zip(sizes)
        .map(|(rank, (cores, gpus))| Node {
            cores: *cores,
            gpus: *gpus,
            free_cores: *cores,
            free_gpus: *gpus,
            up: up.contains(rank),
        })
        .collect();
    for held in engine.allocated().unwrap().nodes() {
        let node = &mut nodes[held.rank as usize];
        node.free_cores -= u32::try_from(held.cores.len()).unwrap();
        node.free_gpus -= u32::try_from(held.gpus.len()).unwrap();
    }
    nodes
}

fn sum(nodes: &[Node], request: &Request, up: bool, empty: bool) -> u64 {
    let all = nodes.iter().enumerate();
    all.filter(|(rank, node)| node.up == up && allowed(request, *rank))
        .map(|(_, node)| node.units(request, empty))
        .sum()
}

/// The time at which the request fits as planned, and the free units then. At an unknown time all
/// jobs have ended.
fn shadow(
    engine: &Engine,
    running: &BTreeMap<u64, f64>,
    nodes: &[Node],
    request: &Request,
    now: f64,
) -> (f64, u64) {
    let mut ends: Vec<(f64, u64)> = running
        .iter()
        .map(|(id, end)| (if *end <= now { now + 1.0 } else { *end }, *id))
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut nodes = nodes.to_vec();
    let mut ends = ends.into_iter().peekable();
    while let Some((time, id)) = ends.next() {
        for held in engine.r(JobId::new(id)).unwrap().nodes() {
            let node = &mut nodes[held.rank as usize];
            node.free_cores += u32::try_from(held.cores.len()).unwrap();
            node.free_gpus += u32::try_from(held.gpus.len()).unwrap();
        }
        let units = sum(&nodes, request, true, false);
        if ends.peek().is_none_or(|(next, _)| *next > time) && units >= need(request) {
            return (time, units);
        }
    }
    (f64::INFINITY, need(request))
}

fn check_shortage(shortage: &Shortage, nodes: &[Node], request: &Request) {
    let met = || {
        nodes
            .iter()
            .enumerate()
            .filter(|(rank, _)| allowed(request, *rank))
    };
    assert_eq!(shortage.need, need(request));
    assert_eq!(shortage.free, sum(nodes, request, true, false));
    let most = sum(nodes, request, true, true);
    assert_eq!(shortage.used, most - shortage.free);
    assert_eq!(shortage.down, sum(nodes, request, false, true));
    assert_eq!(shortage.nodes as usize, met().count());
    let up = met().filter(|(_, node)| node.up).count();
    assert_eq!(shortage.nodes_up as usize, up);
    if let Some(nearest) = &shortage.nearest {
        let node = &nodes[nearest.rank as usize];
        assert!(node.up && nearest.has < nearest.wants);
        assert!(node.units(request, true) > node.units(request, false));
        assert_eq!(nearest.host, format!("node{}", nearest.rank));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn reasons_are_true(
        sizes in prop::collection::vec((1_u32..6, 0_u32..3), 1..6),
        policy in machines::policy(),
        rounds in prop::collection::vec(
            (prop::collection::vec((random_request(), 0_u32..4), 0..6), 0_u32..40, 0_u32..64, 0_u32..3),
            1..8,
        ),
    ) {
        let (easy, ahead) = (policy == Policy::Easy, !matches!(policy, Policy::Fcfs | Policy::Easy));
        let mut engine = engine(policy, &sizes);
        let mut waiting: BTreeMap<u64, (u32, Request)> = BTreeMap::new();
        let mut running: BTreeMap<u64, f64> = BTreeMap::new();
        let (mut now, mut id) = (100.0, 0);
        for (jobs, step, down, ending) in rounds {
            for (request, priority) in jobs {
                id += 1;
                let queue = QueueId::default();
                engine.submit(Job { id: JobId::new(id), priority, request: request.clone(), queue }).unwrap();
                waiting.insert(id, (priority, request));
            }
            let all = engine.ranks().clone();
            let lost: IdSet = all.iter().filter(|rank| down >> rank & 1 == 1).collect();
            engine.mark_up(&all.difference(&lost));
            engine.mark_down(&lost);
            for decision in engine.schedule(now, usize::MAX) {
                match decision {
                    penstock_engine::Decision::Alloc { id, .. } => {
                        waiting.remove(&id.get());
                        running.insert(id.get(), engine.expiration(id).unwrap_or(f64::INFINITY));
                    }
                    penstock_engine::Decision::Deny { id, .. } => {
                        waiting.remove(&id.get());
                    }
                }
            }
            let nodes = look(&engine, &sizes);
            // Jobs that need nodes which are down block no other job, except with first come first
            // served.
            let reachable = |request: &Request| {
                policy == Policy::Fcfs || sum(&nodes, request, true, true) >= need(request)
            };
            let first = waiting.iter().filter(|(_, (priority, request))| *priority > 0 && reachable(request));
            let first = first.min_by_key(|(id, (priority, _))| (Reverse(*priority), **id));
            let first = first.map(|(id, (_, request))| (*id, request.clone()));
            for (id, (priority, request)) in &waiting {
                let reason = engine.explain(JobId::new(*id), now).unwrap();
                if *priority == 0 {
                    prop_assert_eq!(reason, Reason::Held);
                    continue;
                }
                let known = first.clone().filter(|_| reachable(request));
                let (first, first_request) = known.unwrap_or((*id, request.clone()));
                let reached = shadow(&engine, &running, &nodes, &first_request, now);
                let planned = reached.0.is_finite() && easy;
                let fits = sum(&nodes, request, true, false) >= need(request);
                let before = (first != *id).then_some(JobId::new(first));
                match &reason {
                    Reason::Reserved { at, shortage, .. } if ahead => {
                        prop_assert!(*at > now);
                        prop_assert_eq!(shortage.is_none(), fits);
                        if let Some(shortage) = shortage {
                            check_shortage(shortage, &nodes, request);
                        }
                    }
                    Reason::BehindReservation { job, at, interference: None } if ahead => {
                        prop_assert!(fits);
                        prop_assert!(*at > now && waiting.contains_key(&job.get()));
                        let limit = request.duration;
                        prop_assert!(limit == 0.0 || now + limit > *at);
                    }
                    Reason::Insufficient { shortage, behind } => {
                        prop_assert!(!fits);
                        prop_assert_eq!(*behind, before);
                        prop_assert!(before.is_some() || !planned || ahead);
                        check_shortage(shortage, &nodes, request);
                    }
                    Reason::Reserved { at, shortage: Some(shortage), .. } => {
                        prop_assert!(!fits && before.is_none());
                        prop_assert_eq!((*at, true), (reached.0, planned));
                        check_shortage(shortage, &nodes, request);
                    }
                    Reason::Down { nodes: met, .. } => {
                        prop_assert!(!fits);
                        let up = |(rank, node): (usize, &Node)| node.up && allowed(request, rank);
                        prop_assert!(!nodes.iter().enumerate().any(up));
                        let all = (0..nodes.len()).filter(|rank| allowed(request, *rank));
                        prop_assert_eq!(*met as usize, all.count());
                    }
                    Reason::Behind { job } => {
                        let kept_out = policy == Policy::Conservative;
                        prop_assert!(fits && (kept_out || policy == Policy::Fcfs));
                        prop_assert_eq!(Some(*job), before);
                    }
                    Reason::BehindReservation { job, at, interference } => {
                        prop_assert!(fits && easy);
                        prop_assert_eq!(Some(*job), before);
                        let (time, units) = reached;
                        let Interference { takes, spare } = interference.unwrap();
                        prop_assert_eq!((*at, spare), (time, units - need(&first_request)));
                        prop_assert!(takes.get() > spare);
                        let limit = request.duration;
                        prop_assert!(limit == 0.0 || now + limit > *at);
                    }
                    Reason::Impossible { .. } => {
                        let up = sum(&nodes, request, true, true);
                        prop_assert!(up + sum(&nodes, request, false, true) < need(request));
                    }
                    other => prop_assert!(false, "{other:?} after a pass"),
                }
                prop_assert!(!reason.sentence(now, &|id| id.get().to_string()).is_empty());
            }
            now += f64::from(step);
            // Some end as planned, some early, some not at all.
            let over: Vec<u64> = running
                .iter()
                .filter(|(id, end)| **end <= now && *id % 3 != u64::from(ending))
                .map(|(id, _)| *id)
                .collect();
            for id in over {
                running.remove(&id);
                engine.free(JobId::new(id), None).unwrap();
            }
        }
    }
}
