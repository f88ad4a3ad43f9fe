//! The part of a job in flexible allocations, which follows from its events (PMIx RFC 0005).

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_elastic::{Attempt, Demand};
use penstock_flux::eventlog::{ResourceAdd, ResourceRemove};
use penstock_flux::job_list::ElasticAnnotation;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use serde::{Deserialize, Serialize};

use crate::effect::RequestKey;
use crate::event::Event;

/// The PMIx request that a request job carries through the queue.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ElasticRequest {
    /// The job that made the request.
    pub job: JobId,
    /// The number of the request among that job's.
    pub seq: u32,
    /// `new`, `extend` or `reacquire`.
    pub directive: String,
    /// The user's id of the request.
    pub id: Option<String>,
    /// The allocation that its resources join; `None` for an allocation of its own.
    pub joins: Option<JobId>,
    /// The resources requested.
    pub demand: Demand,
    /// The current attempt.
    pub attempt: Attempt,
    /// The request jobs of the parts that are allocated already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<JobId>,
}

impl ElasticRequest {
    /// The identity of the request.
    pub(crate) fn key(&self) -> RequestKey {
        RequestKey {
            job: self.job,
            seq: self.seq,
        }
    }

    /// The request job of the first part, given that of one part.
    pub(crate) fn first(&self, id: JobId) -> JobId {
        self.before.first().copied().unwrap_or(id)
    }

    /// Whether a part is to be requested after this one.
    pub(crate) fn has_next_part(&self) -> bool {
        self.attempt != Attempt::Partial && !self.demand.rest.is_empty()
    }
}

/// The part of a job in flexible allocations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flex {
    /// The request that the job carries.
    pub request: Option<ElasticRequest>,
    /// All resources of the job, if they are not its own R.
    pub extent: Option<Arc<ResourceSet>>,
    /// The request jobs of its grants.
    pub grants: BTreeSet<JobId>,
    /// Its own ranks that it has released itself.
    pub released: IdSet,
}

/// The context of `penstock.request-update`: the request of a request job is made by another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct RequestUpdate {
    pub(crate) attempt: Attempt,
}

impl Flex {
    /// Applies an event. Returns the job's own ranks that were released by it. `r` is the job's own R.
    pub(crate) fn apply(&mut self, event: &Event, r: Option<&Arc<ResourceSet>>) -> Option<IdSet> {
        match &*event.name {
            "penstock.request" => self.request = event.read(),
            "penstock.request-update" => {
                let update: RequestUpdate = event.read()?;
                self.request.as_mut()?.attempt = update.attempt;
            }
            "penstock.resource-add" => {
                let added: ResourceAdd = event.read()?;
                self.grants.insert(added.alloc);
                self.change(&added.r, r, ResourceSet::union);
            }
            "penstock.resource-remove" => {
                let removed: ResourceRemove = event.read()?;
                for grant in removed.ended {
                    self.grants.remove(&grant);
                }
                self.change(&removed.r, r, ResourceSet::difference);
                self.released.union_with(&removed.ranks);
                return Some(removed.ranks);
            }
            _ => {}
        }
        None
    }

    fn change(
        &mut self,
        by: &ResourceSet,
        own: Option<&Arc<ResourceSet>>,
        operation: fn(&ResourceSet, &ResourceSet) -> Result<ResourceSet, penstock_rset::Error>,
    ) {
        let before = self.extent.as_ref().or(own);
        if let Some(before) = before
            && let Ok(after) = operation(before, by)
        {
            self.extent = Some(Arc::new(after));
        }
    }

    /// The annotation that lists show beside the scheduler's; `None` if it would be empty.
    pub(crate) fn annotation(&self) -> Option<ElasticAnnotation> {
        let request = self.request.as_ref();
        let joined = request.and_then(|request| {
            let joins = request.joins;
            joins.filter(|joined| *joined != request.job)
        });
        let annotation = ElasticAnnotation {
            directive: request.map(|request| request.directive.clone()),
            job: request.map(|request| request.job.to_string()),
            allocation: joined.map(|joined| joined.to_string()),
            id: request.and_then(|request| request.id.clone()),
            grants: self.grants.iter().map(JobId::to_string).collect(),
            released: Some(&self.released)
                .filter(|released| !released.is_empty())
                .cloned(),
        };
        (annotation != ElasticAnnotation::default()).then_some(annotation)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_stored_under_the_names_of_its_fields() {
        let stored = json!({
            "job": 1, "seq": 2, "directive": "extend", "id": null, "joins": 1,
            "demand": {"nodes": 3, "cpus": 0}, "attempt": "full",
        });
        let request: ElasticRequest = serde_json::from_value(stored).unwrap();
        assert_eq!(
            (request.demand.nodes, request.attempt),
            (Some(3), Attempt::Full)
        );
        let written = serde_json::to_value(&request).unwrap();
        assert_eq!(
            (&written["demand"]["nodes"], &written["attempt"]),
            (&json!(3), &json!("full"))
        );
        for (attempt, name) in [
            (Attempt::Preferred, "preferred"),
            (Attempt::Partial, "partial"),
        ] {
            assert_eq!(json!(attempt), name);
            let update = RequestUpdate { attempt };
            let event = Event::with(0.0, "penstock.request-update", &update);
            assert_eq!(event.read(), Some(update));
        }
    }
}
