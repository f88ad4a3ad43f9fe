//! The connection to the reaper: requests to it, its list, and its events.

use std::mem;

use super::effect::Effect;
use super::job::{Ending, Job, Presence, Shrink, Starts, Task, TaskState};
use super::pmi_server::PMI_SERVER_RANK;
use super::pmix_process::PMIX_SERVER_RANK;
use super::state::{OwnEnd, ReaperState, Service};
use crate::protocol::{Event, Hello, Message as ReaperMessage, Request, TaskSpec};
use crate::types::{Step, TaskId, WaitStatus};

/// Bytes of tasks in one spawn request: less than [`MAX_FRAME_BYTES`](crate::protocol::MAX_FRAME_BYTES) even with another
/// task.
const MAX_SPAWN_BYTES: usize = 4 << 20;

impl Service {
    /// Handles a new connection to a reaper.
    pub fn handle_reaper_connection(&mut self, hello: Hello) {
        debug_assert_eq!(
            hello.boot, self.settings.boot,
            "the reaper runs in this boot"
        );
        for job in self.jobs.values_mut() {
            job.presence = Presence::Absent;
            job.starts = Starts::Intended;
            for task in job.processes_mut() {
                task.is_seen = false;
                if matches!(task.shrink, Shrink::Killed(_)) {
                    // The request may not have reached this reaper.
                    task.shrink = Shrink::Terminating(f64::NEG_INFINITY);
                }
            }
        }
        self.spawns.clear();
        self.kills.clear();
        self.forgotten.clear();
        self.forgetting.clear();
        self.give_up_forwarded();
        self.effects
            .retain(|effect| !matches!(effect, Effect::Request(..)));
        self.own_end = OwnEnd::None;
        self.output_usage.abandon_comparison();
        self.reserve_output();
        let id = self.request(Request::List);
        self.reaper = ReaperState::Listing(id);
    }

    /// Handles the loss of the connection to the reaper.
    pub fn handle_reaper_loss(&mut self) {
        self.reaper = ReaperState::Disconnected;
        self.output_usage.abandon_comparison();
        self.give_up_forwarded();
    }

    /// Handles a message of the reaper.
    pub fn handle_reaper_message(&mut self, message: ReaperMessage) {
        match message {
            ReaperMessage::Events(events) => {
                if self.own_end == OwnEnd::Rejected {
                    self.own_end = OwnEnd::None;
                }
                for event in events {
                    self.handle_event(event);
                }
            }
            // A reaper that rejects the list is ending: the next one lists.
            ReaperMessage::Done { id, errno } if self.reaper == ReaperState::Listing(id) => {
                if errno == 0 {
                    self.finish_listing();
                }
            }
            ReaperMessage::Done { id, errno } if self.own_end == OwnEnd::Requested(id) => {
                self.own_end = match errno {
                    0 if self.is_idle() => OwnEnd::Finished,
                    // The instance has connected again: the next reaper is started.
                    0 => OwnEnd::None,
                    _ => OwnEnd::Rejected,
                };
            }
            ReaperMessage::Done { id, .. } if self.output_usage.end_listing(id) => {
                self.effects.push(Effect::MeasureSpace);
            }
            ReaperMessage::Done { id, errno } => {
                self.answer_forwarded(id, errno);
                let jobs = self.forgetting.remove(&id).unwrap_or_default();
                if errno == libc::EBUSY && !jobs.is_empty() {
                    // A process was found after the job had been reported empty. Its end is reported again.
                    self.request(Request::Kill(jobs));
                }
            }
            ReaperMessage::Hello(_) => {}
        }
    }

    fn handle_event(&mut self, event: Event) {
        let (id, task) = match event {
            Event::Started { task, .. }
            | Event::Failed { task, .. }
            | Event::Ended { task, .. } => (task.job, Some(task)),
            Event::TaskEmpty { task } => return self.record_empty_task(task),
            Event::Empty { job } => (job, None),
            Event::OomKilled { job, count } => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.oom_kills = count.max(job.oom_kills);
                }
                return;
            }
            Event::OutputDropped { job, bytes } => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.dropped_output = bytes.max(job.dropped_output);
                }
                return;
            }
            Event::OutputHeld { job, bytes } => {
                return self.record_held_output(job, bytes);
            }
        };
        // After the list, an unknown job is one that the reaper could not forget.
        if self.reaper == ReaperState::Ready && !self.jobs.contains_key(&id) {
            if task.is_none() {
                self.forgotten.push(id);
            }
            return;
        }
        let job = self.jobs.entry(id).or_insert_with(|| Job {
            output_place: None,
            ..Job::new(None)
        });
        job.presence = match task {
            Some(_) => Presence::Busy,
            None => Presence::Empty,
        };
        self.changed.insert(id);
        let Some(task) = task else {
            return;
        };
        let rank = task.rank;
        let state = match event {
            Event::Started { process, .. } => TaskState::Running(process),
            Event::Failed { failure, .. } if failure.step == Step::Cancelled => {
                TaskState::Abandoned
            }
            Event::Failed { failure, .. } => TaskState::Failed(failure),
            Event::Ended { end, .. } => TaskState::Ended(end.status),
            Event::Empty { .. }
            | Event::TaskEmpty { .. }
            | Event::OomKilled { .. }
            | Event::OutputDropped { .. }
            | Event::OutputHeld { .. } => return,
        };
        if rank == PMIX_SERVER_RANK {
            return self.record_pmix_process(id, state);
        }
        if rank == PMI_SERVER_RANK {
            let process = job.pmi_process.get_or_insert_with(|| Task::new(state));
            process.state = state;
            process.is_seen = true;
            return;
        }
        let entry = job.tasks.entry(rank).or_insert_with(|| Task::new(state));
        entry.is_seen = true;
        if let Event::Ended { end, .. } = event {
            entry.usage = (end.status != WaitStatus::Unknown).then_some(end.usage);
        }
        let before = mem::replace(&mut entry.state, state);
        match state {
            TaskState::Running(_) if matches!(job.ending, Ending::Terminating(_)) => {
                self.terminate_tasks(id, |other| other == task);
            }
            TaskState::Ended(_) if !matches!(before, TaskState::Ended(_)) => {
                self.report_end_to_pmix(id, rank);
            }
            _ => {}
        }
    }

    fn record_empty_task(&mut self, task: TaskId) {
        let job = self.jobs.get_mut(&task.job);
        let entry = job.and_then(|job| job.tasks.get_mut(&task.rank));
        if let Some(entry) = entry.filter(|entry| entry.is_shrunk()) {
            entry.shrink = Shrink::Gone;
            self.changed.insert(task.job);
        }
    }

    /// Handles the end of the reaper's list: what it does not know has not been started, or is lost.
    fn finish_listing(&mut self) {
        self.reaper = ReaperState::Ready;
        for (id, job) in &mut self.jobs {
            for task in job.processes_mut().filter(|task| !task.is_seen) {
                task.state = match task.state {
                    TaskState::Requested => TaskState::Missing,
                    TaskState::Running(_) => TaskState::Ended(WaitStatus::Unknown),
                    known => known,
                };
            }
            if matches!(job.ending, Ending::Killed(_)) && !job.is_idle() {
                self.kills.push(*id);
            }
            self.changed.insert(*id);
        }
        self.sweep();
    }
}

/// Divides tasks into spawn requests that fit a frame.
pub(super) fn in_frames(tasks: Vec<TaskSpec>) -> Vec<Vec<TaskSpec>> {
    let mut frames = Vec::new();
    let (mut frame, mut length) = (Vec::new(), 0);
    for spec in tasks {
        let arguments = spec.arguments.iter().map(|word| word.count_bytes() + 5);
        length += arguments.sum::<usize>() + spec.environment.bytes_len();
        frame.push(spec);
        if length > MAX_SPAWN_BYTES {
            frames.push(mem::take(&mut frame));
            length = 0;
        }
    }
    if !frame.is_empty() {
        frames.push(frame);
    }
    frames
}
