//! `Purger`: removes inactive jobs from memory and store, on request and by the configured limits, removes expired tokens of
//! submissions, and returns the space of the store to the file system, in slices, so that it does not delay other peers.
//!
//! A job is not removed while jobs depend on it: their submission and their release take slices, too, and need its facts.

use std::collections::{BTreeSet, VecDeque};

use penstock_flux::job_manager::{PurgeIdRequest, PurgeRequest, PurgeResponse};
use penstock_flux::{RequestError, errno};
use penstock_jobspec::job_id::JobId;
use penstock_store::Error;
use penstock_wire::Message;

use crate::authorize::{self, PermittedJob, PermittedUser};
use crate::census::{Census, end_of};
use crate::context::Context;
use crate::depend::Dependencies;
use crate::effect::Effect;
use crate::ended::{End, EndedJob};
use crate::event::EventTime;
use crate::ingest::Submissions;
use crate::jobspecs;
use crate::meta::MetaKey;
use crate::rpc::{Handled, Reply, Request};
use crate::state::State;

/// The greatest purged id, which must not be allotted again.
pub(crate) const MAX_PURGED: MetaKey<JobId> = MetaKey {
    name: "max_purged",
    parse: |text| text.parse().ok().map(JobId::new),
    expected: "a job id",
};

/// Seconds between two checks of the limits.
const PURGE_INTERVAL_S: f64 = 1.0;
/// Maximum number of jobs removed in one slice: half a millisecond's work if their ids are consecutive.
const JOBS_PER_SLICE: usize = 250;
/// For each job that a slice has removed, at most this many are removed next: they may be longer.
const NEXT_PER_REMOVED: usize = 4;
/// The number of pages of the store, free after a removal, with which a slice ends: 2 MiB.
const MAX_PAGES_FREED_PER_SLICE: u64 = 512;
/// Maximum number of named jobs checked in one slice, which are read from the store: a millisecond's work.
const JOBS_CHECKED_PER_SLICE: usize = 50;
/// The greatest number of purges of a guest at a time.
const MAX_OPEN_OF_GUEST: usize = 4;
/// Maximum number of inactive jobs that one slice compares with the named ones, or with a user: less than a millisecond's work.
const JOBS_COMPARED_PER_SLICE: usize = if cfg!(debug_assertions) { 300 } else { 10_000 };
/// To read a job from the store takes as long as to compare this many.
const COMPARISONS_PER_READ: usize = 400;
/// The number of removed jobs after which the store is swept of what it has of ended jobs, at least.
const PURGED_JOBS_PER_SWEEP: usize = 16_384;
/// One of this many inactive jobs must have been removed since the sweep before, too: a sweep looks at all others.
const INACTIVE_JOBS_PER_PURGED: usize = 8;
/// Maximum number of rows swept in one slice, each of many ended jobs: less than a millisecond's work.
const ROWS_PER_SLICE: u32 = 32;
/// Maximum number of free pages of the store released in one slice: some milliseconds' work.
const PAGES_PER_SLICE: u64 = 100;
/// Seconds between two slices of released pages: no request waits for them.
const RELEASE_INTERVAL_S: f64 = 0.05;

/// All that depends on inactive jobs, none of which is purged meanwhile: jobs that are still to be released, and submissions
/// whose jobs have not entered their dependencies.
pub(crate) struct Dependents<'a> {
    pub(crate) dependencies: &'a Dependencies,
    pub(crate) submissions: &'a Submissions,
}

impl Dependents<'_> {
    /// Whether a job has dependents that the next slices release, or add.
    pub(crate) fn has(&self, id: JobId) -> bool {
        self.dependencies.has_dependents(id) || self.submissions.refer_to(id)
    }

    /// Whether a submission refers to a job of which parts are missing: a purge leaves the job out, rather than depend on the
    /// client that has them.
    pub(crate) fn are_to_come(&self, id: JobId) -> bool {
        self.submissions.incomplete_refer_to(id)
    }
}

/// The state of purging.
#[derive(Debug)]
pub(crate) struct Purger {
    /// Purged jobs, for modules with state of their own for each job.
    purged: Vec<JobId>,
    /// When the limits were last checked and nothing in excess was left.
    checked: f64,
    /// Requests with jobs that are still to be removed, the one whose slice is next in front.
    open: VecDeque<OpenPurge>,
    /// When the next free pages of the store are to be released; `None` if there are none.
    release_due: Option<f64>,
    /// Pages that were released.
    released_pages: u64,
    /// Jobs that were removed since the store was last swept of what it has of ended jobs.
    unswept: usize,
    /// The last row that the present sweep has looked at; `None` between two sweeps.
    swept: Option<i64>,
    /// Maximum number of jobs removed in one slice.
    jobs_per_slice: usize,
}

/// The jobs that a request is still to remove.
#[derive(Debug)]
enum Selection {
    /// The jobs that were checked, and the ones that are to be checked: none is removed unless all are inactive.
    Unchecked(Vec<End>, std::vec::IntoIter<JobId>),
    /// The same of very many jobs, which are looked up in the list of inactive jobs before others are read.
    Compared(Comparison),
    /// These.
    Named(VecDeque<End>),
    /// The oldest inactive jobs, up to this one.
    Oldest(End),
    /// The jobs of a user, which are still to be found.
    OfUser(UserScan),
}

impl Selection {
    /// Takes the next jobs, of `count` at most, without those that have dependents: these stay for the next call, unless the
    /// dependents are to come. Returns whether none is left, too.
    fn take(
        &mut self,
        census: &Census,
        dependents: &Dependents<'_>,
        count: usize,
    ) -> (Vec<End>, bool) {
        let is_taken = |(_, id): &End| !dependents.are_to_come(*id);
        let (next, is_short) = match self {
            Self::Unchecked(..) | Self::Compared(_) | Self::OfUser(_) => (Vec::new(), true),
            Self::Named(jobs) => {
                let next = jobs.drain(..count.min(jobs.len()));
                let next: Vec<End> = next.filter(is_taken).collect();
                (next, jobs.is_empty())
            }
            Self::Oldest(last) => {
                let oldest = census.inactive().iter();
                let oldest = oldest.take_while(|end| end <= last).filter(is_taken);
                let next: Vec<End> = oldest.take(count).collect();
                let is_short = next.len() < count;
                (next, is_short)
            }
        };
        let is_removable = |(_, id): &End| !dependents.has(*id);
        let (jobs, others): (Vec<End>, Vec<End>) = next.into_iter().partition(is_removable);
        let is_last = is_short && others.is_empty();
        if let Self::Named(left) = self {
            left.extend(others);
        }
        (jobs, is_last)
    }

    /// Has the next call of [`Selection::take`] take these jobs again, which were not removed.
    fn put_back(&mut self, left: &[End]) {
        if let Self::Named(jobs) = self {
            for job in left.iter().rev() {
                jobs.push_front(*job);
            }
        }
    }
}

/// A search for the inactive jobs of a user, the oldest first, of which limits exclude the newest.
#[derive(Debug)]
struct UserScan {
    userid: u32,
    limits: Excess,
    found: Vec<End>,
    /// The last inactive job that was looked at.
    last: Option<End>,
    /// The last one at the begin of the search.
    newest: Option<End>,
}

impl UserScan {
    fn begin(census: &Census, userid: u32, limits: Excess) -> Self {
        let newest = census.inactive().before(None).next();
        Self {
            userid,
            limits,
            found: Vec::new(),
            last: None,
            newest: newest.map(|(job, _)| job.end()),
        }
    }

    /// Looks at the next jobs. Returns whether these were all.
    fn advance(&mut self, census: &Census) -> bool {
        let later = census.inactive().after(self.last);
        let newest = self.newest;
        let later = later.take_while(|job| Some(job.end()) <= newest);
        let before = self.last;
        for job in later.take(JOBS_COMPARED_PER_SLICE) {
            self.last = Some(job.end());
            let class = census.class_of(job);
            if class.is_some_and(|class| class.userid == self.userid) {
                self.found.push(job.end());
            }
        }
        self.last == before || self.last >= self.newest
    }

    /// The jobs in excess of the limits.
    fn take_excess(&mut self, now: f64) -> Vec<End> {
        let mut found = std::mem::take(&mut self.found);
        let until = |time| found.partition_point(|(end, _)| *end <= time);
        let count = self.limits.count_of(found.len(), until, now);
        found.truncate(count);
        found
    }
}

/// A comparison of the inactive jobs, the newest first, with the named ones.
#[derive(Debug)]
struct Comparison {
    found: Vec<End>,
    wanted: BTreeSet<JobId>,
    /// The last inactive job that was compared.
    last: Option<End>,
}

impl Comparison {
    /// Compares the next jobs, of a user or of all. Returns whether these were all.
    fn advance(&mut self, census: &Census, of: Option<u32>) -> bool {
        let is_permitted = |job: EndedJob| {
            let class = census.class_of(job);
            of.is_none_or(|userid| class.is_some_and(|class| class.userid == userid))
        };
        let mut compared = 0;
        let earlier = census.inactive().before(self.last);
        for (job, _) in earlier.take(JOBS_COMPARED_PER_SLICE) {
            let end = job.end();
            self.last = Some(end);
            if is_permitted(job) && self.wanted.remove(&end.1) {
                self.found.push(end);
            }
            compared += 1;
        }
        compared < JOBS_COMPARED_PER_SLICE || self.wanted.is_empty()
    }
}

/// A request with jobs that are still to be removed.
#[derive(Debug)]
struct OpenPurge {
    request: Message,
    selection: Selection,
    /// Whether it removes the jobs, or counts them only.
    force: bool,
    /// Number of jobs that it has removed.
    count: u64,
    /// The user whose jobs it removes; `None` for those of all users.
    of: Option<u32>,
    /// The number of inactive jobs of that user, if it removes some of all these.
    of_user: Option<u64>,
}

impl OpenPurge {
    /// Creates a request. With `force` 0 it counts the jobs only.
    fn new(request: &Message, selection: Selection, force: i64, of: Option<u32>) -> Self {
        Self {
            request: request.header(),
            selection,
            force: force != 0,
            count: 0,
            of,
            of_user: None,
        }
    }

    /// The response when a number of jobs are removed, or are counted.
    fn response(&self, count: u64, census: &Census) -> PurgeResponse {
        let removed = if self.force { count } else { 0 };
        let inactives = match self.of_user {
            Some(all) => all.saturating_sub(removed),
            None => census.inactive().len() as u64,
        };
        PurgeResponse { count, inactives }
    }

    fn is_unchecked(&self) -> bool {
        matches!(
            self.selection,
            Selection::Unchecked(..) | Selection::Compared(_)
        )
    }
}

/// The limits on inactive jobs.
#[derive(Debug)]
struct Excess {
    /// Older than this, in seconds.
    age: Option<f64>,
    /// More than this.
    num: Option<u64>,
}

impl Excess {
    /// The limits of the configuration, without that of the age while the clock may be wrong.
    fn configured(cx: &Context) -> Self {
        let age = cx.settings.inactive_age_limit;
        Self {
            age: (age > 0.0 && !cx.may_clock_be_wrong()).then_some(age),
            num: u64::try_from(cx.settings.inactive_num_limit).ok(),
        }
    }

    /// The number of jobs in excess, which are the oldest ones.
    fn count(&self, census: &Census, now: f64) -> usize {
        let inactive = census.inactive();
        self.count_of(inactive.len(), |time| inactive.count_until(time), now)
    }

    /// The same of a number of jobs, of which `until` returns how many ended at a time or before.
    fn count_of(&self, jobs: usize, until: impl FnOnce(EventTime) -> usize, now: f64) -> usize {
        let num = self
            .num
            .map(|num| usize::try_from(num).unwrap_or(usize::MAX));
        let surplus = num.map_or(0, |num| jobs.saturating_sub(num));
        let old = self.age.map_or(0, |age| until(EventTime::new(now - age)));
        surplus.max(old)
    }
}

impl Purger {
    pub(crate) fn new(cx: &Context) -> Self {
        Self {
            purged: Vec::new(),
            checked: 0.0,
            open: VecDeque::new(),
            // Jobs may have been purged before the start.
            release_due: cx.has_excess_pages().then_some(cx.now),
            released_pages: 0,
            unswept: 0,
            swept: None,
            jobs_per_slice: JOBS_PER_SLICE,
        }
    }

    /// Sets the number of jobs removed in one slice.
    pub(crate) fn set_slice(&mut self, jobs: usize) {
        self.jobs_per_slice = jobs;
    }

    /// `job-manager.purge`: removes inactive jobs, or counts the jobs that would be removed. A purge for all users is the instance
    /// owner's.
    pub(crate) fn purge(
        &mut self,
        cx: &mut Context,
        census: &mut Census,
        dependents: &Dependents<'_>,
        request: Request<'_>,
        user: &PermittedUser,
    ) -> Handled {
        let purge: PurgeRequest = request.payload()?;
        let of = authorize::purged_user(request.sender, purge.userid, user);
        self.check_open(request)?;
        let selection = if let Some(ids) = purge.ids {
            if purge.age_limit.is_some() || purge.num_limit.is_some() {
                let text = "expected either `ids` or limits";
                return Err(RequestError::invalid(text));
            }
            if ids.len() > census.inactive().len() / COMPARISONS_PER_READ + JOBS_CHECKED_PER_SLICE {
                Selection::Compared(Comparison {
                    found: Vec::new(),
                    wanted: ids.into_iter().collect(),
                    last: None,
                })
            } else {
                Selection::Unchecked(Vec::new(), ids.into_iter())
            }
        } else {
            // Without a key for a limit all inactive jobs go. Flux's command always sends both: -1 is no limit, and
            // without one no job goes.
            let is_all = purge.age_limit.is_none() && purge.num_limit.is_none();
            check_limits(&purge)?;
            let age = purge.age_limit.filter(|age| *age >= 0.0);
            let num = purge.num_limit.and_then(|num| u64::try_from(num).ok());
            let num = num.or(is_all.then_some(0));
            let limits = Excess { age, num };
            if let Some(userid) = of {
                Selection::OfUser(UserScan::begin(census, userid, limits))
            } else {
                let count = limits.count(census, cx.now);
                let last = count
                    .checked_sub(1)
                    .and_then(|index| census.inactive().get(index));
                match last.filter(|_| purge.force) {
                    Some(last) => Selection::Oldest(last),
                    None => return Ok(Reply::of(&response(count as u64, census))),
                }
            }
        };
        let open = OpenPurge::new(request.message, selection, purge.force.into(), of);
        self.begin(cx, census, dependents, open)
    }

    /// Checks that a guest has few purges in progress: each looks at all inactive jobs.
    fn check_open(&self, request: Request<'_>) -> Result<(), RequestError> {
        let userid = request.sender.userid;
        let open = self.users().filter(|other| *other == userid).count();
        if request.sender.is_owner() || open < MAX_OPEN_OF_GUEST {
            return Ok(());
        }
        let text = format!(
            "user {userid} has {open} purges in progress: expected less than {MAX_OPEN_OF_GUEST}"
        );
        Err(RequestError::new(errno::EAGAIN, text))
    }

    /// `job-manager.purge-id`: removes one inactive job, or counts it.
    pub(crate) fn purge_id(
        &mut self,
        cx: &mut Context,
        census: &mut Census,
        dependents: &Dependents<'_>,
        request: Request<'_>,
        job: &PermittedJob,
    ) -> Handled {
        let PurgeIdRequest { force, .. } = request.payload()?;
        self.check_open(request)?;
        let selection = Selection::Unchecked(Vec::new(), vec![job.id()].into_iter());
        let open = OpenPurge::new(request.message, selection, force, None);
        self.begin(cx, census, dependents, open)
    }

    fn begin(
        &mut self,
        cx: &mut Context,
        census: &mut Census,
        dependents: &Dependents<'_>,
        mut open: OpenPurge,
    ) -> Handled {
        if !self.is_checking()
            && let Some(response) = self.run_slice(cx, census, dependents, &mut open)?
        {
            return Ok(Reply::of(&response));
        }
        self.open.push_back(open);
        Ok(Reply::Deferred)
    }

    /// Checks or removes the next jobs of a request. Returns the response if these were the last.
    fn run_slice(
        &mut self,
        cx: &mut Context,
        census: &mut Census,
        dependents: &Dependents<'_>,
        open: &mut OpenPurge,
    ) -> Result<Option<PurgeResponse>, RequestError> {
        if let Selection::OfUser(scan) = &mut open.selection {
            if !scan.advance(census) {
                return Ok(None);
            }
            open.of_user = Some(scan.found.len() as u64);
            let jobs = scan.take_excess(cx.now);
            if !open.force {
                return Ok(Some(open.response(jobs.len() as u64, census)));
            }
            open.selection = Selection::Named(jobs.into());
        }
        if let Selection::Compared(comparison) = &mut open.selection {
            if comparison.advance(census, open.of) {
                // An active job is among the rest, an unknown one, that of another user, or one that has ended meanwhile.
                let found = std::mem::take(&mut comparison.found);
                let rest = std::mem::take(&mut comparison.wanted).into_iter();
                let rest = rest.collect::<Vec<_>>().into_iter();
                open.selection = Selection::Unchecked(found, rest);
            } else {
                return Ok(None);
            }
        }
        if let Selection::Unchecked(jobs, ids) = &mut open.selection {
            let limit = cx.read_limit();
            for _ in 0..JOBS_CHECKED_PER_SLICE {
                if limit.is_reached(cx) {
                    break;
                }
                let Some(id) = ids.next() else {
                    break;
                };
                jobs.push(inactive(cx, id, open.of)?);
            }
            if !ids.as_slice().is_empty() {
                return Ok(None);
            }
            jobs.sort_unstable();
            jobs.dedup();
            let jobs = std::mem::take(jobs);
            if !open.force {
                return Ok(Some(open.response(jobs.len() as u64, census)));
            }
            open.selection = Selection::Named(jobs.into());
        }
        let selection = &mut open.selection;
        let (jobs, is_last) = selection.take(census, dependents, self.jobs_per_slice);
        let (removed, left) = self.remove_next(cx, census, &jobs);
        open.count += removed;
        if !left.is_empty() {
            selection.put_back(left);
            return Ok(None);
        }
        Ok(is_last.then(|| open.response(open.count, census)))
    }

    /// Whether a request has jobs that are to be checked. No job is removed until then, or the check would not find it.
    fn is_checking(&self) -> bool {
        self.open.iter().any(OpenPurge::is_unchecked)
    }

    /// Checks the next jobs of a request, or removes those of the one that has waited longest.
    fn run_next_slice(
        &mut self,
        cx: &mut Context,
        census: &mut Census,
        dependents: &Dependents<'_>,
    ) {
        let unchecked = self.open.iter().position(OpenPurge::is_unchecked);
        let Some(mut open) = self.open.remove(unchecked.unwrap_or_default()) else {
            return;
        };
        match self.run_slice(cx, census, dependents, &mut open) {
            Ok(Some(response)) => cx.respond_with(&open.request, &response),
            Ok(None) => self.open.push_back(open),
            Err(error) => cx.reject(&open.request, &error),
        }
    }

    /// Removes the first of some jobs, as many as a slice can. Returns the number of those that were removed, and the jobs
    /// that are left.
    fn remove_next<'a>(
        &mut self,
        cx: &mut Context,
        census: &mut Census,
        jobs: &'a [End],
    ) -> (u64, &'a [End]) {
        let (mut removed, mut left, mut count) = (0, jobs, 1);
        let before = cx.free_pages();
        while !left.is_empty() {
            let (next, rest) = left.split_at(count.min(left.len()));
            removed += self.remove(cx, census, next);
            left = rest;
            let freed = cx.free_pages().saturating_sub(before);
            let Some(unfreed) = MAX_PAGES_FREED_PER_SLICE.checked_sub(freed.max(1)) else {
                break;
            };
            // As many as fit if they are as long as these.
            let done = jobs.len() - left.len();
            let fitting = (done as u64).saturating_mul(unfreed) / freed.max(1);
            let fitting = usize::try_from(fitting).unwrap_or(usize::MAX);
            count = fitting.clamp(1, NEXT_PER_REMOVED * done);
        }
        (removed, left)
    }

    /// Removes jobs. Returns their number.
    fn remove(&mut self, cx: &mut Context, census: &mut Census, jobs: &[End]) -> u64 {
        if jobs.is_empty() {
            return 0;
        }
        // Some may have been purged meanwhile.
        let known = jobs.iter().filter(|end| census.purge(**end));
        let ids: Vec<JobId> = known.map(|(_, id)| *id).collect();
        // Events that were just logged must not be written after the removal.
        cx.write_events();
        let before = cx.jobs.greatest_purged();
        for (id, key) in cx.remove_jobs(&ids) {
            match cx.jobs.purge(id) {
                Some(job) => jobspecs::release(cx, job.record.into_spec()),
                None => jobspecs::release_evicted(cx, key),
            }
            cx.add_effect(Effect::Purged(id));
            self.purged.push(id);
        }
        if self.release_due.is_none() {
            self.release_due = cx.has_excess_pages().then_some(cx.now + RELEASE_INTERVAL_S);
        }
        let greatest = cx.jobs.greatest_purged();
        if greatest > before {
            let greatest = greatest.get().to_string();
            cx.store_meta(MAX_PURGED.name, &greatest);
        }
        self.unswept += ids.len();
        let left = census.inactive().len();
        if left == 0 || self.unswept >= PURGED_JOBS_PER_SWEEP.max(left / INACTIVE_JOBS_PER_PURGED) {
            self.unswept = 0;
            // Rows that the present sweep has passed may be unused now.
            self.swept = Some(i64::MIN);
        }
        ids.len() as u64
    }

    /// Looks at the next rows of ended jobs in the store, and removes those of which all jobs were purged.
    fn sweep(&mut self, cx: &mut Context) {
        if let Some(after) = self.swept {
            self.swept = cx.remove_unused_ended(after, Some(ROWS_PER_SLICE));
        }
    }

    /// Removes the next jobs of a request, and jobs that exceed the configured limits, and releases free pages of the
    /// store, as far as each is due.
    pub(crate) fn advance(
        &mut self,
        cx: &mut Context,
        census: &mut Census,
        dependents: &Dependents<'_>,
    ) {
        self.run_next_slice(cx, census, dependents);
        self.apply_limits(cx, census, dependents);
        cx.remove_expired_tokens();
        self.sweep(cx);
        if self.release_due.is_some_and(|time| time <= cx.now) {
            let released = cx.release_pages(PAGES_PER_SLICE);
            self.released_pages += released;
            let has_more = released > 0 && cx.has_excess_pages();
            self.release_due = has_more.then_some(cx.now + RELEASE_INTERVAL_S);
        }
    }

    fn apply_limits(&mut self, cx: &mut Context, census: &mut Census, dependents: &Dependents<'_>) {
        let due = self.limits_deadline(cx, census);
        if self.is_checking() || due.is_none_or(|time| time > cx.now) {
            return;
        }
        let excess = Excess::configured(cx).count(census, cx.now);
        let oldest = census.inactive().iter().take(excess);
        let oldest = oldest.filter(|(_, id)| !dependents.are_to_come(*id));
        let mut jobs: Vec<End> = oldest.take(self.jobs_per_slice).collect();
        let is_last = jobs.len() < self.jobs_per_slice;
        jobs.retain(|(_, id)| !dependents.has(*id));
        let (_, left) = self.remove_next(cx, census, &jobs);
        if is_last && left.is_empty() {
            self.checked = cx.now;
        }
    }

    /// When [`advance`](Self::advance) is due next, seconds since the epoch.
    pub(crate) fn deadline(&self, cx: &Context, census: &Census) -> Option<f64> {
        if self.is_open() || self.swept.is_some() {
            return Some(cx.now);
        }
        let times = [
            self.limits_deadline(cx, census),
            self.release_due,
            cx.token_expiry,
        ];
        times.into_iter().flatten().min_by(f64::total_cmp)
    }

    /// The users whose requests are open.
    pub(crate) fn users(&self) -> impl Iterator<Item = u32> {
        let requests = self.open.iter();
        requests.map(|open| open.request.credentials().userid)
    }

    /// The number of open requests of a peer.
    pub(crate) fn open_of(&self, origin: &[u8]) -> usize {
        let of_peer = |open: &&OpenPurge| open.request.origin() == Some(origin);
        self.open.iter().filter(of_peer).count()
    }

    /// Whether a request is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Pages of the store that were released since the start.
    pub(crate) fn released_pages(&self) -> u64 {
        self.released_pages
    }

    /// When the limits next require a removal, seconds since the epoch.
    fn limits_deadline(&self, cx: &Context, census: &Census) -> Option<f64> {
        let inactive = census.inactive();
        let Excess { age, num } = Excess::configured(cx);
        let soonest = self.checked + PURGE_INTERVAL_S;
        if num.is_some_and(|num| inactive.len() as u64 > num) {
            return Some(soonest);
        }
        let oldest = inactive.iter().next().map(|(end, _)| end.seconds())?;
        let age = age?;
        // One more millisecond, since the difference of two times is rounded.
        Some((oldest + age + 0.001).max(soonest))
    }

    /// Takes the jobs purged since the last call.
    pub(crate) fn take_purged(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.purged)
    }
}

/// Checks that each limit is -1, for none, or at least 0.
fn check_limits(purge: &PurgeRequest) -> Result<(), RequestError> {
    let is_valid = |limit: f64| limit >= 0.0 || limit.to_bits() == (-1.0_f64).to_bits();
    let age = purge.age_limit.filter(|age| !is_valid(*age));
    if let Some(age) = age {
        let text = format!("the age limit must be at least 0 s, or -1 for none, not {age}");
        return Err(RequestError::invalid(text));
    }
    let num = purge.num_limit.filter(|num| *num < -1);
    if let Some(num) = num {
        let text = format!("the num limit must be at least 0, or -1 for none, not {num}");
        return Err(RequestError::invalid(text));
    }
    Ok(())
}

/// The response to a request that removes or counts this number of jobs.
fn response(count: u64, census: &Census) -> PurgeResponse {
    let inactives = census.inactive().len() as u64;
    PurgeResponse { count, inactives }
}

/// The end of a named job, which must be inactive, and that of a user if there is one.
fn inactive(cx: &mut Context, id: JobId, of: Option<u32>) -> Result<End, RequestError> {
    cx.unload_surplus();
    cx.load(id);
    let record = cx.jobs.record(id).ok_or_else(|| cx.jobs.unknown(id))?;
    authorize::check_purged(of, record)?;
    if record.state() != State::Inactive {
        let text = format!("job {id} is active");
        return Err(RequestError::invalid(text));
    }
    Ok(end_of(record))
}

/// Restores from the store which ids must not be allotted again, and when a token expires.
pub(crate) fn restore(cx: &mut Context) -> Result<(), Error> {
    cx.find_token_expiry();
    let Some(greatest) = cx.read_meta(&MAX_PURGED)? else {
        return Ok(());
    };
    cx.jobs.set_greatest_purged(greatest);
    cx.reserve_id(greatest);
    Ok(())
}
