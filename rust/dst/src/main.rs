//! `penstock-dst`: runs scripts drawn from seeds, and shortens one that violates an invariant.

use std::env;
use std::fs;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use penstock_dst::{Script, Violation, run, shorten};

const USAGE: &str = "usage: penstock-dst [--seeds N] [--seed FIRST] [--jobs N] [--keep-going] [--whole] [--script FILE]";

struct Options {
    seeds: u64,
    first: u64,
    jobs: u64,
    keeps_going: bool,
    shortens: bool,
    script: Option<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        seeds: 1000,
        first: 1,
        jobs: thread::available_parallelism().map_or(1, |count| count.get() as u64),
        keeps_going: false,
        shortens: true,
        script: None,
    };
    let mut words = env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--keep-going" {
            options.keeps_going = true;
            continue;
        }
        if word == "--whole" {
            options.shortens = false;
            continue;
        }
        let value = words
            .next()
            .ok_or_else(|| format!("`{word}` has no value\n{USAGE}"))?;
        let number = || {
            let parsed = value.parse::<u64>();
            parsed.map_err(|_| format!("{word}: invalid number `{value}`\n{USAGE}"))
        };
        match word.as_str() {
            "--seeds" => options.seeds = number()?,
            "--seed" => options.first = number()?,
            "--jobs" => options.jobs = number()?.max(1),
            "--script" => options.script = Some(value),
            _ => return Err(format!("unknown option `{word}`\n{USAGE}")),
        }
    }
    Ok(options)
}

/// Runs one script, and prints the violation.
fn replay(path: &str) -> Result<ExitCode, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let script: Script = text.parse().map_err(|error| format!("{path}: {error}"))?;
    let run = run(&script);
    let Some(violation) = run.violation else {
        println!("no violation in {} steps", script.steps.len());
        return Ok(ExitCode::SUCCESS);
    };
    let Violation { invariant, text } = violation;
    println!("after {} steps: {invariant}: {text}", run.steps);
    Ok(ExitCode::FAILURE)
}

fn search(options: &Options) -> ExitCode {
    let (next, failed) = (AtomicU64::new(options.first), AtomicBool::new(false));
    let (end, count) = (options.first + options.seeds, AtomicU64::new(0));
    let output = Mutex::new(());
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                while options.keeps_going || !failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let script = Script::draw(seed);
                    let found = run(&script);
                    count.fetch_add(1, Ordering::Relaxed);
                    let Some(violation) = found.violation else {
                        continue;
                    };
                    failed.store(true, Ordering::Relaxed);
                    let shorter = if options.shortens {
                        shorten(&script)
                    } else {
                        script
                    };
                    let text = run(&shorter)
                        .violation
                        .map_or(violation.text, |shorter| shorter.text);
                    let _only = output.lock();
                    println!("seed {seed}: {}: {text}\n{shorter}", violation.invariant);
                }
            });
        }
    });
    let (seeds, seconds) = (count.into_inner(), start.elapsed().as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with one digit")]
    let rate = seeds as f64 / seconds;
    println!("{seeds} seeds in {seconds:.1} s: {rate:.1} seeds/s");
    if failed.into_inner() {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let result = options().and_then(|options| match &options.script {
        Some(path) => replay(path),
        None => Ok(search(&options)),
    });
    result.unwrap_or_else(|text| {
        eprintln!("penstock-dst: {text}");
        ExitCode::FAILURE
    })
}
