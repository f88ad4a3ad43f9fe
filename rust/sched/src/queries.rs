//! Queries of users: why a job is pending, and when it will start.
//!
//! They are answered between passes, from the state that the last pass has left; estimates in parts
//! ([`Scheduler::advance_forecasts`]).

use std::collections::{BTreeMap, BTreeSet};

use penstock_engine::{Band, Engine, Field, Horizon, Policy, Reason};
use penstock_flux::errno::{EAGAIN, EIO};
use penstock_flux::resource::SchedStatusResponse;
use penstock_flux::sched::{Accuracy, ExplainResponse, Explanation, JobsRequest, StartEstimate};
use penstock_flux::{Credentials, Json, Payload, RequestError, topic};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::{Map, Value};

use crate::known_jobs::KnownJobs;
use crate::respond::Reply;
use crate::settings::JobVisibility;
use crate::{Phase, Scheduler};

/// The name of a job that its reader may not know.
const HIDDEN_JOB: &str = "another user's job";

/// The greatest number of jobs that a request can ask about: each takes some microseconds, and others wait.
const MAX_QUERIED_JOBS: usize = 1000;

/// The horizon of `sched.explain` for the start of a job without a reservation: some
/// milliseconds, whatever the length of the queue.
fn explain_horizon(policy: Policy) -> Horizon {
    let ends = match policy {
        Policy::Fcfs | Policy::Easy => 256,
        // Each pass recomputes all reservations.
        Policy::Hybrid { .. } => 8,
        // Pending jobs have reservations.
        Policy::Conservative => 0,
    };
    Horizon {
        ends,
        decisions: 4096,
        work: 200_000,
    }
}

/// The values of a reason; `is_known` says which jobs they may name.
fn details(
    engine: &Engine,
    reason: &Reason,
    is_known: impl Fn(JobId) -> bool,
) -> Map<String, Value> {
    let detail = |(key, field): (&str, Field)| {
        let value = match field {
            Field::Job(id) if !is_known(id) => return None,
            Field::Job(id) => id.get().into(),
            Field::Count(count) => count.into(),
            Field::Queue(queue) => engine.queue_name(queue).into(),
            Field::Time(time) => time.into(),
            Field::Text(text) => text.into(),
        };
        Some((key.to_owned(), value))
    };
    reason.fields().into_iter().filter_map(detail).collect()
}

impl Scheduler {
    /// Answers the queries that have arrived since the last call.
    pub(crate) fn answer_queries(&mut self, now: f64) {
        for request in std::mem::take(&mut self.queries) {
            let reply = self.query(&request, now);
            self.reply(&request, reply);
        }
    }

    fn query(&mut self, request: &Message, now: f64) -> Reply {
        if self.phase != Phase::Running {
            return Err(RequestError::new(EAGAIN, "the scheduler is not ready yet"));
        }
        let sender = request.credentials();
        let payload = match request.topic() {
            topic::sched::EXPLAIN => {
                let request = request.read_request()?;
                self.explain(request, sender, now)?.to_payload()
            }
            _ => self.resource_status()?,
        };
        Ok(Some(payload))
    }

    /// `sched.resource-status`: the R of all resources, of those that are down, and of those that are allocated.
    fn resource_status(&self) -> Result<Vec<u8>, RequestError> {
        let not_ready = || RequestError::new(EAGAIN, "the scheduler is not ready yet");
        let engine = self.engine.as_ref().ok_or_else(not_ready)?;
        let all = self.inventory.restrict(engine.ranks());
        let down = all.restrict(&(engine.ranks() - &engine.up()));
        let allocated = engine
            .allocated()
            .map_err(|error| RequestError::new(EIO, error.to_string()))?;
        let response = SchedStatusResponse {
            all: Json(&all.to_json()),
            down: Json(&down.to_json()),
            allocated: Json(&allocated.to_json()),
        };
        Ok(response.to_payload())
    }

    /// Splits jobs into those that the sender may query, and errors for the others.
    pub(crate) fn queryable(
        &self,
        ids: Vec<JobId>,
        sender: Credentials,
    ) -> Result<(Vec<JobId>, BTreeMap<String, String>), RequestError> {
        if ids.len() > MAX_QUERIED_JOBS {
            let text = format!(
                "{} jobs: expected at most {MAX_QUERIED_JOBS} in one request",
                ids.len()
            );
            return Err(RequestError::invalid(text));
        }
        let mut errors = BTreeMap::new();
        let mut jobs = Vec::with_capacity(ids.len());
        let mut named = BTreeSet::new();
        for id in ids.into_iter().filter(|id| named.insert(*id)) {
            let is_queued = self
                .engine
                .as_ref()
                .is_some_and(|engine| engine.is_queued(id));
            let userid = self.allocs.get(&id).map(|call| call.userid);
            let text = match userid {
                Some(userid)
                    if !userid.map_or(sender.is_owner(), |userid| sender.may_act_for(userid)) =>
                {
                    format!("job {id} is another user's")
                }
                Some(_) if is_queued => {
                    jobs.push(id);
                    continue;
                }
                Some(_) => format!("job {id} is being allocated"),
                None => format!("job {id} is not pending in the scheduler"),
            };
            errors.insert(id.get().to_string(), text);
        }
        Ok((jobs, errors))
    }

    /// The jobs that an answer to a sender may name.
    pub(crate) fn known_to(&self, sender: Credentials) -> KnownJobs {
        if sender.is_owner() || self.options.settings.job_visibility == JobVisibility::All {
            KnownJobs::All
        } else {
            KnownJobs::OfSender(sender)
        }
    }

    /// The jobs that an annotation of a job may name, which its user reads.
    pub(crate) fn known_to_user_of(&self, id: JobId) -> KnownJobs {
        match self.options.settings.job_visibility {
            JobVisibility::All => KnownJobs::All,
            JobVisibility::Own => KnownJobs::OfUserOf(id),
        }
    }

    fn is_known(&self, known: KnownJobs, id: JobId) -> bool {
        let userid = |id: &JobId| self.allocs.get(id).and_then(|call| call.userid);
        match known {
            KnownJobs::All => true,
            KnownJobs::OfSender(sender) => {
                userid(&id).is_some_and(|userid| sender.may_act_for(userid))
            }
            KnownJobs::OfUserOf(own) => userid(&id).is_some_and(|user| Some(user) == userid(&own)),
        }
    }

    /// A job as a reader sees it.
    pub(crate) fn job_name(&self, known: KnownJobs, id: JobId) -> String {
        if self.is_known(known, id) {
            id.to_string()
        } else {
            HIDDEN_JOB.to_owned()
        }
    }

    fn explain(
        &mut self,
        request: JobsRequest,
        sender: Credentials,
        now: f64,
    ) -> Result<ExplainResponse<'static>, RequestError> {
        let ids = request
            .into_ids()
            .ok_or_else(|| RequestError::protocol("sched.explain: expected `ids` or `id`"))?;
        let (ids, errors) = self.queryable(ids, sender)?;
        let reasons = self.reasons(&ids, now);
        let estimates = self.near_estimates(&ids, &reasons, now);
        let band = self.accuracy.band();
        let jobs = ids.into_iter().zip(reasons).zip(estimates);
        let known = self.known_to(sender);
        let jobs = jobs.map(|((id, reason), estimate)| {
            let start = self.start_estimate(id, now, estimate, band);
            let name = |id| self.job_name(known, id);
            let (kind, sentence, details) = match (&self.engine, &reason) {
                (Some(engine), Some(reason)) => (
                    reason.kind().to_owned(),
                    reason.sentence(now, &name),
                    details(engine, reason, |id| self.is_known(known, id)),
                ),
                _ => ("unknown".to_owned(), String::new(), Map::new()),
            };
            Explanation {
                id,
                kind: kind.into(),
                reason: sentence.into(),
                details,
                start,
            }
        });
        Ok(ExplainResponse {
            jobs: jobs.collect(),
            errors,
        })
    }

    /// Why jobs are pending; `None` for one that is not.
    fn reasons(&mut self, ids: &[JobId], now: f64) -> Vec<Option<Reason>> {
        match &mut self.engine {
            Some(engine) => engine.explain_each(ids, now),
            None => vec![None; ids.len()],
        }
    }

    /// An estimated start with its band; it is remembered, to be compared with the start.
    pub(crate) fn start_estimate(
        &mut self,
        id: JobId,
        now: f64,
        estimate: Option<f64>,
        band: Option<Band>,
    ) -> StartEstimate {
        let is_queued = |engine: &Engine| engine.is_queued(id);
        if let Some(start) = estimate
            && self.engine.as_ref().is_some_and(is_queued)
        {
            self.accuracy.expect(id, now, start);
        }
        let range = estimate.zip(band);
        let range = range.and_then(|(start, band)| band.around(now, start));
        StartEstimate {
            start: estimate,
            earliest: range.map(|range| range.earliest),
            latest: range.map(|range| range.latest),
        }
    }

    /// The estimated starts of jobs; `None` if a start cannot be estimated.
    pub(crate) fn estimates(&mut self, ids: &[JobId], now: f64) -> Vec<Option<f64>> {
        let Some(engine) = self.engine.as_mut().filter(|_| !ids.is_empty()) else {
            return vec![None; ids.len()];
        };
        engine.share();
        let estimates = engine.estimate_of(now, ids);
        estimates.iter().map(|estimate| estimate.start).collect()
    }

    /// The starts of jobs as far as they are known at a cost that does not grow with the queue: a
    /// job's reservation, or a start within the next planned ends.
    fn near_estimates(
        &mut self,
        ids: &[JobId],
        reasons: &[Option<Reason>],
        now: f64,
    ) -> Vec<Option<f64>> {
        let reserved = |reason: &Option<Reason>| match reason {
            Some(Reason::Reserved { at, .. }) => Some(*at),
            _ => None,
        };
        let mut starts: Vec<Option<f64>> = reasons.iter().map(reserved).collect();
        let others = ids.iter().zip(&starts).filter(|(_, start)| start.is_none());
        let others: Vec<JobId> = others.map(|(id, _)| *id).collect();
        if let (Some(engine), false) = (&mut self.engine, others.is_empty()) {
            engine.share();
            let horizon = explain_horizon(engine.options().policy);
            let mut estimates = engine.estimate_within(now, &others, horizon).into_iter();
            for start in starts.iter_mut().filter(|start| start.is_none()) {
                *start = estimates.next().and_then(|estimate| estimate.start);
            }
        }
        starts
    }

    /// The statistics of delays of starts against their estimates.
    pub(crate) fn accuracy(&self) -> Accuracy {
        let errors = self.accuracy.errors();
        Accuracy {
            count: errors.count as u64,
            mean: errors.mean,
            low: errors.low,
            median: errors.median,
            high: errors.high,
        }
    }
}
