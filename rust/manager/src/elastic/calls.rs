//! `pmix.alloc` and `pmix.cancel`: authorization, and the begin of a request.

use penstock_elastic::{Account, Attribute, Demand, Denial, Directive, Entry, PmixRequest, Status};
use penstock_flux::errno::EPERM;
use penstock_flux::{RequestError, Text, pmix};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::Value;

use super::naming::find;
use super::peer::Elastic;
use super::request_job::time_left;
use super::requests::{Call, Requester};
use super::requests::{End, end_response, respond_finally};
use super::tables::TimeShare;
use super::target::{TargetAllocation, own_allocation};
use crate::authorize::Permission;
use crate::context::Context;
use crate::effect::RequestKey;
use crate::record::Record;
use crate::rpc::{self, Handled, Reply};
use crate::state::State;

/// Why a request is denied before it begins.
struct EarlyDenial {
    denial: Denial,
    /// The number of an unknown directive.
    directive: Option<u64>,
}

fn read_attributes(values: &[Value]) -> Result<Vec<Attribute>, RequestError> {
    let read = |(index, value)| {
        Attribute::from_json(value).map_err(|error| {
            RequestError::protocol(format!("pmix.alloc: attributes[{index}]: {error}"))
        })
    };
    values.iter().enumerate().map(read).collect()
}

fn read_directive(value: &Value) -> Result<Directive, Denial> {
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
fn check_requester(cx: &Context, job: Permission) -> Result<JobId, Denial> {
    let id = job.map_err(denial_of)?.id();
    let state = cx.jobs.record(id).map(Record::state);
    if state == Some(State::Run) {
        return Ok(id);
    }
    let reason = format!("job {id} is not running");
    Err(Denial::new(Status::NOT_FOUND, reason))
}

impl Elastic {
    /// `pmix.alloc`: a request of a running job. The last response says how it ended; a stream has a
    /// response before that if the request is queued.
    pub(crate) fn alloc(
        &mut self,
        cx: &mut Context,
        request: rpc::Request<'_>,
        job: Permission,
    ) -> Handled {
        let message = request.message;
        let call: pmix::AllocRequest<'_> = request.payload()?;
        let attributes = read_attributes(&call.attributes)?;
        match check_requester(cx, job) {
            Ok(job) => {
                let requester = Requester {
                    job,
                    rank: call.rank,
                    host: call.host.map(Text::into_string),
                };
                self.begin_call(cx, message, &requester, &call.directive, &attributes);
            }
            Err(denial) => respond_denial(cx, message, &denial),
        }
        Ok(Reply::Deferred)
    }

    /// Reads the directive, by its name or number, and the attributes of `pmix.alloc`, and begins the request.
    fn begin_call(
        &mut self,
        cx: &mut Context,
        message: &Message,
        requester: &Requester,
        name: &Value,
        attributes: &[Attribute],
    ) {
        let directive = match read_directive(name) {
            Ok(directive) => directive,
            Err(denial) => {
                let Some(number) = name.as_u64() else {
                    return respond_denial(cx, message, &denial);
                };
                let names = PmixRequest::ids_of(Directive::New, attributes);
                let early = EarlyDenial {
                    denial,
                    directive: Some(number),
                };
                return self.begin(cx, message, requester, names, Some(early));
            }
        };
        match PmixRequest::read(directive, attributes) {
            Ok(cancel) if directive == Directive::Cancel => {
                let id = cancel.id.or(cancel.alloc);
                let done = self.cancel_requests(cx, requester, id.as_deref());
                respond_finally(cx, message, &cancelled(done));
            }
            Ok(read) => self.begin(cx, message, requester, read, None),
            // The names in a cancel are those of another request.
            Err(denial) if directive == Directive::Cancel => respond_denial(cx, message, &denial),
            Err(denial) => {
                let names = PmixRequest::ids_of(directive, attributes);
                let early = EarlyDenial {
                    denial,
                    directive: None,
                };
                self.begin(cx, message, requester, names, Some(early));
            }
        }
    }

    /// Begins a request. A request that was denied before is logged too, so that watches report it.
    fn begin(
        &mut self,
        cx: &mut Context,
        message: &Message,
        requester: &Requester,
        mut request: PmixRequest,
        early: Option<EarlyDenial>,
    ) {
        let key = self.next_key(requester.job);
        if !message.is_noresponse() {
            self.listeners.await_end(key, message.header());
        }
        let target = self.resolve_target(cx, requester.job, &mut request);
        let call = Call {
            key,
            requester,
            request: &request,
        };
        let mut entry = Entry::default();
        let begun = match early {
            None => target.and_then(|target| self.start(cx, &call, target)),
            Some(early) => {
                let directive = early.directive.map(|number| number.to_string());
                entry.directive = directive.unwrap_or_default();
                Err(early.denial)
            }
        };
        if let Err(denial) = begun {
            if self.entry(key).is_none() {
                self.log_request(cx, &call, entry);
            }
            self.end_request(cx, key, &End::denied(denial));
        } else if message.is_streaming() && self.listeners.is_awaited(key) {
            let alloc = self.entry(key).and_then(|entry| entry.alloc);
            let queued = pmix::QueuedResponse {
                status: Status::QUEUED.0,
                queued: true,
                id: request.id.as_deref().map(Text::from),
                alloc: alloc.map(|alloc| alloc.to_string().into()),
            };
            cx.respond_with(message, &queued);
        }
    }

    fn start(
        &mut self,
        cx: &mut Context,
        call: &Call<'_>,
        target: TargetAllocation,
    ) -> Result<(), Denial> {
        let (requester, request) = (call.requester, call.request);
        let allocation = match target {
            TargetAllocation::Own | TargetAllocation::Grant(_) => requester.job,
            TargetAllocation::Allocation(id) => id,
        };
        match request.directive {
            Directive::New => {
                let demand = Demand::of(request)?;
                let record = cx.jobs.record(requester.job);
                let own = record.map(|record| record.spec().duration);
                let time = request.time.as_ref().map(|time| f64::from(time.value));
                let duration = time.or(own).unwrap_or(0.0);
                self.submit(cx, call, demand, None, duration, Vec::new())
            }
            Directive::Extend if request.has_resources() && request.time.is_some() => {
                let reason = "expected resources or time to extend by, found both";
                Err(Denial::new(Status::BAD_PARAM, reason))
            }
            Directive::Extend if request.time.is_some() => {
                let entry = Entry {
                    target: own_allocation(requester.job, allocation),
                    dropped: request.without_effect(),
                    ..Entry::default()
                };
                self.log_request(cx, call, entry);
                self.request_time(cx, call.key, TimeShare::Whole);
                Ok(())
            }
            Directive::Extend => {
                let demand = Demand::of(request)?;
                let left = time_left(cx, allocation);
                self.submit(cx, call, demand, Some(allocation), left, Vec::new())
            }
            Directive::Release => self.release(cx, call, target),
            Directive::Reacquire => self.reacquire(cx, call),
            Directive::Cancel => Ok(()),
        }
    }

    /// `pmix.cancel`: one pending request, or all of the task's or the job's.
    pub(crate) fn cancel_request(
        &mut self,
        cx: &mut Context,
        request: rpc::Request<'_>,
        job: Permission,
    ) -> Handled {
        let call: pmix::CancelRequest<'_> = request.payload()?;
        let done = job.map_err(denial_of).and_then(|job| {
            let requester = Requester {
                job: job.id(),
                rank: call.rank,
                host: None,
            };
            self.cancel_requests(cx, &requester, call.id.as_deref())
        });
        Ok(Reply::of(&cancelled(done)))
    }

    fn cancel_requests(
        &mut self,
        cx: &mut Context,
        requester: &Requester,
        id: Option<&str>,
    ) -> Result<Vec<String>, Denial> {
        let account = self.ledger.account(requester.job);
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
            self.end_request(cx, key, &End::denied(denial));
            let alloc = entry.alloc.map(|alloc| alloc.to_string());
            names.extend(entry.id.or(alloc));
        }
        Ok(names)
    }
}

fn respond_denial(cx: &mut Context, message: &Message, denial: &Denial) {
    let response = end_response(denial.status.0, &denial.reason, &[]);
    respond_finally(cx, message, &response);
}

fn cancelled(done: Result<Vec<String>, Denial>) -> pmix::FinalResponse {
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

#[cfg(test)]
mod tests {
    use penstock_flux::Credentials;
    use serde_json::json;

    use super::Elastic;
    use crate::authorize;
    use crate::fixture::{
        OWNER, add_allocated_job, add_pending_job, context, described, message, request,
    };
    use crate::settings::Settings;

    #[test]
    fn only_running_jobs_make_requests() {
        let mut cx = context(Settings::default());
        let mut elastic = Elastic::default();
        let id = add_pending_job(&mut cx);
        let payload = json!({"job": id, "directive": "new"}).to_string();
        let alloc = message("pmix.alloc", "task", &payload);
        let job = authorize::job(&cx.jobs, Credentials::owner(OWNER), id);
        elastic.alloc(&mut cx, request(&alloc), job).unwrap();
        assert_eq!(described(&mut cx), ["send pmix.alloc"]);
        assert!(elastic.ledger.account(id).is_none());
    }

    #[test]
    fn a_release_ends_at_once_and_is_in_the_log() {
        let mut cx = context(Settings::default());
        let mut elastic = Elastic::default();
        let id = add_allocated_job(&mut cx);
        let payload = json!({
            "job": id,
            "directive": "release",
            "attributes": [{"key": "pmix.alloc.nnodes", "value": 1}],
        });
        let alloc = message("pmix.alloc", "task", &payload.to_string());
        let job = authorize::job(&cx.jobs, Credentials::owner(OWNER), id);
        elastic.alloc(&mut cx, request(&alloc), job).unwrap();
        let effects = described(&mut cx);
        assert_eq!(effects.first().unwrap(), "log penstock.alloc-request");
        assert_eq!(effects.last().unwrap(), "send pmix.alloc");
        let freed = cx.jobs.record(id).unwrap().freed().len();
        assert_eq!(freed, 1);
    }
}
