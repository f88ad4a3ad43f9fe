//! Other settings while jobs are there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::job::Spec;
use crate::manager::Manager;
use crate::policy;
use crate::settings::Settings;
use crate::state::State;

impl Manager {
    /// Takes new settings at run time. Limits and defaults hold for what is submitted from now
    /// on; pending jobs of a queue whose resources are others now are asked for anew.
    pub fn set_settings(&mut self, settings: Settings, now: f64) {
        let old = std::mem::replace(&mut self.settings, settings);
        let changed: BTreeSet<String> = self
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
            self.respecify(&changed);
        }
        self.retry_postponed_returns(now);
        self.settle(now);
    }

    /// What the scheduler is sent of the jobs in these queues, with the constraint of now.
    fn respecify(&mut self, queues: &BTreeSet<String>) {
        let theirs = self.jobs.values().filter(|job| {
            let queue = job.spec.queue.as_ref();
            queue.is_some_and(|queue| queues.contains(queue))
        });
        let theirs: Vec<_> = theirs.map(|job| (job.id, Arc::clone(&job.spec))).collect();
        // Jobs that share a jobspec go on sharing it, whatever their state.
        let mut specs: BTreeMap<i64, Arc<Spec>> = BTreeMap::new();
        for (id, old) in theirs {
            let spec = match specs.get(&old.key) {
                Some(spec) => Arc::clone(spec),
                None => Arc::new(Spec {
                    redacted: self.redacted_anew(&old),
                    ..old.as_ref().clone()
                }),
            };
            specs.insert(old.key, Arc::clone(&spec));
            if let Some(job) = self.jobs.get_mut(&id) {
                job.spec = spec;
                if job.state < State::Run {
                    self.withdraw(id);
                    self.revisit(id);
                }
            }
        }
    }

    fn redacted_anew(&mut self, spec: &Spec) -> String {
        let text = self.store.jobspec(spec.key);
        let text = self.keep(text).unwrap_or_default();
        policy::redact(&text, &self.settings, spec.queue.as_deref())
            .unwrap_or_else(|_| spec.redacted.clone())
    }
}
