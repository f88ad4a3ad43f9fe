//! The services `resource` and `groups`: administration, status, monitors, and the acquire stream.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use penstock_flux::broker::{GroupResponse, NameRequest};
use penstock_flux::errno::{EBUSY, EEXIST, EINVAL, EIO, ENODATA, ENOSYS};
use penstock_flux::resource::{
    Drain, DrainRequest, ExpirationRequest, GrowRequest, HistoryRequest, HistoryResponse,
    JournalResponse, MonitorRequest, MonitorResponse, PropertyRequest, ReloadRequest,
    SchedStatusResponse, StatsResponse, StatusResponse, TargetsRequest,
};
use penstock_flux::{Json, Payload, RequestError, StreamCancelRequest, Text, topic};
use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_rset::{Operation, ResourceSet, Scheduling};
use penstock_wire::Message;
use serde_json::{Map, Value, json};

use crate::event::{Change, Event, Overwrite, Targets};
use crate::{AcquireProvider, Config, Error, Ledger};

/// The group of the targets that are online.
const ONLINE_GROUP: &str = "broker.online";

/// An action that the module leaves to its instance. The order matters: an appended event is read back later.
#[derive(Debug)]
pub enum Effect {
    /// Append a line to the resource eventlog, and make it durable before the next responses are sent. If that fails, the
    /// module has to be made again from the eventlog.
    Append(String),
    /// Read the resource eventlog for [`ResourceModule::respond_events`].
    ReadEvents(Message),
    /// Read the resources that are allocated to jobs for [`ResourceModule::respond_sched_status`].
    ReadAllocated(Message),
    /// Read a file and the resources that are allocated to jobs for [`ResourceModule::respond_reload`].
    ReadFile(Reload),
    /// Let the scheduler allocate these resources, and no others.
    SetInventory(Box<ResourceSet>),
    /// Send a message.
    Send(Message),
    /// Write a warning to the instance's log.
    Warn(String),
}

/// EINVAL with the text. A failed store is EIO; its text is for the instance's log only.
impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        let errnum = if error.is_store() { EIO } else { EINVAL };
        Self::new(errnum, error.to_string())
    }
}

/// The response of a handler.
#[derive(Debug)]
pub(crate) enum Reply {
    /// An empty response.
    Empty,
    /// A response with this payload.
    Payload(Vec<u8>),
    /// None by the router: the handler has sent the responses, or will send them.
    Deferred,
}

/// A request to reload the inventory from a file.
#[derive(Debug)]
pub struct Reload {
    /// The file with R.
    pub path: PathBuf,
    request: Message,
    /// Whether targets with running jobs can be removed.
    is_forced: bool,
    now: f64,
}

/// The result of a handler.
pub(crate) type Handled = Result<Reply, RequestError>;

/// A `resource.monitor` stream: its sender reports these targets alive until it disconnects.
#[derive(Debug)]
struct Monitor {
    request: Message,
    ranks: IdSet,
}

/// The events of the inventory that a journal has beside those of the eventlog: they follow from the start of the instance.
#[derive(Debug)]
struct StartEvents {
    /// The start, in seconds since the epoch.
    time: f64,
    /// The inventory at the start.
    resources: Arc<ResourceSet>,
    online: IdSet,
}

/// The time between two events of one moment, in seconds: a reader of the journal continues after the time of the last
/// event that it has seen.
const EVENT_STEP_S: f64 = 1e-6;

/// The longest time by which events are ahead of the clock, in seconds.
const MAX_EVENT_LEAD_S: f64 = 1.0;

impl StartEvents {
    /// `restart`, `online` and `resource-define`.
    fn to_rows(&self) -> Vec<Map<String, Value>> {
        let (ranks, hosts) = (self.resources.ranks(), self.resources.nodelist());
        let online = self.online.to_string();
        let contexts = [
            (
                "restart",
                json!({"ranks": ranks.to_string(), "nodelist": hosts.to_string(), "online": ""}),
            ),
            ("online", json!({"idset": online})),
            ("resource-define", json!({"method": "configuration"})),
        ];
        let mut time = self.time;
        let rows = contexts.into_iter().map(|(name, context)| {
            let row = json!({"timestamp": time, "name": name, "context": context});
            time += EVENT_STEP_S;
            row
        });
        rows.filter_map(|row| match row {
            Value::Object(row) => Some(row),
            _ => None,
        })
        .collect()
    }
}

/// The resource module of an instance.
///
/// Sans-I/O: [`ResourceModule::handle`] takes requests, and the instance performs the [`Effect`]s. Changes are events of
/// its eventlog, which restores the module at a restart.
#[derive(Debug)]
pub struct ResourceModule {
    ledger: Ledger,
    provider: AcquireProvider,
    monitors: Vec<Monitor>,
    start: StartEvents,
    /// The requests that follow the eventlog.
    journals: Vec<Message>,
    /// The ranks on which the instance can execute jobs; `None` for any.
    executable: Option<IdSet>,
    /// The number of events in the eventlog.
    events: u64,
    last_event_time: f64,
    /// Effects to be performed before the next message is handled.
    effects: Vec<Effect>,
    /// Responses to be sent once the events that they report are durable.
    responses: Vec<Message>,
    /// Whether the ledger has changed since the provider was updated.
    changed: bool,
    /// Whether the schedulable resources may have changed since they were set.
    inventory_changed: bool,
    log: Vec<String>,
}

/// Applies an event of the eventlog; an invalid one changes nothing.
fn replay(ledger: &mut Ledger, line: &str) -> Result<(), Error> {
    if let Some(event) = Event::from_json(line)? {
        let mut next = ledger.clone();
        next.apply(&event)?;
        *ledger = next;
    }
    Ok(())
}

/// The events of the eventlog as JSON, without those that are left out at a start.
fn read_events(lines: &[String]) -> Vec<Map<String, Value>> {
    let valid = lines.iter().filter(|line| Event::from_json(line).is_ok());
    valid
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

impl ResourceModule {
    /// Creates the module of an instance that was started with `base` at the time `now`, and replays its eventlog, whose lines
    /// have the numbers of their rows in the store. An invalid one is left out, and named in the log. Jobs can
    /// be executed on the ranks `executable`; `None` for any.
    ///
    /// # Errors
    ///
    /// The configuration names hosts that never were, or the inventory has ranks on which no jobs can be executed.
    pub fn new<'a>(
        base: Arc<ResourceSet>,
        config: Config,
        executable: Option<IdSet>,
        eventlog: impl IntoIterator<Item = (i64, &'a str)>,
        now: f64,
    ) -> Result<Self, Error> {
        let mut ledger = Ledger::new(base, config)?;
        let (mut events, mut log) = (0, Vec::new());
        for (row, line) in eventlog {
            events += 1;
            if let Err(error) = replay(&mut ledger, line) {
                log.push(format!(
                    "store: row {row} of `resource_events` is left out: {error}"
                ));
            }
        }
        ledger.check()?;
        let resources = Arc::clone(ledger.resources());
        check_executable(executable.as_ref(), &resources.ranks())?;
        Ok(Self {
            start: StartEvents {
                time: now,
                resources: Arc::clone(&resources),
                online: ledger.online(),
            },
            journals: Vec::new(),
            provider: AcquireProvider::new(resources, ledger.exclude(), &ledger.up()),
            ledger,
            monitors: Vec::new(),
            executable,
            events,
            // Of the last one of the start.
            last_event_time: now + EVENT_STEP_S + EVENT_STEP_S,
            effects: Vec::new(),
            responses: Vec::new(),
            changed: false,
            inventory_changed: true,
            log,
        })
    }

    /// The inventory and the state of its targets.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Applies another configuration.
    ///
    /// # Errors
    ///
    /// It names hosts that never were; the configuration is the former one then.
    pub fn configure(&mut self, config: Config, now: f64) -> Result<(), Error> {
        let mut next = self.ledger.clone();
        next.configure(config)?;
        let mut changes = Vec::new();
        let excluded = next.exclude() - self.ledger.exclude();
        if !excluded.is_empty() {
            changes.push(Change::Exclude(next.targets_of(&excluded)));
        }
        let included = self.ledger.exclude() - next.exclude();
        if !included.is_empty() {
            changes.push(Change::Unexclude(next.targets_of(&included)));
        }
        let lines = changes.into_iter().map(|change| {
            let event = Event {
                timestamp: self.event_time(now),
                change,
            };
            event.to_json()
        });
        for line in lines.collect::<Result<Vec<_>, _>>()? {
            self.append(line);
        }
        self.ledger = next;
        self.changed = true;
        Ok(())
    }

    pub(crate) fn respond(&mut self, request: &Message, handled: Handled) {
        let response = match handled {
            Ok(Reply::Deferred) => return,
            Ok(Reply::Empty) => Message::response_to(request, 0, None),
            Ok(Reply::Payload(payload)) => Message::response_to(request, 0, Some(payload)),
            Err(RequestError { errnum: EIO, text }) => {
                self.log.push(format!("{}: {text}", request.topic()));
                Message::error_to(request, EIO, "internal error: see the log")
            }
            Err(RequestError { errnum, text }) => Message::error_to(request, errnum, &text),
        };
        if !request.is_noresponse() {
            self.responses.push(response);
        }
    }

    /// Takes the effects of the last call, to be performed at once: until there are no more.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Takes the output of a round: the responses, which are to be sent when the eventlog is durable, and the changes of the
    /// inventory.
    pub fn take_output(&mut self) -> Vec<Effect> {
        self.refresh();
        let mut effects = self.take_effects();
        if std::mem::take(&mut self.inventory_changed) {
            let inventory = Box::new(self.provider.schedulable());
            effects.push(Effect::SetInventory(inventory));
        }
        effects.extend(std::mem::take(&mut self.log).into_iter().map(Effect::Warn));
        let mut responses = std::mem::take(&mut self.responses);
        responses.extend(self.provider.take_changes());
        effects.extend(responses.into_iter().map(Effect::Send));
        effects
    }

    /// Hands the ledger's changes to the provider.
    fn refresh(&mut self) {
        if std::mem::take(&mut self.changed) {
            let resources = Arc::clone(self.ledger.resources());
            let (exclude, up) = (self.ledger.exclude(), self.ledger.up());
            self.provider.update(resources, exclude, &up);
            self.inventory_changed = true;
        }
    }

    pub(crate) fn push_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn append(&mut self, line: String) {
        self.events += 1;
        if !self.journals.is_empty()
            && let Ok(event) = serde_json::from_str(&line)
        {
            let payload = journal_payload(vec![event], None);
            let journals = self.journals.iter();
            let responses =
                journals.map(|request| Message::response_to(request, 0, Some(payload.clone())));
            self.responses.extend(responses);
        }
        self.effects.push(Effect::Append(line));
    }

    /// The time of an event that happens now; no two events have the same.
    fn event_time(&mut self, now: f64) -> f64 {
        let lead = self.last_event_time - now;
        // A clock that is set back by more than that is followed.
        self.last_event_time = if (0.0..MAX_EVENT_LEAD_S).contains(&lead) {
            self.last_event_time + EVENT_STEP_S
        } else {
            now
        };
        self.last_event_time
    }

    /// Applies an event and appends it to the eventlog: both, or neither.
    fn record(&mut self, change: Change, now: f64) -> Result<(), Error> {
        let event = Event {
            timestamp: self.event_time(now),
            change,
        };
        let mut next = self.ledger.clone();
        next.apply(&event)?;
        self.append(event.to_json()?);
        self.ledger = next;
        self.changed = true;
        Ok(())
    }

    /// Records a change of these ranks, if there are any.
    fn record_of(
        &mut self,
        ranks: &IdSet,
        change: impl FnOnce(Targets) -> Change,
        now: f64,
    ) -> Result<(), Error> {
        if ranks.is_empty() {
            return Ok(());
        }
        let targets = self.ledger.targets_of(ranks);
        self.record(change(targets), now)
    }

    // --- streams

    pub(crate) fn acquire(&mut self, request: &Message) -> Reply {
        // A stream without responses would lock other schedulers out.
        if !request.is_noresponse() {
            self.refresh();
            let response = self.provider.acquire(request);
            self.responses.push(response);
        }
        Reply::Deferred
    }

    pub(crate) fn cancel_acquire(&mut self, request: &Message) -> Handled {
        let StreamCancelRequest { matchtag } = request.read_request()?;
        let last = self
            .provider
            .cancel(request.origin().unwrap_or_default(), matchtag);
        self.responses.extend(last);
        Ok(Reply::Empty)
    }

    pub(crate) fn monitor(&mut self, request: &Message, now: f64) -> Handled {
        request.require_streaming()?;
        let MonitorRequest { ranks } = request.read_request()?;
        let ranks: IdSet = ranks
            .parse()
            .map_err(|error| RequestError::invalid(format!("resource.monitor: {error}")))?;
        self.ledger.check_ranks(&ranks)?;
        if ranks.is_empty() {
            let text = "resource.monitor: expected at least one rank";
            return Err(RequestError::invalid(text));
        }
        let new = self.ledger.add_monitor(&ranks);
        if let Err(error) = self.record_of(&new, Change::Online, now) {
            self.ledger.remove_monitor(&ranks);
            return Err(error.into());
        }
        let response = MonitorResponse {
            ranks: ranks.clone(),
        };
        let mut request = request.clone();
        request.set_payload(None);
        self.monitors.push(Monitor { request, ranks });
        Ok(Reply::Payload(response.to_payload()))
    }

    pub(crate) fn cancel_monitor(&mut self, request: &Message, now: f64) -> Handled {
        let StreamCancelRequest { matchtag } = request.read_request()?;
        let index = self.monitors.iter().position(|monitor| {
            monitor.request.matchtag == matchtag && monitor.request.origin() == request.origin()
        });
        if let Some(index) = index {
            let monitor = self.monitors.remove(index);
            let last = Message::error_to(&monitor.request, ENODATA, "");
            self.end_monitor(&monitor, now)?;
            self.responses.push(last);
        }
        Ok(Reply::Empty)
    }

    pub(crate) fn disconnect(&mut self, peer: &[u8], now: f64) {
        self.provider.disconnect(peer);
        self.journals
            .retain(|request| request.origin().unwrap_or_default() != peer);
        let monitors = std::mem::take(&mut self.monitors);
        let (ended, others) = monitors
            .into_iter()
            .partition(|monitor| monitor.request.origin().unwrap_or_default() == peer);
        self.monitors = others;
        for monitor in ended {
            if let Err(error) = self.end_monitor(&monitor, now) {
                self.log.push(format!("resource: {error}"));
            }
        }
    }

    /// Records as offline the targets of an ended monitor that no other one reports alive.
    fn end_monitor(&mut self, monitor: &Monitor, now: f64) -> Result<(), Error> {
        let lost = &self.ledger.remove_monitor(&monitor.ranks) & &self.ledger.resources().ranks();
        // Without an event they are offline all the same.
        self.changed = true;
        if !lost.is_empty() {
            self.log.push(format!("resource: ranks {lost} are offline"));
        }
        self.record_of(&lost, Change::Offline, now)
    }

    pub(crate) fn unmonitor(&mut self, request: &Message, now: f64) -> Handled {
        let TargetsRequest { targets } = request.read_request()?;
        let ranks = &self.ledger.find(&targets)? & &self.ledger.offline();
        self.record_of(&ranks, Change::Unmonitor, now)?;
        Ok(Reply::Empty)
    }

    // --- administration

    /// Targets that are drained with a reason are an error, unless `mode` says what becomes of them. Excluded ones always
    /// are: no job gets them anyway, and a target has one of these states.
    pub(crate) fn drain(&mut self, request: &Message, now: f64) -> Handled {
        let payload: DrainRequest<'_> = request.read_request()?;
        let named = self.ledger.find(&payload.targets)?;
        let excluded = &named & self.ledger.exclude();
        if !excluded.is_empty() {
            return Err(RequestError::invalid(self.described(&excluded, "excluded")));
        }
        let reason = payload.reason.map(Text::into_string).unwrap_or_default();
        let drains = self.ledger.drains();
        let without_reason = drains.without_reason();
        let kept = || {
            let mut ranks = &named - drains.ranks();
            if !reason.is_empty() {
                ranks.union_with(&(&named & &without_reason));
            }
            (ranks, Overwrite::Keep)
        };
        let (ranks, overwrite) = match payload.mode.as_deref() {
            None => {
                let with_reason = &(&named & drains.ranks()) - &without_reason;
                if !with_reason.is_empty() {
                    let text = self.described(&with_reason, "already drained");
                    return Err(RequestError::new(EEXIST, text));
                }
                kept()
            }
            Some("update") => kept(),
            Some("overwrite") => (named, Overwrite::Reason),
            Some("force-overwrite") => (named, Overwrite::All),
            Some(mode) => {
                let mode = mode.escape_debug();
                let text = format!(
                    "resource.drain: unknown mode `{mode}`: expected update, overwrite, force-overwrite"
                );
                return Err(RequestError::invalid(text));
            }
        };
        let change = |targets| Change::Drain {
            targets,
            reason,
            overwrite,
        };
        self.record_of(&ranks, change, now)?;
        Ok(Reply::Empty)
    }

    pub(crate) fn undrain(&mut self, request: &Message, now: f64) -> Handled {
        let payload: DrainRequest<'_> = request.read_request()?;
        let ranks = self.ledger.find(&payload.targets)?;
        let drained = self.ledger.drains().ranks();
        match payload.mode.as_deref() {
            // The last three are those of clients of Flux.
            Some("force" | "update" | "overwrite" | "force-overwrite") => {}
            None => {
                let others = &ranks - drained;
                if !others.is_empty() {
                    let text = self.described(&others, "not drained");
                    return Err(RequestError::invalid(text));
                }
            }
            Some(mode) => {
                let mode = mode.escape_debug();
                let text = format!("resource.undrain: unknown mode `{mode}`: expected force");
                return Err(RequestError::invalid(text));
            }
        }
        let reason = payload.reason.map(Text::into_string);
        let change = |targets| Change::Undrain {
            targets,
            reason: reason.filter(|text| !text.is_empty()),
        };
        let ranks = &ranks & drained;
        self.record_of(&ranks, change, now)?;
        Ok(Reply::Empty)
    }

    /// The state of targets as text for people: `ranks 1-2 not drained: node[1-2]`.
    fn described(&self, ranks: &IdSet, state: &str) -> String {
        let plural = if ranks.len() == 1 { "" } else { "s" };
        let hosts = self.ledger.targets_of(ranks).hosts;
        format!("rank{plural} {ranks} {state}: {hosts}")
    }

    pub(crate) fn grow(&mut self, request: &Message, now: f64) -> Handled {
        let GrowRequest { r } = request.read_request()?;
        let rejection = |error: &dyn std::fmt::Display| {
            RequestError::invalid(format!("resource.grow: {error}"))
        };
        let more = ResourceSet::from_json(r.as_str()).map_err(|error| rejection(&error))?;
        more.require_execution()
            .map_err(|error| rejection(&error))?;
        self.check_growth(&more)
            .map_err(|error| rejection(&error))?;
        self.record(Change::Grow(more), now)?;
        Ok(Reply::Empty)
    }

    fn check_growth(&self, more: &ResourceSet) -> Result<(), Error> {
        self.ledger.check_growth(more)?;
        let resources = self.ledger.resources();
        let grown = resources.combine(Operation::Union, more, Scheduling::Left)?;
        check_executable(self.executable.as_ref(), &grown.ranks())
    }

    pub(crate) fn reload(&mut self, request: &Message, now: f64) -> Handled {
        let ReloadRequest { path, xml, force } = request.read_request()?;
        if xml {
            let text = "resource.reload: expected a file with R: XML files of hwloc are not read";
            return Err(RequestError::new(ENOSYS, text));
        }
        self.effects.push(Effect::ReadFile(Reload {
            path: path.into_string().into(),
            request: request.header(),
            is_forced: force,
            now,
        }));
        Ok(Reply::Deferred)
    }

    /// Responds to [`Effect::ReadFile`] with the text of the file, or the reason why it cannot be read: adds and removes targets
    /// until they are those of the file.
    pub fn respond_reload(
        &mut self,
        reload: &Reload,
        text: Result<String, String>,
        allocated: Result<ResourceSet, Error>,
    ) {
        let handled = self.reload_from(reload, text, allocated);
        self.respond(&reload.request, handled);
    }

    fn reload_from(
        &mut self,
        reload: &Reload,
        text: Result<String, String>,
        allocated: Result<ResourceSet, Error>,
    ) -> Handled {
        let rejection = |error: &dyn std::fmt::Display| {
            let path = reload.path.display();
            RequestError::invalid(format!("resource.reload: `{path}`: {error}"))
        };
        let text = text.map_err(|error| rejection(&error))?;
        let wanted = ResourceSet::from_json(&text).map_err(|error| rejection(&error))?;
        wanted
            .require_execution()
            .map_err(|error| rejection(&error))?;
        let present = Arc::clone(self.ledger.resources());
        let mut common = present.nodes();
        let changed = common.find(|node| wanted.node(node.rank).is_some_and(|new| new != *node));
        if let Some(node) = changed {
            let text = format!(
                "rank {} differs from that of the instance: a node that changes needs a new rank",
                node.rank
            );
            return Err(rejection(&text));
        }
        if wanted.ranks().is_empty() {
            return Err(rejection(&"expected at least one target"));
        }
        let removed = &present.ranks() - &wanted.ranks();
        let busy = &allocated?.ranks() & &removed;
        if !busy.is_empty() && !reload.is_forced {
            let hosts = present.restrict(&busy).nodelist();
            let text =
                format!("jobs are running on {hosts}, which would be removed (force it with -f)");
            return Err(RequestError::new(EBUSY, format!("resource.reload: {text}")));
        }
        let added = &wanted.ranks() - &present.ranks();
        // Targets are added first: an instance keeps at least one.
        if !added.is_empty() {
            let more = wanted.restrict(&added);
            self.check_growth(&more)
                .map_err(|error| rejection(&error))?;
            self.record(Change::Grow(more), reload.now)?;
        }
        self.record_of(&removed, Change::Shrink, reload.now)?;
        Ok(Reply::Empty)
    }

    pub(crate) fn shrink(&mut self, request: &Message, now: f64) -> Handled {
        let TargetsRequest { targets } = request.read_request()?;
        let ranks = self.ledger.find(&targets)?;
        if ranks == self.ledger.resources().ranks() {
            let text = "resource.shrink: expected at least one target to stay";
            return Err(RequestError::invalid(text));
        }
        self.record_of(&ranks, Change::Shrink, now)?;
        Ok(Reply::Empty)
    }

    pub(crate) fn add_property(&mut self, request: &Message, now: f64) -> Handled {
        let PropertyRequest { targets, name } = request.read_request()?;
        let ranks = self.ledger.find(&targets)?;
        let mut changed = (**self.ledger.resources()).clone();
        changed.add_property(&name, &ranks).map_err(Error::from)?;
        let ranks = &ranks - &self.with_property(&name);
        let name = name.into_string();
        let change = |targets| Change::PropertyAdd { targets, name };
        self.record_of(&ranks, change, now)?;
        Ok(Reply::Empty)
    }

    pub(crate) fn remove_property(&mut self, request: &Message, now: f64) -> Handled {
        let PropertyRequest { targets, name } = request.read_request()?;
        let ranks = self.ledger.find(&targets)?;
        let others = &ranks - &self.with_property(&name);
        if !others.is_empty() {
            let name = name.escape_debug();
            let text = format!("without the property `{name}`: {others}");
            return Err(RequestError::invalid(text));
        }
        let name = name.into_string();
        let change = |targets| Change::PropertyRemove { targets, name };
        self.record_of(&ranks, change, now)?;
        Ok(Reply::Empty)
    }

    fn with_property(&self, name: &str) -> IdSet {
        let properties = self.ledger.resources().properties();
        properties.get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn set_expiration(&mut self, request: &Message, now: f64) -> Handled {
        let ExpirationRequest { expiration: end } = request.read_request()?;
        if !(end.is_finite() && end >= 0.0) {
            let text =
                "resource.expiration: expected `expiration`: seconds since the epoch, 0 for none";
            return Err(RequestError::invalid(text));
        }
        let end = Some(end).filter(|&end| end != 0.0);
        let mut changed = (**self.ledger.resources()).clone();
        changed
            .set_expiration(end)
            .map_err(|error| RequestError::invalid(format!("resource.expiration: {error}")))?;
        if end != self.ledger.resources().expiration() {
            self.record(Change::Expiration(end), now)?;
        }
        Ok(Reply::Empty)
    }

    // --- status

    pub(crate) fn status(&self) -> Vec<u8> {
        let resources = self.ledger.resources().to_json();
        let drains = self.ledger.drains().groups().into_iter();
        StatusResponse {
            r: Json(&resources),
            drain: drains
                .map(|(drain, ranks)| {
                    let drain = Drain {
                        timestamp: drain.timestamp,
                        reason: drain.reason.clone(),
                    };
                    (ranks.to_string(), drain)
                })
                .collect(),
            online: self.ledger.online().to_string().into(),
            offline: self.ledger.offline().to_string().into(),
            exclude: self.ledger.exclude().to_string().into(),
            torpid: "".into(),
        }
        .to_payload()
    }

    /// Responds to [`Effect::ReadAllocated`].
    pub fn respond_sched_status(
        &mut self,
        request: &Message,
        allocated: Result<ResourceSet, Error>,
    ) {
        let handled = self.sched_status(allocated);
        self.respond(request, handled);
    }

    fn sched_status(&mut self, allocated: Result<ResourceSet, Error>) -> Handled {
        self.refresh();
        let all = self.provider.schedulable();
        let ranks = all.ranks();
        let down = all.restrict(&(&ranks - self.provider.up()));
        // Allocations on removed or excluded targets are not the scheduler's.
        let allocated = allocated?.restrict(&ranks);
        let response = SchedStatusResponse {
            all: Json(&all.to_json()),
            down: Json(&down.to_json()),
            allocated: Json(&allocated.to_json()),
        };
        Ok(Reply::Payload(response.to_payload()))
    }

    /// Responds to [`Effect::ReadEvents`].
    pub fn respond_events(&mut self, request: &Message, events: Result<Vec<String>, Error>) {
        let handled = if request.topic() == topic::resource::JOURNAL {
            self.open_journal(request, events)
        } else {
            self.history(request, events)
        };
        self.respond(request, handled);
    }

    /// Sends the events so far, then an empty response, then each further event.
    fn open_journal(&mut self, request: &Message, events: Result<Vec<String>, Error>) -> Handled {
        let events = read_events(&events?);
        let timestamp = |event: &Map<String, Value>| {
            let time = event.get("timestamp").and_then(Value::as_f64);
            time.unwrap_or_default()
        };
        // The instance may have had other starts before.
        let is_before = |event: &Map<String, Value>| timestamp(event) <= self.start.time;
        let (before, after): (Vec<_>, Vec<_>) = events.into_iter().partition(is_before);
        let resources = self.start.resources.to_json();
        let parts = [
            (before, None),
            (self.start.to_rows(), Some(Json(&resources))),
            (after, None),
        ];
        let parts = parts.into_iter().filter(|(events, _)| !events.is_empty());
        for (events, r) in parts.chain([(Vec::new(), None)]) {
            let payload = journal_payload(events, r);
            self.responses
                .push(Message::response_to(request, 0, Some(payload)));
        }
        let mut request = request.clone();
        request.set_payload(None);
        self.journals.push(request);
        Ok(Reply::Deferred)
    }

    pub(crate) fn journal(&mut self, request: &Message) -> Handled {
        request.require_streaming()?;
        if !request.is_noresponse() {
            self.push_effect(Effect::ReadEvents(request.clone()));
        }
        Ok(Reply::Deferred)
    }

    pub(crate) fn cancel_journal(&mut self, request: &Message) -> Handled {
        let StreamCancelRequest { matchtag } = request.read_request()?;
        let is_named = |journal: &Message| {
            journal.matchtag == matchtag && journal.origin() == request.origin()
        };
        if let Some(index) = self.journals.iter().position(is_named) {
            let last = Message::error_to(&self.journals.remove(index), ENODATA, "");
            self.responses.push(last);
        }
        Ok(Reply::Empty)
    }

    fn history(&self, request: &Message, events: Result<Vec<String>, Error>) -> Handled {
        let HistoryRequest { targets } = request.read_request()?;
        let mut events = read_events(&events?);
        if let Some(targets) = targets {
            self.select(&mut events, &targets)?;
        }
        Ok(Reply::Payload(HistoryResponse { events }.to_payload()))
    }

    /// Keeps the events about some ranks or hosts, which may have left the inventory.
    fn select(&self, events: &mut Vec<Map<String, Value>>, text: &str) -> Result<(), RequestError> {
        if let Ok(ranks) = text.parse::<IdSet>() {
            events.retain(|event| named::<IdSet>(event, "idset").intersects(&ranks));
            return Ok(());
        }
        let hosts: Hostlist = text
            .parse()
            .map_err(|error| RequestError::invalid(format!("resource.history: {error}")))?;
        let mut unknown = hosts.difference(&self.ledger.resources().nodelist());
        events.retain(|event| {
            let about: Hostlist = named(event, "nodelist");
            unknown = unknown.difference(&about);
            about.has_intersection(&hosts)
        });
        if unknown.is_empty() {
            return Ok(());
        }
        let text = format!("no such hosts: {unknown}");
        Err(RequestError::invalid(text))
    }

    pub(crate) fn stats(&self) -> Vec<u8> {
        StatsResponse {
            ranks: self.ledger.resources().ranks(),
            up: self.ledger.up(),
            drained: self.ledger.drains().ranks().len(),
            acquired: self.provider.is_acquired(),
            monitors: self.monitors.len() as u64,
            events: self.events,
        }
        .to_payload()
    }

    pub(crate) fn group(&self, request: &Message) -> Handled {
        let NameRequest { name } = request.read_request()?;
        if &*name != ONLINE_GROUP {
            let name = name.escape_debug();
            let text = format!("no group `{name}`: expected {ONLINE_GROUP}");
            return Err(RequestError::not_found(text));
        }
        let response = GroupResponse {
            members: self.ledger.online().to_string().into(),
        };
        Ok(Reply::Payload(response.to_payload()))
    }
}

fn journal_payload(events: Vec<Map<String, Value>>, r: Option<Json<'_>>) -> Vec<u8> {
    JournalResponse { events, r }.to_payload()
}

/// Checks that jobs can be executed on all ranks of an inventory.
fn check_executable(executable: Option<&IdSet>, ranks: &IdSet) -> Result<(), Error> {
    let Some(executable) = executable else {
        return Ok(());
    };
    let others = ranks - executable;
    if others.is_empty() {
        return Ok(());
    }
    Err(Error::conflict(format!(
        "jobs run on this machine, which does not have ranks {others}\nhint: simulate execution with `--exec sim`, or share \
         this machine's cores among all jobs with `--oversubscribe`"
    )))
}

/// The targets in a stored event's context at a key; empty if it has no such key.
fn named<T: FromStr + Default>(event: &Map<String, Value>, key: &str) -> T {
    let text = event
        .get("context")
        .and_then(|context| context.get(key)?.as_str());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
#[path = "module_tests.rs"]
mod tests;
