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
    /// Make the directory of a job, with its files, and report the result by
    /// [`Service::finish_job_directory`](super::Service::finish_job_directory), not necessarily at once.
    MakeJobDirectory(JobDirectory),
    /// Remove the directory of a job with all that is in it, after the effects before have made it.
    RemoveJobDirectory(JobId, DirectoryOwner),
    /// Remove the directory of a job's PMIx server, which has ended.
    RemovePmixDirectory(JobId),
    /// Remove the socket of a job's PMI server, which has ended.
    RemovePmiSocket(JobId),
    /// Send a request to the reaper, under this id.
    Request(u32, Request),
    /// Send a message to the broker.
    Send(Message),
    /// Report the size of the job's retained output by [`Service::take_output_size`](super::Service::take_output_size), after its
    /// place by [`Service::take_output_place`](super::Service::take_output_place) if that is not the one of new jobs' output.
    MeasureOutput(JobId),
    /// Report the free bytes of every file system of retained output by
    /// [`Service::take_free_space`](super::Service::take_free_space).
    MeasureSpace,
    /// Report the files of guests' retained output by [`Service::take_output_files`](super::Service::take_output_files), a few
    /// at a time, and the end of them by [`Service::finish_output_count`](super::Service::finish_output_count).
    CountOutput,
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
    /// Use the files of the job's retained output for other jobs of its user if they are empty: it has ended.
    ReuseEmptyOutput {
        /// The job.
        job: JobId,
        /// Its user, if that is a guest: other jobs of that guest may get the files.
        guest: Option<u32>,
    },
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

/// The file system of retained output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OutputPlace {
    /// That of the directory for new jobs.
    Present,
    /// Another one, by the number of its device: a directory of an earlier service is there.
    Former(u64),
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
