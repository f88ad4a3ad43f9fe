//! The algebra against a plain model: rank to host, cores and gpus.

use std::collections::{BTreeMap, BTreeSet};

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use proptest::collection::{btree_map, btree_set};
use proptest::prelude::*;

type Ids = BTreeSet<u32>;
type Model = BTreeMap<u32, (Ids, Ids)>;

/// Few ranks and ids, so that sets overlap and neighbours are often equal.
fn model() -> impl Strategy<Value = Model> {
    let children = prop_oneof![
        3 => Just((Ids::from([0, 1]), Ids::from([0]))),
        2 => (btree_set(0..4_u32, 0..4), btree_set(0..2_u32, 0..2)),
    ];
    btree_map(0..12_u32, children, 0..12)
}

fn host(rank: u32) -> String {
    format!("node{rank}")
}

fn idset(ids: &Ids) -> IdSet {
    ids.iter().copied().collect()
}

/// The set of a model, its ranks inserted in the order of `shuffle`.
fn set(model: &Model, shuffle: u32) -> ResourceSet {
    let mut ranks: Vec<_> = model.keys().copied().collect();
    ranks.sort_by_key(|rank| rank.wrapping_mul(shuffle | 1) % 13);
    let mut set = ResourceSet::new();
    for rank in ranks {
        let (cores, gpus) = &model[&rank];
        set.insert(rank, &host(rank), idset(cores), idset(gpus))
            .unwrap();
    }
    set
}

fn model_of(set: &ResourceSet) -> Model {
    let node = |node: penstock_rset::Node<'_>| {
        assert_eq!(node.host, host(node.rank));
        (
            node.rank,
            (node.cores.iter().collect(), node.gpus.iter().collect()),
        )
    };
    let model: Model = set.nodes().map(node).collect();
    assert_eq!(set.ranks(), model.keys().copied().collect());
    assert_eq!(set.nnodes(), model.len());
    assert_eq!(
        set.ncores(),
        model
            .values()
            .map(|(cores, _)| cores.len() as u64)
            .sum::<u64>()
    );
    assert_eq!(
        set.ngpus(),
        model
            .values()
            .map(|(_, gpus)| gpus.len() as u64)
            .sum::<u64>()
    );
    model
}

fn bare((cores, gpus): &(Ids, Ids)) -> bool {
    cores.is_empty() && gpus.is_empty()
}

fn union(left: &Model, right: &Model) -> Model {
    let mut union = left.clone();
    for (rank, (cores, gpus)) in right {
        let children = union.entry(*rank).or_default();
        children.0.extend(cores);
        children.1.extend(gpus);
    }
    union
}

fn intersection(left: &Model, right: &Model) -> Model {
    let shared = |(rank, ours): (&u32, &(Ids, Ids))| {
        let theirs = right.get(rank)?;
        let shared = (&ours.0 & &theirs.0, &ours.1 & &theirs.1);
        (!bare(&shared) || bare(ours) && bare(theirs)).then_some((*rank, shared))
    };
    left.iter().filter_map(shared).collect()
}

fn difference(left: &Model, right: &Model) -> Model {
    let rest = |(rank, ours): (&u32, &(Ids, Ids))| {
        let Some(theirs) = right.get(rank) else {
            return Some((*rank, ours.clone()));
        };
        let rest = (&ours.0 - &theirs.0, &ours.1 - &theirs.1);
        (!bare(&rest) || bare(ours) && !bare(theirs)).then_some((*rank, rest))
    };
    left.iter().filter_map(rest).collect()
}

fn restricted(model: &Model, ranks: &Ids) -> Model {
    model
        .iter()
        .filter(|(rank, _)| ranks.contains(rank))
        .map(|(rank, children)| (*rank, children.clone()))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn operations_agree_with_the_model(left in model(), right in model(), shuffle in 0..6_u32) {
        let (l, r) = (set(&left, shuffle), set(&right, 1));
        prop_assert_eq!(model_of(&l), left.clone());
        prop_assert_eq!(&l, &set(&left, 1), "the order of insertion does not matter");
        prop_assert_eq!(model_of(&l.union(&r).unwrap()), union(&left, &right));
        prop_assert_eq!(model_of(&l.intersection(&r).unwrap()), intersection(&left, &right));
        prop_assert_eq!(model_of(&l.difference(&r).unwrap()), difference(&left, &right));
        prop_assert_eq!(l.is_disjoint(&r), intersection(&left, &right).is_empty());
        let subset = left.iter().all(|(rank, (cores, gpus))| {
            right.get(rank).is_some_and(|theirs| cores.is_subset(&theirs.0) && gpus.is_subset(&theirs.1))
        });
        prop_assert_eq!(l.is_subset(&r), subset);
        prop_assert!(l.is_subset(&l.union(&r).unwrap()));
        prop_assert!(l.intersection(&r).unwrap().is_subset(&r));
        prop_assert!(l.difference(&r).unwrap().is_disjoint(&r));
    }

    #[test]
    fn texts_are_read_back(model in model(), property in btree_set(0..12_u32, 0..4)) {
        let mut set = set(&model, 1);
        let property = restricted(&model, &property).into_keys().collect();
        set.add_property("fast", &idset(&property)).unwrap();
        set.set_starttime(Some(0.1)).unwrap();
        set.set_nslots(Some(3));
        let text = set.to_json();
        let again = ResourceSet::from_json(&text).unwrap();
        prop_assert_eq!(&again, &set);
        prop_assert_eq!(again.to_json(), text);
    }

    #[test]
    fn parts_and_ranks(model in model(), ranks in btree_set(0..14_u32, 0..8)) {
        let mut whole = set(&model, 1);
        let properties: Ids = model.keys().copied().filter(|rank| rank % 2 == 0).collect();
        whole.add_property("even", &idset(&properties)).unwrap();
        let part = whole.restrict(&idset(&ranks));
        prop_assert_eq!(model_of(&part), restricted(&model, &ranks));
        let even: Ids = properties.intersection(&ranks).copied().collect();
        prop_assert_eq!(part.properties().get("even").cloned().unwrap_or_default(), idset(&even));
        let mut rest = whole.clone();
        rest.remove_ranks(&idset(&ranks));
        prop_assert_eq!(&part.union(&rest).unwrap(), &whole);
        prop_assert!(part.is_disjoint(&rest));

        let reranked = part.rerank();
        prop_assert_eq!(reranked.nodelist(), part.nodelist());
        prop_assert_eq!(reranked.ranks(), (0..u32::try_from(part.nnodes()).unwrap()).collect());
        for rank in 0..14 {
            let expected: Vec<_> = part.nodes().filter(|node| node.rank >= rank).collect();
            prop_assert_eq!(part.nodes_from(rank).collect::<Vec<_>>(), expected);
        }
        for (before, after) in part.nodes().zip(reranked.nodes()) {
            prop_assert_eq!((&before.host, before.cores, before.gpus), (&after.host, after.cores, after.gpus));
            let has = |set: &ResourceSet, rank| set.properties().get("even").is_some_and(|ranks| ranks.contains(rank));
            prop_assert_eq!(has(&part, before.rank), has(&reranked, after.rank));
            prop_assert_eq!(part.node(before.rank), Some(before));
        }

        let appended = whole.append(&part).unwrap();
        let first = model.keys().last().map_or(0, |last| last + 1);
        prop_assert_eq!(&appended.restrict(&(0..=11).into()).restrict(&whole.ranks()), &whole);
        prop_assert_eq!(appended.nnodes(), whole.nnodes() + part.nnodes());
        for (node, rank) in part.nodes().zip(first..) {
            let moved = appended.node(rank).unwrap();
            prop_assert_eq!((node.host, node.cores, node.gpus), (moved.host, moved.cores, moved.gpus));
        }
    }
}

fn read(text: &str) -> ResourceSet {
    ResourceSet::from_json(text).unwrap()
}

fn simple(ranks: &str, hosts: &str) -> ResourceSet {
    ResourceSet::uniform(
        &ranks.parse().unwrap(),
        &hosts.parse().unwrap(),
        (0..=3).into(),
        IdSet::new(),
    )
    .unwrap()
}

#[test]
fn one_rank_on_two_hosts_is_rejected() {
    let (one, other) = (simple("0-4", "a[0-4]"), simple("2-6", "a[2-3],b4,a[5-6]"));
    let text = "rank 4 is on host `a4` in one set, and on `b4` in the other";
    for result in [
        one.union(&other),
        one.intersection(&other),
        one.difference(&other),
    ] {
        assert_eq!(result.unwrap_err().to_string(), text);
    }
    let mut one = one;
    assert_eq!(
        one.insert(3, "x", IdSet::new(), IdSet::new())
            .unwrap_err()
            .to_string(),
        "rank 3 is on host `a3`, not on `x`"
    );
    assert_eq!(
        one.insert(u32::MAX, "x", IdSet::new(), IdSet::new())
            .unwrap_err()
            .to_string(),
        "expected a rank from 0 to 4294967294, found 4294967295"
    );
    assert!(one.insert(9, "x[1-2]", IdSet::new(), IdSet::new()).is_err());
    assert!(one.insert(9, "", IdSet::new(), IdSet::new()).is_err());
    assert_eq!(one, simple("0-4", "a[0-4]"));
}

#[test]
fn times_and_slots() {
    let with = |starttime, expiration, nslots| {
        let mut set = simple("0-1", "a[0-1]");
        set.set_starttime(starttime).unwrap();
        set.set_expiration(expiration).unwrap();
        set.set_nslots(nslots);
        set
    };
    let times = |set: &ResourceSet| (set.starttime(), set.expiration());
    let (one, other) = (
        with(Some(10.0), None, Some(2)),
        with(Some(20.0), Some(30.0), Some(3)),
    );
    assert_eq!(times(&one.union(&other).unwrap()), (Some(10.0), None));
    assert_eq!(
        times(&other.difference(&one).unwrap()),
        (Some(20.0), Some(30.0))
    );
    assert_eq!(
        times(&one.intersection(&other).unwrap()),
        (Some(20.0), Some(30.0))
    );
    assert_eq!(
        times(
            &with(None, Some(9.0), None)
                .intersection(&with(None, None, None))
                .unwrap()
        ),
        (None, Some(9.0))
    );
    let error = with(None, Some(9.0), None).intersection(&one).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("the sets are valid at different times"),
        "{error}"
    );

    assert_eq!(
        one.union(&other).unwrap().nslots(),
        Some(2),
        "nothing was added"
    );
    assert_eq!(one.append(&other).unwrap().nslots(), Some(5));
    assert_eq!(one.append(&with(None, None, None)).unwrap().nslots(), None);
    assert_eq!(one.restrict(&(0..=0).into()).nslots(), None);
    assert_eq!(one.restrict(&(0..=9).into()).nslots(), Some(2));
    assert_eq!(one.rerank().nslots(), Some(2));

    let mut set = one.clone();
    assert_eq!(
        set.set_expiration(Some(5.0)).unwrap_err().to_string(),
        "expected an expiration after starttime 10, found 5"
    );
    assert_eq!(
        set.set_starttime(Some(-1.0)).unwrap_err().to_string(),
        "expected starttime of at least 0, found -1"
    );
    assert_eq!(
        set.set_expiration(Some(f64::NAN)).unwrap_err().to_string(),
        "expected expiration of at least 0, found NaN"
    );
    assert_eq!(set, one);
    set.set_starttime(Some(0.0)).unwrap();
    assert_eq!(set.starttime(), None);
}

#[test]
fn carried_values_agree_or_are_rejected() {
    let with = |extra: &str| {
        read(&format!(
            r#"{{"version":1,"execution":{{"R_lite":[],"nodelist":[]{extra}}}"#
        ))
    };
    let (none, one) = (with("}"), with(r#"},"scheduling":{"a":1,"b":[2]}"#));
    let same = with(r#"},"scheduling":{ "b" : [2] , "a":1 }"#);
    let other = with(r#"},"scheduling":{"a":2}"#);
    assert_eq!(one, same);
    assert_ne!(one, other);
    assert_eq!(none.union(&one).unwrap(), one);
    assert_eq!(
        one.difference(&same).unwrap().scheduling().unwrap().get(),
        r#"{"a":1,"b":[2]}"#
    );
    assert_eq!(
        one.union(&other).unwrap_err().to_string(),
        "the sets have different values of `scheduling`, which cannot be combined"
    );
    let (left, right) = (
        with(r#","x":1},"y":1"#),
        with(r#","x":2,"z":3},"y":2,"w":4"#),
    );
    assert_eq!(
        left.union(&right).unwrap().to_json(),
        r#"{"version":1,"execution":{"R_lite":[],"nodelist":[""],"starttime":0.0,"expiration":0.0,"x":1,"z":3},"w":4,"y":1}"#
    );
}

#[test]
fn scheduling_alone_is_carried_and_nothing_else() {
    let text = r#"{"version":1,"scheduling":{"graph":{}}}"#;
    let set = read(text);
    assert!(!set.has_execution());
    assert_eq!(set.to_json(), text);
    let expected = "expected an R with `execution`, found one with `scheduling` alone";
    let empty = ResourceSet::new();
    let mut other = set.clone();
    let results = [
        set.union(&empty).err(),
        empty.difference(&set).err(),
        set.append(&empty).err(),
        other.insert(0, "a", IdSet::new(), IdSet::new()).err(),
        other.add_property("a", &IdSet::new()).err(),
        other.set_expiration(Some(1.0)).err(),
        set.host_ranks(&Hostlist::new()).err(),
    ];
    for result in results {
        assert_eq!(result.unwrap().to_string(), expected);
    }
    assert_eq!(
        (set.restrict(&(0..=1).into()), set.rerank(), other),
        (set.clone(), set.clone(), set)
    );
}

#[test]
fn hosts_and_ranks() {
    let set = simple("1,3,5-7", "a,b,a,c[8-9]");
    let ranks = |hosts: &str| {
        set.host_ranks(&hosts.parse().unwrap())
            .map_err(|error| error.to_string())
    };
    assert_eq!(ranks("c9,b"), Ok(vec![7, 3]));
    assert_eq!(ranks("a"), Ok(vec![1, 5]));
    assert_eq!(ranks(""), Ok(vec![]));
    assert_eq!(ranks("x1,a,x2"), Err("unknown hosts `x[1-2]`".to_owned()));
    let many = format!("c8,{}", ["b"; 20].join(","));
    assert_eq!(ranks(&many), Ok([vec![6], vec![3; 20]].concat()));
    assert_eq!(
        ranks(&format!("{many},y")),
        Err("unknown host `y`".to_owned())
    );
    assert_eq!((set.host(5).as_deref(), set.host(4)), (Some("a"), None));
    assert_eq!(set.node(2), None);
    assert!(
        set.host_ranks(&"x".parse().unwrap())
            .unwrap_err()
            .is_not_found()
    );
    let error = ResourceSet::uniform(
        &(0..=1).into(),
        &"a".parse().unwrap(),
        IdSet::new(),
        IdSet::new(),
    )
    .unwrap_err();
    assert_eq!(error.to_string(), "expected 2 hosts for ranks 0-1, found 1");
}

#[test]
fn properties() {
    let mut set = simple("0-3", "n[0-3]");
    let ids = |text: &str| text.parse::<IdSet>().unwrap();
    set.add_property("batch", &ids("0-1")).unwrap();
    set.add_property("batch", &ids("2")).unwrap();
    set.add_property("+here", &ids("3")).unwrap();
    set.add_property("none", &ids("")).unwrap();
    assert_eq!(
        set.properties().keys().collect::<Vec<_>>(),
        ["+here", "batch"]
    );
    assert_eq!(set.properties()["batch"], ids("0-2"));
    assert_eq!(
        set.without_local_properties()
            .properties()
            .keys()
            .collect::<Vec<_>>(),
        ["batch"]
    );
    assert_eq!(
        set.add_property("batch", &ids("3-5"))
            .unwrap_err()
            .to_string(),
        "property `batch` is on ranks 4-5, but the set has ranks 0-3"
    );
    assert!(set.add_property("a|b", &ids("0")).is_err());
    set.remove_property("batch", &ids("0,9"));
    set.remove_property("+here", &ids("0-3"));
    set.remove_property("other", &ids("0-3"));
    assert_eq!(
        set.properties().clone().into_iter().collect::<Vec<_>>(),
        [("batch".to_owned(), ids("1-2"))]
    );
    assert_eq!(set.union(&set.rerank()).unwrap(), set);
}

#[test]
fn append_ends_at_the_last_rank() {
    let last = simple("4294967294", "a");
    assert_eq!(
        simple("", "").append(&last).unwrap().ranks().to_string(),
        "0"
    );
    assert_eq!(
        last.append(&last).unwrap_err().to_string(),
        "expected ranks of at most 4294967294, found 4294967295"
    );
    assert_eq!(
        simple("4294967293", "b")
            .append(&last)
            .unwrap()
            .nodelist()
            .to_string(),
        "b,a"
    );
}

#[test]
fn a_hundred_thousand_nodes_that_all_differ_from_their_neighbours() {
    let entry = |rank: u32| {
        format!(
            r#"{{"rank":"{rank}","children":{{"core":"0-{}"}}}}"#,
            rank % 64 + 1
        )
    };
    let entries: Vec<_> = (0..100_000).map(entry).collect();
    let text = format!(
        r#"{{"version":1,"execution":{{"R_lite":[{}],"nodelist":["n[0-99999]"]}}}}"#,
        entries.join(",")
    );
    let set = read(&text);
    assert_eq!(set.nnodes(), 100_000);
    let odd: IdSet = (0..100_000).filter(|rank| rank % 2 == 1).collect();
    let (odd, even) = (
        set.restrict(&odd),
        set.difference(&set.restrict(&odd)).unwrap(),
    );
    assert_eq!((odd.nnodes(), even.nnodes()), (50_000, 50_000));
    assert_eq!(odd.union(&even).unwrap(), set);
    assert!(odd.is_disjoint(&even) && odd.is_subset(&set));
    assert_eq!(read(&odd.to_json()), odd);
}
