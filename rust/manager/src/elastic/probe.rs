//! Probes of the scheduler: requests that are to be decided at once end when it has considered them.

use std::collections::BTreeSet;

use penstock_elastic::Attempt;
use penstock_flux::sched::JobsRequest;
use penstock_flux::topic;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use super::peer::Elastic;
use super::submission::is_decided_at_once;
use super::tables::{DECISION_TIMEOUT_S, PROBE_TIMEOUT_S};
use crate::context::Context;
use crate::record::Record;
use crate::rpc;

impl Elastic {
    /// Probes the scheduler once for all requests that are to be decided at once: the response comes
    /// after a pass, and what that pass allocated is committed by then.
    pub(crate) fn send_probe(&mut self, cx: &mut Context) {
        if self.probes.unprobed.is_empty() || !cx.handshake().is_ready() {
            return;
        }
        let unprobed = std::mem::take(&mut self.probes.unprobed);
        let is_due = |id: &JobId| cx.jobs.record(*id).is_some_and(is_decided_at_once);
        let due: BTreeSet<JobId> = unprobed.into_iter().filter(is_due).collect();
        if due.is_empty() {
            return;
        }
        let matchtag = cx.next_matchtag();
        for id in &due {
            let by = self.response_due(cx, *id);
            self.probes.decide_by.insert(*id, by);
        }
        self.probes.outstanding.insert(matchtag, due);
        let nothing = JobsRequest {
            ids: Some(Vec::new()),
            ..JobsRequest::default()
        };
        let probe = rpc::request(topic::sched::EXPLAIN, &nothing);
        cx.send(probe.with_matchtag(matchtag));
    }

    /// By when the scheduler is to answer a probe about a request job: in time for the caller's timeout, at
    /// which the last attempt begins.
    fn response_due(&self, cx: &Context, id: JobId) -> f64 {
        let by = cx.now + PROBE_TIMEOUT_S;
        let request = cx.jobs.record(id).and_then(Record::elastic_request);
        request
            .filter(|request| request.attempt != Attempt::Partial)
            .and_then(|request| self.timeout_of(request.key()))
            .map_or(by, |timeout| {
                by.min(timeout.max(cx.now + DECISION_TIMEOUT_S))
            })
    }

    /// Handles the response to a probe. An error of a scheduler that does not know probes decides
    /// nothing: its decisions are awaited.
    pub(crate) fn handle_probe_response(&mut self, cx: &mut Context, response: &Message) {
        let due = self.probes.outstanding.remove(&response.matchtag);
        let due = due.into_iter().flatten();
        if response.errnum() == 0 {
            due.for_each(|id| self.decide(cx, id));
        } else {
            due.for_each(|id| self.decide_unprobed(cx, id));
        }
    }

    /// Forgets the probes of a scheduler that has gone.
    pub(crate) fn forget_probes(&mut self, cx: &mut Context) {
        for id in self.probes.clear(cx) {
            self.decide_unprobed(cx, id);
        }
    }

    /// Awaits the decision about a request job whose probe has failed, unless it is decided.
    fn decide_unprobed(&mut self, cx: &Context, id: JobId) {
        if self.probes.decide_by(id).is_some() {
            self.decide_soon(cx, id);
        }
    }
}
