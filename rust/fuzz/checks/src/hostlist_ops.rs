//! Operations on hostlists against a list of names.

use std::cmp::Ordering;
use std::collections::HashSet;

use arbitrary::{Arbitrary, Result, Unstructured};
use penstock_hostlist::Hostlist;

use crate::hostlist_text::{Hosts, equal, name, read, same, written};
use crate::input::{UpToEight, operations};

const PREFIXES: [&str; 9] = [
    "n",
    "n",
    "foo",
    "",
    "a1",
    "a10",
    "r2-n",
    "x1000c0s",
    "99999999999999999999",
];
const SUFFIXES: [&str; 8] = ["", "", "", "-ib", "-eth2", "0", "b0n1", ".c1.org"];

/// Numbers at which a digit is gained, and the ends of 64 bits.
const ANCHORS: [u64; 7] = [
    0,
    10,
    100,
    1000,
    9_999_999_999_999_999_999,
    10_000_000_000_000_000_000,
    u64::MAX,
];

/// A number near an anchor, with zeroes in front up to a width.
#[derive(Clone, Copy, Debug)]
struct Number {
    value: u64,
    width: usize,
}

impl<'a> Arbitrary<'a> for Number {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let anchor = *u.choose(&ANCHORS)?;
        Ok(Self {
            value: anchor.saturating_add_signed(u.int_in_range(-15..=15)?),
            width: *u.choose(&[0, 0, 0, 2, 3, 4, 19, 20, 21])?,
        })
    }
}

/// The text before and after a number.
#[derive(Clone, Copy, Debug)]
struct Stem {
    prefix: &'static str,
    suffix: &'static str,
}

impl<'a> Arbitrary<'a> for Stem {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self {
            prefix: u.choose(&PREFIXES)?,
            suffix: u.choose(&SUFFIXES)?,
        })
    }
}

/// A name with a number in it.
#[derive(Clone, Copy, Debug, Arbitrary)]
struct Name(Stem, Number);

impl Name {
    fn text(self) -> String {
        let Self(Stem { prefix, suffix }, Number { value, width }) = self;
        format!("{prefix}{value:0width$}{suffix}")
    }
}

/// Names that count up.
#[derive(Clone, Copy, Debug, Arbitrary)]
struct Run(Name, u8);

impl Run {
    fn names(self) -> impl Iterator<Item = String> {
        let Self(Name(stem, first), count) = self;
        (0..u64::from(count % 32)).map_while(move |n| {
            let value = first.value.checked_add(n)?;
            Some(Name(stem, Number { value, ..first }).text())
        })
    }
}

/// Names in brackets.
#[derive(Clone, Debug, Arbitrary)]
struct Brackets(Stem, UpToEight<(Number, u8)>);

impl Brackets {
    fn text(&self) -> String {
        let Self(Stem { prefix, suffix }, ids) = self;
        let ids = ids.0.iter().map(|&(Number { value, width }, more)| {
            let last = value.saturating_add((more % 32).into());
            format!("{value:0width$}-{last:0width$}")
        });
        let ids: Vec<String> = ids.collect();
        format!("{prefix}[{}]{suffix}", ids.join(","))
    }
}

/// Which of the lists.
#[derive(Clone, Copy, Debug, Arbitrary)]
enum At {
    A,
    B,
    C,
}

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Pair {
    Union,
    Intersection,
    Difference,
    SymmetricDifference,
}

#[derive(Clone, Debug, Arbitrary)]
enum Op<'a> {
    Push(At, Name),
    PushAny(At, &'a str),
    Extend(At, UpToEight<Run>),
    ExtendText(At, Brackets),
    ExtendAny(At, &'a str),
    Append(At, At),
    Insert(At, u8, Name),
    Remove(At, u8),
    Pop(At),
    RemoveRange(At, u8, u8),
    Truncate(At, u8),
    Clear(At),
    Splice(At, u8, u8, At),
    Slice(At, u8, u8, At),
    Select(At, UpToEight<u8>, At),
    Split(At, u8),
    Uniq(At),
    Sort(At),
    Delete(At, At),
    Combine(At, At, Pair, At),
    Look(At, Name),
    LookAt(At, u8),
    Compare(At, At),
    Rewrite(At),
}

/// A list with its model.
#[derive(Clone, Default)]
struct Twin {
    list: Hostlist,
    names: Vec<String>,
}

/// The most hosts of a list.
const HOSTS: usize = 1000;

/// Reads the bytes as operations on three lists, and does them with the lists and with their models.
///
/// # Panics
///
/// Panics if a list and its model differ.
pub fn check(data: &[u8]) {
    let mut twins: [Twin; 3] = Default::default();
    for op in operations(data) {
        let Some(at) = apply(&mut twins, op) else {
            continue;
        };
        let twin = &mut twins[at as usize];
        same(&twin.list, &twin.names);
        if twin.names.len() > HOSTS {
            twin.list.truncate(HOSTS);
            twin.names.truncate(HOSTS);
            same(&twin.list, &twin.names);
        }
    }
}

/// Does one operation. Returns which list it changed.
fn apply(twins: &mut [Twin; 3], op: Op<'_>) -> Option<At> {
    match op {
        Op::Push(at, name) => {
            let Twin { list, names } = &mut twins[at as usize];
            list.push(&name.text()).expect("a name");
            names.push(name.text());
            Some(at)
        }
        Op::PushAny(at, text) => {
            let Twin { list, names } = &mut twins[at as usize];
            let right = !text.is_empty() && name(text);
            assert_eq!(list.push(text).is_ok(), right, "{text:?}");
            names.extend(right.then(|| text.to_owned()));
            Some(at)
        }
        Op::Extend(at, runs) => {
            let Twin { list, names } = &mut twins[at as usize];
            let more: Vec<String> = runs.0.iter().flat_map(|run| run.names()).collect();
            list.try_extend(&more).expect("names");
            names.extend(more);
            Some(at)
        }
        Op::ExtendText(at, brackets) => {
            extend_text(&mut twins[at as usize], &brackets.text());
            Some(at)
        }
        Op::ExtendAny(at, text) => {
            extend_text(&mut twins[at as usize], text);
            Some(at)
        }
        Op::Append(at, with) => {
            let with = twins[with as usize].clone();
            let Twin { list, names } = &mut twins[at as usize];
            list.append(&with.list).expect("short lists");
            names.extend(with.names);
            Some(at)
        }
        Op::Insert(at, index, name) => {
            let Twin { list, names } = &mut twins[at as usize];
            list.insert(index.into(), &name.text()).expect("a name");
            names.insert(usize::from(index).min(names.len()), name.text());
            Some(at)
        }
        Op::Remove(at, index) => {
            let Twin { list, names } = &mut twins[at as usize];
            let index = usize::from(index);
            let removed = (index < names.len()).then(|| names.remove(index));
            assert_eq!(list.remove(index), removed);
            Some(at)
        }
        Op::Pop(at) => {
            let Twin { list, names } = &mut twins[at as usize];
            assert_eq!(list.pop(), names.pop());
            Some(at)
        }
        Op::RemoveRange(at, from, to) => {
            let Twin { list, names } = &mut twins[at as usize];
            let (from, to) = ordered(from, to);
            list.remove_range(from..to);
            names.drain(from.min(names.len())..to.min(names.len()));
            Some(at)
        }
        Op::Truncate(at, len) => {
            let Twin { list, names } = &mut twins[at as usize];
            list.truncate(len.into());
            names.truncate(len.into());
            Some(at)
        }
        Op::Clear(at) => {
            twins[at as usize].list.clear();
            twins[at as usize].names.clear();
            Some(at)
        }
        Op::Splice(at, from, to, with) => {
            let with = twins[with as usize].clone();
            let Twin { list, names } = &mut twins[at as usize];
            let (from, to) = ordered(from, to);
            let (from, to) = (from.min(names.len()), to.min(names.len()));
            list.splice(from..to, &with.list).expect("short lists");
            names.splice(from..to, with.names);
            Some(at)
        }
        other => apply_whole(twins, other),
    }
}

/// Does one operation that takes lists as a whole, or changes none.
fn apply_whole(twins: &mut [Twin; 3], op: Op<'_>) -> Option<At> {
    match op {
        Op::Slice(at, from, to, into) => {
            let Twin { list, names } = &twins[at as usize];
            let (from, to) = ordered(from, to);
            let part: Vec<String> = names.iter().take(to).skip(from).cloned().collect();
            assert!(list.iter_range(from..to).eq(part.iter().cloned()));
            let list = list.slice(from..to);
            twins[into as usize] = Twin { list, names: part };
            Some(into)
        }
        Op::Select(at, positions, into) => {
            let Twin { list, names } = &twins[at as usize];
            let positions = || positions.0.iter().copied().map(usize::from);
            let chosen = positions().map(|position| names.get(position).cloned());
            let names: Option<Vec<String>> = chosen.collect();
            let list = list.select(positions());
            assert_eq!(list.is_some(), names.is_some());
            let (list, names) = (list?, names?);
            twins[into as usize] = Twin { list, names };
            Some(into)
        }
        Op::Split(at, parts) => {
            split(&twins[at as usize], parts.into());
            None
        }
        Op::Uniq(at) => {
            let Twin { list, names } = &mut twins[at as usize];
            list.uniq();
            *names = unique(names.iter());
            Some(at)
        }
        Op::Sort(at) => {
            let Twin { list, names } = &mut twins[at as usize];
            list.sort().expect("a short list");
            names.sort_by(|a, b| natural(a, b));
            Some(at)
        }
        Op::Delete(at, other) => {
            let other = twins[other as usize].clone();
            let Twin { list, names } = &mut twins[at as usize];
            let before = names.len();
            for name in &other.names {
                if let Some(index) = names.iter().position(|own| own == name) {
                    names.remove(index);
                }
            }
            assert_eq!(list.delete(&other.list), before - names.len());
            Some(at)
        }
        Op::Combine(left, right, pair, into) => {
            twins[into as usize] = combine(&twins[left as usize], &twins[right as usize], pair);
            Some(into)
        }
        Op::Look(at, name) => {
            look(&twins[at as usize], &name.text());
            None
        }
        Op::LookAt(at, index) => {
            let twin = &twins[at as usize];
            let name = twin.names.get(usize::from(index));
            assert_eq!(twin.list.get(index.into()).as_ref(), name);
            look(twin, name?);
            None
        }
        Op::Compare(left, right) => {
            let (left, right) = (&twins[left as usize], &twins[right as usize]);
            assert_eq!(left.list == right.list, left.names == right.names);
            None
        }
        Op::Rewrite(at) => {
            written(&twins[at as usize].list);
            None
        }
        other => unreachable!("{other:?}"),
    }
}

fn ordered(from: u8, to: u8) -> (usize, usize) {
    (from.min(to).into(), from.max(to).into())
}

fn extend_text(twin: &mut Twin, text: &str) {
    let hosts = read(text);
    let Some(more) = hosts.as_ref().map(Hosts::names) else {
        assert!(twin.list.extend_from_str(text).is_err(), "{text:?}");
        return;
    };
    // A long list is for the other target.
    if let Some(more) = more {
        twin.list.extend_from_str(text).expect("a hostlist");
        twin.names.extend(more);
    }
}

/// Each name once, in order of first occurrence.
fn unique<'a>(names: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut seen = HashSet::new();
    let first = names.into_iter().filter(|name| seen.insert(*name));
    first.cloned().collect()
}

fn combine(left: &Twin, right: &Twin, pair: Pair) -> Twin {
    let (a, b) = (&left.list, &right.list);
    let set = |twin: &Twin| -> HashSet<String> { twin.names.iter().cloned().collect() };
    let (x, y) = (set(left), set(right));
    let ours = |keep: bool| {
        left.names
            .iter()
            .filter(move |name| y.contains(*name) == keep)
    };
    let (list, names) = match pair {
        Pair::Union => (
            a.union(b).expect("short lists"),
            unique(left.names.iter().chain(&right.names)),
        ),
        Pair::Intersection => (a.intersection(b), unique(ours(true))),
        Pair::Difference => (a.difference(b), unique(ours(false))),
        Pair::SymmetricDifference => {
            let theirs = right.names.iter().filter(|name| !x.contains(*name));
            let either = a.symmetric_difference(b).expect("short lists");
            (either, unique(ours(false).chain(theirs)))
        }
    };
    Twin { list, names }
}

fn split(twin: &Twin, parts: usize) {
    let lists = twin.list.split(parts);
    let len = twin.names.len();
    let parts = parts.min(len);
    assert_eq!(lists.len(), parts);
    let mut whole = Hostlist::new();
    for (index, list) in lists.iter().enumerate() {
        assert_eq!(list.len(), len / parts + usize::from(index < len % parts));
        whole.append(list).expect("short lists");
    }
    if parts > 0 {
        equal(&whole, &twin.list);
    }
}

/// Compares the positions of a name.
fn look(twin: &Twin, name: &str) {
    let Twin { list, names } = twin;
    let found = names.iter().enumerate().filter(|(_, own)| *own == name);
    let positions: Vec<usize> = found.map(|(position, _)| position).collect();
    assert!(list.positions(name).eq(positions.iter().copied()));
    assert_eq!(list.find(name), positions.first().copied());
    assert_eq!(list.count(name), positions.len());
    assert_eq!(list.contains(name), !positions.is_empty());
    for start in [1, names.len() / 2, names.len(), names.len() + 1] {
        let expected = positions
            .iter()
            .copied()
            .find(|&position| position >= start);
        assert_eq!(list.find_from(name, start), expected);
    }
}

/// Natural order: by what stands before the last number, then by that number, its width, and what stands after it.
fn natural(a: &str, b: &str) -> Ordering {
    let key = |name| {
        let (prefix, number, suffix) = parts(name);
        let value: u64 = number.parse().unwrap_or(0);
        (tokens(prefix), value, number.len(), tokens(suffix))
    };
    key(a).cmp(&key(b))
}

/// A name around the last 19 digits or fewer of its last number.
fn parts(name: &str) -> (&str, &str, &str) {
    let Some(last) = name.rfind(|c: char| c.is_ascii_digit()) else {
        return (name, "", "");
    };
    let digit = |c: char| c.is_ascii_digit();
    let stem = name[..=last].trim_end_matches(digit).len();
    let stem = stem.max((last + 1).saturating_sub(19));
    (&name[..stem], &name[stem..=last], &name[last + 1..])
}

/// A text as characters and numbers; of a number the digits without the zeroes in front, then with them.
fn tokens(text: &str) -> Vec<(char, usize, &str, usize)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (token, after) = rest.split_at(digits.max(1));
        let value = token.trim_start_matches('0');
        tokens.push(if digits > 0 {
            ('0', value.len(), value, digits)
        } else {
            (first, 0, "", 0)
        });
        rest = after;
    }
    tokens
}
