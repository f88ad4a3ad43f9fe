//! `Listings`: `job-list.list` in parts, so that a long listing does not delay other peers.
//!
//! The open listings send their rows in slices, one for each call of [`Manager::take_messages`](crate::Manager::take_messages).
//! Rows show the jobs as they are when their part is made; jobs that are submitted meanwhile are not listed.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use penstock_flux::job_list::{ListIdRequest, ListOrder, ListRequest};
use penstock_flux::{RequestError, StreamCancelRequest};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::{Value, json};

use super::filter::Filter;
use super::row::{Attrs, Rows};
use crate::authorize::VisibleJobs;
use crate::census::Census;
use crate::context::Context;
use crate::ended::{End, EndedJob};
use crate::event::EventTime;
use crate::jobs::{HiddenJobs, Job, Jobs};
use crate::rpc::{self, Handled, Reply, Request};
use crate::state::State;

/// Maximum number of rows in one slice, of all listings together: a few milliseconds' work.
const ROWS_PER_SLICE: usize = 250;
/// Maximum number of entries of the index of inactive jobs that are examined in one slice.
const LOOKS_PER_SLICE: usize = 12_500;
/// A job in memory takes as long as this many entries.
const LOOKS_PER_JOB: usize = 5;
/// To compare the hosts of a job with those of a filter takes as long as this many entries for each byte of the filter's text.
const LOOKS_PER_BYTE: usize = 1;
/// To read a job from the store takes as long as this many entries more.
const LOOKS_PER_READ_JOB: usize = 400;
/// The number of ids read at a time.
const IDS_PER_READ: usize = 1000;
/// The number of jobs that a listing selects at a time, before it reads them.
const SELECTED_JOBS: usize = if cfg!(debug_assertions) { 8 } else { 20_000 };

/// The jobs that a listing examines next.
#[derive(Debug)]
enum ListingPosition {
    /// The jobs with smaller ids, the greatest first.
    Below(Bound<JobId>),
    /// The next jobs by id are to be selected from the index of inactive jobs and the jobs in memory.
    Selecting(Selection),
    /// The selected jobs, the greatest id first, and the bound of the next selection if there may be more.
    Selected(std::vec::IntoIter<SelectedJob>, Option<Bound<JobId>>),
    /// The jobs that the request names, and the number of those that were checked: no row is sent unless all exist and
    /// may be listed.
    Unchecked(Vec<JobId>, usize),
    /// The jobs that the request names.
    Named(std::vec::IntoIter<JobId>),
    /// The order of the active jobs is to be found first.
    Ordering(ActiveOrder),
    /// The active jobs in their order, after which come the inactive ones.
    Active(std::vec::IntoIter<JobId>),
    /// The inactive jobs that ended before one, the last to end first.
    Inactive(Option<End>),
}

/// The first active jobs of a listing by state: there is no index of them, which every pending job would pay for.
#[derive(Debug)]
struct ActiveOrder {
    /// The jobs with smaller ids are still to be examined.
    below: Bound<JobId>,
    /// The greatest possible number of active jobs among these; `None` before the first slice.
    left: Option<u64>,
    order: ListOrder,
    running: Smallest<(Reverse<EventTime>, JobId)>,
    pending: Smallest<(Reverse<Option<u32>>, JobId)>,
}

impl ActiveOrder {
    fn new(order: ListOrder, limit: usize) -> Self {
        Self {
            below: Bound::Unbounded,
            left: None,
            order,
            running: Smallest::new(limit),
            pending: Smallest::new(limit),
        }
    }

    fn add(&mut self, job: &Job) {
        let record = &job.record;
        match record.state() {
            State::Inactive => {}
            State::Run | State::Cleanup => {
                let start = Reverse(EventTime::new(record.t_run()));
                self.running.add((start, record.id()));
            }
            State::Sched => {
                let priority = Reverse(Some(record.priority()));
                self.pending.add((priority, record.id()));
            }
            State::New | State::Depend | State::Priority => {
                self.pending.add((Reverse(None), record.id()));
            }
        }
    }

    fn into_ids(self) -> std::vec::IntoIter<JobId> {
        let running = self.running.sorted().map(|(_, id)| id);
        let pending = self.pending.sorted().map(|(_, id)| id);
        let ids: Vec<_> = match self.order {
            ListOrder::State => running.chain(pending).collect(),
            ListOrder::Pending | ListOrder::Newest => pending.chain(running).collect(),
        };
        ids.into_iter()
    }
}

/// A job that a listing may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SelectedJob {
    id: Reverse<JobId>,
    /// The index tells that the listing shows it.
    is_certain: bool,
}

/// The jobs with the greatest ids below a bound that a listing may show. Every inactive job is looked at, but not read.
#[derive(Debug)]
struct Selection {
    below: Bound<JobId>,
    /// The jobs in memory that are still to be examined; `None` if all have been.
    in_memory: Option<Bound<JobId>>,
    /// The last inactive job that was examined.
    ended: Option<End>,
    jobs: Smallest<SelectedJob>,
}

impl Selection {
    fn new(below: Bound<JobId>) -> Self {
        Self {
            below,
            in_memory: Some(below),
            ended: None,
            jobs: Smallest::new(SELECTED_JOBS),
        }
    }

    fn has(&self, id: JobId) -> bool {
        (Bound::Unbounded, self.below).contains(&id)
    }

    fn into_position(self) -> ListingPosition {
        let mut jobs: Vec<SelectedJob> = self.jobs.sorted().collect();
        let next = (jobs.len() >= SELECTED_JOBS)
            .then(|| jobs.last().map(|job| Bound::Excluded(job.id.0)))
            .flatten();
        // A job that ended a moment ago is in memory, too.
        jobs.dedup_by_key(|job| job.id);
        ListingPosition::Selected(jobs.into_iter(), next)
    }
}

/// The smallest of some keys, at most `limit`.
#[derive(Debug)]
struct Smallest<K> {
    limit: usize,
    keys: Vec<K>,
}

impl<K: Ord> Smallest<K> {
    fn new(limit: usize) -> Self {
        let keys = Vec::new();
        Self { limit, keys }
    }

    /// Whether it has `limit` keys: one that is greater than all of them would be left out.
    fn is_full(&self) -> bool {
        self.keys.len() >= self.limit
    }

    fn add(&mut self, key: K) {
        self.keys.push(key);
        if self.keys.len() / 2 >= self.limit {
            self.keys.select_nth_unstable(self.limit - 1);
            self.keys.truncate(self.limit);
        }
    }

    fn sorted(mut self) -> impl Iterator<Item = K> {
        self.keys.sort();
        self.keys.into_iter().take(self.limit)
    }
}

/// The jobs that a request lists.
#[derive(Debug)]
struct Criteria {
    filter: Filter,
    /// The costs of an entry of the index of inactive jobs, and of a job in memory: see [`Effort`].
    looks_per_entry: usize,
    looks_per_job: usize,
    since: f64,
    /// The jobs that were hidden when the request came.
    hidden: HiddenJobs,
    /// The jobs that the sender may list.
    visible: VisibleJobs,
}

/// A request with rows that are still to be sent.
#[derive(Debug)]
struct Listing {
    request: Message,
    criteria: Arc<Criteria>,
    attrs: Attrs,
    /// Number of rows until its limit is reached.
    left: usize,
    /// Number of jobs to leave out before the first row.
    skip: usize,
    position: ListingPosition,
}

/// The next rows of a listing.
struct ListingPart {
    rows: Rows,
    is_last: bool,
}

/// The remaining budget of a slice.
struct Effort {
    rows: usize,
    looks: usize,
}

impl Effort {
    fn new() -> Self {
        Self {
            rows: ROWS_PER_SLICE,
            looks: LOOKS_PER_SLICE,
        }
    }

    fn is_spent(&self) -> bool {
        self.rows == 0 || self.looks == 0
    }

    /// Counts what an entry of the index of inactive jobs costs.
    fn spend_entry(&mut self, criteria: &Criteria) {
        self.looks = self.looks.saturating_sub(criteria.looks_per_entry);
    }

    /// Counts what a job in memory costs.
    fn spend_job(&mut self, criteria: &Criteria) {
        self.looks = self.looks.saturating_sub(criteria.looks_per_job);
    }

    /// Has a job in memory, if it exists, and counts that.
    fn spend_look(&mut self, cx: &mut Context, id: JobId, criteria: &Criteria) {
        self.spend_job(criteria);
        if !cx.jobs.is_in_memory(id) {
            cx.unload_surplus();
            cx.load(id);
            self.looks = self.looks.saturating_sub(LOOKS_PER_READ_JOB);
        }
    }
}

impl Criteria {
    fn shows(&self, job: &Job) -> bool {
        (job.record.state() != State::Inactive || job.record.t_inactive() > self.since)
            && !self.hidden.contains(job.record.id())
            && self.visible.contain(&job.record)
            && self.filter.matches(job)
    }

    /// Whether the listing shows an inactive job, as far as its entry in the index tells; `None` if it is to be read.
    fn shows_ended(&self, job: EndedJob, census: &Census) -> Option<bool> {
        let (end, id) = job.end;
        let class = census.class_of(job)?;
        if end.seconds() <= self.since
            || self.hidden.contains(id)
            || !self.visible.contain_those_of(class.userid)
        {
            return Some(false);
        }
        self.filter.matches_ended(job, class)
    }
}

impl Listing {
    fn new(
        cx: &mut Context,
        request: Request<'_>,
        visible: VisibleJobs,
    ) -> Result<Self, RequestError> {
        let list: ListRequest<'_> = request.payload()?;
        let constraint = list.constraint.map_or("{}", |constraint| constraint.0);
        let constraint: Value = serde_json::from_str(constraint)
            .map_err(|error| RequestError::protocol(error.to_string()))?;
        let filter = match constraint {
            Value::Null => Filter::parse(&json!({}))?,
            constraint => Filter::parse(&constraint)?,
        };
        let left = match list.max_entries {
            0 => usize::MAX,
            max => max,
        };
        let position = match (list.ids, list.order) {
            (Some(_), ListOrder::State) => {
                let text = "`ids` and `order` exclude each other";
                return Err(RequestError::invalid(text.to_owned()));
            }
            (Some(ids), ListOrder::Pending | ListOrder::Newest) => {
                ListingPosition::Unchecked(ids, 0)
            }
            (None, ListOrder::Newest)
                if !filter.may_match_inactive()
                    || (list.skip == 0 && filter.matches_all() && visible.are_all()) =>
            {
                ListingPosition::Below(Bound::Unbounded)
            }
            (None, ListOrder::Newest) => {
                ListingPosition::Selecting(Selection::new(Bound::Unbounded))
            }
            (None, order @ (ListOrder::State | ListOrder::Pending)) => {
                let limit = left.saturating_add(list.skip);
                ListingPosition::Ordering(ActiveOrder::new(order, limit))
            }
        };
        Ok(Self {
            request: request.message.header(),
            criteria: Arc::new(Criteria {
                looks_per_entry: filter.operators(),
                looks_per_job: LOOKS_PER_JOB * filter.operators()
                    + LOOKS_PER_BYTE * filter.text_size(),
                filter,
                since: list.since,
                hidden: cx.jobs.hidden().clone(),
                visible,
            }),
            attrs: Attrs::named(&list.attrs),
            left,
            skip: list.skip,
            position,
        })
    }

    /// Whether the peer's send buffer is full.
    fn is_backlogged(&self, cx: &Context) -> bool {
        let origin = self.request.origin();
        origin.is_some_and(|origin| cx.backlogged.contains(origin))
    }

    /// Selects jobs from the index of inactive jobs and from those in memory. Returns whether all have been examined.
    fn select(
        &self,
        selection: &mut Selection,
        jobs: &Jobs,
        census: &Census,
        effort: &mut Effort,
    ) -> bool {
        // A job that ends meanwhile is among those in memory that were examined first.
        if let Some(below) = selection.in_memory {
            for (id, job) in jobs.range((Bound::Unbounded, below)).rev() {
                if effort.is_spent() {
                    return false;
                }
                if selection.jobs.is_full() {
                    break;
                }
                effort.spend_job(&self.criteria);
                selection.in_memory = Some(Bound::Excluded(id));
                if self.criteria.shows(job) {
                    let (id, is_certain) = (Reverse(id), false);
                    selection.jobs.add(SelectedJob { id, is_certain });
                }
            }
            selection.in_memory = None;
        }
        let since = EventTime::new(self.criteria.since);
        for job in census.inactive().before(selection.ended) {
            if effort.is_spent() {
                return false;
            }
            effort.spend_entry(&self.criteria);
            let (end, id) = job.end;
            if end < since {
                break;
            }
            selection.ended = Some(job.end);
            let shown = self.criteria.shows_ended(job, census);
            if selection.has(id) && shown != Some(false) {
                let (id, is_certain) = (Reverse(id), shown == Some(true));
                selection.jobs.add(SelectedJob { id, is_certain });
            }
        }
        true
    }

    /// Checks the next jobs that the request names. Returns whether these were all.
    fn check(&mut self, cx: &mut Context, effort: &mut Effort) -> Result<bool, RequestError> {
        let ListingPosition::Unchecked(ids, checked) = &mut self.position else {
            return Ok(true);
        };
        while let Some(id) = ids.get(*checked) {
            if effort.is_spent() {
                return Ok(false);
            }
            effort.spend_look(cx, *id, &self.criteria);
            self.criteria.visible.known(cx, *id)?;
            *checked += 1;
        }
        self.position = ListingPosition::Named(std::mem::take(ids).into_iter());
        Ok(true)
    }

    /// Reads the next rows. Fails if the request names a job that does not exist or may not be listed.
    fn read_rows(
        &mut self,
        cx: &mut Context,
        census: &Census,
        effort: &mut Effort,
    ) -> Result<ListingPart, RequestError> {
        if !self.check(cx, effort)? {
            let (rows, is_last) = (Rows::default(), false);
            return Ok(ListingPart { rows, is_last });
        }
        let mut rows = Rows::default();
        let none = ListingPosition::Named(Vec::new().into_iter());
        let mut position = std::mem::replace(&mut self.position, none);
        loop {
            let is_complete = match &mut position {
                ListingPosition::Below(below) => {
                    let ids = self.ids_below(cx, *below);
                    let is_end = ids.is_empty();
                    let ids = ids.into_iter();
                    let ids = ids.inspect(|id| *below = Bound::Excluded(*id));
                    let ids = ids.map(|id| (id, None));
                    if self.take_rows(cx, ids, effort, &mut rows) && self.left > 0 && !is_end {
                        continue;
                    }
                    self.left == 0 || is_end
                }
                // A job may have been purged meanwhile.
                ListingPosition::Unchecked(..) => true,
                ListingPosition::Named(ids) | ListingPosition::Active(ids) => {
                    self.take_rows(cx, ids.map(|id| (id, None)), effort, &mut rows)
                }
                ListingPosition::Selecting(selection) => {
                    self.select(selection, &cx.jobs, census, effort)
                }
                ListingPosition::Selected(jobs, _) => {
                    let jobs = jobs.map(|job| (job.id.0, job.is_certain.then_some(true)));
                    self.take_rows(cx, jobs, effort, &mut rows)
                }
                ListingPosition::Ordering(order) => self.order(order, &cx.jobs, census, effort),
                ListingPosition::Inactive(next) => {
                    let since = EventTime::new(self.criteria.since);
                    let ended = census.inactive().before(*next);
                    let ended = ended.take_while(|job| job.end.0 >= since);
                    let ended = ended.inspect(|job| *next = Some(job.end));
                    let criteria = Arc::clone(&self.criteria);
                    let ended = ended.map(|job| (job.end.1, criteria.shows_ended(job, census)));
                    self.take_rows(cx, ended, effort, &mut rows)
                }
            };
            if !is_complete {
                self.position = position;
                let is_last = false;
                return Ok(ListingPart { rows, is_last });
            }
            position = match position {
                ListingPosition::Ordering(order) => ListingPosition::Active(order.into_ids()),
                ListingPosition::Active(_) if self.criteria.filter.may_match_inactive() => {
                    ListingPosition::Inactive(None)
                }
                ListingPosition::Selecting(selection) => selection.into_position(),
                ListingPosition::Selected(_, Some(next)) if self.left > 0 => {
                    ListingPosition::Selecting(Selection::new(next))
                }
                _ => {
                    let is_last = true;
                    return Ok(ListingPart { rows, is_last });
                }
            };
        }
    }

    /// The next jobs with smaller ids that the listing may show, the greatest first; none if these were all.
    fn ids_below(&self, cx: &Context, below: Bound<JobId>) -> Vec<JobId> {
        if self.criteria.filter.may_match_inactive() {
            let before = match below {
                Bound::Excluded(id) | Bound::Included(id) => Some(id),
                Bound::Unbounded => None,
            };
            return cx.read_store(|store| store.ids_before(before, IDS_PER_READ));
        }
        let jobs = cx.jobs.range((Bound::Unbounded, below)).rev();
        jobs.map(|(id, _)| id).take(IDS_PER_READ).collect()
    }

    /// Makes rows of jobs, each with whether the listing shows it if that is known. Returns whether these were all, or all
    /// that the limit allows.
    fn take_rows(
        &mut self,
        cx: &mut Context,
        mut jobs: impl Iterator<Item = (JobId, Option<bool>)>,
        effort: &mut Effort,
        rows: &mut Rows,
    ) -> bool {
        while self.left > 0 {
            if effort.is_spent() {
                return false;
            }
            let Some((id, is_shown)) = jobs.next() else {
                break;
            };
            if is_shown == Some(false) || (is_shown == Some(true) && self.skip > 0) {
                effort.spend_entry(&self.criteria);
                self.skip -= usize::from(is_shown == Some(true));
                continue;
            }
            effort.spend_look(cx, id, &self.criteria);
            if let Some(job) = cx.jobs.get(id).filter(|job| self.criteria.shows(job)) {
                if self.skip > 0 {
                    self.skip -= 1;
                    continue;
                }
                rows.push(job, self.attrs);
                self.left -= 1;
                effort.rows -= 1;
            }
        }
        true
    }

    /// Puts active jobs in order. Returns whether these were all.
    fn order(
        &self,
        order: &mut ActiveOrder,
        jobs: &Jobs,
        census: &Census,
        effort: &mut Effort,
    ) -> bool {
        let mut left = order.left.unwrap_or_else(|| census.tally(None).active());
        for (id, job) in jobs.range((Bound::Unbounded, order.below)).rev() {
            if left == 0 {
                break;
            }
            if effort.is_spent() {
                order.left = Some(left);
                return false;
            }
            order.below = Bound::Excluded(id);
            if job.record.t_run() > 0.0 {
                effort.spend_job(&self.criteria);
            } else {
                effort.spend_entry(&self.criteria);
            }
            if job.record.state() != State::Inactive {
                left -= 1;
                if self.criteria.shows(job) {
                    order.add(job);
                }
            }
        }
        true
    }
}

/// The open listings, the one that sends next first.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    open: VecDeque<Listing>,
}

impl Listings {
    /// `job-list.list`: a stream of `{"jobs": [row…]}`, in the order of Flux unless the request has an `order`.
    pub(crate) fn list(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        visible: VisibleJobs,
    ) -> Handled {
        let mut listing = Listing::new(cx, request, visible)?;
        listing.check(cx, &mut Effort::new())?;
        if !request.message.is_noresponse() {
            self.open.push_back(listing);
        }
        Ok(Reply::Deferred)
    }

    /// `job-list.list-cancel`: ends the listing with ENODATA before its remaining rows.
    pub(crate) fn list_cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let is_named = |listing: &Listing| {
            rpc::is_request_of(&listing.request, request.origin(), cancel.matchtag)
        };
        let index = self.open.iter().position(is_named);
        if let Some(listing) = index.and_then(|index| self.open.remove(index)) {
            cx.end_stream(&listing.request);
        }
        Ok(Reply::Empty)
    }

    /// Sends a slice: a part of the listing that has waited longest and, if that part was its
    /// last, parts of the next listings.
    pub(crate) fn send_slice(&mut self, cx: &mut Context, census: &Census) {
        let mut effort = Effort::new();
        while !effort.is_spent() {
            let mut open = self.open.iter();
            let index = open.position(|listing| !listing.is_backlogged(cx));
            let Some(mut listing) = index.and_then(|index| self.open.remove(index)) else {
                return;
            };
            let ListingPart { rows, is_last } = match listing.read_rows(cx, census, &mut effort) {
                Ok(part) => part,
                Err(error) => {
                    cx.reject(&listing.request, &error);
                    continue;
                }
            };
            if !rows.is_empty() {
                cx.respond_with_payload(&listing.request, rows.list_payload());
            }
            if is_last {
                cx.end_stream(&listing.request);
            } else {
                self.open.push_back(listing);
            }
        }
    }

    /// The peers with an open listing.
    pub(crate) fn readers(&self) -> impl Iterator<Item = &[u8]> {
        let open = self.open.iter();
        open.filter_map(|listing| listing.request.origin())
    }

    /// Whether a listing can send its next part.
    pub(crate) fn has_more(&self, cx: &Context) -> bool {
        let mut open = self.open.iter();
        open.any(|listing| !listing.is_backlogged(cx))
    }

    /// Drops the listings of a peer that has disconnected.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        let open = &mut self.open;
        open.retain(|listing| listing.request.origin() != Some(origin));
    }
}

/// `job-list.list-id`: one job's row.
pub(crate) fn list_id(cx: &mut Context, request: Request<'_>, visible: VisibleJobs) -> Handled {
    let list: ListIdRequest<'_> = request.payload()?;
    let job = visible.known(cx, list.id)?;
    let row = Rows::of(job, Attrs::named(&list.attrs));
    Ok(Reply::Payload(row.job_payload()))
}
