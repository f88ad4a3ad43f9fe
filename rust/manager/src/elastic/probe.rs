//! Probes of the scheduler: requests that are to be decided at once end when it has considered them.

use std::collections::BTreeSet;

use penstock_flux::sched::JobsRequest;
use penstock_flux::topic;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use super::peer::Elastic;
use super::submission::is_decided_at_once;
use crate::context::Context;
use crate::rpc;

impl Elastic {
    /// Probes the scheduler once for all requests that are to be decided at once: the response comes
    /// after a pass, and what that pass allocated is committed by then.
    pub(crate) fn send_probe(&mut self, cx: &mut Context) {
        if self.probes.unprobed.is_empty() || !cx.scheduler.is_ready {
            return;
        }
        let unprobed = std::mem::take(&mut self.probes.unprobed);
        let is_due = |id: &JobId| cx.jobs.record(*id).is_some_and(is_decided_at_once);
        let due: BTreeSet<JobId> = unprobed.into_iter().filter(is_due).collect();
        if due.is_empty() {
            return;
        }
        let matchtag = cx.next_matchtag();
        self.probes.outstanding.insert(matchtag, due);
        let nothing = JobsRequest {
            ids: Some(Vec::new()),
            ..JobsRequest::default()
        };
        let probe = rpc::request(topic::sched::EXPLAIN, &nothing);
        cx.send(probe.with_matchtag(matchtag));
    }

    /// Handles the response to a probe. An error of a scheduler that does not know probes decides
    /// nothing.
    pub(crate) fn probe_response(&mut self, cx: &mut Context, response: &Message) {
        let due = self.probes.outstanding.remove(&response.matchtag);
        if response.errnum() != 0 {
            return;
        }
        for id in due.into_iter().flatten() {
            self.decide(cx, id);
        }
    }
}
