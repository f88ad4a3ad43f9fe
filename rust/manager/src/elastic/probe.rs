//! Probes of the scheduler: requests that are to be decided at once end when it has considered them.

use std::collections::{BTreeMap, BTreeSet};

use penstock_elastic::Attempt;
use penstock_jobspec::job_id::JobId;

use super::request_job::is_decided_at_once;
use super::table::RequestTable;
use crate::context::Context;
use crate::effect::{Effect, ProbeId};
use crate::record::Record;

/// Seconds after which a scheduler that is not probed, or rejects the probe, counts as having no free resources.
const DECISION_TIMEOUT_S: f64 = 2.0;
/// Seconds after which a scheduler that does not answer a probe counts as having none. A busy one may be slow.
const PROBE_TIMEOUT_S: f64 = 30.0;

/// The request jobs about which the scheduler is to be probed, or has been.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// Request jobs whose resources were requested since the last probe.
    unprobed: BTreeSet<JobId>,
    /// When a request job that is decided at once counts as denied, seconds since the epoch.
    decide_by: BTreeMap<JobId, f64>,
    /// The request jobs of each outstanding probe.
    outstanding: BTreeMap<ProbeId, BTreeSet<JobId>>,
    last: ProbeId,
}

impl Probes {
    /// Queues a probe about a request job, for which resources were requested.
    pub(super) fn queue(&mut self, id: JobId) {
        self.unprobed.insert(id);
    }

    /// Probes the scheduler once for all requests that are to be decided at once.
    pub(super) fn begin(&mut self, cx: &mut Context, table: &RequestTable) {
        if self.unprobed.is_empty() || !cx.handshake().is_ready() {
            return;
        }
        let unprobed = std::mem::take(&mut self.unprobed);
        let is_due = |id: &JobId| cx.jobs.record(*id).is_some_and(is_decided_at_once);
        let due: BTreeSet<JobId> = unprobed.into_iter().filter(is_due).collect();
        if due.is_empty() {
            return;
        }
        for id in &due {
            let by = response_due(table, cx, *id);
            self.decide_by.insert(*id, by);
        }
        self.last.0 += 1;
        self.outstanding.insert(self.last, due);
        cx.add_effect(Effect::Probe(self.last));
    }

    /// Ends an outstanding probe. Returns its request jobs.
    pub(super) fn take(&mut self, probe: ProbeId) -> BTreeSet<JobId> {
        self.outstanding.remove(&probe).unwrap_or_default()
    }

    /// Begins the time in which a scheduler without probes is to decide about a request job. Returns its end.
    pub(super) fn await_decision(&mut self, id: JobId, now: f64) -> f64 {
        let by = now + DECISION_TIMEOUT_S;
        self.decide_by.insert(id, by);
        by
    }

    /// By when the scheduler is to decide about a request job.
    pub(super) fn decide_by(&self, id: JobId) -> Option<f64> {
        self.decide_by.get(&id).copied()
    }

    /// Ends the time in which the scheduler is to decide about a request job, which is allocated or has ended.
    pub(super) fn end_decision(&mut self, id: JobId) {
        self.decide_by.remove(&id);
    }

    /// Takes a request job out of outstanding probes.
    pub(super) fn withdraw(&mut self, id: JobId) {
        for probed in self.outstanding.values_mut() {
            probed.remove(&id);
        }
    }

    /// Forgets the probes of a scheduler that has gone. Returns the request jobs of outstanding ones.
    pub(super) fn clear(&mut self) -> BTreeSet<JobId> {
        self.unprobed.clear();
        let outstanding = std::mem::take(&mut self.outstanding);
        outstanding.into_values().flatten().collect()
    }
}

/// By when the scheduler is to answer a probe about a request job: in time for the caller's timeout, at
/// which the last attempt begins.
fn response_due(table: &RequestTable, cx: &Context, id: JobId) -> f64 {
    let by = cx.now + PROBE_TIMEOUT_S;
    let request = cx.jobs.record(id).and_then(Record::elastic_request);
    request
        .filter(|request| request.attempt != Attempt::Partial)
        .and_then(|request| table.timeout_of(request.key()))
        .map_or(by, |timeout| {
            by.min(timeout.max(cx.now + DECISION_TIMEOUT_S))
        })
}
