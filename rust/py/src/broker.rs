//! `Router`: the broker's data plane.

use penstock_broker::RegistrationError;
use penstock_flux::Credentials;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::wire::Batch;

/// The broker's routing tables: services, peers and subscriptions.
#[pyclass(module = "penstock._core")]
struct Router(penstock_broker::Router);

type Deliveries = Vec<(u32, Batch)>;

fn deliveries(routed: Vec<penstock_broker::Delivery>) -> Deliveries {
    let wrap = |(peer, messages)| (peer, Batch { messages });
    routed.into_iter().map(wrap).collect()
}

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

    fn track_requests(&mut self, peer: u32) {
        self.0.track_requests(peer);
    }

    fn abandon_requests(&mut self, peer: u32, errnum: u32, reason: &str) -> Deliveries {
        deliveries(self.0.abandon_requests(peer, errnum, reason))
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

    fn subscribe(&mut self, peer: u32, prefix: &str) {
        self.0.subscribe(peer, prefix);
    }

    fn unsubscribe(&mut self, peer: u32, prefix: &str) -> bool {
        self.0.unsubscribe(peer, prefix)
    }

    fn peer(&self, route: &[u8]) -> Option<u32> {
        self.0.peer(route)
    }

    /// Takes the batch's messages and leaves it empty.
    fn route(&mut self, peer: u32, batch: &Bound<'_, Batch>) -> Deliveries {
        let messages = std::mem::take(&mut batch.borrow_mut().messages);
        deliveries(self.0.route(peer, messages))
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Router>()
}
