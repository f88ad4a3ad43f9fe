//! `Router`: the broker's data plane.

use std::any::Any;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_broker::{InMemoryService, Limits, PeerId, RegistrationError};
use penstock_flux::Credentials;
use penstock_wire::Message;
use pyo3::exceptions::PyValueError;
use pyo3::panic::PanicException;
use pyo3::prelude::*;

use crate::manager::JobManager;
use crate::mockexec::MockExec;
use crate::sched::{Scheduler, schedule};
use crate::wire::Batch;

/// The broker's routing tables: services, peers and subscriptions.
#[pyclass(module = "penstock._core")]
struct Router(penstock_broker::Router);

/// The limits of outstanding requests in a `penstock.config.Quota`; a negative number is unlimited.
#[derive(FromPyObject)]
struct RequestQuota {
    owner_requests: i64,
    owner_request_bytes: i64,
    requests: i64,
    request_bytes: i64,
    watches: i64,
    all_requests: i64,
    all_request_bytes: i64,
    all_watches: i64,
}

type Deliveries = Vec<(u32, Batch)>;

fn deliveries(routed: Vec<penstock_broker::Delivery>) -> Deliveries {
    let wrap = |(peer, messages)| (peer, Batch { messages });
    routed.into_iter().map(wrap).collect()
}

/// A service whose messages [`Router::exchange`] passes on without Python, borrowed for an exchange.
enum BorrowedCore<'py> {
    Manager(&'py JobManager),
    Scheduler(PyRefMut<'py, Scheduler>),
    Exec(PyRefMut<'py, MockExec>),
}

impl<'py> BorrowedCore<'py> {
    /// Borrows a service. A derived conversion would create an exception for each type that the service is not.
    fn borrow(core: &'py Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(manager) = core.cast::<JobManager>() {
            Ok(Self::Manager(manager.get()))
        } else if let Ok(scheduler) = core.cast::<Scheduler>() {
            Ok(Self::Scheduler(scheduler.try_borrow_mut()?))
        } else {
            Ok(Self::Exec(core.cast::<MockExec>()?.try_borrow_mut()?))
        }
    }
}

/// A service in an exchange, at a time.
struct Served<'a> {
    core: ServiceCore<'a>,
    now: f64,
}

/// The state of a service, for work without the GIL.
enum ServiceCore<'a> {
    Manager(&'a JobManager),
    Scheduler(&'a mut penstock_sched::Scheduler),
    Exec(&'a mut penstock_mockexec::MockExec),
}

impl InMemoryService for Served<'_> {
    type Fault = PyErr;

    fn serve(&mut self, messages: &[Message]) -> PyResult<Vec<Message>> {
        let now = self.now;
        let serve = || match &mut self.core {
            ServiceCore::Manager(manager) => {
                let mut manager = manager.lock()?;
                for message in messages {
                    manager.handle(message, now);
                }
                Ok(manager.take_short_messages())
            }
            ServiceCore::Scheduler(scheduler) => {
                for message in messages {
                    scheduler.handle(message);
                }
                // The next pass, if there is one, is run when the service posts its output, and so is a part of another order.
                if !scheduler.is_reordering() {
                    schedule(scheduler, now);
                }
                Ok(scheduler.take_out())
            }
            ServiceCore::Exec(exec) => {
                let mut posted = Vec::new();
                for message in messages {
                    exec.handle(message, now, &mut posted);
                }
                Ok(posted)
            }
        };
        catch_unwind(AssertUnwindSafe(serve)).unwrap_or_else(|panic| Err(panic_error(&*panic)))
    }
}

/// The exception of a panic in a service.
fn panic_error(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    PanicException::new_err(text.unwrap_or("a panic without a text").to_owned())
}

/// The result of [`Router::exchange`].
type Exchanged = (
    Vec<(PeerId, PeerId, Batch)>,
    Vec<(PeerId, Batch)>,
    Vec<PeerId>,
    usize,
    Vec<(PeerId, Batch, PyErr)>,
);

fn errnum(result: Result<(), RegistrationError>) -> u32 {
    result.map_or_else(RegistrationError::errnum, |()| 0)
}

#[pymethods]
impl Router {
    #[new]
    fn new(uuid: &str, owner: u32) -> PyResult<Self> {
        if uuid.is_empty() {
            return Err(PyValueError::new_err("the router's uuid is empty"));
        }
        Ok(Self(penstock_broker::Router::new(uuid, owner)))
    }

    #[pyo3(signature = (peer, uuid, userid, rolemask, *, remote = false))]
    fn add_peer(
        &mut self,
        peer: u32,
        uuid: &str,
        userid: u32,
        rolemask: u32,
        remote: bool,
    ) -> PyResult<()> {
        if uuid.is_empty() {
            return Err(PyValueError::new_err("a peer's uuid is empty"));
        }
        let credentials = Credentials { userid, rolemask };
        if remote {
            self.0.add_remote_peer(peer, uuid, credentials);
        } else {
            self.0.add_peer(peer, uuid, credentials);
        }
        Ok(())
    }

    /// Sets the limits of outstanding requests: those of the table `penstock.quota`.
    fn set_limits(&mut self, quota: RequestQuota) {
        let limit = |number: i64| u64::try_from(number).unwrap_or(u64::MAX);
        self.0.set_limits(Limits {
            owner_requests: limit(quota.owner_requests),
            owner_request_bytes: limit(quota.owner_request_bytes),
            requests: limit(quota.requests),
            request_bytes: limit(quota.request_bytes),
            watches: limit(quota.watches),
            all_requests: limit(quota.all_requests),
            all_request_bytes: limit(quota.all_request_bytes),
            all_watches: limit(quota.all_watches),
        });
    }

    /// The number of the last event.
    #[getter]
    fn sequence(&self) -> u32 {
        self.0.sequence()
    }

    /// The number of requests that each of these limits has rejected.
    fn rejections(&self) -> HashMap<&'static str, u64> {
        let rejections = self.0.rejections();
        HashMap::from([
            ("owner_requests", rejections.owner_requests),
            ("owner_request_bytes", rejections.owner_request_bytes),
            ("requests", rejections.requests),
            ("request_bytes", rejections.request_bytes),
            ("watches", rejections.watches),
            ("all_requests", rejections.all_requests),
            ("all_request_bytes", rejections.all_request_bytes),
            ("all_watches", rejections.all_watches),
            ("forged_responses", rejections.forged_responses),
        ])
    }

    fn track_requests(&mut self, peer: u32) {
        self.0.track_requests(peer);
    }

    fn abandon_requests(&mut self, peer: u32, errnum: u32, reason: &str) -> Deliveries {
        deliveries(self.0.abandon_requests(peer, errnum, reason))
    }

    fn end_requests(&mut self, requester: u32, responses: &Bound<'_, Batch>) {
        self.0.end_requests(requester, &responses.borrow().messages);
    }

    fn serving_clients(&self, peer: u32) -> Vec<u32> {
        self.0.serving_clients(peer)
    }

    fn remove_peer(&mut self, peer: u32) -> Deliveries {
        deliveries(self.0.remove_peer(peer))
    }

    fn add_service(&mut self, name: &str, peer: u32) -> u32 {
        errnum(self.0.add_service(name, peer))
    }

    fn remove_service(&mut self, name: &str, peer: u32) -> u32 {
        errnum(self.0.remove_service(name, peer))
    }

    fn services(&self) -> Vec<(String, u32)> {
        let own = |(name, peer): (&str, u32)| (name.to_owned(), peer);
        self.0.services().map(own).collect()
    }

    fn subscribe(&mut self, peer: u32, prefix: &str) -> bool {
        self.0.subscribe(peer, prefix)
    }

    fn unsubscribe(&mut self, peer: u32, prefix: &str) -> bool {
        self.0.unsubscribe(peer, prefix)
    }

    fn has_subscriber(&self, topic: &str) -> bool {
        self.0.has_subscriber(topic)
    }

    fn peer(&self, route: &[u8]) -> Option<u32> {
        self.0.peer(route)
    }

    /// Takes the batch's messages and leaves it empty.
    fn route(&mut self, peer: u32, batch: &Bound<'_, Batch>) -> Deliveries {
        let messages = std::mem::take(&mut batch.borrow_mut().messages);
        deliveries(self.0.route(peer, messages))
    }

    /// Takes the batch's messages and leaves it empty. Returns the deliveries that are left with their senders, the
    /// messages that are not routed, the services that have served messages, the number of iterations, and the failures.
    fn exchange(
        &mut self,
        py: Python<'_>,
        peer: u32,
        batch: &Bound<'_, Batch>,
        services: Vec<(u32, Bound<'_, PyAny>)>,
        now: f64,
        max_iterations: usize,
    ) -> PyResult<Exchanged> {
        let borrowed = services
            .iter()
            .map(|(peer, core)| Ok((*peer, BorrowedCore::borrow(core)?)));
        let mut borrowed = borrowed.collect::<PyResult<Vec<_>>>()?;
        let messages = std::mem::take(&mut batch.borrow_mut().messages);
        let served = borrowed.iter_mut().map(|(peer, core)| {
            let core = match core {
                BorrowedCore::Manager(manager) => ServiceCore::Manager(manager),
                BorrowedCore::Scheduler(scheduler) => ServiceCore::Scheduler(&mut scheduler.0),
                BorrowedCore::Exec(exec) => ServiceCore::Exec(&mut exec.0),
            };
            (*peer, Served { core, now })
        });
        let mut served: Vec<_> = served.collect();
        let router = &mut self.0;
        let exchange = py.detach(|| {
            let services = served.iter_mut();
            let mut services: Vec<_> = services
                .map(|(peer, each)| (*peer, each as &mut dyn InMemoryService<Fault = PyErr>))
                .collect();
            router.exchange(peer, messages, &mut services, max_iterations)
        });
        let deliveries = exchange.deliveries.into_iter();
        let posted = exchange.posted.into_iter();
        let failures = exchange.failures.into_iter();
        Ok((
            deliveries
                .map(|(sender, (peer, messages))| (sender, peer, Batch { messages }))
                .collect(),
            posted
                .map(|(sender, messages)| (sender, Batch { messages }))
                .collect(),
            exchange.served,
            exchange.iterations,
            failures
                .map(|failure| {
                    let messages = failure.messages;
                    (failure.peer, Batch { messages }, failure.fault)
                })
                .collect(),
        ))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Router>()
}
