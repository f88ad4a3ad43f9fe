//! The ranks that a release takes from an allocation, by its parts.

use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;

/// The ranks that one scheduler allocation contributes to an allocation: the job's own, or a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The id under which the scheduler has it.
    pub alloc: JobId,
    /// Its ranks that are not released.
    pub ranks: IdSet,
}

/// The ranks that one scheduler allocation releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleasedPart {
    /// The id under which the scheduler has them.
    pub alloc: JobId,
    /// The ranks.
    pub ranks: IdSet,
    /// Whether these are all of its ranks.
    pub all: bool,
}

/// Chooses up to `count` ranks outside `keep`: the last holding first, and its highest ranks first.
fn choose(holdings: &[Holding], count: u64, keep: &IdSet) -> IdSet {
    let mut chosen = IdSet::new();
    for holding in holdings.iter().rev() {
        let free = holding.ranks.difference(keep).difference(&chosen);
        let more = count - chosen.len();
        let mut ranks: Vec<u32> = free.iter().collect();
        let more = usize::try_from(more).unwrap_or(usize::MAX);
        let skipped = ranks.len().saturating_sub(more);
        chosen.extend(ranks.drain(skipped..));
    }
    chosen
}

/// Selects up to `count` ranks to release, of `named` or, without it, of all but `keep`. A rank in several holdings is
/// released in all of them.
pub fn select_released(
    holdings: &[Holding],
    named: Option<&IdSet>,
    count: Option<u64>,
    keep: &IdSet,
) -> Vec<ReleasedPart> {
    let held: Vec<Holding> = match named {
        Some(named) => holdings
            .iter()
            .map(|holding| Holding {
                alloc: holding.alloc,
                ranks: holding.ranks.intersection(named),
            })
            .collect(),
        None => holdings.to_vec(),
    };
    let chosen = choose(&held, count.unwrap_or(u64::MAX), keep);
    let parts = holdings.iter().map(|holding| {
        let ranks = holding.ranks.intersection(&chosen);
        ReleasedPart {
            alloc: holding.alloc,
            all: ranks == holding.ranks,
            ranks,
        }
    });
    parts.filter(|part| !part.ranks.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Holding, select_released};
    use penstock_idset::IdSet;
    use penstock_jobspec::job_id::JobId;

    fn ids(text: &str) -> IdSet {
        text.parse().unwrap()
    }

    fn held(parts: &[(u64, &str)]) -> Vec<Holding> {
        let parts = parts.iter();
        parts
            .map(|(alloc, ranks)| Holding {
                alloc: JobId::new(*alloc),
                ranks: ids(ranks),
            })
            .collect()
    }

    fn shown(holdings: &[Holding], named: Option<&str>, count: Option<u64>, keep: &str) -> String {
        let named = named.map(ids);
        let parts = select_released(holdings, named.as_ref(), count, &ids(keep));
        let parts = parts.iter();
        let parts = parts.map(|part| {
            let mark = if part.all { "!" } else { "" };
            format!("{}:{}{mark}", part.alloc.get(), part.ranks)
        });
        parts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_last_grant_is_released_first_and_the_requesters_node_never() {
        let all = held(&[(1, "0-3"), (2, "4-5"), (3, "6")]);
        assert_eq!(shown(&all, None, Some(1), "0"), "3:6!");
        assert_eq!(shown(&all, None, Some(2), "0"), "2:5 3:6!");
        assert_eq!(shown(&all, None, Some(99), "0"), "1:1-3 2:4-5! 3:6!");
        assert_eq!(shown(&all, None, Some(1), "6"), "2:5");
        assert_eq!(shown(&all, Some("1-2,6"), None, "0"), "1:1-2 3:6!");
        assert_eq!(shown(&all, Some("1-2,6"), Some(1), "0"), "3:6!");
        assert_eq!(shown(&all, Some("0,9"), None, "0"), "");
    }

    #[test]
    fn a_rank_of_two_parts_is_released_in_both() {
        let all = held(&[(1, "0-1"), (2, "1-2")]);
        assert_eq!(shown(&all, Some("1"), None, "0"), "1:1 2:1");
        assert_eq!(shown(&all, None, Some(2), "0"), "1:1 2:1-2!");
    }
}
