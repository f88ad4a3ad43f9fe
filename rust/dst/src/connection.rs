//! Connections as the daemon has them, as in `python/penstock/instance/connection.py`: bytes to be sent, and the responses among
//! them that are retracted if the next commit fails.

use std::collections::BTreeSet;

use penstock_flux::errno;
use penstock_wire::{DEFAULT_MAX_FRAME_BYTES, Decoder, Message, MessageType};

use crate::network::{End, LinkId, Network};

const BACKPRESSURE_BYTES: usize = 1 << 20;

/// Why a service has failed: the errno and the text of the responses to its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) errnum: u32,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            errnum: errno::EIO,
            text: text.to_owned(),
        }
    }

    pub(crate) fn of(error: &penstock_store::Error) -> Self {
        let (errnum, cause) = if error.is_disk_full() {
            (errno::ENOSPC, "the disk is full")
        } else if error.is_busy() {
            (errno::EBUSY, "another program holds a lock of the database")
        } else {
            (errno::EIO, "input/output error")
        };
        let text = format!("the store cannot be written: {cause}");
        Self { errnum, text }
    }
}

/// Whether messages tell changes that are to be committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commitment {
    Committed,
    Uncommitted,
}

/// Queued messages that are not to be sent before a commit is durable.
#[derive(Default)]
struct HeldMessages {
    bytes: Vec<u8>,
    messages: Vec<(Message, Commitment)>,
}

impl HeldMessages {
    fn is_committed(&self) -> bool {
        let mut messages = self.messages.iter();
        messages.all(|(_, commitment)| *commitment == Commitment::Committed)
    }
}

/// A connection: what its peer has not been sent.
pub(crate) struct Connection {
    pub(crate) link: LinkId,
    pub(crate) decoder: Decoder,
    unsent: Vec<u8>,
    /// The messages since the last commit.
    held: HeldMessages,
    /// The messages before it, until its sync has ended.
    syncing: Option<HeldMessages>,
    pub(crate) is_service: bool,
    pub(crate) is_ended: bool,
}

impl Connection {
    pub(crate) fn new(link: LinkId) -> Self {
        Self {
            link,
            decoder: Decoder::new(DEFAULT_MAX_FRAME_BYTES),
            unsent: Vec::new(),
            held: HeldMessages::default(),
            syncing: None,
            is_service: false,
            is_ended: false,
        }
    }

    /// Whether messages were queued since the last commit.
    pub(crate) fn is_unflushed(&self) -> bool {
        !self.held.messages.is_empty()
    }

    /// Whether messages wait for a commit, or for its sync.
    pub(crate) fn holds_messages(&self) -> bool {
        self.is_unflushed() || self.syncing.is_some()
    }

    /// Whether its peer leaves many bytes unread.
    pub(crate) fn is_backlogged(&self) -> bool {
        let syncing = self.syncing.as_ref().map_or(0, |held| held.bytes.len());
        self.unsent.len() + self.held.bytes.len() + syncing > BACKPRESSURE_BYTES
    }

    pub(crate) fn send(&mut self, messages: Vec<Message>, commitment: Commitment) {
        for message in messages {
            message.encode(&mut self.held.bytes);
            self.held.messages.push((message, commitment));
        }
    }

    /// Has the queued messages wait for a sync, unless they tell nothing that it makes durable.
    pub(crate) fn hold_for_sync(&mut self) {
        if !self.held.is_committed() {
            self.syncing = Some(std::mem::take(&mut self.held));
        }
    }

    /// Lets the messages that waited for a sync be sent.
    pub(crate) fn release_synced(&mut self) {
        if let Some(held) = self.syncing.take() {
            self.unsent.extend(held.bytes);
        }
    }

    /// Lets the queued messages be sent if they tell nothing that is uncommitted.
    pub(crate) fn release_committed(&mut self) {
        if self.syncing.is_none() && self.held.is_committed() {
            self.release();
        }
    }

    /// Lets the queued messages be sent.
    pub(crate) fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.unsent.extend(held.bytes);
    }

    /// Sends errors in place of the uncommitted responses. A peer that was to get an uncommitted request is disconnected. Returns
    /// these responses.
    pub(crate) fn retract(&mut self, failure: &Failure) -> Vec<Message> {
        let syncing = self.syncing.take().unwrap_or_default().messages;
        let held = std::mem::take(&mut self.held).messages;
        let messages = syncing.into_iter().chain(held);
        let (committed, uncommitted): (Vec<_>, Vec<_>) =
            messages.partition(|(_, commitment)| *commitment == Commitment::Committed);
        if uncommitted
            .iter()
            .any(|(message, _)| message.kind == MessageType::Request)
        {
            self.is_ended = true;
            self.unsent.clear();
            return Vec::new();
        }
        for (message, _) in &committed {
            message.encode(&mut self.unsent);
        }
        let mut answered = BTreeSet::new();
        for (response, _) in &uncommitted {
            let is_response = response.kind == MessageType::Response;
            if is_response && answered.insert((response.routes.clone(), response.matchtag)) {
                let text = format!("{}: {}", response.topic(), failure.text);
                Message::error_to(response, failure.errnum, &text).encode(&mut self.unsent);
            }
        }
        let uncommitted = uncommitted.into_iter();
        uncommitted.map(|(response, _)| response).collect()
    }

    /// Sends what may be sent, as far as the socket takes it.
    pub(crate) fn flush(&mut self, network: &mut Network) {
        let sent = network.send(self.link, End::Peer, &self.unsent);
        self.unsent.drain(..sent);
    }
}
