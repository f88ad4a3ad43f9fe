//! `ExecPeer`: the job manager's end of RFC 32: the execution service, and its reports on jobs.
//!
//! The table of [`ExecState::after`](crate::dialogue::ExecState::after) says which responses are allowed in each
//! state. Any other is logged and ignored. No response is due after the final release.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use penstock_flux::errno::{self, EAGAIN, ENOSYS};
use penstock_flux::eventlog;
use penstock_flux::exec::{
    ExecEvent, ExpirationRequest, HelloRequest, KillRequest, Release, ReleasedRanks,
    ReplacedRequest, ShrinkRequest, StartResponse, StartResponseType,
};
use penstock_flux::job_manager::ExecStats;
use penstock_flux::topic::exec_method;
use penstock_flux::{Json, Payload, RequestError, StartingJob, TypedPayload};
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_store::Error;
use penstock_wire::Message;

use crate::authorize;
use crate::context::{Context, ExecService, ShrunkRanks};
use crate::dialogue::{ExecInput, ExecState, OrderFault, StoredStart};
use crate::effect::{Effect, FreeRanks};
use crate::event::Event;
use crate::jobs::{ExecWriter, Job};
use crate::meta::MetaKey;
use crate::record::Record;
use crate::rpc::{self, Handled, Reply, Request};
use crate::settings::ExecHello;

/// An execution service that has said hello.
#[derive(Debug)]
struct Service {
    /// The part of it that other peers may know.
    known: Arc<ExecService>,
    /// Its route, by which a disconnect is recognized.
    origin: Vec<u8>,
    /// The identity of its journal, if it has one.
    journal: Option<Arc<str>>,
    /// Whether it has answered any request.
    has_answered: bool,
}

/// See [`ExecPeer::journal`]; empty for none.
pub(crate) const JOURNAL: MetaKey<String> = MetaKey {
    name: "exec_journal",
    parse: |text| Some(text.to_owned()),
    expected: "a text",
};

/// Maximum number of start requests that are sent in one slice, and of those to a lost service that are ended in one.
const STARTS_PER_SLICE: usize = 250;

/// Start requests to a service that is gone.
#[derive(Debug, Default)]
struct LostStarts {
    jobs: BTreeSet<JobId>,
    /// Whether the service may have acted on them.
    was_delivered: bool,
}

/// The end of the conversation with a service: its reason, and the fate of its requests.
struct Loss<'a> {
    why: &'a str,
    /// Whether the service may have acted on its requests.
    was_delivered: bool,
}

/// The conversation with the execution service.
#[derive(Debug)]
pub(crate) struct ExecPeer {
    writer: ExecWriter,
    service: Option<Service>,
    /// Jobs whose start is due as soon as there is a service, the oldest first.
    queued: BTreeSet<JobId>,
    /// Jobs queued since the last commit.
    unrecorded: Vec<JobId>,
    /// Jobs that the store has marked: their start was sent to no service.
    unsent: BTreeSet<JobId>,
    /// The journal shared by all services with unanswered starts; `None` if there may be several or none. Stored.
    journal: Option<Arc<str>>,
    /// Jobs whose start requests are outstanding.
    outstanding: BTreeSet<JobId>,
    /// The start requests of a service that is gone, which end in slices.
    lost: LostStarts,
    /// The hello of the next service, which is accepted when none of these is left, and that service.
    next: Option<(Message, Service)>,
    /// Pings of the service that are answered behind the start requests that were queued before.
    barriers: Vec<Message>,
    /// The number of queued jobs that a service may have started, without an answer.
    unanswered: usize,
    /// Maximum number of start requests that are sent in one slice, and that are ended in one.
    per_slice: usize,
    /// The route that has registered each service name; `None` if the broker does not say.
    registered: Option<HashMap<String, Vec<u8>>>,
}

impl ExecPeer {
    /// The conversation before a service says hello, with nothing in the store.
    fn new(writer: ExecWriter) -> Self {
        Self {
            writer,
            service: None,
            queued: BTreeSet::new(),
            unrecorded: Vec::new(),
            unsent: BTreeSet::new(),
            journal: None,
            outstanding: BTreeSet::new(),
            lost: LostStarts::default(),
            next: None,
            barriers: Vec::new(),
            unanswered: 0,
            per_slice: STARTS_PER_SLICE,
            registered: None,
        }
    }

    /// Sets the number of start requests that are sent in one slice, and that are ended in one.
    pub(crate) fn set_slice(&mut self, requests: usize) {
        self.per_slice = requests;
    }

    /// Whether start requests of a lost service are left.
    fn has_lost_starts(&self) -> bool {
        !self.lost.jobs.is_empty()
    }

    /// Whether the service is to get more start requests than one slice has.
    fn has_backlog(&self) -> bool {
        self.service.is_some() && self.queued.len() > self.per_slice
    }

    /// Whether [`run_next_slice`](Self::run_next_slice) has something to do.
    pub(crate) fn has_slices(&self) -> bool {
        self.has_lost_starts() || self.has_backlog()
    }

    /// Sets the route that has registered each service name: no other may execute jobs under it.
    pub(crate) fn set_registered(&mut self, registered: HashMap<String, Vec<u8>>) {
        self.registered = Some(registered);
    }

    /// `exec-hello`: the sender replaces the service before it and takes over its jobs. It is answered when the start
    /// requests of that service have ended.
    pub(crate) fn hello(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let service = self.accept(cx, request)?;
        // A service with the same name replaces itself: the notification would reach the new one.
        if let Some(old) = &self.service
            && old.known.name != service.known.name
        {
            let payload = ReplacedRequest {
                service: service.known.name.as_str().into(),
            };
            cx.notify(&old.known.topic(exec_method::REPLACED), &payload);
        }
        let loss = Loss {
            why: "a new execution service says hello",
            was_delivered: true,
        };
        self.stop(cx, &loss);
        let next = (request.message.header(), service);
        if let Some((request, _)) = self.next.replace(next) {
            let text = "another execution service says hello";
            cx.reject(&request, &RequestError::new(EAGAIN, text));
        }
        self.accept_next(cx);
        Ok(Reply::Deferred)
    }

    /// Accepts the next service, if there is one and all start requests of the former one have ended.
    fn accept_next(&mut self, cx: &mut Context) {
        if self.has_lost_starts() {
            return;
        }
        if let Some((request, service)) = self.next.take() {
            self.record_journal(cx, service.journal.as_ref());
            cx.set_exec_service(&self.writer, Some(Arc::clone(&service.known)));
            self.service = Some(service);
            cx.respond_empty(&request);
        }
    }

    /// Records the journal of a service that is about to get start requests.
    fn record_journal(&mut self, cx: &mut Context, journal: Option<&Arc<str>>) {
        if self.journal.as_ref() == journal {
            return;
        }
        self.journal = journal.filter(|_| self.unanswered == 0).cloned();
        cx.store_meta(JOURNAL.name, self.journal.as_deref().unwrap_or_default());
    }

    fn accept(&self, cx: &Context, request: Request<'_>) -> Result<Service, RequestError> {
        let hello: HelloRequest<'_> = request.payload()?;
        let name = hello.service.into_string();
        let is_word = |c: char| c.is_ascii_graphic() && c != '.';
        if name.is_empty() || !name.chars().all(is_word) {
            let text = format!("invalid service name `{}`", name.escape_debug());
            return Err(RequestError::invalid(text));
        }
        let origin = request.origin();
        let origin = origin.ok_or_else(|| RequestError::invalid("exec-hello without a route"))?;
        authorize::check_registration(self.registered.as_ref(), &name, origin)?;
        if cx.settings.exec_hello == ExecHello::Reject {
            self.check_place(origin)?;
        }
        // It responds to `shrink` once nothing runs there, or it does not.
        let shrunk_ranks = if hello.releases_shrunk {
            ShrunkRanks::FreeOnRelease
        } else {
            ShrunkRanks::FreeAtOnce
        };
        Ok(Service {
            known: Arc::new(ExecService { name, shrunk_ranks }),
            origin: origin.to_vec(),
            journal: hello
                .journal
                .filter(|journal| !journal.is_empty())
                .map(|journal| Arc::from(&*journal)),
            has_answered: false,
        })
    }

    /// Checks that no other service has start requests, or is about to get them.
    fn check_place(&self, origin: &[u8]) -> Result<(), RequestError> {
        let outstanding = self.outstanding.len() + self.queued.len();
        let text = match (&self.service, &self.next) {
            (Some(current), _) if outstanding > 0 => {
                let other = &current.known.name;
                format!("`{other}` has start requests to answer: {outstanding}")
            }
            (_, Some((_, next))) if next.origin != origin => {
                format!("`{}` takes over the jobs", next.known.name)
            }
            _ => return Ok(()),
        };
        Err(RequestError::invalid(text))
    }

    /// Queues a job for its start.
    pub(crate) fn enqueue(&mut self, cx: &mut Context, id: JobId) {
        let exec = cx.jobs.exec_mut(&self.writer, id);
        if exec.is_some_and(|(_, exec)| exec.advance(ExecInput::Enqueue).is_ok()) {
            self.queue_start(cx, id);
        }
    }

    fn queue_start(&mut self, cx: &Context, id: JobId) {
        self.resume(cx, id);
        self.unrecorded.push(id);
    }

    /// Queues a job from before a restart that may be running.
    pub(crate) fn resume(&mut self, cx: &Context, id: JobId) {
        if self.queued.insert(id) {
            self.unanswered += usize::from(is_unanswered(cx, id));
        }
    }

    /// Restores from the store what is known of the starts that were not answered.
    pub(crate) fn restore(writer: ExecWriter, cx: &mut Context) -> Result<Self, Error> {
        let journal = cx.read_meta(&JOURNAL)?;
        let journal = journal.filter(|text| !text.is_empty());
        Ok(Self {
            unsent: cx.store().unsent_starts()?.into_iter().collect(),
            journal: journal.map(Arc::from),
            ..Self::new(writer)
        })
    }

    /// Forgets the journal of the services before: the store has taken the place of another one, so a job may have run to
    /// its end, and its record in that journal may be gone. Jobs that a service does not know are lost.
    pub(crate) fn forget_journal(&mut self, cx: &mut Context) {
        self.journal = None;
        cx.store_meta(JOURNAL.name, "");
    }

    /// The mark in the store on a job's start.
    pub(crate) fn stored_start(&self, id: JobId) -> StoredStart {
        if self.unsent.contains(&id) {
            StoredStart::Unsent
        } else {
            StoredStart::Unmarked
        }
    }

    /// Marks the jobs in the store whose start is due and was sent to no service. Called before each
    /// commit: a job without the mark may be running after a restart.
    pub(crate) fn record_unsent(&mut self, cx: &mut Context) {
        for id in self.unrecorded.drain(..) {
            let job = cx.jobs.get(id);
            let exec = job.map(|job| job.dialogue.exec);
            if exec == Some(ExecState::Queued { was_sent: false }) && self.unsent.insert(id) {
                cx.mark_unsent_start(id);
            }
        }
    }

    fn forget_unsent(&mut self, cx: &mut Context, id: JobId) {
        if self.unsent.remove(&id) {
            cx.unmark_unsent_start(id);
        }
    }

    /// Abandons the start of a job that has ended before it, if its start is due and was not sent.
    pub(crate) fn abandon(&mut self, cx: &mut Context, id: JobId) {
        if !self.queued.contains(&id) {
            return;
        }
        let exec = cx.jobs.exec_mut(&self.writer, id);
        if exec.is_some_and(|(_, exec)| exec.advance(ExecInput::Abandon).is_ok()) {
            self.queued.remove(&id);
            self.forget_unsent(cx, id);
        }
    }

    /// Sends the start requests of the queued jobs, if there is a service. More than one slice has are left to
    /// [`run_next_slice`](Self::run_next_slice).
    pub(crate) fn send_starts(&mut self, cx: &mut Context) {
        if self.service.is_none() || self.has_backlog() {
            return;
        }
        self.send_slice(cx);
        self.unrecorded.clear();
        for ping in self.barriers.drain(..) {
            match ping.echo() {
                Ok(payload) => cx.send(Message::response_to(&ping, 0, Some(payload))),
                Err(error) => cx.reject(&ping, &error),
            }
        }
    }

    /// Sends the next start requests to the service, the oldest jobs first.
    fn send_slice(&mut self, cx: &mut Context) {
        let Some(service) = &self.service else {
            return;
        };
        let topic = service.known.topic(exec_method::START);
        for _ in 0..self.per_slice {
            let Some(id) = self.queued.pop_first() else {
                return;
            };
            self.forget_unsent(cx, id);
            let was_unanswered = usize::from(is_unanswered(cx, id));
            self.unanswered = self.unanswered.saturating_sub(was_unanswered);
            send_start(&self.writer, cx, id, &topic, self.journal.as_ref());
            if is_outstanding(cx, id) {
                self.outstanding.insert(id);
            }
            self.repeat_shrink(cx, id);
        }
    }

    /// `ping`. One of the service is answered behind the start requests of the jobs that are queued: it then knows that jobs
    /// without a start request are not to be reattached.
    pub(crate) fn ping(&mut self, request: Request<'_>) -> Handled {
        let service = self.service.as_ref().filter(|_| self.has_backlog());
        if service.is_some_and(|service| request.origin() == Some(&*service.origin)) {
            self.barriers.push(request.message.clone());
            return Ok(Reply::Deferred);
        }
        request.message.echo().map(Reply::Payload)
    }

    /// Handles a response to `<service>.start`.
    pub(crate) fn handle_start_response(&mut self, cx: &mut Context, response: &Message) {
        let topic = response.topic();
        let service = self.service.as_ref();
        if !service.is_some_and(|service| service.known.has_topic(topic, exec_method::START)) {
            return cx.complain(format!(
                "{topic} response ignored: not the execution service"
            ));
        }
        let errnum = response.errnum();
        if errnum != 0 {
            let service = self.service.as_ref();
            let has_answered = service.is_some_and(|service| service.has_answered);
            let loss = Loss {
                why: &errno::failure(topic, errnum, None),
                // A service that is not registered has started nothing.
                was_delivered: errnum != ENOSYS || has_answered,
            };
            return self.stop(cx, &loss);
        }
        let (id, report) = if let Some(TypedPayload::StartResponse(report)) = response.typed() {
            (report.id, Report::Value(&report.event))
        } else {
            match response.read_request::<StartResponse<Json<'_>>>() {
                Ok(start) => (start.id, Report::Json(start)),
                Err(error) => {
                    return cx.complain(format!("start response ignored: {}", error.text));
                }
            }
        };
        if let Some(service) = &mut self.service {
            service.has_answered = true;
        }
        if let Err(fault) = take_report(&self.writer, cx, id, &report) {
            let kind = report.kind();
            cx.complain(format!("`{kind}` response for {id} ignored: {fault}"));
        }
        if !is_outstanding(cx, id) {
            self.outstanding.remove(&id);
        }
    }

    /// Stops sending start requests until the next exec-hello, whose sender takes over the jobs. The outstanding requests
    /// end in slices.
    fn stop(&mut self, cx: &mut Context, loss: &Loss<'_>) {
        let Loss { why, was_delivered } = *loss;
        if self.service.take().is_none() {
            return;
        }
        cx.set_exec_service(&self.writer, None);
        cx.log_line(format!("the execution service is gone: {why}"));
        for ping in self.barriers.drain(..) {
            let text = format!("not all start requests were sent: {why}");
            cx.reject(&ping, &RequestError::new(EAGAIN, text));
        }
        self.lost = LostStarts {
            jobs: std::mem::take(&mut self.outstanding),
            was_delivered,
        };
        self.run_next_slice(cx);
    }

    /// Ends the next start requests of a service that is gone, else sends the next ones to its successor.
    pub(crate) fn run_next_slice(&mut self, cx: &mut Context) {
        if self.has_backlog() {
            return self.send_slice(cx);
        }
        let was_delivered = self.lost.was_delivered;
        for _ in 0..self.per_slice {
            let Some(id) = self.lost.jobs.pop_first() else {
                break;
            };
            let exec = cx.jobs.exec_mut(&self.writer, id);
            let input = ExecInput::ServiceLost { was_delivered };
            if exec.is_some_and(|(_, exec)| exec.advance(input).is_ok()) {
                self.queue_start(cx, id);
                // A job that has ended and was not delivered can be cleaned up now.
                cx.revisit(id);
            }
        }
        self.accept_next(cx);
    }

    /// Handles the disconnect of a peer, which may be the service.
    pub(crate) fn disconnect(&mut self, cx: &mut Context, origin: &[u8]) {
        let service = self.service.as_ref();
        if service.is_some_and(|service| service.origin == origin) {
            let loss = Loss {
                why: "it disconnected",
                was_delivered: true,
            };
            self.stop(cx, &loss);
        }
        let next = self.next.as_ref();
        if next.is_some_and(|(_, service)| service.origin == origin) {
            self.next = None;
        }
    }

    /// Sends a signal to the tasks of a job (RFC 32).
    pub(crate) fn kill(&self, cx: &mut Context, id: JobId, signum: i32) {
        self.tell(cx, id, exec_method::KILL, &KillRequest { id, signum });
    }

    /// Requests that the service end the tasks of a job on ranks that the job has released.
    pub(crate) fn shrink(&self, cx: &mut Context, id: JobId, ranks: &IdSet) {
        let ranks = ranks.clone();
        self.tell(cx, id, exec_method::SHRINK, &ShrinkRequest { id, ranks });
    }

    /// Requests again that tasks end on the ranks that a job has released: the service may not have had the request.
    fn repeat_shrink(&self, cx: &mut Context, id: JobId) {
        let elastic = cx.jobs.record(id).and_then(Record::elastic);
        let released = elastic.map(|elastic| &elastic.released);
        if let Some(ranks) = released.filter(|ranks| !ranks.is_empty()).cloned() {
            self.shrink(cx, id, &ranks);
        }
    }

    /// Sends the service the new expiration of a job.
    pub(crate) fn set_expiration(&self, cx: &mut Context, id: JobId, expiration: f64) {
        let request = ExpirationRequest { id, expiration };
        self.tell(cx, id, exec_method::EXPIRATION, &request);
    }

    /// Sends the service a request about a job, if it has the job, without expecting a response.
    fn tell(&self, cx: &mut Context, id: JobId, method: &str, payload: &impl Payload) {
        if is_outstanding(cx, id)
            && let Some(topic) = self.topic(method)
        {
            cx.notify(&topic, payload);
        }
    }

    /// The topic of a method of the execution service, if there is one.
    fn topic(&self, method: &str) -> Option<String> {
        let service = self.service.as_ref()?;
        Some(service.known.topic(method))
    }

    /// The statistics of `stats-get`.
    pub(crate) fn stats(&self) -> ExecStats<'_> {
        let service = self.service.as_ref();
        ExecStats {
            service: service.map(|service| service.known.name.as_str().into()),
            queued: (self.queued.len() + self.lost.jobs.len()) as u64,
        }
    }
}

/// Whether the start request of a job is outstanding.
fn is_outstanding(cx: &Context, id: JobId) -> bool {
    let job = cx.jobs.get(id);
    job.is_some_and(|job| job.dialogue.exec.is_outstanding())
}

/// Whether a service may have started a queued job, without an answer.
fn is_unanswered(cx: &Context, id: JobId) -> bool {
    let job = cx.jobs.get(id);
    job.is_some_and(|job| job.dialogue.exec.needs_reattach() && !job.record.has_started())
}

/// Sends the start request of a job. `journal` is that of all services that have had unanswered start requests.
fn send_start(
    writer: &ExecWriter,
    cx: &mut Context,
    id: JobId,
    topic: &str,
    journal: Option<&Arc<str>>,
) {
    if !cx.jobs.contains(id) {
        return;
    }
    let Some(jobspec) = cx.jobspec_of(id) else {
        return cx.fail_job(id, "exec", "the jobspec is not in the store");
    };
    let Some((record, exec)) = cx.jobs.exec_mut(writer, id) else {
        return;
    };
    let Some(r) = record.r() else {
        return;
    };
    let reattach = exec.needs_reattach();
    let job = StartingJob {
        id,
        userid: record.userid(),
        jobspec,
        reattach,
        r: Arc::clone(r),
        r_text: cx.claims.text(id, r),
        journal: journal
            .filter(|_| reattach && !record.has_started())
            .cloned(),
    };
    let has_exception = record.fatal_exception().is_some();
    if exec.advance(ExecInput::Send { reattach }).is_err() {
        return;
    }
    cx.send(rpc::typed_request(topic, TypedPayload::Start(job)));
    if has_exception {
        // The exception was announced to the previous service.
        cx.repeat_exception(id);
    }
}

/// A response to a start request: a value if the service is in this process, else JSON.
enum Report<'a> {
    Value(&'a ExecEvent<'static>),
    Json(StartResponse<Json<'a>>),
}

impl<'a> Report<'a> {
    fn kind(&self) -> StartResponseType {
        match self {
            Self::Value(event) => event.kind(),
            Self::Json(response) => response.kind,
        }
    }

    fn event(&self) -> Result<Cow<'a, ExecEvent<'a>>, penstock_flux::Error> {
        Ok(match self {
            Self::Value(event) => Cow::Borrowed(*event),
            Self::Json(response) => Cow::Owned(response.event()?),
        })
    }
}

/// Takes a response to a start request, if RFC 32 allows it now. The error is the service's fault.
fn take_report(
    writer: &ExecWriter,
    cx: &mut Context,
    id: JobId,
    report: &Report<'_>,
) -> Result<(), ReportFault> {
    let job = cx.jobs.get(id).ok_or(OrderFault::NotDue)?;
    let (has_ended, has_started) = (job.record.has_ended(), job.record.has_started());
    let has_finished = job.record.wait_status().is_some();
    // The order is checked before the data are read, which may be malformed.
    let input = match report.kind() {
        StartResponseType::Start => ExecInput::Start,
        StartResponseType::Reattached => ExecInput::Reattached,
        StartResponseType::Exception => ExecInput::Exception,
        StartResponseType::Finish => ExecInput::Finish { has_ended },
        // A final release is always allowed.
        StartResponseType::Release => ExecInput::Release {
            is_final: true,
            has_ended,
        },
    };
    check(cx, id, input)?;
    match &*report.event()? {
        ExecEvent::Start | ExecEvent::Reattached => {
            advance(writer, cx, id, input)?;
            // A service that does not know `reattached` answers `start` for a job that had started
            // before; and an earlier service may not have reported the start.
            let name = if has_started {
                eventlog::REATTACHED
            } else {
                eventlog::START
            };
            cx.log(id, Event::new(cx.now, name));
        }
        ExecEvent::Exception(exception) => {
            if !(0..=7).contains(&exception.severity) {
                let severity = exception.severity;
                return Err(format!("severity {severity}: expected 0 to 7").into());
            }
            let raised = eventlog::Exception {
                kind: exception.kind.to_string().into(),
                severity: exception.severity,
                note: exception.note.to_string().into(),
                userid: Some(cx.settings.owner),
                wait_status: exception.wait_status.map(i32::from),
            };
            cx.raise(id, Event::exception(cx.now, raised));
        }
        ExecEvent::Finish(finish) => {
            if finish.status < 0 {
                let status = finish.status;
                let text = format!("status {status}: expected a wait status, 0 or more");
                return Err(text.into());
            }
            advance(writer, cx, id, input)?;
            if !has_finished {
                cx.log(id, Event::with(cx.now, eventlog::FINISH, finish));
            }
        }
        ExecEvent::Release(release) => {
            let reported = ExecInput::Release {
                is_final: release.is_final,
                has_ended,
            };
            check(cx, id, reported)?;
            take_release(cx, id, release)?;
            advance(writer, cx, id, reported)?;
        }
    }
    Ok(())
}

/// Whether an input is allowed now.
fn check(cx: &Context, id: JobId, input: ExecInput) -> Result<(), ReportFault> {
    let exec = cx.jobs.get(id).map(|job| job.dialogue.exec);
    exec.unwrap_or(ExecState::Idle).after(input)?;
    Ok(())
}

fn advance(
    writer: &ExecWriter,
    cx: &mut Context,
    id: JobId,
    input: ExecInput,
) -> Result<(), ReportFault> {
    if let Some((_, exec)) = cx.jobs.exec_mut(writer, id) {
        exec.advance(input)?;
    }
    Ok(())
}

/// The changes of a job that follow from a release of the execution service.
struct CheckedRelease {
    /// Ranks that the running job has released itself and that are idle now; no epilog is due for them.
    shrunk: Option<FreeRanks>,
    /// The ranks of the job's end; `None` if the release names none of these.
    ending: Option<EndingRelease>,
}

/// The part of a release that belongs to the end of the job.
struct EndingRelease {
    ranks: FreeRanks,
    /// The event that is logged for it.
    event: eventlog::Release,
    /// The final release came before the job had ended.
    is_failure: bool,
    /// The fault of a final release that names ranks which are not the job's: it is accepted.
    fault: Option<String>,
}

/// Checks a release, and computes its changes. Changes nothing.
fn check_release(
    cx: &Context,
    job: &Job,
    release: &Release,
) -> Result<CheckedRelease, ReportFault> {
    let record = &job.record;
    let id = record.id();
    let is_final = release.is_final;
    let all = record.r().map_or_else(IdSet::new, |r| r.ranks());
    let mut left = all.clone();
    left.subtract(record.freed());
    left.subtract(record.retained());
    let mut named = match &release.ranks {
        ReleasedRanks::All => left.clone(),
        ReleasedRanks::Ranks(ranks) => ranks.clone(),
    };
    if named.is_empty() && !is_final {
        return Err("no ranks".to_owned().into());
    }
    let mut shrunk = None;
    if let Some(elastic) = record.elastic() {
        // The service may not know yet which ranks the job itself has released, and a new service
        // repeats what an earlier one has released.
        let idle = named.intersection(&elastic.released).intersection(&left);
        named.subtract(&elastic.released);
        if !is_final && !idle.is_empty() {
            let is_last = idle == left;
            left.subtract(&idle);
            shrunk = Some(FreeRanks {
                id,
                ranks: idle,
                is_final: is_last,
            });
        }
        if !is_final && named.is_empty() {
            return Ok(CheckedRelease {
                shrunk,
                ending: None,
            });
        }
    }
    let foreign = named.difference(&left);
    let fault = (!foreign.is_empty())
        .then(|| format!("ranks {foreign} are no longer the job's, or never were"));
    if let (false, Some(fault)) = (is_final, &fault) {
        return Err(fault.clone().into());
    }
    let released = if is_final { left.clone() } else { named };
    let event = eventlog::Release {
        ranks: if released == all {
            ReleasedRanks::All
        } else {
            ReleasedRanks::Ranks(released.clone())
        },
        is_final,
        is_retained: job.retains_release(&cx.settings),
    };
    let ending = EndingRelease {
        ranks: FreeRanks {
            id,
            is_final: released == left,
            ranks: released,
        },
        event,
        is_failure: is_final && !record.has_ended(),
        fault,
    };
    Ok(CheckedRelease {
        shrunk,
        ending: Some(ending),
    })
}

/// Frees the ranks that the execution service has released, or retains them for the epilog.
///
/// The final release frees all remaining ranks, whichever it names: no other release can follow.
///
/// # Errors
///
/// The release is invalid: nothing has changed.
fn take_release(cx: &mut Context, id: JobId, release: &Release) -> Result<(), ReportFault> {
    let Some(job) = cx.jobs.get(id) else {
        return Ok(());
    };
    let CheckedRelease { shrunk, ending } = check_release(cx, job, release)?;
    if let Some(shrunk) = shrunk {
        let event = eventlog::Release {
            ranks: ReleasedRanks::Ranks(shrunk.ranks.clone()),
            is_final: false,
            is_retained: false,
        };
        cx.claims.release(id, &shrunk.ranks);
        cx.add_effect(Effect::Free(shrunk));
        cx.log(id, Event::with(cx.now, eventlog::RELEASE, &event));
    }
    let Some(ending) = ending else {
        return Ok(());
    };
    if let Some(fault) = ending.fault {
        cx.log_line(format!("final release of {id}: {fault}"));
    }
    if ending.is_failure {
        cx.fail_job(id, "exec", "released without having finished");
    }
    if !ending.event.is_retained {
        cx.claims.release(id, &ending.ranks.ranks);
        if !ending.ranks.ranks.is_empty() {
            cx.add_effect(Effect::Free(ending.ranks));
        }
    }
    cx.log(id, Event::with(cx.now, eventlog::RELEASE, &ending.event));
    cx.revisit(id);
    Ok(())
}

/// Why a response of the service is invalid.
#[derive(Debug)]
enum ReportFault {
    /// Not allowed now.
    Order(OrderFault),
    /// Malformed data.
    Data(penstock_flux::Error),
    /// Well-formed data that is not acceptable.
    Value(String),
}

impl std::fmt::Display for ReportFault {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Order(error) => error.fmt(out),
            Self::Data(error) => write!(out, "malformed data: {error}"),
            Self::Value(text) => out.write_str(text),
        }
    }
}

impl From<OrderFault> for ReportFault {
    fn from(error: OrderFault) -> Self {
        Self::Order(error)
    }
}

impl From<penstock_flux::Error> for ReportFault {
    fn from(error: penstock_flux::Error) -> Self {
        Self::Data(error)
    }
}

impl From<String> for ReportFault {
    fn from(text: String) -> Self {
        Self::Value(text)
    }
}

#[cfg(test)]
mod tests {
    use penstock_jobspec::job_id::JobId;

    use super::ExecPeer;
    use crate::context::Context;
    use crate::dialogue::ExecState;
    use crate::fixture::{
        add_allocated_job, context, described, effects, message, request, response, writers,
    };
    use crate::settings::Settings;

    fn hello(exec: &mut ExecPeer, cx: &mut Context) {
        let hello = message(
            "job-manager.exec-hello",
            "exec",
            r#"{"service":"job-exec"}"#,
        );
        exec.hello(cx, request(&hello)).unwrap();
        assert_eq!(described(cx), ["send job-manager.exec-hello"]);
    }

    fn respond(exec: &mut ExecPeer, cx: &mut Context, id: JobId, rest: &str) -> Vec<String> {
        let payload = format!("{{\"id\":{},{rest}}}", id.get());
        exec.handle_start_response(cx, &response("job-exec.start", 0, &payload));
        described(cx)
    }

    #[test]
    fn a_job_is_started_finished_and_released() {
        let mut cx = context(Settings::default());
        let mut exec = ExecPeer::new(writers().exec);
        let id = add_allocated_job(&mut cx);
        exec.enqueue(&mut cx, id);
        exec.send_starts(&mut cx);
        assert!(effects(&mut cx).is_empty(), "there is no service");
        hello(&mut exec, &mut cx);
        exec.send_starts(&mut cx);
        assert_eq!(described(&mut cx), ["send job-exec.start"]);
        let early = respond(
            &mut exec,
            &mut cx,
            id,
            r#""type":"finish","data":{"status":0}"#,
        );
        assert!(early[0].ends_with("it has not started"), "{early:?}");
        let started = respond(&mut exec, &mut cx, id, r#""type":"start","data":{}"#);
        assert_eq!(started, ["log start"]);
        let finished = respond(
            &mut exec,
            &mut cx,
            id,
            r#""type":"finish","data":{"status":0}"#,
        );
        assert_eq!(finished, ["log finish"]);
        let part = r#""type":"release","data":{"ranks":"1","final":false}"#;
        let part = respond(&mut exec, &mut cx, id, part);
        assert_eq!(part, ["free 1 false", "log release", "revisit"]);
        let rest = r#""type":"release","data":{"ranks":"0","final":true}"#;
        let rest = respond(&mut exec, &mut cx, id, rest);
        assert_eq!(rest, ["free 0 true", "log release", "revisit"]);
        assert_eq!(cx.jobs.get(id).unwrap().dialogue.exec, ExecState::Released);
    }

    #[test]
    fn the_jobs_of_a_lost_service_are_reattached_by_the_next() {
        let mut cx = context(Settings::default());
        let mut exec = ExecPeer::new(writers().exec);
        let id = add_allocated_job(&mut cx);
        hello(&mut exec, &mut cx);
        exec.enqueue(&mut cx, id);
        exec.send_starts(&mut cx);
        effects(&mut cx);
        exec.disconnect(&mut cx, b"exec");
        let lost = [
            "write the execution service is gone: it disconnected",
            "revisit",
        ];
        assert_eq!(described(&mut cx), lost);
        hello(&mut exec, &mut cx);
        exec.send_starts(&mut cx);
        assert_eq!(described(&mut cx), ["send job-exec.start"]);
        let job = cx.jobs.get(id).unwrap();
        assert_eq!(job.dialogue.exec, ExecState::Requested { reattach: true });
    }
}
