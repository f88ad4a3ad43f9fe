//! Commits of R to the KVS, which must succeed before the alloc response (RFC 27).

use std::sync::Arc;

use penstock_flux::alloc::{AllocResponse, AllocResponseType, Annotations, SchedAnnotations};
use penstock_flux::{Allocated, Allocation, Member, TypedPayload, errno, topic};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use crate::Scheduler;
use crate::error::failure_text;
use crate::scheduler::OutstandingRequest;

impl Scheduler {
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
            for allocation in allocations {
                self.succeed(allocation);
            }
        } else if allocations.len() > 1 {
            // One invalid operation fails a commit as a whole: commit each for itself.
            for allocation in allocations {
                self.commit(&[allocation.id]);
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

    /// Frees the resources of a job for which the KVS accepts no R at all.
    fn reject_job(&mut self, id: JobId, reason: &str) {
        self.log
            .push(format!("allocation of job {id} is withdrawn: {reason}"));
        if let Some(engine) = &mut self.engine
            && let Err(error) = engine.free(id, None)
        {
            self.log.push(error.to_string());
        }
        if self.cancelled_in_commit.contains(&id) {
            self.respond_cancel(id);
        } else {
            self.deny(id, reason);
        }
        self.needs_pass = true;
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
