//! The constraint of the queue in the messages of the job manager: requests for resources have the current one, and no job
//! starts with resources that were requested with a former one.

use std::collections::{BTreeMap, BTreeSet};

use penstock_flux::alloc::{AllocResponse, AllocResponseType};
use penstock_flux::{Json, RequestedResources, TypedPayload, topic};
use penstock_jobspec::job_id::JobId;
use penstock_wire::{Message, MessageType};

/// The number of properties that no node has, and that the queue requires nodes not to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExcludedProperties(pub u32);

impl ExcludedProperties {
    /// The requirements of the queue.
    pub fn requirements(self) -> Vec<String> {
        let numbers = 0..self.0;
        numbers.map(|number| format!("^unused{number}")).collect()
    }

    fn requested(resources: &RequestedResources) -> Self {
        let constraint = resources.request.constraint.as_ref();
        let text = constraint.map_or(String::new(), |constraint| {
            constraint.to_value().to_string()
        });
        let count = text.matches("^unused").count();
        Self(u32::try_from(count).unwrap_or(u32::MAX))
    }
}

/// The requests for resources of one job manager.
#[derive(Default)]
pub struct ConstraintCheck {
    /// The constraint in the last request of each job that is outstanding.
    requested: BTreeMap<JobId, ExcludedProperties>,
    /// The jobs that were allocated resources for a former constraint.
    former: BTreeSet<JobId>,
    violations: Vec<String>,
}

impl ConstraintCheck {
    /// Checks messages that the job manager sends.
    pub fn observe_sent(&mut self, current: ExcludedProperties, messages: &[Message]) {
        for message in messages {
            match message.typed() {
                Some(TypedPayload::Alloc(job)) => {
                    let excluded = ExcludedProperties::requested(&job.requested);
                    if excluded != current {
                        let (id, current) = (job.id, current.0);
                        let text = format!(
                            "job {id} is requested with {}, not {current}, properties",
                            excluded.0
                        );
                        self.violations.push(text);
                    }
                    self.requested.insert(job.id, excluded);
                    self.former.remove(&job.id);
                }
                Some(TypedPayload::Start(job)) if self.former.contains(&job.id) => {
                    let text = format!(
                        "job {} starts with resources for a former constraint",
                        job.id
                    );
                    self.violations.push(text);
                }
                _ => {}
            }
        }
    }

    /// Records a message that the job manager gets.
    pub fn observe_received(&mut self, current: ExcludedProperties, message: &Message) {
        if message.kind != MessageType::Response || message.topic() != topic::sched::ALLOC {
            return;
        }
        let id = if let Some(TypedPayload::Allocated(allocated)) = message.typed() {
            Some(allocated.allocation.id)
        } else {
            let response = message.read::<AllocResponse<Json<'_>>>().ok();
            let success = response.filter(|response| response.kind == AllocResponseType::Success);
            success.map(|response| response.id)
        };
        if let Some(id) = id
            && self
                .requested
                .remove(&id)
                .is_some_and(|excluded| excluded != current)
        {
            self.former.insert(id);
        }
    }

    /// Takes the violations.
    pub fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }
}
