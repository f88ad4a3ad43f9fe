//! The end of a service that is of no use: its instance has gone, and no job has a process.

use super::job::{Job, TaskState};
use super::state::{InstanceState, OwnEnd, ReaperState, Service};
use crate::protocol::Request;

impl Service {
    /// Whether the service is to end, because it is of no use: the instance has gone, no job has a process, and the reaper
    /// has ended. Journal and log tell the next service which statuses are to be reported.
    ///
    /// Only a service with [`end_when_idle`](super::Settings::end_when_idle) ends so.
    pub fn is_finished(&self) -> bool {
        self.own_end == OwnEnd::Finished
    }

    /// Whether the instance has gone, the journal is written, and no job has a process or may get one before the instance
    /// connects again.
    pub(super) fn is_idle(&self) -> bool {
        let is_reaper_ready = self.reaper == ReaperState::Ready;
        let is_idle = |job: &Job| {
            job.is_untouched()
                || (is_reaper_ready && job.is_idle() && !job.has(TaskState::Requested))
        };
        self.instance == InstanceState::Disconnected
            && self.jobs.values().all(is_idle)
            && self.writer.is_written()
    }

    /// Ends the service if it is of no use, the reaper first.
    pub(super) fn end_if_idle(&mut self) {
        if !self.settings.end_when_idle || self.own_end != OwnEnd::None || !self.is_idle() {
            return;
        }
        self.own_end = match self.reaper {
            ReaperState::Disconnected => OwnEnd::Finished,
            ReaperState::Listing(_) => OwnEnd::None,
            ReaperState::Ready => OwnEnd::Requested(self.request(Request::Shutdown)),
        };
    }
}
