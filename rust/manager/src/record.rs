//! `Record`: the facts of a job, which follow from its eventlog and its documents alone.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use penstock_flux::eventlog::{
    self, Alloc, Dependency, Exception, Priority, Release, ResourceUpdate, Submit, Urgency,
};
use penstock_flux::exec::{Finish, ReleasedRanks, ResourceUsage, exit_status};
use penstock_flux::urgency;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_store::JobUsage;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::elastic_state::{ElasticRequest, ElasticState};
use crate::event::{Document, Event};
use crate::spec::Spec;
use crate::state::{JobResult, State};

/// The stage of an allocation, by its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AllocationStage {
    /// No resources were allocated.
    #[default]
    None,
    /// Resources were allocated and not all of them freed.
    Active,
    /// All resources were freed.
    Freed,
}

/// The stage of a site hook, prolog or epilog, by its events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookStage {
    /// Neither its start nor its finish is logged.
    #[default]
    Idle,
    /// Its start is logged.
    Begun,
    /// Its finish is logged.
    Done,
}

/// The facts that pending jobs do not have: of the allocation, the tasks, the hooks and the end.
#[derive(Clone, Debug, Default, PartialEq)]
struct RunFacts {
    t_run: f64,
    t_cleanup: f64,
    t_inactive: f64,
    annotations: Option<Arc<Map<String, Value>>>,
    allocation: AllocationStage,
    r: Option<Arc<ResourceSet>>,
    is_expiration_updated: bool,
    freed: IdSet,
    retained: IdSet,
    is_released: bool,
    prolog: HookStage,
    epilog: HookStage,
    has_started: bool,
    wait_status: Option<i32>,
    usage: Option<ResourceUsage>,
}

/// The facts of a pending job.
static NOT_RUN: LazyLock<RunFacts> = LazyLock::new(RunFacts::default);

/// The times between the entries into the states of a pending job: that into DEPEND since the submission, the others since the
/// state before. Single precision is exact to 10⁻⁷ of a time, and takes half the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct StateDelays {
    depend: Delay,
    priority: Delay,
    sched: Delay,
}

/// A time in seconds; negative if the state was not entered.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Delay(f32);

impl Default for Delay {
    fn default() -> Self {
        Self(-1.0)
    }
}

impl Delay {
    /// Sets the delay from a time to another. The first entry into a state counts: a restart lets pending jobs enter theirs again.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "single precision is enough"
    )]
    fn set(&mut self, before: f64, after: f64) {
        if self.0 < 0.0 {
            self.0 = (after - before).max(0.0) as f32;
        }
    }

    /// The end of the delay that begins at this time; 0 if there is none.
    fn after(self, time: f64) -> f64 {
        if self.0 < 0.0 {
            0.0
        } else {
            time + f64::from(self.0)
        }
    }
}

/// The number of events after which the facts of a pending job are stored, and after each as many further ones. Debug builds store
/// them often, so that tests and simulation restart from them.
const EVENTS_PER_FACTS: u32 = if cfg!(debug_assertions) { 6 } else { 32 };
/// The greatest length of such facts in bytes: longer ones, of a long memo, follow from the events.
const MAX_FACTS_BYTES: usize = 1024;

/// The facts of a pending job as they are stored: all that follows from its events.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PendingFacts<'a> {
    state: Cow<'a, str>,
    t_submit: f64,
    /// The delays of DEPEND, PRIORITY and SCHED in seconds; negative if the state was not entered.
    delays: [f64; 3],
    flags: u32,
    urgency: u8,
    priority: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    assigned_priority: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dependencies: Option<Cow<'a, BTreeSet<String>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memo: Option<Cow<'a, Map<String, Value>>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    exception: Option<Cow<'a, Exception<'a>>>,
}

/// The annotations of a job without any.
static NO_ANNOTATIONS: LazyLock<Arc<Map<String, Value>>> = LazyLock::new(Arc::default);

/// The dependencies of most jobs.
static NO_DEPENDENCIES: BTreeSet<String> = BTreeSet::new();

/// The facts of one job.
///
/// There may be a million pending jobs: facts that few of them have are boxed.
///
/// The fields are private and changed by [`apply`](Self::apply) only, so that applying the events of a
/// job to a [`new`](Self::new) record yields the same record. In debug builds the manager asserts this after
/// every step, for a sample if there are many jobs (`replay_check.rs`).
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    id: JobId,
    userid: u32,
    urgency: u8,
    priority: u32,
    assigned_priority: Option<u32>,
    flags: u32,
    state: State,
    spec: Arc<Spec>,
    events: u32,
    t_submit: f64,
    delays: StateDelays,
    #[expect(
        clippy::box_collection,
        reason = "an empty set takes three words, and most jobs have none"
    )]
    dependencies: Option<Box<BTreeSet<String>>>,
    memo: Option<Box<Map<String, Value>>>,
    exception: Option<Arc<Exception<'static>>>,
    run: Option<Box<RunFacts>>,
    elastic: Option<Box<ElasticState>>,
}

impl Record {
    /// A job before its first event. `spec` is its current jobspec.
    pub fn new(id: JobId, userid: u32, spec: Arc<Spec>) -> Self {
        Self {
            id,
            userid,
            urgency: urgency::DEFAULT,
            priority: 0,
            assigned_priority: None,
            flags: 0,
            state: State::New,
            spec,
            events: 0,
            t_submit: 0.0,
            delays: StateDelays::default(),
            dependencies: None,
            memo: None,
            exception: None,
            run: None,
            elastic: None,
        }
    }

    /// The facts of another job that differs by its id alone.
    #[must_use]
    pub(crate) fn with_id(&self, id: JobId) -> Self {
        Self { id, ..self.clone() }
    }

    /// The facts of another job that differs by its id and its jobspec alone.
    #[must_use]
    pub(crate) fn with_spec(&self, spec: Arc<Spec>) -> Self {
        Self {
            spec,
            ..self.clone()
        }
    }

    /// Rebuilds a record from its eventlog. `spec` and `r` are the documents in the store; R takes
    /// effect at the event that it came with.
    ///
    /// # Errors
    ///
    /// A line of the log is not an event.
    pub fn replay(
        id: JobId,
        userid: u32,
        spec: Arc<Spec>,
        r: Option<&Arc<ResourceSet>>,
        eventlog: &str,
        mut observe: impl FnMut(&Event),
    ) -> Result<Self, InvalidEvent> {
        let mut record = Self::new(id, userid, spec);
        record.apply_lines(eventlog, r, &mut observe)?;
        Ok(record)
    }

    /// Applies the events of lines, as [`replay`](Self::replay) does.
    pub(crate) fn apply_lines(
        &mut self,
        lines: &str,
        r: Option<&Arc<ResourceSet>>,
        observe: &mut impl FnMut(&Event),
    ) -> Result<(), InvalidEvent> {
        for line in lines.lines() {
            let mut event = Event::parse(line).map_err(|source| InvalidEvent {
                line: line.to_owned(),
                source,
            })?;
            if &*event.name == eventlog::ALLOC {
                event.document = r.map(|r| Document::R(Arc::clone(r)));
            }
            observe(&event);
            self.apply(&event);
        }
        Ok(())
    }

    /// Whether its facts are to be stored after its last event. Jobs with the same events store theirs after different ones, so
    /// that an event of all jobs makes a part of them do so.
    pub(crate) fn are_facts_due(&self) -> bool {
        let position = self.id.get().wrapping_add(u64::from(self.events));
        self.events >= EVENTS_PER_FACTS && position.is_multiple_of(u64::from(EVENTS_PER_FACTS))
    }

    /// The facts of a pending job, to be stored with the number of its events. `None` if they have to follow from the events:
    /// the job is not pending, or its memo is long.
    pub(crate) fn pending_facts(&self) -> Option<String> {
        if self.run.is_some() || self.elastic.is_some() || self.state > State::Sched {
            return None;
        }
        let StateDelays {
            depend,
            priority,
            sched,
        } = self.delays;
        let facts = PendingFacts {
            state: Cow::Borrowed(self.state.name()),
            t_submit: self.t_submit,
            delays: [depend, priority, sched].map(|delay| f64::from(delay.0)),
            flags: self.flags,
            urgency: self.urgency,
            priority: self.priority,
            assigned_priority: self.assigned_priority,
            dependencies: self.dependencies.as_deref().map(Cow::Borrowed),
            memo: self.memo.as_deref().map(Cow::Borrowed),
            exception: self.exception.as_deref().map(Cow::Borrowed),
        };
        let text = serde_json::to_string(&facts).ok()?;
        (text.len() <= MAX_FACTS_BYTES).then_some(text)
    }

    /// A job after a number of events, of which stored [facts](Self::pending_facts) tell what followed.
    ///
    /// # Errors
    ///
    /// The text is not that of facts of a pending job.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the delays are single precision"
    )]
    pub(crate) fn from_facts(
        id: JobId,
        userid: u32,
        spec: Arc<Spec>,
        events: u32,
        text: &str,
    ) -> Result<Self, serde_json::Error> {
        let facts: PendingFacts<'_> = serde_json::from_str(text)?;
        let pending = [State::New, State::Depend, State::Priority, State::Sched];
        let state = pending
            .into_iter()
            .find(|state| state.name() == facts.state);
        let state = state.ok_or_else(|| {
            let text = format!("`{}` is not the state of a pending job", facts.state);
            serde::de::Error::custom(text)
        })?;
        let [depend, priority, sched] = facts.delays.map(|delay| Delay(delay as f32));
        Ok(Self {
            state,
            flags: facts.flags,
            urgency: facts.urgency,
            priority: facts.priority,
            assigned_priority: facts.assigned_priority,
            events,
            t_submit: facts.t_submit,
            delays: StateDelays {
                depend,
                priority,
                sched,
            },
            dependencies: facts.dependencies.map(|set| Box::new(set.into_owned())),
            memo: facts.memo.map(|memo| Box::new(memo.into_owned())),
            exception: facts
                .exception
                .map(|raised| Arc::new(raised.into_owned().into_owned())),
            ..Self::new(id, userid, spec)
        })
    }

    /// Applies an event, live or in replay.
    pub fn apply(&mut self, event: &Event) {
        self.events = self.events.saturating_add(1);
        self.take_document(event);
        match &*event.name {
            eventlog::SUBMIT => {
                self.t_submit = event.timestamp;
                if let Some(submit) = event.read::<Submit>() {
                    self.flags = submit.flags;
                    self.urgency = submit.urgency.min(urgency::EXPEDITE);
                }
            }
            eventlog::URGENCY => {
                if let Some(change) = event.read::<Urgency>() {
                    self.urgency = change.urgency.min(urgency::EXPEDITE);
                }
                self.assigned_priority = None;
            }
            eventlog::PRIORITY => {
                self.priority = event.read().map_or(0, |context: Priority| context.priority);
                let usual = urgency::priority(self.urgency);
                self.assigned_priority = (self.priority != usual).then_some(self.priority);
            }
            eventlog::MEMO => self.apply_memo(event),
            eventlog::PROLOG_START => self.run_mut().prolog = HookStage::Begun,
            eventlog::PROLOG_FINISH => self.run_mut().prolog = HookStage::Done,
            eventlog::EPILOG_START => self.run_mut().epilog = HookStage::Begun,
            eventlog::EPILOG_FINISH => self.run_mut().epilog = HookStage::Done,
            eventlog::DEPENDENCY_ADD => {
                if let Some(dependency) = event.read::<Dependency<'_>>() {
                    self.dependencies
                        .get_or_insert_default()
                        .insert(dependency.description.into_string());
                }
            }
            eventlog::DEPENDENCY_REMOVE => {
                if let Some(dependency) = event.read::<Dependency<'_>>()
                    && let Some(dependencies) = &mut self.dependencies
                {
                    dependencies.remove(&*dependency.description);
                    if dependencies.is_empty() {
                        self.dependencies = None;
                    }
                }
            }
            eventlog::ALLOC => {
                let run = self.run_mut();
                run.allocation = AllocationStage::Active;
                run.annotations = match &event.document {
                    Some(Document::Allocation(_, annotations)) => Some(Arc::clone(annotations)),
                    _ => event.read().map(|alloc: Alloc| Arc::new(alloc.annotations)),
                };
            }
            eventlog::RESOURCE_UPDATE => self.apply_expiration(event),
            eventlog::START => self.run_mut().has_started = true,
            eventlog::FINISH => {
                if let Some(finish) = event.read::<Finish>() {
                    let run = self.run_mut();
                    run.wait_status = Some(finish.status);
                    run.usage = finish.usage;
                }
            }
            eventlog::RELEASE => self.apply_release(event),
            eventlog::FREE => self.run_mut().allocation = AllocationStage::Freed,
            eventlog::EXCEPTION => self.apply_exception(event),
            name if name.starts_with(eventlog::OWN_PREFIX) => {
                let elastic = self.elastic.get_or_insert_default();
                let r = self.run.as_ref().and_then(|run| run.r.as_ref());
                if let Some(ranks) = elastic.apply(event, r) {
                    self.run_mut().freed.union_with(&ranks);
                }
            }
            _ => {}
        }
        self.apply_state(event);
    }

    fn run(&self) -> &RunFacts {
        self.run.as_deref().unwrap_or(&NOT_RUN)
    }

    fn run_mut(&mut self) -> &mut RunFacts {
        self.run.get_or_insert_default()
    }

    fn take_document(&mut self, event: &Event) {
        match &event.document {
            Some(Document::R(r) | Document::Allocation(r, _)) => {
                self.run_mut().r.get_or_insert_with(|| Arc::clone(r));
            }
            Some(Document::Jobspec(spec)) => self.spec = Arc::clone(spec),
            Some(
                Document::ResourceAdd(_) | Document::ResourceRemove(_) | Document::Exception(_),
            )
            | None => {}
        }
    }

    fn apply_state(&mut self, event: &Event) {
        let next = self.state.after(event);
        if next == self.state {
            return;
        }
        self.state = next;
        match next {
            State::Depend => self.delays.depend.set(self.t_submit, event.timestamp),
            State::Run => self.run_mut().t_run = event.timestamp,
            State::Cleanup => self.run_mut().t_cleanup = event.timestamp,
            State::Inactive => self.run_mut().t_inactive = event.timestamp,
            State::Priority => {
                let before = self.t_depend();
                self.delays.priority.set(before, event.timestamp);
            }
            State::Sched => {
                let before = self.t_priority();
                self.delays.sched.set(before, event.timestamp);
            }
            State::New => {}
        }
    }

    fn apply_memo(&mut self, event: &Event) {
        let Some(update) = event.read::<Map<String, Value>>() else {
            return;
        };
        // Unlike annotations, a memo is not merged in depth: a key is replaced whole.
        let mut memo = self.memo.take().unwrap_or_default();
        for (key, value) in update {
            if value.is_null() {
                memo.shift_remove(&key);
            } else {
                memo.insert(key, value);
            }
        }
        self.memo = (!memo.is_empty()).then_some(memo);
    }

    fn apply_expiration(&mut self, event: &Event) {
        let Some(ResourceUpdate { expiration }) = event.read() else {
            return;
        };
        let run = self.run.get_or_insert_default();
        run.is_expiration_updated = true;
        let extent = self
            .elastic
            .as_mut()
            .and_then(|elastic| elastic.extent.as_mut());
        for r in [run.r.as_mut(), extent].into_iter().flatten() {
            let mut changed = r.as_ref().clone();
            // The event was logged because this had succeeded.
            if changed.set_expiration(Some(expiration)).is_ok() {
                *r = Arc::new(changed);
            }
        }
    }

    fn apply_release(&mut self, event: &Event) {
        let Some(release) = event.read::<Release>() else {
            return;
        };
        let run = self.run_mut();
        let released = if release.is_retained {
            &mut run.retained
        } else {
            &mut run.freed
        };
        match release.ranks {
            ReleasedRanks::All => {
                if let Some(r) = &run.r {
                    released.union_with(&r.ranks());
                }
            }
            ReleasedRanks::Ranks(ranks) => released.union_with(&ranks),
        }
        if release.is_final {
            run.is_released = true;
        }
    }

    fn apply_exception(&mut self, event: &Event) {
        let Some(raised) = event.raised() else {
            return;
        };
        let severity = raised.severity;
        let known = self.exception.as_ref().map(|known| known.severity);
        if known.is_none_or(|known| known != 0 && severity == 0) {
            self.exception = Some(raised);
        }
        // RFC 27: without an allocation, annotations do not outlive the request.
        if severity == 0
            && !self.has_resources()
            && let Some(run) = &mut self.run
        {
            run.annotations = None;
        }
    }

    /// FLUID (RFC 19).
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Owner.
    pub fn userid(&self) -> u32 {
        self.userid
    }

    /// Flags of the submission.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// Urgency, 0 to 31 (RFC 30).
    pub fn urgency(&self) -> u8 {
        self.urgency
    }

    /// Priority, 0 (held) to 4294967295.
    pub fn priority(&self) -> u32 {
        self.priority
    }

    /// The priority of the next `priority` event: the assigned one, else that of the urgency.
    pub fn due_priority(&self) -> u32 {
        self.assigned_priority
            .unwrap_or_else(|| urgency::priority(self.urgency))
    }

    /// RFC 21 state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Current jobspec.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    /// Name of the job.
    pub fn name(&self) -> Cow<'_, str> {
        self.spec.name_of(self.id)
    }

    /// The jobspec of a record that is given up.
    pub(crate) fn into_spec(self) -> Arc<Spec> {
        self.spec
    }

    /// Number of logged events.
    pub fn events(&self) -> u32 {
        self.events
    }

    /// Time of submission, seconds since the epoch, as every `t_` below; 0 if not reached.
    pub fn t_submit(&self) -> f64 {
        self.t_submit
    }

    /// Time of entering DEPEND.
    pub fn t_depend(&self) -> f64 {
        self.delays.depend.after(self.t_submit)
    }

    /// Time of entering PRIORITY for the first time.
    pub fn t_priority(&self) -> f64 {
        self.delays.priority.after(self.t_depend())
    }

    /// Time of entering SCHED for the first time.
    pub fn t_sched(&self) -> f64 {
        self.delays.sched.after(self.t_priority())
    }

    /// Time of entering RUN.
    pub fn t_run(&self) -> f64 {
        self.run().t_run
    }

    /// Time of entering CLEANUP.
    pub fn t_cleanup(&self) -> f64 {
        self.run().t_cleanup
    }

    /// Time of entering INACTIVE.
    pub fn t_inactive(&self) -> f64 {
        self.run().t_inactive
    }

    /// Descriptions of the unsatisfied dependencies.
    pub fn dependencies(&self) -> &BTreeSet<String> {
        self.dependencies.as_deref().unwrap_or(&NO_DEPENDENCIES)
    }

    /// Annotations of the allocation, from the `alloc` event.
    pub fn annotations(&self) -> &Map<String, Value> {
        self.run().annotations.as_ref().unwrap_or(&NO_ANNOTATIONS)
    }

    /// The size of the memo in bytes: its keys, and its values as JSON.
    pub fn memo_bytes(&self) -> u64 {
        let entries = self.memo.iter().flat_map(|memo| memo.iter());
        entries
            .map(|(key, value)| (key.len() + value.to_string().len()) as u64)
            .sum()
    }

    /// The memo, if one is set.
    pub fn memo(&self) -> Option<&Map<String, Value>> {
        self.memo.as_deref()
    }

    /// Allocated resources, with the current expiration; `None` before the `alloc` event.
    pub fn r(&self) -> Option<&Arc<ResourceSet>> {
        self.run().r.as_ref()
    }

    /// Whether R has another expiration than the one that was committed.
    pub fn is_expiration_updated(&self) -> bool {
        self.run().is_expiration_updated
    }

    /// Whether resources are allocated and not all freed.
    pub fn has_resources(&self) -> bool {
        self.run().allocation == AllocationStage::Active
    }

    /// Ranks that the scheduler may allocate again.
    pub fn freed(&self) -> &IdSet {
        &self.run().freed
    }

    /// Ranks that the execution service has released and the epilog still needs.
    pub fn retained(&self) -> &IdSet {
        &self.run().retained
    }

    /// The resources that are allocated and not freed.
    pub fn unfreed(&self) -> Option<ResourceSet> {
        let run = self.run();
        let r = run.r.as_ref()?;
        Some(r.restrict(&r.ranks().difference(&run.freed)))
    }

    /// Whether the execution service has sent its final release.
    pub fn is_released(&self) -> bool {
        self.run().is_released
    }

    /// The prolog.
    pub fn prolog(&self) -> HookStage {
        self.run().prolog
    }

    /// The epilog: nothing is freed between its start and its finish.
    pub fn epilog(&self) -> HookStage {
        self.run().epilog
    }

    /// Whether the `start` event is logged.
    pub fn has_started(&self) -> bool {
        self.run().has_started
    }

    /// Greatest wait status of the tasks, from the `finish` event.
    pub fn wait_status(&self) -> Option<i32> {
        self.run().wait_status
    }

    /// Resource usage of the tasks, from the `finish` event, if the execution service reported it.
    pub fn usage(&self) -> Option<ResourceUsage> {
        self.run().usage
    }

    /// The first fatal exception, else the first of any severity.
    pub fn exception(&self) -> Option<&Exception<'static>> {
        self.exception.as_deref()
    }

    /// The first fatal exception.
    pub fn fatal_exception(&self) -> Option<&Exception<'static>> {
        self.exception().filter(|exception| exception.severity == 0)
    }

    /// Whether the job has finished or has a fatal exception: no tasks are expected to run.
    pub fn has_ended(&self) -> bool {
        self.wait_status().is_some() || self.fatal_exception().is_some()
    }

    /// The job's elastic state, if it has requested, gained or released resources.
    pub fn elastic(&self) -> Option<&ElasticState> {
        self.elastic.as_deref()
    }

    /// The PMIx request that this job carries through the queue: such a job has no tasks.
    pub fn elastic_request(&self) -> Option<&ElasticRequest> {
        self.elastic()?.request.as_ref()
    }

    /// All resources of the job: R without what it has released, with its grants.
    pub fn extent(&self) -> Option<&Arc<ResourceSet>> {
        let elastic = self.elastic().and_then(|elastic| elastic.extent.as_ref());
        elastic.or(self.r())
    }

    /// The begin and the size of the job's allocation, as sums of usage have them.
    pub(crate) fn job_usage(&self) -> JobUsage {
        if self.t_run() <= 0.0 {
            return JobUsage::default();
        }
        let number = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let (nodes, cores, gpus) = match self.extent() {
            Some(r) => (
                number(r.nnodes() as u64),
                number(r.ncores()),
                number(r.ngpus()),
            ),
            None => (
                self.spec().nnodes.unwrap_or_default(),
                number(self.spec().ncores),
                0,
            ),
        };
        JobUsage {
            begin: self.t_run(),
            nodes,
            cores,
            gpus,
        }
    }

    /// When the allocation began, seconds since the epoch.
    pub fn began(&self) -> f64 {
        let starttime = self.r().and_then(|r| r.starttime());
        starttime.filter(|time| *time > 0.0).unwrap_or(self.t_run())
    }

    /// When the allocation ends, seconds since the epoch; `None` if unlimited.
    pub fn expiration(&self) -> Option<f64> {
        let end = self.r().and_then(|r| r.expiration());
        end.filter(|end| *end > 0.0)
    }

    /// The result of an inactive job.
    pub fn result(&self) -> Option<JobResult> {
        if self.state != State::Inactive {
            return None;
        }
        let fatal = self.fatal_exception();
        Some(match fatal.map(|exception| &*exception.kind) {
            Some("cancel") => JobResult::Canceled,
            Some("timeout") => JobResult::Timeout,
            None if self.wait_status() == Some(0) => JobResult::Completed,
            _ => JobResult::Failed,
        })
    }

    /// The exit code as a shell shows it: 0 to 255, or 128 + signal.
    pub fn returncode(&self) -> Option<i32> {
        self.wait_status().map(exit_status)
    }
}

/// A line of an eventlog that is not an event.
#[derive(Debug)]
pub struct InvalidEvent {
    line: String,
    source: serde_json::Error,
}

impl std::fmt::Display for InvalidEvent {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "event `{}`: {}", self.line, self.source)
    }
}

impl std::error::Error for InvalidEvent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::{MAX_FACTS_BYTES, Record};
    use crate::event::Event;
    use crate::fixture::{add_allocated_job, add_pending_job, context};
    use crate::settings::Settings;

    #[test]
    fn the_facts_of_a_pending_job_are_those_of_its_events() {
        let mut cx = context(Settings::default());
        let pending = add_pending_job(&mut cx);
        let mut record = cx.jobs.record(pending).unwrap().clone();
        for (name, context) in [
            ("urgency", json!({"urgency": 3, "userid": 0})),
            ("priority", json!({"priority": 70_000})),
            ("memo", json!({"key": {"a": [0.1, null]}})),
            ("dependency-add", json!({"description": "begin-time=1.5"})),
            (
                "exception",
                json!({"type": "oom", "severity": 2, "note": "\"ä\"", "userid": 5}),
            ),
            ("flux-restart", json!({})),
        ] {
            record.apply(&Event::with(0.1 + 0.2, name, &context));
            let text = record.pending_facts().unwrap();
            let (userid, spec) = (record.userid(), Arc::clone(record.spec()));
            let read = Record::from_facts(pending, userid, spec, record.events(), &text);
            assert_eq!(read.unwrap(), record, "{text}");
        }
        for memo in ["x".repeat(MAX_FACTS_BYTES), "x".to_owned()] {
            record.apply(&Event::with(2.0, "memo", &json!({"key": memo})));
            assert_eq!(record.pending_facts().is_some(), memo.len() == 1);
        }
        let running = add_allocated_job(&mut cx);
        assert_eq!(cx.jobs.record(running).unwrap().pending_facts(), None);
        for text in ["", "{}", r#"{"state": "RUN"}"#] {
            let spec = Arc::clone(record.spec());
            assert!(Record::from_facts(pending, 0, spec, 1, text).is_err());
        }
    }

    #[test]
    fn a_pending_job_has_nothing_but_its_record() {
        let mut cx = context(Settings::default());
        let (pending, running) = (add_pending_job(&mut cx), add_allocated_job(&mut cx));
        let record = cx.jobs.record(pending).unwrap();
        assert!(record.run.is_none() && record.dependencies.is_none());
        assert!(record.memo.is_none() && record.exception.is_none() && record.elastic.is_none());
        assert!(cx.jobs.record(running).unwrap().run.is_some());
    }
}
