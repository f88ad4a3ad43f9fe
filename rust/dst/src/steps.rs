//! The steps of a script: requests of clients, what happens by itself, and faults.

use std::collections::BTreeMap;

use penstock_flux::kvs::{CommitRequest, Dirent, Operation, r_key};
use penstock_flux::pmix_attribute;
use penstock_flux::topic::{job_info, job_ingest, job_list, job_manager, kvs, pmix, resource};
use penstock_flux::urgency;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use crate::client::{Client, ListAttempt, ListPart, Purpose, Responses, Submission, ValueCommit};
use crate::constraint::ExcludedProperties;
use crate::daemon::STORE;
use crate::dependents::{BEGIN_TIME, Dependencies, SCHEMES, antecedent};
use crate::disk::Faults;
use crate::jobspec::jobspec;
use crate::machine::SetupEnd;
use crate::script::{Step, StepKind};
use crate::site::OWNER;
use crate::vfs::with_disk;
use crate::world::{CLIENTS, CORES, RANKS, Rounds, World};

/// The payload of a request that stops or disables the queue, by setting a flag to false.
fn stop(flag: &str) -> String {
    format!(r#"{{"{flag}":false,"all":true,"reason":"maintenance"}}"#)
}

/// The payload of a request that starts or enables it.
fn start(flag: &str) -> String {
    format!(r#"{{"{flag}":true,"all":true}}"#)
}

/// Requests that only the owner may send, and their payloads.
const OWNERS_REQUESTS: [(&str, &str); 9] = [
    (job_manager::QUEUE_START, r#"{"start":false,"all":true}"#),
    (job_manager::QUEUE_ENABLE, r#"{"enable":false,"all":true}"#),
    (
        job_manager::PURGE,
        r#"{"num_limit":0,"userid":1000,"force":true}"#,
    ),
    (
        job_manager::RAISEALL,
        r#"{"dry_run":false,"userid":4294967295,"states":127,"type":"cancel","severity":0}"#,
    ),
    (job_manager::SCHED_READY, r#"{"mode":"unlimited"}"#),
    (job_manager::EXEC_HELLO, r#"{"service":"job-exec"}"#),
    (kvs::COMMIT, r#"{"namespace":"primary","ops":[],"flags":0}"#),
    (resource::DRAIN, r#"{"targets":"0","reason":"broken"}"#),
    (resource::UNDRAIN, r#"{"targets":"0"}"#),
];

/// The payload of a PMIx request; attributes of the value 0 are left out.
fn pmix_request(job: u64, directive: &str, attributes: &[(&str, u32)]) -> String {
    let given = attributes.iter().filter(|(_, value)| *value > 0);
    let given = given.map(|(key, value)| format!(r#"{{"key":"{key}","value":{value}}}"#));
    let given = given.collect::<Vec<_>>().join(",");
    format!(r#"{{"job":{job},"directive":"{directive}","attributes":[{given}]}}"#)
}

/// The bytes of output in a unit of a step's argument.
const OUTPUT_UNIT: u64 = 8;
/// The most execution targets that steps add.
const MAX_ADDED_RANKS: u32 = 4;

/// The number of groups of values.
pub(crate) const VALUE_GROUPS: u32 = 3;

/// The keys of a group, which are set together.
pub(crate) fn value_keys(group: u32) -> [String; 2] {
    ["site.a", "site.b"].map(|name| format!("{name}{group}"))
}

/// The operation that sets a key.
fn set<'a>(key: &'a str, value: &[u8]) -> Operation<'a> {
    Operation {
        key: key.into(),
        flags: 0,
        dirent: Some(Dirent::of(value).into()),
    }
}

/// The payload of a commit.
fn commit(ops: Vec<Operation<'_>>) -> String {
    let request = CommitRequest {
        namespace: None,
        flags: 0,
        ops,
    };
    serde_json::to_string(&request).unwrap_or_default()
}

fn index(argument: u32) -> usize {
    argument as usize
}

impl World {
    /// Takes a step.
    pub fn take(&mut self, step: Step) {
        if self.take_request(step) {
            return;
        }
        let [first, second, third, _] = step.arguments;
        match step.kind {
            StepKind::Deliver => {
                let readable = self.readable();
                let found = index(first).checked_rem(readable.len());
                if let Some((link, at)) = found.and_then(|found| readable.get(found)) {
                    let rounds = if third % 4 == 3 {
                        Rounds::Later
                    } else {
                        Rounds::Now
                    };
                    self.deliver(*link, *at, 1 + index(second), rounds);
                }
            }
            StepKind::Reap if first.is_multiple_of(2) => {
                self.machine.deliver_to_reaper();
            }
            StepKind::Reap => {
                self.machine
                    .deliver_from_reaper(&mut self.network.borrow_mut());
            }
            StepKind::Run => self.run(),
            StepKind::Advance => self.advance(f64::from(first) / 1000.0),
            StepKind::End => {
                let code = u8::try_from(second % 3).unwrap_or(0);
                self.machine.end_process(index(first), code);
            }
            StepKind::Fork => self.machine.fork(index(first)),
            StepKind::Start => self.start(),
            StepKind::SetUp => {
                let end = match second % 6 {
                    4 => SetupEnd::Failed,
                    5 => SetupEnd::Exited,
                    _ => SetupEnd::Executed,
                };
                self.machine.end_setup(index(first), end);
            }
            StepKind::Write => {
                let bytes = OUTPUT_UNIT * u64::from(second);
                self.machine.write_output(index(first), bytes);
            }
            StepKind::Count => {
                let files = 1 + index(first) % 4;
                self.machine
                    .advance_count(files, &mut self.network.borrow_mut());
            }
            StepKind::HangSetups if first.is_multiple_of(2) => self.machine.release_setups(),
            StepKind::HangSetups => self.machine.hang_setups(),
            StepKind::EndHook => {
                // Most succeed.
                let code = u8::from(second % 8 == 7);
                if let Some(daemon) = &mut self.daemon {
                    daemon.end_hook(index(first), code);
                }
                self.settle_daemon();
            }
            _ => self.take_fault(step),
        }
    }

    fn take_fault(&mut self, step: Step) {
        let [first, second, third, _] = step.arguments;
        let is_on = !first.is_multiple_of(2);
        match step.kind {
            StepKind::KillDaemon if first == 0 => self.bury_daemon(),
            StepKind::KillDaemon => with_disk(|disk| disk.faults.kill_after = Some(first % 64)),
            StepKind::EndDaemon => self.end_daemon(),
            StepKind::PowerFailure => self.lose_power(first),
            StepKind::Cut => {
                let mut network = self.network.borrow_mut();
                let links = network.links();
                let found = index(first).checked_rem(links.len());
                if let Some(link) = found.and_then(|found| links.get(found)) {
                    network.cut(*link, index(second), index(third));
                }
            }
            StepKind::Slow => {
                if let Some(client) = self.clients.get_mut(index(first) % CLIENTS) {
                    client.is_reading = !client.is_reading;
                }
            }
            StepKind::KillService => {
                let (effects, torn) = (index(first) % 6, index(second));
                self.machine
                    .kill_service(effects, torn, &mut self.network.borrow_mut());
            }
            StepKind::FillOutput => self.machine.output.fill(first % 5),
            StepKind::JournalFull if is_on => self.machine.fill_disk(),
            StepKind::JournalFull => self.machine.free_disk(&mut self.network.borrow_mut()),
            StepKind::JournalError => {
                self.machine.arm_journal_error(first % 8, index(second));
            }
            StepKind::KillReaper => self.machine.kill_reaper(&mut self.network.borrow_mut()),
            StepKind::KillScheduler => {
                self.end_scheduler_process();
                if let Some(daemon) = &mut self.daemon {
                    daemon.kill_scheduler();
                }
                self.settle_daemon();
            }
            StepKind::FailHooks => {
                if let Some(daemon) = &mut self.daemon {
                    daemon.fail_hooks(f64::from(first % 30));
                    if second % 2 == 1 {
                        daemon.kill_manager();
                    }
                }
                self.settle_daemon();
            }
            StepKind::Full => with_disk(|disk| disk.faults.is_full = is_on),
            StepKind::Busy => with_disk(|disk| disk.faults.is_busy = is_on),
            StepKind::DiskError => with_disk(|disk| disk.faults.error_after = Some(first % 32)),
            StepKind::SyncError => with_disk(|disk| {
                let failing = match second % 4 {
                    0 => 0,
                    1 | 2 => second % 16,
                    // For some time.
                    _ => second % 128,
                };
                disk.faults.sync_error_after = Some(first % 8);
                disk.faults.failing_after_sync = failing;
            }),
            StepKind::CopyError => with_disk(|disk| {
                disk.faults.file_sync_error_after = Some((STORE, first % 4));
            }),
            StepKind::Reader if is_on => self.begin_reading(),
            StepKind::Reader => self.reader = None,
            StepKind::StartBesideReader => {
                self.bury_daemon();
                self.reader = None;
                with_disk(|disk| disk.faults = Faults::default());
                self.begin_reading();
                with_disk(|disk| disk.faults.is_busy = is_on);
                self.start();
            }
            StepKind::Clock => self.set_clock(first % 3600, second % 3600),
            kind => unreachable!("{kind:?} is a request, or happens by itself"),
        }
    }

    // --- requests

    /// Sends the request of a step. Returns false if the step is not a request.
    fn take_request(&mut self, step: Step) -> bool {
        let [first, second, third, fourth] = step.arguments;
        let (client, job, rank) = (index(first), index(second), first % RANKS);
        match step.kind {
            StepKind::Submit => self.submit(client, second, third, fourth, Dependencies::new()),
            StepKind::SubmitPart => {
                self.submit_part(client, second, third, fourth, Dependencies::new());
            }
            StepKind::SubmitDependent => self.submit_dependent(client, second, third, fourth),
            StepKind::SubmitDependentPart => {
                self.submit_dependent_part(client, second, third, fourth);
            }
            StepKind::AbortList => self.abort_list(client),
            StepKind::Resubmit => self.resubmit(client, job),
            StepKind::Cancel => self.request_of_job(client, job, job_manager::RAISE, |id| {
                format!(r#"{{"id":{id},"type":"cancel","severity":0,"note":""}}"#)
            }),
            StepKind::Signal => self.request_of_job(client, job, job_manager::KILL, |id| {
                format!(r#"{{"id":{id},"signum":15}}"#)
            }),
            StepKind::Urgency => self.request_of_job(client, job, job_manager::URGENCY, |id| {
                format!(r#"{{"id":{id},"urgency":{}}}"#, third % 32)
            }),
            StepKind::Limit => self.request_of_job(client, job, job_manager::UPDATE, |id| {
                let seconds = 1 + third % 100;
                format!(r#"{{"id":{id},"updates":{{"attributes.system.duration":{seconds}}}}}"#)
            }),
            StepKind::Watch => self.request_of_job(client, job, job_info::EVENTLOG_WATCH, |id| {
                format!(r#"{{"id":{id},"flags":0}}"#)
            }),
            StepKind::Wait => self.request_of_job(client, job, job_list::WAIT, |id| {
                format!(r#"{{"ids":[{id}]}}"#)
            }),
            StepKind::List => {
                let payload = r#"{"max_entries":100,"attrs":["userid","state","name"]}"#;
                self.request(client, job_list::LIST, payload, Purpose::List);
            }
            StepKind::Lookup => self.request_of_job(client, job, job_info::LOOKUP, |id| {
                format!(r#"{{"id":{id},"keys":["R","jobspec","eventlog"],"flags":0}}"#)
            }),
            StepKind::Memo => self.request_of_job(client, job, job_manager::MEMO, |id| {
                format!(r#"{{"id":{id},"memo":{{"key":{third}}}}}"#)
            }),
            StepKind::Reuse => self.reuse_token(client),
            StepKind::Drain => {
                let payload = format!(r#"{{"targets":"{rank}","reason":"broken"}}"#);
                self.ask(resource::DRAIN, &payload);
            }
            StepKind::Undrain => {
                let payload = format!(r#"{{"targets":"{rank}"}}"#);
                self.ask(resource::UNDRAIN, &payload);
            }
            StepKind::Monitor => {
                let payload = format!(r#"{{"ranks":"0-{}"}}"#, second % RANKS);
                self.request(client, resource::MONITOR, &payload, Purpose::Other);
            }
            StepKind::Stop => self.ask(job_manager::QUEUE_START, &stop("start")),
            StepKind::Resume => self.ask(job_manager::QUEUE_START, &start("start")),
            StepKind::Reload => self.reload(ExcludedProperties(first % 3)),
            StepKind::Disable => {
                self.promises.was_disabled = true;
                self.ask(job_manager::QUEUE_ENABLE, &stop("enable"));
            }
            StepKind::Enable => self.ask(job_manager::QUEUE_ENABLE, &start("enable")),
            StepKind::Purge => self.purge(client, second, third),
            StepKind::Intrude => self.intrude(client, job),
            StepKind::SetValues => self.set_values(first),
            StepKind::GetValue => {
                let [key, _] = value_keys(second % VALUE_GROUPS);
                let payload = format!(r#"{{"key":"{key}","flags":0}}"#);
                self.request(client, kvs::LOOKUP, &payload, Purpose::Other);
            }
            StepKind::CommitR => self.commit_r(client, second),
            StepKind::Grow if self.added_ranks == MAX_ADDED_RANKS => {}
            StepKind::Grow => self.grow(),
            StepKind::Shrink => {
                let rank = first % (RANKS + self.added_ranks);
                self.has_shrunk = true;
                self.promises.requested_removals.insert(rank);
                let payload = format!(r#"{{"targets":"{rank}"}}"#);
                self.request(0, resource::SHRINK, &payload, Purpose::Shrink(rank));
            }
            _ => return self.take_request_of_many(step) || self.take_pmix_request(step),
        }
        true
    }

    /// Sends the request of a step about several jobs. Returns false if the step is not one.
    fn take_request_of_many(&mut self, step: Step) -> bool {
        let [first, second, third, _] = step.arguments;
        let client = index(first);
        let ids = self.latest(1 + index(second) % 8);
        let names = format!("{ids:?}");
        match step.kind {
            // A guest means its own jobs.
            StepKind::CancelAll if third % 2 == 1 => {
                let payload = r#"{"all":true,"type":"cancel","severity":0,"note":""}"#;
                self.request(client, job_manager::RAISE, payload, Purpose::Other);
            }
            StepKind::CancelAll => {
                let user = self.userid(index(second));
                let payload = format!(
                    r#"{{"dry_run":false,"userid":{user},"states":127,"type":"cancel","severity":0}}"#
                );
                let purpose = if self.may_act_for(client, user) {
                    Purpose::Other
                } else {
                    Purpose::Forbidden
                };
                self.request(client, job_manager::RAISEALL, &payload, purpose);
            }
            StepKind::CancelMany => self.request_of_jobs(
                client,
                ids,
                job_manager::RAISE,
                &format!(r#"{{"ids":{names},"type":"cancel","severity":0,"note":""}}"#),
            ),
            StepKind::UrgencyMany => self.request_of_jobs(
                client,
                ids,
                job_manager::URGENCY,
                &format!(r#"{{"ids":{names},"urgency":{}}}"#, third % 32),
            ),
            StepKind::SignalMany => self.request_of_jobs(
                client,
                ids,
                job_manager::KILL,
                &format!(r#"{{"ids":{names},"signum":15}}"#),
            ),
            _ => return false,
        }
        true
    }

    /// Sends the PMIx request of a step. Returns false if the step is not one.
    fn take_pmix_request(&mut self, step: Step) -> bool {
        let [first, second, third, fourth] = step.arguments;
        let (client, job) = (index(first), index(second));
        let (nodes, seconds) = (1 + third % 3, fourth % 60);
        match step.kind {
            StepKind::Extend => self.pmix(
                client,
                job,
                "extend",
                &[
                    (pmix_attribute::NODES, nodes),
                    (pmix_attribute::TIMEOUT, seconds),
                ],
            ),
            StepKind::ExtendTime => self.pmix(
                client,
                job,
                "extend",
                &[
                    (pmix_attribute::TIME, 1 + third % 100),
                    (pmix_attribute::TIMEOUT, seconds),
                ],
            ),
            StepKind::Allocate => self.pmix(
                client,
                job,
                "new",
                &[
                    (pmix_attribute::NODES, nodes),
                    (pmix_attribute::TIMEOUT, seconds),
                ],
            ),
            StepKind::Release => {
                if let Some(id) = self.running_job(job) {
                    let attributes = [
                        (pmix_attribute::NODES, nodes),
                        (pmix_attribute::TIME, seconds),
                    ];
                    let payload = pmix_request(id, "release", &attributes);
                    let purpose = Purpose::Release(id, self.is_foreign(client, id));
                    self.request(client, pmix::ALLOC, &payload, purpose);
                }
            }
            StepKind::Reacquire => self.pmix(client, job, "reacquire", &[]),
            StepKind::ReleaseGrant => self.release_grant(client, job, index(third)),
            StepKind::Withdraw => {
                if let Some(id) = self.running_job(job) {
                    let purpose = Purpose::Alloc(id, self.is_foreign(client, id));
                    self.request(client, pmix::CANCEL, &format!(r#"{{"job":{id}}}"#), purpose);
                }
            }
            StepKind::CancelGrant => {
                if let Some(id) = self.grant(job) {
                    self.request_of(client, id, job_manager::RAISE, |id| {
                        format!(r#"{{"id":{id},"type":"cancel","severity":0,"note":""}}"#)
                    });
                }
            }
            StepKind::WatchRequests => {
                if let Some(id) = self.running_job(job) {
                    self.request_of(client, id, pmix::EVENTS, |id| format!(r#"{{"job":{id}}}"#));
                }
            }
            _ => return false,
        }
        true
    }

    fn pmix(&mut self, client: usize, job: usize, directive: &str, attributes: &[(&str, u32)]) {
        if let Some(id) = self.running_job(job) {
            let payload = pmix_request(id, directive, attributes);
            let purpose = Purpose::Alloc(id, self.is_foreign(client, id));
            self.request(client, pmix::ALLOC, &payload, purpose);
        }
    }

    /// A job releases one of its grants.
    fn release_grant(&mut self, client: usize, job: usize, grant: usize) {
        let Some(id) = self.running_job(job) else {
            return;
        };
        let grants = self.promises.grants.iter();
        let own: Vec<_> = grants.filter(|(_, requester)| **requester == id).collect();
        let found = grant.checked_rem(own.len());
        if let Some((grant, _)) = found.and_then(|found| own.get(found)) {
            let key = pmix_attribute::ALLOC_ID;
            let payload = format!(
                r#"{{"job":{id},"directive":"release","attributes":[{{"key":"{key}","value":"{grant}"}}]}}"#
            );
            let purpose = Purpose::Alloc(id, self.is_foreign(client, id));
            self.request(client, pmix::ALLOC, &payload, purpose);
        }
    }

    /// Names another submission by the token of one that was acknowledged.
    fn reuse_token(&mut self, number: usize) {
        let count = self.promises.submissions.len();
        let found = number.checked_rem(count);
        let Some(number) = found else {
            return;
        };
        let submission = self.promises.submissions.get(number);
        let known = submission.filter(|submission| submission.ids.is_some());
        if let Some((payload, userid)) = known.map(|known| (known.payload.clone(), known.userid)) {
            let other = payload.replace(r#""name":"s"#, r#""name":"other"#);
            let client = self.client_of(0, userid);
            self.request(client, job_ingest::SUBMIT, &other, Purpose::Forbidden);
        }
    }

    fn purge(&mut self, client: usize, selection: u32, number: u32) {
        // Without a user a guest purges its own jobs, the owner those of all.
        let of = match (selection / 4) % 2 {
            1 if self.userid(client) == OWNER => {
                format!(r#""userid":{},"#, self.userid(index(number)))
            }
            _ => String::new(),
        };
        let (payload, purpose) = match selection % 4 {
            0 => {
                let payload = format!(r#"{{{of}"num_limit":{},"force":false}}"#, number % 4);
                (payload, Purpose::Other)
            }
            1 => {
                let payload = format!(r#"{{{of}"num_limit":{},"force":true}}"#, number % 4);
                (payload, Purpose::Other)
            }
            2 => {
                let payload = format!(r#"{{{of}"age_limit":{},"force":true}}"#, number % 16);
                (payload, Purpose::Other)
            }
            _ => {
                let jobs: Vec<u64> = self.job(index(number)).into_iter().collect();
                let is_foreign = jobs.iter().any(|job| self.is_foreign(client, *job));
                let payload = format!(r#"{{"ids":{jobs:?},"force":true}}"#);
                if is_foreign {
                    (payload, Purpose::Forbidden)
                } else {
                    (payload, Purpose::Purge(jobs))
                }
            }
        };
        self.request(client, job_manager::PURGE, &payload, purpose);
    }

    /// Sends a request as a guest that only the owner may send.
    fn intrude(&mut self, client: usize, which: usize) {
        let request = OWNERS_REQUESTS.get(which % OWNERS_REQUESTS.len());
        if let Some((topic, payload)) = request
            && self.userid(client) != OWNER
        {
            self.request(client, topic, payload, Purpose::Forbidden);
        }
    }

    /// Sets all values of a group in one commit.
    fn set_values(&mut self, group: u32) {
        let number = self.promises.commits.len();
        let group = group % VALUE_GROUPS;
        let value = number.to_string();
        let keys = value_keys(group);
        let ops = keys.iter().map(|key| set(key, value.as_bytes())).collect();
        self.promises.commits.push(ValueCommit {
            group,
            is_acknowledged: false,
        });
        self.request(0, kvs::COMMIT, &commit(ops), Purpose::Values(number));
    }

    /// Adds an execution target.
    pub(crate) fn grow(&mut self) {
        let rank = RANKS + self.added_ranks;
        self.added_ranks += 1;
        let mut added = ResourceSet::new();
        let cores = (0..CORES).collect();
        let inserted = added.insert(rank, &format!("n{rank}"), cores, IdSet::new());
        assert!(inserted.is_ok(), "the rank is inserted once");
        let payload = format!(r#"{{"R":{}}}"#, added.to_json());
        self.request(0, resource::GROW, &payload, Purpose::Grow(rank));
    }

    /// Commits another R for a job that has one and runs, which no scheduler does.
    fn commit_r(&mut self, job: usize, rank: u32) {
        let Some(id) = self.running_job(job) else {
            return;
        };
        let mut r = ResourceSet::new();
        let (rank, core) = (rank % RANKS, (0..1).collect());
        let inserted = r.insert(rank, &format!("n{rank}"), core, IdSet::new());
        assert!(inserted.is_ok(), "the rank is inserted once");
        let key = r_key(JobId::new(id));
        let ops = vec![set(&key, r.to_json().as_bytes())];
        self.request(0, kvs::COMMIT, &commit(ops), Purpose::Forbidden);
    }

    // --- users

    /// The user of a client.
    fn userid(&self, client: usize) -> u32 {
        let client = self.clients.get(client % CLIENTS);
        client.map_or(OWNER, Client::userid)
    }

    fn may_act_for(&self, client: usize, userid: u32) -> bool {
        [OWNER, userid].contains(&self.userid(client))
    }

    /// Whether a job is not the client's.
    pub(crate) fn is_foreign(&self, client: usize, job: u64) -> bool {
        let owner = self.promises.userid_of(job);
        owner.is_some_and(|owner| !self.may_act_for(client, owner))
    }

    /// This client if it is the user's, else the first one that is.
    fn client_of(&self, client: usize, userid: u32) -> usize {
        if self.userid(client) == userid {
            return client;
        }
        let mut clients = self.clients.iter();
        let found = clients.position(|client| client.userid() == userid);
        found.unwrap_or(client)
    }

    /// Sends a request of the first client.
    fn ask(&mut self, topic: &str, payload: &str) {
        self.request(0, topic, payload, Purpose::Other);
    }

    /// Changes the constraint of the queue.
    fn reload(&mut self, excluded: ExcludedProperties) {
        if let Some(daemon) = &mut self.daemon
            && daemon.reload(excluded)
        {
            self.excluded = excluded;
            self.settle_daemon();
        }
    }

    /// Sends a client's request.
    pub(crate) fn request(&mut self, client: usize, topic: &str, payload: &str, purpose: Purpose) {
        let is_stream = matches!(
            topic,
            job_info::EVENTLOG_WATCH
                | job_list::LIST
                | job_list::WAIT
                | pmix::ALLOC
                | pmix::EVENTS
                | resource::MONITOR
        );
        let responses = if is_stream {
            Responses::Stream
        } else {
            Responses::One
        };
        if let Some(client) = self.clients.get_mut(client % CLIENTS) {
            let mut network = self.network.borrow_mut();
            if client.link().is_some() {
                self.promises.send(&purpose);
            }
            client.request(topic, payload, purpose, responses, &mut network);
        }
    }

    pub(crate) fn job(&self, index: usize) -> Option<u64> {
        let jobs = self.promises.jobs();
        // The latest jobs are the interesting ones.
        jobs.iter()
            .rev()
            .nth(index.checked_rem(jobs.len())?)
            .copied()
    }

    /// The latest jobs.
    fn latest(&self, count: usize) -> Vec<u64> {
        let jobs = self.promises.jobs();
        jobs.iter().rev().take(count).copied().collect()
    }

    /// A job of which a task runs.
    fn running_job(&self, index: usize) -> Option<u64> {
        let jobs = self.machine.running_jobs();
        jobs.iter().nth(index.checked_rem(jobs.len())?).copied()
    }

    /// An allocation that was granted to a job.
    fn grant(&self, index: usize) -> Option<u64> {
        let grants = &self.promises.grants;
        let mut ids = grants.keys().rev();
        ids.nth(index.checked_rem(grants.len())?).copied()
    }

    pub(crate) fn submit(
        &mut self,
        client: usize,
        shape: u32,
        urgency: u32,
        seconds: u32,
        dependencies: Dependencies,
    ) {
        let number = self.promises.submissions.len();
        let submission = self.submission(client, shape, urgency, seconds, dependencies);
        self.promises.submissions.push(submission);
        self.resubmit(client, number);
    }

    /// The next submission of a client.
    pub(crate) fn submission(
        &self,
        client: usize,
        shape: u32,
        urgency: u32,
        seconds: u32,
        dependencies: Dependencies,
    ) -> Submission {
        let number = self.promises.submissions.len();
        let count = 1 + shape / 6 % 3;
        let seconds = if seconds % 4 == 1 {
            1 + seconds / 4 % 60
        } else {
            0
        };
        let urgency = if urgency % 8 == 7 {
            0
        } else {
            12 + urgency % 8
        };
        let userid = self.userid(client);
        let urgency = if userid == OWNER {
            urgency
        } else {
            urgency.min(urgency::DEFAULT.into())
        };
        let spec = jobspec(&format!("s{number}"), shape, seconds, &dependencies);
        let payload = format!(
            r#"{{"jobspec":{spec},"urgency":{urgency},"count":{count},"token":"t{number}"}}"#
        );
        let mut submission = Submission::new(userid);
        submission.payload = payload;
        submission.count = index(count);
        submission.dependencies.push(dependencies);
        submission
    }

    /// Dependencies on other jobs of a client, or on a time; some of them may be another user's.
    fn draw_dependencies(&self, scheme: u32, antecedent: u32) -> Dependencies {
        let draw = |scheme: u32, antecedent: u32| {
            let scheme = *SCHEMES.get(scheme as usize % SCHEMES.len())?;
            let value = if scheme == BEGIN_TIME {
                format!("{:.0}", self.now + f64::from(antecedent % 64) - 8.0)
            } else {
                self.job(antecedent as usize)?.to_string()
            };
            Some(format!("{scheme}={value}"))
        };
        let second = scheme
            .is_multiple_of(3)
            .then(|| draw(scheme / 15, antecedent / 2 + 1));
        let drawn = [draw(scheme / 3, antecedent), second.flatten()];
        drawn.into_iter().flatten().collect()
    }

    fn are_foreign(&self, client: usize, dependencies: &Dependencies) -> bool {
        let mut jobs = dependencies.iter().filter_map(|text| antecedent(text));
        jobs.any(|id| self.is_foreign(client, id))
    }

    /// A client submits jobs that depend on others.
    pub(crate) fn submit_dependent(
        &mut self,
        client: usize,
        shape: u32,
        scheme: u32,
        antecedent: u32,
    ) {
        let dependencies = self.draw_dependencies(scheme, antecedent);
        if self.are_foreign(client, &dependencies) {
            let submission = self.submission(client, shape, 0, 0, dependencies);
            let payload = submission
                .payload
                .replace(r#""token":"t"#, r#""token":"foreign"#);
            return self.request(client, job_ingest::SUBMIT, &payload, Purpose::Forbidden);
        }
        self.submit(client, shape, 0, 0, dependencies);
    }

    /// A client sends a part of a list, of jobs that depend on others.
    pub(crate) fn submit_dependent_part(
        &mut self,
        client: usize,
        end: u32,
        scheme: u32,
        antecedent: u32,
    ) {
        let dependencies = self.draw_dependencies(scheme, antecedent);
        if !self.are_foreign(client, &dependencies) {
            self.submit_part(client, end, scheme, 0, dependencies);
        }
    }

    /// Sends the next part of the list that a client has begun, or the first one of another list.
    pub(crate) fn submit_part(
        &mut self,
        client: usize,
        end: u32,
        shape: u32,
        seconds: u32,
        dependencies: Dependencies,
    ) {
        let client = client % CLIENTS;
        let begun = self.lists.get(&client).copied();
        let begun = begun.filter(|list| self.is_unfinished(list.submission));
        let list = begun.unwrap_or_else(|| self.begin_list(client));
        let number = list.submission;
        self.lists.insert(client, list);
        let spec = jobspec(&format!("s{number}"), shape, seconds % 8, &dependencies);
        let copies = 1 + shape / 6 % 2;
        let jobs = format!(
            r#"{{"jobspec":{spec},"urgency":12}},{{"jobspec":{spec},"urgency":13,"count":{copies}}}"#
        );
        let Some(submission) = self.promises.submissions.get_mut(number) else {
            return;
        };
        submission.parts.push(jobs);
        submission.dependencies.push(dependencies);
        submission.count += 1 + index(copies);
        let is_last = end.is_multiple_of(3);
        if is_last {
            submission.end_list(number);
        }
        let part = submission.parts.len() - 1;
        if let Some(payload) = submission.part_payloads(number).pop() {
            let part = ListPart {
                list,
                part,
                is_last,
            };
            self.request(
                client,
                job_ingest::SUBMIT_PART,
                &payload,
                Purpose::Part(part),
            );
        }
    }

    /// Discards the list that a client has begun: its next part is too late.
    fn abort_list(&mut self, client: usize) {
        let client = client % CLIENTS;
        let begun = self.lists.get(&client).map(|list| list.submission);
        let number = begun.filter(|number| self.is_unfinished(*number));
        let list = number.and_then(|number| self.promises.submissions.get(number));
        if let (Some(number), Some(list)) = (number, list) {
            let payload = list.abort_payload(number);
            self.request(client, job_ingest::SUBMIT_PART, &payload, Purpose::Other);
        }
    }

    /// An attempt to submit a list.
    fn begin_attempt(&mut self, submission: usize) -> ListAttempt {
        let attempt = self.promises.attempts.len();
        self.promises.attempts.push(BTreeMap::new());
        ListAttempt {
            submission,
            attempt,
        }
    }

    /// A new list of a client, without parts.
    fn begin_list(&mut self, client: usize) -> ListAttempt {
        let list = self.begin_attempt(self.promises.submissions.len());
        let mut submission = Submission::new(self.userid(client));
        submission.is_unfinished = true;
        self.promises.submissions.push(submission);
        list
    }

    fn is_unfinished(&self, number: usize) -> bool {
        let submission = self.promises.submissions.get(number);
        submission.is_some_and(|submission| submission.is_unfinished)
    }

    /// Sends all parts of a list again, those that have been drawn.
    fn resend_list(&mut self, client: usize, number: usize) {
        let Some(submission) = self.promises.submissions.get(number) else {
            return;
        };
        let (payloads, userid) = (submission.part_payloads(number), submission.userid);
        let (end, is_unfinished) = (submission.parts.len(), submission.is_unfinished);
        let list = self.begin_attempt(number);
        let client = self.client_of(client, userid);
        for (part, payload) in payloads.iter().enumerate() {
            let part = ListPart {
                list,
                part,
                is_last: part + 1 == end && !is_unfinished,
            };
            self.request(
                client,
                job_ingest::SUBMIT_PART,
                payload,
                Purpose::Part(part),
            );
        }
        self.lists.insert(client % CLIENTS, list);
    }

    /// Ends the lists that have been begun: the next attempt submits them.
    pub(crate) fn end_lists(&mut self) {
        for (number, submission) in self.promises.submissions.iter_mut().enumerate() {
            if submission.is_unfinished {
                submission.end_list(number);
            }
        }
    }

    /// Sends a submission, for the first time or again.
    pub(crate) fn resubmit(&mut self, client: usize, number: usize) {
        let count = self.promises.submissions.len();
        let Some(number) = number.checked_rem(count) else {
            return;
        };
        let submission = self.promises.submissions.get(number);
        if submission.is_some_and(|submission| !submission.parts.is_empty()) {
            return self.resend_list(client, number);
        }
        if let Some(submission) = submission {
            let (payload, userid) = (submission.payload.clone(), submission.userid);
            // A token is its user's.
            let client = self.client_of(client, userid);
            self.request(
                client,
                job_ingest::SUBMIT,
                &payload,
                Purpose::Submit(number),
            );
        }
    }

    fn request_of_job(
        &mut self,
        client: usize,
        job: usize,
        topic: &str,
        payload: impl Fn(u64) -> String,
    ) {
        if let Some(id) = self.job(job) {
            self.request_of(client, id, topic, payload);
        }
    }

    fn request_of(&mut self, client: usize, id: u64, topic: &str, payload: impl Fn(u64) -> String) {
        let purpose = match topic {
            _ if self.is_foreign(client, id) => Purpose::Forbidden,
            job_info::EVENTLOG_WATCH => Purpose::Watch(id, 0),
            job_list::WAIT => Purpose::Wait(id),
            pmix::EVENTS => Purpose::Requests(id),
            _ => Purpose::Other,
        };
        self.request(client, topic, &payload(id), purpose);
    }

    fn request_of_jobs(&mut self, client: usize, ids: Vec<u64>, topic: &str, payload: &str) {
        let foreign = ids.into_iter().filter(|id| self.is_foreign(client, *id));
        let purpose = Purpose::Jobs(foreign.collect());
        self.request(client, topic, payload, purpose);
    }
}
