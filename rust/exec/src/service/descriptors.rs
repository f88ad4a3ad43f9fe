//! The descriptors of the reaper: its ends of the pipes and terminals of tasks. Guests share what it may have.
//!
//! A guest's jobs have no more of them than are left free: half if no other user has some, a third each of two, and so on. So
//! the first job of another user finds some, and no task has to end for it. A job that would exceed the share is held until
//! others have ended. The owner has no share: its jobs are not held.
//!
//! Jobs of one guest that need descriptors start in the order of their ids: one is held as long as an older one is. A guest that has
//! none gets as many as its oldest job needs, and may have to wait for jobs of others. As long as it waits, each other guest starts
//! one job at most, so that the jobs of others end, and guests with held jobs take turns.

use super::descriptor_counts::Turn;
use super::guests::Admitted;
use super::job::{HELD_SEVERITY, Job};
use super::state::{InstanceState, Service};
use crate::protocol::{Input, Output, Relay, TaskSpec};
use crate::types::JobId;

/// The descriptors that the reaper has in any case: connections, files, cgroups.
const OTHER_DESCRIPTORS: u64 = 128;
/// The descriptors of a terminal.
const TERMINAL_DESCRIPTORS: u64 = 4;
/// The descriptors of a stream that is copied to a file.
const COPY_DESCRIPTORS: u64 = 2;

impl Service {
    /// Takes the descriptors of a job that is ready to start. If it has to wait for some, it is looked at again when another
    /// job has ended.
    pub(super) fn take_descriptors(&mut self, id: JobId) -> bool {
        let limit = self.descriptor_limit();
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        let count = job.descriptors();
        let descriptors = &mut self.descriptors;
        let Some(guest) = job.guest.map(Admitted::uid) else {
            descriptors.add(id, None, count);
            return true;
        };
        if count == 0 || descriptors.contains(id) {
            return true;
        }
        if self.instance != InstanceState::Synchronized {
            // Jobs that run already may not be counted yet.
            return false;
        }
        if count > limit {
            let note = format!(
                "the tasks need {count} descriptors of the execution service, which has {limit}: send their output to \
                 files with `--output`, or start fewer"
            );
            job.fail("exec", note);
            self.changed.insert(id);
            return false;
        }
        let note = match descriptors.turn(id, guest, count, limit) {
            Turn::Now => {
                if descriptors.start(id, guest, count) {
                    self.changed.extend(descriptors.first_held());
                }
                return true;
            }
            Turn::Later => {
                "the job starts when others have ended: its tasks need descriptors of the execution service"
            }
            Turn::AfterOlder => {
                "the job starts after older ones of its user: their tasks need descriptors of the execution service"
            }
        };
        if descriptors.hold(id, guest) {
            job.warn(id, "exec", note.into(), HELD_SEVERITY, &mut self.messages);
        }
        false
    }

    /// Ends the wait of a job for descriptors that waits for space: others may start.
    pub(super) fn end_descriptor_wait(&mut self, id: JobId) {
        let guest = self.jobs.get(&id).and_then(|job| job.guest);
        if guest.is_some_and(|guest| self.descriptors.end_wait(id, guest.uid())) {
            self.changed.extend(self.descriptors.first_held());
        }
    }

    /// Counts the descriptors of a job that an earlier service has started.
    pub(super) fn count_descriptors(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(&id)
            && job.intent.is_some()
        {
            let guest = job.guest.map(Admitted::uid);
            self.descriptors.add(id, guest, job.descriptors());
        }
    }

    /// Frees the descriptors of a job that has no process: others may start.
    pub(super) fn free_descriptors(&mut self, id: JobId, guest: Option<Admitted>) {
        self.descriptors.remove(id);
        if let Some(guest) = guest {
            self.descriptors.end_wait(id, guest.uid());
        }
        self.changed.extend(self.descriptors.first_held());
    }

    /// The descriptors that the reaper may have for tasks.
    fn descriptor_limit(&self) -> u64 {
        let limits = &self.settings.task_context.hard_limits;
        let hard = limits.get(&libc::RLIMIT_NOFILE).copied();
        hard.unwrap_or(u64::MAX).saturating_sub(OTHER_DESCRIPTORS)
    }
}

impl Job {
    /// The descriptors that the reaper has for its tasks.
    fn descriptors(&self) -> u64 {
        let specs = self.plan.iter().flat_map(|plan| &plan.specs);
        specs.map(descriptors).sum()
    }
}

/// The descriptors that the reaper has for a task.
fn descriptors(spec: &TaskSpec) -> u64 {
    let (labels_stdout, labels_stderr) = match spec.relay {
        Relay::Terminal(_) => return TERMINAL_DESCRIPTORS,
        Relay::Labels { stdout, stderr, .. } => (stdout, stderr),
        Relay::None => (false, false),
    };
    let is_file = |output: &Output| matches!(output, Output::Append(_) | Output::Truncate(_));
    // Retained output of guests passes through the reaper.
    let is_retained = |output, is_named: Option<bool>| is_named == Some(false) && is_file(output);
    let guest = spec.guest;
    let stdout = is_retained(&spec.stdout, guest.map(|guest| guest.names_stdout));
    let stderr = is_retained(&spec.stderr, guest.map(|guest| guest.names_stderr));
    let copies = [
        labels_stdout || stdout,
        labels_stderr && spec.stderr != Output::SameAsStdout || stderr,
    ];
    let copies = copies.into_iter().map(u64::from).sum::<u64>() * COPY_DESCRIPTORS;
    copies + u64::from(spec.stdin == Input::Pipe)
}
