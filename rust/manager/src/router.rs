//! Which handler serves which topic, and the role that it requires.

use penstock_flux::{Payload, RequestError, topic};
use penstock_wire::{Kind, Message};

use crate::control;
use crate::history;
use crate::info;
use crate::ingest;
use crate::job_list;
use crate::kvs;
use crate::manager::Manager;
use crate::priority;
use crate::queue_admin;
use crate::row;
use crate::rpc::{Handled, Reply, Request};
use crate::update;
use crate::watch::Drained;

/// The role that a method requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    /// Every user; methods on one job check its owner.
    Anyone,
    /// The instance owner.
    Owner,
}

/// How a method is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// One response at most.
    Single,
    /// A stream of responses: the request must say so (RFC 6).
    Streaming,
}

type Handler = fn(&mut Manager, Request<'_>) -> Handled;

/// One method.
struct Route {
    topic: &'static str,
    caller: Caller,
    mode: Mode,
    handler: Handler,
}

const fn route(topic: &'static str, caller: Caller, mode: Mode, handler: Handler) -> Route {
    Route {
        topic,
        caller,
        mode,
        handler,
    }
}

/// Every method, sorted by topic.
const ROUTES: [Route; 38] = {
    use Caller::{Anyone, Owner};
    use Mode::{Single, Streaming};
    use topic::{job_info, job_ingest, job_manager, kvs as kv, pmix};
    [
        route(job_info::EVENTLOG_WATCH, Anyone, Streaming, |m, r| {
            m.queries.watchers.eventlog_watch(&mut m.cx, r)
        }),
        route(job_info::EVENTLOG_WATCH_CANCEL, Anyone, Single, |m, r| {
            m.queries.watchers.stream_cancel(&mut m.cx, r)
        }),
        route(job_info::LOOKUP, Anyone, Single, |m, r| {
            info::lookup(&mut m.cx, r)
        }),
        route(job_ingest::SUBMIT, Anyone, Single, |m, r| {
            ingest::submit(&mut m.cx, r)
        }),
        route(topic::job_list::JOB_STATS, Anyone, Single, |m, _| {
            Ok(m.census.describe().into())
        }),
        route(topic::job_list::LIST, Anyone, Streaming, |m, r| {
            m.queries.listings.list(&m.cx, r)
        }),
        route(topic::job_list::LIST_ATTRS, Anyone, Single, |_, _| {
            Ok(row::attributes().into())
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
        route(job_manager::HISTORY_GET, Anyone, Single, |m, r| {
            history::history(&m.cx, r)
        }),
        route(job_manager::IDLE, Anyone, Single, |m, r| {
            m.queries.watchers.drain(&mut m.cx, r, Drained::Running)
        }),
        route(job_manager::IDLE_CANCEL, Anyone, Single, |m, r| {
            m.queries.watchers.drain_cancel(&mut m.cx, r)
        }),
        route(job_manager::KILL, Anyone, Single, |m, r| {
            control::kill(&mut m.cx, &m.exec, r)
        }),
        route(job_manager::MEMO, Anyone, Single, |m, r| {
            control::memo(&mut m.cx, r)
        }),
        route(job_manager::PRIORITIZE, Owner, Single, |m, r| {
            priority::prioritize(&mut m.cx, &mut m.scheduler, r)
        }),
        route(job_manager::PURGE, Owner, Single, |m, r| {
            m.purger.purge(&mut m.cx, &mut m.census, r)
        }),
        route(job_manager::QUEUE_ENABLE, Owner, Single, |m, r| {
            let done = queue_admin::queue_enable(&mut m.cx, r);
            m.elastic.retry_postponed_returns(&m.cx);
            done
        }),
        route(job_manager::QUEUE_LIST, Anyone, Single, |m, _| {
            Ok(queue_admin::queue_list(&m.cx))
        }),
        route(job_manager::QUEUE_START, Owner, Single, |m, r| {
            queue_admin::queue_start(&mut m.cx, &mut m.scheduler, r)
        }),
        route(job_manager::QUEUE_STATUS, Anyone, Single, |m, r| {
            queue_admin::queue_status(&m.cx, r)
        }),
        route(job_manager::RAISE, Anyone, Single, |m, r| {
            control::raise(&mut m.cx, r)
        }),
        route(job_manager::SCHED_HELLO, Owner, Streaming, |m, r| {
            m.scheduler.hello(&mut m.cx, r)
        }),
        route(job_manager::SCHED_READY, Owner, Single, |m, r| {
            m.scheduler.ready(&mut m.cx, r)
        }),
        route(job_manager::UPDATE, Anyone, Single, |m, r| {
            update::update(&mut m.cx, r)
        }),
        route(job_manager::URGENCY, Anyone, Single, |m, r| {
            priority::set_urgency(&mut m.cx, &mut m.scheduler, r)
        }),
        route(kv::COMMIT, Owner, Single, |m, r| kvs::commit(&mut m.cx, r)),
        route(kv::LOOKUP, Anyone, Single, |m, r| kvs::lookup(&mut m.cx, r)),
        route(pmix::ALLOC, Anyone, Single, |m, r| {
            m.elastic.alloc(&mut m.cx, r)
        }),
        route(pmix::ALLOC_CANCEL, Anyone, Single, |m, r| {
            m.elastic.alloc_cancel(&mut m.cx, r)
        }),
        route(pmix::CANCEL, Anyone, Single, |m, r| {
            m.elastic.cancel_request(&mut m.cx, r)
        }),
        route(pmix::EVENTS, Anyone, Streaming, |m, r| {
            m.elastic.events(&mut m.cx, r)
        }),
        route(pmix::EVENTS_CANCEL, Anyone, Single, |m, r| {
            m.elastic.events_cancel(&mut m.cx, r)
        }),
        route(pmix::QUERY, Anyone, Single, |m, r| {
            m.elastic.query(&m.cx, r)
        }),
    ]
};

fn find(topic: &str) -> Option<&'static Route> {
    let index = ROUTES.binary_search_by(|route| route.topic.cmp(topic));
    index.ok().and_then(|index| ROUTES.get(index))
}

impl Manager {
    /// Takes a message. Responses and further requests come out of [`flush`](Self::flush).
    pub fn handle(&mut self, message: &Message, now: f64) {
        self.begin(now);
        match message.kind {
            Kind::Request => self.handle_request(message),
            Kind::Response => self.handle_response(message),
            Kind::Event | Kind::Control => {}
        }
        self.settle();
    }

    fn handle_request(&mut self, message: &Message) {
        let request = Request::new(message, self.cx.settings.owner);
        let handled = match find(message.topic()) {
            Some(route) => self.call(route, request),
            None => self.call_any(request),
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

    /// Calls a method. This is the one place that checks roles.
    fn call(&mut self, route: &Route, request: Request<'_>) -> Handled {
        let (message, topic) = (request.message, route.topic);
        if route.mode == Mode::Streaming {
            if message.is_noresponse() {
                let line = format!("{topic} that wants no response: ignored");
                self.cx.complain(line);
                return Ok(Reply::Deferred);
            }
            if !message.is_streaming() {
                let text = format!("{topic} is a streaming request");
                return Err(RequestError::protocol(text));
            }
        }
        if route.caller == Caller::Owner && !request.sender.is_owner() {
            let text = format!("{topic}: only the instance owner may do this");
            return Err(RequestError::not_permitted(text));
        }
        (route.handler)(self, request)
    }

    /// Calls a method that every service has.
    fn call_any(&mut self, request: Request<'_>) -> Handled {
        match request.message.method() {
            topic::DISCONNECT => {
                self.disconnect(request);
                Ok(Reply::Deferred)
            }
            topic::PING => Ok(Reply::from(request.payload::<serde_json::Value>()?)),
            topic::STATS_GET => Ok(Reply::Payload(self.stats().to_payload())),
            _ => Err(RequestError::unknown_method(request.message.topic())),
        }
    }

    /// A peer has disconnected: the scheduler, the execution service, or a client.
    fn disconnect(&mut self, request: Request<'_>) {
        let Some(origin) = request.origin() else {
            return;
        };
        self.queries.disconnect(origin);
        self.elastic.disconnect(origin);
        self.scheduler.disconnect(&mut self.cx, origin);
        self.exec.disconnect(&mut self.cx, origin);
    }

    fn handle_response(&mut self, response: &Message) {
        let cx = &mut self.cx;
        if response.userid != cx.settings.owner {
            let topic = response.topic();
            return cx.complain(format!("response of another user to {topic}: ignored"));
        }
        match response.topic() {
            topic::sched::ALLOC => self.scheduler.alloc_response(cx, response),
            topic::sched::FREE => self.scheduler.free_response(cx, response),
            topic::sched::EXPIRATION => self.scheduler.expiration_response(cx, response),
            topic::sched::EXPLAIN => self.elastic.probe_response(cx, response),
            topic::hooks::PROLOG | topic::hooks::EPILOG => self.hooks.response(cx, response),
            _ if response.method() == topic::exec_method::START => {
                self.exec.start_response(cx, response);
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
            assert_eq!(find(route.topic).map(|it| it.topic), Some(route.topic));
        }
        assert!(find("job-manager.nonsense").is_none());
    }
}
