//! `guest.input`: the log of a job's standard input (RFC 24), as clients of Flux have written it.

use std::collections::BTreeMap;

use penstock_flux::errno::EPIPE;
use penstock_flux::guest_log::{self, Data, InputHeader, LogLine, Redirect};
use penstock_flux::{RequestError, eventlog};
use penstock_idset::IdSet;
use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use serde_json::Value;

use super::shell_options::{is_set, jobspec};
use crate::context::Context;
use crate::event::Event;

/// The key of the log of a job's standard input, below the job's.
pub(crate) const INPUT_LOG: &str = "guest.input";

/// The most bytes of a job's log that the store retains.
const MAX_RETAINED_BYTES: usize = 1 << 20;

/// The severity (RFC 5424) of the message that input is not retained.
const WARNING: u8 = 4;

/// The log of a job's standard input so far; empty if the job has not started.
pub(crate) fn text(cx: &mut Context, id: JobId) -> String {
    cx.write_events();
    let events = cx.read_store(|store| store.eventlog(id));
    let mut events = events.lines().filter_map(|line| Event::parse(line).ok());
    let Some(start) = events.find(|event| event.name == eventlog::START) else {
        return String::new();
    };
    let mut log = String::new();
    for event in first_events(cx, id, &start) {
        event.write(&mut log);
    }
    log.push_str(&cx.read_store(|store| store.input(id)));
    log
}

/// The events of the log that one of the job's events implies: those of the start are the first ones of the log.
pub(crate) fn first_events(cx: &mut Context, id: JobId, event: &Event) -> Vec<Event> {
    if event.name != eventlog::START {
        return Vec::new();
    }
    let at = event.timestamp;
    let header = Event::with(at, guest_log::HEADER, &InputHeader::default());
    let redirect = jobspec(cx, id).as_ref().and_then(file).map(|path| {
        let redirect = Redirect {
            stream: "stdin".into(),
            rank: "all".into(),
            path: path.into(),
        };
        Event::with(at, guest_log::REDIRECT, &redirect)
    });
    [header].into_iter().chain(redirect).collect()
}

/// The file that is the standard input of the tasks.
fn file(jobspec: &Jobspec) -> Option<String> {
    let stdin = jobspec.attribute("system.shell.options.input.stdin")?;
    let path = stdin.get("path").and_then(Value::as_str)?;
    Some(path.to_owned())
}

/// The logs of running jobs whose input has been written.
#[derive(Debug, Default)]
pub(crate) struct InputLogs {
    jobs: BTreeMap<JobId, InputLog>,
}

#[derive(Debug, Default)]
struct InputLog {
    bytes: usize,
    /// Whether the log has as much as is retained.
    is_full: bool,
    /// The tasks whose input has ended.
    ended: IdSet,
}

impl InputLog {
    /// The log as the store has it; it retains nothing of a terminal, where users type passwords.
    fn load(cx: &mut Context, id: JobId, ntasks: u64) -> Self {
        let lines = cx.read_store(|store| store.input(id));
        let jobspec = jobspec(cx, id);
        let terminal = jobspec
            .as_ref()
            .and_then(|jobspec| jobspec.attribute("system.shell.options.pty"));
        let mut log = Self {
            bytes: lines.len(),
            is_full: is_set(terminal),
            ended: IdSet::new(),
        };
        for event in lines.lines().filter_map(|line| Event::parse(line).ok()) {
            log.is_full |= event.name == guest_log::LOG;
            if let Some(data) = event.read::<Data<'_>>() {
                log.record_end(&data, ntasks);
            }
        }
        log
    }

    fn retains(&self, length: usize) -> bool {
        !self.is_full && self.bytes + length <= MAX_RETAINED_BYTES
    }

    fn record_end(&mut self, data: &Data<'_>, ntasks: u64) {
        if data.eof == Some(true) {
            self.ended.union_with(&tasks(data, ntasks));
        }
    }
}

/// The tasks that a request names.
fn tasks(data: &Data<'_>, ntasks: u64) -> IdSet {
    if *data.rank == *"all" {
        let last = u32::try_from(ntasks.saturating_sub(1)).unwrap_or(u32::MAX);
        return IdSet::with_range(0..=last);
    }
    data.rank.parse().unwrap_or_default()
}

impl InputLogs {
    fn of(&mut self, cx: &mut Context, id: JobId, ntasks: u64) -> &mut InputLog {
        let entry = self.jobs.entry(id);
        entry.or_insert_with(|| InputLog::load(cx, id, ntasks))
    }

    /// Checks that input can be written: with EPIPE if that of all tasks of the job has ended, or that of a task that the
    /// request names.
    pub(crate) fn check_open(
        &mut self,
        cx: &mut Context,
        id: JobId,
        data: &Data<'_>,
        ntasks: u64,
    ) -> Result<(), RequestError> {
        let log = self.of(cx, id, ntasks);
        let tasks = tasks(data, ntasks);
        let has_ended = if *data.rank == *"all" {
            tasks.is_subset(&log.ended)
        } else {
            tasks.intersects(&log.ended)
        };
        if has_ended {
            let text = format!("the standard input of job {id} has ended");
            return Err(RequestError::new(EPIPE, text));
        }
        Ok(())
    }

    /// The length of the input of a request that the log will retain.
    pub(crate) fn retained_bytes(
        &mut self,
        cx: &mut Context,
        id: JobId,
        data: &Data<'_>,
        ntasks: u64,
    ) -> u64 {
        let length = data.data.as_ref().map_or(0, |text| text.len());
        let log = self.of(cx, id, ntasks);
        if log.retains(length) {
            length as u64
        } else {
            0
        }
    }

    /// Adds input that has been written. Returns the events that the log has got.
    pub(crate) fn append(
        &mut self,
        cx: &mut Context,
        id: JobId,
        mut data: Data<'static>,
        ntasks: u64,
    ) -> Vec<Event> {
        let at = cx.now;
        let log = self.of(cx, id, ntasks);
        log.record_end(&data, ntasks);
        let mut events = Vec::new();
        let length = data.data.as_ref().map_or(0, |text| text.len());
        if data.data.is_some() && !log.retains(length) {
            if !log.is_full {
                log.is_full = true;
                let message = format!(
                    "standard input after {} bytes of this log is not retained",
                    log.bytes
                );
                let line = LogLine {
                    level: WARNING,
                    message: message.into(),
                };
                events.push(Event::with(at, guest_log::LOG, &line));
            }
            (data.data, data.encoding) = (None, None);
        }
        if data.data.is_some() || data.eof == Some(true) {
            events.push(Event::with(at, guest_log::DATA, &data));
        }
        for event in &events {
            let mut line = String::new();
            event.write(&mut line);
            log.bytes += line.len();
            cx.store_input(id, &line);
        }
        events
    }

    /// Forgets a job that has ended.
    pub(crate) fn remove(&mut self, id: JobId) {
        self.jobs.remove(&id);
    }
}
