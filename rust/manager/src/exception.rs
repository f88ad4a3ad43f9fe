//! Exceptions: in the job's eventlog, and as the event that execution services listen for.

use penstock_wire::Message;
use serde_json::{Value, json};

use crate::event::Event;
use crate::manager::Manager;

/// The topic of the event.
const TOPIC: &str = "job-exception";

/// An exception to be raised (RFC 21).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raised<'a> {
    pub(crate) kind: &'a str,
    /// 0 (fatal) to 7.
    pub(crate) severity: i64,
    pub(crate) note: &'a str,
    pub(crate) userid: u32,
    /// What the job's status is to be if this is its first fatal exception (RFC 32).
    pub(crate) wait_status: Option<i32>,
}

impl Manager {
    /// Logs an exception and tells whoever listens for it.
    pub(crate) fn raise_exception(&mut self, id: u64, now: f64, raised: &Raised) {
        let mut context = json!({
            "type": raised.kind,
            "severity": raised.severity,
            "note": raised.note,
            "userid": raised.userid,
        });
        if let Some(status) = raised.wait_status {
            context["wait_status"] = status.into();
        }
        self.post(id, &Event::with(now, "exception", context));
        self.publish_exception(id, raised.kind, raised.severity, raised.wait_status);
    }

    /// Tells of the exception that has ended a job: to a service that comes to know the job only now.
    pub(crate) fn recall_exception(&mut self, id: u64) {
        let fatal = self.jobs.get(&id).and_then(|job| job.fatal());
        if let Some((kind, status)) = fatal.map(|it| (it.kind.clone(), it.wait_status)) {
            self.publish_exception(id, &kind, 0, status);
        }
    }

    fn publish_exception(&mut self, id: u64, kind: &str, severity: i64, status: Option<i32>) {
        let mut told: Value = json!({"id": id, "type": kind, "severity": severity});
        if let Some(status) = status {
            told["wait_status"] = status.into();
        }
        // It is for the instance owner's services: the job is not every subscriber's.
        let event = Message::event(TOPIC, &told.to_string(), 0);
        let flags = event.flags | penstock_wire::PRIVATE;
        self.out.push(event.with_flags(flags));
    }
}
