//! The state of the service, and the requests by which its modules talk to instance and reaper.

use std::collections::{BTreeMap, BTreeSet};

use penstock_flux::{Matchtags, topic};
use penstock_wire::Message;

use super::descriptor_counts::Descriptors;
use super::effect::Effect;
use super::followers::Followers;
use super::guests::GuestSettings;
use super::job::Job;
use super::journal::{JournalContents, JournalId};
use super::journal_writer::JournalWriter;
use super::output_usage::OutputUsage;
use super::parsed_jobspec::JobspecCache;
use super::plan::TaskContext;
use super::timers::Timers;
use super::user_lines::UserLog;
use crate::protocol::{Request, TaskSpec};
use crate::types::{BootId, JobId};

/// The settings of a service.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name under which it serves `start`.
    pub name: String,
    /// Its user, whose jobs it runs.
    pub owner: u32,
    /// The guests whose jobs it runs; `None` for none.
    pub guests: Option<GuestSettings>,
    /// The current boot.
    pub boot: BootId,
    /// The execution context of tasks.
    pub task_context: TaskContext,
    /// Time between SIGTERM and SIGKILL, in seconds.
    pub kill_timeout_s: f64,
    /// Bytes of retained output at which a job is killed; 0 for no limit.
    pub output_limit: u64,
    /// Free bytes of the file system of retained output below which no job of a guest with such output is started, and those that write
    /// most are ended; 0 for none.
    pub output_reserve: u64,
    /// Bytes of retained output of all jobs of a guest; 0 for no limit.
    pub user_output_limit: u64,
    /// Whether the service ends when it is of no use: see [`Service::is_finished`].
    pub end_when_idle: bool,
}

/// The state of the connection to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstanceState {
    Disconnected,
    /// Disconnected after the registration was rejected.
    Rejected,
    /// This many requests are outstanding.
    Registering(usize),
    /// Start requests of running jobs are arriving.
    Synchronizing,
    /// Every job that the job manager counts as running has an outstanding start request.
    Synchronized,
}

/// The state of the connection to the reaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReaperState {
    Disconnected,
    /// The list request of this id is outstanding.
    Listing(u32),
    Ready,
}

/// An outstanding request of the service to the instance.
#[derive(Debug)]
pub(super) enum Outstanding {
    Registration,
    /// The barrier after registration.
    Synchronization,
    /// The barrier after these jobs' final releases.
    Acknowledgement(Vec<JobId>),
    /// R of a job.
    Lookup(JobId),
    /// The user of the job whose output a guest has requested.
    OutputUser,
    /// The end of a job that is not here, but whose output is followed, streaming.
    End(JobId),
    /// The PMIx server of a job, streaming.
    PmixServer(JobId),
}

/// The progress of the barrier after final releases.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Acknowledgement {
    None,
    /// It is requested at this time.
    Scheduled(f64),
    Outstanding,
}

/// The state machine of a service.
#[derive(Debug)]
pub struct Service {
    pub(super) settings: Settings,
    pub(super) journal: JournalId,
    pub(super) jobs: BTreeMap<JobId, Job>,
    pub(super) jobspecs: JobspecCache,
    pub(super) instance: InstanceState,
    pub(super) reaper: ReaperState,
    pub(super) matchtags: Matchtags,
    pub(super) outstanding: BTreeMap<u32, Outstanding>,
    pub(super) last_reaper_request: u32,
    pub(super) timers: Timers,
    /// The last time that was passed in.
    pub(super) clock: f64,
    /// Jobs that may have a next step.
    pub(super) changed: BTreeSet<JobId>,
    pub(super) followers: Followers,
    /// The matchtags of the requests for the ends of jobs that are not here, but whose output is followed.
    pub(super) end_waits: BTreeMap<JobId, u32>,
    /// The requests of guests for output, by the matchtag of the request for the job's user.
    pub(super) output_lookups: BTreeMap<u32, Message>,
    pub(super) output_usage: OutputUsage,
    /// Released jobs whose release is not acknowledged, and for which no barrier has been sent.
    pub(super) released: Vec<JobId>,
    pub(super) acknowledgement: Acknowledgement,
    pub(super) writer: JournalWriter,
    /// Tasks to request from the reaper: the journal has a record of their jobs.
    pub(super) spawns: Vec<TaskSpec>,
    /// Jobs to request the reaper to kill.
    pub(super) kills: Vec<JobId>,
    /// Jobs to request the reaper to forget.
    pub(super) forgotten: Vec<JobId>,
    /// The jobs of outstanding forget requests.
    pub(super) forgetting: BTreeMap<u32, Vec<JobId>>,
    /// The requests of clients, without their payloads, that the reaper carries out, by its request, with their jobs.
    pub(super) forwarded: BTreeMap<u32, (Message, JobId)>,
    pub(super) messages: Vec<Message>,
    pub(super) effects: Vec<Effect>,
    pub(super) failure: Option<Failure>,
    pub(super) own_end: OwnEnd,
    pub(super) user_log: UserLog,
    pub(super) descriptors: Descriptors,
}

/// The progress of the end of a service that is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnEnd {
    None,
    /// The reaper was requested to end, under this id.
    Requested(u32),
    /// The reaper has found another process: its event is on its way.
    Rejected,
    Finished,
}

/// The rejection of the registration.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) text: String,
    pub(super) is_name_taken: bool,
}

impl Service {
    /// Creates a service from the journal of an earlier one, and starts a new journal with its contents.
    pub fn new(settings: Settings, journal: JournalContents) -> Self {
        let jobs = journal.jobs.into_iter();
        Self {
            settings,
            journal: journal.id,
            jobs: jobs
                .map(|(id, intent)| (id, Job::new(Some(intent))))
                .collect(),
            jobspecs: JobspecCache::default(),
            instance: InstanceState::Disconnected,
            reaper: ReaperState::Disconnected,
            matchtags: Matchtags::default(),
            outstanding: BTreeMap::new(),
            last_reaper_request: 0,
            timers: Timers::default(),
            clock: f64::NEG_INFINITY,
            changed: BTreeSet::new(),
            followers: Followers::default(),
            end_waits: BTreeMap::new(),
            output_lookups: BTreeMap::new(),
            output_usage: OutputUsage::default(),
            released: Vec::new(),
            acknowledgement: Acknowledgement::None,
            writer: JournalWriter::new(),
            spawns: Vec::new(),
            kills: Vec::new(),
            forgotten: Vec::new(),
            forgetting: BTreeMap::new(),
            forwarded: BTreeMap::new(),
            messages: Vec::new(),
            effects: Vec::new(),
            failure: None,
            own_end: OwnEnd::None,
            user_log: UserLog::default(),
            descriptors: Descriptors::default(),
        }
    }

    /// Sends a request to the instance. Returns its matchtag.
    pub(super) fn send(&mut self, request: Message, outstanding: Outstanding) -> u32 {
        let tag = self.matchtags.allot();
        self.outstanding.insert(tag, outstanding);
        self.messages.push(request.with_matchtag(tag));
        tag
    }

    /// Sends a request to the reaper. Returns its id.
    pub(super) fn request(&mut self, request: Request) -> u32 {
        let id = self.next_reaper_request();
        self.effects.push(Effect::Request(id, request));
        id
    }

    /// The id of the next request to the reaper.
    pub(super) fn next_reaper_request(&mut self) -> u32 {
        self.last_reaper_request = self.last_reaper_request.wrapping_add(1);
        self.last_reaper_request
    }

    /// The identity of the journal for the job manager: it changes when records may have been lost.
    pub(super) fn journal_identity(&self) -> String {
        format!("{:032x}-{:032x}", self.journal.0, self.settings.boot.0)
    }
}

/// A barrier: the job manager responds after it has committed everything that it received before.
pub(super) fn barrier() -> Message {
    Message::request(topic::job_manager::PING, "{}")
}
