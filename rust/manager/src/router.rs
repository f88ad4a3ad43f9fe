//! The table of methods: topic, required role and handler.

use penstock_flux::{Payload, RequestError, topic};
use penstock_wire::{Message, MessageType};

use crate::authorize::{self, Caller, Decided, JobKey};
use crate::control;
use crate::ingest;
use crate::manager::Manager;
use crate::priority;
use crate::queries::history;
use crate::queries::info;
use crate::queries::job_list;
use crate::queries::kvs;
use crate::queries::row;
use crate::queries::watch::Drained;
use crate::queue_admin;
use crate::rpc::{Handled, Reply, Request};
use crate::update;

/// How a method is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// One response at most.
    Single,
    /// A stream of responses: the request must say so (RFC 6).
    Streaming,
}

type Handler = fn(&mut Manager, Request<'_>) -> Handled;
type DecidingHandler = fn(&mut Manager, Request<'_>) -> Result<Decided<Reply>, RequestError>;

/// The authorization of a method, and its handler.
#[derive(Clone, Copy)]
enum Access {
    /// The router checks the role of the sender.
    Role(Caller, Handler),
    /// The handler applies a rule that depends on values in the request: a method for several jobs
    /// rejects single jobs, and the `pmix` methods answer with a PMIx status.
    Value(DecidingHandler),
}

/// One method.
struct Route {
    topic: &'static str,
    mode: Mode,
    access: Access,
}

const fn route(topic: &'static str, caller: Caller, mode: Mode, handler: Handler) -> Route {
    let access = Access::Role(caller, handler);
    Route {
        topic,
        mode,
        access,
    }
}

const fn by_value(topic: &'static str, mode: Mode, handler: DecidingHandler) -> Route {
    let access = Access::Value(handler);
    Route {
        topic,
        mode,
        access,
    }
}

/// Every method, sorted by topic.
const ROUTES: [Route; 38] = {
    use Caller::{Anyone, JobOwner, Owner};
    use JobKey::{Id, Job};
    use Mode::{Single, Streaming};
    use topic::{job_info, job_ingest, job_manager, kvs as kv, pmix};
    [
        route(job_info::EVENTLOG_WATCH, JobOwner(Id), Streaming, |m, r| {
            m.queries.watchers.eventlog_watch(&mut m.cx, r)
        }),
        route(job_info::EVENTLOG_WATCH_CANCEL, Anyone, Single, |m, r| {
            m.queries.watchers.stream_cancel(&mut m.cx, r)
        }),
        route(job_info::LOOKUP, JobOwner(Id), Single, |m, r| {
            info::lookup(&mut m.cx, r)
        }),
        by_value(job_ingest::SUBMIT, Single, |m, r| {
            ingest::submit(&mut m.cx, r)
        }),
        route(topic::job_list::JOB_STATS, Anyone, Single, |m, _| {
            Ok(Reply::of(&m.census.stats()))
        }),
        route(topic::job_list::LIST, Anyone, Streaming, |m, r| {
            m.queries.listings.list(&m.cx, r)
        }),
        route(topic::job_list::LIST_ATTRS, Anyone, Single, |_, _| {
            Ok(Reply::of(&row::attributes()))
        }),
        route(topic::job_list::LIST_CANCEL, Anyone, Single, |m, r| {
            m.queries.listings.list_cancel(&mut m.cx, r)
        }),
        route(topic::job_list::LIST_ID, Anyone, Single, |m, r| {
            job_list::list_id(&m.cx, r)
        }),
        route(topic::job_list::WAIT, Anyone, Streaming, |m, r| {
            m.queries.watchers.wait(&mut m.cx, r)
        }),
        route(topic::job_list::WAIT_CANCEL, Anyone, Single, |m, r| {
            m.queries.watchers.stream_cancel(&mut m.cx, r)
        }),
        route(job_manager::DRAIN, Anyone, Single, |m, r| {
            m.queries.watchers.drain(&mut m.cx, r, Drained::Active)
        }),
        route(job_manager::DRAIN_CANCEL, Anyone, Single, |m, r| {
            m.queries.watchers.drain_cancel(&mut m.cx, r)
        }),
        route(job_manager::EXEC_HELLO, Owner, Single, |m, r| {
            m.exec.hello(&mut m.cx, r)
        }),
        by_value(job_manager::HISTORY_GET, Single, |m, r| {
            history::history(&m.cx, r)
        }),
        route(job_manager::IDLE, Anyone, Single, |m, r| {
            m.queries.watchers.drain(&mut m.cx, r, Drained::Running)
        }),
        route(job_manager::IDLE_CANCEL, Anyone, Single, |m, r| {
            m.queries.watchers.drain_cancel(&mut m.cx, r)
        }),
        by_value(job_manager::KILL, Single, |m, r| {
            control::kill(&mut m.cx, r)
        }),
        route(job_manager::MEMO, JobOwner(Id), Single, |m, r| {
            control::memo(&mut m.cx, r)
        }),
        route(job_manager::PRIORITIZE, Owner, Single, |m, r| {
            priority::prioritize(&mut m.cx, r)
        }),
        route(job_manager::PURGE, Owner, Single, |m, r| {
            m.purger.purge(&mut m.cx, &mut m.census, r)
        }),
        route(job_manager::QUEUE_ENABLE, Owner, Single, |m, r| {
            queue_admin::queue_enable(&mut m.cx, r)
        }),
        route(job_manager::QUEUE_LIST, Anyone, Single, |m, _| {
            Ok(queue_admin::queue_list(&m.cx))
        }),
        route(job_manager::QUEUE_START, Owner, Single, |m, r| {
            queue_admin::queue_start(&mut m.cx, r)
        }),
        route(job_manager::QUEUE_STATUS, Anyone, Single, |m, r| {
            queue_admin::queue_status(&m.cx, r)
        }),
        by_value(job_manager::RAISE, Single, |m, r| {
            control::raise(&mut m.cx, r)
        }),
        route(job_manager::SCHED_HELLO, Owner, Streaming, |m, r| {
            m.scheduler.hello(&mut m.cx, r)
        }),
        route(job_manager::SCHED_READY, Owner, Single, |m, r| {
            m.scheduler.ready(&mut m.cx, r)
        }),
        by_value(job_manager::UPDATE, Single, |m, r| {
            update::update(&mut m.cx, r)
        }),
        by_value(job_manager::URGENCY, Single, |m, r| {
            priority::set_urgency(&mut m.cx, r)
        }),
        route(kv::COMMIT, Owner, Single, |m, r| kvs::commit(&mut m.cx, r)),
        by_value(kv::LOOKUP, Single, |m, r| kvs::lookup(&mut m.cx, r)),
        by_value(pmix::ALLOC, Single, |m, r| m.elastic.alloc(&mut m.cx, r)),
        route(pmix::ALLOC_CANCEL, Anyone, Single, |m, r| {
            m.elastic.alloc_cancel(&mut m.cx, r)
        }),
        by_value(pmix::CANCEL, Single, |m, r| {
            m.elastic.cancel_request(&mut m.cx, r)
        }),
        route(pmix::EVENTS, JobOwner(Job), Streaming, |m, r| {
            m.elastic.events(&mut m.cx, r)
        }),
        route(pmix::EVENTS_CANCEL, Anyone, Single, |m, r| {
            m.elastic.events_cancel(&mut m.cx, r)
        }),
        by_value(pmix::QUERY, Single, |m, r| m.elastic.query(&m.cx, r)),
    ]
};

/// Whether a request is for a service of the manager, whatever its method.
fn is_served(request: &Message) -> bool {
    let (service, method) = (request.service(), request.method());
    let is_of = |topic: &str| {
        let rest = topic.strip_prefix(service);
        rest.is_some_and(|rest| rest.starts_with('.'))
    };
    let rest = request.topic().strip_prefix(service);
    rest.and_then(|rest| rest.strip_prefix('.')) == Some(method)
        && ROUTES.iter().any(|route| is_of(route.topic))
}

fn find(topic: &str) -> Option<&'static Route> {
    let index = ROUTES.binary_search_by(|route| route.topic.cmp(topic));
    index.ok().and_then(|index| ROUTES.get(index))
}

impl Manager {
    /// Takes a message. Responses and further requests come out of
    /// [`take_messages`](Self::take_messages).
    pub fn handle(&mut self, message: &Message, now: f64) {
        self.begin(now);
        match message.kind {
            MessageType::Request => self.handle_request(message),
            MessageType::Response => self.handle_response(message),
            MessageType::Event | MessageType::Control => {}
        }
        self.settle();
    }

    fn handle_request(&mut self, message: &Message) {
        let request = Request::new(message);
        let handled = match find(message.topic()) {
            Some(route) => self.call(route, request),
            None => self.call_common(request),
        };
        match handled {
            Ok(Reply::Empty) => self.cx.respond(message, None),
            Ok(Reply::Payload(payload)) if !message.is_noresponse() => {
                let response = Message::response_to(message, 0, Some(payload));
                self.cx.send(response);
            }
            Ok(Reply::Deferred | Reply::Payload(_)) => {}
            Err(error) => self.cx.reject(message, &error),
        }
    }

    /// Calls a method, if the sender has the role that its route requires.
    fn call(&mut self, route: &Route, request: Request<'_>) -> Handled {
        let (message, topic) = (request.message, route.topic);
        if route.mode == Mode::Streaming {
            if message.is_noresponse() {
                let line = format!("{topic} marked as without response: ignored");
                self.cx.complain(line);
                return Ok(Reply::Deferred);
            }
            message.require_streaming()?;
        }
        match route.access {
            Access::Role(caller, handler) => {
                authorize::check(caller, &self.cx.jobs, request)?;
                handler(self, request)
            }
            Access::Value(handler) => handler(self, request).map(|decided| decided.split().0),
        }
    }

    /// Calls a method that every service has, for every user.
    fn call_common(&mut self, request: Request<'_>) -> Handled {
        let message = request.message;
        match message.method() {
            _ if !is_served(message) => Err(RequestError::unknown_method(message.topic())),
            topic::DISCONNECT => {
                self.disconnect(request);
                Ok(Reply::Deferred)
            }
            topic::PING => Ok(Reply::from(request.payload::<serde_json::Value>()?)),
            topic::STATS_GET => Ok(Reply::Payload(self.stats().to_payload())),
            _ => Err(RequestError::unknown_method(message.topic())),
        }
    }

    /// Handles the disconnect of a peer: the scheduler, the execution service, or a client.
    fn disconnect(&mut self, request: Request<'_>) {
        let Some(origin) = request.origin() else {
            return;
        };
        self.queries.disconnect(origin);
        self.elastic.disconnect(origin);
        self.scheduler.disconnect(&mut self.cx, origin);
        self.exec.disconnect(&mut self.cx, origin);
    }

    /// Handles a response. All requests of the manager go to services of the instance owner; responses
    /// of other users are ignored.
    fn handle_response(&mut self, response: &Message) {
        use topic::{exec_method, hooks, sched};
        let topic = response.topic();
        if !response.credentials().is_owner() {
            let line = format!("response of another user to {topic}: ignored");
            return self.cx.complain(line);
        }
        let cx = &mut self.cx;
        cx.release_matchtag(response.matchtag);
        match topic {
            sched::ALLOC => self.scheduler.handle_alloc_response(cx, response),
            sched::FREE => self.scheduler.handle_free_response(cx, response),
            sched::EXPIRATION => self.scheduler.handle_expiration_response(cx, response),
            sched::EXPLAIN => self.elastic.handle_probe_response(cx, response),
            hooks::PROLOG | hooks::EPILOG => self.hooks.handle_response(cx, response),
            // The execution service has chosen its name.
            _ if response.method() == exec_method::START => {
                self.exec.handle_start_response(cx, response);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ROUTES, find};

    #[test]
    fn every_topic_is_found_once() {
        assert!(ROUTES.windows(2).all(|pair| pair[0].topic < pair[1].topic));
        for route in &ROUTES {
            assert_eq!(
                find(route.topic).map(|found| found.topic),
                Some(route.topic)
            );
        }
        assert!(find("job-manager.nonsense").is_none());
    }
}
