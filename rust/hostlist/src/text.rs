//! Writing the text form of RFC 29.
use std::fmt;

use crate::Hostlist;
use crate::entry::Entry;
use crate::stem::{digits, push_number};

/// How entries in one pair of brackets are written: by the zeroes that the first of them shows.
#[derive(Clone, Copy)]
struct Width(Option<u8>);

impl Width {
    fn of(entry: &Entry) -> Self {
        Self((entry.width > 1).then_some(entry.width))
    }

    /// Whether an entry reads the same behind that first one.
    fn suits(self, entry: &Entry) -> bool {
        match (self.0, entry.width > 1) {
            (Some(width), true) => entry.width == width,
            (Some(width), false) => digits(entry.lo) >= width,
            (None, zeroes) => !zeroes,
        }
    }
}

impl Hostlist {
    /// How many entries from the first on can share its brackets.
    fn group(entries: &[Entry]) -> usize {
        let Some((first, rest)) = entries.split_first() else {
            return 0;
        };
        if !first.stem.is_numbered() {
            return 1;
        }
        let width = Width::of(first);
        let more = rest
            .iter()
            .take_while(|entry| first.same_stem(entry) && width.suits(entry));
        1 + more.count()
    }

    fn write(&self, text: &mut String) {
        let mut entries = &self.entries[..];
        while let Some(first) = entries.first() {
            let (group, rest) = entries.split_at(Self::group(entries));
            entries = rest;
            if !text.is_empty() {
                text.push(',');
            }
            if group.len() == 1 && first.lo == first.hi {
                first.write(text, 0);
                continue;
            }
            text.push_str(first.stem.prefix());
            for (index, entry) in group.iter().enumerate() {
                text.push(if index == 0 { '[' } else { ',' });
                push_number(text, entry.lo, entry.width);
                if entry.lo < entry.hi {
                    text.push('-');
                    push_number(text, entry.hi, entry.width);
                }
            }
            text.push(']');
            text.push_str(first.stem.suffix());
        }
    }
}

impl fmt::Display for Hostlist {
    /// The text of RFC 29: order and repeats kept, hosts that follow each other folded where that reads back the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.pad(&text)
    }
}
