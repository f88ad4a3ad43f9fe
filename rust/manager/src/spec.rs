//! Jobspec digest: what the manager itself reads of a jobspec.

use std::sync::Arc;

use penstock_flux::RequestedResources;
use penstock_jobspec::{Jobspec, TaskCount};

/// The attributes of a jobspec that the manager needs, shared by jobs that were submitted together.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Key of the full text in the store.
    pub key: i64,
    /// Job name: as given, else the last path component of the command.
    pub name: String,
    /// Working directory.
    pub cwd: Option<String>,
    /// Queue.
    pub queue: Option<String>,
    /// Project to charge.
    pub project: Option<String>,
    /// Bank to charge.
    pub bank: Option<String>,
    /// Number of tasks; the minimum if `is_task_per_slot` and the slot count is a range.
    pub ntasks: u64,
    /// Whether the number of tasks is the number of slots in R.
    pub is_task_per_slot: bool,
    /// Requested nodes; `None` if only slots are requested.
    pub nnodes: Option<u32>,
    /// Requested cores.
    pub ncores: u64,
    /// Time limit in seconds; 0 is unlimited.
    pub duration: f64,
    /// Dependencies as (scheme, value).
    pub dependencies: Vec<(String, String)>,
}

impl Spec {
    /// Extracts the attributes from a valid jobspec stored under `key`.
    pub fn new(key: i64, jobspec: &Jobspec) -> Self {
        let request = jobspec.request();
        let name = jobspec.job_name().map_or_else(
            || {
                let command = jobspec.command().first().map_or("", String::as_str);
                command.rsplit('/').next().unwrap_or(command).to_owned()
            },
            str::to_owned,
        );
        let text = |path| jobspec.attribute(path)?.as_str().map(str::to_owned);
        Self {
            key,
            name,
            cwd: jobspec.cwd().map(str::to_owned),
            queue: jobspec.queue().map(str::to_owned),
            project: text("system.project"),
            bank: text("system.bank"),
            ntasks: jobspec.ntasks(),
            is_task_per_slot: matches!(jobspec.tasks, TaskCount::PerSlot(_)) && !request.is_exact(),
            nnodes: request.least_nodes(),
            ncores: request.total_cores(),
            duration: jobspec.duration(),
            dependencies: jobspec
                .dependencies()
                .iter()
                .map(|dependency| (dependency.scheme.clone(), dependency.value.clone()))
                .collect(),
        }
    }
}

/// A jobspec as the scheduler is sent it.
#[derive(Debug)]
pub struct RedactedJobspec {
    /// The JSON text.
    pub text: String,
    /// What it requests, for a scheduler in the same process.
    pub requested: Arc<RequestedResources>,
}

impl RedactedJobspec {
    /// The jobspec for the scheduler, from one that is redacted already.
    pub fn new(redacted: &Jobspec) -> Self {
        Self {
            text: redacted.to_text(),
            requested: Arc::new(RequestedResources {
                request: redacted.request().clone(),
                queue: redacted.queue().map(str::to_owned),
            }),
        }
    }
}

/// A jobspec that is in the store: its digest, and the jobspec that the scheduler is sent. Both are shared by jobs that
/// were submitted together.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) spec: Arc<Spec>,
    pub(crate) request: Arc<RedactedJobspec>,
}

#[cfg(test)]
mod tests {
    use super::RedactedJobspec;
    use penstock_jobspec::Jobspec;
    use serde_json::json;

    #[test]
    fn a_scheduler_in_the_process_gets_what_another_parses() {
        let mut jobspec = Jobspec::from_json(
            r#"{"version":1,
            "resources":[{"type":"node","count":2,"with":[{"type":"slot","count":1,"label":"task",
                "with":[{"type":"core","count":3}]}]}],
            "tasks":[{"command":["true"],"slot":"task","count":{"per_slot":1}}],
            "attributes":{"system":{"duration":7,"queue":"batch","environment":{"A":"b"},
                "constraints":{"hostlist":["n[0-7]"]}}}}"#,
        )
        .unwrap();
        jobspec.set_duration(60.0);
        for constraints in [vec![], vec![json!({"properties": ["fast"]})]] {
            let redacted = RedactedJobspec::new(&jobspec.redacted(constraints).unwrap());
            let parsed = Jobspec::from_json(&redacted.text).unwrap();
            assert_eq!(redacted.requested.request, *parsed.request());
            assert_eq!(redacted.requested.queue.as_deref(), parsed.queue());
        }
    }
}
