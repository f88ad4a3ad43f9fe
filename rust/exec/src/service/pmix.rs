//! The PMIx servers of jobs: when they are requested, and when they end.

use penstock_wire::Message;

use super::job::{Task, TaskState};
use super::pmix_server::{PmixServer, TaskProgress, failure_note};
use super::state::{Outstanding, Service};
use crate::types::{JobId, Rank};

impl Service {
    /// Requests the PMIx server of a job that needs one, unless that was requested since the instance has connected.
    pub(super) fn request_pmix_server(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let progress = if job.has_started() {
            TaskProgress::Started
        } else {
            TaskProgress::NotStarted
        };
        let server = job.pmix.as_mut();
        if let Some(start) = server.and_then(|server| server.request_start(progress)) {
            self.send(start, Outstanding::PmixServer(id));
        }
    }

    /// Handles a response to the request for the PMIx server of a job: first the environment, at last an error.
    pub(super) fn handle_pmix_response(&mut self, id: JobId, response: &Message) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(server) = &mut job.pmix else {
            return;
        };
        self.changed.insert(id);
        if response.errnum() != 0 {
            let is_needed = job.is_untouched() || !job.has_ended();
            if is_needed {
                job.fail("pmix", failure_note(response));
            }
            return;
        }
        let result = match server.take_environment(response) {
            Ok(None) => return,
            Ok(Some(environment)) => match &mut job.plan {
                Some(plan) => plan.extend_environment(&environment),
                None => Ok(()),
            },
            Err(note) => Err(note),
        };
        if let Err(note) = result {
            job.fail("pmix", format!("response to {}: {note}", response.topic()));
        }
        let has_ended = |(rank, task): (&Rank, &Task)| {
            matches!(task.state, TaskState::Ended(_)).then_some(*rank)
        };
        let ended: Vec<_> = job.tasks.iter().filter_map(has_ended).collect();
        for rank in ended {
            self.report_end_to_pmix(id, rank);
        }
    }

    /// Tells the PMIx server of a job, if it has one, that a task has ended.
    pub(super) fn report_end_to_pmix(&mut self, id: JobId, rank: Rank) {
        let server = self.jobs.get(&id).and_then(|job| job.pmix.as_ref());
        let ended = server.and_then(|server| server.ended_message(rank));
        self.messages.extend(ended);
    }

    /// Ends the PMIx server of a job that is released.
    pub(super) fn stop_pmix_server(&mut self, id: JobId) {
        let server = self.jobs.get_mut(&id).and_then(|job| job.pmix.take());
        self.messages
            .extend(server.map(PmixServer::into_stop_message));
    }
}
