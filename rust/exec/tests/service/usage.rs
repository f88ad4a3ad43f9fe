//! Resource usage of jobs.

use penstock_exec::{SpawnFailure, Step, TaskRank, Usage};
use serde_json::{Value, json};

use crate::world::{World, exited, submit};

#[test]
fn the_resource_usage_of_all_tasks_is_reported_also_after_a_restart() {
    let mut world = World::new();
    submit(&mut world, 1, 3);
    world.run();
    let usage = |max_rss_kib, user_us, system_us| Usage {
        max_rss_kib,
        user_us,
        system_us,
    };
    world.kernel.usage = usage(300, 10, 1);
    world.end_process(0, exited(0));
    world.run();
    world.crash_service(0, 0);
    world.kernel.usage = usage(200, 20, u64::MAX);
    world.end_process(0, exited(0));
    world.restart();
    world.kernel.usage = usage(100, 30, 4);
    world.end_process(0, exited(0));
    world.run();
    let total = json!({"max_rss_kib": 300, "user_us": 60, "system_us": u64::MAX});
    assert_eq!(world.job(1).usages, [total]);
}

#[test]
fn a_job_without_a_process_has_no_resource_usage() {
    let mut world = World::new();
    let failure = SpawnFailure {
        step: Step::Exec,
        errno: libc::ENOENT,
    };
    world.kernel.fails.insert(TaskRank(0), failure);
    submit(&mut world, 1, 1);
    world.run();
    assert_eq!(world.job(1).statuses, [127 << 8]);
    assert_eq!(world.job(1).usages, [Value::Null]);
}
