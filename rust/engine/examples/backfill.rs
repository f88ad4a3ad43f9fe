//! Schedules some jobs and explains why one is pending: `cargo run -p penstock-engine --example backfill`

use std::error::Error;

use penstock_engine::{Decision, Engine, Job, Options, Policy, QueueId, Reason};
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

/// A job of `slots` whole nodes with a time limit in seconds.
fn job(id: u64, slots: u32, duration: f64) -> Job {
    Job {
        id: JobId::new(id),
        priority: 16,
        request: Request {
            nnodes: None,
            exclusive: false,
            slots: slots.into(),
            cores_per_slot: 8.into(),
            gpus_per_slot: 0.into(),
            duration,
            constraint: None,
        },
        queue: QueueId::default(),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let inventory: ResourceSet = r#"{"version": 1, "execution": {
        "R_lite": [{"rank": "0-3", "children": {"core": "0-7"}}],
        "nodelist": ["node[0-3]"]}}"#
        .parse()?;
    let options = Options {
        policy: Policy::Easy,
        ..Options::default()
    };
    let mut engine = Engine::with_options(&inventory, options)?;
    engine.mark_up(&inventory.ranks());
    // The second job needs every node; the third ends before the first, and is backfilled.
    engine.submit(job(1, 3, 600.0))?;
    engine.submit(job(2, 4, 600.0))?;
    engine.submit(job(3, 1, 300.0))?;
    for decision in engine.schedule(0.0, 10) {
        match decision {
            Decision::Alloc { id, backfilled } => {
                let how = if backfilled { "backfilled" } else { "started" };
                println!("job {id} {how}: {}", engine.r(id)?.summary());
            }
            denied @ Decision::Deny { .. } => println!("{denied:?}"),
        }
    }
    if let Some(
        Reason::Insufficient { shortage, .. }
        | Reason::Reserved {
            shortage: Some(shortage),
            ..
        },
    ) = engine.explain(JobId::new(2), 0.0)
    {
        println!("job 2 is pending: {shortage}");
    }
    for estimate in engine.estimate(0.0) {
        if let Some(start) = estimate.start {
            println!("job {} is expected to start at {start}", estimate.id);
        }
    }
    Ok(())
}
