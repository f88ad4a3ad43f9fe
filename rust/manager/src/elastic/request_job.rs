//! Request jobs: jobs without tasks that carry a PMIx request through the queue.

use penstock_elastic::{Attempt, Demand, Denial, Status};
use penstock_flux::RequestError;
use penstock_flux::eventlog::{self, Submit};
use penstock_flux::exec::Finish;

use super::table::RequestTable;
use crate::context::Context;
use crate::elastic_state::ElasticRequest;
use crate::event::Event;
use crate::jobspecs::{self, Limited};
use crate::quota;
use crate::record::Record;
use crate::spec::Checked;
use crate::state::State;
use penstock_jobspec::job_id::JobId;

/// The PMIx request that a job carries.
pub(super) fn request_of(cx: &Context, id: JobId) -> Option<&ElasticRequest> {
    cx.jobs.record(id).and_then(Record::elastic_request)
}

/// The grants of a job, oldest first.
pub(super) fn grants_of(cx: &Context, id: JobId) -> Vec<JobId> {
    let elastic = cx.jobs.record(id).and_then(Record::elastic);
    let grants = elastic.map(|elastic| elastic.grants.iter().copied().collect());
    grants.unwrap_or_default()
}

/// Whether the request is to be decided at once.
pub(super) fn is_decided_at_once(record: &Record) -> bool {
    let request = record.elastic_request();
    request.is_some_and(|request| request.attempt != Attempt::Full || request.demand.required)
}

/// All that a request asks for, given the request job of one part.
pub(super) fn first_ask(cx: &Context, id: JobId) -> Demand {
    let own = request_of(cx, id);
    let first = own.and_then(|own| request_of(cx, own.first(id)));
    let request = first.or(own);
    request
        .map(|request| request.demand.clone())
        .unwrap_or_default()
}

/// The denial for a request job that the site's limits reject.
pub(super) fn out_of_resource(error: RequestError) -> Denial {
    Denial::new(Status::OUT_OF_RESOURCE, error.text)
}

/// Builds and validates the jobspec of a request job.
pub(super) fn check_jobspec(
    cx: &Context,
    request: &ElasticRequest,
    duration: f64,
) -> Result<Checked, Denial> {
    let record = cx.jobs.record(request.job);
    let userid = record.map_or(cx.settings.owner, Record::userid);
    let queue = record.and_then(|record| record.spec().queue.as_deref());
    let name = match &request.id {
        Some(id) => format!("{}:{id}", request.directive),
        None => request.directive.clone(),
    };
    let demand = &request.demand;
    let jobspec = demand
        .jobspec(request.attempt, queue, duration, &name)
        .map_err(|error| out_of_resource(jobspecs::invalid(error)))?;
    let limited = if request.joins.is_some() || !demand.rest.is_empty() {
        Limited::ByDuration
    } else {
        Limited::Fully
    };
    jobspecs::check(cx, jobspec, userid, limited).map_err(out_of_resource)
}

/// Allots the id of a request job of a job, if jobs are accepted and its user may have another one.
pub(super) fn next_id(cx: &mut Context, job: JobId) -> Result<JobId, Denial> {
    let userid = cx.jobs.record(job).map(Record::userid);
    let accepted = cx.rejection.clone().map_or(Ok(()), Err);
    accepted
        .and_then(|()| quota::check_active(cx, userid.unwrap_or(cx.settings.owner), 1))
        .and_then(|()| cx.next_id())
        .map_err(out_of_resource)
}

/// Seconds until a job's expiration; 0 if it has none.
pub(super) fn time_left(cx: &Context, id: JobId) -> f64 {
    let record = cx.jobs.record(id);
    let end = record.and_then(Record::expiration);
    end.map_or(0.0, |end| (end - cx.now).max(1.0))
}

/// Adds the request job of a request, or of a part of one.
pub(super) fn add_request_job(
    table: &mut RequestTable,
    cx: &mut Context,
    id: JobId,
    request: &ElasticRequest,
    checked: Checked,
) {
    let Some(record) = cx.jobs.record(request.job) else {
        return;
    };
    let (userid, urgency) = (record.userid(), record.urgency());
    let stored = jobspecs::store(cx, userid, checked);
    let context = Submit {
        userid,
        urgency,
        flags: 0,
        version: Submit::VERSION,
    };
    let submit = Event::with(cx.event_time(), eventlog::SUBMIT, &context);
    cx.add_job(id, userid, &stored, &submit);
    let event = Event::with(cx.now, eventlog::REQUEST, request);
    table.log(cx, id, event);
}

/// Finishes a running request job.
pub(super) fn finish_request_job(table: &mut RequestTable, cx: &mut Context, id: JobId) {
    let record = cx.jobs.record(id);
    let is_running =
        |record: &Record| record.elastic_request().is_some() && record.state() == State::Run;
    if record.is_some_and(is_running) {
        cx.log(id, Event::with(cx.now, eventlog::FINISH, &Finish::new(0)));
        table.observe(id);
    }
}
