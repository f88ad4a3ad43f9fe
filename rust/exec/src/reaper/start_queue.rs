//! The tasks to start, and the requests that wait for them. The users take turns, and so do the jobs of each: one with many
//! tasks holds up no other.

use std::collections::{BTreeMap, VecDeque};

use crate::protocol::{SignalTarget, TaskSpec};
use crate::types::{ConnectionId, JobId, TaskId};

/// The response that a request is to get.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reply {
    pub(super) connection: ConnectionId,
    pub(super) id: u32,
}

/// A signal for tasks that are not all started.
#[derive(Debug)]
pub(super) struct QueuedSignal {
    pub(super) reply: Reply,
    pub(super) target: SignalTarget,
    pub(super) signal: u32,
}

/// The next step of the queue.
#[derive(Debug)]
pub(super) enum Next {
    Start(Box<TaskSpec>),
    Signal(QueuedSignal),
    /// All tasks that were requested before the list have left the queue.
    List(Reply),
    /// All tasks of a request have left the queue.
    Done(Reply),
}

/// The place of a request among all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position(u64);

#[derive(Debug)]
enum Item {
    Start(Position, Box<TaskSpec>),
    Signal(QueuedSignal),
}

/// The user of a job: `None` for the reaper's.
type User = Option<u32>;

/// The tasks to start: by user and job, in the order of the requests.
#[derive(Debug, Default)]
pub(super) struct StartQueue {
    /// The steps of each job: none if its tasks have been cancelled.
    jobs: BTreeMap<JobId, VecDeque<Item>>,
    /// The jobs of each user in the order of their next turns, each once.
    users: BTreeMap<User, VecDeque<JobId>>,
    /// The users in the order of their next turns, each once.
    turns: VecDeque<User>,
    /// The requests with tasks in the queue, and the numbers of these tasks.
    unfinished: BTreeMap<Position, (Reply, usize)>,
    finished: VecDeque<Reply>,
    /// The lists to send, the first one first.
    lists: VecDeque<(Position, Reply)>,
    requests: u64,
}

impl StartQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty() && self.finished.is_empty() && self.lists.is_empty()
    }

    pub(super) fn add_tasks(&mut self, reply: Reply, tasks: Vec<TaskSpec>) {
        if tasks.is_empty() {
            return self.finished.push_back(reply);
        }
        let position = self.next_position();
        self.unfinished.insert(position, (reply, tasks.len()));
        for task in tasks {
            let user = task.guest.map(|guest| guest.uid);
            self.add(user, task.task.job, Item::Start(position, Box::new(task)));
        }
    }

    /// Adds a signal for tasks of a job in the queue, which has its turns already.
    pub(super) fn add_signal(&mut self, job: JobId, signal: QueuedSignal) {
        self.add(None, job, Item::Signal(signal));
    }

    pub(super) fn add_list(&mut self, reply: Reply) {
        let position = self.next_position();
        self.lists.push_back((position, reply));
    }

    /// Removes and returns the next step.
    pub(super) fn next(&mut self) -> Option<Next> {
        if let Some(reply) = self.finished.pop_front() {
            return Some(Next::Done(reply));
        }
        let first = self.unfinished.keys().next();
        if let Some((position, reply)) = self.lists.front().copied()
            && first.is_none_or(|first| *first > position)
        {
            self.lists.pop_front();
            return Some(Next::List(reply));
        }
        loop {
            let user = self.turns.pop_front()?;
            let Some(jobs) = self.users.get_mut(&user) else {
                continue;
            };
            let Some(job) = jobs.pop_front() else {
                self.users.remove(&user);
                continue;
            };
            let items = self.jobs.get_mut(&job);
            let Some(item) = items.and_then(VecDeque::pop_front) else {
                self.jobs.remove(&job);
                // The turn is that of the user's next job.
                self.turns.push_front(user);
                continue;
            };
            jobs.push_back(job);
            self.turns.push_back(user);
            return Some(match item {
                Item::Signal(signal) => Next::Signal(signal),
                Item::Start(position, task) => {
                    self.count_off(position);
                    Next::Start(task)
                }
            });
        }
    }

    /// Removes and returns the tasks of a job that are to be cancelled.
    pub(super) fn cancel(
        &mut self,
        job: JobId,
        is_cancelled: impl Fn(TaskId) -> bool,
    ) -> Vec<TaskId> {
        let mut cancelled = Vec::new();
        if let Some(items) = self.jobs.get_mut(&job) {
            items.retain(|item| match item {
                Item::Start(position, spec) if is_cancelled(spec.task) => {
                    cancelled.push((*position, spec.task));
                    false
                }
                _ => true,
            });
        }
        for (position, _) in &cancelled {
            self.count_off(*position);
        }
        cancelled.into_iter().map(|(_, task)| task).collect()
    }

    fn next_position(&mut self) -> Position {
        self.requests += 1;
        Position(self.requests)
    }

    /// Adds a step of a job, which gets its turns among those of the user with the first one.
    fn add(&mut self, user: User, job: JobId, item: Item) {
        let items = self.jobs.entry(job).or_insert_with(|| {
            let jobs = self.users.entry(user).or_insert_with(|| {
                self.turns.push_back(user);
                VecDeque::new()
            });
            jobs.push_back(job);
            VecDeque::new()
        });
        items.push_back(item);
    }

    /// Notes that a task of a request has left the queue.
    fn count_off(&mut self, position: Position) {
        if let Some((reply, left)) = self.unfinished.get_mut(&position) {
            *left -= 1;
            if *left == 0 {
                self.finished.push_back(*reply);
                self.unfinished.remove(&position);
            }
        }
    }
}
