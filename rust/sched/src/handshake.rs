//! The handshake, from registration to readiness: which response leads from which phase to the next.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::acquire::AcquireRequest;
use penstock_flux::alloc::{HelloRequest, HelloResponse, ReadyMode, ReadyRequest};
use penstock_flux::broker::ServiceRequest;
use penstock_flux::errno::{EEXIST, ENODATA};
use penstock_flux::kvs::{LookupRequest, LookupResponse, PRIMARY, r_key};
use penstock_flux::{TypedPayload, topic};
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_wire::Message;

use crate::error::{Error, failure_text};
use crate::scheduler::{AllocatedJob, OutstandingRequest};
use crate::{Phase, Scheduler};

impl Scheduler {
    /// Begins the handshake.
    pub fn start(&mut self) {
        for name in ["sched", "feasibility"] {
            let payload = ServiceRequest {
                service: name.into(),
            };
            let request = Message::request(topic::service::ADD, "").with_payload(&payload);
            self.send(request, OutstandingRequest::Register(name));
        }
    }

    pub(crate) fn handle_register_response(&mut self, name: &str, response: &Message) {
        match response.errnum() {
            0 => {}
            // Another service may check feasibility; only one may schedule.
            EEXIST if name == "feasibility" => {}
            EEXIST => return self.fail("another scheduler is registered as `sched`".to_owned()),
            _ => return self.fail(failure_text(response)),
        }
        let is_registering = self
            .outstanding
            .values()
            .any(|request| matches!(request, OutstandingRequest::Register(_)));
        if !is_registering && self.phase == Phase::Registering {
            self.phase = Phase::Acquiring;
            let mut request = Message::request(topic::resource::ACQUIRE, "");
            // RFC 28 has no payload here: none is sent to a broker that might reject one.
            if self.options.grow {
                request = request.with_payload(&AcquireRequest { grow_ok: true });
            }
            self.send(request.streaming(), OutstandingRequest::Acquire);
        }
    }

    /// Asks which jobs hold resources of the inventory.
    pub(crate) fn send_hello(&mut self) {
        self.phase = Phase::Greeting;
        let payload = HelloRequest { partial_ok: true };
        let request = Message::request(topic::job_manager::SCHED_HELLO, "").with_payload(&payload);
        self.send(request.streaming(), OutstandingRequest::Hello);
    }

    pub(crate) fn handle_hello_response(&mut self, tag: u32, response: &Message) {
        match response.errnum() {
            0 => {
                self.outstanding.insert(tag, OutstandingRequest::Hello);
                let hello: HelloResponse = match response.read() {
                    Ok(hello) => hello,
                    Err(error) => return self.fail(format!("{}: {error}", response.topic())),
                };
                self.hello.lookups_outstanding += 1;
                let lookup = LookupRequest {
                    namespace: Some(PRIMARY.into()),
                    key: r_key(hello.id).into(),
                    flags: 0,
                };
                let request = Message::request(topic::kvs::LOOKUP, "").with_payload(&lookup);
                let job = AllocatedJob {
                    id: hello.id,
                    freed: hello.free.map(penstock_flux::Text::into_string),
                };
                self.send(request, OutstandingRequest::Lookup(job));
            }
            ENODATA => {
                self.hello.has_ended = true;
                self.send_ready_if_done();
            }
            _ => self.fail(failure_text(response)),
        }
    }

    pub(crate) fn handle_lookup_response(&mut self, job: &AllocatedJob, response: &Message) {
        self.hello.lookups_outstanding -= 1;
        // A job whose R is unreadable does not keep the others from being scheduled: the job
        // manager rejects allocations that overlap.
        let id = job.id;
        match self.mark_allocated(job, response) {
            Ok(unknown) if unknown.is_empty() => {}
            Ok(unknown) => self.log.push(format!(
                "job {id} also holds ranks {unknown}, which are not in the inventory"
            )),
            Err(error) => self
                .log
                .push(format!("job {id} is not accounted for: {error}")),
        }
        self.send_ready_if_done();
    }

    /// Marks the resources of a job as allocated. Returns those of its ranks that are not in the inventory.
    fn mark_allocated(&mut self, job: &AllocatedJob, response: &Message) -> Result<IdSet, Error> {
        if response.errnum() != 0 {
            return Err(Error::Response(failure_text(response)));
        }
        let mut r = read_r(response)?;
        if let Some(freed) = &job.freed {
            let freed: IdSet = freed.parse()?;
            r = Arc::new(r.restrict(&r.ranks().difference(&freed)));
        }
        let Some(engine) = &mut self.engine else {
            return Err(Error::BeforeInventory("hello"));
        };
        Ok(engine.adopt(job.id, &r)?)
    }

    fn send_ready_if_done(&mut self) {
        let hello = &self.hello;
        if self.phase == Phase::Greeting && hello.has_ended && hello.lookups_outstanding == 0 {
            self.phase = Phase::Readying;
            let limit = self.options.limit.map(i64::from);
            let ready = ReadyRequest {
                mode: limit.map_or(ReadyMode::Unlimited, |_| ReadyMode::Limited),
                limit,
            };
            let request =
                Message::request(topic::job_manager::SCHED_READY, "").with_payload(&ready);
            self.send(request, OutstandingRequest::Ready);
        }
    }

    pub(crate) fn handle_ready_response(&mut self, response: &Message) {
        if response.errnum() == 0 {
            self.phase = Phase::Running;
            self.log.push("ready".to_owned());
        } else {
            self.fail(failure_text(response));
        }
    }
}

/// The R in a response to `kvs.lookup`: a value from this process, else JSON in base64.
fn read_r(response: &Message) -> Result<Arc<ResourceSet>, Error> {
    if let Some(TypedPayload::StoredR(stored)) = response.typed() {
        return Ok(Arc::clone(&stored.r));
    }
    let lookup: LookupResponse = response
        .read()
        .map_err(|error| Error::Response(format!("{}: {error}", response.topic())))?;
    let bytes = BASE64.decode(lookup.val.data.as_bytes())?;
    Ok(Arc::new(ResourceSet::from_json(&String::from_utf8(
        bytes,
    )?)?))
}
