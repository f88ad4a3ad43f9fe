//! `EndedJobs`: the inactive jobs by their end, with what listings select by. Everything else about them is in the store alone.

use std::collections::VecDeque;

use penstock_jobspec::job_id::JobId;

use crate::event::EventTime;

/// The greatest number of jobs in one chunk.
const MAX_CHUNK_JOBS: usize = 512;

/// The end of an inactive job, and its id.
pub(crate) type End = (EventTime, JobId);

/// An inactive job. Packed: there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(crate) struct EndedJob {
    /// Its end, and its id.
    end: End,
    /// The number of its class: see [`Census`](crate::census::Census).
    class: u32,
    /// The [hash](hash_of) of its name.
    name_hash: u64,
}

impl EndedJob {
    /// A job with this end and id, the number of its class, and the hash of its name.
    pub(crate) fn new(end: End, class: u32, name_hash: u64) -> Self {
        Self {
            end,
            class,
            name_hash,
        }
    }

    /// Its end, and its id.
    pub(crate) fn end(&self) -> End {
        self.end
    }

    /// The number of its class.
    pub(crate) fn class(&self) -> u32 {
        self.class
    }

    /// The hash of its name.
    pub(crate) fn name_hash(&self) -> u64 {
        self.name_hash
    }
}

/// The hash of a job's name, which the store retains (FNV-1a).
///
/// Lists skip and rule out inactive jobs by this hash; the name of each row is compared before it is sent. Of a million names,
/// two have the same hash with a probability of 3e-8. FNV-1a is not keyed: a user can construct a name with the hash of
/// another. That hides the user's own job from a list without the other name, as that name itself would, and repeats rows on
/// the pages of a list by it; it shows no job and hides no other user's.
pub(crate) fn hash_of(name: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    name.bytes().fold(BASIS, add)
}

/// The bounds of the submission times of some jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubmissionBounds {
    pub(crate) earliest: EventTime,
    pub(crate) latest: EventTime,
}

impl SubmissionBounds {
    fn at(time: EventTime) -> Self {
        Self {
            earliest: time,
            latest: time,
        }
    }

    fn extend(&mut self, other: Self) {
        self.earliest = self.earliest.min(other.earliest);
        self.latest = self.latest.max(other.latest);
    }
}

/// Jobs whose ends follow each other.
#[derive(Debug)]
struct Chunk {
    jobs: Vec<EndedJob>,
    /// Bounds of all jobs that have been in the chunk; a removal does not narrow them. Jobs that end together were often
    /// submitted together.
    submission: SubmissionBounds,
}

/// The inactive jobs by their end, the oldest first.
///
/// There may be millions, nearly all of which are added in the order of their ends and removed from the oldest on: they
/// are in sorted chunks, which are full but for the last one and those that jobs were removed from.
#[derive(Debug, Default)]
pub(crate) struct EndedJobs {
    /// None is empty.
    chunks: VecDeque<Chunk>,
    len: usize,
}

impl EndedJobs {
    /// The number of jobs.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The index of the chunk in which a job with this end is, or would be.
    fn chunk_of(&self, end: End) -> usize {
        let is_before = |chunk: &Chunk| chunk.jobs.first().is_some_and(|job| job.end() <= end);
        self.chunks.partition_point(is_before).saturating_sub(1)
    }

    /// Adds a job that was submitted at this time, unless it is there.
    pub(crate) fn insert(&mut self, job: EndedJob, t_submit: EventTime) {
        let end = job.end();
        let submission = SubmissionBounds::at(t_submit);
        let last = self.chunks.back().and_then(|chunk| chunk.jobs.last());
        let is_last = last.is_none_or(|last| last.end() < end);
        let is_full = |chunk: &Chunk| chunk.jobs.len() >= MAX_CHUNK_JOBS;
        if is_last && self.chunks.back().is_none_or(is_full) {
            let jobs = Vec::with_capacity(MAX_CHUNK_JOBS);
            self.chunks.push_back(Chunk { jobs, submission });
        }
        let index = if is_last {
            self.chunks.len() - 1
        } else {
            self.chunk_of(end)
        };
        let chunk = &mut self.chunks[index];
        let Err(position) = chunk.jobs.binary_search_by_key(&end, EndedJob::end) else {
            return;
        };
        chunk.jobs.insert(position, job);
        chunk.submission.extend(submission);
        self.len += 1;
        if chunk.jobs.len() > MAX_CHUNK_JOBS {
            let rest = Chunk {
                jobs: chunk.jobs.split_off(MAX_CHUNK_JOBS / 2),
                submission: chunk.submission,
            };
            self.chunks.insert(index + 1, rest);
        }
    }

    /// Removes a job. Returns the number of its class.
    pub(crate) fn remove(&mut self, end: End) -> Option<u32> {
        let index = self.chunk_of(end);
        let chunk = self.chunks.get_mut(index)?;
        let jobs = &mut chunk.jobs;
        let position = jobs.binary_search_by_key(&end, EndedJob::end).ok()?;
        let class = jobs.remove(position).class;
        let left = jobs.len();
        self.len -= 1;
        if left == 0 {
            self.chunks.remove(index);
        } else if self.chunks.len() > index + 1
            && left + self.chunks[index + 1].jobs.len() <= MAX_CHUNK_JOBS / 2
            && let Some(next) = self.chunks.remove(index + 1)
        {
            let chunk = &mut self.chunks[index];
            chunk.jobs.extend(next.jobs);
            chunk.submission.extend(next.submission);
        }
        Some(class)
    }

    /// Whether a job with this end is one of them.
    pub(crate) fn has(&self, end: End) -> bool {
        let chunk = self.chunks.get(self.chunk_of(end));
        chunk.is_some_and(|chunk| chunk.jobs.binary_search_by_key(&end, EndedJob::end).is_ok())
    }

    /// The end with this index, from the oldest on.
    pub(crate) fn get(&self, index: usize) -> Option<End> {
        let mut index = index;
        for chunk in &self.chunks {
            match chunk.jobs.get(index) {
                Some(job) => return Some(job.end()),
                None => index -= chunk.jobs.len(),
            }
        }
        None
    }

    /// The number of jobs that ended at this time or before.
    pub(crate) fn count_until(&self, latest: EventTime) -> usize {
        let is_until = |job: &EndedJob| job.end().0 <= latest;
        let is_whole = |chunk: &Chunk| chunk.jobs.last().is_some_and(is_until);
        let whole = self.chunks.partition_point(is_whole);
        let next = self.chunks.get(whole);
        let others = next.map_or(0, |chunk| chunk.jobs.partition_point(is_until));
        let before = self.chunks.iter().take(whole);
        before.map(|chunk| chunk.jobs.len()).sum::<usize>() + others
    }

    /// The ends, the oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = End> {
        let jobs = self.chunks.iter().flat_map(|chunk| &chunk.jobs);
        jobs.map(EndedJob::end)
    }

    /// The jobs that ended after one, or all, the oldest first.
    pub(crate) fn after(&self, end: Option<End>) -> impl Iterator<Item = EndedJob> {
        let passed = end.map_or(0, |end| self.chunk_of(end));
        let jobs = self.chunks.iter().skip(passed);
        let jobs = jobs.flat_map(|chunk| &chunk.jobs).copied();
        jobs.skip_while(move |job| end.is_some_and(|end| job.end() <= end))
    }

    /// The jobs that ended before one, or all, the newest first, each with bounds of its submission.
    pub(crate) fn before(
        &self,
        end: Option<End>,
    ) -> impl Iterator<Item = (EndedJob, SubmissionBounds)> {
        let chunks = end.map_or(self.chunks.len(), |end| self.chunk_of(end) + 1);
        let newest_first = self.chunks.iter().take(chunks).rev();
        newest_first
            .flat_map(|chunk| {
                let newest_first = chunk.jobs.iter().rev();
                newest_first.map(|job| (*job, chunk.submission))
            })
            .skip_while(move |(found, _)| end.is_some_and(|end| found.end() >= end))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use penstock_jobspec::job_id::JobId;

    use super::{Chunk, End, EndedJob, EndedJobs, EventTime, MAX_CHUNK_JOBS, hash_of};

    /// The end of a job at this step: two steps have the same time.
    fn end(step: u64, id: u64) -> End {
        let step = u32::try_from(step / 2).unwrap();
        (EventTime::new(f64::from(step)), JobId::new(id))
    }

    /// The submission of a job with this end.
    fn submission(end: End) -> EventTime {
        EventTime::new(end.0.seconds() / 2.0)
    }

    /// The jobs that ended before one, or all. Each was submitted within its bounds.
    fn entries(jobs: &EndedJobs, end: Option<End>) -> impl Iterator<Item = EndedJob> {
        jobs.before(end).map(|(job, bounds)| {
            let submission = submission(job.end());
            assert!((bounds.earliest..=bounds.latest).contains(&submission));
            job
        })
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
            let name_hash = u64::from(class) + 1;
            jobs.insert(EndedJob::new(end, class, name_hash), submission(end));
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
        let job = |(end, class): (&End, &u32)| EndedJob::new(*end, *class, u64::from(*class) + 1);
        assert!(entries(&jobs, None).eq(model.iter().rev().map(job)));
        assert!(jobs.after(None).eq(model.iter().map(job)));
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
            assert!(entries(&jobs, Some(*end)).eq(expected));
            let later = (Bound::Excluded(*end), Bound::Unbounded);
            assert!(jobs.after(Some(*end)).eq(model.range(later).map(job)));
        }
        let fullness = jobs.chunks.iter().map(|chunk| chunk.jobs.len());
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
            [
                0xcbf2_9ce4_8422_2325,
                0xaf63_dc4c_8601_ec8c,
                0x3d5d_d56b_e329_6048
            ]
        );
    }

    #[test]
    fn a_job_takes_28_bytes_and_a_chunk_some_more() {
        let mut jobs = EndedJobs::default();
        let most = 8 * MAX_CHUNK_JOBS as u64;
        for id in 0..most {
            let end = end(id, id);
            jobs.insert(EndedJob::new(end, 0, 0), submission(end));
        }
        let capacity: usize = jobs.chunks.iter().map(|chunk| chunk.jobs.capacity()).sum();
        assert_eq!(capacity as u64, most);
        assert_eq!((size_of::<EndedJob>(), size_of::<Chunk>()), (28, 40));
    }
}
