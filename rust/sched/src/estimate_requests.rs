//! The requests for estimates: one is in progress, the others wait for their turn.

use std::collections::{BTreeMap, VecDeque};

use penstock_engine::{Band, Engine, SlicedEstimate};
use penstock_flux::RequestError;
use penstock_flux::errno::EAGAIN;
use penstock_flux::limits::MAX_FRAME_BYTES;
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

/// The greatest number of waiting requests.
const MAX_WAITING: usize = 1024;
/// The same of one user, and of the bytes of their payloads: at least as many as one request may have.
const MAX_WAITING_OF_USER: usize = 256;
const MAX_WAITING_BYTES_OF_USER: usize = MAX_FRAME_BYTES;

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
    /// Adds a request to those that wait for their turn.
    ///
    /// # Errors
    ///
    /// There are as many as the daemon retains, in all or of this user (EAGAIN): the sender has sent them without waiting
    /// for responses.
    pub fn await_turn(&mut self, request: Message) -> Result<(), RequestError> {
        let length = |request: &Message| request.payload.as_deref().map_or(0, <[u8]>::len);
        let userid = request.credentials().userid;
        let (mut count, mut bytes) = (0, length(&request));
        for other in &self.waiting {
            if other.credentials().userid == userid {
                count += 1;
                bytes += length(other);
            }
        }
        let limit = if self.waiting.len() >= MAX_WAITING {
            format!("{MAX_WAITING} requests for forecasts")
        } else if count >= MAX_WAITING_OF_USER {
            format!("{MAX_WAITING_OF_USER} requests for forecasts of user {userid}")
        } else if count > 0 && bytes > MAX_WAITING_BYTES_OF_USER {
            format!("{MAX_WAITING_BYTES_OF_USER} bytes of requests for forecasts of user {userid}")
        } else {
            self.waiting.push_back(request);
            return Ok(());
        };
        let text = format!(
            "{}: at most {limit} are outstanding: send the request again after a response",
            request.topic()
        );
        Err(RequestError::new(EAGAIN, text))
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
        self.waiting.retain(|request| request.origin() != origin);
        if let Some(open) = &self.open
            && open.request.origin() == origin
        {
            self.open = None;
        }
    }
}
