//! Commits of R to the KVS, which must succeed before the job manager is told of an allocation (RFC 27).

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::alloc::{AllocResponse, AllocResponseType, Annotations, SchedAnnotations};
use penstock_flux::kvs::{CommitRequest, Dirent, Operation, PRIMARY};
use penstock_flux::{Json, Member, errno, topic};
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;

use crate::{Outstanding, Scheduler, failure_text};

/// The KVS key of a job's R (RFC 16).
pub(crate) fn r_key(id: u64) -> String {
    format!("job.{}.R", Fluid(id).dothex())
}

/// The allocations of one commit: job ids, and each job's R as a part of one text.
#[derive(Debug)]
pub(crate) struct CommittedJobs {
    jobs: Vec<(u64, Range<usize>)>,
    text: String,
}

impl Scheduler {
    /// Commits R of allocated jobs.
    pub(crate) fn commit(&mut self, ids: &[u64]) {
        let Some(engine) = &mut self.engine else {
            return;
        };
        let mut text = String::new();
        let mut jobs = Vec::with_capacity(ids.len());
        let mut failed = Vec::new();
        for &id in ids {
            let start = text.len();
            if let Err(error) = engine.write_r(id, &mut text) {
                text.truncate(start);
                engine.set_aside(id);
                failed.push((id, error.to_string()));
            } else {
                jobs.push((id, start..text.len()));
            }
        }
        for (id, note) in failed {
            self.deny(id, &note);
        }
        if jobs.is_empty() {
            return;
        }
        let operation = |(id, range): &(u64, Range<usize>)| Operation {
            key: r_key(*id).into(),
            flags: 0,
            dirent: Some(Dirent::val(BASE64.encode(&text[range.clone()]))),
        };
        let request = CommitRequest {
            namespace: Some(PRIMARY.into()),
            flags: 0,
            ops: jobs.iter().map(operation).collect(),
        };
        let message = Message::request(topic::kvs::COMMIT, "").with_payload(&request);
        self.send(message, Outstanding::Commit(CommittedJobs { jobs, text }));
    }

    /// Handles the response to a commit.
    pub(crate) fn commit_response(&mut self, committed: CommittedJobs, response: &Message) {
        let CommittedJobs { jobs, text } = committed;
        if response.errnum() == 0 {
            for (id, range) in jobs {
                self.succeed(id, &text[range]);
            }
        } else if jobs.len() > 1 {
            // One invalid operation fails a commit as a whole: commit each for itself.
            for (id, _) in jobs {
                self.commit(&[id]);
            }
        } else {
            let reason = failure_text(response);
            for (id, _) in jobs {
                if response.errnum() == errno::EINVAL {
                    self.reject_allocation(id, &reason);
                } else {
                    self.reject_job(id, &reason);
                }
            }
        }
    }

    fn succeed(&mut self, id: u64, r: &str) {
        let sched = SchedAnnotations {
            resource_summary: Member::Value(self.resource_summary(id).into()),
            // The annotations of the pending job no longer hold.
            reason_pending: Member::Null,
            t_estimate: if self.annotator.has_estimate(id) {
                Member::Null
            } else {
                Member::Absent
            },
        };
        self.respond(&AllocResponse {
            r: Some(Json(r)),
            annotations: Some(Annotations { sched }),
            ..AllocResponse::new(id, AllocResponseType::Success)
        });
    }

    /// The resources of a job in short.
    fn resource_summary(&self, id: u64) -> String {
        let r = self.engine.as_ref().and_then(|engine| engine.r(id).ok());
        r.map_or_else(String::new, |r| r.summary())
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
    fn reject_allocation(&mut self, id: u64, reason: &str) {
        let (name, summary) = (Fluid(id), self.resource_summary(id));
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
