//! The shell options of a job, in its jobspec.

use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use serde_json::Value;

use crate::context::Context;

/// The jobspec of a job.
pub(super) fn jobspec(cx: &mut Context, id: JobId) -> Option<Jobspec> {
    cx.load(id);
    let document = cx.jobspec_of(id)?;
    Jobspec::from_json(document.text()).ok()
}

/// Whether an option is there and switched on.
pub(super) fn is_set(option: Option<&Value>) -> bool {
    option.is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)) && *value != 0)
}
