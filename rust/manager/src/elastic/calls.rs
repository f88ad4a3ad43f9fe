//! `pmix.alloc` and `pmix.cancel`: reading, authorization, responses, and the cancellation of requests.

use penstock_elastic::{Account, Attribute, Denial, Directive, Entry, Status};
use penstock_flux::errno::EPERM;
use penstock_flux::{RequestError, pmix};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::Value;

use super::naming::find;
use super::requests::{End, Requester, Requests, end_response, respond_finally};
use crate::authorize::Permission;
use crate::context::Context;
use crate::effect::RequestKey;
use crate::record::Record;
use crate::state::State;

/// Reads the attributes of a request.
pub(super) fn read_attributes(values: &[Value]) -> Result<Vec<Attribute>, RequestError> {
    let read = |(index, value)| {
        Attribute::from_json(value).map_err(|error| {
            RequestError::protocol(format!("pmix.alloc: attributes[{index}]: {error}"))
        })
    };
    values.iter().enumerate().map(read).collect()
}

/// Reads a directive, by its name or number.
pub(super) fn read_directive(value: &Value) -> Result<Directive, Denial> {
    let found = match value {
        Value::String(name) => Directive::from_name(name),
        number => number.as_u64().and_then(Directive::from_number),
    };
    found.ok_or_else(|| {
        let expected = "expected new, extend, release, reacquire or cancel";
        Denial::new(
            Status::NOT_SUPPORTED,
            format!("directive {value}: {expected}"),
        )
    })
}

/// The PMIx status for a sender that may not act for the job.
pub(super) fn denial_of(error: RequestError) -> Denial {
    let status = if error.errnum == EPERM {
        Status::NO_PERMISSION
    } else {
        Status::NOT_FOUND
    };
    Denial::new(status, error.text)
}

/// The job of a requester, if it runs: only then it may request.
pub(super) fn check_requester(cx: &Context, job: Permission) -> Result<JobId, Denial> {
    let id = job.map_err(denial_of)?.id();
    let state = cx.jobs.record(id).map(Record::state);
    if state == Some(State::Run) {
        return Ok(id);
    }
    let reason = format!("job {id} is not running");
    Err(Denial::new(Status::NOT_FOUND, reason))
}

/// Cancels one pending request, or all of the task's or the job's. Returns their names.
pub(super) fn cancel_requests(
    requests: &mut Requests,
    cx: &mut Context,
    requester: &Requester,
    id: Option<&str>,
) -> Result<Vec<String>, Denial> {
    let account = requests.table.account(requester.job);
    let open: Vec<Entry> = if let Some(id) = id {
        let named = account.and_then(|account| find(account, id));
        let open = named.filter(|entry| entry.is_open());
        let Some(entry) = open else {
            let reason = format!("no request `{}` is pending", id.escape_debug());
            return Err(Denial::new(Status::NOT_FOUND, reason));
        };
        vec![entry.clone()]
    } else {
        let open = account.into_iter().flat_map(Account::open);
        let is_own = |entry: &&Entry| requester.rank.is_none() || entry.rank == requester.rank;
        open.filter(is_own).cloned().collect()
    };
    let mut names = Vec::new();
    for entry in open {
        let denial = Denial::new(Status::CANCELLED, "cancelled by its job");
        let key = RequestKey {
            job: requester.job,
            seq: entry.seq,
        };
        requests.end(cx, key, &End::denied(denial));
        let alloc = entry.alloc.map(|alloc| alloc.to_string());
        names.extend(entry.id.or(alloc));
    }
    Ok(names)
}

/// Responds that a request is denied without having begun.
pub(super) fn respond_denial(cx: &mut Context, message: &Message, denial: &Denial) {
    let response = end_response(denial.status.0, &denial.reason, &[]);
    respond_finally(cx, message, &response);
}

/// The response that says which requests were cancelled.
pub(super) fn cancelled(done: Result<Vec<String>, Denial>) -> pmix::FinalResponse {
    let (status, reason, names) = match done {
        Ok(names) => (0, String::new(), names),
        Err(denial) => (denial.status.0, denial.reason, Vec::new()),
    };
    pmix::FinalResponse {
        status,
        reason,
        results: Vec::new(),
        cancelled: Some(names),
    }
}
