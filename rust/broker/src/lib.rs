//! The broker's data plane: who gets which message.
//!
//! Requests go to the peer that has registered the first word of their topic, responses back
//! along their route stack, events to whoever subscribed to a prefix of their topic. Peers are
//! sockets or the daemon's own services: the router does not tell them apart, so a service can
//! move out of the daemon and back without anybody noticing.
//!
//! The crate is sans-IO and knows neither sockets nor time; accepting, authenticating and the
//! control services (`service.add`, `event.subscribe`) are the daemon's.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use penstock_wire::{Kind, Message, NORESPONSE, PRIVATE, STREAMING};

/// Function not implemented: no such service.
const ENOSYS: u32 = 38;

/// The instance owner's role (RFC 12).
pub const ROLE_OWNER: u32 = 1;
/// A guest's role (RFC 12).
pub const ROLE_USER: u32 = 2;
/// The role of whoever connected on this machine (RFC 12).
pub const ROLE_LOCAL: u32 = 4;

/// Number of a connected peer.
pub type PeerId = u32;

/// What a peer is entitled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// User id, as the kernel told it.
    pub userid: u32,
    /// RFC 12 roles.
    pub rolemask: u32,
}

#[derive(Debug)]
struct Peer {
    uuid: Vec<u8>,
    credentials: Credentials,
    subscriptions: Vec<String>,
    /// Services that hear of its disconnect: those it has sent a request to.
    used: BTreeSet<String>,
}

/// Why a service cannot be registered or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceError {
    /// Another peer has the name.
    Taken,
    /// The name is empty, or has a character other than letters, digits, `-` and `_`.
    Invalid,
    /// The peer does not have this service, or there is no such peer.
    Unknown,
}

/// Messages for one peer, in order.
pub type Delivery = (PeerId, Vec<Message>);

/// The routing tables.
#[derive(Debug)]
pub struct Router {
    uuid: Vec<u8>,
    owner: u32,
    peers: HashMap<PeerId, Peer>,
    by_uuid: HashMap<Vec<u8>, PeerId>,
    services: BTreeMap<String, PeerId>,
    sequence: u32,
}

/// Collects deliveries, one run a peer, in the order in which peers first get something.
#[derive(Default)]
struct Outbox {
    deliveries: Vec<Delivery>,
    places: HashMap<PeerId, usize>,
}

impl Outbox {
    fn push(&mut self, peer: PeerId, message: Message) {
        let deliveries = &mut self.deliveries;
        let place = *self.places.entry(peer).or_insert_with(|| {
            deliveries.push((peer, Vec::new()));
            deliveries.len() - 1
        });
        deliveries[place].1.push(message);
    }
}

impl Router {
    /// A router without peers. `uuid` is the hop that it adds to requests; what it answers itself
    /// comes from `owner`, the user id of the instance owner.
    pub fn new(uuid: &str, owner: u32) -> Self {
        Self {
            uuid: uuid.as_bytes().to_vec(),
            owner,
            peers: HashMap::new(),
            by_uuid: HashMap::new(),
            services: BTreeMap::new(),
            sequence: 0,
        }
    }

    /// Adds a peer. `uuid` names it in route stacks.
    pub fn add_peer(&mut self, id: PeerId, uuid: &str, credentials: Credentials) {
        let uuid = uuid.as_bytes().to_vec();
        self.by_uuid.insert(uuid.clone(), id);
        let peer = Peer {
            uuid,
            credentials,
            subscriptions: Vec::new(),
            used: BTreeSet::new(),
        };
        self.peers.insert(id, peer);
    }

    /// Removes a peer and its services. Returns the disconnect notices for services it used.
    pub fn remove_peer(&mut self, id: PeerId) -> Vec<Delivery> {
        let Some(peer) = self.peers.remove(&id) else {
            return Vec::new();
        };
        self.by_uuid.remove(&peer.uuid);
        self.services.retain(|_, owner| *owner != id);
        let mut outbox = Outbox::default();
        for service in &peer.used {
            if let Some(&owner) = self.services.get(service) {
                let notice = Message::request(&format!("{service}.disconnect"), "");
                let mut notice = notice.with_flags(NORESPONSE);
                notice.userid = peer.credentials.userid;
                notice.rolemask = peer.credentials.rolemask;
                notice.push_route(&peer.uuid);
                notice.push_route(&self.uuid);
                outbox.push(owner, notice);
            }
        }
        outbox.deliveries
    }

    /// Registers a service for a peer.
    pub fn add_service(&mut self, name: &str, id: PeerId) -> Result<(), ServiceError> {
        let valid = |it: char| it.is_ascii_alphanumeric() || it == '-' || it == '_';
        if name.is_empty() || !name.chars().all(valid) {
            return Err(ServiceError::Invalid);
        }
        if !self.peers.contains_key(&id) {
            return Err(ServiceError::Unknown);
        }
        if self.services.contains_key(name) {
            return Err(ServiceError::Taken);
        }
        self.services.insert(name.to_owned(), id);
        Ok(())
    }

    /// Removes a peer's service.
    pub fn remove_service(&mut self, name: &str, id: PeerId) -> Result<(), ServiceError> {
        if self.services.get(name) != Some(&id) {
            return Err(ServiceError::Unknown);
        }
        self.services.remove(name);
        Ok(())
    }

    /// The registered services and their peers, by name.
    pub fn services(&self) -> impl Iterator<Item = (&str, PeerId)> {
        self.services.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Sends events whose topic starts with `prefix` to a peer.
    pub fn subscribe(&mut self, id: PeerId, prefix: &str) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.subscriptions.push(prefix.to_owned());
        }
    }

    /// Takes one subscription to `prefix` back. Returns whether there was one.
    pub fn unsubscribe(&mut self, id: PeerId, prefix: &str) -> bool {
        let Some(peer) = self.peers.get_mut(&id) else {
            return false;
        };
        let place = peer.subscriptions.iter().position(|it| it == prefix);
        place.is_some_and(|place| {
            peer.subscriptions.swap_remove(place);
            true
        })
    }

    /// The peer that a route names.
    pub fn peer(&self, uuid: &[u8]) -> Option<PeerId> {
        self.by_uuid.get(uuid).copied()
    }

    /// Finds out who gets what `from` sends. Requests for services that nobody has registered
    /// come back as ENOSYS; responses whose way back is gone are dropped.
    pub fn route(&mut self, from: PeerId, messages: Vec<Message>) -> Vec<Delivery> {
        let mut outbox = Outbox::default();
        for message in messages {
            match message.kind {
                Kind::Request => self.route_request(from, message, &mut outbox),
                Kind::Response => self.route_response(from, message, &mut outbox),
                Kind::Event => self.publish(from, message, &mut outbox),
                Kind::Control => {}
            }
        }
        outbox.deliveries
    }

    fn route_request(&mut self, from: PeerId, mut request: Message, outbox: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&from) else {
            return;
        };
        request.userid = peer.credentials.userid;
        request.rolemask = peer.credentials.rolemask;
        let service = request.service();
        if let Some(&owner) = self.services.get(service) {
            if !peer.used.contains(service) {
                peer.used.insert(service.to_owned());
            }
            request.push_route(&peer.uuid);
            request.push_route(&self.uuid);
            outbox.push(owner, request);
        } else if !request.is_noresponse() {
            let topic = request.topic();
            let text = format!("No service matching {topic} is registered");
            let mut response = Message::error_to(&request, ENOSYS, &text);
            response.userid = self.owner;
            response.rolemask = ROLE_OWNER | ROLE_LOCAL;
            outbox.push(from, response);
        }
    }

    fn route_response(&self, from: PeerId, mut response: Message, outbox: &mut Outbox) {
        let Some(peer) = self.peers.get(&from) else {
            return;
        };
        if response.pop_route().is_none_or(|hop| hop != self.uuid) {
            return;
        }
        let to = response.pop_route().and_then(|hop| self.peer(&hop));
        if let Some(to) = to {
            response.userid = peer.credentials.userid;
            response.rolemask = peer.credentials.rolemask;
            outbox.push(to, response);
        }
    }

    /// Only the owner's peers publish; private events stay with the owner.
    fn publish(&mut self, from: PeerId, mut event: Message, outbox: &mut Outbox) {
        let Some(peer) = self.peers.get(&from) else {
            return;
        };
        if peer.credentials.rolemask & ROLE_OWNER == 0 {
            return;
        }
        self.sequence = self.sequence.wrapping_add(1);
        event.nodeid_errnum_seq = self.sequence;
        event.userid = peer.credentials.userid;
        event.rolemask = peer.credentials.rolemask;
        event.flags &= !STREAMING;
        let private = event.flags & PRIVATE != 0;
        let topic = event.topic();
        let mut hearers: Vec<PeerId> = self
            .peers
            .iter()
            .filter(|(_, peer)| !private || peer.credentials.rolemask & ROLE_OWNER != 0)
            .filter(|(_, peer)| {
                let mut prefixes = peer.subscriptions.iter();
                prefixes.any(|prefix| topic.starts_with(prefix.as_str()))
            })
            .map(|(id, _)| *id)
            .collect();
        hearers.sort_unstable();
        for id in hearers {
            outbox.push(id, event.clone());
        }
    }
}

#[cfg(test)]
mod tests;
