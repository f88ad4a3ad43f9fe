//! `job-ingest.submit`: one jobspec, several copies of one, or several jobspecs in one request. `job-ingest.submit-part`:
//! a list of jobspecs in several requests, of which the job manager does one while its client encodes the next.
//!
//! Copies that differ by an id (`cc`) share the jobspec of the request, in memory and in the store: the id takes the place of
//! `{cc}` when a copy starts, and when its jobspec or its name is read.
//!
//! The jobs of a request become visible and durable together: all of them or, after a crash or if a jobspec is invalid, none. A
//! client may mark the jobspecs of a list as independent: an invalid one does not affect the others then. A large request is done
//! in slices, so that it does not delay other peers: the first one when the request comes, each further one in a call of
//! [`Manager::advance`](crate::Manager::advance), for the requests in rotation. The jobs that it has added are hidden until it
//! is complete. They get their further steps after that, in slices, too. A request of a peer that disconnects is completed;
//! a submission of which parts are missing is discarded then, or when none has come for [`PART_TIMEOUT_S`].

mod invalid;
mod repetition;
mod results;
mod submission;
mod token;

use std::collections::{BTreeSet, VecDeque};

use penstock_flux::job_ingest::{SubmitPartRequest, SubmitRequest};
use penstock_flux::{Credentials, Histogram, HistogramStats, RequestError, errno};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use self::repetition::{PART_TIMEOUT_S, Repetition, no_such_submission};
use self::results::StoredJobs;
use self::submission::{IdRange, Progress, Submission};
use self::token::{ListDigest, Token};
use crate::census::Census;
use crate::context::Context;
use crate::effect::Effect;
use crate::jobspecs;
use crate::reason::cut_error;
use crate::record::Record;
use crate::rotation::Rotation;
use crate::rpc::{Handled, Reply, Request};

/// The greatest number of submissions of a guest of which parts are missing.
const MAX_PARTED_OF_GUEST: usize = 16;
/// Maximum number of jobs added, completed or removed in one slice: less than a millisecond's work.
const JOBS_PER_SLICE: u64 = 150;

/// The submissions that are not complete, and those whose jobs are still to be completed or removed.
#[derive(Debug)]
pub(crate) struct Submissions {
    jobs_per_slice: u64,
    /// The submissions that are continued.
    open: Rotation<Submission>,
    /// The memory that their jobspecs take, in bytes.
    open_bytes: usize,
    /// The submissions that need their next part.
    waiting: Vec<Submission>,
    repetitions: Vec<Repetition>,
    complete: VecDeque<CompleteSubmission>,
    /// Rejected ones: the first id, and the jobs that are still to be removed.
    rejected: VecDeque<IdRange>,
    /// The times of the monotonic clock when the complete ones began whose jobs are part of no commit yet.
    uncommitted: Vec<f64>,
    /// The same of those whose commit is not durable yet.
    committing: Vec<f64>,
    /// The durations of submissions until their jobs are durable.
    durations: Histogram,
}

/// A complete submission with jobs for which no step was done yet.
#[derive(Debug)]
struct CompleteSubmission {
    jobs: VecDeque<IdRange>,
    /// See [`Submission::antecedents`].
    antecedents: BTreeSet<JobId>,
}

impl Default for Submissions {
    fn default() -> Self {
        Self {
            jobs_per_slice: JOBS_PER_SLICE,
            open: Rotation::default(),
            open_bytes: 0,
            waiting: Vec::new(),
            repetitions: Vec::new(),
            complete: VecDeque::new(),
            rejected: VecDeque::new(),
            uncommitted: Vec::new(),
            committing: Vec::new(),
            durations: Histogram::of_work(),
        }
    }
}

impl Submissions {
    /// Sets the number of jobs in a slice.
    pub(crate) fn set_slice(&mut self, jobs: u64) {
        self.jobs_per_slice = jobs;
    }

    /// Records that a commit with the jobs of all complete submissions has begun.
    pub(crate) fn begin_commit(&mut self) {
        self.committing.append(&mut self.uncommitted);
    }

    /// Records that the commits that have begun are durable since this time of the monotonic clock.
    pub(crate) fn record_commit(&mut self, monotonic: f64) {
        for began in self.committing.drain(..) {
            self.durations.observe(monotonic - began);
        }
    }

    pub(crate) fn durations(&self) -> HistogramStats {
        self.durations.stats()
    }

    /// `job-ingest.submit`. The ids are sent when the jobs are durable.
    pub(crate) fn submit(
        &mut self,
        cx: &mut Context,
        census: &mut Census,
        request: Request<'_>,
    ) -> Handled {
        let submission: SubmitRequest<'_> = request.payload().map_err(cut_error)?;
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
        let mut submission =
            Submission::begin(cx, request.sender, token, &submission).map_err(cut_error)?;
        let progress = submission.run_slice(cx, self.jobs_per_slice);
        if progress == Progress::Invalid {
            let error = submission.rejection();
            submission.hide(cx);
            self.discard(cx, submission, &error);
            return Err(error);
        }
        if progress == Progress::Complete {
            let payload = submission.complete(cx, census);
            self.uncommitted.push(submission.began);
            for (first, last) in &submission.ranges {
                let (first, last) = (*first, *last);
                cx.add_effect(Effect::Accepted { first, last });
            }
            // Jobs that are submitted now do not wait for the first steps of others. Very many dependencies are added in slices.
            let others = self.complete.len();
            self.complete.push_front(CompleteSubmission {
                jobs: submission.ranges.into(),
                antecedents: submission.antecedents,
            });
            self.step_until(cx, others);
            return Ok(Reply::Payload(payload));
        }
        submission.requests.push(request.message.header());
        submission.hide(cx);
        self.push(submission);
        Ok(Reply::Deferred)
    }

    /// `job-ingest.submit-part`. The ids are sent when the jobs are accepted, those of the last part when all are durable.
    ///
    /// An error rejects the whole submission.
    pub(crate) fn submit_part(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let part: SubmitPartRequest<'_> = request.payload().map_err(cut_error)?;
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
        self.push(submission);
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
                self.push(earlier);
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
            cx.count_rejection(|rejected| &mut rejected.unfinished_submissions);
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
        let submission = Submission::in_parts(sender, token.clone(), origin, cx);
        self.waiting.push(submission);
        Ok(())
    }

    /// Takes the first submission out for which `is_wanted`.
    fn take(&mut self, is_wanted: impl Fn(&Submission) -> bool) -> Option<Submission> {
        if let Some(at) = self.waiting.iter().position(&is_wanted) {
            return Some(self.waiting.swap_remove(at));
        }
        let open = self.open.remove(is_wanted)?;
        self.open_bytes -= open.text_bytes;
        Some(open)
    }

    /// Rejects a submission: its jobs are removed in slices.
    fn discard(&mut self, cx: &mut Context, mut submission: Submission, error: &RequestError) {
        submission.end_batch(cx);
        for request in submission.outstanding() {
            cx.reject(request, error);
        }
        let userid = submission.sender.userid;
        cx.jobs.uncount_active(userid, submission.active);
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
        let jobs = self.complete.iter().flat_map(|complete| &complete.jobs);
        let counts =
            jobs.map(|(first, last)| first.distance(*last).map_or(0, |distance| distance + 1));
        counts.sum()
    }

    /// The users whose submissions are open, or whose jobs still get their first steps or are removed.
    pub(crate) fn users(&self, cx: &Context) -> impl Iterator<Item = u32> {
        let open = self.open.iter().map(|submission| submission.sender.userid);
        let complete = self.complete.iter().flat_map(|complete| &complete.jobs);
        let ranges = complete.chain(&self.rejected);
        let first_jobs = ranges.filter_map(|(first, _)| cx.jobs.record(*first));
        open.chain(first_jobs.map(Record::userid))
    }

    /// Whether jobs of submissions depend on a job, which have not entered their dependencies yet. The next slices do that,
    /// or reject the jobs.
    pub(crate) fn refer_to(&self, id: JobId) -> bool {
        let mut open = self.open.iter();
        let mut complete = self.complete.iter();
        open.any(|submission| submission.antecedents.contains(&id))
            || complete.any(|submission| submission.antecedents.contains(&id))
    }

    /// The same for submissions that need their next part.
    pub(crate) fn incomplete_refer_to(&self, id: JobId) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|submission| submission.antecedents.contains(&id))
    }

    /// Whether [`run_next_slice`](Self::run_next_slice) has something to do.
    pub(crate) fn is_open(&self) -> bool {
        !(self.open.is_empty() && self.complete.is_empty() && self.rejected.is_empty())
    }

    /// Does a slice: of the steps of complete submissions, else of the removal of rejected ones, else of the
    /// submission whose turn it is.
    pub(crate) fn run_next_slice(&mut self, cx: &mut Context, census: &mut Census) {
        if self.step_complete(cx) || self.remove_rejected(cx) {
            return;
        }
        let Some(mut submission) = self.open.take_next() else {
            return;
        };
        self.open_bytes -= submission.text_bytes;
        if let Some(error) = cx.rejection.clone() {
            return self.discard(cx, submission, &error);
        }
        let progress = submission.run_slice(cx, self.jobs_per_slice);
        if progress == Progress::Invalid {
            let error = submission.rejection();
            submission.hide(cx);
            return self.discard(cx, submission, &error);
        }
        if progress == Progress::Complete {
            let payload = submission.complete(cx, census);
            self.uncommitted.push(submission.began);
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
            self.complete.push_back(CompleteSubmission {
                jobs: submission.ranges.into(),
                antecedents: submission.antecedents,
            });
            return;
        }
        submission.hide(cx);
        if progress == Progress::Waiting
            && let Some(parts) = &mut submission.parts
        {
            parts.due = cx.now + PART_TIMEOUT_S;
            self.waiting.push(submission);
        } else {
            self.open_bytes += submission.text_bytes;
            let origin = submission.origin().map(<[u8]>::to_vec);
            self.open.put_back(origin.as_deref(), submission);
        }
    }

    /// Adds a submission that is to be continued, behind those of its peer.
    fn push(&mut self, submission: Submission) {
        self.open_bytes += submission.text_bytes;
        let origin = submission.origin().map(<[u8]>::to_vec);
        self.open.push(origin.as_deref(), submission);
    }

    /// The number of submissions of a peer that are continued.
    pub(crate) fn open_of(&self, origin: &[u8]) -> usize {
        self.open.of_peer(Some(origin)).count()
    }

    /// The memory that the jobspecs of these take, in bytes.
    pub(crate) fn open_bytes_of(&self, origin: &[u8]) -> usize {
        let open = self.open.of_peer(Some(origin));
        open.map(|submission| submission.text_bytes).sum()
    }

    /// The same of all peers.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    /// Schedules the first steps of some jobs of complete submissions. Returns whether there was one.
    fn step_complete(&mut self, cx: &mut Context) -> bool {
        let left = self.step_until(cx, 0);
        left < self.jobs_per_slice
    }

    /// Schedules the first steps of a slice of jobs, until as many complete submissions are left. Returns how many more jobs
    /// the slice may have.
    fn step_until(&mut self, cx: &mut Context, submissions: usize) -> u64 {
        let mut left = self.jobs_per_slice;
        while left > 0 && self.complete.len() > submissions {
            let Some(mut complete) = self.complete.pop_front() else {
                break;
            };
            let next = complete.jobs.pop_front();
            let ids = next.map_or_else(Vec::new, |(first, last)| {
                let ids = slice_with_dependencies(cx, first, last, left);
                if let Some(latest) = ids.last().filter(|latest| **latest < last) {
                    complete.jobs.push_front((latest.successor(), last));
                }
                ids
            });
            let weights = ids.iter().map(|id| weight_of(cx, *id));
            left = left.saturating_sub(weights.sum::<u64>().max(1));
            if !complete.jobs.is_empty() {
                self.complete.push_front(complete);
            }
            for id in ids {
                #[cfg(debug_assertions)]
                cx.jobs.check_again(id);
                cx.revisit(id);
            }
        }
        left
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

/// The work of a job's first step, in jobs without dependencies.
fn weight_of(cx: &Context, id: JobId) -> u64 {
    let record = cx.jobs.record(id);
    1 + record.map_or(0, |record| record.spec().dependencies.len() as u64)
}

/// The first jobs with ids from `first` to `last` whose first steps are not more work than `max` jobs: at least one.
fn slice_with_dependencies(cx: &Context, first: JobId, last: JobId, max: u64) -> Vec<JobId> {
    let mut left = max;
    let ids = cx.jobs.added(first, last).take_while(|id| {
        let is_next = left > 0;
        left = left.saturating_sub(weight_of(cx, *id));
        is_next
    });
    ids.collect()
}

/// The first jobs, `max` at most, with ids from `first` to `last`.
fn slice_of(cx: &Context, first: JobId, last: JobId, max: u64) -> Vec<JobId> {
    let ids = cx.jobs.added(first, last);
    ids.take(usize::try_from(max).unwrap_or(usize::MAX))
        .collect()
}
