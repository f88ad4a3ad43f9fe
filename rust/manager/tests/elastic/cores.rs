//! A scheduler of nodes and cores, which allocates the first that fit.

use std::collections::{BTreeMap, BTreeSet};

use penstock_idset::IdSet;
use penstock_wire::Message;
use serde_json::Value;

pub const NODES: u32 = 8;
pub const CORES: u32 = 4;

/// Rank and core.
pub type Cores = BTreeSet<(u32, u32)>;

pub fn whole(ranks: impl IntoIterator<Item = u32>) -> Cores {
    let ranks = ranks.into_iter();
    ranks
        .flat_map(|rank| (0..CORES).map(move |core| (rank, core)))
        .collect()
}

pub fn ranks_of(cores: &Cores) -> IdSet {
    cores.iter().map(|(rank, _)| *rank).collect()
}

pub fn r_of(cores: &Cores) -> String {
    let ranks = ranks_of(cores);
    let entries = ranks.iter().map(|rank| {
        let own = cores.iter().filter(|core| core.0 == rank);
        let ids: IdSet = own.map(|core| core.1).collect();
        format!(r#"{{"rank":"{rank}","children":{{"core":"{ids}"}}}}"#)
    });
    let entries: Vec<String> = entries.collect();
    format!(
        r#"{{"version":1,"execution":{{"R_lite":[{}],"nodelist":["n[{ranks}]"],"starttime":1000.0,"expiration":90000.0}}}}"#,
        entries.join(",")
    )
}

pub fn cores_in(r: &Value) -> Cores {
    let ids = |value: &Value| value.as_str().unwrap().parse::<IdSet>().unwrap();
    let mut all = Cores::new();
    for entry in r["execution"]["R_lite"].as_array().unwrap() {
        for rank in &ids(&entry["rank"]) {
            all.extend(
                ids(&entry["children"]["core"])
                    .iter()
                    .map(|core| (rank, core)),
            );
        }
    }
    all
}

/// A request to the scheduler.
#[derive(Clone)]
pub struct Requested {
    /// Least and most nodes, or cores if `each` is `None`.
    pub least: u32,
    pub most: u32,
    /// Cores of each node; `None` for cores on any nodes.
    pub each: Option<u32>,
    /// The only acceptable ranks.
    pub only: Option<BTreeSet<u32>>,
}

impl Requested {
    pub fn of(jobspec: &Value) -> Self {
        let resource = &jobspec["resources"][0];
        let number = |value: &Value| u32::try_from(value.as_u64().unwrap()).unwrap();
        let (least, most) = match &resource["count"] {
            Value::String(range) => {
                let (least, most) = range.split_once('-').unwrap();
                (least.parse().unwrap(), most.parse().unwrap())
            }
            count => (number(count), number(count)),
        };
        let each = (resource["type"] == "node").then(|| {
            if resource["exclusive"] == true {
                return CORES;
            }
            number(&resource["with"][0]["with"][0]["count"])
        });
        let constraints = &jobspec["attributes"]["system"]["constraints"];
        let only = (!constraints.is_null()).then(|| {
            let all = (0..NODES).filter(|rank| meets(constraints, *rank));
            all.collect()
        });
        Self {
            least,
            most,
            each,
            only,
        }
    }

    /// The free cores to be allocated; `None` if there are too few.
    pub fn fit(&self, mut free: Cores) -> Option<Cores> {
        if let Some(only) = &self.only {
            free.retain(|(rank, _)| only.contains(rank));
        }
        let most = self.most as usize;
        let given: Vec<Cores> = match self.each {
            None => free.into_iter().map(|core| Cores::from([core])).collect(),
            Some(each) => {
                let nodes = (0..NODES).map(|rank| {
                    let own = free.iter().filter(|core| core.0 == rank);
                    own.take(each as usize).copied().collect()
                });
                nodes
                    .filter(|cores: &Cores| cores.len() == each as usize)
                    .collect()
            }
        };
        let given: Vec<Cores> = given.into_iter().take(most).collect();
        (given.len() >= self.least as usize).then(|| given.into_iter().flatten().collect())
    }
}

/// Whether a rank meets a constraint: `hostlist`, `not`, `and`.
fn meets(constraint: &Value, rank: u32) -> bool {
    let (operator, values) = constraint.as_object().unwrap().iter().next().unwrap();
    let values = values.as_array().unwrap();
    match operator.as_str() {
        "hostlist" => {
            let hosts: penstock_hostlist::Hostlist = values[0].as_str().unwrap().parse().unwrap();
            hosts.contains(&format!("n{rank}"))
        }
        "not" => !meets(&values[0], rank),
        "and" => values.iter().all(|condition| meets(condition, rank)),
        other => panic!("{other}"),
    }
}

#[derive(Default)]
pub struct Scheduler {
    pub waiting: BTreeMap<u64, Requested>,
    pub holds: BTreeMap<u64, Cores>,
    pub probes: Vec<Message>,
}

impl Scheduler {
    pub fn free(&self) -> Cores {
        let mut free = whole(0..NODES);
        free.retain(|core| !self.holds.values().any(|held| held.contains(core)));
        free
    }
}
