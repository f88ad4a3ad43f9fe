//! Texts about tasks that could not be started.

use std::ffi::CString;

use super::job::{Job, Task, TaskState};
use super::plan::{self, Plan};
use super::pmi_server;
use crate::protocol::{Guest, Input, Output, TaskSpec};
use crate::types::{SpawnFailure, Step, TaskRank};

/// Names the program and the files of a failed task in the exception of a job, if that was raised without the plan.
pub(super) fn complete_note(job: &mut Job, plan: &Plan) {
    let note = |plan: Option<&Plan>| match (job.setup_failure(), job.exec_failure()) {
        (Some(failure), _) => Some(setup_note(failure, plan, job)),
        (None, Some((rank, failure))) => Some(exec_note(rank, failure, plan)),
        (None, None) => None,
    };
    let (without_plan, completed) = (note(None), note(Some(plan)));
    if let Some(completed) = completed
        && let Some((_, note)) = &mut job.exception
        && without_plan.as_ref() == Some(note)
    {
        *note = completed;
    }
}

/// The note of the exception of a job of which a program could not be executed: of the first task with that failure.
pub(super) fn exec_note(rank: TaskRank, failure: SpawnFailure, plan: Option<&Plan>) -> String {
    let spec = plan.and_then(|plan| plan.specs.get(rank.0 as usize));
    let program = spec.and_then(|spec| spec.arguments.first());
    let program = program.map_or("program".into(), |program| program.to_string_lossy());
    let (rank, reason) = (rank.0, strerror(failure.errno));
    format!("task {rank}: start failed: {program}: {reason}")
}

/// The note of the exception of a job of which a task could not be set up.
pub(super) fn setup_note(failure: SpawnFailure, plan: Option<&Plan>, job: &Job) -> String {
    let is_this = |task: &Task| task.state == TaskState::Failed(failure);
    let rank = job.tasks.iter().find(|(_, task)| is_this(task));
    let spec = rank.and_then(|(rank, _)| plan?.specs.get(rank.0 as usize));
    let reason = strerror(failure.errno);
    let write = |path: Option<&CString>| {
        let reason = if failure.errno == libc::ENXIO {
            "a FIFO without a reader"
        } else if failure.errno == libc::EOPNOTSUPP {
            "expected a regular file"
        } else {
            reason.as_str()
        };
        match path {
            Some(path) => format!("cannot write `{}`: {reason}", path.to_string_lossy()),
            None => format!("cannot open the output: {reason}"),
        }
    };
    // Stored output of a guest is the owner's file.
    let stores = |is_named: fn(&Guest) -> bool| {
        let guest = spec.and_then(|spec| spec.guest.as_ref());
        guest.is_some_and(|guest| !is_named(guest))
    };
    let stdout = |spec: &TaskSpec| match &spec.stdout {
        Output::Append(path) | Output::Truncate(path) => Some(path.clone()),
        _ => None,
    };
    let stdin = |spec: &TaskSpec| match &spec.stdin {
        Input::File(path) => Some(path.clone()),
        Input::Null | Input::Pipe => None,
    };
    match failure.step {
        Step::Stdin => match spec.and_then(stdin) {
            Some(path) => format!("cannot read `{}`: {reason}", path.to_string_lossy()),
            None => format!("cannot open the input: {reason}"),
        },
        Step::Chdir => {
            let path = spec.map(|spec| spec.directory.to_string_lossy().into_owned());
            let path = path.unwrap_or_default();
            if matches!(failure.errno, libc::ENOENT | libc::ENOTDIR) {
                format!("working directory `{path}` does not exist")
            } else {
                format!("cannot enter working directory `{path}`: {reason}")
            }
        }
        Step::Stdout if stores(|guest| guest.names_stdout) => store_note(&reason),
        Step::Stderr if stores(|guest| guest.names_stderr) => store_note(&reason),
        Step::Stdout => write(spec.and_then(stdout).as_ref()),
        Step::Stderr => write(spec.and_then(plan::error_path)),
        Step::Bind => format!("cannot bind a task to its cores: {reason}"),
        Step::Limit => format!("cannot set the resource limits: {reason}"),
        Step::Account => format!("cannot find the account of the job's user: {reason}"),
        Step::Identity => format!("cannot become the job's user: {reason}"),
        Step::Cgroup if failure.errno == libc::EOPNOTSUPP => {
            "cannot enforce the job's limits: the execution service may not make cgroups".into()
        }
        Step::Cgroup => format!("cannot make the job's cgroup: {reason}"),
        Step::MemoryLimit => unenforceable("memory", failure.errno),
        Step::PidsLimit => unenforceable("pids", failure.errno),
        Step::CpuLimit => unenforceable("cpu", failure.errno),
        Step::Pmi => format!("cannot connect a task to its PMI server: {reason}"),
        Step::Record => format!("cannot record the start of a task: {reason}"),
        _ => format!("cannot start a task: {reason}"),
    }
}

fn store_note(reason: &str) -> String {
    format!("cannot store the output: {reason}")
}

fn unenforceable(limit: &str, errno: i32) -> String {
    let reason = if errno == libc::EOPNOTSUPP {
        format!("the cgroup controller `{limit}` is not available")
    } else {
        strerror(errno)
    };
    format!("cannot enforce the limit `{limit}`: {reason}")
}

/// The exception of a job whose PMI server does not serve its tasks, type and note; `None` if it does, or has done it.
pub(super) fn pmi_exception(job: &Job) -> Option<(&'static str, String)> {
    match job.pmi_process.as_ref()?.state {
        TaskState::Failed(failure) if failure.step == Step::Exec => {
            Some(("pmi", pmi_server::program_note(&strerror(failure.errno))))
        }
        TaskState::Failed(failure) => Some(("exec", setup_note(failure, None, job))),
        TaskState::Ended(status) => {
            let exception = pmi_server::end_exception(status);
            exception.map(|(kind, note)| (kind, note.to_owned()))
        }
        _ => None,
    }
}

/// The text of an error number, without the number.
fn strerror(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text.get(..end).unwrap_or_default().to_owned()
}
