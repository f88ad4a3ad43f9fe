//! A job as `job-list` shows it (RFC 43, Job Attributes), and which of its attributes are wanted.

use penstock_rset::ResourceSet;
use serde_json::{Map, Value, json};

use crate::job::Job;
use crate::state::{JobResult, State};

/// A job's attribute; null where the job has no such thing (yet).
type Attribute = fn(&Job) -> Value;

/// Every attribute: the order is that of the keys in a row.
const ATTRIBUTES: [(&str, Attribute); 33] = [
    ("id", |job| job.id.into()),
    ("userid", |job| job.userid.into()),
    ("urgency", |job| job.urgency.into()),
    ("priority", |job| {
        let has = job.state > State::Priority;
        if has {
            job.priority.into()
        } else {
            Value::Null
        }
    }),
    ("t_submit", |job| time(job.t_submit)),
    ("t_depend", |job| time(job.t_depend)),
    ("t_run", |job| time(job.t_run)),
    ("t_cleanup", |job| time(job.t_cleanup)),
    ("t_inactive", |job| time(job.t_inactive)),
    ("state", |job| job.state.bit().into()),
    ("name", |job| job.spec.name.as_str().into()),
    ("cwd", |job| job.spec.cwd.as_deref().into()),
    ("queue", |job| job.spec.queue.as_deref().into()),
    ("project", |job| job.spec.project.as_deref().into()),
    ("bank", |job| job.spec.bank.as_deref().into()),
    ("ntasks", |job| {
        if job.requested().is_some() {
            return 0.into();
        }
        let granted = allocated(job).filter(|_| job.spec.tasks_follow_slots);
        let slots = granted.and_then(ResourceSet::nslots);
        slots.unwrap_or(job.spec.ntasks).into()
    }),
    ("duration", |job| job.spec.duration.into()),
    ("ncores", |job| match allocated(job) {
        Some(r) => r.ncores().into(),
        None => job.spec.ncores.into(),
    }),
    ("nnodes", |job| match allocated(job) {
        Some(r) => r.nnodes().into(),
        None => job.spec.nnodes.into(),
    }),
    ("ranks", |job| {
        allocated(job).map(|r| r.ranks().to_string()).into()
    }),
    ("nodelist", |job| {
        allocated(job).map(|r| r.nodelist().to_string()).into()
    }),
    ("expiration", |job| {
        allocated(job).map(|r| r.expiration().unwrap_or(0.0)).into()
    }),
    ("waitstatus", |job| job.status.into()),
    ("returncode", |job| job.returncode().into()),
    ("result", |job| {
        job.result().map(|outcome| outcome as u8).into()
    }),
    ("success", |job| {
        let outcome = job.result();
        outcome.map(|it| it == JobResult::Completed).into()
    }),
    ("exception_occurred", |job| job.exception.is_some().into()),
    ("exception_type", |job| {
        job.exception.as_ref().map(|it| it.kind.as_str()).into()
    }),
    ("exception_severity", |job| {
        job.exception.as_ref().map(|it| it.severity).into()
    }),
    ("exception_note", |job| {
        job.exception.as_ref().map(|it| it.note.as_str()).into()
    }),
    ("pending_reason", |job| {
        let pending = job.state == State::Sched;
        job.stopped.as_deref().filter(|_| pending).into()
    }),
    ("annotations", annotations),
    ("dependencies", |job| {
        let waits = || job.waits_for.iter().map(String::as_str).collect();
        (!job.waits_for.is_empty()).then(waits).unwrap_or_default()
    }),
];

fn time(t: f64) -> Value {
    if t > 0.0 { t.into() } else { Value::Null }
}

/// The job's resources, from the time on when it had them for good.
fn allocated(job: &Job) -> Option<&ResourceSet> {
    let r = job.extent().map(std::convert::AsRef::as_ref);
    r.filter(|_| job.t_run > 0.0)
}

fn annotations(job: &Job) -> Value {
    let mut annotations = job.annotations.clone();
    if let Some(memo) = &job.memo {
        annotations.insert("user".to_owned(), Value::Object(memo.as_ref().clone()));
    }
    if let Some(flex) = job.flex.as_ref().and_then(|it| it.annotation()) {
        annotations.insert("elastic".to_owned(), flex);
    }
    if annotations.is_empty() {
        return Value::Null;
    }
    Value::Object(annotations)
}

/// Which attributes are wanted: a bit for each place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attrs(u64);

impl Attrs {
    /// Every attribute.
    pub const ALL: Self = Self(u64::MAX);

    /// The named attributes and `id`; all where none is named, or `all` is.
    pub(crate) fn named(names: &[String]) -> Self {
        if names.is_empty() || names.iter().any(|name| name == "all") {
            return Self::ALL;
        }
        let wanted = |(place, (name, _)): (usize, &(&str, Attribute))| {
            let wanted = *name == "id" || names.iter().any(|it| it == name);
            u64::from(wanted) << place
        };
        Self(ATTRIBUTES.iter().enumerate().map(wanted).sum())
    }
}

/// The wanted attributes of a job. Those without a value are left out, and cost nothing where
/// they are not wanted.
pub fn row(job: &Job, attrs: Attrs) -> Map<String, Value> {
    let mut row = Map::new();
    for (place, (name, value)) in ATTRIBUTES.iter().enumerate() {
        if attrs.0 & (1 << place) != 0 {
            let value = value(job);
            if !value.is_null() {
                row.insert((*name).to_owned(), value);
            }
        }
    }
    row
}

/// `job-list.list-attrs`.
pub(crate) fn attributes() -> Value {
    let names: Vec<_> = ATTRIBUTES.iter().map(|(name, _)| *name).collect();
    json!({ "attrs": names })
}
