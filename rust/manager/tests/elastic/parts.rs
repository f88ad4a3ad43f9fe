//! Elastic allocations: requests for nodes with different amounts, all of them or none.

use crate::common::elastic::*;
use crate::common::{Bench, Directory, body, settings, topics};
use penstock_jobspec::job_id::JobId;
use penstock_manager::{ElasticLimits, ElasticSettings, Limits, Settings};
use penstock_wire::Message;
use serde_json::{Value, json};

/// Cpus of each of some hosts.
fn counts(required: bool, hosts: &str, cpus: &str) -> Value {
    json!([
        {"key": "pmix.alloc.nlist", "required": required, "value": hosts},
        {"key": "pmix.alloc.ncpulist", "value": cpus},
    ])
}

fn cpus(number: u32, nodes: u32) -> Value {
    json!([
        {"key": "pmix.alloc.nnodes", "value": nodes},
        {"key": "pmix.alloc.ncpus", "value": number},
    ])
}

/// Allocates cores to a job that requests them; returns the messages that follow.
fn give_some(bench: &mut Bench, job: u64, rank: &str, cores: &str) -> Vec<Message> {
    let r = r_of(rank).replace("\"0-3\"", &format!("\"{cores}\""));
    let committed = bench.commit_r(job, &r);
    assert_eq!(committed[0].errnum(), 0, "{:?}", committed[0].error_text());
    bench.answer("sched.alloc", &json!({"id": job, "type": 0}))
}

/// Cpus of each node, and the constraint on acceptable and excluded nodes.
fn wanted(out: &[Message]) -> (Value, Value) {
    let spec = jobspec(out);
    let cores = spec["resources"][0]["with"][0]["with"][0]["count"].clone();
    (cores, spec["attributes"]["system"]["constraints"].clone())
}

fn hostlist(hosts: &str) -> Value {
    json!({ "hostlist": [hosts] })
}

fn is_free(bench: &mut Bench, job: u64) -> bool {
    bench.events(job).contains(&"free".to_owned())
}

#[test]
fn each_node_provides_what_is_requested_of_it() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &counts(true, "n5,n4", "1,3"));
    let first = request_job(&out);
    assert_eq!(wanted(&out), (json!(3), hostlist("n4")));
    let out = give_some(&mut bench, first, "4", "0-2");
    assert!(unanswered(&out), "the other one is not there");
    assert_eq!(bench.row(job)["nnodes"], 4);
    let second = request_job(&out);
    let both = json!({"and": [hostlist("n5"), {"not": [hostlist("n4")]}]});
    assert_eq!(wanted(&out), (json!(1), both));
    let (status, response) = answer(&give_some(&mut bench, second, "5", "0"));
    assert_eq!((status, &response["reason"]), (0, &json!("")));
    assert_eq!(result(&response, "pmix.alloc.nlist"), "n[4-5]");
    assert_eq!(result(&response, "pmix.alloc.ncpulist"), "3,1");
    assert_eq!(
        result(&response, "pmix.alloc.id"),
        JobId::new(first).to_string()
    );
    assert_eq!(bench.row(job)["nodelist"], "n[0-5]");
    let rows = query(&mut bench, job);
    assert_eq!((rows.len(), &rows[0]["cores"]), (1, &json!(4)));
    // The grant is released as a whole, by one name.
    let name = existing(&JobId::new(first).to_string());
    let out = alloc(&mut bench, job, "release", &json!([name]));
    assert_eq!(
        freed(&out),
        [
            (first, "4".to_owned(), true),
            (second, "5".to_owned(), true)
        ]
    );
    assert_eq!(bench.row(job)["nodelist"], "n[0-3]");
}

#[test]
fn a_grant_of_parts_is_released_part_by_part() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &counts(true, "n4,n5", "3,1"));
    let first = request_job(&out);
    let second = request_job(&give_some(&mut bench, first, "4", "0-2"));
    give_some(&mut bench, second, "5", "0");
    let name = || existing(&JobId::new(first).to_string());
    let host = json!({"key": "pmix.alloc.nlist", "value": "n4"});
    alloc(&mut bench, job, "release", &json!([name(), host]));
    assert_eq!(bench.row(job)["nodelist"], "n[0-3,5]");
    let out = alloc(&mut bench, job, "release", &json!([name()]));
    assert_eq!(freed(&out), [(second, "5".to_owned(), true)]);
    let gone = alloc(&mut bench, job, "release", &json!([name()]));
    assert_eq!(answer(&gone).0, -46);
}

#[test]
fn a_required_request_of_parts_is_granted_as_a_whole_or_denied() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &counts(true, "n4,n5", "3,1"));
    let first = request_job(&out);
    let out = give_some(&mut bench, first, "4", "0-2");
    let second = request_job(&out);
    assert_eq!(topics(&out), ["sched.alloc", "sched.explain"]);
    let out = answer_probe(&mut bench, &out);
    let (status, response) = answer(&out);
    assert_eq!(status, -29);
    let reason = "not available now: 1 node with 3 cpus of n4 and 1 node with 1 cpu of n5";
    assert_eq!(response["reason"], reason);
    cancelled(&mut bench, second);
    assert!(is_free(&mut bench, first), "the allocated part is freed");
    assert_eq!(bench.row(job)["nnodes"], 4);
}

#[test]
fn hosts_that_are_only_preferred_are_dropped_for_all_parts() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &counts(false, "n4,n5", "3,1"));
    let before = request_job(&out);
    let out = give_some(&mut bench, before, "4", "0-2");
    let second = request_job(&out);
    let out = answer_probe(&mut bench, &out);
    let first = request_job(&out);
    assert_ne!(first, before, "requested again");
    assert_eq!(wanted(&out), (json!(3), Value::Null));
    cancelled(&mut bench, second);
    assert!(is_free(&mut bench, before));
    let rows = query(&mut bench, job);
    assert_eq!(rows[0]["alloc"], JobId::new(first).to_string());
    assert_eq!(rows[0]["state"], "queued");
    let out = give_some(&mut bench, first, "6", "0-2");
    assert_eq!(
        wanted(&out),
        (json!(1), json!({"not": [hostlist("n6")]})),
        "on another node"
    );
    let (status, response) = answer(&give_some(&mut bench, request_job(&out), "7", "0"));
    assert_eq!(status, 0);
    assert_eq!(response["reason"], "not met: pmix.alloc.nlist");
    assert_eq!(result(&response, "pmix.alloc.ncpulist"), "3,1");
}

#[test]
fn cpus_that_do_not_divide_are_as_even_as_can_be() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &cpus(7, 2));
    assert_eq!(wanted(&out), (json!(4), Value::Null));
    let out = give_some(&mut bench, request_job(&out), "4", "0-3");
    assert_eq!(wanted(&out), (json!(3), json!({"not": [hostlist("n4")]})));
    let (status, response) = answer(&give_some(&mut bench, request_job(&out), "5", "0-2"));
    assert_eq!((status, &response["reason"]), (0, &json!("")));
    assert_eq!(result(&response, "pmix.alloc.ncpulist"), "4,3");
}

#[test]
fn at_the_callers_limit_cpus_that_do_not_divide_have_a_part_and_counts_have_none() {
    let (mut bench, job) = start(settings());
    let mut attributes = cpus(7, 2).as_array().unwrap().clone();
    attributes.push(limit(60));
    let out = alloc(&mut bench, job, "extend", &json!(attributes));
    let before = request_job(&out);
    let second = request_job(&give_some(&mut bench, before, "4", "0-3"));
    let out = bench.pass(61.0);
    let spec = jobspec(&out);
    assert_eq!(spec["resources"][0]["count"], "1-2");
    assert_eq!(wanted(&out).0, 3);
    let third = request_job(&out);
    cancelled(&mut bench, second);
    let (status, response) = answer(&give_some(&mut bench, third, "4", "0-2"));
    assert_eq!(
        (status, &response["reason"]),
        (0, &json!("in part: 3 of 7 cpus"))
    );

    let mut attributes = counts(false, "n8,n9", "3,1").as_array().unwrap().clone();
    attributes.push(limit(60));
    let out = alloc(&mut bench, job, "extend", &json!(attributes));
    let first = request_job(&out);
    answer_probe(&mut bench, &out);
    let out = cancelled(&mut bench, first);
    assert_eq!(wanted(&out), (json!(3), Value::Null), "without the hosts");
    let second = request_job(&give_some(&mut bench, first, "8", "0-2"));
    let (status, response) = answer(&bench.pass(61.0));
    let reason = "1 node with 3 cpus and 1 node with 1 cpu did not become free in time";
    assert_eq!((status, &response["reason"]), (-24, &json!(reason)));
    cancelled(&mut bench, second);
    assert!(is_free(&mut bench, first));
}

#[test]
fn a_new_allocation_of_parts_is_one_allocation() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "new", &counts(true, "n4,n5", "3,1"));
    let new = request_job(&out);
    let out = give_some(&mut bench, new, "4", "0-2");
    let second = request_job(&out);
    let (status, response) = answer(&give_some(&mut bench, second, "5", "0"));
    assert_eq!(status, 0);
    assert_eq!(
        result(&response, "pmix.alloc.id"),
        JobId::new(new).to_string()
    );
    assert_eq!(result(&response, "pmix.alloc.ncpulist"), "3,1");
    assert_eq!(bench.row(new)["nodelist"], "n[4-5]");
    bench.end(job, 0);
    assert_eq!(bench.row(second)["state"], 16, "it outlives the requester");
    let raise = json!({"id": new, "type": "cancel", "severity": 0});
    let out = bench.request("job-manager.raise", &raise);
    assert_eq!(
        freed(&out),
        [(new, "4".to_owned(), true), (second, "5".to_owned(), true)]
    );
}

#[test]
fn any_part_of_a_new_allocation_may_be_released_first() {
    for (hosts, left) in [("n4", "n5"), ("n5", "n4")] {
        let (mut bench, job) = start(settings());
        let out = alloc(&mut bench, job, "new", &counts(true, "n4,n5", "3,1"));
        let new = request_job(&out);
        let second = request_job(&give_some(&mut bench, new, "4", "0-2"));
        give_some(&mut bench, second, "5", "0");
        let name = || existing(&JobId::new(new).to_string());
        let host = json!({"key": "pmix.alloc.nlist", "value": hosts});
        let out = alloc(&mut bench, job, "release", &json!([name(), host]));
        assert_eq!(freed(&out).len(), 1);
        assert!(freed(&out)[0].2, "the last free of it");
        assert_eq!(bench.row(new)["nodelist"], left);
        assert_eq!(bench.row(new)["state"], 16);
        let out = alloc(&mut bench, job, "release", &json!([name()]));
        assert_eq!(freed(&out).len(), 1);
        for id in [new, second] {
            assert_eq!(bench.row(id)["result"], 1, "{hosts}");
        }
    }
}

#[test]
fn cancelling_one_part_cancels_the_request() {
    let (mut bench, job) = start(settings());
    for which in 0..3 {
        let out = alloc(&mut bench, job, "extend", &counts(true, "n4,n5", "3,1"));
        let first = request_job(&out);
        let second = request_job(&give_some(&mut bench, first, "4", "0-2"));
        let out = if which == 0 {
            bench.request("pmix.cancel", &json!({"job": job}))
        } else {
            let id = if which == 1 { first } else { second };
            let raise = json!({"id": id, "type": "cancel", "severity": 0});
            bench.request("job-manager.raise", &raise)
        };
        let ended = out
            .iter()
            .find(|message| message.topic() == "pmix.alloc")
            .unwrap();
        assert_eq!(body(ended)["status"], -180);
        cancelled(&mut bench, second);
        for id in [first, second] {
            assert_eq!(bench.row(id)["state"], 64);
        }
    }
    assert_eq!(bench.row(job)["nnodes"], 4);
}

#[test]
fn a_part_is_held_for_a_limited_time_and_the_missing_one_comes_first_then() {
    let (mut bench, job) = start(settings());
    let out = alloc(&mut bench, job, "extend", &cpus(7, 2));
    let before = request_job(&out);
    let second = request_job(&give_some(&mut bench, before, "4", "0-3"));
    let out = bench.pass(301.0);
    let again = request_job(&out);
    assert_eq!(wanted(&out), (json!(3), Value::Null));
    cancelled(&mut bench, second);
    assert!(is_free(&mut bench, before));
    let rows = query(&mut bench, job);
    assert_eq!(
        (&rows[0]["state"], &rows[0]["alloc"]),
        (&json!("queued"), &json!(JobId::new(again).to_string()))
    );
    // No resources are held while the missing part is pending, however long.
    assert!(topics(&bench.pass(5000.0)).is_empty());
    let out = give_some(&mut bench, again, "6", "0-2");
    assert_eq!(wanted(&out), (json!(4), json!({"not": [hostlist("n6")]})));
    let (status, response) = answer(&give_some(&mut bench, request_job(&out), "7", "0-3"));
    assert_eq!((status, &response["reason"]), (0, &json!("")));
    assert_eq!(result(&response, "pmix.alloc.ncpulist"), "3,4");
}

#[test]
fn parts_survive_a_restart() {
    let directory = Directory::new("elastic-parts");
    let mut bench = directory.open(settings(), 1000.0);
    let job = ready(&mut bench);
    let out = alloc(&mut bench, job, "extend", &cpus(7, 2));
    let first = request_job(&out);
    let second = request_job(&give_some(&mut bench, first, "4", "0-3"));
    let now = bench.now;
    drop(bench);
    let mut bench = directory.open(settings(), now + 10.0);
    bench.scheduler(None);
    bench.executor();
    assert_eq!(query(&mut bench, job)[0]["state"], "queued");
    give_some(&mut bench, second, "5", "0-2");
    let rows = query(&mut bench, job);
    assert_eq!((rows.len(), &rows[0]["state"]), (1, &json!("granted")));
    assert_eq!(bench.row(job)["nodelist"], "n[0-5]");
    drop(bench);
    let mut bench = directory.open(settings(), now + 20.0);
    bench.scheduler(None);
    bench.executor();
    let name = existing(&JobId::new(first).to_string());
    let out = alloc(&mut bench, job, "release", &json!([name]));
    assert_eq!(freed(&out).len(), 2);
}

#[test]
fn limits_count_all_parts() {
    let most = ElasticLimits {
        ncores: Some(6),
        ..ElasticLimits::default()
    };
    let elastic = ElasticSettings {
        job: most,
        user: ElasticLimits::default(),
    };
    let (mut bench, job) = start(Settings {
        elastic,
        ..settings()
    });
    let (status, response) = answer(&alloc(&mut bench, job, "extend", &cpus(7, 2)));
    assert_eq!(status, -29, "{response}");
    let out = alloc(&mut bench, job, "extend", &cpus(5, 2));
    let second = request_job(&give_some(&mut bench, request_job(&out), "4", "0-2"));
    let more = || alloc_cpus(2);
    let (status, response) = answer(&alloc(&mut bench, job, "extend", &more()));
    assert_eq!(status, -29, "{response}");
    give_some(&mut bench, second, "5", "0-1");
    assert_eq!(answer(&alloc(&mut bench, job, "extend", &more())).0, -29);

    let limits = Limits {
        max_nnodes: Some(4),
        ..Limits::default()
    };
    let (mut bench, job) = start(Settings {
        limits,
        ..settings()
    });
    for directive in ["new", "extend"] {
        let (status, response) = answer(&alloc(&mut bench, job, directive, &cpus(9, 5)));
        assert_eq!(status, -29, "{response}");
    }
}

fn alloc_cpus(number: u32) -> Value {
    json!([{"key": "pmix.alloc.ncpus", "value": number}])
}

/// A job that has lent a cpu of n4 and the whole of n3.
fn lender(bench: &mut Bench, job: u64) {
    let out = alloc(bench, job, "extend", &json!([named("c"), alloc_cpus(1)[0]]));
    give_cores(bench, request_job(&out), "4", "0");
    let time = json!({"key": "pmix.alloc.time", "value": 600});
    let host = json!({"key": "pmix.alloc.nlist", "value": "n3"});
    alloc(
        bench,
        job,
        "release",
        &json!([reqid("a"), named("c"), time]),
    );
    alloc(bench, job, "release", &json!([reqid("b"), host, time]));
}

#[test]
fn loans_of_several_kinds_come_back_together_where_that_is_required() {
    let (mut bench, job) = start(settings());
    lender(&mut bench, job);
    let all = json!({"key": "pmix.alloc.nnodes", "required": true, "value": 2});
    let out = alloc(&mut bench, job, "reacquire", &json!([all]));
    let first = request_job(&out);
    assert_eq!(wanted(&out).1, hostlist("n3"));
    let out = give(&mut bench, first, "3");
    assert!(unanswered(&out));
    assert_eq!(wanted(&out), (json!(1), hostlist("n4")));
    let second = request_job(&out);
    let (status, response) = answer(&give_some(&mut bench, second, "4", "0"));
    assert_eq!((status, &response["reason"]), (0, &json!("")));
    assert_eq!(result(&response, "pmix.alloc.nlist"), "n[3-4]");
    assert_eq!(result(&response, "pmix.alloc.ncpulist"), "4,1");
    let out = bench.request("pmix.query", &json!({ "job": job }));
    assert_eq!(answer(&out).1["lent"], json!([]));
    assert_eq!(bench.row(job)["nodelist"], "n[0-4]");
}

#[test]
fn loans_of_several_kinds_stay_lent_where_one_is_not_there() {
    let (mut bench, job) = start(settings());
    lender(&mut bench, job);
    let all = json!({"key": "pmix.alloc.nnodes", "required": true, "value": 2});
    let out = alloc(&mut bench, job, "reacquire", &json!([all]));
    let first = request_job(&out);
    let out = give(&mut bench, first, "3");
    let second = request_job(&out);
    // Not on the hosts of the loan: on any.
    let out = answer_probe(&mut bench, &out);
    let again = request_job(&out);
    cancelled(&mut bench, second);
    let (status, response) = answer(&answer_probe(&mut bench, &out));
    assert_eq!(status, -29);
    let reason = "not available now: 1 whole node and 1 node with 1 cpu";
    assert_eq!(response["reason"], reason);
    cancelled(&mut bench, again);
    let out = bench.request("pmix.query", &json!({ "job": job }));
    let lent = answer(&out).1["lent"].as_array().unwrap().clone();
    assert_eq!(lent.len(), 2);
    assert!(lent.iter().all(|loan| loan["returning"] == 0));
    assert_eq!(bench.row(job)["nodelist"], "n[0-2]");
    assert!(is_free(&mut bench, first));
}

#[test]
fn of_loans_that_come_back_together_only_those_of_requests_count() {
    let most = |nnodes| ElasticLimits {
        nnodes: Some(nnodes),
        ..ElasticLimits::default()
    };
    for (nnodes, status) in [(1, -29), (2, 1)] {
        let elastic = ElasticSettings {
            job: most(nnodes),
            user: ElasticLimits::default(),
        };
        let (mut bench, job) = start(Settings {
            elastic,
            ..settings()
        });
        lender(&mut bench, job);
        let fill = request_job(&alloc(&mut bench, job, "extend", &json!([nodes(1)])));
        give(&mut bench, fill, "5");
        let flag = json!({"key": "pmix.timeout", "required": true, "value": 0});
        let payload = call(job, "reacquire", &json!([flag]));
        let (found, response) = answer(&bench.stream("pmix.alloc", &payload));
        assert_eq!(found, status, "{response}");
    }
}
