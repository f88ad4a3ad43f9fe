//! The gain of a second thread: large lists and sets are parsed and sorted as a whole, and in two halves at once.
//!
//! ```sh
//! cargo run --release -p penstock-rset --example threads [RANGES [NODES]]
//! ```
//!
//! The times are those of the processor, by thread, so that other work on the machine does not count: two threads take as long
//! as the longer half, and then join the halves.
use std::fmt::Write;
use std::fs;
use std::thread;
use std::time::Duration;

use penstock_hostlist::Hostlist;
use penstock_rset::{Operation, ResourceSet, Scheduling};

/// Rounds, of which the least time counts.
const ROUNDS: usize = 3;

/// Processor time of this thread so far.
fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat");
    let text = text.expect("/proc/thread-self/schedstat");
    let first = text.split_whitespace().next().expect("a time");
    Duration::from_nanos(first.parse().expect("a number"))
}

/// Processor time of a call, and its result.
fn timed<T>(call: impl FnOnce() -> T) -> (Duration, T) {
    let began = processor_time();
    let result = call();
    (processor_time().saturating_sub(began), result)
}

/// Times an operation on the whole, and on its halves in two threads and then on their results.
fn compare<I: Clone + Send, T: Send>(
    name: &str,
    whole: &I,
    halves: &[I; 2],
    operate: impl Fn(I) -> T + Sync,
    join: impl Fn(T, T) -> T,
) {
    let (mut one, mut half, mut joining) = (Duration::MAX, Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let input = whole.clone();
        one = one.min(timed(|| operate(input)).0);
        let [left, right] = halves.clone();
        let [left, right] = thread::scope(|scope| {
            let threads = [left, right].map(|input| scope.spawn(|| timed(|| operate(input))));
            threads.map(|thread| thread.join().expect("a thread that ends"))
        });
        half = half.min(left.0.max(right.0));
        joining = joining.min(timed(|| join(left.1, right.1)).0);
    }
    let ratio = one.as_secs_f64() / (half + joining).as_secs_f64();
    println!("| {name} | {one:.1?} | {half:.1?} | {joining:.1?} | {ratio:.2} |");
}

/// Hosts in ranges of one to eight, a thousand ranges in each rack.
fn hosts(racks: std::ops::Range<usize>) -> String {
    let mut text = String::new();
    for rack in racks {
        write!(text, "r{rack}n[").expect("a string");
        for range in 0..1000 {
            let first = 10 * range;
            write!(text, "{first}-{},", first + range * 7 % 8).expect("a string");
        }
        text.pop();
        text.push_str("],");
    }
    text.pop();
    text
}

/// An R of nodes with other cores than their neighbours.
fn nodes(ranks: std::ops::Range<usize>) -> String {
    let mut text = String::from(r#"{"version":1,"execution":{"R_lite":["#);
    for rank in ranks.clone() {
        let (a, b) = (rank % 1000, rank / 1000);
        write!(
            text,
            r#"{{"rank":"{rank}","children":{{"core":"0-{},{}-{}"}}}},"#,
            a + 1,
            a + 3,
            a + 4 + b
        )
        .expect("a string");
    }
    text.pop();
    let (first, last) = (ranks.start, ranks.end - 1);
    write!(
        text,
        r#"],"nodelist":["n[{first}-{last}]"],"starttime":0,"expiration":0}}}}"#
    )
    .expect("a string");
    text
}

fn main() {
    let mut sizes = std::env::args()
        .skip(1)
        .map(|size| size.parse().expect("a number"));
    let racks: usize = sizes.next().unwrap_or(22_200_000) / 1000;
    let targets: usize = sizes.next().unwrap_or(1_000_000);
    println!(
        "| operation | one thread | longer half | join | times as fast |\n|---|---|---|---|---|"
    );
    let parse = |text: String| text.parse::<Hostlist>().expect("a hostlist");
    let append = |mut left: Hostlist, right: Hostlist| {
        left.append(&right).expect("a list that is not too long");
        left
    };
    let texts = [hosts(0..racks / 2), hosts(racks / 2..racks)];
    compare("parse hosts", &hosts(0..racks), &texts, parse, append);

    let halves = texts.map(parse);
    let whole = append(halves[0].clone(), halves[1].clone());
    let sort = |mut hosts: Hostlist| {
        hosts.sort().expect("a list that is not too long");
        hosts
    };
    // All hosts of the one half come before those of the other: a merge costs at least as much.
    compare("sort hosts", &whole, &halves, sort, append);
    drop((whole, halves));

    let texts = [nodes(0..targets / 2), nodes(targets / 2..targets)];
    let read = |text: String| ResourceSet::from_json(&text).expect("an R");
    let unite = |left: ResourceSet, right: ResourceSet| {
        let united = left.combine(Operation::Union, &right, Scheduling::Same);
        united.expect("sets without a common rank")
    };
    compare("read R", &nodes(0..targets), &texts, read, unite);
}
