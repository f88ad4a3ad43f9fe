//! Jobs that get more while they run, or give a part back.

use penstock_jobspec::Request;
use penstock_rset::ResourceSet;

use crate::books::is_whole;
use crate::explain::Shortage;
use crate::ids::NodeIndex;
use crate::machine::Allocation;
use crate::{Engine, Error};

impl Engine {
    /// Gives a running job more: what a request asks for, now, on the nodes that the selection
    /// policy picks; these may be nodes that it has a part of. It holds that until it ends: the
    /// request's duration does not matter. Returns what has been added.
    ///
    /// Nothing waits: jobs in the queue are passed over, and reservations that are disturbed are
    /// made anew. Fails, and changes nothing, where the job holds nothing or should be over, the
    /// request can never be met or does not fit now, or the job's queue has no room for it.
    pub fn extend(&mut self, id: u64, request: &Request, now: f64) -> Result<ResourceSet, Error> {
        self.run(id)?;
        let shape = self.shape(request);
        let machine = &mut self.books.machine;
        let refuse = |why: String| Error::new(format!("job {id} cannot get more: {why}"));
        machine.feasible(shape).map_err(refuse)?;
        let Some(shares) = machine.place(shape) else {
            return Err(refuse(Shortage::now(machine, shape).to_string()));
        };
        self.add(id, shares, now)
    }

    /// As [`extend`](Self::extend), with just these resources, which have to be up and free.
    pub fn extend_with(
        &mut self,
        id: u64,
        r: &ResourceSet,
        now: f64,
    ) -> Result<ResourceSet, Error> {
        self.run(id)?;
        let machine = &self.books.machine;
        let shares = machine.allocation_of(r)?;
        if let Some(share) = shares.iter().find(|it| !machine.is_up(it.node)) {
            let rank = machine.rank(share.node);
            return Err(Error::new(format!(
                "job {id} cannot get more: rank {rank} is down"
            )));
        }
        self.add(id, shares, now)
    }

    /// Adds what is free to what a job holds.
    fn add(&mut self, id: u64, shares: Allocation, now: f64) -> Result<ResourceSet, Error> {
        let wrap = |error: penstock_rset::Error| Error::new(error.to_string());
        let refuse = |why: &str| Error::new(format!("job {id} cannot get more: {why}"));
        let run = self.run_number(id)?;
        let running = self.run(id)?;
        let end = running.end;
        if end <= now {
            return Err(refuse(&format!("its time was over at {end}, it is {now}")));
        }
        let held = |place: NodeIndex| {
            let places = running.shares.binary_search_by_key(&place, |it| it.node);
            places.is_ok()
        };
        let nodes = shares.iter().filter(|it| !held(it.node)).count() as u64;
        let cores = shares.iter().map(|it| u64::from(it.ncores())).sum();
        let admitted = self.books.queues.admits_more(running.queue, nodes, cores);
        admitted.map_err(|why| refuse(&why))?;
        let mut added = self.books.machine.r(&shares)?;
        let start = Some(now).filter(|now| *now > 0.0);
        added.set_starttime(start).map_err(wrap)?;
        let end = Some(end).filter(|end| end.is_finite());
        added.set_expiration(end).map_err(wrap)?;
        added.set_nslots(Some(shares.slots()).filter(|slots| *slots > 0));

        let books = &mut self.books;
        books.machine.allocate(&shares);
        if let Some(running) = books.runs.at_mut(run) {
            let turnover = &mut books.turnover;
            turnover.push_part(running.handle, &shares, f64::NEG_INFINITY, running.end);
            books.partial -= usize::from(!is_whole(&books.machine, &running.shares));
            running.shares.merge(shares);
            books.partial += usize::from(!is_whole(&books.machine, &running.shares));
        }
        self.resized(run);
        Ok(added)
    }

    /// Frees a part of what a job holds, by cores and gpus. How many slots the rest is, is not
    /// known then. Without anything left the job is forgotten. Fails, and changes nothing, where
    /// the job does not hold all of it.
    pub fn shrink_allocation(&mut self, id: u64, r: &ResourceSet) -> Result<(), Error> {
        let wrap = |error: Error| Error::new(format!("job {id}: {error}"));
        let run = self.run_number(id)?;
        let running = self.run(id)?;
        let strange = r.ranks().difference(self.ranks());
        let mut outside = running.outside.clone();
        for node in r.restrict(&strange).nodes() {
            let rank = node.rank;
            let known = outside.as_mut().and_then(|it| it.get_mut(&rank));
            let held = known
                .filter(|(cores, gpus)| node.cores.is_subset(cores) && node.gpus.is_subset(gpus));
            let Some((cores, gpus)) = held else {
                return Err(wrap(Error::new(format!(
                    "rank {rank}: expected a part of what is held, found more"
                ))));
            };
            *cores = cores.difference(node.cores);
            *gpus = gpus.difference(node.gpus);
        }
        if let Some(outside) = &mut outside {
            outside.retain(|_, (cores, gpus)| !cores.is_empty() || !gpus.is_empty());
        }
        let here = r.restrict(self.ranks());
        let machine = &self.books.machine;
        let split = machine.split_by_r(&running.shares, &here).map_err(wrap)?;
        let books = &mut self.books;
        if let Some(running) = books.runs.at_mut(run) {
            running.outside = outside.filter(|it| !it.is_empty());
        }
        if split.part.is_empty() {
            // Else the slots would be forgotten for nothing.
            let running = self.run(id)?;
            if running.shares.is_empty() && running.outside.is_none() {
                self.end(run, true);
            }
            return Ok(());
        }
        self.keep(run, &split.part, split.rest);
        Ok(())
    }

    /// A job gives a part back, and keeps the rest; without anything left it is over.
    pub(crate) fn keep(&mut self, run: u32, given: &Allocation, kept: Allocation) {
        let books = &mut self.books;
        let Some(running) = books.runs.at_mut(run) else {
            return;
        };
        let turnover = &mut books.turnover;
        turnover.push_part(running.handle, given, running.end, f64::NEG_INFINITY);
        books.partial -= usize::from(!is_whole(&books.machine, &running.shares));
        books.partial += usize::from(!is_whole(&books.machine, &kept));
        let nothing = kept.is_empty() && running.outside.is_none();
        running.shares = kept;
        books.machine.release(given);
        if nothing {
            self.end(run, true);
        } else {
            self.resized(run);
        }
    }
}
