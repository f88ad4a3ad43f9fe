//! `pmix.alloc` and `pmix.cancel`: authorization, and how a request begins.

use penstock_elastic::{
    Account, Attribute, Demand, Denial, Directive, Entry, Flagged, Request, Status,
};
use penstock_flux::errno::EPERM;
use penstock_flux::{RequestError, Text, pmix};
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde_json::{Value, json};

use super::call::{Asker, Call};
use super::naming::find;
use super::peer::{Elastic, End, answer_call, outcome};
use super::request_job::time_left;
use super::target::{Target, own_allocation};
use crate::context::Context;
use crate::effect::RequestKey;
use crate::event::Event;
use crate::jobs::Job;
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

/// The job, if the sender may see it.
pub(super) fn visible<'a>(
    cx: &'a Context,
    request: rpc::Request<'_>,
    job: u64,
) -> Result<&'a Job, Denial> {
    cx.jobs.visible(job, request.sender).map_err(|error| {
        let status = if error.errnum == EPERM {
            Status::NO_PERMISSION
        } else {
            Status::NOT_FOUND
        };
        Denial::new(status, error.text)
    })
}

/// Checks that the sender may request for this job: its owner or the instance owner, while it runs.
fn check_asker(cx: &Context, request: rpc::Request<'_>, job: u64) -> Result<(), Denial> {
    if visible(cx, request, job)?.record.state() == State::Run {
        return Ok(());
    }
    let reason = format!("job {} is not running", Fluid(job));
    Err(Denial::new(Status::NOT_FOUND, reason))
}

impl Elastic {
    /// `pmix.alloc`: a request of a running job. The last response says how it ended; a stream has a
    /// response before that if the request is queued.
    pub(crate) fn alloc(&mut self, cx: &mut Context, request: rpc::Request<'_>) -> Handled {
        let message = request.message;
        let call: pmix::AllocRequest<'_> = request.payload()?;
        let attributes = read_attributes(&call.attributes)?;
        let asker = Asker {
            job: call.job,
            rank: call.rank,
            host: call.host.map(Text::into_string),
        };
        if let Err(denial) = check_asker(cx, request, call.job) {
            answer_denial(cx, message, &denial);
            return Ok(Reply::Deferred);
        }
        let directive = match read_directive(&call.directive) {
            Ok(directive) => directive,
            Err(denial) => {
                let Some(number) = call.directive.as_u64() else {
                    answer_denial(cx, message, &denial);
                    return Ok(Reply::Deferred);
                };
                let names = Request::ids_of(Directive::New, &attributes);
                let directive = Some(number);
                let early = EarlyDenial { denial, directive };
                self.begin(cx, message, &asker, names, Some(early));
                return Ok(Reply::Deferred);
            }
        };
        match Request::read(directive, &attributes) {
            Ok(cancel) if directive == Directive::Cancel => {
                let id = cancel.id.or(cancel.alloc);
                let done = self.cancel_requests(cx, &asker, id.as_deref());
                answer_call(cx, message, &canceled(done));
            }
            Ok(read) => self.begin(cx, message, &asker, read, None),
            // The names in a cancel are those of another request.
            Err(denial) if directive == Directive::Cancel => answer_denial(cx, message, &denial),
            Err(denial) => {
                let names = Request::ids_of(directive, &attributes);
                let early = EarlyDenial {
                    denial,
                    directive: None,
                };
                self.begin(cx, message, &asker, names, Some(early));
            }
        }
        Ok(Reply::Deferred)
    }

    /// Begins a request. One that was denied before is logged all the same, so that
    /// watches report it.
    fn begin(
        &mut self,
        cx: &mut Context,
        message: &Message,
        asker: &Asker,
        mut request: Request,
        early: Option<EarlyDenial>,
    ) {
        let key = (asker.job, self.next_seq(asker.job));
        if !message.is_noresponse() {
            self.callers.insert(key, message.clone());
        }
        let target = self.resolve_target(cx, asker.job, &mut request);
        let call = Call {
            key,
            asker,
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
        } else if message.is_streaming() && self.callers.contains_key(&key) {
            let alloc = self.entry(key).and_then(|entry| entry.alloc);
            let queued = json!({
                "status": Status::QUEUED.0,
                "queued": true,
                "id": request.id,
                "alloc": alloc.map(|alloc| Fluid(alloc).to_string()),
            });
            cx.respond(message, Some(&queued));
        }
    }

    /// The number of a job's next request.
    pub(super) fn next_seq(&self, job: u64) -> u32 {
        self.ledger.account(job).map_or(1, Account::next)
    }

    fn entry(&self, (job, seq): RequestKey) -> Option<&Entry> {
        self.ledger.account(job)?.entry(seq)
    }

    /// Logs the begin of a request. `entry` has what is not the same for all.
    pub(super) fn log_request(&mut self, cx: &mut Context, call: &Call<'_>, entry: Entry) {
        fn value<T: Copy + Default>(wish: Option<&Flagged<T>>) -> T {
            wish.map(|wish| wish.value).unwrap_or_default()
        }
        let (job, seq) = call.key;
        let request = call.request;
        let deadline = request.timeout.map(|timeout| cx.now + timeout);
        let directive = if entry.directive.is_empty() {
            request.directive.name().to_owned()
        } else {
            entry.directive
        };
        let entry = Entry {
            seq,
            id: request.id.clone(),
            directive,
            rank: call.asker.rank,
            time: value(request.time.as_ref()),
            required: request.required,
            deadline,
            nodes: entry.nodes.max(value(request.nodes.as_ref())),
            ..entry
        };
        let context = serde_json::to_value(entry).unwrap_or_default();
        let event = Event::with(cx.now, "penstock.alloc-request", context);
        self.log(cx, job, event);
        if let Some(deadline) = deadline {
            self.at(deadline, job);
        }
    }

    fn start(&mut self, cx: &mut Context, call: &Call<'_>, target: Target) -> Result<(), Denial> {
        let (asker, request) = (call.asker, call.request);
        let allocation = match target {
            Target::Own | Target::Grant(_) => asker.job,
            Target::Allocation(id) => id,
        };
        match request.directive {
            Directive::New => {
                let demand = Demand::of(request)?;
                let record = cx.jobs.record(asker.job);
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
                    target: own_allocation(asker.job, allocation),
                    dropped: request.without_effect(),
                    ..Entry::default()
                };
                self.log_request(cx, call, entry);
                self.request_time(cx, call.key, false);
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
    ) -> Handled {
        let call: pmix::CancelRequest<'_> = request.payload()?;
        let asker = Asker {
            job: call.job,
            rank: call.rank,
            host: None,
        };
        let seen = visible(cx, request, call.job).map(|_| ());
        let done = seen.and_then(|()| self.cancel_requests(cx, &asker, call.id.as_deref()));
        Ok(canceled(done).into())
    }

    fn cancel_requests(
        &mut self,
        cx: &mut Context,
        asker: &Asker,
        id: Option<&str>,
    ) -> Result<Vec<String>, Denial> {
        let account = self.ledger.account(asker.job);
        let open: Vec<Entry> = if let Some(id) = id {
            let named = account.and_then(|account| find(account, id));
            let open = named.filter(|entry| entry.is_open());
            let Some(entry) = open else {
                let reason = format!("no request `{}` waits", id.escape_debug());
                return Err(Denial::new(Status::NOT_FOUND, reason));
            };
            vec![entry.clone()]
        } else {
            let open = account.into_iter().flat_map(Account::open);
            let is_own = |entry: &&Entry| asker.rank.is_none() || entry.rank == asker.rank;
            open.filter(is_own).cloned().collect()
        };
        let mut names = Vec::new();
        for entry in open {
            let denial = Denial::new(Status::CANCELLED, "cancelled by its job");
            self.end_request(cx, (asker.job, entry.seq), &End::denied(denial));
            let alloc = entry.alloc.map(|alloc| Fluid(alloc).to_string());
            names.extend(entry.id.or(alloc));
        }
        Ok(names)
    }
}

fn answer_denial(cx: &mut Context, message: &Message, denial: &Denial) {
    let answer = outcome(denial.status.0, &denial.reason, &[]);
    answer_call(cx, message, &answer);
}

fn canceled(done: Result<Vec<String>, Denial>) -> Value {
    let (status, reason, names) = match done {
        Ok(names) => (0, String::new(), names),
        Err(denial) => (denial.status.0, denial.reason, Vec::new()),
    };
    json!({"status": status, "reason": reason, "results": [], "cancelled": names})
}
