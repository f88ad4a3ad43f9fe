//! From registration to readiness: which message leads from which phase to the next.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_idset::IdSet;
use penstock_jobspec::fluid::Fluid;
use penstock_rset::ResourceSet;
use penstock_wire::{Message, STREAMING};
use serde::Deserialize;
use serde_json::json;

use crate::{EEXIST, ENODATA, Scheduler, Sent, describe, payload};

/// Where the scheduler is in its handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Service names are being registered.
    Registering,
    /// The inventory is awaited (RFC 28).
    Acquiring,
    /// The jobs that hold resources are being learnt (RFC 27, Hello).
    Greeting,
    /// The answer to ready is awaited.
    Readying,
    /// Alloc requests are served.
    Running,
    /// Over, and why.
    Failed(String),
}

/// A job that holds resources, as hello tells it.
#[derive(Debug, Deserialize)]
pub(crate) struct Held {
    id: u64,
    /// Ranks already given back.
    #[serde(default)]
    free: Option<String>,
}

/// What hello still waits for.
#[derive(Debug, Default)]
pub(crate) struct Hello {
    ended: bool,
    lookups: usize,
}

#[derive(Deserialize)]
struct Lookup {
    val: Value,
}

#[derive(Deserialize)]
struct Value {
    data: String,
}

impl Scheduler {
    /// Begins the handshake.
    pub fn start(&mut self) {
        for name in ["sched", "feasibility"] {
            let payload = json!({ "service": name }).to_string();
            self.ask("service.add", &payload, 0, Sent::Register(name));
        }
    }

    pub(crate) fn registered(&mut self, name: &str, response: &Message) {
        match response.errnum() {
            0 => {}
            // Somebody else may check feasibility; nobody else may schedule.
            EEXIST if name == "feasibility" => {}
            EEXIST => return self.fail("another scheduler is registered as `sched`".to_owned()),
            _ => return self.fail(describe(response)),
        }
        let left = self.sent.values().any(|it| matches!(it, Sent::Register(_)));
        if !left && self.phase == Phase::Registering {
            self.phase = Phase::Acquiring;
            // RFC 28 has no payload here: it is left out where a broker might mind.
            let payload = if self.options.grow {
                r#"{"grow-ok":true}"#
            } else {
                ""
            };
            self.ask("resource.acquire", payload, STREAMING, Sent::Acquire);
        }
    }

    /// The inventory is there: asks who holds what of it.
    pub(crate) fn greet(&mut self) {
        self.phase = Phase::Greeting;
        let payload = r#"{"partial-ok":true}"#;
        self.ask("job-manager.sched-hello", payload, STREAMING, Sent::Hello);
    }

    pub(crate) fn greeted(&mut self, tag: u32, response: &Message) {
        match response.errnum() {
            0 => {
                self.sent.insert(tag, Sent::Hello);
                let held: Held = match payload(response) {
                    Ok(held) => held,
                    Err(error) => return self.fail(error),
                };
                self.hello.lookups += 1;
                let key = format!("job.{}.R", Fluid(held.id).dothex());
                let lookup = json!({"namespace": "primary", "key": key, "flags": 0});
                self.ask("kvs.lookup", &lookup.to_string(), 0, Sent::Lookup(held));
            }
            ENODATA => {
                self.hello.ended = true;
                self.get_ready();
            }
            _ => self.fail(describe(response)),
        }
    }

    pub(crate) fn looked_up(&mut self, held: &Held, response: &Message) {
        self.hello.lookups -= 1;
        // A job that cannot be made out keeps nobody from scheduling the rest: what is not known
        // to be taken, the job manager does not let others have.
        let name = Fluid(held.id);
        match self.mark_allocated(held, response) {
            Ok(strange) if strange.is_empty() => {}
            Ok(strange) => self.log.push(format!(
                "job {name} also holds ranks {strange}, which are not in the inventory"
            )),
            Err(error) => self
                .log
                .push(format!("job {name} is not accounted for: {error}")),
        }
        self.get_ready();
    }

    fn mark_allocated(&mut self, held: &Held, response: &Message) -> Result<IdSet, String> {
        if response.errnum() != 0 {
            return Err(describe(response));
        }
        let lookup: Lookup = payload(response)?;
        let bytes = BASE64.decode(&lookup.val.data);
        let bytes = bytes.map_err(|error| format!("R is not base64: {error}"))?;
        let text = String::from_utf8(bytes).map_err(|error| format!("R is not text: {error}"))?;
        let r = ResourceSet::from_json(&text).map_err(|error| error.to_string())?;
        let freed = held.free.as_deref().map(str::parse::<IdSet>).transpose();
        let freed = freed.map_err(|error| error.to_string())?;
        let Some(engine) = &mut self.engine else {
            return Err("hello before acquire".to_owned());
        };
        let r = match freed {
            Some(freed) => r.restrict(&r.ranks().difference(&freed)),
            None => r,
        };
        engine.adopt(held.id, &r).map_err(|error| error.to_string())
    }

    fn get_ready(&mut self) {
        if self.phase == Phase::Greeting && self.hello.ended && self.hello.lookups == 0 {
            self.phase = Phase::Readying;
            let payload = match self.options.limit {
                None => json!({ "mode": "unlimited" }),
                Some(limit) => json!({ "mode": "limited", "limit": limit }),
            };
            let payload = payload.to_string();
            self.ask("job-manager.sched-ready", &payload, 0, Sent::Ready);
        }
    }

    pub(crate) fn readied(&mut self, response: &Message) {
        if response.errnum() == 0 {
            self.phase = Phase::Running;
            self.log.push("ready".to_owned());
        } else {
            self.fail(describe(response));
        }
    }
}
