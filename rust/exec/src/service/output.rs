//! Retained output: requests for it, and its limit.

use penstock_flux::errno::{EHOSTUNREACH, ENODATA, ENOENT, EPERM};
use penstock_flux::exec::OutputRequest;
use penstock_flux::job_list::{ListIdRequest, UserResponse, WaitRequest};
use penstock_flux::{RequestError, StreamCancelRequest, flags, topic};
use penstock_wire::Message;

use super::effect::Chunk;
use super::effect::Effect;
use super::effect::ReaderId;
use super::followers::{Phase, redirection_error};
use super::job::Answered;
use super::output_usage::OUTPUT_CHECK_INTERVAL_S;
use super::state::{Outstanding, Service};
use crate::types::JobId;

impl Service {
    pub(super) fn follow(&mut self, request: &Message) -> Result<(), RequestError> {
        let output: OutputRequest<'_> = request.read_request()?;
        let id = output.id;
        let job = self.jobs.get(&id);
        if let Some(template) = job.and_then(|job| job.redirected_to.as_ref()) {
            return Err(redirection_error(template));
        }
        let phase = match job {
            Some(job) if !job.is_released() => {
                let answered = job.outstanding_start.as_ref().map(|start| start.answered);
                if answered == Some(Answered::Nothing) {
                    Phase::Starting
                } else {
                    Phase::Running
                }
            }
            _ => Phase::Absent,
        };
        let effects = &mut self.effects;
        self.followers.begin(request, &output, phase, effects)
    }

    /// Requests the size of a job's retained output, in an interval.
    pub(super) fn measure_output_if_due(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.measure_at.take_if(|at| now >= *at).is_none() || !job.has_running_task() {
            return;
        }
        let is_guests = job.is_guests();
        if self
            .jobs
            .get(&id)
            .is_some_and(|job| self.measures_output(job))
        {
            self.effects.push(Effect::MeasureOutput(id));
            if is_guests && self.settings.output_reserve > 0 {
                self.measure_space_if_due();
            }
            self.schedule_measurement(id, now);
        }
    }

    /// Has the size of a job's retained output checked after an interval.
    pub(super) fn schedule_measurement(&mut self, id: JobId, now: f64) {
        let at = now + OUTPUT_CHECK_INTERVAL_S;
        if let Some(job) = self.jobs.get_mut(&id) {
            job.measure_at = Some(at);
            self.timers.add(at, id);
        }
    }

    /// Handles the size of a job's retained output, in bytes.
    pub fn take_output_size(&mut self, id: JobId, bytes: u64) {
        self.record_output_size(id, bytes);
        let limit = self.settings.output_limit;
        if let Some(job) = self.jobs.get_mut(&id)
            && limit > 0
            && bytes > limit
            && !job.is_failing()
        {
            job.fail_for_output(format!(
                "more than {limit} bytes of output: send it to a file with `--output`, or raise \
                 `penstock.exec.output-limit` (of `penstock exec`: `--output-limit`)"
            ));
            self.changed.insert(id);
        }
    }

    /// Handles the result of [`Effect::ReadOutput`].
    pub fn take_output_chunk(&mut self, reader: ReaderId, chunk: Chunk) {
        let (messages, effects) = (&mut self.messages, &mut self.effects);
        if let Some(unknown) = self
            .followers
            .take_output_chunk(reader, chunk, messages, effects)
        {
            // The job has no output yet: it may start later, or never.
            self.await_end(unknown);
        }
    }

    /// Requests the end of a job that is not here, once for all that follow its output.
    fn await_end(&mut self, id: JobId) {
        if !self.end_waits.contains_key(&id) {
            let wait = WaitRequest { ids: vec![id] };
            let wait = Message::request(topic::job_list::WAIT, "").with_payload(&wait);
            let matchtag = self.send(wait.streaming(), Outstanding::End(id));
            self.end_waits.insert(id, matchtag);
        }
    }

    /// Handles a response to the request for the end of a job: its row, or the end of the stream.
    pub(super) fn handle_end(&mut self, id: JobId, response: &Message) {
        // The end of a stream whose row has come, or that was cancelled.
        if self.end_waits.get(&id) != Some(&response.matchtag) {
            return;
        }
        self.end_waits.remove(&id);
        if [0, ENODATA, ENOENT].contains(&response.errnum()) {
            self.followers.record_job_start(id, &mut self.effects);
            self.followers.record_job_end(id);
            return;
        }
        let text = response.error_text().unwrap_or_default();
        // As if this service were lost: clients request the output again.
        let error = RequestError::new(EHOSTUNREACH, format!("{}: {text}", response.topic()));
        self.followers
            .reject_waiting(id, &error, &mut self.messages);
    }

    /// Cancels the requests for the ends of jobs whose output is no longer followed, or that are here now.
    pub(super) fn cancel_unneeded_waits(&mut self) {
        for id in self.followers.take_no_longer_awaited() {
            if let Some(matchtag) = self.end_waits.remove(&id) {
                let cancel = StreamCancelRequest { matchtag };
                let cancel =
                    Message::request(topic::job_list::WAIT_CANCEL, "").with_payload(&cancel);
                let flags = cancel.flags | flags::NORESPONSE;
                self.messages.push(cancel.with_flags(flags));
            }
        }
    }

    /// Requests the user of the job whose output a guest requests.
    pub(super) fn look_up_output_user(&mut self, request: &Message) -> Result<(), RequestError> {
        request.require_streaming()?;
        let output: OutputRequest<'_> = request.read_request()?;
        let lookup = ListIdRequest {
            id: output.id,
            attrs: vec!["userid".into()],
        };
        let lookup = Message::request(topic::job_list::LIST_ID, "").with_payload(&lookup);
        let matchtag = self.send(lookup, Outstanding::OutputUser);
        self.output_lookups.insert(matchtag, request.clone());
        Ok(())
    }

    /// Serves `output-cancel`: ends a stream of the same requester.
    pub(super) fn cancel_output(&mut self, request: &Message) -> Result<(), RequestError> {
        let cancel: StreamCancelRequest = request.read_request()?;
        let is_meant = |other: &Message| {
            other.matchtag == cancel.matchtag && other.origin() == request.origin()
        };
        self.output_lookups.retain(|_, other| {
            let is_withdrawn = is_meant(other);
            if is_withdrawn {
                self.messages.push(Message::error_to(other, ENODATA, ""));
            }
            !is_withdrawn
        });
        self.followers.cancel(is_meant, &mut self.messages);
        Ok(())
    }

    /// Forgets the requests of a client that has disconnected. The reaper carries out those that it has, without a response.
    pub(super) fn disconnect_client(&mut self, notice: &Message) {
        let is_of_client = |request: &Message| request.origin() == notice.origin();
        self.output_lookups
            .retain(|_, request| !is_of_client(request));
        self.forwarded
            .retain(|_, (request, _)| !is_of_client(request));
        self.followers.disconnect(is_of_client);
    }

    /// Answers a guest's request for output if the job is the guest's.
    pub(super) fn handle_output_user(&mut self, response: &Message) {
        // Its client may have left meanwhile.
        let Some(request) = self.output_lookups.remove(&response.matchtag) else {
            return;
        };
        let request = &request;
        let result = match response.read::<UserResponse>() {
            _ if response.errnum() != 0 => {
                let text = response.error_text().unwrap_or_default();
                Err(RequestError::new(response.errnum(), text))
            }
            Ok(found) if found.job.userid == request.credentials().userid => self.follow(request),
            Ok(_) => Err(RequestError::new(EPERM, "the job is another user's")),
            Err(error) => Err(RequestError::malformed(topic::job_list::LIST_ID, &error)),
        };
        if let Err(error) = result {
            self.messages
                .push(Message::error_to(request, error.errnum, &error.text));
        }
    }
}
