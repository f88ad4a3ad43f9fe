//! Folds the host names on standard input: `cargo run -p penstock-hostlist --example fold < names`

use std::error::Error;
use std::io;

use penstock_hostlist::Hostlist;

fn main() -> Result<(), Box<dyn Error>> {
    let mut hosts = Hostlist::new();
    for line in io::stdin().lines() {
        for word in line?.split_whitespace() {
            hosts.append(&word.parse()?)?;
        }
    }
    hosts.sort()?;
    hosts.uniq();
    println!("{hosts}: {} hosts", hosts.len());
    Ok(())
}
