//! The broker's data plane: routing of messages between peers.
//!
//! A request goes to the peer that has registered the first word of its topic, a response back
//! along its route stack, an event to the subscribers of a prefix of its topic. Peers are
//! sockets or the daemon's own services: the router does not distinguish them, so that a service
//! can move out of the daemon and back unnoticed.
//!
//! A peer outside of the daemon may end at any time. The requests that it has not answered then are answered for it,
//! with EHOSTUNREACH. In place of a response that is longer than a frame the requester gets an error, EOVERFLOW; a request
//! that is too long for the service outside of the daemon is answered with EMSGSIZE.
//!
//! The crate is sans-IO and knows neither sockets nor time. The daemon accepts and authenticates
//! connections, and serves `service.add` and `event.subscribe`.

mod error;
mod exchange;

use std::collections::btree_map::{self, Entry};
use std::collections::{BTreeMap, BTreeSet};

use penstock_flux::flags::{NORESPONSE, PRIVATE, STREAMING, USERID_UNKNOWN};
use penstock_flux::limits::MAX_FRAME_BYTES;
use penstock_flux::{Credentials, errno, role, topic};
use penstock_wire::{Message, MessageType, cbor_to_json, find_text_fault, is_cbor};

/// Number of a connected peer.
pub type PeerId = u32;

/// The most subscriptions of one peer.
const MAX_SUBSCRIPTIONS: usize = 1000;

/// The greatest length of the payload of a guest's request without a response to a service outside of the daemon, and of any that
/// the limits of outstanding requests let pass, in bytes: that of a cancellation is shorter.
const MAX_NOTICE_BYTES: usize = 4096;

#[derive(Debug)]
struct Peer {
    uuid: Vec<u8>,
    credentials: Credentials,
    subscriptions: Vec<String>,
    /// Services to which the peer has sent a request; they are notified of its disconnect.
    services_used: BTreeSet<String>,
    location: Location,
    /// The requests that the peer is serving, by requester and matchtag, without payload; `None` if they are not tracked.
    serving: Option<BTreeMap<(PeerId, u32), Message>>,
    /// The peer's own requests that count for the limits of its user, by matchtag.
    counted: BTreeMap<u32, CountedRequests>,
}

impl Peer {
    fn is_subscribed(&self, topic: &str) -> bool {
        let mut prefixes = self.subscriptions.iter();
        prefixes.any(|prefix| topic.starts_with(prefix.as_str()))
    }
}

/// Outstanding requests of a peer with one matchtag, of which there is one unless the peer violates RFC 6.
#[derive(Clone, Copy, Debug, Default)]
struct CountedRequests {
    load: Load,
    /// Whether responses end with an error only (RFC 6).
    is_streaming: bool,
}

/// The outstanding requests of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    requests: u64,
    bytes: u64,
    /// The streams among the requests.
    watches: u64,
}

impl Load {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.watches += other.watches;
    }

    fn remove(&mut self, other: Self) {
        self.requests -= other.requests;
        self.bytes -= other.bytes;
        self.watches -= other.watches;
    }
}

/// A limit of outstanding requests that one more is compared with.
struct Check<'a> {
    /// The words after the number in the error.
    what: &'static str,
    /// `owner-requests` for `penstock.quota.owner-requests`.
    setting: &'static str,
    before: u64,
    added: u64,
    most: u64,
    rejected: &'a mut u64,
}

/// The error of the first limit that is exceeded, which counts the rejection.
fn first_excess<'a>(userid: u32, checks: impl IntoIterator<Item = Check<'a>>) -> Option<String> {
    let is_exceeded = |check: &Check<'_>| {
        check.added > 0 && check.before.saturating_add(check.added) > check.most
    };
    let Check {
        what,
        setting,
        before,
        added,
        most,
        rejected,
    } = checks.into_iter().find(is_exceeded)?;
    *rejected += 1;
    let whose = if setting.starts_with("all-") {
        "all guests have".to_owned()
    } else {
        format!("user {userid} has")
    };
    Some(format!(
        "{whose} {before} {what}, expected at most {most} with the {added} of this request (penstock.quota.{setting})"
    ))
}

/// The limits of the outstanding requests of each user, and of all guests together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of requests of the owner.
    pub owner_requests: u64,
    /// The bytes of their payloads.
    pub owner_request_bytes: u64,
    /// The number of requests of a guest.
    pub requests: u64,
    /// The bytes of their payloads.
    pub request_bytes: u64,
    /// The number of streams among them.
    pub watches: u64,
    /// The number of requests of all guests.
    pub all_requests: u64,
    /// The bytes of their payloads.
    pub all_request_bytes: u64,
    /// The number of streams among them.
    pub all_watches: u64,
}

impl Default for Limits {
    /// No limits.
    fn default() -> Self {
        Self {
            owner_requests: u64::MAX,
            owner_request_bytes: u64::MAX,
            requests: u64::MAX,
            request_bytes: u64::MAX,
            watches: u64::MAX,
            all_requests: u64::MAX,
            all_request_bytes: u64::MAX,
            all_watches: u64::MAX,
        }
    }
}

/// The number of requests that were rejected because of each limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rejections {
    /// Because of the number of requests of the owner.
    pub owner_requests: u64,
    /// Because of the bytes of their payloads.
    pub owner_request_bytes: u64,
    /// Because of the number of requests of a guest.
    pub requests: u64,
    /// Because of the bytes of their payloads.
    pub request_bytes: u64,
    /// Because of the number of streams of the guest.
    pub watches: u64,
    /// Because of the number of requests of all guests.
    pub all_requests: u64,
    /// Because of the bytes of their payloads.
    pub all_request_bytes: u64,
    /// Because of the number of streams of all guests.
    pub all_watches: u64,
    /// Responses of guests to requests that they do not serve.
    pub forged_responses: u64,
}

/// Whether a peer is in the daemon's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    Inside,
    Outside,
}

pub use error::RegistrationError;
pub use exchange::{Exchange, ExchangeFailure, InMemoryService};

/// Messages for one peer, in order.
pub type Delivery = (PeerId, Vec<Message>);

/// The routing tables.
#[derive(Debug)]
pub struct Router {
    uuid: Vec<u8>,
    owner: u32,
    peers: BTreeMap<PeerId, Peer>,
    by_uuid: BTreeMap<Vec<u8>, PeerId>,
    services: BTreeMap<String, PeerId>,
    sequence: u32,
    limits: Limits,
    /// Of the users with outstanding requests.
    loads: BTreeMap<u32, Load>,
    /// Of all guests.
    guests: Load,
    rejections: Rejections,
}

/// Collects deliveries: one batch a peer, in the order of each peer's first message.
#[derive(Default)]
struct Outbox {
    deliveries: Vec<Delivery>,
    indices: BTreeMap<PeerId, usize>,
}

impl Outbox {
    fn push(&mut self, peer: PeerId, message: Message) {
        let deliveries = &mut self.deliveries;
        let index = *self.indices.entry(peer).or_insert_with(|| {
            deliveries.push((peer, Vec::new()));
            deliveries.len() - 1
        });
        deliveries[index].1.push(message);
    }
}

impl Router {
    /// A router without peers. `uuid` is the hop that it adds to requests; its own responses are
    /// sent as `owner`, the user id of the instance owner.
    pub fn new(uuid: &str, owner: u32) -> Self {
        Self {
            uuid: uuid.as_bytes().to_vec(),
            owner,
            peers: BTreeMap::new(),
            by_uuid: BTreeMap::new(),
            services: BTreeMap::new(),
            sequence: 0,
            limits: Limits::default(),
            loads: BTreeMap::new(),
            guests: Load::default(),
            rejections: Rejections::default(),
        }
    }

    /// Sets the limits of the outstanding requests of each user, for later requests.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The number of requests that were rejected because of each limit.
    pub fn rejections(&self) -> Rejections {
        self.rejections
    }

    /// Adds a peer within the daemon. `uuid` names it in route stacks.
    pub fn add_peer(&mut self, id: PeerId, uuid: &str, credentials: Credentials) {
        self.add(id, uuid, credentials, Location::Inside);
    }

    fn is_inside(&self, id: PeerId) -> bool {
        let peer = self.peers.get(&id);
        peer.is_some_and(|peer| peer.location == Location::Inside)
    }

    /// Adds a peer outside of the daemon. When it is removed, the requests that it has not answered are answered.
    pub fn add_remote_peer(&mut self, id: PeerId, uuid: &str, credentials: Credentials) {
        self.add(id, uuid, credentials, Location::Outside);
        self.track_requests(id);
    }

    /// Tracks the requests that a peer has not answered from now on: when it is removed, or has failed, they are
    /// answered.
    pub fn track_requests(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.serving.get_or_insert_default();
        }
    }

    /// Returns error responses to the tracked requests that a peer has not answered: it has failed.
    pub fn abandon_requests(&mut self, id: PeerId, errnum: u32, reason: &str) -> Vec<Delivery> {
        let serving = self
            .peers
            .get_mut(&id)
            .and_then(|peer| peer.serving.as_mut());
        let requests = serving.map(std::mem::take).unwrap_or_default();
        let mut outbox = Outbox::default();
        for request in requests.into_values() {
            let text = format!("{}: {reason}", request.topic());
            self.answer_abandoned(&request, errnum, &text, &mut outbox);
        }
        outbox.deliveries
    }

    /// Ends the tracked requests of a peer to which these responses were, whether or not they are the last ones: the
    /// instance has sent errors in their place.
    pub fn end_requests(&mut self, requester: PeerId, responses: &[Message]) {
        for server in self.peers.values_mut() {
            let Some(serving) = &mut server.serving else {
                continue;
            };
            for response in responses {
                serving.remove(&(requester, response.matchtag));
            }
        }
        for response in responses {
            let peer = self.peers.get(&requester);
            let counted = peer.and_then(|peer| peer.counted.get(&response.matchtag));
            // A request with one response has ended when that was routed.
            if counted.is_some_and(|counted| counted.is_streaming) {
                self.count_response(requester, response);
            }
        }
    }

    /// The peers outside of the daemon that have used a service of this peer, and have services themselves.
    pub fn serving_clients(&self, id: PeerId) -> Vec<PeerId> {
        let servers: BTreeSet<PeerId> = self.services.values().copied().collect();
        let is_client = |peer: &Peer| {
            let mut used = peer.services_used.iter();
            peer.location == Location::Outside
                && used.any(|service| self.services.get(service) == Some(&id))
        };
        let clients = servers.into_iter();
        clients
            .filter(|server| self.peers.get(server).is_some_and(is_client))
            .collect()
    }

    fn add(&mut self, id: PeerId, uuid: &str, credentials: Credentials, location: Location) {
        let uuid = uuid.as_bytes().to_vec();
        self.by_uuid.insert(uuid.clone(), id);
        let peer = Peer {
            uuid,
            credentials,
            subscriptions: Vec::new(),
            services_used: BTreeSet::new(),
            location,
            serving: None,
            counted: BTreeMap::new(),
        };
        self.peers.insert(id, peer);
    }

    /// Removes a peer and its services. Returns disconnect requests to the services that it used, and the responses to
    /// requests that it has not answered.
    pub fn remove_peer(&mut self, id: PeerId) -> Vec<Delivery> {
        let Some(peer) = self.peers.remove(&id) else {
            return Vec::new();
        };
        self.by_uuid.remove(&peer.uuid);
        let outstanding: Vec<Load> = peer.counted.values().map(|counted| counted.load).collect();
        for load in outstanding {
            self.release(peer.credentials, load);
        }
        self.services.retain(|_, owner| *owner != id);
        let mut outbox = Outbox::default();
        for request in peer.serving.into_iter().flat_map(BTreeMap::into_values) {
            let text = format!("{}: the service has disconnected", request.topic());
            self.answer_abandoned(&request, errno::EHOSTUNREACH, &text, &mut outbox);
        }
        for service in &peer.services_used {
            if let Some(&owner) = self.services.get(service) {
                if let Some(server) = self.peers.get_mut(&owner)
                    && let Some(serving) = &mut server.serving
                {
                    serving.retain(|(requester, _), _| *requester != id);
                }
                let notice = Message::request(&format!("{service}.{}", topic::DISCONNECT), "");
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
    ///
    /// # Errors
    ///
    /// The name is empty or has a character other than ASCII letters, digits, `-` and `_`, the peer is unknown, or the
    /// name is taken.
    pub fn add_service(&mut self, name: &str, id: PeerId) -> Result<(), RegistrationError> {
        let valid = |char: char| char.is_ascii_alphanumeric() || char == '-' || char == '_';
        if name.is_empty() || !name.chars().all(valid) {
            return Err(RegistrationError::INVALID_NAME);
        }
        if !self.peers.contains_key(&id) {
            return Err(RegistrationError::UNKNOWN);
        }
        if self.services.contains_key(name) {
            return Err(RegistrationError::TAKEN);
        }
        self.services.insert(name.to_owned(), id);
        Ok(())
    }

    /// Removes a peer's service.
    ///
    /// # Errors
    ///
    /// The peer has no service of this name.
    pub fn remove_service(&mut self, name: &str, id: PeerId) -> Result<(), RegistrationError> {
        if self.services.get(name) != Some(&id) {
            return Err(RegistrationError::UNKNOWN);
        }
        self.services.remove(name);
        Ok(())
    }

    /// The registered services and their peers, by name.
    pub fn services(&self) -> impl Iterator<Item = (&str, PeerId)> {
        self.services.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Subscribes a peer to the events whose topic starts with `prefix`. Returns whether it may have one more.
    pub fn subscribe(&mut self, id: PeerId, prefix: &str) -> bool {
        let Some(peer) = self.peers.get_mut(&id) else {
            return true;
        };
        let has_room = peer.subscriptions.len() < MAX_SUBSCRIPTIONS;
        if has_room {
            peer.subscriptions.push(prefix.to_owned());
        }
        has_room
    }

    /// Removes one subscription to `prefix`. Returns whether there was one.
    pub fn unsubscribe(&mut self, id: PeerId, prefix: &str) -> bool {
        let Some(peer) = self.peers.get_mut(&id) else {
            return false;
        };
        let place = peer
            .subscriptions
            .iter()
            .position(|subscription| subscription == prefix);
        place.is_some_and(|place| {
            peer.subscriptions.swap_remove(place);
            true
        })
    }

    /// Whether a peer is subscribed to events with this topic.
    pub fn has_subscriber(&self, topic: &str) -> bool {
        self.peers.values().any(|peer| peer.is_subscribed(topic))
    }

    /// The peer that a route names.
    pub fn peer(&self, uuid: &[u8]) -> Option<PeerId> {
        self.by_uuid.get(uuid).copied()
    }

    /// Routes messages that peer `from` sends. A request for a service that is not registered is answered
    /// with ENOSYS; a response whose route has a peer that is gone is dropped.
    pub fn route(&mut self, from: PeerId, messages: Vec<Message>) -> Vec<Delivery> {
        let mut outbox = Outbox::default();
        for message in messages {
            match message.kind {
                MessageType::Request => self.route_request(from, message, &mut outbox),
                MessageType::Response => self.route_response(from, message, &mut outbox),
                MessageType::Event => self.publish(from, message, &mut outbox),
                MessageType::Control => {}
            }
        }
        outbox.deliveries
    }

    fn route_request(&mut self, from: PeerId, mut request: Message, outbox: &mut Outbox) {
        let Some(peer) = self.peers.get_mut(&from) else {
            return;
        };
        // The owner may send a request as a guest would: tests of clients do.
        let sent = request.credentials();
        let is_lowered = sent.rolemask & (role::OWNER | role::USER) == role::USER
            && peer.credentials.is_owner()
            && peer.location == Location::Outside;
        if !is_lowered {
            request.userid = peer.credentials.userid;
            request.rolemask = peer.credentials.rolemask;
        } else if sent.userid == USERID_UNKNOWN {
            request.userid = peer.credentials.userid;
        }
        // A route that the sender gives would be kept with the request.
        if peer.location == Location::Outside {
            request.routes = Some(Vec::new());
        }
        let service = request.service();
        if let Some(&owner) = self.services.get(service) {
            if !peer.services_used.contains(service) {
                peer.services_used.insert(service.to_owned());
            }
            request.push_route(&peer.uuid);
            request.push_route(&self.uuid);
            if peer.location == Location::Outside
                && let Some(fault) = find_fault(&request).or_else(|| find_wanted_response(&request))
            {
                if !request.is_noresponse() {
                    self.answer(&request, errno::EPROTO, &fault, outbox);
                }
                return;
            }
            if self.is_dropped(from, owner, &request) {
                return;
            }
            if let Some(fault) = self.find_excess(owner, &request) {
                if !request.is_noresponse() {
                    self.answer(&request, errno::EMSGSIZE, &fault, outbox);
                }
                return;
            }
            if self.reuses_matchtag(from, &request) {
                let text = format!(
                    "{}: matchtag {} is that of an outstanding request",
                    request.topic(),
                    request.matchtag
                );
                self.answer(&request, errno::EPROTO, &text, outbox);
                return;
            }
            if let Some(text) = self.count(from, &request) {
                if !request.is_noresponse() {
                    self.answer(&request, errno::EAGAIN, &text, outbox);
                }
                return;
            }
            let server = self.peers.get_mut(&owner);
            if let Some(serving) = server.and_then(|server| server.serving.as_mut())
                && !request.is_noresponse()
                && request.matchtag != 0
            {
                serving.insert((from, request.matchtag), request.header());
            }
            outbox.push(owner, request);
        } else if !request.is_noresponse() {
            request.push_route(&peer.uuid);
            request.push_route(&self.uuid);
            let topic = request.topic();
            let text = format!("No service matching {topic} is registered");
            self.answer(&request, errno::ENOSYS, &text, outbox);
        }
    }

    /// Whether a guest's request is one without a response that would fill the queue of a service outside of the daemon:
    /// its end is not known, so it is not counted.
    fn is_dropped(&self, from: PeerId, to: PeerId, request: &Message) -> bool {
        let is_outside = self
            .peers
            .get(&to)
            .is_some_and(|peer| peer.location == Location::Outside);
        // The length last: a value for a service in the daemon is not encoded.
        let length = || request.payload.as_deref().map_or(0, <[u8]>::len);
        request.is_noresponse() && is_outside && self.is_guest(from) && length() > MAX_NOTICE_BYTES
    }

    /// Describes the length of a message for a peer outside of the daemon if no frame has it: the peer would end its
    /// connection.
    fn find_excess(&self, to: PeerId, message: &Message) -> Option<String> {
        if self.is_inside(to) {
            return None;
        }
        let length = message.frame_len();
        (length > MAX_FRAME_BYTES).then(|| {
            format!(
                "{}: the {} has {length} bytes: expected at most {MAX_FRAME_BYTES}, the limit of a frame",
                message.topic(),
                message.kind.name()
            )
        })
    }

    /// Whether a guest sends a request with the matchtag of a stream that has not ended, or a streaming request with that of
    /// any other: the end of one would count as that of the other.
    fn reuses_matchtag(&self, from: PeerId, request: &Message) -> bool {
        let counted = self
            .peers
            .get(&from)
            .and_then(|peer| peer.counted.get(&request.matchtag));
        let is_streaming = request.is_streaming();
        self.is_guest(from)
            && !request.is_noresponse()
            && counted.is_some_and(|counted| counted.is_streaming || is_streaming)
    }

    /// Whether a peer is the connection of a guest.
    fn is_guest(&self, peer: PeerId) -> bool {
        let peer = self.peers.get(&peer);
        peer.is_some_and(|peer| peer.location == Location::Outside && !peer.credentials.is_owner())
    }

    /// Counts a request of a client. Returns the error if it exceeds a limit. The requests of services are due to those of
    /// clients, and a short one without a response is not outstanding: a cancellation makes room.
    fn count(&mut self, from: PeerId, request: &Message) -> Option<String> {
        let peer = self.peers.get(&from)?;
        let is_service = self.services.values().any(|owner| *owner == from);
        if peer.location == Location::Inside || is_service {
            return None;
        }
        let credentials = peer.credentials;
        let bytes = request.payload.as_deref().map_or(0, <[u8]>::len);
        if request.is_noresponse() && bytes <= MAX_NOTICE_BYTES {
            return None;
        }
        let is_watch = request.is_streaming() && !request.is_noresponse();
        let added = Load {
            requests: 1,
            bytes: bytes as u64,
            watches: u64::from(is_watch && !credentials.is_owner()),
        };
        if let Some(excess) = self.excess(credentials, added) {
            return Some(format!("{}: {excess}", request.topic()));
        }
        // The end of a request without a response is not known.
        if !request.is_noresponse() {
            let peer = self.peers.get_mut(&from)?;
            let counted = peer.counted.entry(request.matchtag).or_default();
            counted.is_streaming = request.is_streaming();
            counted.load.add(added);
            self.loads.entry(credentials.userid).or_default().add(added);
            if !credentials.is_owner() {
                self.guests.add(added);
            }
        }
        None
    }

    /// The limit that a user's outstanding requests would exceed with another one, which is counted as rejected.
    fn excess(&mut self, credentials: Credentials, added: Load) -> Option<String> {
        let userid = credentials.userid;
        let of_user = self.loads.get(&userid).copied().unwrap_or_default();
        let (limits, of_guests) = (self.limits, self.guests);
        let Rejections {
            owner_requests,
            owner_request_bytes,
            requests,
            request_bytes,
            watches,
            all_requests,
            all_request_bytes,
            all_watches,
            ..
        } = &mut self.rejections;
        let count = |setting, load: Load, most, rejected| Check {
            what: "outstanding requests",
            setting,
            before: load.requests,
            added: added.requests,
            most,
            rejected,
        };
        let size = |setting, load: Load, most, rejected| Check {
            what: "bytes of outstanding requests",
            setting,
            before: load.bytes,
            added: added.bytes,
            most,
            rejected,
        };
        let streams = |setting, load: Load, most, rejected| Check {
            what: "streaming requests",
            setting,
            before: load.watches,
            added: added.watches,
            most,
            rejected,
        };
        if credentials.is_owner() {
            let bytes = limits.owner_request_bytes;
            let checks = [
                count(
                    "owner-requests",
                    of_user,
                    limits.owner_requests,
                    owner_requests,
                ),
                size("owner-request-bytes", of_user, bytes, owner_request_bytes),
            ];
            return first_excess(userid, checks);
        }
        let all_bytes = limits.all_request_bytes;
        let checks = [
            count("requests", of_user, limits.requests, requests),
            size(
                "request-bytes",
                of_user,
                limits.request_bytes,
                request_bytes,
            ),
            streams("watches", of_user, limits.watches, watches),
            count("all-requests", of_guests, limits.all_requests, all_requests),
            size("all-request-bytes", of_guests, all_bytes, all_request_bytes),
            streams("all-watches", of_guests, limits.all_watches, all_watches),
        ];
        first_excess(userid, checks)
    }

    /// Counts a response to a client: the last one ends the request.
    fn count_response(&mut self, to: PeerId, response: &Message) {
        let Some(peer) = self.peers.get_mut(&to) else {
            return;
        };
        let Entry::Occupied(mut entry) = peer.counted.entry(response.matchtag) else {
            return;
        };
        let counted = entry.get_mut();
        if response.errnum() == 0 && counted.is_streaming {
            return;
        }
        let ended = Load {
            requests: 1,
            bytes: counted.load.bytes / counted.load.requests.max(1),
            watches: counted.load.watches.min(1),
        };
        counted.load.remove(ended);
        if counted.load.requests == 0 {
            entry.remove();
        }
        let credentials = peer.credentials;
        self.release(credentials, ended);
    }

    fn release(&mut self, credentials: Credentials, ended: Load) {
        if !credentials.is_owner() {
            self.guests.remove(ended);
        }
        if let Entry::Occupied(mut entry) = self.loads.entry(credentials.userid) {
            let load = entry.get_mut();
            load.remove(ended);
            if load.requests == 0 {
                entry.remove();
            }
        }
    }

    /// Answers a request in the name of the instance.
    fn answer(&self, request: &Message, errnum: u32, text: &str, outbox: &mut Outbox) {
        let mut response = Message::error_to(request, errnum, text);
        response.userid = self.owner;
        response.rolemask = Credentials::owner(self.owner).rolemask;
        if let Some(to) = self.pop_requester(&mut response) {
            outbox.push(to, response);
        }
    }

    /// Answers a request that a service has received, and does not answer itself.
    fn answer_abandoned(
        &mut self,
        request: &Message,
        errnum: u32,
        text: &str,
        outbox: &mut Outbox,
    ) {
        let mut response = Message::error_to(request, errnum, text);
        if let Some(to) = self.pop_requester(&mut response) {
            self.count_response(to, &response);
        }
        self.answer(request, errnum, text, outbox);
    }

    /// Pops the requester off a response's route; `None` if it is gone.
    fn pop_requester(&self, response: &mut Message) -> Option<PeerId> {
        if response.pop_route().is_none_or(|hop| hop != self.uuid) {
            return None;
        }
        response.pop_route().and_then(|hop| self.peer(&hop))
    }

    fn route_response(&mut self, from: PeerId, mut response: Message, outbox: &mut Outbox) {
        let Some(peer) = self.peers.get(&from) else {
            return;
        };
        response.userid = peer.credentials.userid;
        response.rolemask = peer.credentials.rolemask;
        let location = peer.location;
        let Some(to) = self.pop_requester(&mut response) else {
            return;
        };
        if self.is_guest(from) && !self.is_serving(from, to, response.matchtag) {
            self.rejections.forged_responses += 1;
            return;
        }
        // Clients outside check what they read.
        let is_inside = |peer: &Peer| peer.location == Location::Inside;
        if location == Location::Outside
            && self.peers.get(&to).is_some_and(is_inside)
            && let Some(fault) = find_fault(&response)
        {
            response = Message::error_to(&response, errno::EPROTO, &fault);
        } else if let Some(fault) = self.find_excess(to, &response) {
            response = Message::error_to(&response, errno::EOVERFLOW, &fault);
        }
        let (matchtag, errnum) = (response.matchtag, response.errnum());
        self.count_response(to, &response);
        outbox.push(to, response);
        let peer = self.peers.get_mut(&from);
        if let Some(serving) = peer.and_then(|peer| peer.serving.as_mut())
            && let btree_map::Entry::Occupied(request) = serving.entry((to, matchtag))
            && (errnum != 0 || !request.get().is_streaming())
        {
            request.remove();
        }
    }

    /// Whether a peer is serving a request.
    fn is_serving(&self, peer: PeerId, requester: PeerId, matchtag: u32) -> bool {
        let serving = self.peers.get(&peer).and_then(|peer| peer.serving.as_ref());
        serving.is_some_and(|serving| serving.contains_key(&(requester, matchtag)))
    }

    /// The number of the last event.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Publishes an event of an owner's peer; a private one goes to the owner's subscribers only. An event from
    /// outside is dropped if the text of its payload is not Unicode.
    fn publish(&mut self, from: PeerId, mut event: Message, outbox: &mut Outbox) {
        let Some(peer) = self.peers.get(&from) else {
            return;
        };
        let has_fault = || event.payload.as_deref().and_then(find_text_fault).is_some();
        if !peer.credentials.is_owner() || peer.location == Location::Outside && has_fault() {
            return;
        }
        self.sequence = self.sequence.wrapping_add(1);
        event.nodeid_errnum_seq = self.sequence;
        event.userid = peer.credentials.userid;
        event.rolemask = peer.credentials.rolemask;
        event.flags &= !STREAMING;
        let private = event.flags & PRIVATE != 0;
        let topic = event.topic();
        let subscribers = self
            .peers
            .iter()
            .filter(|(_, peer)| !private || peer.credentials.is_owner())
            .filter(|(_, peer)| peer.is_subscribed(topic))
            .map(|(id, _)| *id);
        for id in subscribers {
            outbox.push(id, event.clone());
        }
    }
}

/// Describes the fault of a payload from outside: CBOR that has no JSON form, or text that is not Unicode. The text of an error
/// is not JSON. A service outside of the daemon would end its connection for it.
fn find_fault(message: &Message) -> Option<String> {
    if message.kind == MessageType::Response && message.errnum() != 0 {
        return None;
    }
    let payload = message.payload.as_deref()?;
    let fault = if is_cbor(payload) {
        cbor_to_json(payload).err()?.to_string()
    } else {
        format!("invalid JSON: {}", find_text_fault(payload)?)
    };
    Some(format!("{}: {fault}", message.topic()))
}

/// Describes the fault of a client's `disconnect` that wants a response: no service answers one.
fn find_wanted_response(request: &Message) -> Option<String> {
    let is_fault = request.method() == topic::DISCONNECT && !request.is_noresponse();
    is_fault.then(|| format!("{}: expected a request without a response", request.topic()))
}

#[cfg(test)]
mod tests;
