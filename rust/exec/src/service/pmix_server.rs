//! PMIx start-up: the conversation with the instance's service `pmix-exec` about the PMIx server of a job.
//!
//! The instance connects to the server and gets the environment of the tasks. After a restart of the service or the
//! instance that is requested again.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use penstock_flux::errno::ENOSYS;
use penstock_flux::pmix_exec::{
    EndedRequest, StartRequest, StartResponse, StopRequest, TaskPlacement,
};
use penstock_flux::{flags, topic};
use penstock_wire::Message;

use super::guests::Admitted;
use crate::error::Note;
use crate::types::{JobId, TaskRank};

/// The execution target of a task.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placement {
    pub(super) rank: TaskRank,
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
    /// The directory of its socket.
    directory: PathBuf,
    /// Its user, if that is a guest.
    guest: Option<Admitted>,
}

impl PmixServer {
    pub(super) fn new(
        job: JobId,
        tasks: Vec<Placement>,
        directory: PathBuf,
        guest: Option<Admitted>,
    ) -> Self {
        Self {
            job,
            tasks,
            state: ServerState::Unrequested,
            directory,
            guest,
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn is_running(&self) -> bool {
        self.state == ServerState::Running
    }

    /// Makes the request for the environment of the tasks, unless it was made before. The server's process runs.
    pub(super) fn request_start(&mut self) -> Option<Message> {
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
            directory: self.directory.to_string_lossy().into_owned().into(),
            userid: self.guest.map(Admitted::uid),
            tasks: self.tasks.iter().map(placement).collect(),
        };
        let start = Message::request(topic::pmix_exec::START, "").with_payload(&start);
        Some(start.streaming())
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
    pub(super) fn ended_message(&self, rank: TaskRank) -> Option<Message> {
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

/// The note of the exception for an error response to a request for a server.
pub(super) fn failure_note(response: &Message) -> String {
    let (topic, errnum) = (response.topic(), response.errnum());
    if errnum == ENOSYS {
        return format!("the instance has no service that connects to PMIx servers ({topic})");
    }
    let text = response.error_text().filter(|text| !text.is_empty());
    text.map_or_else(
        || format!("the PMIx server has ended: errnum {errnum}"),
        Cow::into_owned,
    )
}
