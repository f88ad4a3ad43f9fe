//! Queues (RFC 33): which take jobs, and which give theirs to the scheduler.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_wire::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::job::Alloc;
use crate::manager::Manager;
use crate::rpc::{self, EINVAL, ENOENT, RequestError};
use crate::settings::Settings;
use crate::state::State;

/// Where the store keeps what is not as it is by default.
const META: &str = "queues";
/// The key of the one queue that there is where none is configured.
const ANONYMOUS: &str = "";

/// Whether a queue takes jobs, and whether they are scheduled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Status {
    enable: bool,
    start: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    disable_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_reason: Option<String>,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            enable: true,
            start: true,
            disable_reason: None,
            stop_reason: None,
        }
    }
}

/// The queues' administration: a queue that is not named is enabled and started.
#[derive(Debug, Default)]
pub struct Queues {
    live: BTreeMap<String, Status>,
    /// As the next start of the instance finds them: without what is not to be kept.
    kept: BTreeMap<String, Status>,
    /// Of each stopped queue what its jobs say of why they wait: shared by them all.
    stopped: BTreeMap<String, Arc<str>>,
}

impl Queues {
    /// As the store has them.
    pub(crate) fn read(text: Option<&str>) -> Result<Self, String> {
        let Some(text) = text else {
            return Ok(Self::default());
        };
        let kept: BTreeMap<String, Status> =
            serde_json::from_str(text).map_err(|error| format!("store: queues: {error}"))?;
        let mut queues = Self {
            live: kept.clone(),
            kept,
            stopped: BTreeMap::new(),
        };
        queues.tell_stopped();
        Ok(queues)
    }

    fn tell_stopped(&mut self) {
        let stopped = self.live.iter().filter(|(_, status)| !status.start);
        let told = stopped.map(|(queue, status)| {
            let mut text = match queue.as_str() {
                ANONYMOUS => "the queue is stopped".to_owned(),
                name => format!("queue `{name}` is stopped"),
            };
            if let Some(reason) = &status.stop_reason {
                text = format!("{text}: {reason}");
            }
            (queue.clone(), Arc::from(text))
        });
        self.stopped = told.collect();
    }

    fn status(&self, queue: Option<&str>) -> Status {
        let status = self.live.get(queue.unwrap_or(ANONYMOUS));
        status.cloned().unwrap_or_default()
    }

    /// Why jobs of a queue are not given to the scheduler; `None` where they are.
    pub(crate) fn why_stopped(&self, queue: Option<&str>) -> Option<&Arc<str>> {
        self.stopped.get(queue.unwrap_or(ANONYMOUS))
    }

    /// Refuses a submission to a disabled queue.
    pub(crate) fn check_enabled(&self, queue: Option<&str>) -> Result<(), RequestError> {
        if self.live.is_empty() {
            return Ok(());
        }
        let status = self.status(queue);
        if status.enable {
            return Ok(());
        }
        let mut text = match queue {
            Some(name) => format!("job submission to queue `{name}` is disabled"),
            None => "job submission is disabled".to_owned(),
        };
        if let Some(reason) = status.disable_reason {
            text = format!("{text}: {reason}");
        }
        Err(RequestError::new(EINVAL, text))
    }

    fn change(&mut self, queue: &str, keep: bool, change: impl Fn(&mut Status)) {
        let maps = [Some(&mut self.live), keep.then_some(&mut self.kept)];
        for map in maps.into_iter().flatten() {
            let mut status = map.remove(queue).unwrap_or_default();
            change(&mut status);
            if status != Status::default() {
                map.insert(queue.to_owned(), status);
            }
        }
        self.tell_stopped();
    }
}

#[derive(Deserialize)]
struct Which {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Enable {
    name: Option<String>,
    #[serde(rename = "enable")]
    on: bool,
    reason: Option<String>,
    #[serde(default)]
    all: bool,
}

#[derive(Deserialize)]
struct Start {
    name: Option<String>,
    #[serde(rename = "start")]
    on: bool,
    reason: Option<String>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    nocheckpoint: bool,
}

/// The queues that a request means; the anonymous one where none is configured.
fn meant(
    settings: &Settings,
    name: Option<String>,
    all: bool,
) -> Result<Vec<String>, RequestError> {
    let known = || settings.queues.keys().cloned().collect::<Vec<_>>();
    match name {
        Some(name) if settings.queues.contains_key(&name) => Ok(vec![name]),
        Some(name) if settings.queues.is_empty() => {
            let text = format!("queue `{name}`: no queues are configured");
            Err(RequestError::new(ENOENT, text))
        }
        Some(name) => {
            let text = format!("unknown queue `{name}`: expected {}", known().join(", "));
            Err(RequestError::new(ENOENT, text))
        }
        None if settings.queues.is_empty() => Ok(vec![ANONYMOUS.to_owned()]),
        None if all => Ok(known()),
        None => {
            let text = format!(
                "expected the name of a queue ({}) or `all`",
                known().join(", ")
            );
            Err(RequestError::new(EINVAL, text))
        }
    }
}

impl Manager {
    /// `job-manager.queue-list`.
    pub(crate) fn queue_list(&self) -> Value {
        let names: Vec<_> = self.settings.queues.keys().collect();
        json!({ "queues": names })
    }

    /// `job-manager.queue-status`.
    pub(crate) fn queue_status(&self, request: &Message) -> Result<Value, RequestError> {
        let which: Which = rpc::payload(request)?;
        let names = meant(&self.settings, which.name, false)?;
        let status = self.queues.status(names.first().map(String::as_str));
        Ok(json!(status))
    }

    /// `job-manager.queue-enable`: whether submissions are taken.
    pub(crate) fn queue_enable(&mut self, request: &Message) -> Result<Value, RequestError> {
        self.owner_only(request)?;
        let wanted: Enable = rpc::payload(request)?;
        for name in meant(&self.settings, wanted.name, wanted.all)? {
            self.queues.change(&name, true, |status| {
                status.enable = wanted.on;
                status.disable_reason = wanted.reason.clone().filter(|_| !wanted.on);
            });
        }
        self.keep_queues();
        self.retry_postponed_returns(self.now);
        Ok(Value::Null)
    }

    /// `job-manager.queue-start`: whether jobs are scheduled. Of a stopped queue nothing is asked
    /// of the scheduler, and what was asked is recalled.
    pub(crate) fn queue_start(&mut self, request: &Message) -> Result<Value, RequestError> {
        self.owner_only(request)?;
        let wanted: Start = rpc::payload(request)?;
        let names = meant(&self.settings, wanted.name, wanted.all)?;
        for name in &names {
            self.queues.change(name, !wanted.nocheckpoint, |status| {
                status.start = wanted.on;
                status.stop_reason = wanted.reason.clone().filter(|_| !wanted.on);
            });
        }
        self.keep_queues();
        let jobs = self.jobs.values().filter(|job| {
            let queue = job.spec.queue.as_deref().unwrap_or(ANONYMOUS);
            job.state == State::Sched && names.iter().any(|name| name == queue)
        });
        for id in jobs.map(|job| job.id).collect::<Vec<_>>() {
            if !wanted.on {
                self.withdraw(id);
            }
            self.revisit(id);
        }
        Ok(Value::Null)
    }

    /// Takes a job in SCHED out of the queue for the scheduler, or back from it.
    pub(crate) fn withdraw(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        match job.alloc {
            Alloc::Queued => {
                self.allocator.dequeue(job.priority, id);
                job.alloc = Alloc::Idle;
            }
            Alloc::Requested => self.cancel_alloc(id),
            Alloc::Idle | Alloc::Canceling | Alloc::Allocated | Alloc::Freed => {}
        }
    }

    fn keep_queues(&mut self) {
        // A map of strings to plain structures always serialises.
        if let Ok(text) = serde_json::to_string(&self.queues.kept) {
            let stored = self.store.set_meta(META, &text);
            self.keep(stored);
        }
    }

    /// Brings the queues' administration back from the store.
    pub(crate) fn restore_queues(&mut self) -> Result<(), String> {
        let text = self.store.meta(META).map_err(|error| error.to_string())?;
        self.queues = Queues::read(text.as_deref())?;
        Ok(())
    }
}
