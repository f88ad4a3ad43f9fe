//! The scheduler's side of RFC 27 and RFC 28, message by message.

mod bench;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bench::{Bench, body, inventory, jobspec};
use penstock_flux::errno::{
    EAGAIN, EBUSY, EEXIST, EINVAL, EIO, ENODATA, ENOENT, ENOMEM, ENOSPC, ENOSYS, EPERM, EPROTO,
    ETIMEDOUT,
};
use penstock_flux::flags::STREAMING;
use penstock_flux::{
    FreedResources, Inventory, InventoryChange, PendingJob, RWithText, RequestedResources,
    TypedPayload,
};
use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_sched::{Options, Phase, Scheduler};
use penstock_wire::Message;
use serde_json::{Value, json};

#[test]
fn the_handshake_goes_step_by_step() {
    let mut bench = Bench::new(Some(5));
    assert_eq!(*bench.scheduler.phase(), Phase::Registering);
    bench.answer("service.add", &Value::Null);
    // Another service may check feasibility.
    bench.reject("service.add", EEXIST);
    assert_eq!(*bench.scheduler.phase(), Phase::Acquiring);
    assert!(bench.outstanding[0].is_streaming());
    let acquired = json!({"resources": inventory(), "up": "0"});
    bench.answer("resource.acquire", &acquired);
    assert_eq!(*bench.scheduler.phase(), Phase::Greeting);
    let hello = bench.take_request("job-manager.sched-hello");
    assert_eq!(hello.flags & STREAMING, STREAMING);
    assert_eq!(body(&hello), json!({"partial-ok": true}));
    bench.reject("job-manager.sched-hello", ENODATA);
    assert_eq!(*bench.scheduler.phase(), Phase::Readying);
    let ready = bench.take_request("job-manager.sched-ready");
    assert_eq!(body(&ready), json!({"mode": "limited", "limit": 5}));
}

#[test]
fn r_is_committed_before_success_and_comes_with_it() {
    let mut bench = Bench::ready(None, &[]);
    assert!(bench.alloc(7, 1).is_empty());
    let commit = bench
        .outstanding
        .iter()
        .find(|message| message.topic() == "kvs.commit");
    let op = body(commit.unwrap())["ops"][0].clone();
    assert_eq!(op["key"], "job.0000.0000.0000.0007.R");
    let data = op["dirent"]["data"].as_str().unwrap();
    let stored: Value = serde_json::from_slice(&BASE64.decode(data).unwrap()).unwrap();
    let success = body(&bench.commit()[0]);
    assert_eq!((&success["id"], &success["type"]), (&json!(7), &json!(0)));
    assert_eq!(success["R"], stored);
    assert_eq!(success["R"]["execution"]["expiration"], 1060.0);
    let annotations = &success["annotations"]["sched"];
    assert_eq!(annotations["resource_summary"], "rank0/core0");
}

#[test]
fn an_infeasible_or_invalid_job_is_denied() {
    let mut bench = Bench::ready(None, &[]);
    let denied = body(&bench.alloc(1, 3)[0]);
    assert_eq!((&denied["id"], &denied["type"]), (&json!(1), &json!(2)));
    assert_eq!(
        denied["note"],
        "3 cores per slot requested, no node has more than 2"
    );
    let payload = json!({"id": 2, "priority": 16, "userid": 0, "jobspec": {}});
    let denied = body(&bench.request("sched.alloc", &payload)[0]);
    assert_eq!(
        denied["note"],
        "invalid jobspec: expected the key `version`"
    );
}

#[test]
fn the_blocked_head_is_annotated_once_and_starts_after_a_free() {
    let mut bench = Bench::ready(None, &[]);
    bench.alloc(1, 2);
    bench.alloc(2, 2);
    bench.commit();
    bench.commit();
    let responses = bench.alloc(3, 2);
    let reason = &body(&responses[0])["annotations"]["sched"]["reason_pending"];
    let reason = reason.as_str().unwrap();
    assert!(
        reason.starts_with("needs 1 slot of 2 cores: none is free"),
        "{reason}"
    );
    assert!(bench.alloc(4, 1).is_empty());
    // The current version's free has R and gets no response; the older one has an id only, and gets one.
    let free = json!({"id": 1, "R": inventory(), "final": true});
    let responses = bench.request("sched.free", &free);
    // No response to the free: the next pending job is annotated.
    assert_eq!((responses.len(), responses[0].topic()), (1, "sched.alloc"));
    assert_eq!(body(&responses[0])["id"], 4);
    assert_eq!(body(&bench.commit()[0])["id"], 3);
    let answers = bench.request("sched.free", &json!({"id": 2}));
    assert_eq!(body(&answers[0]), json!({"id": 2}));
    assert_eq!(body(&bench.commit()[0])["id"], 4);
}

#[test]
fn prioritize_reorders_the_queue_and_is_not_answered() {
    let mut bench = Bench::ready(None, &[]);
    bench.alloc(1, 2);
    bench.alloc(2, 2);
    bench.alloc(3, 2);
    bench.alloc(4, 2);
    let answers = bench.request("sched.prioritize", &json!({"jobs": [[4, 99], [77, 1]]}));
    // Only the new head gets an annotation.
    assert_eq!(answers.len(), 1);
    assert_eq!(body(&answers[0])["id"], 4);
    bench.commit();
    bench.commit();
    bench.request("sched.free", &json!({"id": 1}));
    assert_eq!(body(&bench.commit()[0])["id"], 4);
}

#[test]
fn down_targets_are_not_allocated_until_up() {
    let mut bench = Bench::ready(None, &[]);
    bench.answer("resource.acquire", &json!({"down": "0-1"}));
    bench.alloc(1, 1);
    assert!(
        bench
            .outstanding
            .iter()
            .all(|message| message.topic() != "kvs.commit")
    );
    bench.answer(
        "resource.acquire",
        &json!({"up": "1", "property-add": {"p": "1"}}),
    );
    bench.responses();
    assert_eq!(
        body(&bench.commit()[0])["R"]["execution"]["R_lite"][0]["rank"],
        "1"
    );
}

fn ranks(success: &Message) -> String {
    let r = &body(success)["R"]["execution"]["R_lite"][0]["rank"];
    r.as_str().unwrap().to_owned()
}

#[test]
fn a_job_unknown_to_the_kvs_is_denied_and_its_resources_are_freed() {
    let mut bench = Bench::ready(None, &[]);
    for errnum in [ENOENT, EPROTO] {
        assert!(bench.alloc(1, 2).is_empty());
        bench.reject("kvs.commit", errnum);
        let answer = body(&bench.take_responses()[0]);
        assert_eq!((&answer["type"], &answer["id"]), (&json!(2), &json!(1)));
        assert!(answer["note"].as_str().unwrap().contains("because"));
    }
    // Its cancellation is answered.
    assert!(bench.alloc(1, 2).is_empty());
    assert!(bench.request("sched.cancel", &json!({"id": 1})).is_empty());
    bench.reject("kvs.commit", ENOENT);
    assert_eq!(
        body(&bench.take_responses()[0]),
        json!({"id": 1, "type": 3})
    );
    // Both nodes are there for others.
    bench.alloc(2, 2);
    bench.alloc(3, 2);
    assert_eq!(ranks(&bench.commit()[0]), "0");
    assert_eq!(ranks(&bench.commit()[0]), "1");
}

#[test]
fn a_repeated_request_replaces_the_first() {
    let mut bench = Bench::ready(None, &[]);
    bench.alloc(1, 2);
    bench.commit();
    bench.alloc(2, 2);
    bench.commit();
    assert!(!bench.alloc(3, 1).is_empty());
    let payload = json!({"id": 3, "priority": 20, "userid": 0, "jobspec": jobspec(1)});
    let mut again = Message::request("sched.alloc", &payload.to_string());
    again.rolemask = 5;
    again.push_route(b"another manager");
    bench.scheduler.handle(&again);
    assert!(bench.responses().is_empty());
    let log = bench.scheduler.take_log().join("\n");
    assert!(log.contains("repeated sched.alloc"), "{log}");
    bench.request(
        "sched.free",
        &json!({"id": 1, "R": inventory(), "final": true}),
    );
    let done = bench.commit();
    assert_eq!((done.len(), &body(&done[0])["type"]), (1, &json!(0)));
    let route = done[0].routes.as_ref().unwrap();
    assert_eq!(route.last().unwrap(), b"another manager");
}

#[test]
fn resources_of_a_rejected_commit_are_set_aside_and_the_job_gets_others() {
    let mut bench = Bench::ready(None, &[]);
    let payload = json!({"id": 1, "priority": 99, "userid": 0, "jobspec": jobspec(2)});
    let mut request = Message::request("sched.alloc", &payload.to_string());
    request.rolemask = 5;
    bench.scheduler.handle(&request);
    bench.alloc(2, 2);
    // Two in one commit: each is tried for itself. Rank 0, of the first, turns out to be taken.
    bench.reject("kvs.commit", EINVAL);
    bench.reject("kvs.commit", EINVAL);
    let done = bench.commit();
    assert_eq!(
        (body(&done[0])["id"].clone(), ranks(&done[0])),
        (json!(2), "1".to_owned())
    );
    // No job gets rank 0 before the next start; the first job waits for rank 1.
    bench.responses();
    assert!(
        bench
            .outstanding
            .iter()
            .all(|message| message.topic() != "kvs.commit")
    );
    bench.request(
        "sched.free",
        &json!({"id": 2, "R": inventory(), "final": true}),
    );
    let done = bench.commit();
    assert_eq!(
        (body(&done[0])["id"].clone(), ranks(&done[0])),
        (json!(1), "1".to_owned())
    );
    let log = bench.scheduler.take_log().join("\n");
    assert!(log.contains("rank0/core[0-1] set aside"), "{log}");
}

#[test]
fn a_cancel_during_a_commit_is_answered_after_it_and_the_resources_are_free() {
    for errnum in [0, ENOENT, EINVAL, EIO] {
        let mut bench = Bench::ready(None, &[]);
        bench.alloc(1, 2);
        assert!(bench.request("sched.cancel", &json!({"id": 1})).is_empty());
        if errnum == 0 {
            bench.answer("kvs.commit", &json!({"rootseq": 1}));
        } else {
            bench.reject("kvs.commit", errnum);
        }
        let answers = bench.take_responses();
        assert_eq!(
            (answers.len(), body(&answers[0])),
            (1, json!({"id": 1, "type": 3})),
            "{errnum}"
        );
        if errnum != EINVAL {
            bench.alloc(2, 2);
            assert_eq!(ranks(&bench.commit()[0]), "0");
        }
    }
}

#[test]
fn a_commit_that_fails_for_a_passing_reason_is_sent_again_and_never_a_denial() {
    for errnum in [EIO, ENOSPC, EAGAIN, ENOSYS, ENOMEM, ETIMEDOUT] {
        let mut bench = Bench::ready(None, &[]);
        bench.alloc(1, 2);
        let (mut now, mut delays) = (1000.0, Vec::new());
        for _ in 0..9 {
            bench.reject("kvs.commit", errnum);
            assert!(!bench.scheduler.schedule(now));
            assert!(bench.scheduler.take_out().is_empty());
            let due = bench.scheduler.deadline().unwrap();
            delays.push(due - now);
            now = due;
            bench.scheduler.schedule(now);
            bench.outstanding.extend(bench.scheduler.take_out());
        }
        assert_eq!(delays, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]);
        let success = bench.commit();
        assert_eq!((success.len(), ranks(&success[0])), (1, "0".to_owned()));
        assert_eq!(bench.scheduler.deadline(), None);
        // The next failure begins with the shortest delay again.
        bench.alloc(2, 2);
        bench.reject("kvs.commit", errnum);
        bench.scheduler.schedule(now);
        assert_eq!(bench.scheduler.deadline(), Some(now + 0.5));
        // A clock that is set back delays the commit no longer.
        bench.scheduler.schedule(now - 3600.0);
        assert_eq!(bench.scheduler.deadline(), Some(now - 3600.0 + 0.5));
        // Cancelled meanwhile, it is answered at once, and its resources are free.
        let answers = bench.request("sched.cancel", &json!({"id": 2}));
        assert_eq!(body(&answers[0]), json!({"id": 2, "type": 3}));
        bench.alloc(3, 2);
        assert_eq!(ranks(&bench.commit()[0]), "1");
    }
}

#[test]
fn a_job_is_queued_again_if_its_ranks_go_down_before_its_commit_is_sent_again() {
    for change in [json!({"down": "0"}), json!({"shrink": "0", "down": "0"})] {
        let mut bench = Bench::ready(None, &[]);
        bench.alloc(1, 2);
        bench.reject("kvs.commit", EAGAIN);
        bench.scheduler.schedule(1000.0);
        bench.answer("resource.acquire", &change);
        bench.scheduler.schedule(1000.5);
        bench.outstanding.extend(bench.scheduler.take_out());
        // The pending job may have been annotated.
        let success = bench.commit().pop().unwrap();
        assert_eq!(ranks(&success), "1");
        assert!(
            bench
                .outstanding
                .iter()
                .all(|request| request.topic() != "kvs.commit")
        );
    }
}

#[test]
fn jobs_of_a_rejected_commit_are_queued_again_if_their_ranks_have_gone_down() {
    let mut bench = Bench::ready(None, &[]);
    for id in 1..=2 {
        let payload = json!({"id": id, "priority": 16, "userid": 0, "jobspec": jobspec(2)});
        let mut request = Message::request("sched.alloc", &payload.to_string());
        request.rolemask = 5;
        request.push_route(b"manager");
        bench.scheduler.handle(&request);
    }
    bench.responses();
    bench.answer("resource.acquire", &json!({"down": "0"}));
    bench.reject("kvs.commit", ENOENT);
    bench.responses();
    let done = bench.commit();
    assert_eq!((done.len(), ranks(&done[0])), (1, "1".to_owned()));
    // The other job waits for rank 0.
    assert!(
        bench
            .outstanding
            .iter()
            .all(|request| request.topic() != "kvs.commit")
    );
    bench.answer("resource.acquire", &json!({"up": "0"}));
    bench.responses();
    let done = bench.commit();
    assert_eq!((done.len(), ranks(&done[0])), (1, "0".to_owned()));
}

#[test]
fn jobs_of_one_commit_are_sent_again_together_without_those_that_are_cancelled() {
    let mut bench = Bench::ready(None, &[]);
    for id in 1..=3 {
        let payload = json!({"id": id, "priority": 16, "userid": 0, "jobspec": jobspec(1)});
        let mut request = Message::request("sched.alloc", &payload.to_string());
        request.rolemask = 5;
        request.push_route(b"manager");
        bench.scheduler.handle(&request);
    }
    bench.responses();
    assert!(bench.request("sched.cancel", &json!({"id": 2})).is_empty());
    bench.reject("kvs.commit", EAGAIN);
    assert_eq!(
        body(&bench.take_responses()[0]),
        json!({"id": 2, "type": 3})
    );
    bench.scheduler.schedule(1000.0);
    bench.scheduler.schedule(1000.5);
    bench.outstanding.extend(bench.scheduler.take_out());
    let done = bench.commit();
    let ids: Vec<Value> = done.iter().map(|done| body(done)["id"].clone()).collect();
    assert_eq!(ids, [1, 3]);
}

#[test]
fn a_running_job_without_readable_resources_ends_the_scheduler() {
    let job = json!({"id": 9, "priority": 1, "userid": 0, "t_submit": 1.0});
    let val = |data: &str| json!({"val": {"ver": 1, "type": "val", "data": data}});
    let lookups = [
        (
            None,
            "kvs.lookup failed: No such file or directory: because",
        ),
        (Some(val("e30=")), "version: expected 1, found nothing"),
        (Some(val("!")), "R is not base64"),
    ];
    for (answer, text) in lookups {
        let mut bench = Bench::new(None);
        bench.answer("service.add", &Value::Null);
        bench.answer("service.add", &Value::Null);
        let acquired = json!({"resources": inventory(), "up": "0-1"});
        bench.answer("resource.acquire", &acquired);
        bench.answer("job-manager.sched-hello", &job);
        match answer {
            Some(answer) => bench.answer("kvs.lookup", &answer),
            None => bench.reject("kvs.lookup", ENOENT),
        }
        bench.reject("job-manager.sched-hello", ENODATA);
        let Phase::Failed(reason) = bench.scheduler.phase() else {
            panic!("{:?}", bench.scheduler.phase());
        };
        assert!(
            reason.starts_with("the resources of running job") && reason.contains(text),
            "{reason}"
        );
        let is_ready = |message: &Message| message.topic() == "job-manager.sched-ready";
        assert!(!bench.outstanding.iter().any(is_ready));
    }
}

#[test]
fn ranks_that_are_freed_while_hello_is_answered_are_free_afterwards() {
    for (payload, free_ranks) in [
        (json!({"id": 9, "R": more("1", "n1", "0-1")}), "1"),
        (json!({"id": 9, "R": inventory(), "final": true}), "0"),
        (json!({"id": 9}), "0"),
    ] {
        let mut bench = Bench::new(None);
        bench.answer("service.add", &Value::Null);
        bench.answer("service.add", &Value::Null);
        let acquired = json!({"resources": inventory(), "up": "0-1"});
        bench.answer("resource.acquire", &acquired);
        let job = json!({"id": 9, "priority": 1, "userid": 0, "t_submit": 1.0});
        bench.answer("job-manager.sched-hello", &job);
        bench.request("sched.free", &payload);
        let data = BASE64.encode(inventory().to_string());
        let val = json!({"ver": 1, "type": "val", "data": data});
        bench.answer("kvs.lookup", &json!({ "val": val }));
        bench.reject("job-manager.sched-hello", ENODATA);
        bench.answer("job-manager.sched-ready", &json!({"count": 0}));
        bench.alloc(1, 2);
        assert_eq!(ranks(&bench.commit()[0]), free_ranks);
    }
}

#[test]
fn a_free_with_an_id_gets_no_error() {
    let mut bench = Bench::ready(None, &[]);
    bench.alloc(1, 2);
    bench.commit();
    bench.scheduler.take_log();
    for payload in [
        json!({"id": 1, "R": {"version": 1}}),
        json!({"id": 1, "R": inventory(), "final": "no"}),
        json!({"id": 77, "R": inventory(), "final": true}),
    ] {
        assert_eq!(bench.request("sched.free", &payload), []);
        let log = bench.scheduler.take_log().join("\n");
        assert!(log.contains("sched.free"), "{log}");
        assert_eq!(bench.scheduler.engine().unwrap().running(), 1);
    }
    // The last part frees everything, whatever R says.
    bench.request("sched.free", &json!({"id": 1, "R": {}, "final": true}));
    assert_eq!(bench.scheduler.engine().unwrap().running(), 0);
}

#[test]
fn a_stopped_scheduler_has_no_service_and_allocates_nothing() {
    let mut bench = Bench::ready(None, &[]);
    bench.alloc(1, 2);
    bench.scheduler.stop();
    bench.scheduler.stop();
    assert_eq!(*bench.scheduler.phase(), Phase::Stopping);
    bench.outstanding.extend(bench.scheduler.take_out());
    // The R that is being committed is announced, another job gets nothing.
    assert_eq!(body(&bench.commit()[0])["id"], 1);
    assert!(bench.alloc(2, 1).is_empty());
    let request = bench.take_request("service.remove");
    assert_eq!(body(&request), json!({"service": "sched"}));
    bench.respond(&Message::response_to(&request, 0, None));
    assert_eq!(*bench.scheduler.phase(), Phase::Stopping);
    bench.reject("service.remove", ENOENT);
    assert_eq!(*bench.scheduler.phase(), Phase::Stopped);
    let is_commit = |message: &Message| message.topic() == "kvs.commit";
    assert!(!bench.outstanding.iter().any(is_commit));
}

#[test]
fn a_scheduler_stops_at_any_step_of_the_handshake() {
    for steps in 0..5 {
        let mut bench = Bench::new(None);
        let acquired = json!({"resources": inventory(), "up": "0-1"});
        let answers = [
            ("service.add", Value::Null),
            ("service.add", Value::Null),
            ("resource.acquire", acquired),
            (
                "job-manager.sched-hello",
                json!({"id": 9, "priority": 1, "userid": 0, "t_submit": 1.0}),
            ),
            (
                "kvs.lookup",
                json!({"val": {"ver": 1, "type": "val", "data": "!"}}),
            ),
        ];
        for (topic, payload) in &answers[..steps] {
            bench.answer(topic, payload);
        }
        bench.scheduler.stop();
        for (topic, payload) in &answers[steps..(steps + 1).min(3).max(steps)] {
            bench.answer(topic, payload);
        }
        bench.outstanding.extend(bench.scheduler.take_out());
        bench.answer("service.remove", &Value::Null);
        bench.answer("service.remove", &Value::Null);
        assert_eq!(*bench.scheduler.phase(), Phase::Stopped, "{steps}");
    }
}

#[test]
fn a_malformed_request_is_denied_or_without_an_id_an_error() {
    let mut bench = Bench::ready(None, &[]);
    let payload = json!({"id": 5, "priority": -1, "userid": 0, "jobspec": jobspec(1)});
    let denied = body(&bench.request("sched.alloc", &payload)[0]);
    assert_eq!((&denied["id"], &denied["type"]), (&json!(5), &json!(2)));
    let answers = bench.request("sched.alloc", &json!({"priority": 1}));
    assert_eq!(answers[0].errnum(), EPROTO);
}

#[test]
fn a_malformed_request_is_a_protocol_error_with_topic_and_key() {
    let mut bench = Bench::ready(None, &[]);
    for (topic, payload, text) in [
        ("sched.free", json!({}), "missing key `id`"),
        (
            "sched.free",
            json!({"id": "x"}),
            "`id`: expected a non-negative integer, found string \"x\"",
        ),
        (
            "sched.expiration",
            json!({"id": 1}),
            "missing key `expiration`",
        ),
        ("feasibility.check", json!({}), "missing key `jobspec`"),
        (
            "sched.config-reload",
            json!([]),
            "expected an object, found an array",
        ),
        (
            "sched.ping",
            json!([]),
            "expected an object, found an array",
        ),
    ] {
        let answers = bench.request(topic, &payload);
        let error = answers[0].error_text().unwrap_or_default();
        assert_eq!(
            (answers.len(), answers[0].errnum(), error.as_ref()),
            (1, EPROTO, format!("{topic}: {text}").as_str())
        );
    }
}

#[test]
fn a_running_job_keeps_its_ranks_in_a_smaller_inventory() {
    let mut bench = Bench::new(None);
    bench.answer("service.add", &Value::Null);
    bench.answer("service.add", &Value::Null);
    let mut smaller = inventory();
    smaller["execution"]["R_lite"][0]["rank"] = "1".into();
    smaller["execution"]["nodelist"] = json!(["n1"]);
    bench.answer(
        "resource.acquire",
        &json!({"resources": smaller, "up": "1"}),
    );
    let held = json!({"id": 9, "priority": 1, "userid": 0, "t_submit": 1.0});
    bench.answer("job-manager.sched-hello", &held);
    let val = json!({"ver": 1, "type": "val", "data": BASE64.encode(inventory().to_string())});
    bench.answer("kvs.lookup", &json!({ "val": val }));
    bench.reject("job-manager.sched-hello", ENODATA);
    bench.answer("job-manager.sched-ready", &json!({"count": 0}));
    bench.alloc(1, 1);
    assert!(
        bench
            .outstanding
            .iter()
            .all(|message| message.topic() != "kvs.commit")
    );
    bench.request(
        "sched.free",
        &json!({"id": 9, "R": inventory(), "final": true}),
    );
    assert_eq!(ranks(&bench.commit()[0]), "1");
}

#[test]
fn a_request_for_a_predecessor_is_ignored() {
    let mut bench = Bench::running(None, &[]);
    assert_eq!(*bench.scheduler.phase(), Phase::Readying);
    assert!(bench.alloc(7, 1).is_empty());
    bench.answer("job-manager.sched-ready", &json!({"count": 1}));
    assert!(bench.responses().is_empty());
    assert!(
        bench
            .outstanding
            .iter()
            .all(|message| message.topic() != "kvs.commit")
    );
    let log = bench.scheduler.take_log().join("\n");
    assert!(log.contains("before job-manager.sched-ready"), "{log}");
    // The same job, sent again, is not a repeated request.
    bench.alloc(7, 1);
    assert_eq!(body(&bench.commit()[0])["type"], 0);
}

#[test]
fn feasibility_and_expiration_are_answered() {
    let mut early = Bench::new(None);
    let answers = early.request("feasibility.check", &json!({"jobspec": jobspec(1)}));
    assert_eq!(answers[0].errnum(), EAGAIN);
    let mut bench = Bench::ready(None, &[]);
    let answers = bench.request("feasibility.check", &json!({"jobspec": jobspec(1)}));
    assert_eq!((answers[0].errnum(), &answers[0].payload), (0, &None));
    let answers = bench.request("feasibility.check", &json!({"jobspec": jobspec(9)}));
    assert_eq!(answers[0].errnum(), EINVAL);
    bench.alloc(1, 1);
    let answers = bench.request("sched.expiration", &json!({"id": 1, "expiration": 5.5}));
    assert_eq!(answers[0].errnum(), 0);
    let answers = bench.request("sched.expiration", &json!({"id": 2, "expiration": 5}));
    assert_eq!(answers[0].errnum(), EINVAL);
    let answers = bench.request("sched.nosuch", &json!({}));
    assert_eq!(answers[0].errnum(), ENOSYS);
}

#[test]
fn ping_and_stats_are_answered() {
    let mut bench = Bench::ready(None, &[]);
    bench.alloc(1, 2);
    bench.alloc(2, 2);
    bench.alloc(3, 2);
    let answers = bench.request("sched.ping", &json!({"seq": 7}));
    assert_eq!(body(&answers[0])["seq"], json!(7));
    let answers = bench.request("feasibility.ping", &json!({}));
    assert_eq!(body(&answers[0])["rank"], json!(0));
    let answers = bench.request("sched.stats-get", &json!({}));
    let none = json!({"count": 0, "mean": 0.0, "low": 0.0, "median": 0.0, "high": 0.0});
    let mut stats = body(&answers[0]);
    stats.as_object_mut().unwrap().remove("passes");
    assert_eq!(
        stats,
        json!({"ready": true, "queued": 1, "running": 2, "unanswered": 3,
               "policy": "easy", "selection": "first", "estimates": none})
    );
}

#[test]
fn the_durations_of_passes_are_counted_by_the_clock_of_the_caller() {
    let mut bench = Bench::ready(None, &[]);
    assert!(!bench.scheduler.is_pass_due());
    let request = json!({"id": 1, "priority": 16, "userid": 5, "jobspec": jobspec(1)});
    let request = Message::request("sched.alloc", &request.to_string()).with_matchtag(7);
    bench.scheduler.handle(&Message {
        rolemask: penstock_flux::role::OWNER,
        ..request
    });
    assert!(bench.scheduler.is_pass_due());
    bench.scheduler.schedule(1000.0);
    assert!(!bench.scheduler.is_pass_due());
    bench.scheduler.record_pass(0.25);
    let passes = body(&bench.request("sched.stats-get", &json!({}))[0])["passes"].clone();
    assert_eq!(
        (&passes["count"], &passes["sum"]),
        (&json!(1), &json!(0.25))
    );
}

#[test]
fn a_guest_may_check_feasibility_only() {
    let mut bench = Bench::ready(None, &[]);
    for topic in ["sched.alloc", "sched.free", "sched.expiration"] {
        let mut request = Message::request(topic, r#"{"id":1}"#);
        request.rolemask = 6;
        bench.scheduler.handle(&request);
        let answers = bench.scheduler.take_out();
        assert_eq!((answers.len(), answers[0].errnum()), (1, EPERM), "{topic}");
    }
    let payload = json!({"jobspec": jobspec(1)}).to_string();
    let mut request = Message::request("feasibility.check", &payload);
    request.rolemask = 6;
    bench.scheduler.handle(&request);
    assert_eq!(bench.scheduler.take_out()[0].errnum(), 0);
}

#[test]
fn a_jobspec_of_a_guest_is_checked_up_to_a_size() {
    let mut bench = Bench::ready(None, &[]);
    let mut check = |rolemask: u32, command: Value| {
        let mut spec = jobspec(1);
        spec["tasks"][0]["command"] = command;
        let payload = json!({"jobspec": spec}).to_string();
        let mut request = Message::request("feasibility.check", &payload);
        request.rolemask = rolemask;
        bench.scheduler.handle(&request);
        let answers = bench.scheduler.take_out();
        (
            answers[0].errnum(),
            answers[0].error_text().unwrap_or_default().into_owned(),
        )
    };
    let (long, many) = (json!(["x".repeat(1 << 20)]), json!(vec![""; 1 << 14]));
    for command in [&long, &many] {
        let (errnum, text) = check(6, command.clone());
        assert_eq!(errnum, EINVAL);
        let expected = "expected at most 1048576 bytes of JSON and 16384 values";
        assert!(text.contains(expected), "{text}");
        assert_eq!(check(1, command.clone()).0, 0);
    }
}

#[test]
fn errors_in_the_handshake_are_fatal_and_name_the_reason() {
    let failure = |bench: &Bench| match bench.scheduler.phase() {
        Phase::Failed(reason) => reason.clone(),
        phase => panic!("{phase:?}"),
    };
    let mut bench = Bench::new(None);
    bench.reject("service.add", EEXIST);
    assert_eq!(
        failure(&bench),
        "another scheduler is registered as `sched`"
    );

    let mut bench = Bench::new(None);
    bench.answer("service.add", &Value::Null);
    bench.answer("service.add", &Value::Null);
    bench.reject("resource.acquire", EBUSY);
    assert_eq!(
        failure(&bench),
        "resource.acquire failed: Device or resource busy: because"
    );

    let mut bench = Bench::new(None);
    bench.answer("service.add", &Value::Null);
    bench.answer("service.add", &Value::Null);
    let acquired = json!({"resources": inventory(), "up": "0"});
    bench.answer("resource.acquire", &acquired);
    bench.reject("job-manager.sched-hello", EPERM);
    assert!(failure(&bench).starts_with("job-manager.sched-hello failed: Operation not permitted"));

    let mut bench = Bench::running(None, &[]);
    bench.reject("job-manager.sched-ready", EPROTO);
    assert!(failure(&bench).starts_with("job-manager.sched-ready failed: Protocol error"));
    // After that nothing is decided.
    assert!(bench.alloc(1, 1).is_empty());

    let mut bench = Bench::ready(None, &[]);
    bench.reject("resource.acquire", 5);
    assert!(failure(&bench).starts_with("resource.acquire failed: Input/output error"));
}

fn more(ranks: &str, hosts: &str, cores: &str) -> Value {
    json!({"version": 1, "execution": {
        "R_lite": [{"rank": ranks, "children": {"core": cores}}],
        "nodelist": [hosts], "starttime": 0.0, "expiration": 0.0}})
}

#[test]
fn shrinking_denies_infeasible_jobs_and_leaves_running_ones_alone() {
    let mut bench = Bench::ready(None, &[]);
    bench.alloc(1, 2);
    bench.commit();
    bench.alloc(2, 2);
    bench.commit();
    // One of two waits for each rank; a third for both.
    bench.alloc(3, 2);
    let both = json!({"version": 1, "tasks": [{"command": ["x"], "slot": "t",
        "count": {"per_slot": 1}}], "attributes": {"system": {"duration": 0}},
        "resources": [{"type": "slot", "count": 2, "label": "t",
                       "with": [{"type": "core", "count": 2}]}]});
    let payload = json!({"id": 4, "priority": 16, "userid": 0, "jobspec": both});
    assert!(bench.request("sched.alloc", &payload).is_empty());
    bench.answer("resource.acquire", &json!({"shrink": "1", "down": "1"}));
    // Denied though it is not the first in line.
    let responses: Vec<Value> = bench.responses().iter().map(body).collect();
    assert_eq!(
        (responses[0]["id"].clone(), responses[0]["type"].clone()),
        (json!(4), json!(2))
    );
    assert_eq!(responses[0]["note"], "4 cores requested, 2 exist");
    // Job 2 is on the rank that is gone: the engine ignores what it frees.
    let free = json!({"id": 2, "R": more("1", "n1", "0-1"), "final": true});
    bench.request("sched.free", &free);
    assert!(
        bench
            .outstanding
            .iter()
            .all(|message| message.topic() != "kvs.commit")
    );
    bench.request("sched.free", &json!({"id": 1}));
    let success = body(&bench.commit()[0]);
    assert_eq!(success["id"], 3);
    assert_eq!(success["R"]["execution"]["R_lite"][0]["rank"], "0");
    assert!(
        bench
            .scheduler
            .take_log()
            .iter()
            .all(|line| !line.contains("free"))
    );
}

#[test]
fn new_ranks_are_acquired_and_allocated() {
    let mut bench = Bench::new(None);
    bench.answer("service.add", &Value::Null);
    bench.answer("service.add", &Value::Null);
    assert_eq!(body(&bench.outstanding[0]), json!({"grow-ok": true}));

    let mut bench = Bench::ready(None, &[]);
    bench.alloc(1, 2);
    bench.commit();
    // Ranks are given in between, so places move under the running job.
    bench.answer(
        "resource.acquire",
        &json!({"grow": more("5", "n5", "0-7"), "up": "5", "property-add": {"p": "5,99"}}),
    );
    bench.alloc(2, 8);
    let success = body(&bench.commit()[0]);
    assert_eq!(success["R"]["execution"]["R_lite"][0]["rank"], "5");
    assert_eq!(success["R"]["execution"]["properties"], json!({"p": "5"}));
    bench.alloc(3, 8);
    bench.request("sched.free", &json!({"id": 1}));
    bench.request("sched.free", &json!({"id": 2}));
    assert_eq!(body(&bench.commit()[0])["id"], 3);

    // A rank that is known already cannot be new.
    bench.answer("resource.acquire", &json!({"grow": more("0", "n0", "0")}));
    assert_eq!(
        *bench.scheduler.phase(),
        Phase::Failed("resource.acquire: ranks 0 are in the inventory already".to_owned())
    );
}

#[test]
fn the_acquire_request_has_no_payload_without_growth() {
    let mut scheduler = Scheduler::new(Options {
        grow: false,
        ..Options::default()
    });
    scheduler.start();
    for request in scheduler.take_out() {
        scheduler.handle(&Message::response_to(&request, 0, None));
    }
    let acquire = &scheduler.take_out()[0];
    assert_eq!(
        (acquire.topic(), &acquire.payload),
        ("resource.acquire", &None)
    );
    assert!(acquire.is_streaming());
}

#[test]
fn a_job_of_hello_keeps_its_resources_on_ranks_that_are_added_later() {
    // The job holds ranks 0 and 1; the inventory has rank 0 only, and gets rank 1 later.
    let mut bench = Bench::new(None);
    bench.answer("service.add", &Value::Null);
    bench.answer("service.add", &Value::Null);
    let acquired = json!({"resources": more("0", "n0", "0-1"), "up": "0"});
    bench.answer("resource.acquire", &acquired);
    let held = json!({"id": 9, "priority": 1, "userid": 0, "t_submit": 1.0});
    bench.answer("job-manager.sched-hello", &held);
    let data = BASE64.encode(more("0-1", "n[0-1]", "0-1").to_string());
    bench.answer(
        "kvs.lookup",
        &json!({"val": {"ver": 1, "type": "val", "data": data}}),
    );
    bench.reject("job-manager.sched-hello", ENODATA);
    bench.answer("job-manager.sched-ready", &json!({"count": 0}));
    let log = bench.scheduler.take_log().join("\n");
    assert!(
        log.contains("also holds ranks 1, which are not in the inventory"),
        "{log}"
    );
    bench.answer(
        "resource.acquire",
        &json!({"grow": more("1", "n1", "0-3"), "up": "1"}),
    );
    bench.alloc(1, 2);
    let r = &body(&bench.commit()[0])["R"]["execution"]["R_lite"][0];
    assert_eq!(
        (&r["rank"], &r["children"]["core"]),
        (&json!("1"), &json!("2-3"))
    );
}

#[test]
fn removing_a_property_denies_the_jobs_that_require_it() {
    let mut bench = Bench::ready(None, &[]);
    bench.answer(
        "resource.acquire",
        &json!({"property-add": {"p": "1"}, "down": "1"}),
    );
    let mut spec = jobspec(1);
    spec["attributes"]["system"]["constraints"] = json!({"properties": ["p"]});
    let payload = json!({"id": 1, "priority": 16, "userid": 0, "jobspec": spec});
    let responses = bench.request("sched.alloc", &payload);
    assert_eq!(body(&responses[0])["type"], 1);
    bench.answer("resource.acquire", &json!({"property-remove": {"p": "1"}}));
    let response = body(&bench.responses()[0]);
    assert_eq!(response["type"], 2);
    assert_eq!(response["note"], "no node meets the constraint p");
}

#[test]
fn the_expiration_of_the_inventory_limits_later_jobs() {
    let mut bench = Bench::ready(None, &[]);
    bench.answer("resource.acquire", &json!({"expiration": 1030.5}));
    bench.alloc(1, 1);
    let r = &body(&bench.commit()[0])["R"]["execution"];
    assert_eq!(r["expiration"], 1030.5);
    // 0 is no end at all.
    bench.answer("resource.acquire", &json!({"expiration": 0.0}));
    bench.alloc(2, 1);
    assert_eq!(
        body(&bench.commit()[0])["R"]["execution"]["expiration"],
        1060.0
    );
}

#[test]
fn an_expiration_beyond_the_inventorys_is_rejected() {
    let mut bench = Bench::ready(None, &[]);
    bench.answer("resource.acquire", &json!({"expiration": 1030.5}));
    bench.alloc(1, 1);
    bench.commit();
    let mut set_expiration = |expiration: Value| {
        let payload = json!({"id": 1, "expiration": expiration});
        let answers = bench.request("sched.expiration", &payload);
        assert_eq!(answers.len(), 1);
        let text = answers[0].error_text().unwrap_or_default().into_owned();
        let kept = bench.scheduler.engine().unwrap().expiration(JobId::new(1));
        (answers[0].errnum(), text, kept)
    };
    assert_eq!(
        set_expiration(json!(1020)),
        (0, String::new(), Some(1020.0))
    );
    let until = "the resources end at 1030.5: expected an expiration up to then, found";
    let rejected = |found: &str| (EINVAL, format!("{until} {found}"), Some(1020.0));
    assert_eq!(set_expiration(json!(1030.75)), rejected("1030.75"));
    let negative = "sched.expiration: `expiration`: expected 0 or a time, found -5";
    assert_eq!(
        set_expiration(json!(-5)),
        (EINVAL, negative.to_owned(), Some(1020.0))
    );
    assert_eq!(set_expiration(json!(0)), rejected("none"));
    assert_eq!(
        set_expiration(json!(1030.5)),
        (0, String::new(), Some(1030.5))
    );
    // Without an end there is no limit.
    bench.answer("resource.acquire", &json!({"expiration": 0.0}));
    let payload = json!({"id": 1, "expiration": 0});
    assert_eq!(bench.request("sched.expiration", &payload)[0].errnum(), 0);
    let engine = bench.scheduler.engine().unwrap();
    assert_eq!(engine.expiration(JobId::new(1)), None);
}

#[test]
fn the_end_of_the_acquire_stream_is_fatal() {
    let mut bench = Bench::ready(None, &[]);
    bench.reject("resource.acquire", ENODATA);
    let reason = "the resource service has withdrawn the resources".to_owned();
    assert_eq!(bench.scheduler.take_log().last(), Some(&reason));
    assert_eq!(*bench.scheduler.phase(), Phase::Failed(reason));
    assert!(bench.alloc(1, 1).is_empty());
}

#[test]
fn a_typed_request_is_answered_as_its_json_is() {
    let parsed = Jobspec::from_json(&jobspec(2).to_string()).unwrap();
    let typed = Message::request("sched.alloc", "").with_typed(TypedPayload::Alloc(PendingJob {
        id: JobId::new(1),
        priority: 16,
        userid: 0,
        t_submit: 5.5,
        requested: Arc::new(RequestedResources::of(&parsed)),
        jobspec: None,
    }));
    let json = std::str::from_utf8(typed.payload_json().unwrap()).unwrap();
    let json = Message::request("sched.alloc", json);
    let mut success = Vec::new();
    for mut request in [json, typed] {
        let mut bench = Bench::ready(None, &[]);
        request.rolemask = 5;
        bench.scheduler.handle(&request);
        assert!(bench.responses().is_empty());
        success.push(bench.commit());
    }
    assert_eq!(success[0], success[1]);
}

#[test]
fn cancellations_in_one_message_have_one_response() {
    let cancel = |ids: &[u64]| {
        let ids: Vec<JobId> = ids.iter().map(|id| JobId::new(*id)).collect();
        let value = TypedPayload::CancelAllocs(ids.into());
        let mut request = Message::request("sched.cancel", "").with_typed(value);
        request.rolemask = 5;
        request
    };
    let mut bench = Bench::ready(None, &[]);
    for id in [1, 2] {
        bench.alloc(id, 2);
        bench.commit();
    }
    for id in 3..=6 {
        bench.alloc(id, 1);
    }
    bench.responses();
    // The first has its resources, the last is unknown, and the second has been cancelled before.
    bench.request("sched.cancel", &json!({"id": 4}));
    bench.scheduler.handle(&cancel(&[1, 4, 3, 6, 9]));
    // The others are annotations.
    let mut responses = bench.responses();
    responses.retain(|response| response.typed().is_some());
    let [response] = responses.as_slice() else {
        panic!("expected one response: {responses:?}");
    };
    let Some(TypedPayload::CancelledAllocs(jobs)) = response.typed() else {
        panic!("expected a value: {response:?}");
    };
    assert_eq!(**jobs, [3, 6].map(JobId::new));
    assert_eq!(response.topic(), "sched.alloc");
    assert_eq!(bench.scheduler.engine().unwrap().queue_len(), 1);
    // The value for one job is the message of RFC 27.
    let one = cancel(&[5]);
    assert_eq!(body(&one), json!({"id": 5}));
    bench.scheduler.handle(&one);
    let response = json!({"id": 5, "type": 3});
    assert_eq!(body(&bench.responses()[0]), response);
    bench.scheduler.handle(&cancel(&[5]));
    assert!(bench.responses().is_empty());
}

#[test]
fn typed_resources_are_freed_as_their_json_would_be() {
    let held = json!({"id": 1, "priority": 16, "userid": 0, "t_submit": 0.0});
    let all = ResourceSet::from_json(&inventory().to_string()).unwrap();
    for is_typed in [false, true] {
        let mut bench = Bench::ready(None, std::slice::from_ref(&held));
        let mut freed = Vec::new();
        for (ranks, is_final) in [(0..=0, false), (1..=1, true)] {
            let value = TypedPayload::Free(FreedResources {
                id: JobId::new(1),
                r: RWithText {
                    r: Arc::new(all.restrict(&ranks.into())),
                    text: None,
                },
                is_final,
            });
            let mut request = Message::request("sched.free", "").with_typed(value);
            if !is_typed {
                let json = std::str::from_utf8(request.payload_json().unwrap()).unwrap();
                request = Message::request("sched.free", json);
            }
            request.rolemask = 5;
            bench.scheduler.handle(&request);
            assert!(bench.responses().is_empty());
            freed.push(bench.scheduler.engine().unwrap().running());
        }
        assert_eq!(freed, [1, 0], "typed: {is_typed}");
    }
}

#[test]
fn typed_resources_are_acquired_and_adopted_as_their_json_would_be() {
    let all = Arc::new(ResourceSet::from_json(&inventory().to_string()).unwrap());
    let mut commits = Vec::new();
    for is_typed in [false, true] {
        let answer = |bench: &mut Bench, topic: &str, value: TypedPayload| {
            let request = bench.take_request(topic);
            let mut response = Message::typed_success_to(&request, value);
            if !is_typed {
                let json = std::str::from_utf8(response.payload_json().unwrap()).unwrap();
                let payload = Some(Message::json_payload(json));
                response = Message::response_to(&request, 0, payload);
            }
            bench.respond(&response);
        };
        let mut bench = Bench::new(None);
        bench.answer("service.add", &Value::Null);
        bench.answer("service.add", &Value::Null);
        let inventory = Inventory {
            resources: Arc::clone(&all),
            up: all.ranks(),
        };
        answer(
            &mut bench,
            "resource.acquire",
            TypedPayload::Inventory(inventory),
        );
        let held = json!({"id": 9, "priority": 1, "userid": 0, "t_submit": 1.0, "free": "1"});
        bench.answer("job-manager.sched-hello", &held);
        let stored = RWithText {
            r: Arc::clone(&all),
            text: None,
        };
        answer(&mut bench, "kvs.lookup", TypedPayload::StoredR(stored));
        bench.reject("job-manager.sched-hello", ENODATA);
        bench.answer("job-manager.sched-ready", &json!({"count": 0}));
        assert!(bench.scheduler.take_log().ends_with(&["ready".to_owned()]));
        bench.alloc(1, 2);
        let commit = body(&bench.take_request("kvs.commit"));
        let data = commit["ops"][0]["dirent"]["data"].as_str().unwrap();
        let text = String::from_utf8(BASE64.decode(data).unwrap()).unwrap();
        let r = ResourceSet::from_json(&text).unwrap();
        assert_eq!(r.ranks().to_string(), "1", "typed: {is_typed}");
        commits.push(commit);
        let added = ResourceSet::from_json(&more("5", "n5", "0-7").to_string()).unwrap();
        let change = InventoryChange {
            grow: Some(Arc::new(added)),
            shrink: None,
            up: Some("5".parse().unwrap()),
            down: Some("1".parse().unwrap()),
            property_add: None,
            property_remove: None,
            expiration: None,
        };
        let change = TypedPayload::InventoryChange(change);
        answer(&mut bench, "resource.acquire", change);
        let engine = bench.scheduler.engine().unwrap();
        assert!(engine.ranks().contains(5), "typed: {is_typed}");
        bench.alloc(2, 8);
        commits.push(body(&bench.take_request("kvs.commit")));
    }
    assert_eq!(commits[..2], commits[2..]);
}

#[test]
fn a_commit_and_its_response_have_the_allocations_as_values() {
    let mut bench = Bench::ready(None, &[]);
    bench.alloc(1, 1);
    let commit = bench.take_request("kvs.commit");
    let Some(TypedPayload::Commit(allocations)) = commit.typed() else {
        panic!("no allocations");
    };
    let data = body(&commit);
    let data = data["ops"][0]["dirent"]["data"].as_str().unwrap();
    let text = String::from_utf8(BASE64.decode(data).unwrap()).unwrap();
    assert_eq!((allocations.len(), allocations[0].id), (1, JobId::new(1)));
    assert_eq!(*allocations[0].text, *text);
    assert_eq!(*allocations[0].r, ResourceSet::from_json(&text).unwrap());
}
