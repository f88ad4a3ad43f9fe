//! Streams that stay open: followers of an eventlog, and those who wait for jobs to end.

use std::collections::{BTreeMap, BTreeSet};

use penstock_wire::Message;
use serde_json::{Value, json};

use crate::census::Census;
use crate::job::Job;
use crate::row::{self, Attrs};
use crate::rpc::{self, ENODATA, RequestError};

/// A request that waits for several jobs.
#[derive(Debug)]
struct Wait {
    request: Message,
    left: BTreeSet<u64>,
}

/// The open streams.
#[derive(Debug, Default)]
pub struct Watchers {
    /// Followers of eventlogs, by job.
    eventlogs: BTreeMap<u64, Vec<Message>>,
    /// Waits by number, and each job that is waited for with the number of a wait for it.
    waits: BTreeMap<u64, Wait>,
    waited: BTreeSet<(u64, u64)>,
    next: u64,
    /// Those who wait for a queue to be without active jobs, or without running ones, by what they
    /// wait for: however many there are, each tally is looked at once.
    quiet: BTreeMap<Quiet, Vec<Message>>,
}

/// What `drain` and `idle` wait for, in one queue or in all.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quiet {
    pub queue: Option<String>,
    /// Running jobs alone count.
    pub running: bool,
}

impl Quiet {
    fn is_reached(&self, census: &Census) -> bool {
        let tally = census.tally(self.queue.as_deref());
        let left = if self.running {
            tally.running()
        } else {
            tally.active()
        };
        left == 0
    }
}

/// Whether this is the request that `matchtag` of a peer means.
fn is_of(request: &Message, origin: &[u8], matchtag: u32) -> bool {
    request.matchtag == matchtag && rpc::origin(request) == Some(origin)
}

fn end(request: &Message) -> Message {
    rpc::refuse(request, &RequestError::new(ENODATA, ""))
}

impl Watchers {
    /// Follows a job's eventlog from here on.
    pub(crate) fn follow(&mut self, id: u64, request: Message) {
        self.eventlogs.entry(id).or_default().push(request);
    }

    /// A line was logged; the last line of a job ends the streams.
    pub(crate) fn event(&mut self, id: u64, line: &str, last: bool, out: &mut Vec<Message>) {
        let Some(followers) = self.eventlogs.get(&id) else {
            return;
        };
        for request in followers {
            out.push(rpc::answer(request, Some(&json!({ "event": line }))));
            if last {
                out.push(end(request));
            }
        }
        if last {
            self.eventlogs.remove(&id);
        }
    }

    /// Waits for the jobs in `left`, of which none is inactive yet.
    pub(crate) fn wait(&mut self, request: Message, left: BTreeSet<u64>) {
        let number = self.next;
        self.next += 1;
        for id in &left {
            self.waited.insert((*id, number));
        }
        self.waits.insert(number, Wait { request, left });
    }

    /// A job has ended: tells those who wait for it.
    pub(crate) fn inactive(&mut self, id: u64, jobs: &BTreeMap<u64, Job>, out: &mut Vec<Message>) {
        let here = self.waited.range((id, 0)..=(id, u64::MAX));
        let numbers: Vec<u64> = here.map(|(_, number)| *number).collect();
        let Some(job) = jobs.get(&id).filter(|_| !numbers.is_empty()) else {
            return;
        };
        let payload = json!({ "jobs": [Value::Object(row::row(job, Attrs::ALL))] });
        for number in numbers {
            self.waited.remove(&(id, number));
            let Some(wait) = self.waits.get_mut(&number) else {
                continue;
            };
            wait.left.remove(&id);
            out.push(rpc::answer(&wait.request, Some(&payload)));
            if wait.left.is_empty() {
                out.push(end(&wait.request));
                self.waits.remove(&number);
            }
        }
    }

    /// Answers when it is as quiet as the request wants it.
    pub(crate) fn wait_quiet(&mut self, request: Message, quiet: Quiet) {
        self.quiet.entry(quiet).or_default().push(request);
    }

    /// Jobs have moved on: answers those who wait for quiet, where there is.
    pub(crate) fn tell_quiet(&mut self, census: &Census, out: &mut Vec<Message>) {
        self.quiet.retain(|quiet, requests| {
            let reached = quiet.is_reached(census);
            if reached {
                out.extend(requests.iter().map(|it| rpc::answer(it, None)));
            }
            !reached
        });
    }

    /// Takes out the `drain` or `idle` that `matchtag` of this origin names.
    pub(crate) fn cancel_quiet(&mut self, origin: &[u8], matchtag: u32) -> Option<Message> {
        let is_it = |request: &Message| is_of(request, origin, matchtag);
        let requests = self.quiet.values_mut();
        let mut found = requests.filter_map(|requests| {
            let place = requests.iter().position(is_it)?;
            Some(requests.swap_remove(place))
        });
        found.next()
    }

    /// Ends the stream that `matchtag` of this origin names. Returns the ended request.
    pub(crate) fn cancel(&mut self, origin: &[u8], matchtag: u32) -> Option<Message> {
        let is_it = |request: &Message| is_of(request, origin, matchtag);
        let found = self.eventlogs.iter().find_map(|(id, followers)| {
            let place = followers.iter().position(is_it)?;
            Some((*id, place))
        });
        if let Some((id, place)) = found {
            let followers = self.eventlogs.get_mut(&id)?;
            let ended = followers.swap_remove(place);
            if followers.is_empty() {
                self.eventlogs.remove(&id);
            }
            return Some(ended);
        }
        let number = self.waits.iter().find(|(_, wait)| is_it(&wait.request));
        let number = number.map(|(number, _)| *number)?;
        self.remove_wait(number)
    }

    fn remove_wait(&mut self, number: u64) -> Option<Message> {
        let wait = self.waits.remove(&number)?;
        for id in wait.left {
            self.waited.remove(&(id, number));
        }
        Some(wait.request)
    }

    /// Drops every stream of a peer that went away.
    pub(crate) fn forget(&mut self, origin: &[u8]) {
        self.eventlogs.retain(|_, followers| {
            followers.retain(|request| rpc::origin(request) != Some(origin));
            !followers.is_empty()
        });
        let theirs = |request: &Message| rpc::origin(request) == Some(origin);
        let waits = self.waits.iter();
        let waits = waits.filter(|(_, wait)| theirs(&wait.request));
        for number in waits.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.remove_wait(number);
        }
        self.quiet.retain(|_, requests| {
            requests.retain(|request| !theirs(request));
            !requests.is_empty()
        });
    }

    /// How many wait, for `stats-get`.
    pub(crate) fn describe(&self) -> Value {
        json!({
            "followers": self.eventlogs.values().map(Vec::len).sum::<usize>(),
            "waits": self.waits.len(),
            "waited": self.waited.len(),
            "quiet": self.quiet.values().map(Vec::len).sum::<usize>(),
        })
    }
}
