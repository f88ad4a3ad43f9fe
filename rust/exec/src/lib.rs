//! The reaper: parent and subreaper of tasks, in a process that outlives the service and the daemon.
//!
//! A service connects to the Unix socket of a reaper's runtime directory, requests processes, and receives their wait
//! statuses. The service may be killed and replaced at any time: tasks continue to run, and the reaper retains every
//! status until it is acknowledged.
//!
//! - [`protocol`]: requests and events between a service and a reaper, and their binary layout.
//! - [`Reaper`]: the state machine. Its inputs are requests and exits, its outputs are messages. It performs system
//!   calls only through the trait [`Kernel`], which tests replace by a virtual kernel.
//! - [`log`]: the append-only file of starts and wait statuses. The record of a start is written before the task
//!   executes user code. If the reaper is killed, [`read_log`] and [`is_running`] show which tasks are still running.
//! - [`linux`]: the kernel, the socket and the event loop of the program `penstock-reaper`. Unsafe code is in one
//!   module of it, `syscalls`: `clone` with a shared address space, `execve`, `wait4` and signal masks have no safe
//!   interface.
//! - [`Client`]: the service's end, blocking.
//!
//! # The job of a process
//!
//! A process belongs to the job of its parent, until that parent ends and the process becomes a child of the reaper.
//! For this case each task is started with a [mark](mark::MarkSpace) that all its descendants inherit: the value of
//! `RLIMIT_LOCKS`, which the kernel has not enforced since Linux 2.4. It survives double forks, `setsid` and a cleared
//! environment. A process that lowers the limit and whose parent has ended belongs to no job; it is killed when the
//! reaper has no other process left.
//!
//! # Limits
//!
//! The reaper is suspended while a task's working directory and files are opened and its program is loaded: a file
//! system that does not respond blocks it. A FIFO does not. The maximum RSS of a task is at least the reaper's own
//! RSS, because the kernel counts the address space that the task had before `execve`.

pub mod cgroup;
mod codec;
mod environment_block;
mod error;
mod framing;
mod input;
mod kernel;
pub mod linux;
pub mod log;
pub mod mark;
mod output_reserve;
pub mod protocol;
mod reaper;
pub mod service;
mod types;

pub use environment_block::EnvironmentBlock;
pub use error::{Error, UsageError};
pub use kernel::{ClosedStreams, Exit, Identity, Kernel, ProcessInfo};
pub use linux::{Client, is_running, read_log};
pub use output_reserve::OutputReserve;
pub use reaper::Reaper;
pub use types::{
    BootId, CgroupId, CgroupLimits, ConnectionId, JobId, Pid, ProcessId, SpawnFailure, Step,
    TaskEnd, TaskId, TaskRank, Usage, WaitStatus,
};
