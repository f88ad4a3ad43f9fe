//! Random histories of users, scheduler and execution service: replaying the eventlogs restores every
//! job. In debug builds the manager itself compares the records at each flush; these tests compare the
//! rows that users see before and after a restart.

mod common;

use common::{Bench, Directory, OWNER, R, Random, body, settings};
use penstock_flux::flags::STREAMING;
use serde_json::{Value, json};

/// Attributes of an active job that a restart may forget: RFC 21 logs neither.
const VOLATILE: [&str; 2] = ["annotations", "pending_reason"];

struct History {
    bench: Bench,
    random: Random,
    jobs: Vec<u64>,
}

impl History {
    fn any_job(&mut self) -> u64 {
        let index = self.random.below(self.jobs.len() as u64);
        self.jobs[usize::try_from(index).unwrap()]
    }

    fn submit(&mut self) {
        let mut system = json!({"duration": self.random.below(3) * 100});
        if !self.jobs.is_empty() && self.random.below(3) == 0 {
            let name = penstock_jobspec::job_id::JobId::new(self.any_job()).to_string();
            let scheme =
                ["after", "afterany", "afterok"][usize::try_from(self.random.below(3)).unwrap()];
            system["dependencies"] = json!([{"scheme": scheme, "value": name}]);
        }
        let submission = json!({"jobspec": common::jobspec(&system)});
        let out = self.bench.request("job-ingest.submit", &submission);
        // A dependency on a job that was purged is rejected.
        if out[0].errnum() == 0 {
            self.jobs.push(body(&out[0])["id"].as_u64().unwrap());
        }
    }

    /// Takes one step of a user, the scheduler or the execution service, due or not.
    fn step(&mut self) {
        if self.jobs.is_empty() {
            return self.submit();
        }
        let id = self.any_job();
        let ranks = ["0", "1", "all"][usize::try_from(self.random.below(3)).unwrap()];
        let bench = &mut self.bench;
        match self.random.below(22) {
            0..=2 => self.submit(),
            3 => drop(bench.scheduler(None)),
            4 => drop(bench.scheduler(Some(2))),
            5 => drop(bench.executor()),
            6..=8 => {
                // Nodes that a job holds cannot be allocated to another.
                let committed = bench.commit_r(id, R);
                if committed[0].errnum() == 0 {
                    bench.answer("sched.alloc", &json!({"id": id, "type": 0}));
                }
            }
            9 => {
                let annotations = json!({"sched": {"reason_pending": "busy"}});
                let annotate = json!({"id": id, "type": 1, "annotations": annotations});
                bench.answer("sched.alloc", &annotate);
            }
            10 => drop(bench.answer("sched.alloc", &json!({"id": id, "type": 2, "note": "no"}))),
            11 => drop(bench.answer("sched.alloc", &json!({"id": id, "type": 3}))),
            12 => drop(bench.exec(id, "start", &json!({}))),
            13 => drop(bench.exec(id, "finish", &json!({"status": 256}))),
            14 => drop(bench.exec(id, "release", &json!({"ranks": ranks, "final": false}))),
            15 => drop(bench.exec(id, "release", &json!({"ranks": "all", "final": true}))),
            16 => {
                let oom = json!({"severity": 2, "type": "oom", "note": "memory"});
                bench.exec(id, "exception", &oom);
            }
            17 => {
                let cancel = json!({"id": id, "type": "cancel", "severity": 0});
                bench.request("job-manager.raise", &cancel);
            }
            18 => {
                let urgency = self.random.below(32);
                bench.request(
                    "job-manager.urgency",
                    &json!({"id": id, "urgency": urgency}),
                );
            }
            19 => {
                let memo = json!({"step": self.random.below(9), "gone": null});
                bench.request("job-manager.memo", &json!({"id": id, "memo": memo}));
            }
            20 => {
                let seconds = self.random.below(1000);
                let updates = json!({"attributes.system.duration": seconds});
                bench.request("job-manager.update", &json!({"id": id, "updates": updates}));
            }
            _ => {
                let peer = ["sched", "exec"][usize::try_from(self.random.below(2)).unwrap()];
                bench.request_as(peer, OWNER, "job-manager.disconnect", &Value::Null, 0);
            }
        }
    }

    /// The rows of all jobs, without what a restart may forget.
    fn rows(&mut self) -> Vec<Value> {
        let list = json!({"max_entries": 0, "attrs": ["all"]});
        let mut out = self
            .bench
            .request_as("client", OWNER, "job-list.list", &list, STREAMING);
        out.extend(self.bench.rest());
        let mut rows = Vec::new();
        for message in out.iter().filter(|message| message.errnum() == 0) {
            rows.extend(body(message)["jobs"].as_array().unwrap().clone());
        }
        for row in &mut rows {
            if row["state"] != 64 {
                for key in VOLATILE {
                    row.as_object_mut().unwrap().remove(key);
                }
            }
        }
        rows
    }
}

/// Has dozens of events happen to each of some pending jobs.
#[test]
fn a_restart_restores_pending_jobs_with_long_histories() {
    for seed in 1..=3 {
        let directory = Directory::new(&format!("histories-{seed}"));
        let mut random = Random(seed);
        let mut bench = directory.open(settings(), 1000.0);
        bench.scheduler(None);
        let (ids, _) = bench.submit_copies(&json!({}), 2);
        let first = penstock_jobspec::job_id::JobId::new(ids[0]).to_string();
        let depends = json!({"dependencies": [{"scheme": "afterany", "value": first}]});
        let ids = [&ids[..], &[bench.submit(&depends).0]].concat();
        let mut restarts_with_facts = 0;
        for _ in 0..3 {
            for _ in 0..60 {
                let id = ids[random.index(ids.len())];
                match random.below(4) {
                    0 => {
                        let urgency = json!({"id": id, "urgency": random.below(31)});
                        bench.request("job-manager.urgency", &urgency);
                    }
                    1 => {
                        let jobs = json!({"jobs": [[id, random.below(1 << 20)]]});
                        bench.request("job-manager.prioritize", &jobs);
                    }
                    2 => {
                        let text = "x".repeat(random.index(1500));
                        let memo = json!({"id": id, "memo": {"key": text}});
                        bench.request("job-manager.memo", &memo);
                    }
                    _ => {
                        let raise =
                            json!({"id": id, "type": "odd", "severity": 1 + random.below(6)});
                        bench.request("job-manager.raise", &raise);
                    }
                }
                bench.rest();
            }
            let now = bench.now;
            let before: Vec<Value> = ids.iter().map(|id| bench.row(*id)).collect();
            let logs: Vec<_> = ids.iter().map(|id| bench.log(*id)).collect();
            drop(bench);
            let stored = directory.reader();
            let facts = |id: &u64| stored.pending_facts(penstock_jobspec::job_id::JobId::new(*id));
            restarts_with_facts += u32::from(ids.iter().any(|id| facts(id).unwrap().is_some()));
            drop(stored);
            bench = directory.open(settings(), now);
            bench.scheduler(None);
            let after: Vec<Value> = ids.iter().map(|id| bench.row(*id)).collect();
            assert_eq!(after, before, "seed {seed}");
            assert_eq!(
                ids.iter().map(|id| bench.log(*id)).collect::<Vec<_>>(),
                logs
            );
        }
        assert!(restarts_with_facts > 0, "seed {seed}");
        // Such a job runs, and its facts from before are no longer all of them.
        bench.request("job-manager.urgency", &json!({"id": ids[1], "urgency": 31}));
        bench.executor();
        bench.allocate(ids[1]);
        let now = bench.now;
        drop(bench);
        bench = directory.open(settings(), now);
        assert_eq!(bench.row(ids[1])["state"], 16);
        bench.request(
            "job-manager.raise",
            &json!({"id": ids[0], "type": "cancel"}),
        );
        assert_eq!(bench.row(ids[0])["result"], 4);
        bench.request(
            "job-manager.purge",
            &json!({"ids": [ids[0]], "force": true}),
        );
        bench.advance();
        drop(bench);
        let job = penstock_jobspec::job_id::JobId::new(ids[0]);
        assert_eq!(directory.reader().pending_facts(job).unwrap(), None);
    }
}

#[test]
fn a_restart_restores_the_rows_of_every_job() {
    for seed in 1..=12 {
        let directory = Directory::new(&format!("replay-{seed}"));
        let mut history = History {
            bench: directory.open(settings(), 1000.0),
            random: Random(seed),
            jobs: Vec::new(),
        };
        for _ in 0..4 {
            for _ in 0..60 {
                history.step();
            }
            // A restart loses the peers; their disconnect is part of the history before it.
            for peer in ["sched", "exec"] {
                let bench = &mut history.bench;
                bench.request_as(peer, OWNER, "job-manager.disconnect", &Value::Null, 0);
            }
            let before = history.rows();
            let (tag, now) = (history.bench.tag(), history.bench.now);
            drop(std::mem::replace(&mut history.bench, Bench::new()));
            history.bench = directory.open(settings(), now).with_tag(tag);
            assert_eq!(history.rows(), before, "seed {seed}");
        }
        assert!(history.jobs.len() > 10, "the history is long enough");
    }
}

#[test]
fn the_row_of_a_finished_job_has_its_resource_usage_also_after_a_restart() {
    let directory = Directory::new("usage");
    let mut bench = directory.open(settings(), 1000.0);
    bench.scheduler(None);
    bench.executor();
    let id = bench.running(&json!({}));
    assert_eq!(bench.row(id).get("max_rss_kib"), None);
    let usage = json!({"max_rss_kib": 2048, "user_us": 1_250_000, "system_us": 3});
    bench.exec(id, "finish", &json!({"status": 0, "usage": usage}));
    bench.exec(id, "release", &json!({"ranks": "all", "final": true}));
    let shown = |bench: &mut Bench| {
        let row = bench.row(id);
        ["state", "max_rss_kib", "user_cpu", "system_cpu"].map(|key| row[key].clone())
    };
    let expected = [json!(64), json!(2048), json!(1.25), json!(0.000_003)];
    assert_eq!(shown(&mut bench), expected);
    drop(bench);
    assert_eq!(shown(&mut directory.open(settings(), 1000.0)), expected);
}
