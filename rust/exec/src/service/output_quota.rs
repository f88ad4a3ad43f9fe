//! Limits of guests' retained output together: the bytes of each guest, and the free space of its file system, which is left
//! to the owner.
//!
//! The use of a guest is a sum: running jobs add what they have written, and purged output stays in it until a count of all
//! files. So no job is rejected or ended before a count that has begun later confirms that the guest is above its limit.

use std::collections::BTreeSet;
use std::mem;

use super::effect::{Effect, OutputPlace};
use super::guests::Admitted;
use super::job::{HELD_SEVERITY, Job, OutputCondition, PeriodBytes};
use super::output_usage::{
    Comparison, FreeSpace, MIN_FREE_BYTES, OUTPUT_CHECK_INTERVAL_S, OutputFile, RunningCount,
};
use super::state::{ReaperState, Service};
use crate::OutputReserve;
use crate::protocol::Request;
use crate::types::JobId;

/// Pause after a count, in durations of that count: a guest can make counts take a tenth of the time at most.
const COUNT_PAUSE_FACTOR: f64 = 9.0;
/// The part of the reserve that has to be free in addition before jobs start again, as a divisor.
const RESUME_DIVISOR: u64 = 8;
/// The measurements in a period of a shortage, ten minutes: no job is ended if there is still room for what guests have written in it.
const PERIOD_MEASUREMENTS: u32 = 600;
/// The least room for that, as a divisor of the reserve: no job is ended that writes a line from time to time.
const FLOOR_DIVISOR: u64 = 16;

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
            self.end_descriptor_wait(id);
        }
        has_room
    }

    /// Checks whether a job may start with the free space for output, and warns once per shortage if not.
    pub(super) fn check_free_space(&mut self, id: JobId) -> bool {
        if self.measure_space_if_due() {
            return false;
        }
        let space = self.output_usage.space.places.get(&OutputPlace::Present);
        let (Some(space), Some(job)) = (space, self.jobs.get_mut(&id)) else {
            return true;
        };
        let note = if job.is_guests() && space.is_low {
            space_note("starts", self.settings.output_reserve)
        } else if space.is_exhausted {
            "the job starts when there is space for its output: none is free".into()
        } else {
            return true;
        };
        if mem::replace(&mut job.told_shortage, space.shortages) != space.shortages {
            self.timers.add_output(self.clock + OUTPUT_CHECK_INTERVAL_S);
            job.warn(id, "exec", note, HELD_SEVERITY, &mut self.messages);
        }
        false
    }

    /// Requests the free space unless it is known. Returns whether it is not known yet.
    pub(super) fn measure_space_if_due(&mut self) -> bool {
        let space = &mut self.output_usage.space;
        let is_known = space.measured_at.is_some_and(|at| {
            let age = self.clock - at;
            (0.0..OUTPUT_CHECK_INTERVAL_S).contains(&age)
        });
        space.is_wanted |= !is_known;
        !is_known
    }

    /// Handles the free bytes of every file system of retained output.
    pub fn take_free_space(&mut self, places: &[(OutputPlace, u64)], now: f64) {
        self.follow_clock(now);
        let reserve = OutputReserve(self.settings.output_reserve);
        let space = &mut self.output_usage.space;
        space.measured_at = Some(now);
        let mut used: BTreeSet<_> = self
            .jobs
            .values()
            .filter_map(|job| job.output_place)
            .collect();
        used.insert(OutputPlace::Present);
        let places = places.iter().filter(|(place, _)| used.contains(place));
        space
            .places
            .retain(|place, _| places.clone().any(|(other, _)| other == place));
        for (place, bytes) in places.clone() {
            let of_place = space.places.entry(*place).or_default();
            let texts = of_place.take(*place, *bytes, reserve);
            self.effects
                .extend(texts.into_iter().flatten().map(Effect::Log));
        }
        let is_low = space.is_low();
        let is_exhausted = space.places.values().any(|space| space.is_exhausted);
        if is_low && self.reaper == ReaperState::Ready {
            match space.comparison {
                Comparison::None => return self.compare_writers(),
                Comparison::Listing(_) => return,
                Comparison::Listed => {}
            }
        }
        let is_compared = mem::take(&mut space.comparison) == Comparison::Listed;
        if (is_low || is_exhausted) && !self.output_usage.waiting.is_empty() {
            self.timers.add_output(now + OUTPUT_CHECK_INTERVAL_S);
        }
        for (place, _) in places {
            let has_ended = is_compared && self.end_largest_writers(*place);
            let spaces = &mut self.output_usage.space.places;
            match spaces.get_mut(place) {
                Some(space) if has_ended => space.begin_period(),
                Some(space) => space.end_measurement(),
                None => {}
            }
        }
        self.recheck_waiting();
    }

    /// Requests the output that the running jobs of guests have written where there is no room, what of it was in flight, and
    /// the free space after that. The jobs get an exception that tells why they block.
    fn compare_writers(&mut self) {
        let is_writer =
            |job: &Job| job.is_guests() && job.is_output_retained && job.has_running_task();
        let space = &self.output_usage.space;
        for (id, job) in self.jobs.iter_mut().filter(|(_, job)| is_writer(job)) {
            let place = job.output_place;
            let Some(shortage) = place.and_then(|place| space.shortage(place)) else {
                continue;
            };
            self.effects.push(Effect::MeasureOutput(*id));
            if !job.is_failing() && mem::replace(&mut job.told_shortage, shortage) != shortage {
                let note = space_note("can write more", self.settings.output_reserve);
                job.warn(*id, "exec", note, HELD_SEVERITY, &mut self.messages);
            }
        }
        let id = self.request(Request::ListHeldOutput);
        self.output_usage.space.comparison = Comparison::Listing(id);
    }

    /// Ends the guests' largest writers if the output that guests have written in this period of a shortage is more than the room
    /// that is left, until these jobs, and those that end already, account for half of it: a job that writes little is not ended for
    /// another's output. Output that was in flight while there was no room does not count. Returns whether a job is ended.
    fn end_largest_writers(&mut self, place: OutputPlace) -> bool {
        let (mut total, mut ended) = (0_u64, 0_u64);
        let mut writers = Vec::new();
        let reserve = self.settings.output_reserve;
        let space = &self.output_usage.space;
        let Some(space) = space.places.get(&place).filter(|space| space.is_low) else {
            return false;
        };
        for (id, job) in &self.jobs {
            let held = job.held_output.in_period(space.period);
            let growth = job.output_growth.in_period(space.period);
            let growth = growth.saturating_sub(held);
            let is_writer = job.is_guests() && job.has_running_task();
            if job.output_place != Some(place) || growth == 0 || !is_writer {
                continue;
            }
            total = total.saturating_add(growth);
            if job.is_failing() {
                ended = ended.saturating_add(growth);
            } else {
                writers.push((growth, *id));
            }
        }
        let room = OutputReserve(reserve).room(space.bytes);
        if total <= room.max(reserve / FLOOR_DIVISOR) {
            return false;
        }
        writers.sort_unstable_by(|one, other| other.cmp(one));
        let mut has_ended = false;
        for (growth, id) in writers {
            if ended.saturating_mul(2) >= total {
                break;
            }
            ended = ended.saturating_add(growth);
            if let Some(job) = self.jobs.get_mut(&id) {
                let note = format!(
                    "only the reserve of {reserve} bytes is free for output (`penstock.exec.output-reserve`), and this job was \
                     writing most: send its output to a file with `--output`"
                );
                job.fail_for_output(note);
                self.changed.insert(id);
                has_ended = true;
            }
        }
        has_ended
    }

    /// Handles the place of a job's output.
    pub fn take_output_place(&mut self, id: JobId, place: OutputPlace) {
        if let Some(job) = self.jobs.get_mut(&id)
            && job.output_place.replace(place) != Some(place)
        {
            job.output_growth = PeriodBytes::default();
            job.held_output = PeriodBytes::default();
            job.told_shortage = 0;
        }
    }

    /// Records output that a job had in flight while there was no room: it is no growth of this period.
    pub(super) fn record_held_output(&mut self, id: JobId, bytes: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let place = job.output_place;
        let period = place.map_or(0, |place| self.output_usage.space.period(place));
        let most = job.held_output.in_period(period).max(bytes);
        job.held_output = PeriodBytes::new(period, most);
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
            let released = self.jobs.iter().filter(|(_, job)| job.is_released());
            let released = released.map(|(id, _)| *id).collect();
            usage.count = Some(RunningCount::new(now, released));
            self.effects.push(Effect::CountOutput);
        }
    }

    /// Handles some files of guests that [`Effect::CountOutput`] has found.
    pub fn take_output_files(&mut self, files: &[OutputFile]) {
        let Some(count) = &mut self.output_usage.count else {
            return;
        };
        for file in files {
            let is_released = count.released.contains(&file.job);
            if self.jobs.contains_key(&file.job) && !is_released {
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
        for (id, job) in &self.jobs {
            if let Some(guest) = job.guest.filter(|_| !count.released.contains(id)) {
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
        let place = *job.output_place.get_or_insert(OutputPlace::Present);
        let period = self.output_usage.space.period(place);
        let written = job.output_growth.in_period(period);
        job.output_growth = PeriodBytes::new(period, written.saturating_add(growth));
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

    /// The number of jobs that wait for space for their output, for a count or for descriptors before they start.
    pub(super) fn held_starts(&self) -> usize {
        let waiting = self.output_usage.waiting.iter().copied();
        let waiting: BTreeSet<_> = waiting.chain(self.descriptors.held()).collect();
        waiting
            .iter()
            .filter(|id| self.jobs.get(id).is_some_and(Job::is_start_held))
            .count()
    }
}

impl FreeSpace {
    /// Takes the free bytes. Returns lines for the log if a shortage begins or ends.
    fn take(
        &mut self,
        place: OutputPlace,
        bytes: u64,
        reserve: OutputReserve,
    ) -> [Option<String>; 2] {
        let OutputReserve(reserved) = reserve;
        let enough = reserved.saturating_add(reserved / RESUME_DIVISOR);
        let (was_low, was_exhausted) = (self.is_low, self.is_exhausted);
        self.bytes = bytes;
        self.is_low = was_low && bytes < enough || reserve.room(bytes) == 0;
        self.is_exhausted = bytes == 0 || was_exhausted && bytes < 2 * MIN_FREE_BYTES;
        if (self.is_low || self.is_exhausted) && !was_low && !was_exhausted {
            self.shortages += 1;
        }
        let name = match place {
            OutputPlace::Present => "",
            OutputPlace::Former(_) => " in a former directory",
        };
        let of_guests = match (was_low, self.is_low) {
            (false, true) => Some(format!(
                "{bytes} bytes are free for output{name}, {reserved} are reserved (`penstock.exec.output-reserve`): jobs of \
                 guests are held"
            )),
            (true, false) => Some(format!(
                "{bytes} bytes are free for output{name}: jobs of guests continue"
            )),
            _ => None,
        };
        let of_all = match (was_exhausted, self.is_exhausted) {
            (false, true) => Some(format!(
                "no space is free for output{name}: jobs are not started"
            )),
            (true, false) => Some(format!(
                "{bytes} bytes are free for output{name}: jobs are started"
            )),
            _ => None,
        };
        [of_guests, of_all]
    }

    /// Counts a measurement in the period, which ends if there is room or if it is long enough.
    fn end_measurement(&mut self) {
        self.measurements += 1;
        if !self.is_low || self.measurements >= PERIOD_MEASUREMENTS {
            self.begin_period();
        }
    }

    /// Begins a period, in which nothing has been written.
    fn begin_period(&mut self) {
        self.period += 1;
        self.measurements = 0;
    }
}

fn space_note(step: &str, reserve: u64) -> String {
    format!(
        "the job {step} when there is space for its output: only the reserve of {reserve} bytes is free \
         (`penstock.exec.output-reserve`)"
    )
}
