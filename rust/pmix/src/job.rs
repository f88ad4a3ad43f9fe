use std::fmt::Write as _;
use std::ops::Deref;

use penstock_flux::pmix_server::StartRequest;

use crate::Error;

/// Bytes of the longest namespace (`PMIX_MAX_NSLEN`).
const MAX_NAMESPACE_BYTES: usize = 255;
/// The greatest number of tasks: higher ranks are reserved (`PMIX_RANK_VALID`).
const MAX_TASKS: u32 = u32::MAX - 51;

/// The job that a server serves: a `pmix.start` whose keys do not contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job(StartRequest);

/// The place of a task among the job's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePosition {
    /// The position of its node among the job's nodes.
    pub node: usize,
    /// Its position among the ranks of that node.
    pub on_node: usize,
}

impl Deref for Job {
    type Target = StartRequest;

    fn deref(&self) -> &StartRequest {
        &self.0
    }
}

impl Job {
    /// Reads and checks the payload of `pmix.start`.
    ///
    /// # Errors
    ///
    /// A key is missing or has an invalid value, or two of them contradict each other.
    pub fn read(payload: Option<&[u8]>) -> Result<Self, Error> {
        let job = Self(penstock_flux::read(payload)?);
        job.check()?;
        Ok(job)
    }

    fn check(&self) -> Result<(), Error> {
        if self.namespace.is_empty() || self.namespace.len() > MAX_NAMESPACE_BYTES {
            return Err(Error::value(format!(
                "`namespace`: expected 1 to {MAX_NAMESPACE_BYTES} bytes, found {}",
                self.namespace.len()
            )));
        }
        for (name, text) in [("namespace", &self.namespace), ("job", &self.job)] {
            if text.contains('\0') {
                return Err(Error::value(format!(
                    "`{name}`: expected a text without NUL"
                )));
            }
        }
        if self.size == 0 || self.size > MAX_TASKS {
            return Err(Error::value(format!(
                "`size`: expected 1 to {MAX_TASKS}, found {}",
                self.size
            )));
        }
        if self.nodes.len() != self.ranks_per_node.len() {
            return Err(Error::value(format!(
                "`ranks_per_node`: expected {} lists, one for each node, found {}",
                self.nodes.len(),
                self.ranks_per_node.len()
            )));
        }
        // In PMIx's regular expressions a comma ends a name and a bracket begins a range.
        if let Some(node) = self
            .nodes
            .iter()
            .find(|node| node.is_empty() || node.contains([',', '[', ']', '\0']))
        {
            return Err(Error::value(format!(
                "`nodes`: expected hostnames, found `{node}`"
            )));
        }
        let mut placed: Vec<u32> = self.ranks_per_node.iter().flatten().copied().collect();
        placed.sort_unstable();
        if !placed.iter().copied().eq(0..self.size) {
            return Err(Error::value(format!(
                "`ranks_per_node`: expected each rank of 0-{} once",
                self.size - 1
            )));
        }
        let mut served: Vec<u32> = self
            .served()
            .flat_map(|(_, ranks)| ranks)
            .copied()
            .collect();
        served.sort_unstable();
        if served.is_empty() || served != self.local {
            let text = "`local`: expected the ranks of one or more of the nodes, in order";
            return Err(Error::value(text));
        }
        Ok(())
    }

    /// The hostnames and ranks of the nodes that this server serves.
    pub fn served(&self) -> impl Iterator<Item = (&str, &[u32])> {
        let nodes = self.nodes.iter().map(String::as_str);
        nodes
            .zip(self.ranks_per_node.iter().map(Vec::as_slice))
            .filter(|(_, ranks)| ranks.first().is_some_and(|rank| self.local.contains(rank)))
    }

    /// The position of a rank; `None` if the job does not have the rank.
    pub fn position(&self, rank: u32) -> Option<NodePosition> {
        self.ranks_per_node
            .iter()
            .enumerate()
            .find_map(|(node, ranks)| {
                let on_node = ranks.iter().position(|&other| other == rank)?;
                Some(NodePosition { node, on_node })
            })
    }
}

/// The nodes in PMIx's form, e.g. `pmix[node[2:8-11],login]`: neighbours that differ in a number of the same width are
/// folded.
pub fn nodes_regex<S: AsRef<str>>(nodes: &[S]) -> String {
    let mut regex = "pmix[".to_owned();
    let mut rest = nodes;
    while let Some((first, _)) = rest.split_first() {
        if rest.len() < nodes.len() {
            regex.push(',');
        }
        let first = first.as_ref();
        let taken = if let Some((prefix, digits)) = split(first) {
            let numbers: Vec<u64> = rest
                .iter()
                .map_while(|node| {
                    split(node.as_ref())
                        .filter(|(other, found)| *other == prefix && found.len() == digits.len())
                        .and_then(|(_, found)| found.parse().ok())
                })
                .collect();
            // Writing to a string does not fail.
            let _ = write!(regex, "{prefix}[{}:{}]", digits.len(), ranges(&numbers));
            numbers.len()
        } else {
            regex.push_str(first);
            1
        };
        rest = &rest[taken..];
    }
    regex.push(']');
    regex
}

/// The ranks on each node in PMIx's form, e.g. `pmix[0-3;4,6]`.
pub fn ranks_regex(ranks_per_node: &[Vec<u32>]) -> String {
    let lists: Vec<String> = ranks_per_node
        .iter()
        .map(|ranks| ranges(&ranks.iter().copied().map(u64::from).collect::<Vec<_>>()))
        .collect();
    format!("pmix[{}]", lists.join(";"))
}

/// Splits a hostname into prefix and final digits; `None` unless 64 bits hold the number.
fn split(node: &str) -> Option<(&str, &str)> {
    let prefix = node.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let digits = &node[prefix.len()..];
    // A name of digits alone would read as a range.
    (!prefix.is_empty() && digits.parse::<u64>().is_ok()).then_some((prefix, digits))
}

/// Folds runs of numbers in the given order: `1-3,7`.
fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|before, after| before.checked_add(1) == Some(*after));
    let runs: Vec<String> = runs
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run.iter().map(u64::to_string).collect(),
        })
        .collect();
    runs.join(",")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    use super::*;

    fn payload() -> Json {
        json!({
            "namespace": "penstock-1", "job": "ƒ1", "size": 3, "universe": 8, "local": [0, 2],
            "nodes": ["n1", "n2"], "ranks_per_node": [[0, 2], [1]],
        })
    }

    #[test]
    fn a_start_is_read() {
        let start = Job::read(Some(payload().to_string().as_bytes())).unwrap();
        assert_eq!((start.size, start.universe), (3, 8));
        assert_eq!(
            start.position(2),
            Some(NodePosition {
                node: 0,
                on_node: 1
            })
        );
        assert_eq!(start.position(3), None);
        assert_eq!(start.served().collect::<Vec<_>>(), [("n1", &[0, 2][..])]);
    }

    #[test]
    fn several_nodes_may_be_this_machine() {
        let mut payload = payload();
        payload["local"] = json!([0, 1, 2]);
        let start = Job::read(Some(payload.to_string().as_bytes())).unwrap();
        let served: Vec<_> = start.served().collect();
        assert_eq!(served, [("n1", &[0, 2][..]), ("n2", &[1][..])]);
    }

    #[test]
    fn an_inconsistent_start_is_rejected() {
        for (name, wrong, expected) in [
            (
                "namespace",
                json!(""),
                "`namespace`: expected 1 to 255 bytes",
            ),
            (
                "namespace",
                json!("a\0"),
                "`namespace`: expected a text without NUL",
            ),
            (
                "job",
                json!(1),
                "`job`: expected a string, found integer `1`",
            ),
            ("size", json!(0), "`size`: expected 1 to"),
            (
                "size",
                json!(2),
                "`ranks_per_node`: expected each rank of 0-1 once",
            ),
            ("nodes", json!(["n1"]), "`ranks_per_node`: expected 1 lists"),
            (
                "nodes",
                json!(["n1,n3", "n2"]),
                "`nodes`: expected hostnames, found `n1,n3`",
            ),
            (
                "nodes",
                json!([1, 2]),
                "`nodes[0]`: expected a string, found integer `1`",
            ),
            (
                "ranks_per_node",
                json!([[0, 1], [1]]),
                "`ranks_per_node`: expected each rank",
            ),
            (
                "local",
                json!([0]),
                "`local`: expected the ranks of one or more of the nodes",
            ),
            (
                "local",
                json!([0, 2, 1]),
                "`local`: expected the ranks of one or more of the nodes",
            ),
            (
                "local",
                json!([-1]),
                "`local[0]`: expected an integer from 0 to 4294967295, found integer `-1`",
            ),
        ] {
            let mut payload = payload();
            payload[name] = wrong;
            let error = Job::read(Some(payload.to_string().as_bytes())).unwrap_err();
            assert!(error.is_value());
            assert!(error.to_string().starts_with(expected), "{name}: {error}");
        }
    }

    #[test]
    fn nodes_are_folded_by_their_digits() {
        for (nodes, expected) in [
            (&["n8", "n9", "n10", "n12"][..], "pmix[n[1:8-9],n[2:10,12]]"),
            (&["n08", "n09", "n10"], "pmix[n[2:8-10]]"),
            (
                &["login", "n2", "n1", "gpu1"],
                "pmix[login,n[1:2,1],gpu[1:1]]",
            ),
            (&["n1.site.org"], "pmix[n1.site.org]"),
            (&["7"], "pmix[7]"),
            (&[], "pmix[]"),
        ] {
            assert_eq!(nodes_regex(nodes), expected);
        }
    }

    #[test]
    fn ranks_are_folded_by_node() {
        let ranks = [vec![0, 1, 2, 5], vec![3], vec![]];
        assert_eq!(ranks_regex(&ranks), "pmix[0-2,5;3;]");
    }

    /// A naive reader of the form.
    fn expand(regex: &str) -> Vec<String> {
        let inner = regex
            .strip_prefix("pmix[")
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap();
        let mut nodes = Vec::new();
        let mut rest = inner;
        while !rest.is_empty() {
            let end = rest.find([',', '[']).unwrap_or(rest.len());
            let name = &rest[..end];
            if rest[end..].starts_with('[') {
                let close = rest.find(']').unwrap();
                let (width, list) = rest[end + 1..close].split_once(':').unwrap();
                let width: usize = width.parse().unwrap();
                for range in list.split(',') {
                    let (low, high) = range.split_once('-').unwrap_or((range, range));
                    for number in low.parse::<u64>().unwrap()..=high.parse().unwrap() {
                        nodes.push(format!("{name}{number:0width$}"));
                    }
                }
                rest = &rest[close + 1..];
            } else {
                nodes.push(name.to_owned());
                rest = &rest[end..];
            }
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        nodes
    }

    proptest! {
        #[test]
        fn a_folded_list_expands_to_the_same_nodes(nodes in prop::collection::vec("[a-c]{1,2}0?[0-9]{0,2}", 0..30)) {
            prop_assert_eq!(expand(&nodes_regex(&nodes)), nodes);
        }
    }
}
