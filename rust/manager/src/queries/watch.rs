//! `Watchers`: streams that stay open, and requests that wait for jobs to end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use penstock_flux::errno::ECANCELED;
use penstock_flux::eventlog;
use penstock_flux::job_info::EventlogWatchResponse;
use penstock_flux::job_list::WaitRequest;
use penstock_flux::job_manager::{IdleResponse, OutstandingStats, QueueRequest};
use penstock_flux::{RequestError, StreamCancelRequest};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use super::guest::{self, JobLog};
use super::input_log;
use super::row::{Attrs, Rows};
use crate::authorize::VisibleJobs;
use crate::census::Census;
use crate::context::Context;
use crate::event::Event;
use crate::rpc::{self, Handled, Reply, Request};
use crate::state::State;

/// Rows of jobs that have ended together in one response: its buffer is one that the allocator has at hand.
const ENDED_ROWS_PER_RESPONSE: usize = 32;
/// Jobs of a wait whose rows are read or sent in one slice.
const ROWS_PER_SLICE: usize = 250;
/// Jobs of a wait that are examined in one slice.
const JOBS_EXAMINED_PER_SLICE: usize = 2_500;

/// A request that follows a log of a job.
#[derive(Debug)]
struct Follower {
    request: Message,
    log: JobLog,
}

/// A request that waits for several jobs.
#[derive(Debug)]
struct Wait {
    request: Message,
    /// The jobs that were examined and are not inactive yet.
    left: BTreeSet<JobId>,
    /// The rows of jobs that have become inactive, which are sent together.
    ended: Rows,
    /// The jobs that are still to be examined, in slices.
    unexamined: std::vec::IntoIter<JobId>,
    visible: VisibleJobs,
}

impl Wait {
    fn has_ended(&self) -> bool {
        self.left.is_empty() && self.unexamined.len() == 0
    }

    /// Sends the rows of the jobs that have become inactive.
    fn send_ended(&mut self, cx: &mut Context) {
        if !self.ended.is_empty() {
            let rows = std::mem::take(&mut self.ended);
            cx.respond_with_payload(&self.request, rows.wait_payload());
        }
    }

    /// Whether the next slice can be done: its client reads the responses.
    fn can_continue(&self, cx: &Context) -> bool {
        let origin = self.request.origin();
        let is_backlogged = origin.is_some_and(|origin| cx.backlogged.contains(origin));
        self.unexamined.len() > 0 && !is_backlogged
    }
}

/// The condition of a `drain` or `idle` request, for one queue or for all.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DrainCondition {
    queue: Option<String>,
    jobs: Drained,
}

/// The jobs whose end a `drain` or `idle` request awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Drained {
    /// All active jobs (`drain`).
    Active,
    /// Running jobs (`idle`).
    Running,
}

impl DrainCondition {
    fn is_reached(&self, census: &Census) -> bool {
        let tally = census.tally(self.queue.as_deref());
        let left = match self.jobs {
            Drained::Active => tally.active(),
            Drained::Running => tally.running(),
        };
        left == 0
    }
}

/// The open streams and waits.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// Followers of logs that follow from the events, by job.
    eventlogs: BTreeMap<JobId, Vec<Follower>>,
    /// Waits by number.
    waits: BTreeMap<u64, Wait>,
    /// Each awaited job with the number of a wait for it.
    awaited: BTreeSet<(JobId, u64)>,
    next_wait: u64,
    /// The waits with rows of jobs that have become inactive.
    unsent: BTreeSet<u64>,
    /// The waits with jobs that are to be examined, the one whose slice is next in front.
    unexamined: VecDeque<u64>,
    /// Entries of `awaited` without a wait, by its number: they are removed in slices.
    abandoned: Vec<(u64, BTreeSet<JobId>)>,
    /// Requests by condition: each tally is checked once, whatever the number of requests.
    drains: BTreeMap<DrainCondition, Vec<Message>>,
}

impl Watchers {
    /// Follows a job's eventlog from its next event.
    pub(crate) fn follow(&mut self, id: JobId, log: JobLog, request: Message) {
        let followers = self.eventlogs.entry(id).or_default();
        followers.push(Follower { request, log });
    }

    /// Sends an event to the followers of its job; `clean` ends their streams.
    pub(crate) fn send_event(&mut self, cx: &mut Context, id: JobId, event: &Event) {
        let Some(followers) = self.eventlogs.get(&id) else {
            return;
        };
        let is_last = event.name == eventlog::CLEAN;
        let mut line = String::new();
        event.write(&mut line);
        let payload = EventlogWatchResponse { event: line.into() };
        let has_followers = |log| followers.iter().any(|follower| follower.log == log);
        let execution = if has_followers(JobLog::Execution) {
            guest::execution_events(cx, id, event)
        } else {
            Vec::new()
        };
        let input = if has_followers(JobLog::Input) {
            input_log::first_events(cx, id, event)
        } else {
            Vec::new()
        };
        for follower in followers {
            match follower.log {
                JobLog::Execution => guest::send_lines(cx, &follower.request, &execution),
                JobLog::Input => guest::send_lines(cx, &follower.request, &input),
                JobLog::Events | JobLog::Output => cx.respond_with(&follower.request, &payload),
            }
            if is_last {
                cx.end_stream(&follower.request);
            }
        }
        if is_last {
            self.eventlogs.remove(&id);
        }
    }

    /// Sends events to the followers of the log of a job's standard input.
    pub(crate) fn send_input(&mut self, cx: &mut Context, id: JobId, events: &[Event]) {
        let followers = self.eventlogs.get(&id).into_iter().flatten();
        for follower in followers.filter(|follower| follower.log == JobLog::Input) {
            guest::send_lines(cx, &follower.request, events);
        }
    }

    /// `job-list.wait`: each job's row as it becomes inactive, ENODATA when all are.
    pub(crate) fn wait(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        visible: VisibleJobs,
    ) -> Handled {
        let wait: WaitRequest = request.payload()?;
        let number = self.next_wait;
        self.next_wait += 1;
        let wait = Wait {
            request: request.message.header(),
            left: BTreeSet::new(),
            ended: Rows::default(),
            unexamined: wait.ids.into_iter(),
            visible,
        };
        self.waits.insert(number, wait);
        self.examine(cx, number);
        Ok(Reply::Deferred)
    }

    /// Examines the next jobs of a wait, and removes some of what is left of waits that have ended.
    pub(crate) fn send_slice(&mut self, cx: &mut Context) {
        self.remove_abandoned();
        let waits = &self.waits;
        self.unexamined.retain(|number| waits.contains_key(number));
        let can_continue =
            |number: &u64| waits.get(number).is_some_and(|wait| wait.can_continue(cx));
        let next = self.unexamined.iter().position(can_continue);
        if let Some(number) = next.and_then(|index| self.unexamined.remove(index)) {
            self.examine(cx, number);
        }
    }

    /// Examines the next jobs of a wait: sends the rows of inactive ones, and has the ends of others reported. A job that is
    /// unknown or not visible ends the stream.
    fn examine(&mut self, cx: &mut Context, number: u64) {
        let Some(wait) = self.waits.get_mut(&number) else {
            return;
        };
        let (mut rows, mut sent) = (Rows::default(), 0);
        let mut fault = None;
        let limit = cx.read_limit();
        for _ in 0..JOBS_EXAMINED_PER_SLICE {
            if sent == ROWS_PER_SLICE || limit.is_reached(cx) {
                break;
            }
            let Some(id) = wait.unexamined.next() else {
                break;
            };
            match wait.visible.known(cx, id) {
                Ok(job) if job.record.state() == State::Inactive => {
                    rows.push(job, Attrs::ALL);
                    sent += 1;
                }
                Ok(_) => {
                    wait.left.insert(id);
                    self.awaited.insert((id, number));
                }
                Err(error) => {
                    fault = Some(error);
                    break;
                }
            }
        }
        if !rows.is_empty() {
            cx.respond_with_payload(&wait.request, rows.wait_payload());
        }
        if wait.has_ended() || fault.is_some() {
            wait.send_ended(cx);
            let end = fault.unwrap_or_else(RequestError::end_of_stream);
            if let Some(request) = self.remove_wait(number) {
                cx.reject(&request, &end);
            }
        } else if wait.unexamined.len() > 0 {
            self.unexamined.push_back(number);
        }
    }

    /// Removes the next entries of waits that have ended from those by job.
    fn remove_abandoned(&mut self) {
        for _ in 0..JOBS_EXAMINED_PER_SLICE {
            let Some((number, left)) = self.abandoned.last_mut() else {
                return;
            };
            match left.pop_first() {
                Some(id) => self.awaited.remove(&(id, *number)),
                None => self.abandoned.pop().is_some(),
            };
        }
    }

    /// Whether [`send_slice`](Self::send_slice) has something to do.
    pub(crate) fn has_more(&self, cx: &Context) -> bool {
        let mut waits = self
            .unexamined
            .iter()
            .filter_map(|number| self.waits.get(number));
        !self.abandoned.is_empty() || waits.any(|wait| wait.can_continue(cx))
    }

    /// The peers with a wait whose jobs are still examined.
    pub(crate) fn readers(&self) -> impl Iterator<Item = &[u8]> {
        let waits = self
            .unexamined
            .iter()
            .filter_map(|number| self.waits.get(number));
        waits.filter_map(|wait| wait.request.origin())
    }

    /// Adds the row of a job that has become inactive to those for the requests that wait for it. They are sent by the next
    /// [`send_ended`](Self::send_ended), or at the end of the wait.
    pub(crate) fn report_end(&mut self, cx: &mut Context, id: JobId) {
        let waits = self.awaited.range((id, 0)..=(id, u64::MAX));
        let numbers: Vec<u64> = waits.map(|(_, number)| *number).collect();
        for number in numbers {
            self.awaited.remove(&(id, number));
            let Some(wait) = self.waits.get_mut(&number) else {
                continue;
            };
            wait.left.remove(&id);
            if let Some(job) = cx.jobs.get(id) {
                wait.ended.push(job, Attrs::ALL);
            }
            if wait.has_ended() || wait.ended.len() >= ENDED_ROWS_PER_RESPONSE {
                wait.send_ended(cx);
            }
            if wait.has_ended() {
                cx.end_stream(&wait.request);
                self.waits.remove(&number);
            } else {
                self.unsent.insert(number);
            }
        }
    }

    /// Sends the rows of jobs that have become inactive since the last call: those of a batch of messages share a response.
    pub(crate) fn send_ended(&mut self, cx: &mut Context) {
        while let Some(number) = self.unsent.pop_first() {
            if let Some(wait) = self.waits.get_mut(&number) {
                wait.send_ended(cx);
            }
        }
    }

    /// `job-manager.drain` and `job-manager.idle`: answered when no such jobs are left.
    pub(crate) fn drain(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        jobs: Drained,
    ) -> Handled {
        let QueueRequest { name } = request.payload()?;
        if let Some(name) = name.as_deref()
            && !cx.settings.queues.contains_key(name)
        {
            return Err(RequestError::not_found(format!("unknown queue `{name}`")));
        }
        let queue = name.map(penstock_flux::Text::into_string);
        let requests = self
            .drains
            .entry(DrainCondition { queue, jobs })
            .or_default();
        requests.push(request.message.header());
        Ok(Reply::Deferred)
    }

    /// Answers the `drain` and `idle` requests whose condition is met.
    pub(crate) fn answer_drains(&mut self, cx: &mut Context, census: &Census) {
        if self.drains.keys().any(|drain| drain.is_reached(census)) {
            // The rows of the jobs come first.
            self.send_ended(cx);
        }
        self.drains.retain(|drain, requests| {
            let is_reached = drain.is_reached(census);
            if is_reached {
                let pending = census.tally(drain.queue.as_deref()).active();
                for request in requests {
                    match drain.jobs {
                        Drained::Active => cx.respond_empty(request),
                        Drained::Running => cx.respond_with(request, &IdleResponse { pending }),
                    }
                }
            }
            !is_reached
        });
    }

    /// `job-manager.drain-cancel` and `job-manager.idle-cancel`: answers the request that `matchtag`
    /// names with ECANCELED if it is still outstanding.
    pub(crate) fn drain_cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let is_named =
            |message: &Message| rpc::is_request_of(message, request.origin(), cancel.matchtag);
        let mut found = self.drains.values_mut().filter_map(|requests| {
            let index = requests.iter().position(is_named)?;
            Some(requests.swap_remove(index))
        });
        if let Some(ended) = found.next() {
            cx.reject(&ended, &RequestError::new(ECANCELED, "cancelled"));
        }
        Ok(Reply::Empty)
    }

    /// `job-info.eventlog-watch-cancel` and `job-list.wait-cancel`: the stream ends with ENODATA.
    pub(crate) fn stream_cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let is_named =
            |message: &Message| rpc::is_request_of(message, request.origin(), cancel.matchtag);
        self.send_ended(cx);
        if let Some(ended) = self.take_stream(is_named) {
            cx.end_stream(&ended);
        }
        Ok(Reply::Empty)
    }

    fn take_stream(&mut self, is_it: impl Fn(&Message) -> bool) -> Option<Message> {
        let found = self.eventlogs.iter().find_map(|(id, followers)| {
            let index = followers
                .iter()
                .position(|follower| is_it(&follower.request))?;
            Some((*id, index))
        });
        if let Some((id, index)) = found {
            let followers = self.eventlogs.get_mut(&id)?;
            let ended = followers.swap_remove(index);
            if followers.is_empty() {
                self.eventlogs.remove(&id);
            }
            return Some(ended.request);
        }
        let mut waits = self.waits.iter();
        let (number, _) = waits.find(|(_, wait)| is_it(&wait.request))?;
        let number = *number;
        self.remove_wait(number)
    }

    fn remove_wait(&mut self, number: u64) -> Option<Message> {
        let wait = self.waits.remove(&number)?;
        self.abandoned.push((number, wait.left));
        self.remove_abandoned();
        Some(wait.request)
    }

    /// Drops the streams and waits of a peer that has disconnected.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        let is_theirs = |request: &Message| request.origin() == Some(origin);
        for followers in self.eventlogs.values_mut() {
            followers.retain(|follower| !is_theirs(&follower.request));
        }
        self.eventlogs.retain(|_, followers| !followers.is_empty());
        let waits = self.waits.iter();
        let waits = waits.filter(|(_, wait)| is_theirs(&wait.request));
        for number in waits.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.remove_wait(number);
        }
        for requests in self.drains.values_mut() {
            requests.retain(|request| !is_theirs(request));
        }
        self.drains.retain(|_, requests| !requests.is_empty());
    }

    /// The statistics of `stats-get`.
    pub(crate) fn stats(&self) -> OutstandingStats {
        let sum = |lists: usize| lists as u64;
        OutstandingStats {
            followers: sum(self.eventlogs.values().map(Vec::len).sum()),
            waits: sum(self.waits.len()),
            awaited: sum(self.awaited.len()),
            drains: sum(self.drains.values().map(Vec::len).sum()),
        }
    }
}
