//! The logs of a job's execution and output, as clients of Flux read them, and their standard input.
//!
//! `guest.exec.eventlog` follows from the job's events. `guest.output` (RFC 24) has what the execution service retains:
//! `Relays` has the requests to that service that are made for clients.

use std::collections::{BTreeMap, HashMap};
use std::mem;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::errno::{EAGAIN, EFBIG, EMSGSIZE, ENODATA, ENOENT, ENOSYS, EPIPE};
use penstock_flux::eventlog;
use penstock_flux::exec::{Finish, InputRequest, OutputRequest, OutputResponse};
use penstock_flux::guest_log::{
    self, Complete, Data, Header, Redirect, ShellInit, ShellStart, Taskmap,
};
use penstock_flux::job_info::{EventlogWatchResponse, LookupResponse};
use penstock_flux::kvs::{self, Dirent};
use penstock_flux::topic::exec_method;
use penstock_flux::{EmptyResponse, RequestError, StreamCancelRequest};
use penstock_idset::IdSet;
use penstock_jobspec::Layout;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::Value;

use crate::authorize::PermittedJob;
use crate::context::Context;
use crate::event::Event;
use crate::quota;
use crate::rpc::{self, Handled, Reply, Request};
use crate::state::State;

use super::input_log::{INPUT_LOG, InputLogs};
use super::lookup_bytes::{LookupBytes, MAX_GUEST_LOOKUP_BYTES};
use super::shell_options::{is_set, jobspec};
use crate::shell_defaults::F58_PLAIN;

/// The key of the log of a job's execution, below the job's.
pub(crate) const EXECUTION_LOG: &str = "guest.exec.eventlog";
/// The key of the log of a job's output.
pub(crate) const OUTPUT_LOG: &str = "guest.output";

/// The most bytes of standard input in the copies of one request to several tasks.
const MAX_COPIED_INPUT_BYTES: usize = 4 << 20;
/// Approximate size of the request about the input of one task, without the input, in bytes.
const INPUT_OVERHEAD_BYTES: usize = 64;

/// The most bytes of output in one response to a lookup.
const MAX_LOOKUP_BYTES: usize = 16 << 20;

/// A log of a job that can be watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobLog {
    /// The job's events (RFC 21).
    Events,
    /// The events of its execution.
    Execution,
    /// Its output (RFC 24).
    Output,
    /// Its standard input (RFC 24).
    Input,
}

impl JobLog {
    /// The log that a request names by its path.
    pub(crate) fn named(path: Option<&str>) -> Result<Self, RequestError> {
        match path {
            None | Some("eventlog") => Ok(Self::Events),
            Some(EXECUTION_LOG) => Ok(Self::Execution),
            Some(OUTPUT_LOG) => Ok(Self::Output),
            Some(INPUT_LOG) => Ok(Self::Input),
            Some(other) => Err(RequestError::not_found(format!(
                "unknown path `{}`: expected eventlog, {EXECUTION_LOG}, {INPUT_LOG} or {OUTPUT_LOG}",
                other.escape_debug()
            ))),
        }
    }
}

/// Sends events as the lines of a watched log.
pub(crate) fn send_lines(cx: &mut Context, request: &Message, events: &[Event]) {
    for event in events {
        let mut line = String::new();
        event.write(&mut line);
        cx.respond_with(request, &EventlogWatchResponse { event: line.into() });
    }
}

// --- execution

/// The log of a job's execution so far; empty if it has no resources to be executed on.
pub(crate) fn execution_log(cx: &mut Context, id: JobId) -> String {
    // A pending job can have a long eventlog.
    if cx.jobs.get(id).is_none_or(|job| job.r().is_none()) {
        return String::new();
    }
    cx.write_events();
    let events = cx.read_store(|store| store.eventlog(id));
    let mut log = String::new();
    for event in events.lines().filter_map(|line| Event::parse(line).ok()) {
        for line in execution_events(cx, id, &event) {
            line.write(&mut log);
        }
    }
    log
}

/// The events of a job's execution that one of the job's events implies.
pub(crate) fn execution_events(cx: &mut Context, id: JobId, event: &Event) -> Vec<Event> {
    let at = event.timestamp;
    match &*event.name {
        eventlog::START => {
            let size = cx
                .jobs
                .get(id)
                .and_then(|job| job.r())
                .map_or(0, |r| r.nnodes());
            let jobspec = jobspec(cx, id);
            let interactive = jobspec
                .as_ref()
                .and_then(|jobspec| jobspec.attribute("system.shell.options.pty"))
                .and_then(|terminal| terminal.get("interactive"));
            let init = ShellInit {
                leader_rank: 0,
                size: size as u64,
                service: guest_log::shell_service(id),
                terminal: is_set(interactive).then_some(guest_log::TERMINAL),
            };
            let tasks_by_node =
                with_layout(cx, id, |layout| layout.tasks_by_node().collect::<Vec<_>>());
            let taskmap = Taskmap::new(tasks_by_node.unwrap_or_default());
            vec![
                Event::new(at, guest_log::INIT),
                Event::new(at, guest_log::STARTING),
                Event::with(at, guest_log::SHELL_INIT, &init),
                Event::with(at, guest_log::SHELL_START, &ShellStart { taskmap }),
            ]
        }
        eventlog::FINISH => {
            let status = event.read().map_or(0, |finish: Finish| finish.status);
            let complete = Complete { status };
            vec![Event::with(at, guest_log::TASKS_COMPLETE, &complete)]
        }
        eventlog::RELEASE => {
            let release: Option<eventlog::Release> = event.read();
            let is_final = release.is_some_and(|release| release.is_final);
            let done = is_final.then(|| Event::new(at, guest_log::EXECUTION_DONE));
            done.into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// The result of a function of a job's layout, if the job has R and the tasks fit.
fn with_layout<T>(cx: &mut Context, id: JobId, read: impl FnOnce(&Layout<'_>) -> T) -> Option<T> {
    let jobspec = jobspec(cx, id)?;
    let r = cx.jobs.get(id)?.r()?;
    let layout = Layout::new(&jobspec, r).ok()?;
    Some(read(&layout))
}

/// The number of tasks: by R if the job has it.
fn task_count(cx: &mut Context, id: JobId) -> u64 {
    let placed = with_layout(cx, id, |layout| layout.tasks_by_node().sum::<u64>())
        .filter(|&placed| placed > 0);
    placed.unwrap_or_else(|| {
        cx.jobs
            .record(id)
            .map_or(1, |record| record.spec().ntasks.max(1))
    })
}

// --- output

/// The client that gets the whole output of a job at once.
#[derive(Debug)]
pub(crate) enum OutputReader {
    /// By `job-info.lookup`: the response without the output.
    JobInfo(LookupResponse),
    /// By `kvs.lookup`.
    Kvs,
}

/// The form in which a client gets output.
#[derive(Debug)]
enum Delivery {
    /// Event by event.
    Watch,
    /// All at once: the log so far.
    Lookup(OutputReader, String),
}

/// A request for output that the execution service answers.
#[derive(Debug)]
struct OutputRelay {
    /// The client's request, without its payload.
    request: Message,
    /// The topic to cancel it.
    cancel: String,
    delivery: Delivery,
    /// The length of the log so far that counts for the user, in bytes.
    counted_bytes: usize,
    /// The ranks of the job's tasks.
    ranks: String,
    /// The streams that are retained.
    streams: Vec<RetainedStream>,
}

/// A stream whose output the execution service retains.
#[derive(Debug)]
struct RetainedStream {
    name: &'static str,
    /// Whether each line has the rank of its task in front.
    is_labelled: bool,
    /// Whether all lines are of one task.
    is_of_one_task: bool,
    /// The first bytes of a line with a label, or of a character, whose other bytes have not arrived.
    held: Vec<u8>,
}

impl RetainedStream {
    /// Takes the next bytes. Returns the parts that are complete, each with the rank of its task if that is known.
    fn take(&mut self, bytes: &[u8]) -> Vec<(Option<String>, Vec<u8>)> {
        let mut data = mem::take(&mut self.held);
        data.extend_from_slice(bytes);
        let complete = if self.is_labelled {
            let end = data.iter().rposition(|byte| *byte == b'\n');
            end.map_or(0, |end| end + 1)
        } else {
            data.len() - unfinished_bytes(&data)
        };
        self.held = data.split_off(complete);
        self.parts(data)
    }

    /// Takes the end of the stream: returns the part that is left.
    fn finish(&mut self) -> Vec<(Option<String>, Vec<u8>)> {
        let rest = mem::take(&mut self.held);
        self.parts(rest)
    }

    /// Divides complete lines by their labels, those of one task without, or takes bytes of several tasks as a whole.
    fn parts(&self, data: Vec<u8>) -> Vec<(Option<String>, Vec<u8>)> {
        if data.is_empty() {
            return Vec::new();
        }
        // A client labels an event, not the lines in it.
        let lines = data.split_inclusive(|byte| *byte == b'\n');
        if !self.is_labelled && self.is_of_one_task {
            return lines.map(|line| (None, line.to_vec())).collect();
        }
        if !self.is_labelled {
            return vec![(None, data)];
        }
        lines
            .map(|line| {
                let (rank, text) = without_label(line);
                (rank, text.to_vec())
            })
            .collect()
    }
}

/// Takes the label of a task, `RANK: `, from a line.
fn without_label(line: &[u8]) -> (Option<String>, &[u8]) {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (rank, rest) = line.split_at(digits);
    match (std::str::from_utf8(rank), rest.strip_prefix(b": ")) {
        (Ok(rank), Some(text)) if !rank.is_empty() => (Some(rank.to_owned()), text),
        _ => (None, line),
    }
}

/// The requests for the input of several tasks that one request of a client has caused.
#[derive(Debug)]
struct InputRelay {
    request: Message,
    id: JobId,
    /// The request's data, and the number of the job's tasks.
    data: Data<'static>,
    ntasks: u64,
    outstanding: usize,
    error: Option<RequestError>,
}

#[derive(Debug)]
enum Relay {
    Output(Box<OutputRelay>),
    /// For the input relay of this number, to one task or to all.
    Input(u64, Option<u32>),
}

/// A client that writes to the standard input of one task of a job, or of all.
type Writer = (Vec<u8>, Option<u32>);

/// The position of bytes in what a writer writes.
#[derive(Clone, Copy, Debug)]
struct InputPosition {
    /// The number by which the execution service knows the writer.
    writer: u64,
    offset: u64,
}

/// The requests to the execution service that are outstanding for clients.
#[derive(Debug, Default)]
pub(crate) struct Relays {
    /// The requests by matchtag.
    by_matchtag: HashMap<u32, Relay>,
    inputs: BTreeMap<u64, InputRelay>,
    /// The position at which each writer to a running job continues.
    writers: BTreeMap<JobId, BTreeMap<Writer, InputPosition>>,
    input_logs: InputLogs,
    lookup_bytes: LookupBytes,
    last_number: u64,
}

impl Relays {
    /// Whether a request with this matchtag is outstanding.
    pub(crate) fn has(&self, matchtag: u32) -> bool {
        self.by_matchtag.contains_key(&matchtag)
    }

    /// `job-info.eventlog-watch` of `guest.output`.
    pub(crate) fn watch_output(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        job: &PermittedJob,
    ) -> Handled {
        self.begin(cx, request, job.id(), Delivery::Watch)
    }

    /// A lookup of `guest.output`: all output so far.
    pub(crate) fn look_up_output(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        id: JobId,
        reader: OutputReader,
    ) -> Handled {
        let job = cx.jobs.known(id)?;
        if !job.record.has_started() {
            let text = format!("job {id} has no {OUTPUT_LOG} yet");
            return Err(RequestError::not_found(text));
        }
        let delivery = Delivery::Lookup(reader, String::new());
        self.begin(cx, request, id, delivery)
    }

    fn begin(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        id: JobId,
        delivery: Delivery,
    ) -> Handled {
        if let Some(error) = &cx.outage {
            return Err(RequestError::new(error.errnum, error.text.clone()));
        }
        let record = &cx.jobs.known(id)?.record;
        if record.state() == State::Inactive && !record.has_started() {
            let text = format!("job {id} has not been executed");
            return Err(RequestError::not_found(text));
        }
        let ntasks = task_count(cx, id);
        let ranks = match ntasks {
            1 => "0".to_owned(),
            ntasks => format!("0-{}", ntasks - 1),
        };
        let mut relay = OutputRelay {
            request: request.message.header(),
            cancel: cx
                .exec_topic(exec_method::OUTPUT_CANCEL)
                .unwrap_or_default(),
            delivery,
            counted_bytes: 0,
            ranks,
            streams: Vec::new(),
        };
        let header = Event::with(cx.now, guest_log::HEADER, &Header::new(ntasks));
        relay.deliver(cx, &header);
        let paths = redirections(cx, id);
        let labels = labels(cx, id);
        for ((name, path), is_labelled) in ["stdout", "stderr"].into_iter().zip(paths).zip(labels) {
            match path {
                None => relay.streams.push(RetainedStream {
                    name,
                    is_labelled,
                    is_of_one_task: ntasks == 1,
                    held: Vec::new(),
                }),
                Some(path) => {
                    let redirect = Redirect {
                        stream: name.into(),
                        rank: relay.ranks.as_str().into(),
                        path: path.into(),
                    };
                    let event = Event::with(cx.now, guest_log::REDIRECT, &redirect);
                    relay.deliver(cx, &event);
                }
            }
        }
        let topic = cx.exec_topic(exec_method::OUTPUT);
        let (Some(topic), false) = (topic, relay.streams.is_empty()) else {
            relay.end(cx);
            return Ok(Reply::Deferred);
        };
        let names = relay.streams.iter().map(|stream| stream.name.into());
        let payload = OutputRequest {
            id,
            streams: Some(names.collect()),
            follow: Some(matches!(relay.delivery, Delivery::Watch)),
            unbuffered: None,
        };
        let matchtag = cx.next_matchtag();
        let message = rpc::request(&topic, &payload).with_matchtag(matchtag);
        cx.send(message.streaming());
        self.by_matchtag
            .insert(matchtag, Relay::Output(Box::new(relay)));
        Ok(Reply::Deferred)
    }

    /// Handles a response of the execution service. Returns the events that it adds to the log of a job's standard input.
    pub(crate) fn handle_response(
        &mut self,
        cx: &mut Context,
        response: &Message,
    ) -> Option<(JobId, Vec<Event>)> {
        let mut input = None;
        let is_last = match self.by_matchtag.get_mut(&response.matchtag) {
            Some(Relay::Output(relay)) => {
                let is_last = relay.take_response(cx, response);
                is_last || relay.count(cx, &mut self.lookup_bytes, response.matchtag)
            }
            Some(Relay::Input(number, task)) => {
                let (number, task) = (*number, *task);
                input = self.take_input_response(cx, number, task, response);
                true
            }
            None => false,
        };
        if is_last && let Some(Relay::Output(relay)) = self.by_matchtag.remove(&response.matchtag) {
            self.lookup_bytes
                .remove(relay.request.userid, relay.counted_bytes);
        }
        input
    }

    /// Forgets the standard input of a job that has ended.
    pub(crate) fn end_input(&mut self, id: JobId) {
        self.input_logs.remove(id);
        self.writers.remove(&id);
    }

    /// `job-info.eventlog-watch-cancel`: ends a stream of output. Returns whether the request names one.
    pub(crate) fn cancel_stream(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
    ) -> Result<bool, RequestError> {
        let cancel: StreamCancelRequest = request.payload()?;
        let origin = request.origin();
        let found = self.take_outputs(cx, |relay| {
            matches!(relay.delivery, Delivery::Watch)
                && rpc::is_request_of(&relay.request, origin, cancel.matchtag)
        });
        for relay in &found {
            cx.end_stream(&relay.request);
        }
        Ok(!found.is_empty())
    }

    /// Ends the requests for a client that has disconnected.
    pub(crate) fn disconnect(&mut self, cx: &mut Context, origin: &[u8]) {
        self.take_outputs(cx, |relay| relay.request.origin() == Some(origin));
        self.writers.retain(|_, writers| {
            writers.retain(|(route, _), _| route != origin);
            !writers.is_empty()
        });
    }

    /// Removes requests for output, and cancels them.
    fn take_outputs(
        &mut self,
        cx: &mut Context,
        is_one: impl Fn(&OutputRelay) -> bool,
    ) -> Vec<OutputRelay> {
        let is_one = |relay: &mut Relay| matches!(relay, Relay::Output(relay) if is_one(relay));
        let mut found = Vec::new();
        for (matchtag, relay) in self.by_matchtag.extract_if(|_, relay| is_one(relay)) {
            cx.release_matchtag(matchtag);
            if let Relay::Output(relay) = relay {
                self.lookup_bytes
                    .remove(relay.request.userid, relay.counted_bytes);
                cx.notify(&relay.cancel, &StreamCancelRequest { matchtag });
                found.push(*relay);
            }
        }
        found
    }

    /// The number of outstanding requests.
    pub(crate) fn len(&self) -> usize {
        self.by_matchtag.len()
    }

    // --- input

    /// `job-shell.ID.stdin`: writes to the standard input of tasks.
    pub(crate) fn write_stdin(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        job: &PermittedJob,
    ) -> Handled {
        let id = job.id();
        let data: Data<'_> = request.payload()?;
        let topic = request.message.topic();
        if *data.stream != *"stdin" {
            let text = format!("{topic}: stream `{}`: expected stdin", data.stream);
            return Err(RequestError::invalid(text));
        }
        let bytes = input_bytes(topic, &data)?;
        let ntasks = task_count(cx, id);
        let tasks = input_tasks(topic, &data, ntasks, bytes.len())?;
        let is_running = cx.jobs.known(id)?.record.state() == State::Run;
        let method = cx.exec_topic(exec_method::INPUT).filter(|_| is_running);
        let Some(method) = method else {
            return Err(not_accepted(id));
        };
        self.input_logs.check_open(cx, id, &data, ntasks)?;
        let retained = self.input_logs.retained_bytes(cx, id, &data, ntasks);
        quota::check_stored(cx, request.sender, retained)?;
        let origin = request.origin().unwrap_or_default().to_vec();
        self.last_number += 1;
        let number = self.last_number;
        let outstanding = tasks.len();
        for task in tasks {
            let position = self.advance_writer(cx, id, (origin.clone(), task), bytes.len());
            let payload = InputRequest {
                id,
                writer: position.writer,
                offset: position.offset,
                data: (!bytes.is_empty()).then(|| BASE64.encode(&bytes).into()),
                end: data.eof,
                task,
            };
            let matchtag = cx.next_matchtag();
            cx.send(rpc::request(&method, &payload).with_matchtag(matchtag));
            self.by_matchtag
                .insert(matchtag, Relay::Input(number, task));
        }
        let relay = InputRelay {
            request: request.message.header(),
            id,
            data: Data {
                stream: data.stream.into_string().into(),
                rank: data.rank.into_string().into(),
                encoding: data.encoding.map(|text| text.into_string().into()),
                data: data.data.map(|text| text.into_string().into()),
                eof: data.eof,
            },
            ntasks,
            outstanding,
            error: None,
        };
        self.inputs.insert(number, relay);
        Ok(Reply::Deferred)
    }

    /// Counts the bytes of a writer. Returns the position of the first one.
    fn advance_writer(
        &mut self,
        cx: &Context,
        id: JobId,
        writer: Writer,
        bytes: usize,
    ) -> InputPosition {
        self.last_number += 1;
        let first = InputPosition {
            // Unlike those of the writers before a restart.
            writer: cx.now.to_bits().wrapping_add(self.last_number),
            offset: 0,
        };
        let writers = self.writers.entry(id).or_default();
        let next = writers.entry(writer).or_insert(first);
        let position = *next;
        next.offset += bytes as u64;
        position
    }

    /// Forgets a writer whose input was rejected: its next input is that of another writer.
    fn remove_writer(&mut self, id: JobId, writer: &Writer) {
        if let Some(writers) = self.writers.get_mut(&id) {
            writers.remove(writer);
            if writers.is_empty() {
                self.writers.remove(&id);
            }
        }
    }

    /// Handles a response to a request for input. Returns the events that the log of the job's input has got.
    fn take_input_response(
        &mut self,
        cx: &mut Context,
        number: u64,
        task: Option<u32>,
        response: &Message,
    ) -> Option<(JobId, Vec<Event>)> {
        let errnum = response.errnum();
        if errnum != 0 {
            let relay = self.inputs.get(&number)?;
            let origin = relay.request.origin().unwrap_or_default().to_vec();
            self.remove_writer(relay.id, &(origin, task));
        }
        let relay = self.inputs.get_mut(&number)?;
        relay.outstanding -= 1;
        // The data of a task that has closed its input is discarded.
        if ![0, EPIPE].contains(&errnum) && relay.error.is_none() {
            let text = response.error_text().unwrap_or_default().into_owned();
            let is_not_accepted = [EAGAIN, ENOENT].contains(&errnum);
            let errnum = if is_not_accepted { ENOSYS } else { errnum };
            relay.error = Some(RequestError::new(errnum, text));
        }
        if relay.outstanding > 0 {
            return None;
        }
        let relay = self.inputs.remove(&number)?;
        if let Some(error) = relay.error {
            cx.reject(&relay.request, &error);
            return None;
        }
        let InputRelay {
            id, data, ntasks, ..
        } = relay;
        // The job may have ended before this response, and its log with it.
        let record = cx.jobs.record(id);
        let is_active = record.is_some_and(|record| record.state() != State::Inactive);
        let events = if is_active {
            self.input_logs.append(cx, id, data, ntasks)
        } else {
            Vec::new()
        };
        cx.respond_with(&relay.request, &EmptyResponse {});
        Some((id, events))
    }
}

impl OutputRelay {
    fn deliver(&mut self, cx: &mut Context, event: &Event) {
        match &mut self.delivery {
            Delivery::Watch => send_lines(cx, &self.request, std::slice::from_ref(event)),
            Delivery::Lookup(_, log) => event.write(log),
        }
    }

    /// Handles a response of the execution service. Returns whether it is the last one.
    fn take_response(&mut self, cx: &mut Context, response: &Message) -> bool {
        match response.errnum() {
            0 => {}
            // Simulated execution has no output.
            ENODATA | ENOSYS => {
                self.end(cx);
                return true;
            }
            errnum => {
                let text = response.error_text().unwrap_or_default().into_owned();
                cx.reject(&self.request, &RequestError::new(errnum, text));
                return true;
            }
        }
        let part = response.read::<OutputResponse<'_>>().ok();
        let bytes = part
            .as_ref()
            .and_then(|part| BASE64.decode(&*part.data).ok());
        let (Some(part), Some(bytes)) = (part, bytes) else {
            cx.complain(format!("malformed response to {}", response.topic()));
            return false;
        };
        let mut streams = self.streams.iter_mut();
        let Some(stream) = streams.find(|stream| *part.stream == *stream.name) else {
            return false;
        };
        let name = stream.name;
        for (rank, data) in stream.take(&bytes) {
            self.send_data(cx, name, rank, &data);
        }
        let Delivery::Lookup(_, log) = &self.delivery else {
            return false;
        };
        let is_too_long = log.len() > MAX_LOOKUP_BYTES;
        if is_too_long {
            let text = format!("more than {MAX_LOOKUP_BYTES} bytes of output: watch {OUTPUT_LOG}");
            self.abort(cx, response.matchtag, &RequestError::new(EFBIG, text));
        }
        is_too_long
    }

    /// Counts what a lookup has collected. Returns whether it ends because all lookups of a guest have collected too much.
    fn count(&mut self, cx: &mut Context, counts: &mut LookupBytes, matchtag: u32) -> bool {
        let Delivery::Lookup(_, log) = &self.delivery else {
            return false;
        };
        let userid = self.request.userid;
        let all = counts.add(userid, log.len() - self.counted_bytes);
        self.counted_bytes = log.len();
        let is_too_much = userid != cx.settings.owner && all > MAX_GUEST_LOOKUP_BYTES;
        if is_too_much {
            cx.count_rejection(|rejected| &mut rejected.lookup_bytes);
            let text = format!(
                "all outstanding lookups of {OUTPUT_LOG} by user {userid} have {all} bytes: expected at most \
                 {MAX_GUEST_LOOKUP_BYTES}; look up fewer jobs at a time, or watch {OUTPUT_LOG}"
            );
            self.abort(cx, matchtag, &RequestError::new(EAGAIN, text));
        }
        is_too_much
    }

    /// Rejects the client's request, and cancels the one to the execution service, which has this matchtag.
    fn abort(&self, cx: &mut Context, matchtag: u32, error: &RequestError) {
        cx.reject(&self.request, error);
        cx.notify(&self.cancel, &StreamCancelRequest { matchtag });
    }

    fn send_data(
        &mut self,
        cx: &mut Context,
        stream: &'static str,
        rank: Option<String>,
        bytes: &[u8],
    ) {
        let text = std::str::from_utf8(bytes);
        let data = Data {
            stream: stream.into(),
            rank: rank.unwrap_or_else(|| self.ranks.clone()).into(),
            encoding: text.is_err().then(|| guest_log::BASE64.into()),
            data: Some(match text {
                Ok(text) => text.into(),
                Err(_) => BASE64.encode(bytes).into(),
            }),
            eof: None,
        };
        let event = Event::with(cx.now, guest_log::DATA, &data);
        self.deliver(cx, &event);
    }

    /// Ends each stream, and the response.
    fn end(&mut self, cx: &mut Context) {
        for mut stream in mem::take(&mut self.streams) {
            let name = stream.name;
            for (rank, data) in stream.finish() {
                self.send_data(cx, name, rank, &data);
            }
            let end = Data {
                stream: name.into(),
                rank: self.ranks.clone().into(),
                encoding: None,
                data: None,
                eof: Some(true),
            };
            let event = Event::with(cx.now, guest_log::DATA, &end);
            self.deliver(cx, &event);
        }
        match &mut self.delivery {
            Delivery::Watch => cx.end_stream(&self.request),
            Delivery::Lookup(OutputReader::JobInfo(response), log) => {
                let log = Value::from(mem::take(log));
                response.documents.insert(OUTPUT_LOG.to_owned(), log);
                cx.respond_with(&self.request, &*response);
            }
            Delivery::Lookup(OutputReader::Kvs, log) => {
                let val = Dirent::of(log.as_bytes());
                cx.respond_with(&self.request, &kvs::LookupResponse { val });
            }
        }
    }
}

/// The bytes at the end that begin a character of UTF-8 without ending it.
fn unfinished_bytes(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        _ => 0,
    }
}

/// The files that standard output and standard error go to, with the job's id filled in; `None` if a stream is retained.
fn redirections(cx: &mut Context, id: JobId) -> [Option<String>; 2] {
    let jobspec = jobspec(cx, id);
    let options = jobspec.as_ref();
    let options = options.and_then(|jobspec| jobspec.attribute("system.shell.options.output"));
    let path = |stream: &str| {
        let path = options?.get(stream)?.get("path")?.as_str()?;
        let f58 = id.f58();
        let path = path.replace("{{id}}", &f58).replace("{{jobid}}", &f58);
        Some(path.replace(F58_PLAIN, &id.f58_plain()))
    };
    // Standard error goes to the file of standard output unless it has one of its own.
    let stdout = path("stdout");
    let stderr = path("stderr").or_else(|| stdout.clone());
    [stdout, stderr]
}

/// Whether the lines of standard output and standard error have labels.
fn labels(cx: &mut Context, id: JobId) -> [bool; 2] {
    let jobspec = jobspec(cx, id);
    ["stdout", "stderr"].map(|stream| {
        let path = format!("system.shell.options.output.{stream}.label");
        let label = jobspec
            .as_ref()
            .and_then(|jobspec| jobspec.attribute(&path));
        is_set(label)
    })
}

fn input_bytes(topic: &str, data: &Data<'_>) -> Result<Vec<u8>, RequestError> {
    let text = data.data.as_deref().unwrap_or_default();
    match data.encoding.as_deref() {
        None | Some("UTF-8") => Ok(text.as_bytes().to_vec()),
        Some(guest_log::BASE64) => BASE64
            .decode(text)
            .map_err(|error| RequestError::invalid(format!("{topic}: invalid base64: {error}"))),
        Some(other) => {
            let other = other.escape_debug();
            let text = format!("{topic}: encoding `{other}`: expected UTF-8 or base64");
            Err(RequestError::invalid(text))
        }
    }
}

/// The tasks whose input is written: one by one, or all together (`None`).
fn input_tasks(
    topic: &str,
    data: &Data<'_>,
    ntasks: u64,
    bytes: usize,
) -> Result<Vec<Option<u32>>, RequestError> {
    if *data.rank == *"all" {
        return Ok(vec![None]);
    }
    let ranks: IdSet = data
        .rank
        .parse()
        .map_err(|error| RequestError::invalid(format!("{topic}: rank: {error}")))?;
    // Before the ranks are listed: a short text can stand for many.
    match ranks.last() {
        None => Err(RequestError::invalid(format!("{topic}: no rank"))),
        Some(task) if u64::from(task) >= ntasks => Err(RequestError::invalid(format!(
            "{topic}: rank {task}: the job has {ntasks} tasks"
        ))),
        Some(_) => {
            let count = usize::try_from(ranks.len()).unwrap_or(usize::MAX);
            check_copies(topic, bytes, count)?;
            Ok(ranks.iter().map(Some).collect())
        }
    }
}

/// Checks the size of the requests about input that is written to several tasks: each has a copy of it.
fn check_copies(topic: &str, bytes: usize, tasks: usize) -> Result<(), RequestError> {
    let size = (bytes + INPUT_OVERHEAD_BYTES).saturating_mul(tasks);
    if tasks == 1 || size <= MAX_COPIED_INPUT_BYTES {
        return Ok(());
    }
    let text = format!(
        "{topic}: {bytes} bytes for each of {tasks} tasks: expected at most {MAX_COPIED_INPUT_BYTES} bytes in all, \
         or rank `all`"
    );
    Err(RequestError::new(EMSGSIZE, text))
}

fn not_accepted(id: JobId) -> RequestError {
    RequestError::new(ENOSYS, format!("job {id} does not take standard input now"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{add_allocated_job, context};
    use crate::queries::Queries;
    use crate::settings::Settings;

    #[test]
    fn ranks_are_counted_before_they_are_listed() {
        let data: Data<'_> =
            serde_json::from_str(r#"{"stream": "stdin", "rank": "0-67108863"}"#).unwrap();
        let error = input_tasks("job-shell.stdin", &data, 1 << 26, 1).unwrap_err();
        assert_eq!(error.errnum, EMSGSIZE);
    }

    #[test]
    fn writers_are_forgotten_with_their_job_and_their_client() {
        let mut cx = context(Settings::default());
        let (id, other) = (add_allocated_job(&mut cx), add_allocated_job(&mut cx));
        let mut queries = Queries::default();
        for (id, client, task) in [
            (id, "one", None),
            (id, "one", Some(0)),
            (id, "two", None),
            (other, "two", None),
        ] {
            let writer = (client.as_bytes().to_vec(), task);
            queries.relays.advance_writer(&cx, id, writer, 1);
        }
        let writers = |queries: &Queries| -> usize {
            queries.relays.writers.values().map(BTreeMap::len).sum()
        };
        queries.disconnect(&mut cx, b"one");
        assert_eq!(writers(&queries), 2);
        let clean = Event::new(cx.now, eventlog::CLEAN);
        queries.send_event(&mut cx, id, &clean);
        assert_eq!(writers(&queries), 1);
        queries.disconnect(&mut cx, b"two");
        assert!(queries.relays.writers.is_empty());
    }
}
