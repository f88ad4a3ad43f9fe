//! Any bytes as a hostlist (RFC 29).

use penstock_hostlist::Hostlist;

use crate::hash;

/// Up to so many hosts are looked at one by one.
const FEW: u64 = 4096;

/// Reads the bytes as a hostlist, and holds what comes of it against a second reader.
///
/// # Panics
///
/// Where the list or the error is wrong.
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
        (Err(error), None) => refused(text, &error),
        // Lists have a limit, which the second reader does not know.
        (Err(error), Some(hosts)) if hosts.count() > 1 << 20 => refused(text, &error),
        (Ok(list), None) => panic!("{text:?} was read as {list}"),
        (Err(error), Some(_)) => panic!("{error}"),
    }
}

fn refused(text: &str, error: &penstock_hostlist::Error) {
    assert!(text.is_char_boundary(error.offset()), "{error}");
    assert!(error.is_in_text(), "{error}");
    assert!(
        error.to_string().starts_with("invalid hostlist \""),
        "{error}"
    );
}

/// Hosts that count up.
struct Run<'a> {
    prefix: &'a str,
    first: u64,
    last: u64,
    /// The digits that numbers are filled up to with zeroes; 0 where there is no number.
    width: usize,
    suffix: &'a str,
}

/// What a second reader found, which keeps to the letter of the RFC and of the crate's documentation.
pub(crate) struct Hosts<'a>(Vec<Run<'a>>);

impl Hosts<'_> {
    fn count(&self) -> u64 {
        let counts = self
            .0
            .iter()
            .map(|run| (run.last - run.first).saturating_add(1));
        counts.fold(0, u64::saturating_add)
    }

    /// The hosts' names, if there are few.
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        (self.count() <= FEW).then(|| self.0.iter().flat_map(Run::names).collect())
    }
}

impl Run<'_> {
    fn names(&self) -> impl Iterator<Item = String> {
        let (prefix, width, suffix) = (self.prefix, self.width, self.suffix);
        (self.first..=self.last).map(move |number| match width {
            0 => prefix.to_owned(),
            _ => format!("{prefix}{number:0width$}{suffix}"),
        })
    }
}

/// None if the text is no hostlist.
pub(crate) fn read(text: &str) -> Option<Hosts<'_>> {
    let mut runs = Vec::new();
    if text.is_empty() {
        return Some(Hosts(runs));
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
    for item in items {
        let Some((prefix, rest)) = item.split_once('[') else {
            let one = Run {
                prefix: item,
                first: 0,
                last: 0,
                width: 0,
                suffix: "",
            };
            runs.push((!item.is_empty() && name(item)).then_some(one)?);
            continue;
        };
        let (ids, suffix) = rest.split_once(']')?;
        if !name(prefix) || !name(suffix) {
            return None;
        }
        let mut zeroes = None;
        for id in ids.split(',') {
            let (first, last) = id.split_once('-').unwrap_or((id, id));
            let ((first, digits), (last, more)) = (number(first)?, number(last)?);
            let width = digits.max(*zeroes.get_or_insert(digits));
            let longest = width.max(first.to_string().len());
            if last < first || more > longest {
                return None;
            }
            runs.push(Run {
                prefix,
                first,
                last,
                width,
                suffix,
            });
        }
    }
    Some(Hosts(runs))
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
/// Where they differ.
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
/// Where that gives another list or another text.
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

/// Holds lists that should be equal against each other.
///
/// # Panics
///
/// Where they are not.
pub fn equal(one: &Hostlist, other: &Hostlist) {
    assert_eq!(one, other);
    assert_eq!(hash(one), hash(other));
}
