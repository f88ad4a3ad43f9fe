//! Who has asked for what, how it ended, and what is lent: a state machine that events drive.
//!
//! | event in a job's log | what it tells |
//! |---|---|
//! | `penstock.alloc-request` | a request of the job begins: it waits |
//! | `penstock.alloc-again` | it is asked for from the beginning: another job stands for it |
//! | `penstock.alloc-end` | it is over, and how it ended: what of a loan is back, or what is lent |
//! | `penstock.loan-end` | the allocation of which something is lent has ended: so have its loans |
//!
//! A request is over once. What of a loan was asked back and did not come is lent again, until
//! the same time as before.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::names::{Directive, Key, Status};

/// Requests that are over, of one job, that are remembered.
const REMEMBERED: usize = 1024;

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It waits.
    Queued,
    /// It was granted, if need be in part.
    Granted,
    /// It was refused.
    Refused,
    /// It was taken back.
    Cancelled,
}

impl Progress {
    fn of(status: Status) -> Self {
        match status {
            Status::QUEUED => Self::Queued,
            Status::SUCCESS => Self::Granted,
            Status::CANCELLED => Self::Cancelled,
            _ => Self::Refused,
        }
    }

    /// The name that a query tells.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Granted => "granted",
            Self::Refused => "refused",
            Self::Cancelled => "cancelled",
        }
    }
}

/// One request of a job, as its event begins it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// Its number among the job's.
    pub seq: u32,
    /// The user's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What is to be done.
    pub directive: String,
    /// The task that asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The job that stands for the request in the queue, and for what it is granted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alloc: Option<u64>,
    /// The allocation that is meant, where it is not the requester's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<u64>,
    /// Nodes asked for; 0 where they are not counted.
    pub nodes: u32,
    /// Cpus asked for, of each node or altogether; 0 for whole nodes.
    pub cpus: u32,
    /// Seconds asked for.
    pub time: u32,
    /// Whether it is refused where it cannot be had now.
    pub required: bool,
    /// When the caller waits no longer, seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<f64>,
    /// Names of attributes that were wished for and mean nothing to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// Loans that are asked back: their numbers, and how many nodes of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub returns: Vec<(u32, u32)>,
    /// Its status.
    #[serde(skip)]
    pub status: Option<Status>,
    /// Why it ended as it did, for people.
    #[serde(skip)]
    pub reason: String,
    /// The results, as JSON attributes.
    #[serde(skip)]
    pub results: Vec<Value>,
}

impl Entry {
    /// How far it has come.
    pub fn progress(&self) -> Progress {
        Progress::of(self.status.unwrap_or(Status::QUEUED))
    }

    /// The value of a result.
    pub fn result(&self, key: Key) -> Option<&Value> {
        let mut results = self.results.iter();
        let found = results.find(|it| it["key"] == key.name())?;
        found.get("value")
    }

    /// Whether it waits.
    pub fn is_open(&self) -> bool {
        self.status.is_none()
    }

    /// What is to be done.
    pub fn directive(&self) -> Option<Directive> {
        Directive::named(&self.directive)
    }
}

/// Nodes of one kind that a job has lent, by one release.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lend {
    /// The user's id of the release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Nodes lent.
    pub nodes: u32,
    /// Cpus lent of each of them.
    pub cpus: u32,
    /// Gpus lent of each of them.
    pub gpus: u32,
    /// Whether they are lent with all that they have.
    pub whole: bool,
    /// Whether they were the job's own, not granted to a request.
    pub own: bool,
    /// Their names.
    pub hosts: String,
    /// The allocation that they were part of, where it is not the job's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<u64>,
    /// When they are to come back by themselves, seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<f64>,
    /// Nodes that are asked back now.
    #[serde(skip)]
    pub returning: u32,
    /// Nodes that have come back.
    #[serde(skip)]
    pub returned: u32,
}

impl Lend {
    /// Nodes that are lent and not asked for.
    pub fn outstanding(&self) -> u32 {
        self.nodes - self.returned - self.returning
    }

    /// Whether one request can ask for both: nodes of one kind, for one allocation.
    pub fn is_like(&self, other: &Self) -> bool {
        let kind = |it: &Self| (it.target, it.own, it.whole, it.cpus, it.gpus);
        kind(self) == kind(other)
    }
}

/// What an event has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A request waits.
    Began(u32),
    /// A request is over.
    Ended(u32),
    /// A request is over by which something was lent.
    Lent(u32),
    /// Nothing that anybody has to hear of.
    Other,
}

/// The requests and loans of one job. Those that wait, and names, are found without looking at all.
#[derive(Clone, Debug, Default)]
pub struct Account {
    entries: BTreeMap<u32, Entry>,
    /// Those that wait, and those that are over.
    open: BTreeSet<u32>,
    over: BTreeSet<u32>,
    /// When callers wait no longer, in milliseconds, and for which request.
    limits: BTreeSet<(u64, u32)>,
    /// By the user's id, and by the job that stands for them.
    names: HashMap<String, BTreeSet<u32>>,
    allocs: HashMap<u64, u32>,
    lends: BTreeMap<u32, Lend>,
    last: u32,
    /// Loans so far.
    lent: u32,
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

    /// The request that this job stands for.
    pub fn standing(&self, alloc: u64) -> Option<&Entry> {
        self.entry(*self.allocs.get(&alloc)?)
    }

    /// Requests that wait.
    pub fn open(&self) -> impl Iterator<Item = &Entry> {
        self.open.iter().filter_map(|seq| self.entry(*seq))
    }

    /// Requests that wait, and for which the caller waits no longer.
    pub fn late(&self, now: f64) -> impl Iterator<Item = &Entry> {
        let late = self.limits.range(..=(milliseconds(now), u32::MAX));
        let late = late.filter_map(|(_, seq)| self.entry(*seq));
        late.filter(move |it| it.deadline.is_some_and(|limit| limit <= now))
    }

    /// Loans by number.
    pub fn lends(&self) -> impl Iterator<Item = (u32, &Lend)> {
        self.lends.iter().map(|(seq, lend)| (*seq, lend))
    }

    /// The loan with this number.
    pub fn lend(&self, seq: u32) -> Option<&Lend> {
        self.lends.get(&seq)
    }

    /// What to ask back: of the loans with this id, or of all, up to `most` nodes.
    pub fn to_return(&self, id: Option<&str>, most: Option<u32>) -> Vec<(u32, u32)> {
        let mut left = most.unwrap_or(u32::MAX);
        let lends = self.lends.iter();
        let meant = lends.filter(|(_, lend)| id.is_none() || lend.id.as_deref() == id);
        let parts = meant.map(|(seq, lend)| {
            let nodes = lend.outstanding().min(left);
            left -= nodes;
            (*seq, nodes)
        });
        parts.filter(|(_, nodes)| *nodes > 0).collect()
    }

    fn begin(&mut self, entry: Entry) -> Change {
        let seq = entry.seq;
        self.last = self.last.max(seq);
        for (lend, nodes) in &entry.returns {
            if let Some(lend) = self.lends.get_mut(lend) {
                lend.returning += (*nodes).min(lend.outstanding());
            }
        }
        self.open.insert(seq);
        if let Some(limit) = entry.deadline {
            self.limits.insert((milliseconds(limit), seq));
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

    fn again(&mut self, again: &Again) {
        let entry = self.entries.get_mut(&again.seq);
        if let Some(entry) = entry.filter(|it| it.is_open()) {
            if let Some(before) = entry.alloc.replace(again.alloc) {
                self.allocs.remove(&before);
            }
            self.allocs.insert(again.alloc, again.seq);
        }
    }

    fn end(&mut self, ended: Ended) -> Change {
        let entry = self.entries.get_mut(&ended.seq);
        let Some(entry) = entry.filter(|it| it.is_open()) else {
            return Change::Other;
        };
        entry.status = Some(Status(ended.status));
        entry.reason = ended.reason;
        entry.results = ended.results;
        self.open.remove(&ended.seq);
        self.over.insert(ended.seq);
        if let Some(limit) = entry.deadline {
            self.limits.remove(&(milliseconds(limit), ended.seq));
        }
        let mut left = ended.nodes;
        for (lend, nodes) in std::mem::take(&mut entry.returns) {
            if let Some(lend) = self.lends.get_mut(&lend) {
                let nodes = nodes.min(lend.returning);
                let back = nodes.min(left);
                lend.returning -= nodes;
                lend.returned += back;
                left -= back;
            }
        }
        self.lends.retain(|_, lend| lend.returned < lend.nodes);
        self.forget_oldest();
        let mut change = Change::Ended(ended.seq);
        for lend in ended.lent.into_iter().filter(|lend| lend.nodes > 0) {
            self.lent += 1;
            self.lends.insert(self.lent, lend);
            change = Change::Lent(ended.seq);
        }
        change
    }

    fn forget_oldest(&mut self) {
        if self.over.len() <= REMEMBERED {
            return;
        }
        let oldest = self.over.pop_first();
        let Some(oldest) = oldest.and_then(|seq| self.entries.remove(&seq)) else {
            return;
        };
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

/// Whole milliseconds since the epoch.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float out of range saturates"
)]
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}

#[derive(Deserialize)]
struct Ended {
    seq: u32,
    status: i32,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    results: Vec<Value>,
    /// Nodes that were granted: they count against what was asked back.
    #[serde(default)]
    nodes: u32,
    #[serde(default)]
    lent: Vec<Lend>,
}

#[derive(Deserialize)]
struct Again {
    seq: u32,
    alloc: u64,
}

#[derive(Deserialize)]
struct LoanEnd {
    target: u64,
}

/// The accounts of all jobs that have asked for something.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<u64, Account>,
    /// By allocation, the other jobs that have asked for more for it, or lent of it.
    about: BTreeMap<u64, BTreeSet<u64>>,
}

impl Ledger {
    /// The first word of the events that it understands.
    pub const PREFIX: &str = "penstock.";

    /// A job's account.
    pub fn account(&self, job: u64) -> Option<&Account> {
        self.accounts.get(&job)
    }

    /// The jobs that may have asked for more for an allocation that is not their own, or lent of it.
    pub fn about(&self, target: u64) -> impl Iterator<Item = (u64, &Account)> {
        let jobs = self.about.get(&target).into_iter().flatten();
        jobs.filter_map(|job| Some((*job, self.account(*job)?)))
    }

    /// Takes in an event of a job: the only way by which anything changes, live and in replay.
    /// What cannot be read changes nothing.
    pub fn apply(&mut self, job: u64, name: &str, context: Option<&Map<String, Value>>) -> Change {
        fn read<T: serde::de::DeserializeOwned>(context: &Map<String, Value>) -> Option<T> {
            serde_json::from_value(Value::Object(context.clone())).ok()
        }
        let Some(context) = context else {
            return Change::Other;
        };
        let change = match name {
            "penstock.alloc-request" => {
                let entry: Option<Entry> = read(context);
                entry.map(|entry| {
                    if let Some(target) = entry.target {
                        self.about.entry(target).or_default().insert(job);
                    }
                    self.accounts.entry(job).or_default().begin(entry)
                })
            }
            "penstock.alloc-end" => read(context).and_then(|it: Ended| {
                let account = self.accounts.get_mut(&job)?;
                for target in it.lent.iter().filter_map(|lend| lend.target) {
                    self.about.entry(target).or_default().insert(job);
                }
                Some(account.end(it))
            }),
            "penstock.alloc-again" => read(context).and_then(|it: Again| {
                self.accounts.get_mut(&job)?.again(&it);
                Some(Change::Other)
            }),
            "penstock.loan-end" => read(context).and_then(|it: LoanEnd| {
                let account = self.accounts.get_mut(&job)?;
                account
                    .lends
                    .retain(|_, lend| lend.target != Some(it.target));
                Some(Change::Other)
            }),
            _ => None,
        };
        change.unwrap_or(Change::Other)
    }

    /// Forgets a job that is not known any more.
    pub fn forget(&mut self, job: u64) {
        self.accounts.remove(&job);
        self.about.remove(&job);
    }
}
