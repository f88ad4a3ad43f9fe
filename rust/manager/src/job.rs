//! One job: the facts that its events tell, and how far its talks with scheduler and
//! execution service have come.

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_jobspec::{Jobspec, TaskCount};
use penstock_rset::ResourceSet;
use serde_json::{Map, Value};

use crate::elastic::{Flex, Requested};
use crate::event::Event;
use crate::priority::priority_of;
use crate::state::{JobResult, State};

/// What the manager needs of a jobspec, shared by jobs that were submitted together.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Key of the full text in the store.
    pub key: i64,
    /// The jobspec as the scheduler gets it: without environment, with the queue's constraint.
    pub redacted: String,
    /// Job name: as given, else the command's last path component.
    pub name: String,
    /// Working directory.
    pub cwd: Option<String>,
    /// Queue.
    pub queue: Option<String>,
    /// Project to account to.
    pub project: Option<String>,
    /// Bank to account to.
    pub bank: Option<String>,
    /// Tasks; the least where they are as many as the slots that the job gets.
    pub ntasks: u64,
    /// Whether there is a task a slot, and the number of slots is not settled before R is.
    pub tasks_follow_slots: bool,
    /// Nodes asked for; `None` where only slots are.
    pub nnodes: Option<u32>,
    /// Cores asked for.
    pub ncores: u64,
    /// Time limit in seconds; 0 for none.
    pub duration: f64,
    /// Dependencies as (scheme, value).
    pub dependencies: Vec<(String, String)>,
}

impl Spec {
    /// Takes what is needed from a valid jobspec. `redacted` is what the scheduler is sent.
    pub fn new(key: i64, jobspec: &Jobspec, redacted: String) -> Self {
        let request = jobspec.request();
        let name = jobspec.job_name().map_or_else(
            || {
                let command = jobspec.command().first().map_or("", String::as_str);
                command.rsplit('/').next().unwrap_or(command).to_owned()
            },
            str::to_owned,
        );
        let text = |path| jobspec.attribute(path)?.as_str().map(str::to_owned);
        Self {
            key,
            redacted,
            name,
            cwd: jobspec.cwd().map(str::to_owned),
            queue: jobspec.queue().map(str::to_owned),
            project: text("system.project"),
            bank: text("system.bank"),
            ntasks: jobspec.ntasks(),
            tasks_follow_slots: matches!(jobspec.tasks, TaskCount::PerSlot(_))
                && !request.is_exact(),
            nnodes: request.least_nodes(),
            ncores: request.total_cores(),
            duration: jobspec.duration(),
            dependencies: jobspec
                .dependencies()
                .iter()
                .map(|dependency| (dependency.scheme.clone(), dependency.value.clone()))
                .collect(),
        }
    }
}

/// How far the talk with the scheduler has come (RFC 27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alloc {
    /// Nothing asked for.
    Idle,
    /// In the queue of jobs to ask for.
    Queued,
    /// `sched.alloc` is outstanding.
    Requested,
    /// `sched.alloc` is outstanding and `sched.cancel` was sent to make room for a more urgent job.
    Canceling,
    /// Holds resources.
    Allocated,
    /// Held resources, and gave all of them back.
    Freed,
}

/// How far the talk with the execution service has come (RFC 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exec {
    /// Not to be started yet.
    Idle,
    /// To be started as soon as there is a service.
    Waiting,
    /// `start` was sent; responses are expected until the final release.
    Requested,
    /// The final release has come, or nothing was ever started.
    Released,
}

/// What the service that a job was last given to has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// Nobody has asked it.
    Unasked,
    /// Neither `start` nor `reattached` yet; the job's tasks may run all the same.
    Nothing,
    /// The job runs.
    Started,
    /// The job has finished; releases are to come.
    Finished,
}

/// How far a hook of the site, prolog or epilog, has come for a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookStage {
    /// Not begun.
    #[default]
    Idle,
    /// Its start was logged, its finish was not.
    Begun,
    /// Its finish was logged.
    Done,
}

/// An exception as its event tells it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exception {
    /// Type, such as `cancel`.
    pub kind: String,
    /// 0 (fatal) to 7.
    pub severity: i64,
    /// For people.
    pub note: String,
    /// What the job's status is to be (RFC 32), where it says so.
    pub wait_status: Option<i32>,
}

/// A job and its history so far.
#[derive(Debug)]
pub struct Job {
    /// FLUID (RFC 19).
    pub id: u64,
    /// Owner.
    pub userid: u32,
    /// 0 to 31 (RFC 30).
    pub urgency: u8,
    /// 0 (held) to 4294967295.
    pub priority: u32,
    /// A priority that was assigned in place of the one that the urgency stands for.
    pub assigned: Option<u32>,
    /// Flags of the submission.
    pub flags: u32,
    /// RFC 21 state.
    pub state: State,
    /// The request.
    pub spec: Arc<Spec>,
    /// Events logged so far.
    pub events: u32,
    /// Times of entering states, seconds since the epoch; 0 where that has not happened.
    pub t_submit: f64,
    /// Entered DEPEND.
    pub t_depend: f64,
    /// Entered RUN.
    pub t_run: f64,
    /// Entered CLEANUP.
    pub t_cleanup: f64,
    /// Entered INACTIVE.
    pub t_inactive: f64,
    /// Dependencies not yet satisfied, by description.
    pub waits_for: BTreeSet<String>,
    /// The scheduler's and others' annotations.
    pub annotations: Map<String, Value>,
    /// What was put on record with the job (`memo`).
    pub memo: Option<Box<Map<String, Value>>>,
    /// Resources, from the commit of R on.
    pub r: Option<Arc<ResourceSet>>,
    /// Ranks already given back.
    pub freed: IdSet,
    /// Ranks that the execution service has released, and that the epilog still needs.
    pub kept: IdSet,
    /// The talk with the scheduler.
    pub alloc: Alloc,
    /// The talk with the execution service.
    pub exec: Exec,
    /// Whether the last start request asked for `reattach`; none was sent since the daemon began.
    pub asked: Option<bool>,
    /// Answers of the execution service to the last start request.
    pub answered: Answered,
    /// The prolog.
    pub prolog: HookStage,
    /// The epilog: from its start to its finish nothing is given back.
    pub epilog: HookStage,
    /// The `start` event was logged.
    pub started: bool,
    /// Greatest wait status, from the `finish` event.
    pub status: Option<i32>,
    /// The first fatal exception, else the first of any severity.
    pub exception: Option<Exception>,
    /// Those who wait for the job's end have been told of it.
    pub announced: bool,
    /// Why it is not given to the scheduler while it is in SCHED: its queue is stopped.
    pub stopped: Option<Arc<str>>,
    /// The time limit was changed while the scheduler had the request with the old one.
    pub outdated: bool,
    /// Its part in flexible allocations, where it has one.
    pub flex: Option<Box<Flex>>,
}

impl Job {
    /// A job before its first event.
    pub fn new(id: u64, userid: u32, spec: Arc<Spec>) -> Self {
        Self {
            id,
            userid,
            urgency: 16,
            priority: 0,
            assigned: None,
            flags: 0,
            state: State::New,
            spec,
            events: 0,
            t_submit: 0.0,
            t_depend: 0.0,
            t_run: 0.0,
            t_cleanup: 0.0,
            t_inactive: 0.0,
            waits_for: BTreeSet::new(),
            annotations: Map::new(),
            memo: None,
            r: None,
            freed: IdSet::new(),
            kept: IdSet::new(),
            alloc: Alloc::Idle,
            exec: Exec::Idle,
            asked: None,
            answered: Answered::Unasked,
            prolog: HookStage::Idle,
            epilog: HookStage::Idle,
            started: false,
            status: None,
            exception: None,
            announced: false,
            stopped: None,
            outdated: false,
            flex: None,
        }
    }

    /// Takes an event in: the only way by which a job's facts change, live and in replay.
    pub fn apply(&mut self, event: &Event) {
        self.events = self.events.saturating_add(1);
        match event.name.as_str() {
            "submit" => {
                self.t_submit = event.timestamp;
                let flags = event.integer("flags");
                self.flags = flags.and_then(|it| u32::try_from(it).ok()).unwrap_or(0);
                self.set_urgency(event);
            }
            "urgency" => {
                self.set_urgency(event);
                self.assigned = None;
            }
            "priority" => {
                self.priority = event
                    .integer("priority")
                    .and_then(|priority| u32::try_from(priority).ok())
                    .unwrap_or(0);
                let usual = priority_of(self.urgency);
                self.assigned = (self.priority != usual).then_some(self.priority);
            }
            "memo" => self.note_memo(event),
            "prolog-start" => self.prolog = HookStage::Begun,
            "prolog-finish" => self.prolog = HookStage::Done,
            "epilog-start" => self.epilog = HookStage::Begun,
            "epilog-finish" => self.epilog = HookStage::Done,
            "dependency-add" => {
                if let Some(description) = event.text("description") {
                    self.waits_for.insert(description.to_owned());
                }
            }
            "dependency-remove" => {
                if let Some(description) = event.text("description") {
                    self.waits_for.remove(description);
                }
            }
            "alloc" => {
                self.alloc = Alloc::Allocated;
                let told = event.context.as_ref().and_then(|it| it.get("annotations"));
                if let Some(Value::Object(annotations)) = told {
                    self.annotations.clone_from(annotations);
                }
            }
            "start" => self.started = true,
            "finish" => {
                self.status = event
                    .integer("status")
                    .and_then(|status| i32::try_from(status).ok());
            }
            "release" => self.note_release(event),
            "free" => self.alloc = Alloc::Freed,
            "exception" => self.note_exception(event),
            name if name.starts_with("penstock.") => {
                let flex = self.flex.get_or_insert_default();
                if let Some(ranks) = flex.apply(event, self.r.as_ref()) {
                    self.freed.union_with(&ranks);
                }
            }
            _ => {}
        }
        let next = self.state.after(event);
        if next != self.state {
            self.state = next;
            match next {
                State::Depend => self.t_depend = event.timestamp,
                State::Run => self.t_run = event.timestamp,
                State::Cleanup => self.t_cleanup = event.timestamp,
                State::Inactive => self.t_inactive = event.timestamp,
                State::New | State::Priority | State::Sched => {}
            }
        }
    }

    fn set_urgency(&mut self, event: &Event) {
        if let Some(urgency) = event
            .integer("urgency")
            .and_then(|it| u8::try_from(it).ok())
        {
            self.urgency = urgency.min(31);
        }
    }

    /// Unlike annotations, a memo is not merged in depth: a key is replaced whole.
    fn note_memo(&mut self, event: &Event) {
        if let Some(update) = &event.context {
            let mut memo = self.memo.take().unwrap_or_default();
            for (key, value) in update {
                if value.is_null() {
                    memo.shift_remove(key);
                } else {
                    memo.insert(key.clone(), value.clone());
                }
            }
            self.memo = (!memo.is_empty()).then_some(memo);
        }
    }

    fn note_release(&mut self, event: &Event) {
        // What is released before the epilog has ended is given back after it.
        let context = event.context.as_ref();
        let is = |key| context.and_then(|it| it.get(key)) == Some(&Value::Bool(true));
        // Older logs have the epilog's start before, and no `kept`.
        let released = if is("kept") || self.epilog == HookStage::Begun {
            &mut self.kept
        } else {
            &mut self.freed
        };
        match event.text("ranks") {
            Some("all") => {
                if let Some(r) = &self.r {
                    released.union_with(&r.ranks());
                }
            }
            Some(ranks) => {
                if let Ok(ranks) = ranks.parse() {
                    released.union_with(&ranks);
                }
            }
            None => {}
        }
        if is("final") {
            self.exec = Exec::Released;
        }
    }

    fn note_exception(&mut self, event: &Event) {
        let exception = Exception {
            kind: event.text("type").unwrap_or("unknown").to_owned(),
            severity: event.integer("severity").unwrap_or(0),
            note: event.text("note").unwrap_or("").to_owned(),
            wait_status: event
                .integer("wait_status")
                .and_then(|status| i32::try_from(status).ok()),
        };
        let known = self.exception.as_ref().map(|known| known.severity);
        if known.is_none_or(|known| known != 0 && exception.severity == 0) {
            self.exception = Some(exception);
        }
        // RFC 27: annotations are volatile until an allocation; without one they go.
        if event.integer("severity") == Some(0) && self.alloc != Alloc::Allocated {
            self.annotations.clear();
        }
    }

    /// The request that the job stands for: it has no tasks.
    pub fn requested(&self) -> Option<&Requested> {
        self.flex.as_ref()?.requested.as_ref()
    }

    /// All that it has: its own R, less what it gave back, with what it was granted.
    pub fn extent(&self) -> Option<&Arc<ResourceSet>> {
        let flex = self.flex.as_ref().and_then(|it| it.extent.as_ref());
        flex.or(self.r.as_ref())
    }

    /// Whether the first exception was fatal.
    pub fn fatal(&self) -> Option<&Exception> {
        self.exception.as_ref().filter(|it| it.severity == 0)
    }

    /// How the job ended, where it did.
    pub fn result(&self) -> Option<JobResult> {
        if self.state != State::Inactive {
            return None;
        }
        Some(
            match self.fatal().map(|exception| exception.kind.as_str()) {
                Some("cancel") => JobResult::Canceled,
                Some("timeout") => JobResult::Timeout,
                None if self.status == Some(0) => JobResult::Completed,
                _ => JobResult::Failed,
            },
        )
    }

    /// What a shell would see as the job's exit code: 0 to 255, or 128 + signal.
    pub fn returncode(&self) -> Option<i32> {
        let status = self.status?;
        let signal = status & 0x7f;
        Some(if signal == 0 {
            (status >> 8) & 0xff
        } else {
            128 + signal
        })
    }
}
