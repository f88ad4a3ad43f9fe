//! A job as `job-list` shows it: a row of attributes (RFC 43, Job Attributes).

use std::borrow::Cow;
use std::time::Duration;

use penstock_flux::Text;
use penstock_flux::job_list::ListAttrsResponse;
use penstock_rset::ResourceSet;
use serde::ser::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::elastic_state::ElasticState;
use crate::jobs::Job;
use crate::state::{JobResult, State};

/// The value of a job's attribute.
enum AttributeValue<'a> {
    /// The job does not have it (yet).
    Absent,
    Bool(bool),
    Integer(i64),
    Unsigned(u64),
    Float(f64),
    Text(Cow<'a, str>),
    Texts(Vec<&'a str>),
    Object(Cow<'a, Map<String, Value>>),
}

impl Serialize for AttributeValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Absent => serializer.serialize_none(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
            Self::Texts(value) => value.serialize(serializer),
            Self::Object(value) => value.serialize(serializer),
        }
    }
}

/// Implements `From` by a variant.
macro_rules! attribute_from {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl<'a> From<$type> for AttributeValue<'a> {
            fn from(value: $type) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}

attribute_from! {
    bool => Bool,
    i32 => Integer,
    i64 => Integer,
    u8 => Unsigned,
    u32 => Unsigned,
    u64 => Unsigned,
    &'a str => Text,
    Cow<'a, str> => Text,
    String => Text,
}

impl From<usize> for AttributeValue<'_> {
    fn from(value: usize) -> Self {
        Self::Unsigned(value as u64)
    }
}

impl From<f64> for AttributeValue<'_> {
    fn from(value: f64) -> Self {
        // JSON has no other numbers.
        if value.is_finite() {
            Self::Float(value)
        } else {
            Self::Absent
        }
    }
}

impl<'a, T: Into<AttributeValue<'a>>> From<Option<T>> for AttributeValue<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Absent, Into::into)
    }
}

/// Computes a job's attribute.
type RowAttribute = for<'a> fn(&'a Job) -> AttributeValue<'a>;

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
            AttributeValue::Absent
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
        let dependencies = job.record.dependencies();
        if dependencies.is_empty() {
            return AttributeValue::Absent;
        }
        AttributeValue::Texts(dependencies.iter().map(String::as_str).collect())
    }),
];

fn time<'a>(t: f64) -> AttributeValue<'a> {
    Some(t).filter(|t| *t > 0.0).into()
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

fn annotations(job: &Job) -> AttributeValue<'_> {
    let mut annotations = Cow::Borrowed(job.annotations());
    if let Some(memo) = job.record.memo() {
        let memo = Value::Object(memo.clone());
        annotations.to_mut().insert("user".to_owned(), memo);
    }
    if let Some(elastic) = job.record.elastic().and_then(ElasticState::annotation) {
        let elastic = serde_json::to_value(elastic).unwrap_or_default();
        annotations.to_mut().insert("elastic".to_owned(), elastic);
    }
    if annotations.is_empty() {
        return AttributeValue::Absent;
    }
    AttributeValue::Object(annotations)
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

/// Room for a row: few are longer.
const ROW_BYTES: usize = 1024;

/// Rows of jobs, written as the jobs are found.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// JSON objects with a comma between them.
    text: Vec<u8>,
    count: usize,
}

impl Rows {
    /// The row of one job.
    pub(crate) fn of(job: &Job, attrs: Attrs) -> Self {
        let mut rows = Self::default();
        rows.push(job, attrs);
        rows
    }

    /// Adds the row of a job. Attributes without a value are left out.
    pub(crate) fn push(&mut self, job: &Job, attrs: Attrs) {
        if self.count > 0 {
            self.text.push(b',');
        }
        self.count += 1;
        self.text.reserve(ROW_BYTES);
        let mut separator = b'{';
        for (index, (name, value)) in ATTRIBUTES.iter().enumerate() {
            if attrs.0 & (1 << index) == 0 {
                continue;
            }
            let value = value(job);
            if matches!(value, AttributeValue::Absent) {
                continue;
            }
            // The names need no escapes.
            self.text.extend_from_slice(&[separator, b'"']);
            self.text.extend_from_slice(name.as_bytes());
            self.text.extend_from_slice(b"\":");
            // Writing into memory does not fail, and the keys of objects are strings.
            let _ = serde_json::to_writer(&mut self.text, &value);
            separator = b',';
        }
        // Every job has an id.
        self.text.push(b'}');
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The payload of the response to `job-list.list`: they are a part of its stream.
    pub(crate) fn list_payload(&self) -> Vec<u8> {
        [b"{\"jobs\":[", self.text.as_slice(), b"],\"version\":1}\0"].concat()
    }

    /// The payload of the response to `job-list.wait`.
    pub(crate) fn wait_payload(&self) -> Vec<u8> {
        [b"{\"jobs\":[", self.text.as_slice(), b"]}\0"].concat()
    }

    /// The payload of the response to `job-list.list-id`: there is one.
    pub(crate) fn job_payload(&self) -> Vec<u8> {
        [b"{\"job\":", self.text.as_slice(), b"}\0"].concat()
    }
}

/// `job-list.list-attrs`.
pub(crate) fn attributes() -> ListAttrsResponse<'static> {
    let names = ATTRIBUTES.iter().map(|(name, _)| (*name).into());
    ListAttrsResponse {
        attrs: names.collect(),
    }
}
