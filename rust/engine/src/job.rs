//! The table of pending and running jobs, with small handles.

use hashbrown::HashTable;
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use smallvec::SmallVec;

use crate::chunked_vec::ChunkedVec;
use crate::copy_on_write::CopyOnWrite;
use crate::ids::{JobHandle, LaneId, QueueId, RunId};

/// A job to be scheduled.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// FLUID (RFC 19), or any other number that is unique among the jobs.
    pub id: JobId,
    /// 0 (held) to 4294967295 (expedited).
    pub priority: u32,
    /// The resources that it requests.
    pub request: Request,
    /// Its queue.
    pub queue: QueueId,
}

/// The state of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    /// No job has it; the next unused handle of its chunk.
    Unused(JobHandle),
    /// Its job is pending, in this lane.
    Pending(LaneId),
    /// Its job is running, at this index.
    Running(RunId),
}

/// The entry of a job in the table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct JobEntry {
    pub id: JobId,
    pub priority: u32,
    /// Its priority in the order of its queue (see [`Order`](crate::Order)); 0 if it is held.
    pub effective_priority: u32,
    pub state: JobState,
}

impl JobEntry {
    /// Whether it is that of a job with this id.
    #[inline]
    fn is_of(&self, id: JobId) -> bool {
        self.id == id && !matches!(self.state, JobState::Unused(_))
    }
}

impl Default for JobState {
    fn default() -> Self {
        Self::Unused(JobHandle::NONE)
    }
}

/// The entries of one chunk.
const CHUNK_JOBS: usize = 1024;

/// The number of unused handles with memory above which a chunk without jobs returns its memory.
const MAX_UNUSED: usize = 2 * CHUNK_JOBS;

/// The capacity of a shard of the table of ids that stays.
const MIN_SHARD_CAPACITY: usize = 64;

/// The handles of one chunk of entries.
#[derive(Clone, Copy, Debug)]
struct Handles {
    /// The first unused one.
    unused: JobHandle,
    /// The number of those in use, at most [`CHUNK_JOBS`].
    jobs: u16,
    /// Whether the chunk is in the list of chunks with unused handles.
    is_listed: bool,
}

/// Every pending or running job, found by its handle or by its id.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    entries: ChunkedVec<JobEntry, CHUNK_JOBS>,
    /// Of each chunk.
    handles: Vec<Handles>,
    /// The chunks with unused handles, and some without. Mostly there are few, which a snapshot copies without memory of
    /// their own.
    with_unused: SmallVec<[usize; 4]>,
    /// The chunks whose memory was returned.
    without_memory: Vec<usize>,
    /// The number of unused handles with memory.
    unused: usize,
    /// Handles by id, in shards by hash, so that a snapshot copies only the shards that change.
    ids: Box<[CopyOnWrite<HashTable<JobHandle>>; ID_TABLE_SHARDS]>,
    /// Whether ids of removed jobs stay in `ids`.
    keeps_removed_ids: bool,
}

/// The entry of handles whose memory was returned.
static NO_JOB: JobEntry = JobEntry {
    id: JobId::new(0),
    priority: 0,
    effective_priority: 0,
    state: JobState::Unused(JobHandle::NONE),
};

/// Shards of the table of ids.
const ID_TABLE_SHARDS: usize = 64;

/// The shard of each value of some bits of a hash. The last shard has almost twice as many ids as the first one: equal shards
/// would all grow at the same number of jobs, which takes 100 ms with a million.
static SHARDS: [u8; 1 << SHARD_BITS] = {
    // Shard `n` has the weight `ID_TABLE_SHARDS + n`.
    let total = ID_TABLE_SHARDS * ID_TABLE_SHARDS + ID_TABLE_SHARDS * (ID_TABLE_SHARDS - 1) / 2;
    let mut shards = [0; 1 << SHARD_BITS];
    let (mut value, mut shard, mut weight) = (0, 0, ID_TABLE_SHARDS);
    while value < shards.len() {
        if value * total >= weight * shards.len() {
            shard += 1;
            weight += ID_TABLE_SHARDS + shard as usize;
        }
        shards[value] = shard;
        value += 1;
    }
    shards
};

/// The bits of a hash that tell the shard.
const SHARD_BITS: usize = 10;

/// The shard of a hash, by bits that the table itself does not use.
#[inline]
fn shard_of(hash: u64) -> usize {
    SHARDS[(hash >> 46) as usize % SHARDS.len()].into()
}

/// Hashes an id. Ids are FLUIDs or consecutive: a product spreads them over the upper bits, which
/// are folded down.
fn hash(id: JobId) -> u64 {
    let product = u128::from(id.get() ^ 0x243F_6A88_85A3_08D3) * 0x9E37_79B9_7F4A_7C15;
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let folded = (product >> 64) as u64 ^ product as u64;
    folded
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            entries: ChunkedVec::default(),
            handles: Vec::new(),
            with_unused: SmallVec::new(),
            without_memory: Vec::new(),
            unused: 0,
            ids: Box::new([(); ID_TABLE_SHARDS].map(|()| CopyOnWrite::Owned(HashTable::new()))),
            keeps_removed_ids: false,
        }
    }
}

impl Jobs {
    /// The handle of a job.
    #[inline]
    pub fn find(&self, id: JobId) -> Option<JobHandle> {
        let entries = &self.entries;
        let hash = hash(id);
        let found = self.ids[shard_of(hash)]
            .find(hash, |handle: &JobHandle| entries[handle.index()].is_of(id));
        found.copied()
    }

    /// The state of a job.
    #[inline]
    pub fn state(&self, id: JobId) -> Option<JobState> {
        let hash = hash(id);
        // The entry is read once for both: whether it is the job, and its state.
        let mut state = None;
        let is_it = |handle: &JobHandle| {
            let entry = &self.entries[handle.index()];
            state = Some(entry.state);
            entry.is_of(id)
        };
        self.ids[shard_of(hash)].find(hash, is_it)?;
        state
    }

    /// Adds a job, whose state is set by the caller. `None` if the id is known or all handles are
    /// in use.
    pub fn insert(&mut self, id: JobId, priority: u32) -> Option<JobHandle> {
        if self.find(id).is_some() {
            return None;
        }
        let handle = self.take_unused()?;
        self.entries[handle.index()] = JobEntry {
            id,
            priority,
            effective_priority: priority,
            state: JobState::Pending(LaneId::NONE),
        };
        let id_hash = hash(id);
        let entries = &self.entries;
        let ids = self.ids[shard_of(id_hash)].to_mut();
        ids.insert_unique(id_hash, handle, |handle| hash(entries[handle.index()].id));
        Some(handle)
    }

    /// Takes an unused handle; `None` if there is none.
    #[inline]
    fn take_unused(&mut self) -> Option<JobHandle> {
        while let Some(chunk) = self.with_unused.last() {
            let handles = &mut self.handles[*chunk];
            let handle = handles.unused;
            if handle == JobHandle::NONE {
                handles.is_listed = false;
                self.with_unused.pop();
                continue;
            }
            if let JobState::Unused(next) = self.entries[handle.index()].state {
                handles.unused = next;
            }
            handles.jobs += 1;
            self.unused -= 1;
            return Some(handle);
        }
        self.add_unused()
    }

    /// Gives a chunk of handles memory again, or makes a new handle. Returns an unused one; `None` if there is none.
    fn add_unused(&mut self) -> Option<JobHandle> {
        if let Some(chunk) = self.without_memory.pop() {
            let last = (chunk + 1) * CHUNK_JOBS - 1;
            self.entries.restore_chunk(chunk, |index| {
                let next = if index == last {
                    JobHandle::NONE
                } else {
                    JobHandle::from_usize(index + 1)
                };
                let state = JobState::Unused(next);
                JobEntry { state, ..NO_JOB }
            });
            self.unused += CHUNK_JOBS;
            self.handles[chunk].unused = JobHandle::from_usize(chunk * CHUNK_JOBS);
            self.list(chunk);
            return self.take_unused();
        }
        let index = self.entries.len();
        let handle = u32::try_from(index).map(JobHandle::new).ok()?;
        if handle == JobHandle::NONE {
            return None;
        }
        self.entries.push(NO_JOB);
        if index / CHUNK_JOBS == self.handles.len() {
            self.handles.push(Handles {
                unused: JobHandle::NONE,
                jobs: 0,
                is_listed: false,
            });
        }
        self.handles[index / CHUNK_JOBS].jobs += 1;
        Some(handle)
    }

    /// Lists a chunk as one with unused handles.
    #[inline]
    fn list(&mut self, chunk: usize) {
        if !std::mem::replace(&mut self.handles[chunk].is_listed, true) {
            self.with_unused.push(chunk);
        }
    }

    /// Removes a job.
    pub fn remove(&mut self, handle: JobHandle) {
        let chunk = handle.index() / CHUNK_JOBS;
        let entry = &mut self.entries[handle.index()];
        let id_hash = hash(entry.id);
        let handles = &mut self.handles[chunk];
        entry.state = JobState::Unused(handles.unused);
        handles.unused = handle;
        handles.jobs -= 1;
        self.unused += 1;
        if self.keeps_removed_ids {
            self.list(chunk);
            return;
        }
        let ids = self.ids[shard_of(id_hash)].to_mut();
        if let Ok(found) = ids.find_entry(id_hash, |found| *found == handle) {
            found.remove();
        }
        if ids.capacity() > MIN_SHARD_CAPACITY && ids.capacity() / 8 > ids.len() {
            let entries = &self.entries;
            ids.shrink_to(2 * ids.len(), |handle| hash(entries[handle.index()].id));
        }
        self.list(chunk);
        // The last chunk may have handles that no job has had.
        let is_unused = self.handles[chunk].jobs == 0 && chunk + 1 < self.handles.len();
        if is_unused && self.unused > MAX_UNUSED {
            self.entries.remove_chunk(chunk);
            self.handles[chunk].unused = JobHandle::NONE;
            self.without_memory.push(chunk);
            self.unused -= CHUNK_JOBS;
        }
    }

    /// The entry of a handle. An unused one has that of its last job, or one without a job.
    #[inline]
    pub fn at(&self, handle: JobHandle) -> &JobEntry {
        self.entries.get(handle.index()).unwrap_or(&NO_JOB)
    }

    #[inline]
    pub fn at_mut(&mut self, handle: JobHandle) -> &mut JobEntry {
        &mut self.entries[handle.index()]
    }

    /// All jobs, in order of their handles.
    pub fn iter(&self) -> impl Iterator<Item = (JobHandle, &JobEntry)> {
        self.entries
            .enumerate()
            .map(|(index, entry)| (JobHandle::from_usize(index), entry))
            .filter(|(_, entry)| !matches!(entry.state, JobState::Unused(_)))
    }

    /// Leaves the ids of jobs that are removed from now on in the table, where they are found no longer. For a copy with a
    /// short life: a removal would copy a whole shard.
    pub fn keep_removed_ids(&mut self) {
        self.keeps_removed_ids = true;
    }

    /// Makes clones share the present entries from now on.
    pub fn share(&mut self) {
        self.entries.share();
        self.ids.iter_mut().for_each(CopyOnWrite::share);
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let ids: usize = self.ids.iter().map(|shard| shard.allocation_size()).sum();
        self.entries.bytes() + ids
    }
}

#[cfg(test)]
mod tests {
    use penstock_jobspec::job_id::JobId;

    use super::Jobs;
    use crate::copy_on_write::CopyOnWrite;

    const COUNT: u64 = 5000;

    #[test]
    fn the_table_of_ids_grows_a_few_shards_at_a_time() {
        let mut jobs = Jobs::default();
        let mut before: Vec<usize> = Vec::new();
        for id in 0..400_000 {
            assert!(jobs.insert(JobId::new(id << 24), 16).is_some());
            if id % 1000 > 0 || id < 20_000 {
                continue;
            }
            let capacities = jobs.ids.iter().map(|shard| shard.capacity());
            let capacities: Vec<_> = capacities.collect();
            let pairs = before.iter().zip(&capacities);
            let grown = pairs.filter(|(before, after)| before != after).count();
            assert!(grown <= 8, "{grown} after {id} jobs");
            before = capacities;
        }
        let sizes = jobs.ids.iter().map(|shard| shard.len());
        let (least, most) = (sizes.clone().min(), sizes.max());
        assert!(
            least > Some(3500) && most < Some(9000),
            "{least:?} {most:?}"
        );
    }

    #[test]
    fn a_copy_that_keeps_removed_ids_copies_no_table_of_ids() {
        let mut jobs = Jobs::default();
        for id in 0..COUNT {
            assert!(jobs.insert(JobId::new(id), 16).is_some());
        }
        jobs.share();
        let mut copy = jobs.clone();
        copy.keep_removed_ids();
        for id in (0..COUNT).step_by(2) {
            let handle = copy.find(JobId::new(id)).expect("a job");
            copy.remove(handle);
        }
        assert!(!copy.ids.iter().any(CopyOnWrite::is_owned));
        for id in 0..COUNT {
            let (id, is_left) = (JobId::new(id), id % 2 == 1);
            assert_eq!(copy.find(id).is_some(), is_left);
            assert_eq!(copy.state(id).is_some(), is_left);
            assert!(jobs.find(id).is_some());
        }
        // The handles of removed jobs are used again, with their ids in the table twice.
        for id in COUNT..2 * COUNT {
            assert!(copy.insert(JobId::new(id), 16).is_some());
        }
        for id in 0..2 * COUNT {
            let is_known = id >= COUNT || id % 2 == 1;
            assert_eq!(copy.find(JobId::new(id)).is_some(), is_known);
        }
        assert_eq!(copy.iter().count() as u64, COUNT + COUNT / 2);
    }
}
