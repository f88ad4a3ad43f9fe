//! PMIx start-up: the conversation with the instance's service `pmix-exec` about the PMIx server of a job.
//!
//! The server is started before the job's tasks, and each task gets its environment. The instance ends the server when
//! the connection is lost or the job is released. A start request that finds running tasks, because the service or the
//! instance was restarted, requests the server again, with `reattach`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use penstock_flux::errno::ENOSYS;
use penstock_flux::pmix_exec::{
    EndedRequest, StartRequest, StartResponse, StopRequest, TaskPlacement,
};
use penstock_flux::{flags, topic};
use penstock_wire::Message;

use super::Service;
use super::instance::Outstanding;
use super::job::{Task, TaskState};
use super::note::Note;
use crate::types::{JobId, Rank};

/// Whether tasks of a job have been started when its server is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskProgress {
    NotStarted,
    Started,
}

/// The execution target of a task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placement {
    pub(super) rank: Rank,
    pub(super) target: u32,
    pub(super) host: String,
}

/// Environment variables of tasks, by rank.
pub(super) type TaskVariables = BTreeMap<u32, BTreeMap<String, String>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerState {
    Unrequested,
    Requested,
    Running,
}

/// The PMIx server of a job, as the current connection to the instance knows it.
#[derive(Debug)]
pub(super) struct PmixServer {
    job: JobId,
    tasks: Vec<Placement>,
    state: ServerState,
}

impl PmixServer {
    pub(super) fn new(job: JobId, tasks: Vec<Placement>) -> Self {
        let state = ServerState::Unrequested;
        Self { job, tasks, state }
    }

    pub(super) fn is_running(&self) -> bool {
        self.state == ServerState::Running
    }

    /// Makes the request for the server, unless it was made before.
    pub(super) fn request_start(&mut self, progress: TaskProgress) -> Option<Message> {
        if self.state != ServerState::Unrequested {
            return None;
        }
        self.state = ServerState::Requested;
        let placement = |task: &Placement| TaskPlacement {
            rank: task.rank.0,
            target: task.target,
            host: task.host.clone().into(),
        };
        let start = StartRequest {
            id: self.job,
            reattach: progress == TaskProgress::Started,
            tasks: self.tasks.iter().map(placement).collect(),
        };
        let start = Message::request(topic::pmix_exec::START, "").with_payload(&start);
        Some(start.with_flags(flags::STREAMING))
    }

    /// Handles a response that is no error. Returns the environment of the tasks if it is the first one.
    pub(super) fn take_environment(
        &mut self,
        response: &Message,
    ) -> Result<Option<TaskVariables>, Note> {
        if self.state != ServerState::Requested {
            return Ok(None);
        }
        self.state = ServerState::Running;
        match response.read::<StartResponse>() {
            Ok(response) => Ok(Some(response.environment)),
            Err(error) => Err(error.to_string().into()),
        }
    }

    /// The message that a task has ended.
    pub(super) fn ended_message(&self, rank: Rank) -> Option<Message> {
        let (id, rank) = (self.job, rank.0);
        let ended = EndedRequest { id, rank };
        let ended = Message::request(topic::pmix_exec::ENDED, "").with_payload(&ended);
        let ended = ended.with_flags(flags::NORESPONSE);
        self.is_running().then_some(ended)
    }

    /// The message that the job is released.
    pub(super) fn into_stop_message(self) -> Message {
        let stop = StopRequest { id: self.job };
        let stop = Message::request(topic::pmix_exec::STOP, "").with_payload(&stop);
        stop.with_flags(flags::NORESPONSE)
    }
}

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

/// The note of the exception for an error response to a request for a server.
pub(super) fn failure_note(response: &Message) -> String {
    let (topic, errnum) = (response.topic(), response.errnum());
    if errnum == ENOSYS {
        return format!("the instance has no service that starts PMIx servers ({topic})");
    }
    let text = response.error_text().filter(|text| !text.is_empty());
    text.map_or_else(
        || format!("the PMIx server has ended: errnum {errnum}"),
        Cow::into_owned,
    )
}
