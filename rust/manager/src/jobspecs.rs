//! Jobspecs on their way into the store: validation, the site's defaults, replacement, removal.

use std::borrow::Cow;
use std::sync::Arc;

use penstock_flux::{RequestError, job_files};
use penstock_idset::IdSet;
use penstock_jobspec::copies::{self, CopyIds};
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{COPY_IDS, Jobspec};

use crate::context::Context;
use crate::depend;
use crate::event::{Document, Event};
use crate::policy;
use crate::quota;
use crate::settings::Settings;
use crate::spec::{Checked, Spec, Stored};

/// Which limits of the site hold for a jobspec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limited {
    /// All of them.
    Fully,
    /// Duration only; the size limits apply to the job that receives the resources.
    ByDuration,
}

/// The error for an invalid jobspec.
pub(crate) fn invalid(error: impl std::fmt::Display) -> RequestError {
    RequestError::invalid(error.to_string())
}

/// The maximum length of a name in a jobspec: of the job, its queue, project and bank, and of its working directory.
const MAX_NAME_BYTES: usize = 4096;

/// Checks the size of a jobspec, and counts one that is too large.
fn check_bytes(cx: &Context, bytes: usize, userid: u32) -> Result<(), RequestError> {
    let checked = policy::check_bytes(bytes, userid, &cx.settings);
    checked.inspect_err(|_| cx.count_rejection(|rejected| &mut rejected.jobspec_bytes))
}

/// Checks the size of a submitted jobspec before it is parsed, and counts one that is too large.
pub(crate) fn check_size(cx: &Context, text: &str, userid: u32) -> Result<(), RequestError> {
    check_bytes(cx, text.len(), userid)?;
    let checked = policy::check_values(text, userid, &cx.settings);
    checked.inspect_err(|_| cx.count_rejection(|rejected| &mut rejected.jobspec_bytes))
}

/// Checks the names that every row of a list of jobs has.
fn check_names(cx: &Context, spec: &Spec) -> Result<(), RequestError> {
    let names = [
        ("job.name", Some(&*spec.name)),
        ("cwd", spec.cwd.as_deref()),
        ("queue", spec.queue.as_deref()),
        ("project", spec.project.as_deref()),
        ("bank", spec.bank.as_deref()),
    ];
    let lengths = names
        .into_iter()
        .filter_map(|(key, name)| Some((key, name?.len())));
    match lengths
        .into_iter()
        .find(|(_, length)| *length > MAX_NAME_BYTES)
    {
        Some((key, length)) => {
            cx.count_rejection(|rejected| &mut rejected.text_bytes);
            Err(RequestError::invalid(format!(
                "attributes.system.{key} is too long: expected at most {MAX_NAME_BYTES} bytes, found {length}"
            )))
        }
        None => Ok(()),
    }
}

/// A valid jobspec with a time limit that a job can have.
fn checked(jobspec: Jobspec, text: &str, settings: &Settings) -> Result<Checked, RequestError> {
    policy::check_run_time(jobspec.duration())?;
    Checked::new(jobspec, text, settings).map_err(invalid)
}

/// Puts a submitted jobspec into the store, with the site's defaults, if it is valid and within the site's limits.
///
/// A text that was submitted before is not checked again, unless the settings have changed or its jobs are purged.
pub(crate) fn submit(
    cx: &mut Context,
    text: &str,
    userid: u32,
    count: u64,
) -> Result<Stored, RequestError> {
    match check_submitted(cx, text, userid, count)? {
        Submitted::Known(stored) => Ok(stored),
        Submitted::New(checked) => {
            let stored = store(cx, userid, *checked);
            cx.jobspecs.remember(text, &stored);
            Ok(stored)
        }
    }
}

/// A submitted jobspec that is valid and within the site's limits.
pub(crate) enum Submitted {
    /// The text was submitted before.
    Known(Stored),
    New(Box<Checked>),
}

/// Checks a submitted jobspec as [`submit`] does, and puts nothing into the store.
pub(crate) fn check_submitted(
    cx: &mut Context,
    text: &str,
    userid: u32,
    count: u64,
) -> Result<Submitted, RequestError> {
    check_size(cx, text, userid)?;
    if let Some(stored) = cx.jobspecs.submitted(text) {
        cx.queues.check_enabled(stored.spec.queue.as_deref())?;
        depend::check(cx, &stored.spec.dependencies, userid)?;
        quota::check_values(cx, userid, &stored.spec, &stored.requested, count)?;
        return Ok(Submitted::Known(stored));
    }
    let checked = check_text(cx, parse(text)?, text, userid, Limited::Fully)?;
    quota::check_values(cx, userid, checked.spec(), &checked.requested(), count)?;
    Ok(Submitted::New(Box::new(checked)))
}

/// Parses a submitted jobspec.
fn parse(text: &str) -> Result<Jobspec, RequestError> {
    let jobspec = Jobspec::from_json(text).map_err(invalid)?;
    if jobspec.attribute(COPY_IDS).is_some() {
        let text =
            format!("attributes.{COPY_IDS}: expected none: `cc` of the request asks for copies");
        return Err(RequestError::invalid(text));
    }
    Ok(jobspec)
}

/// A valid jobspec of copies, with the site's defaults, that is not in the store yet.
#[derive(Debug)]
pub(crate) struct Template(Jobspec);

/// Checks a jobspec in which `{cc}` stands for the ids of copies.
pub(crate) fn check_template(
    cx: &Context,
    text: &str,
    userid: u32,
    ids: &IdSet,
) -> Result<Template, RequestError> {
    check_size(cx, text, userid)?;
    let template = policy::with_defaults(&parse(text)?, &cx.settings).into_owned();
    let checked = check(cx, template.clone(), userid, Limited::Fully)?;
    // The longest text that a copy has.
    let copy = copies::expand(text, ids.last().unwrap_or_default());
    let copy = check_text(cx, parse(&copy)?, &copy, userid, Limited::Fully)?;
    let is_same = checked.spec().attributes == copy.spec().attributes
        && checked.requested() == copy.requested();
    if !is_same {
        let text = "`{cc}` stands in a part of the jobspec that must be the same for all copies: expected it in command, \
                    environment, shell options, job name or user attributes";
        return Err(RequestError::invalid(text));
    }
    quota::check_values(cx, userid, copy.spec(), &copy.requested(), ids.len())?;
    Ok(Template(template))
}

/// Puts the jobspec of a user's copies into the store.
pub(crate) fn store_template(
    cx: &mut Context,
    userid: u32,
    Template(mut jobspec): Template,
    copies: &CopyIds,
) -> Result<Stored, RequestError> {
    jobspec.set_copy_ids(copies);
    let text = jobspec.to_text();
    let checked = checked(jobspec, &text, &cx.settings)?;
    Ok(store(cx, userid, checked))
}

/// Applies the site's defaults and limits to a jobspec that the manager has made.
pub(crate) fn check(
    cx: &Context,
    jobspec: Jobspec,
    userid: u32,
    limited: Limited,
) -> Result<Checked, RequestError> {
    let text = jobspec.to_text();
    let checked = check_text(cx, jobspec, &text, userid, limited)?;
    quota::check_values(cx, userid, checked.spec(), &checked.requested(), 1)?;
    Ok(checked)
}

/// Applies the site's defaults and limits to a jobspec with this text.
fn check_text(
    cx: &Context,
    jobspec: Jobspec,
    text: &str,
    userid: u32,
    limited: Limited,
) -> Result<Checked, RequestError> {
    let settings = &cx.settings;
    let completed = match policy::with_defaults(&jobspec, settings) {
        Cow::Borrowed(_) => None,
        Cow::Owned(completed) => Some(completed),
    };
    let (text, jobspec) = match completed {
        Some(completed) => (completed.to_text().into(), completed),
        None => (Cow::Borrowed(text), jobspec),
    };
    match limited {
        Limited::Fully => policy::check(&jobspec, settings)?,
        Limited::ByDuration => {
            policy::check_duration(jobspec.duration(), jobspec.queue(), settings)?;
        }
    }
    cx.queues.check_enabled(jobspec.queue())?;
    // The execution service would reject them when the job starts.
    job_files::read(&jobspec).map_err(invalid)?;
    let checked = checked(jobspec, &text, settings)?;
    let limit = policy::max_bytes(userid, settings);
    check_bytes(cx, checked.bytes(limit), userid)?;
    check_names(cx, checked.spec())?;
    depend::check(cx, &checked.spec().dependencies, userid)?;
    Ok(checked)
}

/// Computes the jobspec of a job with another time limit.
pub(crate) fn with_duration(
    cx: &mut Context,
    id: JobId,
    duration: f64,
) -> Result<Checked, RequestError> {
    let record = cx.jobs.record(id).ok_or_else(|| cx.jobs.unknown(id))?;
    let key = record.spec().key;
    let document = cx.jobspec(key);
    let document = document.ok_or_else(|| invalid("the jobspec is not in the store"))?;
    let mut jobspec = Jobspec::from_json(document.text()).map_err(invalid)?;
    jobspec.set_duration(duration);
    accept(cx, jobspec)
}

/// Accepts another jobspec that the manager has made for a job.
pub(crate) fn accept(cx: &Context, jobspec: Jobspec) -> Result<Checked, RequestError> {
    let text = jobspec.to_text();
    checked(jobspec, &text, &cx.settings)
}

/// Puts the jobspec of a user into the store, unless an equal one is there.
pub(crate) fn store(cx: &mut Context, userid: u32, checked: Checked) -> Stored {
    cx.intern_jobspec(userid, checked)
}

/// Replaces the jobspec of a job: in the store, in requests to the scheduler and, by `event`, in the
/// record.
pub(crate) fn replace(cx: &mut Context, id: JobId, checked: Checked, event: Event) {
    let Some(record) = cx.jobs.record(id) else {
        return;
    };
    let (userid, old) = (record.userid(), Arc::clone(record.spec()));
    let Stored { spec, requested } = store(cx, userid, checked);
    cx.store_spec(id, spec.key);
    cx.jobs.set_requested(id, &requested);
    cx.log(id, event.with_document(Document::Jobspec(spec)));
    release(cx, old);
}

/// Removes the jobspec of a job in memory from the store if no other job refers to it.
pub(crate) fn release(cx: &mut Context, spec: Arc<Spec>) {
    if let Some(spec) = Arc::into_inner(spec)
        && !cx.jobspecs.is_of_evicted(spec.key)
    {
        cx.remove_jobspec(spec.key);
    }
}

/// Removes the jobspec of a purged job that was in the store alone if no other job refers to it.
pub(crate) fn release_evicted(cx: &mut Context, key: i64) {
    if cx.jobspecs.purge_evicted(key) {
        cx.remove_jobspec(key);
    }
}
