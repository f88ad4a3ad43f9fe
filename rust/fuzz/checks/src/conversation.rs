//! Any bytes as a conversation with a service: what its neighbours and clients send it.
//!
//! The text has one step per line, of which the first word says what happens:
//!
//! | line | step |
//! |---|---|
//! | `owner TOPIC PAYLOAD` | the owner's service sends a request |
//! | `guest TOPIC PAYLOAD`, `other TOPIC PAYLOAD` | a client of another user sends one |
//! | `stream SENDER TOPIC PAYLOAD` | the same with the streaming flag |
//! | `response N ERRNUM PAYLOAD` | the service gets a response to one of its requests: N is 0 for the newest; an error ends the request |
//! | `leave SENDER` | a sender disconnects |
//! | `after SECONDS` | time passes |
//!
//! A payload is text as it is in a message, from the topic to the end of the line. Other lines are skipped.

use std::collections::{BTreeMap, BTreeSet};

use penstock_flux::{flags, role};
use penstock_wire::{Message, MessageType};

/// The largest number of steps that are done.
const MAX_STEPS: usize = 64;
/// The longest time that passes in one step, in seconds.
const MAX_PAUSE_S: f64 = 1e7;
/// The largest number of a service's outstanding requests that can be answered.
const MAX_OUTSTANDING: usize = 256;
/// The user id of the instance owner.
pub(crate) const OWNER: u32 = 1000;
/// The time of the first step, in seconds since the epoch.
pub(crate) const START_S: f64 = 1e9;

/// A service, which gets messages and sends messages.
pub(crate) trait Service {
    /// Handles a message.
    fn handle(&mut self, message: &Message, now: f64);

    /// Does what is due, and takes the messages that the service sends.
    fn take_messages(&mut self, now: f64) -> Vec<Message>;
}

/// A sender of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sender {
    Owner,
    Guest,
    Other,
}

impl Sender {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "owner" => Self::Owner,
            "guest" => Self::Guest,
            "other" => Self::Other,
            _ => return None,
        })
    }

    fn route(self) -> &'static [u8] {
        match self {
            Self::Owner => b"owner",
            Self::Guest => b"guest",
            Self::Other => b"other",
        }
    }

    /// A request of the sender.
    fn request(self, topic: &str, payload: &str) -> Message {
        let mut request = Message::request(topic, payload);
        (request.userid, request.rolemask) = match self {
            Self::Owner => (OWNER, role::OWNER),
            Self::Guest => (OWNER + 1, role::USER),
            Self::Other => (OWNER + 2, role::USER),
        };
        request.push_route(self.route());
        request
    }
}

/// The requests that the service has got and those that it has sent.
struct Conversation<S> {
    service: S,
    now: f64,
    matchtag: u32,
    /// The requests of others that may still be answered, by matchtag: whether responses may follow one another.
    open: BTreeMap<u32, (Sender, bool)>,
    outstanding: Vec<Message>,
    /// The topics of the requests that the service has sent, and of the successful responses.
    topics: BTreeSet<String>,
}

impl<S: Service> Conversation<S> {
    fn step(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "stream" => {
                let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                if let Some(sender) = Sender::named(name) {
                    self.request(sender, rest, true);
                }
            }
            "response" => self.respond(rest),
            "leave" => {
                if let Some(sender) = Sender::named(rest) {
                    self.leave(sender);
                }
            }
            "after" => {
                let pause: f64 = rest.parse().unwrap_or(0.0);
                if (0.0..=MAX_PAUSE_S).contains(&pause) {
                    self.now += pause;
                }
            }
            name => {
                if let Some(sender) = Sender::named(name) {
                    self.request(sender, rest, false);
                }
            }
        }
        self.collect();
    }

    fn request(&mut self, sender: Sender, rest: &str, is_stream: bool) {
        let (topic, payload) = rest.split_once(' ').unwrap_or((rest, ""));
        if topic.is_empty() || topic.contains('\0') {
            return;
        }
        self.matchtag += 1;
        let mut request = sender.request(topic, payload).with_matchtag(self.matchtag);
        if is_stream {
            request = request.streaming();
        }
        self.open.insert(self.matchtag, (sender, is_stream));
        self.service.handle(&request, self.now);
    }

    fn respond(&mut self, rest: &str) {
        let mut words = rest.splitn(3, ' ');
        let number = words.next().and_then(|word| word.parse().ok());
        let errnum = words.next().and_then(|word| word.parse().ok());
        let (Some(number), Some(errnum)) = (number, errnum) else {
            return;
        };
        let newest = self.outstanding.len().checked_sub(1);
        let index = newest.and_then(|newest| newest.checked_sub(number));
        let Some((index, request)) =
            index.and_then(|index| Some((index, self.outstanding.get(index)?.clone())))
        else {
            return;
        };
        if errnum != 0 {
            self.outstanding.remove(index);
        }
        let payload = words.next().map(Message::json_payload);
        let mut response = Message::response_to(&request, errnum, payload);
        response.rolemask = role::OWNER;
        response.userid = OWNER;
        self.service.handle(&response, self.now);
    }

    fn leave(&mut self, sender: Sender) {
        for topic in [
            "job-manager.disconnect",
            "resource.disconnect",
            "sched.disconnect",
        ] {
            let request = sender.request(topic, "").with_flags(flags::NORESPONSE);
            self.service.handle(&request, self.now);
        }
        self.open.retain(|_, (of, _)| *of != sender);
    }

    /// Takes the messages of the service, and checks its responses.
    fn collect(&mut self) {
        for message in self.service.take_messages(self.now) {
            if message.errnum() == 0 {
                self.topics.insert(message.topic().to_owned());
            }
            match message.kind {
                MessageType::Request if self.outstanding.len() < MAX_OUTSTANDING => {
                    self.outstanding.push(message);
                }
                MessageType::Response => self.check_response(&message),
                _ => {}
            }
        }
    }

    /// A request has one response; a stream ends with an error.
    fn check_response(&mut self, response: &Message) {
        let Some((sender, is_stream)) = self.open.get(&response.matchtag).copied() else {
            panic!("a response to no open request: {response:?}");
        };
        assert_eq!(response.origin(), Some(sender.route()), "{response:?}");
        // RFC 27: a scheduler may annotate a job any number of times before the final response.
        let is_annotation = response.topic() == "sched.alloc"
            && response
                .read::<serde_json::Value>()
                .is_ok_and(|payload| payload["type"] == 1);
        let is_last = !is_stream && !is_annotation;
        if is_last || response.errnum() != 0 {
            self.open.remove(&response.matchtag);
        }
        let mut frame = Vec::new();
        response.encode(&mut frame);
        assert_eq!(
            Message::decode(&frame).map(|read| read.topic),
            Ok(response.topic.clone())
        );
    }
}

/// Does the steps of a text with a service. Returns the topics of its requests and successful responses.
///
/// # Panics
///
/// Panics if a response belongs to no open request, and where the service does.
pub(crate) fn hold<S: Service>(service: S, data: &[u8]) -> BTreeSet<String> {
    let Ok(text) = std::str::from_utf8(data) else {
        return BTreeSet::new();
    };
    let mut conversation = Conversation {
        service,
        now: START_S,
        matchtag: 0,
        open: BTreeMap::new(),
        outstanding: Vec::new(),
        topics: BTreeSet::new(),
    };
    conversation.collect();
    for line in text.lines().take(MAX_STEPS) {
        conversation.step(line);
    }
    conversation.topics
}
