//! Clients: what they have requested, and what the responses promise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use penstock_flux::errno;
use penstock_flux::job_info::EventlogWatchResponse;
use penstock_flux::job_ingest::{SubmitCopiesResponse, SubmitPartResponse, SubmitPartResult};
use penstock_flux::job_list::ListResponse;
use penstock_flux::job_manager::{BulkResponse, PurgeResponse};
use penstock_flux::pmix::FinalResponse;
use penstock_flux::{JobId, pmix_attribute};
use penstock_wire::{DEFAULT_MAX_FRAME_BYTES, Decoder, Message, MessageType};

use crate::dependents::Dependencies;
use crate::network::{End, LinkId, Network};
use crate::site::OWNER;

/// A rule of a protocol, or a promise to a client, that a response breaks: which one, and how.
#[derive(Debug)]
pub struct BrokenPromise(String);

impl fmt::Display for BrokenPromise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BrokenPromise {}

impl From<penstock_flux::Error> for BrokenPromise {
    fn from(error: penstock_flux::Error) -> Self {
        Self(error.to_string())
    }
}

/// A submission, under its token.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The payload of the request.
    pub payload: String,
    /// The user who sends it.
    pub userid: u32,
    /// The number of its jobs.
    pub count: usize,
    /// The ids of its jobs, once a response has named them.
    pub ids: Option<Vec<u64>>,
    /// The dependencies of its jobs: those of each job are among these.
    pub dependencies: Vec<Dependencies>,
    /// Of a list that is sent in parts, the jobs of each part.
    pub parts: Vec<String>,
    /// Whether a list has parts that are still to be drawn. It has no jobs then.
    pub is_unfinished: bool,
    /// The attempts that can have stored it.
    attempts: Attempts,
}

/// The requests that can have stored a submission: each, or the last part of each list.
#[derive(Debug, Clone, Copy, Default)]
struct Attempts {
    sent: usize,
    rejected: usize,
    /// Whether one was outstanding when a commit failed that the log of the store may have nevertheless.
    may_be_stored: bool,
}

impl Submission {
    /// A submission of a user, without jobs.
    pub fn new(userid: u32) -> Self {
        Self {
            payload: String::new(),
            userid,
            count: 0,
            ids: None,
            dependencies: Vec::new(),
            parts: Vec::new(),
            is_unfinished: false,
            attempts: Attempts::default(),
        }
    }

    /// Whether every attempt was answered with an error: no job of it is stored.
    pub fn is_rejected(&self) -> bool {
        let attempts = &self.attempts;
        attempts.sent > 0 && attempts.sent == attempts.rejected && !attempts.may_be_stored
    }

    /// Has a list no further parts.
    pub fn end_list(&mut self, number: usize) {
        self.is_unfinished = false;
        let jobs = self.parts.join(",");
        self.payload = format!(r#"{{"token":"t{number}","jobs":[{jobs}]}}"#);
    }

    /// The parts of a list as payloads; the last one ends it unless there are more to come.
    pub fn part_payloads(&self, number: usize) -> Vec<String> {
        let last = self.parts.len().saturating_sub(1);
        let parts = self.parts.iter().enumerate();
        let payloads = parts.map(|(part, jobs)| {
            let more = part < last || self.is_unfinished;
            format!(r#"{{"token":"t{number}","part":{part},"more":{more},"jobs":[{jobs}]}}"#)
        });
        payloads.collect()
    }

    /// The part that discards a list after those that have been drawn.
    pub fn abort_payload(&self, number: usize) -> String {
        let part = self.parts.len();
        format!(r#"{{"token":"t{number}","part":{part},"more":false,"abort":true,"jobs":[]}}"#)
    }
}

/// A commit of the values of a group; each is the number of the commit.
#[derive(Debug, Clone, Copy)]
pub struct ValueCommit {
    /// The group.
    pub group: u32,
    /// Whether a response has acknowledged it.
    pub is_acknowledged: bool,
}

/// The promises of the instance to its clients.
#[derive(Debug, Default)]
pub struct Promises {
    /// The submissions, by number.
    pub submissions: Vec<Submission>,
    /// Of each attempt to submit a list in parts, the ids in the responses to the parts.
    pub attempts: Vec<BTreeMap<usize, Vec<u64>>>,
    /// Whether the queue has been disabled: jobs of a list may have been rejected.
    pub was_disabled: bool,
    /// The commits of values, by number. One client sends them.
    pub commits: Vec<ValueCommit>,
    /// The events of each job that a client has seen.
    pub events: BTreeMap<u64, Vec<String>>,
    /// The jobs whose end was reported.
    pub ended: BTreeSet<u64>,
    /// The jobs whose purge was reported.
    pub purged: BTreeSet<u64>,
    /// The number of PMIx requests of each job that were reported as granted.
    pub granted: BTreeMap<u64, usize>,
    /// The number of releases of nodes among them, by job.
    pub releases: BTreeMap<u64, usize>,
    /// The execution targets that were reported as added to the inventory.
    pub added_ranks: BTreeSet<u32>,
    /// The execution targets that were reported as removed for good.
    pub removed_ranks: BTreeSet<u32>,
    /// The execution targets whose removal was requested.
    pub requested_removals: BTreeSet<u32>,
    /// The allocations that were reported as granted, each with the job that requested it.
    pub grants: BTreeMap<u64, u64>,
}

impl Promises {
    /// The acknowledged jobs, in the order of their submissions.
    pub fn jobs(&self) -> Vec<u64> {
        let ids = self
            .submissions
            .iter()
            .filter_map(|submission| submission.ids.as_ref());
        ids.flatten().copied().collect()
    }

    /// Whether the values of a group may be those of this commit, or unset: of the last acknowledged one, or of one whose
    /// response is lost, which may have been delayed in a connection that is closed.
    pub fn allows_value(&self, group: u32, number: Option<usize>) -> bool {
        let mut commits = self.commits.iter();
        let last = commits.rposition(|commit| commit.group == group && commit.is_acknowledged);
        number == last
            || number
                .and_then(|number| self.commits.get(number))
                .is_some_and(|commit| commit.group == group && !commit.is_acknowledged)
    }

    /// Whether a list may be open whose jobs depend on others: these are not purged.
    fn has_open_dependents(&self) -> bool {
        let mut lists = self.submissions.iter();
        lists.any(|list| {
            let has_dependents = list.dependencies.iter().any(|job| !job.is_empty());
            has_dependents && !list.parts.is_empty() && list.ids.is_none()
        })
    }

    /// The submission of a request that can store it.
    fn submission_of(&mut self, purpose: &Purpose) -> Option<&mut Submission> {
        match purpose {
            Purpose::Submit(number) => self.submissions.get_mut(*number),
            Purpose::Part(part) if part.is_last => self.submissions.get_mut(part.list.submission),
            _ => None,
        }
    }

    /// Records that a request is sent.
    pub fn send(&mut self, purpose: &Purpose) {
        if let Some(submission) = self.submission_of(purpose) {
            submission.attempts.sent += 1;
        }
    }

    /// Records that a request was rejected.
    fn reject(&mut self, purpose: &Purpose) {
        if let Some(submission) = self.submission_of(purpose) {
            submission.attempts.rejected += 1;
        }
    }

    /// Records that a commit has failed which the log of the store may have nevertheless.
    pub fn doubt_outstanding(&mut self) {
        for submission in &mut self.submissions {
            let attempts = &mut submission.attempts;
            attempts.may_be_stored |= attempts.sent > attempts.rejected;
        }
    }

    /// The submission by which jobs have this name, if it was rejected.
    pub fn rejected_name(&self, name: &str) -> Option<usize> {
        let number: usize = name.strip_prefix('s')?.parse().ok()?;
        let submission = self.submissions.get(number)?;
        submission.is_rejected().then_some(number)
    }

    /// The user whose job this is; `None` if no submission or request of a job has its id.
    pub fn userid_of(&self, job: u64) -> Option<u32> {
        let job = self.grants.get(&job).copied().unwrap_or(job);
        let has_job = |submission: &&Submission| {
            let ids = submission.ids.as_ref();
            ids.is_some_and(|ids| ids.contains(&job))
        };
        let submission = self.submissions.iter().find(has_job)?;
        Some(submission.userid)
    }

    /// Records the ids of a submission.
    fn acknowledge(&mut self, number: usize, ids: Vec<u64>) -> Result<(), BrokenPromise> {
        let others = self.submissions.iter().enumerate();
        let mut others = others.filter(|(other, _)| *other != number);
        if let Some((other, _)) = others.find(|(_, submission)| {
            let known = submission.ids.as_ref();
            known.is_some_and(|known| known.iter().any(|id| ids.contains(id)))
        }) {
            return Err(BrokenPromise(format!(
                "submission {number} got {ids:?}, of which submission {other} has some"
            )));
        }
        let Some(submission) = self.submissions.get_mut(number) else {
            return Ok(());
        };
        let is_whole = if self.was_disabled && !submission.parts.is_empty() {
            ids.len() <= submission.count
        } else {
            ids.len() == submission.count
        };
        if !is_whole {
            return Err(BrokenPromise(format!(
                "submission {number} of {} jobs got {ids:?}",
                submission.count
            )));
        }
        match &submission.ids {
            Some(before) if *before != ids => Err(BrokenPromise(format!(
                "submission {number} got {before:?}, and {ids:?} when it was repeated"
            ))),
            _ => {
                submission.ids = Some(ids);
                Ok(())
            }
        }
    }

    /// Records the response to a part of a list: that to the last one acknowledges all jobs.
    fn take_part(
        &mut self,
        part: ListPart,
        response: SubmitPartResponse,
    ) -> Result<(), BrokenPromise> {
        let ids = response
            .results
            .into_iter()
            .flat_map(|result| match result {
                SubmitPartResult::Id(id) => vec![id.get()],
                SubmitPartResult::Ids(ids) => ids.into_iter().map(JobId::get).collect(),
                SubmitPartResult::Error(_) => Vec::new(),
            });
        let Some(answered) = self.attempts.get_mut(part.list.attempt) else {
            return Ok(());
        };
        answered.insert(part.part, ids.collect());
        if !part.is_last {
            return Ok(());
        }
        if answered.len() != part.part + 1 {
            return Err(BrokenPromise(format!(
                "{part:?} is accepted, and of those before only {answered:?}"
            )));
        }
        let ids = answered.values().flatten().copied().collect();
        self.acknowledge(part.list.submission, ids)
    }

    /// Records a response to a PMIx request of a job.
    fn grant(&mut self, job: u64, done: &FinalResponse) {
        // A status above 0 says that the request is pending.
        if done.status != 0 || done.cancelled.is_some() {
            return;
        }
        *self.granted.entry(job).or_default() += 1;
        let mut results = done.results.iter();
        let alloc = results.find(|result| result["key"] == pmix_attribute::ALLOC_ID);
        let alloc = alloc.and_then(|alloc| alloc["value"].as_str()?.parse::<JobId>().ok());
        if let Some(alloc) = alloc.filter(|alloc| alloc.get() != job) {
            self.grants.insert(alloc.get(), job);
        }
    }

    /// Records an event of a job, the one at this place of its log.
    fn see(&mut self, job: u64, place: usize, line: &str) -> Result<(), BrokenPromise> {
        let seen = self.events.entry(job).or_default();
        match seen.get(place) {
            Some(before) if before != line => Err(BrokenPromise(format!(
                "job {job}: event {place} was {before:?}, and is {line:?} now"
            ))),
            Some(_) => Ok(()),
            None => {
                seen.push(line.to_owned());
                Ok(())
            }
        }
    }
}

/// An attempt to submit a list of jobs in parts.
#[derive(Debug, Clone, Copy)]
pub struct ListAttempt {
    /// The number of the submission.
    pub submission: usize,
    /// The number of the attempt.
    pub attempt: usize,
}

/// A part of a list of jobs that is submitted.
#[derive(Debug, Clone, Copy)]
pub struct ListPart {
    /// The list.
    pub list: ListAttempt,
    /// The number of the part.
    pub part: usize,
    /// Whether it is the last one.
    pub is_last: bool,
}

/// The purpose of a request.
#[derive(Debug, Clone)]
pub enum Purpose {
    /// The submission of this number.
    Submit(usize),
    /// A part of a list.
    Part(ListPart),
    /// The events of a job; the number of those that have come.
    Watch(u64, usize),
    /// The end of a job.
    Wait(u64),
    /// Rows of the jobs that the client may see.
    List,
    /// A change of several jobs; those of other users, which it must not change.
    Jobs(Vec<u64>),
    /// The purge of these jobs.
    Purge(Vec<u64>),
    /// The commit of values of this number.
    Values(usize),
    /// A PMIx request of a job; whether it is another user's.
    Alloc(u64, bool),
    /// The release of nodes of a job; whether it is another user's.
    Release(u64, bool),
    /// The addition of an execution target.
    Grow(u32),
    /// The removal of an execution target.
    Shrink(u32),
    /// The PMIx requests of a job that have ended.
    Requests(u64),
    /// A request that the instance must reject.
    Forbidden,
    /// Anything else.
    Other,
}

/// The responses to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Responses {
    /// One.
    One,
    /// Any number, and an error as the last one.
    Stream,
}

#[derive(Debug)]
struct Outstanding {
    topic: String,
    purpose: Purpose,
    responses: Responses,
}

/// A client.
pub struct Client {
    userid: u32,
    link: Option<LinkId>,
    decoder: Decoder,
    unsent: Vec<u8>,
    last_tag: u32,
    outstanding: BTreeMap<u32, Outstanding>,
    /// Whether it reads what it is sent.
    pub is_reading: bool,
}

impl Client {
    /// A client of a user, without a connection.
    pub fn new(userid: u32) -> Self {
        Self {
            userid,
            link: None,
            decoder: Decoder::new(DEFAULT_MAX_FRAME_BYTES),
            unsent: Vec::new(),
            last_tag: 0,
            outstanding: BTreeMap::new(),
            is_reading: true,
        }
    }

    /// Its user.
    pub fn userid(&self) -> u32 {
        self.userid
    }

    /// Its connection.
    pub fn link(&self) -> Option<LinkId> {
        self.link
    }

    /// Connects it.
    pub fn connect(&mut self, link: LinkId) {
        self.link = Some(link);
        self.decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
    }

    /// Handles the end of its connection: its requests have no response.
    pub fn disconnect(&mut self, network: &mut Network) {
        if let Some(link) = self.link.take() {
            network.close(link, End::Peer);
        }
        self.unsent.clear();
        self.outstanding.clear();
    }

    /// Sends a request, if it is connected.
    pub fn request(
        &mut self,
        topic: &str,
        payload: &str,
        purpose: Purpose,
        responses: Responses,
        network: &mut Network,
    ) {
        if self.link.is_none() {
            return;
        }
        self.last_tag += 1;
        let mut request = Message::request(topic, payload).with_matchtag(self.last_tag);
        if responses == Responses::Stream {
            request = request.streaming();
        }
        request.encode(&mut self.unsent);
        let outstanding = Outstanding {
            topic: topic.to_owned(),
            purpose,
            responses,
        };
        self.outstanding.insert(self.last_tag, outstanding);
        self.flush(network);
    }

    /// Sends what the socket takes.
    pub fn flush(&mut self, network: &mut Network) {
        if let Some(link) = self.link {
            let sent = network.send(link, End::Daemon, &self.unsent);
            self.unsent.drain(..sent);
        }
    }

    /// The requests that must be answered by now, by topic.
    pub fn unanswered(&self) -> Vec<&str> {
        let outstanding = self.outstanding.values();
        let single = outstanding.filter(|outstanding| {
            let ends_at_once = matches!(outstanding.purpose, Purpose::List | Purpose::Forbidden);
            outstanding.responses == Responses::One || ends_at_once
        });
        single
            .map(|outstanding| outstanding.topic.as_str())
            .collect()
    }

    /// The jobs whose events or requests it watches, or whose end it waits for.
    pub fn awaited_jobs(&self) -> Vec<u64> {
        let outstanding = self.outstanding.values();
        let jobs = outstanding.filter_map(|outstanding| match outstanding.purpose {
            Purpose::Watch(job, _)
            | Purpose::Wait(job)
            | Purpose::Alloc(job, _)
            | Purpose::Release(job, _)
            | Purpose::Requests(job) => Some(job),
            Purpose::Submit(_)
            | Purpose::Part(_)
            | Purpose::List
            | Purpose::Jobs(_)
            | Purpose::Purge(_)
            | Purpose::Values(_)
            | Purpose::Grow(_)
            | Purpose::Shrink(_)
            | Purpose::Forbidden
            | Purpose::Other => None,
        });
        jobs.collect()
    }

    /// Takes bytes of the daemon in.
    ///
    /// # Errors
    ///
    /// A response breaks a rule or a promise: which one.
    pub fn receive(&mut self, bytes: &[u8], promises: &mut Promises) -> Result<(), BrokenPromise> {
        let mut messages = Vec::new();
        let fed = self.decoder.feed(bytes, &mut messages);
        fed.map_err(|error| {
            BrokenPromise(format!("the daemon sends a client a broken frame: {error}"))
        })?;
        for message in messages {
            if message.kind == MessageType::Response {
                self.take_response(&message, promises)?;
            }
        }
        Ok(())
    }

    fn take_response(
        &mut self,
        response: &Message,
        promises: &mut Promises,
    ) -> Result<(), BrokenPromise> {
        let (tag, errnum) = (response.matchtag, response.errnum());
        let Some(outstanding) = self.outstanding.get_mut(&tag) else {
            return Err(BrokenPromise(format!(
                "a response to no request: {} {errnum}",
                response.topic()
            )));
        };
        if response.topic() != outstanding.topic {
            return Err(BrokenPromise(format!(
                "{} is answered as {}",
                outstanding.topic,
                response.topic()
            )));
        }
        if errnum != 0 {
            let purpose = outstanding.purpose.clone();
            self.outstanding.remove(&tag);
            return take_error(&purpose, errnum, promises);
        }
        let userid = self.userid;
        match &mut outstanding.purpose {
            Purpose::Submit(number) => {
                let ids: SubmitCopiesResponse = response.read()?;
                let ids = ids.ids.into_iter().map(penstock_flux::JobId::get).collect();
                promises.acknowledge(*number, ids)?;
            }
            Purpose::Part(part) => promises.take_part(*part, response.read()?)?,
            Purpose::Watch(job, place) => {
                let event: EventlogWatchResponse<'_> = response.read()?;
                for line in event.event.lines() {
                    promises.see(*job, *place, line)?;
                    *place += 1;
                }
            }
            Purpose::Wait(job) => {
                let rows: ListResponse = response.read()?;
                if !rows.jobs.is_empty() {
                    promises.ended.insert(*job);
                }
            }
            Purpose::List => check_rows(&response.read()?, userid, promises)?,
            Purpose::Jobs(foreign) => {
                let done: BulkResponse = response.read()?;
                let is_changed = |id: &&u64| !done.errors.contains_key(&id.to_string());
                if let Some(id) = foreign.iter().find(is_changed) {
                    return Err(BrokenPromise(format!(
                        "{} of user {userid} changed job {id} of another user",
                        outstanding.topic
                    )));
                }
            }
            Purpose::Purge(ids) => {
                let done: PurgeResponse = response.read()?;
                if done.count == 0 && promises.has_open_dependents() {
                    ids.clear();
                }
                if done.count != ids.len() as u64 {
                    let count = done.count;
                    let text = format!("{count} jobs were purged, not {ids:?}");
                    return Err(BrokenPromise(text));
                }
                promises.purged.extend(ids.iter());
            }
            Purpose::Values(number) => {
                if let Some(commit) = promises.commits.get_mut(*number) {
                    commit.is_acknowledged = true;
                }
            }
            Purpose::Grow(rank) => drop(promises.added_ranks.insert(*rank)),
            Purpose::Shrink(rank) => drop(promises.removed_ranks.insert(*rank)),
            Purpose::Alloc(job, is_foreign) => {
                let done: FinalResponse = response.read()?;
                check_status(&done, *job, is_foreign.then_some(userid))?;
                promises.grant(*job, &done);
            }
            Purpose::Release(job, is_foreign) => {
                let done: FinalResponse = response.read()?;
                check_status(&done, *job, is_foreign.then_some(userid))?;
                if done.status == 0 {
                    *promises.releases.entry(*job).or_default() += 1;
                }
                promises.grant(*job, &done);
            }
            Purpose::Forbidden => {
                return Err(BrokenPromise(format!(
                    "{} of user {userid} is accepted",
                    outstanding.topic
                )));
            }
            Purpose::Requests(_) | Purpose::Other => {}
        }
        if !self
            .outstanding
            .get(&tag)
            .is_some_and(|outstanding| outstanding.responses == Responses::Stream)
        {
            self.outstanding.remove(&tag);
        }
        Ok(())
    }
}

/// Records the error of a request.
fn take_error(
    purpose: &Purpose,
    errnum: u32,
    promises: &mut Promises,
) -> Result<(), BrokenPromise> {
    promises.reject(purpose);
    let is_submission = matches!(purpose, Purpose::Submit(_) | Purpose::Part(_));
    if is_submission && errnum == errno::EEXIST {
        return Err(BrokenPromise("a token names another submission".to_owned()));
    }
    Ok(())
}

/// Checks that a request of a job by another user was rejected.
fn check_status(
    done: &FinalResponse,
    job: u64,
    other_user: Option<u32>,
) -> Result<(), BrokenPromise> {
    match other_user.filter(|_| done.status >= 0) {
        Some(userid) => Err(BrokenPromise(format!(
            "a request of job {job} by user {userid} has the status {}",
            done.status
        ))),
        None => Ok(()),
    }
}

/// Checks that rows are of jobs that a user may see, and that no submission of them was rejected.
fn check_rows(rows: &ListResponse, userid: u32, promises: &Promises) -> Result<(), BrokenPromise> {
    let is_foreign = |owner: Option<u64>| userid != OWNER && owner != Some(userid.into());
    for row in &rows.jobs {
        let owner = row.get("userid").and_then(serde_json::Value::as_u64);
        if is_foreign(owner) {
            return Err(BrokenPromise(format!("user {userid} can list {row:?}")));
        }
        let name = row.get("name").and_then(serde_json::Value::as_str);
        if let Some(number) = name.and_then(|name| promises.rejected_name(name)) {
            return Err(BrokenPromise(format!(
                "submission {number} was rejected, and {row:?} is listed"
            )));
        }
    }
    Ok(())
}
