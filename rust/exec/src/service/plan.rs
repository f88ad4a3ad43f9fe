//! The plan of a job: what its reaper is to start for each task, from jobspec and R.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::convert::Infallible;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use penstock_flux::job_files::{self, shorten};
use penstock_idset::IdSet;
use penstock_jobspec::{Jobspec, Layout, TaskPlacement};
use penstock_rset::ResourceSet;
use serde_json::Value;

use super::effect::Stream;
use super::guests::{self, Admitted};
use super::job_directory::{DirectoryOwner, JobDirectory, JobDirectoryPlaces, job_directory};
use super::parsed_jobspec::{Environment, ParsedJobspec};
use super::pmi_server::{PmiServer, pmi_variables};
use super::pmix_server::{Placement, TaskVariables};
use super::resource_limits;
use super::shell_options::{ShellOptions, StatusForm, Warning};
use crate::EnvironmentBlock;
use crate::error::Note;
use crate::protocol::{Group, Guest, Output, Pmi, TaskSpec};
use crate::types::{JobId, TaskId, TaskRank};

/// The prefix of the marks of the jobs that a process is in, outermost first: with 0, 1, …
const MARK_PREFIX: &[u8] = b"PENSTOCK_WITHIN_";

/// The prefixes of inherited variables that tasks do not get: those of other jobs.
const OMITTED_PREFIXES: [&[u8]; 2] = [MARK_PREFIX, b"PMI_"];

/// The greatest length of one task's arguments and environment: the kernel accepts less.
const MAX_TASK_BYTES: usize = 8 << 20;

/// The greatest size of the arguments, environments and output paths of all tasks of a job: each has its own.
const MAX_JOB_BYTES: usize = 256 << 20;

/// The same of a guest's job for each of its cores, with [`ITEM_BYTES`], and the least and the greatest for a job: the service makes
/// them in one turn, and has those of all jobs that start at once.
const GUEST_JOB_BYTES_PER_CORE: usize = 2 << 20;
const MIN_GUEST_JOB_BYTES: usize = MAX_TASK_BYTES;
const MAX_GUEST_JOB_BYTES: usize = 16 << 20;

/// The size of a word or a variable of a guest's job beside its bytes: many empty ones are work, too.
const ITEM_BYTES: usize = 64;

/// The greatest length of the path of an output file that a jobspec names, as in Linux.
const MAX_PATH_BYTES: usize = 4095;

/// The greatest length of the template of such a path: names of values may be longer than these.
const MAX_PATH_TEMPLATE_BYTES: usize = 4 * MAX_PATH_BYTES;

/// The note of a job with a task whose arguments and environment the kernel would not accept.
const TOO_LONG: &str = "arguments and environment are too long";

/// The greatest number of tasks that one service starts for a job.
const MAX_JOB_TASKS: u64 = 1 << 16;

/// The greatest number of tasks of a guest's job for each of its cores: each takes descriptors and memory of the reaper.
const MAX_GUEST_TASKS_PER_CORE: u64 = 32;

/// The execution context of tasks: what they inherit from their service, and where it keeps their files.
#[derive(Debug, Clone)]
pub struct TaskContext {
    /// The instance's address, for the tasks' environment.
    pub uri: String,
    /// The service's environment: that of jobs that have none.
    pub environment: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The service's working directory: that of jobs that have none.
    pub directory: CString,
    /// The directory of retained output.
    pub output: PathBuf,
    /// The places of job directories.
    pub job_directories: JobDirectoryPlaces,
    /// The directory of the sockets of PMI servers.
    pub pmi_sockets: PathBuf,
    /// The directory of the directories of PMIx servers.
    pub pmix_directories: PathBuf,
    /// The file of the error messages of PMIx servers.
    pub pmix_log: PathBuf,
    /// The directory of the installation's programs, which are looked for in `PATH` first.
    pub programs: PathBuf,
    /// The cpus that tasks may be bound to; a task that is allocated others is not bound.
    pub cpus: IdSet,
    /// Whether tasks are bound to their cores.
    pub bind: bool,
    /// The file mode creation mask.
    pub umask: u32,
    /// The hard limit of each resource, by its number in Linux; `u64::MAX` for no limit.
    pub hard_limits: BTreeMap<u32, u64>,
}

/// The tasks of a job, ready to be started.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) specs: Vec<TaskSpec>,
    /// The execution target of each task, by rank.
    pub(super) targets: Vec<u32>,
    /// The template that standard output is redirected to.
    pub(super) redirected_to: Option<String>,
    /// Whether output is retained.
    pub(super) is_output_retained: bool,
    pub(super) warning: Option<Warning>,
    pub(super) status_form: StatusForm,
    /// The job's directory, if its tasks use one.
    pub(super) directory: Option<JobDirectory>,
    /// The placement of each task, if the tasks need a PMIx server.
    pub(super) pmix: Option<Vec<Placement>>,
    /// The process of the PMI server, if the tasks need one. It is started before them.
    pub(super) pmi: Option<TaskSpec>,
}

impl Plan {
    /// Makes the plan of a job. The error is the note of the job's exception.
    pub(super) fn new(
        id: JobId,
        jobspec: &ParsedJobspec,
        r: &ResourceSet,
        task_context: &TaskContext,
        guest: Option<Admitted>,
    ) -> Result<Self, Note> {
        let options = ShellOptions::new(jobspec)?;
        let cgroup_limits = resource_limits::read(jobspec)?;
        let layout = Layout::new(jobspec, r).map_err(|error| error.to_string())?;
        let placements = placements(&layout, guest.map(|_| r.ncores()))?;
        let job_directory = planned_directory(id, jobspec, guest)?;
        let tmpdir = job_directory
            .as_ref()
            .map(|directory| task_context.job_directories.directory(id, directory.owner));
        let identity = JobIdentity::new(id, &placements, task_context);
        let outputs = Outputs::new(id, jobspec, task_context, tmpdir.clone(), &identity, r);
        let mut variables = identity.variables(task_context);
        if let Some(path) = &tmpdir {
            let path = path.as_os_str().as_bytes();
            variables.extend([(b"PENSTOCK_JOB_TMPDIR".as_slice(), path)]);
            variables.extend([(b"FLUX_JOB_TMPDIR".as_slice(), path)]);
        }
        let default;
        let shared = if let Some(given) = jobspec.environment() {
            given
        } else {
            default = default_environment(task_context, guest)?;
            &default
        };
        let command = Words::new(jobspec.command())?;
        let directory = working_directory(jobspec, task_context, guest)?;
        let limits = options.limits(&task_context.hard_limits);
        let server = || PmiServer::new(id, &placements, &task_context.pmi_sockets);
        let pmi = options.is_pmi_requested.then(server).transpose()?;
        let mut truncated = HashSet::new();
        let mut size = JobSize::new(guest.map(|_| r.ncores()));
        let mut specs = Vec::with_capacity(placements.len());
        for placement in &placements {
            let rank = u32::try_from(placement.task_rank).map_err(|_| "too many tasks")?;
            let (stdout, stderr) = outputs.of(placement, &mut truncated)?;
            let is_bound = task_context.bind && placement.cores.is_subset(&task_context.cpus);
            let task_identity = TaskIdentity::new(placement);
            let mut variables = variables.clone();
            variables.extend(task_identity.variables());
            let room = Cell::new(MAX_TASK_BYTES);
            let fill_in = |template: &str| outputs.fill_in_known(template, placement, &room);
            let expanded = options.variables.iter();
            let expanded = expanded
                .map(|(name, template)| Ok((name.as_bytes(), fill_in(template)?)))
                .collect::<Result<Vec<_>, Note>>()?;
            if pmi.is_some() {
                variables.extend(pmi_variables(&task_identity.rank, &identity.ntasks));
            }
            for (name, value) in &expanded {
                variables.entry(name).or_insert(value.as_bytes());
            }
            let environment = shared.with(&variables, &OMITTED_PREFIXES, fill_in)?;
            let arguments = command.fill_in(fill_in)?;
            size.add_templates(MAX_TASK_BYTES - room.get());
            size.add_task(&arguments, &environment, [&stdout, &stderr])?;
            specs.push(TaskSpec {
                task: TaskId {
                    job: id,
                    rank: TaskRank(rank),
                },
                arguments,
                environment,
                directory: directory.clone(),
                stdin: options.stdin(rank),
                relay: options.relay(rank),
                stdout,
                stderr,
                cpus: if is_bound {
                    placement.cores.iter().collect()
                } else {
                    Vec::new()
                },
                limits: limits.clone(),
                cgroup_limits,
                umask: options.umask.unwrap_or(task_context.umask),
                group: Group::Session,
                guest: guest.map(|guest| Guest {
                    names_stdout: outputs.stdout.is_some(),
                    names_stderr: outputs.stderr.is_some(),
                    ..guest.task()
                }),
                pmi: pmi.as_ref().map_or(Pmi::None, PmiServer::client),
            });
        }
        let stderr = outputs.retained_stderr()?;
        let programs = &task_context.programs;
        let pmi = pmi.map(|server| server.process(cgroup_limits, guest, programs, stderr));
        Ok(Self {
            specs,
            pmi: pmi.transpose()?,
            targets: placements.iter().map(|task| task.target).collect(),
            redirected_to: outputs.stdout.clone(),
            is_output_retained: outputs.is_retained(),
            warning: options.warning,
            status_form: options.status_form,
            directory: job_directory,
            pmix: options
                .is_pmix_requested
                .then(|| pmix_placements(&placements)),
        })
    }
}

impl Plan {
    /// Adds variables to the environment of tasks. The error is the note of the job's exception.
    pub(super) fn extend_environment(&mut self, additions: &TaskVariables) -> Result<(), Note> {
        for spec in &mut self.specs {
            let Some(variables) = additions.get(&spec.task.rank.0) else {
                continue;
            };
            for name in variables.keys() {
                let shown = shorten(name);
                let shown = shown.escape_debug();
                if name.is_empty() || name.contains('=') {
                    return Err(format!("invalid environment variable name `{shown}`").into());
                }
            }
            let added = variables
                .iter()
                .map(|(name, value)| name.len() + value.len() + 2);
            let added = added.sum::<usize>();
            if added > MAX_TASK_BYTES {
                return Err(TOO_LONG.into());
            }
            let capacity = spec.environment.bytes_len() + added;
            let mut environment = EnvironmentBlock::with_capacity(capacity);
            let is_replaced = |entry: &CStr| {
                let name = entry.to_bytes().split(|byte| *byte == b'=').next();
                let name = name.and_then(|name| str::from_utf8(name).ok());
                name.is_some_and(|name| variables.contains_key(name))
            };
            let others = spec.environment.iter();
            environment.extend(others.filter(|entry| !is_replaced(entry)));
            for (name, value) in variables {
                if !environment.push_parts(&[name.as_bytes(), b"=", value.as_bytes()]) {
                    let shown = shorten(name);
                    let shown = shown.escape_debug();
                    return Err(format!("environment variable `{shown}` has a zero byte").into());
                }
            }
            spec.environment = environment;
            check_length(&spec.arguments, &spec.environment)?;
        }
        Ok(())
    }
}

/// The environment of jobs that have none.
fn default_environment(
    task_context: &TaskContext,
    guest: Option<Admitted>,
) -> Result<Environment, Note> {
    match guest {
        Some(_) => Environment::new(&guests::environment()),
        None => Environment::new(&task_context.environment),
    }
}

fn working_directory(
    jobspec: &Jobspec,
    task_context: &TaskContext,
    guest: Option<Admitted>,
) -> Result<CString, Note> {
    match jobspec.cwd() {
        Some(cwd) => text(cwd),
        None if guest.is_some() => Ok(CString::from(c"/")),
        None => Ok(task_context.directory.clone()),
    }
}

/// The placement of tasks as the PMIx server has it.
fn pmix_placements(tasks: &[TaskPlacement]) -> Vec<Placement> {
    let placement = |(rank, task): (u32, &TaskPlacement)| Placement {
        rank: TaskRank(rank),
        target: task.target,
        host: task.host.clone(),
    };
    (0..).zip(tasks).map(placement).collect()
}

/// The directory of a job whose tasks use one: those of guests, and where the jobspec has files or names the directory.
fn planned_directory(
    job: JobId,
    jobspec: &ParsedJobspec,
    guest: Option<Admitted>,
) -> Result<Option<JobDirectory>, Note> {
    let files = job_files::read(jobspec).map_err(String::from)?;
    let is_named = || {
        let words = jobspec.command().iter().map(String::as_str);
        let variables = jobspec.attribute("system.environment");
        let variables = variables.and_then(Value::as_object).into_iter().flatten();
        let expanded = jobspec.attribute("system.shell.options.env-expand");
        let expanded = expanded.and_then(Value::as_object).into_iter().flatten();
        let values = variables.chain(expanded);
        let values = values.filter_map(|(_, value)| value.as_str());
        let paths = ["stdout", "stderr"].map(|stream| {
            let options = jobspec.attribute("system.shell.options.output");
            options?.get(stream)?.get("path")?.as_str()
        });
        let mut templates = words.chain(values).chain(paths.into_iter().flatten());
        templates.any(|template| template.contains("tmpdir}}"))
    };
    let owner = match guest {
        Some(guest) => DirectoryOwner::Guest(guest.uid()),
        None if files.is_empty() && !is_named() => return Ok(None),
        None => DirectoryOwner::Service,
    };
    Ok(Some(JobDirectory { job, owner, files }))
}

/// The arguments of tasks.
enum Words<'a> {
    /// The same of each task.
    Shared(Vec<CString>),
    /// With templates, filled in for each task.
    Templates(&'a [String]),
}

impl<'a> Words<'a> {
    fn new(command: &'a [String]) -> Result<Self, Note> {
        if command.iter().any(|word| word.contains("{{")) {
            return Ok(Self::Templates(command));
        }
        let words = command.iter().map(|word| text(word));
        words.collect::<Result<_, _>>().map(Self::Shared)
    }

    fn fill_in(
        &self,
        fill_in: impl Fn(&str) -> Result<String, Note>,
    ) -> Result<Vec<CString>, Note> {
        match self {
            Self::Shared(words) => Ok(words.clone()),
            Self::Templates(words) => {
                let words = words.iter();
                words.map(|word| text(&fill_in(word)?)).collect()
            }
        }
    }
}

/// The placements of a job's tasks, unless they are too many for one machine, or for the cores of a guest's job.
fn placements(layout: &Layout<'_>, guest_cores: Option<u64>) -> Result<Vec<TaskPlacement>, Note> {
    let tasks = layout.ntasks();
    if tasks > MAX_JOB_TASKS {
        let text = format!("{tasks} tasks: expected at most {MAX_JOB_TASKS} on this machine");
        return Err(text.into());
    }
    if let Some(cores) = guest_cores {
        let limit = cores.saturating_mul(MAX_GUEST_TASKS_PER_CORE);
        if tasks > limit {
            let text = format!(
                "{tasks} tasks: expected at most {limit}, {MAX_GUEST_TASKS_PER_CORE} for each core of a guest's job"
            );
            return Err(text.into());
        }
    }
    Ok(layout.tasks().collect())
}

/// The size of the arguments, environments and output paths of a job's tasks.
struct JobSize {
    bytes: usize,
    item_bytes: usize,
    limit: usize,
}

impl JobSize {
    /// The limits of a guest's job with this many cores, or of one of the service's user.
    fn new(guest_cores: Option<u64>) -> Self {
        let (item_bytes, limit) = match guest_cores {
            Some(cores) => {
                let cores = usize::try_from(cores).unwrap_or(usize::MAX);
                let limit = cores.saturating_mul(GUEST_JOB_BYTES_PER_CORE);
                (
                    ITEM_BYTES,
                    limit.clamp(MIN_GUEST_JOB_BYTES, MAX_GUEST_JOB_BYTES),
                )
            }
            None => (0, MAX_JOB_BYTES),
        };
        Self {
            bytes: 0,
            item_bytes,
            limit,
        }
    }

    /// Adds the work for the templates of a guest's task.
    fn add_templates(&mut self, bytes: usize) {
        if self.item_bytes > 0 {
            self.bytes += bytes;
        }
    }

    fn add_task(
        &mut self,
        arguments: &[CString],
        environment: &EnvironmentBlock,
        outputs: [&Output; 2],
    ) -> Result<(), Note> {
        let paths = outputs.map(|output| match output {
            Output::Append(path) | Output::Truncate(path) => path.count_bytes(),
            Output::Null | Output::SameAsStdout => 0,
        });
        let items = arguments.len() + environment.len();
        self.bytes += check_length(arguments, environment)?
            + items * self.item_bytes
            + paths.into_iter().sum::<usize>();
        if self.bytes > self.limit {
            let limit = self.limit;
            let text = format!(
                "the arguments, environments and output paths of the tasks: expected at most {limit} bytes in all"
            );
            return Err(text.into());
        }
        Ok(())
    }
}

/// The length of a task's arguments and environment, if the kernel may accept them.
fn check_length(arguments: &[CString], environment: &EnvironmentBlock) -> Result<usize, Note> {
    let lengths = arguments.iter().map(|word| word.count_bytes() + 5);
    let bytes = lengths.sum::<usize>() + environment.bytes_len();
    if bytes > MAX_TASK_BYTES {
        return Err(TOO_LONG.into());
    }
    Ok(bytes)
}

/// The file that a task's standard error goes to.
pub(super) fn error_path(spec: &TaskSpec) -> Option<&CString> {
    let path = |output| match output {
        &Output::Append(ref path) | &Output::Truncate(ref path) => Some(path),
        Output::Null | Output::SameAsStdout => None,
    };
    path(&spec.stderr).or_else(|| path(&spec.stdout))
}

fn text(word: &str) -> Result<CString, Note> {
    CString::new(word).map_err(|_| format!("`{}` has a zero byte", word.escape_debug()).into())
}

// --- environment

/// The values of the variables that identify a job, in addition to those of the jobspec or the default.
struct JobIdentity<'a> {
    uri: &'a str,
    f58: String,
    ntasks: String,
    nnodes: String,
    /// The mark of the job that its processes are in: name and value.
    mark: (Vec<u8>, String),
}

impl<'a> JobIdentity<'a> {
    fn new(id: JobId, placements: &[TaskPlacement], task_context: &'a TaskContext) -> Self {
        let targets: BTreeSet<_> = placements
            .iter()
            .map(|placement| placement.target)
            .collect();
        let depth = outer_marks(task_context).count();
        let f58 = id.f58();
        let name = [MARK_PREFIX, depth.to_string().as_bytes()].concat();
        Self {
            uri: &task_context.uri,
            mark: (name, format!("{} {f58}", task_context.uri)),
            f58,
            ntasks: placements.len().to_string(),
            nnodes: targets.len().to_string(),
        }
    }

    /// The variables. They have Penstock's names and also Flux's, so that existing scripts run.
    fn variables<'v>(&'v self, task_context: &'v TaskContext) -> BTreeMap<&'v [u8], &'v [u8]> {
        let (name, value) = &self.mark;
        let mut variables: BTreeMap<_, _> = outer_marks(task_context).collect();
        variables.insert(name, value.as_bytes());
        let identity = [
            ("PENSTOCK_URI", self.uri),
            ("PENSTOCK_JOB_ID", &self.f58),
            ("PENSTOCK_NTASKS", &self.ntasks),
            ("PENSTOCK_NNODES", &self.nnodes),
            ("FLUX_URI", self.uri),
            ("FLUX_JOB_ID", &self.f58),
            ("FLUX_JOB_SIZE", &self.ntasks),
            ("FLUX_JOB_NNODES", &self.nnodes),
            ("FLUX_NTASKS", &self.ntasks),
            ("FLUX_NNODES", &self.nnodes),
        ];
        variables.extend(identity.map(bytes));
        variables
    }
}

/// The marks of the jobs that the service is in.
fn outer_marks(task_context: &TaskContext) -> impl Iterator<Item = (&[u8], &[u8])> {
    let variables = task_context.environment.iter();
    variables
        .filter(|(name, _)| name.starts_with(MARK_PREFIX))
        .map(|(name, value)| (name.as_slice(), value.as_slice()))
}

/// The values of the variables that identify a task.
struct TaskIdentity {
    rank: String,
    local_rank: String,
    /// Gpus that are not allocated to it are hidden.
    gpus: String,
}

impl TaskIdentity {
    fn new(placement: &TaskPlacement) -> Self {
        let gpus: Vec<_> = placement.gpus.iter().map(|gpu| gpu.to_string()).collect();
        Self {
            rank: placement.task_rank.to_string(),
            local_rank: placement.local_rank.to_string(),
            gpus: if gpus.is_empty() {
                "-1".to_owned()
            } else {
                gpus.join(",")
            },
        }
    }

    fn variables(&self) -> [(&[u8], &[u8]); 7] {
        [
            ("PENSTOCK_TASK_RANK", self.rank.as_str()),
            ("PENSTOCK_LOCAL_RANK", &self.local_rank),
            ("PENSTOCK_TASK_LOCAL_RANK", &self.local_rank),
            ("FLUX_TASK_RANK", &self.rank),
            ("FLUX_TASK_LOCAL_ID", &self.local_rank),
            ("FLUX_LOCAL_RANK", &self.local_rank),
            ("CUDA_VISIBLE_DEVICES", &self.gpus),
        ]
        .map(bytes)
    }
}

fn bytes<'a>((name, value): (&'a str, &'a str)) -> (&'a [u8], &'a [u8]) {
    (name.as_bytes(), value.as_bytes())
}

// --- output

/// The files of a job's output.
struct Outputs<'a> {
    id: JobId,
    name: &'a str,
    stdout: Option<String>,
    stderr: Option<String>,
    cwd: &'a Path,
    /// The directory of retained output.
    retained: &'a Path,
    /// The job's directory.
    tmpdir: Option<PathBuf>,
    identity: &'a JobIdentity<'a>,
    r: &'a ResourceSet,
}

impl<'a> Outputs<'a> {
    fn new(
        id: JobId,
        jobspec: &'a Jobspec,
        task_context: &'a TaskContext,
        tmpdir: Option<PathBuf>,
        identity: &'a JobIdentity<'a>,
        r: &'a ResourceSet,
    ) -> Self {
        let options = jobspec.attribute("system.shell.options.output");
        let template = |stream: &str| {
            let path = options?.get(stream)?.get("path")?.as_str()?;
            Some(path.to_owned())
        };
        let stdout = template("stdout");
        let program = jobspec.command().first().map_or("", String::as_str);
        let program = Path::new(program).file_name().and_then(OsStr::to_str);
        Self {
            id,
            name: jobspec
                .job_name()
                .filter(|name| !name.is_empty())
                .or(program)
                .unwrap_or_default(),
            // As in Flux: standard error goes to the file of standard output unless it has one of its own.
            stderr: template("stderr").or_else(|| stdout.clone()),
            stdout,
            cwd: Path::new(jobspec.cwd().unwrap_or("/")),
            retained: &task_context.output,
            tmpdir,
            identity,
            r,
        }
    }

    /// Standard output and error of a task. Each file is truncated by the first task that opens it.
    fn of(
        &self,
        placement: &TaskPlacement,
        truncated: &mut HashSet<PathBuf>,
    ) -> Result<(Output, Output), Note> {
        let stdout = self.path(Stream::Stdout, self.stdout.as_deref(), placement)?;
        let stderr = self.path(Stream::Stderr, self.stderr.as_deref(), placement)?;
        let mut output = |path: PathBuf| {
            let name = CString::new(path.as_os_str().as_bytes())
                .map_err(|_| format!("cannot write `{}`: zero byte", path.display()))?;
            Ok::<_, Note>(if truncated.insert(path) {
                Output::Truncate(name)
            } else {
                Output::Append(name)
            })
        };
        let is_shared = stdout == stderr;
        let stdout = output(stdout)?;
        let stderr = if is_shared {
            Output::SameAsStdout
        } else {
            output(stderr)?
        };
        Ok((stdout, stderr))
    }

    /// Whether output of the job is retained.
    fn is_retained(&self) -> bool {
        self.stdout.is_none() || self.stderr.is_none()
    }

    /// The file of the retained standard error, for a process of the job that is no task.
    fn retained_stderr(&self) -> Result<Output, Note> {
        if !self.is_retained() {
            return Ok(Output::Null);
        }
        let path = retained_file(self.retained, self.id, Stream::Stderr);
        CString::new(path.into_os_string().into_vec())
            .map(Output::Append)
            .map_err(|_| "the directory of retained output has a zero byte".into())
    }

    fn path(
        &self,
        stream: Stream,
        template: Option<&str>,
        placement: &TaskPlacement,
    ) -> Result<PathBuf, Note> {
        match template {
            None => Ok(retained_file(self.retained, self.id, stream)),
            Some(template) => {
                let path = self.cwd.join(self.fill_in(template, placement)?);
                if path.as_os_str().len() > MAX_PATH_BYTES {
                    return Err(long_path(template));
                }
                Ok(path)
            }
        }
    }

    /// Fills in the `{{…}}` of an output template.
    fn fill_in(&self, template: &str, placement: &TaskPlacement) -> Result<String, Note> {
        let value = |name: &str| {
            self.value(name, placement).ok_or_else(|| -> Note {
                let (template, name) = (shorten(template), shorten(name));
                format!(
                    "output `{template}`: unknown `{{{{{name}}}}}`: expected id, jobid, id.f58, id.f58plain, id.dec, id.hex, \
                     id.dothex, name, size, ntasks, nnodes, task.rank, task.id, taskid, task.local, task.localid, \
                     task.index, node.name, node.id, node.broker_rank, node.cores, node.ncores, node.gpus, tmpdir"
                )
                .into()
            })
        };
        if template.len() > MAX_PATH_TEMPLATE_BYTES {
            return Err(long_path(template));
        }
        fill_in(template, MAX_PATH_BYTES, value)?.ok_or_else(|| long_path(template))
    }

    /// Fills in the known `{{…}}` of an argument or a variable; others are text. The result, or the template if that is longer, is
    /// taken from the room that the task has left.
    fn fill_in_known(
        &self,
        template: &str,
        placement: &TaskPlacement,
        room: &Cell<usize>,
    ) -> Result<String, Note> {
        let known = |name: &str| {
            let value = self.value(name, placement);
            Ok::<_, Infallible>(value.unwrap_or_else(|| format!("{{{{{name}}}}}")))
        };
        let Ok(filled) = fill_in(template, room.get(), known);
        let filled = filled.ok_or(TOO_LONG)?;
        let work = filled.len().max(template.len());
        room.set(room.get().saturating_sub(work));
        Ok(filled)
    }

    fn value(&self, name: &str, placement: &TaskPlacement) -> Option<String> {
        Some(match name {
            "id" | "jobid" | "id.f58" => self.id.f58(),
            "id.f58plain" => self.id.f58_plain(),
            "id.dec" => self.id.get().to_string(),
            "id.hex" => format!("{:#x}", self.id.get()),
            "id.dothex" => self.id.dothex(),
            "name" => self.name.to_owned(),
            "size" | "ntasks" => self.identity.ntasks.clone(),
            "nnodes" => self.identity.nnodes.clone(),
            "task.rank" | "task.id" | "taskid" => placement.task_rank.to_string(),
            "task.local" | "task.localid" | "task.index" => placement.local_rank.to_string(),
            "node.name" => placement.host.clone(),
            "node.id" => placement.node_index.to_string(),
            "node.broker_rank" => placement.target.to_string(),
            "node.cores" => self.r.resources(placement.target)?.0.to_string(),
            "node.ncores" => self.r.resources(placement.target)?.0.len().to_string(),
            "node.gpus" => self.r.resources(placement.target)?.1.to_string(),
            "tmpdir" => self.tmpdir.as_ref()?.to_str()?.to_owned(),
            _ => return None,
        })
    }
}

fn long_path(template: &str) -> Note {
    let template = shorten(template);
    let template = template.escape_debug();
    format!("output `{template}`: expected a path of at most {MAX_PATH_BYTES} bytes").into()
}

/// Fills in the `{{…}}` of a template. `value` gets each name, and yields its value. Returns `None` if the result has more than
/// `max_bytes`.
///
/// The work is linear in the length of template and result: no character is searched from more than two places.
fn fill_in<E>(
    template: &str,
    max_bytes: usize,
    mut value: impl FnMut(&str) -> Result<String, E>,
) -> Result<Option<String>, E> {
    let mut filled = String::with_capacity(template.len().min(max_bytes));
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        // Without an end, or with other braces inside, the braces are text.
        let end = after
            .find(['{', '}'])
            .and_then(|end| after.split_at_checked(end));
        if let Some((name, after_name)) =
            end.and_then(|(name, end)| Some((name, end.strip_prefix("}}")?)))
        {
            filled.push_str(&value(name.trim())?);
            rest = after_name;
        } else {
            filled.push('{');
            rest = rest.get(before.len() + 1..).unwrap_or_default();
        }
        if filled.len() > max_bytes {
            return Ok(None);
        }
    }
    filled.push_str(rest);
    Ok((filled.len() <= max_bytes).then_some(filled))
}

/// The directory of the PMIx server of a job. A guest's is in the directory of the guest's job: that of the others is the
/// owner's.
pub(super) fn pmix_directory(
    job: JobId,
    task_context: &TaskContext,
    guest: Option<Admitted>,
) -> PathBuf {
    match guest {
        Some(guest) => {
            let owner = DirectoryOwner::Guest(guest.uid());
            let directory = task_context.job_directories.directory(job, owner);
            directory.join("pmix")
        }
        None => job_directory(&task_context.pmix_directories, job),
    }
}

/// The file of the retained output of a job, in their directory.
pub fn retained_file(directory: &Path, job: JobId, stream: Stream) -> PathBuf {
    directory.join(format!("{}.{}", job.get(), stream.name()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::fill_in;

    /// The same by the definition: a name is text without braces between two pairs of braces.
    fn filled_by_definition(template: &str) -> String {
        let mut filled = String::new();
        let mut rest = template;
        while let Some(first) = rest.chars().next() {
            let name = rest.strip_prefix("{{").and_then(|after| {
                let (name, _) = after.split_once("}}")?;
                (!name.contains(['{', '}'])).then_some(name)
            });
            if let Some(name) = name {
                filled.extend(["<", name, ">"]);
                rest = &rest[name.len() + 4..];
            } else {
                filled.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        filled
    }

    proptest! {
        #[test]
        fn names_between_braces_are_filled_in(template in "[{}aƒ]{0,24}") {
            let name = |name: &str| Ok::<_, Infallible>(format!("<{name}>"));
            let Ok(filled) = fill_in(&template, usize::MAX, name);
            prop_assert_eq!(filled, Some(filled_by_definition(&template)));
        }
    }

    /// Without a limit it would take hours, or more memory than there is.
    #[test]
    fn hostile_templates_are_filled_in_at_once() {
        let count = 1 << 19;
        for part in ["{", "}", "{{", "{{a", "{{{a", "{a}{", "{{}", "{{a}"] {
            let template = part.repeat(count);
            let unchanged = |_: &str| -> Result<String, Infallible> { unreachable!() };
            let Ok(filled) = fill_in(&template, template.len(), unchanged);
            assert!(filled.is_some_and(|filled| filled == template), "{part}");
        }
        let calls = Cell::new(0);
        let long = |_: &str| {
            calls.set(calls.get() + 1);
            Ok::<_, Infallible>("x".repeat(1000))
        };
        let Ok(filled) = fill_in(&"{{name}}".repeat(count), 10_000, long);
        assert_eq!((filled, calls.get()), (None, 11));
    }
}
