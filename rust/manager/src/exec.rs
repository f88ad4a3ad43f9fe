//! RFC 32 as the job manager speaks it: who runs jobs, and what they report.
//!
//! What the service may answer to a start request:
//!
//! | answer | when |
//! |---|---|
//! | `start` | first |
//! | `reattached` | first, and only if `reattach` was asked |
//! | `finish` | after one of these; or first, after a fatal exception or where `reattach` was asked |
//! | `exception` | at any time |
//! | `release` | as `finish`, and before and after it; only ranks that have not been released |
//! | `release`, final | at any time; without a `finish` or a fatal exception it makes the job fail |
//!
//! Anything else is refused and logged. After the final release nothing is due any more.

use std::collections::BTreeSet;

use penstock_idset::IdSet;
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::event::Event;
use crate::exception::Raised;
use crate::job::{Alloc, Answered, Exec};
use crate::manager::Manager;
use crate::rpc::{self, EINVAL, ENOSYS, RequestError};
use crate::settings::ExecHello;

/// The talk with the execution service.
#[derive(Debug, Default)]
pub struct Executor {
    /// Name that start requests go to, and the service's route.
    service: Option<(String, Vec<u8>)>,
    /// The service has answered something since its hello.
    heard: bool,
    /// Jobs to start.
    pub(crate) waiting: BTreeSet<u64>,
}

impl Executor {
    /// The topic of one of the service's methods, where there is a service.
    pub(crate) fn topic(&self, method: &str) -> Option<String> {
        let (service, _) = self.service.as_ref()?;
        Some(format!("{service}.{method}"))
    }

    pub(crate) fn describe(&self) -> Value {
        json!({
            "service": self.service.as_ref().map(|(name, _)| name.as_str()),
            "waiting": self.waiting.len(),
        })
    }
}

#[derive(Deserialize)]
struct Hello {
    service: String,
}

#[derive(Deserialize)]
struct StartResponse {
    id: u64,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    data: Value,
}

#[derive(Deserialize)]
struct Release {
    ranks: String,
    #[serde(rename = "final")]
    last: bool,
}

#[derive(Deserialize)]
struct ExceptionData {
    severity: i64,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    note: String,
    wait_status: Option<u16>,
}

#[derive(Deserialize)]
struct Finish {
    status: i32,
}

impl Manager {
    /// `exec-hello`: the newcomer replaces who was there; running jobs are handed over to it.
    pub(crate) fn exec_hello(&mut self, request: &Message) {
        match self.accept_executor(request) {
            Ok((service, origin)) => {
                self.tell_replaced(&service);
                self.stop_starts("a new execution service says hello");
                self.executor.service = Some((service, origin));
                self.executor.heard = false;
                self.respond(request, None);
            }
            Err(refusal) => self.refuse(request, &refusal),
        }
    }

    fn accept_executor(&self, request: &Message) -> Result<(String, Vec<u8>), RequestError> {
        if self.settings.owner != request.userid {
            let text = "only the instance owner may execute jobs";
            return Err(RequestError::new(rpc::EPERM, text));
        }
        let Hello { service } = rpc::payload(request)?;
        let word = |it: char| it.is_ascii_graphic() && it != '.';
        if service.is_empty() || !service.chars().all(word) {
            let text = format!("invalid service name `{}`", service.escape_debug());
            return Err(RequestError::new(EINVAL, text));
        }
        let origin = rpc::origin(request);
        let origin =
            origin.ok_or_else(|| RequestError::new(EINVAL, "exec-hello without a route"))?;
        let owner = self.services.as_ref().map(|known| known.get(&service));
        if owner.is_some_and(|owner| owner.map(Vec::as_slice) != Some(origin)) {
            let text = format!("service `{service}` is not registered by this connection");
            return Err(RequestError::new(rpc::EPERM, text));
        }
        if let (ExecHello::Refuse, Some((known, _))) =
            (self.settings.exec_hello, &self.executor.service)
        {
            let jobs = self.jobs.values();
            let outstanding = jobs.filter(|job| job.exec == Exec::Requested).count();
            if outstanding > 0 {
                let text = format!("`{known}` has start requests to answer: {outstanding}");
                return Err(RequestError::new(EINVAL, text));
            }
        }
        Ok((service, origin.to_vec()))
    }

    /// Tells a service that another one has its jobs now: it ends what it runs, and says no more.
    fn tell_replaced(&mut self, service: &str) {
        // Under its own name it would be the newcomer that hears of it.
        if let Some((old, _)) = &self.executor.service
            && old != service
        {
            let payload = json!({ "service": service }).to_string();
            let request = Message::request(&format!("{old}.replaced"), &payload);
            self.out.push(rpc::unanswered(request));
        }
    }

    /// Starts what is waiting, if there is a service.
    pub(crate) fn send_starts(&mut self, now: f64) {
        let Some(topic) = self.executor.topic("start") else {
            return;
        };
        while let Some(id) = self.executor.waiting.pop_first() {
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            // Who got the job before may have started it, and not have come to say so.
            let (userid, reattach) = (job.userid, job.started || job.asked.is_some());
            let ended = job.fatal().is_some();
            let Some(r) = job.r.as_ref().map(|r| r.to_json()) else {
                continue;
            };
            let text = self.store.jobspec(job.spec.key);
            let Some(jobspec) = self.keep(text) else {
                self.fail_job(id, now, "exec", "the jobspec is not in the store");
                continue;
            };
            let payload = format!(
                "{{\"id\":{id},\"userid\":{userid},\"jobspec\":{jobspec},\"reattach\":{reattach},\"R\":{r}}}"
            );
            if let Some(job) = self.jobs.get_mut(&id) {
                job.exec = Exec::Requested;
                job.asked = Some(reattach);
                job.answered = Answered::Nothing;
            }
            self.out.push(Message::request(&topic, &payload));
            if ended {
                // The exception was told to the service that is gone.
                self.recall_exception(id);
            }
        }
    }

    /// A response to `<service>.start`.
    pub(crate) fn start_response(&mut self, response: &Message, now: f64) {
        let topic = response.topic();
        if self.executor.topic("start").as_deref() != Some(topic) {
            return self.complain(format!(
                "{topic} response ignored: not the execution service"
            ));
        }
        if response.errnum() != 0 {
            let errnum = response.errnum();
            if errnum == ENOSYS && !self.executor.heard {
                self.forget_starts();
            }
            return self.stop_starts(&format!("{topic} failed with errnum {errnum}"));
        }
        let start: StartResponse = match rpc::payload(response) {
            Ok(start) => start,
            Err(refusal) => {
                return self.complain(format!("start response ignored: {}", refusal.text));
            }
        };
        self.executor.heard = true;
        let (name, kind) = (Fluid(start.id), start.kind.clone());
        if let Err(error) = self.take_start_response(start, now) {
            self.complain(format!("`{kind}` response for {name} ignored: {error}"));
        }
    }

    /// Takes an answer in if RFC 32 allows it now. The error says what is wrong with it.
    fn take_start_response(&mut self, response: StartResponse, now: f64) -> Result<(), String> {
        let id = response.id;
        let job = self.jobs.get_mut(&id);
        let job = job.filter(|job| job.exec == Exec::Requested);
        let job = job.ok_or("none is due")?;
        // The job has ended, if need be under a service before this one.
        let ended = job.fatal().is_some() || job.status.is_some();
        let reattach = job.asked == Some(true);
        // One that is to be reattached has started, whether the service says so again or not.
        let started = reattach || ended;
        match (response.kind.as_str(), job.answered) {
            ("start" | "reattached", Answered::Started | Answered::Finished) => {
                return Err("it has started before".to_owned());
            }
            ("reattached", Answered::Nothing) if !reattach => {
                return Err("reattach was not asked for".to_owned());
            }
            ("start" | "reattached", Answered::Nothing) => {
                job.answered = Answered::Started;
                // A service that knows no `reattached` says `start`, though the start was before;
                // and of a start that was before, the service that was there may not have told.
                let name = if job.started { "reattached" } else { "start" };
                self.post(id, &Event::new(now, name));
            }
            ("exception", _) => {
                let raised: ExceptionData = data(response.data)?;
                if !(0..=7).contains(&raised.severity) {
                    return Err(format!("severity {}: expected 0 to 7", raised.severity));
                }
                let raised = Raised {
                    kind: &raised.kind,
                    severity: raised.severity,
                    note: &raised.note,
                    userid: self.settings.owner,
                    wait_status: raised.wait_status.map(i32::from),
                };
                self.raise_exception(id, now, &raised);
            }
            ("finish", Answered::Finished) => return Err("it has finished before".to_owned()),
            ("finish", Answered::Nothing) if !started => {
                return Err("it has not started".to_owned());
            }
            ("finish", _) => {
                let finish: Finish = data(response.data)?;
                if finish.status < 0 {
                    let status = finish.status;
                    return Err(format!(
                        "status {status}: expected a wait status, 0 or more"
                    ));
                }
                job.answered = Answered::Finished;
                if job.status.is_none() {
                    let context = json!({ "status": finish.status });
                    self.post(id, &Event::with(now, "finish", context));
                }
            }
            ("release", answered) => {
                let release: Release = data(response.data)?;
                if !release.last && !started && answered == Answered::Nothing {
                    return Err("it has not started".to_owned());
                }
                self.release(id, &release, now)?;
            }
            _ => return Err("unknown type".to_owned()),
        }
        Ok(())
    }

    /// Ranks that the execution service has finished with go back to the scheduler at once.
    ///
    /// The final release frees whatever is left, whatever ranks it names: nothing else can follow.
    fn release(&mut self, id: u64, release: &Release, now: f64) -> Result<(), String> {
        let Some(job) = self.jobs.get(&id) else {
            return Ok(());
        };
        let all = job.r.as_ref().map_or_else(IdSet::new, |r| r.ranks());
        let left = all.difference(&job.freed).difference(&job.kept);
        let ended = job.fatal().is_some() || job.status.is_some();
        let named = match release.ranks.as_str() {
            "all" => left.clone(),
            ranks => ranks.parse::<IdSet>().map_err(|error| error.to_string())?,
        };
        if named.is_empty() && !release.last {
            return Err("no ranks".to_owned());
        }
        // What the job itself has given back is none of the service's any more.
        let given = job.flex.as_ref().map(|it| &it.given);
        let named = given.map_or(named.clone(), |given| named.difference(given));
        let not_left = named.difference(&left);
        if !not_left.is_empty() {
            let fault = format!("ranks {not_left} are not the job's any more, or never were");
            if !release.last {
                return Err(fault);
            }
            self.note(format!("final release of {}: {fault}", Fluid(id)));
        }
        let freed = if release.last { left.clone() } else { named };
        if release.last && !ended {
            self.fail_job(id, now, "exec", "released without having finished");
        }
        let kept = self.is_kept_for_epilog(id);
        if !freed.is_empty() && !kept {
            self.send_free(id, &freed, freed == left);
        }
        let ranks = if freed == all {
            "all".to_owned()
        } else {
            freed.to_string()
        };
        let mut context = json!({ "ranks": ranks, "final": release.last });
        if kept {
            context["kept"] = true.into();
        }
        self.post(id, &Event::with(now, "release", context));
        if !kept {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.freed.union_with(&freed);
            }
            self.claims.release(id, &freed);
        }
        self.revisit(id);
        Ok(())
    }

    /// The service is one that nobody has registered: what it was to start, nobody has started.
    fn forget_starts(&mut self) {
        for job in self.jobs.values_mut() {
            if job.exec == Exec::Requested && job.asked == Some(false) {
                job.asked = None;
            }
        }
    }

    /// No starts until the next exec-hello. What runs will be handed to the next service.
    pub(crate) fn stop_starts(&mut self, why: &str) {
        if self.executor.service.take().is_none() {
            return;
        }
        self.note(format!("the execution service is gone: {why}"));
        let mut orphans = Vec::new();
        for job in self.jobs.values_mut() {
            if job.exec == Exec::Requested && job.alloc == Alloc::Allocated {
                job.exec = Exec::Waiting;
                self.executor.waiting.insert(job.id);
                orphans.push(job.id);
            }
        }
        // One that was ended before it was seen to start has nothing to wait for any more.
        for id in orphans {
            self.revisit(id);
        }
    }

    /// A peer went away: it may have been the scheduler, the execution service or a watcher.
    pub(crate) fn disconnect(&mut self, request: &Message) {
        let Some(origin) = rpc::origin(request).map(<[u8]>::to_vec) else {
            return;
        };
        self.watchers.forget(&origin);
        self.forget_callers(&origin);
        self.listings.forget(&origin);
        if self.is_scheduler(&origin) {
            self.suspend_scheduling("the scheduler disconnected");
        }
        let executor = self.executor.service.as_ref();
        if executor.is_some_and(|(_, peer)| *peer == origin) {
            self.stop_starts("it disconnected");
        }
    }
}

/// The `data` of an answer.
fn data<T: DeserializeOwned>(data: Value) -> Result<T, String> {
    serde_json::from_value(data).map_err(|error| format!("malformed data: {error}"))
}
