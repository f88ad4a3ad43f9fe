//! The file system of retained output: the files of jobs, what others have on it, and what the execution service may conclude.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use penstock_exec::service::OutputFile;
use penstock_exec::{JobId, OutputReserve};
use penstock_flux::exec::Exception;

use crate::site::OWNER;

/// The size of the file system, in bytes: several times the free space that ends a shortage.
const SIZE: u64 = 800_000;
/// Its size at the end of a run: there is space for all jobs.
const FINAL_SIZE: u64 = 1 << 40;
/// The limits of a run with output.
pub const JOB_LIMIT: u64 = 200_000;
pub const USER_LIMIT: u64 = 120_000;
pub const RESERVE: OutputReserve = OutputReserve(160_000);
/// Free bytes at which jobs start again.
const RESUME: u64 = RESERVE.0 + RESERVE.0 / 8;

/// The output of a job, in one file.
#[derive(Debug, Clone, Copy)]
struct File {
    user: u32,
    bytes: u64,
    /// When the execution service has measured it last, the result, and the result before.
    measured_at: f64,
    measured: u64,
    before: u64,
}

impl File {
    /// The size that the service knows since an earlier time.
    fn known(&self, now: f64) -> u64 {
        if self.measured_at < now {
            self.measured
        } else {
            self.before
        }
    }
}

/// The greatest use of each guest since the last count began, and since the one before.
#[derive(Debug, Default)]
struct Peaks {
    current: BTreeMap<u32, u64>,
    last: BTreeMap<u32, u64>,
}

/// The file system of retained output.
#[derive(Debug)]
pub struct OutputDisk {
    size: u64,
    /// Bytes that others use.
    others: u64,
    files: BTreeMap<u64, File>,
    /// The count that has begun: the first job that it has not looked at.
    counting: Option<u64>,
    /// The number of counts that have begun: every third one takes no longer than the step in which it began.
    counts: u64,
    peaks: Peaks,
    /// When the service has first measured that there is no room, until it measures enough.
    low_since: Option<f64>,
    /// The jobs of guests with output when the service has measured that there is no room: it may report later that it has ended
    /// one, when the daemon runs again.
    short_of_space: BTreeSet<u64>,
    /// The jobs that the service has ended because of their output.
    ended: BTreeSet<u64>,
    violations: Vec<String>,
}

impl OutputDisk {
    pub fn new() -> Self {
        Self {
            size: SIZE,
            others: 0,
            files: BTreeMap::new(),
            counting: None,
            counts: 0,
            peaks: Peaks::default(),
            low_since: None,
            short_of_space: BTreeSet::new(),
            ended: BTreeSet::new(),
            violations: Vec::new(),
        }
    }

    /// Takes the violations that were seen.
    pub fn take_violations(&mut self) -> Vec<String> {
        mem::take(&mut self.violations)
    }

    fn free(&self) -> u64 {
        let used: u64 = self.files.values().map(|file| file.bytes).sum();
        self.size.saturating_sub(self.others + used)
    }

    fn used(&self, user: u32) -> u64 {
        let files = self.files.values().filter(|file| file.user == user);
        files.map(|file| file.bytes).sum()
    }

    // --- writers

    /// Adds output to the file of a job, as far as there is space. Returns what has none.
    fn append(&mut self, job: u64, user: u32, bytes: u64) -> u64 {
        let written = bytes.min(self.free());
        let file = self.files.entry(job).or_insert(File {
            user,
            bytes: 0,
            measured_at: f64::NEG_INFINITY,
            measured: 0,
            before: 0,
        });
        file.bytes += written;
        let all = self.used(user);
        let peak = self.peaks.current.entry(user).or_default();
        *peak = all.max(*peak);
        bytes - written
    }

    /// Lets a task of the owner write to its file.
    pub fn write(&mut self, job: u64, bytes: u64) {
        self.append(job, OWNER, bytes);
    }

    /// Copies output of a guest that has passed through the reaper, which leaves this reserve. Returns what has no room.
    pub fn copy(&mut self, job: u64, user: u32, bytes: u64, reserve: OutputReserve) -> u64 {
        let copied = bytes.min(reserve.room(self.free()));
        let rest = self.append(job, user, copied);
        if copied > rest && self.free() < RESERVE.0 {
            let text = format!("output of job {job}, a guest's, has used the reserve");
            self.violations.push(text);
        }
        bytes - copied + rest
    }

    /// Sets what others use, in quarters of the file system.
    pub fn fill(&mut self, quarters: u32) {
        let most = self.others + self.free();
        self.others = most.min(SIZE / 4 * u64::from(quarters));
    }

    /// Makes room for all jobs.
    pub fn enlarge(&mut self) {
        self.size = FINAL_SIZE;
    }

    /// Removes the output of a purged job.
    pub fn remove(&mut self, job: u64) {
        self.files.remove(&job);
    }

    // --- the execution service

    /// Forgets what an execution service knew that has ended.
    pub fn end_service(&mut self) {
        self.counting = None;
        self.low_since = None;
    }

    /// Measures the output of a job.
    pub fn measure(&mut self, job: u64, now: f64) -> u64 {
        let Some(file) = self.files.get_mut(&job) else {
            return 0;
        };
        if file.measured_at < now {
            file.before = file.measured;
        }
        file.measured_at = now;
        file.measured = file.bytes;
        file.bytes
    }

    /// Measures the free space.
    pub fn measure_space(&mut self, now: f64) -> u64 {
        let free = self.free();
        if free >= RESUME {
            self.low_since = None;
        } else if RESERVE.room(free) == 0 {
            self.low_since.get_or_insert(now);
            let guests = self.files.iter().filter(|(_, file)| file.user != OWNER);
            self.short_of_space.extend(guests.map(|(job, _)| *job));
        }
        free
    }

    /// Begins a count of guests' output.
    pub fn begin_count(&mut self) {
        self.counting = Some(0);
        self.counts += 1;
        let mut current = BTreeMap::new();
        for user in self.files.values().map(|file| file.user) {
            current.insert(user, self.used(user));
        }
        self.peaks.last = mem::replace(&mut self.peaks.current, current);
    }

    /// Whether a count has begun that takes no longer than this step.
    pub fn has_short_count(&self) -> bool {
        self.counting.is_some() && self.counts.is_multiple_of(3)
    }

    /// Looks at a number of files. Returns those of guests, and whether the count has ended; `None` if there is no count.
    pub fn advance_count(&mut self, files: usize) -> Option<(Vec<OutputFile>, bool)> {
        let first = self.counting?;
        let mut looked_at = self.files.range(first..);
        let mut found = Vec::new();
        for (job, file) in looked_at.by_ref().take(files) {
            self.counting = Some(job + 1);
            if file.user != OWNER {
                found.push(OutputFile {
                    job: JobId::new(*job),
                    user: file.user,
                    bytes: file.bytes,
                });
            }
        }
        let has_ended = looked_at.next().is_none();
        if has_ended {
            self.counting = None;
        }
        Some((found, has_ended))
    }

    // --- checks

    /// Whether the service may have ended a job because of its output.
    pub fn has_ended(&self, job: u64) -> bool {
        self.ended.contains(&job)
    }

    /// Checks the first start of a guest's job by a service that has these jobs.
    pub fn check_start(&mut self, job: u64, user: u32, jobs: &BTreeSet<u64>, now: f64) {
        let mut violations = Vec::new();
        if self.low_since.is_some_and(|at| at < now) {
            violations.push(format!("job {job}, a guest's, starts without space"));
        }
        let files = self.files.iter().filter(|(_, file)| file.user == user);
        let known = files.map(|(id, file)| {
            if jobs.contains(id) {
                file.known(now)
            } else {
                file.bytes
            }
        });
        let known: u64 = known.sum();
        if known > USER_LIMIT {
            violations.push(format!(
                "job {job} starts although user {user} has {known} bytes of output"
            ));
        }
        self.violations.append(&mut violations);
    }

    /// Checks an exception that the service raises of a job of this user.
    pub fn check_exception(&mut self, job: u64, user: u32, exception: &Exception<'_>) {
        let note = &*exception.note;
        let is_guests = user != OWNER;
        let peaks = [&self.peaks.current, &self.peaks.last];
        let peak = peaks.map(|peaks| peaks.get(&user).copied().unwrap_or(0));
        let file = self.files.get(&job);
        let is_allowed = if note.starts_with("more than ") && note.contains(" bytes of output") {
            file.is_none_or(|file| file.bytes > JOB_LIMIT)
        } else if note.starts_with("the stored output of user ") {
            is_guests && peak.iter().any(|bytes| *bytes > USER_LIMIT)
        } else if note.contains("only the reserve of ") {
            let was_short = self.low_since.is_some() || self.short_of_space.contains(&job);
            is_guests && (exception.severity > 0 || was_short)
        } else {
            return;
        };
        // An exception is raised again by each start request.
        if !is_allowed && !self.ended.contains(&job) {
            let text = format!("job {job} of user {user} has an exception without a cause: {note}");
            self.violations.push(text);
        }
        if exception.severity == 0 {
            self.ended.insert(job);
        }
    }
}
