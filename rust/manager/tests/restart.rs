//! A job whose start request was sent and not answered may be running: a restart of the instance and the
//! loss of the service keep that in mind, until a service has said that nothing runs.

mod common;

use std::collections::BTreeMap;

use common::{Bench, Directory, OWNER, R, Random, body, jobspec, rejection, settings, topics};
use penstock_flux::RequestError;
use penstock_manager::{Manager, Settings};
use penstock_wire::Message;
use serde_json::{Value, json};

fn nothing() -> Value {
    json!({})
}

fn ready(directory: &Directory, settings: Settings) -> Bench {
    let mut bench = directory.open(settings, 1000.0);
    bench.scheduler(None);
    bench
}

/// The jobs of the start requests in `out`, with `reattach`.
fn starts(out: &[Message]) -> Vec<(u64, bool)> {
    let starts = out.iter().filter(|message| message.method() == "start");
    starts
        .map(|message| {
            let start = body(message);
            let id = start["id"].as_u64().unwrap();
            (id, start["reattach"].as_bool().unwrap())
        })
        .collect()
}

fn cancel(bench: &mut Bench, id: u64) -> Vec<Message> {
    bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}))
}

fn disconnect_service(bench: &mut Bench) -> Vec<Message> {
    bench.request_as("exec", OWNER, "job-manager.disconnect", &Value::Null, 4)
}

/// Responds to a start request that nothing runs: the job is lost.
fn lose(bench: &mut Bench, id: u64) -> Vec<Message> {
    let lost = json!({"severity": 0, "type": "exec", "note": "lost"});
    bench.exec(id, "exception", &lost);
    bench.exec(id, "release", &json!({"ranks": "all", "final": true}))
}

#[test]
fn a_start_that_was_not_answered_before_a_restart_has_reattach() {
    let directory = Directory::new("unanswered");
    let mut bench = ready(&directory, settings());
    bench.executor();
    let (id, _) = bench.submit(&nothing());
    assert_eq!(starts(&bench.allocate(id)), [(id, false)]);
    drop(bench);
    let mut bench = ready(&directory, settings());
    assert_eq!(bench.row(id)["state"], 16);
    assert_eq!(starts(&bench.executor()), [(id, true)]);
    // The service has started it.
    bench.exec(id, "reattached", &nothing());
    assert_eq!(bench.events(id).last().unwrap(), "start");
    assert_eq!(topics(&bench.end(id, 0)), ["sched.free"]);
    assert_eq!(bench.row(id)["result"], 1);
}

#[test]
fn a_start_that_was_never_sent_has_no_reattach_after_a_restart() {
    let directory = Directory::new("unsent");
    let mut bench = ready(&directory, settings());
    let (id, _) = bench.submit(&nothing());
    assert_eq!(starts(&bench.allocate(id)), []);
    for _ in 0..2 {
        drop(bench);
        bench = ready(&directory, settings());
    }
    assert_eq!(starts(&bench.executor()), [(id, false)]);
    // From now on it may be running.
    drop(bench);
    let mut bench = ready(&directory, settings());
    assert_eq!(starts(&bench.executor()), [(id, true)]);
}

#[test]
fn a_start_that_no_service_received_has_no_reattach_after_a_restart() {
    let directory = Directory::new("enosys");
    let mut bench = ready(&directory, settings());
    bench.executor();
    let (id, _) = bench.submit(&nothing());
    bench.allocate(id);
    bench.fail("job-exec.start", 38);
    drop(bench);
    let mut bench = ready(&directory, settings());
    assert_eq!(starts(&bench.executor()), [(id, false)]);
}

#[test]
fn a_job_in_its_prolog_was_not_started_before_a_restart() {
    let settings = || Settings {
        prolog: true,
        ..settings()
    };
    let directory = Directory::new("prolog");
    let mut bench = ready(&directory, settings());
    bench.executor();
    let (id, _) = bench.submit(&nothing());
    assert_eq!(topics(&bench.allocate(id)), ["hooks.prolog"]);
    drop(bench);
    let (mut bench, out) = directory.reopen(settings(), 2000.0);
    assert_eq!(topics(&out), ["hooks.prolog"]);
    bench.executor();
    let done = json!({"status": 0, "note": ""});
    let out = bench.reply(&out, "hooks.prolog", &done);
    assert_eq!(starts(&out), [(id, false)]);
    drop(bench);
    let (mut bench, out) = directory.reopen(settings(), 3000.0);
    assert_eq!(topics(&out), [""; 0], "the prolog has run");
    assert_eq!(starts(&bench.executor()), [(id, true)]);
}

#[test]
fn a_cancelled_job_that_may_be_running_keeps_its_resources_until_it_is_released() {
    for restarts in [false, true] {
        let directory = Directory::new(&format!("cancelled-{restarts}"));
        let mut bench = ready(&directory, settings());
        bench.executor();
        let (id, _) = bench.submit(&nothing());
        bench.allocate(id);
        assert_eq!(topics(&disconnect_service(&mut bench)), [""; 0]);
        assert_eq!(topics(&cancel(&mut bench, id)), ["job-exception"]);
        assert_eq!(bench.row(id)["state"], 32);
        if restarts {
            drop(bench);
            bench = directory.open(settings(), 2000.0);
            let hello = bench.scheduler(None);
            assert_eq!(body(&hello[0])["id"], json!(id), "announced as allocated");
            assert_eq!(bench.row(id)["state"], 32);
        }
        // Its resources cannot be allocated to another job.
        let (other, _) = bench.submit(&nothing());
        assert_eq!(bench.commit_r(other, R)[0].errnum(), 22);
        let out = bench.executor();
        assert_eq!(topics(&out), ["job-exec.start", "job-exception"]);
        assert_eq!(starts(&out), [(id, true)]);
        assert_eq!(topics(&lose(&mut bench, id)), ["sched.free"]);
        assert_eq!(bench.row(id)["state"], 64);
        assert_eq!(bench.row(id)["result"], 4);
        assert_eq!(starts(&bench.allocate(other)), [(other, false)]);
    }
}

#[test]
fn a_cancelled_job_that_was_never_sent_is_freed_at_once() {
    let directory = Directory::new("cancelled-unsent");
    let mut bench = ready(&directory, settings());
    let (id, _) = bench.submit(&nothing());
    bench.allocate(id);
    drop(bench);
    let mut bench = ready(&directory, settings());
    let out = cancel(&mut bench, id);
    assert_eq!(topics(&out), ["job-exception", "sched.free"]);
    assert_eq!(bench.row(id)["state"], 64);
    assert_eq!(starts(&bench.executor()), []);
    drop(bench);
    let store = directory.store();
    assert_eq!(store.unsent_starts().unwrap(), []);
}

#[test]
fn the_epilog_of_a_cancelled_job_that_may_be_running_comes_after_its_release() {
    let settings = || Settings {
        epilog: true,
        ..settings()
    };
    let directory = Directory::new("epilog");
    let mut bench = ready(&directory, settings());
    bench.executor();
    let (id, _) = bench.submit(&nothing());
    bench.allocate(id);
    cancel(&mut bench, id);
    drop(bench);
    let (mut bench, out) = directory.reopen(settings(), 2000.0);
    assert_eq!(topics(&out), [""; 0]);
    assert_eq!(starts(&bench.executor()), [(id, true)]);
    assert_eq!(topics(&lose(&mut bench, id)), ["hooks.epilog"]);
    drop(bench);
    // The epilog shows that nothing runs.
    let (mut bench, out) = directory.reopen(settings(), 3000.0);
    assert_eq!(topics(&out), ["hooks.epilog"]);
    assert_eq!(starts(&bench.executor()), []);
}

/// A service with a journal says hello. Returns the start requests: job, `reattach`, `journal`.
fn hello_with(bench: &mut Bench, journal: &Value) -> Vec<(u64, bool, Value)> {
    let hello = json!({"service": "job-exec", "journal": journal});
    let out = bench.request_as("exec", OWNER, "job-manager.exec-hello", &hello, 0);
    let journals = out.iter().filter(|message| message.method() == "start");
    let journals = journals.map(|message| body(message)["journal"].clone());
    let starts = starts(&out).into_iter().zip(journals);
    starts
        .map(|((id, reattach), journal)| (id, reattach, journal))
        .collect()
}

#[test]
fn a_start_with_reattach_names_the_one_journal_that_may_have_the_job() {
    let directory = Directory::new("journal");
    let mut bench = ready(&directory, settings());
    assert_eq!(hello_with(&mut bench, &json!("a")), []);
    let (id, _) = bench.submit(&nothing());
    let out = bench.allocate(id);
    assert_eq!(
        body(&out[0]).get("journal"),
        None,
        "no service had it before"
    );
    // The service starts again, then the instance.
    assert_eq!(
        hello_with(&mut bench, &json!("a")),
        [(id, true, json!("a"))]
    );
    drop(bench);
    bench = ready(&directory, settings());
    assert_eq!(
        hello_with(&mut bench, &json!("a")),
        [(id, true, json!("a"))]
    );
    // A job that has started is in the journal, or lost.
    bench.exec(id, "start", &nothing());
    assert_eq!(
        hello_with(&mut bench, &json!("a")),
        [(id, true, Value::Null)]
    );
    bench.exec(id, "reattached", &nothing());
    bench.end(id, 0);
    assert_eq!(bench.row(id)["state"], 64);
}

#[test]
fn a_job_that_two_journals_may_have_is_sent_without_one() {
    let directory = Directory::new("journals");
    for other in [json!("b"), Value::Null, json!("")] {
        let mut bench = ready(&directory, settings());
        assert_eq!(hello_with(&mut bench, &json!("a")), []);
        let (id, _) = bench.submit(&nothing());
        bench.allocate(id);
        assert_eq!(hello_with(&mut bench, &other), [(id, true, Value::Null)]);
        drop(bench);
        bench = ready(&directory, settings());
        for journal in [json!("a"), other] {
            let again = hello_with(&mut bench, &journal);
            assert_eq!(again, [(id, true, Value::Null)]);
        }
        // Afterwards the journal is known again.
        bench.exec(id, "reattached", &nothing());
        bench.end(id, 0);
        assert_eq!(hello_with(&mut bench, &json!("a")), []);
        let (id, _) = bench.submit(&nothing());
        bench.allocate(id);
        assert_eq!(
            hello_with(&mut bench, &json!("a")),
            [(id, true, json!("a"))]
        );
        bench.exec(id, "start", &nothing());
        bench.end(id, 0);
    }
}

/// A job of the history: what the services know of it.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// A service may have received a start request.
    was_sent: bool,
    /// A start request is outstanding.
    is_outstanding: bool,
    /// A service has sent the final release.
    is_released: bool,
}

/// A random history, with the knowledge of the services beside it.
struct History {
    bench: Bench,
    random: Random,
    jobs: BTreeMap<u64, Known>,
    has_service: bool,
}

impl History {
    /// Checks the messages of the manager against the knowledge of the services.
    fn check(&mut self, out: &[Message]) {
        for (id, reattach) in starts(out) {
            let known = self.jobs.get_mut(&id).unwrap();
            assert!(
                !known.is_outstanding && !known.is_released,
                "{id}: {known:?}"
            );
            assert_eq!(reattach, known.was_sent, "{id}: {known:?}");
            known.was_sent = true;
            known.is_outstanding = true;
        }
        for free in out.iter().filter(|message| message.topic() == "sched.free") {
            let id = body(free)["id"].as_u64().unwrap();
            let known = self.jobs[&id];
            assert!(!known.was_sent || known.is_released, "{id} may be running");
        }
    }

    fn any(&mut self, is_meant: impl Fn(&Known) -> bool) -> Option<u64> {
        let meant = self.jobs.iter().filter(|(_, known)| is_meant(known));
        let ids: Vec<u64> = meant.map(|(id, _)| *id).collect();
        let index = self.random.below(ids.len().max(1) as u64);
        ids.get(usize::try_from(index).unwrap()).copied()
    }

    fn lose_service(&mut self) {
        self.has_service = false;
        for known in self.jobs.values_mut() {
            known.is_outstanding = false;
        }
    }

    fn step(&mut self, directory: &Directory) {
        let out = match self.random.below(8) {
            0 | 1 => {
                let (id, _) = self.bench.submit(&nothing());
                self.jobs.insert(id, Known::default());
                let rank = self.jobs.len().to_string();
                let r = R
                    .replace("0-1", &rank)
                    .replace("n[0-1]", &format!("n{rank}"));
                assert_eq!(self.bench.commit_r(id, &r)[0].errnum(), 0);
                self.bench
                    .answer("sched.alloc", &json!({"id": id, "type": 0}))
            }
            2 => {
                self.lose_service();
                self.has_service = true;
                self.bench.executor()
            }
            3 => {
                self.lose_service();
                disconnect_service(&mut self.bench)
            }
            4 => {
                let Some(id) = self.any(|_| true) else {
                    return;
                };
                cancel(&mut self.bench, id)
            }
            5 => {
                let Some(id) = self.any(|known| known.is_outstanding) else {
                    return;
                };
                self.bench.exec(id, "start", &nothing())
            }
            6 => {
                let Some(id) = self.any(|known| known.is_outstanding) else {
                    return;
                };
                let known = self.jobs.get_mut(&id).unwrap();
                (known.is_released, known.is_outstanding) = (true, false);
                lose(&mut self.bench, id)
            }
            _ => {
                self.lose_service();
                let (now, tag) = (self.bench.now, self.bench.tag());
                drop(std::mem::replace(&mut self.bench, Bench::new()));
                let (bench, mut out) = directory.reopen(settings(), now);
                self.bench = bench.with_tag(tag);
                out.extend(self.bench.scheduler(None));
                out
            }
        };
        self.check(&out);
    }
}

#[test]
fn no_job_that_may_be_running_is_started_again_or_freed() {
    for seed in 1..=6 {
        let directory = Directory::new(&format!("random-{seed}"));
        let mut history = History {
            bench: ready(&directory, settings()),
            random: Random(seed),
            jobs: BTreeMap::new(),
            has_service: false,
        };
        for _ in 0..100 {
            history.step(&directory);
        }
        // In the end every job can be released.
        history.lose_service();
        let out = history.bench.executor();
        history.check(&out);
        let outstanding = history.jobs.iter();
        let outstanding = outstanding.filter(|(_, known)| known.is_outstanding);
        for id in outstanding.map(|(id, _)| *id).collect::<Vec<_>>() {
            history.jobs.get_mut(&id).unwrap().is_released = true;
            let out = lose(&mut history.bench, id);
            history.check(&out);
        }
        let ids: Vec<u64> = history.jobs.keys().copied().collect();
        for id in ids {
            assert_eq!(history.bench.row(id)["state"], 64, "seed {seed}, job {id}");
        }
        drop(history);
        assert_eq!(directory.store().unsent_starts().unwrap(), []);
    }
}

#[test]
fn a_store_that_cannot_be_written_answers_questions_only() {
    let directory = Directory::new("reading");
    let mut bench = ready(&directory, settings());
    bench.executor();
    let running = bench.running(&nothing());
    let (pending, _) = bench.submit(&nothing());
    let store = directory.reader();
    let outage = RequestError::new(28, "the disk is full");
    bench.manager = Manager::open_for_reading(store, settings(), bench.now, outage).unwrap();
    assert!(bench.manager.is_reading());

    let listed = bench.request(
        "job-list.list-id",
        &json!({"id": pending, "attrs": ["all"]}),
    );
    assert_eq!(body(&listed[0])["job"]["id"], pending);
    let keys = json!({"id": running, "keys": ["R", "jobspec", "eventlog"]});
    let documents = body(&bench.request("job-info.lookup", &keys)[0]);
    let log = documents["eventlog"].as_str().unwrap();
    // Not even a restart is logged.
    assert!(log.contains("alloc") && !log.contains("flux-restart"));
    for (topic, payload) in [
        ("job-ingest.submit", json!({"jobspec": jobspec(&nothing())})),
        (
            "job-manager.raise",
            json!({"id": running, "type": "cancel"}),
        ),
        ("job-manager.exec-hello", json!({"service": "exec"})),
        // The response would acknowledge what a service has sent before.
        ("job-manager.ping", nothing()),
    ] {
        let (errnum, text) = rejection(&bench.request(topic, &payload));
        assert_eq!((errnum, text), (28, format!("{topic}: the disk is full")));
    }
    assert!(!bench.manager.has_uncommitted());
}

#[test]
fn restarts_add_nothing_to_the_events_of_pending_jobs() {
    let directory = Directory::new("restarts");
    let mut bench = ready(&directory, settings());
    bench.executor();
    let running = bench.running(&nothing());
    let depends = json!({"dependencies": [{"scheme": "afterok", "value": running.to_string()}]});
    let (pending, depending) = (bench.submit(&nothing()).0, bench.submit(&depends).0);
    let assigned = json!({"jobs": [[pending, 70_000]]});
    bench.request("job-manager.prioritize", &assigned);
    let logs = |bench: &mut Bench| [pending, depending].map(|id| bench.events(id));
    let before = logs(&mut bench);
    for restarts in 1..4 {
        drop(bench);
        bench = directory.open(settings(), 1000.0);
        bench.advance();
        assert_eq!(logs(&mut bench), before);
        assert_eq!(bench.row(pending)["priority"], 70_000);
        let events = bench.events(running);
        let found = events.iter().filter(|name| *name == "flux-restart");
        assert_eq!(found.count(), restarts);
    }
}

#[test]
fn a_long_queue_is_resumed_in_slices_by_priority() {
    let directory = Directory::new("slices");
    let mut bench = ready(&directory, settings());
    let (ids, _) = bench.submit_copies(&nothing(), 1600);
    bench.advance();
    let urgent = *ids.last().unwrap();
    bench.request("job-manager.urgency", &json!({"id": urgent, "urgency": 20}));
    drop(bench);

    let mut bench = directory.open(settings(), 1000.0);
    let (cancelled, raised, late) = (ids[1000], ids[1001], ids[1590]);
    // Requests come before their turn.
    bench.request(
        "job-manager.raise",
        &json!({"id": cancelled, "type": "cancel"}),
    );
    bench.request("job-manager.urgency", &json!({"id": raised, "urgency": 21}));
    assert_eq!(bench.row(cancelled)["result"], 4);
    let out = bench.scheduler(Some(2));
    let first: Vec<u64> = out
        .iter()
        .filter(|message| message.method() == "alloc")
        .map(|message| body(message)["id"].as_u64().unwrap())
        .collect();
    assert_eq!(first, [raised, urgent]);
    assert!(bench.is_due());
    bench.advance();
    assert!(!bench.is_due());
    let stats = body(&bench.request("job-manager.stats-get", &nothing())[0]);
    assert_eq!(stats["pending"], 1599);
    for id in [urgent, ids[0], raised, late] {
        assert_eq!(bench.row(id)["state"], 8);
    }
    assert_eq!(bench.row(raised)["priority"], 21);
    drop(bench);

    // The events of each job and those that all share are restored.
    let mut bench = directory.open(settings(), 1000.0);
    bench.advance();
    assert_eq!(bench.row(raised)["urgency"], 21);
    assert_eq!(bench.row(late)["urgency"], 16);
}
