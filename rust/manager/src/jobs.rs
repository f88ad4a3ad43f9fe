//! The jobs of the instance, and the one place where their events are logged.

use std::collections::{BTreeMap, btree_map};
use std::ops::RangeBounds;
use std::sync::Arc;

use penstock_flux::{Credentials, RequestError};
use penstock_jobspec::fluid::Fluid;
use penstock_rset::ResourceSet;
use serde_json::{Map, Value};

use crate::dialogue::Dialogue;
use crate::event::Event;
use crate::record::Record;
use crate::state::State;

/// A job: its facts, and where the conversations about it stand.
#[derive(Debug)]
pub struct Job {
    /// What the eventlog says.
    pub record: Record,
    /// What the eventlog does not say, and a restart forgets.
    pub dialogue: Dialogue,
}

impl Job {
    /// The job's resources: allocated, or committed for its outstanding request.
    pub(crate) fn r(&self) -> Option<&Arc<ResourceSet>> {
        self.record.r().or(self.dialogue.committed())
    }

    /// The job's annotations: of the allocation, or of the pending job.
    pub(crate) fn annotations(&self) -> &Map<String, Value> {
        let pending = self.dialogue.annotations();
        pending.unwrap_or_else(|| self.record.annotations())
    }
}

/// The jobs by id, and their events that are not in the store yet.
///
/// [`log`](Self::log) is the only way to a `&mut Record`: what is applied to a record is in its log.
#[derive(Debug, Default)]
pub struct Jobs {
    by_id: BTreeMap<u64, Job>,
    /// Per job: sequence number of the first unwritten event, and the lines.
    unwritten: BTreeMap<u64, (u32, String)>,
    greatest_purged: u64,
}

impl Jobs {
    /// The job with this id.
    pub(crate) fn get(&self, id: u64) -> Option<&Job> {
        self.by_id.get(&id)
    }

    /// The facts of the job with this id.
    pub(crate) fn record(&self, id: u64) -> Option<&Record> {
        self.by_id.get(&id).map(|job| &job.record)
    }

    /// The conversations of the job with this id.
    pub(crate) fn dialogue(&mut self, id: u64) -> Option<&mut Dialogue> {
        self.by_id.get_mut(&id).map(|job| &mut job.dialogue)
    }

    /// The facts of the job with this id, and its conversations to be continued.
    pub(crate) fn split(&mut self, id: u64) -> Option<(&Record, &mut Dialogue)> {
        let job = self.by_id.get_mut(&id)?;
        Some((&job.record, &mut job.dialogue))
    }

    /// All jobs, the oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.by_id.values()
    }

    /// The facts and conversations of all jobs, the oldest first.
    pub(crate) fn iter_split(&mut self) -> impl Iterator<Item = (&Record, &mut Dialogue)> {
        let jobs = self.by_id.values_mut();
        jobs.map(|job| (&job.record, &mut job.dialogue))
    }

    /// The jobs whose ids are in a range.
    pub(crate) fn range(&self, ids: impl RangeBounds<u64>) -> btree_map::Range<'_, u64, Job> {
        self.by_id.range(ids)
    }

    /// Whether there is a job with this id.
    pub(crate) fn contains(&self, id: u64) -> bool {
        self.by_id.contains_key(&id)
    }

    /// Adds a job, new or from the store.
    pub(crate) fn insert(&mut self, record: Record, dialogue: Dialogue) {
        self.by_id.insert(record.id(), Job { record, dialogue });
    }

    /// Removes a purged job.
    pub(crate) fn purge(&mut self, id: u64) -> Option<Job> {
        let job = self.by_id.remove(&id)?;
        self.greatest_purged = self.greatest_purged.max(id);
        Some(job)
    }

    /// The greatest id of any purged job.
    pub(crate) fn greatest_purged(&self) -> u64 {
        self.greatest_purged
    }

    /// Restores the greatest id of any purged job.
    pub(crate) fn set_greatest_purged(&mut self, id: u64) {
        self.greatest_purged = id;
    }

    /// The greatest id that any job has had.
    pub(crate) fn greatest_id(&self) -> u64 {
        let known = self.by_id.last_key_value().map_or(0, |(id, _)| *id);
        known.max(self.greatest_purged)
    }

    /// Logs an event: appends its line and applies it to the record. Returns the state before it;
    /// `None` if there is no such job.
    pub(crate) fn log(&mut self, id: u64, event: &Event) -> Option<State> {
        let job = self.by_id.get_mut(&id)?;
        let before = job.record.state();
        let (_, lines) = self
            .unwritten
            .entry(id)
            .or_insert_with(|| (job.record.events(), String::new()));
        event.write(lines);
        job.record.apply(event);
        job.dialogue.follow(event, &job.record);
        Some(before)
    }

    /// Takes the events that are not in the store yet: job, first sequence number, lines.
    pub(crate) fn take_unwritten(&mut self) -> BTreeMap<u64, (u32, String)> {
        std::mem::take(&mut self.unwritten)
    }

    /// The error for an unknown id: the job never was, or was purged.
    pub(crate) fn unknown(&self, id: u64) -> RequestError {
        let name = Fluid(id);
        let text = if id <= self.greatest_purged {
            format!("no job {name}: it may have been purged")
        } else {
            format!("no job {name}")
        };
        RequestError::not_found(text)
    }

    /// The job if the sender may see it: its owner or the instance owner.
    pub(crate) fn visible(&self, id: u64, sender: Credentials) -> Result<&Job, RequestError> {
        let job = self.get(id).ok_or_else(|| self.unknown(id))?;
        if !sender.may_act_for(job.record.userid()) {
            let text = format!("job {} belongs to another user", Fluid(id));
            return Err(RequestError::not_permitted(text));
        }
        Ok(job)
    }

    /// The job if the sender may see it and it is not inactive.
    pub(crate) fn active(&self, id: u64, sender: Credentials) -> Result<&Job, RequestError> {
        let job = self.visible(id, sender)?;
        if job.record.state() == State::Inactive {
            let text = format!("job {} is inactive", Fluid(id));
            return Err(RequestError::not_found(text));
        }
        Ok(job)
    }
}
