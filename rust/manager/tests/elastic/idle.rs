//! Ranks that a running job releases are idle before they are free, if the execution service says when they are.

use crate::common::elastic::{alloc, answer, freed, give, nodes, r_of};
use crate::common::{Bench, Directory, OWNER, body, rejection, settings, topics};
use penstock_manager::Settings;
use penstock_wire::Message;
use serde_json::{Value, json};

/// A service that releases shrunk ranks says hello.
fn hello(bench: &mut Bench) -> Vec<Message> {
    let hello = json!({"service": "job-exec", "releases-shrunk": true});
    bench.request_as("exec", OWNER, "job-manager.exec-hello", &hello, 0)
}

fn disconnect(bench: &mut Bench) {
    bench.request_as("exec", OWNER, "job-manager.disconnect", &Value::Null, 4);
}

/// A job that runs on ranks 0 to 3.
fn running(bench: &mut Bench) -> u64 {
    bench.scheduler(None);
    hello(bench);
    let (job, _) = bench.submit(&json!({"duration": 8000}));
    give(bench, job, "0-3");
    bench.exec(job, "start", &json!({}));
    job
}

fn release(bench: &mut Bench, job: u64, number: u32) -> Vec<Message> {
    alloc(bench, job, "release", &json!([nodes(number)]))
}

/// The execution service's response that ranks are idle.
fn idle(bench: &mut Bench, job: u64, ranks: &str) -> Vec<Message> {
    bench.exec(job, "release", &json!({"ranks": ranks, "final": false}))
}

fn shrinks(out: &[Message]) -> Vec<Value> {
    let shrinks = out.iter().filter(|message| message.method() == "shrink");
    shrinks
        .map(|message| body(message)["ranks"].clone())
        .collect()
}

/// Whether the manager takes another job's claim of these ranks.
fn is_free(bench: &mut Bench, ranks: &str) -> bool {
    let (other, _) = bench.submit(&json!({}));
    let committed = bench.commit_r(other, &r_of(ranks));
    if committed[0].errnum() == 0 {
        return true;
    }
    assert_eq!(rejection(&committed).0, 22);
    false
}

#[test]
fn released_ranks_are_free_when_the_service_has_released_them() {
    let mut bench = Bench::new();
    let job = running(&mut bench);
    let out = release(&mut bench, job, 2);
    assert_eq!(answer(&out).0, 0, "the caller does not wait");
    assert_eq!((freed(&out), shrinks(&out)), (vec![], vec![json!("2-3")]));
    assert_eq!(bench.row(job)["nnodes"], 2);
    assert!(!is_free(&mut bench, "2-3"));
    // They are not the job's to release again.
    let rest = release(&mut bench, job, 99);
    assert_eq!(shrinks(&rest), [json!("1")]);
    assert_eq!(
        freed(&idle(&mut bench, job, "2")),
        [(job, "2".to_owned(), false)]
    );
    assert!(is_free(&mut bench, "2"));
    assert!(!is_free(&mut bench, "3"));
    // A repeated or late response changes nothing.
    assert_eq!(freed(&idle(&mut bench, job, "2")), []);
    assert_eq!(
        freed(&idle(&mut bench, job, "1-3")),
        [(job, "1,3".to_owned(), false)]
    );
    let log = bench.log(job).into_iter();
    let logged: Vec<_> = log.filter(|event| event["name"] == "release").collect();
    let ranks: Vec<_> = logged
        .iter()
        .map(|event| &event["context"]["ranks"])
        .collect();
    assert_eq!(ranks, ["2", "1,3"]);
    bench.exec(job, "finish", &json!({"status": 0}));
    let out = bench.exec(job, "release", &json!({"ranks": "all", "final": true}));
    assert_eq!(freed(&out), [(job, "0".to_owned(), true)]);
    assert_eq!(bench.row(job)["result"], 1);
}

#[test]
fn the_final_release_frees_ranks_that_were_not_released_before() {
    let mut bench = Bench::new();
    let job = running(&mut bench);
    release(&mut bench, job, 1);
    let out = bench.end(job, 0);
    assert_eq!(freed(&out), [(job, "0-3".to_owned(), true)]);
    assert_eq!(bench.row(job)["state"], 64);
}

#[test]
fn released_and_ended_ranks_are_freed_by_one_response() {
    let mut bench = Bench::new();
    let job = running(&mut bench);
    release(&mut bench, job, 1);
    bench.exec(job, "finish", &json!({"status": 0}));
    let out = idle(&mut bench, job, "2-3");
    let both = [(job, "3".to_owned(), false), (job, "2".to_owned(), false)];
    assert_eq!(freed(&out), both);
}

#[test]
fn a_rejected_response_frees_no_released_rank() {
    let mut bench = Bench::new();
    let job = running(&mut bench);
    release(&mut bench, job, 1);
    bench.exec(job, "finish", &json!({"status": 0}));
    bench.manager.take_log();
    let (before, row) = (bench.events(job), bench.row(job));
    // Rank 3 is idle, rank 7 is not the job's.
    let out = idle(&mut bench, job, "3,7");
    assert_eq!(topics(&out), [""; 0]);
    let log = bench.manager.take_log();
    assert_eq!(log.len(), 1, "{log:?}");
    assert!(log[0].contains("ranks 7 are no longer"), "{}", log[0]);
    assert_eq!((bench.events(job), bench.row(job)), (before, row));
    assert!(!is_free(&mut bench, "3"));
    assert_eq!(
        freed(&idle(&mut bench, job, "3")),
        [(job, "3".to_owned(), false)]
    );
}

#[test]
fn no_epilog_is_due_for_released_ranks() {
    let mut bench = Bench::with(Settings {
        epilog: true,
        ..settings()
    });
    let job = running(&mut bench);
    release(&mut bench, job, 2);
    let out = idle(&mut bench, job, "3");
    assert_eq!(freed(&out), [(job, "3".to_owned(), false)]);
    bench.exec(job, "finish", &json!({"status": 0}));
    let out = bench.exec(job, "release", &json!({"ranks": "all", "final": true}));
    assert_eq!(topics(&out), ["hooks.epilog"]);
    let out = bench.reply(&out, "hooks.epilog", &json!({"status": 0}));
    assert_eq!(freed(&out), [(job, "0-2".to_owned(), true)]);
}

#[test]
fn ranks_released_while_no_service_is_connected_are_shrunk_by_the_next() {
    let mut bench = Bench::new();
    let job = running(&mut bench);
    disconnect(&mut bench);
    assert_eq!(freed(&release(&mut bench, job, 1)), []);
    let out = hello(&mut bench);
    assert_eq!(topics(&out), ["job-exec.start", "job-exec.shrink"]);
    assert_eq!(shrinks(&out), [json!("3")]);
    bench.exec(job, "reattached", &json!({}));
    assert_eq!(
        freed(&idle(&mut bench, job, "3")),
        [(job, "3".to_owned(), false)]
    );
}

#[test]
fn released_ranks_that_may_be_in_use_outlive_a_restart() {
    let directory = Directory::new("in-use");
    let mut bench = directory.open(settings(), 1000.0);
    let job = running(&mut bench);
    release(&mut bench, job, 2);
    idle(&mut bench, job, "2");
    drop(bench);
    let mut bench = directory.open(settings(), 2000.0);
    let greeting = bench.scheduler(None);
    assert_eq!(body(&greeting[0])["free"], "2");
    assert!(!is_free(&mut bench, "3"));
    assert_eq!(shrinks(&hello(&mut bench)), [json!("2-3")]);
    bench.exec(job, "reattached", &json!({}));
    assert_eq!(
        freed(&idle(&mut bench, job, "2-3")),
        [(job, "3".to_owned(), false)]
    );
    assert!(is_free(&mut bench, "3"));
}

#[test]
fn a_service_that_does_not_release_shrunk_ranks_frees_them_at_once() {
    let mut bench = Bench::new();
    let job = running(&mut bench);
    bench.executor();
    bench.exec(job, "reattached", &json!({}));
    let out = release(&mut bench, job, 1);
    assert_eq!(freed(&out), [(job, "3".to_owned(), false)]);
}
