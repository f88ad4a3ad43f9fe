//! The requests for forecasts, which are estimates and changes: one is in progress, the others wait for their turn.

use std::collections::{BTreeMap, VecDeque};

use penstock_engine::{Band, Engine, FitSearch, Horizon, SlicedEstimate, SlicedWhatIf};
use penstock_flux::RequestError;
use penstock_flux::errno::EAGAIN;
use penstock_flux::limits::MAX_FRAME_BYTES;
use penstock_flux::sched::EstimateResponseText;
use penstock_wire::Message;

use crate::known_jobs::KnownJobs;

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
    /// The jobs that the response may name.
    pub known: KnownJobs,
    /// When it began, in seconds since the epoch.
    pub now: f64,
    /// The state then, for the reasons of jobs without an estimate.
    pub snapshot: Engine,
    pub band: Option<Band>,
    pub starts: SlicedEstimate,
    /// Whether all starts are known.
    pub is_forecast: bool,
    /// Lower bound of the response length for the first `sized_jobs` jobs.
    pub min_response_bytes: usize,
    pub sized_jobs: usize,
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

/// The greatest number of waiting requests of one user, and of the bytes of their payloads: at least as many as one request may
/// have.
const USER_LIMIT: WaitingSize = WaitingSize {
    requests: 256,
    bytes: MAX_FRAME_BYTES,
};
/// The same of all guests: four of them cannot keep the owner from its requests.
const GUESTS_LIMIT: WaitingSize = WaitingSize {
    requests: 1024,
    bytes: 4 * MAX_FRAME_BYTES,
};

/// The size of some waiting requests.
#[derive(Debug, Default)]
struct WaitingSize {
    requests: usize,
    /// Of their payloads.
    bytes: usize,
}

impl WaitingSize {
    fn add(&mut self, request: &Message) {
        self.requests += 1;
        self.bytes += request.payload.as_deref().map_or(0, <[u8]>::len);
    }

    /// The text of the limit that it exceeds.
    fn exceeded(&self, limit: &Self) -> Option<String> {
        let Self { requests, bytes } = limit;
        if self.requests > *requests {
            return Some(format!("{requests} requests for forecasts"));
        }
        let is_long = self.bytes > *bytes && self.requests > 1;
        is_long.then(|| format!("{bytes} bytes of requests for forecasts"))
    }
}

/// The requests, in the order of their arrival; peers take turns.
#[derive(Debug)]
pub(crate) struct ForecastRequests {
    pub open: Option<OpenForecast>,
    pub waiting: VecDeque<Message>,
    /// The peer that had the last turn.
    last: Option<Vec<u8>>,
    /// The greatest length of a response, in bytes.
    pub max_bytes: usize,
}

impl Default for ForecastRequests {
    fn default() -> Self {
        Self {
            open: None,
            waiting: VecDeque::new(),
            last: None,
            max_bytes: MAX_RESPONSE_BYTES,
        }
    }
}

impl ForecastRequests {
    /// Adds a request to the waiting ones.
    ///
    /// # Errors
    ///
    /// There are as many as the daemon retains, of this user or of all guests (EAGAIN): the sender has sent them without waiting
    /// for responses.
    pub fn await_turn(&mut self, request: Message) -> Result<(), RequestError> {
        let sender = request.credentials();
        let (mut of_user, mut of_guests) = (WaitingSize::default(), WaitingSize::default());
        for other in self.waiting.iter().chain([&request]) {
            let credentials = other.credentials();
            if credentials.userid == sender.userid {
                of_user.add(other);
            }
            if !credentials.is_owner() {
                of_guests.add(other);
            }
        }
        let of_guests = of_guests.exceeded(&GUESTS_LIMIT);
        let of_guests = of_guests.filter(|_| !sender.is_owner());
        let of_user = of_user.exceeded(&USER_LIMIT);
        let of_user = of_user.map(|limit| format!("{limit} of user {}", sender.userid));
        let Some(limit) = of_user.or_else(|| of_guests.map(|limit| limit + " of guests")) else {
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
