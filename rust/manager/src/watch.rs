//! Streams that stay open: followers of an eventlog, and those who wait for jobs to end.

use std::collections::{BTreeMap, BTreeSet};

use penstock_wire::Message;
use serde_json::{Value, json};

use crate::census::Census;
use crate::job::Job;
use crate::row::{self, Attrs};
use crate::rpc::{self, ENODATA, Refusal};

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
    /// Waits by number, and the numbers of the waits for a job.
    waits: BTreeMap<u64, Wait>,
    waited: BTreeMap<u64, Vec<u64>>,
    next: u64,
    /// Those who wait for a queue to be without active jobs, or without running ones.
    quiet: Vec<(Message, Quiet)>,
}

/// What `drain` and `idle` wait for, in one queue or in all.
#[derive(Debug)]
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

fn end(request: &Message) -> Message {
    rpc::refuse(request, &Refusal::new(ENODATA, ""))
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
            self.waited.entry(*id).or_default().push(number);
        }
        self.waits.insert(number, Wait { request, left });
    }

    /// A job has ended: tells those who wait for it.
    pub(crate) fn inactive(&mut self, id: u64, jobs: &BTreeMap<u64, Job>, out: &mut Vec<Message>) {
        let Some(numbers) = self.waited.remove(&id) else {
            return;
        };
        let Some(job) = jobs.get(&id) else {
            return;
        };
        let payload = json!({ "jobs": [Value::Object(row::row(job, Attrs::ALL))] });
        for number in numbers {
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
        self.quiet.push((request, quiet));
    }

    /// Jobs have moved on: answers those who wait for quiet, where there is.
    pub(crate) fn tell_quiet(&mut self, census: &Census, out: &mut Vec<Message>) {
        self.quiet.retain(|(request, quiet)| {
            let reached = quiet.is_reached(census);
            if reached {
                out.push(rpc::answer(request, None));
            }
            !reached
        });
    }

    /// Ends the stream that `matchtag` of this origin names. Returns the ended request.
    pub(crate) fn cancel(&mut self, origin: &[u8], matchtag: u32) -> Option<Message> {
        let is_it = |request: &Message| {
            request.matchtag == matchtag && rpc::origin(request) == Some(origin)
        };
        for followers in self.eventlogs.values_mut() {
            if let Some(place) = followers.iter().position(is_it) {
                return Some(followers.swap_remove(place));
            }
        }
        let number = self.waits.iter().find(|(_, wait)| is_it(&wait.request));
        let number = number.map(|(number, _)| *number)?;
        self.waits.remove(&number).map(|wait| wait.request)
    }

    /// Drops every stream of a peer that went away.
    pub(crate) fn forget(&mut self, origin: &[u8]) {
        self.eventlogs.retain(|_, followers| {
            followers.retain(|request| rpc::origin(request) != Some(origin));
            !followers.is_empty()
        });
        self.waits
            .retain(|_, wait| rpc::origin(&wait.request) != Some(origin));
        self.quiet
            .retain(|(request, _)| rpc::origin(request) != Some(origin));
        let waits = &self.waits;
        self.waited.retain(|_, numbers| {
            numbers.retain(|number| waits.contains_key(number));
            !numbers.is_empty()
        });
    }
}
