//! The time to read the rows of a slice of a list, by the writer's connection and by one of its own, between commits.
//!
//! `cargo run --release -p penstock-store --example reads -- FOLDER JOBS SLICES`

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, fs};

use penstock_jobspec::job_id::JobId;
use penstock_store::{Store, Synchronous};

const EVENTS: &str = "{\"timestamp\":1796000000.5,\"name\":\"submit\",\"context\":{\"userid\":1000,\"urgency\":16,\"flags\":0}}\n\
                      {\"timestamp\":1796000000.5,\"name\":\"validate\"}\n";
/// The jobs in a slice.
const ROWS: u64 = 250;
/// The jobs that a commit adds.
const ADDED: u64 = 50;

fn number(argument: Option<String>, default: u64) -> Result<u64, Box<dyn Error>> {
    Ok(argument.map_or(Ok(default), |text| text.parse())?)
}

/// Reads the jobs of a slice. Returns the time for all of them.
fn read(store: &Store, first: u64) -> Result<Duration, Box<dyn Error>> {
    let began = Instant::now();
    for id in first..first + ROWS {
        store.job(JobId::new(id))?.ok_or("expected the job")?;
    }
    Ok(began.elapsed())
}

fn add(store: &mut Store, first: u64, jobs: u64, spec: i64) -> Result<(), Box<dyn Error>> {
    for id in first..first + jobs {
        store.add_job(JobId::new(id), 1000, 1.5, spec)?;
        store.append_events(JobId::new(id), 0, EVENTS)?;
    }
    store.commit()?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let folder = arguments
        .next()
        .unwrap_or_else(|| "target/reads".to_owned());
    let folder = PathBuf::from(folder);
    let jobs = number(arguments.next(), 200_000)?;
    let slices = number(arguments.next(), 1000)?;
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let path = folder.join("jobs.sqlite");
    let mut store = Store::open(&path, Synchronous::Full)?;
    let spec = store.add_jobspec(1000, "{}")?;
    for first in (1..=jobs).step_by(1000) {
        add(&mut store, first, 1000, spec)?;
    }
    let reader = Store::open_reader(&path)?;
    for is_busy in [false, true] {
        let (mut own, mut writers) = (Duration::ZERO, Duration::ZERO);
        for slice in 0..slices {
            if is_busy {
                add(&mut store, 2 * jobs + slice * ADDED, ADDED, spec)?;
            }
            let first = 1 + slice * ROWS % (jobs - ROWS);
            writers += read(&store, first)?;
            own += read(&reader, first)?;
        }
        let rows = f64::from(u32::try_from(slices * ROWS)?);
        let each = |total: Duration| total.as_secs_f64() * 1e6 / rows;
        let between = if is_busy {
            "between commits"
        } else {
            "no commits"
        };
        println!(
            "{between}: {:.2} us a row by the writer's connection, {:.2} us by one of its own",
            each(writers),
            each(own)
        );
    }
    fs::remove_dir_all(&folder)?;
    Ok(())
}
