//! Allocations of running jobs: hello, free, requeue.

use std::collections::BTreeMap;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;

use crate::ids::RunId;
use crate::job::JobState;
use crate::queue::QueueId;
use crate::running::Running;
use crate::timeline::Ending;
use crate::{Engine, Error};

/// What becomes of the resources of a job that ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AfterEnd {
    /// They are free.
    Free,
    /// They stay allocated, to no job.
    SetAside,
}

impl Engine {
    /// Where a running job is in the table.
    pub(crate) fn run_index(&self, id: u64) -> Result<RunId, Error> {
        match self.books.jobs.state(id) {
            Some(JobState::Running(run)) => Ok(run),
            _ => Err(Error::unknown_job(format!("job {id} holds no resources"))),
        }
    }

    pub(crate) fn run(&self, id: u64) -> Result<&Running, Error> {
        let run = self.books.runs.at(self.run_index(id)?);
        run.ok_or_else(|| Error::unknown_job(format!("job {id} holds no resources")))
    }

    /// The number of running jobs.
    pub fn running(&self) -> usize {
        self.books.runs.len()
    }

    /// Whether a job is running.
    pub fn is_running(&self, id: u64) -> bool {
        self.run_index(id).is_ok()
    }

    /// Registers a job that is running already, on nodes up or down.
    ///
    /// # Errors
    ///
    /// The job is known already, or its allocation is not in the inventory or not free; the engine
    /// is unchanged.
    pub fn allocate(&mut self, id: u64, r: &ResourceSet) -> Result<(), Error> {
        let books = &mut self.books;
        if books.jobs.find(id).is_some() {
            return Err(Error::known_job(id));
        }
        let shares = books.machine.allocation_of(r)?;
        let Some(handle) = books.jobs.insert(id, 0) else {
            return Err(Error::new(format!("job {id}: too many jobs")));
        };
        books.machine.allocate(&shares);
        books.changes += 1;
        books.told += 1;
        let run = books.hold(Running {
            handle,
            queue: QueueId::default(),
            asked: None,
            counted: shares.size(),
            shares,
            outside: None,
            start: r.starttime().unwrap_or(-1.0),
            end: r.expiration().unwrap_or(f64::INFINITY),
        });
        books.jobs.at_mut(handle).state = JobState::Running(run);
        Ok(())
    }

    /// As [`allocate`](Self::allocate), for a job that may also have resources outside the
    /// inventory; the rest is registered. Returns the ranks outside.
    ///
    /// # Errors
    ///
    /// The job is known already, or its cores or gpus on a rank of the inventory do not exist or
    /// are not free; the engine is unchanged.
    pub fn adopt(&mut self, id: u64, r: &ResourceSet) -> Result<IdSet, Error> {
        let outside = r.ranks().difference(self.ranks());
        if outside.is_empty() {
            return self.allocate(id, r).map(|()| outside);
        }
        self.allocate(id, &r.restrict(self.ranks()))?;
        let run = self.run_index(id)?;
        if let Some(running) = self.books.runs.at_mut(run) {
            let lost = r.restrict(&outside);
            let by_rank = lost
                .nodes()
                .map(|node| (node.rank, (node.cores.clone(), node.gpus.clone())));
            running.outside = Some(Box::new(by_rank.collect()));
        }
        Ok(outside)
    }

    /// What a job has on ranks that are not, or no longer, in the inventory: rank, cores, gpus.
    pub fn outside(&self, id: u64) -> impl Iterator<Item = (u32, &IdSet, &IdSet)> {
        let outside = self
            .run(id)
            .ok()
            .and_then(|running| running.outside.as_ref());
        let outside = outside.into_iter().flat_map(|outside| outside.iter());
        outside.map(|(rank, (cores, gpus))| (*rank, cores, gpus))
    }

    /// Sets what a job has on ranks outside the inventory.
    ///
    /// # Errors
    ///
    /// The job is not running, or one of the ranks is in the inventory.
    pub fn set_outside(
        &mut self,
        id: u64,
        outside: BTreeMap<u32, (IdSet, IdSet)>,
    ) -> Result<(), Error> {
        let run = self.run_index(id)?;
        if let Some(rank) = outside.keys().find(|rank| self.ranks().contains(**rank)) {
            return Err(Error::new(format!("rank {rank} is in the inventory")));
        }
        if let Some(running) = self.books.runs.at_mut(run) {
            running.outside = Some(Box::new(outside)).filter(|outside| !outside.is_empty());
        }
        Ok(())
    }

    /// Frees the allocation of a job: all of it, or the part on some ranks. A job with nothing left
    /// is forgotten.
    ///
    /// # Errors
    ///
    /// The job is not running.
    pub fn free(&mut self, id: u64, ranks: Option<&IdSet>) -> Result<(), Error> {
        let run = self.run_index(id)?;
        let Some(ranks) = ranks else {
            self.end(run, AfterEnd::Free);
            return Ok(());
        };
        let books = &mut self.books;
        let Some(running) = books.runs.at_mut(run) else {
            return Ok(());
        };
        let split = books.machine.split_by_ranks(running.shares.clone(), ranks);
        if let Some(outside) = &mut running.outside {
            outside.retain(|rank, _| !ranks.contains(*rank));
            if outside.is_empty() {
                running.outside = None;
            }
        }
        self.release_part(run, &split.part, split.rest);
        Ok(())
    }

    /// Frees the allocations of some jobs; those that are not running are ignored. Returns how many
    /// were running.
    pub fn finish(&mut self, ids: &[u64]) -> usize {
        let mut found = 0;
        for id in ids {
            if let Ok(run) = self.run_index(*id) {
                self.end(run, AfterEnd::Free);
                found += 1;
            }
        }
        found
    }

    /// Forgets a job without freeing its allocation, which may belong to another one.
    pub fn set_aside(&mut self, id: u64) {
        if let Ok(run) = self.run_index(id) {
            self.end(run, AfterEnd::SetAside);
        }
    }

    /// Ends a running job.
    pub(crate) fn end(&mut self, run: RunId, resources: AfterEnd) {
        let books = &mut self.books;
        if let Some(running) = books.release(run) {
            match resources {
                AfterEnd::Free => books.machine.release(&running.shares),
                AfterEnd::SetAside => books.changes += 1,
            }
            books.jobs.remove(running.handle);
        }
    }

    /// Undoes an unused allocation: the job is pending again, at its former position.
    ///
    /// # Errors
    ///
    /// The job is not running, or was registered with its resources, so that its request is
    /// unknown.
    pub fn requeue(&mut self, id: u64) -> Result<(), Error> {
        let run = self.run_index(id)?;
        if self.run(id)?.asked.is_none() {
            return Err(Error::new(format!(
                "job {id} came with its resources: what it asked for is not known"
            )));
        }
        let books = &mut self.books;
        if let Some(running) = books.release(run)
            && let Some(asked) = running.asked
        {
            books.machine.release(&running.shares);
            books.enqueue(running.handle, asked.shape, running.queue, asked.limit);
        }
        Ok(())
    }

    /// Updates the counters and the timeline after the allocation of a job has changed.
    pub(crate) fn resized(&mut self, run: RunId) {
        let books = &mut self.books;
        let Some(running) = books.runs.at_mut(run) else {
            return;
        };
        let before = std::mem::replace(&mut running.counted, running.shares.size());
        let (queue, end, counted) = (running.queue, running.end, running.counted);
        books.queues.count_end(queue, before);
        books.queues.count_start(queue, counted);
        books.changes += 1;
        books.told += 1;
        let cores = books.cores_up(run);
        if let Some(timeline) = &mut books.timeline {
            timeline.remove(end, run);
            timeline.insert(Ending { end, run, cores });
        }
    }

    /// Sets when a running job will end, in seconds since the epoch; 0 for unknown.
    ///
    /// # Errors
    ///
    /// The job is not running, or the inventory expires before; the engine is unchanged.
    pub fn set_expiration(&mut self, id: u64, expiration: f64) -> Result<(), Error> {
        let run = self.run_index(id)?;
        let expiration = Some(expiration).filter(|expiration| *expiration > 0.0);
        if let Some(end) = self.books.machine.expiration()
            && expiration.is_none_or(|expiration| expiration > end)
        {
            let found =
                expiration.map_or_else(|| "none".to_owned(), |expiration| expiration.to_string());
            return Err(Error::new(format!(
                "the resources end at {end}: expected an expiration up to then, found {found}"
            )));
        }
        let end = expiration.unwrap_or(f64::INFINITY);
        self.books.changes += 1;
        self.books.told += 1;
        let cores = self.books.cores_up(run);
        if let Some(running) = self.books.runs.at_mut(run) {
            let before = std::mem::replace(&mut running.end, end);
            let allocation_log = &mut self.books.allocation_log;
            allocation_log.record(running.handle, &running.shares, before, end);
            if let Some(timeline) = &mut self.books.timeline {
                timeline.remove(before, run);
                timeline.insert(Ending { end, run, cores });
            }
        }
        Ok(())
    }

    /// When a running job will end, if that is known.
    pub fn expiration(&self, id: u64) -> Option<f64> {
        let end = self.run(id).ok()?.end;
        Some(end).filter(|end| end.is_finite())
    }
}
