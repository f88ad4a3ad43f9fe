//! Commits of R to the KVS, which must succeed before the job manager is told of an allocation (RFC 27).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::alloc::{AllocResponse, AllocResponseType, Annotations, SchedAnnotations};
use penstock_flux::kvs::{CommitRequest, Dirent, Operation, PRIMARY};
use penstock_flux::{Allocation, Attachment, Json, Member, errno, topic};
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;

use crate::{Outstanding, Scheduler, failure_text};

/// The KVS key of a job's R (RFC 16).
pub(crate) fn r_key(id: u64) -> String {
    format!("job.{}.R", Fluid(id).dothex())
}

impl Scheduler {
    /// Commits R of allocated jobs.
    pub(crate) fn commit(&mut self, ids: &[u64]) {
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
        let operation = |allocation: &Allocation| Operation {
            key: r_key(allocation.id).into(),
            flags: 0,
            dirent: Some(Dirent::val(BASE64.encode(allocation.text.as_bytes()))),
        };
        let request = CommitRequest {
            namespace: Some(PRIMARY.into()),
            flags: 0,
            ops: allocations.iter().map(operation).collect(),
        };
        let allocations: Arc<[Allocation]> = allocations.into();
        let message = Message::request(topic::kvs::COMMIT, "")
            .with_payload(&request)
            .with_attachment(Attachment::Commit(Arc::clone(&allocations)));
        self.send(message, Outstanding::Commit(allocations));
    }

    /// Handles the response to a commit.
    pub(crate) fn commit_response(&mut self, allocations: &[Allocation], response: &Message) {
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
        self.respond(&AllocResponse {
            r: Some(Json(&allocation.text)),
            annotations: Some(Annotations { sched }),
            ..AllocResponse::new(id, AllocResponseType::Success)
        });
    }

    fn respond_cancel(&mut self, id: u64) {
        self.respond(&AllocResponse::<()>::new(id, AllocResponseType::Cancel));
    }

    /// Frees the resources of a job for which the KVS accepts no R at all.
    fn reject_job(&mut self, id: u64, reason: &str) {
        let name = Fluid(id);
        self.log
            .push(format!("allocation of job {name} is withdrawn: {reason}"));
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
        let (name, summary) = (Fluid(id), allocation.r.summary());
        self.log.push(format!(
            "{summary} set aside, job {name} is queued again: {reason}"
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
