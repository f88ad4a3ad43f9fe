//! `Dialogue`: the state of the conversations about a job, and their transition tables.
//!
//! One table per protocol: [`AllocState::after`] (RFC 27), [`ExecState::after`] (RFC 32), [`HookCall::after`]
//! (the `hooks` service). A dialogue is not in the eventlog: a restart derives it from the record and
//! from the starts that the store has marked as unsent, see [`Dialogue::resume`].

use std::sync::Arc;

use penstock_flux::RequestedResources;
use penstock_rset::ResourceSet;
use serde_json::{Map, Value};

use crate::annotations;
use crate::event::{Document, Event};
use crate::record::{HookStage, Record};
use crate::state::State;

/// The conversation with the scheduler (RFC 27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocState {
    /// No resources are requested.
    #[default]
    Idle,
    /// The job is queued for `sched.alloc`.
    Queued,
    /// `sched.alloc` is outstanding.
    Requested(SentAlloc),
    /// `sched.alloc` is outstanding and `sched.cancel` was sent, or will be.
    Cancelling(SentAlloc),
    /// The time limit has changed since the resources were allocated: the expiration is to be
    /// requested.
    Outdated,
    /// The scheduler allocated resources after the job had ended, or for a superseded request: they are to be freed at
    /// once.
    Surplus,
}

/// The state of an outstanding `sched.alloc`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentAlloc {
    /// R is committed for the request.
    pub is_committed: bool,
    /// The job's time limit has changed since the request was sent.
    pub is_outdated: bool,
    /// The constraint of the job's queue has changed since the request was sent.
    pub is_superseded: bool,
}

/// An input to the state machine of the conversation with the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocInput {
    /// The job is ready for resources.
    Enqueue,
    /// The queued job no longer wants resources.
    Dequeue,
    /// `sched.alloc` is sent.
    Request,
    /// The request is to be cancelled.
    Cancel,
    /// SUCCESS for a job in SCHED.
    Success,
    /// SUCCESS for a job that has ended, or for a superseded request.
    LateSuccess,
    /// DENY.
    Deny,
    /// CANCEL.
    Cancelled,
    /// The scheduler has disconnected or was suspended.
    SchedulerLost,
    /// `sched.free` was sent for a late SUCCESS.
    Free,
    /// R is committed for the request.
    Commit,
    /// The job's time limit has changed: an outstanding request becomes outdated, an outdated
    /// allocation agrees with it.
    Outdate,
    /// The expiration that follows from the time limit is requested.
    Check,
    /// The constraint has changed: an outstanding request is superseded.
    Supersede,
}

#[allow(clippy::match_same_arms, reason = "a table has a row for each input")]
impl AllocState {
    /// The state after `input`; `None` if the input is not allowed in this state.
    #[must_use]
    pub fn after(self, input: AllocInput) -> Option<Self> {
        use AllocInput as In;
        Some(match (self, input) {
            (Self::Idle, In::Enqueue) => Self::Queued,
            (Self::Queued, In::Dequeue) => Self::Idle,
            (Self::Queued, In::Request) => Self::Requested(SentAlloc::default()),
            (Self::Requested(request), In::Cancel) => Self::Cancelling(request),
            (Self::Requested(request), In::Commit) => Self::Requested(request.committed()),
            (Self::Cancelling(request), In::Commit) => Self::Cancelling(request.committed()),
            (Self::Requested(request), In::Outdate) => Self::Requested(request.outdated()),
            (Self::Cancelling(request), In::Outdate) => Self::Cancelling(request.outdated()),
            (state @ (Self::Idle | Self::Queued | Self::Surplus), In::Outdate) => state,
            (Self::Requested(request), In::Supersede) => Self::Requested(request.superseded()),
            (Self::Cancelling(request), In::Supersede) => Self::Cancelling(request.superseded()),
            (
                Self::Requested(SentAlloc {
                    is_outdated: true, ..
                })
                | Self::Cancelling(SentAlloc {
                    is_outdated: true, ..
                }),
                In::Success,
            ) => Self::Outdated,
            (
                Self::Requested(_) | Self::Cancelling(_),
                In::Success | In::Deny | In::SchedulerLost,
            )
            // CANCEL ends a cancelled request and no other: a request after an unsolicited one
            // would only be answered by the next.
            | (Self::Cancelling(_), In::Cancelled)
            | (Self::Surplus, In::Free)
            | (Self::Outdated, In::Outdate | In::Check) => Self::Idle,
            (Self::Requested(_) | Self::Cancelling(_), In::LateSuccess) => Self::Surplus,
            _ => return None,
        })
    }

    /// Whether `sched.alloc` is outstanding.
    pub fn is_outstanding(self) -> bool {
        self.sent().is_some()
    }

    /// The outstanding `sched.alloc`, if there is one.
    pub fn sent(self) -> Option<SentAlloc> {
        match self {
            Self::Requested(request) | Self::Cancelling(request) => Some(request),
            Self::Idle | Self::Queued | Self::Outdated | Self::Surplus => None,
        }
    }

    /// Whether `sched.alloc` is outstanding and R is committed for it.
    pub fn is_committed(self) -> bool {
        self.sent().is_some_and(|request| request.is_committed)
    }
}

impl SentAlloc {
    fn committed(self) -> Self {
        Self {
            is_committed: true,
            ..self
        }
    }

    fn outdated(self) -> Self {
        Self {
            is_outdated: true,
            ..self
        }
    }

    fn superseded(self) -> Self {
        Self {
            is_superseded: true,
            ..self
        }
    }
}

/// The conversation with the execution service (RFC 32).
///
/// `reattach` is the value in the start request: if set, the job's tasks may already be running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecState {
    /// Not to be started yet.
    #[default]
    Idle,
    /// To be started as soon as there is a service. `was_sent`: an earlier service may have started
    /// the job without having reported that.
    Queued { was_sent: bool },
    /// `start` is outstanding and unanswered.
    Requested { reattach: bool },
    /// The service has answered `start` or `reattached`.
    Started { reattach: bool },
    /// The service has answered `finish`; releases are to come.
    Finished { reattach: bool },
    /// The final release has come.
    Released,
    /// The start was given up before it was sent, or there is nothing to start.
    Abandoned,
}

/// An input to the state machine of the conversation with the execution service. `has_ended` says
/// whether the job has finished, perhaps under an earlier service, or has a fatal exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecInput {
    /// The job is ready to start.
    Enqueue,
    /// `start` is sent.
    Send { reattach: bool },
    /// The service has gone. `was_delivered`: whether it may have acted on its requests.
    ServiceLost { was_delivered: bool },
    /// The job has ended and no service has had its start.
    Abandon,
    /// Response `start`.
    Start,
    /// Response `reattached`.
    Reattached,
    /// Response `exception`.
    Exception,
    /// Response `finish`.
    Finish { has_ended: bool },
    /// Response `release`.
    Release { is_final: bool, has_ended: bool },
}

/// Why a response to `start` is out of order (RFC 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderFault {
    /// No start request is outstanding.
    NotDue,
    /// `start` or `reattached` came before.
    StartedBefore,
    /// `reattached` in response to a request without `reattach`.
    ReattachNotRequested,
    /// `finish` came before.
    FinishedBefore,
    /// `finish` or a release before the start.
    NotStarted,
}

impl std::fmt::Display for OrderFault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::NotDue => "none is due",
            Self::StartedBefore => "it has started before",
            Self::ReattachNotRequested => "reattach was not requested",
            Self::FinishedBefore => "it has finished before",
            Self::NotStarted => "it has not started",
        })
    }
}

impl std::error::Error for OrderFault {}

/// The mark in the store on the start of a job from before a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredStart {
    /// Marked: it was due, and was sent to no service.
    Unsent,
    /// No mark: it was not due, or a service may have had it.
    Unmarked,
}

#[allow(clippy::match_same_arms, reason = "a table has a row for each input")]
impl ExecState {
    /// The state of a job from before a restart.
    ///
    /// The eventlog does not tell when a start is sent. But it is sent in the step in which it is due, or
    /// the job is marked as unsent in the transaction of that step: a job without mark and prolog may be
    /// running from its allocation on.
    fn resume(record: &Record, start: StoredStart) -> Self {
        let is_running = record.state() == State::Run;
        let has_tasks = record.r().is_some() && record.elastic_request().is_none();
        let is_before_start = start == StoredStart::Unsent || record.prolog() == HookStage::Begun;
        if record.is_released() {
            Self::Released
        } else if !record.has_resources() {
            Self::Idle
        } else if has_tasks && record.has_started() {
            Self::Queued { was_sent: true }
        } else if has_tasks && record.epilog() != HookStage::Idle {
            // An epilog begins when nothing runs.
            Self::Released
        } else if has_tasks && !is_before_start {
            Self::Queued { was_sent: true }
        } else if is_running && record.r().is_some() {
            Self::Idle
        } else {
            Self::Abandoned
        }
    }

    /// The state after `input`.
    ///
    /// # Errors
    ///
    /// The input is not allowed in this state.
    pub fn after(self, input: ExecInput) -> Result<Self, OrderFault> {
        use ExecInput as In;
        Ok(match (self, input) {
            (Self::Idle, In::Enqueue) => Self::Queued { was_sent: false },
            // If an earlier service may have started it, only a service can say that nothing runs.
            (Self::Idle | Self::Queued { was_sent: false }, In::Abandon) => Self::Abandoned,
            (Self::Queued { .. }, In::Send { reattach }) => Self::Requested { reattach },
            (Self::Requested { reattach }, In::ServiceLost { was_delivered }) => Self::Queued {
                was_sent: reattach || was_delivered,
            },
            (Self::Started { .. } | Self::Finished { .. }, In::ServiceLost { .. }) => {
                Self::Queued { was_sent: true }
            }
            (Self::Requested { reattach }, In::Start)
            | (
                Self::Requested {
                    reattach: reattach @ true,
                },
                In::Reattached,
            ) => Self::Started { reattach },
            (Self::Requested { .. }, In::Reattached) => {
                return Err(OrderFault::ReattachNotRequested);
            }
            (Self::Started { .. } | Self::Finished { .. }, In::Start | In::Reattached) => {
                return Err(OrderFault::StartedBefore);
            }
            (
                state @ (Self::Requested { .. } | Self::Started { .. } | Self::Finished { .. }),
                In::Exception,
            ) => state,
            (Self::Finished { .. }, In::Finish { .. }) => return Err(OrderFault::FinishedBefore),
            (
                Self::Requested { reattach: false },
                In::Finish { has_ended: false }
                | In::Release {
                    is_final: false,
                    has_ended: false,
                },
            ) => return Err(OrderFault::NotStarted),
            (Self::Requested { reattach } | Self::Started { reattach }, In::Finish { .. }) => {
                Self::Finished { reattach }
            }
            (
                Self::Requested { .. } | Self::Started { .. } | Self::Finished { .. },
                In::Release { is_final: true, .. },
            ) => Self::Released,
            (
                state @ (Self::Requested { .. } | Self::Started { .. } | Self::Finished { .. }),
                In::Release { .. },
            ) => state,
            _ => return Err(OrderFault::NotDue),
        })
    }

    /// Applies an input.
    ///
    /// # Errors
    ///
    /// The input is not allowed now; nothing changes.
    pub fn advance(&mut self, input: ExecInput) -> Result<(), OrderFault> {
        *self = self.after(input)?;
        Ok(())
    }

    /// Whether the next start request must ask for `reattach`.
    pub fn needs_reattach(self) -> bool {
        self == (Self::Queued { was_sent: true })
    }

    /// Whether tasks of the job may be running: the final release of a service is to come, if necessary
    /// of the next one.
    pub fn may_be_running(self) -> bool {
        match self {
            Self::Idle | Self::Queued { was_sent: false } | Self::Released | Self::Abandoned => {
                false
            }
            Self::Queued { was_sent: true }
            | Self::Requested { .. }
            | Self::Started { .. }
            | Self::Finished { .. } => true,
        }
    }

    /// Whether a start request is outstanding: the service has the job.
    pub fn is_outstanding(self) -> bool {
        matches!(
            self,
            Self::Requested { .. } | Self::Started { .. } | Self::Finished { .. }
        )
    }

    /// Whether tasks of the job may have run: a service has had a start request for it.
    pub fn was_sent(self) -> bool {
        match self {
            Self::Idle | Self::Abandoned => false,
            Self::Queued { was_sent } => was_sent,
            Self::Requested { .. }
            | Self::Started { .. }
            | Self::Finished { .. }
            | Self::Released => true,
        }
    }
}

/// A request to the `hooks` service for one job and one hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HookCall {
    /// Not outstanding.
    #[default]
    Idle,
    /// Outstanding.
    Requested,
    /// `hooks.cancel` was sent; it or the request for the hook is outstanding.
    Cancelling,
}

/// An input to the state machine of a request to the `hooks` service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookInput {
    /// `hooks.prolog` or `hooks.epilog` is sent.
    Request,
    /// `hooks.cancel` is sent, without a response.
    Cancel,
    /// `hooks.cancel` is sent for a hook that was requested before a restart.
    RequestEnd,
    /// The response.
    Response,
}

impl HookCall {
    /// The state after `input`; `None` if the input is not allowed in this state.
    #[must_use]
    pub fn after(self, input: HookInput) -> Option<Self> {
        Some(match (self, input) {
            (Self::Idle, HookInput::Request) => Self::Requested,
            (Self::Requested, HookInput::Cancel) | (Self::Idle, HookInput::RequestEnd) => {
                Self::Cancelling
            }
            (Self::Requested | Self::Cancelling, HookInput::Response) => Self::Idle,
            _ => return None,
        })
    }
}

/// A hook of the site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hook {
    /// Runs before a job starts.
    Prolog,
    /// Runs after a job's tasks have ended, before its resources are freed.
    Epilog,
}

/// The conversation with the scheduler about one job.
#[derive(Debug)]
pub struct SchedulerDialogue {
    alloc: AllocState,
    requested: Arc<RequestedResources>,
    committed: Option<Arc<ResourceSet>>,
    annotations: Option<Box<Map<String, Value>>>,
    stop_reason: Option<Arc<str>>,
}

impl SchedulerDialogue {
    fn new(requested: Arc<RequestedResources>) -> Self {
        Self {
            alloc: AllocState::Idle,
            requested,
            committed: None,
            annotations: None,
            stop_reason: None,
        }
    }

    /// The state of the conversation.
    pub fn alloc(&self) -> AllocState {
        self.alloc
    }

    /// Applies an input. Returns whether it was allowed; if not, nothing changes.
    pub fn advance(&mut self, input: AllocInput) -> bool {
        let Some(next) = self.alloc.after(input) else {
            return false;
        };
        self.alloc = next;
        if !next.is_outstanding() && next != AllocState::Surplus {
            // R is held here from its commit to the end of the request; then the record has it, or it is
            // void.
            self.committed = None;
        }
        if matches!(
            input,
            AllocInput::Cancelled
                | AllocInput::Deny
                | AllocInput::LateSuccess
                | AllocInput::SchedulerLost
        ) {
            self.annotations = None;
        }
        true
    }

    /// The resources that are requested of the scheduler.
    pub fn requested(&self) -> &Arc<RequestedResources> {
        &self.requested
    }

    /// See [`Dialogue::set_requested`].
    pub(crate) fn set_requested(&mut self, requested: &Arc<RequestedResources>) -> bool {
        let is_new = !Arc::ptr_eq(&self.requested, requested) && self.requested != *requested;
        if is_new {
            let old = std::mem::replace(&mut self.requested, Arc::clone(requested));
            if old.request.constraint != requested.request.constraint {
                self.advance(AllocInput::Supersede);
            }
        }
        is_new
    }

    /// R as committed for the outstanding request.
    pub fn committed(&self) -> Option<&Arc<ResourceSet>> {
        self.committed.as_ref()
    }

    /// Records a commit of R. Returns whether a request is outstanding; if not, nothing changes.
    pub fn commit(&mut self, r: Arc<ResourceSet>) -> bool {
        let is_outstanding = self.advance(AllocInput::Commit);
        if is_outstanding {
            self.committed = Some(r);
        }
        is_outstanding
    }

    /// Annotations of the pending job.
    pub fn annotations(&self) -> Option<&Map<String, Value>> {
        self.annotations.as_deref()
    }

    /// Merges an update into the annotations of the pending job (RFC 27).
    pub fn annotate(&mut self, update: Map<String, Value>) {
        let merged = match self.annotations.take() {
            None if !annotations::has_null(&update) => Box::new(update),
            current => {
                let mut current = current.unwrap_or_default();
                annotations::merge(&mut current, &update);
                current
            }
        };
        self.annotations = Some(merged).filter(|merged| !merged.is_empty());
    }

    /// Removes and returns the annotations, for the `alloc` event.
    pub fn take_annotations(&mut self) -> Map<String, Value> {
        self.annotations
            .take()
            .map(|boxed| *boxed)
            .unwrap_or_default()
    }

    /// Why no resources are requested for a job in SCHED: its queue is stopped.
    pub fn stop_reason(&self) -> Option<&Arc<str>> {
        self.stop_reason.as_ref()
    }

    /// Sets why no resources are requested for the job.
    pub fn set_stop_reason(&mut self, reason: Option<Arc<str>>) {
        self.stop_reason = reason;
    }
}

/// The requests to the `hooks` service for one job.
#[derive(Debug, Default)]
pub struct HookCalls {
    prolog: HookCall,
    epilog: HookCall,
}

impl HookCalls {
    /// The request for a hook.
    pub fn of(&self, hook: Hook) -> HookCall {
        match hook {
            Hook::Prolog => self.prolog,
            Hook::Epilog => self.epilog,
        }
    }

    /// Applies an input to the request for a hook. Returns whether it was allowed; if not, nothing
    /// changes.
    pub fn advance(&mut self, hook: Hook, input: HookInput) -> bool {
        let call = match hook {
            Hook::Prolog => &mut self.prolog,
            Hook::Epilog => &mut self.epilog,
        };
        let next = call.after(input);
        if let Some(next) = next {
            *call = next;
        }
        next.is_some()
    }
}

/// The state of the conversations about one job.
///
/// Everybody reads it. Each part is changed by the peer that holds its writer (see
/// [`Jobs::new`](crate::jobs::Jobs::new)): only [`Jobs`](crate::jobs::Jobs) has a `&mut Dialogue`.
#[derive(Debug)]
pub struct Dialogue {
    /// With the scheduler.
    pub scheduler: SchedulerDialogue,
    /// With the execution service.
    pub exec: ExecState,
    /// With the `hooks` service.
    pub hooks: HookCalls,
    is_reported: bool,
}

impl Dialogue {
    /// The dialogue of a new job, with what is requested of the scheduler.
    pub fn new(requested: Arc<RequestedResources>) -> Self {
        Self {
            scheduler: SchedulerDialogue::new(requested),
            exec: ExecState::Idle,
            hooks: HookCalls::default(),
            is_reported: false,
        }
    }

    /// The dialogue of a job from before a restart.
    pub fn resume(record: &Record, requested: Arc<RequestedResources>, start: StoredStart) -> Self {
        Self {
            exec: ExecState::resume(record, start),
            is_reported: record.state() == State::Inactive,
            ..Self::new(requested)
        }
    }

    /// Applies a logged event, which `record` already reflects.
    pub(crate) fn follow(&mut self, event: &Event, record: &Record) {
        // RFC 27: without an allocation, annotations do not outlive the request.
        if event.is_fatal() && !record.has_resources() {
            self.scheduler.annotations = None;
        }
        if matches!(event.document, Some(Document::Jobspec(_))) {
            self.scheduler.advance(AllocInput::Outdate);
        }
    }

    /// Replaces what is requested of the scheduler, unless it is the same. An outstanding request keeps the old form. Returns
    /// whether it was replaced.
    pub(crate) fn set_requested(&mut self, requested: &Arc<RequestedResources>) -> bool {
        self.scheduler.set_requested(requested)
    }

    /// Whether the scheduler may still allocate resources to the job, or tasks of it may be running.
    pub fn may_use_resources(&self) -> bool {
        self.scheduler.alloc.is_outstanding() || self.exec.may_be_running()
    }

    /// Whether the end of the job was reported to the requests that follow it.
    pub(crate) fn is_reported(&self) -> bool {
        self.is_reported
    }

    /// Marks the end of the job as reported to the requests that follow it. Returns whether it was not yet.
    pub(crate) fn mark_reported(&mut self) -> bool {
        !std::mem::replace(&mut self.is_reported, true)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        AllocInput, AllocState, ExecInput, ExecState, HookCall, HookInput, OrderFault, SentAlloc,
    };

    #[test]
    fn the_alloc_table_is_this_one() {
        use AllocInput as In;
        use AllocState::{Cancelling, Idle, Outdated, Queued, Requested, Surplus};
        let fresh = SentAlloc::default();
        let late = SentAlloc {
            is_outdated: true,
            ..fresh
        };
        let states = [
            Idle,
            Queued,
            Requested(fresh),
            Cancelling(fresh),
            Requested(late),
            Outdated,
            Surplus,
        ];
        let (sent, ending, old, idle) = (
            Some(Requested(fresh)),
            Some(Cancelling(fresh)),
            Some(Requested(late)),
            Some(Idle),
        );
        let committed = |state: fn(SentAlloc) -> AllocState, request: SentAlloc| {
            Some(state(SentAlloc {
                is_committed: true,
                ..request
            }))
        };
        let superseded = |state: fn(SentAlloc) -> AllocState, request: SentAlloc| {
            Some(state(SentAlloc {
                is_superseded: true,
                ..request
            }))
        };
        #[rustfmt::skip]
        let table = [
            //                   Idle          Queued        Requested                     Cancelling                     Requested, old               Outdated  Surplus
            (In::Enqueue,       [Some(Queued), None,         None,                         None,                         None,                        None,     None]),
            (In::Dequeue,       [None,         idle,         None,                         None,                         None,                        None,     None]),
            (In::Request,       [None,         sent,         None,                         None,                         None,                        None,     None]),
            (In::Cancel,        [None,         None,         ending,                       None,                         Some(Cancelling(late)),       None,     None]),
            (In::Success,       [None,         None,         idle,                         idle,                         Some(Outdated),              None,     None]),
            (In::LateSuccess,   [None,         None,         Some(Surplus),                Some(Surplus),                Some(Surplus),               None,     None]),
            (In::Deny,          [None,         None,         idle,                         idle,                         idle,                        None,     None]),
            (In::Cancelled,      [None,         None,         None,                         idle,                         None,                        None,     None]),
            (In::SchedulerLost, [None,         None,         idle,                         idle,                         idle,                        None,     None]),
            (In::Free,          [None,         None,         None,                         None,                         None,                        None,     idle]),
            (In::Commit,        [None,         None,         committed(Requested, fresh),  committed(Cancelling, fresh),  committed(Requested, late),  None,     None]),
            (In::Outdate,       [idle,         Some(Queued), old,                          Some(Cancelling(late)),        old,                         idle,     Some(Surplus)]),
            (In::Supersede,     [None,         None,         superseded(Requested, fresh), superseded(Cancelling, fresh),  superseded(Requested, late), None,     None]),
            (In::Check,         [None,         None,         None,                         None,                         None,                        idle,     None]),
        ];
        for (input, expected) in table {
            for (state, expected) in states.into_iter().zip(expected) {
                assert_eq!(state.after(input), expected, "{state:?} {input:?}");
            }
        }
    }

    const RESENT: ExecState = ExecState::Queued { was_sent: true };
    const UNSENT: ExecState = ExecState::Queued { was_sent: false };

    fn outstanding(reattach: bool) -> [ExecState; 3] {
        [
            ExecState::Requested { reattach },
            ExecState::Started { reattach },
            ExecState::Finished { reattach },
        ]
    }

    #[test]
    fn the_exec_table_of_a_service_is_this_one() {
        let due = Err(OrderFault::NotDue);
        for reattach in [false, true] {
            let [requested, started, finished] = outstanding(reattach);
            let reattached = if reattach {
                Ok(started)
            } else {
                Err(OrderFault::ReattachNotRequested)
            };
            // Without `reattach` a job that has not ended must start first.
            let early = |next| {
                if reattach {
                    Ok(next)
                } else {
                    Err(OrderFault::NotStarted)
                }
            };
            let before = Err(OrderFault::StartedBefore);
            let twice = Err(OrderFault::FinishedBefore);
            let release = |is_final, has_ended| ExecInput::Release {
                is_final,
                has_ended,
            };
            let over = Ok(ExecState::Released);
            #[rustfmt::skip]
            let table = [
                (ExecInput::Start,                       [Ok(started),      before,        before]),
                (ExecInput::Reattached,                  [reattached,       before,        before]),
                (ExecInput::Exception,                   [Ok(requested),    Ok(started),   Ok(finished)]),
                (ExecInput::Finish { has_ended: false }, [early(finished),  Ok(finished),  twice]),
                (ExecInput::Finish { has_ended: true },  [Ok(finished),     Ok(finished),  twice]),
                (release(false, false),                  [early(requested), Ok(started),   Ok(finished)]),
                (release(false, true),                   [Ok(requested),    Ok(started),   Ok(finished)]),
                (release(true, false),                   [over,             over,          over]),
                (release(true, true),                    [over,             over,          over]),
                (ExecInput::Enqueue,                     [due,              due,           due]),
                (ExecInput::Send { reattach: false },    [due,              due,           due]),
                (ExecInput::Send { reattach: true },     [due,              due,           due]),
                (ExecInput::Abandon,                     [due,              due,           due]),
                (ExecInput::ServiceLost { was_delivered: true },
                                                         [Ok(RESENT),      Ok(RESENT),   Ok(RESENT)]),
                (ExecInput::ServiceLost { was_delivered: false },
                                                         [Ok(ExecState::Queued { was_sent: reattach }),
                                                                            Ok(RESENT),   Ok(RESENT)]),
            ];
            for (input, expected) in table {
                for (state, expected) in outstanding(reattach).into_iter().zip(expected) {
                    assert_eq!(state.after(input), expected, "{state:?} {input:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_is_due_while_no_start_request_is_outstanding() {
        let inputs = [
            ExecInput::Start,
            ExecInput::Reattached,
            ExecInput::Exception,
            ExecInput::Finish { has_ended: false },
            ExecInput::Finish { has_ended: true },
            ExecInput::Release {
                is_final: true,
                has_ended: true,
            },
            ExecInput::Release {
                is_final: false,
                has_ended: true,
            },
            ExecInput::ServiceLost {
                was_delivered: true,
            },
        ];
        for state in [
            ExecState::Idle,
            UNSENT,
            RESENT,
            ExecState::Released,
            ExecState::Abandoned,
        ] {
            for input in inputs {
                assert_eq!(
                    state.after(input),
                    Err(OrderFault::NotDue),
                    "{state:?} {input:?}"
                );
            }
        }
        assert_eq!(ExecState::Idle.after(ExecInput::Enqueue), Ok(UNSENT));
        for (state, next) in [
            (ExecState::Idle, ExecState::Abandoned),
            (UNSENT, ExecState::Abandoned),
        ] {
            assert_eq!(state.after(ExecInput::Abandon), Ok(next));
        }
        assert_eq!(RESENT.after(ExecInput::Abandon), Err(OrderFault::NotDue));
        for reattach in [false, true] {
            let send = ExecInput::Send { reattach };
            for state in [UNSENT, RESENT] {
                assert_eq!(state.after(send), Ok(ExecState::Requested { reattach }));
            }
            for state in [ExecState::Idle, ExecState::Released, ExecState::Abandoned] {
                assert_eq!(state.after(send), Err(OrderFault::NotDue));
            }
        }
        for state in [UNSENT, RESENT, ExecState::Released, ExecState::Abandoned] {
            assert_eq!(state.after(ExecInput::Enqueue), Err(OrderFault::NotDue));
        }
        for state in [ExecState::Released, ExecState::Abandoned] {
            assert_eq!(state.after(ExecInput::Abandon), Err(OrderFault::NotDue));
        }
    }

    #[test]
    fn the_hook_table_is_this_one() {
        use HookCall::{Cancelling, Idle, Requested};
        #[rustfmt::skip]
        let table = [
            //                        Idle              Requested         Cancelling
            (HookInput::Request,    [Some(Requested),  None,             None]),
            (HookInput::Cancel,     [None,             Some(Cancelling), None]),
            (HookInput::RequestEnd, [Some(Cancelling), None,             None]),
            (HookInput::Response,   [None,             Some(Idle),       Some(Idle)]),
        ];
        for (input, expected) in table {
            for (state, expected) in [Idle, Requested, Cancelling].into_iter().zip(expected) {
                assert_eq!(state.after(input), expected, "{state:?} {input:?}");
            }
        }
    }
}
