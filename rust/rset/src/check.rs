//! The checking reader of R in JSON, which reports all errors.

use std::collections::BTreeMap;
use std::sync::Arc;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use serde_json::value::RawValue;

use crate::children::Children;
use crate::execution::{Execution, Segment, Segments};
use crate::hosts::append;
use crate::problems::{Check, object, required, typed};
use crate::raw::{Carried, Entries, describe};
use crate::read::read;
use crate::set::{check_order, check_time};
use crate::{Error, ResourceSet};

impl ResourceSet {
    /// Reads the JSON text of an R (RFC 20). Costs one pass over the text.
    ///
    /// # Errors
    ///
    /// The text is not an R. The error is the first of [`ResourceSet::problems`] and names the place, e.g.
    /// `invalid R: execution.R_lite[0].children.core: invalid idset "0-x": expected a number at byte 2`.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        if let Some(set) = read(text) {
            return Ok(set);
        }
        let mut check = Check::default();
        let set = check.document(text);
        match check.problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => set.ok_or_else(|| Error::at("", "expected an R")),
        }
    }

    /// Returns all errors in the JSON text of an R; empty for a valid one.
    ///
    /// ```
    /// use penstock_rset::ResourceSet;
    ///
    /// let text = r#"{"version":1,"execution":{"R_lite":[{"rank":"0-","children":{"core":"0"}}],"nodelist":["a["]}}"#;
    /// let places: Vec<_> = ResourceSet::problems(text).iter().map(|problem| problem.path().to_owned()).collect();
    /// assert_eq!(places, ["execution.R_lite[0].rank", "execution.nodelist[0]"]);
    /// ```
    pub fn problems(text: &str) -> Vec<Error> {
        let mut check = Check::default();
        check.document(text);
        check.problems
    }

    /// Returns all errors in the JSON text of an R, the resource graph in `scheduling` included; see
    /// [`ResourceSet::graph_problems`].
    pub fn problems_with_graph(text: &str) -> Vec<Error> {
        let mut check = Check {
            with_graph: true,
            ..Check::default()
        };
        check.document(text);
        check.problems
    }
}

impl Check {
    /// Returns the set if the document has no error.
    fn document(&mut self, text: &str) -> Option<ResourceSet> {
        let raw = serde_json::from_str::<&RawValue>(text);
        let raw = self.keep(raw.map_err(|error| Error::at("", error.to_string())))?;
        let mut top = self.keep(object(raw, ""))?;
        match top.take("version") {
            Some(version) if is_one(version) => {}
            found => {
                let found = found.map_or_else(|| "nothing".to_owned(), describe);
                let problem = Error::at("version", format!("expected 1, found {found}"));
                self.problems.push(problem);
            }
        }
        let execution = top.take("execution");
        let has_execution = execution.is_some();
        let execution = execution.and_then(|raw| self.execution(raw));
        let scheduling = top.take("scheduling");
        if !has_execution && scheduling.is_none() {
            let problem = "expected `execution` or `scheduling`, found neither";
            self.problems.push(Error::at("", problem));
        }
        let attributes = top.take("attributes");
        let scheduling = scheduling.and_then(|raw| self.keep(carried(raw, "scheduling")));
        let attributes = attributes.and_then(|raw| self.keep(carried(raw, "attributes")));
        if let (true, Some(scheduling)) = (self.with_graph, &scheduling) {
            self.check_graph(scheduling.raw());
        }
        self.problems.is_empty().then(|| ResourceSet {
            execution,
            scheduling,
            attributes,
            others: others(top),
        })
    }

    fn execution(&mut self, raw: &RawValue) -> Option<Execution> {
        let mut entries = self.keep(object(raw, "execution"))?;
        let r_lite = required(&mut entries, "R_lite", "execution.R_lite", "an array");
        let segments = self.keep(r_lite).and_then(|raw| self.segments(raw));
        let ranks = segments.as_ref().map(Segments::ranks);
        let what = "an array of hostlists";
        let nodelist = required(&mut entries, "nodelist", "execution.nodelist", what);
        let hosts = self.keep(nodelist).and_then(|raw| self.hosts(raw));
        if let (Some(hosts), Some(ranks)) = (&hosts, &ranks) {
            self.keep(one_host_each(hosts, ranks));
        }
        let properties = match entries.take("properties") {
            Some(raw) => self.properties(raw, ranks.as_ref()),
            None => BTreeMap::new(),
        };
        let starttime = self.keep(time(&mut entries, "starttime")).flatten();
        let expiration = self.keep(time(&mut entries, "expiration")).flatten();
        let order = check_order(starttime, expiration);
        self.keep(order.map_err(|error| error.into_reading("execution.expiration")));
        let nslots = entries.take("nslots").and_then(|raw| {
            let what = "a whole number of at least 0";
            self.keep(typed(raw, "execution.nslots", what))
        });
        Some(Execution {
            segments: segments?,
            ranks: ranks?,
            hosts: hosts?,
            properties,
            starttime,
            expiration,
            nslots,
            others: others(entries),
        })
    }

    /// Reads the entries of `R_lite`; `None` if one of them has an error.
    fn segments(&mut self, raw: &RawValue) -> Option<Segments> {
        let list: Vec<&RawValue> = self.keep(typed(raw, "execution.R_lite", "an array"))?;
        let mut runs = Vec::with_capacity(list.len());
        let mut all_right = true;
        for (index, raw) in list.into_iter().enumerate() {
            let path = format!("execution.R_lite[{index}]");
            let Some((ranks, children)) = self.entry(raw, &path) else {
                all_right = false;
                continue;
            };
            runs.extend(ranks.ranges().map(|range| Segment {
                first: *range.start(),
                last: *range.end(),
                children: Arc::clone(&children),
            }));
        }
        all_right.then(|| Segments::collect(runs))
    }

    fn entry(&mut self, raw: &RawValue, path: &str) -> Option<(IdSet, Arc<Children>)> {
        let mut entry = self.keep(object(raw, path))?;
        let rank_path = format!("{path}.rank");
        let rank = required(&mut entry, "rank", &rank_path, "an idset");
        let ranks = self.keep(rank.and_then(|raw| idset(raw, &rank_path)));
        let children_path = format!("{path}.children");
        let children = required(&mut entry, "children", &children_path, "an object");
        let children = self.keep(children.and_then(|raw| object(raw, &children_path)));
        let mut children = children?;
        let core_path = format!("{children_path}.core");
        let cores = required(&mut children, "core", &core_path, "an idset");
        let cores = self.keep(cores.and_then(|raw| idset(raw, &core_path)));
        let gpus = match children.take("gpu") {
            Some(raw) => self.keep(idset(raw, &format!("{children_path}.gpu"))),
            None => Some(IdSet::new()),
        };
        let children = Children::new(cores?, gpus?, others(children));
        Some((ranks?, Arc::new(children)))
    }

    fn hosts(&mut self, raw: &RawValue) -> Option<Hostlist> {
        let path = "execution.nodelist";
        let list: Vec<&RawValue> = self.keep(typed(raw, path, "an array of hostlists"))?;
        let mut hosts = Some(Hostlist::new());
        for (index, raw) in list.into_iter().enumerate() {
            let path = format!("{path}[{index}]");
            let added = hostlist(raw, &path).and_then(|piece| match &mut hosts {
                Some(hosts) => append(hosts, &piece).map_err(|error| error.into_reading(&path)),
                None => Ok(()),
            });
            if self.keep(added).is_none() {
                hosts = None;
            }
        }
        hosts
    }

    /// Without valid ranks it checks only the names and the idsets.
    fn properties(&mut self, raw: &RawValue, ranks: Option<&IdSet>) -> BTreeMap<String, IdSet> {
        let mut properties = BTreeMap::new();
        let path = "execution.properties";
        let entries = self.keep(object(raw, path));
        for (name, raw) in entries.into_iter().flat_map(|entries| entries.0) {
            let place = format!("{path}.{name}");
            let right = crate::properties::check_name(&name);
            self.keep(right.map_err(|error| error.into_reading(path)));
            let Some(targets) = self.keep(idset(raw, &place)) else {
                continue;
            };
            if let Some(ranks) = ranks {
                let there = crate::properties::check_ranks(&name, &targets, ranks);
                self.keep(there.map_err(|error| error.into_reading(place)));
            }
            if !targets.is_empty() {
                properties.insert(name, targets);
            }
        }
        properties
    }
}

/// Whether a value is the number 1, in any notation: JSON does not tell 1 from 1.0.
fn is_one(raw: &RawValue) -> bool {
    #[expect(clippy::float_cmp, reason = "the number 1 is exact")]
    serde_json::from_str::<f64>(raw.get()).is_ok_and(|number| number == 1.0)
}

fn carried(raw: &RawValue, key: &str) -> Result<Carried, Error> {
    if raw.get().starts_with('{') {
        return Ok(Carried::new(raw));
    }
    let problem = format!("expected an object, found {}", describe(raw));
    Err(Error::at(key, problem))
}

fn others(entries: Entries<'_>) -> BTreeMap<String, Carried> {
    let entries = entries.0.into_iter();
    entries.map(|(key, raw)| (key, Carried::new(raw))).collect()
}

fn idset(raw: &RawValue, path: &str) -> Result<IdSet, Error> {
    let text: String = typed(raw, path, "an idset in quotes")?;
    text.parse().map_err(|error: penstock_idset::Error| {
        let offset = error.offset();
        Error::at(path, error.to_string()).with_offset(offset)
    })
}

fn time(entries: &mut Entries<'_>, key: &str) -> Result<Option<f64>, Error> {
    let Some(raw) = entries.take(key) else {
        return Ok(None);
    };
    let path = format!("execution.{key}");
    let time = typed(raw, &path, "seconds since the epoch")?;
    check_time(key, Some(time)).map_err(|error| error.into_reading(path))
}

fn hostlist(raw: &RawValue, path: &str) -> Result<Hostlist, Error> {
    let text: String = typed(raw, path, "a hostlist in quotes")?;
    text.parse().map_err(|error: penstock_hostlist::Error| {
        let offset = error.offset();
        Error::at(path, error.to_string()).with_offset(offset)
    })
}

fn one_host_each(hosts: &Hostlist, ranks: &IdSet) -> Result<(), Error> {
    let found = hosts.len();
    if found as u64 == ranks.len() {
        return Ok(());
    }
    let expected = match ranks.len() {
        0 => "no hosts, for there are no ranks".to_owned(),
        1 => format!("1 host for rank {ranks}"),
        count => format!("{count} hosts for ranks {ranks}"),
    };
    let problem = format!("expected {expected}, found {found}");
    Err(Error::at("execution.nodelist", problem))
}
