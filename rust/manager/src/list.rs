//! `job-list`: jobs by id or by a constraint in the manner of RFC 43, newest first.

use std::collections::BTreeSet;

use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::job::{self, Job};
use crate::manager::Manager;
use crate::rpc::{self, EINVAL, ENODATA, ENOENT, EPROTO, Refusal};
use crate::state::{Outcome, State};

/// Rows in one response of a stream.
const ROWS: usize = 1000;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    max_entries: usize,
    #[serde(default)]
    attrs: Vec<String>,
    #[serde(default)]
    since: f64,
    #[serde(default)]
    constraint: Option<Value>,
    ids: Option<Vec<u64>>,
}

#[derive(Deserialize)]
struct ListId {
    id: u64,
    #[serde(default)]
    attrs: Vec<String>,
}

#[derive(Deserialize)]
struct Wait {
    ids: Vec<u64>,
}

/// Which jobs are meant.
#[derive(Debug)]
enum Filter {
    And(Vec<Filter>),
    Or(Vec<Filter>),
    Not(Vec<Filter>),
    Users(Vec<u64>),
    Names(Vec<String>),
    Queues(Vec<String>),
    States(u8),
    Results(u8),
}

impl Filter {
    fn parse(value: &Value) -> Result<Self, Refusal> {
        let wrong = |text: String| Refusal::new(EINVAL, format!("job constraint: {text}"));
        let object = value
            .as_object()
            .ok_or_else(|| wrong(format!("expected an object, found `{value}`")))?;
        let Some((operator, values)) = object.iter().next() else {
            return Ok(Self::And(Vec::new()));
        };
        if object.len() > 1 {
            return Err(wrong(format!("expected one operator in `{value}`")));
        }
        let values = values
            .as_array()
            .ok_or_else(|| wrong(format!("expected `{operator}` to have a list")))?;
        let filters = || values.iter().map(Self::parse).collect::<Result<_, _>>();
        let strings = || {
            let strings = values.iter().map(|value| value.as_str().map(str::to_owned));
            let strings = strings.collect::<Option<_>>();
            strings.ok_or_else(|| wrong(format!("expected `{operator}` to list strings")))
        };
        let mask = |name: fn(&str) -> Option<u8>| {
            values.iter().try_fold(0, |mask, value| {
                let number = value.as_u64().and_then(|bits| u8::try_from(bits).ok());
                let bits = number.or_else(|| value.as_str().and_then(name));
                bits.map(|bits| mask | bits)
                    .ok_or_else(|| wrong(format!("unknown value `{value}` for `{operator}`")))
            })
        };
        Ok(match operator.as_str() {
            "and" => Self::And(filters()?),
            "or" => Self::Or(filters()?),
            "not" => Self::Not(filters()?),
            "userid" => {
                let users = values.iter().map(Value::as_u64).collect::<Option<_>>();
                let users = users.ok_or_else(|| wrong("expected user ids".to_owned()))?;
                Self::Users(users)
            }
            "name" => Self::Names(strings()?),
            "queue" => Self::Queues(strings()?),
            "states" => Self::States(mask(State::mask)?),
            "results" => Self::Results(mask(Outcome::mask)?),
            operator => return Err(wrong(format!("unknown operator `{operator}`"))),
        })
    }

    fn matches(&self, job: &Job) -> bool {
        match self {
            Self::And(filters) => filters.iter().all(|filter| filter.matches(job)),
            // As in RFC 31: an empty `or` asks for nothing, so everything meets it.
            Self::Or(filters) => {
                filters.is_empty() || filters.iter().any(|filter| filter.matches(job))
            }
            Self::Not(filters) => !filters.iter().all(|filter| filter.matches(job)),
            Self::Users(users) => users.contains(&u64::from(job.userid)),
            Self::Names(names) => names.contains(&job.spec.name),
            Self::Queues(queues) => {
                let queue = job.spec.queue.as_ref();
                queue.is_some_and(|queue| queues.contains(queue))
            }
            Self::States(mask) => mask & job.state.bit() != 0,
            Self::Results(mask) => job.outcome().is_some_and(|it| mask & (it as u8) != 0),
        }
    }
}

fn select(row: Map<String, Value>, attrs: &[String]) -> Value {
    if attrs.is_empty() || attrs.iter().any(|attr| attr == "all") {
        return Value::Object(row);
    }
    let wanted = |key: &str| key == "id" || attrs.iter().any(|attr| attr == key);
    Value::Object(row.into_iter().filter(|(key, _)| wanted(key)).collect())
}

impl Manager {
    /// `job-list.list`: a stream of `{"jobs": [row…]}`, newest job first.
    pub(crate) fn list(&mut self, request: &Message) {
        let end = match self.list_rows(request) {
            Ok(rows) => {
                for chunk in rows.chunks(ROWS) {
                    let payload = json!({ "jobs": chunk, "version": 1 });
                    self.respond(request, Some(&payload));
                }
                Refusal::new(ENODATA, "")
            }
            Err(refusal) => refusal,
        };
        self.refuse(request, &end);
    }

    fn list_rows(&self, request: &Message) -> Result<Vec<Value>, Refusal> {
        if !request.is_streaming() {
            return Err(Refusal::new(EPROTO, "job-list.list is a streaming request"));
        }
        let list: List = rpc::payload(request)?;
        let everything = json!({});
        let filter = Filter::parse(list.constraint.as_ref().unwrap_or(&everything))?;
        let most = if list.max_entries == 0 {
            usize::MAX
        } else {
            list.max_entries
        };
        let shown = |job: &&Job| {
            (job.state != State::Inactive || job.t_inactive > list.since) && filter.matches(job)
        };
        let row = |job: &Job| select(job::row(job), &list.attrs);
        if let Some(ids) = &list.ids {
            let mut rows = Vec::with_capacity(ids.len());
            for id in ids {
                let job = self.jobs.get(id);
                let job =
                    job.ok_or_else(|| Refusal::new(ENOENT, format!("no job {}", Fluid(*id))))?;
                rows.extend(Some(job).filter(shown).map(row));
            }
            rows.truncate(most);
            return Ok(rows);
        }
        let jobs = self.jobs.values().rev().filter(shown);
        Ok(jobs.take(most).map(row).collect())
    }

    /// `job-list.list-id`: one job.
    pub(crate) fn list_id(&self, request: &Message) -> Result<Value, Refusal> {
        let wanted: ListId = rpc::payload(request)?;
        let job = self.jobs.get(&wanted.id);
        let job =
            job.ok_or_else(|| Refusal::new(ENOENT, format!("no job {}", Fluid(wanted.id))))?;
        Ok(json!({ "job": select(job::row(job), &wanted.attrs) }))
    }

    /// `job-list.wait`: each job's row as it becomes inactive, ENODATA when all are.
    pub(crate) fn wait(&mut self, request: &Message) {
        if let Err(refusal) = self.start_wait(request) {
            self.refuse(request, &refusal);
        }
    }

    fn start_wait(&mut self, request: &Message) -> Result<(), Refusal> {
        if !request.is_streaming() {
            return Err(Refusal::new(EPROTO, "job-list.wait is a streaming request"));
        }
        let wait: Wait = rpc::payload(request)?;
        let mut left = BTreeSet::new();
        let mut over = Vec::new();
        for id in wait.ids {
            let job = self.jobs.get(&id);
            let job = job.ok_or_else(|| Refusal::new(ENOENT, format!("no job {}", Fluid(id))))?;
            if job.state == State::Inactive {
                over.push(Value::Object(job::row(job)));
            } else {
                left.insert(id);
            }
        }
        for chunk in over.chunks(ROWS) {
            self.respond(request, Some(&json!({ "jobs": chunk })));
        }
        if left.is_empty() {
            self.refuse(request, &Refusal::new(ENODATA, ""));
        } else {
            self.watchers.wait(request.clone(), left);
        }
        Ok(())
    }
}
