//! Replays jobs of the model of Lublin and Feitelson, and prints the time and memory used.
//!
//! `cargo run --release -p penstock-sim --example replay -- JOBS NODES CORES POLICY LOAD LARGEST`,
//! all optional, from the right; `LARGEST` is the size of the largest job in cores.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_sim::{Estimates, JobKinds, Lublin, Machine, Setup, Simulation, swf};

fn argument<T: std::str::FromStr>(index: usize, default: T) -> Result<T, T::Err> {
    std::env::args()
        .nth(index)
        .map_or(Ok(default), |text| text.parse())
}

/// The peak memory of the process, in MB, if the system reports it.
fn peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.unwrap_or("unknown").trim().to_owned()
}

/// The processor time of the process, in seconds, if the system reports it (in hundredths).
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

fn main() -> Result<(), Box<dyn Error>> {
    let jobs = argument(1, 100_000)?;
    let nodes: u32 = argument(2, 10_000)?;
    let cores: u32 = argument(3, 1)?;
    let policy = argument(4, "easy".to_owned())?;
    let load: f64 = argument(5, 0.9)?;
    let machine = nodes.saturating_mul(cores);
    let largest: u32 = argument(6, machine)?;
    let model = Lublin {
        jobs,
        cores: largest,
        seed: 1,
        // In the model the machine is as large as the largest job.
        load: Some(load * f64::from(machine) / f64::from(largest.max(1))),
        estimates: Estimates::Modal,
        kinds: JobKinds::Both,
    };
    let text = swf::write(&model.draw()?)?;
    let begun = Instant::now();
    let workload = swf::read(text.as_bytes(), "replay", None)?;
    println!("read {jobs} jobs in {:.2?}", begun.elapsed());
    drop(text);
    let ranks = IdSet::with_range(0..=nodes.saturating_sub(1));
    let hosts: Hostlist = format!("n[{ranks}]").parse()?;
    let resources = ResourceSet::uniform(
        &ranks,
        &hosts,
        IdSet::with_range(0..=cores.saturating_sub(1)),
        IdSet::new(),
    )?;
    let setup = Setup {
        policy: policy.parse()?,
        ..Setup::default()
    };
    let machine = Machine::Nodes(Box::new(resources));
    let begun = Instant::now();
    let before = cpu();
    let mut simulation = Simulation::new(Arc::new(workload), &machine, setup)?;
    while simulation.advance(u64::MAX)? {}
    let taken = begun.elapsed();
    let cpu = cpu() - before;
    let summary = simulation.summary();
    let tally = simulation.tally();
    println!(
        "{policy}: {taken:.2?} ({cpu:.2} s of processor), {} passes, {} backfilled, utilisation {:.3}, \
         mean wait {:.0} s, deepest queue {}, peak memory {}",
        tally.passes,
        summary.backfilled,
        summary.utilisation,
        summary.wait.mean,
        tally.deepest,
        peak(),
    );
    Ok(())
}
