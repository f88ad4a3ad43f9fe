//! The connection to the instance: registration, requests of the service, and their responses.

use penstock_flux::broker::{ServiceRequest, SubscriptionRequest};
use penstock_flux::errno::{self, EEXIST};
use penstock_flux::exec::HelloRequest;
use penstock_flux::{Matchtags, topic};
use penstock_wire::Message;

use super::state::{Acknowledgement, Failure, InstanceState, Outstanding, Service, barrier};

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
            releases_shrunk: true,
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

    /// Handles the loss of the connection: tasks continue. The job manager will ask for its jobs again.
    pub fn handle_disconnect(&mut self) {
        self.instance = if self.failure.is_some() {
            InstanceState::Rejected
        } else {
            InstanceState::Disconnected
        };
        self.matchtags = Matchtags::default();
        self.outstanding.clear();
        self.messages.clear();
        self.forwarded.clear();
        self.released.clear();
        self.acknowledgement = Acknowledgement::None;
        self.followers.clear();
        self.end_waits.clear();
        self.output_lookups.clear();
        for (id, job) in &mut self.jobs {
            job.outstanding_start = None;
            job.plan = None;
            job.pmix = None;
            self.changed.insert(*id);
        }
    }

    /// The request that a response is to; it stays outstanding if another response may follow.
    pub(super) fn take_outstanding(&mut self, response: &Message) -> Option<Outstanding> {
        let tag = response.matchtag;
        if response.errnum() == 0 {
            match self.outstanding.get(&tag) {
                Some(Outstanding::PmixServer(id)) => return Some(Outstanding::PmixServer(*id)),
                Some(Outstanding::End(id)) => return Some(Outstanding::End(*id)),
                _ => {}
            }
        }
        self.matchtags.release(tag);
        self.outstanding.remove(&tag)
    }

    pub(super) fn handle_registration(&mut self, response: &Message) {
        // The first error is the cause of the others.
        if response.errnum() != 0 && self.failure.is_none() {
            let (topic, errnum) = (response.topic(), response.errnum());
            let failure = errno::failure(topic, errnum, response.error_text().as_deref());
            let hint = if errnum == EEXIST {
                "\nhint: the instance has another execution service: start it with `--exec none`"
            } else {
                ""
            };
            self.failure = Some(Failure {
                text: failure + hint,
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
