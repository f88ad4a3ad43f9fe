//! Changed settings at run time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use penstock_flux::RedactedJobspec;
use penstock_jobspec::Jobspec;

use crate::context::Context;
use crate::effect::Effect;
use crate::policy;
use crate::settings::Settings;
use crate::state::State;

/// Replaces the settings. Resources for pending jobs of a queue whose constraint has changed are
/// requested again.
pub(crate) fn apply(cx: &mut Context, settings: Settings) {
    let old = std::mem::replace(&mut cx.settings, settings);
    if !cx.settings.accepts_same_jobspecs(&old) {
        cx.jobspecs.forget_submitted();
    }
    let changed: BTreeSet<String> = cx
        .settings
        .queues
        .iter()
        .filter(|(name, queue)| {
            old.queues.get(*name).is_some_and(|old| {
                old.requires != queue.requires || old.constraint != queue.constraint
            })
        })
        .map(|(name, _)| name.clone())
        .collect();
    if !changed.is_empty() {
        cx.redactions += 1;
        redact_again(cx, &changed);
    }
    cx.add_effect(Effect::QueuesChanged);
}

/// Applies the constraints of queues to the jobspecs that are sent to the scheduler.
fn redact_again(cx: &mut Context, queues: &BTreeSet<String>) {
    let records = cx.jobs.iter_with_hidden().map(|job| &job.record);
    let affected = records.filter(|record| {
        let queue = record.spec().queue.as_ref();
        record.state() != State::Inactive && queue.is_some_and(|queue| queues.contains(queue))
    });
    let affected: Vec<_> = affected
        .map(|record| (record.id(), Arc::clone(record.spec())))
        .collect();
    // Jobs with equal jobspecs share the jobspec.
    let mut requests: BTreeMap<i64, Arc<RedactedJobspec>> = BTreeMap::new();
    for (id, spec) in affected {
        let request = if let Some(request) = requests.get(&spec.key) {
            Arc::clone(request)
        } else {
            let Some(request) = redact(cx, spec.key) else {
                continue;
            };
            requests.insert(spec.key, Arc::clone(&request));
            request
        };
        cx.jobs.set_request(id, request);
        let record = cx.jobs.record(id);
        if record.is_some_and(|record| record.state() < State::Run) {
            cx.add_effect(Effect::Withdraw(id));
            cx.revisit(id);
        }
    }
}

/// The form of a jobspec in the store that is sent to the scheduler now.
pub(crate) fn redact(cx: &Context, key: i64) -> Option<Arc<RedactedJobspec>> {
    let text = cx.read_store(|store| store.jobspec(key));
    let redacted = Jobspec::from_json(&text.unwrap_or_default())
        .and_then(|jobspec| policy::redact(jobspec, &cx.settings));
    // It was valid when it was stored.
    redacted.ok().map(Arc::new)
}
