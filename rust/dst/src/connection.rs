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

/// A connection: what its peer has not been sent.
pub(crate) struct Connection {
    pub(crate) link: LinkId,
    pub(crate) decoder: Decoder,
    unsent: Vec<u8>,
    /// The length of `unsent` without the messages since the last flush, and these messages.
    unflushed_start: Option<usize>,
    unflushed: Vec<(Message, Commitment)>,
    pub(crate) is_service: bool,
    pub(crate) is_ended: bool,
}

impl Connection {
    pub(crate) fn new(link: LinkId) -> Self {
        Self {
            link,
            decoder: Decoder::new(DEFAULT_MAX_FRAME_BYTES),
            unsent: Vec::new(),
            unflushed_start: None,
            unflushed: Vec::new(),
            is_service: false,
            is_ended: false,
        }
    }

    /// Whether messages were queued since the last flush.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.unflushed_start.is_some()
    }

    /// Whether its peer leaves many bytes unread.
    pub(crate) fn is_backlogged(&self) -> bool {
        self.unsent.len() > BACKPRESSURE_BYTES
    }

    pub(crate) fn send(&mut self, messages: Vec<Message>, commitment: Commitment) {
        self.unflushed_start.get_or_insert(self.unsent.len());
        for message in messages {
            message.encode(&mut self.unsent);
            self.unflushed.push((message, commitment));
        }
    }

    /// Sends errors in place of the uncommitted responses. A peer that was to get an uncommitted request is disconnected. Returns
    /// these responses.
    pub(crate) fn retract(&mut self, failure: &Failure) -> Vec<Message> {
        let unflushed = std::mem::take(&mut self.unflushed);
        let (committed, uncommitted): (Vec<_>, Vec<_>) = unflushed
            .into_iter()
            .partition(|(_, commitment)| *commitment == Commitment::Committed);
        if uncommitted
            .iter()
            .any(|(message, _)| message.kind == MessageType::Request)
        {
            self.is_ended = true;
            self.unsent.clear();
            return Vec::new();
        }
        if let Some(start) = self.unflushed_start.take() {
            self.unsent.truncate(start);
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

    pub(crate) fn flush(&mut self, network: &mut Network) {
        self.unflushed_start = None;
        self.unflushed.clear();
        let sent = network.send(self.link, End::Peer, &self.unsent);
        self.unsent.drain(..sent);
    }
}
