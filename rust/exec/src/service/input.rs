//! Standard input that clients write, and the windows of terminals: requests that the reaper carries out.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::exec::{InputRequest, ResizeRequest, SignalRequest};
use penstock_flux::{RequestError, errno};
use penstock_wire::Message;

use super::ending::checked_signal;
use super::guests::Admitted;
use super::state::{ReaperState, Service};
use crate::protocol::{Request, SignalTarget, WindowSize};
use crate::types::{JobId, TaskId, TaskRank};

/// Bytes that one request may write.
const MAX_INPUT_BYTES: usize = 1 << 20;

impl Service {
    /// Serves `input`. The response comes with the reaper's.
    pub(super) fn write_input(&mut self, request: &Message) -> Result<(), RequestError> {
        let input: InputRequest<'_> = request.read_request()?;
        let text = input.data.as_ref().map_or("", |data| data.0.as_ref());
        let data = BASE64
            .decode(text)
            .map_err(|error| RequestError::invalid(format!("data: expected base64: {error}")))?;
        if data.len() > MAX_INPUT_BYTES {
            let text = format!(
                "data: expected at most {MAX_INPUT_BYTES} bytes, found {}",
                data.len()
            );
            return Err(RequestError::invalid(text));
        }
        let write = Request::Write {
            job: input.id,
            task: input.task.map(TaskRank),
            writer: input.writer,
            offset: input.offset,
            data,
            is_end: input.end.unwrap_or(false),
        };
        self.forward(request, input.id, write)
    }

    /// Serves `resize`. The response comes with the reaper's.
    pub(super) fn resize(&mut self, request: &Message) -> Result<(), RequestError> {
        let resize: ResizeRequest = request.read_request()?;
        let size = WindowSize {
            rows: resize.rows,
            columns: resize.columns,
        };
        let job = resize.id;
        self.forward(request, job, Request::Resize { job, size })
    }

    /// Serves `signal`. The response comes with the reaper's.
    pub(super) fn signal_task(&mut self, request: &Message) -> Result<(), RequestError> {
        let SignalRequest { id, task, signum } = request.read_request()?;
        let signal = checked_signal(signum)?;
        let rank = TaskRank(task);
        let target = SignalTarget::Task(TaskId { job: id, rank });
        self.forward(request, id, Request::Signal { target, signal })
    }

    fn forward(
        &mut self,
        request: &Message,
        job: JobId,
        forwarded: Request,
    ) -> Result<(), RequestError> {
        let state = self.jobs.get(&job);
        let guest = state.and_then(|job| job.guest);
        let user = guest.map_or(self.settings.owner, Admitted::uid);
        if !request.credentials().may_act_for(user) {
            return Err(RequestError::new(errno::EPERM, "the job is another user's"));
        }
        let is_running = state.is_some_and(|state| state.has_started() && !state.is_idle());
        if !is_running || self.reaper != ReaperState::Ready {
            return Err(not_running(job));
        }
        let id = self.request(forwarded);
        self.forwarded.insert(id, (request.header(), job));
        Ok(())
    }

    /// Handles the reaper's response to a request of a client, if it is one.
    pub(super) fn answer_forwarded(&mut self, id: u32, errnum: i32) {
        let Some((request, job)) = self.forwarded.remove(&id) else {
            return;
        };
        let error = match errnum {
            0 => {
                self.messages.push(Message::response_to(&request, 0, None));
                return;
            }
            libc::EPIPE => {
                let text = format!("no task of job {job} reads its standard input");
                RequestError::new(errno::EPIPE, text)
            }
            libc::ENOENT => {
                let text = format!(
                    "the tasks of job {job} have no terminal, and no standard input that can be written"
                );
                RequestError::not_found(text)
            }
            libc::ESRCH => {
                RequestError::not_found(format!("job {job} has no running task of this rank"))
            }
            libc::EINVAL => {
                let text = "offset: expected at most the number of bytes written before";
                RequestError::invalid(text)
            }
            libc::EAGAIN => {
                let text = format!(
                    "job {job} takes no input now: its tasks have not read the input before, or the reaper is not connected"
                );
                RequestError::new(errno::EAGAIN, text)
            }
            _ => not_running(job),
        };
        let response = Message::error_to(&request, error.errnum, &error.text);
        self.messages.push(response);
    }

    /// Answers the requests whose response was lost with the connection to the reaper: they can be repeated.
    pub(super) fn give_up_forwarded(&mut self) {
        while let Some((id, _)) = self.forwarded.first_key_value() {
            self.answer_forwarded(*id, libc::EAGAIN);
        }
    }
}

fn not_running(job: JobId) -> RequestError {
    RequestError::new(errno::EAGAIN, format!("job {job} does not run now"))
}
