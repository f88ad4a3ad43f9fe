//! Limits of the requests of guests, and of texts in requests of every user.

use penstock_flux::limits::{MAX_EVENTLOG_BYTES, MAX_GUEST_EVENTLOG_BYTES};
use penstock_flux::{Credentials, RequestError, RequestedResources, errno};
use penstock_jobspec::job_id::JobId;
use penstock_store::{JOB_BYTES, JOBSPEC_BYTES};
use serde_json::{Map, Value};

use crate::context::Context;
use crate::event::{USUAL_EVENT_BYTES, counted_event_bytes};
use crate::held_values;
use crate::jobs::ActiveJobs;
use crate::record::Record;
use crate::settings::Quota;
use crate::spec::Spec;

/// The greatest length of the note of an exception.
const MAX_NOTE_BYTES: usize = 4096;

/// The greatest length of the type of an exception.
const MAX_EXCEPTION_TYPE_BYTES: usize = 256;

/// The greatest length of a job's memo, as JSON, and of one that is added to it.
const MAX_MEMO_BYTES: usize = 16 * 1024;

/// The length of an event from which on it counts as long: each byte of a note can become six.
const LONG_EVENT_BYTES: usize = 6 * (MAX_NOTE_BYTES + MAX_EXCEPTION_TYPE_BYTES) + 512;

/// The number of events, none of them long, from which on an eventlog may have [`MAX_GUEST_EVENTLOG_BYTES`].
const LONG_EVENTLOG: u32 = 32;

/// The approximate memory of a dependency of one job: its event, its text in the record, and its place among those of its
/// trigger.
const DEPENDENCY_BYTES: u64 = 400;

const _: () = assert!(MAX_MEMO_BYTES < LONG_EVENT_BYTES);
const _: () = assert!(LONG_EVENTLOG as u64 * (LONG_EVENT_BYTES as u64) < MAX_GUEST_EVENTLOG_BYTES);

/// Whether a number is above a limit; a negative limit permits any.
fn exceeds(limit: i64, number: u64) -> bool {
    u64::try_from(limit).is_ok_and(|limit| number > limit)
}

/// Checks that a guest may add this many jobs.
pub(crate) fn check_jobs(
    cx: &mut Context,
    sender: Credentials,
    count: u64,
) -> Result<(), RequestError> {
    if sender.is_owner() {
        return Ok(());
    }
    check_submission(cx, count)?;
    check_active(cx, sender.userid, count)
}

/// Checks that a guest may have this many further active jobs.
pub(crate) fn check_active(cx: &mut Context, userid: u32, count: u64) -> Result<(), RequestError> {
    if userid == cx.settings.owner {
        return Ok(());
    }
    let active = cx.jobs.active_of(userid);
    let of_guests = cx.jobs.active_of_guests(cx.settings.owner).count;
    let Quota {
        active_jobs,
        all_active_jobs,
        ..
    } = cx.settings.quota;
    let text = if exceeds(active_jobs, active.saturating_add(count)) {
        cx.count_rejection(|rejected| &mut rejected.active_jobs);
        format!(
            "user {userid} has {active} active jobs: expected at most {active_jobs} with the {count} of this request \
             (penstock.quota.active-jobs)"
        )
    } else if exceeds(all_active_jobs, of_guests.saturating_add(count)) {
        cx.count_rejection(|rejected| &mut rejected.all_active_jobs);
        format!(
            "all guests have {of_guests} active jobs: expected at most {all_active_jobs} with the {count} of this \
             request (penstock.quota.all-active-jobs)"
        )
    } else {
        return Ok(());
    };
    Err(RequestError::new(errno::EAGAIN, text))
}

/// Checks that a guest may send this many submissions in one request, or in all parts of one submission.
pub(crate) fn check_submissions(
    cx: &mut Context,
    sender: Credentials,
    count: u64,
) -> Result<(), RequestError> {
    if sender.is_owner() {
        return Ok(());
    }
    check_submission(cx, count)
}

fn check_submission(cx: &mut Context, count: u64) -> Result<(), RequestError> {
    let limit = cx.settings.quota.submission_jobs;
    if u64::try_from(limit).map_or(true, |limit| count <= limit) {
        return Ok(());
    }
    cx.count_rejection(|rejected| &mut rejected.submission_jobs);
    let text = format!(
        "the submission has {count} jobs: expected at most {limit} (penstock.quota.submission-jobs)"
    );
    Err(RequestError::invalid(text))
}

/// Checks the length of the texts of an exception.
pub(crate) fn check_exception(cx: &Context, kind: &str, note: &str) -> Result<(), RequestError> {
    check_length(cx, "type", kind.len(), MAX_EXCEPTION_TYPE_BYTES)?;
    check_length(cx, "note", note.len(), MAX_NOTE_BYTES)
}

/// Checks the length of a job's memo with the keys that are to be added, and that of all memos of a guest, and of all
/// guests.
pub(crate) fn check_memo(
    cx: &mut Context,
    sender: Credentials,
    id: JobId,
    added: &Map<String, Value>,
) -> Result<(), RequestError> {
    let record = &cx.jobs.active(id)?.record;
    let length = |memo| serde_json::to_string(memo).map_or(0, |text| text.len());
    let replaced = |key: &&String| added.contains_key(key.as_str());
    let kept: usize = record
        .memo()
        .into_iter()
        .flatten()
        .filter(|(key, _)| !replaced(key))
        .map(|(key, value)| key.len() + value.to_string().len())
        .sum();
    let memo = kept + length(added);
    check_length(cx, "memo", memo, MAX_MEMO_BYTES)?;
    let (userid, before) = (record.userid(), record.memo_bytes());
    // A guest can always make a memo shorter.
    if sender.is_owner() || memo as u64 <= before {
        return Ok(());
    }
    let with_memo = |all: u64| all.saturating_sub(before).saturating_add(memo as u64);
    let of_user = with_memo(cx.jobs.memo_bytes_of(userid));
    let of_guests = with_memo(cx.jobs.active_of_guests(cx.settings.owner).memo_bytes);
    let Quota {
        memo_bytes,
        all_memo_bytes,
        ..
    } = cx.settings.quota;
    let text = if exceeds(memo_bytes, of_user) {
        cx.count_rejection(|rejected| &mut rejected.memo_bytes);
        format!(
            "the memos of active jobs of user {userid} would have {of_user} bytes: expected at most {memo_bytes} \
             (penstock.quota.memo-bytes)"
        )
    } else if exceeds(all_memo_bytes, of_guests) {
        cx.count_rejection(|rejected| &mut rejected.all_memo_bytes);
        format!(
            "the memos of active jobs of all guests would have {of_guests} bytes: expected at most {all_memo_bytes} \
             (penstock.quota.all-memo-bytes)"
        )
    } else {
        return Ok(());
    };
    Err(RequestError::new(errno::EAGAIN, text))
}

/// Checks that the memory of a guest's active jobs permits further jobs with this spec.
pub(crate) fn check_values(
    cx: &Context,
    userid: u32,
    spec: &Spec,
    requested: &RequestedResources,
    count: u64,
) -> Result<(), RequestError> {
    if userid == cx.settings.owner {
        return Ok(());
    }
    let shared = cx.jobspecs.find_shared(spec, requested);
    let values = cx.jobs.held_values();
    let of_dependencies = ActiveJobs::of(spec, count).dependencies * DEPENDENCY_BYTES;
    let added = values.new_bytes(userid, spec, requested, &shared) + of_dependencies;
    check_job_bytes(cx, userid, added)
}

/// Checks that the memory of a guest's active jobs permits that a job gets a time limit of its own.
pub(crate) fn check_changed_values(cx: &Context, id: JobId) -> Result<(), RequestError> {
    let job = cx.jobs.active(id)?;
    let requested = job.dialogue.scheduler.requested();
    let added = held_values::bytes_of_own(job.record.spec(), requested);
    check_job_bytes(cx, job.record.userid(), added)
}

fn check_job_bytes(cx: &Context, userid: u32, added: u64) -> Result<(), RequestError> {
    // A job that shares what other jobs have takes no more memory.
    if added == 0 {
        return Ok(());
    }
    let (owner, values) = (cx.settings.owner, cx.jobs.held_values());
    let with_dependencies = |bytes: u64, count: u64| bytes + count * DEPENDENCY_BYTES + added;
    let of_user = with_dependencies(values.bytes_of(userid), cx.jobs.dependencies_of(userid));
    let of_guests = with_dependencies(
        values.bytes_of_guests(owner),
        cx.jobs.active_of_guests(owner).dependencies,
    );
    let Quota {
        job_bytes,
        all_job_bytes,
        ..
    } = cx.settings.quota;
    let (whose, bytes, limit, setting) = if exceeds(job_bytes, of_user) {
        cx.count_rejection(|rejected| &mut rejected.job_bytes);
        (format!("user {userid}"), of_user, job_bytes, "job-bytes")
    } else if exceeds(all_job_bytes, of_guests) {
        cx.count_rejection(|rejected| &mut rejected.all_job_bytes);
        (
            "all guests".to_owned(),
            of_guests,
            all_job_bytes,
            "all-job-bytes",
        )
    } else {
        return Ok(());
    };
    let text = format!(
        "the constraints, dependencies and names of active jobs of {whose} would take {bytes} bytes of memory: \
         expected at most {limit} (penstock.quota.{setting})"
    );
    Err(RequestError::new(errno::EAGAIN, text))
}

/// Checks that a request may add an event of some length to the eventlog of a job. The events of the job itself are always
/// logged.
pub(crate) fn check_event(
    cx: &mut Context,
    sender: Credentials,
    id: JobId,
    length: usize,
) -> Result<(), RequestError> {
    check_eventlog(cx, sender, id, length)?;
    check_space(cx, sender)?;
    let events = cx.jobs.record(id).map_or(0, Record::events);
    check_stored(cx, sender, counted_event_bytes(events, length))
}

/// Checks that a request may end a job by an exception of some length. A short one always may.
pub(crate) fn check_end(
    cx: &Context,
    sender: Credentials,
    length: usize,
) -> Result<(), RequestError> {
    check_stored(cx, sender, counted_event_bytes(0, length))
}

/// Checks that the sender of a request may change the jobspec of a job, of which the store gets another one.
pub(crate) fn check_update(
    cx: &mut Context,
    sender: Credentials,
    id: JobId,
) -> Result<(), RequestError> {
    check_event(cx, sender, id, USUAL_EVENT_BYTES)?;
    if sender.is_owner() {
        return Ok(());
    }
    let key = cx.jobs.active(id)?.record.spec().key;
    let length = cx.jobspec(key).map_or(0, |document| document.text().len());
    check_stored(cx, sender, JOBSPEC_BYTES + length as u64)
}

/// Checks that a guest may store this many jobs with a jobspec.
pub(crate) fn check_jobspec(
    cx: &Context,
    sender: Credentials,
    text: &str,
    count: u64,
) -> Result<(), RequestError> {
    if sender.is_owner() {
        return Ok(());
    }
    let of_text = match cx.jobspecs.submitted(text) {
        Some(_) => 0,
        None => JOBSPEC_BYTES + text.len() as u64,
    };
    check_stored(cx, sender, JOB_BYTES.saturating_mul(count) + of_text)
}

/// Checks that the sender of a request may store this many further bytes: the instance owner may always, a guest as far as
/// its quota and the disk permit.
pub(crate) fn check_stored(
    cx: &Context,
    sender: Credentials,
    added: u64,
) -> Result<(), RequestError> {
    if sender.is_owner() || added == 0 {
        return Ok(());
    }
    check_space(cx, sender)?;
    let (userid, limit) = (sender.userid, cx.settings.quota.store_bytes);
    let unadded = cx.unadded_jobs.of(userid).saturating_mul(JOB_BYTES);
    let stored = cx.store().bytes_of(userid).saturating_add(unadded);
    if u64::try_from(limit).map_or(true, |limit| stored.saturating_add(added) <= limit) {
        return Ok(());
    }
    cx.count_rejection(|rejected| &mut rejected.store_bytes);
    let text = format!(
        "user {userid} has {stored} bytes in the store: expected at most {limit} with the {added} of this request \
         (penstock.quota.store-bytes)\nhint: `penstock purge` removes ended jobs, and what is stored of them"
    );
    Err(RequestError::new(errno::EDQUOT, text))
}

/// Checks that the disk has more space than is kept for the instance owner, unless that is the sender.
fn check_space(cx: &Context, sender: Credentials) -> Result<(), RequestError> {
    let Some(space) = cx.disk_space.filter(|_| !sender.is_owner()) else {
        return Ok(());
    };
    let (free, reserved) = (space.free, space.reserve(cx.settings.quota.reserved_bytes));
    if free >= reserved {
        return Ok(());
    }
    cx.count_rejection(|rejected| &mut rejected.reserved_bytes);
    let text = format!(
        "the file system of the state directory has {free} free bytes: expected at least {reserved} for a request of a \
         guest that stores something (penstock.quota.reserved-bytes)"
    );
    Err(RequestError::new(errno::ENOSPC, text))
}

/// Checks that a request may add an event of some length to the eventlog of a job.
fn check_eventlog(
    cx: &mut Context,
    sender: Credentials,
    id: JobId,
    added: usize,
) -> Result<(), RequestError> {
    let events = cx.jobs.record(id).map_or(0, Record::events);
    let known = cx.jobs.eventlog_bytes(id);
    // Shorter ones need not be read.
    if known.is_none() && events < LONG_EVENTLOG && added <= LONG_EVENT_BYTES {
        return Ok(());
    }
    let length = known.unwrap_or_else(|| {
        let stored = cx.read_store(|store| store.eventlog_bytes(id));
        let length = stored + cx.jobs.unwritten(id).len() as u64;
        cx.jobs.set_eventlog_bytes(id, length);
        length
    });
    let limit = if sender.is_owner() {
        MAX_EVENTLOG_BYTES
    } else {
        MAX_GUEST_EVENTLOG_BYTES
    };
    let length = length.saturating_add(added as u64);
    if length <= limit {
        return Ok(());
    }
    cx.count_rejection(|rejected| &mut rejected.eventlog_bytes);
    let text = format!(
        "the eventlog of job {id} is too long for further events of requests: expected at most {limit} bytes, found \
         {length} with the one of this request"
    );
    Err(RequestError::new(errno::EFBIG, text))
}

/// Checks the length of a text of any user.
fn check_length(cx: &Context, key: &str, length: usize, most: usize) -> Result<(), RequestError> {
    if length <= most {
        return Ok(());
    }
    cx.count_rejection(|rejected| &mut rejected.text_bytes);
    let text = format!("`{key}` is too long: expected at most {most} bytes, found {length}");
    Err(RequestError::invalid(text))
}
