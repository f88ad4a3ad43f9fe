//! `job-manager.queue-*`: administration of queues (RFC 33).

use penstock_flux::job_manager::{
    QueueEnableRequest, QueueListResponse, QueueRequest, QueueStartRequest,
};
use penstock_flux::{RequestError, Text};

use crate::authorize::{self, Permission};
use crate::bulk::{BulkRequests, Operation};
use crate::context::Context;
use crate::effect::Effect;
use crate::queues::{ANONYMOUS_QUEUE, Collector, QueueStatus};
use crate::record::Record;
use crate::rpc::{Handled, Reply, Request};
use crate::settings::Settings;
use crate::state::State;

/// The queues that a request selects.
struct Selection<'a> {
    name: Option<Text<'a>>,
    /// Whether a request without a name selects all queues.
    all: bool,
}

/// The names of the selected queues; the anonymous one if none is configured.
fn select(settings: &Settings, selection: Selection<'_>) -> Result<Vec<String>, RequestError> {
    let Selection { name, all } = selection;
    let known = || settings.queues.keys().cloned().collect::<Vec<_>>();
    match name {
        Some(name) if settings.queues.contains_key(&*name) => Ok(vec![name.into_string()]),
        Some(name) if settings.queues.is_empty() => {
            let text = format!("queue `{name}`: no queues are configured");
            Err(RequestError::not_found(text))
        }
        Some(name) => {
            let text = format!("unknown queue `{name}`: expected {}", known().join(", "));
            Err(RequestError::not_found(text))
        }
        None if settings.queues.is_empty() => Ok(vec![ANONYMOUS_QUEUE.to_owned()]),
        None if all => Ok(known()),
        None => {
            let text = format!(
                "expected the name of a queue ({}) or `all`",
                known().join(", ")
            );
            Err(RequestError::invalid(text))
        }
    }
}

/// `job-manager.queue-list`.
pub(crate) fn queue_list(cx: &Context) -> Reply {
    let queues = cx.settings.queues.keys().cloned().collect();
    Reply::of(&QueueListResponse { queues })
}

/// `job-manager.queue-status`.
pub(crate) fn queue_status(cx: &Context, request: Request<'_>) -> Handled {
    let QueueRequest { name } = request.payload()?;
    let names = select(&cx.settings, Selection { name, all: false })?;
    let status = cx.queues.status(names.first().map(String::as_str));
    Ok(Reply::of(&status.response()))
}

/// `job-manager.queue-enable`: whether submissions are accepted.
pub(crate) fn queue_enable(cx: &mut Context, request: Request<'_>) -> Handled {
    let change: QueueEnableRequest<'_> = request.payload()?;
    let reason = change.reason.map(Text::into_string);
    let selection = Selection {
        name: change.name,
        all: change.all,
    };
    for name in select(&cx.settings, selection)? {
        cx.queues.change_saved(&name, |status| {
            status.enable = change.enable;
            status.disable_reason = reason.clone().filter(|_| !change.enable);
        });
    }
    cx.save_queues();
    cx.add_effect(Effect::QueuesChanged);
    Ok(Reply::Empty)
}

/// The cancellation of the requests for resources of jobs in queues that were stopped.
#[derive(Debug)]
struct WithdrawRequests {
    queues: Vec<String>,
}

impl Operation for WithdrawRequests {
    fn concerns(&self, record: &Record) -> bool {
        is_in(&self.queues, record)
    }

    fn apply(&mut self, cx: &mut Context, job: Permission) -> Result<(), RequestError> {
        let id = job?.id();
        let record = cx.jobs.record(id);
        // Another request may have started the queue again.
        if record.is_some_and(|record| cx.queues.stop_reason(queue_of(record)).is_some()) {
            cx.add_effect(Effect::Withdraw(id));
        }
        cx.revisit(id);
        Ok(())
    }

    fn has_empty_response(&self) -> bool {
        true
    }
}

/// The collection of the jobs in queues that were started. Their requests for resources follow in queue order.
#[derive(Debug)]
struct CollectJobs {
    queues: Vec<String>,
}

impl Operation for CollectJobs {
    fn concerns(&self, record: &Record) -> bool {
        is_in(&self.queues, record)
    }

    fn apply(&mut self, cx: &mut Context, job: Permission) -> Result<(), RequestError> {
        cx.revisit(job?.id());
        Ok(())
    }

    fn begin(&mut self, cx: &mut Context) {
        let newest = cx.jobs.greatest_id();
        cx.queues
            .begin_collection(Collector::Start, &self.queues, newest);
    }

    fn finish(&mut self, cx: &mut Context) {
        cx.queues.end_collection(Collector::Start, &self.queues);
    }

    fn has_empty_response(&self) -> bool {
        true
    }
}

fn queue_of(record: &Record) -> Option<&str> {
    record.spec().queue.as_deref()
}

fn is_in(queues: &[String], record: &Record) -> bool {
    let queue = queue_of(record).unwrap_or(ANONYMOUS_QUEUE);
    queues.iter().any(|name| name == queue)
}

/// `job-manager.queue-start`: whether jobs are scheduled. For a stopped queue no resources are
/// requested, and outstanding requests are cancelled; for a started one they are requested.
///
/// The status changes at once. The jobs follow in slices: the response comes when all requests are cancelled, or when all
/// jobs are queued for the scheduler, which gets their requests as it reads them.
pub(crate) fn queue_start(
    cx: &mut Context,
    bulk: &mut BulkRequests,
    request: Request<'_>,
) -> Handled {
    let change: QueueStartRequest<'_> = request.payload()?;
    let reason = change.reason.map(Text::into_string);
    let selection = Selection {
        name: change.name,
        all: change.all,
    };
    let queues = select(&cx.settings, selection)?;
    let is_started = |name: &String| cx.queues.is_started(name);
    let stopped: Vec<_> = queues
        .iter()
        .filter(|name| !is_started(name))
        .cloned()
        .collect();
    let start = |status: &mut QueueStatus| {
        status.start = change.start;
        status.stop_reason = reason.clone().filter(|_| !change.start);
    };
    for name in &queues {
        if change.nocheckpoint {
            cx.queues.change_live(name, start);
        } else {
            cx.queues.change_saved(name, start);
        }
    }
    cx.save_queues();
    let pending = State::Sched.bit().into();
    let jobs = authorize::active(&cx.jobs, request.sender, None, pending);
    Ok(if change.start && stopped.is_empty() {
        Reply::Empty
    } else if change.start {
        bulk.begin(cx, request, jobs, CollectJobs { queues: stopped })
    } else {
        bulk.begin(cx, request, jobs, WithdrawRequests { queues })
    })
}
