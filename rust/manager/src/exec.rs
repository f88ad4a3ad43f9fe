//! RFC 32 as the job manager speaks it: who runs jobs, and what they report.

use std::collections::BTreeSet;

use penstock_idset::IdSet;
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::event::Event;
use crate::job::{Alloc, Exec};
use crate::manager::Manager;
use crate::rpc::{self, EINVAL, Refusal};
use crate::state::State;

/// The talk with the execution service.
#[derive(Debug, Default)]
pub struct Executor {
    /// Name that start requests go to, and the service's route.
    service: Option<(String, Vec<u8>)>,
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
struct Raised {
    severity: i64,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    note: String,
}

#[derive(Deserialize)]
struct Finish {
    status: i32,
}

impl Manager {
    /// `exec-hello`: the newcomer replaces who was there; running jobs are handed over to it.
    pub(crate) fn exec_hello(&mut self, request: &Message) {
        let hello: Hello = match rpc::payload(request) {
            Ok(hello) => hello,
            Err(refusal) => return self.refuse(request, &refusal),
        };
        if self.settings.owner != request.userid {
            let refusal = Refusal::new(rpc::EPERM, "only the instance owner may execute jobs");
            return self.refuse(request, &refusal);
        }
        let Some(origin) = rpc::origin(request) else {
            let refusal = Refusal::new(EINVAL, "exec-hello came without a route");
            return self.refuse(request, &refusal);
        };
        let origin = origin.to_vec();
        self.stop_starts("a new execution service says hello");
        self.executor.service = Some((hello.service, origin));
        self.respond(request, None);
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
            let (userid, reattach) = (job.userid, job.started);
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
            }
            self.out.push(Message::request(&topic, &payload));
        }
    }

    /// A response to `<service>.start`.
    pub(crate) fn start_response(&mut self, response: &Message, now: f64) {
        if response.errnum() != 0 {
            let (topic, errnum) = (response.topic(), response.errnum());
            return self.stop_starts(&format!("{topic} failed with errnum {errnum}"));
        }
        let start: StartResponse = match rpc::payload(response) {
            Ok(start) => start,
            Err(refusal) => return self.note(format!("start response ignored: {}", refusal.text)),
        };
        let due = self.jobs.get(&start.id).map(|job| job.exec);
        if due != Some(Exec::Requested) {
            let name = Fluid(start.id);
            return self.note(format!("start response for {name} ignored: none is due"));
        }
        if let Err(error) = self.take_start_response(start, now) {
            self.note(format!("start response ignored: {error}"));
        }
    }

    fn take_start_response(
        &mut self,
        response: StartResponse,
        now: f64,
    ) -> Result<(), serde_json::Error> {
        let id = response.id;
        match response.kind.as_str() {
            "start" => self.post(id, &Event::new(now, "start")),
            // In place of `start` after a reattach: the job goes on as it was.
            "reattached" => self.post(id, &Event::new(now, "reattached")),
            "exception" => {
                let raised: Raised = serde_json::from_value(response.data)?;
                let owner = self.settings.owner;
                let severity = raised.severity.clamp(0, 7);
                self.post_exception(id, now, &raised.kind, severity, &raised.note, owner);
            }
            "finish" => {
                let finish: Finish = serde_json::from_value(response.data)?;
                let context = json!({ "status": finish.status });
                self.post(id, &Event::with(now, "finish", context));
            }
            "release" => {
                let release: Release = serde_json::from_value(response.data)?;
                self.release(id, &release, now);
            }
            kind => {
                let name = Fluid(id);
                self.note(format!(
                    "start response of unknown type `{kind}` for {name}"
                ));
            }
        }
        Ok(())
    }

    /// Ranks that the execution service has finished with go back to the scheduler at once.
    fn release(&mut self, id: u64, release: &Release, now: f64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let all = job.r.as_ref().map_or_else(IdSet::new, |r| r.ranks());
        let named = match release.ranks.as_str() {
            "all" => all.clone(),
            ranks => match ranks.parse::<IdSet>() {
                Ok(ranks) => ranks.intersection(&all),
                Err(error) => return self.note(format!("release of {}: {error}", Fluid(id))),
            },
        };
        let left = all.difference(&job.freed);
        let freed = if release.last {
            left.clone()
        } else {
            named.intersection(&left)
        };
        if release.last && job.state == State::Run {
            self.fail_job(id, now, "exec", "released without having finished");
        }
        if !freed.is_empty() {
            self.send_free(id, &freed, freed == left);
        }
        let ranks = if named == all {
            "all".to_owned()
        } else {
            named.to_string()
        };
        let context = json!({ "ranks": ranks, "final": release.last });
        self.post(id, &Event::with(now, "release", context));
        if let Some(job) = self.jobs.get_mut(&id) {
            job.freed.union_with(&freed);
        }
        self.claims.release(id, &freed);
        self.revisit(id);
    }

    /// No starts until the next exec-hello. What runs will be handed to the next service.
    pub(crate) fn stop_starts(&mut self, why: &str) {
        if self.executor.service.take().is_none() {
            return;
        }
        self.note(format!("the execution service is gone: {why}"));
        let mut orphans = Vec::new();
        for job in self.jobs.values_mut() {
            if job.exec == Exec::Requested && job.alloc == Alloc::Held {
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
        if self.is_scheduler(&origin) {
            self.suspend_scheduling("the scheduler disconnected");
        }
        let executor = self.executor.service.as_ref();
        if executor.is_some_and(|(_, peer)| *peer == origin) {
            self.stop_starts("it disconnected");
        }
    }
}
