//! `job-ingest.submit`: one jobspec, several copies of one, or several jobspecs in one request.
//!
//! Copies that differ by an id (`cc`) share the jobspec of the request, in memory and in the store: the id takes the place of
//! `{cc}` when a copy starts, and when its jobspec or its name is read.
//!
//! The jobs of a request become visible and durable together: all of them or, after a crash, none. A large request is done
//! in slices, so that it does not delay other peers: the first one when the request comes, each further one in a call of
//! [`Manager::advance`](crate::Manager::advance), for the requests in rotation. The jobs that it has added are hidden until it
//! is complete. They get their further steps after that, in slices, too. A request of a peer that disconnects is completed.

use std::borrow::Cow;
use std::collections::VecDeque;

use penstock_flux::eventlog::{self, Submit};
use penstock_flux::job_ingest::{
    SubmitCopiesResponse, SubmitManyResponse, SubmitRequest, SubmitResponse, SubmitResult,
    SubmitResultsText,
};
use penstock_flux::urgency::DEFAULT;
use penstock_flux::{Credentials, Payload as _, RequestError, errno};
use penstock_idset::IdSet;
use penstock_jobspec::copies::CopyIds;
use penstock_jobspec::job_id::JobId;
use penstock_store::Submission as StoredSubmission;
use penstock_wire::Message;
use serde::{Deserialize, Serialize};

use crate::authorize;
use crate::census::Census;
use crate::context::Context;
use crate::effect::Effect;
use crate::event::Event;
use crate::jobs::Copies;
use crate::jobspecs;
use crate::quota;
use crate::record::Record;
use crate::reload;
use crate::rpc::{Handled, Reply, Request};
use crate::shell_defaults;
use crate::signed;

/// The greatest number of jobs that one submission may make.
const MAX_JOBS_PER_SUBMISSION: u64 = 10_000_000;

/// The time for which a token names a submission, in seconds.
const TOKEN_LIFETIME_S: f64 = 24.0 * 3600.0;

/// The greatest length of a token.
const MAX_TOKEN_BYTES: usize = 64;

/// Maximum number of jobs added, completed or removed in one slice: less than a millisecond's work.
const JOBS_PER_SLICE: u64 = 150;
/// The length of a jobspec in a request that takes as long as a job, in bytes.
const BYTES_PER_JOB: usize = 256;
/// The greatest length of the jobspecs that open submissions hold: the oldest ones are continued at once if there are more.
const MAX_OPEN_BYTES: usize = 64 * 1024 * 1024;

/// The jobs of a request.
enum Accepted {
    One(JobId),
    Copies(Vec<JobId>),
    Many(Vec<SubmitResult>),
}

impl Accepted {
    fn into_payload(self) -> Vec<u8> {
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
enum StoredJobs {
    One(JobId),
    Copies(JobId, usize),
    Many(Vec<StoredResult>),
}

/// One submission of several.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredResult {
    Ids(JobId, usize),
    /// In the store alone: submissions of one job each that follow each other.
    Each(JobId, usize),
    Error(String),
}

impl StoredJobs {
    /// The same with fewer results: a list may have a million jobs.
    fn compact(self) -> Self {
        let Self::Many(results) = self else {
            return self;
        };
        let mut compact: Vec<StoredResult> = Vec::new();
        let mut next = None;
        for result in results {
            let StoredResult::Ids(id, 1) = result else {
                compact.push(result);
                next = None;
                continue;
            };
            match compact.last_mut() {
                Some(StoredResult::Each(_, count)) if next == Some(id) => *count += 1,
                _ => compact.push(StoredResult::Each(id, 1)),
            }
            next = Some(id.successor());
        }
        Self::Many(compact)
    }
}

fn copies(first: JobId, count: usize) -> Vec<JobId> {
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
                });
                Self::Many(results.collect())
            }
        }
    }
}

/// The name of a submission.
#[derive(Debug)]
struct Token {
    userid: u32,
    name: String,
    /// Digest of the request.
    digest: u64,
}

impl Token {
    fn of(request: Request<'_>, name: &str) -> Result<Self, RequestError> {
        if !(1..=MAX_TOKEN_BYTES).contains(&name.len()) {
            let text = format!("expected a `token` of 1 to {MAX_TOKEN_BYTES} bytes");
            return Err(RequestError::invalid(text));
        }
        Ok(Self {
            userid: request.sender.userid,
            name: name.to_owned(),
            digest: digest(request.message.payload_json().unwrap_or_default()),
        })
    }

    /// Whether both name the same submission.
    ///
    /// # Errors
    ///
    /// They have the same name, and the requests differ.
    fn is_same(&self, other: &Self) -> Result<bool, RequestError> {
        if (self.userid, &self.name) != (other.userid, &other.name) {
            return Ok(false);
        }
        self.check_digest(other.digest).map(|()| true)
    }

    /// Checks that a submission with this token was requested by the same payload.
    fn check_digest(&self, digest: u64) -> Result<(), RequestError> {
        if self.digest == digest {
            return Ok(());
        }
        let text = format!("token `{}` names another submission", self.name);
        Err(RequestError::new(errno::EEXIST, text))
    }

    /// The jobs of the submission that is known by this token.
    fn read(&self, known: &StoredSubmission) -> Result<Accepted, RequestError> {
        self.check_digest(known.digest)?;
        let stored: StoredJobs = serde_json::from_str(&known.result).map_err(|error| {
            let name = &self.name;
            let text = format!("the result of submission `{name}` cannot be read: {error}");
            RequestError::new(errno::EIO, text)
        })?;
        Ok(stored.into())
    }
}

/// A digest of a request's content that does not depend on the program's version (FNV-1a).
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The form of the response to a request.
#[derive(Debug, Clone, Copy)]
enum ResponseForm {
    One,
    Copies,
    Many,
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

/// The jobs with ids from the first to the second.
type IdRange = (JobId, JobId);

/// Copies of one jobspec that are still to be added.
#[derive(Debug)]
struct Batch {
    copies: Copies,
    next: JobId,
    left: u64,
    /// See [`Context::redactions`].
    redactions: u64,
}

impl Batch {
    /// Adds the next jobs, `max` at most, and their ids to the response. Returns their number.
    fn add(&mut self, cx: &mut Context, max: u64, response: &mut SubmitResultsText) -> u64 {
        if self.redactions != cx.redactions {
            self.redactions = cx.redactions;
            if let Some(request) = reload::redact(cx, self.copies.record().spec().key) {
                self.copies.set_request(request);
            }
        }
        let count = self.left.min(max);
        for _ in 0..count {
            cx.add_copy(&self.copies, self.next);
            response.push_id(self.next);
            self.next = self.next.successor();
        }
        self.left -= count;
        count
    }
}

/// A submission with jobs that are still to be added.
#[derive(Debug)]
struct Submission {
    /// The request, and the later ones with the same token: all get the same response.
    requests: Vec<Message>,
    sender: Credentials,
    token: Option<Token>,
    form: ResponseForm,
    /// The submissions of a list that are still to be accepted.
    texts: VecDeque<Box<str>>,
    batch: Option<Batch>,
    results: Vec<StoredResult>,
    /// The same as the response has them.
    response: SubmitResultsText,
    /// The ids of all accepted jobs, whether their rows are in the store or not yet.
    ranges: Vec<IdRange>,
    /// The number of ranges that are hidden. The last one may have grown since.
    hidden: usize,
}

impl Submission {
    /// Begins a submission: adds no jobs yet.
    fn begin(
        cx: &mut Context,
        sender: Credentials,
        token: Option<Token>,
        submission: &SubmitRequest<'_>,
    ) -> Result<Self, RequestError> {
        let mut begun = Self {
            requests: Vec::new(),
            sender,
            token,
            form: match (&submission.jobs, submission.count, &submission.cc) {
                (Some(_), ..) => ResponseForm::Many,
                (None, None, None) => ResponseForm::One,
                (None, ..) => ResponseForm::Copies,
            },
            texts: VecDeque::new(),
            batch: None,
            results: Vec::new(),
            response: SubmitResultsText::default(),
            ranges: Vec::new(),
            hidden: 0,
        };
        if let Some(jobs) = &submission.jobs {
            quota::check_submissions(cx, sender, jobs.len())?;
            begun.texts = jobs.iter().map(|job| job.0.into()).collect();
        } else {
            begun.accept(cx, submission)?;
        }
        Ok(begun)
    }

    /// Accepts one submission of a list.
    fn accept_text(&mut self, cx: &mut Context, text: &str) -> Result<(), RequestError> {
        let submission: SubmitRequest<'_> = penstock_flux::read(Some(text.as_bytes()))
            .map_err(|error| RequestError::protocol(format!("malformed submission: {error}")))?;
        if submission.token.is_some() {
            let text = "a `token` names the whole request: expected it beside `jobs`";
            return Err(RequestError::protocol(text));
        }
        self.accept(cx, &submission)
    }

    /// Accepts copies of one jobspec: checks it, and allots their ids.
    fn accept(
        &mut self,
        cx: &mut Context,
        submission: &SubmitRequest<'_>,
    ) -> Result<(), RequestError> {
        let (sender, userid) = (self.sender, self.sender.userid);
        let urgency = submission.urgency.unwrap_or(DEFAULT.into());
        let urgency = authorize::urgency(sender, urgency)?;
        authorize::submission_flags(sender, submission.flags)?;
        let ids = copy_ids(submission)?;
        let count = match &ids {
            Some(ids) => ids.len(),
            None => submission.count.unwrap_or(1),
        };
        if !(1..=MAX_JOBS_PER_SUBMISSION).contains(&count) {
            let text =
                format!("count {count} is out of range: expected 1 to {MAX_JOBS_PER_SUBMISSION}");
            return Err(RequestError::invalid(text));
        }
        quota::check_jobs(cx, sender, count)?;
        let text = match (submission.jobspec, &submission.signed) {
            (Some(jobspec), None) => Cow::Borrowed(jobspec.0),
            (None, Some(signed)) => {
                let text = signed::unwrap(signed, sender)?;
                Cow::Owned(shell_defaults::add(text))
            }
            (None, None) => {
                return Err(RequestError::protocol("the submission has no `jobspec`"));
            }
            (Some(_), Some(_)) => {
                let text = "the submission has both `jobspec` and `J`";
                return Err(RequestError::protocol(text));
            }
        };
        let (stored, (first, last)) = match ids {
            None => (jobspecs::submit(cx, &text, userid)?, cx.next_ids(count)?),
            Some(ids) => {
                let greatest = ids.last().unwrap_or_default();
                let template = jobspecs::check_template(cx, &text, userid, greatest)?;
                let range = cx.next_ids(count)?;
                let copies = CopyIds::new(range.0, ids);
                (jobspecs::store_template(cx, template, &copies)?, range)
            }
        };
        let context = Submit {
            userid,
            urgency,
            flags: submission.flags,
            version: Submit::VERSION,
        };
        let mut copies = Copies::new(userid, &stored);
        copies.log(&Event::with(cx.event_time(), eventlog::SUBMIT, &context));
        if stored.spec.dependencies.is_empty() {
            // The events that the steps of each job would log at once.
            let priority = copies.record().due_priority();
            copies.log(&Event::new(cx.event_time(), eventlog::VALIDATE));
            copies.log(&Event::new(cx.event_time(), eventlog::DEPEND));
            let priority = eventlog::Priority { priority };
            copies.log(&Event::with(cx.event_time(), eventlog::PRIORITY, &priority));
        }
        if count > 1 {
            cx.store_common_events(&mut copies, first, last);
        }
        cx.jobs.count_active(userid, count);
        self.batch = Some(Batch {
            copies,
            next: first,
            left: count,
            redactions: cx.redactions,
        });
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        self.results.push(StoredResult::Ids(first, count));
        self.response.begin_ids();
        match self.ranges.last_mut() {
            Some((_, end)) if end.successor() == first => *end = last,
            _ => self.ranges.push((first, last)),
        }
        Ok(())
    }

    /// Adds the next jobs, of which a slice has this number. Returns whether these were the last.
    fn run_slice(&mut self, cx: &mut Context, jobs: u64) -> bool {
        let mut left = jobs;
        loop {
            if let Some(batch) = &mut self.batch {
                left -= batch.add(cx, left, &mut self.response);
                if batch.left > 0 {
                    return false;
                }
                self.response.end_ids();
                self.batch = None;
            }
            if left == 0 && !self.texts.is_empty() {
                return false;
            }
            let Some(text) = self.texts.pop_front() else {
                return true;
            };
            left = left.saturating_sub((text.len() / BYTES_PER_JOB) as u64);
            if let Err(error) = self.accept_text(cx, &text) {
                self.response.push_error(&error.text);
                self.results.push(StoredResult::Error(error.text));
            }
        }
    }

    /// Hides the jobs, as there are more to come.
    fn hide(&mut self, cx: &mut Context) {
        let grown = self.hidden.saturating_sub(1);
        for (first, last) in self.ranges.iter().skip(grown) {
            cx.hide_jobs(*first, *last);
        }
        self.hidden = self.ranges.len();
    }

    /// Makes the jobs visible. Returns the payload of the response.
    fn complete(&mut self, cx: &mut Context, census: &mut Census) -> Vec<u8> {
        for (first, _) in self.ranges.iter().take(self.hidden) {
            cx.show_jobs(*first);
        }
        for result in &self.results {
            if let StoredResult::Ids(first, count) = result
                && let Some(record) = cx.jobs.record(*first)
            {
                census.enter_copies(record, *count as u64);
            }
        }
        let results = std::mem::take(&mut self.results);
        let jobs = match (self.form, results.as_slice()) {
            (ResponseForm::One, [StoredResult::Ids(first, _)]) => StoredJobs::One(*first),
            (ResponseForm::Copies, [StoredResult::Ids(first, count)]) => {
                StoredJobs::Copies(*first, *count)
            }
            _ => StoredJobs::Many(results),
        };
        let payload = match &jobs {
            StoredJobs::One(id) => SubmitResponse { id: *id }.to_payload(),
            StoredJobs::Copies(..) => self.response.copies_payload(),
            StoredJobs::Many(_) => self.response.many_payload(),
        };
        if let Some(Token {
            userid,
            name,
            digest,
        }) = &self.token
        {
            let submission = StoredSubmission {
                digest: *digest,
                result: serde_json::to_string(&jobs.compact()).unwrap_or_default(),
            };
            cx.store_submission(*userid, name, &submission, cx.now - TOKEN_LIFETIME_S);
        }
        payload
    }

    /// The number of accepted jobs.
    fn count(&self) -> u64 {
        let counts = self.results.iter().map(|result| match result {
            StoredResult::Ids(_, count) | StoredResult::Each(_, count) => *count as u64,
            StoredResult::Error(_) => 0,
        });
        counts.sum()
    }
}

/// The submissions that are not complete, and those whose jobs are still to be completed or removed.
#[derive(Debug)]
pub(crate) struct Submissions {
    jobs_per_slice: u64,
    /// The one whose slice is next is the first.
    open: VecDeque<Submission>,
    /// Complete ones: the jobs for which no step was done yet.
    complete: VecDeque<IdRange>,
    /// Rejected ones: the first id, and the jobs that are still to be removed.
    rejected: VecDeque<IdRange>,
}

impl Default for Submissions {
    fn default() -> Self {
        Self {
            jobs_per_slice: JOBS_PER_SLICE,
            open: VecDeque::new(),
            complete: VecDeque::new(),
            rejected: VecDeque::new(),
        }
    }
}

impl Submissions {
    /// Sets the number of jobs in a slice.
    pub(crate) fn set_slice(&mut self, jobs: u64) {
        self.jobs_per_slice = jobs;
    }

    /// `job-ingest.submit`. The ids are sent when the jobs are durable.
    pub(crate) fn submit(
        &mut self,
        cx: &mut Context,
        census: &mut Census,
        request: Request<'_>,
    ) -> Handled {
        let submission: SubmitRequest<'_> = request.payload()?;
        let name = submission.token.as_deref();
        let token = name.map(|name| Token::of(request, name)).transpose()?;
        if let Some(token) = &token {
            if self.join(token, request)? {
                return Ok(Reply::Deferred);
            }
            let expired = cx.now - TOKEN_LIFETIME_S;
            let known = cx.read_store(|store| store.submission(token.userid, &token.name, expired));
            if let Some(known) = known {
                return Ok(Reply::Payload(token.read(&known)?.into_payload()));
            }
        }
        if let Some(error) = &cx.rejection {
            return Err(error.clone());
        }
        let mut submission = Submission::begin(cx, request.sender, token, &submission)?;
        if submission.run_slice(cx, self.jobs_per_slice) {
            let payload = submission.complete(cx, census);
            for (first, last) in submission.ranges {
                cx.add_effect(Effect::Accepted { first, last });
                for id in cx.jobs.added(first, last).collect::<Vec<_>>() {
                    cx.revisit(id);
                }
            }
            return Ok(Reply::Payload(payload));
        }
        submission.requests.push(request.message.header());
        submission.hide(cx);
        self.open.push_back(submission);
        while self.open_bytes() > MAX_OPEN_BYTES {
            self.run_next_slice(cx, census);
        }
        Ok(Reply::Deferred)
    }

    /// Answers a request together with an open submission of the same token, if there is one.
    fn join(&mut self, token: &Token, request: Request<'_>) -> Result<bool, RequestError> {
        for open in &mut self.open {
            if let Some(known) = &open.token
                && token.is_same(known)?
            {
                open.requests.push(request.message.header());
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn open_bytes(&self) -> usize {
        let texts = self.open.iter().flat_map(|submission| &submission.texts);
        texts.map(|text| text.len()).sum()
    }

    /// The number of jobs of complete submissions for which no step was done yet.
    pub(crate) fn unstepped(&self) -> u64 {
        let counts = self
            .complete
            .iter()
            .map(|(first, last)| first.distance(*last).map_or(0, |distance| distance + 1));
        counts.sum()
    }

    /// The users whose submissions are open, or whose jobs still get their first steps or are removed.
    pub(crate) fn users(&self, cx: &Context) -> impl Iterator<Item = u32> {
        let open = self.open.iter().map(|submission| submission.sender.userid);
        let ranges = self.complete.iter().chain(&self.rejected);
        let first_jobs = ranges.filter_map(|(first, _)| cx.jobs.record(*first));
        open.chain(first_jobs.map(Record::userid))
    }

    /// Whether [`run_next_slice`](Self::run_next_slice) has something to do.
    pub(crate) fn is_open(&self) -> bool {
        !(self.open.is_empty() && self.complete.is_empty() && self.rejected.is_empty())
    }

    /// Does a slice: of the steps of complete submissions, else of the removal of rejected ones, else of the submission that
    /// has waited longest.
    pub(crate) fn run_next_slice(&mut self, cx: &mut Context, census: &mut Census) {
        if self.step_complete(cx) || self.remove_rejected(cx) {
            return;
        }
        let Some(mut submission) = self.open.pop_front() else {
            return;
        };
        if let Some(error) = cx.rejection.clone() {
            for request in &submission.requests {
                cx.reject(request, &error);
            }
            cx.jobs
                .uncount_active(submission.sender.userid, submission.count());
            self.rejected.extend(submission.ranges);
        } else if submission.run_slice(cx, self.jobs_per_slice) {
            let payload = submission.complete(cx, census);
            submission
                .requests
                .retain(|request| !request.is_noresponse());
            // The payload may be large: the last request gets it, the others a copy.
            let last = submission.requests.pop();
            for request in &submission.requests {
                cx.send(Message::response_to(request, 0, Some(payload.clone())));
            }
            if let Some(last) = last {
                cx.send(Message::response_to(&last, 0, Some(payload)));
            }
            for (first, last) in &submission.ranges {
                let (first, last) = (*first, *last);
                cx.add_effect(Effect::Accepted { first, last });
            }
            self.complete.extend(submission.ranges);
        } else {
            submission.hide(cx);
            self.open.push_back(submission);
        }
    }

    /// Schedules the first steps of some jobs of complete submissions. Returns whether there was one.
    fn step_complete(&mut self, cx: &mut Context) -> bool {
        let mut left = self.jobs_per_slice;
        while left > 0 {
            let Some((first, last)) = self.complete.pop_front() else {
                break;
            };
            let ids = slice_of(cx, first, last, left);
            left = left.saturating_sub(1.max(ids.len() as u64));
            if let Some(latest) = ids.last().filter(|latest| **latest < last) {
                self.complete.push_front((latest.successor(), last));
            }
            for id in ids {
                #[cfg(debug_assertions)]
                cx.jobs.check_again(id);
                cx.revisit(id);
            }
        }
        left < self.jobs_per_slice
    }

    /// Removes some jobs of rejected submissions. Returns whether there was one.
    fn remove_rejected(&mut self, cx: &mut Context) -> bool {
        let mut left = self.jobs_per_slice;
        while left > 0 {
            let Some((first, last)) = self.rejected.pop_front() else {
                break;
            };
            let ids = slice_of(cx, first, last, left);
            left = left.saturating_sub(1.max(ids.len() as u64));
            if ids.is_empty() {
                cx.show_jobs(first);
            } else {
                self.rejected.push_front((first, last));
            }
            for id in ids {
                if let Some(record) = cx.discard_job(id) {
                    jobspecs::release(cx, record.into_spec());
                }
            }
        }
        left < self.jobs_per_slice
    }
}

/// The first jobs, `max` at most, with ids from `first` to `last`.
fn slice_of(cx: &Context, first: JobId, last: JobId, max: u64) -> Vec<JobId> {
    let ids = cx.jobs.added(first, last);
    ids.take(usize::try_from(max).unwrap_or(usize::MAX))
        .collect()
}
