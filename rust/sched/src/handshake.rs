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
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_wire::Message;

use crate::error::{Error, failure_text};
use crate::scheduler::{AllocatedJob, OutstandingRequest};
use crate::{Phase, Scheduler};

/// The services of a scheduler.
const SERVICES: [&str; 2] = ["sched", "feasibility"];

impl Scheduler {
    /// Begins the handshake.
    pub fn start(&mut self) {
        for name in SERVICES {
            let payload = ServiceRequest {
                service: name.into(),
            };
            let request = Message::request(topic::service::ADD, "").with_payload(&payload);
            self.send(request, OutstandingRequest::Register(name));
        }
    }

    /// Begins the end of the scheduler: unregisters its services, so that another scheduler can register them as soon
    /// as the phase is [`Phase::Stopped`]. Jobs keep their allocations.
    pub fn stop(&mut self) {
        if matches!(
            self.phase,
            Phase::Stopping | Phase::Stopped | Phase::Failed(_)
        ) {
            return;
        }
        self.phase = Phase::Stopping;
        for name in SERVICES {
            let payload = ServiceRequest {
                service: name.into(),
            };
            let request = Message::request(topic::service::REMOVE, "").with_payload(&payload);
            self.send(request, OutstandingRequest::Unregister);
        }
    }

    /// Counts the responses to `service.remove`. A service that was never registered is an error response, and as good.
    pub(crate) fn handle_unregister_response(&mut self) {
        let is_outstanding = self
            .outstanding
            .values()
            .any(|request| matches!(request, OutstandingRequest::Unregister));
        if !is_outstanding && self.phase == Phase::Stopping {
            self.phase = Phase::Stopped;
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
        let hello = TypedPayload::SchedHello(HelloRequest { partial_ok: true });
        let request = Message::request(topic::job_manager::SCHED_HELLO, "").with_typed(hello);
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
                    freed_since: IdSet::new(),
                    has_ended: false,
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
        let id = job.id;
        match self.mark_allocated(job, response) {
            Ok(unknown) if unknown.is_empty() => {}
            Ok(unknown) => self.log.push(format!(
                "job {id} also holds ranks {unknown}, which are not in the inventory"
            )),
            // Its resources would be allocated a second time.
            Err(error) => {
                return self.fail(format!(
                    "the resources of running job {id} are unknown: {error}"
                ));
            }
        }
        self.send_ready_if_done();
    }

    /// Notes which ranks a job of hello releases while its R is looked up; all with `None`. Returns whether it is.
    pub(crate) fn free_announced(&mut self, id: JobId, ranks: Option<&IdSet>) -> bool {
        if self.hello.lookups_outstanding == 0 {
            return false;
        }
        let lookup = self
            .outstanding
            .values_mut()
            .find_map(|request| match request {
                OutstandingRequest::Lookup(job) if job.id == id => Some(job),
                _ => None,
            });
        let Some(job) = lookup else {
            return false;
        };
        match ranks {
            Some(ranks) => job.freed_since = job.freed_since.union(ranks),
            None => job.has_ended = true,
        }
        true
    }

    /// Marks the resources of a job as allocated. Returns those of its ranks that are not in the inventory.
    fn mark_allocated(&mut self, job: &AllocatedJob, response: &Message) -> Result<IdSet, Error> {
        if job.has_ended {
            return Ok(IdSet::new());
        }
        if response.errnum() != 0 {
            return Err(Error::Response(failure_text(response)));
        }
        let mut r = read_r(response)?;
        let mut freed = job.freed_since.clone();
        if let Some(before) = &job.freed {
            freed = freed.union(&before.parse()?);
        }
        if !freed.is_empty() {
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
