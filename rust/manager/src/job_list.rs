//! `job-list.list`: rows in parts, so that a listing of very many jobs keeps nobody waiting.
//!
//! A listing is opened by its request and goes on a part at a time, one in each
//! [`Manager::flush`], until it has told all it is to tell. Rows are of the jobs as they are when
//! their part is made; jobs that are submitted meanwhile are not shown.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::filter::Filter;
use crate::info::Cancel;
use crate::job::Job;
use crate::manager::Manager;
use crate::row::{Attrs, row};
use crate::rpc::{self, ENODATA, EPROTO, RequestError};
use crate::state::State;

/// Rows that are made in one turn, by all listings together: a few milliseconds' work.
const ROWS_PER_TURN: usize = 250;
/// Jobs that are looked at in one turn.
const JOBS_PER_TURN: usize = 10_000;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    max_entries: usize,
    #[serde(default)]
    attrs: Vec<String>,
    #[serde(default)]
    since: f64,
    #[serde(default)]
    constraint: Option<Value>,
    ids: Option<Vec<u64>>,
}

/// Which jobs come next.
#[derive(Debug)]
enum Place {
    /// Those with lesser ids, the greatest first.
    Below(Bound<u64>),
    /// Those that were asked for.
    Asked(std::vec::IntoIter<u64>),
}

/// A request with rows to come.
#[derive(Debug)]
struct Listing {
    request: Message,
    filter: Filter,
    since: f64,
    attrs: Attrs,
    /// Rows that it may still have.
    left: usize,
    place: Place,
}

/// What a turn may still cost.
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
    fn shows(&self, job: &Job) -> bool {
        (job.state != State::Inactive || job.t_inactive > self.since) && self.filter.matches(job)
    }

    /// The next rows, and whether they are the last.
    fn part(&mut self, jobs: &BTreeMap<u64, Job>, effort: &mut Effort) -> (Vec<Value>, bool) {
        let mut rows = Vec::new();
        let mut below = match &self.place {
            Place::Below(below) => {
                let range = jobs.range((Bound::Unbounded, *below));
                Some(range.rev())
            }
            Place::Asked(_) => None,
        };
        while self.left > 0 {
            if effort.is_spent() {
                return (rows, false);
            }
            let job = match (&mut below, &mut self.place) {
                (Some(range), place) => range.next().map(|(id, job)| {
                    *place = Place::Below(Bound::Excluded(*id));
                    Some(job)
                }),
                // One may be purged by now.
                (None, Place::Asked(ids)) => ids.next().map(|id| jobs.get(&id)),
                (None, Place::Below(_)) => None,
            };
            let Some(job) = job else {
                break;
            };
            effort.looks -= 1;
            if let Some(job) = job.filter(|job| self.shows(job)) {
                rows.push(Value::Object(row(job, self.attrs)));
                self.left -= 1;
                effort.rows -= 1;
            }
        }
        (rows, true)
    }
}

/// The open listings, in the order of their turns.
#[derive(Debug, Default)]
pub struct Listings {
    open: VecDeque<Listing>,
    /// Peers with much to read already.
    full: BTreeSet<Vec<u8>>,
}

impl Listings {
    /// Whether a peer has much to read already.
    pub(crate) fn is_full(&self, peer: &[u8]) -> bool {
        self.full.contains(peer)
    }

    fn is_held_back(&self, listing: &Listing) -> bool {
        rpc::origin(&listing.request).is_some_and(|origin| self.is_full(origin))
    }

    /// The next listing whose peer has room.
    fn next(&mut self) -> Option<Listing> {
        let mut open = self.open.iter();
        let place = open.position(|listing| !self.is_held_back(listing))?;
        self.open.remove(place)
    }

    /// Drops the listings of a peer that went away.
    pub(crate) fn forget(&mut self, origin: &[u8]) {
        self.open
            .retain(|listing| rpc::origin(&listing.request) != Some(origin));
    }
}

impl Manager {
    /// `job-list.list`: a stream of `{"jobs": [row…]}`, newest job first.
    pub(crate) fn list(&mut self, request: &Message) {
        match self.listing(request) {
            Ok(_) if request.is_noresponse() => {}
            Ok(listing) => self.listings.open.push_back(listing),
            Err(refusal) => self.refuse(request, &refusal),
        }
    }

    fn listing(&self, request: &Message) -> Result<Listing, RequestError> {
        if !request.is_streaming() {
            return Err(RequestError::new(
                EPROTO,
                "job-list.list is a streaming request",
            ));
        }
        let list: List = rpc::payload(request)?;
        let everything = json!({});
        let filter = Filter::parse(list.constraint.as_ref().unwrap_or(&everything))?;
        let mut ids = list.ids.iter().flatten();
        if let Some(id) = ids.find(|id| !self.jobs.contains_key(id)) {
            return Err(self.unknown(*id));
        }
        let mut header = request.clone();
        header.set_payload(None);
        Ok(Listing {
            request: header,
            filter,
            since: list.since,
            attrs: Attrs::named(&list.attrs),
            left: match list.max_entries {
                0 => usize::MAX,
                most => most,
            },
            place: match list.ids {
                Some(ids) => Place::Asked(ids.into_iter()),
                None => Place::Below(Bound::Unbounded),
            },
        })
    }

    /// `job-list.list-cancel`: the listing ends with ENODATA where it is.
    pub(crate) fn list_cancel(&mut self, request: &Message) {
        let cancel: Cancel = match rpc::payload(request) {
            Ok(cancel) => cancel,
            Err(refusal) => return self.refuse(request, &refusal),
        };
        let place = self.listings.open.iter().position(|it| {
            it.request.matchtag == cancel.matchtag
                && rpc::origin(&it.request) == rpc::origin(request)
        });
        if let Some(listing) = place.and_then(|place| self.listings.open.remove(place)) {
            self.refuse(&listing.request, &RequestError::new(ENODATA, ""));
        }
        self.respond(request, None);
    }

    /// One turn: a part of the listing that has waited longest and, where that was its last, of
    /// the ones after it.
    pub(crate) fn list_part(&mut self) {
        let mut effort = Effort {
            rows: ROWS_PER_TURN,
            looks: JOBS_PER_TURN,
        };
        while !effort.is_spent() {
            let Some(mut listing) = self.listings.next() else {
                return;
            };
            let (rows, last) = listing.part(&self.jobs, &mut effort);
            if !rows.is_empty() {
                let payload = json!({ "jobs": rows, "version": 1 });
                self.respond(&listing.request, Some(&payload));
            }
            if last {
                self.refuse(&listing.request, &RequestError::new(ENODATA, ""));
            } else {
                self.listings.open.push_back(listing);
            }
        }
    }

    /// The peers that much may be sent to, as the bottom of their route stacks names them: who
    /// has a listing open, and the scheduler.
    pub fn readers(&self) -> BTreeSet<Vec<u8>> {
        let open = self.listings.open.iter();
        let origins = open.filter_map(|listing| rpc::origin(&listing.request));
        let readers = origins.chain(self.allocator.reader());
        readers.map(<[u8]>::to_vec).collect()
    }

    /// Keeps the listings of these peers, and the requests to them for resources, from going on,
    /// and those of no others.
    pub fn hold_back(&mut self, full: BTreeSet<Vec<u8>>) {
        self.listings.full = full;
    }

    /// Whether the next [`flush`](Self::flush) has more to tell, whatever else happens: there is
    /// an open listing, or a job to ask resources for, that is not held back.
    pub fn has_more(&self) -> bool {
        let mut open = self.listings.open.iter();
        let listing = open.any(|listing| !self.listings.is_held_back(listing));
        listing || self.has_allocs_to_send()
    }
}

/// Rows in one response of a stream.
const ROWS_PER_RESPONSE: usize = 1000;

#[derive(Deserialize)]
struct ListId {
    id: u64,
    #[serde(default)]
    attrs: Vec<String>,
}

#[derive(Deserialize)]
struct Wait {
    ids: Vec<u64>,
}

impl Manager {
    /// `job-list.list-id`: one job.
    pub(crate) fn list_id(&self, request: &Message) -> Result<Value, RequestError> {
        let wanted: ListId = rpc::payload(request)?;
        let job = self.jobs.get(&wanted.id);
        let job = job.ok_or_else(|| self.unknown(wanted.id))?;
        Ok(json!({ "job": row(job, Attrs::named(&wanted.attrs)) }))
    }

    /// `job-list.wait`: each job's row as it becomes inactive, ENODATA when all are.
    pub(crate) fn wait(&mut self, request: &Message) {
        if let Err(refusal) = self.start_wait(request) {
            self.refuse(request, &refusal);
        }
    }

    fn start_wait(&mut self, request: &Message) -> Result<(), RequestError> {
        if !request.is_streaming() {
            return Err(RequestError::new(
                EPROTO,
                "job-list.wait is a streaming request",
            ));
        }
        let wait: Wait = rpc::payload(request)?;
        let mut left = BTreeSet::new();
        let mut over = Vec::new();
        for id in wait.ids {
            let job = self.jobs.get(&id);
            let job = job.ok_or_else(|| self.unknown(id))?;
            if job.state == State::Inactive {
                over.push(Value::Object(row(job, Attrs::ALL)));
            } else {
                left.insert(id);
            }
        }
        for chunk in over.chunks(ROWS_PER_RESPONSE) {
            self.respond(request, Some(&json!({ "jobs": chunk })));
        }
        if left.is_empty() {
            self.refuse(request, &RequestError::new(ENODATA, ""));
        } else {
            self.watchers.wait(request.clone(), left);
        }
        Ok(())
    }
}
