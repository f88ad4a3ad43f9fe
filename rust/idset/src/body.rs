//! The ids of one chunk of 65,536, in the form that suits them.
use alloc::vec;
use alloc::vec::Vec;

use crate::op::Op;
use crate::run::{CHUNK_IDS, CHUNK_WORDS, Run};
use crate::wide;
use crate::words::{self, WORD_BITS};

/// The ids of a chunk, at least one. The same ids may be kept in different forms.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// All of them.
    Full,
    /// Ascending ids, if they are few.
    Ids(Vec<u16>),
    /// Ascending runs with gaps between them, if they are few.
    Runs(Vec<Run>),
    /// The bitmap, up to its last word that is not zero.
    Bits(Vec<u64>),
}

/// A body and how many ids it has.
#[derive(Clone, Copy)]
pub(crate) struct Counted<'a> {
    pub(crate) body: &'a Body,
    pub(crate) count: u32,
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "bits of a chunk have 16 bits"
)]
#[inline]
fn low(bit: usize) -> u16 {
    bit as u16
}

pub(crate) fn words_up_to(id: u16) -> usize {
    usize::from(id) / WORD_BITS + 1
}

/// A body of ascending ids and how many it has; `None` if there are none.
pub(crate) fn counted_ids(ids: Vec<u16>) -> Option<(Body, u32)> {
    let count = u32::try_from(ids.len()).unwrap_or(CHUNK_IDS);
    Some((Body::from_ids(ids)?, count))
}

/// A body of a bitmap of `count` ids and how many it has; `None` if that is 0.
pub(crate) fn counted_words((words, count): (Vec<u64>, u32)) -> Option<(Body, u32)> {
    Some((Body::from_words(words, count)?, count))
}

/// A body of ascending runs with gaps between them and how many ids it has; `None` if there are none.
pub(crate) fn counted_runs(runs: &[Run]) -> Option<(Body, u32)> {
    let count = Run::count_all(runs);
    (count > 0).then(|| (Body::from_runs(runs, count), count))
}

/// The runs of ascending ids.
pub(crate) fn runs_of(ids: &[u16]) -> Vec<Run> {
    ids.chunk_by(|a, b| a + 1 == *b)
        .map(|run| Run {
            lo: run[0],
            hi: run[run.len() - 1],
        })
        .collect()
}

impl Body {
    /// The smallest form for ascending runs with gaps between them, of which there is at least one; a bitmap is
    /// preferred if it is not much larger, because most operations are faster on it.
    pub(crate) fn from_runs(runs: &[Run], count: u32) -> Self {
        if count == CHUNK_IDS {
            return Self::Full;
        }
        let words = runs.last().map_or(0, |run| words_up_to(run.hi));
        let (as_ids, as_runs, as_bits) = (2 * count as usize, 4 * runs.len(), 8 * words);
        if as_bits <= 2 * as_ids.min(as_runs) {
            let mut words = vec![0; words];
            // The word of the last run is kept out of memory until the next one is in another word.
            let (mut at, mut word) = (0, 0);
            for run in runs {
                let (first, last) = (usize::from(run.lo), usize::from(run.hi));
                if first / WORD_BITS != at {
                    words[at] |= word;
                    (at, word) = (first / WORD_BITS, 0);
                }
                if last / WORD_BITS == at {
                    word |= words::between(first, last);
                } else {
                    words::set(&mut words, first, last);
                }
            }
            words[at] |= word;
            Self::Bits(words)
        } else if as_ids < as_runs {
            let mut ids = Vec::with_capacity(count as usize);
            ids.extend(runs.iter().flat_map(|run| run.lo..=run.hi));
            Self::Ids(ids)
        } else {
            Self::Runs(runs.to_vec())
        }
    }

    /// The form for ascending ids; `None` if there are none.
    pub(crate) fn from_ids(mut ids: Vec<u16>) -> Option<Self> {
        let bytes = 8 * words_up_to(*ids.last()?);
        if 4 * ids.len() > bytes {
            return Some(Self::Ids(ids).to_bits());
        }
        if ids.len() <= ids.capacity() / 2 {
            ids.shrink_to_fit();
        }
        Some(Self::Ids(ids))
    }

    /// The form for a bitmap of `count` ids; `None` if that is 0.
    pub(crate) fn from_words(mut words: Vec<u64>, count: u32) -> Option<Self> {
        words::trim(&mut words);
        if words.is_empty() || count == CHUNK_IDS {
            return (count > 0).then_some(Self::Full);
        }
        let bytes = 8 * words.len();
        if 4 * count as usize <= bytes {
            let mut ids = vec![0; count as usize];
            wide::write_ids(&words, &mut ids);
            return Some(Self::Ids(ids));
        }
        // If almost all bits are set, a few runs may be shorter.
        if 16 * count as usize >= 15 * WORD_BITS * words.len()
            && 16 * words::count_runs(&words) <= bytes
        {
            return Some(Self::Runs(Self::Bits(words).to_runs()));
        }
        if words.len() <= words.capacity() / 2 {
            words.shrink_to_fit();
        }
        Some(Self::Bits(words))
    }

    /// The number of ids, counted each time.
    pub(crate) fn count(&self) -> u32 {
        match self {
            Self::Full => CHUNK_IDS,
            Self::Ids(ids) => u32::try_from(ids.len()).unwrap_or(CHUNK_IDS),
            Self::Runs(runs) => Run::count_all(runs),
            Self::Bits(words) => words::count(words),
        }
    }

    pub(crate) fn runs_len(&self) -> usize {
        match self {
            Self::Full => 1,
            Self::Ids(ids) => ids.chunk_by(|a, b| a + 1 == *b).count(),
            Self::Runs(runs) => runs.len(),
            Self::Bits(words) => words::count_runs(words),
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Full => 0,
            Self::Ids(ids) => 2 * ids.capacity(),
            Self::Runs(runs) => 4 * runs.capacity(),
            Self::Bits(words) => 8 * words.capacity(),
        }
    }

    /// Asks for what is read soon, if the processor does not foresee it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Self::Ids(ids) = self {
            wide::prefetch(ids);
        }
    }

    #[inline]
    pub(crate) fn contains(&self, id: u16) -> bool {
        match self {
            Self::Bits(words) => words::contains(words, id.into()),
            Self::Full => true,
            Self::Ids(ids) => ids.binary_search(&id).is_ok(),
            Self::Runs(runs) => runs
                .get(runs.partition_point(|run| run.hi < id))
                .is_some_and(|run| run.lo <= id),
        }
    }

    pub(crate) fn first(&self) -> u16 {
        match self {
            Self::Full => 0,
            Self::Ids(ids) => ids.first().copied().unwrap_or(0),
            Self::Runs(runs) => runs.first().map_or(0, |run| run.lo),
            Self::Bits(words) => words::next_set(words, 0).map_or(0, low),
        }
    }

    pub(crate) fn last(&self) -> u16 {
        match self {
            Self::Full => u16::MAX,
            Self::Ids(ids) => ids.last().copied().unwrap_or(0),
            Self::Runs(runs) => runs.last().map_or(0, |run| run.hi),
            Self::Bits(words) => words::prev_set(words, usize::MAX).map_or(0, low),
        }
    }

    /// The first run that ends at or after `id`; it may be cut off below `id`.
    pub(crate) fn run_from(&self, id: u16) -> Option<Run> {
        match self {
            Self::Full => Some(Run::ALL),
            Self::Ids(ids) => {
                let rest = &ids[ids.partition_point(|&other| other < id)..];
                let run = rest.chunk_by(|a, b| a + 1 == *b).next()?;
                Some(Run {
                    lo: run[0],
                    hi: run[run.len() - 1],
                })
            }
            Self::Runs(runs) => runs.get(runs.partition_point(|run| run.hi < id)).copied(),
            Self::Bits(words) => {
                let lo = words::next_set(words, id.into())?;
                let hi = words::next_clear(words, lo) - 1;
                Some(Run {
                    lo: low(lo),
                    hi: low(hi),
                })
            }
        }
    }

    /// The last run that starts at or before `id`; it may be cut off above `id`.
    pub(crate) fn run_back(&self, id: u16) -> Option<Run> {
        match self {
            Self::Full => Some(Run::ALL),
            Self::Ids(ids) => {
                let rest = &ids[..ids.partition_point(|&other| other <= id)];
                let run = rest.chunk_by(|a, b| a + 1 == *b).next_back()?;
                Some(Run {
                    lo: run[0],
                    hi: run[run.len() - 1],
                })
            }
            Self::Runs(runs) => {
                let started = runs.partition_point(|run| run.lo <= id);
                runs.get(started.checked_sub(1)?).copied()
            }
            Self::Bits(words) => {
                let hi = words::prev_set(words, id.into())?;
                let lo = words::prev_clear(words, hi).map_or(0, |clear| clear + 1);
                Some(Run {
                    lo: low(lo),
                    hi: low(hi),
                })
            }
        }
    }

    /// Calls back with every run.
    pub(crate) fn each_run(&self, mut call: impl FnMut(Run)) {
        match self {
            Self::Full => call(Run::ALL),
            Self::Ids(ids) => runs_of(ids).into_iter().for_each(call),
            Self::Runs(runs) => runs.iter().copied().for_each(call),
            Self::Bits(words) => words::each_run(words, |lo, hi| {
                call(Run {
                    lo: low(lo),
                    hi: low(hi),
                });
            }),
        }
    }

    /// Appends the ids at or after `low`, added to `base`, until there are `max` numbers.
    pub(crate) fn append_ids(&self, low: u16, base: u32, ids: &mut Vec<u32>, max: usize) {
        let left = max - ids.len();
        let span = |run: Run| base + u32::from(run.lo.max(low))..=base + u32::from(run.hi);
        match self {
            Self::Full => ids.extend(span(Run::ALL).take(left)),
            Self::Ids(known) => {
                let known = &known[known.partition_point(|&id| id < low)..];
                ids.extend(known.iter().take(left).map(|&id| base + u32::from(id)));
            }
            Self::Runs(runs) => {
                for run in &runs[runs.partition_point(|run| run.hi < low)..] {
                    let left = max - ids.len();
                    if left == 0 {
                        break;
                    }
                    ids.extend(span(*run).take(left));
                }
            }
            Self::Bits(words) => words::append_ones(words, low.into(), base, ids, max),
        }
    }

    /// The number of ids below `id`.
    pub(crate) fn count_below(&self, id: u16) -> u32 {
        id.checked_sub(1)
            .map_or(0, |hi| self.count_in(Run { lo: 0, hi }))
    }

    /// The number of ids in the run.
    pub(crate) fn count_in(&self, run: Run) -> u32 {
        let Run { lo, hi } = run;
        match self {
            Self::Full => run.count(),
            Self::Ids(ids) => {
                let ids = &ids[ids.partition_point(|&id| id < lo)..];
                let ids = &ids[..ids.partition_point(|&id| id <= hi)];
                u32::try_from(ids.len()).unwrap_or(CHUNK_IDS)
            }
            Self::Runs(runs) => {
                let from = runs.partition_point(|run| run.hi < lo);
                let within = runs[from..].iter().take_while(|run| run.lo <= hi);
                within
                    .map(|run| u32::from(run.hi.min(hi) - run.lo.max(lo)) + 1)
                    .sum()
            }
            Self::Bits(words) => words::count_in(words, lo.into(), hi.into()),
        }
    }

    /// The id with `n` ids below it.
    pub(crate) fn nth(&self, mut n: u32) -> Option<u16> {
        match self {
            Self::Full => u16::try_from(n).ok(),
            Self::Ids(ids) => ids.get(n as usize).copied(),
            Self::Runs(runs) => {
                for run in runs {
                    if n < run.count() {
                        return Some(run.lo + u16::try_from(n).ok()?);
                    }
                    n -= run.count();
                }
                None
            }
            Self::Bits(words) => words::select(words, n).map(low),
        }
    }

    /// Applies the operation to a bitmap, in place. It has a word for each of these ids; `op` is not an intersection.
    pub(crate) fn write(&self, op: Op, to: &mut [u64]) {
        match self {
            Self::Full => to
                .iter_mut()
                .for_each(|word| *word = op.word(*word, u64::MAX)),
            Self::Ids(ids) => wide::change_ids(op, to, ids),
            Self::Runs(runs) => wide::combine_runs(op, to, runs),
            Self::Bits(words) => {
                debug_assert_ne!(op, Op::Intersection);
                for (word, own) in to.iter_mut().zip(words) {
                    *word = op.word(*word, *own);
                }
            }
        }
    }

    /// The bitmap of the whole chunk, in zeroes on the stack: as a result it would be copied.
    pub(crate) fn mask<'a>(&self, zeroes: &'a mut [u64; CHUNK_WORDS]) -> &'a [u64; CHUNK_WORDS] {
        self.write(Op::Union, zeroes);
        zeroes
    }

    /// The bitmap, of `len` words, which is long enough.
    pub(crate) fn to_words(&self, len: usize) -> Vec<u64> {
        if let Self::Bits(words) = self {
            let mut whole = Vec::with_capacity(len);
            whole.extend_from_slice(words);
            whole.resize(len, 0);
            return whole;
        }
        let mut whole = vec![0; len];
        self.write(Op::Union, &mut whole);
        whole
    }

    fn to_bits(&self) -> Self {
        Self::Bits(self.to_words(words_up_to(self.last())))
    }

    fn to_runs(&self) -> Vec<Run> {
        match self {
            Self::Full => vec![Run::ALL],
            Self::Ids(ids) => runs_of(ids),
            Self::Runs(runs) => runs.clone(),
            Self::Bits(_) => {
                let mut runs = Vec::new();
                self.each_run(|run| runs.push(run));
                runs
            }
        }
    }

    /// Adds an id. Returns whether it was new.
    pub(crate) fn insert(&mut self, id: u16) -> bool {
        match self {
            Self::Full => return false,
            Self::Ids(ids) => match ids.binary_search(&id) {
                Ok(_) => return false,
                Err(at) => ids.insert(at, id),
            },
            Self::Runs(runs) => {
                // The lowest id of a pool of free ids is taken and returned again and again: then no search is needed.
                let at = match runs.first() {
                    Some(first) if id <= first.hi => 0,
                    _ => runs.partition_point(|run| run.hi < id),
                };
                let (before, after) = runs.split_at_mut(at);
                let before = before.last_mut().filter(|run| run.hi + 1 == id);
                match (before, after.first_mut()) {
                    (_, Some(run)) if run.lo <= id => return false,
                    // One run grows: no form is smaller than before.
                    (None, Some(run)) if run.lo - 1 == id => {
                        run.lo = id;
                        return true;
                    }
                    _ => splice(runs, Run::one(id)),
                }
            }
            Self::Bits(words) => {
                let index = usize::from(id) / WORD_BITS;
                if index >= words.len() {
                    self.insert_run(Run::one(id));
                    return true;
                }
                let (word, bit) = (&mut words[index], 1 << (usize::from(id) % WORD_BITS));
                let new = *word & bit == 0;
                *word |= bit;
                return new;
            }
        }
        self.reconsider();
        true
    }

    /// Removes and returns the lowest id of several ones, unless another form might suit the rest better.
    pub(crate) fn pop_first(&mut self) -> Option<u16> {
        match self {
            Self::Full | Self::Ids(_) => None,
            Self::Runs(runs) => {
                let run = runs.first_mut()?;
                let id = run.lo;
                if id < run.hi {
                    run.lo += 1;
                } else {
                    runs.remove(0);
                }
                Some(id)
            }
            Self::Bits(words) => {
                let id = words::next_set(words, 0)?;
                let word = words.get_mut(id / WORD_BITS)?;
                *word &= *word - 1;
                Some(low(id))
            }
        }
    }

    /// Adds the ids of a run.
    pub(crate) fn insert_run(&mut self, run: Run) {
        if run == Run::ALL {
            *self = Self::Full;
            return;
        }
        if let Self::Bits(words) = self {
            let needed = words_up_to(run.hi);
            if needed <= 4 * words.len() + 16 {
                if needed > words.len() {
                    words.resize(needed, 0);
                }
                words::set(words, run.lo.into(), run.hi.into());
                return;
            }
        }
        if matches!(self, Self::Bits(_) | Self::Ids(_)) {
            *self = Self::Runs(self.to_runs());
        }
        if let Self::Runs(runs) = self {
            splice(runs, run);
        }
        self.reconsider();
    }

    /// Converts to another form if that is smaller than the list.
    fn reconsider(&mut self) {
        let bitmap = 8 * words_up_to(self.last());
        match self {
            Self::Ids(ids) if 2 * ids.len() > bitmap => *self = self.to_bits(),
            Self::Ids(ids) if ids.len() >= 16 && ids.len().is_power_of_two() => {
                let runs = runs_of(ids);
                if 4 * runs.len() <= ids.len() {
                    *self = Self::Runs(runs);
                }
            }
            Self::Runs(runs) if 4 * runs.len() > bitmap => *self = self.to_bits(),
            _ => {}
        }
    }

    /// Removes the ids of a run; at least one id must remain.
    pub(crate) fn remove_run(&mut self, run: Run) {
        match self {
            Self::Full => {
                *self = Self::Runs(vec![Run::ALL]);
                self.remove_run(run);
            }
            Self::Ids(ids) => {
                let from = ids.partition_point(|&id| id < run.lo);
                let to = ids.partition_point(|&id| id <= run.hi);
                ids.drain(from..to);
            }
            Self::Runs(runs) => {
                let from = runs.partition_point(|other| other.hi < run.lo);
                let to = runs.partition_point(|other| other.lo <= run.hi);
                if from == to {
                    return;
                }
                let (first, last) = (runs[from], runs[to - 1]);
                let head = (first.lo < run.lo).then(|| Run {
                    lo: first.lo,
                    hi: run.lo - 1,
                });
                let tail = (last.hi > run.hi).then(|| Run {
                    lo: run.hi + 1,
                    hi: last.hi,
                });
                runs.splice(from..to, head.into_iter().chain(tail));
                self.reconsider();
            }
            Self::Bits(words) => {
                let end = words.len() * WORD_BITS;
                if usize::from(run.lo) >= end {
                    return;
                }
                words::clear(words, run.lo.into(), usize::from(run.hi).min(end - 1));
                words::trim(words);
            }
        }
    }
}

/// Adds a run to others, joined with those that it touches.
fn splice(runs: &mut Vec<Run>, mut run: Run) {
    // Touching runs join: look one id further on both sides.
    let from = runs.partition_point(|other| other.hi < run.lo.saturating_sub(1));
    let to = runs.partition_point(|other| other.lo <= run.hi.saturating_add(1));
    if from < to {
        run.lo = run.lo.min(runs[from].lo);
        run.hi = run.hi.max(runs[to - 1].hi);
        runs[from] = run;
        runs.drain(from + 1..to);
    } else {
        runs.insert(from, run);
    }
}
