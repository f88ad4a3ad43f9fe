//! The journal of a service: which jobs it has handed to reapers.
//!
//! A header (a magic number, the instance's address and the journal's identity), then records as in the [reaper's log](crate::log). The record
//! of a job's intent is written before a reaper gets the job's tasks, and the job is forgotten after the job manager has
//! acknowledged its final release. So a job without a record has never been started, or has ended and been acknowledged.
//!
//! A record that is cut off or damaged ends the journal: it and everything after it are a torn tail.

use std::collections::{BTreeMap, BTreeSet};

use crate::Error;
use crate::codec::{Reader, Write};
use crate::framing::{check_magic, split_record, write_record};
use crate::types::{BootId, JobId};

const MAGIC: &[u8; 8] = b"PnstkSv2";

/// The longest address of an instance, in bytes.
const MAX_INSTANCE_BYTES: usize = 4096;

/// The identity of a journal: a random number that is drawn when the journal is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalId(pub u128);

/// The fact that a record states.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The tasks of a job are about to be handed to a reaper.
    Intent(JobId, Intent),
    /// A job has released execution targets: the tasks there do not count.
    Shrunk(JobId, Vec<u32>),
    /// The tasks of a job are about to get the signal before this expiration, in seconds since the epoch.
    Warned(JobId, f64),
    /// The job manager has acknowledged the final release of a job.
    Forgotten(JobId),
}

/// The intent to start a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Intent {
    /// The boot in which the job was to start.
    pub boot: BootId,
    /// The execution target of each task, by rank.
    pub targets: Vec<u32>,
    /// The execution targets that the job has released since.
    pub shrunk: BTreeSet<u32>,
    /// The expiration that its tasks have been warned of by a signal.
    pub warned_of: Option<f64>,
}

impl Intent {
    /// The intent to start a job whose tasks run on these execution targets.
    pub fn new(boot: BootId, targets: Vec<u32>) -> Self {
        Self {
            boot,
            targets,
            shrunk: BTreeSet::new(),
            warned_of: None,
        }
    }
}

impl Record {
    /// Appends the record in the journal's layout.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let mut payload = Vec::new();
        match self {
            Self::Intent(job, intent) => {
                payload.u8(0);
                payload.u64(job.get());
                payload.u128(intent.boot.0);
                payload.list(&intent.targets, |out, target| out.u32(*target));
                let shrunk: Vec<_> = intent.shrunk.iter().copied().collect();
                payload.list(&shrunk, |out, target| out.u32(*target));
                if let Some(expiration) = intent.warned_of {
                    write_record(into, &payload);
                    return Self::Warned(*job, expiration).encode(into);
                }
            }
            Self::Shrunk(job, targets) => {
                payload.u8(1);
                payload.u64(job.get());
                payload.list(targets, |out, target| out.u32(*target));
            }
            Self::Forgotten(job) => {
                payload.u8(2);
                payload.u64(job.get());
            }
            Self::Warned(job, expiration) => {
                payload.u8(3);
                payload.u64(job.get());
                payload.u64(expiration.to_bits());
            }
        }
        write_record(into, &payload);
    }

    fn decode(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let targets = |reader: &mut Reader<'_>| {
            reader.list("a number of execution targets", |reader| {
                reader.u32("an execution target")
            })
        };
        let record = match reader.u8("a kind of record")? {
            0 => {
                let job = reader.job()?;
                let boot = BootId(reader.u128("a boot id")?);
                let mut intent = Intent::new(boot, targets(&mut reader)?);
                intent.shrunk.extend(targets(&mut reader)?);
                Self::Intent(job, intent)
            }
            1 => Self::Shrunk(reader.job()?, targets(&mut reader)?),
            2 => Self::Forgotten(reader.job()?),
            3 => Self::Warned(reader.job()?, f64::from_bits(reader.u64("a time")?)),
            _ => return Err(reader.error("a kind of record")),
        };
        reader.finish()?;
        Ok(record)
    }
}

/// The header of the journal of a service of this instance.
pub fn header(instance: &str, id: JournalId) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    write_record(&mut header, instance.as_bytes());
    let mut payload = Vec::new();
    payload.u128(id.0);
    write_record(&mut header, &payload);
    header
}

/// The contents of a journal.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalContents {
    /// The address of the instance that the jobs belong to.
    pub instance: String,
    /// The identity of the journal.
    pub id: JournalId,
    /// The intents of all jobs that were not forgotten.
    pub jobs: BTreeMap<JobId, Intent>,
    /// The length of the valid part, in bytes.
    pub valid_len: usize,
    /// Whether a torn tail follows it.
    pub is_torn: bool,
}

impl JournalContents {
    /// An empty journal.
    pub fn new(instance: &str, id: JournalId) -> Self {
        Self {
            instance: instance.to_owned(),
            id,
            jobs: BTreeMap::new(),
            valid_len: 0,
            is_torn: false,
        }
    }

    /// Reads a journal.
    ///
    /// # Errors
    ///
    /// Fails if the header is not that of a service's journal, or of another version. A torn tail is no error.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        check_magic(bytes, *MAGIC, "a service's journal")?;
        let after_magic = bytes.strip_prefix(MAGIC);
        let header = after_magic.and_then(|rest| {
            let (instance, rest) = split_record(rest, decode_instance)?;
            let (id, rest) = split_record(rest, decode_id)?;
            Some((instance, id, rest))
        });
        let Some((instance, id, mut rest)) = header else {
            let text = "not a service's journal: expected its header";
            return Err(Error::format(text.to_owned()));
        };
        let mut contents = Self::new(&instance, id);
        while let Some((record, after)) = split_record(rest, Record::decode) {
            contents.apply(record);
            rest = after;
        }
        contents.valid_len = bytes.len() - rest.len();
        contents.is_torn = !rest.is_empty();
        Ok(contents)
    }

    fn apply(&mut self, record: Record) {
        match record {
            Record::Intent(job, intent) => {
                self.jobs.insert(job, intent);
            }
            Record::Shrunk(job, targets) => {
                if let Some(intent) = self.jobs.get_mut(&job) {
                    intent.shrunk.extend(targets);
                }
            }
            Record::Warned(job, expiration) => {
                if let Some(intent) = self.jobs.get_mut(&job) {
                    intent.warned_of = Some(expiration);
                }
            }
            Record::Forgotten(job) => {
                self.jobs.remove(&job);
            }
        }
    }
}

fn decode_id(payload: &[u8]) -> Result<JournalId, Error> {
    let mut reader = Reader::new(payload);
    let id = JournalId(reader.u128("the identity of a journal")?);
    reader.finish()?;
    Ok(id)
}

fn decode_instance(payload: &[u8]) -> Result<String, Error> {
    let invalid = || Error::format("expected an instance's address".to_owned());
    let text = std::str::from_utf8(payload).map_err(|_| invalid())?;
    (text.len() <= MAX_INSTANCE_BYTES)
        .then(|| text.to_owned())
        .ok_or_else(invalid)
}
