//! Jobspecs of guests that would cost much more than their length.

use std::ffi::CStr;

use penstock_exec::protocol::Output;
use penstock_exec::service::GuestSettings;
use penstock_exec::{SpawnFailure, Step, TaskRank};
use serde_json::{Value, json};

use crate::job_manager::{jobspec, resources, with_options};
use crate::world::World;

const GUEST: u32 = 1001;
/// The length of a hostile text.
const BYTES: usize = 1 << 15;
/// The most bytes that the service may make of it for a job of one core, with those of each word and variable.
const MAX_MADE_BYTES: usize = 8 << 20;
const MAX_NOTE_BYTES: usize = 8000;

/// Submits a job of a guest with this number of tasks.
fn submit(mut spec: Value, ntasks: u32) -> World {
    let mut world = World::new();
    world.settings.guests = Some(GuestSettings {
        min_uid: GUEST,
        no_new_privs: true,
    });
    world.crash_service(0, 0);
    world.restart();
    let options = &mut spec["attributes"]["system"]["shell"]["options"];
    options["per-resource"] = json!({"type": "node", "count": ntasks});
    world.submit_as(GUEST, 1, spec, Some(resources(1)));
    while world.deliver_to_service() {}
    world
}

/// The size of the tasks that the service requests from the reaper.
fn made_bytes(world: &World) -> usize {
    let specs = world.requested();
    let bytes = specs.iter().map(|spec| {
        let output = match &spec.stdout {
            Output::Append(path) | Output::Truncate(path) => path.count_bytes(),
            _ => 0,
        };
        let words = spec.arguments.iter().map(|word| word.count_bytes());
        let variables = spec.environment.iter().map(CStr::count_bytes);
        let items = spec.arguments.len() + spec.environment.len();
        output + words.sum::<usize>() + variables.sum::<usize>() + 64 * items
    });
    bytes.sum()
}

/// Jobspecs with this text, or this list, where templates and lists can be.
fn jobspecs(text: &str, list: &[String]) -> Vec<(&'static str, Value)> {
    let named = |list: &[String]| -> Value {
        let named = list.iter().enumerate();
        named
            .map(|(index, text)| (format!("V{index}"), json!(text)))
            .collect()
    };
    let mut many_words = jobspec(1, &["true"]);
    many_words["tasks"][0]["command"] = json!(list);
    let mut variable = jobspec(1, &["true"]);
    variable["attributes"]["system"]["environment"] = json!({"V": text});
    let mut many_variables = jobspec(1, &["true"]);
    many_variables["attributes"]["system"]["environment"] = named(list);
    let output = json!({"output": {"stdout": {"path": text}}});
    let mut working_directory = with_options(
        jobspec(1, &["true"]),
        &json!({"output": {"stdout": {"path": "{{task.rank}}"}}}),
    );
    working_directory["attributes"]["system"]["cwd"] = json!(format!("/{text}"));
    let expand = |value: Value| with_options(jobspec(1, &["true"]), &json!({"env-expand": value}));
    vec![
        ("word", jobspec(1, &["true", text])),
        ("words", many_words),
        ("variable", variable),
        ("variables", many_variables),
        ("output", with_options(jobspec(1, &["true"]), &output)),
        ("cwd", working_directory),
        ("expanded", expand(json!({"V": text}))),
        ("all expanded", expand(named(list))),
        (
            "rlimit",
            with_options(jobspec(1, &["true"]), &json!({"rlimit": {text: 1}})),
        ),
        (
            "umask",
            with_options(jobspec(1, &["true"]), &json!({"umask": text})),
        ),
    ]
}

#[test]
fn a_hostile_jobspec_is_no_more_work_than_its_limit() {
    let parts = [
        "{",
        "{{",
        "}}",
        "{{a",
        "{{name}}",
        "{{node.cores}}",
        "x/",
        "",
    ];
    for part in parts {
        let text = part.repeat(BYTES / part.len().max(1));
        let list = vec![part.to_owned(); BYTES / (part.len() + 3)];
        for (place, mut spec) in jobspecs(&text, &list) {
            spec["attributes"]["system"]["job"] = json!({"name": "n".repeat(4096)});
            let world = submit(spec, 32);
            let made = made_bytes(&world);
            assert!(made <= MAX_MADE_BYTES, "{place} `{part}`: {made}");
            for note in &world.job(1).notes {
                assert!(note.len() <= MAX_NOTE_BYTES, "{place} `{part}`");
            }
        }
    }
}

#[test]
fn hostile_files_are_rejected_before_they_are_made() {
    let deep = |names: usize| vec!["d"; names].join("/");
    let file = json!({"mode": 0o100_600});
    let numbered = |path: &str, count: usize| -> Value {
        let paths = (0..count).map(|number| format!("{number}/{path}"));
        paths.map(|path| (path, file.clone())).collect()
    };
    for files in [
        json!({deep(BYTES / 2): file}),
        json!({"x".repeat(BYTES): file}),
        json!({"{".repeat(BYTES): 1}),
        numbered(&deep(1900), 270),
        numbered(&deep(199), 200),
        numbered("x", 5000),
    ] {
        let mut spec = jobspec(1, &["true"]);
        spec["attributes"]["system"]["files"] = files;
        let mut world = submit(spec, 1);
        world.run();
        assert_eq!(world.answers(1), ["exception", "release"]);
        let note = &world.job(1).notes[0];
        assert!(note.contains("expected"), "{note}");
        assert!(note.len() <= MAX_NOTE_BYTES);
        assert!(world.directories.is_empty());
    }
}

#[test]
fn a_guest_has_as_many_tasks_as_the_cores_of_the_job_permit() {
    let world = submit(jobspec(1, &["true"]), 32);
    assert_eq!(world.requested().len(), 32);
    let mut world = submit(jobspec(1, &["true"]), 33);
    world.run();
    assert_eq!(world.answers(1), ["exception", "release"]);
    let note = "33 tasks: expected at most 32, 32 for each core of a guest's job";
    assert_eq!(world.job(1).notes, [note]);
    assert!(world.kernel.spawned.is_empty());
}

#[test]
fn a_guest_does_not_see_where_output_is_stored() {
    let failure = SpawnFailure {
        step: Step::Stderr,
        errno: libc::EACCES,
    };
    let mut world = submit(jobspec(1, &["true"]), 1);
    world.kernel.fails.insert(TaskRank(0), failure);
    world.run();
    let note = "cannot store the output: Permission denied";
    assert_eq!(world.job(1).notes, [note]);
}

/// A template of which nothing is left is as much work as a long one.
#[test]
fn the_length_of_templates_counts_for_each_task() {
    let text = "{{node.gpus}}".repeat((512 << 10) / 13);
    let mut variable = jobspec(1, &["true"]);
    variable["attributes"]["system"]["environment"] = json!({"V": text});
    let limit = "the arguments, environments and output paths of the tasks: expected at most 8388608 bytes in all";
    for spec in [jobspec(1, &["true", &text]), variable] {
        let mut world = submit(spec, 32);
        world.run();
        assert_eq!(world.job(1).notes, [limit]);
    }
    let output = json!({"output": {"stdout": {"path": text}}});
    let mut world = submit(with_options(jobspec(1, &["true"]), &output), 1);
    world.run();
    let note = &world.job(1).notes[0];
    assert!(
        note.ends_with("expected a path of at most 4095 bytes"),
        "{note}"
    );
}
