//! Commits of R to the KVS, which must succeed before the alloc response (RFC 27).

use std::slice;
use std::sync::Arc;

use penstock_flux::alloc::{AllocResponse, AllocResponseType, Annotations, SchedAnnotations};
use penstock_flux::{Allocated, Allocation, Member, TypedPayload, errno, topic};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use crate::error::failure_text;
use crate::scheduler::OutstandingRequest;
use crate::{Phase, Scheduler};

/// Whether the KVS has rejected the commit itself; other failures may pass.
fn is_rejection(errnum: u32) -> bool {
    use errno::{EACCES, EINVAL, ENOENT, EOVERFLOW, EPERM, EPROTO};
    matches!(
        errnum,
        EPERM | ENOENT | EACCES | EINVAL | EPROTO | EOVERFLOW
    )
}

impl Scheduler {
    /// Sends the commits again whose delay has passed.
    pub(crate) fn retry_commits(&mut self, now: f64) {
        if self.phase != Phase::Running {
            return;
        }
        let allocations = self.retries.take_due(now);
        if !allocations.is_empty() {
            self.commit_again(&allocations);
        }
    }

    /// Commits R again, except of jobs with ranks that have gone down since the allocation: these are queued again.
    fn commit_again(&mut self, allocations: &[Allocation]) {
        let Some(engine) = &self.engine else {
            return;
        };
        let up = engine.up();
        let (kept, lost): (Vec<&Allocation>, Vec<&Allocation>) = allocations
            .iter()
            .partition(|allocation| allocation.r.ranks().is_subset(&up));
        for allocation in lost {
            self.queue_again(allocation.id);
        }
        let ids: Vec<JobId> = kept.iter().map(|allocation| allocation.id).collect();
        self.commit(&ids);
    }

    /// Frees the resources of a job, whose allocation has not been announced, and queues it.
    fn queue_again(&mut self, id: JobId) {
        let job = self.engine.as_ref().and_then(|engine| engine.job(id));
        self.withdraw(id);
        if self.cancelled_in_commit.contains(&id) {
            self.respond_cancel(id);
        } else if let Some(engine) = &mut self.engine
            && let Some(job) = job
            && let Err(error) = engine.submit(job)
        {
            self.log.push(error.to_string());
        }
    }

    /// Commits R of allocated jobs.
    pub(crate) fn commit(&mut self, ids: &[JobId]) {
        let Some(engine) = &mut self.engine else {
            return;
        };
        let mut allocations = Vec::with_capacity(ids.len());
        let mut failed = Vec::new();
        for &id in ids {
            match engine.r(id) {
                Ok(r) => allocations.push(Allocation {
                    id,
                    text: r.to_json().into(),
                    r: Arc::new(r),
                }),
                Err(error) => {
                    engine.set_aside(id);
                    failed.push((id, error.to_string()));
                }
            }
        }
        for (id, note) in failed {
            self.deny(id, &note);
        }
        if allocations.is_empty() {
            return;
        }
        let allocations: Arc<[Allocation]> = allocations.into();
        let commit = TypedPayload::Commit(Arc::clone(&allocations));
        let message = Message::request(topic::kvs::COMMIT, "").with_typed(commit);
        self.send(message, OutstandingRequest::Commit(allocations));
    }

    /// Handles the response to a commit.
    pub(crate) fn handle_commit_response(
        &mut self,
        allocations: &[Allocation],
        response: &Message,
    ) {
        if response.errnum() == 0 {
            self.retries.reset_delay();
            for allocation in allocations {
                if self.cancelled_in_commit.contains(&allocation.id) {
                    self.withdraw(allocation.id);
                    self.respond_cancel(allocation.id);
                } else {
                    self.succeed(allocation);
                }
            }
        } else if !is_rejection(response.errnum()) {
            self.retry(allocations, &failure_text(response));
        } else if allocations.len() > 1 {
            // One invalid operation fails a commit as a whole: commit each for itself.
            for allocation in allocations {
                self.commit_again(slice::from_ref(allocation));
            }
        } else {
            let reason = failure_text(response);
            for allocation in allocations {
                if response.errnum() == errno::EINVAL {
                    self.reject_allocation(allocation, &reason);
                } else {
                    self.reject_job(allocation.id, &reason);
                }
            }
        }
    }

    /// Keeps the allocations for another commit, except those whose request is cancelled.
    fn retry(&mut self, allocations: &[Allocation], reason: &str) {
        let (cancelled, kept): (Vec<Allocation>, Vec<Allocation>) = allocations
            .iter()
            .cloned()
            .partition(|allocation| self.cancelled_in_commit.contains(&allocation.id));
        for allocation in cancelled {
            self.withdraw(allocation.id);
            self.respond_cancel(allocation.id);
        }
        if !kept.is_empty() {
            let count = kept.len();
            self.log.push(format!(
                "R of {count} jobs is not committed, and will be again: {reason}"
            ));
            self.retries.extend(kept);
        }
    }

    fn succeed(&mut self, allocation: &Allocation) {
        let id = allocation.id;
        let sched = SchedAnnotations {
            resource_summary: Member::Value(allocation.r.summary().into()),
            // The annotations of the pending job no longer hold.
            reason_pending: Member::Null,
            t_estimate: if self.annotator.has_estimate(id) {
                Member::Null
            } else {
                Member::Absent
            },
        };
        let success = TypedPayload::Allocated(Allocated {
            allocation: allocation.clone(),
            annotations: Annotations { sched },
        });
        if let Some(request) = self.end_alloc(id) {
            self.out.push(Message::typed_success_to(&request, success));
        }
    }

    /// Responds that a request is cancelled.
    pub(crate) fn respond_cancel(&mut self, id: JobId) {
        self.respond(&AllocResponse::<()>::new(id, AllocResponseType::Cancel));
    }

    /// Frees the resources of a job whose allocation has not been announced.
    pub(crate) fn withdraw(&mut self, id: JobId) {
        if let Some(engine) = &mut self.engine
            && let Err(error) = engine.free(id, None)
        {
            self.log.push(error.to_string());
        }
        self.needs_pass = true;
    }

    /// Frees the resources of a job for which the KVS accepts no R at all.
    fn reject_job(&mut self, id: JobId, reason: &str) {
        self.log
            .push(format!("allocation of job {id} is withdrawn: {reason}"));
        self.withdraw(id);
        if self.cancelled_in_commit.contains(&id) {
            self.respond_cancel(id);
        } else {
            self.deny(id, reason);
        }
    }

    /// Queues a job again whose R the KVS rejects: its resources are allocated to another job, or
    /// have left the inventory. They are set aside until the next start of the scheduler.
    fn reject_allocation(&mut self, allocation: &Allocation, reason: &str) {
        let id = allocation.id;
        let summary = allocation.r.summary();
        self.log.push(format!(
            "{summary} set aside, job {id} is queued again: {reason}"
        ));
        let Some(engine) = &mut self.engine else {
            return;
        };
        let job = engine.job(id);
        engine.set_aside(id);
        if self.cancelled_in_commit.contains(&id) {
            self.respond_cancel(id);
        } else if let Some(job) = job
            && let Err(error) = engine.submit(job)
        {
            self.log.push(error.to_string());
        }
        self.needs_pass = true;
    }
}
