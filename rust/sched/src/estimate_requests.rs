//! The requests for estimates: one is in progress, the others wait for their turn.

use std::collections::{BTreeMap, VecDeque};

use penstock_engine::{Band, Engine, SlicedEstimate};
use penstock_flux::sched::EstimateResponseText;
use penstock_wire::Message;

/// An estimate in progress.
#[derive(Debug)]
pub(crate) struct OpenEstimate {
    /// The request without its payload.
    pub request: Message,
    pub errors: BTreeMap<String, String>,
    /// When it began, in seconds since the epoch.
    pub now: f64,
    /// The state then, for the reasons of jobs without an estimate.
    pub snapshot: Engine,
    pub band: Option<Band>,
    pub starts: SlicedEstimate,
    /// Whether all starts are known.
    pub is_forecast: bool,
    /// The number of jobs that the response has.
    pub written: usize,
    pub response: EstimateResponseText,
}

/// The greatest length of a response, in bytes: half of that of a frame.
const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// The requests, in the order of their arrival; peers take turns.
#[derive(Debug)]
pub(crate) struct EstimateRequests {
    pub open: Option<Box<OpenEstimate>>,
    pub waiting: VecDeque<Message>,
    /// The peer that had the last turn.
    last: Option<Vec<u8>>,
    /// The greatest length of a response, in bytes.
    pub max_bytes: usize,
}

impl Default for EstimateRequests {
    fn default() -> Self {
        Self {
            open: None,
            waiting: VecDeque::new(),
            last: None,
            max_bytes: MAX_RESPONSE_BYTES,
        }
    }
}

impl EstimateRequests {
    pub fn await_turn(&mut self, request: Message) {
        self.waiting.push_back(request);
    }

    /// Takes the next request: the first of another peer than the last one, if there is one.
    pub fn take_next(&mut self) -> Option<Message> {
        let last = self.last.as_deref();
        let other = self
            .waiting
            .iter()
            .position(|request| request.origin() != last);
        let request = self.waiting.remove(other.unwrap_or(0))?;
        self.last = request.origin().map(<[u8]>::to_vec);
        Some(request)
    }

    /// Drops the requests of a peer that has disconnected.
    pub fn disconnect(&mut self, origin: Option<&[u8]>) {
        if origin.is_none() {
            return;
        }
        self.waiting.retain(|request| request.origin() != origin);
        if let Some(open) = &self.open
            && open.request.origin() == origin
        {
            self.open = None;
        }
    }
}
