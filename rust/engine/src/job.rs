//! Jobs that wait or run, under small handles.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use penstock_jobspec::Request;

use crate::QueueId;
use crate::chunks::Chunks;
use crate::part::Part;

/// A job to be scheduled.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// FLUID (RFC 19), or any other number that no other job has.
    pub id: u64,
    /// 0 (held, never started) to 4294967295.
    pub priority: u32,
    /// What it asks for.
    pub request: Request,
    /// Where it waits.
    pub queue: QueueId,
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not a job: the next unused handle.
    Unused(u32),
    /// Waits in this lane.
    Waits(u32),
    /// Runs, with its resources under this number.
    Runs(u32),
}

/// What is kept of every job.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub id: u64,
    pub priority: u32,
    /// What its priority comes to in the order of its queue; 0 for one that is held.
    pub rank: u32,
    pub state: State,
}

const END: u32 = u32::MAX;

impl Default for State {
    fn default() -> Self {
        Self::Unused(END)
    }
}

/// Every job that waits or runs, found by its handle or by its id.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    known: Chunks<Known, 1024>,
    unused: u32,
    /// By parts of the hash, so that a copy need not have all of it.
    ids: Box<[Part<HashTable<u32>>; PARTS]>,
}

/// Parts of the table of ids.
const PARTS: usize = 64;

/// The part of the table that a hash is in: by bits of which the table itself makes no use.
#[inline]
fn part_of(hash: u64) -> usize {
    (hash >> 48) as usize % PARTS
}

/// Ids are FLUIDs or count up: a product spreads them over the upper bits, which are folded down.
fn hash(id: u64) -> u64 {
    let product = u128::from(id ^ 0x243F_6A88_85A3_08D3) * 0x9E37_79B9_7F4A_7C15;
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    let folded = (product >> 64) as u64 ^ product as u64;
    folded
}

impl Default for Jobs {
    fn default() -> Self {
        Self {
            known: Chunks::default(),
            unused: END,
            ids: Box::new([(); PARTS].map(|()| Part::Own(HashTable::new()))),
        }
    }
}

impl Jobs {
    /// The handle of a job.
    #[inline]
    pub fn find(&self, id: u64) -> Option<u32> {
        let known = &self.known;
        let hash = hash(id);
        let found = self.ids[part_of(hash)].find(hash, |it| known[*it as usize].id == id);
        found.copied()
    }

    /// Where a job is.
    #[inline]
    pub fn state(&self, id: u64) -> Option<State> {
        let hash = hash(id);
        // Looked at once for whether it is the job, and for where it is.
        let mut state = None;
        let is_it = |it: &u32| {
            let known = &self.known[*it as usize];
            state = Some(known.state);
            known.id == id
        };
        self.ids[part_of(hash)].find(hash, is_it)?;
        state
    }

    /// Takes a job in, unless its id or all handles are taken. Its state is to be set.
    pub fn insert(&mut self, id: u64, priority: u32) -> Option<u32> {
        let (known, number) = (&self.known, hash(id));
        let ids = self.ids[part_of(number)].own();
        let is_it = |it: &u32| known[*it as usize].id == id;
        let Entry::Vacant(place) = ids.entry(number, is_it, |it| hash(known[*it as usize].id))
        else {
            return None;
        };
        let known = Known {
            id,
            priority,
            rank: priority,
            state: State::Waits(END),
        };
        let handle = self.unused;
        let handle = if handle == END {
            let handle = u32::try_from(self.known.len()).ok()?;
            if handle == END {
                return None;
            }
            self.known.push(known);
            handle
        } else {
            let unused = &mut self.known[handle as usize];
            let State::Unused(next) = unused.state else {
                return None;
            };
            self.unused = next;
            *unused = known;
            handle
        };
        place.insert(handle);
        Some(handle)
    }

    /// Forgets a job.
    pub fn remove(&mut self, handle: u32) {
        let known = &mut self.known[handle as usize];
        let id = known.id;
        known.state = State::Unused(self.unused);
        self.unused = handle;
        let hash = hash(id);
        let ids = self.ids[part_of(hash)].own();
        if let Ok(found) = ids.find_entry(hash, |it| *it == handle) {
            found.remove();
        }
    }

    #[inline]
    pub fn at(&self, handle: u32) -> &Known {
        &self.known[handle as usize]
    }

    #[inline]
    pub fn at_mut(&mut self, handle: u32) -> &mut Known {
        &mut self.known[handle as usize]
    }

    /// All that wait or run, in order of their handles.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Known)> {
        let all = (0_u32..).zip(self.known.iter());
        all.filter(|(_, it)| !matches!(it.state, State::Unused(_)))
    }

    /// From now on, clones share what there is now.
    pub fn share(&mut self) {
        self.known.share();
        self.ids.iter_mut().for_each(Part::share);
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let ids: usize = self.ids.iter().map(|it| it.allocation_size()).sum();
        self.known.bytes() + ids
    }
}
