//! Any bytes as an R (RFC 20).

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;

/// The largest number of nodes that are compared one by one.
const MAX_LISTED_NODES: usize = 256;

/// Reads the bytes as an R, writes and rereads it, splits it and combines its parts.
///
/// # Panics
///
/// Panics if the set or the error is wrong.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match ResourceSet::from_json(text) {
        Ok(set) => {
            counts(&set);
            written(&set);
            if set.has_execution() {
                parts(&set);
            } else {
                assert!(set.union(&set).is_err() && set.require_execution().is_err());
            }
        }
        Err(error) => {
            assert!(error.is_document(), "{error}");
            assert!(error.to_string().starts_with("invalid R: "), "{error}");
        }
    }
}

fn counts(set: &ResourceSet) {
    let (ranks, hosts) = (set.ranks(), set.nodelist());
    assert_eq!(set.nnodes(), hosts.len());
    assert_eq!(ranks.len(), hosts.len() as u64);
    let (mut cores, mut gpus) = (0, 0);
    for ((node, rank), host) in set.nodes().zip(&ranks).zip(&hosts).take(MAX_LISTED_NODES) {
        assert_eq!((node.rank, node.host.as_str()), (rank, host.as_str()));
        assert_eq!(set.node(rank), Some(node.clone()));
        assert_eq!(set.nodes_from(rank).next(), Some(node.clone()));
        (cores, gpus) = (cores + node.cores.len(), gpus + node.gpus.len());
    }
    if set.nnodes() <= MAX_LISTED_NODES {
        assert_eq!(set.nodes().count(), set.nnodes());
        assert_eq!((set.ncores(), set.ngpus()), (cores, gpus));
        let found = set
            .host_ranks(&hosts)
            .map(|found| found.into_iter().collect());
        assert!(
            !set.has_execution() || found.as_ref() == Ok(&ranks),
            "{found:?}"
        );
    }
    for targets in set.properties().values() {
        assert!(!targets.is_empty() && targets.is_subset(&ranks));
    }
}

fn written(set: &ResourceSet) {
    let text = set.to_json();
    let again = ResourceSet::from_json(&text).expect("what was written can be read");
    assert_eq!(again, *set, "{text}");
    assert_eq!(again.summary(), set.summary());
    // A hostlist may be written shorter once it was read from its own text; see `hostlist_text`.
    let text = again.to_json();
    let third = ResourceSet::from_json(&text).expect("what was written can be read");
    assert_eq!(third.to_json(), text);
}

/// Checks the relations between a set and its parts.
fn parts(set: &ResourceSet) {
    let ranks = set.ranks();
    assert!(set.is_subset(set));
    assert_eq!(set.is_disjoint(set), ranks.is_empty());
    assert_eq!(set.union(set).as_ref(), Ok(set));
    assert_eq!(set.intersection(set).as_ref(), Ok(set));
    assert_eq!(set.restrict(&ranks), *set);
    let none = set.difference(set).expect("equal hosts");
    assert_eq!((none.nnodes(), none.ncores()), (0, 0));
    written(&none);

    let low = ranks.slice(0..ranks.len() / 2);
    let (front, back) = (set.restrict(&low), set.restrict(&ranks.difference(&low)));
    counts(&front);
    written(&front);
    let mut rest = set.clone();
    rest.remove_ranks(&low);
    assert_eq!(rest, back);
    assert!(front.is_disjoint(&back) && front.is_subset(set) && back.is_subset(set));
    assert_eq!(
        set.difference(&front).map(|rest| rest.ranks()),
        Ok(back.ranks())
    );
    let whole = front.union(&back).expect("no rank in common");
    alike(&whole, set);

    let renamed = set.rerank();
    let first = IdSet::from(0..=u32::MAX).slice(0..ranks.len());
    assert_eq!(renamed.ranks(), first);
    assert_eq!(renamed.nodelist(), set.nodelist());
    assert_eq!(
        (renamed.ncores(), renamed.ngpus()),
        (set.ncores(), set.ngpus())
    );
    counts(&renamed);
    written(&renamed);
    // In order, one after the other, the parts are the whole with new ranks.
    let joined = front.rerank().append(&back).expect("enough ranks");
    alike(&joined, &renamed);
    if let Ok(twice) = set.append(set) {
        assert_eq!(twice.nnodes(), 2 * set.nnodes());
        counts(&twice);
    }
    if set.union(&renamed).is_ok() {
        written(&set.union(&renamed).expect("as before"));
    }
}

/// The same resources and properties, whatever the number of slots.
fn alike(one: &ResourceSet, other: &ResourceSet) {
    assert_eq!(one.summary(), other.summary());
    assert_eq!(one.nodelist(), other.nodelist());
    assert_eq!(one.properties(), other.properties());
}
