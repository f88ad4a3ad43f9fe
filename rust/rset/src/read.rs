//! The fast reader of R in JSON, in one pass: accepts valid documents in the usual form, and gives up on all others.
//!
//! After it gives up, [`crate::check`] reads the document again and reports the errors.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::ResourceSet;
use crate::children::Children;
use crate::execution::{Execution, Segment, Segments};
use crate::hosts::append;
use crate::properties::{check_name, check_ranks};
use crate::raw::Carried;
use crate::set::{check_order, check_time};

/// Reads a set; `None` if the text is invalid or unusual, e.g. has a duplicate key.
pub(crate) fn read(text: &str) -> Option<ResourceSet> {
    serde_json::from_str(text).ok().map(|Document(set)| set)
}

/// The reason for giving up; internal.
fn unusual<E: Error>() -> E {
    E::custom("unusual")
}

/// Stores the value of a key; a duplicate key is unusual.
fn once<T, E: Error>(place: &mut Option<T>, value: T) -> Result<(), E> {
    match place.replace(value) {
        Some(_) => Err(unusual()),
        None => Ok(()),
    }
}

/// Unknown keys, with their opaque values.
#[derive(Default)]
struct Others(BTreeMap<String, Carried>);

impl Others {
    fn insert<E: Error>(&mut self, key: &str, raw: &RawValue) -> Result<(), E> {
        match self.0.insert(key.to_owned(), Carried::new(raw)) {
            Some(_) => Err(unusual()),
            None => Ok(()),
        }
    }
}

struct Document(ResourceSet);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(DocumentVisitor).map(Self)
    }
}

struct DocumentVisitor;

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = ResourceSet;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an R")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ResourceSet, A::Error> {
        let (mut version, mut execution) = (None, None);
        let (mut scheduling, mut attributes) = (None, None);
        let mut others = Others::default();
        while let Some(key) = map.next_key::<&str>()? {
            match key {
                "version" => once(&mut version, map.next_value::<&RawValue>()?)?,
                "execution" => {
                    let Read(read) = map.next_value()?;
                    once(&mut execution, read)?;
                }
                "scheduling" => once(&mut scheduling, map.next_value::<&RawValue>()?)?,
                "attributes" => once(&mut attributes, map.next_value::<&RawValue>()?)?,
                _ => others.insert(key, map.next_value()?)?,
            }
        }
        let is_object = |raw: Option<&RawValue>| raw.is_none_or(|raw| raw.get().starts_with('{'));
        if version.is_none_or(|version| version.get() != "1")
            || (execution.is_none() && scheduling.is_none())
            || !is_object(scheduling)
            || !is_object(attributes)
        {
            return Err(unusual());
        }
        Ok(ResourceSet {
            execution,
            scheduling: scheduling.map(Carried::new),
            attributes: attributes.map(Carried::new),
            others: others.0,
        })
    }
}

struct Read(Execution);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ExecutionVisitor).map(Self)
    }
}

struct ExecutionVisitor;

impl<'de> Visitor<'de> for ExecutionVisitor {
    type Value = Execution;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the value of `execution`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Execution, A::Error> {
        let (mut segments, mut hosts, mut targets) = (None, None, None);
        let (mut starttime, mut expiration, mut nslots) = (None, None, None);
        let mut others = Others::default();
        while let Some(key) = map.next_key::<&str>()? {
            match key {
                "R_lite" => {
                    let Lite(read) = map.next_value()?;
                    once(&mut segments, read)?;
                }
                "nodelist" => once(&mut hosts, hostlist(&map.next_value::<Vec<&str>>()?)?)?,
                "properties" => {
                    let Properties(read) = map.next_value()?;
                    once(&mut targets, read)?;
                }
                "starttime" => once(&mut starttime, map.next_value::<f64>()?)?,
                "expiration" => once(&mut expiration, map.next_value::<f64>()?)?,
                "nslots" => once(&mut nslots, map.next_value::<u64>()?)?,
                _ => others.insert(key, map.next_value()?)?,
            }
        }
        let (Some(segments), Some(hosts)) = (segments, hosts) else {
            return Err(unusual());
        };
        let ranks = segments.ranks();
        let properties = targets.unwrap_or_default();
        let known = |(name, targets): (&String, &IdSet)| {
            check_name(name).and_then(|()| check_ranks(name, targets, &ranks))
        };
        if hosts.len() as u64 != ranks.len()
            || properties
                .iter()
                .map(known)
                .any(|property| property.is_err())
        {
            return Err(unusual());
        }
        let time = |name, time| check_time(name, time).map_err(|_| unusual());
        let (starttime, expiration) = (
            time("starttime", starttime)?,
            time("expiration", expiration)?,
        );
        check_order(starttime, expiration).map_err(|_| unusual())?;
        Ok(Execution {
            segments,
            ranks,
            hosts,
            properties,
            starttime,
            expiration,
            nslots,
            others: others.0,
        })
    }
}

fn hostlist<E: Error>(texts: &[&str]) -> Result<Hostlist, E> {
    let parse = |text: &&str| text.parse().map_err(|_| unusual());
    let mut texts = texts.iter();
    let mut hosts: Hostlist = texts.next().map(parse).transpose()?.unwrap_or_default();
    for text in texts {
        append(&mut hosts, &parse(text)?).map_err(|_| unusual())?;
    }
    Ok(hosts)
}

struct Properties(BTreeMap<String, IdSet>);

impl<'de> Deserialize<'de> for Properties {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = BTreeMap<String, IdSet>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("properties")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut properties = BTreeMap::new();
                while let Some((name, text)) = map.next_entry::<&str, &str>()? {
                    let ranks: IdSet = text.parse().map_err(|_| unusual())?;
                    // Drop a property without ranks.
                    if ranks.is_empty() || properties.insert(name.to_owned(), ranks).is_some() {
                        return Err(unusual());
                    }
                }
                Ok(properties)
            }
        }
        deserializer.deserialize_map(Collect).map(Self)
    }
}

/// An entry of `R_lite`; RFC 20 lets it have more keys, which are dropped.
#[derive(Deserialize)]
struct LiteEntry<'a> {
    rank: &'a str,
    #[serde(borrow)]
    children: LiteChildren<'a>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct LiteChildren<'a> {
    core: &'a str,
    #[serde(default)]
    gpu: &'a str,
}

struct Lite(Segments);

impl<'de> Deserialize<'de> for Lite {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(LiteVisitor).map(Self)
    }
}

struct LiteVisitor;

impl<'de> Visitor<'de> for LiteVisitor {
    type Value = Segments;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the value of `R_lite`")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Segments, A::Error> {
        let mut runs = Vec::new();
        let mut kinds = Kinds::default();
        while let Some(entry) = seq.next_element::<LiteEntry<'de>>()? {
            let children = kinds.get(entry.children).ok_or_else(unusual)?;
            let run = |ranks: RangeInclusive<u32>| Segment {
                first: *ranks.start(),
                last: *ranks.end(),
                children: Arc::clone(&children),
            };
            let before = runs.len();
            if each_range(entry.rank, |ranks| runs.push(run(ranks))).is_none() {
                runs.truncate(before);
                let ranks: IdSet = entry.rank.parse().map_err(|_| unusual())?;
                runs.extend(ranks.ranges().map(run));
            }
        }
        Ok(Segments::collect(runs))
    }
}

/// Passes the ranges of an idset's text on without building a set. Returns `None` if the text is invalid or unusual; it
/// may have passed on some ranges by then.
fn each_range(text: &str, mut range: impl FnMut(RangeInclusive<u32>)) -> Option<()> {
    // The current id and its digits, the first id of its range, and the least id that may follow.
    let (mut id, mut digits) = (0, 0);
    let (mut first, mut next) = (None, 0);
    let mut bytes = text.bytes();
    while !text.is_empty() {
        let byte = bytes.next();
        match byte {
            // Ten digits may exceed the greatest id; a leading zero is not allowed.
            Some(b'0'..=b'9') if digits < 9 && (digits == 0 || id > 0) => {
                id = id * 10 + u32::from(byte? - b'0');
                digits += 1;
            }
            Some(b'-') if digits > 0 && first.is_none() && id >= next => {
                (first, next) = (Some(id), id + 1);
                (id, digits) = (0, 0);
            }
            Some(b',') | None if digits > 0 && id >= next => {
                range(first.take().unwrap_or(id)..=id);
                if byte.is_none() {
                    break;
                }
                next = id + 1;
                (id, digits) = (0, 0);
            }
            _ => return None,
        }
    }
    Some(())
}

/// Ids below this fit a few machine words, and are collected range by range.
const SMALL_ID_BOUND: u32 = 128;

fn ids(text: &str) -> Option<IdSet> {
    let mut ids = IdSet::new();
    let mut small = true;
    let collect = |range: RangeInclusive<u32>| {
        small &= *range.end() < SMALL_ID_BOUND;
        if small {
            ids.insert_range(range);
        }
    };
    match each_range(text, collect) {
        Some(()) if small => Some(ids),
        _ => text.parse().ok(),
    }
}

/// The number of slots of [`Kinds`].
const CACHE_SLOTS: usize = 64;

/// A cache of the kinds of nodes read last: equal texts share the parsed resources.
struct Kinds<'a>(Vec<Option<(LiteChildren<'a>, Arc<Children>)>>);

impl Default for Kinds<'_> {
    fn default() -> Self {
        Self(vec![None; CACHE_SLOTS])
    }
}

impl<'a> Kinds<'a> {
    fn get(&mut self, texts: LiteChildren<'a>) -> Option<Arc<Children>> {
        let place = (signature(texts.core) ^ (signature(texts.gpu) << 3)) % CACHE_SLOTS;
        let place = &mut self.0[place];
        match place {
            Some((known, children)) if *known == texts => Some(Arc::clone(children)),
            _ => {
                let children = Arc::new(Children::new(
                    ids(texts.core)?,
                    ids(texts.gpu)?,
                    BTreeMap::new(),
                ));
                *place = Some((texts, Arc::clone(&children)));
                Some(children)
            }
        }
    }
}

/// A cheap hash of a text: its ends and its length.
fn signature(text: &str) -> usize {
    let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let bytes = text.as_bytes();
    let ends = word(bytes.first_chunk()) ^ word(bytes.last_chunk()).rotate_left(17);
    let last = bytes.last().copied().map_or(0, u64::from);
    let mixed = (ends ^ bytes.len() as u64 ^ (last << 8)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 48).unwrap_or(0)
}
