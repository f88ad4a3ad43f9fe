//! The requests and loans of jobs: a state machine that events drive.
//!
//! | event in a job's eventlog | meaning |
//! |---|---|
//! | `penstock.alloc-request` | a request of the job is pending |
//! | `penstock.alloc-again` | the request starts over: another job represents it |
//! | `penstock.alloc-end` | the request has ended, with its status, the reclaimed nodes and new loans |
//! | `penstock.loan-end` | the lending allocation has ended, and its loans with it |
//!
//! A request ends once. Nodes that a reclaim did not get stay on loan, until the same time as before.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use penstock_flux::eventlog;
use penstock_jobspec::job_id::JobId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::names::{AttributeKey, Directive, Status};

/// The maximum number of ended requests kept per job.
const MAX_ENDED_REQUESTS: usize = 1024;

/// The maximum number of pending requests per job.
pub const MAX_PENDING_REQUESTS: usize = 1024;

/// The maximum length of the texts of the ended requests kept per job. The newest one is kept, whatever its length.
const MAX_ENDED_BYTES: usize = 1 << 20;

/// The state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The request is pending.
    Queued,
    /// The request was granted, perhaps in part.
    Granted,
    /// The request was denied.
    Denied,
    /// The request was cancelled.
    Cancelled,
}

impl Progress {
    fn of(status: Status) -> Self {
        match status {
            Status::QUEUED => Self::Queued,
            Status::SUCCESS => Self::Granted,
            Status::CANCELLED => Self::Cancelled,
            _ => Self::Denied,
        }
    }

    /// The name in responses to queries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Granted => "granted",
            Self::Denied => "denied",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A request of a job, as its event records it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// The number of the request within the job.
    pub seq: u32,
    /// The user's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The directive.
    pub directive: String,
    /// The rank of the requesting task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The job that represents the request in the queue, and holds what it is granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc: Option<JobId>,
    /// The target allocation, if not the requester's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<JobId>,
    /// Requested nodes; 0 if they are not counted.
    pub nodes: u32,
    /// Requested cpus, of each node or in total; 0 for whole nodes.
    pub cpus: u32,
    /// Requested time in seconds.
    pub time: u32,
    /// Whether it is denied unless it can be granted now.
    pub required: bool,
    /// The end of the caller's timeout, seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<f64>,
    /// Names of preferred attributes that have no effect on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// The loans to reclaim.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<Return>,
    /// The status, once it has ended.
    #[serde(skip)]
    pub status: Option<Status>,
    /// The reason of the status, human-readable.
    #[serde(skip)]
    pub reason: String,
    /// The results, as JSON attributes.
    #[serde(skip)]
    pub results: Vec<Value>,
}

impl Entry {
    /// The state.
    pub fn progress(&self) -> Progress {
        Progress::of(self.status.unwrap_or(Status::QUEUED))
    }

    /// The value of a result.
    pub fn result(&self, key: AttributeKey) -> Option<&Value> {
        let mut results = self.results.iter();
        let found = results.find(|result| result["key"] == key.name())?;
        found.get("value")
    }

    /// The length of its texts.
    fn text_bytes(&self) -> usize {
        let results = self
            .results
            .iter()
            .filter_map(|result| result["value"].as_str());
        self.id.as_ref().map_or(0, String::len)
            + self.reason.len()
            + results.map(str::len).sum::<usize>()
    }

    /// Whether the request is pending.
    pub fn is_open(&self) -> bool {
        self.status.is_none()
    }

    /// The directive.
    pub fn directive(&self) -> Option<Directive> {
        Directive::from_name(&self.directive)
    }
}

/// Nodes of a loan that are to return, written as `[loan, nodes]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ReturnDocument", into = "ReturnDocument")]
pub struct Return {
    /// The number of the loan.
    pub loan: u32,
    /// The number of nodes.
    pub nodes: u32,
}

/// The array of a [`Return`].
#[derive(Deserialize, Serialize)]
struct ReturnDocument(u32, u32);

impl From<ReturnDocument> for Return {
    fn from(ReturnDocument(loan, nodes): ReturnDocument) -> Self {
        Self { loan, nodes }
    }
}

impl From<Return> for ReturnDocument {
    fn from(Return { loan, nodes }: Return) -> Self {
        Self(loan, nodes)
    }
}

/// Nodes of one kind that a job has lent by one release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loan {
    /// The user's id of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The number of nodes.
    pub nodes: u32,
    /// Cpus of each.
    pub cpus: u32,
    /// Gpus of each.
    pub gpus: u32,
    /// Whether whole nodes are on loan.
    pub whole: bool,
    /// Whether they are the job's own, not granted to a request.
    pub own: bool,
    /// Their hosts.
    pub hosts: String,
    /// The allocation that they belong to, if not the job's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<JobId>,
    /// The time of the automatic reclaim, seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
    /// Nodes that are being reclaimed.
    #[serde(skip)]
    pub returning: u32,
    /// Nodes that were reclaimed.
    #[serde(skip)]
    pub returned: u32,
}

impl Loan {
    /// Nodes on loan that are not being reclaimed.
    pub fn outstanding(&self) -> u32 {
        self.nodes - self.returned - self.returning
    }

    /// Whether one request can reclaim both: nodes of one kind, for one allocation.
    pub fn is_like(&self, other: &Self) -> bool {
        let kind = |lend: &Self| (lend.target, lend.own, lend.whole, lend.cpus, lend.gpus);
        kind(self) == kind(other)
    }
}

/// The change that an event has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A request is pending.
    Began(u32),
    /// A request has ended.
    Ended(u32),
    /// A request has ended that made loans.
    Lent(u32),
    /// No change that concerns a waiting caller.
    Other,
}

/// The end of a request's timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Deadline {
    /// Whole milliseconds since the epoch.
    at_ms: u64,
    /// The number of the request.
    seq: u32,
}

impl Deadline {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float out of range saturates"
    )]
    fn new(seconds: f64, seq: u32) -> Self {
        let at_ms = (seconds * 1000.0) as u64;
        Self { at_ms, seq }
    }
}

/// The requests and loans of one job, indexed by state, deadline and id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    entries: BTreeMap<u32, Entry>,
    /// The pending and the ended ones.
    open: BTreeSet<u32>,
    ended: BTreeSet<u32>,
    /// The length of the texts of the ended ones.
    ended_bytes: usize,
    /// The ends of timeouts, the earliest first.
    deadlines: BTreeSet<Deadline>,
    /// By the user's id, and by the job that represents them.
    names: HashMap<String, BTreeSet<u32>>,
    allocs: HashMap<JobId, u32>,
    loans: BTreeMap<u32, Loan>,
    last: u32,
    /// The number of loans so far.
    last_loan: u32,
}

impl Account {
    /// The number of the next request.
    pub fn next(&self) -> u32 {
        self.last.saturating_add(1)
    }

    /// The requests, the oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.values()
    }

    /// The request with this number.
    pub fn entry(&self, seq: u32) -> Option<&Entry> {
        self.entries.get(&seq)
    }

    /// The newest request with this id of the user's.
    pub fn named(&self, id: &str) -> Option<&Entry> {
        self.all_named(id).next()
    }

    /// The requests with this id of the user's, the newest first.
    pub fn all_named(&self, id: &str) -> impl Iterator<Item = &Entry> {
        let all = self.names.get(id).into_iter().flatten().rev();
        all.filter_map(|seq| self.entry(*seq))
    }

    /// The request that this job represents.
    pub fn represented_by(&self, alloc: JobId) -> Option<&Entry> {
        self.entry(*self.allocs.get(&alloc)?)
    }

    /// The pending requests.
    pub fn open(&self) -> impl Iterator<Item = &Entry> {
        self.open.iter().filter_map(|seq| self.entry(*seq))
    }

    /// The number of pending requests.
    pub fn pending(&self) -> usize {
        self.open.len()
    }

    /// The pending requests whose timeout has expired.
    pub fn expired(&self, now: f64) -> impl Iterator<Item = &Entry> {
        let late = self.deadlines.range(..=Deadline::new(now, u32::MAX));
        let late = late.filter_map(|deadline| self.entry(deadline.seq));
        late.filter(move |entry| entry.deadline.is_some_and(|limit| limit <= now))
    }

    /// The loans by number.
    pub fn loans(&self) -> impl Iterator<Item = (u32, &Loan)> {
        self.loans.iter().map(|(seq, lend)| (*seq, lend))
    }

    /// The loan with this number.
    pub fn loan(&self, seq: u32) -> Option<&Loan> {
        self.loans.get(&seq)
    }

    /// The nodes to reclaim, by loan: of the loans with this id, or of all, up to `limit` nodes.
    pub fn to_reclaim(&self, id: Option<&str>, limit: Option<u32>) -> Vec<Return> {
        let mut left = limit.unwrap_or(u32::MAX);
        let lends = self.loans.iter();
        let meant = lends.filter(|(_, lend)| id.is_none() || lend.id.as_deref() == id);
        let parts = meant.map(|(seq, lend)| {
            let nodes = lend.outstanding().min(left);
            left -= nodes;
            Return { loan: *seq, nodes }
        });
        parts.filter(|part| part.nodes > 0).collect()
    }

    fn begin(&mut self, entry: Entry) -> Change {
        let seq = entry.seq;
        self.last = self.last.max(seq);
        for Return { loan, nodes } in &entry.returns {
            if let Some(lend) = self.loans.get_mut(loan) {
                lend.returning += (*nodes).min(lend.outstanding());
            }
        }
        self.open.insert(seq);
        if let Some(limit) = entry.deadline {
            self.deadlines.insert(Deadline::new(limit, seq));
        }
        if let Some(id) = &entry.id {
            self.names.entry(id.clone()).or_default().insert(seq);
        }
        if let Some(alloc) = entry.alloc {
            self.allocs.insert(alloc, seq);
        }
        self.entries.insert(seq, entry);
        Change::Began(seq)
    }

    fn request_again(&mut self, again: RequestAgain) {
        let entry = self.entries.get_mut(&again.seq);
        if let Some(entry) = entry.filter(|entry| entry.is_open()) {
            if let Some(before) = entry.alloc.replace(again.alloc) {
                self.allocs.remove(&before);
            }
            self.allocs.insert(again.alloc, again.seq);
        }
    }

    fn end(&mut self, ended: RequestEnd) -> Change {
        let entry = self.entries.get_mut(&ended.seq);
        let Some(entry) = entry.filter(|entry| entry.is_open()) else {
            return Change::Other;
        };
        entry.status = Some(Status(ended.status));
        entry.reason = ended.reason;
        entry.results = ended.results;
        // They were for its end alone.
        entry.dropped = Vec::new();
        self.ended_bytes += entry.text_bytes();
        self.open.remove(&ended.seq);
        self.ended.insert(ended.seq);
        if let Some(limit) = entry.deadline {
            self.deadlines.remove(&Deadline::new(limit, ended.seq));
        }
        let mut left = ended.nodes;
        for Return { loan, nodes } in std::mem::take(&mut entry.returns) {
            if let Some(lend) = self.loans.get_mut(&loan) {
                let nodes = nodes.min(lend.returning);
                let back = nodes.min(left);
                lend.returning -= nodes;
                lend.returned += back;
                left -= back;
            }
        }
        self.loans.retain(|_, lend| lend.returned < lend.nodes);
        self.forget_oldest();
        let mut change = Change::Ended(ended.seq);
        for lend in ended.lent.into_iter().filter(|lend| lend.nodes > 0) {
            self.last_loan += 1;
            self.loans.insert(self.last_loan, lend);
            change = Change::Lent(ended.seq);
        }
        change
    }

    fn forget_oldest(&mut self) {
        while self.ended.len() > MAX_ENDED_REQUESTS
            || (self.ended_bytes > MAX_ENDED_BYTES && self.ended.len() > 1)
        {
            let oldest = self.ended.pop_first();
            if let Some(oldest) = oldest.and_then(|seq| self.entries.remove(&seq)) {
                self.ended_bytes -= oldest.text_bytes();
                self.forget_names(oldest);
            }
        }
    }

    fn forget_names(&mut self, oldest: Entry) {
        if let Some(alloc) = oldest.alloc {
            self.allocs.remove(&alloc);
        }
        if let Some(id) = oldest.id
            && let Some(named) = self.names.get_mut(&id)
        {
            named.remove(&oldest.seq);
            if named.is_empty() {
                self.names.remove(&id);
            }
        }
    }
}

/// The context of `penstock.alloc-end`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestEnd {
    /// The number of the request within the job.
    pub seq: u32,
    /// The PMIx status.
    pub status: i32,
    /// The reason of the status, human-readable.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The results, as JSON attributes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<Value>,
    /// The number of granted nodes: they count against those to reclaim.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nodes: u32,
    /// New loans.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lent: Vec<Loan>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The context of `penstock.alloc-again`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestAgain {
    /// The number of the request within the job.
    pub seq: u32,
    /// The job that represents it from now on.
    pub alloc: JobId,
}

/// The context of `penstock.loan-end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoanEnd {
    /// The allocation that has ended.
    pub target: JobId,
}

/// The accounts of all jobs with requests.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<JobId, Account>,
    /// By allocation, the other jobs with requests or loans for it.
    about: BTreeMap<JobId, BTreeSet<JobId>>,
}

impl Ledger {
    /// A job's account.
    pub fn account(&self, job: JobId) -> Option<&Account> {
        self.accounts.get(&job)
    }

    /// The jobs with an account, in ascending order.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.accounts.keys().copied()
    }

    /// The other jobs that may have requests or loans for an allocation.
    pub fn about(&self, target: JobId) -> impl Iterator<Item = (JobId, &Account)> {
        let jobs = self.about.get(&target).into_iter().flatten();
        jobs.filter_map(|job| Some((*job, self.account(*job)?)))
    }

    /// Applies an event of a job, the only way by which the ledger changes, live and in replay. `context` is JSON text. A
    /// malformed event changes nothing.
    pub fn apply(&mut self, job: JobId, name: &str, context: Option<&str>) -> Change {
        fn read<T: serde::de::DeserializeOwned>(context: &str) -> Option<T> {
            serde_json::from_str(context).ok()
        }
        let Some(context) = context else {
            return Change::Other;
        };
        let change = match name {
            eventlog::ALLOC_REQUEST => {
                let entry: Option<Entry> = read(context);
                entry.map(|entry| {
                    if let Some(target) = entry.target {
                        self.about.entry(target).or_default().insert(job);
                    }
                    self.accounts.entry(job).or_default().begin(entry)
                })
            }
            eventlog::ALLOC_END => read(context).and_then(|ended: RequestEnd| {
                let account = self.accounts.get_mut(&job)?;
                for target in ended.lent.iter().filter_map(|lend| lend.target) {
                    self.about.entry(target).or_default().insert(job);
                }
                Some(account.end(ended))
            }),
            eventlog::ALLOC_AGAIN => read(context).and_then(|again: RequestAgain| {
                self.accounts.get_mut(&job)?.request_again(again);
                Some(Change::Other)
            }),
            eventlog::LOAN_END => read(context).and_then(|end: LoanEnd| {
                let account = self.accounts.get_mut(&job)?;
                account
                    .loans
                    .retain(|_, lend| lend.target != Some(end.target));
                Some(Change::Other)
            }),
            _ => None,
        };
        change.unwrap_or(Change::Other)
    }

    /// Removes a purged job.
    pub fn forget(&mut self, job: JobId) {
        self.accounts.remove(&job);
        self.about.remove(&job);
    }
}
