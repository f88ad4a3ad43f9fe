//! Which message is handled by which part of the scheduler.

use penstock_flux::sched::StatsResponse;
use penstock_flux::{Caller, Payload, RequestError, topic};
use penstock_wire::{Message, MessageType};

use crate::scheduler::OutstandingRequest;
use crate::{Phase, Scheduler};

/// The methods, each with the users who may call it. RFC 27 is spoken among the instance owner's services only, and the
/// statistics name policies.
const METHODS: [(&str, Caller); 13] = {
    use Caller::{Anyone, JobUser, Owner};
    [
        (topic::sched::ALLOC, Owner),
        (topic::sched::CANCEL, Owner),
        (topic::sched::CONFIG_RELOAD, Owner),
        (topic::sched::ESTIMATE, JobUser),
        (topic::sched::EXPIRATION, Owner),
        (topic::sched::EXPLAIN, JobUser),
        (topic::sched::FEASIBILITY_CHECK, Anyone),
        (topic::sched::FEASIBILITY_STATS_GET, Owner),
        (topic::sched::FREE, Owner),
        (topic::sched::PRIORITIZE, Owner),
        (topic::sched::RESOURCE_STATUS, Anyone),
        (topic::sched::STATS_GET, Owner),
        (topic::sched::WHAT_IF, Owner),
    ]
};

/// The topics of the scheduler's services, each with the users who may call it: `all`, `own` (for their jobs) or `owner`.
pub fn roles() -> impl Iterator<Item = (&'static str, &'static str)> {
    METHODS
        .iter()
        .map(|(topic, caller)| (*topic, caller.name()))
}

/// The users who may call the method of a topic.
fn caller(request: &Message) -> Caller {
    let found = METHODS.iter().find(|(topic, _)| *topic == request.topic());
    found.map_or(Caller::Anyone, |(_, caller)| *caller)
}

impl Scheduler {
    /// Handles one message. It may make a call of [`schedule`](Self::schedule) worthwhile.
    pub fn handle(&mut self, message: &Message) {
        match message.kind {
            MessageType::Request => self.handle_request(message),
            MessageType::Response => self.handle_response(message),
            MessageType::Event | MessageType::Control => {}
        }
    }

    fn handle_request(&mut self, request: &Message) {
        if request.method() == topic::DISCONNECT {
            return self.disconnect(request.origin());
        }
        if caller(request) == Caller::Owner
            && let Err(error) = request.require_owner()
        {
            return self.reply(request, Err(error));
        }
        if is_query(request) {
            return self.queries.push(request.clone());
        }
        let reply = match request.topic() {
            topic::sched::ALLOC => return self.alloc(request),
            topic::sched::CANCEL => return self.cancel(request),
            topic::sched::PRIORITIZE => return self.prioritize(request),
            topic::sched::ESTIMATE | topic::sched::WHAT_IF => {
                match self.forecast_requests.await_turn(request.clone()) {
                    Ok(()) => return,
                    Err(error) => Err(error),
                }
            }
            topic::sched::FREE => self.free(request),
            topic::sched::EXPIRATION => self.set_expiration(request),
            topic::sched::CONFIG_RELOAD => self.reload_config(request),
            topic::sched::FEASIBILITY_CHECK => self.check_feasibility(request),
            topic => match request.method() {
                topic::PING => request.echo().map(Some),
                topic::STATS_GET => Ok(Some(self.stats().to_payload())),
                _ => Err(RequestError::unknown_method(topic)),
            },
        };
        self.reply(request, reply);
    }

    /// Drops the requests of a peer that has disconnected.
    fn disconnect(&mut self, origin: Option<&[u8]>) {
        if origin.is_some() {
            self.queries.retain(|request| request.origin() != origin);
            self.forecast_requests.disconnect(origin);
        }
    }

    fn stats(&self) -> StatsResponse<'static> {
        let engine = self.engine.as_ref();
        StatsResponse {
            ready: self.phase == Phase::Running,
            queued: engine.map_or(0, |engine| engine.queue_len() as u64),
            running: engine.map_or(0, |engine| engine.running() as u64),
            unanswered: self.allocs.len() as u64,
            policy: self.options.settings.policy.to_string().into(),
            selection: self.options.settings.selection.to_string().into(),
            estimates: self.accuracy(),
            passes: self.passes.stats(),
        }
    }

    fn handle_response(&mut self, response: &Message) {
        let tag = response.matchtag;
        let Some(request) = self.outstanding.remove(&tag) else {
            return;
        };
        // The responses that the end waits for, and those that jobs wait for; what the handshake has requested no longer
        // matters.
        let is_ending = matches!(self.phase, Phase::Stopping | Phase::Stopped);
        match request {
            OutstandingRequest::Unregister => self.handle_unregister_response(),
            OutstandingRequest::Commit(allocations) => {
                self.handle_commit_response(&allocations, response);
            }
            _ if is_ending => {}
            OutstandingRequest::Register(name) => self.handle_register_response(name, response),
            OutstandingRequest::Acquire => self.handle_acquire_response(tag, response),
            OutstandingRequest::Hello => self.handle_hello_response(tag, response),
            OutstandingRequest::Lookup(job) => self.handle_lookup_response(&job, response),
            OutstandingRequest::Ready => self.handle_ready_response(response),
        }
        // A stream is still outstanding.
        if !self.outstanding.contains_key(&tag) {
            self.matchtags.release(tag);
        }
    }
}

/// Whether a request is a query, which the next [`Scheduler::schedule`] answers.
fn is_query(request: &Message) -> bool {
    matches!(
        request.topic(),
        topic::sched::EXPLAIN | topic::sched::RESOURCE_STATUS
    )
}
