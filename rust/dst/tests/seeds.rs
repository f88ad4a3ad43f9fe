//! A few runs without optimization; `make test-dst` runs more, and `make dst` any number.

use std::fs;
use std::path::Path;

use penstock_dst::{Script, run};

#[test]
fn no_seed_violates_an_invariant() {
    for seed in 1..=10 {
        let found = run(&Script::draw(seed)).violation;
        assert_eq!(found, None, "seed {seed}: run `make dst SEED={seed} N=1`");
    }
}

#[test]
fn a_run_is_repeated_exactly() {
    for seed in 1..=5 {
        let script = Script::draw(seed);
        let text: Script = script.to_string().parse().unwrap();
        assert_eq!(run(&script), run(&text), "seed {seed}");
    }
}

/// Each script has shown a defect that is no longer there.
#[test]
fn the_scripts_of_earlier_defects_violate_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let script: Script = fs::read_to_string(&path).unwrap().parse().unwrap();
        assert_eq!(run(&script).violation, None, "{}", path.display());
    }
}
