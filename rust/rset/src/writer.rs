//! Output of R from parts, without building a set.

use std::fmt::Write;
use std::ops::RangeInclusive;

/// Writes the text of [`ResourceSet::to_json`](crate::ResourceSet::to_json) from known parts.
///
/// The caller ensures that ranks ascend within an entry, that entries have different resources and are in the order of
/// their first ranks, that there is one host for each rank, and that properties are in the order of their names. The
/// writer checks nothing.
///
/// ```
/// use penstock_rset::{ResourceSet, Writer};
///
/// let mut text = String::new();
/// let mut writer = Writer::new(&mut text);
/// writer.push_entry([0..=1], [0..=3, 8..=8], []);
/// writer.push_hosts("node[0-1]");
/// writer.push_property("fast", [1..=1]);
/// writer.finish(Some(1.5), None, Some(2));
/// assert_eq!(ResourceSet::from_json(&text)?.to_json(), text);
/// # Ok::<(), penstock_rset::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer<'a> {
    text: &'a mut String,
    entries: bool,
    properties: bool,
}

impl<'a> Writer<'a> {
    /// Returns a writer that appends to a text.
    pub fn new(text: &'a mut String) -> Self {
        text.push_str(r#"{"version":1,"execution":{"R_lite":["#);
        Self {
            text,
            entries: false,
            properties: false,
        }
    }

    /// Writes an entry: ranks with equal cores and gpus.
    pub fn push_entry(
        &mut self,
        ranks: impl IntoIterator<Item = RangeInclusive<u32>>,
        cores: impl IntoIterator<Item = RangeInclusive<u32>>,
        gpus: impl IntoIterator<Item = RangeInclusive<u32>>,
    ) {
        self.push_ranks(ranks);
        self.push_children(cores, gpus);
    }

    /// Writes the ranks of an entry; its resources must follow.
    pub fn push_ranks(&mut self, ranks: impl IntoIterator<Item = RangeInclusive<u32>>) {
        self.text.push_str(if self.entries {
            r#",{"rank":""#
        } else {
            r#"{"rank":""#
        });
        self.entries = true;
        ids(self.text, ranks);
    }

    /// Writes the resources of the entry whose ranks were written.
    pub fn push_children(
        &mut self,
        cores: impl IntoIterator<Item = RangeInclusive<u32>>,
        gpus: impl IntoIterator<Item = RangeInclusive<u32>>,
    ) {
        self.text.push_str(r#"","children":{"core":""#);
        ids(self.text, cores);
        let mut gpus = gpus.into_iter();
        if let Some(first) = gpus.next() {
            self.text.push_str(r#"","gpu":""#);
            ids(self.text, std::iter::once(first).chain(gpus));
        }
        self.text.push_str(r#""}}"#);
    }

    /// Writes the hosts, after the entries.
    pub fn push_hosts(&mut self, hosts: &str) {
        self.text.push_str(r#"],"nodelist":["#);
        quoted(self.text, hosts);
        self.text.push(']');
    }

    /// Writes a property, after the hosts.
    pub fn push_property(
        &mut self,
        name: &str,
        ranks: impl IntoIterator<Item = RangeInclusive<u32>>,
    ) {
        self.text.push_str(if self.properties {
            ","
        } else {
            r#","properties":{"#
        });
        self.properties = true;
        quoted(self.text, name);
        self.text.push_str(":\"");
        ids(self.text, ranks);
        self.text.push('"');
    }

    /// Writes the times, the number of slots and the end.
    pub fn finish(self, starttime: Option<f64>, expiration: Option<f64>, nslots: Option<u64>) {
        if self.properties {
            self.text.push('}');
        }
        self.text.push_str(r#","starttime":"#);
        time(self.text, starttime);
        self.text.push_str(r#","expiration":"#);
        time(self.text, expiration);
        if let Some(nslots) = nslots {
            self.text.push_str(r#","nslots":"#);
            number(self.text, nslots);
        }
        self.text.push_str("}}");
    }
}

fn number(text: &mut String, number: u64) {
    let mut digits = [0_u8; 20];
    let mut start = digits.len();
    let mut rest = number;
    loop {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    text.push_str(std::str::from_utf8(&digits[start..]).unwrap_or_default());
}

fn ids(text: &mut String, ranges: impl IntoIterator<Item = RangeInclusive<u32>>) {
    for (at, range) in ranges.into_iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        number(text, (*range.start()).into());
        if range.start() < range.end() {
            text.push('-');
            number(text, (*range.end()).into());
        }
    }
}

/// Whole numbers below this are written digit by digit, followed by `.0`.
const WHOLE_NUMBER_LIMIT: f64 = 1e15;

fn time(text: &mut String, time: Option<f64>) {
    let time = time.unwrap_or(0.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the comparison excludes all but whole numbers of that size"
    )]
    let whole = time as u64;
    #[expect(
        clippy::cast_precision_loss,
        clippy::float_cmp,
        reason = "whole numbers of that size are exact"
    )]
    if (0.0..WHOLE_NUMBER_LIMIT).contains(&time) && whole as f64 == time && time.is_sign_positive()
    {
        number(text, whole);
        text.push_str(".0");
        return;
    }
    let mut buffer = [0_u8; 40];
    let mut rest = &mut buffer[..];
    if serde_json::to_writer(&mut rest, &time).is_ok() {
        let left = rest.len();
        let written = buffer.len() - left;
        text.push_str(std::str::from_utf8(&buffer[..written]).unwrap_or_default());
    } else {
        // No time is that long; the text is still a number.
        let _ = write!(text, "{time:?}");
    }
}

fn quoted(text: &mut String, part: &str) {
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if part.bytes().all(plain) {
        text.push('"');
        text.push_str(part);
        text.push('"');
    } else {
        text.push_str(&serde_json::to_string(part).unwrap_or_default());
    }
}
