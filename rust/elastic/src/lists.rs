//! Lists in the forms of PMIx programs: hostlists, plain lists, and PMIx regular expressions.

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
    let list = match inner(text)? {
        Some(names) => {
            Hostlist::try_from_hosts(&names).map_err(|error| Error::new(error.to_string()))?
        }
        None => plain(text)
            .parse::<Hostlist>()
            .map_err(|error| Error::new(error.to_string()))?,
    };
    if list.is_empty() || list.len() > MAX_LIST_ELEMENTS {
        return Err(malformed(text, "expected at least one node"));
    }
    Ok(list)
}

/// Reads a list of numbers, one for each node: `5,3`, `4*2` or `4(x2)` for two fours, or the same
/// in `pmix[…]`.
pub fn counts(text: &str) -> Result<Vec<u32>, Error> {
    let text = text.trim();
    let expected = || malformed(text, "expected numbers of cpus with commas between");
    let parts = match inner(text)? {
        Some(parts) => parts,
        None => plain(text).split(',').map(str::to_owned).collect(),
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
    let ids = match inner(text)? {
        Some(names) => {
            // An idset has no leading zeros, a name has as many digits as it was written with.
            let plain = names.iter().map(|name| match name.parse::<u32>() {
                Ok(number) => number.to_string(),
                Err(_) => name.clone(),
            });
            plain.collect::<Vec<_>>().join(",").parse::<IdSet>()
        }
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

/// The names in `pmix[…]`; `None` for any other text.
fn inner(text: &str) -> Result<Option<Vec<String>>, Error> {
    let Some(body) = text.strip_prefix("pmix[") else {
        return Ok(None);
    };
    let body = body
        .strip_suffix(']')
        .ok_or_else(|| malformed(text, "expected `]` at its end"))?;
    let mut names = Vec::new();
    for part in split(body).ok_or_else(|| malformed(text, "expected matching brackets"))? {
        expand(text, part, &mut names)?;
    }
    Ok(Some(names))
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

fn too_many(whole: &str) -> Error {
    let expected = format!("expected at most {MAX_LIST_ELEMENTS} names");
    malformed(whole, &expected)
}

/// Appends the names of a part of a list: `prefix[digits:ranges]suffix`, or a plain name.
fn expand(whole: &str, part: &str, names: &mut Vec<String>) -> Result<(), Error> {
    let Some((prefix, rest)) = part.split_once('[') else {
        if part.is_empty() {
            return Err(malformed(whole, "expected a name"));
        }
        if names.len() >= MAX_LIST_ELEMENTS {
            return Err(too_many(whole));
        }
        names.push(part.to_owned());
        return Ok(());
    };
    let bad = || {
        let expected = format!("cannot read `{part}`: expected `prefix[digits:ranges]`");
        malformed(whole, &expected)
    };
    let (ranges, suffix) = rest.split_once(']').ok_or_else(bad)?;
    let (digits, ranges) = ranges.split_once(':').ok_or_else(bad)?;
    let width = digits.parse::<usize>().map_err(|_| bad())?;
    if width > 20 {
        return Err(bad());
    }
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first = first.parse::<u64>().map_err(|_| bad())?;
        let last = last.parse::<u64>().map_err(|_| bad())?;
        let more = last.checked_sub(first).ok_or_else(bad)?;
        if more >= MAX_LIST_ELEMENTS.saturating_sub(names.len()) as u64 {
            return Err(too_many(whole));
        }
        names.extend((first..=last).map(|number| format!("{prefix}{number:0width$}{suffix}")));
    }
    Ok(())
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
