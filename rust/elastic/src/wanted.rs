//! What a scheduler is to be asked for, as the attributes of a request have it.

use std::collections::BTreeMap;

use penstock_hostlist::Hostlist;

use crate::ask::Ask;
use crate::names::Status;
use crate::request::{Refusal, Request};

impl Ask {
    /// The most parts that a request may have: each is a job, and what is left is told with each.
    pub const MOST_PARTS: usize = 64;

    /// What a request for resources asks for.
    pub fn of(request: &Request) -> Result<Self, Refusal> {
        let bad = |reason: &str| Err(Refusal::new(Status::BAD_PARAM, reason));
        let counts = request.cpu_counts.as_ref().map(|it| it.value.as_slice());
        let mut listed = request.hosts.as_ref().map(|it| it.value.clone());
        let named = listed.as_ref().map(Hostlist::len);
        if let Some(list) = &mut listed {
            list.uniq();
        }
        let count = listed.as_ref().map(Hostlist::len);
        if count != named && counts.is_some() {
            return bad("`pmix.alloc.nlist`: a node that is to have cpus is named twice");
        }
        if let (Some(counts), Some(nodes)) = (counts, count)
            && counts.len() != nodes
            && counts.len() != 1
        {
            return bad("`pmix.alloc.ncpulist`: expected a number for each of `pmix.alloc.nlist`");
        }
        let counted = count.or(counts.map(<[u32]>::len));
        let counted = counted.map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        let nodes = request.nodes.as_ref().map(|it| it.value).or(counted);
        if let (Some(nodes), Some(counted)) = (nodes, counted)
            && nodes > counted
            && request.hosts.as_ref().is_some_and(|it| it.required)
        {
            return bad("`pmix.alloc.nnodes`: more than `pmix.alloc.nlist` has");
        }
        let total = request.cpus.as_ref().map(|it| it.value);
        let list = request.cpu_list.as_ref().map(|it| &it.value);
        let parts = match (nodes, counts, total) {
            (nodes, Some(counts), _) if counts.len() > 1 => {
                if nodes.is_some_and(|it| it as usize != counts.len()) {
                    return bad("`pmix.alloc.ncpulist`: expected a number for each node");
                }
                by_count(counts, listed.as_ref())
            }
            (Some(nodes), None, Some(total)) => {
                let (least, more) = (total / nodes, total % nodes);
                if least == 0 {
                    return bad("`pmix.alloc.ncpus`: expected one for each node at least");
                }
                let parts = [(more, least + 1), (nodes - more, least)].into_iter();
                let parts = parts.filter(|it| it.0 > 0);
                parts
                    .map(|(nodes, cpus)| (nodes, cpus, listed.clone()))
                    .collect()
            }
            _ => Vec::new(),
        };
        if parts.len() > Self::MOST_PARTS {
            let most = Self::MOST_PARTS;
            let reason = format!(
                "`pmix.alloc.ncpulist`: expected at most {most} different numbers, found {}",
                parts.len()
            );
            return Err(Refusal::new(Status::NOT_SUPPORTED, reason));
        }
        let (nodes, cpus, listed) = match (parts.first(), nodes, counts, total, list) {
            (Some((nodes, cpus, hosts)), ..) => (Some(*nodes), *cpus, hosts.clone()),
            (_, _, Some(counts), ..) => (nodes, counts.first().copied().unwrap_or(1), listed),
            (_, None, None, Some(total), _) => (None, total, listed),
            (_, Some(_), None, ..) => (nodes, 0, listed),
            // Alone it is the amount.
            (_, None, None, None, Some(list)) => {
                let cpus = u32::try_from(list.len()).unwrap_or(u32::MAX);
                (Some(1), cpus, listed)
            }
            (_, None, None, None, None) => {
                return bad("expected nodes or cpus that are asked for");
            }
        };
        let mut ask = Self {
            nodes,
            cpus,
            hosts: listed.map(|it| it.to_string()),
            only_hosts: request.hosts.as_ref().is_some_and(|it| it.required),
            cpu_list: list.map(ToString::to_string),
            queue: request.queue.as_ref().map(|it| it.value.clone()),
            among: None,
            own: false,
            only_queue: request.queue.as_ref().is_some_and(|it| it.required),
            required: request.required,
            elsewhere: 0,
            dropped: request.dropped.clone(),
            rest: Vec::new(),
            spread: counts.is_none(),
            apart: None,
            joins: None,
        };
        let rest = parts.into_iter().skip(1);
        ask.rest = rest
            .map(|(nodes, cpus, hosts)| Self {
                nodes: Some(nodes),
                cpus,
                hosts: hosts.map(|it| it.to_string()),
                dropped: Vec::new(),
                ..ask.clone()
            })
            .collect();
        ask.spread &= !ask.rest.is_empty();
        Ok(ask)
    }
}

/// Nodes, cpus of each and perhaps which nodes, for each number of cpus: the largest first, so that
/// nodes that give more are left to those parts that need more.
fn by_count(counts: &[u32], hosts: Option<&Hostlist>) -> Vec<(u32, u32, Option<Hostlist>)> {
    let mut parts: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, cpus) in counts.iter().enumerate() {
        parts.entry(*cpus).or_default().push(place);
    }
    let parts = parts.into_iter().rev();
    let part = |(cpus, places): (u32, Vec<usize>)| {
        let nodes = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let hosts = hosts.map(|all| {
            let hosts = places.iter().filter_map(|place| all.get(*place));
            let hosts: Vec<String> = hosts.collect();
            Hostlist::try_from_hosts(&hosts).unwrap_or_default()
        });
        (nodes, cpus, hosts)
    };
    parts.map(part).collect()
}

#[cfg(test)]
mod tests {
    use crate::Ask;
    use crate::ask::tests::ask;
    use serde_json::json;

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(ask(&json!([])), Err(-27));
        let counts = json!([{"key": "pmix.alloc.nlist", "value": "n1,n2,n3"},
                            {"key": "pmix.alloc.ncpulist", "value": "5,3"}]);
        assert_eq!(ask(&counts), Err(-27));
        let counts = json!([{"key": "pmix.alloc.nnodes", "value": 3},
                            {"key": "pmix.alloc.ncpulist", "value": "5,3"}]);
        assert_eq!(ask(&counts), Err(-27));
        let more = json!([{"key": "pmix.alloc.nlist", "required": true, "value": "n1"},
                          {"key": "pmix.alloc.nnodes", "value": 2}]);
        assert_eq!(ask(&more), Err(-27));
    }

    /// Nodes, cpus of each and hosts, of each part.
    fn parts(ask: &Ask) -> Vec<(u32, u32, Option<&str>)> {
        let parts = ask.parts();
        parts
            .map(|it| (it.nodes.unwrap(), it.cpus, it.hosts.as_deref()))
            .collect()
    }

    #[test]
    fn cpus_that_are_not_as_many_on_each_node_are_parts() {
        let counts = |required: bool, hosts: &str, counts: &str| {
            ask(
                &json!([{"key": "pmix.alloc.nlist", "required": required, "value": hosts},
                        {"key": "pmix.alloc.ncpulist", "value": counts}]),
            )
        };
        let three = counts(true, "n3,n2,n1,n7", "1,3,1,2").unwrap();
        let expected = [
            (1, 3, Some("n2")),
            (1, 2, Some("n7")),
            (2, 1, Some("n[3,1]")),
        ];
        assert_eq!(parts(&three), expected);
        assert_eq!((three.all_nodes(), three.all_cpus()), (Some(4), 7));
        assert!(three.rest.iter().all(|it| it.only_hosts && it.required));
        let preferred = counts(false, "n1,n2", "1,3").unwrap();
        assert!(!preferred.has_parts(), "all or none");
        assert_eq!(
            preferred.describe(),
            "1 node with 3 cpus and 1 node with 1 cpu"
        );
        assert!(counts(true, "n1,n2", "3,3").unwrap().rest.is_empty());
        assert!(counts(true, "n1,n2", "3").unwrap().rest.is_empty());
        let many = |number: u32| {
            let counts: Vec<String> = (1..=number).map(|it| it.to_string()).collect();
            ask(&json!([{"key": "pmix.alloc.ncpulist", "value": counts.join(",")}]))
        };
        assert_eq!(many(64).unwrap().parts().count(), 64);
        assert_eq!(many(65), Err(-47));
        let unlisted = json!([{"key": "pmix.alloc.ncpulist", "value": "1,3"}]);
        assert_eq!(
            parts(&ask(&unlisted).unwrap()),
            [(1, 3, None), (1, 1, None)]
        );
    }

    #[test]
    fn cpus_that_do_not_divide_are_as_even_as_can_be() {
        let total = |nodes: u32, cpus: u32| {
            ask(&json!([{"key": "pmix.alloc.nnodes", "value": nodes},
                        {"key": "pmix.alloc.ncpus", "value": cpus}]))
        };
        let seven = total(2, 7).unwrap();
        assert_eq!(parts(&seven), [(1, 4, None), (1, 3, None)]);
        assert!(seven.has_parts());
        assert!(total(2, 6).unwrap().rest.is_empty());
        assert_eq!(total(3, 2), Err(-27));
        let listed = ask(&json!([{"key": "pmix.alloc.nlist", "value": "n1,n2"},
                                 {"key": "pmix.alloc.ncpus", "value": 7}]));
        let both = Some("n[1-2]");
        assert_eq!(parts(&listed.unwrap()), [(1, 4, both), (1, 3, both)]);
    }

    #[test]
    fn a_node_that_is_named_twice_is_one() {
        let twice = ask(&json!([{"key": "pmix.alloc.nlist", "value": "n2,n2"}])).unwrap();
        assert_eq!((twice.nodes, twice.hosts.as_deref()), (Some(1), Some("n2")));
        let counts = json!([{"key": "pmix.alloc.nlist", "value": "n2,n2"},
                            {"key": "pmix.alloc.ncpulist", "value": "1,1"}]);
        assert_eq!(ask(&counts), Err(-27));
    }
}
