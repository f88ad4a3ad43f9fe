//! Any bytes as an idset (RFC 22).

use penstock_idset::IdSet;

use crate::input::hash;
use crate::intervals::Intervals;

/// The largest number of ids that are compared one by one.
const MAX_LISTED_IDS: u64 = 4096;

/// Reads the bytes as an idset, and compares the result with that of a second reader.
///
/// # Panics
///
/// Panics if the set or the error is wrong.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    lenient(text);
    match (text.parse::<IdSet>(), read(text)) {
        (Ok(set), Some(expected)) => {
            same(&set, &expected);
            written(&set);
        }
        (Err(error), None) => {
            assert!(text.is_char_boundary(error.offset()), "{error}");
            assert!(error.is_in_text(), "{error}");
            assert!(error.to_string().starts_with("invalid idset \""), "{error}");
        }
        (Ok(set), None) => panic!("{text:?} was read as {set}"),
        (Err(error), Some(_)) => panic!("{error}"),
    }
}

/// Checks that results of the lenient reader can be written, and that it corrects nothing in text that the strict
/// reader accepts.
fn lenient(text: &str) {
    match (IdSet::parse_lenient(text), text.parse::<IdSet>()) {
        (Ok((set, mended)), Ok(strict)) => {
            equal(&set, &strict);
            assert!(mended.is_empty(), "{text:?}: {mended:?}");
        }
        (Ok((set, mended)), Err(error)) => {
            assert!(!mended.is_empty(), "{error}");
            assert!(mended.iter().all(|note| note.offset <= text.len()));
            set.check_invariants();
            written(&set);
        }
        (Err(error), Err(_)) => assert!(text.is_char_boundary(error.offset()), "{error}"),
        (Err(error), Ok(_)) => panic!("{error}"),
    }
}

/// A second reader, which follows the RFC literally. `None` if the text is not an idset.
fn read(text: &str) -> Option<Intervals> {
    let text = match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None => text,
    };
    if text.is_empty() {
        return Some(Intervals::default());
    }
    let mut ids = Intervals::default();
    let mut next = 0;
    for item in text.split(',') {
        let (start, end) = match item.split_once('-') {
            Some((start, end)) => {
                let (start, end) = (number(start)?, number(end)?);
                (start, (start < end).then_some(end)?)
            }
            None => (number(item)?, number(item)?),
        };
        if start < next {
            return None;
        }
        next = end + 1;
        ids = ids.union(&Intervals::new(start, next));
    }
    Some(ids)
}

fn number(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let zeroes = text.len() > 1 && text.starts_with('0');
    let number: u64 = text.parse().ok().filter(|_| plain && !zeroes)?;
    (number <= u64::from(IdSet::MAX_ID)).then_some(number)
}

/// Compares a set with its model: counts, ranges and, if there are few, ids from both ends.
///
/// # Panics
///
/// Panics if they differ.
pub fn same(set: &IdSet, model: &Intervals) {
    set.check_invariants();
    assert_eq!(set.len(), model.len());
    assert_eq!(set.is_empty(), model.is_empty());
    assert_eq!(set.range_count(), model.iter().count());
    let range = |(start, end): (u64, u64)| id(start)..=id(end - 1);
    assert!(set.ranges().eq(model.iter().map(range)), "{set}");
    assert!(
        set.ranges().rev().eq(model.iter().rev().map(range)),
        "{set}"
    );
    assert_eq!(set.first(), model.ids().next().map(id));
    assert_eq!(set.last(), model.ids().next_back().map(id));
    if set.len() <= MAX_LISTED_IDS {
        assert!(set.iter().eq(model.ids().map(id)), "{set}");
        assert!(set.iter().rev().eq(model.ids().rev().map(id)), "{set}");
    }
}

/// An id of the model as one of a set.
pub(crate) fn id(id: u64) -> u32 {
    u32::try_from(id).expect("an id of 32 bits")
}

/// Writes a set, and reads it back in every way.
///
/// # Panics
///
/// Panics if the result is a different set or text.
pub fn written(set: &IdSet) {
    let text = set.to_string();
    let bracketed = set.to_bracketed_text();
    assert_eq!(bracketed, format!("[{text}]"));
    assert_eq!(set.to_text(), text);
    for text in [&text, &bracketed] {
        let again: IdSet = text.parse().expect("what was written can be read");
        equal(&again, set);
        assert_eq!(again.to_string(), *set.to_string());
    }
    if set.len() <= MAX_LISTED_IDS {
        equal(&set.iter().collect(), set);
        equal(&set.iter().rev().collect(), set);
    }
}

/// Checks that sets are equal.
///
/// # Panics
///
/// Panics if they are not equal.
pub fn equal(one: &IdSet, other: &IdSet) {
    assert_eq!(one, other);
    assert_eq!(one.cmp(other), std::cmp::Ordering::Equal);
    assert_eq!(hash(one), hash(other));
}
