//! The PMI server of a job (RFC 13), a process that the reaper starts before the tasks.
//!
//! The reaper makes the server's socket, and connects each task to it: a task has its connection before it executes its
//! program, whatever the server has done by then. So the service need not wait for the server. The server outlives service
//! and instance as tasks do, and is killed with what is left of the job when the tasks have ended.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use penstock_imp::PMI_DESCRIPTOR;
use penstock_jobspec::TaskPlacement;
use penstock_pmi::{Placement, Program};

use super::guests::Admitted;
use crate::EnvironmentBlock;
use crate::error::Note;
use crate::protocol::{Group, Input, Output, Pmi, Relay, TaskSpec};
use crate::types::{CgroupLimits, JobId, TaskId, TaskRank, WaitStatus};

/// The rank under which the reaper has the process of a server.
pub const PMI_SERVER_RANK: TaskRank = TaskRank(u32::MAX - 1);

/// The exit code of a server whose program a task has aborted.
pub const PMI_ABORT_EXIT_CODE: u8 = 3;
/// The exit code of a server of which a task has violated the protocol.
pub const PMI_VIOLATION_EXIT_CODE: u8 = 4;

/// The server's program, an option of this one.
const PROGRAM: &str = "penstock-exec";
const OPTION: &[u8] = b"--serve-pmi";

/// The server makes no files.
const PMI_SERVER_UMASK: u32 = 0o077;

/// The socket of the PMI server of a job.
pub fn pmi_socket(sockets: &Path, job: JobId) -> PathBuf {
    sockets.join(job.get().to_string())
}

/// The variables of a task that has a server.
pub(super) fn pmi_variables<'a>(rank: &'a str, size: &'a str) -> [(&'a [u8], &'a [u8]); 3] {
    const DESCRIPTOR: &str = "4";
    const { assert!(PMI_DESCRIPTOR == 4) };
    [
        ("PMI_FD", DESCRIPTOR),
        ("PMI_RANK", rank),
        ("PMI_SIZE", size),
    ]
    .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}

/// The PMI server of a job that is planned.
pub(super) struct PmiServer {
    job: JobId,
    socket: CString,
    program: Program,
}

impl PmiServer {
    pub(super) fn new(job: JobId, tasks: &[TaskPlacement], sockets: &Path) -> Result<Self, Note> {
        let size = u32::try_from(tasks.len()).map_err(|_| "too many tasks")?;
        let placement = Placement::new(tasks.iter().map(|task| task.node_index));
        // RFC 19 has this ASCII form of an id.
        let name = job.f58_plain();
        Ok(Self {
            job,
            socket: text(pmi_socket(sockets, job).as_os_str())?,
            program: Program::new(size, &name, &placement),
        })
    }

    /// The part of a task.
    pub(super) fn client(&self) -> Pmi {
        Pmi::Client(self.socket.clone())
    }

    /// The process as a task for the reaper: a program in this directory, with this output for its error messages.
    pub(super) fn process(
        &self,
        cgroup_limits: CgroupLimits,
        guest: Option<Admitted>,
        programs: &Path,
        stderr: Output,
    ) -> Result<TaskSpec, Note> {
        let program = programs.join(PROGRAM);
        let (size, name) = (self.program.size.to_string(), &self.program.kvsname);
        let values = self.program.values.iter();
        let values = values.map(|(key, value)| format!("{key}={value}"));
        let words = [size, name.clone()].into_iter().chain(values);
        let words = words.map(|word| text(OsStr::new(&word)));
        let mut arguments = vec![text(program.as_os_str())?, text(OsStr::from_bytes(OPTION))?];
        for word in words {
            arguments.push(word?);
        }
        Ok(TaskSpec {
            task: TaskId {
                job: self.job,
                rank: PMI_SERVER_RANK,
            },
            arguments,
            environment: EnvironmentBlock::default(),
            directory: CString::from(c"/"),
            stdin: Input::Null,
            stdout: Output::Null,
            stderr,
            relay: Relay::None,
            cpus: Vec::new(),
            limits: Vec::new(),
            cgroup_limits,
            umask: PMI_SERVER_UMASK,
            group: Group::Session,
            guest: guest.map(Admitted::task),
            pmi: Pmi::Server(self.socket.clone()),
        })
    }
}

fn text(word: &OsStr) -> Result<CString, Note> {
    CString::new(word.to_os_string().into_vec())
        .map_err(|_| Note::from("PMI server: a path has a zero byte"))
}

/// The exception of a job whose server has ended before the tasks, type and note; `None` if it has had all connections.
pub(super) fn end_exception(status: WaitStatus) -> Option<(&'static str, &'static str)> {
    match status {
        // The statuses of the tasks are lost, too.
        WaitStatus::Exited(0) | WaitStatus::Unknown => None,
        WaitStatus::Exited(PMI_ABORT_EXIT_CODE) => {
            Some(("abort", "a task has aborted the job by PMI"))
        }
        WaitStatus::Exited(PMI_VIOLATION_EXIT_CODE) => Some((
            "pmi",
            "a task has violated the PMI protocol: the job's standard error has the reason",
        )),
        WaitStatus::Exited(_) | WaitStatus::Signaled { .. } => {
            Some(("pmi", "the job's PMI server has ended before the tasks"))
        }
    }
}

/// The note of the exception of a job whose server's program cannot be executed.
pub(super) fn program_note(reason: &str) -> String {
    format!("the job's PMI server, `{PROGRAM}`, cannot be executed: {reason}")
}
