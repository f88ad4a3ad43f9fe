//! A submission in parts whose token is that of a complete one: its responses tell the jobs of that one.

use std::collections::VecDeque;

use penstock_flux::job_ingest::{SubmitPartRequest, SubmitResultsText};
use penstock_flux::{RequestError, errno};

use super::results::{REASON_LEFT_OUT, StoredResult, copies};
use super::token::{ListDigest, Token};

/// The time without a part after which a submission in parts is discarded, in seconds.
pub(super) const PART_TIMEOUT_S: f64 = 60.0;

/// The error of a part whose submission is not open.
pub(super) fn no_such_submission(part: &SubmitPartRequest<'_>) -> RequestError {
    let text = format!(
        "part {} of token `{}`: no submission in parts is open under it; it was rejected, or no part came for \
         {PART_TIMEOUT_S} s: expected part 0",
        part.part, &*part.token
    );
    RequestError::new(errno::ENOENT, text)
}

/// A submission in parts under the token of a complete one.
#[derive(Debug)]
pub(super) struct Repetition {
    pub(super) token: Token,
    pub(super) origin: Option<Vec<u8>>,
    /// The number of the next part.
    pub(super) next: u64,
    pub(super) digest: ListDigest,
    /// The results of the complete one that are not in a response yet.
    pub(super) left: VecDeque<StoredResult>,
    /// When it is forgotten unless a part comes.
    pub(super) due: f64,
}

impl Repetition {
    /// The response to the next part, and whether it is the last one.
    pub(super) fn answer(
        &mut self,
        part: &SubmitPartRequest<'_>,
    ) -> Result<(Vec<u8>, bool), RequestError> {
        if part.part != self.next {
            return Err(no_such_submission(part));
        }
        if part.abort {
            return Err(self.token.taken());
        }
        self.next += 1;
        let mut response = SubmitResultsText::of_part();
        for job in &part.jobs {
            self.digest.add(job.0);
            let result = self.next_result().ok_or_else(|| self.token.taken())?;
            match result {
                StoredResult::Each(id, _) => {
                    response.begin_id();
                    response.push_id(id);
                    response.end_id();
                }
                StoredResult::Ids(first, count) => {
                    response.begin_ids();
                    for id in copies(first, count) {
                        response.push_id(id);
                    }
                    response.end_ids();
                }
                StoredResult::Error(text) => response.push_error(&text),
                StoredResult::Rejected(_) => response.push_error(REASON_LEFT_OUT),
            }
        }
        if !part.more {
            self.token.check_digest(self.digest.0)?;
        }
        Ok((response.take_part_payload(), !part.more))
    }

    fn next_result(&mut self) -> Option<StoredResult> {
        let result = self.left.pop_front()?;
        if let StoredResult::Rejected(count) = result {
            if count > 1 {
                self.left.push_front(StoredResult::Rejected(count - 1));
            }
            return Some(StoredResult::Rejected(1));
        }
        if let StoredResult::Each(id, count) = result {
            if count > 1 {
                let left = StoredResult::Each(id.successor(), count - 1);
                self.left.push_front(left);
            }
            return Some(StoredResult::Each(id, 1));
        }
        Some(result)
    }
}
