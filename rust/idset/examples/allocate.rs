//! Takes the lowest ids of a set: `cargo run -p penstock-idset --example allocate 0-127,130 8`

use std::env;
use std::error::Error;

use penstock_idset::IdSet;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(ids), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("expected an idset and a number".into());
    };
    let mut free: IdSet = ids.parse()?;
    let available = free.len();
    let taken = free
        .take_first(count.parse()?)
        .ok_or_else(|| format!("expected at most {available} ids, found {count}"))?;
    println!("taken: {taken}");
    println!("left: {free} ({} ids)", free.len());
    Ok(())
}
