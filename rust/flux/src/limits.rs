//! The limits of messages that more than one program has to know.
//!
//! A frame is a message on a socket. Its limit follows from the longest request, a submission, and leaves room for
//! messages that have a jobspec as text within JSON. The PMIx server of a job belongs to a guest, so the daemon takes
//! less from it. The reaper's protocol has a limit of its own (`penstock_exec::protocol::MAX_FRAME_BYTES`): its longest
//! messages start tasks, whose arguments the kernel limits. Each connection limits the bytes that it retains for a peer
//! that does not read, whatever the length of a message.

/// The greatest length of a frame, in bytes, without its first 8.
pub const MAX_FRAME_BYTES: usize = 64 << 20;

/// The greatest length of a jobspec that an instance can be configured to accept, in bytes of JSON.
///
/// A message about a job has twice as many bytes at most: as a string in JSON, each byte of a jobspec may become two.
pub const MAX_JOBSPEC_BYTES: usize = 16 << 20;

/// The greatest length of a job's eventlog to which requests of the owner add events, in bytes.
///
/// A response can have eventlog and jobspec of a job, both as strings in JSON.
pub const MAX_EVENTLOG_BYTES: u64 = 12 << 20;

/// The same for requests of guests: a lookup of an eventlog is one piece of work.
pub const MAX_GUEST_EVENTLOG_BYTES: u64 = 1 << 20;

/// The greatest number of submissions in one request: as many as the shortest valid ones in a frame.
pub const MAX_SUBMISSIONS_PER_REQUEST: usize = 500_000;

/// The greatest number of jobs that a request adds or names: the response to a submission, which has the id of each, is to fit a
/// frame.
pub const MAX_JOBS_PER_REQUEST: usize = 3_000_000;

/// The greatest number of operations of a commit, which is one piece: a scheduler commits the R of 1,024 jobs at most.
pub const MAX_OPERATIONS_PER_COMMIT: usize = 5000;

/// The greatest length of a name that a request looks for, in bytes.
pub const MAX_NAME_BYTES: usize = 4096;

/// The greatest length of a key of the KVS, in bytes.
pub const MAX_KEY_BYTES: usize = 4096;

/// The greatest length of a value in a request whose structure is the sender's choice, such as a memo, in bytes of JSON: it takes
/// many times as much in memory.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// The greatest number of values within such a value: an object of seven bytes takes hundreds in memory. A constraint may have
/// 65,536 hosts, and operators beside them.
pub const MAX_NESTED_VALUES: u64 = 100_000;

/// The greatest number of values in a jobspec that a guest sends to the scheduler, to ask about it.
pub const MAX_CHECKED_JOBSPEC_VALUES: u64 = 1 << 14;

/// The greatest number of names in a request, such as attributes of jobs or keys of a document.
pub const MAX_NAMES_PER_REQUEST: usize = 1000;

/// The greatest length of the payload of a `ping`, in bytes: it is read, and sent back.
pub const MAX_PING_BYTES: usize = 64 << 10;

/// The greatest length of a request from the PMIx server of a job, in bytes of its frame.
pub const MAX_PMIX_REQUEST_BYTES: usize = 1 << 20;

const _: () = assert!(2 * (MAX_JOBSPEC_BYTES as u64 + MAX_EVENTLOG_BYTES) < MAX_FRAME_BYTES as u64);
const _: () = assert!(MAX_PMIX_REQUEST_BYTES < MAX_FRAME_BYTES);
