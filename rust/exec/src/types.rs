use std::fmt;

pub use penstock_jobspec::job_id::JobId;

/// A task's rank within its job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskRank(pub u32);

/// A task: its job and its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The job.
    pub job: JobId,
    /// The rank of the task.
    pub rank: TaskRank,
}

/// A connection of a service to a reaper, numbered by the event loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// A process id. It does not identify a process by itself because the kernel reuses it: see [`ProcessId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

/// The identity of a process until the next boot: its pid and its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// The process id.
    pub pid: Pid,
    /// Clock ticks since boot at which it started, as in `/proc/PID/stat`.
    pub start_time: u64,
}

/// The identity of a boot of the machine: `/proc/sys/kernel/random/boot_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(pub u128);

impl BootId {
    /// Parses the text of `boot_id`: hexadecimal digits with hyphens.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim().replace('-', "");
        (digits.len() == 32).then_some(())?;
        u128::from_str_radix(&digits, 16).ok().map(Self)
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = |shift: u32, digits: u32| (self.0 >> shift) & ((1 << (4 * digits)) - 1);
        let (time, middle, version) = (field(96, 8), field(80, 4), field(64, 4));
        let (variant, node) = (field(48, 4), field(0, 12));
        write!(
            f,
            "{time:08x}-{middle:04x}-{version:04x}-{variant:04x}-{node:012x}"
        )
    }
}

/// The end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitStatus {
    /// It exited with this code.
    Exited(u8),
    /// A signal ended it.
    Signaled {
        /// The signal's number.
        signal: u8,
        /// Whether it dumped core.
        core: bool,
    },
    /// It ended while no reaper was its parent, so the status went to another process.
    Unknown,
}

/// Resource usage of a task, its waited-for children included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// The maximum resident set size, in KiB.
    pub max_rss_kib: u64,
    /// CPU time in user mode, in microseconds.
    pub user_us: u64,
    /// CPU time in the kernel, in microseconds.
    pub system_us: u64,
}

/// The end of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskEnd {
    /// Its exit code or signal.
    pub status: WaitStatus,
    /// Its resource usage; zero if the status is unknown.
    pub usage: Usage,
    /// When the reaper noticed it, in nanoseconds since the epoch.
    pub time_ns: u64,
}

/// A cgroup of a job: its number among those of its reaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u32);

/// Limits of all processes of a job together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupLimits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// CPU time in each second, in thousandths of a cpu.
    pub cpu_millis: Option<u32>,
}

impl CgroupLimits {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The greatest number of a signal.
pub(crate) const MAX_SIGNAL: u32 = 64;

/// The step of a start that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The job was killed before the task started.
    Cancelled,
    /// The process could not be created, or was killed before it had executed anything.
    Clone,
    /// Its session or process group.
    Group,
    /// Its working directory.
    Chdir,
    /// Its standard input.
    Stdin,
    /// Its standard output.
    Stdout,
    /// Its standard error.
    Stderr,
    /// Binding it to its cpus.
    Bind,
    /// Recording the start in the log.
    Record,
    /// A resource limit.
    Limit,
    /// Executing the program.
    Exec,
    /// Making the job's cgroup.
    Cgroup,
    /// The memory limit of the job's cgroup.
    MemoryLimit,
    /// The limit on processes of the job's cgroup.
    PidsLimit,
    /// The limit on CPU time of the job's cgroup.
    CpuLimit,
    /// The account of the task's user.
    Account,
    /// Becoming the task's user.
    Identity,
    /// Its connection to the PMI server of its job, or the socket of that server.
    Pmi,
}

impl Step {
    pub(crate) const ALL: [Self; 18] = [
        Self::Cancelled,
        Self::Clone,
        Self::Group,
        Self::Chdir,
        Self::Stdin,
        Self::Stdout,
        Self::Stderr,
        Self::Bind,
        Self::Record,
        Self::Limit,
        Self::Exec,
        Self::Cgroup,
        Self::MemoryLimit,
        Self::PidsLimit,
        Self::CpuLimit,
        Self::Account,
        Self::Identity,
        Self::Pmi,
    ];
}

/// The reason why a task did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnFailure {
    /// The step that failed.
    pub step: Step,
    /// The system's error number.
    pub errno: i32,
}
