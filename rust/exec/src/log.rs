//! The log of a reaper: a header, then records of starts, failed starts, ends and forgotten jobs.
//!
//! A record is the length of its payload, the payload's CRC-32 (four bytes each, little-endian), and the payload. A
//! record that is cut off or damaged ends the log: it and everything after it are a torn tail. The log survives the
//! death of every process but not a power failure: it is not flushed to disk, because no task survives one either.

use std::collections::BTreeMap;

use crate::Error;
use crate::codec::{Reader, Write};
use crate::framing::{check_magic, crc32, split_record, write_record};
use crate::types::{BootId, CgroupId, JobId, ProcessId, SpawnFailure, TaskEnd, TaskId};

const MAGIC: &[u8; 8] = b"PnstkRp2";

/// The length of the header: the magic number, the boot id, the reaper's process.
pub const HEADER_BYTES: usize = 8 + 16 + 12;

/// The length of the record of a start.
pub const STARTED_RECORD_BYTES: usize = 8 + STARTED_PAYLOAD_BYTES;
const STARTED_PAYLOAD_BYTES: usize = 1 + 12 + 12 + 4;

const MAX_PAYLOAD_BYTES: usize = 64;

/// The fact that a record states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// The task's process was about to execute its program, in this cgroup.
    Started(TaskId, ProcessId, Option<CgroupId>),
    /// The task could not be started.
    Failed(TaskId, SpawnFailure),
    /// The task ended.
    Ended(TaskId, TaskEnd),
    /// The service has acknowledged all statuses of the job.
    Forgotten(JobId),
}

impl Record {
    /// Appends the record in the log's layout.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let mut payload = Vec::with_capacity(MAX_PAYLOAD_BYTES);
        match self {
            Self::Started(task, process, cgroup) => {
                into.extend_from_slice(&started(*task, *process, *cgroup));
                return;
            }
            Self::Failed(task, failure) => {
                payload.u8(1);
                payload.task(*task);
                payload.failure(*failure);
            }
            Self::Ended(task, end) => {
                payload.u8(2);
                payload.task(*task);
                payload.end(end);
            }
            Self::Forgotten(job) => {
                payload.u8(3);
                payload.u64(job.get());
            }
        }
        write_record(into, &payload);
    }

    fn decode(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let record = match reader.u8("a kind of record")? {
            0 => {
                let (task, process) = (reader.task()?, reader.process()?);
                let cgroup = reader.u32("a cgroup")?.checked_sub(1);
                Self::Started(task, process, cgroup.map(CgroupId))
            }
            1 => Self::Failed(reader.task()?, reader.failure()?),
            2 => Self::Ended(reader.task()?, reader.end()?),
            3 => Self::Forgotten(reader.job()?),
            _ => return Err(reader.error("a kind of record")),
        };
        reader.finish()?;
        Ok(record)
    }
}

/// The record of a start. It allocates nothing, since it is made between `clone` and `execve`.
pub(crate) fn started(
    task: TaskId,
    process: ProcessId,
    cgroup: Option<CgroupId>,
) -> [u8; STARTED_RECORD_BYTES] {
    let mut record = [0; STARTED_RECORD_BYTES];
    let mut payload = [0; STARTED_PAYLOAD_BYTES];
    let (_, fields) = payload.split_at_mut(1);
    let (job, fields) = fields.split_at_mut(8);
    let (rank, fields) = fields.split_at_mut(4);
    let (pid, fields) = fields.split_at_mut(4);
    let (start_time, cgroup_number) = fields.split_at_mut(8);
    job.copy_from_slice(&task.job.get().to_le_bytes());
    rank.copy_from_slice(&task.rank.0.to_le_bytes());
    pid.copy_from_slice(&process.pid.0.to_le_bytes());
    start_time.copy_from_slice(&process.start_time.to_le_bytes());
    let number = cgroup.map_or(0, |cgroup| cgroup.0.saturating_add(1));
    cgroup_number.copy_from_slice(&number.to_le_bytes());
    let (prefix, rest) = record.split_at_mut(8);
    let (length, checksum) = prefix.split_at_mut(4);
    #[expect(clippy::cast_possible_truncation, reason = "29 bytes")]
    length.copy_from_slice(&(STARTED_PAYLOAD_BYTES as u32).to_le_bytes());
    checksum.copy_from_slice(&crc32(&payload).to_le_bytes());
    rest.copy_from_slice(&payload);
    record
}

/// The header of the log of this reaper.
pub fn header(boot: BootId, reaper: ProcessId) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.bytes(MAGIC);
    header.u128(boot.0);
    header.process(reaper);
    header
}

/// The state of a task according to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedTask {
    /// It started, and no end is recorded.
    Started(ProcessId),
    /// It did not start.
    Failed(SpawnFailure),
    /// It started and ended.
    Ended(ProcessId, TaskEnd),
}

/// The contents of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogContents {
    /// The boot in which the reaper ran.
    pub boot: BootId,
    /// The reaper that wrote it.
    pub reaper: ProcessId,
    /// The tasks of all jobs that were not forgotten.
    pub jobs: BTreeMap<JobId, BTreeMap<TaskId, LoggedTask>>,
    /// The last known job of each cgroup.
    pub cgroups: BTreeMap<CgroupId, JobId>,
    /// The length of the valid part, in bytes.
    pub valid_len: usize,
    /// Whether a torn tail follows it.
    pub is_torn: bool,
}

impl LogContents {
    /// Reads a log.
    ///
    /// # Errors
    ///
    /// Fails if the header is not that of a reaper's log, or of another version. A torn tail is no error.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        check_magic(bytes, *MAGIC, "a reaper's log")?;
        let mut reader = Reader::new(bytes.get(8..).unwrap_or_default());
        let boot = BootId(reader.u128("a boot id")?);
        let process = reader.process()?;
        let mut contents = Self {
            boot,
            reaper: process,
            jobs: BTreeMap::new(),
            cgroups: BTreeMap::new(),
            valid_len: HEADER_BYTES,
            is_torn: false,
        };
        let mut rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
        while let Some((record, after)) = split_record(rest, Record::decode) {
            contents.valid_len += rest.len() - after.len();
            contents.apply(record);
            rest = after;
        }
        contents.is_torn = !rest.is_empty();
        let jobs = &contents.jobs;
        contents.cgroups.retain(|_, job| jobs.contains_key(job));
        Ok(contents)
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Started(task, process, cgroup) => {
                self.set(task, LoggedTask::Started(process));
                if let Some(cgroup) = cgroup {
                    self.cgroups.insert(cgroup, task.job);
                }
            }
            Record::Failed(task, failure) => self.set(task, LoggedTask::Failed(failure)),
            Record::Ended(task, end) => {
                if let Some(LoggedTask::Started(process)) =
                    self.jobs.get(&task.job).and_then(|tasks| tasks.get(&task))
                {
                    self.set(task, LoggedTask::Ended(*process, end));
                }
            }
            Record::Forgotten(job) => {
                self.jobs.remove(&job);
            }
        }
    }

    fn set(&mut self, task: TaskId, state: LoggedTask) {
        self.jobs.entry(task.job).or_default().insert(task, state);
    }
}
