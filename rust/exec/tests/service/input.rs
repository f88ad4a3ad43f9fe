//! Standard input of tasks.

use std::ffi::CString;

use penstock_exec::protocol::Input;
use penstock_exec::{Rank, SpawnFailure, Step};
use serde_json::json;

use crate::job_manager::{jobspec, resources, with_options};
use crate::world::World;

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
    world.kernel.fails.insert(Rank(0), failure);
    world.run();
    assert_eq!(
        world.job(1).notes,
        ["cannot read `data/in`: No such file or directory"]
    );
    assert_eq!(world.answers(1), ["exception", "release"]);
}
