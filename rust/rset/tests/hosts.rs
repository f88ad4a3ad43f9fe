//! Finding ranks by host and property, against a list of names.

use std::collections::BTreeSet;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use proptest::collection::vec;
use proptest::prelude::*;

/// The hosts of ranks 3, 6, 9 …: neither ranks nor positions are the numbers in the names.
fn spread(hosts: &[String]) -> ResourceSet {
    let ranks: IdSet = (1..).map(|rank| rank * 3).take(hosts.len()).collect();
    let hosts = Hostlist::try_from_hosts(hosts).unwrap();
    ResourceSet::uniform(&ranks, &hosts, (0..=3).into(), IdSet::new()).unwrap()
}

fn model(hosts: &[String], wanted: &[String]) -> Vec<u32> {
    let ranks = (1..).map(|rank| rank * 3).zip(hosts);
    let found = ranks.filter(|(_, host)| wanted.contains(host));
    found.map(|(rank, _)| rank).collect()
}

fn check(hosts: &[String], wanted: &[String]) {
    let set = spread(hosts);
    let list = Hostlist::try_from_hosts(wanted).unwrap();
    let found = set.ranks_on(&list);
    assert_eq!(set.has_any_host(&list), !found.is_empty());
    assert_eq!(found.iter().collect::<Vec<_>>(), model(hosts, wanted));
    let missing = wanted.iter().find(|name| !hosts.contains(name));
    match (missing, set.ranks_on_all(&list)) {
        (None, all) => assert_eq!(all.as_ref(), Ok(&found)),
        (Some(missing), all) => {
            let error = all.unwrap_err();
            assert!(error.is_not_found());
            assert!(error.to_string().starts_with("unknown host"), "{error}");
            assert_eq!(set.host_ranks(&list), Err(error), "{missing}");
            return;
        }
    }
    let each = wanted
        .iter()
        .flat_map(|name| model(hosts, std::slice::from_ref(name)));
    assert_eq!(set.host_ranks(&list).unwrap(), each.collect::<Vec<_>>());
}

fn names(numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
    numbers
        .into_iter()
        .map(|number| format!("n{number}"))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn few_hosts(hosts in vec(0..20_usize, 0..30), wanted in vec(0..22_usize, 0..30)) {
        check(&names(hosts), &names(wanted));
    }

    #[test]
    fn stretches(starts in vec(0..300_usize, 1..6), wanted in vec((0..300_usize, 1..80_usize), 0..5)) {
        let hosts = names(starts.into_iter().flat_map(|start| start..start + 60));
        let wanted = names(wanted.into_iter().flat_map(|(start, len)| start..start + len));
        check(&hosts, &wanted);
    }
}

#[test]
fn scattered_hosts_of_a_long_list() {
    let all = names(0..3000);
    check(&all, &names((0..3000).step_by(2)));
    check(&all, &names((0..3000).rev()));
    check(&all, &names((0..1500).flat_map(|n| [n, 2999 - n])));
    let shuffled = names((0..3000).map(|n| n * 7 % 3000));
    check(&shuffled, &names(100..900));
    check(&shuffled, &all);
}

#[test]
fn nothing_is_counted_out_for_huge_lists() {
    let ranks = IdSet::with_range(0..=4_000_000_000);
    let hosts: Hostlist = "n[0-4000000000]".parse().unwrap();
    let set = ResourceSet::uniform(&ranks, &hosts, (0..=3).into(), IdSet::new()).unwrap();
    let scattered: BTreeSet<u32> = (0..200).map(|n| n * 19_999_999).collect();
    let wanted = Hostlist::try_from_hosts(scattered.iter().map(|n| format!("n{n}"))).unwrap();
    assert_eq!(set.ranks_on(&wanted), scattered.iter().copied().collect());
    let part = set.restrict(&set.ranks_on(&"n[5-3999999999],x".parse().unwrap()));
    assert_eq!(part.nodelist().to_string(), "n[5-3999999999]");
    assert_eq!(
        set.difference(&part).unwrap().ranks().to_string(),
        "0-4,4000000000"
    );
    let other: Hostlist = "n[0-3999999998],m[0-1]".parse().unwrap();
    let other = ResourceSet::uniform(&ranks, &other, (0..=3).into(), IdSet::new()).unwrap();
    assert_eq!(
        set.union(&other).unwrap_err().to_string(),
        "rank 3999999999 is on host `n3999999999` in one set, and on `m0` in the other"
    );
    assert_eq!(
        set.ranks_on_all(&"n[0-4000000002]".parse().unwrap())
            .unwrap_err()
            .to_string(),
        "unknown hosts `n[4000000001-4000000002]`"
    );
}

#[test]
fn properties_with_and_without_suffix() {
    let mut set = spread(&names(0..4));
    let ids = |text: &str| -> IdSet { text.parse().unwrap() };
    set.add_property("amd", &ids("3")).unwrap();
    set.add_property("amd@gpu", &ids("6")).unwrap();
    set.add_property("amd-old", &ids("9")).unwrap();
    set.add_property("amd@", &ids("12")).unwrap();
    assert_eq!(set.ranks_with_property("amd"), ids("3,6,12"));
    assert_eq!(set.ranks_with_property("amd@gpu"), ids("6"));
    assert_eq!(set.ranks_with_property("am"), ids(""));
}
