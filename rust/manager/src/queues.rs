//! `Queues`: the queues that accept jobs, and those whose jobs are scheduled (RFC 33).

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_flux::job_manager::QueueStatusResponse;
use penstock_flux::{RequestError, Text, urgency};
use penstock_jobspec::job_id::JobId;
use penstock_store::Error;
use serde::{Deserialize, Serialize};

use crate::meta::{MetaKey, MetaReader};
use crate::record::Record;
use crate::storage::Storage;

/// The queues that are not in their default status.
pub(crate) const QUEUES: MetaKey<BTreeMap<String, QueueStatus>> = MetaKey {
    name: "queues",
    parse: |text| serde_json::from_str(text).ok(),
    expected: "a JSON object with the status of each queue",
};

/// The key of the one queue of an instance that configures none.
pub(crate) const ANONYMOUS_QUEUE: &str = "";

/// Whether a queue accepts jobs (`enable`), and whether they are scheduled (`start`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueueStatus {
    pub(crate) enable: bool,
    pub(crate) start: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) disable_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stop_reason: Option<String>,
}

impl QueueStatus {
    /// The response to `job-manager.queue-status`.
    pub(crate) fn response(&self) -> QueueStatusResponse<'_> {
        QueueStatusResponse {
            enable: self.enable,
            start: self.start,
            disable_reason: self.disable_reason.as_deref().map(Text::from),
            stop_reason: self.stop_reason.as_deref().map(Text::from),
        }
    }
}

impl Default for QueueStatus {
    fn default() -> Self {
        Self {
            enable: true,
            start: true,
            disable_reason: None,
            stop_reason: None,
        }
    }
}

/// The operation that collects the jobs of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collector {
    /// The start of the queue.
    Start,
    /// A reload of other settings.
    Renewal,
}

/// The jobs of a queue that are being collected.
#[derive(Debug)]
struct Collection {
    by: Collector,
    queue: String,
    /// The newest job at the beginning. Urgent jobs that are submitted later need not wait for the others.
    newest: JobId,
}

/// The status of each queue that is not in its default status, enabled and started.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    live: BTreeMap<String, QueueStatus>,
    /// The status at the next start of the instance: without changes marked `nocheckpoint`.
    saved: BTreeMap<String, QueueStatus>,
    /// Per stopped queue: the pending reason of its jobs.
    stop_reasons: BTreeMap<String, Arc<str>>,
    /// The queues whose jobs are being collected, one entry for each [`begin_collection`](Self::begin_collection).
    collecting: Vec<Collection>,
}

impl Queues {
    /// Restores the queues from the store.
    pub(crate) fn restore(meta: &mut MetaReader<'_>) -> Result<Self, Error> {
        let Some(saved) = meta.read(&QUEUES)? else {
            return Ok(Self::default());
        };
        let mut queues = Self {
            live: saved.clone(),
            saved,
            stop_reasons: BTreeMap::new(),
            collecting: Vec::new(),
        };
        queues.update_stop_reasons();
        Ok(queues)
    }

    fn update_stop_reasons(&mut self) {
        let stopped = self.live.iter().filter(|(_, status)| !status.start);
        let reasons = stopped.map(|(queue, status)| {
            let mut text = match queue.as_str() {
                ANONYMOUS_QUEUE => "the queue is stopped".to_owned(),
                name => format!("queue `{name}` is stopped"),
            };
            if let Some(reason) = &status.stop_reason {
                text = format!("{text}: {reason}");
            }
            (queue.clone(), Arc::from(text))
        });
        self.stop_reasons = reasons.collect();
    }

    /// The status of a queue; `None` is the anonymous one.
    pub(crate) fn status(&self, queue: Option<&str>) -> QueueStatus {
        let status = self.live.get(queue.unwrap_or(ANONYMOUS_QUEUE));
        status.cloned().unwrap_or_default()
    }

    /// Why a queue is stopped; `None` if it is started.
    pub(crate) fn stop_reason(&self, queue: Option<&str>) -> Option<&Arc<str>> {
        self.stop_reasons.get(queue.unwrap_or(ANONYMOUS_QUEUE))
    }

    /// Collects the jobs of queues: until [`end_collection`](Self::end_collection) no resources are requested for them, so
    /// that the scheduler gets the requests of many jobs in queue order, although the jobs are looked at in another.
    /// `newest` is the newest job.
    pub(crate) fn begin_collection<'a>(
        &mut self,
        by: Collector,
        queues: impl IntoIterator<Item = &'a String>,
        newest: JobId,
    ) {
        let collections = queues.into_iter().map(|queue| Collection {
            by,
            queue: queue.clone(),
            newest,
        });
        self.collecting.extend(collections);
    }

    /// Ends a collection of these queues.
    pub(crate) fn end_collection<'a>(
        &mut self,
        by: Collector,
        queues: impl IntoIterator<Item = &'a String>,
    ) {
        for queue in queues {
            let mut collections = self.collecting.iter();
            let is_it = |collection: &Collection| collection.by == by && collection.queue == *queue;
            if let Some(index) = collections.position(is_it) {
                self.collecting.swap_remove(index);
            }
        }
    }

    /// Whether the jobs of any queue are being collected.
    pub(crate) fn has_collection(&self) -> bool {
        !self.collecting.is_empty()
    }

    /// Whether the request of a job is held until the jobs of its queue are collected.
    pub(crate) fn is_collecting(&self, job: &Record) -> bool {
        let is_urgent = job.urgency() > urgency::DEFAULT;
        let mut collections = self.collections_of(job);
        collections.any(|collection| !(is_urgent && job.id() > collection.newest))
    }

    /// Whether an outstanding request of a job is from before the reload whose renewal is under way: meanwhile none is sent
    /// for a job that was there at its beginning.
    pub(crate) fn is_renewing(&self, job: &Record) -> bool {
        let mut collections = self.collections_of(job);
        collections
            .any(|collection| collection.by == Collector::Renewal && job.id() <= collection.newest)
    }

    /// The collections of the queue of a job.
    fn collections_of(&self, job: &Record) -> impl Iterator<Item = &Collection> {
        let queue = job.spec().queue.as_deref().unwrap_or(ANONYMOUS_QUEUE);
        let collections = self.collecting.iter();
        collections.filter(move |collection| collection.queue == queue)
    }

    /// Whether a queue is started, and its start is complete.
    pub(crate) fn is_started(&self, queue: &str) -> bool {
        let by_start = |collection: &Collection| {
            collection.by == Collector::Start && collection.queue == queue
        };
        !self.stop_reasons.contains_key(queue) && !self.collecting.iter().any(by_start)
    }

    /// Rejects a submission to a disabled queue.
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
        Err(RequestError::invalid(text))
    }

    /// Changes the status of a queue until the next start of the instance.
    pub(crate) fn change_live(&mut self, queue: &str, change: impl Fn(&mut QueueStatus)) {
        change_in(&mut self.live, queue, change);
        self.update_stop_reasons();
    }

    /// Changes the status of a queue, now and from the next start of the instance.
    pub(crate) fn change_saved(&mut self, queue: &str, change: impl Fn(&mut QueueStatus)) {
        change_in(&mut self.saved, queue, &change);
        self.change_live(queue, change);
    }

    /// Puts the status that the next start of the instance finds into the store.
    pub(crate) fn save(&self, storage: &mut Storage) {
        // A map of strings to plain structures always serialises.
        if let Ok(text) = serde_json::to_string(&self.saved) {
            storage.run(|store| store.set_meta(QUEUES.name, &text));
        }
    }
}

fn change_in(
    queues: &mut BTreeMap<String, QueueStatus>,
    queue: &str,
    change: impl Fn(&mut QueueStatus),
) {
    let mut status = queues.remove(queue).unwrap_or_default();
    change(&mut status);
    if status != QueueStatus::default() {
        queues.insert(queue.to_owned(), status);
    }
}
