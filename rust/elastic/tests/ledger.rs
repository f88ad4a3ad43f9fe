//! Requests and loans over any sequence of events.

use std::collections::BTreeMap;

use penstock_elastic::{Account, Change, Entry, Ledger, Progress};
use penstock_jobspec::job_id::JobId;
use proptest::prelude::*;
use serde_json::{Value, json};

const JOB: JobId = JobId::new(7);

fn apply(ledger: &mut Ledger, name: &str, context: &Value) -> Change {
    ledger.apply(JOB, name, Some(&context.to_string()))
}

#[test]
fn a_request_ends_once() {
    let mut ledger = Ledger::default();
    let begun = json!({"seq": 1, "id": "mine", "directive": "extend", "nodes": 2});
    assert_eq!(
        apply(&mut ledger, "penstock.alloc-request", &begun),
        Change::Began(1)
    );
    let denial = json!({"seq": 1, "status": -29, "reason": "no"});
    assert_eq!(
        apply(&mut ledger, "penstock.alloc-end", &denial),
        Change::Ended(1)
    );
    let granted = json!({"seq": 1, "status": 0});
    assert_eq!(
        apply(&mut ledger, "penstock.alloc-end", &granted),
        Change::Other
    );
    let account = ledger.account(JOB).unwrap();
    let entry = account.named("mine").unwrap();
    assert_eq!(entry.progress(), Progress::Denied);
    assert_eq!(entry.reason, "no");
    assert_eq!(account.next(), 2);
}

#[test]
fn what_makes_no_sense_changes_nothing() {
    let mut ledger = Ledger::default();
    for (name, context) in [
        ("penstock.alloc-end", json!({"seq": 1, "status": 0})),
        ("penstock.alloc-request", json!({"seq": "x"})),
        ("start", json!({})),
    ] {
        assert_eq!(apply(&mut ledger, name, &context), Change::Other, "{name}");
    }
    assert!(ledger.account(JOB).is_none());
}

#[test]
fn the_requests_that_a_job_remembers_are_limited() {
    let mut ledger = Ledger::default();
    for seq in 1..3000 {
        let begun = json!({"seq": seq, "directive": "new"});
        apply(&mut ledger, "penstock.alloc-request", &begun);
        if seq > 1 {
            let ended = json!({"seq": seq, "status": -29});
            apply(&mut ledger, "penstock.alloc-end", &ended);
        }
    }
    let account = ledger.account(JOB).unwrap();
    assert_eq!(account.entries().count(), 1025);
    assert!(account.entry(1).is_some_and(Entry::is_open));
}

#[test]
fn the_texts_of_the_requests_that_a_job_remembers_are_limited() {
    let mut ledger = Ledger::default();
    for seq in 1..30 {
        let begun = json!({"seq": seq, "directive": "new"});
        apply(&mut ledger, "penstock.alloc-request", &begun);
        let hosts = json!([{"key": "pmix.alloc.nlist", "value": "n".repeat(50_000)}]);
        let reason = "x".repeat(50_000);
        let ended = json!({"seq": seq, "status": -29, "reason": reason, "results": hosts});
        apply(&mut ledger, "penstock.alloc-end", &ended);
    }
    let account = ledger.account(JOB).unwrap();
    assert_eq!(account.entries().count(), 10);
    // The newest stays, however long it is.
    let begun = json!({"seq": 30, "directive": "new"});
    apply(&mut ledger, "penstock.alloc-request", &begun);
    let ended = json!({"seq": 30, "status": -29, "reason": "x".repeat(2_000_000)});
    apply(&mut ledger, "penstock.alloc-end", &ended);
    let account = ledger.account(JOB).unwrap();
    let kept: Vec<u32> = account.entries().map(|entry| entry.seq).collect();
    assert_eq!(kept, [30]);
}

proptest! {
    #[test]
    fn what_is_found_is_what_a_look_at_all_finds(
        steps in prop::collection::vec((0_u32..4, 0_u32..8, 0_u32..8), 0..200)
    ) {
        let mut ledger = Ledger::default();
        let (mut seq, mut again) = (0, 2000);
        for (what, name, number) in steps {
            if what == 0 {
                let ended = json!({"seq": number * 8 + name, "status": -29});
                apply(&mut ledger, "penstock.alloc-end", &ended);
            } else if what == 3 {
                again += 1;
                let again = json!({"seq": number * 8 + name, "alloc": again});
                apply(&mut ledger, "penstock.alloc-again", &again);
            } else {
                seq += 1;
                let begun = json!({"seq": seq, "directive": "new", "id": name.to_string(),
                                   "alloc": (what == 1).then_some(seq + 1000),
                                   "deadline": f64::from(number) + 0.5});
                apply(&mut ledger, "penstock.alloc-request", &begun);
            }
            let Some(account) = ledger.account(JOB) else { continue };
            let seqs = |found: Vec<&Entry>| found.iter().map(|entry| entry.seq).collect::<Vec<_>>();
            let all = || account.entries();
            prop_assert_eq!(seqs(account.open().collect()),
                            seqs(all().filter(|entry| entry.is_open()).collect()));
            let mut late = seqs(account.expired(4.5).collect());
            late.sort_unstable();
            let is_late = |entry: &&Entry| entry.is_open() && entry.deadline <= Some(4.5);
            prop_assert_eq!(late, seqs(all().filter(is_late).collect()));
            let newest = all().rev().find(|entry| entry.id == Some(name.to_string()));
            prop_assert_eq!(account.named(&name.to_string()), newest);
            for alloc in [1003, 2003, again].map(JobId::new) {
                let stands = all().find(|entry| entry.alloc == Some(alloc));
                prop_assert_eq!(account.represented_by(alloc), stands);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Nodes, and cpus of each.
    Lend(u32, u32),
    Reacquire(Option<u32>),
    /// Grants part of an open request, then ends it.
    Finish(usize, u32, i32),
    /// An end that comes again.
    Again(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1_u32..6, 1_u32..4).prop_map(|(nodes, cpus)| Step::Lend(nodes, cpus)),
        proptest::option::of(1_u32..8).prop_map(Step::Reacquire),
        (
            any::<prop::sample::Index>(),
            0_u32..9,
            prop_oneof![Just(0), Just(-180), Just(-24)]
        )
            .prop_map(|(at, nodes, status)| Step::Finish(at.index(97), nodes, status)),
        any::<prop::sample::Index>().prop_map(|at| Step::Again(at.index(97))),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn lent_is_outstanding_and_returning_and_returned(steps in steps()) {
        let mut ledger = Ledger::default();
        let (mut lent, mut back, mut seq) = (0_u32, 0_u32, 0);
        // Nodes, cpus of each and the loan of each request that is open.
        let mut open: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Lend(nodes, cpus) => {
                    seq += 1;
                    lent += nodes * cpus;
                    let begun = json!({"seq": seq, "directive": "release"});
                    apply(&mut ledger, "penstock.alloc-request", &begun);
                    let lent = json!([{"nodes": nodes, "cpus": cpus, "until": 9.0}]);
                    let ended = json!({"seq": seq, "status": 0, "lent": lent});
                    prop_assert_eq!(
                        apply(&mut ledger, "penstock.alloc-end", &ended), Change::Lent(seq));
                }
                Step::Reacquire(most) => {
                    let returns = ledger.account(JOB)
                        .map(|account| account.to_reclaim(None, most)).unwrap_or_default();
                    let nodes: u32 = returns.iter().map(|due| due.nodes).sum();
                    prop_assert!(most.is_none_or(|most| nodes <= most));
                    // One request reclaims nodes of one kind.
                    for penstock_elastic::Return { loan, nodes } in returns {
                        seq += 1;
                        let cpus = ledger.account(JOB).unwrap().loan(loan).unwrap().cpus;
                        open.insert(seq, (nodes, cpus));
                        let context = json!({"seq": seq, "directive": "reacquire",
                                             "nodes": nodes, "returns": [[loan, nodes]]});
                        apply(&mut ledger, "penstock.alloc-request", &context);
                    }
                }
                Step::Finish(at, nodes, status) => {
                    let Some((seq, (requested, cpus))) = open.iter().nth(at % open.len().max(1))
                        .map(|(seq, requested)| (*seq, *requested)) else { continue };
                    open.remove(&seq);
                    let nodes = nodes.min(requested);
                    let status = if nodes > 0 { 0 } else { status };
                    back += nodes * cpus;
                    let ended = json!({"seq": seq, "status": status, "nodes": nodes});
                    prop_assert_eq!(
                        apply(&mut ledger, "penstock.alloc-end", &ended), Change::Ended(seq));
                }
                Step::Again(at) => {
                    let over: Vec<u32> = ledger.account(JOB).into_iter()
                        .flat_map(Account::entries).filter(|entry| !entry.is_open())
                        .map(|entry| entry.seq).collect();
                    if let Some(seq) = over.get(at % over.len().max(1)) {
                        let context = json!({"seq": seq, "status": 0, "nodes": 5});
                        let again = apply(&mut ledger, "penstock.alloc-end", &context);
                        prop_assert_eq!(again, Change::Other);
                    }
                }
            }
            let (mut outstanding, mut returning) = (0, 0);
            if let Some(account) = ledger.account(JOB) {
                for (_, lend) in account.loans() {
                    prop_assert!(lend.returned + lend.returning <= lend.nodes);
                    prop_assert_eq!(lend.until, Some(9.0), "it comes back by itself");
                    outstanding += lend.outstanding() * lend.cpus;
                    returning += lend.returning * lend.cpus;
                }
            }
            // Each loan is reclaimed once, and none is lost.
            let requested: u32 = open.values().map(|(nodes, cpus)| nodes * cpus).sum();
            prop_assert_eq!(returning, requested);
            prop_assert_eq!(lent, outstanding + returning + back);
        }
    }
}

#[test]
fn loans_of_an_allocation_end_with_it() {
    let mut ledger = Ledger::default();
    for (seq, target) in [(1, json!(9)), (2, Value::Null)] {
        let begun = json!({"seq": seq, "directive": "release"});
        apply(&mut ledger, "penstock.alloc-request", &begun);
        let lent = json!([{"nodes": 1, "cpus": 4, "target": target}]);
        let ended = json!({"seq": seq, "status": 0, "lent": lent});
        apply(&mut ledger, "penstock.alloc-end", &ended);
    }
    apply(&mut ledger, "penstock.loan-end", &json!({"target": 9}));
    let account = ledger.account(JOB).unwrap();
    let left: Vec<_> = account.loans().map(|(_, loan)| loan.target).collect();
    assert_eq!(left, [None]);
}
