//! Retained output, output files, and the limit of output.

use std::ffi::CString;

use penstock_exec::JobId;
use penstock_exec::protocol::{Output, TaskSpec};
use penstock_flux::flags;
use serde_json::{Value, json};

use crate::job_manager::{jobspec, resources};
use crate::world::{World, exited};

#[test]
fn output_templates_are_filled_in() {
    let mut world = World::new();
    let mut spec = jobspec(2, &["/bin/true"]);
    let path = "{{name}}-{{ id.dec }}-{{taskid}}-{{node.name}}-{x}{{y";
    spec["attributes"]["system"]["shell"] =
        json!({"options": {"output": {"stdout": {"type": "file", "path": path}}}});
    world.submit(1, spec, Some(resources(2)));
    world.deliver_to_service();
    let [first, second] = <[TaskSpec; 2]>::try_from(world.requested()).expect("two");
    let path =
        |rank: u32| CString::new(format!("/work/true-1-{rank}-n3-{{x}}{{{{y")).expect("text");
    assert_eq!(first.stdout, Output::Truncate(path(0)));
    assert_eq!(second.stdout, Output::Truncate(path(1)));
    assert_eq!(second.stderr, Output::SameAsStdout);
}

#[test]
fn variables_of_env_expand_are_templates() {
    let mut world = World::new();
    let mut spec = jobspec(2, &["/bin/true"]);
    spec["attributes"]["system"]["environment"] = json!({"TEXT": "given"});
    spec["attributes"]["system"]["shell"] = json!({"options": {"env-expand": {
        "FLUX_JOB_ID": "of the job",
        "SIZES": "{{size}} {{ntasks}} {{nnodes}}",
        "TASK": "{{task.id}} {{task.rank}} {{taskid}} {{task.index}} {{task.localid}}",
        "NODE": "{{node.broker_rank}} {{node.cores}} {{node.ncores}} {{node.gpus}}",
        "TEXT": "{{id.dothex}} {{other}}",
    }}});
    world.submit(1, spec, Some(resources(2)));
    world.deliver_to_service();
    for (rank, task) in world.requested().iter().enumerate() {
        let has = |entry: &str| {
            let entry = CString::new(entry).expect("text");
            assert!(task.environment.contains(&entry), "{entry:?}");
        };
        has("SIZES=2 2 1");
        has(&format!("TASK={rank} {rank} {rank} {rank} {rank}"));
        has("NODE=3 0-1 2 ");
        has("TEXT=0000.0000.0000.0001 {{other}}");
        has(&format!("FLUX_JOB_ID={}", JobId::new(1).f58()));
    }
}

#[test]
fn a_job_that_writes_too_much_is_ended() {
    let mut world = World::with_running_job();
    let service = world.service_mut();
    service.take_output_size(JobId::new(1), 1000);
    service.take_output_size(JobId::new(1), 1001);
    world.run();
    world.run_service();
    world.run();
    assert!(world.job(1).notes[0].starts_with("more than 1000 bytes of output"));
    assert_eq!(world.job(1).statuses, [15]);
}

#[test]
fn output_is_followed_to_the_end_of_its_job() {
    let mut world = World::with_running_job();
    let file = world.files.entry((1, "stdout")).or_default();
    file.extend_from_slice(b"one");
    let output = World::request("job-exec.output", &json!({"id": 1, "follow": true}));
    let flags = output.flags | flags::STREAMING;
    world
        .service_mut()
        .handle(&output.with_flags(flags).with_matchtag(9));
    let mut texts = Vec::new();
    let collect = |world: &mut World, texts: &mut Vec<Value>| {
        world.run_service();
        while let Some(message) = world.to_manager.pop_front() {
            if message.topic() == "job-exec.output" {
                let errnum = message.errnum();
                texts.push(if errnum == 0 {
                    message.read().expect("JSON")
                } else {
                    json!(errnum)
                });
            } else {
                world.manage(&message);
            }
        }
    };
    collect(&mut world, &mut texts);
    assert_eq!(texts, [json!({"stream": "stdout", "data": "b25l"})]);
    let file = world.files.get_mut(&(1, "stdout")).expect("there");
    file.extend_from_slice(b"two");
    world.end_process(0, exited(0));
    while world.deliver_from_reaper() {}
    world.advance(1.0);
    collect(&mut world, &mut texts);
    let rest = [
        json!({"stream": "stdout", "data": "dHdv"}),
        json!(penstock_flux::errno::ENODATA),
    ];
    assert_eq!(texts[1..], rest);
}
