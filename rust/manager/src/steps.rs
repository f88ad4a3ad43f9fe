//! The steps that are due for a job in each state. No other module advances jobs.

use std::path::Path;

use penstock_flux::{RequestError, eventlog};
use penstock_jobspec::job_id::JobId;
use penstock_store::{Error, Store};

use crate::dialogue::{ExecState, Hook};
use crate::disk_space::DiskSpace;
use crate::event::Event;
use crate::hooks;
use crate::manager::Manager;
use crate::purge::Dependents;
use crate::reload;
use crate::replay::Restored;
use crate::scheduler::Withdrawal;
use crate::settings::Settings;
use crate::state::State;

impl Manager {
    /// Opens a manager over a store and restores the jobs in it. `now` is in seconds since the
    /// epoch; the first start of an instance makes it the epoch of its job ids (RFC 19).
    ///
    /// # Errors
    ///
    /// The store fails, or has an invalid value of the manager's own. A job that cannot be read is left
    /// out and named in the log.
    pub fn open(store: Store, settings: Settings, now: f64) -> Result<Self, Error> {
        let mut manager = Self::new(Restored::from_store(store, settings, now)?);
        manager.perform_due_steps();
        Ok(manager)
    }

    /// Opens a manager that only answers questions about the jobs in a store, which cannot be written: requests for a
    /// change are rejected with `outage`. It changes nothing and is never committed.
    ///
    /// # Errors
    ///
    /// The store fails, or has an invalid value of the manager's own.
    pub fn open_for_reading(
        store: Store,
        settings: Settings,
        now: f64,
        outage: RequestError,
    ) -> Result<Self, Error> {
        let mut restored = Restored::for_reading(store, settings, now)?;
        restored.cx.outage = Some(outage);
        Ok(Self::new(restored))
    }

    /// Whether the manager only answers questions: see [`open_for_reading`](Self::open_for_reading).
    pub fn is_reading(&self) -> bool {
        self.cx.outage.is_some()
    }

    /// [Closes](Self::close) the store, which is the database at `path`, and opens it for reading.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or may have a commit that is not durable.
    pub fn reopen_store_for_reading(
        &mut self,
        path: &Path,
    ) -> Result<Store, penstock_store::Error> {
        self.cx.reopen_store_for_reading(path)
    }

    /// Replaces this manager by one that `open` builds from what its store, the database at `path`, has committed. One that
    /// only answers questions does so until then.
    ///
    /// # Errors
    ///
    /// The store cannot be opened or written.
    pub fn rebuild<E: From<penstock_store::Error>>(
        &mut self,
        path: &Path,
        open: impl FnOnce() -> Result<Self, E>,
    ) -> Result<(), E> {
        if self.is_reading() {
            Store::check_writable(path)?;
        } else {
            // The last connection that is closed saves what is in a log that was removed meanwhile.
            self.close();
        }
        let mut next = open()?;
        let committed = next.commit();
        // Its store knows that this commit may be found in the log: it must not be read from the file.
        let is_doubtful = next.store().has_doubtful_commit() && !self.is_reading();
        if committed.is_ok() || is_doubtful {
            *self = next;
        }
        Ok(committed.map(drop)?)
    }

    /// Applies changed settings. Limits and defaults hold for submissions from now on. Resources for
    /// pending jobs of a queue whose constraint has changed are requested again, in slices that
    /// [`advance`](Self::advance) does; no request is sent with the old constraint.
    pub fn set_settings(&mut self, settings: Settings, now: f64) {
        self.begin(now);
        reload::apply(&mut self.cx, &mut self.renewal, settings);
        self.perform_due_steps();
    }

    /// Rejects submissions from now on with this error, or accepts them again.
    pub fn set_rejection(&mut self, error: Option<RequestError>) {
        self.cx.rejection = error;
    }

    /// Sets the space of the file system with the store, as far as it is known, for the requests that follow.
    pub fn set_disk_space(&mut self, space: Option<DiskSpace>) {
        self.cx.disk_space = space;
    }

    /// Starts no pending jobs until [`resume_starts`](Self::resume_starts): there is little space for their events.
    pub fn pause_starts(&mut self) {
        self.scheduler.pause();
    }

    /// Starts pending jobs again.
    pub fn resume_starts(&mut self) {
        self.scheduler.resume();
    }

    /// Performs the steps that are due by time alone: begin times, purging, deadlines of PMIx requests; and the next slice
    /// of a request about many jobs, or for many.
    ///
    /// The events of a slice are written to the open transaction, so that the commit of another peer's request is short.
    /// Returns whether more is due now.
    pub fn advance(&mut self, now: f64) -> bool {
        self.begin(now);
        self.bulk.run_next_slice(&mut self.cx);
        self.submissions.expire(&mut self.cx);
        self.submissions
            .run_next_slice(&mut self.cx, &mut self.census);
        self.resumption.run_next_slice(&mut self.cx);
        self.scheduler.run_next_slice(&mut self.cx);
        self.exec.run_next_slice(&mut self.cx);
        self.renewal.run_next_slice(&mut self.cx);
        self.elastic.advance(&mut self.cx);
        self.perform_due_steps();
        // The jobs of the submissions that have just been closed have entered their dependencies.
        let dependents = Dependents {
            dependencies: &self.dependencies,
            submissions: &self.submissions,
        };
        self.purger
            .advance(&mut self.cx, &mut self.census, &dependents);
        self.perform();
        self.release_dependents();
        self.cx.write_settled_events();
        self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Tests the next dependencies that are due; those on jobs that end by that, too, as far as the slice allows.
    fn release_dependents(&mut self) {
        let mut left = self.dependencies.slice();
        loop {
            let tested = self.dependencies.advance(&mut self.cx, left);
            if tested == 0 {
                return;
            }
            left -= tested;
            self.perform_due_steps();
        }
    }

    /// Performs the due steps of jobs until none is left.
    pub(crate) fn perform_due_steps(&mut self) {
        loop {
            self.perform();
            while let Some(id) = self.due.pop_front() {
                self.step(id);
                self.perform();
            }
            self.scheduler.send_allocs(&mut self.cx);
            self.exec.send_starts(&mut self.cx);
            self.elastic.probe_scheduler(&mut self.cx);
            self.perform();
            if self.due.is_empty() {
                self.scheduler.send_priorities(&mut self.cx);
                self.scheduler.send_cancels(&mut self.cx);
                self.queries.answer_drains(&mut self.cx, &self.census);
                self.perform();
                return self.assert_records();
            }
        }
    }

    fn step(&mut self, id: JobId) {
        let Some(record) = self.cx.jobs.record(id) else {
            return;
        };
        let now = self.cx.now;
        match record.state() {
            State::New => {
                self.cx.log(id, Event::new(now, eventlog::VALIDATE));
                self.dependencies.add(&mut self.cx, id);
            }
            State::Depend => {
                if record.dependencies().is_empty() {
                    self.cx.log(id, Event::new(now, eventlog::DEPEND));
                }
            }
            State::Priority => {
                let priority = record.due_priority();
                let event = Event::with(now, eventlog::PRIORITY, &eventlog::Priority { priority });
                self.cx.log(id, event);
            }
            State::Sched => self.scheduler.schedule(&mut self.cx, id),
            State::Run => self.run(id),
            State::Cleanup => self.clean_up(id),
            State::Inactive => self.retire(id),
        }
    }

    /// Starts a job after its prolog; grants the resources of a request job.
    fn run(&mut self, id: JobId) {
        let Some(job) = self.cx.jobs.get(id) else {
            return;
        };
        if job.record.elastic_request().is_some() {
            self.elastic.grant_resources(&mut self.cx, id);
        } else if job.dialogue.exec == ExecState::Idle {
            self.hooks.run(&mut self.cx, id, Hook::Prolog);
            if !hooks::is_running(&self.cx, id, Hook::Prolog) {
                self.exec.enqueue(&mut self.cx, id);
            }
        }
        self.scheduler.check_expiration(&mut self.cx, id);
        self.dependencies.wake_dependents(&self.cx, id);
    }

    /// Frees the job's resources once its tasks have ended and no request is outstanding.
    fn clean_up(&mut self, id: JobId) {
        let cx = &mut self.cx;
        if let Some(job) = cx.jobs.get(id) {
            self.dependencies.forget(&job.record);
            if job.has_only_been_pending() {
                return self.clean_up_pending(id);
            }
        }
        self.elastic.end_requests_of(cx, id);
        self.hooks.cancel_prolog(cx, id);
        self.scheduler.withdraw(cx, id);
        self.exec.abandon(cx, id);
        let job = cx.jobs.get(id);
        if job.is_none_or(|job| job.dialogue.may_use_resources())
            || hooks::is_running(cx, id, Hook::Prolog)
        {
            return;
        }
        self.hooks.run(cx, id, Hook::Epilog);
        if hooks::is_running(cx, id, Hook::Epilog) {
            return;
        }
        self.elastic.end_grants(cx, id);
        self.scheduler.end_allocation(cx, id);
        cx.log(id, Event::new(cx.now, eventlog::CLEAN));
    }

    /// The same for a job that has only been pending. There may be a million of them.
    fn clean_up_pending(&mut self, id: JobId) {
        let cx = &mut self.cx;
        if self.scheduler.withdraw(cx, id) == Some(Withdrawal::Complete) {
            cx.log(id, Event::new(cx.now, eventlog::CLEAN));
        }
    }

    /// Reports the end of a job to the requests that follow it.
    fn retire(&mut self, id: JobId) {
        let cx = &mut self.cx;
        let Some(record) = cx.mark_reported(id) else {
            return;
        };
        self.census.retire(record);
        self.elastic.end_watches(cx, id);
        self.dependencies.wake_dependents(cx, id);
        self.queries.report_end(cx, id);
    }
}
