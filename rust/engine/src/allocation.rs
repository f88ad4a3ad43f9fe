//! Allocations of running jobs: hello, free.

use std::collections::BTreeMap;

use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use crate::ids::{QueueId, RunId};
use crate::job::JobState;
use crate::node_table::Allocation;
use crate::running_jobs::{OutsideResources, RunningJob};
use crate::state::is_whole;
use crate::timeline::Ending;
use crate::{Engine, Error};

/// Disposition of the resources of a job that ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AfterEnd {
    /// Free the resources.
    Free,
    /// Keep the resources allocated, to no job.
    SetAside,
}

impl Engine {
    /// The number of running jobs.
    pub fn running(&self) -> usize {
        self.state.running_jobs.len()
    }

    /// Whether a job is running.
    pub fn is_running(&self, id: JobId) -> bool {
        self.state.run_index(id).is_ok()
    }

    /// Registers a job that is already running; its nodes may be up or down.
    ///
    /// # Errors
    ///
    /// The job is known already, or its allocation is not in the inventory or not free; the engine
    /// is unchanged.
    pub fn allocate(&mut self, id: JobId, r: &ResourceSet) -> Result<(), Error> {
        let state = &mut self.state;
        if state.jobs.find(id).is_some() {
            return Err(Error::known_job(id));
        }
        let shares = state.node_table.allocation_of(r)?;
        let Some(handle) = state.jobs.insert(id, 0) else {
            return Err(Error::new(format!("job {}: too many jobs", id.get())));
        };
        state.node_table.allocate(&shares);
        state.changes += 1;
        state.logged_changes += 1;
        let run = state.add_running(RunningJob {
            handle,
            queue: QueueId::default(),
            request: None,
            counted: shares.size(),
            shares,
            outside: None,
            start: r.starttime().unwrap_or(-1.0),
            end: r.expiration().unwrap_or(f64::INFINITY),
        });
        state.jobs.at_mut(handle).state = JobState::Running(run);
        Ok(())
    }

    /// As [`allocate`](Self::allocate), for a job that may also have resources outside the
    /// inventory; the rest is registered. Returns the ranks outside.
    ///
    /// # Errors
    ///
    /// The job is known already, or its cores or gpus on a rank of the inventory do not exist or
    /// are not free; the engine is unchanged.
    pub fn adopt(&mut self, id: JobId, r: &ResourceSet) -> Result<IdSet, Error> {
        let outside = r.ranks().difference(self.ranks());
        if outside.is_empty() {
            return self.allocate(id, r).map(|()| outside);
        }
        self.allocate(id, &r.restrict(self.ranks()))?;
        let run = self.state.run_index(id)?;
        if let Some(running) = self.state.running_jobs.at_mut(run) {
            let lost = r.restrict(&outside);
            let by_rank = lost.nodes().map(|node| {
                let (cores, gpus) = (node.cores.clone(), node.gpus.clone());
                (node.rank, OutsideResources { cores, gpus })
            });
            running.outside = Some(Box::new(by_rank.collect()));
        }
        Ok(outside)
    }

    /// The resources of a job on ranks that are not, or no longer, in the inventory, by rank.
    pub fn outside(&self, id: JobId) -> impl Iterator<Item = (u32, &OutsideResources)> {
        let outside = self
            .state
            .running_job(id)
            .ok()
            .and_then(|running| running.outside.as_ref());
        let outside = outside.into_iter().flat_map(|outside| outside.iter());
        outside.map(|(rank, held)| (*rank, held))
    }

    /// Sets the resources of a job on ranks outside the inventory.
    ///
    /// # Errors
    ///
    /// The job is not running, or one of the ranks is in the inventory.
    pub fn set_outside(
        &mut self,
        id: JobId,
        outside: BTreeMap<u32, OutsideResources>,
    ) -> Result<(), Error> {
        let run = self.state.run_index(id)?;
        if let Some(rank) = outside.keys().find(|rank| self.ranks().contains(**rank)) {
            return Err(Error::new(format!("rank {rank} is in the inventory")));
        }
        if let Some(running) = self.state.running_jobs.at_mut(run) {
            running.outside = Some(Box::new(outside)).filter(|outside| !outside.is_empty());
        }
        Ok(())
    }

    /// Frees the allocation of a job: all of it, or the part on some ranks. A job without remaining
    /// resources is removed.
    ///
    /// # Errors
    ///
    /// The job is not running.
    pub fn free(&mut self, id: JobId, ranks: Option<&IdSet>) -> Result<(), Error> {
        let run = self.state.run_index(id)?;
        let Some(ranks) = ranks else {
            self.end(run, AfterEnd::Free);
            return Ok(());
        };
        let state = &mut self.state;
        let Some(running) = state.running_jobs.at_mut(run) else {
            return Ok(());
        };
        let split = state.node_table.split_by_ranks(&running.shares, ranks);
        if let Some(outside) = &mut running.outside {
            outside.retain(|rank, _| !ranks.contains(*rank));
            if outside.is_empty() {
                running.outside = None;
            }
        }
        self.release_part(run, &split.part, split.rest);
        Ok(())
    }

    /// Frees the allocations of these jobs, ignoring those that are not running. Returns how many
    /// were running.
    pub fn finish(&mut self, ids: &[JobId]) -> usize {
        let mut found = 0;
        for id in ids {
            if let Ok(run) = self.state.run_index(*id) {
                self.end(run, AfterEnd::Free);
                found += 1;
            }
        }
        found
    }

    /// Removes a job without freeing its allocation, which may belong to another job.
    pub fn set_aside(&mut self, id: JobId) {
        if let Ok(run) = self.state.run_index(id) {
            self.end(run, AfterEnd::SetAside);
        }
    }

    /// Ends a running job.
    pub(crate) fn end(&mut self, run: RunId, resources: AfterEnd) {
        let state = &mut self.state;
        if let Some(running) = state.remove_running(run) {
            match resources {
                AfterEnd::Free => state.node_table.release(&running.shares),
                AfterEnd::SetAside => state.changes += 1,
            }
            state.jobs.remove(running.handle);
        }
    }

    /// Frees a part of a job's allocation; a job without remaining resources ends.
    pub(crate) fn release_part(&mut self, run: RunId, freed: &Allocation, kept: Allocation) {
        let state = &mut self.state;
        let Some(running) = state.running_jobs.at_mut(run) else {
            return;
        };
        let allocation_log = &mut state.allocation_log;
        allocation_log.record_part(running.handle, freed, running.end, f64::NEG_INFINITY);
        state.partial -= usize::from(!is_whole(&state.node_table, &running.shares));
        state.partial += usize::from(!is_whole(&state.node_table, &kept));
        let nothing = kept.is_empty() && running.outside.is_none();
        running.shares = kept;
        state.node_table.release(freed);
        if nothing {
            self.end(run, AfterEnd::Free);
        } else {
            self.record_resize(run);
        }
    }

    /// Updates the counters and the timeline after the allocation of a job has changed.
    pub(crate) fn record_resize(&mut self, run: RunId) {
        let state = &mut self.state;
        let Some(running) = state.running_jobs.at_mut(run) else {
            return;
        };
        let before = std::mem::replace(&mut running.counted, running.shares.size());
        let (queue, end, counted) = (running.queue, running.end, running.counted);
        state.queues.count_end(queue, before);
        state.queues.count_start(queue, counted);
        state.changes += 1;
        state.logged_changes += 1;
        if state.timeline.is_some() {
            let cores = state.cores_up(run);
            if let Some(timeline) = &mut state.timeline {
                timeline.remove(end, run);
                timeline.insert(Ending { end, run, cores });
            }
        }
    }

    /// Sets the expiration of a running job, in seconds since the epoch; 0 for unknown.
    ///
    /// # Errors
    ///
    /// The job is not running, or the inventory expires before; the engine is unchanged.
    pub fn set_expiration(&mut self, id: JobId, expiration: f64) -> Result<(), Error> {
        let run = self.state.run_index(id)?;
        let expiration = Some(expiration).filter(|expiration| *expiration > 0.0);
        if let Some(end) = self.state.node_table.expiration()
            && expiration.is_none_or(|expiration| expiration > end)
        {
            let found =
                expiration.map_or_else(|| "none".to_owned(), |expiration| expiration.to_string());
            return Err(Error::new(format!(
                "the resources end at {end}: expected an expiration up to then, found {found}"
            )));
        }
        let end = expiration.unwrap_or(f64::INFINITY);
        self.state.changes += 1;
        self.state.logged_changes += 1;
        let cores = self.state.cores_up(run);
        if let Some(running) = self.state.running_jobs.at_mut(run) {
            let before = std::mem::replace(&mut running.end, end);
            let allocation_log = &mut self.state.allocation_log;
            allocation_log.record(running.handle, &running.shares, before, end);
            if let Some(timeline) = &mut self.state.timeline {
                timeline.remove(before, run);
                timeline.insert(Ending { end, run, cores });
            }
        }
        Ok(())
    }

    /// The expiration of a running job, if known.
    pub fn expiration(&self, id: JobId) -> Option<f64> {
        let end = self.state.running_job(id).ok()?.end;
        Some(end).filter(|end| end.is_finite())
    }
}
