//! Jobs that hold resources: hello, free, requeue.

use std::collections::BTreeMap;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;

use crate::books::size;
use crate::job::State;
use crate::queue::QueueId;
use crate::running::Running;
use crate::timeline::Ending;
use crate::{Engine, Error};

impl Engine {
    pub(crate) fn run_number(&self, id: u64) -> Result<u32, Error> {
        match self.books.jobs.state(id) {
            Some(State::Runs(run)) => Ok(run),
            _ => Err(Error::new(format!("job {id} holds no resources"))),
        }
    }

    pub(crate) fn run(&self, id: u64) -> Result<&Running, Error> {
        let run = self.books.runs.at(self.run_number(id)?);
        run.ok_or_else(|| Error::new(format!("job {id} holds no resources")))
    }

    /// Jobs that hold resources.
    pub fn running(&self) -> usize {
        self.books.runs.len()
    }

    /// Whether a job holds resources.
    pub fn is_running(&self, id: u64) -> bool {
        self.run_number(id).is_ok()
    }

    /// Registers what a job holds already, up or not. Fails, and changes nothing, where it lies
    /// outside the inventory or is allocated.
    pub fn allocate(&mut self, id: u64, r: &ResourceSet) -> Result<(), Error> {
        let books = &mut self.books;
        if books.jobs.find(id).is_some() {
            return Err(Error::new(format!("job {id} is known already")));
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
            counted: size(&shares),
            shares,
            outside: None,
            start: r.starttime().unwrap_or(-1.0),
            end: r.expiration().unwrap_or(f64::INFINITY),
        });
        books.jobs.at_mut(handle).state = State::Runs(run);
        Ok(())
    }

    /// As [`allocate`](Self::allocate), for a job that may also hold what is not in the
    /// inventory (any more): the rest counts. Returns the ranks that do not.
    pub fn adopt(&mut self, id: u64, r: &ResourceSet) -> Result<IdSet, Error> {
        let strange = r.ranks().difference(self.ranks());
        if strange.is_empty() {
            return self.allocate(id, r).map(|()| strange);
        }
        self.allocate(id, &r.restrict(self.ranks()))?;
        let run = self.run_number(id)?;
        if let Some(running) = self.books.runs.at_mut(run) {
            let lost = r.restrict(&strange);
            let lost = lost.nodes();
            let lost = lost.map(|node| (node.rank, (node.cores.clone(), node.gpus.clone())));
            running.outside = Some(Box::new(lost.collect()));
        }
        Ok(strange)
    }

    /// What a job holds on ranks that are not in the inventory (any more): rank, cores, gpus.
    pub fn outside(&self, id: u64) -> impl Iterator<Item = (u32, &IdSet, &IdSet)> {
        let outside = self.run(id).ok().and_then(|it| it.outside.as_ref());
        let outside = outside.into_iter().flat_map(|it| it.iter());
        outside.map(|(rank, (cores, gpus))| (*rank, cores, gpus))
    }

    /// Says what a job holds on ranks that are not in the inventory. Fails where one is, and where
    /// the job holds nothing.
    pub fn set_outside(
        &mut self,
        id: u64,
        outside: BTreeMap<u32, (IdSet, IdSet)>,
    ) -> Result<(), Error> {
        let run = self.run_number(id)?;
        if let Some(rank) = outside.keys().find(|rank| self.ranks().contains(**rank)) {
            return Err(Error::new(format!("rank {rank} is in the inventory")));
        }
        if let Some(running) = self.books.runs.at_mut(run) {
            running.outside = Some(Box::new(outside)).filter(|it| !it.is_empty());
        }
        Ok(())
    }

    /// Frees what a job holds: everything, or what it has on some ranks. Without anything left it
    /// is forgotten.
    pub fn free(&mut self, id: u64, ranks: Option<&IdSet>) -> Result<(), Error> {
        let run = self.run_number(id)?;
        let Some(ranks) = ranks else {
            self.end(run, true);
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
        self.keep(run, &split.part, split.rest);
        Ok(())
    }

    /// Frees everything that some jobs hold; those that hold nothing do not matter. Returns how
    /// many did.
    pub fn finish(&mut self, ids: &[u64]) -> usize {
        let mut found = 0;
        for id in ids {
            if let Ok(run) = self.run_number(*id) {
                self.end(run, true);
                found += 1;
            }
        }
        found
    }

    /// Forgets a job, and gives what it was to hold to nobody: whose that is, is in doubt.
    pub fn set_aside(&mut self, id: u64) {
        if let Ok(run) = self.run_number(id) {
            self.end(run, false);
        }
    }

    /// A job is over.
    pub(crate) fn end(&mut self, run: u32, give: bool) {
        let books = &mut self.books;
        if let Some(running) = books.release(run) {
            books.changes += u64::from(!give);
            if give {
                books.machine.release(&running.shares);
            }
            books.jobs.remove(running.handle);
        }
    }

    /// Takes an allocation back that has not been used: the job waits again, where it was.
    pub fn requeue(&mut self, id: u64) -> Result<(), Error> {
        let run = self.run_number(id)?;
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

    /// What a job holds has changed: counts it anew.
    pub(crate) fn resized(&mut self, run: u32) {
        let books = &mut self.books;
        let Some(running) = books.runs.at_mut(run) else {
            return;
        };
        let (nodes, cores) = std::mem::replace(&mut running.counted, size(&running.shares));
        let (queue, end, counted) = (running.queue, running.end, running.counted);
        books.queues.count(queue, nodes, cores, false);
        books.queues.count(queue, counted.0, counted.1, true);
        books.changes += 1;
        books.told += 1;
        let cores = books.cores_up(run);
        if let Some(timeline) = &mut books.timeline {
            timeline.remove(end, run);
            timeline.insert(Ending { end, run, cores });
        }
    }

    /// Tells when a running job will end, in seconds since the epoch; 0 for no known time. Fails,
    /// and changes nothing, where the resources end before.
    pub fn set_expiration(&mut self, id: u64, expiration: f64) -> Result<(), Error> {
        let run = self.run_number(id)?;
        let expiration = Some(expiration).filter(|it| *it > 0.0);
        if let Some(end) = self.books.machine.expiration()
            && expiration.is_none_or(|expiration| expiration > end)
        {
            let found = expiration.map_or_else(|| "none".to_owned(), |it| it.to_string());
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
            let turnover = &mut self.books.turnover;
            turnover.push(running.handle, &running.shares, before, end);
            if let Some(timeline) = &mut self.books.timeline {
                timeline.remove(before, run);
                timeline.insert(Ending { end, run, cores });
            }
        }
        Ok(())
    }

    /// When a running job will end, where that is known.
    pub fn expiration(&self, id: u64) -> Option<f64> {
        let end = self.run(id).ok()?.end;
        Some(end).filter(|end| end.is_finite())
    }
}
