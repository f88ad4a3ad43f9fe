//! Any bytes as a hostlist (RFC 29).

use penstock_hostlist::Hostlist;

use crate::input::hash;

/// The largest number of hosts that are compared one by one.
const MAX_LISTED_HOSTS: u64 = 4096;

/// Reads the bytes as a hostlist, and compares the result with that of a second reader.
///
/// # Panics
///
/// Panics if the list or the error is wrong.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match (text.parse::<Hostlist>(), read(text)) {
        (Ok(list), Some(hosts)) => {
            if let Some(names) = hosts.names() {
                same(&list, &names);
                written(&list);
            } else {
                assert_eq!(list.len() as u64, hosts.count());
                let again: Hostlist = list.to_string().parse().expect("a hostlist");
                settled(&again);
                assert_eq!(again.len(), list.len());
            }
        }
        (Err(error), None) => check_error(text, &error),
        // Lists have a limit, which the second reader does not know.
        (Err(error), Some(hosts)) if hosts.count() > 1 << 20 => check_error(text, &error),
        (Ok(list), None) => panic!("{text:?} was read as {list}"),
        (Err(error), Some(_)) => panic!("{error}"),
    }
}

fn check_error(text: &str, error: &penstock_hostlist::Error) {
    assert!(text.is_char_boundary(error.offset()), "{error}");
    assert!(error.is_in_text(), "{error}");
    assert!(
        error.to_string().starts_with("invalid hostlist \""),
        "{error}"
    );
}

/// Numbers that count up.
struct Run {
    first: u64,
    last: u64,
    /// The digits that numbers are filled up to with zeroes.
    width: usize,
}

/// A part of an item: text, or what is in a pair of brackets.
enum Part<'a> {
    Text(&'a str),
    Numbers(Vec<Run>),
}

impl Part<'_> {
    fn count(&self) -> u64 {
        match self {
            Self::Text(_) => 1,
            Self::Numbers(runs) => {
                let counts = runs
                    .iter()
                    .map(|run| (run.last - run.first).saturating_add(1));
                counts.fold(0, u64::saturating_add)
            }
        }
    }

    fn texts(&self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![(*text).to_owned()],
            Self::Numbers(runs) => runs
                .iter()
                .flat_map(|run| {
                    let width = run.width;
                    (run.first..=run.last).map(move |number| format!("{number:0width$}"))
                })
                .collect(),
        }
    }
}

/// The result of a second reader, which follows the RFC and the crate's documentation literally: items, each the
/// product of its parts.
pub(crate) struct Hosts<'a>(Vec<Vec<Part<'a>>>);

impl Hosts<'_> {
    fn count(&self) -> u64 {
        let counts = self
            .0
            .iter()
            .map(|item| item.iter().map(Part::count).fold(1, u64::saturating_mul));
        counts.fold(0, u64::saturating_add)
    }

    /// The hosts' names, if there are few.
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        let product = |item: &Vec<Part<'_>>| {
            item.iter().fold(vec![String::new()], |names, part| {
                let texts = part.texts();
                let longer = |name: String| texts.iter().map(move |text| format!("{name}{text}"));
                names.into_iter().flat_map(longer).collect()
            })
        };
        (self.count() <= MAX_LISTED_HOSTS).then(|| self.0.iter().flat_map(product).collect())
    }
}

/// None if the text is no hostlist.
pub(crate) fn read(text: &str) -> Option<Hosts<'_>> {
    if text.is_empty() {
        return Some(Hosts(Vec::new()));
    }
    let mut depth = 0_i32;
    let items = text.split(|c: char| {
        depth += match c {
            '[' => 1,
            ']' => -1,
            _ => 0,
        };
        c == ',' && depth == 0
    });
    let items = items.map(|item| (!item.is_empty()).then(|| parts(item))?);
    Some(Hosts(items.collect::<Option<_>>()?))
}

fn parts(item: &str) -> Option<Vec<Part<'_>>> {
    let mut parts = Vec::new();
    let mut rest = item;
    while let Some((text, behind)) = rest.split_once('[') {
        let (ids, behind) = behind.split_once(']')?;
        parts.push(Part::Text(name(text).then_some(text)?));
        parts.push(Part::Numbers(numbers(ids)?));
        rest = behind;
    }
    parts.push(Part::Text(name(rest).then_some(rest)?));
    Some(parts)
}

fn numbers(ids: &str) -> Option<Vec<Run>> {
    let mut zeroes = None;
    let runs = ids.split(',').map(|id| {
        let (first, last) = id.split_once('-').unwrap_or((id, id));
        let ((first, digits), (last, more)) = (number(first)?, number(last)?);
        let width = digits.max(*zeroes.get_or_insert(digits));
        let longest = width.max(first.to_string().len());
        (first <= last && more <= longest).then_some(Run { first, last, width })
    });
    runs.collect()
}

/// Whether the characters are those of a name.
pub(crate) fn name(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_graphic() && !b",[]".contains(&byte))
}

/// The value, and to how many digits zeroes fill it up; 1 if there are none in front.
fn number(text: &str) -> Option<(u64, usize)> {
    let plain = text.len() <= 255 && text.bytes().all(|byte| byte.is_ascii_digit());
    let value: u64 = text.parse().ok().filter(|_| plain)?;
    let filled = text.len() > 1 && text.starts_with('0');
    Some((value, if filled { text.len() } else { 1 }))
}

/// Holds a list against the names of its hosts.
///
/// # Panics
///
/// Panics if they differ.
pub fn same(list: &Hostlist, names: &[String]) {
    assert_eq!(list.len(), names.len(), "{list}");
    assert_eq!(list.is_empty(), names.is_empty());
    assert!(
        list.iter().eq(names.iter().cloned()),
        "{list} for {names:?}"
    );
    assert!(
        list.iter().rev().eq(names.iter().rev().cloned()),
        "{list} for {names:?}"
    );
    assert_eq!(list.first().as_ref(), names.first());
    assert_eq!(list.last().as_ref(), names.last());
}

/// Writes a list, and reads it back in every way.
///
/// # Panics
///
/// Panics if the result is a different list or text.
pub fn written(list: &Hostlist) {
    let text = list.to_string();
    let again: Hostlist = text.parse().expect("what was written can be read");
    equal(&again, list);
    settled(&again);
    let single = Hostlist::try_from_hosts(list).expect("names of hosts");
    equal(&single, list);
    let mut pushed = Hostlist::new();
    for name in list {
        pushed.push(&name).expect("a name");
    }
    equal(&pushed, list);
    equal(&pushed.to_string().parse().expect("a hostlist"), list);
}

/// Holds that a list which was read from its own text is written with that text from then on.
///
/// The first text may be another: `2[0,00]` is written `20,200`, which is read and written as `[20,200]`.
fn settled(list: &Hostlist) {
    let text = list.to_string();
    let again: Hostlist = text.parse().expect("what was written can be read");
    assert_eq!(again.to_string(), text);
}

/// Checks that lists are equal.
///
/// # Panics
///
/// Panics if they are not equal.
pub fn equal(one: &Hostlist, other: &Hostlist) {
    assert_eq!(one, other);
    assert_eq!(hash(one), hash(other));
}
