//! Effects of hypothetical changes.

mod machines;

use std::collections::BTreeMap;

use machines::{engine, nodes, random_request, ranks, slots, submit};
use penstock_engine::{
    Change, Decision, Engine, EstimatedJobs, Horizon, Job, Moved, Policy, QueueId, Start,
};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use proptest::prelude::*;

fn at(time: f64, on: &str) -> Start {
    let ranks = ranks(on);
    Start::At { time, ranks }
}

/// Four nodes with four cores: job 1 has three nodes until 160; job 2, which needs all four, and
/// behind it job 3, which needs one, are pending.
fn busy(policy: Policy) -> Engine {
    let mut engine = engine(policy, &[(4, 0); 4]);
    submit(&mut engine, 1, nodes(3, 4, 0, 60.0));
    submit(&mut engine, 2, nodes(4, 4, 0, 600.0));
    submit(&mut engine, 3, nodes(1, 4, 0, 120.0));
    engine.schedule(100.0, 10);
    engine
}

fn new_job(id: u64, request: penstock_jobspec::Request) -> Change {
    Change::Submit(Job {
        id: JobId::new(id),
        priority: 16,
        request,
        queue: QueueId::default(),
    })
}

#[test]
fn a_new_job_would_start() {
    let engine = busy(Policy::Easy);
    let before = format!("{engine:?}");
    let short = new_job(9, nodes(1, 1, 0, 60.0));
    let effect = engine.what_if(&short, 100.0, 10).unwrap();
    assert_eq!(effect.before, None);
    assert_eq!(effect.after, Some(at(100.0, "3")));
    assert_eq!(effect.moved, []);
    assert_eq!(effect.sentence(100.0), "would start now");
    // A job that does not end before job 2 can start stays pending behind jobs 2 and 3.
    let long = new_job(9, nodes(1, 1, 0, 61.0));
    let effect = engine.what_if(&long, 100.0, 10).unwrap();
    assert_eq!(effect.after, Some(at(760.0, "1")));
    assert_eq!(effect.sentence(100.0), "would start in 11 min");
    let wide = new_job(9, nodes(5, 1, 0, 60.0));
    let effect = engine.what_if(&wide, 100.0, 10).unwrap();
    let note = "5 nodes requested, 4 exist".to_owned();
    assert_eq!(effect.after, Some(Start::Denied { note }));
    assert!(
        engine
            .what_if(&new_job(3, slots(1, 1, 0, 0.0)), 100.0, 0)
            .is_err()
    );
    assert_eq!(format!("{engine:?}"), before);
}

#[test]
fn without_a_job_others_start_earlier() {
    let engine = busy(Policy::Easy);
    let effect = engine
        .what_if(&Change::Cancel(JobId::new(2)), 100.0, 10)
        .unwrap();
    let moved = Moved {
        id: JobId::new(3),
        before: at(760.0, "0"),
        after: at(100.0, "3"),
    };
    assert!((moved.earlier() - 660.0).abs() < 1e-9);
    assert_eq!(effect.moved, [moved]);
    assert_eq!((&effect.before, &effect.after), (&None, &None));
    assert_eq!(effect.sentence(100.0), "1 other job would start earlier");
    // A running job can be cancelled, too.
    let effect = engine
        .what_if(&Change::Cancel(JobId::new(1)), 100.0, 10)
        .unwrap();
    let moved: Vec<(u64, f64)> = effect
        .moved
        .iter()
        .map(|change| (change.id.get(), change.earlier()))
        .collect();
    assert_eq!(moved, [(2, 60.0), (3, 60.0)]);
    let effect = engine
        .what_if(&Change::Cancel(JobId::new(3)), 100.0, 10)
        .unwrap();
    assert_eq!(
        effect.sentence(100.0),
        "nothing would start at another time"
    );
    assert!(
        engine
            .what_if(&Change::Cancel(JobId::new(8)), 100.0, 10)
            .is_err()
    );
}

/// The number of parts that are as large as possible until the effect of a change is known.
fn count_parts(engine: &Engine, change: &Change) -> usize {
    let mut effect = engine.begin_what_if(change, 100.0, 100).unwrap();
    let more = std::iter::repeat_with(|| effect.advance(Horizon::UNLIMITED));
    let parts = 1 + more.take_while(|is_known| !is_known).count();
    let effect = effect.take_effect().unwrap();
    assert_eq!(engine.what_if(change, 100.0, 100).unwrap(), effect);
    parts
}

#[test]
fn moved_jobs_without_a_start_are_explained_in_parts_and_others_not_at_all() {
    let engine_with = |duration: f64| {
        let mut engine = engine(Policy::Conservative, &[(4, 0); 4]);
        submit(&mut engine, 1, nodes(4, 4, 0, duration));
        engine.schedule(100.0, 10);
        for id in 2..=13 {
            submit(&mut engine, id, nodes(4, 4, 0, 10.0));
        }
        engine
    };
    // After both forecasts, as many jobs as a conservative plan is searched for in one part.
    let down = Change::Down(ranks("3"));
    assert_eq!(count_parts(&engine_with(60.0), &down), 2 + 12 / 4);
    // Job 1 never ends.
    assert_eq!(count_parts(&engine_with(0.0), &down), 2 + 1);
}

#[test]
fn the_work_of_a_forecast_is_its_own() {
    let engine = busy(Policy::Easy);
    let change = new_job(9, nodes(1, 1, 0, 60.0));
    assert_eq!(engine.begin_what_if(&change, 100.0, 10).unwrap().work(), 0);
    let mut estimate = engine.begin_estimate(100.0, EstimatedJobs::First(10));
    assert_eq!(estimate.work(), 0);
    estimate.advance(Horizon::UNLIMITED);
    let work = estimate.work();
    let mut again = engine.clone();
    again.schedule(100.0, 10);
    let mut again = again.begin_estimate(100.0, EstimatedJobs::First(10));
    again.advance(Horizon::UNLIMITED);
    assert!(work > 0 && again.work() == work);
}

#[test]
fn nodes_go_down_and_come_up() {
    let mut engine = busy(Policy::Fcfs);
    let effect = engine
        .what_if(&Change::Down(ranks("3")), 100.0, 10)
        .unwrap();
    let [second, third] = &effect.moved[..] else {
        panic!("jobs 2 and 3 start never: {:?}", effect.moved)
    };
    assert_eq!((second.id.get(), third.id.get()), (2, 3));
    assert!(matches!(&second.after, Start::Never { reason } if reason.kind() == "insufficient"));
    assert!(matches!(&third.after, Start::Never { reason } if reason.kind() == "behind"));
    assert!(second.earlier() < 0.0 && second.earlier().is_infinite());
    assert_eq!(effect.sentence(100.0), "2 other jobs would start later");
    engine.mark_down(&ranks("3"));
    let effect = engine.what_if(&Change::Up(ranks("3")), 100.0, 1).unwrap();
    assert_eq!(effect.moved[0].after, at(160.0, "0-3"));
    assert_eq!(effect.moved.len(), 1);
}

#[test]
fn with_fewer_nodes_or_less_time_it_would_start_earlier() {
    let engine = busy(Policy::Easy);
    let request = engine.with_units(JobId::new(2), 1).unwrap();
    let effect = engine
        .what_if(
            &Change::Request {
                id: JobId::new(2),
                request,
            },
            100.0,
            0,
        )
        .unwrap();
    assert_eq!(effect.before, Some(at(160.0, "0-3")));
    assert_eq!(effect.after, Some(at(100.0, "3")));
    assert_eq!(
        effect.sentence(100.0),
        "would start now, instead of in 1 min"
    );
    let request = engine.with_limit(JobId::new(3), 60.0).unwrap();
    let effect = engine
        .what_if(
            &Change::Request {
                id: JobId::new(3),
                request,
            },
            100.0,
            0,
        )
        .unwrap();
    assert_eq!(effect.after.and_then(|start| start.time()), Some(100.0));
    assert!(engine.with_units(JobId::new(1), 1).is_err());
}

#[test]
fn the_most_that_would_start_now() {
    let engine = busy(Policy::Easy);
    let fit = engine.fit_now(JobId::new(2), 100.0).unwrap();
    assert_eq!((fit.requested, fit.largest), (4, Some(1)));
    // Job 3 would delay job 2, whatever it requests.
    assert_eq!(engine.fit_now(JobId::new(3), 100.0).unwrap().largest, None);
    assert!(engine.fit_now(JobId::new(1), 100.0).is_err());
    let mut engine = machines::engine(Policy::Fcfs, &[(4, 0); 4]);
    submit(&mut engine, 1, slots(3, 1, 0, 0.0));
    engine.schedule(100.0, 10);
    submit(&mut engine, 2, slots(20, 1, 0, 0.0));
    assert_eq!(
        engine.fit_now(JobId::new(2), 100.0).unwrap().largest,
        Some(13)
    );
}

#[test]
fn what_should_have_ended_ends_soon() {
    let engine = busy(Policy::Fcfs);
    let starts = engine.forecast(200.0, 10).unwrap();
    assert_eq!(
        starts,
        [
            (JobId::new(2), at(201.0, "0-3")),
            (JobId::new(3), at(801.0, "0"))
        ]
    );
}

// The model: the engine itself, run forward through its public interface.

/// The start of every pending job.
fn drive(mut engine: Engine, now: f64) -> BTreeMap<u64, (f64, IdSet)> {
    let running: Vec<u64> = (0..200)
        .filter(|id| engine.is_running(JobId::new(*id)))
        .collect();
    let planned =
        |engine: &Engine, id: u64| engine.expiration(JobId::new(id)).unwrap_or(f64::INFINITY);
    let mut ends: BTreeMap<u64, f64> = BTreeMap::new();
    for id in running {
        let end = planned(&engine, id);
        ends.insert(id, if end <= now { now + 1.0 } else { end });
    }
    let (mut time, mut starts) = (now, BTreeMap::new());
    loop {
        for decision in engine.schedule(time, usize::MAX) {
            if let Decision::Alloc { id, .. } = decision {
                starts.insert(id.get(), (time, engine.r(id).unwrap().ranks()));
                ends.insert(id.get(), planned(&engine, id.get()));
            }
        }
        time = ends.values().copied().fold(f64::INFINITY, f64::min);
        if time.is_infinite() {
            return starts;
        }
        let over: Vec<u64> = ends
            .iter()
            .filter(|(_, end)| **end <= time)
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            ends.remove(&id);
            engine.free(JobId::new(id), None).unwrap();
        }
    }
}

/// An operation on an engine; jobs have the numbers of the jobs submitted before.
#[derive(Clone, Debug)]
enum Step {
    Submit(Box<penstock_jobspec::Request>, u32),
    Cancel(u64),
    Prioritize(u64, u32),
    Finish(u64),
    Schedule,
    Share,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (random_request(), 0_u32..4).prop_map(|(request, priority)| Step::Submit(request.into(), priority)),
        1 => (1_u64..20).prop_map(Step::Cancel),
        1 => (1_u64..20, 0_u32..4).prop_map(|(id, priority)| Step::Prioritize(id, priority)),
        2 => (1_u64..20).prop_map(Step::Finish),
        2 => Just(Step::Schedule),
        2 => Just(Step::Share),
    ];
    prop::collection::vec(step, 1..40)
}

/// Applies step number `at`. Returns its result as text.
fn take(engine: &mut Engine, at: u32, step: &Step) -> String {
    match step {
        Step::Submit(request, priority) => {
            let job = Job {
                id: JobId::new(u64::from(at)),
                priority: *priority,
                request: (**request).clone(),
                queue: QueueId::default(),
            };
            format!("{:?}", engine.submit(job))
        }
        Step::Cancel(id) => engine.cancel(JobId::new(*id)).to_string(),
        Step::Prioritize(id, priority) => engine
            .prioritize(&[(JobId::new(*id), *priority)])
            .to_string(),
        Step::Finish(id) => engine.finish(&[JobId::new(*id)]).to_string(),
        Step::Schedule => {
            let decisions = engine.schedule(f64::from(at), usize::MAX);
            format!(
                "{decisions:?} {:?} {:?}",
                engine.queue_order(),
                engine.allocated()
            )
        }
        Step::Share => String::new(),
    }
}

/// 300 jobs of 40 shapes, each with a time limit of its own, on 40 nodes.
fn long_queue(policy: Policy) -> Engine {
    let mut engine = engine(policy, &[(4, 0); 40]);
    for id in 1..=300_u32 {
        let request = nodes(1 + id * 37 % 40, 4, 0, 60.0 + f64::from(id * 7 % 1009));
        submit(&mut engine, u64::from(id), request);
    }
    engine.schedule(100.0, usize::MAX);
    engine
}

#[test]
fn the_parts_of_a_forecast_are_bounded_by_their_work() {
    let part = Horizon {
        work: 500,
        ..Horizon::UNLIMITED
    };
    // A part ends with the pass that exceeds its work.
    for (policy, max_work) in [
        (Policy::Fcfs, 500 + 200),
        (Policy::Easy, 500 + 1500),
        (Policy::Hybrid { depth: 4 }, 500 + 3000),
    ] {
        let engine = long_queue(policy);
        let mut estimate = engine.begin_estimate(100.0, EstimatedJobs::First(usize::MAX));
        let change = Change::Cancel(JobId::new(150));
        let mut effect = engine.begin_what_if(&change, 100.0, usize::MAX).unwrap();
        let (mut done, mut longest) = (0, 0);
        while !estimate.advance(part) {
            longest = longest.max(estimate.work() - std::mem::replace(&mut done, estimate.work()));
        }
        assert!(
            estimate.work() > 5 * max_work,
            "{policy}: {}",
            estimate.work()
        );
        assert!(longest <= max_work, "{policy}: {longest}");
        (done, longest) = (effect.work(), 0);
        while !effect.advance(part) {
            longest = longest.max(effect.work() - std::mem::replace(&mut done, effect.work()));
        }
        assert!(longest <= max_work, "{policy}: {longest}");
        let starts = engine.estimate(100.0);
        assert!(starts.iter().all(|job| job.start.is_some()));
        for job in starts {
            assert_eq!(estimate.start(job.id), job.start);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn what_is_shared_with_a_snapshot_changes_for_one_of_them_alone(
        sizes in prop::collection::vec((1_u32..6, 0_u32..3), 1..5),
        policy in machines::policy(),
        steps in steps(),
    ) {
        let mut alone = engine(policy, &sizes);
        let mut shared = alone.clone();
        let mut expected = Vec::new();
        let mut snapshots = Vec::new();
        for (at, step) in (1_u32..).zip(&steps) {
            if matches!(step, Step::Share) {
                shared.share();
                snapshots.push((at, shared.clone()));
            }
            expected.push(take(&mut alone, at, step));
            prop_assert_eq!(&take(&mut shared, at, step), expected.last().unwrap());
        }
        for (from, mut snapshot) in snapshots {
            for (at, step) in (1_u32..).zip(&steps).skip(from as usize) {
                let found = take(&mut snapshot, at, step);
                prop_assert_eq!(&found, &expected[at as usize - 1], "{} from {}", at, from);
            }
        }
    }

    #[test]
    fn a_forecast_is_what_happens(
        sizes in prop::collection::vec((1_u32..6, 0_u32..3), 1..5),
        policy in machines::policy(),
        first in prop::collection::vec((random_request(), 0_u32..4), 0..8),
        then in prop::collection::vec((random_request(), 0_u32..4), 1..8),
        step in 0_u32..40,
        down in 0_u32..16,
        about in 0_usize..8,
        change in 0_u32..5,
        (ends, decisions, work) in (1_usize..4, 1_usize..4, 0_u64..200),
    ) {
        let part = Horizon { ends, decisions, work };
        let mut engine = engine(policy, &sizes);
        let (mut now, mut id) = (100.0, 0);
        for jobs in [&first, &then] {
            for (request, priority) in jobs {
                id += 1;
                let (request, queue) = (request.clone(), QueueId::default());
                engine.submit(Job { id: JobId::new(id), priority: *priority, request, queue }).unwrap();
            }
            engine.schedule(now, usize::MAX);
            now += f64::from(step);
        }
        let lost: IdSet = engine.ranks().iter().filter(|rank| down >> rank & 1 == 1).collect();
        engine.mark_down(&lost);
        let waiting = engine.clone().queue_order();
        let digest = format!("{engine:?}");
        let alone = drive(engine.clone(), now);
        for (id, start) in engine.forecast(now, usize::MAX).unwrap() {
            let happens = alone.get(&id.get()).map(|(time, ranks)| (*time, ranks.clone()));
            let forecast = match start {
                Start::At { time, ranks } => Some((time, ranks)),
                Start::Never { .. } | Start::Denied { .. } => None,
            };
            prop_assert_eq!(forecast, happens);
        }
        let (request, _) = &then[0];
        let job = waiting.get(about).copied();
        let change = match (change, job) {
            (0, Some(id)) => Change::Cancel(id),
            (1, Some(id)) => Change::Request { id, request: request.clone() },
            (2, _) => Change::Up(lost),
            (3, _) => Change::Down(engine.ranks().clone()),
            _ => new_job(1000, request.clone()),
        };
        let mut changed = engine.clone();
        match &change {
            Change::Cancel(id) => prop_assert!(changed.cancel(*id)),
            Change::Request { id, request } => {
                let job = changed.job(*id).unwrap();
                changed.cancel(*id);
                changed.submit(Job { request: request.clone(), ..job }).unwrap();
            }
            Change::Up(ranks) => changed.mark_up(ranks),
            Change::Down(ranks) => changed.mark_down(ranks),
            Change::Submit(job) => changed.submit(job.clone()).unwrap(),
        }
        let other = drive(changed, now);
        let effect = engine.what_if(&change, now, usize::MAX).unwrap();
        let mut in_parts = engine.begin_what_if(&change, now, usize::MAX).unwrap();
        while !in_parts.advance(part) {}
        prop_assert_eq!(in_parts.take_effect().unwrap(), effect.clone());
        let mut in_parts = engine.begin_estimate(now, EstimatedJobs::First(usize::MAX));
        while !in_parts.advance(part) {}
        for estimate in engine.estimate(now) {
            prop_assert_eq!(in_parts.start(estimate.id), estimate.start);
        }
        prop_assert_eq!(format!("{engine:?}"), digest);
        let time = |starts: &BTreeMap<u64, (f64, IdSet)>, id: u64| starts.get(&id).map(|(start, _)| *start);
        let (about, gone) = match &change {
            Change::Submit(job) => (Some(job.id), None),
            Change::Request { id, .. } => (Some(*id), None),
            Change::Cancel(id) => (None, Some(*id)),
            _ => (None, None),
        };
        let mut moved = Vec::new();
        for id in waiting {
            if Some(id) != about && Some(id) != gone && time(&alone, id.get()) != time(&other, id.get()) {
                moved.push((id, time(&alone, id.get()), time(&other, id.get())));
            }
        }
        let found: Vec<_> = effect
            .moved
            .iter()
            .map(|change| (change.id, change.before.time(), change.after.time()))
            .collect();
        prop_assert_eq!(found, moved);
        if let Some(id) = about {
            let found = effect.after.as_ref().and_then(Start::time);
            prop_assert_eq!(found, time(&other, id.get()));
            let found = effect.before.as_ref().and_then(Start::time);
            prop_assert_eq!(found, time(&alone, id.get()));
        }
        prop_assert!(!effect.sentence(now).is_empty());
    }
}
