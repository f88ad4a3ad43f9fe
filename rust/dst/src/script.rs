//! Scripts: the steps of a run, drawn from a seed, and their text.
//!
//! A run depends on its script alone. The text has one step a line: a name and numbers, which are taken modulo the number of
//! jobs, connections and so on at that time. So any part of a script is a script, which is how a failing one is shortened.

use std::fmt;
use std::str::FromStr;

use crate::random::Random;
use crate::scheduling::Placement;

/// The most numbers of a step.
pub const MAX_ARGUMENTS: usize = 4;

macro_rules! steps {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $arguments:literal, $weight:literal, $group:ident;)*) => {
        /// The kind of a step.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum StepKind {
            $($(#[$doc])* $kind,)*
        }

        impl StepKind {
            /// Every kind, the number of its arguments, how often it is drawn, and its group.
            const ALL: &[(Self, &'static str, usize, u32, Group)] =
                &[$((Self::$kind, $name, $arguments, $weight, Group::$group)),*];
        }
    };
}

/// Kinds that a seed has all of, or none of: a run with few kinds of faults goes deeper than one with all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Always,
    Resources,
    Queues,
    Daemon,
    Power,
    Network,
    Service,
    Reaper,
    Scheduler,
    Store,
    Clock,
}

impl Group {
    const FAULTS: [Self; 10] = [
        Self::Resources,
        Self::Queues,
        Self::Daemon,
        Self::Power,
        Self::Network,
        Self::Service,
        Self::Reaper,
        Self::Scheduler,
        Self::Store,
        Self::Clock,
    ];
}

steps! {
    /// A client submits jobs: client, shape, urgency, time limit.
    Submit = "submit", 4, 60, Always;
    /// A client repeats a submission under its token: client, submission.
    Resubmit = "resubmit", 2, 8, Always;
    /// A client cancels a job: client, job.
    Cancel = "cancel", 2, 12, Always;
    /// A client sends a signal to a job: client, job.
    Signal = "signal", 2, 5, Always;
    /// A client changes the urgency of a job: client, job, urgency.
    Urgency = "urgency", 3, 8, Always;
    /// A client changes the time limit of a job: client, job, seconds.
    Limit = "limit", 3, 4, Always;
    /// A client watches the events of a job: client, job.
    Watch = "watch", 2, 12, Always;
    /// A client waits for the end of a job: client, job.
    Wait = "wait", 2, 8, Always;
    /// A client lists the jobs: client.
    List = "list", 1, 4, Always;
    /// Bytes arrive at one end of a connection: which end, how many, whether the daemon handles them at once.
    Deliver = "deliver", 3, 180, Always;
    /// A message between service and reaper arrives: the direction.
    Reap = "reap", 1, 50, Always;
    /// Everything under way arrives.
    Run = "run", 0, 40, Always;
    /// Time passes: milliseconds.
    Advance = "advance", 1, 30, Always;
    /// A process ends: which one, its exit code.
    End = "end", 2, 60, Always;
    /// A process forks: which one.
    Fork = "fork", 1, 8, Always;
    /// Every process that has ended is started, and connected.
    Start = "start", 0, 25, Always;
    /// A rank is drained: rank.
    Drain = "drain", 1, 8, Resources;
    /// A rank is undrained: rank.
    Undrain = "undrain", 1, 8, Resources;
    /// A client monitors ranks: client, number of ranks.
    Monitor = "monitor", 2, 5, Resources;
    /// The queue is stopped.
    Stop = "stop-queue", 0, 4, Queues;
    /// The queue is started.
    Resume = "start-queue", 0, 5, Queues;
    /// The queue accepts no jobs.
    Disable = "disable-queue", 0, 2, Queues;
    /// The queue accepts jobs.
    Enable = "enable-queue", 0, 4, Queues;
    /// The daemon is killed in the disk operation after this many: number.
    KillDaemon = "kill-daemon", 1, 12, Daemon;
    /// The daemon ends in order, and continues with the next start.
    EndDaemon = "end-daemon", 0, 3, Daemon;
    /// The power fails: a number that draws what is lost.
    PowerFailure = "power-failure", 1, 5, Power;
    /// A connection breaks: which one, bytes kept to the daemon, to the peer.
    Cut = "cut", 3, 10, Network;
    /// A client stops reading, or reads again: client.
    Slow = "slow", 1, 5, Network;
    /// The service is killed after some of its effects: how many, bytes of a torn record.
    KillService = "kill-service", 2, 14, Service;
    /// Journal and log of the service cannot be written, or can: whether.
    JournalFull = "journal-full", 1, 6, Service;
    /// The reaper is killed.
    KillReaper = "kill-reaper", 0, 6, Reaper;
    /// The scheduler fails.
    KillScheduler = "kill-scheduler", 0, 8, Scheduler;
    /// The disk is full, or not: whether.
    Full = "disk-full", 1, 8, Store;
    /// Another program locks the database, or releases it: whether.
    Busy = "busy", 1, 6, Store;
    /// The disk operation after this many fails: number.
    DiskError = "disk-error", 1, 6, Store;
    /// The clock is set: seconds forward, or backward by the second number.
    Clock = "clock", 2, 6, Clock;
}

impl StepKind {
    /// Its name in the text.
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(kind, ..)| *kind == self)
            .map_or("", |(_, name, ..)| name)
    }
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its kind.
    pub kind: StepKind,
    /// Its numbers; those that the kind does not have are 0.
    pub arguments: [u32; MAX_ARGUMENTS],
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The place of the scheduler.
    pub scheduler: Placement,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Script {
    /// Draws a script.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let scheduler = if random.one_in(3) {
            Placement::Process
        } else {
            Placement::Inside
        };
        let groups: Vec<Group> = if random.one_in(8) {
            Group::FAULTS.to_vec()
        } else {
            Group::FAULTS
                .into_iter()
                .filter(|_| random.one_in(3))
                .collect()
        };
        let kinds = StepKind::ALL
            .iter()
            .filter(|(.., group)| *group == Group::Always || groups.contains(group));
        let kinds: Vec<_> = kinds.collect();
        let total: u32 = kinds.iter().map(|(_, _, _, weight, _)| weight).sum();
        let length = 40 + random.below(160);
        let mut draw_step = || {
            let mut at = random.below(total);
            let drawn = kinds.iter().find(|(_, _, _, weight, _)| {
                let is_it = at < *weight;
                at = at.wrapping_sub(*weight);
                is_it
            });
            let (kind, _, count, ..) = drawn?;
            let mut arguments = [0; MAX_ARGUMENTS];
            for argument in arguments.iter_mut().take(*count) {
                // Small numbers more often: they are the interesting ones of most kinds.
                let bits = 1 + random.below(16);
                *argument = random.below(1 << bits);
            }
            Some(Step {
                kind: *kind,
                arguments,
            })
        };
        let steps = (0..length).filter_map(|_| draw_step()).collect();
        Self { scheduler, steps }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheduler = self.scheduler.name();
        writeln!(out, "scheduler {scheduler}")?;
        for step in &self.steps {
            let count = StepKind::ALL
                .iter()
                .find(|(kind, ..)| *kind == step.kind)
                .map_or(0, |row| row.2);
            write!(out, "{}", step.kind.name())?;
            for argument in step.arguments.iter().take(count) {
                write!(out, " {argument}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// The error of a text that is not a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptError(String);

impl fmt::Display for ScriptError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for ScriptError {}

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self {
            scheduler: Placement::Inside,
            steps: Vec::new(),
        };
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else {
                continue;
            };
            if name == "scheduler" {
                script.scheduler = match words.next() {
                    Some("process") => Placement::Process,
                    Some("inside") => Placement::Inside,
                    other => {
                        let text =
                            format!("line {number}: {other:?}: expected `inside` or `process`");
                        return Err(ScriptError(text));
                    }
                };
                continue;
            }
            let row = StepKind::ALL.iter().find(|(_, known, ..)| *known == name);
            let (kind, _, count, ..) =
                row.ok_or_else(|| ScriptError(format!("line {number}: unknown step `{name}`")))?;
            let mut arguments = [0; MAX_ARGUMENTS];
            for argument in arguments.iter_mut().take(*count) {
                let word = words.next().unwrap_or_default();
                *argument = word.parse().map_err(|_| {
                    ScriptError(format!(
                        "line {number}: `{name}` has {count} numbers, found `{word}`"
                    ))
                })?;
            }
            if let Some(word) = words.next() {
                let text = format!(
                    "line {number}: `{name}` has {count} numbers, found `{word}` after them"
                );
                return Err(ScriptError(text));
            }
            let kind = *kind;
            script.steps.push(Step { kind, arguments });
        }
        Ok(script)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_drawn_again_and_read_from_its_text() {
        for seed in 0..50 {
            let script = Script::draw(seed);
            assert_eq!(script, Script::draw(seed));
            assert_eq!(script.to_string().parse(), Ok(script));
        }
    }

    #[test]
    fn an_invalid_line_is_named() {
        let error = |text: &str| text.parse::<Script>().unwrap_err().to_string();
        assert_eq!(error("run\njump"), "line 2: unknown step `jump`");
        assert_eq!(error("end 1"), "line 1: `end` has 2 numbers, found ``");
        assert_eq!(
            error("run 1"),
            "line 1: `run` has 0 numbers, found `1` after them"
        );
        assert_eq!(
            error("scheduler"),
            "line 1: None: expected `inside` or `process`"
        );
    }
}
