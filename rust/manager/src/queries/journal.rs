//! `Journal`: the events of all jobs as one stream (`job-manager.events-journal`).
//!
//! The events of jobs that there are already, and the first ones of new jobs, come in slices, job by job. Each further event is
//! sent at once, unless it is one of a job whose turn is still to come, which includes it.

use std::collections::VecDeque;
use std::ops::Bound;

use penstock_flux::job_manager::{ANY_JOB, JournalRequest, JournalResponse};
use penstock_flux::{Json, StreamCancelRequest, eventlog};
use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::{Map, Value};

use super::info;
use crate::context::Context;
use crate::event::Event;
use crate::rpc::{self, Handled, Reply, Request};
use crate::state::State;

/// Maximum number of jobs examined in one slice.
const JOBS_PER_SLICE: usize = 250;

/// A request for the events of all jobs.
#[derive(Debug)]
struct Reader {
    request: Message,
    /// Whether events of jobs that are inactive already are sent.
    is_full: bool,
    allow: Option<Map<String, Value>>,
    deny: Option<Map<String, Value>>,
    /// The past events of jobs after this one are still to be sent; `None` if all have been.
    past: Option<Bound<JobId>>,
    /// New jobs whose first events are still to be sent: ranges of ids.
    new: VecDeque<(JobId, JobId)>,
}

impl Reader {
    fn wants(&self, name: &str) -> bool {
        let has = |names: &Map<String, Value>| names.contains_key(name);
        self.allow.as_ref().is_none_or(has) && !self.deny.as_ref().is_some_and(has)
    }

    /// Whether the next events of a job are sent at once.
    fn follows(&self, id: JobId) -> bool {
        let is_new = |(first, last): &(JobId, JobId)| (*first..=*last).contains(&id);
        self.has_passed(id) && !self.new.iter().any(is_new)
    }

    /// Whether the past events have been sent up to a job.
    fn has_passed(&self, id: JobId) -> bool {
        match self.past {
            None => true,
            Some(Bound::Included(last) | Bound::Excluded(last)) => id <= last,
            Some(Bound::Unbounded) => false,
        }
    }

    /// Whether events of whole jobs are still to be sent.
    fn is_behind(&self) -> bool {
        self.past.is_some() || !self.new.is_empty()
    }

    /// Whether they can be sent now.
    fn is_ready(&self, cx: &Context) -> bool {
        let origin = self.request.origin();
        self.is_behind() && !origin.is_some_and(|origin| cx.backlogged.contains(origin))
    }

    /// Sends the events among some of a job, with the documents that two of them have.
    fn send(&self, cx: &mut Context, id: JobId, lines: &[(String, String)]) {
        let wanted = lines.iter().filter(|(name, _)| self.wants(name));
        let wanted: Vec<_> = wanted.collect();
        if wanted.is_empty() {
            return;
        }
        let has = |event: &str| wanted.iter().any(|(name, _)| name == event);
        let jobspec = has(eventlog::SUBMIT).then(|| redacted_jobspec(cx, id));
        let r = has(eventlog::ALLOC).then(|| info::stored_r(cx, id));
        let r = r.flatten();
        let r = r.as_ref().map(|stored| stored.json());
        let response = JournalResponse {
            id: id.get().cast_signed(),
            events: wanted.iter().map(|(_, line)| Json(line)).collect(),
            jobspec: jobspec.as_ref().and_then(|text| text.as_deref()).map(Json),
            r: r.as_deref().map(Json),
        };
        cx.respond_with(&self.request, &response);
    }

    /// Sends all events so far of the next jobs, of which some are examined at most.
    fn catch_up(&mut self, cx: &mut Context) {
        let limit = cx.read_limit();
        for _ in 0..JOBS_PER_SLICE {
            if limit.is_reached(cx) {
                return;
            }
            if let Some(after) = self.past {
                let next = if self.is_full {
                    next_job(cx, (after, Bound::Unbounded))
                } else {
                    let mut jobs = cx.jobs.range((after, Bound::Unbounded));
                    jobs.next().map(|(id, job)| (id, job.record.state()))
                };
                self.past = next.map(|(id, _)| Bound::Excluded(id));
                match next {
                    Some((id, state)) if self.is_full || state != State::Inactive => {
                        self.send_log(cx, id);
                    }
                    Some(_) => {}
                    None => self.send_end(cx),
                }
            } else if let Some((first, last)) = self.new.pop_front() {
                let range = (Bound::Included(first), Bound::Included(last));
                if let Some((id, _)) = next_job(cx, range) {
                    if id < last {
                        self.new.push_front((id.successor(), last));
                    }
                    self.send_log(cx, id);
                }
            } else {
                return;
            }
        }
    }

    /// Marks the end of the past events.
    fn send_end(&self, cx: &mut Context) {
        let end = JournalResponse {
            id: ANY_JOB,
            events: Vec::new(),
            jobspec: None,
            r: None,
        };
        cx.respond_with(&self.request, &end);
    }

    /// Sends all events of a job so far.
    fn send_log(&self, cx: &mut Context, id: JobId) {
        cx.write_events();
        let events = cx.read_store(|store| store.eventlog(id));
        let events = events.lines().filter_map(|line| {
            let event = Event::parse(line).ok()?;
            Some((event.name.into_owned(), line.to_owned()))
        });
        let events: Vec<_> = events.collect();
        self.send(cx, id, &events);
    }
}

/// The first job with an id in a range, and its state. It is in memory for the rest of this call.
fn next_job(
    cx: &mut Context,
    (first, last): (Bound<JobId>, Bound<JobId>),
) -> Option<(JobId, State)> {
    let mut first = match first {
        Bound::Excluded(id) => id.successor(),
        Bound::Included(id) => id,
        Bound::Unbounded => JobId::default(),
    };
    let last = match last {
        Bound::Included(id) | Bound::Excluded(id) => id,
        Bound::Unbounded => JobId::new(u64::MAX),
    };
    loop {
        let id = cx.read_store(|store| store.first_id(first, last))?;
        cx.unload_surplus();
        cx.load(id);
        if let Some(record) = cx.jobs.record(id) {
            return Some((id, record.state()));
        }
        // It could not be restored.
        first = id.successor();
    }
}

/// The jobspec of a job without its environment.
fn redacted_jobspec(cx: &mut Context, id: JobId) -> Option<String> {
    let document = cx.jobspec_of(id)?;
    let jobspec = Jobspec::from_json(document.text()).ok()?;
    let redacted = jobspec.redacted(Vec::new()).ok()?;
    Some(redacted.to_text())
}

/// The open requests, the one that gets events of whole jobs next first.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    readers: VecDeque<Reader>,
}

impl Journal {
    /// `job-manager.events-journal`: a stream of the events of all jobs.
    pub(crate) fn open(&mut self, request: Request<'_>) -> Handled {
        let JournalRequest { full, allow, deny } = request.payload()?;
        self.readers.push_back(Reader {
            request: request.message.header(),
            is_full: full,
            allow,
            deny,
            past: Some(Bound::Unbounded),
            new: VecDeque::new(),
        });
        Ok(Reply::Deferred)
    }

    /// `job-manager.events-journal-cancel`: ends a stream with ENODATA.
    pub(crate) fn cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let is_named = |reader: &Reader| {
            rpc::is_request_of(&reader.request, request.origin(), cancel.matchtag)
        };
        let index = self.readers.iter().position(is_named);
        if let Some(reader) = index.and_then(|index| self.readers.remove(index)) {
            cx.end_stream(&reader.request);
        }
        Ok(Reply::Empty)
    }

    /// Sends an event to the readers.
    pub(crate) fn send_event(&self, cx: &mut Context, id: JobId, event: &Event) {
        if self.readers.is_empty() {
            return;
        }
        let mut line = String::new();
        event.write(&mut line);
        let line = line.trim_end().to_owned();
        let events = [(event.name.clone().into_owned(), line)];
        for reader in self.readers.iter().filter(|reader| reader.follows(id)) {
            reader.send(cx, id, &events);
        }
    }

    /// Has the events so far of new jobs, with these ids, sent to the readers.
    pub(crate) fn add_jobs(&mut self, first: JobId, last: JobId) {
        for reader in &mut self.readers {
            // The others are among those whose past events are still to be sent.
            if reader.has_passed(first) {
                reader.new.push_back((first, last));
            }
        }
    }

    /// Sends events of the next jobs to the reader that has waited longest.
    pub(crate) fn send_slice(&mut self, cx: &mut Context) {
        let mut readers = self.readers.iter();
        let index = readers.position(|reader| reader.is_ready(cx));
        if let Some(mut reader) = index.and_then(|index| self.readers.remove(index)) {
            reader.catch_up(cx);
            self.readers.push_back(reader);
        }
    }

    /// Whether events of whole jobs can be sent now.
    pub(crate) fn has_more(&self, cx: &Context) -> bool {
        self.readers.iter().any(|reader| reader.is_ready(cx))
    }

    /// The peers that get events of whole jobs.
    pub(crate) fn readers(&self) -> impl Iterator<Item = &[u8]> {
        let readers = self.readers.iter().filter(|reader| reader.is_behind());
        readers.filter_map(|reader| reader.request.origin())
    }

    /// The number of open streams.
    pub(crate) fn len(&self) -> usize {
        self.readers.len()
    }

    /// Drops the streams of a peer that has disconnected.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        self.readers
            .retain(|reader| reader.request.origin() != Some(origin));
    }
}
