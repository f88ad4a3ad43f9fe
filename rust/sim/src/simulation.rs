//! The event loop: virtual time, and what happens in it.
//!
//! At one instant, first all completions, then failures and returns of nodes, then all arrivals,
//! then passes of the scheduler until nothing more starts. A job of no run time holds its
//! resources for the pass that starts it and gives them back before the next one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use penstock_engine::Decision;
use penstock_idset::IdSet;

use crate::Error;
use crate::failures::Failures;
use crate::metrics::Tally;
use crate::results::{Fate, Results};
use crate::scheduler::Scheduler;
use crate::series::Series;
use crate::setup::{Hardware, Machine, Setup};
use crate::units::Units;
use crate::workload::{Workload, real};

mod foretell;

/// Reasons of denials that are kept.
const MAX_DENIALS: usize = 100;

/// Why jobs can never run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The engine's note.
    pub reason: String,
    /// How many jobs it is of.
    pub jobs: u64,
    /// The id of the first one.
    pub first: u64,
}

/// A workload on its way through a machine.
pub struct Simulation {
    workload: Arc<Workload>,
    setup: Setup,
    scheduler: Scheduler,
    /// Where nodes or cores are counted out, rather than matched.
    units: Option<Units>,
    machine_cores: u64,
    machine_nodes: u64,
    is_pool: bool,
    /// The cores and the nodes that jobs of each shape ask for.
    asked: Vec<(u32, u32)>,
    failures: Failures,
    next_arrival: usize,
    /// Planned completions: the bits of a time, which sort as times from 0 on do, and the place.
    completions: BinaryHeap<Reverse<(u64, u32)>>,
    /// How many others a job still waits for before it arrives; empty where none does.
    open: Vec<u32>,
    /// Who waits for whom: first the one that is waited for.
    followers: Vec<(u32, u32)>,
    /// Jobs that nothing keeps from arriving any more, though their submit time is past.
    released: Vec<u32>,
    now: f64,
    used: u64,
    queued: u32,
    /// Those of them with priority 0, which never start.
    held: u32,
    results: Results,
    series: Series,
    tally: Tally,
    denials: Vec<Denial>,
    ranks: Vec<u32>,
    /// Jobs that came now, wait, and are to be given an estimate.
    unforetold: Vec<u64>,
}

impl Simulation {
    /// Sets a workload before a machine.
    ///
    /// Fails where a job or a failure names what such a machine cannot have; a job that is merely
    /// too large is denied when it comes.
    pub fn new(workload: Arc<Workload>, machine: &Machine, setup: Setup) -> Result<Self, Error> {
        let hardware = Hardware::new(machine)?;
        let requests = hardware.requests(&workload, &setup)?;
        let failures = hardware.failures(&setup, workload.span())?;
        let shapes = workload.shapes.iter().zip(&requests);
        let asked: Vec<(u32, u32)> = shapes
            .map(|(shape, request)| hardware.asked(shape, request))
            .collect();
        let units = Units::of(&hardware, &setup, &requests)?;
        let (scheduler, units) = if let Some((units, requests)) = units {
            let pool = Hardware::pool(units.count())?.resources;
            let scheduler = Scheduler::new(&pool, &setup, &requests, &workload.queues)?;
            (scheduler, Some(units))
        } else {
            let resources = &hardware.resources;
            let scheduler = Scheduler::new(resources, &setup, &requests, &workload.queues)?;
            (scheduler, None)
        };
        let jobs = workload.len();
        let mut open = Vec::new();
        let mut followers: Vec<(u32, u32)> = Vec::new();
        if !workload.after.is_empty() {
            open = vec![0; jobs];
            for (job, before) in &workload.after {
                open[*job as usize] += 1;
                followers.push((*before, *job));
            }
            followers.sort_unstable();
        }
        let allocations = setup.allocations && !hardware.is_pool;
        let mut results = Results::new(jobs, setup.estimate_every > 0, allocations);
        for (place, shape) in workload.shape.iter().enumerate() {
            (results.cores[place], results.nodes[place]) = asked[*shape as usize];
        }
        Ok(Self {
            results,
            asked,
            workload,
            setup,
            scheduler,
            units,
            machine_cores: hardware.cores,
            machine_nodes: hardware.nodes,
            is_pool: hardware.is_pool,
            failures,
            next_arrival: 0,
            completions: BinaryHeap::new(),
            open,
            followers,
            released: Vec::new(),
            now: 0.0,
            used: 0,
            queued: 0,
            held: 0,
            series: Series::default(),
            tally: Tally::default(),
            denials: Vec::new(),
            ranks: Vec::new(),
            unforetold: Vec::new(),
        })
    }

    /// Runs on until so many things have happened, or all of one instant more. Returns whether
    /// anything is left.
    ///
    /// Fails where the scheduler contradicts itself, which is a bug.
    pub fn advance(&mut self, events: u64) -> Result<bool, Error> {
        self.advance_while(events, &mut |_, _| true)
    }

    /// As [`advance`](Self::advance), as long as `go_on` says so. It is asked after each instant
    /// and at each step of an estimate, given how many jobs are over and the time of the trace.
    /// A simulation that was told to stop can be advanced again, and ends as it would have.
    pub fn advance_while(
        &mut self,
        events: u64,
        go_on: &mut dyn FnMut(u64, f64) -> bool,
    ) -> Result<bool, Error> {
        let until = self.tally.events.saturating_add(events);
        if !self.predict(go_on) {
            return Ok(true);
        }
        while self.tally.events < until {
            let Some(time) = self.next_time() else {
                return Ok(false);
            };
            let last = self.workload.submit.last().copied().unwrap_or(0.0);
            if self.now < last {
                let lasts = time.min(last) - self.now;
                self.tally.early_core_seconds += real(self.used) * lasts;
            }
            self.now = time;
            self.instant()?;
            if !self.predict(go_on) || !go_on(self.tally.done, self.now) {
                break;
            }
        }
        Ok(!self.unforetold.is_empty() || self.next_time().is_some())
    }

    /// When the next thing happens.
    fn next_time(&self) -> Option<f64> {
        let completion = self
            .completions
            .peek()
            .map(|Reverse((time, _))| f64::from_bits(*time));
        let arrival = self.workload.submit.get(self.next_arrival).copied();
        let next = [completion, arrival].into_iter().flatten();
        let next = next.min_by(f64::total_cmp);
        // Nodes matter to jobs alone: when none is left that could run, none needs to fail.
        if next.is_none() && (self.queued == self.held || !self.failures.may_help()) {
            return None;
        }
        let times = next.into_iter().chain(self.failures.time());
        times.min_by(f64::total_cmp)
    }

    fn instant(&mut self) -> Result<(), Error> {
        self.complete()?;
        self.fail_nodes()?;
        let arrived = self.next_arrival;
        self.arrive()?;
        loop {
            self.release()?;
            let decided = self.pass();
            self.complete()?;
            if !decided && self.released.is_empty() {
                break;
            }
        }
        self.series.push(self.now, self.used, self.queued);
        self.tally.deepest = self.tally.deepest.max(self.queued);
        self.choose_unforetold(arrived);
        Ok(())
    }

    /// Everything that ends now.
    fn complete(&mut self) -> Result<(), Error> {
        let now = self.now.to_bits();
        while let Some(Reverse((time, place))) = self.completions.peek().copied() {
            if time != now {
                break;
            }
            self.completions.pop();
            let index = place as usize;
            // Of a job that was killed in between, or killed and started again, nothing ends now.
            let is_it = self.results.fate[index] == Fate::Running
                && self.results.end[index].to_bits() == now;
            if !is_it {
                continue;
            }
            self.tally.events += 1;
            let overran = self.workload.run[index] > self.workload.limit[index];
            let fate = if overran && self.setup.kill_at_limit {
                Fate::Killed
            } else {
                Fate::Ended
            };
            self.stop(place)?;
            self.end(place, fate);
        }
        Ok(())
    }

    /// Takes a running job off its resources. Returns the core-seconds that it had.
    fn stop(&mut self, place: u32) -> Result<f64, Error> {
        let index = place as usize;
        if self.failures.any() {
            self.scheduler.held(id(place), &mut self.ranks);
            self.failures.stop(place, &self.ranks);
        }
        self.scheduler.finish(id(place))?;
        if let Some(units) = &mut self.units {
            units.give(place);
        }
        let cores = u64::from(self.results.cores[index]);
        self.used = self.used.saturating_sub(cores);
        let core_seconds = real(cores) * (self.now - self.results.start[index]);
        self.tally.core_seconds += core_seconds;
        self.tally.last_end = Some(self.now);
        self.results.end[index] = self.now;
        Ok(core_seconds)
    }

    /// A job is over, one way or another: those that waited for it may come.
    fn end(&mut self, place: u32, fate: Fate) {
        self.results.fate[place as usize] = fate;
        self.tally.done += 1;
        let from = self.followers.partition_point(|(it, _)| *it < place);
        let followers = self.followers[from..].iter();
        for (_, job) in followers.take_while(|(it, _)| *it == place) {
            let open = &mut self.open[*job as usize];
            *open -= 1;
            if *open == 0 && (*job as usize) < self.next_arrival {
                self.released.push(*job);
            }
        }
    }

    fn fail_nodes(&mut self) -> Result<(), Error> {
        while let Some(failure) = self.failures.due(self.now)? {
            self.tally.events += 1;
            self.scheduler.mark(&failure.ranks, failure.up);
            if failure.up {
                continue;
            }
            for place in self.failures.jobs_on(&failure.ranks) {
                self.tally.failed += 1;
                self.tally.lost_core_seconds += self.stop(place)?;
                if self.setup.requeue {
                    let shape = self.workload.shape[place as usize];
                    let asked = self.asked[shape as usize];
                    self.results.wait_again(place as usize, asked);
                    self.submit(place)?;
                } else {
                    self.end(place, Fate::Lost);
                }
            }
        }
        Ok(())
    }

    fn arrive(&mut self) -> Result<(), Error> {
        while let Some(submit) = self.workload.submit.get(self.next_arrival) {
            if *submit > self.now {
                break;
            }
            let place = self.next_arrival;
            self.next_arrival += 1;
            self.tally.events += 1;
            if self.open.get(place).is_none_or(|open| *open == 0) {
                self.submit(u32::try_from(place).unwrap_or(u32::MAX))?;
            }
        }
        Ok(())
    }

    /// Jobs that waited for others, and need not any more.
    fn release(&mut self) -> Result<(), Error> {
        for place in std::mem::take(&mut self.released) {
            self.submit(place)?;
        }
        Ok(())
    }

    fn submit(&mut self, place: u32) -> Result<(), Error> {
        let index = place as usize;
        let limit = self.workload.limit[index];
        self.scheduler.submit(
            id(place),
            self.workload.priority[index],
            self.workload.shape[index],
            limit,
            self.workload.queue[index],
        )?;
        self.queued += 1;
        self.held += u32::from(self.workload.priority[index] == 0);
        Ok(())
    }

    /// Lets the scheduler pass over the queue. Returns whether it has decided anything.
    fn pass(&mut self) -> bool {
        if self.queued == 0 {
            return false;
        }
        self.tally.passes += 1;
        let decisions = self.scheduler.pass(self.now);
        let decided = !decisions.is_empty();
        for decision in decisions {
            self.queued = self.queued.saturating_sub(1);
            match decision {
                Decision::Alloc { id, backfilled } => self.start(place_of(id), backfilled),
                Decision::Deny { id, note } => {
                    let place = place_of(id);
                    let held = self.workload.priority[place as usize] == 0;
                    self.held -= u32::from(held);
                    let shape = self.workload.shape[place as usize];
                    let units = self.units.as_ref();
                    let known = units.and_then(|it| it.note(shape)).cloned();
                    self.deny(place, known.unwrap_or(note));
                    self.end(place, Fate::Denied);
                }
            }
        }
        decided
    }

    /// Writes down why a job can never run.
    fn deny(&mut self, place: u32, reason: String) {
        if let Some(known) = self.denials.iter_mut().find(|it| it.reason == reason) {
            known.jobs += 1;
        } else if self.denials.len() < MAX_DENIALS {
            let first = self.workload.id[place as usize];
            self.denials.push(Denial {
                reason,
                jobs: 1,
                first,
            });
        }
    }

    fn start(&mut self, place: u32, backfilled: bool) {
        let index = place as usize;
        let (cores, nodes, first) = if self.is_pool {
            let shape = &self.workload.shapes[self.workload.shape[index] as usize];
            let cores = if shape.is_exact() {
                shape.ncores()
            } else {
                self.scheduler.held(id(place), &mut self.ranks)
            };
            (cores, 1, 0)
        } else if let Some(units) = &mut self.units {
            let (cores, ranks) = units.take(place, self.workload.shape[index]);
            self.results.keep(index, ranks.iter().copied());
            let nodes = ranks
                .iter()
                .map(|(first, last)| u64::from(last - first) + 1);
            let first = ranks.first().map_or(0, |(first, _)| *first);
            (cores, nodes.sum(), first)
        } else {
            let cores = self.scheduler.held(id(place), &mut self.ranks);
            self.failures.start(place, &self.ranks);
            self.results
                .keep(index, self.ranks.iter().map(|it| (*it, *it)));
            let first = self.ranks.first().copied().unwrap_or(0);
            (cores, self.ranks.len() as u64, first)
        };
        let run = self.workload.run[index];
        let lasts = if self.setup.kill_at_limit {
            run.min(self.workload.limit[index])
        } else {
            run
        };
        let end = self.now + lasts;
        self.used = self.used.saturating_add(cores);
        let submit = self.workload.submit[index];
        let earliest = self.tally.first_submit.get_or_insert(submit);
        *earliest = earliest.min(submit);
        let results = &mut self.results;
        results.start[index] = self.now;
        results.end[index] = end;
        results.cores[index] = u32::try_from(cores).unwrap_or(u32::MAX);
        results.nodes[index] = u32::try_from(nodes).unwrap_or(u32::MAX);
        results.first_rank[index] = first;
        results.backfilled[index] = backfilled;
        results.fate[index] = Fate::Running;
        self.completions.push(Reverse((end.to_bits(), place)));
    }

    /// The jobs.
    pub fn workload(&self) -> &Arc<Workload> {
        &self.workload
    }

    /// What has become of them so far.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// Cores in use and jobs that wait, over time.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// The numbers of the cores that each job of a pool had, as far as it ran. Any core of a pool
    /// is as good as another: in the order of starts, each job gets the lowest that are free.
    pub fn pool_cores(&self) -> Vec<IdSet> {
        self.results.pool_cores(self.machine_cores)
    }

    /// The time of the trace.
    pub fn now(&self) -> f64 {
        self.now
    }

    /// Jobs that are over: ended, killed, lost or denied.
    pub fn done(&self) -> u64 {
        self.tally.done
    }

    /// Cores of the machine.
    pub fn cores(&self) -> u64 {
        self.machine_cores
    }

    /// Nodes of the machine; a pool is one.
    pub fn nodes(&self) -> u64 {
        self.machine_nodes
    }

    /// Whether the machine is one pool of cores.
    pub fn is_pool(&self) -> bool {
        self.is_pool
    }

    /// What has been counted on the way.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Why jobs were denied, in the order in which that happened first; of very many reasons, the
    /// first.
    pub fn denials(&self) -> &[Denial] {
        &self.denials
    }
}

/// What the engine calls the job at a place: in the order of submission, from 1.
fn id(place: u32) -> u64 {
    u64::from(place) + 1
}

fn place_of(id: u64) -> u32 {
    u32::try_from(id.saturating_sub(1)).unwrap_or(u32::MAX)
}
