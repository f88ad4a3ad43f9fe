//! Purging of inactive jobs, and the history of the remaining ones.

mod common;

use common::submissions::{JOBS, ids, part_results, responses, send_part, submit_as};
use common::{Bench, Directory, OWNER, body, jobspec, rejection, settings};
use penstock_flux::errno::{EAGAIN, EINVAL, EPERM};
use penstock_flux::flags::STREAMING;
use penstock_jobspec::job_id::JobId;
use penstock_manager::Settings;
use penstock_store::EndedJobs;
use serde_json::{Value, json};

/// Jobs that have ended, the oldest first.
fn ended(bench: &mut Bench, count: usize) -> Vec<u64> {
    bench.scheduler(None);
    bench.executor();
    let ids = (0..count).map(|_| {
        let id = bench.running(&json!({}));
        bench.end(id, 0);
        id
    });
    ids.collect()
}

fn purge(bench: &mut Bench, payload: &Value) -> Value {
    let mut out = bench.request("job-manager.purge", payload);
    if out.is_empty() {
        out = bench.advance();
    }
    body(&out[0])
}

fn purged(bench: &mut Bench) -> Vec<u64> {
    let purged = bench.manager.take_purged().into_iter();
    purged.map(JobId::get).collect()
}

fn known(bench: &mut Bench) -> Vec<u64> {
    let out = bench.stream(
        "job-list.list",
        &json!({"attrs": ["id"], "order": "newest"}),
    );
    let jobs = body(&out[0])["jobs"].as_array().unwrap().clone();
    jobs.iter().map(|job| job["id"].as_u64().unwrap()).collect()
}

/// As Flux does.
#[test]
fn a_limit_below_none_is_rejected() {
    let mut bench = Bench::new();
    bench.submit(&json!({}));
    for (limits, text) in [
        (
            json!({"age_limit": -1.0, "num_limit": -42, "batch": 50}),
            "the num limit must be at least 0, or -1 for none, not -42",
        ),
        (
            json!({"age_limit": -0.5, "num_limit": 2}),
            "the age limit must be at least 0 s, or -1 for none, not -0.5",
        ),
    ] {
        for force in [false, true] {
            let mut payload = limits.clone();
            payload["force"] = force.into();
            let out = bench.request("job-manager.purge", &payload);
            assert_eq!(rejection(&out), (22, text.to_owned()));
        }
    }
}

#[test]
fn without_force_it_only_counts() {
    let mut bench = Bench::new();
    let ids = ended(&mut bench, 3);
    let counted = json!({"count": 3, "inactives": 3});
    assert_eq!(purge(&mut bench, &json!({})), counted);
    assert_eq!(purge(&mut bench, &json!({"force": false})), counted);
    assert_eq!(known(&mut bench).len(), ids.len());
    assert!(bench.manager.take_purged().is_empty());
}

#[test]
fn the_oldest_go_first_by_number_by_age_and_by_id() {
    let mut bench = Bench::new();
    let ids = ended(&mut bench, 5);
    let gone = purge(&mut bench, &json!({"num_limit": 3, "force": true}));
    assert_eq!(gone, json!({"count": 2, "inactives": 3}));
    assert_eq!(purged(&mut bench), ids[..2]);
    assert!(bench.manager.take_purged().is_empty());
    let third = bench.row(ids[2])["t_inactive"].as_f64().unwrap();
    // The request comes a second later than `now`.
    let age = bench.now + 1.0 - third;
    let gone = purge(
        &mut bench,
        &json!({"age_limit": age, "num_limit": -1, "force": true}),
    );
    assert_eq!(gone, json!({"count": 1, "inactives": 2}));
    let gone = purge(&mut bench, &json!({"ids": [ids[4], ids[4]], "force": true}));
    assert_eq!(gone, json!({"count": 1, "inactives": 1}));
    assert_eq!(known(&mut bench), [ids[3]]);
    let stats = body(&bench.request("job-manager.stats-get", &json!({}))[0]);
    assert_eq!(
        (&stats["inactive_jobs"], &stats["max_jobid"]),
        (&json!(1), &json!(ids[4]))
    );
    let stats = body(&bench.request("job-list.job-stats", &json!({}))[0]);
    assert_eq!(
        (&stats["inactive_purged"], &stats["successful"]),
        (&json!(4), &json!(1))
    );
}

#[test]
fn many_named_jobs_are_checked_in_slices_before_any_is_removed() {
    let mut bench = Bench::new();
    let (ids, _) = bench.submit_copies(&json!({}), 1000);
    let cancel = json!({"all": true, "type": "cancel", "severity": 0, "note": ""});
    bench.request("job-manager.raise", &cancel);
    bench.advance();
    let (active, _) = bench.submit(&json!({}));
    let mut purge_in_slices = |payload: Value| {
        let mut out = bench.request("job-manager.purge", &payload);
        let mut slices = 1;
        while out.is_empty() {
            assert!(bench.is_due());
            let answered = bench.request_as("other", OWNER, "job-manager.ping", &json!({}), 0);
            assert_eq!(answered[0].topic(), "job-manager.ping");
            out.extend(bench.pass(0.0));
            slices += 1;
        }
        assert!(slices >= 4, "{slices}");
        // Then rows of ended jobs are removed from the store.
        while bench.is_due() {
            assert!(bench.pass(0.0).is_empty());
        }
        out
    };
    let with_active: Vec<u64> = ids.iter().copied().chain([active]).collect();
    let out = purge_in_slices(json!({"ids": with_active, "force": true}));
    let (errnum, text) = rejection(&out);
    assert!(
        errnum == 22 && text.ends_with(" is active"),
        "{errnum} {text}"
    );
    let out = purge_in_slices(json!({"ids": ids}));
    assert_eq!(body(&out[0]), json!({"count": 1000, "inactives": 1000}));
    let out = purge_in_slices(json!({"ids": ids, "force": true}));
    assert_eq!(body(&out[0]), json!({"count": 1000, "inactives": 0}));
    let left = bench.manager.store().ended_jobs().unwrap();
    assert_eq!(left, EndedJobs::default());
    assert_eq!(purged(&mut bench), ids);
}

#[test]
fn one_job_is_purged_as_flux_requests_it() {
    let mut bench = Bench::new();
    let ids = ended(&mut bench, 2);
    let mut purge_id = |id: u64, force: i64| {
        let payload = json!({"id": id, "force": force});
        let out = bench.request("job-manager.purge-id", &payload);
        (out[0].errnum() == 0).then(|| body(&out[0]))
    };
    let counted = json!({"count": 1, "inactives": 2});
    assert_eq!(purge_id(ids[1], 0), Some(counted));
    let gone = json!({"count": 1, "inactives": 1});
    assert_eq!(purge_id(ids[1], 1), Some(gone));
    assert_eq!(purge_id(ids[1], 1), None);
    assert_eq!(purged(&mut bench), ids[1..]);
    let active = bench.running(&json!({}));
    let payload = json!({"id": active, "force": 1});
    let (errnum, text) = rejection(&bench.request("job-manager.purge-id", &payload));
    assert_eq!(errnum, EINVAL);
    assert!(text.ends_with("is active"), "{text}");
    let out = bench.request_as("guest", 7, "job-manager.purge-id", &payload, 0);
    assert_eq!(rejection(&out).0, EPERM);
}

#[test]
fn limits_that_are_switched_off_purge_no_job() {
    let mut bench = Bench::new();
    let jobs = ended(&mut bench, 3);
    let off = json!({"age_limit": -1.0, "num_limit": -1, "batch": 50, "force": true});
    assert_eq!(purge(&mut bench, &off), json!({"count": 0, "inactives": 3}));
    assert_eq!(known(&mut bench).len(), jobs.len());
    assert_eq!(purge(&mut bench, &json!({"force": true}))["count"], 3);
}

#[test]
fn active_jobs_stay_and_only_the_owner_purges_those_of_others() {
    let mut bench = Bench::new();
    ended(&mut bench, 1);
    let id = bench.running(&json!({}));
    let (errnum, text) = rejection(&bench.request("job-manager.purge", &json!({"ids": [id]})));
    assert_eq!(errnum, 22);
    assert!(text.ends_with("is active"), "{text}");
    let all = json!({"force": true});
    // A guest purges its own jobs, of which there are none.
    let out = bench.request_as("guest", 7, "job-manager.purge", &all, 0);
    assert_eq!(body(&out[0]), json!({"count": 0, "inactives": 0}));
    let of_owner = json!({"force": true, "userid": OWNER});
    let out = bench.request_as("guest", 7, "job-manager.purge", &of_owner, 0);
    assert_eq!(rejection(&out).0, EPERM);
    assert_eq!(
        rejection(&bench.request("job-manager.purge", &json!({"ids": [5]}))).0,
        2
    );
    let both = json!({"ids": [id], "num_limit": 0});
    assert_eq!(rejection(&bench.request("job-manager.purge", &both)).0, 22);
    purge(&mut bench, &all);
    assert_eq!(known(&mut bench), [id]);
    assert_eq!(bench.end(id, 0).last().unwrap().topic(), "sched.free");
    assert_eq!(bench.row(id)["state"], 64);
}

#[test]
fn a_purged_job_is_gone_from_the_store_with_its_jobspec_and_its_id_does_not_come_back() {
    let directory = Directory::new("purge");
    let mut bench = directory.open(settings(), 1000.0);
    bench.scheduler(None);
    bench.executor();
    let payload = json!({"jobspec": common::jobspec(&json!({})), "count": 2});
    let shared = body(&bench.request("job-ingest.submit", &payload)[0])["ids"].clone();
    let (first, second) = (shared[0].as_u64().unwrap(), shared[1].as_u64().unwrap());
    bench.allocate(second);
    bench.exec(second, "start", &json!({}));
    bench.end(second, 0);
    purge(&mut bench, &json!({"force": true}));
    drop(bench);
    let store = directory.store();
    let jobs = store.jobs().unwrap().records;
    assert_eq!(
        jobs.iter().map(|job| job.id.get()).collect::<Vec<_>>(),
        [first]
    );
    assert_eq!(store.eventlog(JobId::new(second)).unwrap(), "");
    let spec = jobs[0].row.spec;
    assert!(
        store.jobspec(spec).unwrap().is_some(),
        "the other job has it, too"
    );
    drop(store);
    // If the clock is set back to before the purged job, its id must not be allotted again.
    let mut bench = directory.open(settings(), 1000.0);
    let (next, _) = bench.submit(&json!({}));
    assert!(next > second, "{next} {second}");
    bench.request("job-manager.raise", &json!({"id": first, "type": "cancel"}));
    bench.request("job-manager.raise", &json!({"id": next, "type": "cancel"}));
    assert_eq!(purge(&mut bench, &json!({"force": true}))["count"], 2);
    drop(bench);
    let store = directory.store();
    assert!(store.jobs().unwrap().records.is_empty());
    assert_eq!(store.jobspec(spec).unwrap(), None);
}

#[test]
fn what_was_logged_with_the_purge_does_not_come_after_it() {
    let directory = Directory::new("purge-batch");
    let mut bench = directory.open(settings(), 1000.0);
    let (id, _) = bench.submit(&json!({}));
    // Cancel and purge come in one batch: one flush for both.
    for (topic, payload) in [
        ("job-manager.raise", json!({"id": id, "type": "cancel"})),
        ("job-manager.purge", json!({"force": true})),
    ] {
        let mut request = penstock_wire::Message::request(topic, &payload.to_string());
        (request.userid, request.rolemask) = (OWNER, penstock_flux::role::OWNER);
        bench.manager.handle(&request, bench.now);
    }
    bench.manager.flush().unwrap();
    assert_eq!(purged(&mut bench), [id]);
    drop(bench);
    assert_eq!(directory.store().eventlog(JobId::new(id)).unwrap(), "");
}

#[test]
fn dependencies_on_purged_jobs_are_rejected_with_the_reason() {
    let mut bench = Bench::new();
    let ids = ended(&mut bench, 1);
    purge(&mut bench, &json!({"force": true}));
    let spec = common::jobspec(&json!({
        "dependencies": [{"scheme": "afterok", "value": ids[0].to_string()}]}));
    let (errnum, text) = rejection(&bench.request("job-ingest.submit", &json!({"jobspec": spec})));
    assert_eq!(errnum, 22);
    assert!(text.ends_with("it may have been purged"), "{text}");
    let lookup = json!({"id": ids[0], "keys": ["eventlog"]});
    let (errnum, text) = rejection(&bench.request("job-info.lookup", &lookup));
    assert_eq!(errnum, 2);
    assert!(text.ends_with("it may have been purged"), "{text}");
}

#[test]
fn limits_purge_by_themselves() {
    let mut bench = Bench::with(Settings {
        inactive_num_limit: 2,
        inactive_age_limit: 0.0,
        ..settings()
    });
    let ids = ended(&mut bench, 5);
    let due = bench.manager.deadline().unwrap();
    assert!(due <= bench.now);
    bench.manager.advance(bench.now);
    bench.manager.flush().unwrap();
    assert_eq!(purged(&mut bench), ids[..3]);
    assert_eq!(bench.manager.deadline(), None);

    let mut bench = Bench::with(Settings {
        inactive_age_limit: 100.0,
        ..settings()
    });
    let ids = ended(&mut bench, 2);
    let oldest = bench.row(ids[0])["t_inactive"].as_f64().unwrap();
    let due = bench.manager.deadline().unwrap();
    assert!((oldest + 100.0..oldest + 100.1).contains(&due), "{due}");
    bench.manager.advance(due - 1.0);
    assert!(bench.manager.take_purged().is_empty());
    bench.manager.advance(due);
    assert_eq!(purged(&mut bench), ids[..1]);
    assert!(bench.manager.deadline().unwrap() > due);
}

#[test]
fn history_is_the_users_own_the_newest_first() {
    let mut bench = Bench::with(Settings {
        guests: true,
        ..settings()
    });
    let (first, _) = bench.submit(&json!({}));
    let (second, _) = bench.submit(&json!({}));
    let mut slice = |userid, payload: Value| {
        let out = bench.request_as("x", userid, "job-manager.history.get", &payload, 0);
        if out[0].errnum() == 0 {
            body(&out[0])["jobs"].clone()
        } else {
            json!(out[0].errnum())
        }
    };
    assert_eq!(slice(OWNER, json!({"slice": "[:1]"})), json!([second]));
    assert_eq!(
        slice(OWNER, json!({"slice": "[:]"})),
        json!([second, first])
    );
    assert_eq!(slice(OWNER, json!({"slice": "[-1:]"})), json!([first]));
    assert_eq!(slice(7, json!({"slice": "[:]"})), json!([]));
    assert_eq!(slice(7, json!({"slice": "[:]", "userid": OWNER})), json!(1));
    assert_eq!(slice(OWNER, json!({"slice": "1"})), json!(22));
    let copies = json!({"jobspec": common::jobspec(&json!({})), "count": 1000});
    let mut out = bench.request("job-ingest.submit", &copies);
    out.extend(bench.advance());
    let oldest = body(&out[0])["ids"][0].clone();
    let mut out = bench.request("job-manager.history.get", &json!({"slice": "[:]"}));
    out.extend(bench.rest());
    let jobs = body(&out[0])["jobs"].as_array().unwrap().clone();
    assert_eq!((jobs.len(), &jobs[999]), (1000, &oldest));
    // Few jobs of a user are searched among those of others in slices.
    let (of_guest, _) = {
        let spec = json!({"jobspec": common::jobspec(&json!({}))});
        let out = bench.request_as("x", 7, "job-ingest.submit", &spec, 0);
        (body(&out[0])["id"].clone(), out)
    };
    bench.request("job-ingest.submit", &copies);
    bench.advance();
    let mut out = bench.request_as(
        "x",
        7,
        "job-manager.history.get",
        &json!({"slice": "[:]"}),
        0,
    );
    let mut slices = 0;
    while bench.manager.has_more() {
        assert!(out.is_empty());
        out.extend(bench.manager.flush().unwrap());
        slices += 1;
    }
    assert_eq!(body(&out[0])["jobs"], json!([of_guest]));
    assert!(slices > 20, "{slices}");
    for tag in 0..5 {
        let out = bench.request_as(
            "y",
            7,
            "job-manager.history.get",
            &json!({"slice": "[:]"}),
            0,
        );
        let errnums = out.iter().map(penstock_wire::Message::errnum);
        // The first slice of another one was done meanwhile.
        assert_eq!(
            errnums.collect::<Vec<_>>(),
            if tag < 4 { vec![] } else { vec![11] }
        );
    }
    bench.request_as("y", 7, "job-manager.disconnect", &json!({}), 0);
    assert!(!bench.manager.has_more());
    // The response would be cut.
    let mut request = |slice: &str| {
        let mut out = bench.request("job-manager.history.get", &json!({ "slice": slice }));
        out.extend(bench.rest());
        out
    };
    for slice in [
        "[:1001]",
        "[1000:]",
        "[1000]",
        "[1000:500:-1]",
        "[1000::-1]",
        "[-1]",
        "[:-1]",
    ] {
        let (errnum, text) = common::rejection(&request(slice));
        let expected = format!(
            "slice `{slice}` goes beyond the 1000 newest jobs of user {OWNER}: lists show the others"
        );
        assert_eq!((errnum, text), (22, expected));
    }
    for (slice, count) in [
        ("[:1000]", 1000),
        ("[990:1000]", 10),
        ("[999:0:-1]", 999),
        ("[999:500:-1]", 499),
        ("[500:]", 500),
        ("[::-1]", 1000),
    ] {
        let jobs = body(&request(slice)[0])["jobs"].clone();
        assert_eq!(jobs.as_array().map(Vec::len), Some(count), "{slice}");
    }
}

#[test]
fn drain_waits_for_the_last_active_job_and_idle_for_the_last_running_one() {
    let mut bench = Bench::new();
    for topic in ["job-manager.drain", "job-manager.idle"] {
        let out = bench.request(topic, &Value::Null);
        assert_eq!((out.len(), out[0].errnum()), (1, 0), "{topic}");
    }
    bench.scheduler(None);
    bench.executor();
    let (pending, _) = bench.submit(&json!({}));
    bench.request("job-manager.urgency", &json!({"id": pending, "urgency": 0}));
    bench.answer("sched.alloc", &json!({"id": pending, "type": 3}));
    let running = bench.running(&json!({}));
    assert!(
        bench
            .request_as("a", OWNER, "job-manager.drain", &json!({}), 0)
            .is_empty()
    );
    assert!(
        bench
            .request_as("b", OWNER, "job-manager.idle", &json!({}), 0)
            .is_empty()
    );
    assert!(
        bench
            .request_as("c", OWNER, "job-manager.drain", &json!({}), 0)
            .is_empty()
    );
    bench.request_as("c", OWNER, "job-manager.disconnect", &json!({}), 0);
    let out = bench.end(running, 0);
    let answered: Vec<_> = out.iter().map(penstock_wire::Message::topic).collect();
    assert_eq!(answered, ["sched.free", "job-manager.idle"]);
    assert_eq!(common::body(&out[1]), json!({"pending": 1}));
    let out = bench.request(
        "job-manager.raise",
        &json!({"id": pending, "type": "cancel"}),
    );
    let drained = out
        .iter()
        .filter(|message| message.topic() == "job-manager.drain");
    assert_eq!(drained.count(), 1, "the one who went away gets no answer");
}

#[test]
fn one_queue_is_drained_without_the_other() {
    let queue = || ("batch".to_owned(), penstock_manager::Queue::default());
    let other = ("debug".to_owned(), penstock_manager::Queue::default());
    let mut bench = Bench::with(Settings {
        queues: [queue(), other].into_iter().collect(),
        ..settings()
    });
    bench.submit(&json!({"queue": "debug"}));
    let out = bench.request("job-manager.drain", &json!({"name": "batch"}));
    assert_eq!(out.len(), 1);
    assert!(
        bench
            .request("job-manager.drain", &json!({"name": "debug"}))
            .is_empty()
    );
    let out = bench.request("job-manager.idle", &json!({"name": "nosuch"}));
    assert_eq!(rejection(&out).0, 2);
}

#[test]
fn lists_filter_by_hosts_ranks_results_and_times() {
    let mut bench = Bench::new();
    let ids = ended(&mut bench, 2);
    let failed = bench.running(&json!({}));
    bench.end(failed, 256);
    let (pending, _) = bench.submit(&json!({}));
    let late = bench.row(ids[1])["t_run"].as_f64().unwrap();
    let mut listed = |constraint: Value| {
        let payload = json!({"attrs": ["id"], "constraint": constraint, "order": "newest"});
        let out = bench.request_as("x", OWNER, "job-list.list", &payload, STREAMING);
        if out[0].errnum() == 22 {
            return Err(rejection(&out).1);
        }
        let jobs = if out.len() == 1 {
            json!([])
        } else {
            body(&out[0])["jobs"].clone()
        };
        let jobs = jobs.as_array().unwrap().clone();
        Ok(jobs
            .iter()
            .map(|job| job["id"].as_u64().unwrap())
            .collect::<Vec<_>>())
    };
    let ran = vec![failed, ids[1], ids[0]];
    let all = vec![pending, failed, ids[1], ids[0]];
    let cases = [
        (json!({}), all.clone()),
        (json!({"hostlist": ["n1"]}), ran.clone()),
        (json!({"hostlist": ["n[7-9]", "n0"]}), ran.clone()),
        (json!({"hostlist": ["n[2-9]"]}), vec![]),
        (json!({"ranks": ["1-3"]}), ran.clone()),
        (json!({"ranks": ["2", "3"]}), vec![]),
        (json!({"results": ["failed"]}), vec![failed]),
        (json!({"results": [3]}), ran.clone()),
        (
            json!({"t_run": [format!(">={late}")]}),
            vec![failed, ids[1]],
        ),
        (json!({"t_run": [format!(">{late}")]}), vec![failed]),
        (
            json!({"t_run": [format!("<={late}")]}),
            vec![ids[1], ids[0]],
        ),
        (json!({"t_run": [format!("<{late}")]}), vec![ids[0]]),
        (json!({"t_submit": [">0"]}), all.clone()),
        (json!({"t_depend": [">0"]}), all),
        (json!({"t_cleanup": [">0"]}), ran.clone()),
        (json!({"t_inactive": [">0"]}), ran),
        (json!({"not": [{"t_inactive": [">0"]}]}), vec![pending]),
    ];
    for (constraint, expected) in cases {
        let shown = constraint.to_string();
        assert_eq!(listed(constraint).as_ref(), Ok(&expected), "{shown}");
    }
    for wrong in [
        json!({"t_run": ["5"]}),
        json!({"t_run": [5]}),
        json!({"t_run": [">=5", "<6"]}),
        json!({"t_run": [">=x"]}),
        json!({"ranks": ["x"]}),
        json!({"hostlist": ["n["]}),
        json!({"nosuch": []}),
    ] {
        let shown = wrong.to_string();
        assert!(listed(wrong).is_err(), "{shown}");
    }
}

#[test]
fn rows_have_the_wanted_attributes_and_every_attribute_is_listed() {
    let mut bench = Bench::new();
    let id = ended(&mut bench, 1)[0];
    let wanted = json!({"id": id, "attrs": ["name", "nodelist", "nosuch"]});
    let out = bench.request("job-list.list-id", &wanted);
    let expected = json!({"id": id, "name": "true", "nodelist": "n[0-1]"});
    assert_eq!(body(&out[0])["job"], expected);
    let out = bench.request("job-list.list-attrs", &json!({}));
    let attrs = body(&out[0])["attrs"].as_array().unwrap().clone();
    for name in bench.row(id).as_object().unwrap().keys() {
        assert!(attrs.contains(&json!(name)), "{name}");
    }
}

#[test]
fn every_service_echoes_a_ping_and_tells_its_numbers() {
    let mut bench = Bench::new();
    for service in ["job-manager", "job-list", "job-info", "job-ingest", "kvs"] {
        let ping = json!({"seq": 7, "pad": "xxxx"});
        let out = bench.request(&format!("{service}.ping"), &ping);
        let echo = body(&out[0]);
        for key in ["seq", "pad"] {
            assert_eq!(echo[key], ping[key], "{service}");
        }
        assert_eq!(
            (&echo["userid"], &echo["route"]),
            (&json!(1000), &json!("client!broker"))
        );
        let out = bench.request(&format!("{service}.stats-get"), &json!({}));
        let stats = body(&out[0]);
        for key in ["active_jobs", "inactive_jobs", "max_jobid"] {
            assert_eq!(stats[key], 0, "{service} {key}");
        }
    }
}

#[test]
fn the_space_of_purged_jobs_is_released_in_slices() {
    let directory = Directory::new("released");
    let mut bench = directory.open(settings(), 1000.0);
    let megabyte = "a".repeat(1 << 20);
    for index in 0..16 {
        let site = json!({"site": format!("{index}{megabyte}")});
        let (id, _) = bench.submit(&site);
        let cancel = json!({"id": id, "type": "cancel", "severity": 0});
        bench.request("job-manager.raise", &cancel);
    }
    let stats = |bench: &mut Bench| {
        let stats = body(&bench.request("job-manager.stats-get", &json!({}))[0]);
        ["store_bytes", "store_free_bytes", "store_released_bytes"]
            .map(|key| stats[key].as_u64().unwrap())
    };
    let [full, free, released] = stats(&mut bench);
    assert!(full > 16 << 20, "{full}");
    assert!(free < 1 << 20, "{free}");
    assert_eq!(released, 0);
    bench.advance();
    purge(&mut bench, &json!({"force": true}));
    let [mut before, ..] = stats(&mut bench);
    assert_eq!(before, full);
    let mut slices = 0;
    let mut last = 0.0;
    while let Some(deadline) = bench.manager.deadline() {
        // Others are served between two slices.
        assert!(deadline > last);
        bench.now = bench.now.max(deadline);
        last = bench.now;
        bench.manager.advance(bench.now);
        bench.manager.flush().unwrap();
        let [after, ..] = stats(&mut bench);
        // A slice has 100 pages, and one that says where others are may go with them.
        assert!(before - after <= 102 * 4096, "{before} {after}");
        before = after;
        slices += 1;
    }
    assert!(slices > 20, "{slices}");
    let [size, free, released] = stats(&mut bench);
    assert!(size < full / 2, "{size} of {full}");
    // Enough for some jobs stays.
    assert_eq!(free, 4 << 20);
    assert!(
        full - size - released <= 10 * 4096,
        "{full} {size} {released}"
    );
}

#[test]
fn space_that_was_free_before_a_restart_is_released() {
    let directory = Directory::new("released-later");
    let mut bench = directory.open(settings(), 1000.0);
    let megabyte = "a".repeat(1 << 20);
    for index in 0..8 {
        let site = json!({"site": format!("{index}{megabyte}")});
        let (id, _) = bench.submit(&site);
        let cancel = json!({"id": id, "type": "cancel", "severity": 0});
        bench.request("job-manager.raise", &cancel);
    }
    purge(&mut bench, &json!({"force": true}));
    drop(bench);
    let mut bench = directory.open(settings(), 2000.0);
    let full = bench.manager.store().space().unwrap();
    while let Some(deadline) = bench.manager.deadline() {
        bench.now = bench.now.max(deadline);
        bench.manager.advance(bench.now);
        bench.manager.flush().unwrap();
    }
    let space = bench.manager.store().space().unwrap();
    assert!(space.pages + 900 < full.pages, "{space:?} of {full:?}");
}

/// Jobs that start after others have ended well.
fn dependents(antecedents: &[u64]) -> Value {
    let on = |id: &u64| json!({"scheme": "afterok", "value": id.to_string()});
    let on: Vec<_> = antecedents.iter().map(on).collect();
    json!({ "dependencies": on })
}

#[test]
fn a_job_to_which_an_open_submission_refers_is_purged_after_the_release_of_its_dependents() {
    for limit in [-1, 0] {
        let mut bench = Bench::new();
        let antecedents = ended(&mut bench, 2);
        let copies = json!({"jobspec": jobspec(&dependents(&antecedents)), "count": JOBS});
        let mut out = submit_as(&mut bench, "client", &copies);
        let purged_later = if limit == 0 {
            let inactive_num_limit = 0;
            let settings = Settings {
                inactive_num_limit,
                ..settings()
            };
            bench.manager.set_settings(settings, bench.now);
            bench.now += 1.0;
            Vec::new()
        } else {
            let purge = json!({"ids": antecedents, "force": true});
            bench.request_as("owner", OWNER, "job-manager.purge", &purge, 0)
        };
        assert!(responses(&purged_later, "job-manager.purge").is_empty());
        while responses(&out, "job-ingest.submit").is_empty() {
            assert_eq!(purged(&mut bench), [0; 0]);
            out.extend(bench.pass(0.0));
        }
        // The jobs are visible, and most have not entered their dependencies.
        assert_eq!(purged(&mut bench), [0; 0]);
        let first = ids(&out)[0];
        out.extend(bench.advance());
        bench.now += 1.0;
        out.extend(bench.advance());
        assert_eq!(purged(&mut bench), antecedents);
        let states = body(&bench.request("job-list.job-stats", &json!({}))[0]);
        assert_eq!(states["job_states"]["inactive"], 0);
        assert_eq!(states["job_states"]["sched"], JOBS);
        assert_eq!(bench.row(first)["state"], 8);
        let answered = responses(&out, "job-manager.purge");
        assert_eq!(answered.len(), usize::from(limit != 0));
    }
}

#[test]
fn a_purge_leaves_out_jobs_to_which_a_submission_refers_whose_parts_are_missing() {
    let mut bench = Bench::new();
    let jobs = ended(&mut bench, 3);
    let part = |number: usize, more: bool| {
        let dependent = json!({"jobspec": jobspec(&dependents(&jobs[..1]))});
        json!({"token": "a", "part": number, "more": more, "jobs": [dependent]})
    };
    assert_eq!(
        part_results(&send_part(&mut bench, "client", &part(0, true))).len(),
        1
    );
    let named = json!({"ids": [jobs[0], jobs[1]], "force": true});
    assert_eq!(
        purge(&mut bench, &named),
        json!({"count": 1, "inactives": 2})
    );
    let all = json!({"num_limit": 0, "force": true});
    assert_eq!(purge(&mut bench, &all), json!({"count": 1, "inactives": 1}));
    assert_eq!(purged(&mut bench), jobs[1..]);
    let inactive_num_limit = 0;
    bench.manager.set_settings(
        Settings {
            inactive_num_limit,
            ..settings()
        },
        bench.now,
    );
    bench.now += 1.0;
    bench.advance();
    assert!(!bench.is_due());
    assert_eq!(known(&mut bench), jobs[..1]);
    let results = part_results(&send_part(&mut bench, "client", &part(1, false)));
    let dependent = results[0].as_u64().unwrap();
    assert_eq!(bench.row(dependent)["state"], 8);
    bench.now += 1.0;
    bench.advance();
    assert_eq!(purged(&mut bench), jobs[..1]);
}

/// Two jobs of user 7, one of user 8 and one of the owner that have ended, the oldest first.
fn ended_of_users(bench: &mut Bench) -> Vec<u64> {
    let mut jobs = Vec::new();
    for user in [7, 8, OWNER, 7] {
        let spec = jobspec(&json!({}));
        let submission = json!({"jobspec": spec, "urgency": 0});
        let out = bench.request_as("client", user, "job-ingest.submit", &submission, 0);
        let id = body(&out[0])["id"].as_u64().unwrap();
        let cancel = json!({"id": id, "type": "cancel", "severity": 0, "note": ""});
        bench.request("job-manager.raise", &cancel);
        jobs.push(id);
    }
    jobs
}

#[test]
fn the_jobs_of_one_user_are_purged_by_the_user_or_the_owner() {
    let mut bench = Bench::with(Settings {
        guests: true,
        ..settings()
    });
    let jobs = ended_of_users(&mut bench);
    let own = |bench: &mut Bench, payload: Value| {
        bench.request_as("guest", 7, "job-manager.purge", &payload, 0)
    };
    let counted = json!({"count": 2, "inactives": 2});
    assert_eq!(body(&own(&mut bench, json!({}))[0]), counted);
    assert_eq!(purge(&mut bench, &json!({"userid": 7})), counted);
    for payload in [
        json!({"ids": [jobs[0], jobs[1]], "force": true}),
        json!({"ids": [jobs[2]]}),
        json!({"userid": 8}),
    ] {
        assert_eq!(rejection(&own(&mut bench, payload)).0, EPERM);
    }
    assert!(purged(&mut bench).is_empty());
    // The limits are about the jobs of the user: one of the two is left.
    let gone = purge(
        &mut bench,
        &json!({"userid": 7, "num_limit": 1, "force": true}),
    );
    assert_eq!(gone, json!({"count": 1, "inactives": 1}));
    assert_eq!(purged(&mut bench), jobs[..1]);
    let gone = own(&mut bench, json!({"age_limit": 1e6, "force": true}));
    assert_eq!(body(&gone[0]), json!({"count": 0, "inactives": 1}));
    let gone = own(&mut bench, json!({"ids": [jobs[3]], "force": true}));
    assert_eq!(body(&gone[0])["count"], 1);
    let gone = purge(&mut bench, &json!({"userid": 8, "force": true}));
    assert_eq!(gone, json!({"count": 1, "inactives": 0}));
    assert_eq!(known(&mut bench), [jobs[2]]);
    let by_id = json!({"id": jobs[2], "force": 1});
    let out = bench.request_as("guest", 7, "job-manager.purge-id", &by_id, 0);
    assert_eq!(rejection(&out).0, EPERM);
}

#[test]
fn the_jobs_of_a_user_are_looked_for_in_slices() {
    let mut bench = Bench::with(Settings {
        guests: true,
        ..settings()
    });
    let jobs = ended_of_users(&mut bench);
    bench.submit_copies(&json!({}), 1000);
    let cancel = json!({"all": true, "type": "cancel", "severity": 0, "note": ""});
    bench.request("job-manager.raise", &cancel);
    bench.advance();
    let payload = json!({"force": true});
    let mut open = bench.request_as("guest", 7, "job-manager.purge", &payload, 0);
    assert!(open.is_empty());
    // A guest has few of them at a time.
    for _ in 0..3 {
        assert!(
            bench
                .request_as("guest", 7, "job-manager.purge", &payload, 0)
                .is_empty()
        );
    }
    let out = bench.request_as("guest", 7, "job-manager.purge", &payload, 0);
    assert_eq!(rejection(&out).0, EAGAIN);
    open.extend(bench.advance());
    let mut counts: Vec<u64> = open
        .iter()
        .map(|response| body(response)["count"].as_u64().unwrap())
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, 0, 2]);
    assert_eq!(purged(&mut bench), [jobs[0], jobs[3]]);
}
