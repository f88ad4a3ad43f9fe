//! Documents: the two ways to read one, the ways to write one, and what the standard traits do.

use std::collections::BTreeMap;
use std::fmt::Write;

use penstock_rset::{Operation, ResourceSet, Scheduling};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// An entry of `R_lite`: its first rank, the number of ranks that follow, their distance, and its cores and gpus.
type Entry = (u32, u32, u32, String, Option<String>);

fn idset() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("0-3".to_owned()),
        Just("[0-3]".to_owned()),
        Just("0-63,128,4294967294".to_owned()),
        (0..9_u32, 1..9_u32).prop_map(|(first, len)| format!("{first}-{}", first + len)),
        // Some are wrong.
        Just("3-1".to_owned()),
        Just("x".to_owned()),
    ]
}

fn entry() -> impl Strategy<Value = Entry> {
    (
        0..40_u32,
        0..4_u32,
        1..3_u32,
        idset(),
        proptest::option::of(idset()),
    )
}

fn document(
    entries: &[Entry],
    properties: &BTreeMap<String, u32>,
    nodes: usize,
    head: &str,
) -> String {
    let mut text = format!(r#"{{{head}"version":1,"execution":{{"R_lite":["#);
    for (at, (first, more, step, cores, gpus)) in entries.iter().enumerate() {
        let ranks: Vec<_> = (0..=*more)
            .map(|n| (first + n * step).to_string())
            .collect();
        let comma = if at > 0 { "," } else { "" };
        let ranks = ranks.join(",");
        write!(
            text,
            r#"{comma}{{"rank":"{ranks}","children":{{"core":"{cores}""#
        )
        .unwrap();
        if let Some(gpus) = gpus {
            write!(text, r#","gpu":"{gpus}""#).unwrap();
        }
        text.push_str("}}");
    }
    let hosts: Vec<_> = (0..nodes).map(|n| format!("n{n}")).collect();
    write!(
        text,
        r#"],"nodelist":["{}"],"properties":{{"#,
        hosts.join(",")
    )
    .unwrap();
    for (at, (name, rank)) in properties.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        write!(text, r#"{comma}"{name}":"{rank}""#).unwrap();
    }
    text.push_str("}}}");
    text
}

fn nodes(entries: &[Entry]) -> usize {
    let ranks = entries
        .iter()
        .flat_map(|(first, more, step, ..)| (0..=*more).map(move |n| first + n * step));
    ranks.collect::<std::collections::BTreeSet<_>>().len()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1024) })]

    /// A key that comes twice is not read the quick way.
    #[test]
    fn both_ways_to_read_agree(
        entries in vec(entry(), 0..6),
        properties in btree_map("[a-c&]{1,2}", 0..40_u32, 0..2),
        missing in 0..10_usize,
    ) {
        let nodes = nodes(&entries) - usize::from(missing == 0 && !entries.is_empty());
        let quick = ResourceSet::from_json(&document(&entries, &properties, nodes, ""));
        let slow = document(&entries, &properties, nodes, r#""version":2,"#);
        prop_assert_eq!(&quick, &ResourceSet::from_json(&slow));
        prop_assert_eq!(quick.err(), ResourceSet::problems(&slow).into_iter().next());
    }

    /// Any text is read or rejected.
    #[test]
    fn damaged_documents(edits in vec((any::<prop::sample::Index>(), r#"[]{}":,0-9a\\ ]?"#), 1..4)) {
        let mut text = r#"{"version":1,"execution":{"R_lite":[{"rank":"0-1","children":{"core":"0-3","gpu":"1"}}],"nodelist":["n[0-1]"],"properties":{"a":"1"},"starttime":1.5,"nslots":2,"x":[]},"scheduling":{"graph":{"nodes":[{"id":"0","metadata":{"size":1}}],"edges":[{"source":"0"}]}}}"#.to_owned();
        for (place, with) in edits {
            let at = place.index(text.len());
            text.replace_range(at..=at, &with);
        }
        let problems = ResourceSet::problems(&text);
        prop_assert!(ResourceSet::problems_with_graph(&text).len() >= problems.len());
        match ResourceSet::from_json(&text) {
            Ok(set) => {
                prop_assert_eq!(problems, []);
                prop_assert_eq!(set.to_json().parse(), Ok(set));
            }
            Err(error) => prop_assert_eq!(Some(&error), problems.first()),
        }
    }
}

#[test]
fn different_kinds_of_nodes_with_similar_texts_are_distinguished() {
    // Texts of one length whose ends are the same.
    let entries: Vec<Entry> = (0..40)
        .map(|n| {
            (
                n,
                0,
                1,
                format!("0,2,4,6,8,{},90,92,94,96", n + 10),
                Some(format!("{}", n % 3)),
            )
        })
        .collect();
    let set = ResourceSet::from_json(&document(&entries, &BTreeMap::new(), 40, "")).unwrap();
    for (node, (rank, _, _, cores, gpus)) in set.nodes().zip(&entries) {
        assert_eq!(node.rank, *rank);
        assert_eq!(node.cores.to_string(), *cores);
        assert_eq!(Some(node.gpus.to_string()), *gpus);
    }
    let again: ResourceSet = set.to_json().parse().unwrap();
    assert_eq!(again, set);
}

#[test]
fn traits() {
    let text = r#"{"version":1,"execution":{"R_lite":[{"rank":"0-1","children":{"core":"0"}}],"nodelist":["a,b"],"starttime":0.0,"expiration":0.0},"scheduling":{ "a" : 1 }}"#;
    let set: ResourceSet = text.parse().unwrap();
    assert_eq!(format!("{set:>20}|"), "     rank[0-1]/core0|");
    assert_eq!(ResourceSet::try_from(text.as_bytes()), Ok(set.clone()));
    let error = ResourceSet::try_from(&b"{\"\xff"[..]).unwrap_err();
    assert_eq!(error.to_string(), "invalid R: expected UTF-8 at byte 2");
    assert_eq!(error.offset(), Some(2));
    assert_eq!(serde_json::to_string(&set).unwrap(), text);
    let list: Vec<ResourceSet> = serde_json::from_str(&format!("[{text},{text}]")).unwrap();
    assert_eq!(list, [set.clone(), set]);
    let error = serde_json::from_str::<ResourceSet>(r#"{"version":3}"#).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("invalid R: version: expected 1, found 3"),
        "{error}"
    );
}

#[test]
fn scheduling_that_differs() {
    let with = |scheduling: &str| -> ResourceSet {
        let text = r#"{"version":1,"execution":{"R_lite":[{"rank":"0","children":{"core":"0"}}],"nodelist":["a"]}"#;
        format!("{text}{scheduling}}}").parse().unwrap()
    };
    let (one, other) = (
        with(r#","scheduling":{"a":1}"#),
        with(r#","scheduling":{"a":2},"attributes":{}"#),
    );
    let (same, none) = (with(r#","scheduling": {"a" : 1}"#), with(""));
    for operation in [
        Operation::Union,
        Operation::Intersection,
        Operation::Difference,
        Operation::Append,
    ] {
        let combine = |left: &ResourceSet, right, scheduling| {
            let result = left.combine(operation, right, scheduling);
            result.map(|set| set.scheduling().map(|raw| raw.get().to_owned()))
        };
        let text = |text: &str| Ok(Some(text.to_owned()));
        let error = combine(&one, &other, Scheduling::Same).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the sets have different values of `scheduling`, which cannot be combined"
        );
        assert_eq!(combine(&one, &same, Scheduling::Same), text(r#"{"a":1}"#));
        assert_eq!(combine(&same, &one, Scheduling::Same), text(r#"{"a" : 1}"#));
        assert_eq!(combine(&one, &other, Scheduling::Left), text(r#"{"a":1}"#));
        assert_eq!(combine(&none, &other, Scheduling::Left), text(r#"{"a":2}"#));
        assert_eq!(combine(&one, &other, Scheduling::Drop), Ok(None));
        let dropped = other.combine(operation, &none, Scheduling::Drop).unwrap();
        assert!(dropped.attributes().is_none());
    }
}

/// Also a test of time: what is quadratic in the number of nodes does not end.
#[test]
fn a_hundred_thousand_kinds_of_nodes() {
    let cores = |rank: u32| {
        let bits = (0..17)
            .filter(|bit| rank >> bit & 1 == 1)
            .map(|bit| bit * 3);
        bits.chain([60])
            .map(|core| core.to_string())
            .collect::<Vec<_>>()
            .join(",")
    };
    let entries: Vec<Entry> = (0..100_000)
        .rev()
        .map(|rank| (rank, 0, 1, cores(rank), None))
        .collect();
    let set = ResourceSet::from_json(&document(&entries, &BTreeMap::new(), 100_000, "")).unwrap();
    assert_eq!(set.node(77_777).unwrap().cores.to_string(), cores(77_777));
    let again: ResourceSet = set.to_json().parse().unwrap();
    assert_eq!(again, set);
    assert_eq!(set.union(&again).unwrap(), set);
    assert_eq!(set.intersection(&again).unwrap(), set);
    assert_eq!(set.difference(&again).unwrap().nnodes(), 0);
    assert_eq!(set.append(&set).unwrap().ncores(), 2 * set.ncores());
    assert_eq!(set.summary().split(' ').count(), 100_000);
}
