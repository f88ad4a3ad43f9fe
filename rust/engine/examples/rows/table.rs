//! Figures, and their table.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Seconds of rounds: the least, and the median.
#[derive(Clone, Copy)]
pub struct Figure(pub f64, pub f64);

impl Figure {
    pub fn of(mut rounds: Vec<Duration>, of_each: u32) -> Self {
        rounds.sort_unstable();
        let seconds = |duration: Duration| duration.as_secs_f64() / f64::from(of_each);
        Self(seconds(rounds[0]), seconds(rounds[rounds.len() / 2]))
    }
}

/// The time of some work, and only of it: `bench/instructions.py` counts within this function.
#[inline(never)]
pub fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(work());
    start.elapsed()
}

/// The number of rounds: at most the second argument of the program, if there is one.
pub fn rounds(usual: u32) -> u32 {
    let most = std::env::args()
        .nth(2)
        .map(|most| most.parse().expect("a number of rounds"));
    usual.min(most.unwrap_or(usual))
}

pub fn repeat<T>(usual: u32, mut work: impl FnMut() -> T) -> Figure {
    let taken = (0..rounds(usual)).map(|_| time(&mut work));
    Figure::of(taken.collect(), 1)
}

pub fn shown(seconds: f64) -> String {
    let (value, unit) = match seconds {
        seconds if seconds < 1e-6 => (seconds * 1e9, "ns"),
        seconds if seconds < 1e-3 => (seconds * 1e6, "us"),
        seconds if seconds < 1.0 => (seconds * 1e3, "ms"),
        seconds => (seconds, "s"),
    };
    let digits = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.digits$} {unit}")
}

/// The table; with a word, only the rows whose name contains it.
pub struct Table(pub Option<String>);

impl Table {
    pub fn wants(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|word| name.contains(word))
    }

    /// A row with a target in seconds.
    pub fn row(&self, name: &str, target: f64, work: impl FnOnce() -> Figure) {
        if self.wants(name) {
            let Figure(least, median) = work();
            let (ratio, verdict) = (least / target, verdict(least <= target));
            let (target, least, median) = (shown(target), shown(least), shown(median));
            println!("| {name} | {target} | {least} ({median}) | {ratio:.2} | {verdict} |");
        }
    }

    /// A row without a target.
    pub fn figure(&self, name: &str, work: impl FnOnce() -> Figure) {
        if self.wants(name) {
            let Figure(least, median) = work();
            println!(
                "| {name} | - | {} ({}) | - | - |",
                shown(least),
                shown(median)
            );
        }
    }

    /// A row whose target is a ratio of two figures, at most `times`.
    pub fn beside(&self, name: &str, times: f64, work: impl FnOnce() -> (Figure, Figure)) {
        if self.wants(name) {
            let (figure, other) = work();
            let ratio = figure.0 / other.0;
            let (verdict, figure) = (verdict(ratio <= times), shown(figure.0));
            let (other, ratio_of) = (shown(other.0), ratio / times);
            println!(
                "| {name} | {times} x | {ratio:.2} x ({figure} and {other}) | {ratio_of:.2} | {verdict} |"
            );
        }
    }

    pub fn bytes(&self, name: &str, target: usize, work: impl FnOnce() -> usize) {
        if self.wants(name) {
            let bytes = work();
            let hundredths = bytes * 100 / target;
            let (whole, part) = (hundredths / 100, hundredths % 100);
            let verdict = verdict(bytes <= target);
            println!("| {name} | {target} B | {bytes} B | {whole}.{part:02} | {verdict} |");
        }
    }
}

pub fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

/// The peak resident memory, if the system reports it.
pub fn peak() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().to_owned())
}
