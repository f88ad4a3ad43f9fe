//! Limits of guests' retained output together: the bytes of each guest, and the free space of its file system, which is left
//! to the owner.
//!
//! The use of a guest is a sum: running jobs add what they have written, and purged output stays in it until a count of all
//! files. So no job is rejected or ended before a count that has begun later confirms that the guest is above its limit.

use std::mem;

use super::effect::Effect;
use super::guests::Admitted;
use super::job::{Job, OutputCondition};
use super::output_usage::{OUTPUT_CHECK_INTERVAL_S, OutputFile, RunningCount};
use super::state::Service;
use crate::OutputReserve;
use crate::protocol::Request;
use crate::types::JobId;

/// Pause after a count, in durations of that count: a guest can make counts take a tenth of the time at most.
const COUNT_PAUSE_FACTOR: f64 = 9.0;
/// The part of the reserve that has to be free in addition before jobs start again, as a divisor.
const RESUME_DIVISOR: u64 = 8;
/// No job is ended if the room suffices for this many intervals, ten minutes, of what guests write.
const FULL_AFTER_INTERVALS: u64 = 600;
/// The least room for that, as a divisor of the reserve: no job is ended that writes a line from time to time.
const FLOOR_DIVISOR: u64 = 16;
/// The contents of the pipes of a blocked task at most, by default limits of the kernel: it is copied at once when there is room.
const BACKLOG_BYTES: u64 = 2 * (64 << 10);
/// The most of it that does not count, as a divisor of the reserve.
const BACKLOG_DIVISOR: u64 = 64;
/// The severity of the exceptions that tell why a job does not start, or does not continue.
const HELD_SEVERITY: i64 = 3;

impl Service {
    /// Whether the size of a running job's retained output is needed.
    pub(super) fn measures_output(&self, job: &Job) -> bool {
        let settings = &self.settings;
        let has_quota = settings.output_reserve > 0 || settings.user_output_limit > 0;
        job.is_output_retained && (settings.output_limit > 0 || has_quota && job.is_guests())
    }

    /// Checks whether the output of a job that is ready to start has room. If not, the job is checked again later.
    pub(super) fn check_output_room(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        if !job.is_output_retained {
            return true;
        }
        let has_room = self.check_free_space(id) && self.check_user_limit(id);
        if !has_room {
            self.output_usage.waiting.insert(id);
        }
        has_room
    }

    fn check_free_space(&mut self, id: JobId) -> bool {
        let is_guests = self.jobs.get(&id).is_some_and(Job::is_guests);
        if self.settings.output_reserve == 0 || !is_guests {
            return true;
        }
        if self.measure_space_if_due() {
            return false;
        }
        let shortage = self.output_usage.space.shortages;
        if self.output_usage.space.is_low
            && let Some(job) = self.jobs.get_mut(&id)
            && mem::replace(&mut job.told_shortage, shortage) != shortage
        {
            self.timers.add_output(self.clock + OUTPUT_CHECK_INTERVAL_S);
            let note = space_note("starts", self.settings.output_reserve);
            job.warn(id, "exec", note, HELD_SEVERITY, &mut self.messages);
        }
        !self.output_usage.space.is_low
    }

    /// Requests the free space unless it is known. Returns whether it is not known yet.
    pub(super) fn measure_space_if_due(&mut self) -> bool {
        let space = &mut self.output_usage.space;
        let is_known = space.measured_at.is_some_and(|at| {
            let age = self.clock - at;
            (0.0..OUTPUT_CHECK_INTERVAL_S).contains(&age)
        });
        space.is_wanted |= !is_known && self.settings.output_reserve > 0;
        !is_known
    }

    /// Handles the free bytes of the file system of retained output.
    pub fn take_free_space(&mut self, bytes: u64, now: f64) {
        self.follow_clock(now);
        let reserve = self.settings.output_reserve;
        let usage = &mut self.output_usage;
        usage.space.measured_at = Some(now);
        let was_low = usage.space.is_low;
        let wanted = if was_low {
            reserve.saturating_add(reserve / RESUME_DIVISOR)
        } else {
            0
        };
        usage.space.is_low = bytes < wanted || OutputReserve(reserve).room(bytes) == 0;
        usage.space.shortages += u64::from(usage.space.is_low && !was_low);
        let text = match (was_low, usage.space.is_low) {
            (false, true) => Some(format!(
                "{bytes} bytes are free for output, and {reserve} are reserved (`penstock.exec.output-reserve`): jobs of guests \
                 whose output is stored do not start, or block while they write, and those that write most are ended"
            )),
            (true, false) => Some(format!(
                "{bytes} bytes are free for output: jobs of guests start"
            )),
            _ => None,
        };
        self.effects.extend(text.map(Effect::Log));
        let is_compared = mem::take(&mut usage.space.is_comparing);
        if usage.space.is_low && !is_compared {
            return self.compare_writers();
        }
        if usage.space.is_low {
            if !usage.waiting.is_empty() {
                self.timers.add_output(now + OUTPUT_CHECK_INTERVAL_S);
            }
            self.end_largest_writers(bytes);
        }
        let space = &mut self.output_usage.space;
        if OutputReserve(reserve).room(bytes) == 0 {
            space.last_full = Some(space.interval);
        }
        space.interval += 1;
        self.recheck_waiting();
    }

    /// Requests what all running jobs of guests have written in this interval, and the free space after that. The jobs get an
    /// exception that tells why they block.
    fn compare_writers(&mut self) {
        let is_writer =
            |job: &Job| job.is_guests() && job.is_output_retained && job.has_running_task();
        let shortage = self.output_usage.space.shortages;
        for (id, job) in self.jobs.iter_mut().filter(|(_, job)| is_writer(job)) {
            self.effects.push(Effect::MeasureOutput(*id));
            if !job.is_failing() && mem::replace(&mut job.told_shortage, shortage) != shortage {
                let note = space_note("can write more", self.settings.output_reserve);
                job.warn(*id, "exec", note, HELD_SEVERITY, &mut self.messages);
            }
        }
        self.effects.push(Effect::MeasureSpace);
        self.output_usage.space.is_comparing = true;
    }

    /// Ends the guests' largest writers until they, and the jobs that end already, account for half of the bytes that guests
    /// have written since the last measurement: a job that writes little is not ended for another's output. If all of them
    /// write little, none is ended. The contents of pipes of blocked tasks do not count.
    fn end_largest_writers(&mut self, free: u64) {
        let (mut total, mut ended) = (0_u64, 0_u64);
        let mut writers = Vec::new();
        let reserve = self.settings.output_reserve;
        let backlog = BACKLOG_BYTES.min(reserve / BACKLOG_DIVISOR);
        let space = &self.output_usage.space;
        let interval = space.interval;
        let was_full = space.last_full.is_some_and(|full| full + 1 == interval);
        for (id, job) in &self.jobs {
            let (measured_in, mut growth) = job.output_growth;
            let is_writer = job.is_guests() && job.has_running_task();
            if was_full {
                growth = growth.saturating_sub(backlog * job.running_tasks());
            }
            if measured_in != interval || growth == 0 || !is_writer {
                continue;
            }
            total = total.saturating_add(growth);
            if job.is_failing() {
                ended = ended.saturating_add(growth);
            } else {
                writers.push((growth, *id));
            }
        }
        let room = OutputReserve(reserve)
            .room(free)
            .max(reserve / FLOOR_DIVISOR);
        if total.saturating_mul(FULL_AFTER_INTERVALS) <= room {
            return;
        }
        writers.sort_unstable_by(|one, other| other.cmp(one));
        for (growth, id) in writers {
            if ended.saturating_mul(2) >= total {
                return;
            }
            ended = ended.saturating_add(growth);
            if let Some(job) = self.jobs.get_mut(&id) {
                let note = format!(
                    "only the reserve of {reserve} bytes is free for output (`penstock.exec.output-reserve`), and this job was \
                     writing most: send its output to a file with `--output`"
                );
                job.fail_for_output(note);
                self.changed.insert(id);
            }
        }
    }

    /// Checks whether the user of a job is below its limit, by a new count if the sum is above it.
    fn check_user_limit(&mut self, id: JobId) -> bool {
        let limit = self.settings.user_output_limit;
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        let Some(guest) = job.guest.filter(|_| limit > 0) else {
            return true;
        };
        let usage = &self.output_usage;
        if !usage.is_complete() {
            self.request_count();
            return false;
        }
        if usage.used(guest.uid()) <= limit {
            return true;
        }
        self.await_count(id);
        false
    }

    /// Checks a job again after a count that begins from now on.
    fn await_count(&mut self, id: JobId) {
        let number = self.output_usage.begun + 1;
        if let Some(job) = self.jobs.get_mut(&id)
            && !matches!(job.output_condition, OutputCondition::Count(_))
        {
            job.output_condition = OutputCondition::Count(number);
            self.output_usage.waiting.insert(id);
            self.request_count();
        }
    }

    fn request_count(&mut self) {
        let usage = &mut self.output_usage;
        let is_pause = usage.count.is_none() && usage.next_at > self.clock;
        if !mem::replace(&mut usage.is_count_wanted, true) && is_pause {
            self.timers.add_output(usage.next_at);
        }
    }

    /// Requests the free space, after the sizes of the output that has been written, and a count if one may begin.
    pub(super) fn request_output_usage(&mut self, now: f64) {
        let usage = &mut self.output_usage;
        if mem::take(&mut usage.space.is_wanted) {
            self.effects.push(Effect::MeasureSpace);
        }
        if usage.is_count_wanted && usage.count.is_none() && now >= usage.next_at {
            usage.is_count_wanted = false;
            usage.begun += 1;
            usage.count = Some(RunningCount::new(now));
            self.effects.push(Effect::CountOutput);
        }
    }

    /// Handles some files of guests that [`Effect::CountOutput`] has found.
    pub fn take_output_files(&mut self, files: &[OutputFile]) {
        let Some(count) = &mut self.output_usage.count else {
            return;
        };
        for file in files {
            if self.jobs.contains_key(&file.job) {
                let (_, bytes) = count.found.entry(file.job).or_insert((file.user, 0));
                *bytes = bytes.saturating_add(file.bytes);
            } else if !count.forgotten.contains(&file.job) {
                count.add(file.user, file.bytes);
            }
        }
    }

    /// Ends a count: all files have been found.
    pub fn finish_output_count(&mut self, now: f64) {
        self.follow_clock(now);
        let usage = &mut self.output_usage;
        let Some(mut count) = usage.count.take() else {
            return;
        };
        for (id, (user, bytes)) in mem::take(&mut count.found) {
            let job = self.jobs.get_mut(&id);
            // It is an earlier service's, and was not measured yet.
            if let Some(job) =
                job.filter(|job| !job.is_guests() || job.is_reattached() && job.output_bytes == 0)
            {
                job.output_bytes = bytes;
            }
            if self.jobs.get(&id).is_none_or(|job| !job.is_guests()) {
                count.add(user, bytes);
            }
        }
        for job in self.jobs.values() {
            if let Some(guest) = job.guest {
                count.add(guest.uid(), job.output_bytes);
            }
        }
        usage.used = count.bytes;
        usage.next_at = now + COUNT_PAUSE_FACTOR * (now - count.began_at).max(0.0);
        if usage.is_count_wanted {
            self.timers.add_output(usage.next_at);
        }
        self.changed.append(&mut usage.waiting);
    }

    /// Looks again at the jobs that wait for a count or for space.
    pub(super) fn recheck_waiting(&mut self) {
        self.changed.append(&mut self.output_usage.waiting);
    }

    /// Handles a changed limit: without one the sums were not kept.
    pub(super) fn restart_counts(&mut self) {
        self.output_usage.outdate();
        self.output_usage.space.measured_at = None;
        self.recheck_waiting();
    }

    /// Records the size of a job's retained output.
    pub(super) fn record_output_size(&mut self, id: JobId, bytes: u64) {
        let limit = self.settings.user_output_limit;
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let before = mem::replace(&mut job.output_bytes, bytes);
        // Of a job that an earlier service has started, the first size is no growth.
        let is_first = before == 0 && job.is_reattached();
        let growth = if is_first {
            0
        } else {
            bytes.saturating_sub(before)
        };
        let interval = self.output_usage.space.interval;
        let (measured_in, written) = job.output_growth;
        let written = if measured_in == interval { written } else { 0 };
        job.output_growth = (interval, written.saturating_add(growth));
        let (has_grown, is_failing) = (growth > 0, job.is_failing());
        let Some(guest) = job.guest else {
            return;
        };
        let used = self.output_usage.used.entry(guest.uid()).or_default();
        *used = used.saturating_sub(before).saturating_add(bytes);
        if limit == 0 || !has_grown || is_failing {
            return;
        }
        let is_above = *used > limit;
        if !self.output_usage.is_complete() {
            self.request_count();
        } else if is_above && job.has_running_task() {
            self.await_count(id);
        }
    }

    /// Ends a job whose user is above its limit by a count that has begun since the job has asked for one.
    pub(super) fn check_user_output(&mut self, id: JobId) {
        let limit = self.settings.user_output_limit;
        let completed = self.output_usage.completed();
        let is_complete = self.output_usage.is_complete();
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let OutputCondition::Count(number) = job.output_condition else {
            return;
        };
        if limit > 0 && (number > completed || !is_complete) {
            self.output_usage.waiting.insert(id);
            if self.output_usage.is_outdated() {
                self.request_count();
            }
            return;
        }
        job.output_condition = OutputCondition::None;
        let Some(guest) = job.guest.map(Admitted::uid) else {
            return;
        };
        let bytes = self.output_usage.used(guest);
        if limit > 0 && bytes > limit && !job.is_failing() {
            let note = format!(
                "the stored output of user {guest} has {bytes} bytes, more than {limit} (`penstock.exec.user-output-limit`): \
                 send output to files with `--output`, or let the instance's owner purge ended jobs"
            );
            job.fail_for_output(note);
        }
    }

    /// Tells the reaper the free space that it leaves.
    pub(super) fn reserve_output(&mut self) {
        let reserve = OutputReserve(self.settings.output_reserve);
        self.request(Request::ReserveOutput(reserve));
    }

    /// The number of jobs that wait for space for their output or for a count before they start.
    pub(super) fn held_starts(&self) -> usize {
        let waiting = self.output_usage.waiting.iter();
        waiting
            .filter(|id| self.jobs.get(id).is_some_and(Job::is_untouched))
            .count()
    }
}

fn space_note(step: &str, reserve: u64) -> String {
    format!(
        "the job {step} when there is space for its output: only the reserve of {reserve} bytes is free \
         (`penstock.exec.output-reserve`)"
    )
}
