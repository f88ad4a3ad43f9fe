//! A submission: the jobspecs of one request, or of one list, and the jobs that they become.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use penstock_flux::eventlog::{self, Submit};
use penstock_flux::job_ingest::{
    SubmitPartRequest, SubmitRequest, SubmitResponse, SubmitResultsText, WAITABLE,
};
use penstock_flux::urgency::DEFAULT;
use penstock_flux::{Credentials, Json, Payload as _, RequestError, errno};
use penstock_idset::IdSet;
use penstock_jobspec::copies::CopyIds;
use penstock_jobspec::job_id::JobId;
use penstock_store::Submission as StoredSubmission;
use penstock_wire::Message;

use super::invalid::InvalidEntries;
use super::repetition::{PART_TIMEOUT_S, no_such_submission};
use super::results::{
    LEFT_OUT_BYTES, MAX_INDEPENDENT_SUBMISSIONS, MAX_JOBS_PER_REQUEST, MAX_REASONS_BYTES,
    REASON_LEFT_OUT, Results, StoredJobs, StoredResult, check_response,
};
use super::token::{ListDigest, Token};
use crate::authorize;
use crate::census::Census;
use crate::context::Context;
use crate::depend;
use crate::event::Event;
use crate::jobs::{ActiveJobs, Copies};
use crate::jobspecs;
use crate::quota;
use crate::reason::cut_error;
use crate::reload;
use crate::rpc::Request;
use crate::shell_defaults;
use crate::signed;
use crate::spec::Stored;
use crate::state::State;

/// The greatest number of jobs that one submission may make.
const MAX_JOBS_PER_SUBMISSION: u64 = 10_000_000;

/// The length of a jobspec in a request that takes as long as a job, in bytes.
const BYTES_PER_JOB: usize = 256;
/// The number of ids that are allotted at once to the jobs of a list: those of other submissions do not come between.
const IDS_PER_BLOCK: u64 = 1024;

/// The jobspec of a submission that has nothing else, if what this returns is a JSON value.
fn only_jobspec(submission: &str) -> Option<&str> {
    let jobspec = submission
        .strip_prefix("{\"jobspec\":")?
        .strip_suffix('}')?;
    (jobspec.starts_with('{') && jobspec.ends_with('}')).then_some(jobspec)
}

/// The memory that a submission takes until it is accepted, in bytes: a short text takes more than its length.
fn held_bytes(text: &str) -> usize {
    text.len() + 3 * size_of::<Box<str>>()
}

/// The form of the response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseForm {
    One,
    Copies,
    Many,
    /// That of `Many`, where an invalid submission does not reject the others.
    Independent,
    Part,
}

/// The ids that a submission names for its copies.
fn copy_ids(submission: &SubmitRequest<'_>) -> Result<Option<IdSet>, RequestError> {
    let Some(text) = &submission.cc else {
        return Ok(None);
    };
    if submission.count.is_some() {
        let text = "the submission has both `count` and `cc`";
        return Err(RequestError::protocol(text));
    }
    let ids = text.parse::<IdSet>();
    ids.map(Some)
        .map_err(|error| RequestError::invalid(format!("`cc`: {error}")))
}

/// The jobspec of one submission.
fn jobspec_text<'a>(
    cx: &Context,
    submission: &SubmitRequest<'a>,
    sender: Credentials,
) -> Result<Cow<'a, str>, RequestError> {
    match (submission.jobspec, &submission.signed) {
        (Some(jobspec), None) => Ok(Cow::Borrowed(jobspec.0)),
        (None, Some(signed)) => {
            let text = signed::unwrap(signed, sender)?;
            jobspecs::check_size(cx, &text, sender.userid)?;
            Ok(Cow::Owned(shell_defaults::add(text)))
        }
        (None, None) => Err(RequestError::protocol("the submission has no `jobspec`")),
        (Some(_), Some(_)) => {
            let text = "the submission has both `jobspec` and `J`";
            Err(RequestError::protocol(text))
        }
    }
}

/// The error of a part with `abort`.
fn cancellation(part: &SubmitPartRequest<'_>) -> RequestError {
    if part.jobs.is_empty() && !part.more {
        return RequestError::new(errno::ECANCELED, "the client has cancelled the list");
    }
    let text = format!(
        "part {} of token `{}` has `abort`: expected neither jobs nor `more`",
        part.part, &*part.token
    );
    RequestError::protocol(text)
}

/// The reason in the response to a part for a valid submission after an invalid one.
const NOT_SUBMITTED: &str = "not submitted: an earlier job of the list is invalid";

/// The jobs with ids from the first to the second.
pub(super) type IdRange = (JobId, JobId);

/// Copies of one jobspec that are still to be added.
#[derive(Debug)]
struct Batch {
    copies: Copies,
    next: JobId,
    left: u64,
    /// See [`Context::constraint_changes`].
    constraint_changes: u64,
    /// Whether it is a submission of one job, and not of copies.
    is_single: bool,
}

impl Batch {
    /// Adds the next jobs, `max` at most, and their ids to the response. Returns their number.
    fn add(&mut self, cx: &mut Context, max: u64, response: &mut SubmitResultsText) -> u64 {
        if self.constraint_changes != cx.constraint_changes {
            self.constraint_changes = cx.constraint_changes;
            let text = reload::read_jobspec(cx, self.copies.record().spec().key);
            if let Some(requested) = reload::requested(cx, &text) {
                self.copies.set_requested(requested);
            }
        }
        let count = self.left.min(max);
        cx.unadded_jobs.end(self.copies.record().userid(), count);
        for _ in 0..count {
            cx.add_copy(&self.copies, self.next);
            response.push_id(self.next);
            self.next = self.next.successor();
        }
        self.left -= count;
        count
    }
}

/// The first events of jobs of a list that follow each other and are alike but for their jobspecs.
#[derive(Debug)]
struct SharedEvents {
    /// That of `submit`.
    context: Submit,
    lines: String,
    /// The first of these jobs.
    copies: Copies,
    /// The ids of the jobs.
    first: JobId,
    last: JobId,
    /// Whether the store has them for all these jobs.
    is_stored: bool,
}

/// Jobs with the events that each of them has first.
fn first_events(cx: &mut Context, stored: &Stored, context: Submit) -> Copies {
    let mut copies = Copies::new(context.userid, stored);
    copies.log(&Event::with(cx.event_time(), eventlog::SUBMIT, &context));
    if stored.spec.dependencies.is_empty() {
        // The events that the steps of each job would log at once.
        let priority = copies.record().due_priority();
        copies.log(&Event::new(cx.event_time(), eventlog::VALIDATE));
        copies.log(&Event::new(cx.event_time(), eventlog::DEPEND));
        let priority = eventlog::Priority { priority };
        copies.log(&Event::with(cx.event_time(), eventlog::PRIORITY, &priority));
    }
    copies
}

/// The parts in which a submission comes.
#[derive(Debug)]
pub(super) struct Parts {
    /// The peer that sends them.
    pub(super) origin: Option<Vec<u8>>,
    /// The number of the next one.
    next: u64,
    /// The parts whose jobs are not all accepted yet: the request, and the number of these jobs.
    open: VecDeque<(Message, usize)>,
    /// Whether the last one has come.
    are_all_here: bool,
    /// The number of submissions in all of them.
    submissions: u64,
    digest: ListDigest,
    /// When the submission is discarded unless a part comes.
    pub(super) due: f64,
}

/// The state of a submission after a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Complete,
    /// All of it is rejected: see [`Submission::rejection`].
    Invalid,
    Unfinished,
    /// Nothing until the next part comes.
    Waiting,
}

/// A submission with jobs that are still to be added.
#[derive(Debug)]
pub(super) struct Submission {
    /// The request, and the later ones with the same token: all get the same response.
    pub(super) requests: Vec<Message>,
    pub(super) sender: Credentials,
    /// The time of the monotonic clock when its request came, or its first part.
    pub(super) began: f64,
    pub(super) token: Option<Token>,
    form: ResponseForm,
    /// The submissions of a list that are still to be accepted.
    texts: VecDeque<Box<str>>,
    /// The memory that they take: see [`held_bytes`].
    pub(super) text_bytes: usize,
    pub(super) parts: Option<Parts>,
    /// The number of submissions of the list that were accepted or rejected.
    position: u32,
    invalid: InvalidEntries,
    batch: Option<Batch>,
    shared: Option<SharedEvents>,
    results: Results,
    /// The same as the response has them, less those in the responses to the parts before.
    response: SubmitResultsText,
    /// The ids of all accepted jobs, whether their rows are in the store or not yet.
    pub(super) ranges: Vec<IdRange>,
    /// The jobs on which they depend: none is purged before the dependents have entered their dependencies.
    pub(super) antecedents: BTreeSet<JobId>,
    /// The number of ranges that are hidden. The last one may have grown since.
    hidden: usize,
    /// Ids that are allotted to further jobs: the first, and their number.
    block: (JobId, u64),
    /// The number of accepted jobs, those included that are only checked.
    accepted: u64,
    /// The jobs that it has counted as active.
    pub(super) active: ActiveJobs,
    /// The number of those in the response to the request whose submissions are accepted now.
    accepted_of_request: u64,
    /// The length of the reasons in the response for a list of independent submissions.
    reasons_bytes: usize,
    /// The same by queue and state.
    tally: Vec<(Option<String>, State, u64)>,
    /// The number of accepted jobs that were submitted as waitable.
    waitable: u64,
}

impl Submission {
    /// A submission without jobs.
    fn new(sender: Credentials, token: Option<Token>, form: ResponseForm, began: f64) -> Self {
        Self {
            requests: Vec::new(),
            sender,
            began,
            token,
            form,
            texts: VecDeque::new(),
            text_bytes: 0,
            parts: None,
            position: 0,
            invalid: InvalidEntries::default(),
            batch: None,
            shared: None,
            results: Results::default(),
            response: if form == ResponseForm::Part {
                SubmitResultsText::of_part()
            } else {
                SubmitResultsText::default()
            },
            ranges: Vec::new(),
            antecedents: BTreeSet::new(),
            hidden: 0,
            block: (JobId::default(), 0),
            accepted: 0,
            active: ActiveJobs::default(),
            accepted_of_request: 0,
            reasons_bytes: 0,
            tally: Vec::new(),
            waitable: 0,
        }
    }

    /// The peer that sends it, or sent it first.
    pub(super) fn origin(&self) -> Option<&[u8]> {
        match &self.parts {
            Some(parts) => parts.origin.as_deref(),
            None => self.requests.first().and_then(Message::origin),
        }
    }

    /// Begins a submission that comes in parts, all of which are still to come.
    pub(super) fn in_parts(
        sender: Credentials,
        token: Token,
        origin: Option<Vec<u8>>,
        cx: &Context,
    ) -> Self {
        let mut begun = Self::new(sender, Some(token), ResponseForm::Part, cx.monotonic);
        begun.parts = Some(Parts {
            origin,
            next: 0,
            open: VecDeque::new(),
            are_all_here: false,
            submissions: 0,
            digest: ListDigest::default(),
            due: cx.now + PART_TIMEOUT_S,
        });
        begun
    }

    /// Begins a submission that one request has: adds no jobs yet.
    pub(super) fn begin(
        cx: &mut Context,
        sender: Credentials,
        token: Option<Token>,
        submission: &SubmitRequest<'_>,
    ) -> Result<Self, RequestError> {
        let form = match (&submission.jobs, submission.count, &submission.cc) {
            (Some(_), ..) if submission.independent => ResponseForm::Independent,
            (Some(_), ..) => ResponseForm::Many,
            (None, None, None) => ResponseForm::One,
            (None, ..) => ResponseForm::Copies,
        };
        let mut begun = Self::new(sender, token, form, cx.monotonic);
        if let Some(jobs) = &submission.jobs {
            if form == ResponseForm::Independent && jobs.len() > MAX_INDEPENDENT_SUBMISSIONS {
                let text = format!(
                    "`jobs` has {} independent submissions: expected at most {MAX_INDEPENDENT_SUBMISSIONS} in a request",
                    jobs.len()
                );
                return Err(RequestError::invalid(text));
            }
            quota::check_submissions(cx, sender, jobs.len() as u64)?;
            begun.add_texts(jobs);
        } else {
            begun.accept(cx, submission)?;
        }
        Ok(begun)
    }

    /// Adds submissions of the list.
    fn add_texts(&mut self, jobs: &[Json<'_>]) {
        self.text_bytes += jobs.iter().map(|job| held_bytes(job.0)).sum::<usize>();
        self.texts.extend(jobs.iter().map(|job| Box::from(job.0)));
    }

    /// Adds a part that comes after those before.
    pub(super) fn add_part(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        part: &SubmitPartRequest<'_>,
    ) -> Result<(), RequestError> {
        let name = &part.token;
        let Some(parts) = &mut self.parts else {
            return Err(no_such_submission(part));
        };
        if part.part != parts.next {
            let text = format!(
                "token `{name}`: expected part {} of the submission, found {}",
                parts.next, part.part
            );
            return Err(RequestError::protocol(text));
        }
        if part.abort {
            return Err(cancellation(part));
        }
        if part.jobs.is_empty() && part.more {
            let text = format!("part {} of token `{name}` has no jobs", part.part);
            return Err(RequestError::protocol(text));
        }
        parts.submissions += part.jobs.len() as u64;
        quota::check_submissions(cx, self.sender, parts.submissions)?;
        for job in &part.jobs {
            parts.digest.add(job.0);
        }
        parts.next += 1;
        parts.are_all_here = !part.more;
        let open = (request.message.header(), part.jobs.len());
        parts.open.push_back(open);
        if let Some(token) = &mut self.token {
            token.digest = parts.digest.0;
        }
        self.add_texts(&part.jobs);
        Ok(())
    }

    /// Whether another part is still to come.
    pub(super) fn is_parted(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| !parts.are_all_here)
    }

    /// The same if it is that of a user and a token.
    pub(super) fn is_parted_of(&self, token: &Token) -> bool {
        self.is_parted() && self.has_name(token)
    }

    pub(super) fn has_name(&self, token: &Token) -> bool {
        let own = self.token.as_ref();
        own.is_some_and(|own| own.is_same_name(token))
    }

    /// Discards the jobs that are still to be added.
    pub(super) fn end_batch(&mut self, cx: &mut Context) {
        if let Some(batch) = self.batch.take() {
            cx.unadded_jobs.end(self.sender.userid, batch.left);
        }
    }

    /// The requests that have had no response.
    pub(super) fn outstanding(&self) -> impl Iterator<Item = &Message> {
        let open = self.parts.iter().flat_map(|parts| &parts.open);
        self.requests.iter().chain(open.map(|(request, _)| request))
    }

    /// Accepts one submission of a list.
    fn accept_text(&mut self, cx: &mut Context, text: &str) -> Result<(), RequestError> {
        // Most have nothing but a jobspec, whose parser finds its end, too. An error is that of the whole text.
        let only = only_jobspec(text).map(|jobspec| SubmitRequest {
            jobspec: Some(Json(jobspec)),
            ..SubmitRequest::default()
        });
        let early = only.as_ref().map(|only| self.accept(cx, only));
        if let Some(Ok(())) = early {
            return Ok(());
        }
        let submission: SubmitRequest<'_> = penstock_flux::read(Some(text.as_bytes()))
            .map_err(|error| RequestError::protocol(format!("malformed submission: {error}")))?;
        // It is not parsed twice.
        if only.as_ref() == Some(&submission)
            && let Some(Err(error)) = early
        {
            return Err(error);
        }
        if submission.token.is_some() {
            let text = "a `token` names the whole request: expected it beside `jobs`";
            return Err(RequestError::protocol(text));
        }
        self.accept(cx, &submission)
    }

    /// Accepts copies of one jobspec: checks it, and allots their ids unless the list is already invalid.
    fn accept(
        &mut self,
        cx: &mut Context,
        submission: &SubmitRequest<'_>,
    ) -> Result<(), RequestError> {
        let (sender, userid) = (self.sender, self.sender.userid);
        if submission.independent {
            let text = "`independent` is about a list: expected it beside `jobs`";
            return Err(RequestError::protocol(text));
        }
        let urgency = submission.urgency.unwrap_or(DEFAULT.into());
        let urgency = authorize::urgency(sender, urgency)?;
        authorize::submission_flags(sender, submission.flags)?;
        let ids = copy_ids(submission)?;
        let count = match &ids {
            Some(ids) => ids.len(),
            None => submission.count.unwrap_or(1),
        };
        self.check_count(count)?;
        quota::check_jobs(cx, sender, count)?;
        let text = jobspec_text(cx, submission, sender)?;
        quota::check_jobspec(cx, sender, &text, count)?;
        let template = ids
            .map(|ids| {
                let template = jobspecs::check_template(cx, &text, userid, &ids)?;
                Ok::<_, RequestError>((template, ids))
            })
            .transpose()?;
        if !self.invalid.is_empty() {
            if template.is_none() {
                jobspecs::check_submitted(cx, &text, userid, count)?;
            }
            // Further jobs of the list are checked against the limits of the user together with these.
            self.count_active(cx, ActiveJobs::without_dependencies(count));
            self.accepted += count;
            self.accepted_of_request += count;
            if self.form == ResponseForm::Part {
                self.response.push_error(NOT_SUBMITTED);
            }
            return Ok(());
        }
        let (stored, (first, last)) = match template {
            None => (
                jobspecs::submit(cx, &text, userid, count)?,
                self.allot(cx, count)?,
            ),
            Some((template, ids)) => {
                let range = self.allot(cx, count)?;
                let copies = CopyIds::new(range.0, ids);
                (
                    jobspecs::store_template(cx, userid, template, &copies)?,
                    range,
                )
            }
        };
        let context = Submit {
            userid,
            urgency,
            flags: submission.flags,
            version: Submit::VERSION,
        };
        self.antecedents.extend(depend::antecedents(&stored.spec));
        let is_alike = stored.spec.dependencies.is_empty();
        let copies = if count == 1 && is_alike && self.is_list() {
            self.share_events(cx, &stored, context, first)
        } else {
            let mut copies = first_events(cx, &stored, context);
            if count > 1 {
                cx.store_common_events(&copies.take_common_events(), first, last);
            }
            copies
        };
        self.count_active(cx, ActiveJobs::of(&stored.spec, count));
        self.count(&copies, count);
        let is_single = submission.count.is_none() && submission.cc.is_none();
        if is_single {
            self.response.begin_id();
        } else {
            self.response.begin_ids();
        }
        cx.unadded_jobs.accept(userid, count);
        self.batch = Some(Batch {
            copies,
            next: first,
            left: count,
            constraint_changes: cx.constraint_changes,
            is_single,
        });
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.results.push(StoredResult::Ids(first, count));
        match self.ranges.last_mut() {
            Some((_, end)) if end.successor() == first => *end = last,
            _ => self.ranges.push((first, last)),
        }
        Ok(())
    }

    /// Counts jobs of its user as active.
    fn count_active(&mut self, cx: &mut Context, jobs: ActiveJobs) {
        self.active.add(jobs);
        cx.jobs.count_active(self.sender.userid, jobs);
    }

    /// Checks the number of jobs of one submission, and of all so far.
    fn check_count(&self, count: u64) -> Result<(), RequestError> {
        if !(1..=MAX_JOBS_PER_REQUEST).contains(&count) {
            let text =
                format!("count {count} is out of range: expected 1 to {MAX_JOBS_PER_REQUEST}");
            return Err(RequestError::invalid(text));
        }
        check_response(self.accepted_of_request, count)?;
        if self.accepted.saturating_add(count) > MAX_JOBS_PER_SUBMISSION {
            let text = format!("expected at most {MAX_JOBS_PER_SUBMISSION} jobs in all parts");
            return Err(RequestError::invalid(text));
        }
        Ok(())
    }

    fn is_list(&self) -> bool {
        matches!(
            self.form,
            ResponseForm::Many | ResponseForm::Independent | ResponseForm::Part
        )
    }

    /// A job of the list that shares its events with the one before, if that is alike but for its jobspec.
    fn share_events(
        &mut self,
        cx: &mut Context,
        stored: &Stored,
        context: Submit,
        id: JobId,
    ) -> Copies {
        let shared = self.shared.as_mut();
        if let Some(shared) =
            shared.filter(|shared| shared.context == context && shared.last.successor() == id)
        {
            shared.last = id;
            shared.is_stored = false;
            return shared.copies.with_jobspec(stored);
        }
        self.store_shared(cx);
        let mut copies = first_events(cx, stored, context);
        self.shared = Some(SharedEvents {
            context,
            lines: copies.take_common_events(),
            copies: copies.clone(),
            first: id,
            last: id,
            is_stored: false,
        });
        copies
    }

    /// Stores the events that jobs share.
    fn store_shared(&mut self, cx: &mut Context) {
        if let Some(shared) = &mut self.shared
            && !shared.is_stored
        {
            cx.store_common_events(&shared.lines, shared.first, shared.last);
            shared.is_stored = true;
        }
    }

    /// Allots the ids of the next jobs: the first and the last one.
    fn allot(&mut self, cx: &mut Context, count: u64) -> Result<IdRange, RequestError> {
        if count > 1 {
            // The ids ascend in the order of the list.
            self.block.1 = 0;
            return cx.next_ids(count);
        }
        let (mut first, mut left) = self.block;
        if left == 0 {
            let is_last = self.parts.is_none() || !self.is_parted();
            left = if is_last {
                IDS_PER_BLOCK.min(self.texts.len() as u64 + 1)
            } else {
                IDS_PER_BLOCK
            };
            (first, _) = cx.next_ids(left)?;
        }
        self.block = (first.successor(), left - 1);
        Ok((first, first))
    }

    /// Counts accepted jobs.
    fn count(&mut self, copies: &Copies, count: u64) {
        self.accepted += count;
        self.accepted_of_request += count;
        if copies.record().flags() & WAITABLE != 0 {
            self.waitable += count;
        }
        let (queue, state) = (&copies.record().spec().queue, copies.record().state());
        let mut entries = self.tally.iter_mut();
        match entries.find(|(of, in_state, _)| of == queue && *in_state == state) {
            Some((_, _, jobs)) => *jobs += count,
            None => self.tally.push((queue.clone(), state, count)),
        }
    }

    /// Adds the next jobs, of which a slice has this number.
    pub(super) fn run_slice(&mut self, cx: &mut Context, jobs: u64) -> Progress {
        let progress = self.add_jobs(cx, jobs);
        self.store_shared(cx);
        progress
    }

    fn add_jobs(&mut self, cx: &mut Context, jobs: u64) -> Progress {
        let mut left = jobs;
        loop {
            if let Some(batch) = &mut self.batch {
                left -= batch.add(cx, left, &mut self.response);
                if batch.left > 0 {
                    return Progress::Unfinished;
                }
                if batch.is_single {
                    self.response.end_id();
                } else {
                    self.response.end_ids();
                }
                self.batch = None;
                self.end_text(cx);
            }
            if left == 0 && !self.texts.is_empty() {
                return Progress::Unfinished;
            }
            let Some(text) = self.texts.pop_front() else {
                return if self.is_parted() {
                    Progress::Waiting
                } else if self.invalid.is_empty() {
                    Progress::Complete
                } else {
                    Progress::Invalid
                };
            };
            let position = self.position;
            self.position = position.saturating_add(1);
            self.text_bytes -= held_bytes(&text);
            // One at least: its jobspec is in the store, and the job that refers to it is to be there, too.
            left = left
                .saturating_sub((text.len() / BYTES_PER_JOB) as u64)
                .max(1);
            if let Err(error) = self.accept_text(cx, &text) {
                self.reject_text(position, cut_error(error));
                if self.invalid.is_full() {
                    return Progress::Invalid;
                }
            }
            if self.batch.is_none() {
                left -= 1;
                self.end_text(cx);
            }
        }
    }

    /// Records the error of one submission of a list.
    fn reject_text(&mut self, position: u32, error: RequestError) {
        match self.form {
            ResponseForm::Independent => return self.reject_independent(&error.text),
            ResponseForm::Many => {}
            _ => self.response.push_error(&error.text),
        }
        self.invalid.add(position, error);
    }

    /// Records the error of a submission that does not affect the others.
    fn reject_independent(&mut self, reason: &str) {
        // As JSON a byte may take six.
        let length = serde_json::to_string(reason).map_or(0, |text| text.len());
        self.reasons_bytes = self
            .reasons_bytes
            .saturating_add(length + LEFT_OUT_BYTES - REASON_LEFT_OUT.len());
        if self.reasons_bytes <= MAX_REASONS_BYTES {
            self.response.push_error(reason);
            self.results.push(StoredResult::error(reason));
        } else {
            self.response.push_error(REASON_LEFT_OUT);
            self.results.push(StoredResult::Rejected(1));
        }
    }

    /// The error that rejects the list: its invalid submissions.
    pub(super) fn rejection(&self) -> RequestError {
        let is_whole = self.texts.is_empty() && !self.is_parted();
        let unchecked = (!is_whole).then_some(self.position);
        self.invalid.error(unchecked)
    }

    /// Responds to a part whose last submission is accepted, unless it is the last part.
    fn end_text(&mut self, cx: &mut Context) {
        let Some(parts) = &mut self.parts else {
            return;
        };
        let is_last = parts.are_all_here && parts.open.len() == 1;
        let Some((_, left)) = parts.open.front_mut() else {
            return;
        };
        *left -= 1;
        if *left > 0 || is_last {
            return;
        }
        self.accepted_of_request = 0;
        let payload = self.response.take_part_payload();
        if let Some((request, _)) = parts.open.pop_front()
            && !request.is_noresponse()
        {
            cx.send(Message::response_to(&request, 0, Some(payload)));
        }
    }

    /// Hides the jobs, as there are more to come.
    pub(super) fn hide(&mut self, cx: &mut Context) {
        let grown = self.hidden.saturating_sub(1);
        for (first, last) in self.ranges.iter().skip(grown) {
            cx.hide_jobs(*first, *last);
        }
        self.hidden = self.ranges.len();
    }

    /// Makes the jobs visible. Returns the payload of the response.
    pub(super) fn complete(&mut self, cx: &mut Context, census: &mut Census) -> Vec<u8> {
        for (first, _) in self.ranges.iter().take(self.hidden) {
            cx.show_jobs(*first);
        }
        cx.jobs.count_awaited(std::mem::take(&mut self.waitable));
        for (queue, state, count) in self.tally.drain(..) {
            census.enter_jobs(queue.as_deref(), state, count);
        }
        let results = std::mem::take(&mut self.results).list;
        let jobs = match (self.form, results.as_slice()) {
            (ResponseForm::One, [StoredResult::Each(first, _)]) => StoredJobs::One(*first),
            (
                ResponseForm::Copies,
                [StoredResult::Each(first, count) | StoredResult::Ids(first, count)],
            ) => StoredJobs::Copies(*first, *count),
            _ => StoredJobs::Many(results),
        };
        let payload = match &jobs {
            StoredJobs::One(id) => SubmitResponse { id: *id }.to_payload(),
            StoredJobs::Copies(..) => self.response.take_copies_payload(),
            StoredJobs::Many(_) => self.response.many_payload(),
        };
        // The response to the last part is that of the whole.
        if let Some(parts) = &mut self.parts {
            let open = parts.open.drain(..);
            self.requests.extend(open.map(|(request, _)| request));
        }
        // Without a job a repetition gets the same response, and nothing is to be stored.
        if let Some(Token {
            userid,
            name,
            digest,
        }) = &self.token
            && self.accepted > 0
        {
            let submission = StoredSubmission {
                digest: *digest,
                result: serde_json::to_string(&jobs).unwrap_or_default(),
            };
            cx.store_submission(*userid, name, &submission);
        }
        payload
    }
}
