//! The connection to the instance: registration, requests of the service, and their responses.

use penstock_flux::broker::{ServiceRequest, SubscriptionRequest};
use penstock_flux::errno::EEXIST;
use penstock_flux::exec::HelloRequest;
use penstock_flux::{Matchtags, topic};
use penstock_wire::Message;

use super::Service;
use crate::types::JobId;

/// The state of the connection to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstanceState {
    Disconnected,
    /// Disconnected after the registration was rejected.
    Rejected,
    /// This many requests are outstanding.
    Registering(usize),
    /// Start requests of running jobs are arriving.
    Synchronizing,
    /// Every job that the job manager counts as running has been claimed.
    Synchronized,
}

/// An outstanding request of the service to the instance.
#[derive(Debug)]
pub(super) enum Outstanding {
    Registration,
    /// The barrier after registration.
    Synchronization,
    /// The barrier after these jobs' final releases.
    Acknowledgement(Vec<JobId>),
    /// R of a job.
    Lookup(JobId),
    /// The end of a job that is not here, but whose output is followed.
    End(JobId),
    /// The PMIx server of a job, streaming.
    PmixServer(JobId),
}

/// The rejection of the registration.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) text: String,
    pub(super) is_name_taken: bool,
}

impl Service {
    /// Registers the service on a new connection.
    pub fn register(&mut self) {
        let service = || self.settings.name.as_str().into();
        let add = ServiceRequest { service: service() };
        let subscribe = SubscriptionRequest {
            topic: topic::JOB_EXCEPTION.into(),
        };
        let hello = HelloRequest {
            service: service(),
            journal: Some(self.journal_identity().into()),
            ..HelloRequest::default()
        };
        let requests = [
            Message::request(topic::service::ADD, "").with_payload(&add),
            Message::request(topic::event::SUBSCRIBE, "").with_payload(&subscribe),
            Message::request(topic::job_manager::EXEC_HELLO, "").with_payload(&hello),
        ];
        self.failure = None;
        self.instance = InstanceState::Registering(requests.len());
        for request in requests {
            self.send(request, Outstanding::Registration);
        }
    }

    /// The identity of the journal for the job manager: it changes when records may have been lost.
    pub(super) fn journal_identity(&self) -> String {
        format!("{:032x}-{:032x}", self.journal.0, self.settings.boot.0)
    }

    /// Handles the loss of the connection: tasks run on. The job manager will ask for its jobs again.
    pub fn handle_disconnect(&mut self) {
        self.instance = if self.failure.is_some() {
            InstanceState::Rejected
        } else {
            InstanceState::Disconnected
        };
        self.matchtags = Matchtags::default();
        self.outstanding.clear();
        self.messages.clear();
        self.released.clear();
        self.is_acknowledgement_due = false;
        self.followers.clear();
        for (id, job) in &mut self.jobs {
            job.claim = None;
            job.plan = None;
            job.pmix = None;
            self.changed.insert(*id);
        }
    }

    pub(super) fn send(&mut self, request: Message, outstanding: Outstanding) {
        let tag = self.matchtags.allot();
        self.outstanding.insert(tag, outstanding);
        self.messages.push(request.with_matchtag(tag));
    }

    pub(super) fn handle_response(&mut self, response: &Message) {
        let Some(outstanding) = self.take_outstanding(response) else {
            return;
        };
        match outstanding {
            Outstanding::Registration => self.handle_registration(response),
            Outstanding::Synchronization => {
                self.instance = InstanceState::Synchronized;
                self.changed.extend(self.jobs.keys());
                self.sweep();
            }
            Outstanding::Acknowledgement(jobs) => {
                self.is_acknowledgement_due = false;
                self.forget(jobs);
            }
            Outstanding::Lookup(id) => self.handle_lookup(id, response),
            Outstanding::PmixServer(id) => self.handle_pmix_response(id, response),
            Outstanding::End(id) => {
                self.followers.note_job_start(id, &mut self.effects);
                self.followers.note_job_end(id);
            }
        }
    }

    /// The request that a response is to; it stays outstanding if another response may follow.
    fn take_outstanding(&mut self, response: &Message) -> Option<Outstanding> {
        let tag = response.matchtag;
        if let Some(Outstanding::PmixServer(id)) = self.outstanding.get(&tag)
            && response.errnum() == 0
        {
            return Some(Outstanding::PmixServer(*id));
        }
        self.matchtags.release(tag);
        self.outstanding.remove(&tag)
    }

    fn handle_registration(&mut self, response: &Message) {
        // The first error is the cause of the others.
        if response.errnum() != 0 && self.failure.is_none() {
            let (topic, errnum) = (response.topic(), response.errnum());
            let text = response.error_text().filter(|text| !text.is_empty());
            let text = text.map_or_else(String::new, |text| format!(": {text}"));
            let hint = if errnum == EEXIST {
                "\nhint: the instance has another execution service: start it with `--exec none`"
            } else {
                ""
            };
            self.failure = Some(Failure {
                text: format!("{topic} failed with errnum {errnum}{text}{hint}"),
                is_name_taken: topic == topic::service::ADD && errnum == EEXIST,
            });
        }
        if let InstanceState::Registering(left) = self.instance {
            self.instance = InstanceState::Registering(left.saturating_sub(1));
            if left <= 1 && self.failure.is_none() {
                self.instance = InstanceState::Synchronizing;
                self.send(barrier(), Outstanding::Synchronization);
            }
        }
    }
}

/// A barrier: the job manager responds after it has committed everything that it received before.
pub(super) fn barrier() -> Message {
    Message::request(topic::job_manager::PING, "{}")
}
