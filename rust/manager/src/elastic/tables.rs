//! The state of elastic allocations between messages: postponed returns, parts, probes, timers and
//! streams.

use std::collections::{BTreeMap, BTreeSet};

use penstock_elastic::Entry;
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use super::naming::{is_named, report};
use crate::context::{Context, milliseconds, seconds};
use crate::effect::{ProbeId, RequestKey};

/// Seconds after which a scheduler that is not probed, or rejects the probe, counts as having no free resources.
pub(super) const DECISION_TIMEOUT_S: f64 = 2.0;
/// Seconds after which a scheduler that does not answer a probe counts as having none. A busy one may be slow.
pub(super) const PROBE_TIMEOUT_S: f64 = 30.0;

/// Seconds until a denied or cancelled return is requested again. The interval doubles each time.
const RETRY_INTERVAL_S: f64 = 60.0;
/// The longest interval.
const MAX_RETRY_INTERVAL_S: f64 = 3600.0;

/// The identity of a loan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LoanKey {
    /// The lender.
    pub(super) job: JobId,
    /// The number of the loan among those of the job.
    pub(super) loan: u32,
}

/// A loan whose return was denied or cancelled.
#[derive(Clone, Debug)]
pub(super) struct PostponedReturn {
    /// When it is requested again, seconds since the epoch.
    pub(super) until: f64,
    /// The interval before that, in seconds.
    interval: f64,
    /// Why the last request failed.
    pub(super) reason: String,
}

/// Postponed returns of all loans.
#[derive(Debug, Default)]
pub(super) struct PostponedReturns(BTreeMap<LoanKey, PostponedReturn>);

impl PostponedReturns {
    /// The postponed return of a loan.
    pub(super) fn of(&self, loan: LoanKey) -> Option<&PostponedReturn> {
        self.0.get(&loan)
    }

    /// Postpones the return of a loan, for twice as long as the last time. Returns until when.
    pub(super) fn postpone(&mut self, loan: LoanKey, now: f64, reason: &str) -> f64 {
        let interval = self.0.get(&loan).map_or(RETRY_INTERVAL_S, |before| {
            (before.interval * 2.0).min(MAX_RETRY_INTERVAL_S)
        });
        let until = now + interval;
        let postponed = PostponedReturn {
            until,
            interval,
            reason: reason.to_owned(),
        };
        self.0.insert(loan, postponed);
        until
    }

    /// Forgets the postponed return of a loan.
    pub(super) fn forget(&mut self, loan: LoanKey) {
        self.0.remove(&loan);
    }

    /// Removes all, and returns their loans.
    pub(super) fn take(&mut self) -> impl Iterator<Item = LoanKey> + use<> {
        std::mem::take(&mut self.0).into_keys()
    }

    /// Forgets the loans of a purged job.
    pub(super) fn forget_job(&mut self, job: JobId) {
        self.0.retain(|loan, _| loan.job != job);
    }
}

/// Per first request job: the request jobs of the further parts.
#[derive(Debug, Default)]
pub(super) struct Parts(BTreeMap<JobId, BTreeSet<JobId>>);

impl Parts {
    /// Adds the request job of a further part.
    pub(super) fn insert(&mut self, first: JobId, id: JobId) {
        self.0.entry(first).or_default().insert(id);
    }

    /// The request job of the last part requested so far, given that of the first.
    pub(super) fn last(&self, first: JobId) -> JobId {
        let others = self.0.get(&first);
        others.and_then(BTreeSet::last).copied().unwrap_or(first)
    }

    /// The request jobs of all parts requested so far, given that of the first.
    pub(super) fn all(&self, first: JobId) -> Vec<JobId> {
        let others = self.0.get(&first).into_iter().flatten();
        std::iter::once(first).chain(others.copied()).collect()
    }

    /// Whether this has all parts that `replayed` has, except those of purged requests.
    #[cfg(debug_assertions)]
    pub(super) fn agrees_with(&self, replayed: &Self) -> bool {
        replayed.0.iter().all(|(first, ids)| {
            let known = self.0.get(first);
            known.is_none_or(|known| ids.is_subset(known))
        })
    }

    /// Forgets the parts of a request whose first request job is purged.
    pub(super) fn forget(&mut self, first: JobId) {
        self.0.remove(&first);
    }
}

/// The request jobs about which the scheduler is to be probed, or has been.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// Request jobs whose resources were requested since the last probe.
    pub(super) unprobed: BTreeSet<JobId>,
    /// When a request job that is decided at once counts as denied, seconds since the epoch.
    pub(super) decide_by: BTreeMap<JobId, f64>,
    /// The request jobs of each outstanding probe.
    pub(super) outstanding: BTreeMap<ProbeId, BTreeSet<JobId>>,
    last: ProbeId,
}

impl Probes {
    /// Queues a probe about a request job, for which resources were requested.
    pub(super) fn queue(&mut self, id: JobId) {
        self.unprobed.insert(id);
    }

    /// Begins a probe about request jobs.
    pub(super) fn begin(&mut self, due: BTreeSet<JobId>) -> ProbeId {
        self.last.0 += 1;
        self.outstanding.insert(self.last, due);
        self.last
    }

    /// Begins the time in which a scheduler without probes is to decide about a request job. Returns its end.
    pub(super) fn await_decision(&mut self, id: JobId, now: f64) -> f64 {
        let by = now + DECISION_TIMEOUT_S;
        self.decide_by.insert(id, by);
        by
    }

    /// By when the scheduler is to decide about a request job.
    pub(super) fn decide_by(&self, id: JobId) -> Option<f64> {
        self.decide_by.get(&id).copied()
    }

    /// Ends the time in which the scheduler is to decide about a request job, which is allocated or has ended.
    pub(super) fn end_decision(&mut self, id: JobId) {
        self.decide_by.remove(&id);
    }

    /// Takes a request job out of outstanding probes.
    pub(super) fn withdraw(&mut self, id: JobId) {
        for probed in self.outstanding.values_mut() {
            probed.remove(&id);
        }
    }

    /// Forgets the probes of a scheduler that has gone. Returns the request jobs of outstanding ones.
    pub(super) fn clear(&mut self) -> BTreeSet<JobId> {
        self.unprobed.clear();
        let outstanding = std::mem::take(&mut self.outstanding);
        outstanding.into_values().flatten().collect()
    }
}

/// The acceptable share of the requested time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeShare {
    /// All of it.
    Whole,
    /// The available share: the caller's timeout has expired.
    Available,
}

/// Denied time requests, pending until their timeout.
#[derive(Debug, Default)]
pub(super) struct TimeRequests {
    pub(super) denied: BTreeSet<RequestKey>,
}

impl TimeRequests {
    /// Forgets a request that has ended.
    pub(super) fn forget(&mut self, key: RequestKey) {
        self.denied.remove(&key);
    }
}

/// A timer of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    /// Milliseconds since the epoch.
    due_ms: u64,
    job: JobId,
}

impl Timer {
    fn at(time: f64, job: JobId) -> Self {
        // Rounded up: the timer must not expire before the time has been reached.
        let due_ms = milliseconds(time).saturating_add(1);
        Self { due_ms, job }
    }
}

/// The timers of all jobs, the earliest first.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<Timer>);

impl Timers {
    /// Sets a timer of a job at `time`, seconds since the epoch.
    pub(super) fn set(&mut self, time: f64, job: JobId) {
        self.0.insert(Timer::at(time, job));
    }

    /// Whether a timer of a job is set at `time`, or was due at `now`.
    #[cfg(debug_assertions)]
    pub(super) fn has(&self, time: f64, job: JobId, now: f64) -> bool {
        let timer = Timer::at(time, job);
        timer.due_ms <= milliseconds(now) || self.0.contains(&timer)
    }

    /// Removes a timer that is due at `now`, and returns its job.
    pub(super) fn pop_due(&mut self, now: f64) -> Option<JobId> {
        let first = self.0.first()?;
        if first.due_ms > milliseconds(now) {
            return None;
        }
        self.0.pop_first().map(|timer| timer.job)
    }

    /// When the next timer is due, seconds since the epoch.
    pub(super) fn deadline(&self) -> Option<f64> {
        self.0.first().map(|timer| seconds(timer.due_ms))
    }
}

/// A `pmix.events` stream: requests that have ended, of one job.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) message: Message,
    pub(super) job: JobId,
    /// The name of the one request that it reports; `None` for all.
    pub(super) id: Option<String>,
}

impl Watch {
    pub(super) fn is_about(&self, job: JobId, entry: &Entry) -> bool {
        self.job == job && is_named(entry, self.id.as_deref())
    }
}

/// The outstanding `pmix.alloc` and `pmix.events`.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// The `pmix.alloc` of each open request, unless its caller has gone.
    pub(super) callers: BTreeMap<RequestKey, Message>,
    pub(super) watches: Vec<Watch>,
}

impl Listeners {
    /// Adds the caller of a request, which waits for its end.
    pub(super) fn await_end(&mut self, key: RequestKey, caller: Message) {
        self.callers.insert(key, caller);
    }

    /// Whether the caller of a request waits for its end.
    pub(super) fn is_awaited(&self, key: RequestKey) -> bool {
        self.callers.contains_key(&key)
    }

    /// Removes the caller of a request.
    pub(super) fn take_caller(&mut self, key: RequestKey) -> Option<Message> {
        self.callers.remove(&key)
    }

    /// Reports a request that has ended to the streams that are about it.
    pub(super) fn notify(&self, cx: &mut Context, job: JobId, entry: &Entry) {
        let event = report(entry);
        for watch in &self.watches {
            if watch.is_about(job, entry) {
                cx.respond_with(&watch.message, &event);
            }
        }
    }

    /// Drops the calls and streams of a peer that has disconnected.
    pub(super) fn disconnect(&mut self, origin: &[u8]) {
        let is_theirs = |message: &Message| message.origin() == Some(origin);
        self.watches.retain(|watch| !is_theirs(&watch.message));
        self.callers.retain(|_, caller| !is_theirs(caller));
    }
}
