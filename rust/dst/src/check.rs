//! The invariants, and the end of a run, at which every job must have come to its end.

use std::collections::{BTreeMap, BTreeSet};

use penstock_flux::eventlog;
use penstock_flux::topic::{job_manager, resource};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_store::{JobRecord, Store};
use serde_json::Value;

use crate::client::{Client, Promises, Purpose, Submission};
use crate::daemon::{Daemon, STORE};
use crate::dependents::{self, Traffic};
use crate::eventlog::{Event, events, has_ended};
use crate::site::{OWNER, cores_of};
use crate::steps::{VALUE_GROUPS, value_keys};
use crate::vfs::{open_snapshot, with_disk};
use crate::world::{RANKS, Violation, World};

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

/// The number of PMIx requests that were granted by a log.
fn granted_requests(events: &[Event]) -> usize {
    let ends = events
        .iter()
        .filter(|event| event.name == eventlog::ALLOC_END);
    ends.filter(|event| event.context["status"] == 0).count()
}

/// The number of changes by which a job has released nodes.
fn releases(events: &[Event]) -> usize {
    let names = events.iter().map(|event| event.name.as_str());
    names
        .filter(|name| *name == eventlog::RESOURCE_REMOVE)
        .count()
}

/// Grants that a log adds more than once.
fn repeated_grants(events: &[Event]) -> Vec<String> {
    let added = events
        .iter()
        .filter(|event| event.name == eventlog::RESOURCE_ADD);
    let mut grants = BTreeSet::new();
    added
        .map(|event| event.context["alloc"].to_string())
        .filter(|grant| !grants.insert(grant.clone()))
        .map(|grant| format!("the grant {grant} is added twice"))
        .collect()
}

/// The faults of the eventlog of resources: execution targets that are added more than once.
fn growth_faults(store: &Store) -> Vec<String> {
    let logged = store.resource_events().unwrap_or_default();
    let lines: Vec<String> = logged.into_iter().map(|(_, line)| line).collect();
    let lines = lines.join("\n");
    let mut ranks = IdSet::new();
    let mut faults = Vec::new();
    for event in events(&lines).iter().filter(|event| event.name == "grow") {
        match ResourceSet::from_json(&event.context["R"].to_string()) {
            Ok(added) if ranks.is_disjoint(&added.ranks()) => ranks.union_with(&added.ranks()),
            Ok(added) => faults.push(format!("{} are added after {ranks}", added.ranks())),
            Err(error) => faults.push(format!("an invalid growth: {error}")),
        }
    }
    faults
}

/// Whether a log is that of a job that carries a PMIx request.
fn is_request_job(events: &[Event]) -> bool {
    events.iter().any(|event| event.name == eventlog::REQUEST)
}

/// PMIx requests of a job that has ended which have no end, or several.
fn open_requests(events: &[Event]) -> Vec<String> {
    let numbers = |name: &str| -> Vec<String> {
        let named = events.iter().filter(|event| event.name == name);
        let mut numbers: Vec<_> = named
            .map(|event| event.context["seq"].to_string())
            .collect();
        numbers.sort_unstable();
        numbers
    };
    let (begun, ended) = (
        numbers(eventlog::ALLOC_REQUEST),
        numbers(eventlog::ALLOC_END),
    );
    if begun == ended {
        return Vec::new();
    }
    vec![format!(
        "requests {begun:?} have begun, {ended:?} have ended"
    )]
}

/// The violations of RFC 21 by a log in the order of hooks.
fn hook_faults(events: &[Event]) -> Vec<String> {
    let position = |name: &str| {
        let mut places = events.iter().enumerate();
        let found = places.find(|(_, event)| event.name == name);
        found.map(|(place, _)| place)
    };
    let is_after = |later: &str, earlier: &str| match (position(later), position(earlier)) {
        (Some(later), Some(earlier)) => earlier < later,
        (None, _) => true,
        (Some(_), None) => false,
    };
    let mut faults = Vec::new();
    for (start, finish) in [
        (eventlog::PROLOG_START, eventlog::PROLOG_FINISH),
        (eventlog::EPILOG_START, eventlog::EPILOG_FINISH),
    ] {
        for name in [start, finish] {
            if events.iter().filter(|event| event.name == name).count() > 1 {
                faults.push(format!("`{name}` twice"));
            }
        }
        if !is_after(finish, start) {
            faults.push(format!("`{finish}` before `{start}`"));
        }
        for later in ["free", "clean"] {
            if position(start).is_some() && position(later).is_some() && !is_after(later, finish) {
                faults.push(format!("`{later}` before `{finish}`"));
            }
        }
    }
    if position(eventlog::PROLOG_START).is_some() && !is_after("start", eventlog::PROLOG_FINISH) {
        faults.push("`start` before `prolog-finish`".to_owned());
    }
    if position("finish").is_some() && !is_after(eventlog::EPILOG_START, "finish") {
        faults.push("`epilog-start` before `finish`".to_owned());
    }
    faults
}

/// The violations of RFC 21 by a log, whole or not.
fn order_faults(events: &[Event]) -> Vec<String> {
    let place = |event: &Event| ORDER.iter().position(|name| *name == event.name);
    // Ranks that a job has released while it runs are freed before it ends.
    let has_released = events
        .iter()
        .any(|event| event.name == eventlog::RESOURCE_REMOVE);
    let is_early = |event: &&Event| has_released && event.name == "release";
    let finish = events.iter().position(|event| event.name == "finish");
    let (before, after) = events.split_at(finish.unwrap_or(events.len()));
    let counted = before.iter().filter(|event| !is_early(event)).chain(after);
    let known: Vec<usize> = counted.filter_map(place).collect();
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

/// The faults of the values that clients have committed.
fn value_faults(store: &Store, promises: &Promises) -> Vec<String> {
    let mut faults = Vec::new();
    for group in 0..VALUE_GROUPS {
        let values = value_keys(group).map(|key| {
            let value = store.value(&key).ok().flatten();
            value.and_then(|value| String::from_utf8(value).ok()?.parse::<usize>().ok())
        });
        let [first, second] = values;
        if first != second || !promises.allows_value(group, first) {
            let commits = &promises.commits;
            faults.push(format!("group {group} has {values:?} after {commits:?}"));
        }
    }
    faults
}

/// The number of jobs in a store by their names.
fn jobs_by_name(store: &Store) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for job in store.jobs().unwrap_or_default().records {
        let Ok(Some(text)) = store.jobspec(job.row.spec) else {
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

/// The submissions that are in a store by the names of its jobs, and were answered with an error.
fn rejected_faults(
    stored: &BTreeMap<String, usize>,
    promises: &Promises,
) -> impl Iterator<Item = Violation> {
    let names = stored.keys();
    let rejected = names.filter_map(|name| promises.rejected_name(name));
    rejected.map(|number| {
        let text = format!("submission {number} was answered with an error, and is stored");
        Violation::new("rejected-yet-stored", text)
    })
}

/// The number of the submissions in the store that are not complete, whose jobs the job manager hides.
fn open_submissions() -> rusqlite::Result<u32> {
    let snapshot = open_snapshot(STORE)?;
    let query = "SELECT count(*) FROM open_submissions";
    snapshot.query_row(query, [], |row| row.get(0))
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
        let hooks = self.daemon.iter().flat_map(Daemon::running_hooks);
        self.machine.check_cores(hooks);
        if self.setup.prolog {
            let started = self.machine.started_jobs();
            if let Some(job) = started.difference(&self.prepared).next() {
                self.violate(
                    "hook",
                    format!("job {job} has started before its prolog has succeeded"),
                );
            }
        }
        for text in self.machine.take_violations() {
            self.violate("execution", text);
        }
        for text in self.machine.output.take_violations() {
            self.violate("output", text);
        }
        let Some(daemon) = self.daemon.as_ref().filter(|daemon| daemon.is_healthy()) else {
            return;
        };
        let inventory = daemon.inventory();
        match daemon.manager().allocated() {
            Ok(allocated) if cores_of(&allocated).len() > self.all_cores() => {
                self.violate("allocated-twice", "more cores are allocated than exist");
            }
            Ok(_) => {}
            Err(error) => self.violate("allocated-twice", error.to_string()),
        }
        if let Some(text) = self.inventory_fault(&inventory) {
            self.violate("inventory", text);
        }
        self.check_dependents(Traffic::UnderWay);
    }

    /// Checks the jobs with dependencies, as far as the store has everything.
    pub(crate) fn check_dependents(&mut self, traffic: Traffic) {
        let healthy = self.daemon.as_ref().filter(|daemon| daemon.is_healthy());
        let Some(manager) = healthy.map(Daemon::manager) else {
            return;
        };
        if manager.has_uncommitted() {
            return;
        }
        // After a step of the clock a begin time may be in the future again.
        let now = if self.has_clock_steps {
            f64::INFINITY
        } else {
            self.now
        };
        let (store, check) = (manager.store(), &mut self.dependents);
        for submission in &self.promises.submissions {
            let dependencies = &submission.dependencies;
            let ids = submission.ids.iter().flatten();
            let has_dependents = dependencies.iter().any(|of_job| !of_job.is_empty());
            for id in ids.filter(|_| has_dependents) {
                if check.settled.contains(id) {
                    continue;
                }
                let fault = check.check(store, now, *id, dependencies, traffic);
                let fault = fault.map(|(invariant, text)| Violation::new(invariant, text));
                self.violations.extend(fault);
            }
        }
    }

    /// The difference between an inventory and the responses to requests that change it.
    fn inventory_fault(&self, inventory: &IdSet) -> Option<String> {
        let promises = &self.promises;
        let removed = promises.removed_ranks.iter();
        let removed = removed.filter(|rank| inventory.contains(**rank)).min();
        let added = promises
            .added_ranks
            .difference(&promises.requested_removals);
        let missing = added.filter(|rank| !inventory.contains(**rank)).min();
        match (removed, missing) {
            (Some(rank), _) => Some(format!("rank {rank} was removed, and is in {inventory}")),
            (_, Some(rank)) => Some(format!("rank {rank} was added, and is not in {inventory}")),
            _ => None,
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
            let is_stored = store.has_job(JobId::new(id)).unwrap_or(true);
            if is_stored && self.promises.purged.contains(&id) {
                violations.push(Violation::new(
                    "purge-lost",
                    format!("job {id} was purged, and is in the store"),
                ));
            }
            if !is_stored && !self.purged.contains(&id) {
                violations.push(Violation::new(
                    "acknowledged-lost",
                    format!("job {id} was acknowledged, and is not in the store"),
                ));
            }
        }
        let faults = value_faults(store, &self.promises).into_iter();
        violations.extend(faults.map(|text| Violation::new("value", text)));
        let faults = growth_faults(store).into_iter();
        violations.extend(faults.map(|text| Violation::new("inventory", text)));
        let stored = jobs_by_name(store);
        violations.extend(rejected_faults(&stored, &self.promises));
        for (number, submission) in self.promises.submissions.iter().enumerate() {
            let count = stored.get(&format!("s{number}")).copied();
            let purged = submission.ids.iter().flatten();
            let purged = purged.filter(|id| self.purged.contains(id)).count();
            let is_counted = self.purged.is_empty() || submission.ids.is_some();
            let is_whole =
                |count: usize| count <= submission.count && count + purged >= submission.count;
            let is_fault = if submission.is_unfinished {
                count.is_some()
            } else if self.promises.was_disabled && !submission.parts.is_empty() {
                count.is_some_and(|count| count > submission.count)
            } else {
                is_counted && count.is_some_and(|count| !is_whole(count))
            };
            if is_fault {
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
            if lines != *seen && !(log.is_empty() && self.purged.contains(id)) {
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
                    if !has_allocation || job.row.r.is_none() {
                        violations.push(Violation::new(
                            "start-without-r",
                            format!("job {id} has run, and has no R in the store"),
                        ));
                    }
                }
                Ok(None) if self.purged.contains(&id) => {}
                Ok(None) => violations.push(Violation::new(
                    "start-without-r",
                    format!("job {id} has run, and is not in the store"),
                )),
                Err(_) => {}
            }
        }
        violations.extend(self.elastic_faults(store));
        self.violations.extend(violations);
    }

    /// The reported grants and releases of PMIx requests that a store does not have.
    fn elastic_faults(&self, store: &Store) -> Vec<Violation> {
        let mut violations = Vec::new();
        for (id, count) in &self.promises.granted {
            let log = store.eventlog(JobId::new(*id)).unwrap_or_default();
            if !self.purged.contains(id) && granted_requests(&events(&log)) < *count {
                violations.push(Violation::new(
                    "grant-lost",
                    format!("job {id}: {count} requests were granted, the log has fewer: {log}"),
                ));
            }
        }
        for (id, count) in &self.promises.releases {
            let log = store.eventlog(JobId::new(*id)).unwrap_or_default();
            if !self.purged.contains(id) && releases(&events(&log)) < *count {
                violations.push(Violation::new(
                    "release-lost",
                    format!("job {id}: {count} releases were reported, the log has fewer: {log}"),
                ));
            }
        }
        violations
    }

    /// Checks what holds when nothing is under way.
    pub fn check_silent(&mut self) {
        let Some(daemon) = self.daemon.as_ref().filter(|daemon| daemon.is_healthy()) else {
            return;
        };
        if self
            .promises
            .submissions
            .iter()
            .any(Submission::is_rejected)
        {
            let stored = jobs_by_name(daemon.manager().store());
            let faults = rejected_faults(&stored, &self.promises);
            self.violations.extend(faults);
        }
        if let (Some(scheduler), Ok(allocated)) =
            (self.ready_scheduler(), daemon.manager().allocated())
        {
            // Allocations on removed execution targets are not the scheduler's.
            let schedulable = |r: &ResourceSet| cores_of(&r.restrict(scheduler.ranks()));
            let (known, allocated) = (scheduler.allocated(), schedulable(&allocated));
            let known = known.map(|known| schedulable(&known)).unwrap_or_default();
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
        self.check_dependents(Traffic::Silent);
    }

    /// Checks that no stream about an inactive job is open.
    fn check_streams(&mut self) {
        let Some(daemon) = &self.daemon else {
            return;
        };
        let store = daemon.manager().store();
        let readers = self.clients.iter().filter(|client| client.is_reading);
        let open = readers.flat_map(Client::awaited_jobs).find(|id| {
            if !store.has_job(JobId::new(*id)).unwrap_or(true) {
                return self.purged.contains(id);
            }
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
        // A failure of the last checkpoint fails the next commit, and the job manager is built again.
        self.start_queue();
        self.run();
        self.advance(2.0);
        for rank in 0..RANKS + self.added_ranks {
            let undrain = format!(r#"{{"targets":"{rank}","mode":"force"}}"#);
            self.request(0, resource::UNDRAIN, &undrain, Purpose::Other);
            let unmonitor = format!(r#"{{"targets":"{rank}"}}"#);
            self.request(0, resource::UNMONITOR, &unmonitor, Purpose::Other);
        }
        if self.has_shrunk {
            // Enough for every job.
            self.grow();
            self.grow();
        }
        self.start_queue();
        self.run();
        self.end_lists();
        for number in 0..self.promises.submissions.len() {
            self.resubmit(0, number);
        }
        self.run();
        for id in self.promises.jobs() {
            let payload = format!(r#"{{"id":{id},"urgency":16}}"#);
            self.request(0, job_manager::URGENCY, &payload, Purpose::Other);
        }
        let submissions = self.promises.submissions.iter();
        let all = submissions.flat_map(|submission| &submission.dependencies);
        if let Some(time) = dependents::latest_begin(all) {
            self.advance((time - self.now).max(0.0) + 1.0);
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
            let has_hook = |daemon: &Daemon| daemon.running_hooks().next().is_some();
            if self.machine.processes() > 0 {
                self.machine.end_process(0, 0);
                waits = 0;
            } else if self.daemon.as_ref().is_some_and(has_hook) {
                if let Some(daemon) = &mut self.daemon {
                    daemon.end_hook(0, 0);
                }
                self.settle_daemon();
                waits = 0;
            } else if waits == MAX_WAITS {
                break;
            } else {
                self.end_allocations();
                waits += 1;
                self.advance(BEYOND_ALL_TIMEOUTS_S);
            }
        }
        self.advance(1.0);
        self.run();
        self.check_end();
    }

    /// Requests that the queue start and accept jobs.
    fn start_queue(&mut self) {
        for (topic, payload) in [
            (job_manager::QUEUE_START, r#"{"start":true,"all":true}"#),
            (job_manager::QUEUE_ENABLE, r#"{"enable":true,"all":true}"#),
        ] {
            self.request(0, topic, payload, Purpose::Other);
        }
    }

    /// Cancels the allocations that outlive the jobs that have requested them.
    fn end_allocations(&mut self) {
        let Some(daemon) = &self.daemon else {
            return;
        };
        let jobs = daemon.manager().store().jobs().unwrap_or_default();
        let active = jobs.records.iter().filter(|job| {
            let log = job.eventlog();
            is_request_job(&events(&log)) && !has_ended(&log)
        });
        let ids: Vec<u64> = active.map(|job| job.id.get()).collect();
        if !ids.is_empty() {
            let payload = format!(r#"{{"ids":{ids:?},"type":"cancel","severity":0,"note":""}}"#);
            self.request(0, job_manager::RAISE, &payload, Purpose::Other);
        }
    }

    /// Whether all submitted jobs are inactive, or purged.
    fn have_submissions_ended(&self) -> bool {
        let Some(daemon) = &self.daemon else {
            return false;
        };
        let store = daemon.manager().store();
        self.promises.jobs().iter().all(|id| {
            let log = store.eventlog(JobId::new(*id));
            log.is_ok_and(|log| has_ended(&log)) || self.purged.contains(id)
        })
    }

    /// Whether no process runs, the service has forgotten all jobs, and all jobs are inactive.
    fn has_ended(&self) -> bool {
        let Some(daemon) = &self.daemon else {
            return false;
        };
        if self.machine.processes() > 0 || self.machine.jobs() > 0 || !self.have_submissions_ended()
        {
            return false;
        }
        let jobs = daemon.manager().store().jobs().unwrap_or_default();
        let mut logs = jobs.records.iter().map(JobRecord::eventlog);
        logs.all(|log| has_ended(&log))
    }

    fn check_end(&mut self) {
        for submission in self.promises.submissions.clone() {
            let is_rejected = || {
                dependents::antecedents(&submission.dependencies)
                    .any(|id| self.purged.contains(&id))
            };
            if submission.ids.is_none() && !is_rejected() {
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
        let faults = value_faults(daemon.manager().store(), &self.promises).into_iter();
        let mut violations: Vec<_> = faults.map(|text| ("value", text)).collect();
        let faults = growth_faults(daemon.manager().store()).into_iter();
        violations.extend(faults.map(|text| ("inventory", text)));
        match daemon.manager().store().wrong_user_bytes() {
            Ok(wrong) => violations.extend(wrong.into_iter().map(|text| ("user-bytes", text))),
            Err(error) => violations.push(("store-damaged", error.to_string())),
        }
        for job in &jobs.records {
            let id = job.id.get();
            let log = events(&job.eventlog());
            let names: Vec<_> = log.iter().map(|event| event.name.as_str()).collect();
            let is_request_job = is_request_job(&log);
            if !known.contains(&id) && !is_request_job {
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
            let faults = hook_faults(&log).into_iter().chain(open_requests(&log));
            for fault in faults.chain(repeated_grants(&log)) {
                violations.push(("event-order", format!("job {id}: {fault} in {names:?}")));
            }
            if !is_request_job {
                violations.extend(self.check_result(id, &log));
            }
        }
        let stored: Vec<_> = jobs.records.iter().map(|job| job.id.get()).collect();
        for id in known {
            if !stored.contains(&id) && !self.purged.contains(&id) {
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
        match open_submissions() {
            Ok(0) => {}
            Ok(count) => {
                let text = format!("{count} submissions are not complete, and no request is");
                self.violate("leftovers", text);
            }
            Err(error) => self.violate("store-damaged", error.to_string()),
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
        let owner = self.promises.userid_of(id);
        let may_raise = |userid: u64| {
            userid == u64::from(OWNER) || owner.is_none_or(|owner| userid == u64::from(owner))
        };
        let raisers = log.iter().filter(|event| event.name == "exception");
        let mut raisers = raisers.filter_map(|event| event.context["userid"].as_u64());
        if let Some(raiser) = raisers.find(|raiser| !may_raise(*raiser)) {
            let text = format!("user {raiser} has raised an exception of job {id} of {owner:?}");
            return Some(("permission", text));
        }
        let finish = log.iter().find(|event| event.name == "finish");
        let status = finish.and_then(|event| event.context["status"].as_i64());
        let has_asked_for = exceptions.keys().all(|kind| match *kind {
            // Whether a dependency could not be met is checked when the job fails.
            "cancel" | "timeout" | "dependency" => true,
            "prolog" => self.setup.prolog,
            "exec" => self.machine.has_failed_setup(id) || self.machine.output.has_ended(id),
            // It was denied while there were too few execution targets.
            "alloc" => self.has_shrunk,
            _ => false,
        });
        if !has_asked_for && !self.machine.may_have_lost(id) {
            return Some((
                "result",
                format!("job {id} has the exceptions {exceptions:?} without a cause"),
            ));
        }
        let expected = self.machine.status(id);
        if status.is_some_and(|status| !self.machine.has_status(id, status)) {
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
