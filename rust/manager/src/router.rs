//! The table of methods: topic, authorization and handler.

use std::collections::HashMap;

use penstock_flux::job_manager::AllocQueryResponse;
use penstock_flux::{JobId, RequestError, guest_log, topic};
use penstock_wire::{Message, MessageType};

use crate::authorize::{
    self, Caller, JobKey, JobNames, JobRule, NamedJobs, Permission, PermittedJob, PermittedJobs,
    PermittedKey, PermittedUser, VisibleJobs,
};
use crate::bulk::BulkRequests;
use crate::context::Context;
use crate::control;
use crate::manager::Manager;
use crate::priority;
use crate::purge::Dependents;
use crate::queries::job_list;
use crate::queries::kvs;
use crate::queries::row;
use crate::queries::watch::Drained;
use crate::queue_admin;
use crate::rpc::{Handled, Reply, Request};
use crate::update;

/// The number of responses that a method sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// One response at most.
    Single,
    /// A stream of responses: the request must say so (RFC 6).
    Streaming,
}

type Handler = fn(&mut Manager, Request<'_>) -> Handled;
type RowsHandler = fn(&mut Manager, Request<'_>, VisibleJobs) -> Handled;
type JobHandler = fn(&mut Manager, Request<'_>, PermittedJob) -> Handled;
type JobsHandler = fn(&mut Manager, Request<'_>, PermittedJobs) -> Handled;
type MatchingHandler = fn(&mut Context, &mut BulkRequests, Request<'_>, NamedJobs) -> Handled;
type PmixHandler = fn(&mut Manager, Request<'_>, Permission) -> Handled;
type KeyHandler = fn(&mut Manager, Request<'_>, PermittedKey) -> Handled;
type UserHandler = fn(&mut Manager, Request<'_>, PermittedUser) -> Handled;

/// The authorization of a method, which the router does, and its handler, which gets the job, key or user that was
/// checked.
#[derive(Clone, Copy)]
enum Access {
    /// The sender must have a role.
    Role(Caller, Handler),
    /// Every user: the handler gets the jobs whose rows the sender may read.
    Rows(RowsHandler),
    /// The sender must be allowed to act on the one job that the payload names.
    Job(JobRule, JobHandler),
    /// The sender must be the owner of the job whose document the payload's `key` names; of other keys the instance
    /// owner.
    Key(KeyHandler),
    /// The sender must be the user whose jobs the payload asks for, or the instance owner.
    User(UserHandler),
    /// The sender must be the owner of the jobs that the payload names, or the instance owner. The response
    /// for several jobs lists those of other users, so the handler gets the result of each check as it takes the job.
    Jobs(JobNames, JobsHandler),
    /// The sender must be the user whose jobs the payload names by user and state, or the instance owner.
    MatchingJobs(MatchingHandler),
    /// The same for one job, but a rejection is a PMIx status.
    PmixJob(PmixHandler),
}

/// One method.
struct Route {
    /// The topic; of a method that every service has, its last word.
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

const fn on_rows(topic: &'static str, mode: Mode, handler: RowsHandler) -> Route {
    Route {
        topic,
        mode,
        access: Access::Rows(handler),
    }
}

const fn on_job(topic: &'static str, rule: JobRule, mode: Mode, handler: JobHandler) -> Route {
    let access = Access::Job(rule, handler);
    Route {
        topic,
        mode,
        access,
    }
}

const fn on_key(topic: &'static str, handler: KeyHandler) -> Route {
    Route {
        topic,
        mode: Mode::Single,
        access: Access::Key(handler),
    }
}

const fn on_watched_key(topic: &'static str, handler: KeyHandler) -> Route {
    Route {
        mode: Mode::Streaming,
        ..on_key(topic, handler)
    }
}

const fn on_user(topic: &'static str, handler: UserHandler) -> Route {
    Route {
        topic,
        mode: Mode::Single,
        access: Access::User(handler),
    }
}

const fn on_jobs(topic: &'static str, names: JobNames, handler: JobsHandler) -> Route {
    Route {
        topic,
        mode: Mode::Single,
        access: Access::Jobs(names, handler),
    }
}

const fn on_matching_jobs(topic: &'static str, handler: MatchingHandler) -> Route {
    Route {
        topic,
        mode: Mode::Single,
        access: Access::MatchingJobs(handler),
    }
}

const fn on_pmix_job(topic: &'static str, handler: PmixHandler) -> Route {
    Route {
        topic,
        mode: Mode::Single,
        access: Access::PmixJob(handler),
    }
}

/// The methods that every service has.
const COMMON_ROUTES: &[Route] = {
    use Caller::Anyone;
    use Mode::Single;
    &[
        route(
            topic::DISCONNECT,
            Anyone,
            Single,
            |m, r| Ok(m.disconnect(r)),
        ),
        route(topic::PING, Anyone, Single, |m, r| m.exec.ping(r)),
        route(topic::STATS_GET, Anyone, Single, |m, r| {
            let mut stats = m.stats();
            // An id tells when a job was submitted.
            if !authorize::visible_jobs(&m.cx.settings, r.sender).are_all() {
                stats.max_jobid = JobId::default();
            }
            Ok(Reply::of(&stats))
        }),
    ]
};

/// The methods of one service each, sorted by topic.
const ROUTES: &[Route] = {
    use Caller::{Anyone, Owner, Submitter};
    use JobKey::{Id, Job};
    use Mode::{Single, Streaming};
    use topic::{job_info, job_ingest, job_manager, kvs as kv, kvs_watch, pmix};
    &[
        on_job(
            job_info::EVENTLOG_WATCH,
            JobRule::Owner(Id),
            Streaming,
            |m, r, job| m.queries.watch_eventlog(&mut m.cx, r, &job),
        ),
        route(job_info::EVENTLOG_WATCH_CANCEL, Anyone, Single, |m, r| {
            m.queries.cancel_stream(&mut m.cx, r)
        }),
        on_job(job_info::LOOKUP, JobRule::Owner(Id), Single, |m, r, job| {
            m.queries.look_up(&mut m.cx, r, &job)
        }),
        route(job_ingest::SUBMIT, Submitter, Single, |m, r| {
            m.submissions.submit(&mut m.cx, &mut m.census, r)
        }),
        route(job_ingest::SUBMIT_PART, Submitter, Single, |m, r| {
            m.submissions.submit_part(&mut m.cx, r)
        }),
        route(topic::job_list::JOB_STATS, Anyone, Single, |m, _| {
            Ok(Reply::of(&m.census.stats()))
        }),
        on_rows(topic::job_list::LIST, Streaming, |m, r, visible| {
            m.queries.open_listing(&mut m.cx, r, visible)
        }),
        route(topic::job_list::LIST_ATTRS, Anyone, Single, |_, _| {
            Ok(Reply::of(&row::attributes()))
        }),
        route(topic::job_list::LIST_CANCEL, Anyone, Single, |m, r| {
            m.queries.cancel_listing(&mut m.cx, r)
        }),
        on_rows(topic::job_list::LIST_ID, Single, |m, r, visible| {
            job_list::list_id(&mut m.cx, r, visible)
        }),
        on_rows(topic::job_list::USAGE, Single, |m, r, visible| {
            m.queries.usage.open(r, visible, m.cx.now)
        }),
        on_rows(topic::job_list::WAIT, Streaming, |m, r, visible| {
            m.queries.wait_for_jobs(&mut m.cx, r, visible)
        }),
        route(topic::job_list::WAIT_CANCEL, Anyone, Single, |m, r| {
            m.queries.cancel_stream(&mut m.cx, r)
        }),
        route(job_manager::ALLOC_QUERY, Anyone, Single, |m, _| {
            Ok(Reply::of(&AllocQueryResponse::of(&m.stats())))
        }),
        route(job_manager::CONFIG_WAIT, Owner, Single, |m, r| {
            Ok(m.renewal.wait(r))
        }),
        route(job_manager::DRAIN, Anyone, Single, |m, r| {
            m.queries.await_drain(&mut m.cx, r, Drained::Active)
        }),
        route(job_manager::DRAIN_CANCEL, Anyone, Single, |m, r| {
            m.queries.cancel_drain(&mut m.cx, r)
        }),
        route(job_manager::EVENTS_JOURNAL, Owner, Streaming, |m, r| {
            m.queries.open_journal(r)
        }),
        route(job_manager::EVENTS_JOURNAL_CANCEL, Owner, Single, |m, r| {
            m.queries.cancel_journal(&mut m.cx, r)
        }),
        route(job_manager::EXEC_HELLO, Owner, Single, |m, r| {
            m.exec.hello(&mut m.cx, r)
        }),
        on_user(job_manager::HISTORY_GET, |m, r, user| {
            m.queries.histories.get(&m.cx, r, &user)
        }),
        route(job_manager::IDLE, Anyone, Single, |m, r| {
            m.queries.await_drain(&mut m.cx, r, Drained::Running)
        }),
        route(job_manager::IDLE_CANCEL, Anyone, Single, |m, r| {
            m.queries.cancel_drain(&mut m.cx, r)
        }),
        on_jobs(job_manager::KILL, JobNames::Ids, |m, r, jobs| {
            control::kill(&mut m.cx, &mut m.bulk, r, jobs)
        }),
        on_matching_jobs(job_manager::KILLALL, control::kill_all),
        on_job(
            job_manager::MEMO,
            JobRule::Owner(Id),
            Single,
            |m, r, job| control::memo(&mut m.cx, r, &job),
        ),
        route(job_manager::PRIORITIZE, Owner, Single, |m, r| {
            priority::prioritize(&mut m.cx, &mut m.bulk, r)
        }),
        on_user(job_manager::PURGE, |m, r, user| {
            let dependents = Dependents {
                dependencies: &m.dependencies,
                submissions: &m.submissions,
            };
            m.purger
                .purge(&mut m.cx, &mut m.census, &dependents, r, &user)
        }),
        on_job(
            job_manager::PURGE_ID,
            JobRule::Owner(Id),
            Single,
            |m, r, job| {
                let dependents = Dependents {
                    dependencies: &m.dependencies,
                    submissions: &m.submissions,
                };
                m.purger
                    .purge_id(&mut m.cx, &mut m.census, &dependents, r, &job)
            },
        ),
        route(job_manager::QUEUE_ENABLE, Owner, Single, |m, r| {
            queue_admin::queue_enable(&mut m.cx, r)
        }),
        route(job_manager::QUEUE_LIST, Anyone, Single, |m, _| {
            Ok(queue_admin::queue_list(&m.cx))
        }),
        route(job_manager::QUEUE_START, Owner, Single, |m, r| {
            queue_admin::queue_start(&mut m.cx, &mut m.bulk, r)
        }),
        route(job_manager::QUEUE_STATUS, Anyone, Single, |m, r| {
            queue_admin::queue_status(&m.cx, r)
        }),
        on_jobs(job_manager::RAISE, JobNames::IdsOrAll, |m, r, jobs| {
            control::raise(&mut m.cx, &mut m.bulk, r, jobs)
        }),
        on_matching_jobs(job_manager::RAISEALL, control::raise_all),
        route(job_manager::SCHED_HELLO, Owner, Streaming, |m, r| {
            m.scheduler.hello(&mut m.cx, r)
        }),
        route(job_manager::SCHED_READY, Owner, Single, |m, r| {
            m.scheduler.ready(&mut m.cx, r)
        }),
        on_job(
            job_manager::UPDATE,
            JobRule::PendingOwner(Id),
            Single,
            |m, r, job| update::update(&mut m.cx, r, &job),
        ),
        on_jobs(job_manager::URGENCY, JobNames::Ids, |m, r, jobs| {
            priority::set_urgency(&mut m.cx, &mut m.bulk, r, jobs)
        }),
        route(job_manager::WAIT, Owner, Single, |m, r| {
            m.queries.results.wait(&m.cx, r)
        }),
        route(kvs_watch::CANCEL, Owner, Single, |m, r| {
            m.queries.key_watches.cancel(&mut m.cx, r)
        }),
        on_watched_key(kvs_watch::LOOKUP, |m, r, key| {
            m.queries.key_watches.watch(&mut m.cx, r, key)
        }),
        route(kv::COMMIT, Owner, Single, |m, r| {
            kvs::commit(&mut m.cx, &m.scheduler, &mut m.queries.key_watches, r)
        }),
        route(kv::GETROOT, Anyone, Single, |m, r| kvs::root(&m.cx, r)),
        on_key(kv::LOOKUP, |m, r, key| {
            m.queries.look_up_key(&mut m.cx, r, key)
        }),
        route(kv::NAMESPACE_LIST, Anyone, Single, |m, _| {
            Ok(kvs::namespaces(&m.cx))
        }),
        on_pmix_job(pmix::ALLOC, |m, r, job| m.elastic.alloc(&mut m.cx, r, job)),
        route(pmix::ALLOC_CANCEL, Anyone, Single, |m, r| {
            m.elastic.alloc_cancel(&mut m.cx, r)
        }),
        on_pmix_job(pmix::CANCEL, |m, r, job| {
            m.elastic.cancel_request(&mut m.cx, r, job)
        }),
        on_job(pmix::EVENTS, JobRule::Owner(Job), Streaming, |m, r, job| {
            m.elastic.events(&mut m.cx, r, &job)
        }),
        route(pmix::EVENTS_CANCEL, Anyone, Single, |m, r| {
            m.elastic.events_cancel(&mut m.cx, r)
        }),
        on_pmix_job(pmix::QUERY, |m, r, job| m.elastic.query(&m.cx, r, job)),
    ]
};

/// Standard input of a job's tasks, which a client of Flux writes: the job's id, in decimal, is part of the topic.
const STDIN_ROUTE: Route = on_job(
    guest_log::STDIN_TOPIC,
    JobRule::Owner(JobKey::Topic),
    Mode::Single,
    |m, r, job| m.queries.relays.write_stdin(&mut m.cx, r, &job),
);

/// The methods that change nothing, sorted by topic: they are served while the store cannot be written.
const READING: &[&str] = {
    use topic::{job_info, job_list, job_manager, kvs as kv, kvs_watch};
    &[
        job_info::EVENTLOG_WATCH,
        job_info::EVENTLOG_WATCH_CANCEL,
        job_info::LOOKUP,
        job_list::JOB_STATS,
        job_list::LIST,
        job_list::LIST_ATTRS,
        job_list::LIST_CANCEL,
        job_list::LIST_ID,
        job_list::USAGE,
        job_list::WAIT,
        job_list::WAIT_CANCEL,
        job_manager::ALLOC_QUERY,
        job_manager::DRAIN_CANCEL,
        job_manager::EVENTS_JOURNAL,
        job_manager::EVENTS_JOURNAL_CANCEL,
        job_manager::HISTORY_GET,
        job_manager::QUEUE_LIST,
        job_manager::QUEUE_STATUS,
        kvs_watch::CANCEL,
        kvs_watch::LOOKUP,
        kv::GETROOT,
        kv::LOOKUP,
        kv::NAMESPACE_LIST,
    ]
};

/// The topics of the manager's services, each with the users who may call it: `all`, `guests if admitted`, `own` (for their
/// jobs), `visible` (for the jobs that they can list), `owner`, or two of these for two cases.
pub fn roles() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROUTES.iter().chain([&STDIN_ROUTE]).map(|route| {
        let role = match route.access {
            Access::Role(Caller::Anyone, _) => "all",
            Access::Rows(_) => "visible",
            Access::Role(Caller::Submitter, _) => "guests if admitted",
            Access::Role(Caller::Owner, _) => "owner",
            Access::Job(JobRule::PendingOwner(_), _) => "own, running: owner",
            Access::Key(_) => "own, other keys: owner",
            Access::Job(JobRule::Owner(_), _)
            | Access::User(_)
            | Access::Jobs(..)
            | Access::MatchingJobs(_)
            | Access::PmixJob(_) => "own",
        };
        (route.topic, role)
    })
}

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

fn find(request: &Message) -> Option<&'static Route> {
    let topic = request.topic();
    if let Ok(index) = ROUTES.binary_search_by(|route| route.topic.cmp(topic)) {
        return ROUTES.get(index);
    }
    if guest_log::stdin_of(topic).is_some() {
        return Some(&STDIN_ROUTE);
    }
    let mut common = COMMON_ROUTES.iter();
    common.find(|route| route.topic == request.method() && is_served(request))
}

impl Manager {
    /// Takes a message. Responses and further requests come out of
    /// [`take_messages`](Self::take_messages).
    pub fn handle(&mut self, message: &Message, now: f64) {
        self.begin(now);
        match message.kind {
            MessageType::Request => self.handle_request(message),
            // The requests of a manager that has failed are not those of this one.
            MessageType::Response if self.cx.outage.is_some() => {}
            MessageType::Response => self.handle_response(message),
            MessageType::Event | MessageType::Control => {}
        }
        self.perform_due_steps();
    }

    /// Sets the route that has registered each service name: no other may execute jobs under it.
    pub fn set_services(&mut self, services: HashMap<String, Vec<u8>>) {
        if self.cx.outage.is_none() {
            self.hooks.set_service(&mut self.cx, services.get("hooks"));
            self.perform_due_steps();
        }
        self.exec.set_registered(services);
    }

    fn handle_request(&mut self, message: &Message) {
        let request = Request::new(message);
        let route = find(message).ok_or_else(|| RequestError::unknown_method(message.topic()));
        let handled = route.and_then(|route| {
            self.check_outage(route, message)?;
            self.call(route, request)
        });
        match handled {
            Ok(Reply::Empty) => self.cx.respond_empty(message),
            Ok(Reply::Payload(payload)) if !message.is_noresponse() => {
                let response = Message::response_to(message, 0, Some(payload));
                self.cx.send(response);
            }
            Ok(Reply::Typed(value)) if !message.is_noresponse() => {
                self.cx.send(Message::typed_success_to(message, value));
            }
            Ok(Reply::Deferred | Reply::Payload(_) | Reply::Typed(_)) => {}
            Err(error) => self.cx.reject(message, &error),
        }
    }

    /// Rejects a method that changes something while the store cannot be written.
    fn check_outage(&self, route: &Route, request: &Message) -> Result<(), RequestError> {
        // A response to a ping tells an execution service that what it sent before is stored.
        let is_reading = [topic::DISCONNECT, topic::STATS_GET].contains(&route.topic);
        match &self.cx.outage {
            Some(error) if !is_reading && READING.binary_search(&route.topic).is_err() => {
                let text = format!("{}: {}", request.topic(), error.text);
                Err(RequestError::new(error.errnum, text))
            }
            _ => Ok(()),
        }
    }

    /// Calls a method, if its route permits it to the sender.
    fn call(&mut self, route: &Route, request: Request<'_>) -> Handled {
        let message = request.message;
        if let Access::Role(caller, _) = route.access {
            authorize::check(caller, &self.cx.settings, request)?;
        }
        if route.mode == Mode::Streaming {
            if message.is_noresponse() {
                // A guest does not write into the log.
                if message.credentials().is_owner() {
                    let topic = route.topic;
                    let line = format!("{topic} marked as without response: ignored");
                    self.cx.complain(line);
                }
                return Ok(Reply::Deferred);
            }
            message.require_streaming()?;
        }
        let cx = &mut self.cx;
        match route.access {
            Access::Role(_, handler) => handler(self, request),
            Access::Rows(handler) => {
                let visible = authorize::visible_jobs(&self.cx.settings, request.sender);
                handler(self, request, visible)
            }
            Access::Job(rule, handler) => {
                let permitted = authorize::permitted_job(rule, cx, request)?;
                handler(self, request, permitted)
            }
            Access::Key(handler) => {
                let permitted = authorize::permitted_key(cx, request)?;
                handler(self, request, permitted)
            }
            Access::User(handler) => {
                let permitted = authorize::permitted_user(request)?;
                handler(self, request, permitted)
            }
            Access::Jobs(names, handler) => {
                let permitted = authorize::permitted_jobs(names, cx, request)?;
                handler(self, request, permitted)
            }
            Access::MatchingJobs(handler) => {
                let permitted = authorize::matching_jobs(&cx.jobs, request)?;
                handler(&mut self.cx, &mut self.bulk, request, permitted)
            }
            Access::PmixJob(handler) => {
                let permission = authorize::permission(JobKey::Job, cx, request)?;
                handler(self, request, permission)
            }
        }
    }

    /// Handles the disconnect of a peer: the scheduler, the execution service, or a client.
    fn disconnect(&mut self, request: Request<'_>) -> Reply {
        if let Some(origin) = request.origin() {
            self.queries.disconnect(&mut self.cx, origin);
            self.elastic.disconnect(origin);
            self.submissions.disconnect(&mut self.cx, origin);
            self.renewal.disconnect(origin);
            self.scheduler.disconnect(&mut self.cx, origin);
            self.exec.disconnect(&mut self.cx, origin);
        }
        Reply::Deferred
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
            sched::EXPLAIN => self.scheduler.handle_probe_response(cx, response),
            hooks::PROLOG | hooks::EPILOG | hooks::CANCEL => {
                self.hooks.handle_response(cx, response);
            }
            _ if self.queries.relays.has(response.matchtag) => {
                self.queries.handle_relay_response(cx, response);
            }
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
    use penstock_wire::Message;

    use super::{COMMON_ROUTES, READING, ROUTES, find};

    fn found(topic: &str) -> Option<&'static str> {
        find(&Message::request(topic, "")).map(|route| route.topic)
    }

    #[test]
    fn every_topic_is_found_once() {
        assert!(ROUTES.windows(2).all(|pair| pair[0].topic < pair[1].topic));
        for route in ROUTES {
            assert_eq!(found(route.topic), Some(route.topic));
        }
        assert_eq!(found("job-manager.nonsense"), None);
        assert_eq!(found("job-shell.7.stdin"), Some("job-shell.ID.stdin"));
        assert_eq!(found("job-shell.ID.stdin"), None);
        assert_eq!(found("job-shell.7.stdout"), None);
    }

    #[test]
    fn the_methods_that_change_nothing_are_sorted_and_known() {
        assert!(READING.is_sorted());
        for &topic in READING {
            assert_eq!(found(topic), Some(topic));
        }
    }

    #[test]
    fn every_service_has_the_common_methods() {
        for route in COMMON_ROUTES {
            let method = route.topic;
            for service in ["job-info", "job-manager", "kvs", "pmix"] {
                assert_eq!(found(&format!("{service}.{method}")), Some(method));
            }
            for other in [
                method.to_owned(),
                format!("other.{method}"),
                format!("job-manager.x.{method}"),
            ] {
                assert_eq!(found(&other), None, "{other}");
            }
        }
    }
}
