//! `sched.estimate`: when jobs are expected to start. A forecast of a long queue takes a second or more, as does the effect
//! of a change, so they are made in parts, on snapshots: [`Scheduler::advance_forecasts`] does one of them.

use std::collections::BTreeMap;

use penstock_engine::{EstimatedJobs, Reason};
use penstock_flux::errno::{EAGAIN, EOVERFLOW};
use penstock_flux::sched::{Estimate, EstimateResponseText, JobsRequest};
use penstock_flux::{RequestError, topic};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use crate::forecast_requests::{OpenEstimate, OpenForecast, Progress, forecast_part};
use crate::what_if::{continue_fit, continue_what_if};
use crate::{Phase, Scheduler};

/// The greatest number of jobs that one part writes to the response.
const MAX_WRITTEN: usize = 2048;

/// Lower bound, in bytes, of one job's text in the response.
fn least_length(id: JobId, now: f64) -> usize {
    const KEYS: usize = r#"{"id":,"start":},"#.len();
    KEYS + id.get().to_string().len() + format!("{:?}", now.floor()).len()
}

impl Scheduler {
    /// Sets the greatest length of a response with estimates, in bytes.
    pub fn set_estimate_limit(&mut self, bytes: usize) {
        self.forecast_requests.max_bytes = bytes;
    }

    /// Does a part of the requests for estimates and effects of changes: some milliseconds. Returns whether there is more to do at once.
    ///
    /// The program that runs the scheduler calls it after [`schedule`](Self::schedule), with messages of others handled
    /// between two calls.
    pub fn advance_forecasts(&mut self, now: f64) -> bool {
        if self.phase != Phase::Running {
            let open = self.forecast_requests.open.take().map(|open| open.request);
            let waiting = std::mem::take(&mut self.forecast_requests.waiting);
            for request in open.into_iter().chain(waiting) {
                let error = RequestError::new(EAGAIN, "the scheduler is not ready yet");
                self.reply(&request, Err(error));
            }
            return false;
        }
        // An explanation of a state before its pass would make that pass for each part.
        if self.forecast_requests.open.is_none()
            && !self.is_pass_due()
            && !self.is_reordering()
            && let Some(request) = self.forecast_requests.take_next()
        {
            match self.begin_forecast(&request, now) {
                Ok(progress) => {
                    let request = request.header();
                    self.forecast_requests.open = Some(OpenForecast { request, progress });
                }
                Err(error) => self.reply(&request, Err(error)),
            }
        }
        if let Some(mut open) = self.forecast_requests.open.take() {
            match self.continue_forecast(&mut open.progress).transpose() {
                Some(reply) => self.reply(&open.request, reply.map(Some)),
                None => self.forecast_requests.open = Some(open),
            }
        }
        self.forecast_requests.open.is_some() || !self.forecast_requests.waiting.is_empty()
    }

    fn begin_forecast(&mut self, request: &Message, now: f64) -> Result<Progress, RequestError> {
        if request.topic() == topic::sched::WHAT_IF {
            return self.begin_what_if(&request.read_request()?, now);
        }
        self.begin_estimate(request, now)
            .map(Box::new)
            .map(Progress::Estimate)
    }

    /// Does a part. Returns the payload of the response if that is complete.
    fn continue_forecast(
        &mut self,
        progress: &mut Progress,
    ) -> Result<Option<Vec<u8>>, RequestError> {
        match progress {
            Progress::Estimate(open) => self.continue_estimate(open),
            Progress::WhatIf(open) => continue_what_if(open),
            Progress::Fit(search) => continue_fit(search),
        }
    }

    fn begin_estimate(
        &mut self,
        request: &Message,
        now: f64,
    ) -> Result<OpenEstimate, RequestError> {
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
        let known = self.known_to(sender);
        let engine = self
            .engine
            .as_mut()
            .ok_or_else(|| RequestError::new(EAGAIN, "the scheduler is not ready yet"))?;
        engine.share();
        Ok(OpenEstimate {
            errors,
            known,
            now,
            snapshot: engine.clone(),
            band: self.accuracy.band(),
            starts: engine.begin_estimate(now, jobs),
            is_forecast: false,
            sized_jobs: 0,
            min_response_bytes: 0,
            written: 0,
            response: EstimateResponseText::with_capacity(0, 0),
        })
    }

    /// As `continue_forecast`. An estimate of few jobs with a short forecast takes one part.
    fn continue_estimate(
        &mut self,
        open: &mut OpenEstimate,
    ) -> Result<Option<Vec<u8>>, RequestError> {
        let max_bytes = self.forecast_requests.max_bytes;
        let check = |length: usize, open: &OpenEstimate| {
            if length <= max_bytes {
                return Ok(());
            }
            let text = format!(
                "the estimates of {} jobs are longer than {max_bytes} bytes: request fewer by `max_entries`, or \
                 name jobs",
                open.starts.job_count()
            );
            Err(RequestError::new(EOVERFLOW, text))
        };
        if !open.is_forecast {
            open.is_forecast = open.starts.advance(forecast_part());
            let ids = open.starts.ids().iter().skip(open.sized_jobs);
            open.min_response_bytes += ids.map(|id| least_length(*id, open.now)).sum::<usize>();
            open.sized_jobs = open.starts.ids().len();
            // Before the work.
            check(open.min_response_bytes, open)?;
            if !open.is_forecast {
                return Ok(None);
            }
            open.response = EstimateResponseText::with_capacity(open.sized_jobs, max_bytes);
        }
        self.write_estimates(open);
        check(open.response.len(), open)?;
        if open.written < open.sized_jobs {
            return Ok(None);
        }
        let response = std::mem::take(&mut open.response);
        let errors = std::mem::take(&mut open.errors);
        Ok(Some(response.into_payload(self.accuracy(), errors)))
    }

    /// Writes the next estimates to the response, with the reasons of jobs that have none.
    fn write_estimates(&mut self, open: &mut OpenEstimate) {
        let max_explained = open.snapshot.max_explained();
        let ids = open.starts.ids().iter().skip(open.written);
        let mut jobs: Vec<(JobId, Option<f64>)> = Vec::new();
        let mut unknown: Vec<JobId> = Vec::new();
        for id in ids.take(MAX_WRITTEN).copied() {
            let start = open.starts.start(id);
            if start.is_none() {
                if unknown.len() == max_explained {
                    break;
                }
                unknown.push(id);
            }
            jobs.push((id, start));
        }
        if !unknown.is_empty() {
            // `explain_each` of an engine that is not settled clones it and makes a pass; settle the snapshot once.
            open.snapshot.schedule(open.now, usize::MAX);
        }
        let mut reasons = open.snapshot.explain_each(&unknown, open.now).into_iter();
        for (id, start) in &jobs {
            let reason = match start {
                None => reasons.next(),
                Some(_) => None,
            };
            let name = |id| self.job_name(open.known, id);
            let sentence = |reason: Reason| reason.sentence(open.now, &name);
            let reason = reason.map(|reason| reason.map_or_else(String::new, sentence).into());
            open.response.push(&Estimate {
                id: *id,
                reason,
                start: self.start_estimate(*id, open.now, *start, open.band),
            });
        }
        open.written += jobs.len();
    }
}
