//! Standard input of tasks.

use std::ffi::CString;

use penstock_exec::protocol::{Input, Relay, WindowSize};
use penstock_exec::{JobId, SpawnFailure, Step, TaskId, TaskRank};
use penstock_flux::{errno, flags};
use serde_json::{Value, json};

use crate::job_manager::{jobspec, resources, with_options};
use crate::world::World;

/// The task specifications of a job with two tasks and these options.
fn specs(options: &Value) -> Vec<(Input, Relay)> {
    let mut world = World::new();
    let spec = with_options(jobspec(2, &["cat"]), options);
    world.submit(1, spec, Some(resources(2)));
    while world.deliver_to_service() {}
    let requested = world.requested().into_iter();
    requested.map(|spec| (spec.stdin, spec.relay)).collect()
}

#[test]
fn options_say_which_tasks_have_pipes_labels_and_terminals() {
    let none = || (Input::Null, Relay::None);
    let pipe = || (Input::Pipe, Relay::None);
    let stdin = |ranks| json!({"input": {"stdin": {"type": "service", "ranks": ranks}}});
    assert_eq!(specs(&stdin(json!("all"))), [pipe(), pipe()]);
    assert_eq!(specs(&stdin(json!("1"))), [none(), pipe()]);
    assert_eq!(specs(&stdin(Value::Null)), [pipe(), pipe()]);
    let labels = |stderr, is_line_buffered| {
        let stdout = true;
        let labels = Relay::Labels {
            stdout,
            stderr,
            is_line_buffered,
        };
        (Input::Null, labels)
    };
    let options = json!({"output": {"stdout": {"label": true}}});
    assert_eq!(specs(&options), [labels(false, true), labels(false, true)]);
    let options = json!({"output": {
        "stdout": {"label": true, "buffer": {"type": "none"}},
        "stderr": {"label": true},
    }});
    assert_eq!(specs(&options), [labels(true, false), labels(true, false)]);
    let terminal = |rows, columns| {
        let size = WindowSize { rows, columns };
        (Input::Null, Relay::Terminal(size))
    };
    assert_eq!(
        specs(&json!({"pty": 1})),
        [terminal(24, 80), terminal(24, 80)]
    );
    let options = json!({"pty": {"interactive": 1, "rows": 50}});
    assert_eq!(specs(&options), [terminal(50, 80), none()]);
    assert_eq!(
        specs(&json!({"pty": {"ranks": 1}})),
        [none(), terminal(24, 80)]
    );
}

/// A world in which the task of job 1 reads what is written.
fn with_reader() -> World {
    let mut world = World::new();
    let options =
        json!({"input": {"stdin": {"type": "service"}, "limit": "1K", "batch-timeout": 0.5}});
    let spec = with_options(jobspec(1, &["cat"]), &options);
    world.submit(1, spec, Some(resources(1)));
    world.run();
    world
}

const TASK: TaskId = TaskId {
    job: JobId::new(1),
    rank: TaskRank(0),
};

/// Sends a request, and takes the errnums of the responses that have come.
fn send(world: &mut World, topic: &str, payload: &Value) -> Vec<u32> {
    let request = World::request(topic, payload).with_matchtag(9);
    let request = request.with_flags(0);
    world.service_mut().handle(&request);
    responses(world)
}

fn responses(world: &mut World) -> Vec<u32> {
    let mut errnums = Vec::new();
    world.run_service();
    while world.deliver_to_reaper() || world.deliver_from_reaper() || !world.to_manager.is_empty() {
        world.run_service();
        while let Some(message) = world.to_manager.pop_front() {
            if matches!(message.method(), "input" | "resize" | "signal") {
                errnums.push(message.errnum());
            } else {
                world.manage(&message);
            }
        }
    }
    errnums
}

fn write(world: &mut World, offset: u64, data: &str, end: bool) -> Vec<u32> {
    let input = json!({"id": 1, "writer": 5, "offset": offset, "data": data, "end": end});
    send(world, "job-exec.input", &input)
}

#[test]
fn input_of_a_client_that_has_left_is_not_acknowledged() {
    let mut world = with_reader();
    world.kernel.inputs.entry(TASK).or_default().room = 2;
    assert!(write(&mut world, 0, "b25l", false).is_empty());
    let notice = World::request("job-exec.disconnect", &json!({}));
    let flags = notice.flags | flags::NORESPONSE;
    world.service_mut().handle(&notice.with_flags(flags));
    world.kernel.inputs.entry(TASK).or_default().room = 100;
    let reaper = world.reaper.as_mut().expect("it runs");
    reaper.write_input(TASK.job, &mut world.kernel);
    world.run_reaper();
    assert!(responses(&mut world).is_empty());
    assert_eq!(world.kernel.inputs[&TASK].got, b"one");
}

#[test]
fn input_is_acknowledged_when_the_task_has_room_for_it() {
    let mut world = with_reader();
    world.kernel.inputs.entry(TASK).or_default().room = 2;
    assert!(write(&mut world, 0, "b25l", false).is_empty());
    world.kernel.inputs.entry(TASK).or_default().room = 100;
    let reaper = world.reaper.as_mut().expect("it runs");
    reaper.write_input(TASK.job, &mut world.kernel);
    world.run_reaper();
    assert_eq!(responses(&mut world), [0]);
    assert_eq!(write(&mut world, 3, "dHdv", true), [0]);
    let written = &world.kernel.inputs[&TASK];
    assert!(written.is_ended && written.got == b"onetwo");
    assert_eq!(write(&mut world, 6, "dHdv", false), [errno::EPIPE]);
}

#[test]
fn input_survives_the_service() {
    let mut world = with_reader();
    assert!(write(&mut world, 0, "b25l", false).is_empty());
    world.crash_service(0, 0);
    world.restart();
    world.kernel.inputs.entry(TASK).or_default().room = 100;
    assert_eq!(write(&mut world, 0, "b25l", false), [0]);
    assert_eq!(world.kernel.inputs[&TASK].got, b"one");
}

#[test]
fn input_that_no_task_can_read_is_rejected() {
    let mut world = with_reader();
    assert_eq!(write(&mut world, 1, "", false), [errno::EINVAL]);
    assert_eq!(write(&mut world, 0, "?", false), [errno::EINVAL]);
    let other = json!({"id": 2, "writer": 5, "offset": 0});
    assert_eq!(send(&mut world, "job-exec.input", &other), [errno::EAGAIN]);
    world.kernel.inputs.entry(TASK).or_default().is_broken = true;
    assert_eq!(write(&mut world, 0, "b25l", false), [errno::EPIPE]);
    let mut world = World::with_running_job();
    let size = json!({"id": 1, "rows": 10, "columns": 20});
    assert_eq!(send(&mut world, "job-exec.resize", &size), [errno::ENOENT]);
}

#[test]
fn a_signal_is_for_one_task() {
    let mut world = with_reader();
    let signal = |task, signum| json!({"id": 1, "task": task, "signum": signum});
    let invalid = send(&mut world, "job-exec.signal", &signal(0, 0));
    assert_eq!(invalid, [errno::EINVAL]);
    let absent = send(&mut world, "job-exec.signal", &signal(1, 10));
    assert_eq!(absent, [errno::ENOENT]);
    assert_eq!(send(&mut world, "job-exec.signal", &signal(0, 10)), [0]);
}

#[test]
fn standard_input_is_a_file_if_requested() {
    let mut world = World::new();
    let options = json!({"input": {"stdin": {"type": "file", "path": "data/in"}}});
    let file = with_options(jobspec(2, &["cat"]), &options);
    world.submit(1, file, Some(resources(2)));
    let options = json!({"input": {"stdin": {}}});
    let null = with_options(jobspec(1, &["cat"]), &options);
    world.submit(2, null, Some(resources(1)));
    while world.deliver_to_service() {}
    let requested = world.requested().into_iter();
    let found: Vec<_> = requested.map(|spec| spec.stdin).collect();
    let file = || Input::File(CString::from(c"data/in"));
    assert_eq!(found, [file(), file(), Input::Null]);
    let errno = libc::ENOENT;
    let failure = SpawnFailure {
        step: Step::Stdin,
        errno,
    };
    world.kernel.fails.insert(TaskRank(0), failure);
    world.run();
    assert_eq!(
        world.job(1).notes,
        ["cannot read `data/in`: No such file or directory"]
    );
    assert_eq!(world.answers(1), ["exception", "release"]);
}
