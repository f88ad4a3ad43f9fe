//! From JSON.

use std::collections::BTreeMap;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::hosts::append;
use crate::raw::{Carried, Entries, describe};
use crate::segments::{Children, Interner, Segments};
use crate::set::{Execution, check_order, check_time};
use crate::{Error, ResourceSet};

impl ResourceSet {
    /// Reads the JSON text of an R (RFC 20).
    ///
    /// The error names the place, e.g.
    /// `invalid R: execution.R_lite[0].children.core: invalid idset "0-x": expected a number at byte 2`.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let mut top = match serde_json::from_str::<&RawValue>(text) {
            Ok(raw) => object(raw, "")?,
            Err(error) => return Err(Error::at("", error.to_string())),
        };
        match top.take("version") {
            Some(version) if version.get() == "1" => {}
            Some(version) => {
                return Err(Error::at(
                    "version",
                    format!("expected 1, found {}", describe(version)),
                ));
            }
            None => return Err(Error::at("version", "expected 1, found nothing")),
        }
        let execution = top.take("execution").map(execution).transpose()?;
        let scheduling = carried(&mut top, "scheduling")?;
        if execution.is_none() && scheduling.is_none() {
            return Err(Error::at(
                "",
                "expected `execution` or `scheduling`, found neither",
            ));
        }
        let attributes = carried(&mut top, "attributes")?;
        Ok(Self {
            execution,
            scheduling,
            attributes,
            others: others(top),
        })
    }
}

fn carried(top: &mut Entries<'_>, key: &str) -> Result<Option<Carried>, Error> {
    let Some(raw) = top.take(key) else {
        return Ok(None);
    };
    if !raw.get().starts_with('{') {
        return Err(Error::at(
            key,
            format!("expected an object, found {}", describe(raw)),
        ));
    }
    Ok(Some(Carried::new(raw)))
}

fn others(entries: Entries<'_>) -> BTreeMap<String, Carried> {
    entries
        .0
        .into_iter()
        .map(|(key, raw)| (key, Carried::new(raw)))
        .collect()
}

/// Reads a value of a known JSON type; `what` names the type.
fn typed<'a, T: Deserialize<'a>>(raw: &'a RawValue, path: &str, what: &str) -> Result<T, Error> {
    serde_json::from_str(raw.get())
        .map_err(|_| Error::at(path, format!("expected {what}, found {}", describe(raw))))
}

fn object<'a>(raw: &'a RawValue, path: &str) -> Result<Entries<'a>, Error> {
    if raw.get().starts_with('{') {
        // Blanks and braces are right, or the document would not have been read: it must be a key.
        return serde_json::from_str(raw.get()).map_err(|_| {
            Error::at(
                path,
                "expected keys of Unicode characters, found a lone surrogate",
            )
        });
    }
    typed(raw, path, "an object")
}

fn required<'a>(
    entries: &mut Entries<'a>,
    key: &str,
    path: &str,
    what: &str,
) -> Result<&'a RawValue, Error> {
    entries
        .take(key)
        .ok_or_else(|| Error::at(path, format!("expected {what}, found nothing")))
}

fn idset(raw: &RawValue, path: &str) -> Result<IdSet, Error> {
    let text: String = typed(raw, path, "an idset in quotes")?;
    text.parse().map_err(|error: penstock_idset::Error| {
        let offset = error.offset();
        Error::at(path, error.to_string()).with_offset(offset)
    })
}

fn execution(raw: &RawValue) -> Result<Execution, Error> {
    let mut entries = object(raw, "execution")?;
    let r_lite = required(&mut entries, "R_lite", "execution.R_lite", "an array")?;
    let segments = r_lite_segments(r_lite)?;
    let mut ranks = IdSet::new();
    for segment in segments.iter() {
        ranks.insert_range(segment.ranks());
    }
    let nodelist = required(
        &mut entries,
        "nodelist",
        "execution.nodelist",
        "an array of hostlists",
    )?;
    let hosts = nodelist_hosts(nodelist, &ranks)?;
    let properties = match entries.take("properties") {
        Some(raw) => properties(raw, &ranks)?,
        None => BTreeMap::new(),
    };
    let starttime = time(&mut entries, "starttime")?;
    let expiration = time(&mut entries, "expiration")?;
    check_order(starttime, expiration)
        .map_err(|error| error.into_reading("execution.expiration"))?;
    let nslots = match entries.take("nslots") {
        Some(raw) => Some(typed(
            raw,
            "execution.nslots",
            "a whole number of at least 0",
        )?),
        None => None,
    };
    let others = others(entries);
    Ok(Execution {
        segments,
        ranks,
        hosts,
        properties,
        starttime,
        expiration,
        nslots,
        others,
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

fn r_lite_segments(raw: &RawValue) -> Result<Segments, Error> {
    let list: Vec<&RawValue> = typed(raw, "execution.R_lite", "an array")?;
    let mut interner = Interner::default();
    let mut maps = Vec::with_capacity(list.len());
    for (index, raw) in list.into_iter().enumerate() {
        let path = format!("execution.R_lite[{index}]");
        let mut entry = object(raw, &path)?;
        let rank_path = format!("{path}.rank");
        let ranks = idset(
            required(&mut entry, "rank", &rank_path, "an idset")?,
            &rank_path,
        )?;
        let children_path = format!("{path}.children");
        let raw = required(&mut entry, "children", &children_path, "an object")?;
        only_known(&entry, &path, "`rank` and `children`")?;
        let mut children = object(raw, &children_path)?;
        let core_path = format!("{children_path}.core");
        let cores = idset(
            required(&mut children, "core", &core_path, "an idset")?,
            &core_path,
        )?;
        let gpus = match children.take("gpu") {
            Some(raw) => idset(raw, &format!("{children_path}.gpu"))?,
            None => IdSet::new(),
        };
        only_known(&children, &children_path, "`core` and `gpu`")?;
        let children = interner.share(Children { cores, gpus });
        let mut map = Segments::default();
        for range in ranks.ranges() {
            map.push(*range.start(), *range.end(), children.clone());
        }
        maps.push(map);
    }
    Ok(Segments::union_all(maps))
}

fn only_known(entries: &Entries<'_>, path: &str, known: &str) -> Result<(), Error> {
    match entries.0.first() {
        Some((key, _)) => Err(Error::at(
            path,
            format!("expected only the keys {known}, found `{key}`"),
        )),
        None => Ok(()),
    }
}

fn nodelist_hosts(raw: &RawValue, ranks: &IdSet) -> Result<Hostlist, Error> {
    let path = "execution.nodelist";
    let list: Vec<&RawValue> = typed(raw, path, "an array of hostlists")?;
    let mut hosts = Hostlist::new();
    for (index, raw) in list.into_iter().enumerate() {
        let path = format!("{path}[{index}]");
        let text: String = typed(raw, &path, "a hostlist in quotes")?;
        let piece: Hostlist = text.parse().map_err(|error: penstock_hostlist::Error| {
            let offset = error.offset();
            Error::at(&path, error.to_string()).with_offset(offset)
        })?;
        append(&mut hosts, &piece).map_err(|error| error.into_reading(&path))?;
    }
    if hosts.len() as u64 != ranks.len() {
        let message = match ranks.len() {
            0 => format!(
                "expected no hosts, for there are no ranks, found {}",
                hosts.len()
            ),
            1 => format!("expected 1 host for rank {ranks}, found {}", hosts.len()),
            count => format!(
                "expected {count} hosts for ranks {ranks}, found {}",
                hosts.len()
            ),
        };
        return Err(Error::at(path, message));
    }
    Ok(hosts)
}

fn properties(raw: &RawValue, ranks: &IdSet) -> Result<BTreeMap<String, IdSet>, Error> {
    let path = "execution.properties";
    let mut properties = BTreeMap::new();
    for (name, raw) in object(raw, path)?.0 {
        let path = format!("{path}.{name}");
        crate::properties::check_name(&name)
            .map_err(|error| error.into_reading("execution.properties"))?;
        let targets = idset(raw, &path)?;
        crate::properties::check_ranks(&name, &targets, ranks)
            .map_err(|error| error.into_reading(path))?;
        if !targets.is_empty() {
            properties.insert(name, targets);
        }
    }
    Ok(properties)
}
