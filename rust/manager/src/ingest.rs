//! `job-ingest.submit`: one jobspec, several copies of one, or several jobspecs in one request. `job-ingest.submit-part`:
//! a list of jobspecs in several requests, of which the job manager does one while its client encodes the next.
//!
//! Copies that differ by an id (`cc`) share the jobspec of the request, in memory and in the store: the id takes the place of
//! `{cc}` when a copy starts, and when its jobspec or its name is read.
//!
//! The jobs of a request become visible and durable together: all of them or, after a crash, none. A large request is done
//! in slices, so that it does not delay other peers: the first one when the request comes, each further one in a call of
//! [`Manager::advance`](crate::Manager::advance), for the requests in rotation. The jobs that it has added are hidden until it
//! is complete. They get their further steps after that, in slices, too. A request of a peer that disconnects is completed;
//! a submission of which parts are missing is discarded then, or when none has come for [`PART_TIMEOUT_S`].

mod repetition;
mod results;
mod token;

use std::borrow::Cow;
use std::collections::VecDeque;

use penstock_flux::eventlog::{self, Submit};
use penstock_flux::job_ingest::{
    SubmitPartRequest, SubmitRequest, SubmitResponse, SubmitResultsText,
};
use penstock_flux::urgency::DEFAULT;
use penstock_flux::{Credentials, Json, Payload as _, RequestError, errno};
use penstock_idset::IdSet;
use penstock_jobspec::copies::CopyIds;
use penstock_jobspec::job_id::JobId;
use penstock_store::Submission as StoredSubmission;
use penstock_wire::Message;

use self::repetition::{PART_TIMEOUT_S, Repetition, no_such_submission};
use self::results::{Results, StoredJobs, StoredResult};
use self::token::{ListDigest, TOKEN_LIFETIME_S, Token};
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
use crate::spec::Stored;
use crate::state::State;

/// The greatest number of jobs that one submission may make.
const MAX_JOBS_PER_SUBMISSION: u64 = 10_000_000;

/// Maximum number of jobs added, completed or removed in one slice: less than a millisecond's work.
const JOBS_PER_SLICE: u64 = 150;
/// The length of a jobspec in a request that takes as long as a job, in bytes.
const BYTES_PER_JOB: usize = 256;
/// The number of ids that are allotted at once to the jobs of a list: those of other submissions do not come between.
const IDS_PER_BLOCK: u64 = 1024;
/// The greatest number of submissions of a guest of which parts are missing.
const MAX_PARTED_OF_GUEST: usize = 16;
/// The greatest length of the jobspecs that open submissions hold: the oldest ones are continued at once if there are more.
const MAX_OPEN_BYTES: usize = 64 * 1024 * 1024;

/// The form of the response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ResponseForm {
    One,
    Copies,
    Many,
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
    /// Whether it is a submission of one job, and not of copies.
    is_single: bool,
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
struct Parts {
    /// The peer that sends them.
    origin: Option<Vec<u8>>,
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
    due: f64,
}

/// The state of a submission after a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Complete,
    Unfinished,
    /// Nothing until the next part comes.
    Waiting,
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
    /// Their length.
    text_bytes: usize,
    parts: Option<Parts>,
    batch: Option<Batch>,
    shared: Option<SharedEvents>,
    results: Results,
    /// The same as the response has them, less those in the responses to the parts before.
    response: SubmitResultsText,
    /// The ids of all accepted jobs, whether their rows are in the store or not yet.
    ranges: Vec<IdRange>,
    /// The number of ranges that are hidden. The last one may have grown since.
    hidden: usize,
    /// Ids that are allotted to further jobs: the first, and their number.
    block: (JobId, u64),
    /// The number of accepted jobs.
    accepted: u64,
    /// The same by queue and state.
    tally: Vec<(Option<String>, State, u64)>,
}

impl Submission {
    /// A submission without jobs.
    fn new(sender: Credentials, token: Option<Token>, form: ResponseForm) -> Self {
        Self {
            requests: Vec::new(),
            sender,
            token,
            form,
            texts: VecDeque::new(),
            text_bytes: 0,
            parts: None,
            batch: None,
            shared: None,
            results: Results::default(),
            response: if form == ResponseForm::Part {
                SubmitResultsText::of_part()
            } else {
                SubmitResultsText::default()
            },
            ranges: Vec::new(),
            hidden: 0,
            block: (JobId::default(), 0),
            accepted: 0,
            tally: Vec::new(),
        }
    }

    /// Begins a submission that one request has: adds no jobs yet.
    fn begin(
        cx: &mut Context,
        sender: Credentials,
        token: Option<Token>,
        submission: &SubmitRequest<'_>,
    ) -> Result<Self, RequestError> {
        let form = match (&submission.jobs, submission.count, &submission.cc) {
            (Some(_), ..) => ResponseForm::Many,
            (None, None, None) => ResponseForm::One,
            (None, ..) => ResponseForm::Copies,
        };
        let mut begun = Self::new(sender, token, form);
        if let Some(jobs) = &submission.jobs {
            quota::check_submissions(cx, sender, jobs.len() as u64)?;
            begun.add_texts(jobs);
        } else {
            begun.accept(cx, submission)?;
        }
        Ok(begun)
    }

    /// Adds submissions of the list.
    fn add_texts(&mut self, jobs: &[Json<'_>]) {
        self.text_bytes += jobs.iter().map(|job| job.0.len()).sum::<usize>();
        self.texts.extend(jobs.iter().map(|job| Box::from(job.0)));
    }

    /// Adds a part that comes after those before.
    fn add_part(
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
    fn is_parted(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| !parts.are_all_here)
    }

    /// The same if it is that of a user and a token.
    fn is_parted_of(&self, token: &Token) -> bool {
        self.is_parted() && self.has_name(token)
    }

    fn has_name(&self, token: &Token) -> bool {
        let own = self.token.as_ref();
        own.is_some_and(|own| own.is_same_name(token))
    }

    /// The requests that have had no response.
    fn outstanding(&self) -> impl Iterator<Item = &Message> {
        let open = self.parts.iter().flat_map(|parts| &parts.open);
        self.requests.iter().chain(open.map(|(request, _)| request))
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
        if self.parts.is_some() && self.accepted.saturating_add(count) > MAX_JOBS_PER_SUBMISSION {
            let text = format!("expected at most {MAX_JOBS_PER_SUBMISSION} jobs in all parts");
            return Err(RequestError::invalid(text));
        }
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
            None => (jobspecs::submit(cx, &text, userid)?, self.allot(cx, count)?),
            Some(ids) => {
                let greatest = ids.last().unwrap_or_default();
                let template = jobspecs::check_template(cx, &text, userid, greatest)?;
                let range = self.allot(cx, count)?;
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
        cx.jobs.count_active(userid, count);
        self.count(&copies, count);
        let is_single = submission.count.is_none() && submission.cc.is_none();
        if is_single {
            self.response.begin_id();
        } else {
            self.response.begin_ids();
        }
        self.batch = Some(Batch {
            copies,
            next: first,
            left: count,
            redactions: cx.redactions,
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

    fn is_list(&self) -> bool {
        matches!(self.form, ResponseForm::Many | ResponseForm::Part)
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
        let (queue, state) = (&copies.record().spec().queue, copies.record().state());
        let mut entries = self.tally.iter_mut();
        match entries.find(|(of, in_state, _)| of == queue && *in_state == state) {
            Some((_, _, jobs)) => *jobs += count,
            None => self.tally.push((queue.clone(), state, count)),
        }
    }

    /// Adds the next jobs, of which a slice has this number.
    fn run_slice(&mut self, cx: &mut Context, jobs: u64) -> Progress {
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
                } else {
                    Progress::Complete
                };
            };
            self.text_bytes -= text.len();
            // One at least: its jobspec is in the store, and the job that refers to it is to be there, too.
            left = left
                .saturating_sub((text.len() / BYTES_PER_JOB) as u64)
                .max(1);
            if let Err(error) = self.accept_text(cx, &text) {
                self.response.push_error(&error.text);
                self.results.push(StoredResult::Error(error.text));
                self.end_text(cx);
            }
        }
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
        let payload = self.response.take_part_payload();
        if let Some((request, _)) = parts.open.pop_front()
            && !request.is_noresponse()
        {
            cx.send(Message::response_to(&request, 0, Some(payload)));
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
            StoredJobs::Copies(..) => self.response.copies_payload(),
            StoredJobs::Many(_) => self.response.many_payload(),
        };
        // The response to the last part is that of the whole.
        if let Some(parts) = &mut self.parts {
            let open = parts.open.drain(..);
            self.requests.extend(open.map(|(request, _)| request));
        }
        if let Some(Token {
            userid,
            name,
            digest,
        }) = &self.token
        {
            let submission = StoredSubmission {
                digest: *digest,
                result: serde_json::to_string(&jobs).unwrap_or_default(),
            };
            cx.store_submission(*userid, name, &submission, cx.now - TOKEN_LIFETIME_S);
        }
        payload
    }
}

/// The submissions that are not complete, and those whose jobs are still to be completed or removed.
#[derive(Debug)]
pub(crate) struct Submissions {
    jobs_per_slice: u64,
    /// The one whose slice is next is the first.
    open: VecDeque<Submission>,
    /// The submissions that need their next part.
    waiting: Vec<Submission>,
    repetitions: Vec<Repetition>,
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
            waiting: Vec::new(),
            repetitions: Vec::new(),
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
            if let Some(known) = token.known(cx) {
                return Ok(Reply::Payload(token.read(&known)?.into_payload()));
            }
        }
        if let Some(error) = &cx.rejection {
            return Err(error.clone());
        }
        let mut submission = Submission::begin(cx, request.sender, token, &submission)?;
        if submission.run_slice(cx, self.jobs_per_slice) == Progress::Complete {
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
        self.bound_open(cx, census);
        Ok(Reply::Deferred)
    }

    /// `job-ingest.submit-part`. The ids are sent when the jobs are accepted, those of the last part when all are durable.
    ///
    /// An error rejects the whole submission.
    pub(crate) fn submit_part(
        &mut self,
        cx: &mut Context,
        census: &mut Census,
        request: Request<'_>,
    ) -> Handled {
        let part: SubmitPartRequest<'_> = request.payload()?;
        let token = Token::new(request.sender.userid, &part.token, 0)?;
        let origin = request.origin().map(<[u8]>::to_vec);
        if part.part == 0 {
            self.begin_parts(cx, request.sender, &token, origin.clone())?;
        }
        let is_repeated =
            |other: &Repetition| other.token.is_same_name(&token) && other.origin == origin;
        if let Some(at) = self.repetitions.iter().position(is_repeated)
            && let Some(repetition) = self.repetitions.get_mut(at)
        {
            repetition.due = cx.now + PART_TIMEOUT_S;
            let answered = repetition.answer(&part);
            if !matches!(answered, Ok((_, false))) {
                self.repetitions.swap_remove(at);
            }
            return answered.map(|(payload, _)| Reply::Payload(payload));
        }
        let is_of_part = |submission: &Submission| {
            let parts = submission.parts.as_ref();
            submission.is_parted_of(&token) && parts.is_some_and(|parts| parts.origin == origin)
        };
        let mut submission = self
            .take(is_of_part)
            .ok_or_else(|| no_such_submission(&part))?;
        let added = match &cx.rejection {
            Some(error) => Err(error.clone()),
            None => submission.add_part(cx, request, &part),
        };
        if let Err(error) = added {
            let text = format!("part {} of the submission: {}", part.part, error.text);
            let others = RequestError::new(error.errnum, text);
            self.discard(cx, submission, &others);
            return Err(error);
        }
        self.open.push_back(submission);
        self.bound_open(cx, census);
        Ok(Reply::Deferred)
    }

    /// Makes room for a submission in parts, under a token that may be that of an earlier one: an incomplete one is
    /// discarded, for its client repeats it.
    fn begin_parts(
        &mut self,
        cx: &mut Context,
        sender: Credentials,
        token: &Token,
        origin: Option<Vec<u8>>,
    ) -> Result<(), RequestError> {
        self.repetitions
            .retain(|other| !other.token.is_same_name(token));
        if let Some(earlier) = self.take(|submission| submission.has_name(token)) {
            if earlier.parts.is_none() {
                self.open.push_back(earlier);
                return Err(token.taken());
            }
            let text = format!("token `{}`: the submission was begun again", token.name);
            let error = RequestError::new(errno::ECANCELED, text);
            self.discard(cx, earlier, &error);
        }
        let of_user = |userid: u32| userid == token.userid;
        let parted = self
            .open
            .iter()
            .chain(&self.waiting)
            .filter(|other| other.is_parted() && of_user(other.sender.userid))
            .count();
        let repeated = self
            .repetitions
            .iter()
            .filter(|other| of_user(other.token.userid))
            .count();
        if !sender.is_owner() && parted + repeated >= MAX_PARTED_OF_GUEST {
            let text = format!(
                "user {} has {} submissions of which parts are missing: expected at most {MAX_PARTED_OF_GUEST}",
                sender.userid,
                parted + repeated
            );
            return Err(RequestError::new(errno::EAGAIN, text));
        }
        let due = cx.now + PART_TIMEOUT_S;
        if let Some(known) = token.known(cx) {
            let StoredJobs::Many(left) = token.stored(&known)? else {
                return Err(token.taken());
            };
            self.repetitions.push(Repetition {
                token: Token {
                    digest: known.digest,
                    ..token.clone()
                },
                origin,
                next: 0,
                digest: ListDigest::default(),
                left: left.into(),
                due,
            });
            return Ok(());
        }
        let mut submission = Submission::new(sender, Some(token.clone()), ResponseForm::Part);
        submission.parts = Some(Parts {
            origin,
            next: 0,
            open: VecDeque::new(),
            are_all_here: false,
            submissions: 0,
            digest: ListDigest::default(),
            due,
        });
        self.waiting.push(submission);
        Ok(())
    }

    /// Takes the first submission out for which `is_wanted`.
    fn take(&mut self, is_wanted: impl Fn(&Submission) -> bool) -> Option<Submission> {
        if let Some(at) = self.waiting.iter().position(&is_wanted) {
            return Some(self.waiting.swap_remove(at));
        }
        let at = self.open.iter().position(&is_wanted)?;
        self.open.remove(at)
    }

    /// Rejects a submission: its jobs are removed in slices.
    fn discard(&mut self, cx: &mut Context, submission: Submission, error: &RequestError) {
        for request in submission.outstanding() {
            cx.reject(request, error);
        }
        let userid = submission.sender.userid;
        cx.jobs.uncount_active(userid, submission.accepted);
        self.rejected.extend(submission.ranges);
    }

    /// Discards the submissions of a peer that has left before their last part.
    pub(crate) fn disconnect(&mut self, cx: &mut Context, origin: &[u8]) {
        let error = RequestError::new(errno::ECANCELED, "the client has disconnected");
        let is_left = |submission: &Submission| {
            let parts = submission.parts.as_ref();
            submission.is_parted()
                && parts.is_some_and(|parts| parts.origin.as_deref() == Some(origin))
        };
        while let Some(left) = self.take(is_left) {
            self.discard(cx, left, &error);
        }
        self.repetitions
            .retain(|other| other.origin.as_deref() != Some(origin));
    }

    /// Discards the submissions whose next part is overdue.
    pub(crate) fn expire(&mut self, cx: &mut Context) {
        let now = cx.now;
        let is_due = |submission: &Submission| {
            let parts = submission.parts.as_ref();
            parts.is_some_and(|parts| parts.due <= now)
        };
        while let Some(at) = self.waiting.iter().position(is_due) {
            let submission = self.waiting.swap_remove(at);
            let error = RequestError::new(errno::ETIMEDOUT, "the next part has not come");
            self.discard(cx, submission, &error);
        }
        self.repetitions.retain(|other| other.due > now);
    }

    /// When [`expire`](Self::expire) is due.
    pub(crate) fn deadline(&self) -> Option<f64> {
        let waiting = self.waiting.iter().filter_map(|submission| {
            let parts = submission.parts.as_ref()?;
            Some(parts.due)
        });
        let repeated = self.repetitions.iter().map(|other| other.due);
        waiting.chain(repeated).min_by(f64::total_cmp)
    }

    /// Continues the oldest submissions while the jobspecs that are not accepted yet take too much memory.
    fn bound_open(&mut self, cx: &mut Context, census: &mut Census) {
        let bytes = |open: &VecDeque<Submission>| -> usize {
            open.iter().map(|submission| submission.text_bytes).sum()
        };
        while bytes(&self.open) > MAX_OPEN_BYTES {
            self.run_next_slice(cx, census);
        }
    }

    /// Answers a request together with an open submission of the same token, if there is one.
    fn join(&mut self, token: &Token, request: Request<'_>) -> Result<bool, RequestError> {
        for open in self.open.iter_mut().chain(&mut self.waiting) {
            if open.parts.is_some() && open.has_name(token) {
                return Err(token.taken());
            }
            if let Some(known) = &open.token
                && token.is_same(known)?
            {
                open.requests.push(request.message.header());
                return Ok(true);
            }
        }
        Ok(false)
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
            return self.discard(cx, submission, &error);
        }
        let progress = submission.run_slice(cx, self.jobs_per_slice);
        if progress == Progress::Complete {
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
            return;
        }
        submission.hide(cx);
        if progress == Progress::Waiting
            && let Some(parts) = &mut submission.parts
        {
            parts.due = cx.now + PART_TIMEOUT_S;
            self.waiting.push(submission);
        } else {
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
