//! What the events of a job tell of its part in flexible allocations.

use std::collections::BTreeSet;
use std::sync::Arc;

use penstock_elastic::{Ask, Form};
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::event::Event;

/// What a job stands for that was made by a request.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Requested {
    /// The job that has asked.
    pub job: u64,
    /// The number of the request among that job's.
    pub seq: u32,
    /// `new`, `extend` or `reacquire`.
    pub directive: String,
    /// The user's id of the request.
    pub id: Option<String>,
    /// The allocation that it joins; none for one of its own.
    pub joins: Option<u64>,
    /// What is asked for.
    pub ask: Ask,
    /// How the scheduler is asked for it.
    pub form: Form,
    /// The jobs of the parts of the request that are there already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<u64>,
}

/// A job's part in flexible allocations.
#[derive(Clone, Debug, Default)]
pub struct Flex {
    /// The request that the job stands for.
    pub requested: Option<Requested>,
    /// All that the job has, where that is not its own R.
    pub extent: Option<Arc<ResourceSet>>,
    /// Jobs that stand for what it was granted.
    pub grants: BTreeSet<u64>,
    /// Its own ranks that it has given back itself.
    pub given: IdSet,
}

#[derive(Deserialize)]
struct Added {
    alloc: u64,
    #[serde(rename = "R")]
    r: Value,
}

#[derive(Deserialize)]
struct Removed {
    #[serde(rename = "R")]
    r: Value,
    #[serde(default)]
    ranks: String,
    #[serde(default)]
    ended: Vec<u64>,
}

fn read<T: serde::de::DeserializeOwned>(event: &Event) -> Option<T> {
    let context = event.context.clone()?;
    serde_json::from_value(Value::Object(context)).ok()
}

impl Flex {
    /// Takes an event in; returns the job's own ranks that it tells to have gone back. `r` is the
    /// job's own R.
    pub(crate) fn apply(&mut self, event: &Event, r: Option<&Arc<ResourceSet>>) -> Option<IdSet> {
        match event.name.as_str() {
            "penstock.request" => self.requested = read(event),
            "penstock.request-update" => {
                let form = event.text("form").and_then(Form::named);
                if let (Some(requested), Some(form)) = (&mut self.requested, form) {
                    requested.form = form;
                }
            }
            "penstock.resource-add" => {
                let added: Added = read(event)?;
                self.grants.insert(added.alloc);
                self.change(&added.r, r, ResourceSet::union);
            }
            "penstock.resource-remove" => {
                let removed: Removed = read(event)?;
                for grant in removed.ended {
                    self.grants.remove(&grant);
                }
                self.change(&removed.r, r, ResourceSet::difference);
                let ranks: IdSet = removed.ranks.parse().ok()?;
                self.given.union_with(&ranks);
                return Some(ranks);
            }
            _ => {}
        }
        None
    }

    fn change(
        &mut self,
        by: &Value,
        own: Option<&Arc<ResourceSet>>,
        operation: fn(&ResourceSet, &ResourceSet) -> Result<ResourceSet, penstock_rset::Error>,
    ) {
        let before = self.extent.as_ref().or(own);
        let by = ResourceSet::from_json(&by.to_string());
        if let (Some(before), Ok(by)) = (before, by)
            && let Ok(after) = operation(before, &by)
        {
            self.extent = Some(Arc::new(after));
        }
    }

    /// What lists show beside the scheduler's annotations.
    pub(crate) fn annotation(&self) -> Option<Value> {
        use penstock_jobspec::fluid::Fluid;
        let mut shown = Map::new();
        if let Some(requested) = &self.requested {
            shown.insert("directive".to_owned(), requested.directive.as_str().into());
            shown.insert("job".to_owned(), Fluid(requested.job).to_string().into());
            if let Some(joined) = requested.joins.filter(|it| *it != requested.job) {
                let joined = Fluid(joined).to_string();
                shown.insert("allocation".to_owned(), joined.into());
            }
            if let Some(id) = &requested.id {
                shown.insert("id".to_owned(), id.as_str().into());
            }
        }
        if !self.grants.is_empty() {
            let grants = self.grants.iter().map(|id| Fluid(*id).to_string());
            shown.insert("grants".to_owned(), json!(grants.collect::<Vec<_>>()));
        }
        if !self.given.is_empty() {
            let given = self.given.to_string();
            shown.insert("released".to_owned(), given.into());
        }
        (!shown.is_empty()).then_some(Value::Object(shown))
    }
}
