//! The crates alone: what is left of a cluster, and on which hosts. `cargo run -p penstock-rset --example sets`

use std::error::Error;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;

fn main() -> Result<(), Box<dyn Error>> {
    let text = r#"{"version": 1, "execution": {
        "R_lite": [{"rank": "0-15", "children": {"core": "0-31"}}],
        "nodelist": ["rack1n[0-7],rack2n[0-7]"]}}"#;
    let cluster: ResourceSet = text.parse()?;
    let busy: IdSet = "0-3,15".parse()?;
    let free = &cluster.ranks() - &busy;
    println!("free ranks: {free}");
    let down: Hostlist = "rack1n6,rack2n[0-1]".parse()?;
    let hosts: Hostlist = "rack1n[4-7],rack2n[0-6]".parse()?;
    println!("usable: {}", hosts.difference(&down));
    Ok(())
}
