//! Sets of a million ids: `cargo bench -p penstock-idset`.
#![allow(missing_docs, reason = "criterion's macros write undocumented items")]

use criterion::{Criterion, criterion_group, criterion_main};
use penstock_idset::IdSet;

const UNIVERSE: u32 = 1_000_000;

/// About half of all ids, the same at every run.
fn half(mut seed: u64) -> IdSet {
    let mut coin = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed & 1 == 1
    };
    (0..UNIVERSE).filter(|_| coin()).collect()
}

fn sets(criterion: &mut Criterion) {
    let (left, right) = (half(1), half(2));
    let even: IdSet = (0..UNIVERSE).step_by(2).collect();
    let ranges: IdSet = (0..UNIVERSE).filter(|id| id % 100 < 40).collect();
    let text = even.to_string();
    criterion.bench_function("parse even", |bench| bench.iter(|| text.parse::<IdSet>()));
    criterion.bench_function("format even", |bench| bench.iter(|| even.to_string()));
    criterion.bench_function("union of halves", |bench| bench.iter(|| &left | &right));
    criterion.bench_function("intersection of even and ranges", |bench| {
        bench.iter(|| &even & &ranges);
    });
    criterion.bench_function("iterate over a half", |bench| {
        bench.iter(|| left.iter().map(u64::from).sum::<u64>());
    });
    for (name, set) in [("all", IdSet::with_range(0..=UNIVERSE)), ("a half", left)] {
        let mut pool = set;
        let name = format!("take the lowest of {name} and return it");
        criterion.bench_function(&name, |bench| {
            bench.iter(|| pool.pop_first().map(|id| pool.insert(id)));
        });
    }
}

criterion_group!(benches, sets);
criterion_main!(benches);
