//! The annotations that pending jobs have.

use std::collections::HashMap;

use penstock_jobspec::job_id::JobId;

/// The annotations that a job has.
#[derive(Debug, Default)]
pub(crate) struct Annotated {
    pub reason: String,
    pub estimate: Option<f64>,
}

/// The annotations of pending jobs, and when they are next computed.
#[derive(Debug, Default)]
pub(crate) struct Annotator {
    pub annotated: HashMap<JobId, Annotated>,
    /// Whether a pass has run since jobs were annotated.
    pub is_outdated: bool,
    /// The earliest time of the next annotation.
    pub earliest: f64,
    /// The time of the next annotation if nothing changes.
    pub refresh: f64,
}

impl Annotator {
    pub fn forget(&mut self, id: JobId) {
        self.annotated.remove(&id);
    }

    /// Whether the job has an annotated start.
    pub fn has_estimate(&self, id: JobId) -> bool {
        let annotated = self.annotated.get(&id);
        annotated.is_some_and(|annotated| annotated.estimate.is_some())
    }
}
