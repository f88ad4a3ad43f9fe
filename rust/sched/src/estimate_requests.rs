//! The requests for forecasts, which are estimates and changes: one is in progress, the others wait for their turn.

use std::collections::{BTreeMap, VecDeque};

use penstock_engine::{Band, Engine, FitSearch, Horizon, SlicedEstimate, SlicedWhatIf};
use penstock_flux::RequestError;
use penstock_flux::errno::EAGAIN;
use penstock_flux::limits::MAX_FRAME_BYTES;
use penstock_flux::sched::EstimateResponseText;
use penstock_wire::Message;

/// A forecast in progress.
#[derive(Debug)]
pub(crate) struct OpenForecast {
    /// The request without its payload.
    pub request: Message,
    pub progress: Progress,
}

/// The progress of a forecast, by its kind.
#[derive(Debug)]
pub(crate) enum Progress {
    Estimate(Box<OpenEstimate>),
    WhatIf(Box<OpenWhatIf>),
    Fit(Box<FitSearch>),
}

/// The effect of a change, in progress.
#[derive(Debug)]
pub(crate) struct OpenWhatIf {
    pub effect: SlicedWhatIf,
    /// Whether the change is the submission of a held job.
    pub is_held: bool,
    /// When it began, in seconds since the epoch.
    pub now: f64,
}

/// An estimate in progress.
#[derive(Debug)]
pub(crate) struct OpenEstimate {
    pub errors: BTreeMap<String, String>,
    /// When it began, in seconds since the epoch.
    pub now: f64,
    /// The state then, for the reasons of jobs without an estimate.
    pub snapshot: Engine,
    pub band: Option<Band>,
    pub starts: SlicedEstimate,
    /// Whether all starts are known.
    pub is_forecast: bool,
    /// The number of jobs in `least_bytes`, which is less than the length of a response with these.
    pub measured: usize,
    pub least_bytes: usize,
    /// The number of jobs that the response has.
    pub written: usize,
    pub response: EstimateResponseText,
}

/// The greatest number of decisions of a forecast in one part: some milliseconds.
const MAX_DECISIONS: usize = 2048;
/// The work of the passes of a forecast, after which a part ends: some milliseconds.
const MAX_WORK: u64 = 50_000;
/// The part of a forecast that is made at once.
pub(crate) fn forecast_part() -> Horizon {
    Horizon {
        ends: usize::MAX,
        decisions: MAX_DECISIONS,
        work: MAX_WORK,
    }
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
    pub open: Option<OpenForecast>,
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
    /// Adds a request to the waiting ones.
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
