//! `pmix.alloc` and `pmix.cancel`: who may ask, and what a request begins.

use penstock_elastic::{
    Account, Ask, Attribute, Directive, Entry, Refusal as Denial, Request, Status, Wish,
};
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use super::target::Target;
use super::watch::named;
use super::{End, Number, outcome};
use crate::event::Event;
use crate::manager::Manager;
use crate::rpc::{self, EPROTO, RequestError};
use crate::state::State;

#[derive(Deserialize)]
struct Call {
    job: u64,
    /// The task that asks; none for the job as a whole.
    rank: Option<u32>,
    /// The host of the task, where that is known.
    host: Option<String>,
    directive: Value,
    #[serde(default)]
    attributes: Vec<Value>,
}

#[derive(Deserialize)]
struct Cancel {
    job: u64,
    rank: Option<u32>,
    id: Option<String>,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    pub(super) job: u64,
    pub(super) rank: Option<u32>,
    pub(super) host: Option<String>,
}

impl Call {
    fn attributes(&self) -> Result<Vec<Attribute>, RequestError> {
        let attributes = self.attributes.iter().enumerate();
        let read = |(place, value)| {
            Attribute::from_json(value).map_err(|error| {
                let text = format!("pmix.alloc: attributes[{place}]: {error}");
                RequestError::new(EPROTO, text)
            })
        };
        attributes.map(read).collect()
    }

    fn directive(&self) -> Result<Directive, Denial> {
        let found = match &self.directive {
            Value::String(name) => Directive::named(name),
            number => number.as_u64().and_then(Directive::numbered),
        };
        found.ok_or_else(|| {
            let reason = format!(
                "directive {}: expected new, extend, release, reacquire or cancel",
                self.directive
            );
            Denial::new(Status::NOT_SUPPORTED, reason)
        })
    }
}

impl Manager {
    /// `pmix.alloc`: a request of a running job. The last response says how it ended; where it
    /// waits, a stream hears of that before.
    pub(crate) fn pmix_alloc(&mut self, request: &Message, now: f64) {
        let call: Call = match rpc::payload(request) {
            Ok(call) => call,
            Err(refusal) => return self.refuse(request, &refusal),
        };
        let attributes = match call.attributes() {
            Ok(attributes) => attributes,
            Err(refusal) => return self.refuse(request, &refusal),
        };
        let directive = self
            .may_ask(request, call.job)
            .map(|()| (call.directive(), call.directive.as_u64()));
        let asker = Asker {
            job: call.job,
            rank: call.rank,
            host: call.host,
        };
        let denial = match directive {
            Ok((Ok(directive), _)) => match Request::read(directive, &attributes) {
                Ok(wanted) if directive == Directive::Cancel => {
                    let id = wanted.id.or(wanted.alloc);
                    let done = self.cancel(&asker, id.as_deref(), now);
                    return self.answer_call(request, &cancelled(done));
                }
                Ok(wanted) => return self.begin(request, &asker, wanted, Ok(()), now),
                // What a cancel names is another request.
                Err(denial) if directive == Directive::Cancel => denial,
                Err(denial) => {
                    let names = Request::names(directive, &attributes);
                    return self.begin(request, &asker, names, Err((denial, None)), now);
                }
            },
            Ok((Err(denial), Some(number))) => {
                let names = Request::names(Directive::New, &attributes);
                let refused = Err((denial, Some(number)));
                return self.begin(request, &asker, names, refused, now);
            }
            Ok((Err(denial), None)) | Err(denial) => denial,
        };
        let answer = outcome(denial.status.0, &denial.reason, &[]);
        self.answer_call(request, &answer);
    }

    /// Whether the sender may ask for this job: its owner or the instance's; and it runs.
    pub(super) fn may_ask(&self, request: &Message, job: u64) -> Result<(), Denial> {
        self.may_know(request, job)?;
        if self.jobs.get(&job).is_some_and(|it| it.state == State::Run) {
            return Ok(());
        }
        let reason = format!("job {} is not running", Fluid(job));
        Err(Denial::new(Status::NOT_FOUND, reason))
    }

    pub(super) fn may_know(&self, request: &Message, job: u64) -> Result<(), Denial> {
        self.may_see(request, job).map_err(|refusal| {
            let status = if refusal.errnum == rpc::EPERM {
                Status::NO_PERMISSION
            } else {
                Status::NOT_FOUND
            };
            Denial::new(status, refusal.text)
        })
    }

    /// Begins a request, or records one whose attributes were refused already, as every request that
    /// is refused: whoever waits for it is told. The number is that of a directive that there is not.
    fn begin(
        &mut self,
        request: &Message,
        asker: &Asker,
        mut wanted: Request,
        read: Result<(), (Denial, Option<u64>)>,
        now: f64,
    ) {
        let job = asker.job;
        let account = self.elastic.ledger.account(job);
        let number = (job, account.map_or(1, Account::next));
        if !request.is_noresponse() {
            self.elastic.callers.insert(number, request.clone());
        }
        let meant = self.meant(job, &mut wanted);
        let mut entry = Entry::default();
        let begun = match read {
            Ok(()) => meant.and_then(|meant| self.start(number, asker, &wanted, meant, now)),
            Err((denial, directive)) => {
                entry.directive = directive.map(|it| it.to_string()).unwrap_or_default();
                Err(denial)
            }
        };
        if let Err(denial) = begun {
            if !self.is_begun(number) {
                self.enter(number, asker, &wanted, entry, now);
            }
            self.end_request(number, &End::refused(denial), now);
        } else if request.is_streaming() && self.elastic.callers.contains_key(&number) {
            let account = self.elastic.ledger.account(job);
            let entry = account.and_then(|it| it.entry(number.1));
            let alloc = entry
                .and_then(|it| it.alloc)
                .map(|it| Fluid(it).to_string());
            let waits = json!({"status": Status::QUEUED.0, "queued": true, "id": wanted.id,
                               "alloc": alloc});
            self.respond(request, Some(&waits));
        }
    }

    fn is_begun(&self, (job, seq): Number) -> bool {
        let account = self.elastic.ledger.account(job);
        account.is_some_and(|it| it.entry(seq).is_some())
    }

    /// Logs that a request begins. `entry` has what is not the same for all.
    pub(super) fn enter(
        &mut self,
        (job, seq): Number,
        asker: &Asker,
        wanted: &Request,
        entry: Entry,
        now: f64,
    ) {
        fn value<T: Copy + Default>(wish: Option<&Wish<T>>) -> T {
            wish.map(|it| it.value).unwrap_or_default()
        }
        let deadline = wanted.timeout.map(|limit| now + limit);
        let directive = Some(entry.directive).filter(|it| !it.is_empty());
        let entry = Entry {
            seq,
            id: wanted.id.clone(),
            directive: directive.unwrap_or_else(|| wanted.directive.name().to_owned()),
            rank: asker.rank,
            time: value(wanted.time.as_ref()),
            required: wanted.required,
            deadline,
            nodes: entry.nodes.max(value(wanted.nodes.as_ref())),
            ..entry
        };
        let context = serde_json::to_value(entry).unwrap_or_default();
        self.post(job, &Event::with(now, "penstock.alloc-request", context));
        if let Some(deadline) = deadline {
            self.elastic.at(deadline, job);
        }
    }

    fn start(
        &mut self,
        number: Number,
        asker: &Asker,
        wanted: &Request,
        meant: Target,
        now: f64,
    ) -> Result<(), Denial> {
        let target = match meant {
            Target::Own | Target::Grant(_) => asker.job,
            Target::Allocation(id) => id,
        };
        match wanted.directive {
            Directive::New => {
                let ask = Ask::of(wanted)?;
                let own = self.jobs.get(&asker.job).map(|job| job.spec.duration);
                let time = wanted.time.as_ref().map(|it| f64::from(it.value));
                let duration = time.or(own).unwrap_or(0.0);
                let call = (number, asker, wanted);
                self.ask_for(call, ask, None, duration, Vec::new(), now)
            }
            Directive::Extend if wanted.has_resources() && wanted.time.is_some() => {
                let reason = "expected resources or time to extend by, found both";
                Err(Denial::new(Status::BAD_PARAM, reason))
            }
            Directive::Extend if wanted.time.is_some() => {
                let entry = Entry {
                    target: Some(target).filter(|it| *it != asker.job),
                    dropped: wanted.meaningless(),
                    ..Entry::default()
                };
                self.enter(number, asker, wanted, entry, now);
                self.try_time(number, false, now);
                Ok(())
            }
            Directive::Extend => {
                let ask = Ask::of(wanted)?;
                let left = self.time_left(target, now);
                let call = (number, asker, wanted);
                self.ask_for(call, ask, Some(target), left, Vec::new(), now)
            }
            Directive::Release => self.release_parts(number, asker, wanted, meant, now),
            Directive::Reacquire => self.reacquire((number, asker, wanted), now),
            Directive::Cancel => Ok(()),
        }
    }

    /// `pmix.cancel`: one request that waits, or all of the task's or the job's.
    pub(crate) fn pmix_cancel(
        &mut self,
        request: &Message,
        now: f64,
    ) -> Result<Value, RequestError> {
        let call: Cancel = rpc::payload(request)?;
        let asker = Asker {
            job: call.job,
            rank: call.rank,
            host: None,
        };
        let done = self
            .may_know(request, call.job)
            .and_then(|()| self.cancel(&asker, call.id.as_deref(), now));
        Ok(cancelled(done))
    }

    fn cancel(&mut self, asker: &Asker, id: Option<&str>, now: f64) -> Result<Vec<String>, Denial> {
        let account = self.elastic.ledger.account(asker.job);
        let meant: Vec<Entry> = if let Some(id) = id {
            let named = account.and_then(|it| named(it, id));
            let open = named.filter(|it| it.is_open());
            open.cloned().into_iter().collect()
        } else {
            let open = account.into_iter().flat_map(Account::open);
            let own = |entry: &&Entry| asker.rank.is_none() || entry.rank == asker.rank;
            open.filter(own).cloned().collect()
        };
        if let (Some(id), []) = (id, meant.as_slice()) {
            let reason = format!("no request `{}` waits", id.escape_debug());
            return Err(Denial::new(Status::NOT_FOUND, reason));
        }
        let mut names = Vec::new();
        for entry in meant {
            let denial = Denial::new(Status::CANCELLED, "cancelled by its job");
            self.end_request((asker.job, entry.seq), &End::refused(denial), now);
            let alloc = entry.alloc.map(|it| Fluid(it).to_string());
            names.extend(entry.id.or(alloc));
        }
        Ok(names)
    }
}

fn cancelled(done: Result<Vec<String>, Denial>) -> Value {
    match done {
        Ok(names) => json!({"status": 0, "reason": "", "results": [], "cancelled": names}),
        Err(denial) => json!({"status": denial.status.0, "reason": denial.reason, "results": [],
                              "cancelled": []}),
    }
}
