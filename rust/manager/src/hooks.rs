//! Prolog and epilog: what the site runs before a job starts and after it has ended (RFC 21).
//!
//! The manager asks the service `hooks` and waits: no start before the prolog has ended, nothing
//! given back before the epilog has.

use std::collections::{BTreeMap, BTreeSet};

use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::event::Event;
use crate::job::{Alloc, Answered, HookStage, Job};
use crate::manager::Manager;
use crate::rpc;
use crate::state::State;

/// The wait status of a hook that could not be run: exit code 1.
const FAILED: i64 = 1 << 8;

/// Which hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HookKind {
    Prolog,
    Epilog,
}

impl HookKind {
    fn name(self) -> &'static str {
        match self {
            Self::Prolog => "prolog",
            Self::Epilog => "epilog",
        }
    }
}

/// The hooks that run now.
#[derive(Debug, Default)]
pub struct Hooks {
    asked: BTreeMap<u32, (u64, HookKind)>,
    busy: BTreeSet<(u64, HookKind)>,
    /// Jobs whose prolog was told to end.
    ending: BTreeSet<u64>,
    tag: u32,
}

#[derive(Deserialize)]
struct Ended {
    status: i64,
    #[serde(default)]
    note: String,
}

impl Manager {
    /// Whether a job that is to be started has to wait for its prolog. Begins it where it is due.
    pub(crate) fn waits_for_prolog(&mut self, id: u64, now: f64) -> bool {
        let configured = self.settings.prolog;
        let Some(job) = self.jobs.get(&id) else {
            return false;
        };
        match job.prolog {
            HookStage::Done => false,
            HookStage::Idle if !configured || job.started => false,
            HookStage::Begun if self.hooks.busy.contains(&(id, HookKind::Prolog)) => true,
            HookStage::Begun if !configured => {
                self.log_finish(id, HookKind::Prolog, 0, now);
                false
            }
            HookStage::Begun => {
                // The restart of the instance has cut it off.
                self.ask_hook(id, HookKind::Prolog);
                true
            }
            HookStage::Idle => {
                self.log_start(id, HookKind::Prolog, now);
                self.ask_hook(id, HookKind::Prolog);
                true
            }
        }
    }

    /// A job is in CLEANUP: whether its prolog still has to end. Ends it.
    pub(crate) fn ends_prolog(&mut self, id: u64, now: f64) -> bool {
        if self.jobs.get(&id).map(|job| job.prolog) != Some(HookStage::Begun) {
            return false;
        }
        if !self.hooks.busy.contains(&(id, HookKind::Prolog)) {
            // The restart of the instance has ended it.
            self.log_finish(id, HookKind::Prolog, FAILED, now);
            return false;
        }
        if self.hooks.ending.insert(id) {
            let payload = json!({ "id": id }).to_string();
            let request = Message::request("hooks.cancel", &payload);
            self.out.push(rpc::unanswered(request));
        }
        true
    }

    /// Whether a job that has resources is to have an epilog that has not begun: one for every job
    /// whose prolog or whose tasks may have run, and of which nothing was given back without it.
    fn has_epilog_to_come(&self, job: &Job) -> bool {
        let asked = job.started || job.answered != Answered::Unasked;
        let touched = job.prolog != HookStage::Idle || asked;
        // What the job gave back itself went without an epilog.
        let given = job.flex.as_ref().map(|it| &it.given);
        let whole = given.map_or(job.freed.is_empty(), |given| job.freed == *given);
        let due = job.epilog == HookStage::Idle && job.alloc == Alloc::Allocated && whole;
        self.settings.epilog && due && touched && job.requested().is_none()
    }

    /// Whether ranks that are released now are kept back until the epilog has ended. Once some are,
    /// all are.
    pub(crate) fn is_kept_for_epilog(&self, id: u64) -> bool {
        self.jobs.get(&id).is_some_and(|job| {
            let kept = job.epilog == HookStage::Begun || !job.kept.is_empty();
            kept || self.has_epilog_to_come(job)
        })
    }

    /// The job's tasks are gone: whether its epilog still has to end. Begins it where it is due.
    pub(crate) fn waits_for_epilog(&mut self, id: u64, now: f64) -> bool {
        let Some(job) = self.jobs.get(&id) else {
            return false;
        };
        match job.epilog {
            HookStage::Done => false,
            HookStage::Begun if self.hooks.busy.contains(&(id, HookKind::Epilog)) => true,
            HookStage::Begun if !self.settings.epilog => {
                self.log_finish(id, HookKind::Epilog, 0, now);
                false
            }
            HookStage::Begun => {
                // The restart of the instance has cut it off.
                self.ask_hook(id, HookKind::Epilog);
                true
            }
            HookStage::Idle if !self.has_epilog_to_come(job) => false,
            HookStage::Idle => {
                self.log_start(id, HookKind::Epilog, now);
                self.ask_hook(id, HookKind::Epilog);
                true
            }
        }
    }

    fn log_start(&mut self, id: u64, kind: HookKind, now: f64) {
        let name = kind.name();
        let context = json!({ "description": name });
        self.post(id, &Event::with(now, &format!("{name}-start"), context));
    }

    fn log_finish(&mut self, id: u64, kind: HookKind, status: i64, now: f64) {
        let name = kind.name();
        let context = json!({"description": name, "status": status});
        self.post(id, &Event::with(now, &format!("{name}-finish"), context));
    }

    fn ask_hook(&mut self, id: u64, kind: HookKind) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let r = job
            .r
            .as_ref()
            .map_or_else(|| "null".to_owned(), |r| r.to_json());
        let (userid, status) = (job.userid, Value::from(job.status));
        let payload = format!("{{\"id\":{id},\"userid\":{userid},\"status\":{status},\"R\":{r}}}");
        self.hooks.tag = self.hooks.tag % 0x7fff_ffff + 1;
        let tag = self.hooks.tag;
        self.hooks.asked.insert(tag, (id, kind));
        self.hooks.busy.insert((id, kind));
        let message = Message::request(&format!("hooks.{}", kind.name()), &payload);
        self.out.push(message.with_matchtag(tag));
    }

    /// A response to `hooks.prolog` or `hooks.epilog`: the command has ended.
    pub(crate) fn hook_response(&mut self, response: &Message, now: f64) {
        let Some((id, kind)) = self.hooks.asked.remove(&response.matchtag) else {
            return;
        };
        self.hooks.busy.remove(&(id, kind));
        self.hooks.ending.remove(&id);
        let ended = if response.errnum() == 0 {
            rpc::payload(response).unwrap_or_else(|refusal| Ended {
                status: FAILED,
                note: refusal.text,
            })
        } else {
            let text = response.error_text().unwrap_or_default();
            Ended {
                status: FAILED,
                note: format!("{} failed: {text}", response.topic()),
            }
        };
        let state = self.jobs.get(&id).map(|job| job.state);
        if ended.status != 0 {
            let name = Fluid(id);
            self.note(format!("{} of job {name}: {}", kind.name(), ended.note));
            let owner = self.settings.owner;
            match kind {
                HookKind::Prolog if state == Some(State::Run) => {
                    self.log_finish(id, kind, ended.status, now);
                    self.post_exception(id, now, "prolog", 0, &ended.note, owner);
                    return self.revisit(id);
                }
                HookKind::Prolog => {}
                // The job is over, well or not: that its epilog failed does not change it.
                HookKind::Epilog => self.post_exception(id, now, "epilog", 1, &ended.note, owner),
            }
        }
        self.log_finish(id, kind, ended.status, now);
        self.revisit(id);
    }
}
