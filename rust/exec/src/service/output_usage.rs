//! The use of the file system by retained output: sums of guests, the count of all files, and the free space.

use std::collections::{BTreeMap, BTreeSet};

use super::effect::OutputPlace;
use super::job::Job;
use crate::types::JobId;

/// Time between two checks of the size of retained output, in seconds.
pub(super) const OUTPUT_CHECK_INTERVAL_S: f64 = 1.0;

/// Less free space for output than this counts as 0: the next files and their directory may take it. Twice as much ends a shortage.
pub const MIN_FREE_BYTES: u64 = 64 << 10;

/// A file of a guest's retained output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputFile {
    /// The job.
    pub job: JobId,
    /// The guest.
    pub user: u32,
    /// The size.
    pub bytes: u64,
}

/// The use of guests, the count of all files, and the free space.
#[derive(Debug, Default)]
pub(super) struct OutputUsage {
    /// Bytes of each guest's retained output, of running and ended jobs, purged ones included until the next count.
    pub(super) used: BTreeMap<u32, u64>,
    pub(super) count: Option<RunningCount>,
    /// The number of counts that have begun.
    pub(super) begun: u64,
    /// The number of the last count before the sums became incomplete; 0 if there was none.
    pub(super) last_outdated: u64,
    pub(super) is_count_wanted: bool,
    /// When the next count may begin.
    pub(super) next_at: f64,
    /// Jobs whose next step depends on a count or on free space.
    pub(super) waiting: BTreeSet<JobId>,
    pub(super) space: Space,
}

/// A count that has begun and not ended.
#[derive(Debug)]
pub(super) struct RunningCount {
    pub(super) began_at: f64,
    /// Bytes of the jobs that the service does not have, by guest.
    pub(super) bytes: BTreeMap<u32, u64>,
    /// Guest and bytes of the files of jobs that the service had when they were found.
    pub(super) found: BTreeMap<JobId, (u32, u64)>,
    /// The jobs that were forgotten meanwhile: their files are in `bytes` already.
    pub(super) forgotten: BTreeSet<JobId>,
    /// The jobs that were released when it began: their files alone count, which may have been purged.
    pub(super) released: BTreeSet<JobId>,
}

/// The free space of all file systems.
#[derive(Debug, Default)]
pub(super) struct Space {
    pub(super) measured_at: Option<f64>,
    pub(super) is_wanted: bool,
    pub(super) comparison: Comparison,
    pub(super) places: BTreeMap<OutputPlace, FreeSpace>,
}

/// The comparison of writers: the output of every running job is measured, then what the reaper had in flight, and the space again
/// after that.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    #[default]
    None,
    /// The request of this id to the reaper is outstanding.
    Listing(u32),
    Listed,
}

/// The free space of a file system.
#[derive(Debug, Default)]
pub(super) struct FreeSpace {
    pub(super) bytes: u64,
    /// Whether there is no room for output of guests.
    pub(super) is_low: bool,
    /// Whether there is no room for any output.
    pub(super) is_exhausted: bool,
    /// The number of shortages so far: changes from enough space to low or exhausted.
    pub(super) shortages: u64,
    /// The number of the period in which the output that a job writes is added up: from one measurement to the next, or some
    /// minutes of a shortage.
    pub(super) period: u64,
    /// The measurements in this period.
    pub(super) measurements: u32,
}

impl Space {
    /// Whether a file system has no room for output of guests.
    pub(super) fn is_low(&self) -> bool {
        self.places.values().any(|space| space.is_low)
    }

    /// The number of the period of a file system.
    pub(super) fn period(&self, place: OutputPlace) -> u64 {
        self.places.get(&place).map_or(0, |space| space.period)
    }

    /// The number of the shortage of a file system; `None` if it has room.
    pub(super) fn shortage(&self, place: OutputPlace) -> Option<u64> {
        let space = self.places.get(&place).filter(|space| space.is_low);
        space.map(|space| space.shortages)
    }
}

impl RunningCount {
    pub(super) fn new(now: f64, released: BTreeSet<JobId>) -> Self {
        Self {
            began_at: now,
            released,
            bytes: BTreeMap::new(),
            found: BTreeMap::new(),
            forgotten: BTreeSet::new(),
        }
    }

    /// Adds output of a guest. A sparse file may have any length.
    pub(super) fn add(&mut self, guest: u32, bytes: u64) {
        let sum = self.bytes.entry(guest).or_default();
        *sum = sum.saturating_add(bytes);
    }
}

impl OutputUsage {
    /// The number of the last complete count.
    pub(super) fn completed(&self) -> u64 {
        self.begun - u64::from(self.count.is_some())
    }

    /// Whether the sums include all files.
    pub(super) fn is_complete(&self) -> bool {
        self.completed() > self.last_outdated
    }

    /// Makes the sums incomplete until the end of a count that begins from now on.
    pub(super) fn outdate(&mut self) {
        self.last_outdated = self.begun;
    }

    /// Whether the sums are incomplete, and will be after a running count.
    pub(super) fn is_outdated(&self) -> bool {
        self.begun == self.last_outdated
    }

    /// Ends the reaper's list if this is its request. Returns whether it is.
    pub(super) fn end_listing(&mut self, request: u32) -> bool {
        let comparison = &mut self.space.comparison;
        let is_listing = *comparison == Comparison::Listing(request);
        if is_listing {
            *comparison = Comparison::Listed;
        }
        is_listing
    }

    /// Gives up a comparison: the reaper that was to list has gone.
    pub(super) fn abandon_comparison(&mut self) {
        self.space.comparison = Comparison::None;
    }

    pub(super) fn used(&self, user: u32) -> u64 {
        self.used.get(&user).copied().unwrap_or(0)
    }

    /// The clock was set back by this many seconds.
    pub(super) fn set_back(&mut self, step: f64) {
        self.next_at -= step;
    }

    /// Ends the wait of a job that is not started.
    pub(super) fn remove(&mut self, id: JobId) {
        self.waiting.remove(&id);
    }

    /// Adds the output of a job that is forgotten to a running count. Output of a job that was not released may have grown since
    /// it was measured or found.
    pub(super) fn record_forgotten(&mut self, id: JobId, job: &Job) {
        if !job.is_released() {
            self.outdate();
        }
        if let (Some(count), Some(guest)) = (&mut self.count, job.guest)
            && job.is_output_retained
            && !count.released.contains(&id)
        {
            count.found.remove(&id);
            count.forgotten.insert(id);
            count.add(guest.uid(), job.output_bytes);
        }
    }
}
