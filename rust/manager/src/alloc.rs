//! RFC 27 as the job manager speaks it: whom to ask for resources, for which jobs, in what order.

mod handshake;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use penstock_idset::IdSet;
use penstock_jobspec::fluid::Fluid;
use penstock_rset::ResourceSet;
use penstock_wire::Message;
use serde_json::{Value, json};

use crate::claims::RCommit;
use crate::job::{Alloc, Job};
use crate::manager::Manager;
use crate::rpc::{self, EINVAL, EPROTO, RequestError};

/// Bytes of requests for resources that are made in one turn, which [`Manager::flush`] ends: some
/// thousands of jobs of the usual size.
const MAX_ALLOC_BYTES_PER_TURN: usize = 4 * 1024 * 1024;

/// Queue order: priority descending, then id ascending.
type Key = (Reverse<u32>, u64);

/// Where the scheduler is in its handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Handshake {
    /// None has said hello, or it went away.
    #[default]
    Suspended,
    /// Hello was answered; ready is awaited.
    Greeted,
    /// Requests may be sent, this many at a time.
    Ready(Option<usize>),
}

/// The talk with the scheduler.
#[derive(Debug, Default)]
pub struct Allocator {
    handshake: Handshake,
    /// The scheduler's route: who is meant by a disconnect.
    peer: Option<Vec<u8>>,
    /// The scheduler takes allocations back in parts.
    partial: bool,
    /// Ranks that are free again, of jobs that the scheduler takes back only as a whole.
    unsaid: BTreeMap<u64, IdSet>,
    /// What is to be sent as soon as a scheduler is ready that was told otherwise at hello.
    belated: Vec<Message>,
    /// Jobs asked for whose priority has changed since the scheduler last heard of it.
    reprioritized: BTreeSet<u64>,
    /// Those of them that are to be asked for again.
    displaced: Vec<u64>,
    /// Jobs to ask for.
    queued: BTreeSet<Key>,
    /// Jobs asked for.
    requested: BTreeSet<Key>,
    /// Bytes of requests made in this turn.
    made: usize,
    /// Jobs asked for and recalled; still count against the limit until the scheduler lets go.
    recalled: usize,
    /// The instance is about to end: nothing more is asked for, and what still comes is not taken.
    stopped: bool,
}

impl Allocator {
    pub(crate) fn enqueue(&mut self, priority: u32, id: u64) {
        self.queued.insert((Reverse(priority), id));
    }

    pub(crate) fn dequeue(&mut self, priority: u32, id: u64) {
        self.queued.remove(&(Reverse(priority), id));
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.handshake, Handshake::Ready(_))
    }

    /// Whether a part of an allocation is free for others when it is given back.
    pub(crate) fn takes_parts(&self) -> bool {
        self.partial || self.handshake == Handshake::Suspended
    }

    /// The route of the scheduler that requests go to, if one is ready.
    pub(crate) fn reader(&self) -> Option<&[u8]> {
        self.peer.as_deref().filter(|_| self.is_ready())
    }

    /// Whether there are jobs to ask for, and the mode allows that.
    fn has_more(&self) -> bool {
        let Handshake::Ready(limit) = self.handshake else {
            return false;
        };
        let outstanding = self.requested.len() + self.recalled;
        let may = limit.is_none_or(|limit| outstanding < limit);
        may && !self.stopped && !self.queued.is_empty()
    }

    pub(crate) fn end_turn(&mut self) {
        self.made = 0;
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(crate) fn describe(&self) -> Value {
        let state = match self.handshake {
            Handshake::Suspended => "suspended",
            Handshake::Greeted => "greeted",
            Handshake::Ready(_) => "ready",
        };
        json!({
            "state": state,
            "queued": self.queued.len(),
            "requested": self.requested.len() + self.recalled,
        })
    }
}

impl Manager {
    /// From now on no job gets resources: what is pending stays so for the next start.
    pub fn stop_scheduling(&mut self) {
        self.allocator.stopped = true;
    }

    /// Asks for resources as far as the mode and the turn allow, the first in queue order first;
    /// a scheduler that has much to read already is not asked for more.
    pub(crate) fn send_allocs(&mut self) {
        if self.allocator.stopped {
            return;
        }
        let Handshake::Ready(limit) = self.allocator.handshake else {
            return;
        };
        loop {
            let outstanding = self.allocator.requested.len() + self.allocator.recalled;
            if limit.is_some_and(|limit| outstanding >= limit) {
                return self.recall_for_the_first();
            }
            if self.allocator.made >= MAX_ALLOC_BYTES_PER_TURN || self.is_scheduler_full() {
                return;
            }
            let Some(key) = self.allocator.queued.pop_first() else {
                return;
            };
            let Some(job) = self.jobs.get_mut(&key.1) else {
                continue;
            };
            job.alloc = Alloc::Requested;
            if job.requested().is_some() {
                self.elastic.asked(key.1);
            }
            // The jobspec is JSON text already: it goes in as it is.
            let payload = format!(
                "{{\"id\":{},\"priority\":{},\"userid\":{},\"t_submit\":{},\"jobspec\":{}}}",
                job.id,
                job.priority,
                job.userid,
                Value::from(job.t_submit),
                job.spec.redacted
            );
            self.allocator.requested.insert(key);
            self.allocator.made += payload.len();
            self.out.push(Message::request("sched.alloc", &payload));
        }
    }

    fn is_scheduler_full(&self) -> bool {
        let peer = self.allocator.reader();
        peer.is_some_and(|peer| self.listings.is_full(peer))
    }

    /// Whether there are jobs to ask for in the next turn.
    pub(crate) fn has_allocs_to_send(&self) -> bool {
        self.allocator.has_more() && !self.is_scheduler_full()
    }

    /// In limited mode a more urgent job displaces the last one asked for, which is asked for
    /// again later.
    fn recall_for_the_first(&mut self) {
        let (Some(first), Some(last)) = (
            self.allocator.queued.first(),
            self.allocator.requested.last().copied(),
        ) else {
            return;
        };
        if *first >= last || self.allocator.recalled > 0 {
            return;
        }
        if let Some(job) = self.jobs.get_mut(&last.1) {
            job.alloc = Alloc::Canceling;
            self.allocator.requested.remove(&last);
            self.allocator.recalled += 1;
            self.send_cancel(last.1);
        }
    }

    /// The job does not want resources any more; its request ends with CANCEL or SUCCESS.
    pub(crate) fn cancel_alloc(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if job.alloc == Alloc::Requested {
            job.alloc = Alloc::Canceling;
            let key = (Reverse(job.priority), id);
            self.allocator.requested.remove(&key);
            self.allocator.recalled += 1;
            self.send_cancel(id);
        }
    }

    fn send_cancel(&mut self, id: u64) {
        let payload = json!({ "id": id }).to_string();
        let request = Message::request("sched.cancel", &payload);
        self.out.push(rpc::unanswered(request));
    }

    /// Tells the scheduler that some of a job's ranks are free again.
    pub(crate) fn send_free(&mut self, id: u64, ranks: &IdSet, last: bool) {
        let Some(r) = self.jobs.get(&id).and_then(|job| job.r.as_ref()) else {
            return;
        };
        // A scheduler that comes later hears at hello what is free by then.
        if self.allocator.handshake != Handshake::Suspended {
            let mut ranks = ranks.clone();
            if !self.allocator.partial {
                let unsaid = self.allocator.unsaid.entry(id).or_default();
                unsaid.union_with(&ranks);
                if !last {
                    return;
                }
                ranks = std::mem::take(unsaid);
                self.allocator.unsaid.remove(&id);
            }
            let part = if last && r.ranks() == ranks {
                r.to_json()
            } else {
                r.restrict(&ranks).to_json()
            };
            let payload = format!("{{\"id\":{id},\"R\":{part},\"final\":{last}}}");
            self.tell_scheduler(Message::request("sched.free", &payload));
        }
    }

    /// Sends what is other than hello has told; the answer to ready comes first.
    pub(crate) fn tell_scheduler(&mut self, request: Message) {
        match self.allocator.handshake {
            Handshake::Suspended => {}
            Handshake::Greeted => self.allocator.belated.push(request),
            Handshake::Ready(_) => self.out.push(request),
        }
    }

    /// A job in SCHED has another priority.
    pub(crate) fn reprioritize(&mut self, id: u64, old: u32) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let new = job.priority;
        if old == new {
            return;
        }
        match job.alloc {
            Alloc::Queued => {
                self.allocator.dequeue(old, id);
                if new > 0 {
                    self.allocator.enqueue(new, id);
                } else {
                    job.alloc = Alloc::Idle;
                }
            }
            Alloc::Requested => {
                self.allocator.requested.remove(&(Reverse(old), id));
                if new > 0 {
                    self.allocator.reprioritized.insert(id);
                }
                if new > 0 && self.allocator.handshake == Handshake::Ready(None) {
                    self.allocator.requested.insert((Reverse(new), id));
                    return;
                }
                job.alloc = Alloc::Canceling;
                self.allocator.recalled += 1;
                if new > 0 {
                    // With a limit it is asked for again in its new place in the queue.
                    self.allocator.displaced.push(id);
                } else {
                    // Held: it is not asked for again until it is let go.
                    self.send_cancel(id);
                }
            }
            Alloc::Idle => self.revisit(id),
            Alloc::Canceling | Alloc::Allocated | Alloc::Freed => {}
        }
    }

    /// Tells the scheduler of all priorities that have changed, in one request.
    pub(crate) fn send_priorities(&mut self) {
        if self.allocator.reprioritized.is_empty() {
            return;
        }
        let mut payload = String::from("{\"jobs\":[");
        let mut mark = "";
        for id in std::mem::take(&mut self.allocator.reprioritized) {
            let job = self.jobs.get(&id);
            let asked = |job: &&Job| matches!(job.alloc, Alloc::Requested | Alloc::Canceling);
            if let Some(job) = job.filter(asked) {
                // Writing to a String does not fail.
                let _ = write!(payload, "{mark}[{id},{}]", job.priority);
                mark = ",";
            }
        }
        payload.push_str("]}");
        if !mark.is_empty() {
            let request = Message::request("sched.prioritize", &payload);
            self.out.push(rpc::unanswered(request));
        }
        for id in std::mem::take(&mut self.allocator.displaced) {
            self.send_cancel(id);
        }
    }

    /// The request is over: the job is neither asked for nor recalled.
    pub(crate) fn end_alloc(&mut self, id: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            if job.alloc == Alloc::Canceling {
                self.allocator.recalled -= 1;
            } else {
                self.allocator
                    .requested
                    .remove(&(Reverse(job.priority), id));
            }
            job.alloc = Alloc::Idle;
        }
    }

    /// R for a job, if it may be committed: the job has asked for resources, and this is an R.
    /// By the error number a scheduler knows which it is: EINVAL is about R, any other about the job.
    pub(crate) fn check_r(&self, id: u64, text: &str) -> Result<ResourceSet, RequestError> {
        let name = Fluid(id);
        let Some(job) = self.jobs.get(&id) else {
            return Err(RequestError::new(
                rpc::ENOENT,
                format!("no job {name} to commit R for"),
            ));
        };
        if !matches!(job.alloc, Alloc::Requested | Alloc::Canceling) {
            let text = format!("job {name} has not asked for resources");
            return Err(RequestError::new(EPROTO, text));
        }
        ResourceSet::from_json(text)
            .map_err(|error| RequestError::new(EINVAL, format!("job {name}: {error}")))
    }

    /// Keeps R as the scheduler committed it.
    pub(crate) fn take_r(&mut self, wanted: RCommit) {
        let stored = self.store.set_r(wanted.id, &wanted.text);
        self.keep(stored);
        if let Some(job) = self.jobs.get_mut(&wanted.id) {
            job.r = Some(wanted.r);
        }
    }

    /// What was committed for the job's request does not become an allocation.
    pub(crate) fn drop_r(&mut self, id: u64) {
        self.claims.drop(id);
        if let Some(job) = self.jobs.get_mut(&id)
            && job.r.take().is_some()
        {
            let cleared = self.store.clear_r(id);
            self.keep(cleared);
        }
    }
}
