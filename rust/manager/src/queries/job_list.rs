//! `Listings`: `job-list.list` in parts, so that a long listing does not delay other peers.
//!
//! The open listings send their rows in slices, one for each call of [`Manager::take_messages`](crate::Manager::take_messages).
//! Rows show the jobs as they are when their part is made; jobs that are submitted meanwhile are not listed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use penstock_flux::job_list::{ListIdRequest, ListOrder, ListRequest};
use penstock_flux::{Credentials, RequestError, StreamCancelRequest, errno};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::{Value, json};

use super::criteria::Criteria;
use super::filter::Filter;
use super::row::{Attrs, Rows};
use super::selection::{ExaminedSlices, NewestStep, SelectedJob, Selection, Smallest, predecessor};
use super::slice_budget::SliceBudget;
use crate::authorize::VisibleJobs;
use crate::census::Census;
use crate::context::Context;
use crate::ended::End;
use crate::event::EventTime;
use crate::jobs::{Job, Jobs};
use crate::rotation::Rotation;
use crate::rpc::{self, Handled, Reply, Request};
use crate::state::State;

/// The greatest number of listings of a guest that have begun.
const MAX_BEGUN_OF_GUEST: usize = 4;
/// The number of active jobs that are found for a page by state beyond those that it needs: the first ones may match no longer when
/// their rows are made. A million jobs are examined in a second, in which some 30,000 start.
const SPARE_JOBS: usize = 65_536;
/// The number of ids read at a time.
const IDS_PER_READ: usize = 1000;

/// The jobs that a listing examines next.
#[derive(Debug)]
enum ListingPosition {
    /// The jobs with smaller ids, the greatest first.
    Below(Bound<JobId>),
    /// The greatest id first, which is not the order of the index of inactive jobs.
    Newest,
    /// The next jobs by id are to be found in the index of inactive jobs and among the jobs in memory.
    Searching(NewestStep),
    /// The selected jobs, the greatest id first, and the next selection if there may be more.
    Selected(std::vec::IntoIter<SelectedJob>, Option<Selection>),
    /// The jobs that the request names, and the number of those that were checked: no row is sent unless all exist and
    /// may be listed.
    Unchecked(Vec<JobId>, usize),
    /// The jobs that the request names.
    Named(std::vec::IntoIter<JobId>),
    /// The order of the active jobs is to be found first.
    Ordering(ActiveOrder),
    /// The active jobs in their order, after which come the inactive ones.
    Active(std::vec::IntoIter<JobId>, ExaminedSlices),
    /// The inactive jobs that ended before one, the last to end first, without those that were examined as active jobs.
    Inactive(Option<End>, ExaminedSlices),
}

/// The first active jobs of a listing by state: there is no index of them, which every pending job would pay for.
#[derive(Debug)]
struct ActiveOrder {
    /// The greatest id that is still to be examined; `None` if there is none.
    last: Option<JobId>,
    /// The slices of the examination.
    examined: ExaminedSlices,
    /// The greatest possible number of active jobs among these; `None` before the first slice.
    left: Option<u64>,
    order: ListOrder,
    running: Smallest<(Reverse<EventTime>, JobId)>,
    pending: Smallest<(Reverse<Option<u32>>, JobId)>,
}

impl ActiveOrder {
    fn new(order: ListOrder, limit: usize) -> Self {
        Self {
            last: Some(JobId::new(u64::MAX)),
            examined: ExaminedSlices::default(),
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

    fn into_position(self) -> ListingPosition {
        let running = self.running.sorted().map(|(_, id)| id);
        let pending = self.pending.sorted().map(|(_, id)| id);
        let mut ids: Vec<_> = match self.order {
            ListOrder::State => running.chain(pending).collect(),
            ListOrder::Pending | ListOrder::Newest => pending.chain(running).collect(),
        };
        ids.shrink_to_fit();
        ListingPosition::Active(ids.into_iter(), self.examined)
    }
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
    /// Whether its first part was made.
    has_begun: bool,
    /// The active jobs whose rows were not sent, since they do not match any longer. They may match after their end. `None` but
    /// while a listing by state sends the active jobs.
    unlisted: Option<BTreeSet<JobId>>,
}

/// The next rows of a listing.
struct ListingPart {
    rows: Rows,
    is_last: bool,
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
            (None, ListOrder::Newest) => ListingPosition::Newest,
            (None, order @ (ListOrder::State | ListOrder::Pending)) => {
                let limit = left.saturating_add(list.skip).saturating_add(SPARE_JOBS);
                ListingPosition::Ordering(ActiveOrder::new(order, limit))
            }
        };
        Ok(Self {
            request: request.message.header(),
            criteria: Arc::new(Criteria::new(
                filter,
                list.since,
                cx.jobs.hidden().clone(),
                visible,
            )),
            attrs: Attrs::named(&list.attrs),
            left,
            skip: list.skip,
            position,
            has_begun: false,
            unlisted: None,
        })
    }

    /// Whether the peer's send buffer is full.
    fn is_backlogged(&self, cx: &Context) -> bool {
        let origin = self.request.origin();
        origin.is_some_and(|origin| cx.backlogged.contains(origin))
    }

    /// Whether it counts for its user, once it has begun.
    fn is_guests(&self) -> bool {
        !self.request.credentials().is_owner()
    }

    /// Whether its next part can be sent: its peer reads, and its user is not among those who have no room to begin one.
    fn can_continue(&self, cx: &Context, full_users: &BTreeSet<u32>) -> bool {
        let has_room =
            self.has_begun || !self.is_guests() || !full_users.contains(&self.request.userid);
        has_room && !self.is_backlogged(cx)
    }

    /// Checks the next jobs that the request names. Returns whether these were all.
    fn check(&mut self, cx: &mut Context, budget: &mut SliceBudget) -> Result<bool, RequestError> {
        let ListingPosition::Unchecked(ids, checked) = &mut self.position else {
            return Ok(true);
        };
        while let Some(id) = ids.get(*checked) {
            if budget.is_spent() {
                return Ok(false);
            }
            budget.load_job(cx, *id, &self.criteria);
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
        budget: &mut SliceBudget,
    ) -> Result<ListingPart, RequestError> {
        if !self.check(cx, budget)? {
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
                    if self.take_rows(cx, ids, budget, &mut rows) && self.left > 0 && !is_end {
                        continue;
                    }
                    self.left == 0 || is_end
                }
                // A job may have been purged meanwhile.
                ListingPosition::Unchecked(..) | ListingPosition::Newest => true,
                ListingPosition::Named(ids) | ListingPosition::Active(ids, _) => {
                    self.take_rows(cx, ids.map(|id| (id, None)), budget, &mut rows)
                }
                ListingPosition::Searching(step) => {
                    step.advance(&self.criteria, &cx.jobs, census, budget)
                }
                ListingPosition::Selected(jobs, _) => {
                    let jobs = jobs.map(|job| (job.id.0, job.is_certain.then_some(true)));
                    self.take_rows(cx, jobs, budget, &mut rows)
                }
                ListingPosition::Ordering(order) => self.order(order, &cx.jobs, census, budget),
                ListingPosition::Inactive(next, examined) => {
                    let since = EventTime::new(self.criteria.since);
                    let ended = census.inactive().before(*next);
                    let ended = ended.take_while(|(job, _)| job.end().0 >= since);
                    let ended = ended.inspect(|(job, _)| *next = Some(job.end()));
                    let criteria = Arc::clone(&self.criteria);
                    let ended = ended.map(|(job, submission)| {
                        let shown = if examined.has_ended_since(job.end()) {
                            Some(false)
                        } else {
                            criteria.shows_ended(job, submission, census)
                        };
                        (job.end().1, shown)
                    });
                    self.take_rows(cx, ended, budget, &mut rows)
                }
            };
            if !is_complete {
                self.position = position;
                let is_last = false;
                return Ok(ListingPart { rows, is_last });
            }
            position = match position {
                ListingPosition::Ordering(order) => {
                    let may_match_later = self.criteria.filter.may_match_inactive();
                    self.unlisted = may_match_later.then(BTreeSet::new);
                    order.into_position()
                }
                ListingPosition::Active(_, mut examined)
                    if self.criteria.filter.may_match_inactive() =>
                {
                    examined.unlisted = self.unlisted.take().unwrap_or_default();
                    ListingPosition::Inactive(None, examined)
                }
                ListingPosition::Newest => {
                    let first = NewestStep::first(self.skip, self.left, &cx.jobs);
                    ListingPosition::Searching(first)
                }
                ListingPosition::Searching(NewestStep::Count(counts)) => {
                    let Some(next) = counts.into_step(&mut self.skip, self.left) else {
                        let is_last = true;
                        return Ok(ListingPart { rows, is_last });
                    };
                    ListingPosition::Searching(next)
                }
                ListingPosition::Searching(NewestStep::Select(selection)) => {
                    let (jobs, next) = selection.into_jobs();
                    ListingPosition::Selected(jobs, next)
                }
                ListingPosition::Selected(_, Some(next)) if self.left > 0 => {
                    ListingPosition::Searching(NewestStep::Select(next))
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
        budget: &mut SliceBudget,
        rows: &mut Rows,
    ) -> bool {
        while self.left > 0 {
            if budget.is_spent() {
                return false;
            }
            let Some((id, is_shown)) = jobs.next() else {
                break;
            };
            if is_shown == Some(false) || (is_shown == Some(true) && self.skip > 0) {
                budget.spend_entry(&self.criteria);
                self.skip -= usize::from(is_shown == Some(true));
                continue;
            }
            if is_shown.is_none() && budget.reject_by_row(cx, id, &self.criteria) {
                continue;
            }
            budget.load_job(cx, id, &self.criteria);
            if let Some(job) = cx.jobs.get(id).filter(|job| self.criteria.shows(job)) {
                if self.skip > 0 {
                    self.skip -= 1;
                    continue;
                }
                rows.push(job, self.attrs);
                self.left -= 1;
                budget.rows -= 1;
            } else if let Some(unlisted) = &mut self.unlisted {
                unlisted.insert(id);
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
        budget: &mut SliceBudget,
    ) -> bool {
        let mut left = order.left.unwrap_or_else(|| census.tally(None).active());
        let unexamined = order.last.into_iter();
        for (id, job) in unexamined.flat_map(|last| jobs.range(..=last).rev()) {
            if left == 0 {
                break;
            }
            if budget.is_spent() {
                order.left = Some(left);
                order.examined.end_slice(census, order.last);
                return false;
            }
            order.last = predecessor(id);
            if job.record.t_run() > 0.0 {
                budget.spend_job(&self.criteria);
            } else {
                budget.spend_entry(&self.criteria);
            }
            if job.record.state() != State::Inactive {
                left -= 1;
                if self.criteria.shows(job) {
                    order.add(job);
                }
            }
        }
        order.examined.end_slice(census, None);
        true
    }
}

/// The open listings: of each peer the first one is sent.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    open: Rotation<Listing>,
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
        listing.check(cx, &mut SliceBudget::new())?;
        self.check_unread(cx, request.sender)?;
        if !request.message.is_noresponse() {
            self.open.push(request.origin(), listing);
        }
        Ok(Reply::Deferred)
    }

    /// Checks that a guest's listing can begin some time: that not all which the guest may have are left unread.
    fn check_unread(&self, cx: &Context, sender: Credentials) -> Result<(), RequestError> {
        let begun = || self.begun_of(sender.userid);
        if sender.is_owner()
            || begun().count() < MAX_BEGUN_OF_GUEST
            || !begun().all(|listing| listing.is_backlogged(cx))
        {
            return Ok(());
        }
        let text = format!(
            "{MAX_BEGUN_OF_GUEST} listings of user {} are left unread: expected their clients to read or to disconnect",
            sender.userid
        );
        Err(RequestError::new(errno::EAGAIN, text))
    }

    /// The listings of a user that have begun: each may hold the ids of all active jobs.
    fn begun_of(&self, userid: u32) -> impl Iterator<Item = &Listing> {
        let firsts = self.open.firsts();
        firsts.filter(move |listing| listing.has_begun && listing.request.userid == userid)
    }

    /// The guests who have as many listings that have begun as they may have.
    fn full_users(&self) -> BTreeSet<u32> {
        let mut begun = BTreeMap::<u32, usize>::new();
        for listing in self.open.firsts() {
            if listing.has_begun && listing.is_guests() {
                *begun.entry(listing.request.userid).or_default() += 1;
            }
        }
        let full = begun
            .into_iter()
            .filter(|(_, count)| *count >= MAX_BEGUN_OF_GUEST);
        full.map(|(userid, _)| userid).collect()
    }

    /// `job-list.list-cancel`: ends the listing with ENODATA before its remaining rows.
    pub(crate) fn list_cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let is_named = |listing: &Listing| {
            rpc::is_request_of(&listing.request, request.origin(), cancel.matchtag)
        };
        if let Some(listing) = self.open.remove(is_named) {
            cx.end_stream(&listing.request);
        }
        Ok(Reply::Empty)
    }

    /// Sends a slice: a part of the listing whose peer has waited longest and, if that part was its last, parts of the next
    /// listings.
    pub(crate) fn send_slice(&mut self, cx: &mut Context, census: &Census) {
        let mut budget = SliceBudget::new();
        let mut full = self.full_users();
        while !budget.is_spent() {
            let can_continue = |listing: &Listing| listing.can_continue(cx, &full);
            let Some(mut listing) = self.open.take_next_if(can_continue) else {
                return;
            };
            listing.has_begun = true;
            budget.spend_listing();
            let ListingPart { rows, is_last } = match listing.read_rows(cx, census, &mut budget) {
                Ok(part) => part,
                Err(error) => {
                    cx.reject(&listing.request, &error);
                    full.remove(&listing.request.userid);
                    continue;
                }
            };
            if !rows.is_empty() {
                cx.respond_with_payload(&listing.request, rows.list_payload());
            }
            let is_guests = listing.is_guests();
            if is_last {
                cx.end_stream(&listing.request);
            } else {
                let origin = listing.request.origin().map(<[u8]>::to_vec);
                self.open.put_back(origin.as_deref(), listing);
            }
            // The owner's, of which there may be very many, change nothing in this.
            if is_guests {
                full = self.full_users();
            }
        }
    }

    /// The peers with an open listing.
    pub(crate) fn readers(&self) -> impl Iterator<Item = &[u8]> {
        let firsts = self.open.firsts();
        firsts.filter_map(|listing| listing.request.origin())
    }

    /// Whether a listing can send its next part.
    pub(crate) fn has_more(&self, cx: &Context) -> bool {
        let mut firsts = self.open.firsts();
        let can_be_sent = |listing: &Listing| {
            (listing.has_begun || !listing.is_guests()) && !listing.is_backlogged(cx)
        };
        if firsts.any(can_be_sent) {
            return true;
        }
        let full = self.full_users();
        let mut firsts = self.open.firsts();
        firsts.any(|listing| listing.can_continue(cx, &full))
    }

    /// Drops the listings of a peer that has disconnected.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        self.open.remove_peer(Some(origin));
    }
}

/// `job-list.list-id`: one job's row.
pub(crate) fn list_id(cx: &mut Context, request: Request<'_>, visible: VisibleJobs) -> Handled {
    let list: ListIdRequest<'_> = request.payload()?;
    let job = visible.known(cx, list.id)?;
    let row = Rows::of(job, Attrs::named(&list.attrs));
    Ok(Reply::Payload(row.job_payload()))
}
