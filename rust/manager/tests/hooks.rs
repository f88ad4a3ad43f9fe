//! Prolog and epilog (RFC 21): no job starts before its prolog, no resources are freed before its
//! epilog.

mod common;

use common::{Bench, Directory, body, rejection, settings, topics};
use penstock_flux::errno::EIO;
use penstock_manager::Settings;
use serde_json::{Value, json};

fn hooked() -> Settings {
    Settings {
        prolog: true,
        epilog: true,
        ..settings()
    }
}

fn ready(settings: Settings) -> Bench {
    let mut bench = Bench::with(settings);
    bench.scheduler(None);
    bench.executor();
    bench
}

/// An allocation of whole ranks.
fn allocate(bench: &mut Bench, id: u64, ranks: &str) -> Vec<penstock_wire::Message> {
    let r = json!({"version": 1, "execution": {
        "R_lite": [{"rank": ranks, "children": {"core": "0"}}],
        "nodelist": [format!("n[{ranks}]")], "starttime": 0.0, "expiration": 0.0}});
    assert_eq!(bench.commit_r(id, &r.to_string())[0].errnum(), 0);
    bench.answer("sched.alloc", &json!({"id": id, "type": 0}))
}

fn done(status: i64, note: &str) -> Value {
    json!({"status": status, "note": note})
}

#[test]
fn a_job_goes_through_prolog_and_epilog() {
    let mut bench = ready(hooked());
    let (id, _) = bench.submit(&json!({}));
    let out = bench.allocate(id);
    assert_eq!(topics(&out), ["hooks.prolog"]);
    let request = body(&out[0]);
    assert_eq!(
        (&request["id"], &request["userid"]),
        (&json!(id), &json!(1000))
    );
    assert_eq!(request["R"]["execution"]["nodelist"][0], "n[0-1]");
    assert_eq!(bench.row(id)["state"], 16);
    let out = bench.reply(&out, "hooks.prolog", &done(0, ""));
    assert_eq!(topics(&out), ["job-exec.start"]);
    bench.exec(id, "start", &json!({}));
    assert!(bench.exec(id, "finish", &json!({"status": 0})).is_empty());
    let out = bench.exec(id, "release", &json!({"ranks": "1", "final": false}));
    assert!(out.is_empty(), "kept for the epilog");
    let out = bench.exec(id, "release", &json!({"ranks": "0", "final": true}));
    assert_eq!(topics(&out), ["hooks.epilog"]);
    assert_eq!(bench.row(id)["state"], 32);
    let out = bench.reply(&out, "hooks.epilog", &done(0, ""));
    assert_eq!(topics(&out), ["sched.free"]);
    assert_eq!(body(&out[0])["R"]["execution"]["R_lite"][0]["rank"], "0-1");
    assert_eq!(body(&out[0])["final"], true);
    assert_eq!(
        bench.events(id)[4..],
        [
            "alloc",
            "prolog-start",
            "prolog-finish",
            "start",
            "finish",
            "release",
            "release",
            "epilog-start",
            "epilog-finish",
            "free",
            "clean"
        ]
    );
    let log = bench.log(id);
    assert_eq!(log[5]["context"], json!({"description": "prolog"}));
    assert_eq!(
        log[6]["context"],
        json!({"description": "prolog", "status": 0})
    );
    assert_eq!(bench.row(id)["result"], 1);
}

#[test]
fn a_failing_prolog_fails_the_job_which_still_gets_its_epilog() {
    let mut bench = ready(hooked());
    let (id, _) = bench.submit(&json!({}));
    let out = bench.allocate(id);
    let out = bench.reply(&out, "hooks.prolog", &done(256, "prolog: exit code 1"));
    assert_eq!(topics(&out), ["job-exception", "hooks.epilog"]);
    let out = bench.reply(&out, "hooks.epilog", &done(0, ""));
    assert_eq!(topics(&out), ["sched.free"]);
    let row = bench.row(id);
    assert_eq!(row["exception_type"], "prolog");
    assert_eq!(row["exception_note"], "prolog: exit code 1");
    assert_eq!((&row["state"], &row["result"]), (&json!(64), &json!(2)));
    assert!(!bench.events(id).contains(&"start".to_owned()));
}

#[test]
fn a_prolog_without_a_service_fails_the_job() {
    let mut bench = ready(Settings {
        prolog: true,
        ..settings()
    });
    let (id, _) = bench.submit(&json!({}));
    let out = bench.allocate(id);
    let out = bench.deny(&out, "hooks.prolog", 38, "no service");
    assert_eq!(topics(&out), ["job-exception", "sched.free"]);
    assert_eq!(
        bench.row(id)["exception_note"],
        "hooks.prolog failed: no service"
    );
}

#[test]
fn a_failing_epilog_is_reported_and_changes_nothing_else() {
    let mut bench = ready(Settings {
        epilog: true,
        ..settings()
    });
    let id = bench.running(&json!({}));
    let out = bench.end(id, 0);
    assert_eq!(topics(&out), ["hooks.epilog"]);
    let out = bench.reply(&out, "hooks.epilog", &done(9, "epilog: signal 9"));
    assert_eq!(topics(&out), ["job-exception", "sched.free"]);
    let row = bench.row(id);
    assert_eq!(
        (&row["result"], &row["exception_severity"]),
        (&json!(1), &json!(1))
    );
    let log = bench.manager.take_log();
    assert!(
        log.iter().any(|line| line.ends_with("epilog: signal 9")),
        "{log:?}"
    );
}

#[test]
fn a_cancel_ends_the_prolog_and_waits_for_its_end() {
    let mut bench = ready(hooked());
    let (id, _) = bench.submit(&json!({}));
    let prolog = bench.allocate(id);
    let cancel = json!({"id": id, "type": "cancel"});
    let out = bench.request("job-manager.raise", &cancel);
    assert_eq!(topics(&out), ["job-exception", "hooks.cancel"]);
    let request = out
        .iter()
        .find(|message| message.topic() == "hooks.cancel")
        .unwrap();
    assert_eq!(body(request), json!({ "id": id }));
    assert!(request.is_noresponse());
    // The cancellation is sent once, even if the job is cancelled repeatedly.
    assert_eq!(
        topics(&bench.request("job-manager.raise", &cancel)),
        ["job-exception"]
    );
    assert_eq!(
        bench.events(id)[5..],
        ["prolog-start", "exception", "exception"]
    );
    let out = bench.reply(&prolog, "hooks.prolog", &done(15, "prolog: signal 15"));
    assert_eq!(topics(&out), ["hooks.epilog"]);
    assert_eq!(bench.events(id)[8..], ["prolog-finish", "epilog-start"]);
    let out = bench.reply(&out, "hooks.epilog", &done(0, ""));
    assert_eq!(topics(&out), ["sched.free"]);
    let row = bench.row(id);
    assert_eq!((&row["state"], &row["result"]), (&json!(64), &json!(4)));
    assert!(!bench.events(id).contains(&"start".to_owned()));
}

#[test]
fn a_job_that_never_had_resources_has_no_hooks() {
    let mut bench = ready(hooked());
    let (id, _) = bench.submit(&json!({}));
    bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
    let out = bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
    assert!(topics(&out).is_empty());
    assert_eq!(bench.row(id)["state"], 64);
}

#[test]
fn without_hooks_nothing_is_requested_or_logged() {
    let mut bench = ready(settings());
    let id = bench.running(&json!({}));
    assert_eq!(topics(&bench.end(id, 0)), ["sched.free"]);
    let names = bench.events(id);
    assert!(!names.iter().any(|name| name.contains("log-")), "{names:?}");
}

/// RFC 21: its start is logged when it has started; until then what is released is kept all the
/// same, whether the tasks have been seen to run or not.
#[test]
fn an_epilog_starts_when_the_tasks_of_a_cancelled_job_are_gone() {
    let epilog = || Settings {
        epilog: true,
        ..settings()
    };
    for started in [true, false] {
        let mut bench = ready(epilog());
        let (id, _) = bench.submit(&json!({}));
        bench.allocate(id);
        if started {
            bench.exec(id, "start", &json!({}));
        }
        let out = bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
        assert_eq!(topics(&out), ["job-exception"]);
        assert_eq!(bench.events(id).last().unwrap(), "exception");
        let out = bench.exec(id, "release", &json!({"ranks": "1", "final": false}));
        assert!(out.is_empty(), "kept for the epilog");
        assert_eq!(bench.events(id).last().unwrap(), "release");
        let out = bench.exec(id, "release", &json!({"ranks": "0", "final": true}));
        assert_eq!(topics(&out), ["hooks.epilog"]);
        assert_eq!(bench.events(id).last().unwrap(), "epilog-start");
        let out = bench.reply(&out, "hooks.epilog", &done(0, ""));
        assert_eq!(topics(&out), ["sched.free"]);
        assert_eq!(body(&out[0])["R"]["execution"]["R_lite"][0]["rank"], "0-1");
    }
}

#[test]
fn a_job_whose_start_no_service_received_has_no_epilog() {
    let mut bench = ready(Settings {
        epilog: true,
        ..settings()
    });
    let (id, _) = bench.submit(&json!({}));
    assert_eq!(topics(&bench.allocate(id)), ["job-exec.start"]);
    // The broker's answer for a name that is not registered.
    bench.fail("job-exec.start", 38);
    let out = bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
    assert_eq!(topics(&out), ["job-exception", "sched.free"]);
    assert_eq!(bench.row(id)["state"], 64);
}

#[test]
fn ranks_retained_for_an_epilog_outlive_a_restart() {
    let directory = Directory::new("kept");
    let mut bench = directory.open(hooked(), 1000.0);
    bench.scheduler(None);
    bench.executor();
    let start = |bench: &mut Bench, ranks: &str| {
        let (id, _) = bench.submit(&json!({}));
        let out = allocate(bench, id, ranks);
        bench.reply(&out, "hooks.prolog", &done(0, ""));
        bench.exec(id, "start", &json!({}));
        id
    };
    let half = start(&mut bench, "0-1");
    let out = bench.exec(half, "release", &json!({"ranks": "1", "final": false}));
    assert!(out.is_empty());
    drop(bench);

    let mut bench = directory.open(hooked(), 2000.0);
    let hello = bench.scheduler(None);
    assert_eq!(body(&hello[0])["id"], json!(half));
    assert_eq!(body(&hello[0]).get("free"), None, "the epilog has not run");
    bench.executor();
    let out = bench.exec(half, "release", &json!({"ranks": "1", "final": false}));
    assert!(out.is_empty(), "released before");
    let out = bench.end(half, 0);
    assert_eq!(topics(&out), ["hooks.epilog"]);
    let out = bench.reply(&out, "hooks.epilog", &done(0, ""));
    assert_eq!(topics(&out), ["sched.free"]);
    assert_eq!(body(&out[0])["R"]["execution"]["R_lite"][0]["rank"], "0-1");
}

#[test]
fn ranks_are_kept_to_the_end_even_if_the_epilog_is_taken_away_meanwhile() {
    let mut bench = ready(hooked());
    let (id, _) = bench.submit(&json!({}));
    let out = bench.allocate(id);
    bench.reply(&out, "hooks.prolog", &done(0, ""));
    bench.exec(id, "start", &json!({}));
    bench.exec(id, "release", &json!({"ranks": "1", "final": false}));
    bench.manager.set_settings(settings(), bench.now);
    let out = bench.end(id, 0);
    assert_eq!(topics(&out), ["sched.free"]);
    assert_eq!(body(&out[0])["R"]["execution"]["R_lite"][0]["rank"], "0-1");
    assert_eq!(body(&out[0])["final"], true);
    assert_eq!(bench.row(id)["state"], 64);
}

#[test]
fn hooks_that_a_restart_cuts_off_run_again() {
    let directory = Directory::new("hooks");
    let mut bench = directory.open(hooked(), 1000.0);
    bench.scheduler(None);
    bench.executor();
    let (in_prolog, _) = bench.submit(&json!({}));
    allocate(&mut bench, in_prolog, "2");
    let (in_epilog, _) = bench.submit(&json!({}));
    let out = allocate(&mut bench, in_epilog, "0-1");
    bench.reply(&out, "hooks.prolog", &done(0, ""));
    bench.exec(in_epilog, "start", &json!({}));
    bench.exec(in_epilog, "finish", &json!({"status": 0}));
    bench.exec(in_epilog, "release", &json!({"ranks": "1", "final": false}));
    bench.exec(in_epilog, "release", &json!({"ranks": "0", "final": true}));
    let (cancelled, _) = bench.submit(&json!({}));
    allocate(&mut bench, cancelled, "3");
    bench.request(
        "job-manager.raise",
        &json!({"id": cancelled, "type": "cancel"}),
    );
    drop(bench);

    let (mut bench, mut out) = directory.reopen(hooked(), 2000.0);
    let hooks: Vec<_> = out
        .iter()
        .map(|message| (message.topic().to_owned(), body(message)["id"].clone()))
        .collect();
    assert!(
        hooks.contains(&("hooks.prolog".to_owned(), json!(in_prolog))),
        "{hooks:?}"
    );
    assert!(
        hooks.contains(&("hooks.epilog".to_owned(), json!(in_epilog))),
        "{hooks:?}"
    );
    // Its prolog is not run again: the job has ended. If only the job manager has restarted, the prolog may still run.
    assert!(
        hooks.contains(&("hooks.cancel".to_owned(), json!(cancelled))),
        "{hooks:?}"
    );
    assert_eq!(hooks.len(), 3);
    assert!(
        !bench
            .events(cancelled)
            .contains(&"prolog-finish".to_owned())
    );
    let ended = bench.reply(&out, "hooks.cancel", &json!({}));
    assert_eq!(topics(&ended), ["hooks.epilog"]);
    assert_eq!(body(&ended[0])["id"], json!(cancelled));
    out.retain(|message| message.topic() != "hooks.cancel");
    out.extend(ended);
    // Hello must announce all resources of these jobs as held.
    let hello = bench.scheduler(None);
    let held: Vec<_> = hello
        .iter()
        .take(3)
        .map(|message| body(message)["free"].clone())
        .collect();
    assert_eq!(held, [Value::Null, Value::Null, Value::Null]);
    bench.executor();
    out.retain(|message| body(message)["id"] == json!(in_prolog));
    let out = bench.reply(&out, "hooks.prolog", &done(0, ""));
    assert_eq!(topics(&out), ["job-exec.start"]);
    let starts = bench.events(in_prolog);
    assert_eq!(
        starts.iter().filter(|name| *name == "prolog-start").count(),
        1
    );
}

/// Registers the service `hooks` by a route. Returns the messages that follow.
fn serve_hooks(bench: &mut Bench, route: &str) -> Vec<penstock_wire::Message> {
    let services = [("hooks".to_owned(), route.into())];
    bench.manager.set_services(services.into());
    bench.manager.flush().unwrap()
}

#[test]
fn a_hook_of_a_service_that_has_failed_may_still_run() {
    let directory = Directory::new("failed-hooks");
    let mut bench = directory.open(hooked(), 1000.0);
    bench.scheduler(None);
    bench.executor();
    let (in_prolog, _) = bench.submit(&json!({}));
    allocate(&mut bench, in_prolog, "2");
    let (cancelled, _) = bench.submit(&json!({}));
    allocate(&mut bench, cancelled, "3");
    let cancel = json!({"id": cancelled, "type": "cancel"});
    bench.request("job-manager.raise", &cancel);
    drop(bench);

    // The job manager is built again while the service has failed: it rejects what it gets, and its commands continue.
    let (mut bench, out) = directory.reopen(hooked(), 2000.0);
    serve_hooks(&mut bench, "before");
    for topic in ["hooks.prolog", "hooks.cancel"] {
        let out = bench.deny(&out, topic, EIO, "the service has failed");
        assert!(out.is_empty(), "{:?}", topics(&out));
    }
    for id in [in_prolog, cancelled] {
        let names = bench.events(id);
        assert!(!names.contains(&"prolog-finish".to_owned()), "{names:?}");
    }
    assert!(serve_hooks(&mut bench, "before").is_empty());
    let out = serve_hooks(&mut bench, "after");
    assert_eq!(topics(&out), ["hooks.prolog", "hooks.cancel"]);
    let ended = bench.reply(&out, "hooks.cancel", &json!({}));
    assert_eq!(topics(&ended), ["hooks.epilog"]);
}

#[test]
fn a_cancellation_that_a_failed_service_may_not_have_got_is_sent_again() {
    let mut bench = ready(hooked());
    serve_hooks(&mut bench, "before");
    let (id, _) = bench.submit(&json!({}));
    bench.allocate(id);
    let out = bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
    assert_eq!(topics(&out), ["job-exception", "hooks.cancel"]);
    assert_eq!(topics(&serve_hooks(&mut bench, "after")), ["hooks.cancel"]);
}

#[test]
fn hooks_that_are_no_longer_configured_do_not_hold_anything() {
    let directory = Directory::new("no-hooks");
    let mut bench = directory.open(hooked(), 1000.0);
    bench.scheduler(None);
    bench.executor();
    let (in_prolog, _) = bench.submit(&json!({}));
    bench.allocate(in_prolog);
    drop(bench);
    let (mut bench, out) = directory.reopen(settings(), 2000.0);
    assert_eq!(topics(&out), ["hooks.cancel"]);
    bench.scheduler(None);
    assert!(topics(&bench.executor()).is_empty());
    let out = bench.reply(&out, "hooks.cancel", &json!({}));
    assert_eq!(topics(&out), ["job-exec.start"]);
    assert!(
        bench
            .events(in_prolog)
            .contains(&"prolog-finish".to_owned())
    );
}

#[test]
fn signals_reach_several_jobs_but_none_in_its_prolog() {
    let mut bench = ready(Settings {
        prolog: true,
        ..settings()
    });
    let (running, _) = bench.submit(&json!({}));
    let out = allocate(&mut bench, running, "0");
    bench.reply(&out, "hooks.prolog", &done(0, ""));
    let (in_prolog, _) = bench.submit(&json!({}));
    allocate(&mut bench, in_prolog, "1");
    let many = json!({"ids": [running, in_prolog, 5], "signum": 10});
    let out = bench.request("job-manager.kill", &many);
    assert_eq!(topics(&out), ["job-exec.kill"]);
    assert_eq!(body(&out[0]), json!({"id": running, "signum": 10}));
    let answer = body(&out[1]);
    assert_eq!(answer["count"], 1);
    let errors = answer["errors"].as_object().unwrap();
    let text = errors[&in_prolog.to_string()].as_str().unwrap();
    assert!(text.ends_with("is not running"), "{text}");
    assert_eq!(errors.len(), 2);
    let nothing = json!({"signum": 10});
    assert_eq!(
        rejection(&bench.request("job-manager.kill", &nothing)).0,
        22
    );
}
