//! The steps of a script: requests of clients, what happens by itself, and faults.

use penstock_flux::topic::{job_info, job_ingest, job_list, job_manager, resource};

use crate::client::{Purpose, Responses, Submission};
use crate::script::{Step, StepKind};
use crate::vfs::with_disk;
use crate::world::{CLIENTS, CORES, RANKS, Rounds, World};

fn jobspec(name: &str, shape: u32, seconds: u32) -> String {
    let core = |count: u32| format!(r#"{{"type":"core","count":{count}}}"#);
    let slot = |count: u32, cores: u32| {
        format!(
            r#"{{"type":"slot","count":{count},"label":"task","with":[{}]}}"#,
            core(cores)
        )
    };
    let resources = match shape % 6 {
        0 | 1 => slot(1, 1),
        2 => slot(2, 1),
        3 => slot(1, CORES),
        4 => format!(r#"{{"type":"node","count":2,"with":[{}]}}"#, slot(1, 1)),
        _ => format!(r#"{{"type":"node","count":2,"with":[{}]}}"#, slot(1, CORES)),
    };
    format!(
        r#"{{"version":1,"resources":[{resources}],"tasks":[{{"command":["true"],"slot":"task","count":{{"per_slot":1}}}}],"attributes":{{"system":{{"duration":{seconds},"cwd":"/work","environment":{{}},"job":{{"name":"{name}"}}}}}}}}"#
    )
}

/// The payload of a request that stops or disables the queue, by setting a flag to false.
fn stop(flag: &str) -> String {
    format!(r#"{{"{flag}":false,"all":true,"reason":"maintenance"}}"#)
}

/// The payload of a request that starts or enables it.
fn start(flag: &str) -> String {
    format!(r#"{{"{flag}":true,"all":true}}"#)
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
            StepKind::JournalFull if is_on => self.machine.fill_disk(),
            StepKind::JournalFull => self.machine.free_disk(&mut self.network.borrow_mut()),
            StepKind::KillReaper => self.machine.kill_reaper(&mut self.network.borrow_mut()),
            StepKind::KillScheduler => {
                self.end_scheduler_process();
                if let Some(daemon) = &mut self.daemon {
                    daemon.kill_scheduler();
                }
                self.settle_daemon();
            }
            StepKind::Full => with_disk(|disk| disk.faults.is_full = is_on),
            StepKind::Busy => with_disk(|disk| disk.faults.is_busy = is_on),
            StepKind::DiskError => with_disk(|disk| disk.faults.error_after = Some(first % 32)),
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
            StepKind::Submit => self.submit(client, second, third, fourth),
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
                let payload = r#"{"max_entries":100,"attrs":["id","state"]}"#;
                self.request(client, job_list::LIST, payload, Purpose::Other);
            }
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
            StepKind::Disable => self.ask(job_manager::QUEUE_ENABLE, &stop("enable")),
            StepKind::Enable => self.ask(job_manager::QUEUE_ENABLE, &start("enable")),
            _ => return false,
        }
        true
    }

    /// Sends a request of the first client.
    fn ask(&mut self, topic: &str, payload: &str) {
        self.request(0, topic, payload, Purpose::Other);
    }

    /// Sends a client's request.
    pub(crate) fn request(&mut self, client: usize, topic: &str, payload: &str, purpose: Purpose) {
        let is_stream = matches!(purpose, Purpose::Watch(..) | Purpose::Wait(_))
            || matches!(topic, resource::MONITOR | job_list::LIST);
        let responses = if is_stream {
            Responses::Stream
        } else {
            Responses::One
        };
        if let Some(client) = self.clients.get_mut(client % CLIENTS) {
            let mut network = self.network.borrow_mut();
            client.request(topic, payload, purpose, responses, &mut network);
        }
    }

    fn job(&self, index: usize) -> Option<u64> {
        let jobs = self.promises.jobs();
        // The latest jobs are the interesting ones.
        jobs.iter()
            .rev()
            .nth(index.checked_rem(jobs.len())?)
            .copied()
    }

    fn submit(&mut self, client: usize, shape: u32, urgency: u32, seconds: u32) {
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
        let spec = jobspec(&format!("s{number}"), shape, seconds);
        let payload = format!(
            r#"{{"jobspec":{spec},"urgency":{urgency},"count":{count},"token":"t{number}"}}"#
        );
        self.promises.submissions.push(Submission {
            payload,
            count: index(count),
            ids: None,
        });
        self.resubmit(client, number);
    }

    /// Sends a submission, for the first time or again.
    pub(crate) fn resubmit(&mut self, client: usize, number: usize) {
        let count = self.promises.submissions.len();
        let Some(number) = number.checked_rem(count) else {
            return;
        };
        if let Some(submission) = self.promises.submissions.get(number) {
            let payload = submission.payload.clone();
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
            let purpose = match topic {
                job_info::EVENTLOG_WATCH => Purpose::Watch(id, 0),
                job_list::WAIT => Purpose::Wait(id),
                _ => Purpose::Other,
            };
            self.request(client, topic, &payload(id), purpose);
        }
    }
}
