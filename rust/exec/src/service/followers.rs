//! Streams of retained output: responses to `<service>.output` requests.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::RequestError;
use penstock_flux::errno::EIO;
use penstock_flux::exec::{OutputRequest, OutputResponse};
use penstock_wire::Message;

use super::effect::{Chunk, Effect, ReaderId, Stream};
use crate::types::JobId;

/// Time between two looks at a file that is followed, in seconds.
const POLL_INTERVAL_S: f64 = 0.05;
/// The same for requests that want the least delay.
const UNBUFFERED_POLL_INTERVAL_S: f64 = 0.005;

/// The event that a request awaits before it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    Nothing,
    /// The start of the job.
    Start,
    /// The start of a job that the service does not have, or its end without one.
    StartOrEnd,
    /// It has waited for [`StartOrEnd`](Self::StartOrEnd).
    Over,
}

/// The phase of a job when its output is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The service does not have the job, or has released it.
    Absent,
    /// Its start has not been reported.
    Starting,
    /// It may write more output.
    Running,
}

/// The part of the output that a request reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadLimit {
    /// Up to the current end.
    Current,
    /// Up to the end of the job.
    Whole,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FollowerId(u64);

/// The output that a request has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FoundOutput {
    Nothing,
    /// A file.
    File,
    Bytes,
}

/// A request that follows or reads output.
#[derive(Debug)]
struct Follower {
    /// The request without its payload.
    request: Message,
    job: JobId,
    streams: Vec<Stream>,
    is_following: bool,
    is_unbuffered: bool,
    wait: Wait,
    /// Whether it reads the output of a job that the service does not have, and would follow it if the job started.
    may_start: bool,
    found: FoundOutput,
    readers: Vec<ReaderId>,
}

#[derive(Debug)]
struct Reader {
    follower: FollowerId,
    stream: Stream,
    offset: u64,
    read_limit: ReadLimit,
    /// Whether it is at the end of a file that can grow.
    is_idle: bool,
}

/// The requests that are being answered.
#[derive(Debug, Default)]
pub(super) struct Followers {
    requests: BTreeMap<FollowerId, Follower>,
    readers: BTreeMap<ReaderId, Reader>,
    /// The requests that wait for [`StartOrEnd`](Wait::StartOrEnd), by job.
    awaiting: BTreeMap<JobId, BTreeSet<FollowerId>>,
    /// Jobs that have left `awaiting`; some may be there again.
    no_longer_awaited: Vec<JobId>,
    /// The number of the last follower or reader.
    last_id: u64,
    /// When idle readers look again, if that is scheduled.
    is_poll_scheduled: bool,
}

impl Followers {
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether a request waits for the start or end of a job that the service does not have.
    pub(super) fn is_awaited(&self, job: JobId) -> bool {
        self.awaiting.contains_key(&job)
    }

    /// The jobs that no request waits for any longer, among those that some have waited for.
    pub(super) fn take_no_longer_awaited(&mut self) -> Vec<JobId> {
        let jobs = mem::take(&mut self.no_longer_awaited);
        let unawaited = jobs.into_iter().filter(|job| !self.is_awaited(*job));
        unawaited.collect()
    }

    /// Begins to answer a request.
    pub(super) fn begin(
        &mut self,
        request: &Message,
        output: &OutputRequest<'_>,
        phase: Phase,
        effects: &mut Vec<Effect>,
    ) -> Result<(), RequestError> {
        request.require_streaming()?;
        let is_requested = |stream: &Stream| {
            let named = output.streams.as_ref();
            named.is_none_or(|named| named.iter().any(|name| name.0 == stream.name()))
        };
        let is_following = output.follow.unwrap_or(false);
        let wait = match phase {
            Phase::Starting if is_following => Wait::Start,
            _ => Wait::Nothing,
        };
        let follower = Follower {
            request: request.header(),
            job: output.id,
            streams: Stream::ALL.into_iter().filter(is_requested).collect(),
            is_following,
            is_unbuffered: output.unbuffered.unwrap_or(false),
            wait,
            may_start: is_following && phase == Phase::Absent,
            found: FoundOutput::Nothing,
            readers: Vec::new(),
        };
        self.last_id += 1;
        let id = FollowerId(self.last_id);
        self.requests.insert(id, follower);
        if wait == Wait::Nothing {
            let read_limit = if is_following && phase != Phase::Absent {
                ReadLimit::Whole
            } else {
                ReadLimit::Current
            };
            self.read_all(id, read_limit, effects);
        }
        Ok(())
    }

    /// Begins to read all streams of a request.
    fn read_all(&mut self, id: FollowerId, read_limit: ReadLimit, effects: &mut Vec<Effect>) {
        self.end_wait(id);
        let Some(follower) = self.requests.get_mut(&id) else {
            return;
        };
        follower.wait = match follower.wait {
            Wait::StartOrEnd | Wait::Over => Wait::Over,
            Wait::Nothing | Wait::Start => Wait::Nothing,
        };
        for stream in follower.streams.clone() {
            self.last_id += 1;
            let reader = ReaderId(self.last_id);
            follower.readers.push(reader);
            let state = Reader {
                follower: id,
                stream,
                offset: 0,
                read_limit,
                is_idle: false,
            };
            effects.push(Effect::ReadOutput {
                reader,
                job: follower.job,
                stream,
                offset: 0,
            });
            self.readers.insert(reader, state);
        }
    }

    /// Records that a request no longer waits for a job that the service does not have.
    fn end_wait(&mut self, id: FollowerId) {
        let Some(job) = self.requests.get(&id).map(|follower| follower.job) else {
            return;
        };
        if let Some(waiting) = self.awaiting.get_mut(&job)
            && waiting.remove(&id)
            && waiting.is_empty()
        {
            self.awaiting.remove(&job);
            self.no_longer_awaited.push(job);
        }
    }

    /// Wakes the requests that wait for the start of a job, or for the end of one that never starts.
    pub(super) fn record_job_start(&mut self, job: JobId, effects: &mut Vec<Effect>) {
        let is_waiting = |wait| matches!(wait, Wait::Start | Wait::StartOrEnd);
        for id in self.ids(|follower| follower.job == job && is_waiting(follower.wait)) {
            self.read_all(id, ReadLimit::Whole, effects);
        }
    }

    /// Lets the requests that are looking for the output of a job wait for its start, which was requested.
    pub(super) fn await_start(&mut self, job: JobId) {
        let is_looking = |follower: &Follower| {
            let waits = matches!(follower.wait, Wait::Nothing) && follower.may_start;
            follower.job == job && waits && follower.found < FoundOutput::Bytes
        };
        for id in self.ids(is_looking) {
            if let Some(follower) = self.requests.get_mut(&id) {
                follower.wait = Wait::Start;
                for reader in mem::take(&mut follower.readers) {
                    self.readers.remove(&reader);
                }
            }
        }
    }

    /// Rejects the requests that wait for a job that the service does not have: its end cannot be awaited.
    pub(super) fn reject_waiting(
        &mut self,
        job: JobId,
        error: &RequestError,
        messages: &mut Vec<Message>,
    ) {
        let waiting = self.awaiting.get(&job).cloned().unwrap_or_default();
        for id in waiting {
            self.end(id, error, messages);
        }
    }

    /// Rejects the requests about a job whose output is not retained.
    pub(super) fn reject_requests(
        &mut self,
        job: JobId,
        template: &str,
        messages: &mut Vec<Message>,
    ) {
        let error = redirection_error(template);
        for id in self.ids(|follower| follower.job == job) {
            self.end(id, &error, messages);
        }
    }

    /// Lets the requests about a job end with the current end of its output.
    pub(super) fn record_job_end(&mut self, job: JobId) {
        for reader in self.readers.values_mut() {
            let follower = self.requests.get(&reader.follower);
            if reader.is_idle && follower.is_some_and(|follower| follower.job == job) {
                reader.read_limit = ReadLimit::Current;
            }
        }
        for follower in self.requests.values_mut() {
            if follower.job == job {
                follower.is_following = false;
            }
        }
    }

    /// When the idle readers look again.
    pub(super) fn take_poll_time(&mut self, now: f64) -> Option<f64> {
        if self.is_poll_scheduled {
            return None;
        }
        let idle = self.readers.values().filter(|reader| reader.is_idle);
        let idle = idle.filter_map(|reader| self.requests.get(&reader.follower));
        let interval = |follower: &Follower| {
            if follower.is_unbuffered {
                UNBUFFERED_POLL_INTERVAL_S
            } else {
                POLL_INTERVAL_S
            }
        };
        let interval = idle.map(interval).min_by(f64::total_cmp)?;
        self.is_poll_scheduled = true;
        Some(now + interval)
    }

    /// Lets the idle readers look again.
    pub(super) fn poll(&mut self, effects: &mut Vec<Effect>) {
        self.is_poll_scheduled = false;
        for (id, reader) in &mut self.readers {
            if mem::take(&mut reader.is_idle)
                && let Some(follower) = self.requests.get(&reader.follower)
            {
                if !follower.is_following {
                    reader.read_limit = ReadLimit::Current;
                }
                effects.push(Effect::ReadOutput {
                    reader: *id,
                    job: follower.job,
                    stream: reader.stream,
                    offset: reader.offset,
                });
            }
        }
    }

    /// Handles the result of a read. Returns the job if its start must be awaited.
    pub(super) fn take_output_chunk(
        &mut self,
        id: ReaderId,
        chunk: Chunk,
        messages: &mut Vec<Message>,
        effects: &mut Vec<Effect>,
    ) -> Option<JobId> {
        let reader = self.readers.get_mut(&id)?;
        let follower_id = reader.follower;
        let follower = self.requests.get_mut(&follower_id)?;
        if chunk != Chunk::Missing {
            follower.found = follower.found.max(FoundOutput::File);
        }
        match chunk {
            Chunk::Data(bytes) if !bytes.is_empty() => {
                follower.found = FoundOutput::Bytes;
                let response = OutputResponse {
                    stream: reader.stream.name().into(),
                    data: BASE64.encode(&bytes).into(),
                };
                messages.push(Message::success_to(&follower.request, &response));
                reader.offset += bytes.len() as u64;
                effects.push(Effect::ReadOutput {
                    reader: id,
                    job: follower.job,
                    stream: reader.stream,
                    offset: reader.offset,
                });
            }
            Chunk::Data(_) | Chunk::Missing if reader.read_limit == ReadLimit::Whole => {
                reader.is_idle = true;
            }
            Chunk::Data(_) | Chunk::Missing => return self.end_reader(follower_id, id, messages),
            Chunk::Failed(text) => {
                let text = format!("{}: {text}", follower.request.topic());
                let error = RequestError::new(EIO, text);
                self.end(follower_id, &error, messages);
            }
        }
        None
    }

    fn end_reader(
        &mut self,
        id: FollowerId,
        reader: ReaderId,
        messages: &mut Vec<Message>,
    ) -> Option<JobId> {
        self.readers.remove(&reader);
        let follower = self.requests.get_mut(&id)?;
        follower.readers.retain(|other| *other != reader);
        if !follower.readers.is_empty() {
            return None;
        }
        let job = follower.job;
        if follower.found >= FoundOutput::File
            || follower.streams.is_empty()
            || follower.wait == Wait::Over
        {
            self.end(id, &RequestError::end_of_stream(), messages);
        } else if follower.is_following {
            follower.wait = Wait::StartOrEnd;
            self.awaiting.entry(job).or_default().insert(id);
            return Some(job);
        } else {
            let text = format!("no output of job {job} is retained");
            self.end(id, &RequestError::not_found(text), messages);
        }
        None
    }

    fn end(&mut self, id: FollowerId, error: &RequestError, messages: &mut Vec<Message>) {
        if let Some(follower) = self.remove(id) {
            let (request, text) = (&follower.request, &error.text);
            messages.push(Message::error_to(request, error.errnum, text));
        }
    }

    fn remove(&mut self, id: FollowerId) -> Option<Follower> {
        self.end_wait(id);
        let follower = self.requests.remove(&id)?;
        for reader in &follower.readers {
            self.readers.remove(reader);
        }
        Some(follower)
    }

    /// Ends the streams of these requests.
    pub(super) fn cancel(
        &mut self,
        is_meant: impl Fn(&Message) -> bool,
        messages: &mut Vec<Message>,
    ) {
        for id in self.ids(|follower| is_meant(&follower.request)) {
            self.end(id, &RequestError::end_of_stream(), messages);
        }
    }

    /// Forgets these requests, whose client has disconnected.
    pub(super) fn disconnect(&mut self, is_meant: impl Fn(&Message) -> bool) {
        for id in self.ids(|follower| is_meant(&follower.request)) {
            self.remove(id);
        }
    }

    fn ids(&self, is_meant: impl Fn(&Follower) -> bool) -> Vec<FollowerId> {
        let found = self.requests.iter();
        let found = found.filter(|(_, follower)| is_meant(follower));
        found.map(|(id, _)| *id).collect()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// The error of a request for output that is not retained.
pub(super) fn redirection_error(template: &str) -> RequestError {
    RequestError::not_found(format!("the output of this job goes to `{template}`"))
}
