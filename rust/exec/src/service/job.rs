//! A job of the service: its tasks, and the conversation with the job manager about it.

use std::collections::BTreeMap;
use std::rc::Rc;

use penstock_flux::exec::{
    Exception, ExecEvent, Finish, Release, ReleasedRanks, ResourceUsage, exit_status,
};
use penstock_flux::{StartReport, TypedPayload};
use penstock_idset::IdSet;
use penstock_wire::Message;

use super::effect::OutputPlace;
use super::guests::Admitted;
use super::job_directory::DirectoryOwner;
use super::journal::Intent;
use super::parsed_jobspec::ParsedJobspec;
use super::plan::Plan;
use super::pmix_server::PmixServer;
use super::shell_options::{StatusForm, Warning};
use crate::error::Note;
use crate::types::{JobId, ProcessId, SpawnFailure, Step, TaskRank, Usage, WaitStatus};

/// The severity of the exceptions that tell why a job does not start, or does not continue.
pub(super) const HELD_SEVERITY: i64 = 3;
/// The wait status of a task whose program does not exist, as of a shell.
const NOT_FOUND_STATUS: i32 = 127 << 8;
/// The wait status of a task whose program cannot be executed.
const NOT_EXECUTABLE_STATUS: i32 = 126 << 8;
/// Characters of the note of an exception: it may repeat values of the jobspec.
const MAX_NOTE_CHARACTERS: usize = 2000;

/// The progress of the answers to a start request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Answered {
    Nothing,
    /// `start` or `reattached`.
    Started,
    Finished,
    /// The final release.
    Released,
}

/// The version of RFC 32 that a job manager speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    /// Without R in the start request, and without `reattached`.
    First,
    Current,
}

/// The kind of a start request: whether the job may be running already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attachment {
    /// The job has not been started by another service.
    New,
    /// The job may be running already.
    Reattach,
    /// The job may be running already, if the journal has a record of it.
    ReattachByJournal,
    /// The request has `reattach`, but no task had been started before it.
    Restart,
}

/// A start request that is being answered.
#[derive(Debug)]
pub(super) struct OutstandingStart {
    /// The request without its payload.
    pub(super) request: Message,
    pub(super) attachment: Attachment,
    pub(super) version: Version,
    /// The jobspec, until R is known.
    pub(super) awaiting_r: Option<Rc<ParsedJobspec>>,
    pub(super) answered: Answered,
    /// Whether a fatal exception has occurred, raised by the service or by others.
    pub(super) is_failed: bool,
    /// The wait status that the first fatal exception of others has set.
    pub(super) wait_status: Option<i32>,
    /// The execution targets that the job has released and this request has not got the release of.
    pub(super) shrunk: IdSet,
    is_exception_sent: bool,
}

impl OutstandingStart {
    pub(super) fn new(request: Message, attachment: Attachment, version: Version) -> Self {
        Self {
            request,
            attachment,
            version,
            awaiting_r: None,
            answered: Answered::Nothing,
            is_failed: false,
            wait_status: None,
            shrunk: IdSet::new(),
            is_exception_sent: false,
        }
    }
}

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskState {
    /// In the journal, but in no reaper.
    Missing,
    /// A reaper has been requested to start it.
    Requested,
    Running(ProcessId),
    Failed(SpawnFailure),
    /// It is not to be started, because the job ends.
    Abandoned,
    Ended(WaitStatus),
}

/// The end of a task whose execution target the job has released.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shrink {
    /// The job has its execution target.
    No,
    /// The journal is to record it.
    Recording,
    /// The journal has a record: the task is to end.
    Due,
    /// SIGTERM has been sent; every process of the task is killed when it has ended, or at this time.
    Terminating(f64),
    /// Every process has been killed; a process that is left is killed again at this time.
    Killed(f64),
    /// No process of the task is left.
    Gone,
}

/// The starts of the tasks that the connected reaper has been requested to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Starts {
    Intended,
    /// It has been requested to start no more of them.
    Cancelled,
}

/// A task.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) state: TaskState,
    /// Its resource usage, once it has ended.
    pub(super) usage: Option<Usage>,
    /// Its end, if the job has released its execution target.
    pub(super) shrink: Shrink,
    /// Whether the connected reaper has reported it.
    pub(super) is_seen: bool,
}

impl Task {
    pub(super) fn new(state: TaskState) -> Self {
        Self {
            state,
            usage: None,
            shrink: Shrink::No,
            is_seen: false,
        }
    }

    /// Whether the job has released its execution target: its status does not count.
    pub(super) fn is_shrunk(&self) -> bool {
        self.shrink != Shrink::No
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, TaskState::Running(_))
    }
}

/// The connected reaper's knowledge of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It does not know the job.
    Absent,
    /// It may have processes.
    Busy,
    /// No process is left.
    Empty,
}

/// The directory of a job, as this service knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryState {
    /// An earlier service may have made it.
    Unknown,
    /// It is being made.
    Requested,
    /// It is there, with its files.
    Made,
}

/// The end of a job's tasks by the service.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Ending {
    None,
    /// SIGTERM has been sent; SIGKILL follows at this time.
    Terminating(f64),
    /// Every process has been killed; a process that is left is killed again at this time.
    Killed(f64),
}

/// The condition of a job's next step that comes from its retained output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputCondition {
    None,
    /// The step waits for the end of the count of all files with this number, which shows whether its user is above the limit.
    Count(u64),
    /// The job ends because of it.
    Exceeded,
}

/// A job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) outstanding_start: Option<OutstandingStart>,
    /// The record in the journal, unless the job was never handed to a reaper.
    pub(super) intent: Option<Intent>,
    /// Whether that record is on its way to the journal, and the start waits for it.
    pub(super) is_intent_pending: bool,
    pub(super) tasks: BTreeMap<TaskRank, Task>,
    /// The tasks to start, until every one has started or failed.
    pub(super) plan: Option<Plan>,
    /// Why there is no plan.
    pub(super) plan_error: Option<Note>,
    pub(super) redirected_to: Option<String>,
    pub(super) is_output_retained: bool,
    pub(super) warning: Option<Warning>,
    pub(super) status_form: StatusForm,
    /// Its PMIx server, if it needs one.
    pub(super) pmix: Option<PmixServer>,
    /// The process of that server. It is no task of the job.
    pub(super) pmix_process: Option<Task>,
    /// The process of its PMI server, which is no task of the job either.
    pub(super) pmi_process: Option<Task>,
    pub(super) presence: Presence,
    pub(super) ending: Ending,
    /// The fatal exception that the service has raised: type and note.
    pub(super) exception: Option<(&'static str, String)>,
    /// The end of the allocation; 0 for none.
    pub(super) expiration: f64,
    /// The signals of users that are to be sent when every task has been requested from the reaper, without repetition.
    pub(super) unsent_signals: Vec<u32>,
    /// When the size of its retained output is checked next.
    pub(super) measure_at: Option<f64>,
    /// The size of its retained output when it was checked last, in bytes.
    pub(super) output_bytes: u64,
    /// The place of its retained output; `None` for a job of an earlier service whose output was not checked yet.
    pub(super) output_place: Option<OutputPlace>,
    /// The growth in a period of that place.
    pub(super) output_growth: PeriodBytes,
    /// The most bytes of that which the reaper had in flight while there was no room.
    pub(super) held_output: PeriodBytes,
    pub(super) output_condition: OutputCondition,
    /// The number of the last shortage of space of which an exception has told.
    pub(super) told_shortage: u64,
    /// When a start that has failed for lack of space is repeated, at the earliest; `None` if none has.
    pub(super) repeat_at: Option<f64>,
    /// The time between the last two of these starts, in seconds.
    pub(super) repeat_interval: f64,
    /// Its user, if that is a guest.
    pub(super) guest: Option<Admitted>,
    /// The user of the directory that its plan has.
    pub(super) directory: Option<DirectoryOwner>,
    pub(super) directory_state: DirectoryState,
    /// The processes that the memory limit has ended.
    pub(super) oom_kills: u64,
    /// Bytes of output that the reaper has dropped.
    pub(super) dropped_output: u64,
    /// Whether another service runs the jobs now.
    pub(super) is_replaced: bool,
    pub(super) starts: Starts,
}

/// Bytes that are added up in a period of a file system.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct PeriodBytes {
    period: u64,
    bytes: u64,
}

impl PeriodBytes {
    pub(super) fn new(period: u64, bytes: u64) -> Self {
        Self { period, bytes }
    }

    /// The bytes in this period.
    pub(super) fn in_period(self, period: u64) -> u64 {
        if self.period == period { self.bytes } else { 0 }
    }
}

impl Job {
    pub(super) fn new(intent: Option<Intent>) -> Self {
        let mut tasks = BTreeMap::new();
        let output_place = intent.is_none().then_some(OutputPlace::Present);
        if let Some(intent) = &intent {
            for (rank, target) in (0..).zip(&intent.targets) {
                let mut task = Task::new(TaskState::Missing);
                if intent.shrunk.contains(target) {
                    task.shrink = Shrink::Due;
                }
                tasks.insert(TaskRank(rank), task);
            }
        }
        Self {
            outstanding_start: None,
            intent,
            is_intent_pending: false,
            tasks,
            plan: None,
            plan_error: None,
            redirected_to: None,
            is_output_retained: false,
            warning: None,
            status_form: StatusForm::Wait,
            pmix: None,
            pmix_process: None,
            pmi_process: None,
            presence: Presence::Absent,
            ending: Ending::None,
            exception: None,
            expiration: 0.0,
            unsent_signals: Vec::new(),
            measure_at: None,
            output_bytes: 0,
            output_place,
            output_growth: PeriodBytes::default(),
            held_output: PeriodBytes::default(),
            output_condition: OutputCondition::None,
            told_shortage: 0,
            repeat_at: None,
            repeat_interval: 0.0,
            guest: None,
            directory: None,
            directory_state: DirectoryState::Unknown,
            oom_kills: 0,
            dropped_output: 0,
            is_replaced: false,
            starts: Starts::Intended,
        }
    }

    /// Whether nothing of the job has been handed to a reaper.
    pub(super) fn is_untouched(&self) -> bool {
        self.intent.is_none() && self.presence == Presence::Absent
    }

    /// Whether it is a guest's.
    pub(super) fn is_guests(&self) -> bool {
        self.guest.is_some()
    }

    /// Whether an earlier service may have started the job.
    pub(super) fn is_reattached(&self) -> bool {
        let start = self.outstanding_start.as_ref();
        start.is_some_and(|start| {
            matches!(
                start.attachment,
                Attachment::Reattach | Attachment::ReattachByJournal
            )
        })
    }

    /// Whether the job is to end.
    pub(super) fn is_failing(&self) -> bool {
        let is_failed = self
            .outstanding_start
            .as_ref()
            .is_some_and(|start| start.is_failed);
        self.exception.is_some() || is_failed || self.is_replaced
    }

    /// Whether the tasks have what PMIx gives them: a server, unless the job needs none.
    pub(super) fn is_pmix_ready(&self) -> bool {
        self.pmix.as_ref().is_none_or(PmixServer::is_running)
    }

    /// The tasks, and the processes of the PMIx and the PMI server.
    pub(super) fn processes_mut(&mut self) -> impl Iterator<Item = &mut Task> {
        let servers = self.pmix_process.iter_mut().chain(&mut self.pmi_process);
        self.tasks.values_mut().chain(servers)
    }

    /// Whether the job has a PMIx or a PMI server, and no task has been started.
    pub(super) fn has_only_servers(&self) -> bool {
        let has_server = self.pmix_process.is_some() || self.pmi_process.is_some();
        has_server && !self.has_started() && !self.has(TaskState::Requested)
    }

    /// Whether no process of the job is left.
    pub(super) fn is_idle(&self) -> bool {
        self.presence != Presence::Busy
    }

    pub(super) fn has(&self, state: TaskState) -> bool {
        self.tasks.values().any(|task| task.state == state)
    }

    pub(super) fn has_running_task(&self) -> bool {
        self.tasks.values().any(Task::is_running)
    }

    /// Whether every task has started and ended, or has failed to start.
    pub(super) fn has_ended(&self) -> bool {
        let has_ended = |task: &Task| {
            matches!(
                task.state,
                TaskState::Failed(_) | TaskState::Abandoned | TaskState::Ended(_)
            )
        };
        self.tasks.values().all(has_ended)
    }

    /// Whether the job manager has not requested the job, and it has no process.
    pub(super) fn is_left_over(&self) -> bool {
        self.outstanding_start.is_none() && self.is_idle() && !self.has(TaskState::Requested)
    }

    pub(super) fn is_released(&self) -> bool {
        let start = self.outstanding_start.as_ref();
        start.is_some_and(|start| start.answered == Answered::Released)
    }

    /// Whether the program of a task was executed, or could not be executed.
    pub(super) fn has_started(&self) -> bool {
        let has_started =
            |task: &Task| matches!(task.state, TaskState::Running(_) | TaskState::Ended(_));
        self.tasks.values().any(has_started) || self.exec_failure().is_some()
    }

    /// The failures to start a task.
    fn failures(&self) -> impl Iterator<Item = SpawnFailure> {
        self.tasks.values().filter_map(|task| match task.state {
            TaskState::Failed(failure) => Some(failure),
            _ => None,
        })
    }

    /// The first task whose program could not be executed, with the failure: the job has a status.
    pub(super) fn exec_failure(&self) -> Option<(TaskRank, SpawnFailure)> {
        self.tasks.iter().find_map(|(rank, task)| match task.state {
            TaskState::Failed(failure) if failure.step == Step::Exec => Some((*rank, failure)),
            _ => None,
        })
    }

    /// The first failure to start a task before its program was executed: the job has no status.
    pub(super) fn setup_failure(&self) -> Option<SpawnFailure> {
        self.failures().find(|failure| failure.step != Step::Exec)
    }

    /// The rank of a task whose wait status is unknown although it counts.
    pub(super) fn unknown_status(&self) -> Option<TaskRank> {
        let unknown = TaskState::Ended(WaitStatus::Unknown);
        let mut tasks = self.tasks.iter();
        tasks
            .find(|(_, task)| task.state == unknown && !task.is_shrunk())
            .map(|(rank, _)| *rank)
    }

    /// The greatest wait status of the tasks that count; `None` if there is none, or if one is unknown.
    pub(super) fn status(&self) -> Option<i32> {
        if self.setup_failure().is_some() || self.unknown_status().is_some() {
            return None;
        }
        let is_ended = |task: &&Task| {
            matches!(task.state, TaskState::Ended(_)) || matches!(task.state, TaskState::Failed(_))
        };
        let mut ended = self.tasks.values().filter(is_ended).peekable();
        ended.peek()?;
        let counted = ended.filter(|task| !task.is_shrunk());
        let status = |task: &Task| match self.status_form {
            StatusForm::Wait => wait_status(task.state),
            StatusForm::Shell => exit_status(wait_status(task.state)) << 8,
        };
        counted.map(status).max().or(Some(0))
    }

    /// When its tasks get the signal before the end of the allocation; `None` if they have got it or there is none.
    pub(super) fn warning_time(&self) -> Option<f64> {
        let warning = self.warning?;
        let warned_of = self.intent.as_ref().and_then(|intent| intent.warned_of);
        let is_pending = self.expiration > 0.0 && warned_of != Some(self.expiration);
        is_pending.then(|| (self.expiration - warning.time_left_s).max(f64::MIN_POSITIVE))
    }

    /// The resource usage of the tasks that have ended, if there is one.
    fn usage(&self) -> Option<ResourceUsage> {
        let usages = self.tasks.values().filter_map(|task| task.usage);
        let usages = usages.map(|usage| ResourceUsage {
            max_rss_kib: usage.max_rss_kib,
            user_us: usage.user_us,
            system_us: usage.system_us,
        });
        usages.reduce(|total, usage| ResourceUsage {
            max_rss_kib: total.max_rss_kib.max(usage.max_rss_kib),
            user_us: total.user_us.saturating_add(usage.user_us),
            system_us: total.system_us.saturating_add(usage.system_us),
        })
    }

    /// The wait statuses of the tasks by their ranks, if they differ. Tasks without a status are left out.
    fn statuses(&self) -> Option<BTreeMap<String, i32>> {
        if self.tasks.len() < 2 {
            return None;
        }
        let mut ranks = BTreeMap::<i32, IdSet>::new();
        for (rank, task) in &self.tasks {
            let has_status = match task.state {
                TaskState::Ended(status) => status != WaitStatus::Unknown,
                TaskState::Failed(failure) => failure.step == Step::Exec,
                _ => false,
            };
            if has_status {
                ranks
                    .entry(wait_status(task.state))
                    .or_default()
                    .insert(rank.0);
            }
        }
        let by_ranks = |(status, ranks): (i32, IdSet)| (ranks.to_string(), status);
        (ranks.len() > 1).then(|| ranks.into_iter().map(by_ranks).collect())
    }

    /// Raises a fatal exception, unless there is one. It is sent with the next answers.
    pub(super) fn fail(&mut self, kind: &'static str, note: impl Into<String>) {
        if self.exception.is_none() {
            let mut note = note.into();
            if let Some((end, _)) = note.char_indices().nth(MAX_NOTE_CHARACTERS) {
                note.truncate(end);
                note.push('…');
            }
            self.exception = Some((kind, note));
        }
    }

    /// Raises a fatal exception because of the job's output.
    pub(super) fn fail_for_output(&mut self, note: String) {
        self.fail("exec", note);
        self.output_condition = OutputCondition::Exceeded;
    }

    /// Sends the service's own exception, if it has not been sent.
    pub(super) fn send_exception(&mut self, id: JobId, out: &mut Vec<Message>) {
        let Some((kind, note)) = &self.exception else {
            return;
        };
        let Some(start) = &mut self.outstanding_start else {
            return;
        };
        if start.is_exception_sent || start.answered == Answered::Released {
            return;
        }
        start.is_exception_sent = true;
        start.is_failed = true;
        let exception = Exception {
            severity: 0,
            kind: (*kind).into(),
            note: note.clone().into(),
            wait_status: None,
        };
        out.push(response(start, id, ExecEvent::Exception(exception)));
    }

    /// Sends an exception that does not end the job, if a start request for the job is being answered.
    pub(super) fn warn(
        &mut self,
        id: JobId,
        kind: &'static str,
        note: String,
        severity: i64,
        out: &mut Vec<Message>,
    ) {
        let start = self.outstanding_start.as_ref();
        if let Some(start) = start.filter(|start| start.answered != Answered::Released) {
            let exception = Exception {
                severity,
                kind: kind.into(),
                note: note.into(),
                wait_status: None,
            };
            out.push(response(start, id, ExecEvent::Exception(exception)));
        }
    }

    /// Answers that the tasks have started, or had been running, unless that has been answered.
    pub(super) fn answer_start(&mut self, id: JobId, out: &mut Vec<Message>) {
        let Some(start) = &mut self.outstanding_start else {
            return;
        };
        if start.answered == Answered::Nothing {
            start.answered = Answered::Started;
            let event = match (start.attachment, start.version) {
                (Attachment::Reattach | Attachment::ReattachByJournal, Version::Current) => {
                    ExecEvent::Reattached
                }
                _ => ExecEvent::Start,
            };
            out.push(response(start, id, event));
        }
    }

    /// Answers which released execution targets no process of the job is left on, if the start has been answered.
    pub(super) fn answer_shrink(&mut self, id: JobId, out: &mut Vec<Message>) {
        let Some(start) = &mut self.outstanding_start else {
            return;
        };
        let is_due = matches!(start.answered, Answered::Started | Answered::Finished);
        if !is_due || start.shrunk.is_empty() {
            return;
        }
        let mut idle = start.shrunk.clone();
        if let Some(intent) = &self.intent {
            for (target, task) in intent.targets.iter().zip(self.tasks.values()) {
                if task.shrink != Shrink::Gone {
                    idle.remove(*target);
                }
            }
        }
        if !idle.is_empty() {
            start.shrunk = start.shrunk.difference(&idle);
            let release = Release {
                ranks: ReleasedRanks::Ranks(idle),
                is_final: false,
            };
            out.push(response(start, id, ExecEvent::Release(release)));
        }
    }

    /// Answers that all tasks have ended with this status, if it is time to.
    pub(super) fn answer_finish(&mut self, id: JobId, status: i32, out: &mut Vec<Message>) {
        let (usage, statuses) = (self.usage(), self.statuses());
        let Some(start) = &mut self.outstanding_start else {
            return;
        };
        let is_due = start.answered == Answered::Started
            || (start.answered == Answered::Nothing && start.is_failed);
        if is_due {
            start.answered = Answered::Finished;
            // RFC 32: the wait status of the first fatal exception, as a shell's exit status.
            let set = start.wait_status.map(|status| exit_status(status) << 8);
            let status = set.unwrap_or(status);
            let finish = Finish {
                status,
                usage,
                statuses,
            };
            out.push(response(start, id, ExecEvent::Finish(finish)));
        }
    }

    /// Answers the final release.
    pub(super) fn answer_release(&mut self, id: JobId, out: &mut Vec<Message>) {
        if let Some(start) = &mut self.outstanding_start {
            start.answered = Answered::Released;
            let release = Release {
                ranks: ReleasedRanks::All,
                is_final: true,
            };
            out.push(response(start, id, ExecEvent::Release(release)));
        }
    }
}

fn wait_status(state: TaskState) -> i32 {
    match state {
        TaskState::Ended(WaitStatus::Exited(code)) => i32::from(code) << 8,
        TaskState::Ended(WaitStatus::Signaled { signal, core }) => {
            i32::from(signal) | if core { 0x80 } else { 0 }
        }
        TaskState::Failed(failure) if failure.step == Step::Exec => exec_status(failure),
        _ => 0,
    }
}

/// The wait status of a task whose program could not be executed.
fn exec_status(failure: SpawnFailure) -> i32 {
    if failure.errno == libc::ENOENT {
        NOT_FOUND_STATUS
    } else {
        NOT_EXECUTABLE_STATUS
    }
}

/// A response to a start request.
fn response(start: &OutstandingStart, id: JobId, event: ExecEvent<'static>) -> Message {
    let report = TypedPayload::StartResponse(StartReport { id, event });
    Message::typed_success_to(&start.request, report).streaming()
}
