//! The table of pending and running jobs, with small handles.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;

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
    /// No job has it; the next unused handle.
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

impl Default for JobState {
    fn default() -> Self {
        Self::Unused(JobHandle::NONE)
    }
}

/// Every pending or running job, found by its handle or by its id.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    entries: ChunkedVec<JobEntry, 1024>,
    unused: JobHandle,
    /// Handles by id, in shards by hash, so that a snapshot copies only the shards that change.
    ids: Box<[CopyOnWrite<HashTable<JobHandle>>; ID_TABLE_SHARDS]>,
}

/// Shards of the table of ids.
const ID_TABLE_SHARDS: usize = 64;

/// The shard of a hash, by bits that the table itself does not use.
#[inline]
fn shard_of(hash: u64) -> usize {
    (hash >> 48) as usize % ID_TABLE_SHARDS
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
            unused: JobHandle::NONE,
            ids: Box::new([(); ID_TABLE_SHARDS].map(|()| CopyOnWrite::Owned(HashTable::new()))),
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
            .find(hash, |handle: &JobHandle| entries[handle.index()].id == id);
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
            entry.id == id
        };
        self.ids[shard_of(hash)].find(hash, is_it)?;
        state
    }

    /// Adds a job, whose state is set by the caller. `None` if the id is known or all handles are
    /// in use.
    pub fn insert(&mut self, id: JobId, priority: u32) -> Option<JobHandle> {
        let (entries, id_hash) = (&self.entries, hash(id));
        let ids = self.ids[shard_of(id_hash)].to_mut();
        let is_it = |handle: &JobHandle| entries[handle.index()].id == id;
        let hash_of = |handle: &JobHandle| hash(entries[handle.index()].id);
        let Entry::Vacant(vacant) = ids.entry(id_hash, is_it, hash_of) else {
            return None;
        };
        let entry = JobEntry {
            id,
            priority,
            effective_priority: priority,
            state: JobState::Pending(LaneId::NONE),
        };
        let handle = self.unused;
        let handle = if handle == JobHandle::NONE {
            let handle = u32::try_from(self.entries.len()).map(JobHandle::new).ok()?;
            if handle == JobHandle::NONE {
                return None;
            }
            self.entries.push(entry);
            handle
        } else {
            let unused = &mut self.entries[handle.index()];
            let JobState::Unused(next) = unused.state else {
                return None;
            };
            self.unused = next;
            *unused = entry;
            handle
        };
        vacant.insert(handle);
        Some(handle)
    }

    /// Removes a job.
    pub fn remove(&mut self, handle: JobHandle) {
        let entry = &mut self.entries[handle.index()];
        let id = entry.id;
        entry.state = JobState::Unused(self.unused);
        self.unused = handle;
        let hash = hash(id);
        let ids = self.ids[shard_of(hash)].to_mut();
        if let Ok(found) = ids.find_entry(hash, |found| *found == handle) {
            found.remove();
        }
    }

    #[inline]
    pub fn at(&self, handle: JobHandle) -> &JobEntry {
        &self.entries[handle.index()]
    }

    #[inline]
    pub fn at_mut(&mut self, handle: JobHandle) -> &mut JobEntry {
        &mut self.entries[handle.index()]
    }

    /// All jobs, in order of their handles.
    pub fn iter(&self) -> impl Iterator<Item = (JobHandle, &JobEntry)> {
        (0_u32..)
            .zip(self.entries.iter())
            .map(|(handle, entry)| (JobHandle::new(handle), entry))
            .filter(|(_, entry)| !matches!(entry.state, JobState::Unused(_)))
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
