//! Any sequence of directives, with a scheduler that is slow, loses answers and restarts, and a
//! daemon that restarts: resources are conserved, nothing is granted twice, loans add up.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Bench, Directory, body, settings};
use crate::cores::{CORES, Cores, NODES, Requested, Scheduler, cores_in, r_of, ranks_of, whole};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

struct World {
    bench: Bench,
    scheduler: Scheduler,
    random: Random,
    jobs: Vec<u64>,
    /// Callers by matchtag, and whether they have been answered.
    callers: BTreeMap<u32, bool>,
    /// Requested cpus of each node, by the caller's matchtag, in order of size.
    counts: BTreeMap<u32, Vec<u64>>,
}

impl World {
    /// Receives the manager's messages, and answers at once those that need no pass.
    fn hear(&mut self, out: Vec<Message>) {
        let mut inbox: Vec<Message> = out;
        while !inbox.is_empty() {
            let mut next = Vec::new();
            for message in inbox {
                next.extend(self.hear_one(&message));
            }
            inbox = next;
        }
    }

    fn hear_one(&mut self, message: &Message) -> Vec<Message> {
        if message.kind == MessageType::Response {
            if message.topic() == "pmix.alloc" {
                let before = self.callers.insert(message.matchtag, true);
                assert_ne!(before, Some(true), "answered twice: {message:?}");
                self.check_counts(message);
            }
            return Vec::new();
        }
        match message.topic() {
            "sched.alloc" => {
                let request = body(message);
                let id = request["id"].as_u64().unwrap();
                assert!(!self.scheduler.holds.contains_key(&id), "requested twice");
                let requested = Requested::of(&request["jobspec"]);
                self.scheduler.waiting.insert(id, requested);
                Vec::new()
            }
            "sched.cancel" => {
                let id = body(message)["id"].as_u64().unwrap();
                if self.scheduler.waiting.remove(&id).is_none() {
                    return Vec::new();
                }
                self.bench
                    .answer("sched.alloc", &json!({"id": id, "type": 3}))
            }
            "sched.explain" => {
                self.scheduler.probes.push(message.clone());
                Vec::new()
            }
            "sched.free" => {
                let freed = body(message);
                let id = freed["id"].as_u64().unwrap();
                let holds = self
                    .scheduler
                    .holds
                    .get_mut(&id)
                    .expect("freed what is not held");
                for core in cores_in(&freed["R"]) {
                    assert!(holds.remove(&core), "{core:?} of {id} freed twice");
                }
                let last = freed["final"].as_bool().unwrap();
                assert!(!last || holds.is_empty(), "{id} keeps {holds:?} for good");
                if holds.is_empty() {
                    self.scheduler.holds.remove(&id);
                }
                Vec::new()
            }
            "sched.expiration" => {
                let agreed = Message::response_to(message, 0, Some(Message::json_payload("{}")));
                self.bench.send(agreed)
            }
            _ => Vec::new(),
        }
    }

    /// Checks that each node provides the requested cpus or none.
    fn check_counts(&self, message: &Message) {
        let Some(wanted) = self.counts.get(&message.matchtag) else {
            return;
        };
        let answer = body(message);
        let equal = wanted.iter().all(|wanted_count| *wanted_count == wanted[0]);
        let part = answer["reason"].as_str().unwrap().starts_with("in part");
        if answer["status"] == 0 && !(equal && part) {
            let mut results = answer["results"].as_array().unwrap().iter();
            let counts = results
                .find(|result| result["key"] == "pmix.alloc.ncpulist")
                .unwrap();
            let counts = counts["value"].as_str().unwrap().split(',');
            let mut counts: Vec<u64> = counts.map(|count| count.parse().unwrap()).collect();
            counts.sort_unstable();
            assert_eq!(counts, *wanted, "{answer}");
        }
    }

    /// Runs a pass of the scheduler: allocates in order what fits, then responds to probes.
    fn pass(&mut self) {
        for id in self.scheduler.waiting.keys().copied().collect::<Vec<_>>() {
            let Some(requested) = self.scheduler.waiting.get(&id) else {
                continue;
            };
            let Some(cores) = requested.fit(self.scheduler.free()) else {
                continue;
            };
            self.scheduler.waiting.remove(&id);
            let r = r_of(&cores);
            let committed = self.bench.commit_r(id, &r);
            assert_eq!(committed[0].errnum(), 0, "{:?}", committed[0].error_text());
            self.scheduler.holds.insert(id, cores);
            let out = self
                .bench
                .answer("sched.alloc", &json!({"id": id, "type": 0}));
            self.hear(out);
        }
        for question in std::mem::take(&mut self.scheduler.probes) {
            // Some answers get lost.
            if !self.random.one_in(4) {
                let response = json!({"jobs": [], "errors": {}}).to_string();
                let payload = Some(Message::json_payload(&response));
                let out = self.bench.send(Message::response_to(&question, 0, payload));
                self.hear(out);
            }
        }
    }

    fn advance(&mut self, seconds: f64) {
        self.bench.now += seconds;
        self.bench.manager.advance(self.bench.now);
        let out = self.bench.manager.flush().unwrap();
        self.hear(out);
    }

    fn call(&mut self) {
        let job = self.jobs[usize::try_from(self.random.below(2)).unwrap()];
        let id = format!("r{}", self.random.below(6));
        let count = 1 + self.random.below(4);
        let required = self.random.one_in(3);
        let mut attributes = Vec::new();
        let cpus = self.random.one_in(4);
        if !cpus || self.random.one_in(2) {
            let nodes = json!({"key": "pmix.alloc.nnodes", "required": required, "value": count});
            attributes.push(nodes);
        }
        if cpus {
            let cpus = 1 + self.random.below(6);
            attributes.push(json!({"key": "pmix.alloc.ncpus", "value": cpus}));
        }
        if self.random.one_in(2) {
            attributes.push(json!({"key": "pmix.alloc.reqid", "value": id}));
        }
        if self.random.one_in(3) {
            let limit = 1 + self.random.below(300);
            attributes.push(json!({"key": "pmix.timeout", "value": limit}));
        }
        if self.random.one_in(4) {
            let host = format!("n{}", self.random.below(NODES.into()));
            attributes.push(json!({"key": "pmix.alloc.nlist", "value": host}));
        }
        if self.random.one_in(4) {
            attributes.push(json!({"key": "pmix.alloc.id", "value": id}));
        }
        let directive = [
            "new",
            "extend",
            "extend",
            "release",
            "release",
            "reacquire",
            "cancel",
        ][usize::try_from(self.random.below(7)).unwrap()];
        if directive == "new" || (directive == "release" && self.random.one_in(2)) {
            let time = 20 + self.random.below(400);
            attributes.push(json!({"key": "pmix.alloc.time", "value": time}));
        }
        if directive == "reacquire" && self.random.one_in(2) {
            // All loans, of all kinds of nodes, now or not at all.
            attributes = vec![json!({"key": "pmix.timeout", "required": true, "value": 0})];
        }
        let mut counts = None;
        if matches!(directive, "new" | "extend") && self.random.one_in(3) {
            let by_node = |attribute: &Value| {
                ["pmix.alloc.nnodes", "pmix.alloc.ncpus", "pmix.alloc.nlist"]
                    .contains(&attribute["key"].as_str().unwrap())
            };
            attributes.retain(|attribute| !by_node(attribute));
            let first = self.random.below(6);
            let number = 2 + self.random.below(2);
            let list: Vec<u64> = (0..number).map(|_| 1 + self.random.below(3)).collect();
            let text: Vec<String> = list.iter().map(ToString::to_string).collect();
            let key = "pmix.alloc.ncpulist";
            attributes.push(json!({"key": key, "required": required, "value": text.join(",")}));
            if self.random.one_in(2) {
                let hosts = format!("n[{first}-{}]", first + number - 1);
                attributes.push(json!({"key": "pmix.alloc.nlist", "value": hosts}));
            }
            counts = Some(list);
        }
        let call = json!({"job": job, "rank": 0, "directive": directive, "attributes": attributes});
        if let Some(mut list) = counts {
            list.sort_unstable();
            self.counts.insert(self.bench.tag() + 1, list);
        }
        let out = self.bench.request("pmix.alloc", &call);
        self.callers.entry(self.bench.tag()).or_insert(false);
        self.hear(out);
    }

    /// The owner ends an allocation or a request from outside.
    fn cancel_any(&mut self) {
        let out = self
            .bench
            .request("pmix.query", &json!({"job": self.jobs[0]}));
        let rows = body(&out[0])["requests"].as_array().unwrap().clone();
        let allocs: Vec<u64> = rows
            .iter()
            .filter_map(|row| Some(row["alloc"].as_str()?.parse::<JobId>().unwrap().get()))
            .collect();
        if !allocs.is_empty() {
            let place = self.random.below(allocs.len() as u64);
            let id = allocs[usize::try_from(place).unwrap()];
            let raise = json!({"id": id, "type": "cancel", "severity": 0});
            let out = self.bench.request("job-manager.raise", &raise);
            self.hear(out);
        }
    }

    /// Replaces the scheduler. Hello announces the resources that jobs hold.
    fn new_scheduler(&mut self) {
        self.scheduler.waiting.clear();
        self.scheduler.probes.clear();
        let out = self.bench.scheduler(None);
        let mut announced = BTreeMap::new();
        for message in out
            .iter()
            .filter(|message| message.topic() == "job-manager.sched-hello" && message.errnum() == 0)
        {
            let held = body(message);
            let id = held["id"].as_u64().unwrap();
            let mut cores = self.r_of_job(id);
            let free = held["free"].as_str().unwrap_or_default();
            let free: IdSet = free.parse().unwrap();
            cores.retain(|(rank, _)| !free.contains(*rank));
            announced.insert(id, cores);
        }
        assert_eq!(announced, self.scheduler.holds);
        self.hear(out);
    }

    /// R as a scheduler looks it up.
    fn r_of_job(&mut self, id: u64) -> Cores {
        use base64::Engine as _;
        let key = format!("job.{}.R", JobId::new(id).dothex());
        let out = self.bench.request("kvs.lookup", &json!({ "key": key }));
        let data = body(&out[0])["val"]["data"].as_str().unwrap().to_owned();
        let text = base64::engine::general_purpose::STANDARD.decode(data);
        cores_in(&serde_json::from_slice(&text.unwrap()).unwrap())
    }

    /// Checks that every lent cpu is either still lent or has returned.
    fn check_loans(&mut self, job: u64) {
        let log = self.bench.log(job);
        let is = |event: &Value, name: &str| event["name"] == name;
        let mut returns = BTreeSet::new();
        let (mut lent, mut back) = (0, 0);
        for event in &log {
            let context = &event["context"];
            let seq = context["seq"].as_u64();
            if is(event, "penstock.alloc-request") && context["directive"] == "reacquire" {
                returns.insert(seq);
            } else if is(event, "penstock.alloc-end") && context["status"] == 0 {
                for lend in context["lent"].as_array().into_iter().flatten() {
                    lent += lend["nodes"].as_u64().unwrap() * lend["cpus"].as_u64().unwrap();
                }
                let results = context["results"].as_array().into_iter().flatten();
                let mut cpus = results.filter(|result| result["key"] == "pmix.alloc.ncpulist");
                if let Some(cpus) = cpus.next().filter(|_| returns.contains(&seq)) {
                    let cpus = cpus["value"].as_str().unwrap().split(',');
                    back += cpus.map(|count| count.parse::<u64>().unwrap()).sum::<u64>();
                }
            }
        }
        let out = self.bench.request("pmix.query", &json!({ "job": job }));
        let answer = body(&out[0]);
        let rows = answer["lent"].as_array().unwrap().iter();
        let still =
            rows.map(|loan| loan["nodes"].as_u64().unwrap() * loan["cpus"].as_u64().unwrap());
        let still: u64 = still.sum();
        if self.bench.row(job)["state"] != 16 {
            assert_eq!(still, 0, "the job has ended");
        } else if log.iter().any(|event| is(event, "penstock.loan-end")) {
            assert!(lent >= still + back, "{lent}: {still} still, {back} back");
        } else {
            assert_eq!(lent, still + back, "lent still, or back");
        }
    }

    fn check(&mut self) {
        for job in self.jobs.clone() {
            let row = self.bench.row(job);
            if row["state"] != 16 {
                continue;
            }
            let grants = row["annotations"]["elastic"]["grants"].as_array();
            let mut all = self.scheduler.holds.get(&job).cloned().unwrap_or_default();
            for grant in grants.into_iter().flatten() {
                let grant: JobId = grant.as_str().unwrap().parse().unwrap();
                all.extend(self.scheduler.holds.get(&grant.get()).into_iter().flatten());
            }
            let found = json!({"id": job, "keys": ["R"]});
            let found = self.bench.request("job-info.lookup", &found);
            let r = serde_json::from_str(body(&found[0])["R"].as_str().unwrap()).unwrap();
            assert_eq!(cores_in(&r), all, "job {job} has its own and its grants");
            assert!(ranks_of(&all).contains(if job == self.jobs[0] { 0 } else { 3 }));
        }
        let held: usize = self.scheduler.holds.values().map(BTreeSet::len).sum();
        let free = self.scheduler.free().len();
        assert_eq!(
            held + free,
            (NODES * CORES) as usize,
            "nothing is granted twice"
        );
        for job in self.jobs.clone() {
            let out = self.bench.request("pmix.query", &json!({ "job": job }));
            let answer = body(&out[0]);
            for lent in answer["lent"].as_array().unwrap() {
                assert!(
                    lent["returning"].as_u64() <= lent["nodes"].as_u64(),
                    "{lent}"
                );
            }
            for row in answer["requests"].as_array().unwrap() {
                let alloc = row["alloc"]
                    .as_str()
                    .map(|id| id.parse::<JobId>().unwrap().get());
                if let Some(alloc) = alloc.filter(|_| row["state"] == "queued") {
                    let stands = self.bench.row(alloc);
                    let state = stands["state"].as_u64().unwrap();
                    // An allocated part is held for the rest, and belongs to no job yet.
                    assert!(state <= 16, "{row} waits, its job is in state {state}");
                    assert!(stands["annotations"]["elastic"]["grants"].is_null());
                    let granted = self.bench.row(job)["annotations"]["elastic"]["grants"].clone();
                    let granted = granted.as_array().cloned().unwrap_or_default();
                    assert!(!granted.contains(&row["alloc"]), "{row}");
                }
            }
        }
    }
}

impl World {
    fn start(seed: u64, directory: &Directory) -> Self {
        let mut bench = directory.open(settings(), 1000.0);
        let all = r_of(&whole(0..NODES));
        let inventory = penstock_rset::ResourceSet::from_json(&all).unwrap();
        bench.manager.set_inventory(inventory);
        bench.scheduler(None);
        bench.executor();
        let mut world = Self {
            bench,
            scheduler: Scheduler::default(),
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            jobs: Vec::new(),
            callers: BTreeMap::new(),
            counts: BTreeMap::new(),
        };
        for ranks in [0..3, 3..4] {
            let (job, _) = world.bench.submit(&json!({"duration": 80000}));
            let cores = whole(ranks);
            world.bench.commit_r(job, &r_of(&cores));
            world
                .bench
                .answer("sched.alloc", &json!({"id": job, "type": 0}));
            world.bench.exec(job, "start", &json!({}));
            world.scheduler.holds.insert(job, cores);
            world.jobs.push(job);
        }
        world
    }
}

#[test]
fn resources_are_conserved() {
    // `ELASTIC_SEEDS=1-1000` for a longer run.
    let seeds = std::env::var("ELASTIC_SEEDS");
    let seeds: IdSet = seeds.as_deref().unwrap_or("1-8").parse().unwrap();
    for seed in seeds.iter().map(u64::from) {
        println!("seed {seed}");
        let directory = Directory::new(&format!("elastic-random-{seed}"));
        let mut world = World::start(seed, &directory);
        for _ in 0..60 {
            match world.random.below(20) {
                0..=9 => world.call(),
                10..=14 => world.pass(),
                15..=17 => {
                    let seconds = world.random.below(200);
                    world.advance(f64::from(u32::try_from(seconds).unwrap()));
                }
                18 => world.cancel_any(),
                _ if world.random.one_in(2) => world.new_scheduler(),
                _ => {
                    let now = world.bench.now;
                    // Only one manager may have the store open.
                    world.bench.manager = crate::common::empty_manager();
                    let (bench, out) = directory.reopen(settings(), now + 1.0);
                    world.bench = bench.with_tag(world.bench.tag());
                    let all = r_of(&whole(0..NODES));
                    let inventory = penstock_rset::ResourceSet::from_json(&all).unwrap();
                    world.bench.manager.set_inventory(inventory);
                    world.scheduler.waiting.clear();
                    world.hear(out);
                    // The caller has disconnected.
                    world.callers.clear();
                    world.counts.clear();
                    world.new_scheduler();
                    let out = world.bench.executor();
                    world.hear(out);
                }
            }
            world.check();
        }
        for job in world.jobs.clone() {
            world.check_loans(job);
        }
        // Requests end with their jobs; the allocations that remain end when their time expires.
        for job in world.jobs.clone() {
            for (kind, data) in [
                ("finish", json!({"status": 0})),
                ("release", json!({"ranks": "all", "final": true})),
            ] {
                let out = world.bench.exec(job, kind, &data);
                world.hear(out);
            }
        }
        for id in world.scheduler.holds.keys().copied().collect::<Vec<_>>() {
            let row = world.bench.row(id);
            let elastic = &row["annotations"]["elastic"];
            // Allocations made by requests outlive the jobs, with the resources granted to them.
            let lives = elastic["directive"] == "new" || !elastic["allocation"].is_null();
            assert!(lives, "{row}");
        }
        world.pass();
        world.advance(100_000.0);
        world.pass();
        world.advance(3.0);
        assert_eq!(world.scheduler.holds, BTreeMap::new());
        assert_eq!(world.scheduler.free(), whole(0..NODES));
        assert!(world.scheduler.waiting.is_empty());
        assert!(
            world.callers.values().all(|is_answered| *is_answered),
            "every call is answered"
        );
    }
}
