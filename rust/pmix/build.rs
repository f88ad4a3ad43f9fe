//! Finds libpmix for the server; without the feature `server` there is nothing to find.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PENSTOCK_LIBPMIX_DIR");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    if env::var_os("CARGO_FEATURE_SERVER").is_none() {
        return;
    }
    // The library is to find the server's `accept` before that of the C library.
    println!("cargo::rustc-link-arg-bins=-Wl,--export-dynamic-symbol=accept");
    // If neither names a directory, the linker searches its default path.
    if let Ok(directory) = env::var("PENSTOCK_LIBPMIX_DIR") {
        println!("cargo::rustc-link-search=native={directory}");
    } else {
        for directory in pkg_config() {
            println!("cargo::rustc-link-search=native={directory}");
        }
    }
}

/// The library directories of libpmix according to `pkg-config`; empty if it does not know the library.
fn pkg_config() -> Vec<String> {
    let answer = Command::new("pkg-config")
        .args(["--libs-only-L", "--keep-system-libs", "pmix"])
        .output();
    let Ok(answer) = answer else {
        return Vec::new();
    };
    String::from_utf8_lossy(&answer.stdout)
        .split_whitespace()
        .filter_map(|word| word.strip_prefix("-L").map(str::to_owned))
        .collect()
}
