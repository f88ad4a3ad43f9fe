//! The time of a commit, and the length of the log, while one writer never pauses and others read.
//!
//! `cargo run --release -p penstock-store --example commits -- FOLDER COMMITS JOBS_PER_COMMIT READERS`

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use penstock_jobspec::job_id::JobId;
use penstock_store::{Store, Synchronous};

const EVENTS: &str = "{\"timestamp\":1796000000.5,\"name\":\"submit\",\"context\":{\"userid\":1000,\"urgency\":16,\"flags\":0}}\n\
                      {\"timestamp\":1796000000.5,\"name\":\"validate\"}\n";
/// The distance of jobs that get further events one after the other: they are on different pages, as those of jobs that end in any
/// order.
const STEP: u64 = 7919;
const REPORTS: u64 = 10;

fn number(argument: Option<String>, default: u64) -> Result<u64, Box<dyn Error>> {
    Ok(argument.map_or(Ok(default), |text| text.parse())?)
}

/// Reads eventlogs, each in a transaction of its own.
fn read(path: &Path, is_done: &AtomicBool) -> Result<u64, penstock_store::Error> {
    let store = Store::open_reader(path)?;
    let mut count = 0;
    while !is_done.load(Ordering::Relaxed) {
        store.eventlog(JobId::new(1 + count % 1000))?;
        count += 1;
        // A client does something with it.
        thread::sleep(Duration::from_micros(200));
    }
    Ok(count)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let folder = PathBuf::from(
        arguments
            .next()
            .unwrap_or_else(|| "target/commits".to_owned()),
    );
    let commits = number(arguments.next(), 20_000)?;
    let jobs = number(arguments.next(), 1)?;
    let readers = number(arguments.next(), 1)?;
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let path = folder.join("jobs.sqlite");
    let log = folder.join("jobs.sqlite-wal");
    let mut store = Store::open(&path, Synchronous::Full)?;
    let spec = store.add_jobspec(1000, "{}")?;
    store.commit()?;
    let is_done = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..readers)
        .map(|_| {
            let (path, is_done) = (path.clone(), Arc::clone(&is_done));
            thread::spawn(move || read(&path, &is_done))
        })
        .collect();
    let mut times = Vec::new();
    let mut longest_log = 0;
    let began = Instant::now();
    for commit in 0..commits {
        let commit_began = Instant::now();
        for job in 0..jobs {
            let id = JobId::new(1 + commit * jobs + job);
            store.add_job(id, 1000, 1.5, spec)?;
            store.append_events(id, 0, EVENTS)?;
        }
        // An earlier job gets further events.
        let earlier = JobId::new(1 + (commit * STEP) % (1 + commit * jobs));
        let seq = u32::try_from(2 + commit)?;
        store.append_events(earlier, seq, EVENTS)?;
        store.commit()?;
        times.push(commit_began.elapsed());
        let length = fs::metadata(&log)?.len();
        longest_log = longest_log.max(length);
        if (commit + 1) % (commits / REPORTS).max(1) == 0 {
            println!(
                "{:>9} jobs, {:>6.1} s: log {:.1} MiB, database {:.1} MiB",
                (commit + 1) * jobs,
                began.elapsed().as_secs_f64(),
                mebibytes(length),
                mebibytes(fs::metadata(&path)?.len()),
            );
        }
    }
    is_done.store(true, Ordering::Relaxed);
    let mut reads = 0;
    for thread in threads {
        reads += thread.join().map_err(|_| "a reader has failed")??;
    }
    times.sort_unstable();
    let at = |share: f64| {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index"
        )]
        let index = (times.len() as f64 * share) as usize;
        times
            .get(index.min(times.len() - 1))
            .copied()
            .unwrap_or_default()
    };
    println!(
        "commit: median {:.2?}, 99 % {:.2?}, 99.9 % {:.2?}, max {:.2?}; ten longest {:.1?}",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        times.iter().rev().take(10).collect::<Vec<_>>(),
    );
    println!(
        "longest log {:.1} MiB, {reads} reads, {:.0} commits/s",
        mebibytes(longest_log),
        1.0 / (began.elapsed().as_secs_f64() / f64::from(u32::try_from(commits)?)),
    );
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "for a person")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
