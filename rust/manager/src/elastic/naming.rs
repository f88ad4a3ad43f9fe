//! Names of requests: the user's id, or the id of the request job.

use penstock_elastic::{Account, AttributeKey, Entry};
use penstock_flux::pmix::EventResponse;
use penstock_jobspec::job_id::JobId;
use serde_json::Value;

/// A job's name in results.
pub(super) fn name_of(id: JobId) -> String {
    id.to_string()
}

/// Whether a name is that of a request; `None` is the name of every request.
pub(super) fn is_named(entry: &Entry, name: Option<&str>) -> bool {
    let Some(name) = name else {
        return true;
    };
    let alloc = name.parse::<JobId>().ok();
    entry.id.as_deref() == Some(name) || (alloc.is_some() && entry.alloc == alloc)
}

/// The newest request with this name.
pub(super) fn find<'a>(account: &'a Account, name: &str) -> Option<&'a Entry> {
    let alloc = name.parse::<JobId>().ok();
    let by_job = alloc.and_then(|id| account.represented_by(id));
    let both = [account.named(name), by_job];
    both.into_iter().flatten().max_by_key(|entry| entry.seq)
}

/// The name of the allocation that a request was granted or is about; before that, of its request
/// job.
pub(super) fn alloc_of(entry: &Entry) -> Option<String> {
    let granted = entry.result(AttributeKey::AllocId).and_then(Value::as_str);
    let request_job = || entry.alloc.map(name_of);
    granted.map(str::to_owned).or_else(request_job)
}

/// A request that has ended, as `pmix.events` reports it.
pub(super) fn report(entry: &Entry) -> EventResponse {
    EventResponse {
        id: entry.id.clone(),
        alloc: alloc_of(entry),
        directive: entry.directive.clone(),
        status: entry.status.map_or(0, |status| status.0),
        reason: entry.reason.clone(),
        results: entry.results.clone(),
    }
}
