//! Lists of a hundred thousand hosts: `cargo bench -p penstock-hostlist`.
#![allow(missing_docs, reason = "criterion's macros write undocumented items")]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use penstock_hostlist::Hostlist;

/// The same disorder at every run.
fn shuffle<T>(items: &mut [T]) {
    let mut seed = 88_172_645_463_325_252_usize;
    for last in (1..items.len()).rev() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        items.swap(last, seed % (last + 1));
    }
}

fn list(names: &[String]) -> Hostlist {
    Hostlist::try_from_hosts(names).expect("names")
}

fn lists(criterion: &mut Criterion) {
    let mut names: Vec<String> = (0..100_000).map(|node| format!("node{node}")).collect();
    shuffle(&mut names);
    let text = names.join(",");
    let all = list(&names);
    let (left, right) = (list(&names[..60_000]), list(&names[40_000..]));
    criterion.bench_function("parse a range", |bench| {
        bench.iter(|| "node[0-99999]".parse::<Hostlist>());
    });
    criterion.bench_function("parse shuffled names", |bench| {
        bench.iter(|| text.parse::<Hostlist>());
    });
    criterion.bench_function("fold shuffled names", |bench| {
        bench.iter(|| list(&names).to_string());
    });
    criterion.bench_function("sort", |bench| {
        bench.iter_batched_ref(|| all.clone(), Hostlist::sort, BatchSize::LargeInput);
    });
    criterion.bench_function("uniq", |bench| {
        bench.iter_batched_ref(|| all.clone(), Hostlist::uniq, BatchSize::LargeInput);
    });
    criterion.bench_function("union", |bench| bench.iter(|| &left | &right));
    criterion.bench_function("intersection", |bench| bench.iter(|| &left & &right));
    criterion.bench_function("difference", |bench| bench.iter(|| &left - &right));
    criterion.bench_function("find", |bench| {
        let mut turns = names.iter().cycle();
        bench.iter(|| turns.next().and_then(|name| all.find(name)));
    });
}

fn grids(criterion: &mut Criterion) {
    let blades: Hostlist = "x[1000-1199]c[0-7]s[0-7]b[0-1]n[0-1]"
        .parse()
        .expect("a hostlist");
    let mut names: Vec<String> = blades.iter().collect();
    shuffle(&mut names);
    let blades = list(&names);
    criterion.bench_function("fold in five dimensions", |bench| {
        bench.iter(|| blades.fold_nd());
    });
}

criterion_group!(benches, lists, grids);
criterion_main!(benches);
