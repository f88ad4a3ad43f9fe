//! Counts of jobs by state, queue and result, and the inactive jobs by age.

use std::collections::BTreeMap;

use penstock_flux::job_list::{JobCounts, JobStatsResponse};
use penstock_flux::job_manager::{QueueStats, ResultStats, StageStats, StateStats};
use penstock_flux::{Histogram, eventlog};
use serde_json::{Map, Value};

use crate::ended::{End, EndedJob, EndedJobs, hash_of};
use crate::event::{Event, EventTime};
use crate::record::Record;
use crate::state::{JobResult, State};

const STATES: [State; 7] = [
    State::New,
    State::Depend,
    State::Priority,
    State::Sched,
    State::Run,
    State::Cleanup,
    State::Inactive,
];

/// The user, the queue and the result of inactive jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class<'a> {
    /// The user.
    pub(crate) userid: u32,
    /// The queue.
    pub(crate) queue: Option<&'a str>,
    /// The result.
    pub(crate) result: Option<JobResult>,
}

impl<'a> Class<'a> {
    fn of(record: &'a Record) -> Self {
        Self {
            userid: record.userid(),
            queue: record.spec().queue.as_deref(),
            result: record.result(),
        }
    }
}

/// The classes of inactive jobs, by number.
#[derive(Debug, Default)]
struct Classes {
    all: Vec<(u32, Option<String>, Option<JobResult>)>,
    /// The numbers by user and result: one for each queue.
    numbers: BTreeMap<(u32, Option<u8>), Vec<u32>>,
}

impl Classes {
    fn get(&self, number: u32) -> Option<Class<'_>> {
        let (userid, queue, result) = self.all.get(number as usize)?;
        Some(Class {
            userid: *userid,
            queue: queue.as_deref(),
            result: *result,
        })
    }

    /// The number of a class.
    fn number_of(&mut self, class: Class<'_>) -> u32 {
        let key = (class.userid, class.result.map(|result| result as u8));
        let numbers = self.numbers.entry(key).or_default();
        let all = &mut self.all;
        let is_it = |number: &&u32| {
            let known = all.get(**number as usize);
            known.is_some_and(|(_, queue, _)| queue.as_deref() == class.queue)
        };
        if let Some(number) = numbers.iter().find(is_it) {
            return *number;
        }
        let number = u32::try_from(all.len()).unwrap_or(u32::MAX);
        all.push((class.userid, class.queue.map(str::to_owned), class.result));
        numbers.push(number);
        number
    }
}

/// Jobs by state, and the inactive ones by result.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    states: [u64; 7],
    results: [u64; 4],
    purged: u64,
}

/// The end of an inactive job.
pub(crate) fn end_of(record: &Record) -> End {
    (EventTime::new(record.t_inactive()), record.id())
}

fn index(bit: u8) -> usize {
    bit.trailing_zeros() as usize
}

impl Tally {
    /// Jobs in a state.
    pub fn in_state(&self, state: State) -> u64 {
        self.states[index(state.bit())]
    }

    /// Active jobs.
    pub fn active(&self) -> u64 {
        let all: u64 = self.states.iter().sum();
        all - self.in_state(State::Inactive)
    }

    /// Jobs in RUN or CLEANUP (RFC 21).
    pub fn running(&self) -> u64 {
        self.in_state(State::Run) + self.in_state(State::Cleanup)
    }

    fn add(&mut self, state: State, count: u64) {
        self.states[index(state.bit())] += count;
    }

    fn take(&mut self, state: State) {
        let count = &mut self.states[index(state.bit())];
        *count = count.saturating_sub(1);
    }

    fn count_result(&mut self, result: Option<JobResult>) {
        if let Some(result) = result {
            self.results[index(result as u8)] += 1;
        }
    }

    fn forget(&mut self, result: Option<JobResult>) {
        self.take(State::Inactive);
        self.purged += 1;
        if let Some(result) = result {
            let count = &mut self.results[index(result as u8)];
            *count = count.saturating_sub(1);
        }
    }

    /// The counts as `job-list.job-stats` shows them; `name` is the queue's.
    fn counts(&self, name: Option<&str>) -> JobCounts {
        let states = STATES.iter().map(|state| {
            let name = state.name().to_ascii_lowercase();
            (name, Value::from(self.in_state(*state)))
        });
        let mut states: Map<String, Value> = states.collect();
        let total: u64 = self.states.iter().sum();
        states.insert("total".to_owned(), total.into());
        let [completed, failed, canceled, timeout] = self.results;
        JobCounts {
            job_states: states,
            successful: completed,
            failed,
            canceled,
            timeout,
            inactive_purged: self.purged,
            name: name.map(str::to_owned),
        }
    }
}

/// Durations of the stages of jobs: see [`StageStats`].
#[derive(Debug)]
struct Stages {
    pending: Histogram,
    start: Histogram,
    run: Histogram,
    cleanup: Histogram,
}

impl Default for Stages {
    fn default() -> Self {
        Self {
            pending: Histogram::of_jobs(),
            start: Histogram::of_jobs(),
            run: Histogram::of_jobs(),
            cleanup: Histogram::of_jobs(),
        }
    }
}

/// The counts of an instance.
#[derive(Debug, Default)]
pub struct Census {
    whole: Tally,
    queues: BTreeMap<String, Tally>,
    inactive: EndedJobs,
    /// The classes of the inactive jobs: see [`EndedJobs`].
    classes: Classes,
    /// Jobs submitted since the manager started.
    submitted: u64,
    /// Jobs that became inactive since the manager started, by result.
    ended: [u64; 4],
    stages: Stages,
}

impl Census {
    fn update(&mut self, queue: Option<&str>, change: impl Fn(&mut Tally)) {
        change(&mut self.whole);
        if let Some(name) = queue {
            if let Some(tally) = self.queues.get_mut(name) {
                return change(tally);
            }
            change(self.queues.entry(name.to_owned()).or_default());
        }
    }

    /// Counts a job in the state that it appears in, new or from the store.
    pub(crate) fn enter(&mut self, record: &Record, state: State) {
        let result = record.result();
        self.update(record.spec().queue.as_deref(), |tally| {
            tally.add(state, 1);
            tally.count_result(result);
        });
        if state == State::Inactive {
            self.retire(record);
        }
    }

    /// Counts a new job.
    pub(crate) fn enter_new(&mut self, record: &Record) {
        self.submitted += 1;
        self.enter(record, State::New);
    }

    /// Counts new jobs in a state, of a queue.
    pub(crate) fn enter_jobs(&mut self, queue: Option<&str>, state: State, count: u64) {
        self.submitted += count;
        self.update(queue, |tally| tally.add(state, count));
    }

    /// Counts a change of state. Intermediate states are counted: `record` may already be in a later one.
    pub(crate) fn count_transition(&mut self, record: &Record, before: State, after: State) {
        let result = record.result().filter(|_| after == State::Inactive);
        if let Some(result) = result {
            self.ended[index(result as u8)] += 1;
        }
        self.update(record.spec().queue.as_deref(), |tally| {
            tally.take(before);
            tally.add(after, 1);
            tally.count_result(result);
        });
    }

    /// Counts the duration of the stage that an event ends.
    pub(crate) fn count_stage(
        &mut self,
        record: &Record,
        event: &Event,
        before: State,
        after: State,
    ) {
        let stages = &mut self.stages;
        let time = event.timestamp;
        if &*event.name == eventlog::START {
            stages.start.observe(time - record.t_run());
        }
        match (before, after) {
            (State::Sched, State::Run) => stages.pending.observe(time - record.t_submit()),
            (State::Run, State::Cleanup) => stages.run.observe(time - record.t_run()),
            (State::Cleanup, State::Inactive) if record.t_run() > 0.0 => {
                stages.cleanup.observe(time - record.t_cleanup());
            }
            _ => {}
        }
    }

    /// Makes an inactive job eligible for purging: its end was reported.
    pub(crate) fn retire(&mut self, record: &Record) {
        let t_submit = EventTime::new(record.t_submit());
        let name_hash = hash_of(&record.name());
        self.retire_as(Class::of(record), end_of(record), name_hash, t_submit);
    }

    /// Counts an inactive job from the store, of which no more is known.
    pub(crate) fn enter_ended(
        &mut self,
        class: Class<'_>,
        end: End,
        name_hash: u64,
        t_submit: EventTime,
    ) {
        self.update(class.queue, |tally| {
            tally.add(State::Inactive, 1);
            tally.count_result(class.result);
        });
        self.retire_as(class, end, name_hash, t_submit);
    }

    fn retire_as(&mut self, class: Class<'_>, end: End, name_hash: u64, t_submit: EventTime) {
        let class = self.classes.number_of(class);
        self.inactive
            .insert(EndedJob::new(end, class, name_hash), t_submit);
    }

    /// Counts a job as purged. Returns whether it was inactive.
    pub(crate) fn purge(&mut self, end: End) -> bool {
        let Some(class) = self.inactive.remove(end) else {
            return false;
        };
        let class = self.classes.get(class);
        let (queue, result) = class.map_or((None, None), |class| {
            (class.queue.map(str::to_owned), class.result)
        });
        self.update(queue.as_deref(), |tally| tally.forget(result));
        true
    }

    /// The counts of a queue, or of all.
    pub(crate) fn tally(&self, queue: Option<&str>) -> Tally {
        match queue {
            None => self.whole.clone(),
            Some(name) => self.queues.get(name).cloned().unwrap_or_default(),
        }
    }

    /// Inactive jobs by their end.
    pub(crate) fn inactive(&self) -> &EndedJobs {
        &self.inactive
    }

    /// The class of an inactive job.
    pub(crate) fn class_of(&self, job: EndedJob) -> Option<Class<'_>> {
        self.classes.get(job.class())
    }

    /// The response to `job-list.job-stats`.
    pub(crate) fn stats(&self) -> JobStatsResponse {
        let queues = self.queues.iter();
        JobStatsResponse {
            counts: self.whole.counts(None),
            queues: queues
                .map(|(name, tally)| tally.counts(Some(name)))
                .collect(),
        }
    }

    /// The jobs by state, as `stats-get` shows them.
    pub(crate) fn state_stats(&self) -> StateStats {
        let in_state = |state| self.whole.in_state(state);
        StateStats {
            depend: in_state(State::New) + in_state(State::Depend),
            priority: in_state(State::Priority),
            sched: in_state(State::Sched),
            run: in_state(State::Run),
            cleanup: in_state(State::Cleanup),
            inactive: in_state(State::Inactive),
        }
    }

    /// The active jobs of each queue, as `stats-get` shows them.
    pub(crate) fn queue_stats(&self) -> BTreeMap<String, QueueStats> {
        let queues = self.queues.iter();
        queues
            .map(|(name, tally)| {
                let running = tally.running();
                let pending = tally.active() - running;
                (name.clone(), QueueStats { pending, running })
            })
            .collect()
    }

    /// The number of jobs submitted since the manager started.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted
    }

    /// The number of jobs purged since the manager started.
    pub(crate) fn purged(&self) -> u64 {
        self.whole.purged
    }

    /// The jobs that became inactive since the manager started.
    pub(crate) fn result_stats(&self) -> ResultStats {
        let [completed, failed, cancelled, timeout] = self.ended;
        ResultStats {
            completed,
            failed,
            cancelled,
            timeout,
        }
    }

    /// Durations of the stages of jobs since the manager started.
    pub(crate) fn stage_stats(&self) -> StageStats {
        StageStats {
            pending: self.stages.pending.stats(),
            start: self.stages.start.stats(),
            run: self.stages.run.stats(),
            cleanup: self.stages.cleanup.stats(),
        }
    }
}
