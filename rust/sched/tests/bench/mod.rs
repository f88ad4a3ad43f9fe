//! A scheduler under test, with its outstanding requests, and jobs for it.
#![allow(dead_code, reason = "each test file uses a part")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::errno::ENODATA;
use penstock_sched::{Options, Phase, Scheduler};
use penstock_wire::{Message, MessageType};
use serde_json::{Value, json};

/// A scheduler, and its requests that the test has not answered yet.
pub struct Bench {
    pub scheduler: Scheduler,
    pub outstanding: Vec<Message>,
}

pub fn inventory() -> Value {
    json!({"version": 1, "execution": {
        "R_lite": [{"rank": "0-1", "children": {"core": "0-1"}}],
        "nodelist": ["n[0-1]"], "starttime": 0.0, "expiration": 0.0}})
}

pub fn jobspec(cores: u32) -> Value {
    json!({
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "t",
                       "with": [{"type": "core", "count": cores}]}],
        "tasks": [{"command": ["x"], "slot": "t", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 60}},
    })
}

pub fn body(message: &Message) -> Value {
    assert_eq!(message.errnum(), 0, "{:?}", message.error_text());
    message
        .payload_json()
        .map_or(Value::Null, |json| serde_json::from_slice(json).unwrap())
}

impl Bench {
    pub fn new(limit: Option<u32>) -> Self {
        let mut scheduler = Scheduler::new(Options {
            limit,
            ..Options::default()
        });
        scheduler.start();
        let outstanding = scheduler.take_out();
        Self {
            scheduler,
            outstanding,
        }
    }

    /// Answers the oldest outstanding request of a topic; streams stay open.
    pub fn answer(&mut self, topic: &str, payload: &Value) {
        let request = self.take_request(topic);
        let payload = (!payload.is_null()).then(|| Message::json_payload(&payload.to_string()));
        self.respond(&Message::response_to(&request, 0, payload));
    }

    pub fn reject(&mut self, topic: &str, errnum: u32) {
        let request = self.take_request(topic);
        self.respond(&Message::error_to(&request, errnum, "because"));
    }

    pub fn take_request(&mut self, topic: &str) -> Message {
        let place = self
            .outstanding
            .iter()
            .position(|message| message.topic() == topic);
        let place =
            place.unwrap_or_else(|| panic!("no request on {topic}: {:?}", self.outstanding));
        if self.outstanding[place].is_streaming() {
            self.outstanding[place].clone()
        } else {
            self.outstanding.remove(place)
        }
    }

    pub fn respond(&mut self, response: &Message) {
        self.scheduler.handle(response);
        self.outstanding.extend(self.scheduler.take_out());
    }

    /// Sends a request; returns the responses to it and to the requests that it lets proceed.
    pub fn request(&mut self, topic: &str, payload: &Value) -> Vec<Message> {
        let mut request = Message::request(topic, &payload.to_string());
        request.rolemask = 5;
        request.push_route(b"manager");
        self.scheduler.handle(&request);
        self.responses()
    }

    pub fn responses(&mut self) -> Vec<Message> {
        self.scheduler.schedule(1000.0);
        while self.scheduler.advance_forecasts(1000.0) {}
        let (responses, outstanding) = self
            .scheduler
            .take_out()
            .into_iter()
            .partition(|message| message.kind == MessageType::Response);
        self.outstanding.extend::<Vec<Message>>(outstanding);
        responses
    }

    /// A scheduler after the handshake but for the response to ready, with the running jobs in `held`.
    pub fn running(limit: Option<u32>, held: &[Value]) -> Self {
        let mut bench = Self::new(limit);
        bench.answer("service.add", &Value::Null);
        bench.answer("service.add", &Value::Null);
        let acquired = json!({"resources": inventory(), "up": "0-1"});
        bench.answer("resource.acquire", &acquired);
        for job in held {
            bench.answer("job-manager.sched-hello", job);
            let r = inventory().to_string();
            let val = json!({"ver": 1, "type": "val", "data": BASE64.encode(r)});
            bench.answer("kvs.lookup", &json!({ "val": val }));
        }
        bench.reject("job-manager.sched-hello", ENODATA);
        bench
    }

    pub fn ready(limit: Option<u32>, held: &[Value]) -> Self {
        let mut bench = Self::running(limit, held);
        bench.answer("job-manager.sched-ready", &json!({"count": 0}));
        assert_eq!(*bench.scheduler.phase(), Phase::Running);
        bench
    }

    pub fn alloc(&mut self, id: u64, cores: u32) -> Vec<Message> {
        let payload = json!({"id": id, "priority": 16, "userid": 0, "jobspec": jobspec(cores)});
        self.request("sched.alloc", &payload)
    }

    /// Lets the outstanding commit succeed; returns the responses that follow.
    pub fn commit(&mut self) -> Vec<Message> {
        self.answer("kvs.commit", &json!({"rootseq": 1}));
        self.take_responses()
    }

    /// Takes the responses that an answer has caused.
    pub fn take_responses(&mut self) -> Vec<Message> {
        let (responses, outstanding) = std::mem::take(&mut self.outstanding)
            .into_iter()
            .partition(|message| message.kind == MessageType::Response);
        self.outstanding = outstanding;
        responses
    }
}
