//! Retained output: requests for it, and its limit.

use penstock_flux::errno::EPERM;
use penstock_flux::exec::OutputRequest;
use penstock_flux::job_list::{ListIdRequest, UserResponse, WaitRequest};
use penstock_flux::{RequestError, topic};
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
            let wait = WaitRequest { ids: vec![unknown] };
            let wait = Message::request(topic::job_list::WAIT, "").with_payload(&wait);
            self.send(wait.streaming(), Outstanding::End(unknown));
        }
    }

    /// Requests the user of the job whose output a guest requests.
    pub(super) fn look_up_output_user(&mut self, request: &Message) -> Result<(), RequestError> {
        let output: OutputRequest<'_> = request.read_request()?;
        let lookup = ListIdRequest {
            id: output.id,
            attrs: vec!["userid".into()],
        };
        let lookup = Message::request(topic::job_list::LIST_ID, "").with_payload(&lookup);
        self.send(lookup, Outstanding::OutputUser(Box::new(request.clone())));
        Ok(())
    }

    /// Answers a guest's request for output if the job is the guest's.
    pub(super) fn handle_output_user(&mut self, request: &Message, response: &Message) {
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
