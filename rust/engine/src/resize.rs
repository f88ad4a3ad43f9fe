//! Resizing running jobs.

use std::fmt;

use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use crate::allocation::AfterEnd;
use crate::explain::Shortage;
use crate::ids::NodeIndex;
use crate::node_table::{Allocation, Size};
use crate::state::is_whole;
use crate::{Engine, Error};

/// The text for a running job that cannot be allocated more.
fn no_more(id: JobId, reason: &dyn fmt::Display) -> String {
    format!("job {} cannot get more: {reason}", id.get())
}

impl Engine {
    /// Allocates more resources to a running job: those of a request, now, on nodes that the
    /// selection policy picks; the job may already have a part of these nodes. The job keeps them
    /// until it ends: the request's duration is ignored. Returns the added resources.
    ///
    /// The running job takes precedence over pending jobs; reservations that conflict are
    /// recomputed.
    ///
    /// # Errors
    ///
    /// The job is not running or is overdue, the request can never be met or does not fit now, or
    /// the limits of the job's queue do not admit it; the engine is unchanged.
    pub fn extend(&mut self, id: JobId, request: &Request, now: f64) -> Result<ResourceSet, Error> {
        self.state.running_job(id)?;
        let node_table = &mut self.state.node_table;
        let shape = node_table.shape(request);
        node_table
            .feasible(shape)
            .map_err(|reason| Error::impossible(no_more(id, &reason)))?;
        let Some(shares) = node_table.place(shape) else {
            let shortage = Shortage::now(node_table, shape);
            return Err(Error::unavailable(no_more(id, &shortage)));
        };
        self.add(id, shares, now)
    }

    /// As [`extend`](Self::extend), with exactly these resources, which must be up and free.
    ///
    /// # Errors
    ///
    /// The job is not running or is overdue, the resources are not in the inventory, up and free,
    /// or the limits of the job's queue do not admit them; the engine is unchanged.
    pub fn extend_with(
        &mut self,
        id: JobId,
        r: &ResourceSet,
        now: f64,
    ) -> Result<ResourceSet, Error> {
        self.state.running_job(id)?;
        let node_table = &self.state.node_table;
        let shares = node_table.allocation_of(r)?;
        if let Some(share) = shares.iter().find(|share| !node_table.is_up(share.node)) {
            let rank = node_table.rank(share.node);
            let reason = format_args!("rank {rank} is down");
            return Err(Error::unavailable(no_more(id, &reason)));
        }
        self.add(id, shares, now)
    }

    /// Adds free resources to the allocation of a job.
    fn add(&mut self, id: JobId, shares: Allocation, now: f64) -> Result<ResourceSet, Error> {
        let wrap = |error: penstock_rset::Error| Error::new(error.to_string());
        let run = self.state.run_index(id)?;
        let running = self.state.running_job(id)?;
        let end = running.end;
        if end <= now {
            let reason = format_args!("its time was over at {end}, it is {now}");
            return Err(Error::impossible(no_more(id, &reason)));
        }
        let has = |node: NodeIndex| {
            let found = running
                .shares
                .binary_search_by_key(&node, |share| share.node);
            found.is_ok()
        };
        let nodes = shares.iter().filter(|share| !has(share.node)).count() as u64;
        let cores = shares.iter().map(|share| u64::from(share.ncores())).sum();
        let admitted = self
            .state
            .queues
            .admits_more(running.queue, Size { nodes, cores });
        admitted.map_err(|limit| {
            let note = self.state.queues.note(running.queue, limit);
            Error::unavailable(no_more(id, &note))
        })?;
        let mut added = self.state.node_table.r(&shares)?;
        let start = Some(now).filter(|now| *now > 0.0);
        added.set_starttime(start).map_err(wrap)?;
        let end = Some(end).filter(|end| end.is_finite());
        added.set_expiration(end).map_err(wrap)?;
        added.set_nslots(Some(shares.slots()).filter(|slots| *slots > 0));

        let state = &mut self.state;
        state.node_table.allocate(&shares);
        if let Some(running) = state.running_jobs.at_mut(run) {
            let allocation_log = &mut state.allocation_log;
            allocation_log.record_part(running.handle, &shares, f64::NEG_INFINITY, running.end);
            state.partial -= usize::from(!is_whole(&state.node_table, &running.shares));
            running.shares.merge(shares);
            state.partial += usize::from(!is_whole(&state.node_table, &running.shares));
        }
        self.record_resize(run);
        Ok(added)
    }

    /// Frees a part of a job's allocation, by cores and gpus. The number of slots of the rest is
    /// then unknown. A job without remaining resources is removed.
    ///
    /// # Errors
    ///
    /// The job is not running, or lacks some of these resources; the engine is unchanged.
    pub fn shrink_allocation(&mut self, id: JobId, r: &ResourceSet) -> Result<(), Error> {
        let wrap = |error: Error| error.about(format_args!("job {}", id.get()));
        let run = self.state.run_index(id)?;
        let running = self.state.running_job(id)?;
        let off_inventory = r.ranks().difference(self.ranks());
        let mut outside = running.outside.clone();
        for node in r.restrict(&off_inventory).nodes() {
            let rank = node.rank;
            let known = outside.as_mut().and_then(|outside| outside.get_mut(&rank));
            let held = known.filter(|held| {
                node.cores.is_subset(&held.cores) && node.gpus.is_subset(&held.gpus)
            });
            let Some(held) = held else {
                return Err(wrap(Error::not_held(rank)));
            };
            held.cores = held.cores.difference(node.cores);
            held.gpus = held.gpus.difference(node.gpus);
        }
        if let Some(outside) = &mut outside {
            outside.retain(|_, held| !held.cores.is_empty() || !held.gpus.is_empty());
        }
        let here = r.restrict(self.ranks());
        let node_table = &self.state.node_table;
        let split = node_table
            .split_by_r(&running.shares, &here)
            .map_err(wrap)?;
        let state = &mut self.state;
        if let Some(running) = state.running_jobs.at_mut(run) {
            running.outside = outside.filter(|outside| !outside.is_empty());
        }
        if split.part.is_empty() {
            // The allocation in the inventory is unchanged, and so is its number of slots.
            let running = self.state.running_job(id)?;
            if running.shares.is_empty() && running.outside.is_none() {
                self.end(run, AfterEnd::Free);
            }
            return Ok(());
        }
        self.release_part(run, &split.part, split.rest);
        Ok(())
    }
}
