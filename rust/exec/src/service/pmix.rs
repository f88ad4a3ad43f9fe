//! The PMIx servers of jobs: when they are started and requested, and when they end.

use penstock_wire::Message;

use super::effect::Effect;
use super::job::{Job, Presence, Task, TaskState};
use super::pmix_process::{ServerProcess, program_note};
use super::pmix_server::{PmixServer, failure_note};
use super::start_failure::setup_note;
use super::state::{Outstanding, Service};
use crate::types::{JobId, TaskRank};

impl Service {
    /// Takes the next step to the PMIx server of a job that needs one: starts its process, or requests the environment of
    /// the tasks, unless that was requested since the instance has connected. The reaper is connected.
    pub(super) fn advance_pmix_server(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(server) = &mut job.pmix else {
            return;
        };
        match job.pmix_process.as_ref().map(|process| process.state) {
            Some(TaskState::Requested) => {}
            Some(TaskState::Running(_)) => {
                let start = server.request_start();
                if let Some(start) = start {
                    self.send(start, Outstanding::PmixServer(id));
                }
            }
            None | Some(TaskState::Missing) if !job.has_started() => self.start_pmix_server(id),
            Some(TaskState::Failed(failure)) => {
                self.changed.insert(id);
                match program_note(failure) {
                    Some(note) => job.fail("pmix", note),
                    None => job.fail("exec", setup_note(failure, None, job)),
                }
            }
            None | Some(TaskState::Missing | TaskState::Abandoned | TaskState::Ended(_)) => {
                self.changed.insert(id);
                job.fail("pmix", "the job's PMIx server has ended before the tasks");
            }
        }
    }

    fn start_pmix_server(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (Some(server), Some(plan)) = (&job.pmix, &job.plan) else {
            return;
        };
        let limits = plan.specs.first().map(|spec| spec.cgroup_limits);
        let task_context = &self.settings.task_context;
        let process = ServerProcess {
            job: id,
            directory: server.directory(),
            cgroup_limits: limits.unwrap_or_default(),
            guest: job.guest,
            is_output_retained: job.is_output_retained,
        };
        match process.task(task_context) {
            Ok(spec) => {
                job.pmix_process = Some(Task::new(TaskState::Requested));
                job.presence = Presence::Busy;
                self.spawns.push(spec);
            }
            Err(note) => {
                self.changed.insert(id);
                job.fail("exec", note);
            }
        }
    }

    /// Handles an event of the process of a server.
    pub(super) fn record_pmix_process(&mut self, id: JobId, state: TaskState) {
        if let Some(job) = self.jobs.get_mut(&id) {
            let process = job.pmix_process.get_or_insert_with(|| Task::new(state));
            process.state = state;
            process.is_seen = true;
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
            if !job.has_ended() {
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
        let has_ended = |(rank, task): (&TaskRank, &Task)| {
            matches!(task.state, TaskState::Ended(_)).then_some(*rank)
        };
        let ended: Vec<_> = job.tasks.iter().filter_map(has_ended).collect();
        for rank in ended {
            self.report_end_to_pmix(id, rank);
        }
    }

    /// Tells the PMIx server of a job, if it has one, that a task has ended.
    pub(super) fn report_end_to_pmix(&mut self, id: JobId, rank: TaskRank) {
        let server = self.jobs.get(&id).and_then(|job| job.pmix.as_ref());
        let ended = server.and_then(|server| server.ended_message(rank));
        self.messages.extend(ended);
    }

    /// Ends the conversation about the PMIx server of a job that is released.
    pub(super) fn stop_pmix_server(&mut self, id: JobId) {
        let server = self.jobs.get_mut(&id).and_then(|job| job.pmix.take());
        self.messages
            .extend(server.map(PmixServer::into_stop_message));
    }

    /// Removes the directory of the PMIx server of a job that is forgotten.
    pub(super) fn remove_pmix_directory(&mut self, id: JobId, job: &Job) {
        // A guest's is in the directory of the job.
        let has_server = job.pmix_process.is_some() && job.guest.is_none();
        self.effects
            .extend(has_server.then_some(Effect::RemovePmixDirectory(id)));
    }
}
