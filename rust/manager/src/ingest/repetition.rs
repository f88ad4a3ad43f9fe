//! A submission in parts whose token is that of a complete one: its responses tell the jobs of that one.

use std::collections::VecDeque;

use penstock_flux::job_ingest::{SubmitPartRequest, SubmitResultsText};
use penstock_flux::{RequestError, errno};

use super::results::{REASON_LEFT_OUT, StoredResult, check_response, copies};
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
        let mut jobs = 0;
        for job in &part.jobs {
            self.digest.add(job.0);
            let result = self.next_result().ok_or_else(|| self.token.taken())?;
            let count = result.jobs();
            check_response(jobs, count)?;
            jobs += count;
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

#[cfg(test)]
mod tests {
    use penstock_flux::job_ingest::SubmitPartRequest;
    use penstock_flux::limits::MAX_FRAME_BYTES;
    use penstock_flux::{Json, errno};
    use penstock_jobspec::job_id::JobId;

    use super::{ListDigest, Repetition, StoredResult, Token};

    #[test]
    fn a_repeated_part_has_as_many_jobs_as_a_request() {
        const COUNT: usize = 2_600_000;
        let first = JobId::new(u64::MAX >> 1);
        let repetition = || Repetition {
            token: Token::new(1000, "a", 0).unwrap(),
            origin: None,
            next: 0,
            digest: ListDigest::default(),
            left: [
                StoredResult::Ids(first, COUNT),
                StoredResult::Ids(first, COUNT),
            ]
            .into(),
            due: 0.0,
        };
        let part = |part, jobs: &[&'static str]| SubmitPartRequest {
            token: "a".into(),
            part,
            more: true,
            jobs: jobs.iter().map(|text| Json(text)).collect(),
            ..SubmitPartRequest::default()
        };
        // As the jobs came.
        let mut separate = repetition();
        for number in 0..2 {
            let (response, _) = separate.answer(&part(number, &["{}"])).unwrap();
            assert!(response.len() < MAX_FRAME_BYTES);
        }
        let error = repetition().answer(&part(0, &["{}", "{}"])).unwrap_err();
        assert_eq!(error.errnum, errno::EINVAL);
        assert_eq!(error.text, "expected at most 3000000 jobs in a request");
    }
}
