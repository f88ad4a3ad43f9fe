//! A context with one job, for tests of a peer alone.

use std::sync::Arc;

use penstock_flux::eventlog::{self, Priority, Submit};
use penstock_flux::{JobspecDocument, RequestedResources, role};
use penstock_idset::IdSet;
use penstock_jobspec::Jobspec;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_store::Store;
use penstock_wire::Message;
use serde_json::json;

use crate::context::{Access, Context};
use crate::effect::Effect;
use crate::event::{Document, Event};
use crate::jobs::{Jobs, Writers};
use crate::rpc::Request;
use crate::settings::Settings;
use crate::spec::{Spec, Stored};

pub(crate) const OWNER: u32 = 1000;

/// R of the job: ranks 0 and 1.
pub(crate) const R: &str = r#"{"version":1,"execution":{"R_lite":[{"rank":"0-1","children":{"core":"0-3"}}],"nodelist":["n[0-1]"],"starttime":0.0,"expiration":0.0}}"#;

/// Writers for the peers of a test.
pub(crate) fn writers() -> Writers {
    Jobs::new().1
}

pub(crate) fn context(settings: Settings) -> Context {
    let settings = Settings {
        owner: OWNER,
        ..settings
    };
    let store = Store::in_memory().unwrap();
    Context::open(store, settings, 1000.0, Access::Writing)
        .unwrap()
        .0
}

/// Adds a job in state SCHED with priority 16.
pub(crate) fn add_pending_job(cx: &mut Context) -> JobId {
    let text = json!({
        "version": 1,
        "resources": [{"type": "slot", "count": 1, "label": "task",
                       "with": [{"type": "core", "count": 1}]}],
        "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
        "attributes": {"system": {"duration": 0}},
    });
    let text = text.to_string();
    let key = cx.add_jobspec(OWNER, JobspecDocument::new(text.as_str().into()));
    let jobspec = Jobspec::from_json(&text).unwrap();
    let stored = Stored {
        spec: Arc::new(Spec::new(key, &jobspec)),
        requested: Arc::new(RequestedResources::of(&jobspec)),
    };
    let submit = Submit {
        userid: 0,
        urgency: 16,
        flags: 0,
        version: Submit::VERSION,
    };
    let submit = Event::with(cx.now, eventlog::SUBMIT, &submit);
    let id = cx.next_id().unwrap();
    cx.add_job(id, OWNER, &stored, &submit);
    for name in ["validate", "depend"] {
        cx.log(id, Event::new(cx.now, name));
    }
    cx.log(
        id,
        Event::with(cx.now, eventlog::PRIORITY, &Priority { priority: 16 }),
    );
    effects(cx);
    id
}

/// Adds a job in state RUN.
pub(crate) fn add_allocated_job(cx: &mut Context) -> JobId {
    let id = add_pending_job(cx);
    allocate(cx, id);
    id
}

/// Logs the allocation of a job.
pub(crate) fn allocate(cx: &mut Context, id: JobId) {
    let r = Arc::new(ResourceSet::from_json(R).unwrap());
    let event = Event::new(cx.now, eventlog::ALLOC);
    cx.log(id, event.with_document(Document::R(r)));
    effects(cx);
}

pub(crate) fn effects(cx: &mut Context) -> Vec<Effect> {
    cx.take_effects(Vec::new())
}

/// Descriptions of the pending effects: events, topics of messages, and the rest.
pub(crate) fn described(cx: &mut Context) -> Vec<String> {
    let describe = |effect| match effect {
        Effect::Logged { event, .. } => format!("log {}", event.name),
        Effect::Send(message) => format!("send {}", message.topic()),
        Effect::Revisit(_) => "revisit".to_owned(),
        Effect::LogLine(line) | Effect::Complain(line) => format!("write {line}"),
        Effect::Free(free) => format!("free {} {}", free.ranks, free.is_final),
        other => format!("{other:?}"),
    };
    effects(cx).into_iter().map(describe).collect()
}

/// A request of the owner's, from a peer.
pub(crate) fn message(topic: &str, peer: &str, payload: &str) -> Message {
    let mut message = Message::request(topic, payload);
    message.userid = OWNER;
    message.rolemask = role::OWNER;
    message.push_route(peer.as_bytes());
    message
}

pub(crate) fn request(message: &Message) -> Request<'_> {
    Request::new(message)
}

/// A response of the owner's to a request with this matchtag.
pub(crate) fn response(topic: &str, matchtag: u32, payload: &str) -> Message {
    let request = Message::request(topic, "").with_matchtag(matchtag);
    let payload = Message::json_payload(payload);
    let mut response = Message::response_to(&request, 0, Some(payload));
    response.userid = OWNER;
    response.rolemask = role::OWNER;
    response
}

pub(crate) fn ranks(text: &str) -> IdSet {
    text.parse().unwrap()
}
