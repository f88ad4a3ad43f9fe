//! The actions of the event loop, and the results that it passes in.

use penstock_wire::Message;

use super::job_directory::{DirectoryOwner, JobDirectory};
use crate::protocol::Request;
use crate::types::JobId;

/// An action of the event loop.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append to the journal, and report the result by [`Service::finish_write`](super::Service::finish_write) before the
    /// next effect.
    Append(Vec<u8>),
    /// Replace the journal, atomically, and report the result likewise.
    Rewrite(Vec<u8>),
    /// Make the directory of a job, with its files.
    MakeJobDirectory(JobDirectory),
    /// Remove the directory of a job with all that is in it.
    RemoveJobDirectory(JobId, DirectoryOwner),
    /// Remove the directory of a job's PMIx server, which has ended.
    RemovePmixDirectory(JobId),
    /// Remove the socket of a job's PMI server, which has ended.
    RemovePmiSocket(JobId),
    /// Send a request to the reaper, under this id.
    Request(u32, Request),
    /// Send a message to the broker.
    Send(Message),
    /// Report the size of the job's retained output by [`Service::take_output_size`](super::Service::take_output_size).
    MeasureOutput(JobId),
    /// Read retained output, and report it by [`Service::take_output_chunk`](super::Service::take_output_chunk).
    ReadOutput {
        /// The reader.
        reader: ReaderId,
        /// The job.
        job: JobId,
        /// The stream.
        stream: Stream,
        /// The first byte to read.
        offset: u64,
    },
    /// Use the files of the job's retained output for other jobs if they are empty: it has ended.
    ReuseEmptyOutput(JobId),
    /// Write a line to the service's log.
    Log(String),
}

/// A reader of one stream for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReaderId(pub(super) u64);

/// A standard stream of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// Both streams.
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// The name on the wire, and of the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    /// Bytes; empty at the end of the file.
    Data(Vec<u8>),
    /// There is no file.
    Missing,
    /// The read has failed, for this reason.
    Failed(String),
}
