//! Another order of a queue with many pending jobs, which the scheduler makes in slices.

mod bench;

use bench::{Bench, body, jobspec};
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

const JOBS: u64 = 20_000;

/// Sends a request, without a pass.
fn send(bench: &mut Bench, topic: &str, payload: &Value) {
    let mut request = Message::request(topic, &payload.to_string());
    request.rolemask = penstock_flux::role::OWNER;
    request.push_route(b"manager");
    bench.scheduler.handle(&request);
}

#[test]
fn a_queue_gets_another_order_in_slices_with_requests_in_between() {
    let held = json!({"id": 1, "priority": 16, "userid": 0, "t_submit": 0.0});
    let mut bench = Bench::ready(None, &[held]);
    for id in 2..JOBS {
        let priority = 1 + id % 5;
        let job = json!({"id": id, "priority": priority, "userid": 0, "jobspec": jobspec(1)});
        send(&mut bench, "sched.alloc", &job);
    }
    bench.scheduler.schedule(1000.0);
    bench.scheduler.annotate(1000.0);
    bench.scheduler.take_out();
    let queues = json!({"queues": {"": {"order": "fifo"}}});
    send(&mut bench, "sched.config-reload", &queues);
    send(&mut bench, "sched.explain", &json!({"ids": [JOBS - 1]}));
    send(&mut bench, "sched.estimate", &json!({"ids": [JOBS - 1]}));
    let reloaded = bench.scheduler.take_out();
    assert_eq!(reloaded[0].errnum(), 0, "{:?}", reloaded[0].error_text());
    // Until the order is complete, requests are answered, and nothing is decided, explained or annotated by it.
    send(&mut bench, "sched.free", &json!({"id": 1, "final": true}));
    let mut slices: u64 = 0;
    while bench.scheduler.is_reordering() {
        assert!(!bench.scheduler.is_pass_due());
        assert!(bench.scheduler.schedule(1001.0));
        slices += 1;
        bench.scheduler.advance_forecasts(1001.0);
        bench.scheduler.annotate(1001.0);
        let id = 2 * slices;
        send(&mut bench, "sched.cancel", &json!({"id": id}));
        let ended: Vec<Value> = bench.scheduler.take_out().iter().map(body).collect();
        assert_eq!(
            ended.last(),
            Some(&json!({"id": id, "type": 3})),
            "{slices}"
        );
        assert!(ended.len() <= 2, "{ended:?}");
        send(&mut bench, "sched.prioritize", &json!({"jobs": [[3, 1]]}));
    }
    assert!(slices >= 2, "{slices}");
    // The pass is a call of its own.
    assert!(bench.scheduler.is_pass_due());
    bench.scheduler.schedule(1001.0);
    while bench.scheduler.advance_forecasts(1001.0) {}
    let out = bench.scheduler.take_out();
    let responses = out
        .iter()
        .filter(|message| message.kind == MessageType::Response);
    let topics: Vec<&str> = responses.map(Message::topic).collect();
    // The first one annotates the new head of the queue.
    assert_eq!(topics, ["sched.alloc", "sched.explain", "sched.estimate"]);
    let commit = out.iter().find(|message| message.topic() == "kvs.commit");
    let Some(penstock_flux::TypedPayload::Commit(allocations)) = commit.and_then(Message::typed)
    else {
        panic!("expected a commit: {out:?}");
    };
    let started: Vec<u64> = allocations
        .iter()
        .map(|allocation| allocation.id.get())
        .collect();
    let expected: Vec<u64> = (2..)
        .filter(|id| id % 2 == 1 || *id > 2 * slices)
        .take(4)
        .collect();
    assert_eq!(started, expected);
}
