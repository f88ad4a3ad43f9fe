//! The nodes and cores of the tasks of a job: `cargo run -p penstock-jobspec --example layout`

use std::error::Error;

use penstock_jobspec::{Jobspec, Layout};
use penstock_rset::ResourceSet;

fn main() -> Result<(), Box<dyn Error>> {
    let jobspec = Jobspec::from_json(
        r#"{"version": 1,
            "resources": [{"type": "slot", "count": 6, "label": "task",
                           "with": [{"type": "core", "count": 4}]}],
            "tasks": [{"command": ["solver"], "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": 3600}}}"#,
    )?;
    let r: ResourceSet = r#"{"version": 1, "execution": {
        "R_lite": [{"rank": "0-2", "children": {"core": "0-7"}}],
        "nodelist": ["node[0-2]"]}}"#
        .parse()?;
    for task in Layout::new(&jobspec, &r)?.tasks() {
        println!(
            "task {}: {}, cores {}",
            task.task_rank, task.host, task.cores
        );
    }
    Ok(())
}
