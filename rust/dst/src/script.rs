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

/// Kinds that a seed has all of, or none of: a run with few kinds of requests and faults goes deeper than one with all.
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
    Elastic,
    Hooks,
    Retention,
    Guests,
    Many,
    Values,
    Inventory,
    Lists,
    /// Drawn for other seeds than the groups above, together with purges.
    Dependents,
    /// Drawn as [`OUTPUT_STEPS`] says.
    Output,
}

impl Group {
    const OPTIONAL: [Self; 18] = [
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
        Self::Elastic,
        Self::Hooks,
        Self::Retention,
        Self::Guests,
        Self::Many,
        Self::Values,
        Self::Inventory,
        Self::Lists,
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
    /// A client reads R, jobspec and eventlog of a job: client, job.
    Lookup = "lookup", 2, 3, Always;
    /// A client sets the memo of a job: client, job, value.
    Memo = "memo", 3, 3, Always;
    /// A client names another submission by the token of an acknowledged one: submission.
    Reuse = "reuse-token", 1, 2, Always;
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
    /// The queue has another constraint, which all nodes meet: which one.
    Reload = "reload", 1, 4, Queues;
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
    /// A write of the journal fails: after how many others, after how many bytes.
    JournalError = "journal-error", 2, 6, Service;
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
    /// The sync after this many fails, and the operations behind it: number, number of these.
    SyncError = "sync-error", 2, 8, Store;
    /// The sync of the database, after a copy of the log, after this many fails: number.
    CopyError = "copy-error", 1, 8, Store;
    /// Another program reads the database, or no longer: whether.
    Reader = "reader", 1, 6, Store;
    /// The daemon is killed, another program reads the database, and every process that has ended is started on a disk without faults:
    /// whether the other program locks the database.
    StartBesideReader = "start-beside-reader", 1, 2, Store;
    /// The clock is set: seconds forward, or backward by the second number.
    Clock = "clock", 2, 6, Clock;
    /// A job requests nodes: client, job, nodes, seconds that it waits.
    Extend = "extend", 4, 25, Elastic;
    /// A job requests time: client, job, seconds, seconds that it waits.
    ExtendTime = "extend-time", 4, 6, Elastic;
    /// A job requests another allocation: client, job, nodes, seconds that it waits.
    Allocate = "allocate", 4, 8, Elastic;
    /// A job releases nodes: client, job, nodes, seconds after which it reclaims them.
    Release = "release", 4, 20, Elastic;
    /// A grant is released: client, job, grant.
    ReleaseGrant = "release-grant", 3, 8, Elastic;
    /// A job reclaims what it has lent: client, job.
    Reacquire = "reacquire", 2, 10, Elastic;
    /// The requests of a job are cancelled: client, job.
    Withdraw = "cancel-requests", 2, 5, Elastic;
    /// A client cancels a grant as a job: client, grant.
    CancelGrant = "cancel-grant", 2, 5, Elastic;
    /// A client watches the requests of a job: client, job.
    WatchRequests = "watch-requests", 2, 8, Elastic;
    /// A prolog or epilog ends: which one, its exit code.
    EndHook = "end-hook", 2, 60, Hooks;
    /// The service of the hooks fails, and is restarted: after how many seconds more than the others, whether the job manager fails, too.
    FailHooks = "fail-hooks", 2, 20, Hooks;
    /// Inactive jobs are purged, or counted: client, how they are selected, number.
    Purge = "purge", 3, 12, Retention;
    /// A guest sends a request that only the owner may send: client, which one.
    Intrude = "intrude", 2, 12, Guests;
    /// The set-up of a guest's task ends: which one, how.
    SetUp = "set-up", 2, 30, Guests;
    /// No guest's task is set up, or all are: whether.
    HangSetups = "hang-set-ups", 1, 10, Guests;
    /// The owner sets values of the key-value store in one commit: which ones.
    SetValues = "set-values", 1, 25, Values;
    /// A client reads a value: client, which one.
    GetValue = "get-value", 2, 10, Values;
    /// The owner commits another R for a job that runs: job, rank.
    CommitR = "commit-r", 2, 10, Values;
    /// An execution target is added.
    Grow = "grow", 0, 10, Inventory;
    /// An execution target is removed for good: which one.
    Shrink = "shrink", 1, 10, Inventory;
    /// A client cancels the jobs of a user, or all that it may: client, client of that user, which.
    CancelAll = "cancel-all", 3, 4, Many;
    /// A client cancels the latest jobs: client, number.
    CancelMany = "cancel-many", 2, 10, Many;
    /// A client changes the urgency of the latest jobs: client, number, urgency.
    UrgencyMany = "urgency-many", 3, 10, Many;
    /// A client sends a signal to the latest jobs: client, number.
    SignalMany = "signal-many", 2, 6, Many;
    /// A client sends the next part of a list of jobs, or the first one: client, whether it is the last one, shape, time limit.
    SubmitPart = "submit-part", 4, 60, Lists;
    /// A client submits jobs that depend on others: client, shape, schemes, which jobs or times.
    SubmitDependent = "submit-dependent", 4, 50, Dependents;
    /// A client sends the next part of a list of jobs, which depend on others: client, whether it is the last one, schemes, which jobs or times.
    SubmitDependentPart = "submit-dependent-part", 4, 15, Dependents;
    /// A process writes output: which one, how many bytes.
    Write = "write", 2, 0, Output;
    /// Files are found in a count of guests' output: number.
    Count = "count", 1, 0, Output;
    /// Others use space of the file system of output: quarters.
    FillOutput = "fill-output", 1, 0, Output;
    /// A client discards the list that it has begun: client.
    AbortList = "abort-list", 1, 6, Lists;
}

/// The kinds of a run about the log of the store, and how often each is drawn: what a failed sync leaves shows after many commits and
/// several faults, each at its time.
const LOG_STEPS: &[(StepKind, u32)] = &[
    (StepKind::Submit, 100),
    (StepKind::Deliver, 60),
    (StepKind::Run, 100),
    (StepKind::Advance, 40),
    (StepKind::Cancel, 12),
    (StepKind::Watch, 12),
    (StepKind::List, 4),
    (StepKind::End, 30),
    (StepKind::Start, 50),
    (StepKind::EndHook, 60),
    (StepKind::FailHooks, 30),
    (StepKind::KillDaemon, 6),
    (StepKind::EndDaemon, 4),
    (StepKind::PowerFailure, 15),
    (StepKind::Full, 4),
    (StepKind::Busy, 4),
    (StepKind::DiskError, 8),
    (StepKind::SyncError, 40),
    (StepKind::CopyError, 25),
    (StepKind::Reader, 30),
    (StepKind::StartBesideReader, 30),
];

/// The kinds of a run about stored output, and how often each is drawn: few steps fill the file system, and a limit shows in the
/// checks of the next seconds.
const OUTPUT_STEPS: &[(StepKind, u32)] = &[
    (StepKind::Submit, 50),
    (StepKind::Cancel, 6),
    (StepKind::Deliver, 30),
    (StepKind::Run, 70),
    (StepKind::Advance, 60),
    (StepKind::End, 12),
    (StepKind::Fork, 4),
    (StepKind::Start, 20),
    (StepKind::SetUp, 10),
    (StepKind::Write, 120),
    (StepKind::Count, 20),
    (StepKind::FillOutput, 15),
    (StepKind::KillDaemon, 3),
    (StepKind::KillService, 10),
    (StepKind::KillReaper, 3),
    (StepKind::JournalFull, 3),
    (StepKind::Cut, 3),
    (StepKind::Purge, 8),
];

impl StepKind {
    /// Its name in the text.
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.iter();
        all.find(|(kind, ..)| *kind == self)
            .map_or("", |(_, name, ..)| name)
    }

    /// The number of its arguments.
    fn arguments(self) -> usize {
        let mut all = Self::ALL.iter();
        all.find(|(kind, ..)| *kind == self)
            .map_or(0, |(_, _, count, ..)| *count)
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

/// The instance of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// The place of the scheduler.
    pub scheduler: Placement,
    /// Whether a prolog is configured.
    pub prolog: bool,
    /// Whether an epilog is configured.
    pub epilog: bool,
    /// The number of inactive jobs above which the oldest are purged.
    pub inactive_num_limit: Option<u32>,
    /// The clients that are guests'.
    pub guests: Guests,
    /// Whether a sync of the store's log ends some time after its commit.
    pub has_slow_syncs: bool,
}

/// The part of guests in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guests {
    /// All clients are the owner's.
    None,
    /// Some of the clients are guests'.
    Some,
    /// Some of the clients are guests', and tasks write output, which has limits.
    Writing,
}

impl Guests {
    /// Whether some of the clients are guests'.
    pub fn exist(self) -> bool {
        self != Self::None
    }

    /// Whether tasks write output, which has limits.
    pub fn write(self) -> bool {
        self == Self::Writing
    }
}

impl Setup {
    /// The instance without options.
    pub const PLAIN: Self = Self {
        scheduler: Placement::Inside,
        prolog: false,
        epilog: false,
        inactive_num_limit: None,
        guests: Guests::None,
        has_slow_syncs: false,
    };

    /// The instances with one option less.
    pub(crate) fn simpler(self) -> impl Iterator<Item = Self> {
        let plain = Self::PLAIN;
        let simpler = [
            Self {
                scheduler: plain.scheduler,
                ..self
            },
            Self {
                prolog: false,
                ..self
            },
            Self {
                epilog: false,
                ..self
            },
            Self {
                inactive_num_limit: None,
                ..self
            },
            Self {
                has_slow_syncs: false,
                ..self
            },
            Self {
                guests: Guests::None,
                ..self
            },
            Self {
                guests: if self.guests.write() {
                    Guests::Some
                } else {
                    Guests::None
                },
                ..self
            },
        ];
        simpler.into_iter().filter(move |setup| *setup != self)
    }

    /// Takes a line of a script: an option and its value. Returns false if it is something else.
    fn read(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match (name, value) {
            ("scheduler", "inside") => self.scheduler = Placement::Inside,
            ("scheduler", "process") => self.scheduler = Placement::Process,
            ("scheduler", _) => return Err("expected `inside` or `process`".to_owned()),
            ("hooks", _) => {
                self.prolog = matches!(value, "prolog" | "both");
                self.epilog = matches!(value, "epilog" | "both");
                if !self.prolog && !self.epilog {
                    return Err("expected `prolog`, `epilog` or `both`".to_owned());
                }
            }
            ("inactive-num-limit", _) => {
                let number = value.parse().map_err(|_| "expected a number".to_owned())?;
                self.inactive_num_limit = Some(number);
            }
            ("guests", "yes") => self.guests = Guests::Some,
            ("guests", "writing") => self.guests = Guests::Writing,
            ("syncs", "slow") => self.has_slow_syncs = true,
            ("syncs", _) => return Err("expected `slow`".to_owned()),
            ("guests", _) => return Err("expected `yes` or `writing`".to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "scheduler {}", self.scheduler.name())?;
        match (self.prolog, self.epilog) {
            (true, true) => writeln!(out, "hooks both")?,
            (true, false) => writeln!(out, "hooks prolog")?,
            (false, true) => writeln!(out, "hooks epilog")?,
            (false, false) => {}
        }
        if let Some(number) = self.inactive_num_limit {
            writeln!(out, "inactive-num-limit {number}")?;
        }
        match self.guests {
            Guests::None => {}
            Guests::Some => writeln!(out, "guests yes")?,
            Guests::Writing => writeln!(out, "guests writing")?,
        }
        if self.has_slow_syncs {
            writeln!(out, "syncs slow")?;
        }
        Ok(())
    }
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The instance.
    pub setup: Setup,
    /// The steps.
    pub steps: Vec<Step>,
}

/// Draws the seeds with dependencies apart from other choices.
const DEPENDENTS: u64 = 1 << 40;
/// Draws the seeds with slow syncs apart from other choices.
const SLOW_SYNCS: u64 = 1 << 41;

impl Script {
    /// Draws a script.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let scheduler = if random.one_in(3) {
            Placement::Process
        } else {
            Placement::Inside
        };
        let is_about_log = random.one_in(6);
        let mut groups: Vec<Group> = if is_about_log {
            let hooks = random.one_in(2).then_some(Group::Hooks);
            hooks.into_iter().collect()
        } else if random.one_in(8) {
            Group::OPTIONAL.to_vec()
        } else {
            Group::OPTIONAL
                .into_iter()
                .filter(|_| random.one_in(4))
                .collect()
        };
        // Drawn apart: the steps of other seeds are those that they had without it.
        let has_output = !is_about_log && Random::new(!seed).one_in(4);
        let has_dependents = !is_about_log && Random::new(seed ^ DEPENDENTS).one_in(4);
        if has_output {
            groups.clear();
        } else if has_dependents {
            groups.push(Group::Dependents);
            if !groups.contains(&Group::Retention) {
                groups.push(Group::Retention);
            }
        }
        let hooks = if groups.contains(&Group::Hooks) {
            1 + random.below(3)
        } else {
            0
        };
        let has_limit = groups.contains(&Group::Retention) && random.one_in(2);
        let setup = Setup {
            scheduler,
            prolog: hooks & 1 != 0,
            epilog: hooks & 2 != 0,
            inactive_num_limit: has_limit.then(|| random.below(6)),
            guests: match groups.contains(&Group::Guests) {
                _ if has_output => Guests::Writing,
                true => Guests::Some,
                false => Guests::None,
            },
            has_slow_syncs: Random::new(seed ^ SLOW_SYNCS).one_in(3),
        };
        let kinds: Vec<(StepKind, u32)> = if is_about_log {
            let is_about_hooks = |kind| matches!(kind, StepKind::EndHook | StepKind::FailHooks);
            let has_hooks = groups.contains(&Group::Hooks);
            let kinds = LOG_STEPS.iter();
            let kinds = kinds.filter(|(kind, _)| has_hooks || !is_about_hooks(*kind));
            kinds.copied().collect()
        } else if has_output {
            OUTPUT_STEPS.to_vec()
        } else {
            let kinds = StepKind::ALL
                .iter()
                .filter(|(.., group)| *group == Group::Always || groups.contains(group));
            // A reload shows little unless resources are being requested.
            let reloads = if has_dependents { 1 } else { 4 };
            let factor = |kind: StepKind| if kind == StepKind::Reload { reloads } else { 1 };
            kinds
                .map(|(kind, _, _, weight, _)| (*kind, weight * factor(*kind)))
                .collect()
        };
        let total: u32 = kinds.iter().map(|(_, weight)| weight).sum();
        let length = 40 + random.below(160);
        let mut draw_step = || {
            let mut at = random.below(total);
            let drawn = kinds.iter().find(|(_, weight)| {
                let is_it = at < *weight;
                at = at.wrapping_sub(*weight);
                is_it
            });
            let kind = drawn?.0;
            let mut arguments = [0; MAX_ARGUMENTS];
            for argument in arguments.iter_mut().take(kind.arguments()) {
                // Small numbers more often: they are the interesting ones of most kinds.
                let bits = 1 + random.below(16);
                *argument = random.below(1 << bits);
            }
            Some(Step { kind, arguments })
        };
        let mut steps: Vec<_> = (0..length).filter_map(|_| draw_step()).collect();
        if is_about_log {
            // It shows what was not durable.
            let kind = StepKind::PowerFailure;
            let arguments = [random.below(1 << 16), 0, 0, 0];
            steps.push(Step { kind, arguments });
        }
        Self { setup, steps }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.setup)?;
        for step in &self.steps {
            write!(out, "{}", step.kind.name())?;
            for argument in step.arguments.iter().take(step.kind.arguments()) {
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
            setup: Setup::PLAIN,
            steps: Vec::new(),
        };
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else {
                continue;
            };
            let value = words.clone().next().unwrap_or_default();
            let is_option = script.setup.read(name, value);
            if is_option.map_err(|expected| {
                ScriptError(format!("line {number}: `{name} {value}`: {expected}"))
            })? {
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
            "line 1: `scheduler `: expected `inside` or `process`"
        );
    }
}
