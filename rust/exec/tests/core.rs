//! The state machine over a virtual kernel: no process, file or clock.

#[path = "support/virtual_kernel.rs"]
mod virtual_kernel;

use std::collections::BTreeSet;
use std::ffi::CString;

use penstock_exec::log::LoggedTask;
use penstock_exec::mark::MarkSpace;
use penstock_exec::protocol::{
    Event, Group, Guest, Hello, Input, Message, Output, Pmi, Relay, Request, SignalTarget,
    TaskSpec, VERSION,
};
use penstock_exec::{
    BootId, CgroupLimits, ConnectionId, EnvironmentBlock, JobId, Pid, ProcessId, Reaper,
    SpawnFailure, Step, TaskId, TaskRank, WaitStatus,
};
use virtual_kernel::{REAPER, VirtualKernel};

const BOOT: BootId = BootId(42);
const SERVICE: ConnectionId = ConnectionId(7);
const EXITED: WaitStatus = WaitStatus::Exited(0);

/// A reaper over a virtual kernel, and a service that is connected to it.
struct World {
    kernel: VirtualKernel,
    reaper: Reaper,
}

impl World {
    fn new() -> Self {
        Self::with_marks(MarkSpace::below(u64::MAX))
    }

    fn with_marks(marks: Option<MarkSpace>) -> Self {
        Self::over(VirtualKernel::default(), marks)
    }

    fn over(mut kernel: VirtualKernel, marks: Option<MarkSpace>) -> Self {
        let hello = Hello {
            version: VERSION,
            boot: BOOT,
            process: ProcessId {
                pid: REAPER,
                start_time: 0,
            },
        };
        let recorded = (!kernel.log.is_empty()).then(|| kernel.log());
        let reaper = Reaper::restore(hello, marks, recorded, &mut kernel).expect("not full");
        let mut world = Self { kernel, reaper };
        world.request(Request::Hello { version: VERSION });
        world
    }

    /// Passes a request in, and returns the events and the error number that come out.
    fn request(&mut self, request: Request) -> (Vec<Event>, i32) {
        self.reaper.handle(SERVICE, 1, request, &mut self.kernel);
        let mut events = Vec::new();
        let mut result = None;
        for message in self.run() {
            match message {
                Message::Events(more) => events.extend(more),
                Message::Done { errno, .. } => result = Some(errno),
                Message::Hello(_) => {}
            }
        }
        (events, result.expect("every request ends"))
    }

    /// Runs the reaper until it is idle.
    fn run(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let exits = std::mem::take(&mut self.kernel.ended);
            self.reaper.reap(&exits, 2_000);
            if self.kernel.is_childless() {
                self.reaper.record_childless();
            }
            self.reaper.step(&mut self.kernel);
            self.reaper.commit(&mut self.kernel);
            let drained = self.reaper.take_messages().into_iter();
            messages.extend(drained.map(|(_, message)| message));
            if !self.reaper.has_queued_requests() && self.kernel.ended.is_empty() {
                return messages;
            }
        }
    }

    fn events(&mut self) -> Vec<Event> {
        let events = |message| match message {
            Message::Events(events) => events,
            _ => Vec::new(),
        };
        self.run().into_iter().flat_map(events).collect()
    }

    fn start(&mut self, job: u64, rank: u32) -> Pid {
        let (events, errno) = self.request(Request::Spawn(vec![spec(job, rank)]));
        assert_eq!(errno, 0);
        match events.as_slice() {
            [Event::Started { process, .. }] => process.pid,
            other => panic!("{other:?}"),
        }
    }
}

fn task(job: u64, rank: u32) -> TaskId {
    TaskId {
        job: JobId::new(job),
        rank: TaskRank(rank),
    }
}

fn spec(job: u64, rank: u32) -> TaskSpec {
    TaskSpec {
        task: task(job, rank),
        arguments: vec![CString::from(c"true")],
        environment: EnvironmentBlock::default(),
        directory: CString::from(c"/"),
        stdin: Input::Null,
        stdout: Output::Null,
        stderr: Output::Null,
        relay: Relay::None,
        cpus: Vec::new(),
        limits: Vec::new(),
        cgroup_limits: CgroupLimits::default(),
        umask: 0,
        group: Group::Session,
        guest: None,
        pmi: Pmi::None,
    }
}

fn empty(job: u64) -> Event {
    Event::Empty {
        job: JobId::new(job),
    }
}

#[test]
fn a_status_is_sent_after_it_is_logged() {
    let mut world = World::new();
    let pid = world.start(1, 0);
    world.kernel.is_full = true;
    world.kernel.end(pid, EXITED);
    assert_eq!(world.run(), []);
    world.reaper.commit(&mut world.kernel);
    assert!(world.reaper.has_unwritten_records());
    world.kernel.is_full = false;
    let events = world.events();
    assert!(matches!(events.as_slice(), [Event::Ended { .. }, last] if *last == empty(1)));
    let log = world.kernel.log();
    let state = log
        .jobs
        .get(&JobId::new(1))
        .and_then(|tasks| tasks.get(&task(1, 0)));
    assert!(matches!(state, Some(LoggedTask::Ended(..))));
}

#[test]
fn requests_before_hello_are_rejected() {
    let mut world = World::new();
    let stranger = ConnectionId(8);
    world
        .reaper
        .handle(stranger, 5, Request::List, &mut world.kernel);
    let errno = libc::EPROTO;
    let expected = (stranger, Message::Done { id: 5, errno });
    world.reaper.commit(&mut world.kernel);
    assert_eq!(world.reaper.take_messages(), [expected]);
    let other_version = Request::Hello {
        version: VERSION + 1,
    };
    world.reaper.disconnect(SERVICE);
    assert_eq!(world.request(other_version).1, libc::EPROTONOSUPPORT);
    assert_eq!(world.request(Request::List).1, libc::EPROTO);
}

#[test]
fn a_job_is_empty_when_its_last_descendant_has_ended() {
    let mut world = World::new();
    let pid = world.start(1, 0);
    let child = world.kernel.fork(pid);
    let grandchild = world.kernel.fork(child);
    world.kernel.leave_session(grandchild);
    world.kernel.end(pid, EXITED);
    assert!(matches!(world.events().as_slice(), [Event::Ended { .. }]));
    assert_eq!(
        world.request(Request::Forget(vec![JobId::new(1)])).1,
        libc::EBUSY
    );
    world.kernel.end(child, EXITED);
    assert_eq!(world.events(), []);
    world.kernel.end(grandchild, EXITED);
    assert_eq!(world.events(), [empty(1)]);
    assert_eq!(world.request(Request::Forget(vec![JobId::new(1)])).1, 0);
    assert_eq!(world.request(Request::List), (vec![], 0));
    assert!(world.kernel.log().jobs.is_empty());
}

#[test]
fn a_kill_overtakes_forks() {
    let mut world = World::new();
    let pid = world.start(1, 0);
    let other = world.start(2, 0);
    world.kernel.processes.get_mut(&pid).expect("it runs").forks = 6;
    let child = world.kernel.fork(pid);
    world.kernel.leave_session(child);
    let (events, errno) = world.request(Request::Kill(vec![JobId::new(1)]));
    assert_eq!(errno, 0);
    assert_eq!(events.last(), Some(&empty(1)));
    let left: Vec<_> = world.kernel.processes.keys().copied().collect();
    assert_eq!(left, [other]);
}

#[test]
fn one_request_kills_several_jobs() {
    let mut world = World::new();
    for job in 1..=3 {
        world.start(job, 0);
    }
    let jobs = vec![JobId::new(1), JobId::new(99), JobId::new(3)];
    let (events, errno) = world.request(Request::Kill(jobs));
    assert_eq!(errno, libc::ESRCH);
    assert!(events.contains(&empty(1)) && events.contains(&empty(3)));
    assert_eq!(world.kernel.processes.len(), 1);
}

#[test]
fn a_killed_task_leaves_nothing_and_other_tasks_of_the_job_continue() {
    let mut world = World::new();
    let (first, second) = (world.start(1, 0), world.start(1, 1));
    // Processes of both tasks have left their parents and sessions.
    for leader in [first, second] {
        let child = world.kernel.fork(leader);
        let grandchild = world.kernel.fork(child);
        world.kernel.leave_session(grandchild);
        world.kernel.end(child, EXITED);
    }
    world.events();
    assert_eq!(world.kernel.processes.len(), 4);
    world.kernel.end(second, EXITED);
    world.events();
    let tasks = vec![task(1, 1), task(1, 2)];
    let (events, errno) = world.request(Request::KillTasks(tasks));
    assert_eq!(errno, 0);
    let gone = |rank| Event::TaskEmpty {
        task: task(1, rank),
    };
    assert_eq!(events, [gone(1), gone(2)]);
    assert_eq!(world.kernel.processes.len(), 2);
    assert!(world.kernel.processes.contains_key(&first));
    // A task that has been killed does not start.
    let (events, _) = world.request(Request::Spawn(vec![spec(1, 2)]));
    assert!(matches!(events.as_slice(), [Event::Failed { .. }]));
    let (_, errno) = world.request(Request::KillTasks(vec![task(9, 0)]));
    assert_eq!(errno, libc::ESRCH);
}

#[test]
fn a_killed_task_is_empty_when_its_last_process_has_ended() {
    let mut world = World::new();
    let pid = world.start(1, 0);
    let child = world.kernel.fork(pid);
    world.kernel.leave_session(child);
    // The process is in the kernel, and SIGKILL takes effect later.
    world.kernel.is_uninterruptible.insert(child);
    let killed = Request::KillTasks(vec![task(1, 0)]);
    let (events, _) = world.request(killed);
    assert!(matches!(events.as_slice(), [Event::Ended { .. }]));
    world.kernel.end(child, EXITED);
    let gone = Event::TaskEmpty { task: task(1, 0) };
    assert_eq!(world.events(), [gone, empty(1)]);
}

#[test]
fn a_killed_job_gets_no_new_task() {
    let mut world = World::new();
    world.start(1, 0);
    world.request(Request::Kill(vec![JobId::new(1)]));
    let (events, _) = world.request(Request::Spawn(vec![spec(1, 1)]));
    let failure = SpawnFailure {
        step: Step::Cancelled,
        errno: libc::ECANCELED,
    };
    let id = task(1, 1);
    assert_eq!(events.first(), Some(&Event::Failed { task: id, failure }));
    assert!(world.kernel.processes.is_empty());
}

#[test]
fn a_descendant_without_a_mark_is_found_by_its_session() {
    let mut world = World::with_marks(None);
    let pid = world.start(1, 0);
    world.start(2, 0);
    let child = world.kernel.fork(pid);
    world.kernel.end(pid, EXITED);
    assert!(matches!(world.events().as_slice(), [Event::Ended { .. }]));
    let (events, _) = world.request(Request::Kill(vec![JobId::new(1)]));
    assert_eq!(events, [empty(1)]);
    assert!(!world.kernel.processes.contains_key(&child));
}

#[test]
fn a_descendant_of_no_known_job_ends_with_the_last_job() {
    let mut world = World::new();
    let (first, second) = (world.start(1, 0), world.start(2, 0));
    let child = world.kernel.fork(first);
    world.kernel.leave_session(child);
    world
        .kernel
        .processes
        .get_mut(&child)
        .expect("it runs")
        .mark = 3;
    world.kernel.end(first, EXITED);
    assert_eq!(world.events().last(), Some(&empty(1)));
    assert!(world.kernel.processes.contains_key(&child));
    assert!(!world.reaper.is_idle());
    world.kernel.end(second, EXITED);
    world.events();
    assert!(world.kernel.processes.is_empty());
}

#[test]
fn a_failed_start_is_remembered() {
    for step in [Step::Chdir, Step::Record] {
        let mut world = World::new();
        let failure = SpawnFailure { step, errno: 28 };
        world.kernel.fails.insert(TaskRank(0), failure);
        let expected = Event::Failed {
            task: task(1, 0),
            failure,
        };
        let (events, _) = world.request(Request::Spawn(vec![spec(1, 0)]));
        assert_eq!(events, [expected, empty(1)]);
        world.kernel.fails.clear();
        let (events, _) = world.request(Request::Spawn(vec![spec(1, 0)]));
        assert_eq!(events, [expected, empty(1)]);
        assert!(world.kernel.processes.is_empty());
    }
}

#[test]
fn a_repeated_request_for_a_task_that_has_ended_tells_that_its_job_is_empty() {
    let mut world = World::new();
    let first = world.start(1, 0);
    world.kernel.end(first, EXITED);
    world.run();
    let second = world.start(2, 0);
    let tasks = vec![spec(1, 0), spec(2, 0), spec(2, 1)];
    let (events, errno) = world.request(Request::Spawn(tasks.clone()));
    assert_eq!(errno, 0);
    let repeated = |events: &[Event]| events.iter().filter(|event| **event == empty(1)).count();
    assert!(matches!(events[0], Event::Started { task: of, .. } if of == task(1, 0)));
    assert!(matches!(events[1], Event::Ended { task: of, .. } if of == task(1, 0)));
    assert_eq!(repeated(&events), 1);
    assert!(!events.contains(&empty(2)));
    world.kernel.end(second, EXITED);
    world.run();
    // A task of the second job still runs.
    let (events, _) = world.request(Request::Spawn(tasks));
    assert_eq!(repeated(&events), 1);
    assert!(!events.contains(&empty(2)));
}

#[test]
fn a_large_batch_leaves_turns_for_others() {
    let mut world = World::new();
    let batch: Vec<_> = (0..100).map(|rank| spec(1, rank)).collect();
    world
        .reaper
        .handle(SERVICE, 1, Request::Spawn(batch), &mut world.kernel);
    world.reaper.step(&mut world.kernel);
    assert!(world.reaper.has_queued_requests());
    let started = world.kernel.processes.len();
    assert!(started > 0 && started < 100);
    let (events, _) = world.request(Request::Kill(vec![JobId::new(1)]));
    let cancelled = |event: &&Event| matches!(event, Event::Failed { .. });
    assert_eq!(events.iter().filter(cancelled).count(), 100 - started);
    assert_eq!(events.last(), Some(&empty(1)));
}

/// Requests 1,000 tasks of job 1, and then the one of job 2.
fn request_many_and_one(world: &mut World) {
    let (reaper, kernel) = (&mut world.reaper, &mut world.kernel);
    let many: Vec<_> = (0..1000).map(|rank| spec(1, rank)).collect();
    reaper.handle(SERVICE, 1, Request::Spawn(many), kernel);
    reaper.step(kernel);
    reaper.handle(SERVICE, 2, Request::Spawn(vec![spec(2, 0)]), kernel);
}

fn started(world: &World) -> Vec<TaskId> {
    world.kernel.spawned.iter().map(|(task, _)| *task).collect()
}

#[test]
fn jobs_start_their_tasks_in_turn() {
    let mut world = World::new();
    request_many_and_one(&mut world);
    let before = started(&world).len();
    let messages = world.run();
    let done = messages.iter().filter_map(|message| match message {
        Message::Done { id, errno } => Some((*id, *errno)),
        _ => None,
    });
    assert_eq!(done.collect::<Vec<_>>(), [(2, 0), (1, 0)]);
    let started = started(&world);
    let own = started.iter().position(|id| *id == task(2, 0));
    let own = own.expect("it has started");
    assert!(own <= before + 1, "after {own} tasks of the other job");
    // The tasks of a job start in the order of the request.
    let others: Vec<_> = started.into_iter().filter(|id| *id != task(2, 0)).collect();
    let requested: Vec<_> = (0..1000).map(|rank| task(1, rank)).collect();
    assert_eq!(others, requested);
}

#[test]
fn users_start_their_tasks_in_turn_whatever_the_number_of_their_jobs() {
    let mut world = World::new();
    let (reaper, kernel) = (&mut world.reaper, &mut world.kernel);
    let guests = |job, uid| {
        let tasks = (0..10).map(|rank| TaskSpec {
            guest: Some(Guest {
                uid,
                no_new_privs: false,
                names_stdout: false,
                names_stderr: false,
            }),
            ..spec(job, rank)
        });
        Request::Spawn(tasks.collect())
    };
    for job in 1..=100 {
        let id = u32::try_from(job).expect("it is small");
        reaper.handle(SERVICE, id, guests(job, 1001), kernel);
    }
    reaper.handle(SERVICE, 101, guests(101, 1002), kernel);
    let own = (0..10).map(|rank| spec(102, rank)).collect();
    reaper.handle(SERVICE, 102, Request::Spawn(own), kernel);
    world.run();
    let started = started(&world);
    for job in [101, 102] {
        let last = started.iter().rposition(|id| *id == task(job, 9));
        assert!(last.expect("it has started") < 30);
    }
    assert_eq!(started.len(), 1020);
    // The jobs of a user take turns, too.
    let first: BTreeSet<_> = started[30..130].iter().map(|task| task.job).collect();
    assert_eq!(first.len(), 100);
}

#[test]
fn a_killed_job_leaves_the_turns_and_each_of_its_tasks_is_reported() {
    let mut world = World::new();
    request_many_and_one(&mut world);
    let before = started(&world);
    let kill = Request::Kill(vec![JobId::new(1)]);
    world.reaper.handle(SERVICE, 3, kill, &mut world.kernel);
    let events = world.events();
    assert_eq!(started(&world), [before, vec![task(2, 0)]].concat());
    let mut over: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::Failed { task, .. } | Event::Ended { task, .. } => Some(*task),
            _ => None,
        })
        .collect();
    over.sort();
    assert_eq!(
        over,
        (0..1000).map(|rank| task(1, rank)).collect::<Vec<_>>()
    );
    // A job of the same number would get turns again.
    world.request(Request::Forget(vec![JobId::new(1)]));
    world.start(1, 0);
}

#[test]
fn the_started_tasks_of_a_job_continue_when_its_starts_are_cancelled() {
    let mut world = World::new();
    request_many_and_one(&mut world);
    let before = started(&world);
    let cancel = Request::CancelStarts(vec![JobId::new(1), JobId::new(9)]);
    world.reaper.handle(SERVICE, 3, cancel, &mut world.kernel);
    let messages = world.run();
    assert_eq!(started(&world), [before.clone(), vec![task(2, 0)]].concat());
    let failed: Vec<_> = messages
        .iter()
        .flat_map(|message| match message {
            Message::Events(events) => events.as_slice(),
            _ => &[],
        })
        .filter_map(|event| match event {
            Event::Failed { task, failure } if failure.step == Step::Cancelled => Some(*task),
            _ => None,
        })
        .collect();
    let is_started = |rank| before.contains(&task(1, rank));
    let others = (0..1000).filter(|rank| !is_started(*rank));
    assert_eq!(failed, others.map(|rank| task(1, rank)).collect::<Vec<_>>());
    // Job 9 is unknown, and the first request has no more tasks.
    let mut done: Vec<_> = messages
        .iter()
        .filter_map(|message| match message {
            Message::Done { id, errno } => Some((*id, *errno)),
            _ => None,
        })
        .collect();
    done.sort_unstable();
    assert_eq!(done, [(1, 0), (2, 0), (3, libc::ESRCH)]);
    assert_eq!(world.kernel.processes.len(), before.len() + 1);
    assert!(world.kernel.signals.is_empty());
}

#[test]
fn a_list_waits_for_earlier_tasks_and_not_for_later_ones() {
    let mut world = World::new();
    let (reaper, kernel) = (&mut world.reaper, &mut world.kernel);
    let tasks = |job, count| Request::Spawn((0..count).map(|rank| spec(job, rank)).collect());
    reaper.handle(SERVICE, 1, tasks(1, 100), kernel);
    reaper.handle(SERVICE, 2, Request::List, kernel);
    reaper.handle(SERVICE, 3, tasks(2, 500), kernel);
    let done = world.run().into_iter().filter_map(|message| match message {
        Message::Done { id, .. } => Some(id),
        _ => None,
    });
    assert_eq!(done.collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn another_reaper_knows_what_was_recorded() {
    let mut world = World::new();
    let (running, lost) = (world.start(1, 0), world.start(1, 1));
    let ended = world.start(2, 0);
    world.kernel.end(ended, WaitStatus::Exited(9));
    world.events();
    // The reaper is killed; one of its tasks ends before the next one begins.
    let mut kernel = std::mem::take(&mut world.kernel);
    kernel.processes.remove(&lost);
    kernel.processes.get_mut(&running).expect("it runs").parent = Pid(0);

    let mut world = World::over(kernel, MarkSpace::below(u64::MAX));
    assert_eq!(world.kernel.watched, BTreeSet::from([running]));
    let (events, _) = world.request(Request::List);
    let status = |events: &[Event], id| {
        events.iter().find_map(|event| match event {
            Event::Ended { task, end } if *task == id => Some(end.status),
            _ => None,
        })
    };
    assert_eq!(status(&events, task(1, 0)), None);
    assert_eq!(status(&events, task(1, 1)), Some(WaitStatus::Unknown));
    assert_eq!(status(&events, task(2, 0)), Some(WaitStatus::Exited(9)));
    assert_eq!(
        world.request(Request::Forget(vec![JobId::new(1)])).1,
        libc::EBUSY
    );
    world.reaper.record_orphan_end(running, 3_000);
    let events = world.events();
    assert_eq!(status(&events, task(1, 0)), Some(WaitStatus::Unknown));
    assert_eq!(events.last(), Some(&empty(1)));
}

#[test]
fn a_standby_gets_the_tasks_of_the_reaper_that_it_replaces() {
    let mut world = World::new();
    let [ended, running, parent] =
        [(1, 0), (2, 0), (3, 0)].map(|(job, rank)| world.start(job, rank));
    // A descendant that only its mark tells, of a task that the killed reaper has not waited for.
    let daemon = world.kernel.fork(parent);
    world.kernel.leave_session(daemon);
    world.kernel.end(ended, WaitStatus::Exited(9));

    let kernel = std::mem::take(&mut world.kernel);
    let mut world = World::over(kernel, MarkSpace::below(u64::MAX));
    assert!(world.kernel.watched.is_empty());
    let (events, _) = world.request(Request::List);
    let status = |events: &[Event], id| {
        events.iter().find_map(|event| match event {
            Event::Ended { task, end } if *task == id => Some(end.status),
            _ => None,
        })
    };
    assert_eq!(status(&events, task(1, 0)), Some(WaitStatus::Exited(9)));
    let is_started = |id| {
        events
            .iter()
            .any(|event| matches!(event, Event::Started { task, .. } if *task == id))
    };
    assert!(is_started(task(2, 0)) && is_started(task(3, 0)));

    // The mark of a new task is that of no inherited process.
    let new = world.start(4, 0);
    let mark = |world: &World, pid| world.kernel.processes[&pid].mark;
    let marks = [running, parent, new].map(|pid| mark(&world, pid));
    assert_eq!(BTreeSet::from(marks).len(), 3);

    world.kernel.end(parent, WaitStatus::Exited(5));
    let events = world.events();
    assert_eq!(status(&events, task(3, 0)), Some(WaitStatus::Exited(5)));
    assert!(!events.contains(&empty(3)), "a descendant is left");
    world.kernel.end(daemon, EXITED);
    assert_eq!(world.events(), [empty(3)]);
    world.request(Request::Kill(vec![JobId::new(2)]));
    assert!(!world.kernel.processes.contains_key(&running));
}

#[test]
fn after_a_reboot_no_task_runs() {
    let mut world = World::new();
    let pid = world.start(1, 0);
    let mut kernel = std::mem::take(&mut world.kernel);
    let mut contents = kernel.log();
    contents.boot = BootId(BOOT.0 + 1);
    let hello = Hello {
        version: VERSION,
        boot: BOOT,
        process: contents.reaper,
    };
    // A process of the same pid and start time runs, and it is another one.
    assert!(kernel.processes.contains_key(&pid));
    let reaper = Reaper::restore(hello, None, Some(contents), &mut kernel).expect("not full");
    let mut world = World { kernel, reaper };
    world.request(Request::Hello { version: VERSION });
    assert!(world.kernel.watched.is_empty());
    let state = world.kernel.log().jobs[&JobId::new(1)][&task(1, 0)];
    assert!(matches!(state, LoggedTask::Ended(_, end) if end.status == WaitStatus::Unknown));
}

#[test]
fn a_log_of_forgotten_jobs_is_compacted() {
    let mut world = World::new();
    let kept = world.start(0, 0);
    for job in 1..5_000 {
        let pid = world.start(job, 0);
        world.kernel.end(pid, EXITED);
        world.events();
        assert_eq!(world.request(Request::Forget(vec![JobId::new(job)])).1, 0);
    }
    // Once at the start.
    assert!(world.kernel.rewrites > 1);
    assert!(world.kernel.log.len() < 400 << 10);
    let log = world.kernel.log();
    assert!(!log.is_torn);
    assert_eq!(log.jobs.len(), 1);
    assert!(world.kernel.processes.contains_key(&kept));
}

fn guests_spec(job: u64, rank: u32) -> TaskSpec {
    let guest = Guest {
        uid: 1001,
        no_new_privs: true,
        names_stdout: false,
        names_stderr: false,
    };
    TaskSpec {
        guest: Some(guest),
        ..spec(job, rank)
    }
}

#[test]
fn a_list_has_the_tasks_that_are_being_set_up() {
    let mut world = World::new();
    let spawn = Request::Spawn(vec![guests_spec(1, 0)]);
    assert_eq!(world.request(spawn), (vec![], 0));
    // The next service must not take the core of the process for free.
    let (events, 0) = world.request(Request::List) else {
        panic!("the list is rejected");
    };
    let (task, pid) = world.kernel.spawned[0];
    assert!(
        matches!(events[..], [Event::Started { task: started, process }] if started == task && process.pid == pid),
        "{events:?}"
    );
}

#[test]
fn later_services_get_the_event_of_dropped_output() {
    let mut world = World::new();
    let pid = world.start(1, 0);
    let job = JobId::new(1);
    world.kernel.unwritten.insert(job, 70);
    world.kernel.end(pid, EXITED);
    let ends = [
        Event::OutputDropped { job, bytes: 70 },
        Event::Empty { job },
    ];
    assert!(world.events().ends_with(&ends));
    assert!(world.request(Request::List).0.ends_with(&ends));
}

#[test]
fn output_in_flight_is_listed_on_request() {
    let mut world = World::new();
    world.start(1, 0);
    let job = JobId::new(1);
    assert_eq!(world.request(Request::ListHeldOutput), (vec![], 0));
    world.kernel.held.insert(job, 70);
    let held = Event::OutputHeld { job, bytes: 70 };
    assert_eq!(world.request(Request::ListHeldOutput), (vec![held], 0));
}

#[test]
fn a_compacted_log_has_the_tasks_that_are_being_set_up() {
    let mut world = World::new();
    let spawn = Request::Spawn(vec![guests_spec(5_000, 0)]);
    assert_eq!(world.request(spawn), (vec![], 0));
    let (_, set_up) = world.kernel.spawned[0];
    while world.kernel.rewrites == 1 {
        let job = world.kernel.spawned.len() as u64;
        let pid = world.start(job, 0);
        world.kernel.end(pid, EXITED);
        world.events();
        assert_eq!(world.request(Request::Forget(vec![JobId::new(job)])).1, 0);
    }
    // The reaper is killed: the next one watches the process, and starts no other for the task.
    let mut kernel = std::mem::take(&mut world.kernel);
    kernel.processes.get_mut(&set_up).expect("it runs").parent = Pid(0);
    let world = World::over(kernel, MarkSpace::below(u64::MAX));
    assert_eq!(world.kernel.watched, BTreeSet::from([set_up]));
}

#[test]
fn events_go_to_every_service_and_answers_to_the_one() {
    let mut world = World::new();
    let second = ConnectionId(9);
    let hello = Request::Hello { version: VERSION };
    world.reaper.handle(second, 0, hello, &mut world.kernel);
    world.run();
    let pid = world.start_quietly(1, 0);
    world.kernel.end(pid, EXITED);
    let exits = std::mem::take(&mut world.kernel.ended);
    world.reaper.reap(&exits, 0);
    world.reaper.commit(&mut world.kernel);
    let receivers: Vec<_> = world
        .reaper
        .take_messages()
        .into_iter()
        .map(|(to, _)| to)
        .collect();
    assert_eq!(receivers, [SERVICE, second]);
    world
        .reaper
        .handle(second, 3, Request::List, &mut world.kernel);
    world.reaper.commit(&mut world.kernel);
    assert!(
        world
            .reaper
            .take_messages()
            .iter()
            .all(|(to, _)| *to == second)
    );
}

#[test]
fn hello_is_answered_before_any_event() {
    let mut world = World::new();
    let pid = world.start(1, 0);
    world.kernel.end(pid, EXITED);
    let exits = std::mem::take(&mut world.kernel.ended);
    world.reaper.reap(&exits, 0);
    let second = ConnectionId(9);
    let hello = Request::Hello { version: VERSION };
    world.reaper.handle(second, 0, hello, &mut world.kernel);
    world.reaper.commit(&mut world.kernel);
    let sent = world.reaper.take_messages().into_iter();
    let sent: Vec<_> = sent.filter(|(to, _)| *to == second).collect();
    assert!(matches!(
        sent.as_slice(),
        [
            (_, Message::Hello(_)),
            (_, Message::Done { id: 0, errno: 0 }),
            ..
        ]
    ));
}

impl World {
    fn start_quietly(&mut self, job: u64, rank: u32) -> Pid {
        self.request(Request::Spawn(vec![spec(job, rank)]));
        *self.kernel.processes.keys().last().expect("one")
    }
}

#[test]
fn a_signal_to_a_job_reaches_every_session() {
    let mut world = World::new();
    let pid = world.start(1, 0);
    let child = world.kernel.fork(pid);
    world.kernel.leave_session(child);
    let target = SignalTarget::Job(JobId::new(1));
    let request = |signal| Request::Signal { target, signal };
    assert_eq!(world.request(request(19)).1, 0);
    assert!(
        world
            .kernel
            .processes
            .values()
            .all(|process| process.is_stopped)
    );
    assert_eq!(world.request(request(99)).1, libc::EINVAL);
}

#[test]
fn a_signal_waits_for_tasks_that_are_queued() {
    const SIGUSR1: u32 = 10;
    let mut world = World::new();
    let batch: Vec<_> = (0..100).map(|rank| spec(1, rank)).collect();
    let (reaper, kernel) = (&mut world.reaper, &mut world.kernel);
    reaper.handle(SERVICE, 1, Request::Spawn(batch), kernel);
    let signals = [
        SignalTarget::Task(task(1, 99)),
        SignalTarget::Job(JobId::new(1)),
    ];
    for (id, target) in (2..).zip(signals) {
        let signal = SIGUSR1;
        reaper.handle(SERVICE, id, Request::Signal { target, signal }, kernel);
    }
    let results = world.run().into_iter().filter_map(|message| match message {
        Message::Done { id, errno } => Some((id, errno)),
        _ => None,
    });
    assert_eq!(results.collect::<Vec<_>>(), [(1, 0), (2, 0), (3, 0)]);
    let (last, _) = world.kernel.spawned.last().expect("one").to_owned();
    assert_eq!(last, task(1, 99));
    assert_eq!(world.kernel.signals.len(), 101);
    // Only what is queued waits.
    let target = SignalTarget::Task(task(1, 7));
    let signal = SIGUSR1;
    assert_eq!(world.request(Request::Signal { target, signal }).1, 0);
}

#[test]
fn nothing_starts_after_a_shutdown() {
    let mut world = World::new();
    assert_eq!(world.request(Request::Shutdown).1, 0);
    assert!(world.reaper.is_finished());
    let late = Request::Spawn(vec![spec(1, 0)]);
    assert_eq!(world.request(late), (vec![], libc::ESHUTDOWN));
    assert!(world.kernel.processes.is_empty());
}

#[test]
fn a_list_has_all_tasks_that_were_requested_before_it() {
    let mut world = World::new();
    let tasks: Vec<_> = (0..100).map(|rank| spec(1, rank)).collect();
    let new = ConnectionId(8);
    let (reaper, kernel) = (&mut world.reaper, &mut world.kernel);
    reaper.handle(new, 1, Request::Hello { version: VERSION }, kernel);
    reaper.handle(SERVICE, 2, Request::Spawn(tasks), kernel);
    reaper.disconnect(SERVICE);
    reaper.handle(new, 3, Request::List, kernel);
    let mut started = 0;
    for message in world.run() {
        match message {
            Message::Events(events) => {
                let is_start = |event: &&Event| matches!(event, Event::Started { .. });
                started += events.iter().filter(is_start).count();
            }
            Message::Done { id: 3, errno: 0 } => break,
            _ => {}
        }
    }
    // Each task is broadcast when it starts, and listed.
    assert_eq!(started, 200);
}

#[test]
fn only_the_messages_of_starts_may_wait() {
    let mut world = World::new();
    let is_urgent = |world: &mut World, request| {
        world.reaper.handle(SERVICE, 1, request, &mut world.kernel);
        world.reaper.step(&mut world.kernel);
        world.reaper.commit(&mut world.kernel);
        assert!(world.reaper.has_messages());
        world.reaper.has_urgent_messages()
    };
    let start = || Request::Spawn(vec![spec(1, 0)]);
    assert!(!is_urgent(&mut world, start()));
    let pid = world.kernel.spawned[0].1;
    world.kernel.end(pid, EXITED);
    let exits = std::mem::take(&mut world.kernel.ended);
    world.reaper.reap(&exits, 0);
    world.reaper.commit(&mut world.kernel);
    assert!(world.reaper.has_urgent_messages());
    let [first, rest @ ..] = &world.run()[..] else {
        unreachable!("messages")
    };
    assert!(
        matches!(first, Message::Events(events) if matches!(events[..], [Event::Started { .. }]))
    );
    assert_eq!(
        rest.len(),
        2,
        "the end of the request, and the end of the job"
    );
    assert!(!world.reaper.has_messages());
    // A known task is reported at once, as are a list and the end of other requests.
    assert!(is_urgent(&mut world, start()));
    world.run();
    assert!(is_urgent(&mut world, Request::List));
    world.run();
    assert!(is_urgent(&mut world, Request::Forget(Vec::new())));
}

#[test]
fn a_reaper_without_children_does_not_look_for_processes() {
    let mut world = World::new();
    let pid = world.start(1, 0);
    let lists = world.kernel.lists;
    world.kernel.end(pid, EXITED);
    let exits = std::mem::take(&mut world.kernel.ended);
    world.reaper.reap(&exits, 0);
    world.reaper.record_childless();
    assert!(world.events().contains(&empty(1)));
    assert_eq!(world.kernel.lists, lists);
}
