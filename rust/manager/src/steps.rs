//! How each job moves on: the one place that says what is due in which state.

use std::sync::Arc;

use penstock_idset::IdSet;
use serde_json::json;

use crate::event::Event;
use crate::job::{Alloc, Exec};
use crate::manager::Manager;
use crate::priority::priority_of;
use crate::state::State;

impl Manager {
    /// Lets jobs move on until none can.
    pub(crate) fn settle(&mut self, now: f64) {
        loop {
            while let Some(id) = self.work.pop_front() {
                self.step(id, now);
            }
            self.send_allocs();
            self.send_starts(now);
            self.send_probe();
            if self.work.is_empty() {
                self.send_priorities();
                self.watchers.tell_quiet(&self.census, &mut self.out);
                return;
            }
        }
    }

    fn step(&mut self, id: u64, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        match job.state {
            State::New => {
                self.post(id, &Event::new(now, "validate"));
                self.add_dependencies(id, now);
            }
            State::Depend => {
                if job.waits_for.is_empty() {
                    self.post(id, &Event::new(now, "depend"));
                }
            }
            State::Priority => {
                let usual = priority_of(job.urgency);
                let priority = job.assigned.unwrap_or(usual);
                let context = json!({ "priority": priority });
                self.post(id, &Event::with(now, "priority", context));
            }
            State::Sched => {
                job.stopped = self
                    .queues
                    .why_stopped(job.spec.queue.as_deref())
                    .map(Arc::clone);
                if job.alloc == Alloc::Idle && job.priority > 0 && job.stopped.is_none() {
                    job.alloc = Alloc::Queued;
                    job.outdated = false;
                    self.allocator.enqueue(job.priority, id);
                }
            }
            State::Run => {
                let outdated = job.outdated;
                if job.requested().is_some() {
                    self.granted(id, now);
                } else if job.exec == Exec::Idle && !self.waits_for_prolog(id, now) {
                    self.start_when_possible(id);
                }
                if outdated {
                    self.check_expiration(id, now);
                }
                self.wake_dependents(id, now);
            }
            State::Cleanup => {
                if job.flex.is_some() {
                    self.end_requests(id, now);
                }
                self.clean_up(id, now);
            }
            State::Inactive if job.announced => {}
            State::Inactive => {
                job.announced = true;
                self.census.rest(job);
                self.end_watches(id);
                self.wake_dependents(id, now);
                self.watchers.inactive(id, &self.jobs, &mut self.out);
            }
        }
    }

    fn start_when_possible(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.exec = Exec::Waiting;
            self.executor.waiting.insert(id);
        }
    }

    /// Looks at a job again after something that is not an event has changed.
    pub(crate) fn revisit(&mut self, id: u64) {
        self.work.push_back(id);
    }

    /// Gives back what the job holds, once nothing is running and nothing asked for any more.
    fn clean_up(&mut self, id: u64, now: f64) {
        self.forget_dependencies(id);
        if self.ends_prolog(id, now) {
            return;
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        match job.alloc {
            Alloc::Queued => {
                self.allocator.dequeue(job.priority, id);
                job.alloc = Alloc::Idle;
            }
            Alloc::Requested | Alloc::Canceling => return self.cancel_alloc(id),
            Alloc::Idle | Alloc::Allocated | Alloc::Freed => {}
        }
        match job.exec {
            Exec::Waiting if !job.started => {
                self.executor.waiting.remove(&id);
                job.exec = Exec::Released;
            }
            // Reattached after a restart: the service must say that it has let go.
            Exec::Waiting | Exec::Requested => return,
            Exec::Idle | Exec::Released => {}
        }
        if self.waits_for_epilog(id, now) {
            return;
        }
        if self.jobs.get(&id).is_some_and(|job| job.flex.is_some()) {
            self.end_grants(id, now);
        }
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        if job.alloc == Alloc::Allocated {
            let ranks = job.r.as_ref().map_or_else(IdSet::new, |r| r.ranks());
            let left = ranks.difference(&job.freed);
            if !left.is_empty() {
                self.send_free(id, &left, true);
            }
            self.claims.drop(id);
            self.post(id, &Event::new(now, "free"));
        }
        self.post(id, &Event::new(now, "clean"));
    }
}
