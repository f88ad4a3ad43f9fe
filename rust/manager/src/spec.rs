//! The spec of a job: what the manager itself reads of its jobspec.

use std::borrow::Cow;
use std::sync::Arc;

use penstock_flux::{JobspecDocument, RedactedJobspec};
use penstock_jobspec::copies::{self, CopyIds};
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Error, Jobspec, TaskCount};

use crate::policy;
use crate::settings::Settings;

/// The length of a name that comes from the command; the rest is cut off.
const MAX_COMMAND_NAME_BYTES: usize = 255;

/// The attributes of a jobspec that the manager needs, shared by jobs with equal jobspecs.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Key of the full text in the store.
    pub key: i64,
    /// Job name: as given, else the last path component of the command. In that of copies `{cc}` stands for the id of one:
    /// see [`name_of`](Self::name_of).
    pub name: String,
    /// The copies that share the jobspec, if they differ.
    pub copies: Option<CopyIds>,
    /// Working directory.
    pub cwd: Option<String>,
    /// Queue.
    pub queue: Option<String>,
    /// Project to charge.
    pub project: Option<String>,
    /// Bank to charge.
    pub bank: Option<String>,
    /// Number of tasks; the minimum if `is_task_per_slot` and the slot count is a range.
    pub ntasks: u64,
    /// Whether the number of tasks is the number of slots in R.
    pub is_task_per_slot: bool,
    /// Requested nodes; `None` if only slots are requested.
    pub nnodes: Option<u32>,
    /// Requested cores.
    pub ncores: u64,
    /// Time limit in seconds; 0 is unlimited.
    pub duration: f64,
    /// Dependencies as (scheme, value).
    pub dependencies: Vec<(String, String)>,
}

impl Spec {
    /// Extracts the attributes from a valid jobspec stored under `key`.
    pub fn new(key: i64, jobspec: &Jobspec) -> Self {
        let request = jobspec.request();
        let name = jobspec.job_name().map_or_else(
            || {
                let command = jobspec.command().first().map_or("", String::as_str);
                let name = command.rsplit('/').next().unwrap_or(command);
                let ends = name.char_indices().map(|(at, c)| at + c.len_utf8());
                let end = ends.take_while(|end| *end <= MAX_COMMAND_NAME_BYTES).last();
                name[..end.unwrap_or(0)].to_owned()
            },
            str::to_owned,
        );
        let text = |path| jobspec.attribute(path)?.as_str().map(str::to_owned);
        Self {
            key,
            name,
            copies: jobspec.copy_ids(),
            cwd: jobspec.cwd().map(str::to_owned),
            queue: jobspec.queue().map(str::to_owned),
            project: text("system.project"),
            bank: text("system.bank"),
            ntasks: jobspec.ntasks(),
            is_task_per_slot: matches!(jobspec.tasks, TaskCount::PerSlot(_)) && !request.is_exact(),
            nnodes: request.least_nodes(),
            ncores: request.total_cores(),
            duration: jobspec.duration(),
            dependencies: jobspec
                .dependencies()
                .iter()
                .map(|dependency| (dependency.scheme.clone(), dependency.value.clone()))
                .collect(),
        }
    }
}

impl Spec {
    /// The id of the copy that a job with this spec is.
    pub fn copy_of(&self, id: JobId) -> Option<u32> {
        self.copies.as_ref()?.of_job(id)
    }

    /// The name of a job with this spec.
    pub fn name_of(&self, id: JobId) -> Cow<'_, str> {
        match self.copy_of(id) {
            Some(copy) => copies::expand(&self.name, copy).into(),
            None => self.name.as_str().into(),
        }
    }

    /// Whether the manager reads the same of both, but for the name and the key.
    pub(crate) fn is_same_but_for_name(&self, other: &Self) -> bool {
        let without_name = |spec: &Self| Self {
            key: 0,
            name: String::new(),
            ..spec.clone()
        };
        without_name(self) == without_name(other)
    }
}

/// A jobspec that is in the store: its spec, and the form that is sent to the scheduler. Both are shared by jobs with
/// equal jobspecs.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) spec: Arc<Spec>,
    pub(crate) request: Arc<RedactedJobspec>,
}

/// A valid jobspec that is not in the store yet.
#[derive(Debug)]
pub(crate) struct Checked {
    document: JobspecDocument,
    spec: Spec,
    request: RedactedJobspec,
}

impl Checked {
    /// A jobspec and its text.
    pub(crate) fn new(jobspec: Jobspec, text: &str, settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            document: JobspecDocument::parsed(text.into(), &jobspec),
            spec: Spec::new(0, &jobspec),
            request: policy::redact(jobspec, settings)?,
        })
    }

    /// The spec, without a key.
    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The form that is sent to the scheduler.
    pub(crate) fn request(&self) -> &RedactedJobspec {
        &self.request
    }

    /// The size of the greater of the two texts.
    pub(crate) fn bytes(&self) -> usize {
        self.document.text().len().max(self.request.text().len())
    }

    /// The document, the spec without a key, and the form that is sent to the scheduler.
    pub(crate) fn into_parts(self) -> (JobspecDocument, Spec, RedactedJobspec) {
        (self.document, self.spec, self.request)
    }
}
