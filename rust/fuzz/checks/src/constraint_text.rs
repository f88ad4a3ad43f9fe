//! Any bytes as a constraint (RFC 31): its text, its query (RFC 35), and its truth on execution targets.

use penstock_jobspec::{Constraint, Target};
use serde_json::{Value, json};

/// An execution target with the properties `a` and `b@x` as the bits of its rank say.
struct Node {
    rank: u32,
    host: String,
}

impl Target for Node {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn host(&self) -> &str {
        &self.host
    }

    fn has_property(&self, name: &str) -> bool {
        match name {
            "a" => self.rank & 1 != 0,
            "b" | "b@x" => self.rank & 2 != 0,
            _ => false,
        }
    }
}

/// Reads the bytes as a constraint; one that is valid is read again from its own value, and compared with its operators
/// on some targets.
///
/// # Panics
///
/// Panics if a value, an error or a verdict is wrong.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let constraint = match Constraint::from_json(text) {
        Ok(constraint) => constraint,
        Err(error) => {
            assert!(error.is_constraint(), "{error}");
            return;
        }
    };
    let value = constraint.to_value();
    let again = Constraint::from_value(&value).expect("what was written can be read");
    assert_eq!(again.to_value(), value);
    assert_eq!(again.to_string(), constraint.to_string());
    let nodes = (0..4).chain([9, u32::MAX]).map(|rank| Node {
        rank,
        host: format!("node{rank}"),
    });
    for node in nodes {
        let verdict = constraint.matches(&node);
        assert_eq!(again.matches(&node), verdict);
        assert_eq!(truth(&value, &node), verdict, "{value} on {}", node.host);
        for (operator, expected) in [("and", verdict), ("or", verdict), ("not", !verdict)] {
            // One level more may be one too many.
            if let Ok(around) = Constraint::from_value(&json!({ operator: [value] })) {
                assert_eq!(around.matches(&node), expected, "{operator}");
            }
        }
    }
}

/// The truth of a constraint on a target, from its value.
fn truth(value: &Value, node: &Node) -> bool {
    let object = value.as_object().expect("an object");
    let Some((operator, values)) = object.iter().next() else {
        return true;
    };
    let values = values.as_array().expect("a list");
    let mut texts = values.iter().filter_map(Value::as_str);
    match operator.as_str() {
        "and" => values.iter().all(|value| truth(value, node)),
        "or" => values.is_empty() || values.iter().any(|value| truth(value, node)),
        "not" => !values.iter().all(|value| truth(value, node)),
        "properties" => texts.all(|name| match name.strip_prefix('^') {
            Some(absent) => !node.has_property(absent),
            None => node.has_property(name),
        }),
        "hostlist" => {
            let hosts = texts.map(str::parse::<penstock_hostlist::Hostlist>);
            hosts.flatten().any(|hosts| hosts.contains(&node.host))
        }
        "ranks" => {
            let ranks = texts.map(str::parse::<penstock_idset::IdSet>);
            ranks.flatten().any(|ranks| ranks.contains(node.rank))
        }
        operator => panic!("unknown operator `{operator}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corpus_has_valid_constraints_of_every_operator() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../corpus/constraint_text");
        let files = std::fs::read_dir(folder).expect("the corpus");
        let texts = files.map(|file| std::fs::read(file.expect("a file").path()).expect("a file"));
        let valid: Vec<String> = texts
            .filter_map(|text| String::from_utf8(text).ok())
            .filter(|text| Constraint::from_json(text).is_ok())
            .collect();
        for operator in ["and", "or", "not", "properties", "hostlist", "ranks"] {
            let word = format!("\"{operator}\"");
            assert!(valid.iter().any(|text| text.contains(&word)), "{operator}");
        }
    }
}
