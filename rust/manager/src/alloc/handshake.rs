//! How a scheduler comes (`sched-hello`, `sched-ready`) and goes.

use penstock_wire::Message;
use serde::Deserialize;
use serde_json::json;

use super::Handshake;
use crate::job::Alloc;
use crate::manager::Manager;
use crate::rpc::{self, EINVAL, ENODATA, EPROTO, RequestError};

#[derive(Deserialize)]
struct Hello {
    #[serde(rename = "partial-ok", default)]
    partial: bool,
}

#[derive(Deserialize)]
struct Ready {
    mode: String,
    limit: Option<i64>,
}

impl Manager {
    /// `sched-hello`: one response for every job that holds resources, then ENODATA.
    ///
    /// A scheduler that does not say `partial-ok` hears of a job's free ranks too, but from then on
    /// it gets back in one piece what is left: of a job it never has more than one `sched.free`
    /// to answer.
    ///
    /// Nobody takes the place of a scheduler that is at work: it would not learn of that.
    pub(crate) fn sched_hello(&mut self, request: &Message) {
        if request.is_noresponse() {
            return self.complain("sched-hello that wants no response: ignored".to_owned());
        }
        if !request.is_streaming() {
            let refusal = RequestError::new(EPROTO, "sched-hello is a streaming request");
            return self.refuse(request, &refusal);
        }
        if self.settings.owner != request.userid {
            let refusal = RequestError::new(rpc::EPERM, "only the instance owner may schedule");
            return self.refuse(request, &refusal);
        }
        let hello: Hello = match rpc::payload(request) {
            Ok(hello) => hello,
            Err(refusal) => return self.refuse(request, &refusal),
        };
        let same = self.allocator.peer.as_deref() == rpc::origin(request);
        if self.allocator.is_ready() && !same {
            let text = "another scheduler has said hello and is ready";
            self.complain(format!("sched-hello refused: {text}"));
            return self.refuse(request, &RequestError::new(rpc::EBUSY, text));
        }
        self.suspend_scheduling("a scheduler says hello");
        self.allocator.partial = hello.partial;
        self.allocator.handshake = Handshake::Greeted;
        self.allocator.peer = rpc::origin(request).map(<[u8]>::to_vec);
        let mut responses = Vec::new();
        for job in self
            .jobs
            .values()
            .filter(|job| job.alloc == Alloc::Allocated)
        {
            // All its ranks are free, only the execution service has not said its last word.
            let ranks = job.r.as_ref().map(|r| r.ranks());
            if ranks.is_some_and(|ranks| ranks.is_subset(&job.freed)) {
                continue;
            }
            let mut payload = json!({
                "id": job.id,
                "priority": job.priority,
                "userid": job.userid,
                "t_submit": job.t_submit,
            });
            if !job.freed.is_empty() {
                payload["free"] = job.freed.to_string().into();
            }
            responses.push(rpc::answer(request, Some(&payload)));
        }
        self.out.append(&mut responses);
        self.refuse(request, &RequestError::new(ENODATA, ""));
    }

    /// `sched-ready`: from now on `sched.alloc` requests flow.
    pub(crate) fn sched_ready(&mut self, request: &Message) {
        let outcome = self.accept_ready(request);
        match outcome {
            Ok(limit) => {
                self.allocator.handshake = Handshake::Ready(limit);
                let count = self.allocator.queued.len();
                self.respond(request, Some(&json!({ "count": count })));
                self.out.append(&mut self.allocator.belated);
            }
            Err(refusal) => self.refuse(request, &refusal),
        }
    }

    fn accept_ready(&self, request: &Message) -> Result<Option<usize>, RequestError> {
        let ready: Ready = rpc::payload(request)?;
        let same = self.allocator.peer.as_deref() == rpc::origin(request);
        if self.allocator.handshake == Handshake::Suspended || !same {
            return Err(RequestError::new(EPROTO, "sched-ready without sched-hello"));
        }
        if self.allocator.is_ready() {
            return Err(RequestError::new(
                EPROTO,
                "sched-ready twice after one sched-hello",
            ));
        }
        match (ready.mode.as_str(), ready.limit) {
            ("unlimited", _) => Ok(None),
            ("limited", Some(limit)) => match usize::try_from(limit) {
                Ok(limit @ 1..=0x7fff_ffff) => Ok(Some(limit)),
                _ => Err(RequestError::new(
                    EINVAL,
                    format!("limit {limit} is out of range: expected 1 to 2147483647"),
                )),
            },
            ("limited", None) => Err(RequestError::new(EPROTO, "mode `limited` needs a `limit`")),
            (mode, _) => Err(RequestError::new(
                EPROTO,
                format!("unknown mode `{mode}`: expected `unlimited` or `limited`"),
            )),
        }
    }

    /// No more requests until the next hello and ready; what was asked for is asked for again.
    pub(crate) fn suspend_scheduling(&mut self, why: &str) {
        if self.allocator.handshake == Handshake::Suspended {
            return;
        }
        self.note(format!("scheduling is suspended: {why}"));
        self.allocator.handshake = Handshake::Suspended;
        self.allocator.peer = None;
        self.allocator.requested.clear();
        self.allocator.recalled = 0;
        self.allocator.reprioritized.clear();
        self.allocator.displaced.clear();
        self.allocator.unsaid.clear();
        self.allocator.belated.clear();
        self.elastic.forget_probes();
        self.forget_expirations(self.now);
        let mut orphans = Vec::new();
        for job in self.jobs.values_mut() {
            if matches!(job.alloc, Alloc::Requested | Alloc::Canceling) {
                job.alloc = Alloc::Idle;
                job.annotations.clear();
                orphans.push(job.id);
            }
        }
        for id in orphans {
            self.drop_r(id);
            self.revisit(id);
        }
    }

    /// Whether a disconnect means the scheduler.
    pub(crate) fn is_scheduler(&self, origin: &[u8]) -> bool {
        self.allocator.peer.as_deref() == Some(origin)
    }
}
