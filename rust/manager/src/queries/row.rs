//! A job as `job-list` shows it: a row of attributes (RFC 43, Job Attributes).

use std::time::Duration;

use penstock_flux::Text;
use penstock_flux::job_list::{ListAttrsResponse, Row};
use penstock_rset::ResourceSet;
use serde_json::Value;

use crate::elastic_state::ElasticState;
use crate::jobs::Job;
use crate::state::{JobResult, State};

/// Computes a job's attribute; null if the job does not have it (yet).
type RowAttribute = fn(&Job) -> Value;

/// Every attribute, in the order of a row's keys.
const ATTRIBUTES: [(&str, RowAttribute); 39] = [
    ("id", |job| job.record.id().get().into()),
    ("userid", |job| job.record.userid().into()),
    ("urgency", |job| job.record.urgency().into()),
    ("priority", |job| {
        let has = job.record.state() > State::Priority;
        if has {
            job.record.priority().into()
        } else {
            Value::Null
        }
    }),
    ("t_submit", |job| time(job.record.t_submit())),
    ("t_depend", |job| time(job.record.t_depend())),
    ("t_priority", |job| time(job.record.t_priority())),
    ("t_sched", |job| time(job.record.t_sched())),
    ("t_run", |job| time(job.record.t_run())),
    ("t_cleanup", |job| time(job.record.t_cleanup())),
    ("t_inactive", |job| time(job.record.t_inactive())),
    ("state", |job| job.record.state().bit().into()),
    ("name", |job| job.record.name().into()),
    ("cwd", |job| job.record.spec().cwd.as_deref().into()),
    ("queue", |job| job.record.spec().queue.as_deref().into()),
    ("project", |job| job.record.spec().project.as_deref().into()),
    ("bank", |job| job.record.spec().bank.as_deref().into()),
    ("ntasks", |job| {
        if job.record.elastic_request().is_some() {
            return 0.into();
        }
        let granted = allocated(job).filter(|_| job.record.spec().is_task_per_slot);
        let slots = granted.and_then(ResourceSet::nslots);
        slots.unwrap_or(job.record.spec().ntasks).into()
    }),
    ("duration", |job| job.record.spec().duration.into()),
    ("ncores", |job| match allocated(job) {
        Some(r) => r.ncores().into(),
        None => job.record.spec().ncores.into(),
    }),
    ("ngpus", |job| allocated(job).map(ResourceSet::ngpus).into()),
    ("nnodes", |job| match allocated(job) {
        Some(r) => r.nnodes().into(),
        None => job.record.spec().nnodes.into(),
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
    ("waitstatus", |job| job.record.wait_status().into()),
    ("returncode", |job| job.record.returncode().into()),
    ("max_rss_kib", |job| {
        job.record.usage().map(|usage| usage.max_rss_kib).into()
    }),
    ("user_cpu", |job| {
        job.record
            .usage()
            .map(|usage| seconds(usage.user_us))
            .into()
    }),
    ("system_cpu", |job| {
        let usage = job.record.usage();
        usage.map(|usage| seconds(usage.system_us)).into()
    }),
    ("result", |job| {
        job.record.result().map(|result| result as u8).into()
    }),
    ("success", |job| {
        let result = job.record.result();
        result.map(|result| result == JobResult::Completed).into()
    }),
    ("exception_occurred", |job| {
        job.record.exception().is_some().into()
    }),
    ("exception_type", |job| {
        job.record
            .exception()
            .map(|exception| &*exception.kind)
            .into()
    }),
    ("exception_severity", |job| {
        job.record
            .exception()
            .map(|exception| exception.severity)
            .into()
    }),
    ("exception_note", |job| {
        job.record
            .exception()
            .map(|exception| &*exception.note)
            .into()
    }),
    ("pending_reason", |job| {
        let pending = job.record.state() == State::Sched;
        job.dialogue
            .scheduler
            .stop_reason()
            .filter(|_| pending)
            .map(|reason| &**reason)
            .into()
    }),
    ("annotations", annotations),
    ("dependencies", |job| {
        let waits = || {
            job.record
                .dependencies()
                .iter()
                .map(String::as_str)
                .collect()
        };
        (!job.record.dependencies().is_empty())
            .then(waits)
            .unwrap_or_default()
    }),
];

fn time(t: f64) -> Value {
    if t > 0.0 { t.into() } else { Value::Null }
}

/// Microseconds in seconds, exact below 285 years.
fn seconds(microseconds: u64) -> f64 {
    Duration::from_micros(microseconds).as_secs_f64()
}

/// The job's resources, from its allocation on.
fn allocated(job: &Job) -> Option<&ResourceSet> {
    let r = job.record.extent().map(std::convert::AsRef::as_ref);
    r.filter(|_| job.record.t_run() > 0.0)
}

fn annotations(job: &Job) -> Value {
    let mut annotations = job.annotations().clone();
    if let Some(memo) = job.record.memo() {
        annotations.insert("user".to_owned(), Value::Object(memo.clone()));
    }
    if let Some(elastic) = job.record.elastic().and_then(ElasticState::annotation) {
        let elastic = serde_json::to_value(elastic).unwrap_or_default();
        annotations.insert("elastic".to_owned(), elastic);
    }
    if annotations.is_empty() {
        return Value::Null;
    }
    Value::Object(annotations)
}

/// A set of attributes: a bit for each index in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attrs(u64);

impl Attrs {
    /// Every attribute.
    pub const ALL: Self = Self(u64::MAX);

    /// The named attributes and `id`; all if none is named, or `all` is.
    pub(crate) fn named(names: &[Text<'_>]) -> Self {
        if names.is_empty() || names.iter().any(|name| **name == *"all") {
            return Self::ALL;
        }
        let wanted = |(index, (name, _)): (usize, &(&str, RowAttribute))| {
            let wanted = *name == "id" || names.iter().any(|wanted| **wanted == **name);
            u64::from(wanted) << index
        };
        Self(ATTRIBUTES.iter().enumerate().map(wanted).sum())
    }
}

/// The row of a job. Attributes without a value are left out.
pub fn row(job: &Job, attrs: Attrs) -> Row {
    let mut row = Row::new();
    for (index, (name, value)) in ATTRIBUTES.iter().enumerate() {
        if attrs.0 & (1 << index) != 0 {
            let value = value(job);
            if !value.is_null() {
                row.insert((*name).to_owned(), value);
            }
        }
    }
    row
}

/// `job-list.list-attrs`.
pub(crate) fn attributes() -> ListAttrsResponse<'static> {
    let names = ATTRIBUTES.iter().map(|(name, _)| (*name).into());
    ListAttrsResponse {
        attrs: names.collect(),
    }
}
