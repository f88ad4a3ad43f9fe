//! The spec of a job: what the manager itself reads of its jobspec.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use penstock_flux::{JobspecDocument, RequestedResources};
use penstock_jobspec::copies::{self, CopyIds};
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Error, Jobspec, TaskCount};

use crate::policy;
use crate::settings::Settings;

/// The length of a name that comes from the command; the rest is cut off.
const MAX_COMMAND_NAME_BYTES: usize = 255;

/// The number of times that the form of a jobspec for the scheduler, without the constraint of its queue, can be longer than its
/// text: `1e15` becomes `1000000000000000.0`.
const MAX_EXPANSION: usize = 8;

/// The attributes of a jobspec that the manager needs, shared by jobs with equal jobspecs.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Key of the full text in the store.
    pub key: i64,
    /// Job name: as given, else the last path component of the command. In that of copies `{cc}` stands for the id of one:
    /// see [`name_of`](Self::name_of).
    pub name: Box<str>,
    /// The other attributes.
    pub attributes: Arc<Attributes>,
}

impl Deref for Spec {
    type Target = Attributes;

    fn deref(&self) -> &Attributes {
        &self.attributes
    }
}

/// The attributes that many jobs with jobspecs of their own have in common, such as those of a sweep: all that the manager needs
/// of a jobspec but its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Attributes {
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

impl Hash for Attributes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self {
            copies,
            cwd,
            queue,
            project,
            bank,
            ntasks,
            is_task_per_slot,
            nnodes,
            ncores,
            duration,
            dependencies,
        } = self;
        (copies, cwd, queue, project, bank, dependencies).hash(state);
        (ntasks, is_task_per_slot, nnodes, ncores).hash(state);
        // No time limit is -0.
        duration.to_bits().hash(state);
    }
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
                name[..end.unwrap_or(0)].into()
            },
            Into::into,
        );
        let text = |path| jobspec.attribute(path)?.as_str().map(str::to_owned);
        let attributes = Attributes {
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
        };
        Self {
            key,
            name,
            attributes: Arc::new(attributes),
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
            None => (*self.name).into(),
        }
    }
}

/// A jobspec that is in the store: its spec, shared by jobs with equal jobspecs, and what it requests, with the constraint of its
/// queue, shared by all jobs that request the same.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) spec: Arc<Spec>,
    pub(crate) requested: Arc<RequestedResources>,
}

/// A valid jobspec that is not in the store yet.
#[derive(Debug)]
pub(crate) struct Checked {
    document: JobspecDocument,
    spec: Spec,
    redacted: Jobspec,
    /// Whether its queue has a constraint.
    is_constrained: bool,
}

impl Checked {
    /// A jobspec and its text.
    pub(crate) fn new(jobspec: Jobspec, text: &str, settings: &Settings) -> Result<Self, Error> {
        Ok(Self {
            document: JobspecDocument::parsed(text.into(), &jobspec),
            spec: Spec::new(0, &jobspec),
            is_constrained: policy::has_constraint(jobspec.queue(), settings),
            redacted: policy::redact(jobspec, settings)?,
        })
    }

    /// The spec, without a key.
    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The resources that it requests, with the constraint of its queue.
    pub(crate) fn requested(&self) -> RequestedResources {
        RequestedResources::of(&self.redacted)
    }

    /// The size of its text or of the form for the scheduler, in bytes: that of the greater one, unless its text is far
    /// below a limit.
    pub(crate) fn bytes(&self, limit: usize) -> usize {
        let bytes = self.document.text().len();
        if !self.is_constrained && bytes.saturating_mul(MAX_EXPANSION) < limit {
            return bytes;
        }
        bytes.max(self.redacted.to_text().len())
    }

    /// The document, the spec without a key, and what it requests.
    pub(crate) fn into_parts(self) -> (JobspecDocument, Spec, RequestedResources) {
        let requested = self.requested();
        (self.document, self.spec, requested)
    }
}
