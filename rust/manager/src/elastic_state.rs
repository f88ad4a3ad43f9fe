//! The part of a job in elastic allocations, which follows from its events (PMIx RFC 0005).

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_elastic::{Attempt, Demand};
use penstock_flux::eventlog::{self, ResourceAdd, ResourceRemove};
use penstock_flux::job_list::ElasticAnnotation;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use serde::{Deserialize, Serialize};

use crate::effect::RequestKey;
use crate::event::{Document, Event};

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

/// The elastic state of a job: its request, its grants and what it has released.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ElasticState {
    /// The request that the job carries.
    pub request: Option<ElasticRequest>,
    /// All resources of the job, if they are not its own R.
    pub extent: Option<Arc<ResourceSet>>,
    /// The request jobs of its grants.
    pub grants: BTreeSet<JobId>,
    /// Ranks of its own R that the job released by request. Ranks that are not freed yet may be in use.
    pub released: IdSet,
}

/// The context of `penstock.request-update`: the request of a request job is made by another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct RequestUpdate {
    pub(crate) attempt: Attempt,
}

impl ElasticState {
    /// Applies an event. Returns the job's own ranks that were released by it and are free. `r` is the job's own R.
    pub(crate) fn apply(&mut self, event: &Event, r: Option<&Arc<ResourceSet>>) -> Option<IdSet> {
        match &*event.name {
            eventlog::REQUEST => self.request = event.read(),
            eventlog::REQUEST_UPDATE => {
                let update: RequestUpdate = event.read()?;
                self.request.as_mut()?.attempt = update.attempt;
            }
            eventlog::RESOURCE_ADD => match &event.document {
                Some(Document::ResourceAdd(added)) => self.add(added, r),
                _ => self.add(&event.read()?, r),
            },
            eventlog::RESOURCE_REMOVE => {
                return Some(match &event.document {
                    Some(Document::ResourceRemove(removed)) => self.remove(removed, r),
                    _ => self.remove(&event.read()?, r),
                });
            }
            _ => {}
        }
        None
    }

    fn add(&mut self, added: &ResourceAdd, own: Option<&Arc<ResourceSet>>) {
        self.grants.insert(added.alloc);
        self.change(&added.r, own, ResourceSet::union);
    }

    /// Removes resources. Returns the job's own ranks among them that are free.
    fn remove(&mut self, removed: &ResourceRemove, own: Option<&Arc<ResourceSet>>) -> IdSet {
        for grant in &removed.ended {
            self.grants.remove(grant);
        }
        self.change(&removed.r, own, ResourceSet::difference);
        self.released.union_with(&removed.ranks);
        if removed.is_in_use {
            return IdSet::new();
        }
        removed.ranks.clone()
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
    use crate::fixture::R;

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

    #[test]
    fn a_change_of_resources_is_taken_from_the_value_and_in_replay_from_the_line() {
        let own = Arc::new(ResourceSet::from_json(R).unwrap());
        let other = R.replace("\"0-1\"", "\"2-3\"").replace("n[0-1]", "n[2-3]");
        let added = ResourceAdd {
            id: None,
            alloc: JobId::new(7),
            seq: 1,
            r: Arc::new(ResourceSet::from_json(&other).unwrap()),
        };
        let ranks = IdSet::from(1..=1);
        let removed = ResourceRemove {
            r: Arc::new(own.restrict(&ranks)),
            ranks: ranks.clone(),
            ended: vec![JobId::new(7)],
            is_in_use: false,
        };
        let events = [
            Event::resource_add(1.0, added),
            Event::resource_remove(2.0, removed),
        ];
        let (mut live, mut replayed) = (ElasticState::default(), ElasticState::default());
        for (event, (nnodes, freed)) in events.into_iter().zip([(4, None), (3, Some(ranks))]) {
            let mut text = String::new();
            event.write(&mut text);
            let value = Event {
                context: None,
                ..event
            };
            assert_eq!(live.apply(&value, Some(&own)), freed);
            assert_eq!(live.extent.as_ref().unwrap().nnodes(), nnodes);
            let parsed = Event::parse(&text).unwrap();
            assert_eq!(replayed.apply(&parsed, Some(&own)), freed);
            assert_eq!(replayed, live);
        }
        assert!(live.grants.is_empty());
    }
}
