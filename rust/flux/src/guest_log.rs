//! RFC 24: standard input and output of a job as events, and the events of its execution (`guest.exec.eventlog`).

use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};

use crate::payload::{Payload, Text};

/// The first event of a log of standard streams.
pub const HEADER: &str = "header";
/// Data of one stream, or its end.
pub const DATA: &str = "data";
/// A message about the job's streams.
pub const LOG: &str = "log";
/// A stream goes to a file, or comes from one.
pub const REDIRECT: &str = "redirect";

/// The version of the format.
pub const VERSION: u32 = 1;

/// The encoding of data that is not UTF-8.
pub const BASE64: &str = "base64";

/// A value for each output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams<T> {
    /// Of standard output.
    pub stdout: T,
    /// Of standard error.
    pub stderr: T,
}

/// The context of `header`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// The encoding of data without one of its own.
    pub encoding: Streams<&'static str>,
    /// The number of streams.
    pub count: Streams<u64>,
    /// Options of the shell: none.
    pub options: NoOptions,
}

/// A value for standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InputStream<T> {
    /// The value.
    pub stdin: T,
}

/// The context of `header` in a log of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InputHeader {
    /// [`VERSION`].
    pub version: u32,
    /// The encoding of data without one of its own.
    pub encoding: InputStream<&'static str>,
    /// The number of streams.
    pub count: InputStream<u64>,
    /// Options of the shell: none.
    pub options: NoOptions,
}

impl Default for InputHeader {
    fn default() -> Self {
        Self {
            version: VERSION,
            encoding: InputStream { stdin: "UTF-8" },
            count: InputStream { stdin: 1 },
            options: NoOptions {},
        }
    }
}

/// The context of `log`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine<'a> {
    /// The severity (RFC 5424).
    pub level: u8,
    /// The text.
    #[serde(borrow)]
    pub message: Text<'a>,
}

/// An empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NoOptions {}

impl Header {
    /// The header for a number of tasks.
    pub fn new(ntasks: u64) -> Self {
        Self {
            version: VERSION,
            encoding: Streams {
                stdout: "UTF-8",
                stderr: "UTF-8",
            },
            count: Streams {
                stdout: ntasks,
                stderr: ntasks,
            },
            options: NoOptions {},
        }
    }
}

/// The context of `data`, and the payload of a request for standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Data<'a> {
    /// `stdin`, `stdout` or `stderr`.
    #[serde(borrow)]
    pub stream: Text<'a>,
    /// The ranks of the tasks as an idset, or `all`.
    #[serde(borrow)]
    pub rank: Text<'a>,
    /// `base64` if the data is encoded.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Text<'a>>,
    /// The data.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Text<'a>>,
    /// Whether the stream has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eof: Option<bool>,
}

/// The context of `redirect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Redirect<'a> {
    /// `stdin`, `stdout` or `stderr`.
    pub stream: Text<'a>,
    /// The ranks of the tasks as an idset, or `all`.
    pub rank: Text<'a>,
    /// The file.
    pub path: Text<'a>,
}

/// The execution is prepared.
pub const INIT: &str = "init";
/// The tasks are being started.
pub const STARTING: &str = "starting";
/// Standard streams can be used.
pub const SHELL_INIT: &str = "shell.init";
/// The tasks run.
pub const SHELL_START: &str = "shell.start";
/// The tasks have ended.
pub const TASKS_COMPLETE: &str = "complete";
/// The execution has ended on all nodes.
pub const EXECUTION_DONE: &str = "done";

/// The topic of an interactive terminal, below the service of the job. Nothing answers there: clients of Flux then read the logs.
pub const TERMINAL: &str = "pty.0";

/// The context of `shell.init`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShellInit {
    /// The rank of the broker that serves the job.
    #[serde(rename = "leader-rank")]
    pub leader_rank: u32,
    /// The number of nodes.
    pub size: u64,
    /// The service that takes standard input: `SERVICE.stdin`.
    pub service: String,
    /// The topic of an interactive terminal below the service: none if the job has no such terminal.
    #[serde(rename = "pty", skip_serializing_if = "Option::is_none")]
    pub terminal: Option<&'static str>,
}

/// The context of `shell.start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShellStart {
    /// The nodes of the tasks.
    pub taskmap: Taskmap,
}

/// A task map (RFC 34).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Taskmap {
    /// The version of the format.
    pub version: u32,
    /// Blocks: first node, number of nodes, tasks per node, repetitions.
    pub map: Vec<[u64; 4]>,
}

impl Taskmap {
    /// The map of a job whose task ranks ascend from node to node, from the number of tasks on each node of R.
    pub fn new(tasks_by_node: impl IntoIterator<Item = u64>) -> Self {
        let mut map: Vec<[u64; 4]> = Vec::new();
        for (node, tasks) in (0..).zip(tasks_by_node) {
            match map.last_mut() {
                _ if tasks == 0 => {}
                Some([first, nodes, per_node, _])
                    if *per_node == tasks && *first + *nodes == node =>
                {
                    *nodes += 1;
                }
                _ => map.push([node, 1, tasks, 1]),
            }
        }
        Self { version: 1, map }
    }
}

/// The context of `complete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Complete {
    /// The wait status.
    pub status: i32,
}

/// The service that takes the standard input of jobs.
pub const SHELL_SERVICE: &str = "job-shell";

/// The topic of requests about a job's standard input, with `ID` in place of its id in decimal.
pub const STDIN_TOPIC: &str = "job-shell.ID.stdin";

/// The name by which a job's standard input is reached: topics are `NAME.stdin`.
pub fn shell_service(id: JobId) -> String {
    format!("{SHELL_SERVICE}.{}", id.get())
}

/// The job whose standard input a topic names.
///
/// ```
/// use penstock_flux::{JobId, guest_log};
///
/// let name = guest_log::shell_service(JobId::new(7));
/// assert_eq!(guest_log::stdin_of(&format!("{name}.stdin")), Some(JobId::new(7)));
/// assert_eq!(guest_log::stdin_of("job-shell.stdin"), None);
/// ```
pub fn stdin_of(topic: &str) -> Option<JobId> {
    let rest = topic.strip_prefix(SHELL_SERVICE)?.strip_prefix('.')?;
    let id = rest.strip_suffix(".stdin")?;
    let number: u64 = id.parse().ok()?;
    (number.to_string() == id).then_some(JobId::new(number))
}

impl Payload for Data<'_> {}

#[cfg(test)]
mod tests {
    use super::Taskmap;

    #[test]
    fn a_taskmap_joins_nodes_with_equal_numbers_of_tasks() {
        let map = |tasks: &[u64]| Taskmap::new(tasks.iter().copied()).map;
        assert_eq!(map(&[]), Vec::<[u64; 4]>::new());
        assert_eq!(map(&[1]), [[0, 1, 1, 1]]);
        assert_eq!(map(&[2, 2, 1]), [[0, 2, 2, 1], [2, 1, 1, 1]]);
        assert_eq!(map(&[0, 2, 0, 2, 2]), [[1, 1, 2, 1], [3, 2, 2, 1]]);
    }
}
