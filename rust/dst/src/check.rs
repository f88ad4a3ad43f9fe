//! The invariants, and the end of a run, at which every job must have come to its end.

use std::collections::BTreeMap;

use penstock_flux::topic::{job_manager, resource};
use penstock_jobspec::job_id::JobId;
use penstock_store::Store;
use serde_json::Value;

use crate::client::{Client, Purpose};
use crate::machine::cores_of;
use crate::vfs::with_disk;
use crate::world::{Violation, World};

/// Rounds of ends and waiting after which every job must be inactive, and those of waiting alone.
const MAX_ROUNDS: usize = 2000;
const MAX_WAITS: usize = 12;
/// Longer than every timeout, in seconds.
const BEYOND_ALL_TIMEOUTS_S: f64 = 70.0;

/// RFC 21: the events of a job in their order; some can be repeated or left out.
const ORDER: [&str; 10] = [
    "submit", "validate", "depend", "priority", "alloc", "start", "finish", "release", "free",
    "clean",
];
const REPEATED: [&str; 2] = ["priority", "release"];

/// One event of a log.
struct Event {
    name: String,
    context: Value,
}

fn events(log: &str) -> Vec<Event> {
    let read = |line: &str| {
        let mut event: Value = serde_json::from_str(line).ok()?;
        Some(Event {
            name: event.get("name")?.as_str()?.to_owned(),
            context: event
                .get_mut("context")
                .map(Value::take)
                .unwrap_or_default(),
        })
    };
    log.lines().filter_map(read).collect()
}

/// Whether the job of a log is inactive.
fn has_ended(log: &str) -> bool {
    events(log).iter().any(|event| event.name == "clean")
}

/// The violations of RFC 21 by a log, whole or not.
fn order_faults(events: &[Event]) -> Vec<String> {
    let place = |event: &Event| ORDER.iter().position(|name| *name == event.name);
    let known: Vec<usize> = events.iter().filter_map(place).collect();
    let mut faults = Vec::new();
    for pair in known.windows(2) {
        if let [before, after] = pair {
            let (before, after) = (*before, *after);
            let is_repeated =
                before == after && ORDER.get(after).is_some_and(|name| REPEATED.contains(name));
            if after < before || before == after && !is_repeated {
                let name = |place: usize| ORDER.get(place).copied().unwrap_or_default();
                faults.push(format!("`{}` after `{}`", name(after), name(before)));
            }
        }
    }
    faults
}

/// The number of jobs in a store by their names.
fn jobs_by_name(store: &Store) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for job in store.jobs().unwrap_or_default().records {
        let Ok(Some(text)) = store.jobspec(job.spec) else {
            continue;
        };
        let jobspec: Value = serde_json::from_str(&text).unwrap_or_default();
        let name = &jobspec["attributes"]["system"]["job"]["name"];
        *counts
            .entry(name.as_str().unwrap_or_default().to_owned())
            .or_default() += 1;
    }
    counts
}

impl World {
    fn violate(&mut self, invariant: &'static str, text: impl Into<String>) {
        self.violations.push(Violation::new(invariant, text));
    }

    /// Checks what holds after every step.
    pub fn check_step(&mut self) {
        match self.last_start.take() {
            Some(Ok(())) => self.check_restored(),
            Some(Err(error)) => self.check_start(&error.to_string()),
            None => {}
        }
        self.machine.check_cores();
        for text in self.machine.take_violations() {
            self.violate("execution", text);
        }
        let Some(daemon) = self.daemon.as_ref().filter(|daemon| daemon.is_healthy()) else {
            return;
        };
        match daemon.manager().allocated() {
            Ok(allocated) if cores_of(&allocated).len() > self.all_cores() => {
                self.violate("allocated-twice", "more cores are allocated than exist");
            }
            Ok(_) => {}
            Err(error) => self.violate("allocated-twice", error.to_string()),
        }
    }

    /// Checks a start of the daemon that has failed.
    fn check_start(&mut self, error: &str) {
        let has_fault = with_disk(|disk| {
            let faults = &disk.faults;
            let has_fault = faults.is_full || faults.is_busy || disk.is_killed();
            disk.revive();
            has_fault || error.contains("I/O")
        });
        if !has_fault {
            self.violate("start", format!("the daemon does not start: {error}"));
        }
    }

    /// Checks what a start of the daemon has restored against the promises.
    fn check_restored(&mut self) {
        let mut violations = Vec::new();
        let Some(daemon) = &self.daemon else {
            return;
        };
        let store = daemon.manager().store();
        for id in self.promises.jobs() {
            if !store.has_job(JobId::new(id)).unwrap_or(true) {
                violations.push(Violation::new(
                    "acknowledged-lost",
                    format!("job {id} was acknowledged, and is not in the store"),
                ));
            }
        }
        let stored = jobs_by_name(store);
        for (number, submission) in self.promises.submissions.iter().enumerate() {
            let count = stored.get(&format!("s{number}")).copied();
            if count.is_some_and(|count| count != submission.count) {
                violations.push(Violation::new(
                    "submission-in-part",
                    format!(
                        "{count:?} of {} jobs of submission {number} are stored",
                        submission.count
                    ),
                ));
            }
        }
        for (id, seen) in &self.promises.events {
            let Ok(log) = store.eventlog(JobId::new(*id)) else {
                continue;
            };
            let lines: Vec<_> = log.lines().take(seen.len()).collect();
            if lines != *seen {
                violations.push(Violation::new(
                    "event-lost",
                    format!("job {id}: {seen:?} were seen, the log begins with {lines:?}"),
                ));
            }
        }
        for id in self.machine.started_jobs() {
            let job = store.job(JobId::new(id));
            match job {
                Ok(Some(job)) => {
                    let has_allocation = events(&job.eventlog())
                        .iter()
                        .any(|event| event.name == "alloc");
                    if !has_allocation || job.r.is_none() {
                        violations.push(Violation::new(
                            "start-without-r",
                            format!("job {id} has run, and has no R in the store"),
                        ));
                    }
                }
                Ok(None) => violations.push(Violation::new(
                    "start-without-r",
                    format!("job {id} has run, and is not in the store"),
                )),
                Err(_) => {}
            }
        }
        self.violations.extend(violations);
    }

    /// Checks what holds when nothing is under way.
    pub fn check_silent(&mut self) {
        let Some(daemon) = self.daemon.as_ref().filter(|daemon| daemon.is_healthy()) else {
            return;
        };
        if let (Some(scheduler), Ok(allocated)) =
            (self.ready_scheduler(), daemon.manager().allocated())
        {
            let (known, allocated) = (scheduler.allocated(), cores_of(&allocated));
            let known = known.map(|known| cores_of(&known)).unwrap_or_default();
            if known != allocated {
                let text = format!(
                    "the scheduler counts {known:?} as allocated, the job manager {allocated:?}"
                );
                self.violate("hello", text);
            }
        }
        let unanswered = self.clients.iter().filter(|client| client.is_reading);
        let unanswered: Vec<_> = unanswered
            .flat_map(|client| client.unanswered())
            .map(str::to_owned)
            .collect();
        if !unanswered.is_empty() {
            self.violate("unanswered", format!("no response to {unanswered:?}"));
        }
        self.check_streams();
    }

    /// Checks that no stream about an inactive job is open.
    fn check_streams(&mut self) {
        let Some(daemon) = &self.daemon else {
            return;
        };
        let store = daemon.manager().store();
        let readers = self.clients.iter().filter(|client| client.is_reading);
        let open = readers.flat_map(Client::awaited_jobs).find(|id| {
            let log = store.eventlog(JobId::new(*id)).unwrap_or_default();
            has_ended(&log)
        });
        if let Some(id) = open {
            let text = format!("job {id} has ended, and a stream about it has not");
            self.violate("unanswered", text);
        }
    }

    /// Ends the run: without faults, and with every process ending, every job must end.
    pub fn wind_up(&mut self) {
        self.heal();
        self.check_step();
        let requests = [
            (resource::UNDRAIN, r#"{"targets":"0-3","mode":"force"}"#),
            (resource::UNMONITOR, r#"{"targets":"0-3"}"#),
            (job_manager::QUEUE_START, r#"{"start":true,"all":true}"#),
            (job_manager::QUEUE_ENABLE, r#"{"enable":true,"all":true}"#),
        ];
        for (topic, payload) in requests {
            self.request(0, topic, payload, Purpose::Other);
        }
        self.run();
        for number in 0..self.promises.submissions.len() {
            self.resubmit(0, number);
        }
        self.run();
        for id in self.promises.jobs() {
            let payload = format!(r#"{{"id":{id},"urgency":16}}"#);
            self.request(0, job_manager::URGENCY, &payload, Purpose::Other);
        }
        let mut waits = 0;
        for _ in 0..MAX_ROUNDS {
            self.run();
            self.check_silent();
            self.check_step();
            if !self.violations.is_empty() {
                return;
            }
            if self.has_ended() {
                break;
            }
            if self.machine.processes() > 0 {
                self.machine.end_process(0, 0);
                waits = 0;
            } else if waits == MAX_WAITS {
                break;
            } else {
                waits += 1;
                self.advance(BEYOND_ALL_TIMEOUTS_S);
            }
        }
        self.advance(1.0);
        self.run();
        self.check_end();
    }

    /// Whether no process runs and the service has forgotten all jobs.
    fn has_ended(&self) -> bool {
        let Some(daemon) = &self.daemon else {
            return false;
        };
        let is_inactive = |id: &u64| {
            let log = daemon.manager().store().eventlog(JobId::new(*id));
            log.is_ok_and(|log| has_ended(&log))
        };
        self.machine.processes() == 0
            && self.machine.jobs() == 0
            && self.promises.jobs().iter().all(is_inactive)
    }

    fn check_end(&mut self) {
        for submission in self.promises.submissions.clone() {
            if submission.ids.is_none() {
                self.violate("unanswered", format!("no ids for {}", submission.payload));
            }
        }
        let Some(daemon) = &self.daemon else {
            return self.violate("start", "the daemon does not run at the end");
        };
        let jobs = match daemon.manager().store().jobs() {
            Ok(jobs) => jobs,
            Err(error) => return self.violate("store-damaged", error.to_string()),
        };
        let allocated = daemon
            .manager()
            .allocated()
            .map(|allocated| cores_of(&allocated));
        let known = self.promises.jobs();
        let mut violations = Vec::new();
        for job in &jobs.records {
            let id = job.id.get();
            let log = events(&job.eventlog());
            let names: Vec<_> = log.iter().map(|event| event.name.as_str()).collect();
            if !known.contains(&id) {
                violations.push((
                    "submitted-twice",
                    format!("job {id} was not acknowledged under any token"),
                ));
            }
            for fault in order_faults(&log) {
                violations.push(("event-order", format!("job {id}: {fault} in {names:?}")));
            }
            if names.last() != Some(&"clean") {
                violations.push(("never-ends", format!("job {id} has {names:?}")));
            }
            if names.contains(&"alloc") != names.contains(&"free") {
                violations.push((
                    "event-order",
                    format!(
                        "job {id}: `alloc` without `free`, or `free` without `alloc`: {names:?}"
                    ),
                ));
            }
            violations.extend(self.check_result(id, &log));
        }
        let stored: Vec<_> = jobs.records.iter().map(|job| job.id.get()).collect();
        for id in known {
            if !stored.contains(&id) {
                violations.push((
                    "acknowledged-lost",
                    format!("job {id} was acknowledged, and is not in the store"),
                ));
            }
        }
        if allocated
            .as_ref()
            .is_ok_and(|allocated| !allocated.is_empty())
        {
            violations.push((
                "never-freed",
                format!("{allocated:?} are allocated to no job"),
            ));
        }
        for (invariant, text) in violations {
            self.violate(invariant, text);
        }
        for text in self.machine.leftovers() {
            self.violate("leftovers", text);
        }
    }

    /// Compares the result of a job with what its processes have done.
    fn check_result(&self, id: u64, log: &[Event]) -> Option<(&'static str, String)> {
        let is_fatal = |event: &Event| event.name == "exception" && event.context["severity"] == 0;
        let exceptions: BTreeMap<&str, &str> = log
            .iter()
            .filter(|event| is_fatal(event))
            .map(|event| {
                let text = |key: &str| event.context[key].as_str().unwrap_or_default();
                (text("type"), text("note"))
            })
            .collect();
        let finish = log.iter().find(|event| event.name == "finish");
        let status = finish.and_then(|event| event.context["status"].as_i64());
        let expected = self.machine.status(id);
        let has_asked_for = exceptions
            .keys()
            .all(|kind| matches!(*kind, "cancel" | "timeout"));
        if !has_asked_for && !self.machine.may_have_lost(id) {
            return Some((
                "result",
                format!("job {id} has the exceptions {exceptions:?} without a cause"),
            ));
        }
        if status.is_some() && status != expected {
            return Some((
                "result",
                format!("job {id} has the status {status:?}, its tasks {expected:?}"),
            ));
        }
        if status.is_none() && exceptions.is_empty() {
            return Some((
                "result",
                format!("job {id} has neither status nor exception"),
            ));
        }
        None
    }
}
