//! To JSON, and to the short form for people.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use penstock_idset::IdSet;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::ResourceSet;
use crate::raw::Carried;
use crate::segments::Children;
use crate::set::Execution;

#[derive(Serialize)]
struct Document<'a> {
    version: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    execution: Option<ExecutionDocument<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduling: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attributes: Option<&'a RawValue>,
    #[serde(flatten)]
    others: BTreeMap<&'a str, &'a RawValue>,
}

impl Document<'_> {
    fn text(&self) -> String {
        serde_json::to_string(self).expect("keys are strings and times finite")
    }
}

#[derive(Serialize)]
struct ExecutionDocument<'a> {
    #[serde(rename = "R_lite")]
    r_lite: Vec<Entry>,
    nodelist: [String; 1],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    properties: BTreeMap<&'a str, String>,
    starttime: f64,
    expiration: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    nslots: Option<u64>,
    #[serde(flatten)]
    others: BTreeMap<&'a str, &'a RawValue>,
}

#[derive(Serialize)]
struct Entry {
    rank: String,
    children: EntryChildren,
}

#[derive(Serialize)]
struct EntryChildren {
    core: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    gpu: String,
}

impl Execution {
    /// Ranks with equal resources together, in the order of their first ranks.
    fn groups(&self) -> Vec<(IdSet, &Children)> {
        let mut groups: Vec<(IdSet, &Children)> = Vec::new();
        let mut index: HashMap<&Children, usize> = HashMap::new();
        for segment in self.segments.iter() {
            let at = *index.entry(&segment.children).or_insert_with(|| {
                groups.push((IdSet::new(), &segment.children));
                groups.len() - 1
            });
            groups[at].0.insert_range(segment.ranks());
        }
        groups
    }
}

fn raw_values(carried: &BTreeMap<String, Carried>) -> BTreeMap<&str, &RawValue> {
    carried
        .iter()
        .map(|(key, value)| (key.as_str(), value.raw()))
        .collect()
}

impl ResourceSet {
    /// The compact JSON text: one entry of `R_lite` for all ranks with equal resources, one folded hostlist, and
    /// 0.0 for times that are not set.
    pub fn to_json(&self) -> String {
        let execution = self.execution.as_ref().map(|execution| ExecutionDocument {
            r_lite: execution
                .groups()
                .into_iter()
                .map(|(ranks, children)| Entry {
                    rank: ranks.to_string(),
                    children: EntryChildren {
                        core: children.cores.to_string(),
                        gpu: children.gpus.to_string(),
                    },
                })
                .collect(),
            nodelist: [execution.hosts.to_string()],
            properties: execution
                .properties
                .iter()
                .map(|(name, ranks)| (name.as_str(), ranks.to_string()))
                .collect(),
            starttime: execution.starttime.unwrap_or(0.0),
            expiration: execution.expiration.unwrap_or(0.0),
            nslots: execution.nslots,
            others: raw_values(&execution.others),
        });
        let document = Document {
            version: 1,
            execution,
            scheduling: self.scheduling(),
            attributes: self.attributes(),
            others: raw_values(&self.others),
        };
        document.text()
    }

    /// The short form: `rank[0-3]/core[0-7],gpu0`, groups of equal ranks apart by blanks; empty for an empty set.
    pub fn summary(&self) -> String {
        let groups = self.view().groups();
        let groups: Vec<_> = groups
            .into_iter()
            .map(|(ranks, children)| summary(&ranks, children))
            .collect();
        groups.join(" ")
    }
}

fn summary(ranks: &IdSet, children: &Children) -> String {
    let mut text = named("rank", ranks);
    let parts = [("core", &children.cores), ("gpu", &children.gpus)];
    for (at, (name, ids)) in parts
        .into_iter()
        .filter(|(_, ids)| !ids.is_empty())
        .enumerate()
    {
        text.push(if at == 0 { '/' } else { ',' });
        text.push_str(&named(name, ids));
    }
    text
}

/// The name with the ids, in brackets unless it is one.
fn named(name: &str, ids: &IdSet) -> String {
    if ids.len() == 1 {
        format!("{name}{ids}")
    } else {
        format!("{name}[{ids}]")
    }
}

impl fmt::Display for ResourceSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.summary())
    }
}
