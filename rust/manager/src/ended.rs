//! `EndedJobs`: the inactive jobs by their end, with what listings select by. Everything else about them is in the store alone.

use std::collections::VecDeque;

use penstock_jobspec::job_id::JobId;

use crate::event::EventTime;

/// The greatest number of jobs in one chunk.
const MAX_CHUNK_JOBS: usize = 512;

/// The end of an inactive job, and its id.
pub(crate) type End = (EventTime, JobId);

/// An inactive job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedJob {
    /// Its end, and its id.
    pub(crate) end: End,
    /// The number of its class: see [`Census`](crate::census::Census).
    pub(crate) class: u32,
    /// The [hash](hash_of) of its name.
    pub(crate) name_hash: u32,
}

/// The hash of a job's name, which the store retains (FNV-1a).
pub(crate) fn hash_of(name: &str) -> u32 {
    const BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let add = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(PRIME);
    name.bytes().fold(BASIS, add)
}

/// The inactive jobs by their end, the oldest first.
///
/// There may be millions, nearly all of which are added in the order of their ends and removed from the oldest on: they
/// are in sorted chunks, which are full but for the last one and those that jobs were removed from.
#[derive(Debug, Default)]
pub(crate) struct EndedJobs {
    /// None is empty.
    chunks: VecDeque<Vec<EndedJob>>,
    len: usize,
}

impl EndedJobs {
    /// The number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The index of the chunk in which a job with this end is, or would be.
    fn chunk_of(&self, end: End) -> usize {
        let is_before = |chunk: &Vec<EndedJob>| chunk.first().is_some_and(|job| job.end <= end);
        self.chunks.partition_point(is_before).saturating_sub(1)
    }

    /// Adds a job, unless it is there.
    pub(crate) fn insert(&mut self, job: EndedJob) {
        let end = job.end;
        let last = self.chunks.back().and_then(|chunk| chunk.last());
        let is_last = last.is_none_or(|last| last.end < end);
        let is_full = |chunk: &Vec<EndedJob>| chunk.len() >= MAX_CHUNK_JOBS;
        if is_last && self.chunks.back().is_none_or(is_full) {
            self.chunks.push_back(Vec::with_capacity(MAX_CHUNK_JOBS));
        }
        let index = if is_last {
            self.chunks.len() - 1
        } else {
            self.chunk_of(end)
        };
        let chunk = &mut self.chunks[index];
        let Err(position) = chunk.binary_search_by_key(&end, |job| job.end) else {
            return;
        };
        chunk.insert(position, job);
        self.len += 1;
        if chunk.len() > MAX_CHUNK_JOBS {
            let rest = chunk.split_off(MAX_CHUNK_JOBS / 2);
            self.chunks.insert(index + 1, rest);
        }
    }

    /// Removes a job. Returns the number of its class.
    pub(crate) fn remove(&mut self, end: End) -> Option<u32> {
        let index = self.chunk_of(end);
        let chunk = self.chunks.get_mut(index)?;
        let position = chunk.binary_search_by_key(&end, |job| job.end).ok()?;
        let class = chunk.remove(position).class;
        let left = chunk.len();
        self.len -= 1;
        if left == 0 {
            self.chunks.remove(index);
        } else if self.chunks.len() > index + 1
            && left + self.chunks[index + 1].len() <= MAX_CHUNK_JOBS / 2
            && let Some(next) = self.chunks.remove(index + 1)
        {
            self.chunks[index].extend(next);
        }
        Some(class)
    }

    /// Whether a job with this end is one of them.
    pub(crate) fn has(&self, end: End) -> bool {
        let chunk = self.chunks.get(self.chunk_of(end));
        chunk.is_some_and(|chunk| chunk.binary_search_by_key(&end, |job| job.end).is_ok())
    }

    /// The end with this index, from the oldest on.
    pub(crate) fn get(&self, index: usize) -> Option<End> {
        let mut index = index;
        for chunk in &self.chunks {
            match chunk.get(index) {
                Some(job) => return Some(job.end),
                None => index -= chunk.len(),
            }
        }
        None
    }

    /// The number of jobs that ended at this time or before.
    pub(crate) fn count_until(&self, latest: EventTime) -> usize {
        let is_until = |job: &EndedJob| job.end.0 <= latest;
        let is_whole = |chunk: &Vec<EndedJob>| chunk.last().is_some_and(is_until);
        let whole = self.chunks.partition_point(is_whole);
        let next = self.chunks.get(whole);
        let others = next.map_or(0, |chunk| chunk.partition_point(is_until));
        let before = self.chunks.iter().take(whole);
        before.map(Vec::len).sum::<usize>() + others
    }

    /// The ends, the oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = End> {
        self.chunks.iter().flatten().map(|job| job.end)
    }

    /// The jobs that ended before one, or all, the newest first.
    pub(crate) fn before(&self, end: Option<End>) -> impl Iterator<Item = EndedJob> {
        let chunks = end.map_or(self.chunks.len(), |end| self.chunk_of(end) + 1);
        let newest_first = self.chunks.iter().take(chunks).rev();
        newest_first
            .flat_map(|chunk| chunk.iter().rev().copied())
            .skip_while(move |found| end.is_some_and(|end| found.end >= end))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use penstock_jobspec::job_id::JobId;

    use super::{End, EndedJob, EndedJobs, EventTime, MAX_CHUNK_JOBS, hash_of};

    /// The end of a job at this step: two steps have the same time.
    fn end(step: u64, id: u64) -> End {
        let step = u32::try_from(step / 2).unwrap();
        (EventTime::new(f64::from(step)), JobId::new(id))
    }

    #[test]
    fn the_index_is_a_sorted_map() {
        let (mut jobs, mut model) = (EndedJobs::default(), BTreeMap::new());
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let most = 4 * MAX_CHUNK_JOBS as u64;
        // Grows, then shrinks; most jobs are added at the end.
        for step in 0..4 * most {
            let time = if random(4) > 0 {
                step
            } else {
                random(step + 1)
            };
            let end = end(time, random(3));
            let class = u32::try_from(random(5)).unwrap();
            let class = *model.entry(end).or_insert(class);
            let name_hash = class + 1;
            jobs.insert(EndedJob {
                end,
                class,
                name_hash,
            });
            for _ in 0..random(2 + 2 * step / (3 * most)) {
                let end = self::end(random(step + 1), random(3));
                assert_eq!(jobs.remove(end), model.remove(&end));
            }
            if step >= 3 * most
                && let Some((end, class)) = model.pop_first()
            {
                assert_eq!(jobs.remove(end), Some(class));
            }
        }
        assert_eq!(jobs.len(), model.len());
        assert!(jobs.iter().eq(model.keys().copied()));
        let job = |(end, class): (&End, &u32)| EndedJob {
            end: *end,
            class: *class,
            name_hash: class + 1,
        };
        assert!(jobs.before(None).eq(model.iter().rev().map(job)));
        for (index, (time, id)) in model.keys().enumerate().step_by(83) {
            assert_eq!(jobs.get(index), Some((*time, *id)));
            let until = model.keys().take_while(|end| end.0 <= *time);
            assert_eq!(jobs.count_until(*time), until.count());
        }
        assert_eq!(jobs.get(model.len()), None);
        for step in (0..4 * most).step_by(61) {
            let end = end(step, step % 3);
            assert_eq!(jobs.has(end), model.contains_key(&end));
        }
        for end in model.keys().step_by(97) {
            let expected = model.range(..*end).rev().map(job);
            assert!(jobs.before(Some(*end)).eq(expected));
        }
        let fullness = jobs.chunks.iter().map(Vec::len);
        assert!(
            fullness
                .clone()
                .all(|len| (1..=MAX_CHUNK_JOBS).contains(&len))
        );
        for end in model.into_keys() {
            jobs.remove(end);
        }
        assert!(jobs.chunks.is_empty() && jobs.len() == 0);
    }

    #[test]
    fn hashes_are_those_of_the_stores_that_exist() {
        assert_eq!(
            ["", "a", "sleep"].map(hash_of),
            [0x811c_9dc5, 0xe40c_292c, 0x89ea_bb08]
        );
    }

    #[test]
    fn a_job_takes_24_bytes() {
        let mut jobs = EndedJobs::default();
        let most = 8 * MAX_CHUNK_JOBS as u64;
        for id in 0..most {
            jobs.insert(EndedJob {
                end: end(id, id),
                class: 0,
                name_hash: 0,
            });
        }
        let capacity: usize = jobs.chunks.iter().map(Vec::capacity).sum();
        assert_eq!(capacity as u64, most);
        assert_eq!(size_of::<super::EndedJob>(), 24);
    }
}
