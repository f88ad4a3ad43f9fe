//! Probes of the scheduler: requests that are to be decided at once end when it has considered them.

use std::collections::BTreeSet;

use penstock_elastic::Attempt;
use penstock_jobspec::job_id::JobId;

use super::peer::Elastic;
use super::submission::is_decided_at_once;
use super::tables::{DECISION_TIMEOUT_S, PROBE_TIMEOUT_S};
use crate::context::Context;
use crate::effect::{Effect, ProbeAnswer, ProbeId};
use crate::record::Record;

impl Elastic {
    /// Probes the scheduler once for all requests that are to be decided at once.
    pub(crate) fn probe_scheduler(&mut self, cx: &mut Context) {
        if self.probes.unprobed.is_empty() || !cx.handshake().is_ready() {
            return;
        }
        let unprobed = std::mem::take(&mut self.probes.unprobed);
        let is_due = |id: &JobId| cx.jobs.record(*id).is_some_and(is_decided_at_once);
        let due: BTreeSet<JobId> = unprobed.into_iter().filter(is_due).collect();
        if due.is_empty() {
            return;
        }
        for id in &due {
            let by = self.response_due(cx, *id);
            self.probes.decide_by.insert(*id, by);
        }
        let probe = self.probes.begin(due);
        cx.add_effect(Effect::Probe(probe));
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

    /// Handles the answer to a probe. A scheduler that does not know probes has decided nothing: its decisions are
    /// awaited.
    pub(crate) fn handle_probe_answer(
        &mut self,
        cx: &mut Context,
        probe: ProbeId,
        answer: ProbeAnswer,
    ) {
        let due = self.probes.outstanding.remove(&probe).into_iter().flatten();
        match answer {
            ProbeAnswer::Considered => due.for_each(|id| self.decide(cx, id)),
            ProbeAnswer::Unsupported => due.for_each(|id| self.decide_unprobed(cx, id)),
        }
    }

    /// Forgets the probes of a scheduler that has gone.
    pub(crate) fn forget_probes(&mut self, cx: &mut Context) {
        for id in self.probes.clear() {
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
