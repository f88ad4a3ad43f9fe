//! Lists in the forms of PMIx programs: hostlists, plain lists, and PMIx regular expressions.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;

use crate::error::Error;

/// The greatest number of names or numbers in a list.
const MAX_LIST_ELEMENTS: usize = 1 << 20;

fn malformed(text: &str, expected: &str) -> Error {
    Error::new(format!("`{}`: {expected}", text.escape_debug()))
}

/// Reads a list of nodes: `n[1-3],m7` (RFC 29), `n1,n2`, or `pmix[n[3:1-5,7],login]` as
/// `PMIx_generate_regex` makes it, where `3:` is the number of digits. A compressed form is
/// rejected: only a PMIx library can read it.
pub fn hosts(text: &str) -> Result<Hostlist, Error> {
    let text = text.trim();
    if text.starts_with("blob:") {
        return Err(malformed("blob:", "expected a list that is not compressed"));
    }
    let names = match pieces(text)? {
        Some(pieces) => {
            let names = pieces.iter().map(Piece::hostlist);
            names.collect::<Vec<_>>().join(",").into()
        }
        None => Cow::Borrowed(plain(text)),
    };
    let list = names.parse::<Hostlist>();
    let list = list.map_err(|error| Error::new(error.to_string()))?;
    if list.is_empty() {
        return Err(malformed(text, "expected at least one node"));
    }
    if list.len() > MAX_LIST_ELEMENTS {
        let expected = format!("expected at most {MAX_LIST_ELEMENTS} nodes");
        return Err(malformed(text, &expected));
    }
    Ok(list)
}

/// Reads a list of numbers, one for each node: `5,3`, `4*2` or `4(x2)` for two fours, or the same
/// in `pmix[…]`.
pub fn counts(text: &str) -> Result<Vec<u32>, Error> {
    let text = text.trim();
    let expected = || malformed(text, "expected numbers of cpus with commas between");
    let parts = match pieces(text)? {
        Some(pieces) => pieces
            .into_iter()
            .map(|piece| piece.word().ok_or_else(expected))
            .collect::<Result<_, _>>()?,
        None => plain(text).split(',').collect::<Vec<_>>(),
    };
    let mut numbers = Vec::new();
    for part in parts {
        let part = part.trim();
        let (number, times) = match part.split_once("(x") {
            Some((number, times)) => (number, times.strip_suffix(')').ok_or_else(expected)?),
            None => part.split_once('*').unwrap_or((part, "1")),
        };
        let number = number.parse::<u32>().map_err(|_| expected())?;
        let times = times.parse::<usize>().map_err(|_| expected())?;
        if number == 0 || times == 0 || times > MAX_LIST_ELEMENTS - numbers.len() {
            return Err(expected());
        }
        numbers.extend(std::iter::repeat_n(number, times));
    }
    Ok(numbers)
}

/// Reads ids of cpus: an idset (RFC 22), or `pmix[…]`, where each name is an id or an idset.
pub fn cpus(text: &str) -> Result<IdSet, Error> {
    let text = text.trim();
    let ids = match pieces(text)? {
        Some(pieces) => pieces
            .iter()
            .map(Piece::idset)
            .collect::<Vec<_>>()
            .join(",")
            .parse(),
        None => plain(text).parse::<IdSet>(),
    };
    let ids = ids.map_err(|error| Error::new(error.to_string()))?;
    if ids.is_empty() {
        return Err(Error::new("expected at least one cpu"));
    }
    Ok(ids)
}

fn plain(text: &str) -> &str {
    text.strip_prefix("raw:").unwrap_or(text)
}

/// A piece of a list in `pmix[…]`: it may stand for very many names, so these are not made.
enum Piece<'a> {
    /// One name.
    Word(&'a str),
    /// `prefix[digits:ranges]suffix`.
    Ranges {
        prefix: &'a str,
        /// The least number of digits.
        width: usize,
        ranges: Vec<RangeInclusive<u64>>,
        suffix: &'a str,
    },
}

impl<'a> Piece<'a> {
    fn word(&self) -> Option<&'a str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Ranges { .. } => None,
        }
    }

    /// The same names as a hostlist (RFC 29).
    fn hostlist(&self) -> String {
        match self {
            Self::Word(word) => (*word).to_owned(),
            Self::Ranges {
                prefix,
                width,
                ranges,
                suffix,
            } => {
                let ranges = ranges.iter().map(|range| range_text(range, *width));
                let ranges = ranges.collect::<Vec<_>>().join(",");
                format!("{prefix}[{ranges}]{suffix}")
            }
        }
    }

    /// The same ids as an idset (RFC 22), which has no leading zeros.
    fn idset(&self) -> String {
        match self {
            Self::Word(word) => match word.parse::<u32>() {
                Ok(number) => number.to_string(),
                Err(_) => (*word).to_owned(),
            },
            Self::Ranges {
                prefix,
                ranges,
                suffix,
                ..
            } => {
                let ranges = ranges.iter().map(|range| {
                    let range = range_text(range, 0);
                    format!("{prefix}{range}{suffix}")
                });
                ranges.collect::<Vec<_>>().join(",")
            }
        }
    }
}

fn range_text(range: &RangeInclusive<u64>, width: usize) -> String {
    let (first, last) = (range.start(), range.end());
    if first == last {
        return format!("{first:0width$}");
    }
    format!("{first:0width$}-{last:0width$}")
}

/// The pieces in `pmix[…]`; `None` for any other text.
fn pieces(text: &str) -> Result<Option<Vec<Piece<'_>>>, Error> {
    let Some(body) = text.strip_prefix("pmix[") else {
        return Ok(None);
    };
    let body = body
        .strip_suffix(']')
        .ok_or_else(|| malformed(text, "expected `]` at its end"))?;
    let parts = split(body).ok_or_else(|| malformed(text, "expected matching brackets"))?;
    let pieces = parts.into_iter().map(|part| piece(text, part));
    pieces.collect::<Result<_, _>>().map(Some)
}

/// Splits at the commas outside brackets.
fn split(body: &str) -> Option<Vec<&str>> {
    let (mut depth, mut start, mut parts) = (0_u32, 0, Vec::new());
    for (place, byte) in body.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                parts.push(&body[start..place]);
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(&body[start..]);
    (depth == 0).then_some(parts)
}

/// Reads a part of a list: `prefix[digits:ranges]suffix`, or a plain name.
fn piece<'a>(whole: &str, part: &'a str) -> Result<Piece<'a>, Error> {
    let Some((prefix, rest)) = part.split_once('[') else {
        if part.is_empty() {
            return Err(malformed(whole, "expected a name"));
        }
        return Ok(Piece::Word(part));
    };
    let bad = || {
        let expected = format!("cannot read `{part}`: expected `prefix[digits:ranges]`");
        malformed(whole, &expected)
    };
    let (ranges, suffix) = rest.split_once(']').ok_or_else(bad)?;
    let (digits, ranges) = ranges.split_once(':').ok_or_else(bad)?;
    let width = digits.parse::<usize>().map_err(|_| bad())?;
    if width > 20 || suffix.contains('[') {
        return Err(bad());
    }
    let ranges = ranges.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first = first.parse::<u64>().map_err(|_| bad())?;
        let last = last.parse::<u64>().map_err(|_| bad())?;
        if first > last {
            return Err(bad());
        }
        Ok(first..=last)
    });
    Ok(Piece::Ranges {
        prefix,
        width,
        ranges: ranges.collect::<Result<_, _>>()?,
        suffix,
    })
}

#[cfg(test)]
mod tests {
    use super::{counts, cpus, hosts};

    #[test]
    fn nodes_have_three_forms() {
        for (text, expected) in [
            ("n[1-3],m7", "n[1-3],m7"),
            ("n1,n2", "n[1-2]"),
            ("raw:n1,n2", "n[1-2]"),
            ("pmix[n[1:1-3,7],login]", "n[1-3,7],login"),
            ("pmix[n[1:8-9],n[2:10-11]]", "n[8-11]"),
            ("pmix[n[3:1-2]-ib]", "n[001-002]-ib"),
            ("pmix[n[2:9-10,99-101]]", "n[09-10,99-101]"),
            ("pmix[n[1:0-1048575]]", "n[0-1048575]"),
            ("pmix[login]", "login"),
        ] {
            assert_eq!(hosts(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn malformed_lists_are_rejected() {
        for text in [
            "",
            "n[1",
            "pmix[n[1:1-3]",
            "pmix[n[1-3]]",
            "pmix[n[1:3-1]]",
            "pmix[n[99:1]]",
            "pmix[n[1:0-18446744073709551615]]",
            "pmix[n[1:0-1048574],a,a,n[1:0-1]]",
            "pmix[]",
            "pmix[a,,b]",
            "pmix[a]]",
            "pmix[n[1:1][1:2]]",
            "pmix[n[1:0-1048576]]",
            "n[0-1048576]",
            "blob:xyz",
        ] {
            assert!(hosts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cpus_have_the_forms_of_an_idset() {
        for text in [
            "0-2,7",
            "[0-2,7]",
            "raw:0,1,2,7",
            "pmix[[1:0-2,7]]",
            "pmix[[2:0-2],[1:7]]",
            "pmix[0,1,2,7]",
            "pmix[0-2,7]",
        ] {
            let found = cpus(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(found.to_string(), "0-2,7", "{text}");
        }
        for text in [
            "",
            "x",
            "pmix[]",
            "pmix[x[1:0]]",
            "pmix[[1:0-]]",
            "pmix[[1:0]",
            "2-1",
        ] {
            assert!(cpus(text).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_may_be_repeated() {
        assert_eq!(counts("5,3"), Ok(vec![5, 3]));
        assert_eq!(counts("4(x2),1"), Ok(vec![4, 4, 1]));
        assert_eq!(counts("4*2"), Ok(vec![4, 4]));
        assert_eq!(counts("pmix[5,3]"), Ok(vec![5, 3]));
        for text in ["", "0", "x", "5,", "4(x0)", "4(x2", "1(x99999999)", "-1"] {
            assert!(counts(text).is_err(), "{text}");
        }
    }
}
