//! The process of a job's PMIx server.
//!
//! The reaper starts it before the job's tasks, as a task of a rank that no task has. It outlives service and instance as
//! tasks do, and is killed with what is left of the job when the tasks have ended.

use std::ffi::CString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use penstock_imp::DEFAULT_PATH;

use super::effect::Stream;
use super::guests::{self, Admitted};
use super::plan::{TaskContext, retained_file};
use crate::error::Note;
use crate::protocol::{Group, Input, Output, Pmi, Relay, TaskSpec};
use crate::types::{CgroupLimits, JobId, SpawnFailure, Step, TaskId, TaskRank};

/// The rank under which the reaper has the process of a server.
pub const PMIX_SERVER_RANK: TaskRank = TaskRank(u32::MAX);

/// The server's program.
const PROGRAM: &str = "penstock-pmix";

/// The server's files are the user's alone.
const PMIX_SERVER_UMASK: u32 = 0o077;

/// The process of the server of a job.
pub(super) struct ServerProcess<'a> {
    pub(super) job: JobId,
    pub(super) directory: &'a Path,
    /// The job's limits hold for it, too.
    pub(super) cgroup_limits: CgroupLimits,
    /// The job's user, if that is a guest.
    pub(super) guest: Option<Admitted>,
    /// Whether output of the job is retained, up to a limit.
    pub(super) is_output_retained: bool,
}

impl ServerProcess<'_> {
    /// The process as a task for the reaper.
    pub(super) fn task(&self, task_context: &TaskContext) -> Result<TaskSpec, Note> {
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| Note::from("PMIx server: a path has a zero byte"))
        };
        let mut environment = match self.guest {
            Some(_) => guests::environment(),
            None => task_context.environment.clone(),
        };
        let path = environment.remove(b"PATH".as_slice());
        let path = path.unwrap_or_else(|| DEFAULT_PATH.to_vec());
        let programs = task_context.programs.as_os_str().as_bytes();
        environment.insert(b"PATH".to_vec(), [&path, programs].join(&b':'));
        // As tasks have it.
        let uri = task_context.uri.as_bytes().to_vec();
        environment.insert(b"PENSTOCK_URI".to_vec(), uri);
        let id = self.job.f58().into_bytes();
        environment.insert(b"PENSTOCK_JOB_ID".to_vec(), id);
        let entry = |(name, value): (Vec<u8>, Vec<u8>)| text(&[name, value].join(&b'='));
        let words = [
            PROGRAM.as_bytes(),
            b"--directory",
            self.directory.as_os_str().as_bytes(),
        ];
        Ok(TaskSpec {
            task: TaskId {
                job: self.job,
                rank: PMIX_SERVER_RANK,
            },
            arguments: words.into_iter().map(text).collect::<Result<_, _>>()?,
            environment: environment
                .into_iter()
                .map(entry)
                .collect::<Result<_, _>>()?,
            directory: CString::from(c"/"),
            stdin: Input::Null,
            stdout: Output::Null,
            stderr: self.stderr(task_context)?,
            relay: Relay::None,
            cpus: Vec::new(),
            limits: Vec::new(),
            cgroup_limits: self.cgroup_limits,
            umask: PMIX_SERVER_UMASK,
            group: Group::Session,
            guest: self.guest.map(Admitted::task),
            pmi: Pmi::None,
        })
    }

    /// The file of its error messages. A guest's processes may write to it as they like: the limit of the job's output
    /// holds for it.
    fn stderr(&self, task_context: &TaskContext) -> Result<Output, Note> {
        let path = match self.guest {
            None => task_context.pmix_log.clone(),
            Some(_) if self.is_output_retained => {
                retained_file(&task_context.output, self.job, Stream::Stderr)
            }
            Some(_) => return Ok(Output::Null),
        };
        let path = CString::new(path.into_os_string().into_vec());
        let path = path.map_err(|_| Note::from("PMIx server: a path has a zero byte"))?;
        Ok(Output::Append(path))
    }
}

/// The note of the exception of a job whose server's program cannot be executed; `None` if the process could not be set
/// up, as that of any task.
pub(super) fn program_note(failure: SpawnFailure) -> Option<String> {
    if failure.step != Step::Exec {
        return None;
    }
    Some(if failure.errno == libc::ENOENT {
        format!(
            "the job requests PMIx, and there is no `{PROGRAM}` in `PATH`\nhint: `make pmix` builds it where libpmix-dev \
             is installed"
        )
    } else {
        let reason = std::io::Error::from_raw_os_error(failure.errno);
        format!("the job requests PMIx, and `{PROGRAM}` cannot be executed: {reason}")
    })
}
