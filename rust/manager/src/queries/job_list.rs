//! `Listings`: `job-list.list` in parts, so that a long listing does not delay other peers.
//!
//! A listing sends one part in each turn until it is complete. Rows show the jobs as they are when
//! their part is made; jobs that are submitted meanwhile are not listed.

use std::collections::VecDeque;
use std::ops::Bound;

use penstock_flux::job_list::{ListIdRequest, ListIdResponse, ListRequest, ListResponse, Row};
use penstock_flux::{RequestError, StreamCancelRequest};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;
use serde_json::{Value, json};

use super::filter::Filter;
use super::row::{Attrs, row};
use crate::context::Context;
use crate::jobs::{HiddenJobs, Job, Jobs};
use crate::rpc::{self, Handled, Reply, Request};
use crate::state::State;

/// Maximum number of rows made in one turn by all listings together: a few milliseconds' work.
const ROWS_PER_TURN: usize = 250;
/// Maximum number of jobs examined in one turn.
const JOBS_PER_TURN: usize = 10_000;

/// The jobs that a listing examines next.
#[derive(Debug)]
enum ListingPosition {
    /// The jobs with smaller ids, the greatest first.
    Below(Bound<JobId>),
    /// The jobs that the request names.
    Named(std::vec::IntoIter<JobId>),
}

/// A request with rows that are still to be sent.
#[derive(Debug)]
struct Listing {
    request: Message,
    filter: Filter,
    since: f64,
    attrs: Attrs,
    /// Number of rows until its limit is reached.
    left: usize,
    position: ListingPosition,
    /// The jobs that were hidden when the request came.
    hidden: HiddenJobs,
}

/// The next rows of a listing.
struct ListingPart {
    rows: Vec<Row>,
    is_last: bool,
}

/// The remaining budget of a turn.
struct Effort {
    rows: usize,
    looks: usize,
}

impl Effort {
    fn is_spent(&self) -> bool {
        self.rows == 0 || self.looks == 0
    }
}

impl Listing {
    fn new(jobs: &Jobs, request: Request<'_>) -> Result<Self, RequestError> {
        let list: ListRequest<'_> = request.payload()?;
        let constraint = list.constraint.map_or("{}", |constraint| constraint.0);
        let constraint: Value = serde_json::from_str(constraint)
            .map_err(|error| RequestError::protocol(error.to_string()))?;
        let filter = match constraint {
            Value::Null => Filter::parse(&json!({}))?,
            constraint => Filter::parse(&constraint)?,
        };
        let mut ids = list.ids.iter().flatten();
        if let Some(id) = ids.find(|id| !jobs.contains(**id)) {
            return Err(jobs.unknown(*id));
        }
        Ok(Self {
            request: request.message.header(),
            filter,
            since: list.since,
            attrs: Attrs::named(&list.attrs),
            left: match list.max_entries {
                0 => usize::MAX,
                max => max,
            },
            position: match list.ids {
                Some(ids) => ListingPosition::Named(ids.into_iter()),
                None => ListingPosition::Below(Bound::Unbounded),
            },
            hidden: jobs.hidden().clone(),
        })
    }

    /// Whether the peer's send buffer is full.
    fn is_backlogged(&self, cx: &Context) -> bool {
        let origin = self.request.origin();
        origin.is_some_and(|origin| cx.backlogged.contains(origin))
    }

    fn shows(&self, job: &Job) -> bool {
        (job.record.state() != State::Inactive || job.record.t_inactive() > self.since)
            && !self.hidden.contains(job.record.id())
            && self.filter.matches(job)
    }

    /// Reads the next rows.
    fn read_rows(&mut self, jobs: &Jobs, effort: &mut Effort) -> ListingPart {
        let mut rows = Vec::new();
        let mut below = match &self.position {
            ListingPosition::Below(below) => {
                let range = jobs.range((Bound::Unbounded, *below));
                Some(range.rev())
            }
            ListingPosition::Named(_) => None,
        };
        while self.left > 0 {
            if effort.is_spent() {
                return ListingPart {
                    rows,
                    is_last: false,
                };
            }
            let job = match (&mut below, &mut self.position) {
                (Some(range), position) => range.next().map(|(id, job)| {
                    *position = ListingPosition::Below(Bound::Excluded(id));
                    Some(job)
                }),
                // A job may have been purged meanwhile.
                (None, ListingPosition::Named(ids)) => ids.next().map(|id| jobs.get(id)),
                (None, ListingPosition::Below(_)) => None,
            };
            let Some(job) = job else {
                break;
            };
            effort.looks -= 1;
            if let Some(job) = job.filter(|job| self.shows(job)) {
                rows.push(row(job, self.attrs));
                self.left -= 1;
                effort.rows -= 1;
            }
        }
        ListingPart {
            rows,
            is_last: true,
        }
    }
}

/// The open listings, in the order of their turns.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    open: VecDeque<Listing>,
}

impl Listings {
    /// `job-list.list`: a stream of `{"jobs": [row…]}`, newest job first.
    pub(crate) fn list(&mut self, cx: &Context, request: Request<'_>) -> Handled {
        let listing = Listing::new(&cx.jobs, request)?;
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

    /// Takes one turn: sends a part of the listing that has waited longest and, if that part was its
    /// last, parts of the next listings.
    pub(crate) fn take_turn(&mut self, cx: &mut Context) {
        let mut effort = Effort {
            rows: ROWS_PER_TURN,
            looks: JOBS_PER_TURN,
        };
        while !effort.is_spent() {
            let mut open = self.open.iter();
            let index = open.position(|listing| !listing.is_backlogged(cx));
            let Some(mut listing) = index.and_then(|index| self.open.remove(index)) else {
                return;
            };
            let ListingPart { rows, is_last } = listing.read_rows(&cx.jobs, &mut effort);
            if !rows.is_empty() {
                let payload = ListResponse {
                    jobs: rows,
                    version: Some(1),
                };
                cx.respond_with(&listing.request, &payload);
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
pub(crate) fn list_id(cx: &Context, request: Request<'_>) -> Handled {
    let list: ListIdRequest<'_> = request.payload()?;
    let job = cx.jobs.get(list.id);
    let job = job.ok_or_else(|| cx.jobs.unknown(list.id))?;
    let row = row(job, Attrs::named(&list.attrs));
    Ok(Reply::of(&ListIdResponse { job: row }))
}
