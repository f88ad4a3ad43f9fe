//! The jobs of a submission: as its response and as the store tell them.

use penstock_flux::job_ingest::{
    SubmitCopiesResponse, SubmitManyResponse, SubmitResponse, SubmitResult,
};
use penstock_flux::limits::{self, MAX_FRAME_BYTES, MAX_SUBMISSIONS_PER_REQUEST};
use penstock_flux::{Payload as _, RequestError};
use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};

use crate::reason::cut;

/// The jobs of a request.
pub(super) enum Accepted {
    One(JobId),
    Copies(Vec<JobId>),
    Many(Vec<SubmitResult>),
}

impl Accepted {
    pub(super) fn into_payload(self) -> Vec<u8> {
        match self {
            Self::One(id) => SubmitResponse { id }.to_payload(),
            Self::Copies(ids) => SubmitCopiesResponse { ids }.to_payload(),
            Self::Many(results) => SubmitManyResponse { results }.to_payload(),
        }
    }
}

/// The jobs of a request as the store has them. The ids of one submission follow each other: the first one and their
/// number tell them.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StoredJobs {
    One(JobId),
    Copies(JobId, usize),
    Many(Vec<StoredResult>),
}

/// One submission of several.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum StoredResult {
    Ids(JobId, usize),
    /// In the store alone: submissions of one job each that follow each other.
    Each(JobId, usize),
    /// The reason, cut by [`StoredResult::error`].
    Error(String),
    /// In the store alone: rejected submissions that follow each other, whose reasons are not kept.
    Rejected(usize),
}

/// The greatest length of a reason in the store: a token keeps it for a day.
const MAX_STORED_REASON_BYTES: usize = 200;

impl StoredResult {
    pub(super) fn error(reason: &str) -> Self {
        Self::Error(cut(reason, MAX_STORED_REASON_BYTES))
    }

    /// The number of its jobs.
    pub(super) fn jobs(&self) -> u64 {
        match self {
            Self::Ids(_, count) | Self::Each(_, count) => *count as u64,
            Self::Error(_) | Self::Rejected(_) => 0,
        }
    }
}

/// The reason in a response for a rejected submission whose own reason is left out.
pub(super) const REASON_LEFT_OUT: &str =
    "invalid; the reason is left out, since those of the list are too long: submit it alone";

/// The greatest number of jobs in a request.
pub(super) const MAX_JOBS_PER_REQUEST: u64 = limits::MAX_JOBS_PER_REQUEST as u64;
/// The greatest number of independent submissions in a request: each may have an error in the response.
pub(super) const MAX_INDEPENDENT_SUBMISSIONS: usize = 50_000;
/// The length of all reasons in the response for a list of independent submissions, as JSON. Further ones are left out.
pub(super) const MAX_REASONS_BYTES: usize = 1 << 20;

/// The greatest length of an id in a response, with a comma.
const MAX_ID_BYTES: u64 = 20;
/// The length of the result of a submission without its ids, with a comma: `{"ids":[]},`.
const RESULT_BYTES: usize = 11;
/// The length of a result whose reason is left out: `{"error":"…"},`.
pub(super) const LEFT_OUT_BYTES: usize = REASON_LEFT_OUT.len() + 13;
/// More than the length of everything else in a response.
const REST_BYTES: usize = 4096;
/// The length that a response has for all but ids.
const ROOM_BYTES: u64 = MAX_FRAME_BYTES as u64 - MAX_JOBS_PER_REQUEST * MAX_ID_BYTES;

const _: () =
    assert!(((MAX_SUBMISSIONS_PER_REQUEST * RESULT_BYTES + REST_BYTES) as u64) < ROOM_BYTES);
const _: () = assert!(
    ((MAX_INDEPENDENT_SUBMISSIONS * LEFT_OUT_BYTES + MAX_REASONS_BYTES + REST_BYTES) as u64)
        < ROOM_BYTES
);

/// Checks that the response to a request can name `count` jobs after those before.
pub(super) fn check_response(before: u64, count: u64) -> Result<(), RequestError> {
    if before.saturating_add(count) > MAX_JOBS_PER_REQUEST {
        let text = format!("expected at most {MAX_JOBS_PER_REQUEST} jobs in a request");
        return Err(RequestError::invalid(text));
    }
    Ok(())
}

/// The results of a list, with few entries: it may have a million jobs.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) list: Vec<StoredResult>,
    /// The id with which a job continues the last entry.
    next: Option<JobId>,
}

impl Results {
    pub(super) fn push(&mut self, result: StoredResult) {
        self.next = match (result, self.list.last_mut()) {
            (StoredResult::Ids(id, 1), Some(StoredResult::Each(_, count)))
                if self.next == Some(id) =>
            {
                *count += 1;
                Some(id.successor())
            }
            (StoredResult::Ids(id, 1), _) => {
                self.list.push(StoredResult::Each(id, 1));
                Some(id.successor())
            }
            (StoredResult::Rejected(more), Some(StoredResult::Rejected(count))) => {
                *count += more;
                None
            }
            (result, _) => {
                self.list.push(result);
                None
            }
        };
    }
}

pub(super) fn copies(first: JobId, count: usize) -> Vec<JobId> {
    let ids = std::iter::successors(Some(first), |id| Some(id.successor()));
    ids.take(count).collect()
}

impl From<StoredJobs> for Accepted {
    fn from(stored: StoredJobs) -> Self {
        match stored {
            StoredJobs::One(id) => Self::One(id),
            StoredJobs::Copies(first, count) => Self::Copies(copies(first, count)),
            StoredJobs::Many(results) => {
                let results = results.into_iter().flat_map(|result| match result {
                    StoredResult::Ids(first, count) => {
                        vec![SubmitResult::Ids(copies(first, count))]
                    }
                    StoredResult::Each(first, count) => {
                        let ids = copies(first, count).into_iter();
                        ids.map(|id| SubmitResult::Ids(vec![id])).collect()
                    }
                    StoredResult::Error(error) => vec![SubmitResult::Error(error)],
                    StoredResult::Rejected(count) => {
                        vec![SubmitResult::Error(REASON_LEFT_OUT.to_owned()); count]
                    }
                });
                Self::Many(results.collect())
            }
        }
    }
}
