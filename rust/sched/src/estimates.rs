//! `sched.estimate`: when jobs are expected to start. A forecast of a long queue takes a second or more, so it is made in
//! parts, on a snapshot: [`Scheduler::advance_estimates`] does one of them.

use std::collections::BTreeMap;

use penstock_engine::{EstimatedJobs, Horizon, Policy, Reason};
use penstock_flux::RequestError;
use penstock_flux::errno::{EAGAIN, EOVERFLOW};
use penstock_flux::sched::{Estimate, EstimateResponseText, JobsRequest};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use crate::estimate_requests::OpenEstimate;
use crate::queries::{explain_horizon, job_name};
use crate::{Phase, Scheduler};

/// The greatest number of decisions of a forecast in one part: some milliseconds.
const MAX_DECISIONS: usize = 2048;
/// The greatest number of jobs that one part writes to the response.
const MAX_WRITTEN: usize = 2048;
/// The same of jobs without an estimate, whose reasons are looked up.
const MAX_EXPLAINED: usize = 256;

/// The part of a forecast that is made at once.
fn forecast_part(policy: Policy) -> Horizon {
    Horizon {
        decisions: MAX_DECISIONS,
        ..explain_horizon(policy)
    }
}

impl Scheduler {
    /// Sets the greatest length of a response with estimates, in bytes.
    pub fn set_estimate_limit(&mut self, bytes: usize) {
        self.estimate_requests.max_bytes = bytes;
    }

    /// Does a part of the requests for estimates: some milliseconds. Returns whether there is more to do at once.
    ///
    /// The program that runs the scheduler calls it after [`schedule`](Self::schedule), with messages of others handled
    /// between two calls.
    pub fn advance_estimates(&mut self, now: f64) -> bool {
        if self.phase != Phase::Running {
            let open = self.estimate_requests.open.take().map(|open| open.request);
            let waiting = std::mem::take(&mut self.estimate_requests.waiting);
            for request in open.into_iter().chain(waiting) {
                let error = RequestError::new(EAGAIN, "the scheduler is not ready yet");
                self.reply(&request, Err(error));
            }
            return false;
        }
        // An explanation of a state before its pass would make that pass for each part.
        if self.estimate_requests.open.is_none()
            && !self.is_pass_due()
            && !self.is_reordering()
            && let Some(request) = self.estimate_requests.take_next()
        {
            match self.begin_estimate(&request, now) {
                Ok(open) => self.estimate_requests.open = Some(open),
                Err(error) => self.reply(&request, Err(error)),
            }
        }
        if let Some(mut open) = self.estimate_requests.open.take() {
            let is_complete = self.continue_estimate(&mut open);
            let max_bytes = self.estimate_requests.max_bytes;
            if open.response.len() > max_bytes {
                let text = format!(
                    "the estimates of {} jobs are longer than {max_bytes} bytes: request fewer by `max_entries`, or \
                     name jobs",
                    open.starts.ids().len()
                );
                self.reply(&open.request, Err(RequestError::new(EOVERFLOW, text)));
            } else if is_complete {
                let payload = open.response.into_payload(self.accuracy(), open.errors);
                self.reply(&open.request, Ok(Some(payload)));
            } else {
                self.estimate_requests.open = Some(open);
            }
        }
        self.estimate_requests.open.is_some() || !self.estimate_requests.waiting.is_empty()
    }

    fn begin_estimate(
        &mut self,
        request: &Message,
        now: f64,
    ) -> Result<Box<OpenEstimate>, RequestError> {
        let sender = request.credentials();
        let jobs: JobsRequest = request.read_request()?;
        let max_jobs = jobs.max_entries;
        let (jobs, errors) = if let Some(ids) = jobs.into_ids() {
            let (ids, errors) = self.queryable(ids, sender)?;
            (EstimatedJobs::Named(ids), errors)
        } else {
            sender.require_owner("sched.estimate without `ids`")?;
            let max_jobs = max_jobs.filter(|max| *max > 0);
            let max_jobs = max_jobs.and_then(|max| usize::try_from(max).ok());
            let first = EstimatedJobs::First(max_jobs.unwrap_or(usize::MAX));
            (first, BTreeMap::new())
        };
        let engine = self
            .engine
            .as_mut()
            .ok_or_else(|| RequestError::new(EAGAIN, "the scheduler is not ready yet"))?;
        engine.share();
        Ok(Box::new(OpenEstimate {
            request: request.header(),
            errors,
            now,
            snapshot: engine.clone(),
            band: self.accuracy.band(),
            starts: engine.begin_estimate(now, jobs),
            is_forecast: false,
            written: 0,
            response: EstimateResponseText::with_capacity(0, 0),
        }))
    }

    /// Does a part. Returns whether the response is complete. An estimate of few jobs with a short forecast takes one.
    fn continue_estimate(&mut self, open: &mut OpenEstimate) -> bool {
        if !open.is_forecast {
            let part = forecast_part(open.snapshot.options().policy);
            open.is_forecast = open.starts.advance(part);
            if !open.is_forecast {
                return false;
            }
            let jobs = open.starts.ids().len();
            let limit = self.estimate_requests.max_bytes;
            open.response = EstimateResponseText::with_capacity(jobs, limit);
        }
        let ids = open.starts.ids().iter().skip(open.written);
        let mut jobs: Vec<(JobId, Option<f64>)> = Vec::new();
        let mut unknown: Vec<JobId> = Vec::new();
        for id in ids.take(MAX_WRITTEN).copied() {
            let start = open.starts.start(id);
            if start.is_none() {
                if unknown.len() == MAX_EXPLAINED {
                    break;
                }
                unknown.push(id);
            }
            jobs.push((id, start));
        }
        let mut reasons = open.snapshot.explain_each(&unknown, open.now).into_iter();
        for (id, start) in &jobs {
            let reason = match start {
                None => reasons.next(),
                Some(_) => None,
            };
            let sentence = |reason: Reason| reason.sentence(open.now, &job_name);
            let reason = reason.map(|reason| reason.map_or_else(String::new, sentence).into());
            open.response.push(&Estimate {
                id: *id,
                reason,
                start: self.start_estimate(*id, open.now, *start, open.band),
            });
        }
        open.written += jobs.len();
        open.written == open.starts.ids().len()
    }
}
