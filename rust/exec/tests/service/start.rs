//! Start requests: plans, failures, rejections.

use std::ffi::CString;

use penstock_exec::protocol::{Limit, Output, TaskSpec};
use penstock_exec::service::journal::JournalContents;
use penstock_exec::{SpawnFailure, Step, TaskRank, WaitStatus};
use penstock_flux::role;
use serde_json::json;

use crate::job_manager::{jobspec, resources, with_options};
use crate::world::{CPU, NOFILE, OWNER, URI, World, exited, submit};

#[test]
fn a_job_is_started_finished_released_and_forgotten() {
    let mut world = World::new();
    submit(&mut world, 1, 2);
    world.run();
    assert_eq!(world.answers(1), ["start"]);
    world.end_process(0, exited(3));
    world.end_process(0, exited(1));
    world.run();
    assert_eq!(world.answers(1), ["start", "finish", "release"]);
    assert_eq!(world.job(1).statuses, [3 << 8]);
    assert!(
        JournalContents::decode(&world.journal)
            .expect("valid")
            .jobs
            .is_empty()
    );
    assert!(world.kernel.log().jobs.is_empty());
    assert_eq!(world.service().jobs(), 0);
}

#[test]
fn a_start_without_r_looks_it_up_and_gets_no_reattached() {
    let mut world = World::new();
    world.submit(1, jobspec(1, &["true"]), None);
    world.run();
    assert_eq!(world.answers(1), ["start"]);
    world.crash_service(0, 0);
    world.restart();
    world.end_process(0, exited(0));
    world.run();
    // The first version of RFC 32 has no R in the request, and no `reattached`.
    assert_eq!(world.answers(1), ["start", "start", "finish", "release"]);
}

#[test]
fn a_program_that_does_not_exist_has_status_127_and_ends_the_others() {
    let mut world = World::new();
    let failure = |errno| SpawnFailure {
        step: Step::Exec,
        errno,
    };
    world.kernel.fails.insert(TaskRank(1), failure(2));
    submit(&mut world, 1, 2);
    world.run();
    assert_eq!(world.job(1).statuses, [127 << 8]);
    let answers = ["start", "exception", "finish", "release"];
    assert_eq!(world.answers(1), answers);
    let note = "task 1: start failed: true: No such file or directory";
    assert_eq!(world.job(1).notes, [note]);
    world.kernel.fails.insert(TaskRank(0), failure(13));
    submit(&mut world, 2, 1);
    world.run();
    assert_eq!(world.job(2).statuses, [126 << 8]);
    let note = "task 0: start failed: true: Permission denied";
    assert_eq!(world.job(2).notes, [note]);
}

/// The instance has gone before the failure was reported, or the service was killed.
#[test]
fn a_failure_of_which_a_later_request_learns_names_the_program_and_the_file() {
    let cases = [
        (
            Step::Exec,
            "task 1: start failed: true: No such file or directory",
        ),
        (Step::Chdir, "working directory `/work` does not exist"),
    ];
    for (step, note) in cases {
        for is_killed in [false, true] {
            let mut world = World::new();
            world
                .kernel
                .fails
                .insert(TaskRank(1), SpawnFailure { step, errno: 2 });
            submit(&mut world, 1, 2);
            world.deliver_to_service();
            world.lose_connection();
            if is_killed {
                world.crash_service(0, 0);
            }
            world.run_reaper();
            while world.deliver_to_reaper() || world.deliver_from_reaper() {}
            world.restart();
            assert_eq!(world.job(1).notes, [note], "{step:?}, {is_killed}");
        }
    }
}

#[test]
fn a_signal_counts_as_the_exit_code_of_a_shell_where_that_is_requested() {
    let signaled = |signal| WaitStatus::Signaled {
        signal,
        core: false,
    };
    let ends = [
        (json!({}), [signaled(15), exited(1)], 1 << 8),
        (
            json!({"signal-exit-code": true}),
            [signaled(15), exited(1)],
            143 << 8,
        ),
        (
            json!({"signal-exit-code": 1}),
            [signaled(9), exited(200)],
            200 << 8,
        ),
        (
            json!({"signal-exit-code": false}),
            [signaled(9), exited(0)],
            9,
        ),
    ];
    for (options, [first, second], status) in ends {
        let mut world = World::new();
        let spec = with_options(jobspec(2, &["true"]), &options);
        world.submit(1, spec, Some(resources(2)));
        world.run();
        world.end_process(0, first);
        world.run();
        // Also if another service reports it.
        world.crash_service(0, 0);
        world.restart();
        world.end_process(0, second);
        world.run();
        assert_eq!(world.job(1).statuses, [status], "{options}");
    }
}

#[test]
fn a_task_that_cannot_be_set_up_fails_the_job() {
    let cases = [
        (Step::Chdir, 2, "working directory `/work` does not exist"),
        (
            Step::Stdout,
            13,
            "cannot write `/state/output/1.stdout`: Permission denied",
        ),
        (
            Step::Limit,
            1,
            "cannot set the resource limits: Operation not permitted",
        ),
        (
            Step::Clone,
            11,
            "cannot start a task: Resource temporarily unavailable",
        ),
    ];
    for (step, errno, note) in cases {
        let mut world = World::new();
        world
            .kernel
            .fails
            .insert(TaskRank(1), SpawnFailure { step, errno });
        submit(&mut world, 1, 2);
        world.run();
        assert_eq!(world.job(1).notes, [note]);
        assert_eq!(world.answers(1), ["exception", "release"]);
        assert!(world.kernel.processes.is_empty());
    }
}

#[test]
fn invalid_variables_of_env_expand_are_rejected() {
    let cases = [
        (json!(["X"]), ": expected an object, found `[\"X\"]`"),
        (json!({"a=b": "x"}), ": invalid variable name `a=b`"),
        (json!({"X": 1}), ".X: expected a string, found `1`"),
    ];
    for (variables, text) in cases {
        let mut world = World::new();
        let options = json!({ "env-expand": variables });
        let spec = with_options(jobspec(1, &["true"]), &options);
        world.submit(1, spec, Some(resources(1)));
        world.run();
        let note = world.job(1).notes[0].replace('`', "");
        let text = text.replace('`', "");
        assert_eq!(note, format!("shell option env-expand{text}"));
        assert!(world.kernel.spawned.is_empty());
    }
}

#[test]
fn what_is_not_supported_is_rejected() {
    let options = [
        (
            json!({"pty": {"ranks": "some"}}),
            "shell option `pty.ranks`: expected `all` or an idset, found `\"some\"`",
        ),
        (
            json!({"pty": {"rows": 70000}}),
            "shell option `pty.rows`: expected 0 to 65535, found `70000`",
        ),
        (
            json!({"rlimit": {"locks": 5}}),
            "shell option `rlimit.locks`: unknown resource: expected cpu, fsize, ",
        ),
        (
            json!({"rlimit": {"cpu": -2}}),
            "shell option `rlimit.cpu`: expected a number, -1 or `unlimited`, found `-2`",
        ),
        (
            json!({"rlimit": 5}),
            "shell option `rlimit`: expected an object, found `5`",
        ),
        (
            json!({"input": {"stdin": {"path": "x"}}}),
            "shell option `input.stdin.type`: expected `service` or `file`",
        ),
        (
            json!({"input": {"stdin": {"type": "file", "path": "x", "ranks": "0"}}}),
            "shell option `input.stdin.ranks`: expected type `service`",
        ),
        (
            json!({"input": {"stdin": {"type": "file", "path": 5}}}),
            "shell option `input.stdin.path`: expected a path",
        ),
        (
            json!({"input": {"stdout": {"type": "file"}}}),
            "does not support `input.stdout`",
        ),
        (
            json!({"umask": 22}),
            "shell option `umask`: expected octal digits such as \"022\", found `22`",
        ),
        (
            json!({"umask": "01000"}),
            "shell option `umask`: expected octal digits such as \"022\", found `\"01000\"`",
        ),
        (
            json!({"signal": true}),
            "shell option `signal`: expected an object or a number, found `true`",
        ),
        (
            json!({"signal": {"signum": 65}}),
            "shell option `signal.signum`: expected 1 to 64, found `65`",
        ),
        (
            json!({"signal": {"timeleft": "soon"}}),
            "shell option `signal.timeleft`: expected seconds or a duration, found `\"soon\"`",
        ),
        (
            json!({"input": true}),
            "shell option `input`: expected an object, found `true`",
        ),
        (
            json!({"output": {"stdout": {"path": "{{x}}"}}}),
            "output `{{x}}`: unknown `{{x}}`",
        ),
    ];
    for (options, text) in options {
        let mut world = World::new();
        let spec = with_options(jobspec(1, &["true"]), &options);
        world.submit(1, spec, Some(resources(1)));
        world.run();
        assert_eq!(world.answers(1), ["exception", "release"]);
        let note = &world.job(1).notes[0];
        assert!(note.contains(text), "{note}");
        assert!(world.kernel.spawned.is_empty());
        assert_eq!(world.service().jobs(), 0);
    }
}

#[test]
fn a_job_of_another_user_is_not_run_and_a_start_request_of_another_user_is_rejected() {
    let mut world = World::new();
    let mut start = json!({
        "id": 1, "userid": OWNER + 1, "jobspec": jobspec(1, &["true"]), "reattach": false, "R": resources(1),
    });
    submit(&mut world, 1, 1);
    world.to_service.clear();
    world
        .to_service
        .push_back(World::request("job-exec.start", &start));
    world.run();
    let note = &world.job(1).notes[0];
    let users = format!(
        "the job is user {}'s, and the service is user {OWNER}'s",
        OWNER + 1
    );
    assert!(note.contains(&users), "{note}");
    assert!(note.contains("only a service of root runs jobs of guests"));
    start["userid"] = json!(OWNER);
    let mut foreign = World::request("job-exec.start", &start);
    foreign.rolemask = role::USER;
    world.to_service.push_back(foreign);
    while world.deliver_to_service() {}
    let answer = world.to_manager.pop_front().expect("an error");
    assert_eq!(answer.errnum(), penstock_flux::errno::EPERM);
}

#[test]
fn a_start_with_an_invalid_jobspec_fails_the_job() {
    let mut other = jobspec(1, &["true"]);
    other["attributes"]["system"] = json!([]);
    for (spec, text) in [
        (json!({}), "expected the key `version`"),
        (other, "attributes.system: expected an object, found a list"),
    ] {
        let mut world = World::new();
        world.submit(1, spec, Some(resources(1)));
        world.run();
        assert_eq!(world.answers(1), ["exception", "release"]);
        let note = &world.job(1).notes[0];
        assert!(note.contains(text), "{note}");
        assert!(world.kernel.spawned.is_empty());
        assert_eq!(world.service().jobs(), 0);
    }
}

#[test]
fn more_tasks_than_the_machine_can_have_are_not_planned() {
    let mut many = jobspec(1, &["true"]);
    let system = &mut many["attributes"]["system"];
    system["shell"]["options"]["per-resource"] = json!({"type": "node", "count": 65_537});
    let mut long = jobspec(1, &["true"]);
    let system = &mut long["attributes"]["system"];
    system["environment"] = json!({"LONG": "x".repeat(4 << 20)});
    system["shell"]["options"]["per-resource"] = json!({"type": "node", "count": 64});
    for (spec, text) in [
        (many, "65537 tasks: expected at most 65536 on this machine"),
        (
            long,
            "the arguments, environments and output paths of the tasks: expected at most 268435456 bytes in all",
        ),
    ] {
        let mut world = World::new();
        world.submit(1, spec, Some(resources(1)));
        world.run();
        assert_eq!(world.answers(1), ["exception", "release"]);
        assert_eq!(world.job(1).notes, [text]);
        assert!(world.kernel.spawned.is_empty());
    }
}

#[test]
fn tasks_have_the_environment_output_and_cores_of_their_job() {
    let mut world = World::new();
    submit(&mut world, 1, 2);
    world.deliver_to_service();
    let [first, second] = <[TaskSpec; 2]>::try_from(world.requested()).expect("two");
    let variable = |spec: &TaskSpec, name: &str| {
        let prefix = format!("{name}=");
        let texts = spec
            .environment
            .iter()
            .map(|text| text.to_str().expect("UTF-8"));
        let mut found = texts.filter_map(|text| text.strip_prefix(&prefix));
        found.next().map(str::to_owned)
    };
    let is = |name: &str, value: &str| assert_eq!(variable(&second, name).as_deref(), Some(value));
    is("PATH", "/bin");
    is("PENSTOCK_JOB_ID", "ƒ2");
    is("FLUX_JOB_SIZE", "2");
    is("FLUX_JOB_NNODES", "1");
    is("FLUX_TASK_RANK", "1");
    is("PENSTOCK_LOCAL_RANK", "1");
    is("PENSTOCK_URI", URI);
    is("PENSTOCK_WITHIN_0", "outer");
    is("PENSTOCK_WITHIN_1", &format!("{URI} ƒ2"));
    is("CUDA_VISIBLE_DEVICES", "-1");
    assert_eq!(variable(&second, "HOME"), None);
    assert_eq!(first.cpus, [0]);
    assert_eq!(second.cpus, [1]);
    assert_eq!(first.directory.as_c_str(), c"/work");
    let retained = |name: &str| CString::new(format!("/state/output/1.{name}")).expect("text");
    assert_eq!(first.stdout, Output::Truncate(retained("stdout")));
    assert_eq!(first.stderr, Output::Truncate(retained("stderr")));
    assert_eq!(second.stdout, Output::Append(retained("stdout")));
}

#[test]
fn resource_limits_are_soft_limits_below_the_hard_limits_of_the_service() {
    let mut world = World::new();
    let limits = json!({"nofile": 100, "cpu": "unlimited"});
    let options = json!({"rlimit": limits});
    world.submit(
        1,
        with_options(jobspec(2, &["true"]), &options),
        Some(resources(2)),
    );
    let options = json!({"rlimit": {"ofile": -1}});
    world.submit(
        2,
        with_options(jobspec(1, &["true"]), &options),
        Some(resources(1)),
    );
    let options = json!({"rlimit": {}});
    world.submit(
        3,
        with_options(jobspec(1, &["true"]), &options),
        Some(resources(1)),
    );
    while world.deliver_to_service() {}
    let limit = |resource, soft, hard| Limit {
        resource,
        soft,
        hard,
    };
    let both = vec![limit(CPU, u64::MAX, u64::MAX), limit(NOFILE, 100, 4096)];
    let lowered = vec![limit(NOFILE, 4096, 4096)];
    let found: Vec<_> = world
        .requested()
        .into_iter()
        .map(|spec| spec.limits)
        .collect();
    assert_eq!(found, [both.clone(), both, lowered, Vec::new()]);
}
