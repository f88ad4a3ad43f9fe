//! The standard input of tasks that the reaper writes: pipes and terminals.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::ErrorKind;

use crate::kernel::Kernel;
use crate::protocol::{Input, Relay, TaskSpec, WindowSize};
use crate::types::{ConnectionId, JobId, TaskId, TaskRank};

/// Outstanding write requests of a job.
const MAX_PENDING_WRITES: usize = 16;
/// Writers of a job whose positions are known.
const MAX_WRITERS: usize = 64;

/// A response to a write request: its connection, id and errno.
pub(crate) type WriteResponse = (ConnectionId, u32, i32);

/// A write request.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    pub(crate) connection: ConnectionId,
    pub(crate) id: u32,
    /// The one task that it is for.
    pub(crate) task: Option<TaskRank>,
    pub(crate) writer: u64,
    pub(crate) offset: u64,
    pub(crate) data: Vec<u8>,
    pub(crate) is_end: bool,
}

impl WriteRequest {
    fn is_for(&self, rank: TaskRank) -> bool {
        self.task.is_none_or(|task| task == rank)
    }
}

/// The inputs of all jobs that have one.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    jobs: BTreeMap<JobId, JobInput>,
}

#[derive(Debug, Default)]
struct JobInput {
    /// The tasks whose input is open, with the number of bytes of the first pending write that they have got.
    open: BTreeMap<TaskRank, usize>,
    terminals: BTreeSet<TaskRank>,
    pending: VecDeque<WriteRequest>,
    /// The writers, the last one at the end, with the number of bytes that were accepted of each.
    writers: VecDeque<(u64, u64)>,
}

impl Inputs {
    /// Notes a task that has started.
    pub(crate) fn add(&mut self, spec: &TaskSpec) {
        let is_terminal = matches!(spec.relay, Relay::Terminal(_));
        if is_terminal || spec.stdin == Input::Pipe {
            let TaskId { job, rank } = spec.task;
            let input = self.jobs.entry(job).or_default();
            input.open.insert(rank, 0);
            if is_terminal {
                input.terminals.insert(rank);
            }
        }
    }

    /// Accepts a request. It is answered later, unless there is an error number.
    pub(crate) fn accept(&mut self, job: JobId, mut request: WriteRequest) -> Option<i32> {
        let Some(input) = self.jobs.get_mut(&job) else {
            return Some(libc::ENOENT);
        };
        if !input.open.keys().any(|rank| request.is_for(*rank)) {
            return Some(libc::EPIPE);
        }
        if input.pending.len() >= MAX_PENDING_WRITES {
            return Some(libc::EAGAIN);
        }
        let is_known = |(writer, _): &(u64, u64)| *writer == request.writer;
        let position = input.writers.iter().position(is_known);
        let known = position.and_then(|position| input.writers.get(position));
        let accepted = known.map_or(0, |(_, accepted)| *accepted);
        let Some(repeated) = accepted.checked_sub(request.offset) else {
            return Some(libc::EINVAL);
        };
        if let Some(position) = position {
            input.writers.remove(position);
        }
        let repeated = usize::try_from(repeated).unwrap_or(usize::MAX);
        request.data.drain(..repeated.min(request.data.len()));
        if input.writers.len() >= MAX_WRITERS {
            input.writers.pop_front();
        }
        let accepted = accepted + request.data.len() as u64;
        input.writers.push_back((request.writer, accepted));
        input.pending.push_back(request);
        None
    }

    /// Writes as much as there is room for, and returns the responses to requests that are complete.
    pub(crate) fn write<K: Kernel>(&mut self, job: JobId, kernel: &mut K) -> Vec<WriteResponse> {
        let mut responses = Vec::new();
        let Some(input) = self.jobs.get_mut(&job) else {
            return responses;
        };
        while let Some(request) = input.pending.front() {
            let length = request.data.len();
            input.open.retain(|rank, written| {
                let task = TaskId { job, rank: *rank };
                !request.is_for(*rank) || write_to(task, &request.data, written, kernel)
            });
            let readers = input.open.iter().filter(|(rank, _)| request.is_for(**rank));
            if readers.clone().any(|(_, written)| *written < length) {
                break;
            }
            let errno = if readers.clone().next().is_none() {
                libc::EPIPE
            } else {
                0
            };
            if request.is_end {
                for (rank, _) in readers {
                    kernel.end_input(TaskId { job, rank: *rank });
                }
                // The character for the end of a file does not close a terminal.
                let terminals = &input.terminals;
                let is_open = |rank: &TaskRank| terminals.contains(rank) || !request.is_for(*rank);
                input.open.retain(|rank, _| is_open(rank));
            }
            input.open.values_mut().for_each(|written| *written = 0);
            responses.push((request.connection, request.id, errno));
            input.pending.pop_front();
        }
        responses
    }

    /// Sets the window size of a job's terminals. Returns whether it has any.
    pub(crate) fn resize<K: Kernel>(&self, job: JobId, size: WindowSize, kernel: &mut K) -> bool {
        let terminals = self.jobs.get(&job).map(|input| &input.terminals);
        for rank in terminals.into_iter().flatten() {
            kernel.resize(TaskId { job, rank: *rank }, size);
        }
        terminals.is_some_and(|terminals| !terminals.is_empty())
    }

    /// Removes a job of which no process is left, and returns the responses to its requests.
    pub(crate) fn remove(&mut self, job: JobId) -> Vec<WriteResponse> {
        let input = self.jobs.remove(&job).unwrap_or_default();
        let pending = input.pending.into_iter();
        pending
            .map(|request| (request.connection, request.id, libc::EPIPE))
            .collect()
    }
}

/// Writes the rest of the data to a task. Returns whether its input is open.
fn write_to<K: Kernel>(task: TaskId, data: &[u8], written: &mut usize, kernel: &mut K) -> bool {
    while let Some(rest) = data.get(*written..).filter(|rest| !rest.is_empty()) {
        match kernel.write_input(task, rest) {
            Ok(length) => *written += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => {
                kernel.end_input(task);
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_write_leaves_no_writer() {
        let mut inputs = Inputs::default();
        let job = JobId::new(1);
        let input = inputs.jobs.entry(job).or_default();
        input.open.insert(TaskRank(0), 0);
        let request = |writer, offset| WriteRequest {
            connection: ConnectionId(1),
            id: 1,
            task: None,
            writer,
            offset,
            data: b"abc".to_vec(),
            is_end: false,
        };
        assert_eq!(inputs.accept(job, request(7, 0)), None);
        for writer in 0..1000 {
            assert_eq!(inputs.accept(job, request(writer, 9)), Some(libc::EINVAL));
        }
        assert_eq!(inputs.jobs[&job].writers, [(7, 3)]);
        // The writer continues where it was.
        assert_eq!(inputs.accept(job, request(7, 3)), None);
        assert_eq!(inputs.jobs[&job].writers, [(7, 6)]);
    }
}
