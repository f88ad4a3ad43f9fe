//! Requests on their way to the scheduler: first with every wish, then whole, then in part.

use std::sync::Arc;

use penstock_elastic::{Ask, Entry, Form, Refusal as Denial, Request, Status};
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde_json::json;

use super::calls::Asker;
use super::{Elastic, End, Number, Requested};
use crate::event::Event;
use crate::job::{Alloc, Job, Spec};
use crate::manager::Manager;
use crate::rpc::RequestError;
use crate::state::State;

/// Seconds after which a scheduler that does not say so has nothing free. Ours says so at once.
const DECISION_TIMEOUT_S: f64 = 2.0;

impl Elastic {
    /// The scheduler is being asked for a job that stands for a request.
    pub(crate) fn asked(&mut self, id: u64) {
        self.unprobed.insert(id);
    }
}

/// Whether the answer must be there now.
fn is_decided_now(job: &Job) -> bool {
    let requested = job.requested();
    requested.is_some_and(|it| it.form != Form::Whole || it.ask.required)
}

pub(super) fn denied(refusal: RequestError) -> Denial {
    Denial::new(Status::OUT_OF_RESOURCE, refusal.text)
}

impl Manager {
    /// Puts a job into the queue that stands for a request. `returns` are the loans that it asks back.
    pub(super) fn ask_for(
        &mut self,
        (number, asker, wanted): (Number, &Asker, &Request),
        mut ask: Ask,
        joins: Option<u64>,
        duration: f64,
        returns: Vec<(u32, u32)>,
        now: f64,
    ) -> Result<(), Denial> {
        ask.required = wanted.required;
        self.within_limits(asker.job, &ask)?;
        // What never can be has a part when the caller waits no longer.
        let whole = wanted.timeout.is_none() || !ask.has_parts();
        self.may_have(asker.job, joins, &ask, whole)?;
        if ask.required && !self.allocator.is_ready() {
            let reason = "not available now: no scheduler is ready";
            return Err(Denial::new(Status::OUT_OF_RESOURCE, reason));
        }
        let mut stands = Requested {
            job: asker.job,
            seq: number.1,
            directive: wanted.directive.name().to_owned(),
            id: wanted.id.clone(),
            joins,
            form: ask.first(),
            ask,
            before: Vec::new(),
        };
        let mut spec = self.spec_of(&stands, duration);
        if spec.is_err() && stands.form == Form::Preferred {
            stands.form = Form::Whole;
            spec = self.spec_of(&stands, duration);
        }
        let mut spec = spec?;
        if stands.form == Form::Preferred && self.why_stopped(&spec).is_some() {
            // Nothing of it can be had now.
            stands.form = Form::Whole;
            spec = self.spec_of(&stands, duration)?;
        }
        if let Some(why) = self.why_stopped(&spec).filter(|_| stands.ask.required) {
            let reason = format!("not available now: {why}");
            return Err(Denial::new(Status::OUT_OF_RESOURCE, reason));
        }
        let id = self.next_id(now);
        let own = |target: &u64| *target != asker.job;
        let several = !stands.ask.rest.is_empty();
        let cpus = u32::try_from(stands.ask.all_cpus()).unwrap_or(u32::MAX);
        let entry = Entry {
            alloc: Some(id),
            target: joins.filter(own),
            nodes: stands.ask.all_nodes().unwrap_or(0),
            cpus: if several { cpus } else { stands.ask.cpus },
            ..Entry::default()
        };
        self.enter(number, asker, wanted, Entry { returns, ..entry }, now);
        self.stand_for(id, &stands, spec, now);
        Ok(())
    }

    /// Why jobs of this kind are not given to the scheduler, where they are not.
    fn why_stopped(&self, spec: &Spec) -> Option<Arc<str>> {
        self.queues.why_stopped(spec.queue.as_deref()).cloned()
    }

    /// The jobspec of a job that stands for a request, checked.
    pub(super) fn spec_of(
        &mut self,
        stands: &Requested,
        duration: f64,
    ) -> Result<Arc<Spec>, Denial> {
        let job = self.jobs.get(&stands.job);
        let userid = job.map_or(self.settings.owner, |it| it.userid);
        let queue = job.and_then(|it| it.spec.queue.clone());
        let name = match &stands.id {
            Some(id) => format!("{}:{id}", stands.directive),
            None => stands.directive.clone(),
        };
        let (ask, form) = (&stands.ask, stands.form);
        let jobspec = ask.jobspec(form, queue.as_deref(), duration, &name);
        let joins = stands.joins.is_some() || !ask.rest.is_empty();
        let spec = self.take_spec(&jobspec.to_string(), userid, joins);
        spec.map_err(denied)
    }

    /// Makes the job that stands for a request, or for a part of one.
    pub(super) fn stand_for(&mut self, id: u64, stands: &Requested, spec: Arc<Spec>, now: f64) {
        let Some(job) = self.jobs.get(&stands.job) else {
            return;
        };
        let (userid, urgency) = (job.userid, job.urgency);
        let stored = self.store.add_job(id, userid, now, spec.key);
        self.keep(stored);
        self.admit(Job::new(id, userid, spec));
        let context = json!({"userid": userid, "urgency": urgency, "flags": 0, "version": 1});
        self.post(id, &Event::with(now, "submit", context));
        let context = serde_json::to_value(stands).unwrap_or_default();
        self.post(id, &Event::with(now, "penstock.request", context));
        self.decide_soon(id, now);
        self.revisit(id);
    }

    /// Asks the scheduler, once for all requests that are decided now, to say when it has looked
    /// at them: a question is answered after a pass, and what is allocated in it is committed by then.
    pub(crate) fn send_probe(&mut self) {
        if self.elastic.unprobed.is_empty() || !self.allocator.is_ready() {
            return;
        }
        let asked = std::mem::take(&mut self.elastic.unprobed);
        let jobs = &self.jobs;
        let now = |id: &u64| jobs.get(id).is_some_and(is_decided_now);
        let asked: std::collections::BTreeSet<u64> = asked.into_iter().filter(now).collect();
        if asked.is_empty() {
            return;
        }
        self.elastic.tag = self.elastic.tag % 0x7fff_ffff + 1;
        let tag = self.elastic.tag;
        self.elastic.probes.insert(tag, asked);
        let probe = Message::request("sched.explain", "{\"ids\":[]}").with_matchtag(tag);
        self.out.push(probe);
    }

    /// The scheduler has looked. One that does not know the question has said nothing.
    pub(crate) fn probe_response(&mut self, response: &Message, now: f64) {
        let asked = self.elastic.probes.remove(&response.matchtag);
        if response.errnum() != 0 {
            return;
        }
        for id in asked.into_iter().flatten() {
            self.not_now(id, now);
        }
    }

    /// A request that is decided now, and for which nothing was committed, goes on in its next
    /// form, or is refused.
    fn not_now(&mut self, id: u64, now: f64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let waits = job.state < State::Run && job.r.is_none();
        let Some(requested) = job.requested().filter(|_| waits && is_decided_now(job)) else {
            return;
        };
        let asked = self.first_ask(id).describe();
        match requested.form {
            Form::Preferred => self.next_form(id, Form::Whole, now),
            Form::Whole => {
                let reason = format!("not available now: {asked}");
                self.deny(id, Status::OUT_OF_RESOURCE, &reason, now);
            }
            Form::Part => {
                let reason = format!(
                    "no part of {asked} is free and not reserved, and the caller waits no longer"
                );
                self.deny(id, Status::TIMEOUT, &reason, now);
            }
        }
    }

    /// Asks for a request in another form.
    fn next_form(&mut self, id: u64, form: Form, now: f64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let Some(requested) = job.requested() else {
            return;
        };
        if !requested.before.is_empty() {
            return self.start_over(id, form, false, now);
        }
        let (ask, joins) = (&requested.ask, requested.joins);
        let owner = self.jobs.get(&requested.job);
        let queue = owner.map_or(job.spec.queue.as_ref(), |it| it.spec.queue.as_ref());
        let duration = match joins {
            Some(target) => self.time_left(target, now),
            None => job.spec.duration,
        };
        let jobspec = ask.jobspec(form, queue.map(String::as_str), duration, &job.spec.name);
        let replaced = self.replace_spec(id, &jobspec.to_string());
        if let Err(refusal) = replaced {
            return self.deny(id, Status::OUT_OF_RESOURCE, &refusal.text, now);
        }
        // What the scheduler was asked about was the form before.
        for asked in self.elastic.probes.values_mut() {
            asked.remove(&id);
        }
        let context = json!({ "form": form });
        self.post(id, &Event::with(now, "penstock.request-update", context));
        self.decide_soon(id, now);
        self.withdraw(id);
        self.revisit(id);
    }

    /// The scheduler says that a job can never have what it asks for. Returns whether that was a
    /// request's: then it is dealt with.
    pub(crate) fn request_denied(&mut self, id: u64, note: &str, now: f64) -> bool {
        let Some(requested) = self.jobs.get(&id).and_then(Job::requested) else {
            return false;
        };
        let (form, parts) = (requested.form, self.first_ask(id).has_parts());
        let number = (requested.job, requested.seq);
        let limit = self.deadline_of(number);
        match form {
            Form::Preferred => self.next_form(id, Form::Whole, now),
            Form::Whole if limit.is_some() && parts => self.next_form(id, Form::Part, now),
            // No part either, or a scheduler that does not know what a part is.
            Form::Part if limit.is_some_and(|limit| limit <= now) => {
                self.deny(id, Status::TIMEOUT, note, now);
            }
            Form::Whole | Form::Part => self.deny(id, Status::OUT_OF_RESOURCE, note, now),
        }
        true
    }

    fn deadline_of(&self, (job, seq): Number) -> Option<f64> {
        let account = self.elastic.ledger.account(job)?;
        account.entry(seq).filter(|it| it.is_open())?.deadline
    }

    /// Refuses the request that a job stands for.
    fn deny(&mut self, id: u64, status: Status, reason: &str, now: f64) {
        let requested = self.jobs.get(&id).and_then(Job::requested);
        if let Some(number) = requested.map(|it| (it.job, it.seq)) {
            let end = End::refused(Denial::new(status, reason));
            self.end_request(number, &end, now);
        }
    }

    /// It is time to look at a job that stands for a request.
    pub(super) fn request_due(&mut self, id: u64, now: f64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        if !is_decided_now(job) {
            self.limit_due(id, now);
            return self.kept_too_long(id, now);
        }
        let by = self.elastic.decide.get(&id).copied().unwrap_or(now);
        if by > now || (job.r.is_some() && job.alloc != Alloc::Idle) {
            // One whose R is being committed is as good as granted.
            self.elastic.at(by.max(now + 0.1), id);
        } else {
            self.not_now(id, now);
        }
    }

    /// The caller may wait no longer for a request: what is free of it now will do.
    pub(super) fn limit_due(&mut self, id: u64, now: f64) {
        let id = self.elastic.last_part(id);
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let waits = job.state < State::Run && !is_decided_now(job);
        let Some(requested) = job.requested().filter(|_| waits) else {
            return;
        };
        let limit = self.deadline_of((requested.job, requested.seq));
        if limit.is_none_or(|limit| limit > now) {
            return;
        }
        let whole = self.first_ask(id);
        if whole.has_parts() {
            self.next_form(id, Form::Part, now);
        } else {
            let asked = whole.describe();
            let reason = format!("{asked} did not become free in time");
            self.deny(id, Status::TIMEOUT, &reason, now);
        }
    }

    pub(super) fn decide_soon(&mut self, id: u64, now: f64) {
        self.elastic.decide.insert(id, now + DECISION_TIMEOUT_S);
        self.elastic.at(now + DECISION_TIMEOUT_S, id);
    }

    /// Seconds that a job has left; 0 for a job without a limit.
    pub(super) fn time_left(&self, id: u64, now: f64) -> f64 {
        let r = self.jobs.get(&id).and_then(|job| job.r.as_ref());
        let end = r.and_then(|r| r.expiration()).filter(|it| *it > 0.0);
        end.map_or(0.0, |end| (end - now).max(1.0))
    }
}

/// A job's name as results give it.
pub(super) fn name_of(id: u64) -> String {
    Fluid(id).to_string()
}
