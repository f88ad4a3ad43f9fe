//! An execution service that runs nothing (RFC 32): each job takes the time that its jobspec
//! says, in real or virtual time, and ends well.
//!
//! A job lasts `attributes.system.exec.test.run_duration` (Flux Standard Duration, or seconds),
//! else its duration, else no time at all. Where it would outlast its time limit it ends there,
//! with the exception `timeout` and the status of a SIGTERM, as the real service would end it.
//! `NAME.expiration` moves that limit while the job runs.
//!
//! The crate is sans-IO: messages in, messages out, time as an argument.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use penstock_jobspec::duration;
use penstock_wire::{Kind, Message, STREAMING};
use serde::Deserialize;
use serde_json::{Value, json};

/// Wait status of a task that SIGTERM ended.
const TERMINATED: i32 = 15;
/// No such job.
const ENOENT: u32 = 2;
/// Invalid argument.
const EINVAL: u32 = 22;
/// Operation not permitted.
const EPERM: u32 = 1;
/// The instance owner's role (RFC 12).
const ROLE_OWNER: u32 = 1;
/// Not a known method.
const ENOSYS: u32 = 38;
/// Protocol error.
const EPROTO: u32 = 71;

#[derive(Deserialize)]
struct Start {
    id: u64,
    #[serde(default)]
    reattach: bool,
    jobspec: Jobspec,
    #[serde(rename = "R")]
    r: Option<R>,
}

#[derive(Deserialize)]
struct Jobspec {
    attributes: Attributes,
}

#[derive(Deserialize)]
struct Attributes {
    system: System,
}

#[derive(Deserialize)]
struct System {
    #[serde(default)]
    duration: f64,
    #[serde(default)]
    exec: Option<Exec>,
}

#[derive(Deserialize)]
struct Exec {
    #[serde(default)]
    test: Option<Test>,
}

#[derive(Deserialize)]
struct Test {
    run_duration: Option<Value>,
}

#[derive(Deserialize)]
struct R {
    execution: Execution,
}

#[derive(Deserialize)]
struct Execution {
    #[serde(default)]
    starttime: f64,
    #[serde(default)]
    expiration: f64,
}

#[derive(Deserialize)]
struct Raised {
    id: u64,
    severity: i64,
    wait_status: Option<i32>,
}

#[derive(Deserialize)]
struct Expiration {
    id: u64,
    /// Seconds since the epoch; 0 for none.
    expiration: f64,
}

#[derive(Debug)]
struct Running {
    /// The start request, to be answered until the final release.
    request: Message,
    /// When the job would end by itself.
    done: f64,
    /// When its time is over; infinite without a limit.
    limit: f64,
}

impl Running {
    fn end(&self) -> f64 {
        self.done.min(self.limit)
    }
}

/// When a job ends. The heap gives the earliest first, equal times by id.
#[derive(Clone, Copy, Debug, PartialEq)]
struct End {
    at: f64,
    id: u64,
}

impl Eq for End {}

impl Ord for End {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_time = other.at.total_cmp(&self.at);
        by_time.then_with(|| other.id.cmp(&self.id))
    }
}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The service.
#[derive(Debug)]
pub struct MockExec {
    name: String,
    running: HashMap<u64, Running>,
    ends: BinaryHeap<End>,
    failure: Option<String>,
}

impl MockExec {
    /// A service that registers under `name`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            running: HashMap::new(),
            ends: BinaryHeap::new(),
            failure: None,
        }
    }

    /// The messages that register the service with the broker and the job manager.
    pub fn start(&self) -> Vec<Message> {
        let name = &self.name;
        [
            ("service.add", json!({ "service": name })),
            ("event.subscribe", json!({ "topic": "job-exception" })),
            ("job-manager.exec-hello", json!({ "service": name })),
        ]
        .iter()
        .zip(1..)
        .map(|((topic, payload), tag)| {
            Message::request(topic, &payload.to_string()).with_matchtag(tag)
        })
        .collect()
    }

    /// Why the service cannot go on: its registration was refused.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Jobs that run now.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// When [`advance`](Self::advance) has something to do next.
    pub fn deadline(&self) -> Option<f64> {
        self.ends.peek().map(|end| end.at)
    }

    /// Takes one message in and appends the answers to `out`.
    pub fn handle(&mut self, message: &Message, now: f64, out: &mut Vec<Message>) {
        match message.kind {
            Kind::Request if message.service() == self.name => match message.method() {
                "start" if message.rolemask & ROLE_OWNER == 0 => {
                    let text = "only the instance owner may start jobs";
                    out.push(Message::error_to(message, EPERM, text));
                }
                "start" => self.begin(message, now, out),
                "expiration" => self.expire(message, now, out),
                // Another service has the jobs now: of this one nothing more is heard.
                "replaced" if message.rolemask & ROLE_OWNER != 0 => {
                    self.running.clear();
                    self.ends.clear();
                }
                "disconnect" => {}
                // There is nothing to signal, which is no fault of who asks.
                "ping" | "stats-get" | "kill" if message.is_noresponse() => {}
                "ping" => {
                    let payload = message.payload.clone();
                    out.push(Message::response_to(message, 0, payload));
                }
                "stats-get" => {
                    let stats = json!({ "running": self.running.len() }).to_string();
                    let payload = Some(Message::json_payload(&stats));
                    out.push(Message::response_to(message, 0, payload));
                }
                "kill" => out.push(Message::response_to(message, 0, None)),
                method => {
                    if !message.is_noresponse() {
                        let text = format!("the simulated execution has no `{method}`");
                        out.push(Message::error_to(message, ENOSYS, &text));
                    }
                }
            },
            Kind::Response if message.errnum() != 0 => {
                let (topic, errnum) = (message.topic(), message.errnum());
                let text = message.error_text().filter(|text| !text.is_empty());
                let text = text.map_or_else(String::new, |text| format!(": {text}"));
                self.failure = Some(format!("{topic} failed with errnum {errnum}{text}"));
            }
            Kind::Event if message.topic() == "job-exception" => self.interrupt(message, out),
            _ => {}
        }
    }

    fn begin(&mut self, request: &Message, now: f64, out: &mut Vec<Message>) {
        let payload = request.payload_json().unwrap_or(b"{}");
        let start: Start = match serde_json::from_slice(payload) {
            Ok(start) => start,
            Err(error) => return refuse(request, &error.to_string(), out),
        };
        let Start {
            id,
            reattach,
            jobspec,
            r,
        } = start;
        let system = jobspec.attributes.system;
        let duration = system.duration;
        let asked = system
            .exec
            .and_then(|exec| exec.test)
            .and_then(|test| test.run_duration);
        let lasts = match asked {
            None => Ok(None),
            Some(Value::String(text)) => duration::parse(&text)
                .map(Some)
                .map_err(|error| error.to_string()),
            Some(value) => value
                .as_f64()
                .map(Some)
                .ok_or_else(|| format!("run_duration {value}: expected a duration")),
        };
        let lasts = match lasts {
            Ok(lasts) => lasts,
            Err(note) => {
                respond(request, id, "exception", &exception("exec", &note), out);
                return respond(request, id, "release", &released(), out);
            }
        };
        let (starttime, expiration) = r.map_or((0.0, 0.0), |r| {
            (r.execution.starttime, r.execution.expiration)
        });
        // A job that is taken over goes on from when it began, to an end that may have been moved.
        let began = if reattach && starttime > 0.0 {
            starttime
        } else {
            now
        };
        // A job that starts gets its whole time, unless the resources end before.
        let known = !reattach && starttime > 0.0 && duration > 0.0;
        let whole = known && expiration >= starttime + duration;
        let limit = match (expiration > 0.0 && !whole, duration > 0.0) {
            (true, _) => expiration,
            (false, true) => began + duration,
            (false, false) => f64::INFINITY,
        };
        let done = match lasts {
            Some(lasts) => began + lasts,
            None if duration > 0.0 => limit,
            // Without a time limit of its own it takes no time, however long it might run.
            None => began,
        };
        let kind = if reattach { "reattached" } else { "start" };
        respond(request, id, kind, &json!({}), out);
        let mut request = request.clone();
        request.set_payload(None);
        let running = Running {
            request,
            done,
            limit,
        };
        let at = running.end();
        self.running.insert(id, running);
        self.end_at(id, at, now, out);
    }

    fn end_at(&mut self, id: u64, at: f64, now: f64, out: &mut Vec<Message>) {
        if at <= now {
            self.finish(id, out);
        } else {
            self.ends.push(End { at, id });
        }
    }

    /// Moves the time limit of a running job.
    fn expire(&mut self, request: &Message, now: f64, out: &mut Vec<Message>) {
        let refuse = |errnum: u32, text: &str| Message::error_to(request, errnum, text);
        let payload = request.payload_json().unwrap_or(b"{}");
        let parsed = serde_json::from_slice::<Expiration>(payload);
        let mut moved = None;
        let answer = match parsed {
            _ if request.rolemask & ROLE_OWNER == 0 => {
                refuse(EPERM, "only the instance owner may move an expiration")
            }
            Err(error) => refuse(EPROTO, &error.to_string()),
            Ok(Expiration { expiration, .. }) if !(expiration.is_finite() && expiration >= 0.0) => {
                refuse(EINVAL, "expected an expiration of 0 or a time")
            }
            Ok(Expiration { id, expiration }) => match self.running.get_mut(&id) {
                None => refuse(ENOENT, &format!("job {id} is not running")),
                Some(running) => {
                    let none = expiration == 0.0;
                    running.limit = if none { f64::INFINITY } else { expiration };
                    moved = Some((id, running.end()));
                    Message::response_to(request, 0, None)
                }
            },
        };
        if !request.is_noresponse() {
            out.push(answer);
        }
        if let Some((id, at)) = moved {
            self.end_at(id, at, now, out);
        }
    }

    /// A fatal exception ends the job at once.
    fn interrupt(&mut self, event: &Message, out: &mut Vec<Message>) {
        let payload = event.payload_json().unwrap_or(b"{}");
        if let Ok(raised) = serde_json::from_slice::<Raised>(payload)
            && raised.severity == 0
            && let Some(running) = self.running.remove(&raised.id)
        {
            // RFC 32: the wait status of the first fatal exception, as a shell's exit status.
            let status = raised.wait_status.map_or(TERMINATED, |status| {
                let signal = status & 0x7f;
                let code = if signal == 0 {
                    status >> 8 & 0xff
                } else {
                    128 + signal
                };
                code << 8
            });
            let finish = json!({ "status": status });
            respond(&running.request, raised.id, "finish", &finish, out);
            respond(&running.request, raised.id, "release", &released(), out);
        }
    }

    /// Ends the jobs whose time has come, in order of time, then id.
    pub fn advance(&mut self, now: f64, out: &mut Vec<Message>) {
        while let Some(end) = self.ends.peek().copied().filter(|end| end.at <= now) {
            self.ends.pop();
            // A job whose end was moved has another entry for it.
            let due = self.running.get(&end.id);
            if due.is_some_and(|running| running.end() <= now) {
                self.finish(end.id, out);
            }
        }
    }

    fn finish(&mut self, id: u64, out: &mut Vec<Message>) {
        let Some(running) = self.running.remove(&id) else {
            return;
        };
        let status = if running.done <= running.limit {
            0
        } else {
            let data = exception("timeout", "resource allocation expired");
            respond(&running.request, id, "exception", &data, out);
            TERMINATED
        };
        let finish = json!({ "status": status });
        respond(&running.request, id, "finish", &finish, out);
        respond(&running.request, id, "release", &released(), out);
    }
}

fn exception(kind: &str, note: &str) -> Value {
    json!({ "severity": 0, "type": kind, "note": note })
}

fn released() -> Value {
    json!({ "ranks": "all", "final": true })
}

fn respond(request: &Message, id: u64, kind: &str, data: &Value, out: &mut Vec<Message>) {
    let payload = format!("{{\"id\":{id},\"type\":\"{kind}\",\"data\":{data}}}");
    let payload = Some(Message::json_payload(&payload));
    let response = Message::response_to(request, 0, payload);
    let flags = response.flags | STREAMING;
    out.push(response.with_flags(flags));
}

/// A start request that cannot be read: where its id can be, the job fails and is released.
fn refuse(request: &Message, error: &str, out: &mut Vec<Message>) {
    let payload = request.payload_json().unwrap_or(b"{}");
    let value: Value = serde_json::from_slice(payload).unwrap_or_default();
    if let Some(id) = value.get("id").and_then(Value::as_u64) {
        let note = format!("malformed start request: {error}");
        respond(request, id, "exception", &exception("exec", &note), out);
        respond(request, id, "release", &released(), out);
    } else {
        out.push(Message::error_to(request, EPROTO, error));
    }
}

#[cfg(test)]
mod tests;
