//! `pmix.events`: who wants to hear of requests that are over, of all of a job or of one.

use penstock_elastic::{Account, Entry, Key};
use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::info::Cancel;
use crate::manager::Manager;
use crate::rpc::{self, ENODATA, EPROTO, RequestError};
use crate::state::State;

/// One stream.
#[derive(Debug)]
pub struct Watch {
    request: Message,
    job: u64,
    id: Option<String>,
}

#[derive(Deserialize)]
struct Events {
    job: u64,
    id: Option<String>,
}

impl Watch {
    fn wants(&self, job: u64, entry: &Entry) -> bool {
        self.job == job && is_meant(entry, self.id.as_deref())
    }
}

/// Whether a name means a request: the user's id, or the job that stands for it.
pub(super) fn is_meant(entry: &Entry, name: Option<&str>) -> bool {
    let Some(name) = name else {
        return true;
    };
    let alloc = name.parse::<Fluid>().ok().map(|it| it.0);
    entry.id.as_deref() == Some(name) || (alloc.is_some() && entry.alloc == alloc)
}

/// The newest request that a name means.
pub(super) fn named<'a>(account: &'a Account, name: &str) -> Option<&'a Entry> {
    let alloc = name.parse::<Fluid>().ok();
    let standing = alloc.and_then(|it| account.standing(it.0));
    let both = [account.named(name), standing];
    both.into_iter().flatten().max_by_key(|it| it.seq)
}

/// The allocation that a request was granted or is about; before that the job that stands for it.
pub(super) fn alloc_of(entry: &Entry) -> Option<String> {
    let granted = entry.result(Key::AllocId).and_then(Value::as_str);
    let stands = || entry.alloc.map(|it| Fluid(it).to_string());
    granted.map(str::to_owned).or_else(stands)
}

fn told(entry: &Entry) -> Value {
    json!({
        "id": entry.id,
        "alloc": alloc_of(entry),
        "directive": entry.directive,
        "status": entry.status.map_or(0, |it| it.0),
        "reason": entry.reason,
        "results": entry.results,
    })
}

impl Manager {
    /// Streams the requests that are over, those of before first, until the job ends.
    pub(crate) fn pmix_events(&mut self, request: &Message) {
        if let Err(refusal) = self.start_events(request) {
            self.refuse(request, &refusal);
        }
    }

    fn start_events(&mut self, request: &Message) -> Result<(), RequestError> {
        if !request.is_streaming() {
            return Err(RequestError::new(
                EPROTO,
                "pmix.events is a streaming request",
            ));
        }
        let events: Events = rpc::payload(request)?;
        self.may_see(request, events.job)?;
        let watch = Watch {
            request: request.clone(),
            job: events.job,
            id: events.id,
        };
        let account = self.elastic.ledger.account(watch.job);
        let over = account.into_iter().flat_map(Account::entries);
        let over = over.filter(|it| !it.is_open() && watch.wants(watch.job, it));
        let over: Vec<Value> = over.map(told).collect();
        for event in over {
            self.respond(request, Some(&event));
        }
        let state = self.jobs.get(&watch.job).map(|it| it.state);
        if state == Some(State::Inactive) {
            return Err(RequestError::new(ENODATA, ""));
        }
        self.elastic.watches.push(watch);
        Ok(())
    }

    /// A request is over.
    pub(super) fn tell_watches(&mut self, job: u64, seq: u32) {
        let account = self.elastic.ledger.account(job);
        let Some(entry) = account.and_then(|it| it.entry(seq)) else {
            return;
        };
        let watches = self.elastic.watches.iter();
        let watches = watches.filter(|it| it.wants(job, entry));
        let event = told(entry);
        let answers = watches.map(|it| rpc::answer(&it.request, Some(&event)));
        self.out.extend(answers.collect::<Vec<_>>());
    }

    /// A job is over: so are the streams of its requests.
    pub(crate) fn end_watches(&mut self, job: u64) {
        if self.elastic.watches.is_empty() {
            return;
        }
        let watches = std::mem::take(&mut self.elastic.watches);
        let (over, left) = watches.into_iter().partition(|it| it.job == job);
        self.elastic.watches = left;
        let over: Vec<Watch> = over;
        for watch in over {
            self.refuse(&watch.request, &RequestError::new(ENODATA, ""));
        }
    }

    /// `pmix.events-cancel`: the stream ends.
    pub(crate) fn pmix_events_cancel(&mut self, request: &Message) {
        let cancel: Cancel = match rpc::payload(request) {
            Ok(cancel) => cancel,
            Err(refusal) => return self.refuse(request, &refusal),
        };
        let is_it = |watch: &Watch| {
            let same = rpc::origin(&watch.request) == rpc::origin(request);
            same && watch.request.matchtag == cancel.matchtag
        };
        let place = self.elastic.watches.iter().position(is_it);
        if let Some(place) = place {
            let ended = self.elastic.watches.swap_remove(place);
            self.refuse(&ended.request, &RequestError::new(ENODATA, ""));
        }
        self.respond(request, None);
    }

    /// `pmix.alloc-cancel`: who asked listens no more; the request goes on.
    pub(crate) fn pmix_alloc_cancel(&mut self, request: &Message) -> Result<Value, RequestError> {
        let cancel: Cancel = rpc::payload(request)?;
        let is_it = |caller: &Message| {
            let same = rpc::origin(caller) == rpc::origin(request);
            same && caller.matchtag == cancel.matchtag
        };
        let mut callers = self.elastic.callers.iter();
        let number = callers.find(|(_, it)| is_it(it)).map(|(number, _)| *number);
        if let Some(caller) = number.and_then(|it| self.elastic.callers.remove(&it))
            && caller.is_streaming()
        {
            self.refuse(&caller, &RequestError::new(ENODATA, ""));
        }
        Ok(Value::Null)
    }

    /// A peer went away: nobody is there to be answered. What it asked for goes on.
    pub(crate) fn forget_callers(&mut self, origin: &[u8]) {
        let theirs = |request: &Message| rpc::origin(request) == Some(origin);
        self.elastic.watches.retain(|it| !theirs(&it.request));
        self.elastic.callers.retain(|_, it| !theirs(it));
    }
}
