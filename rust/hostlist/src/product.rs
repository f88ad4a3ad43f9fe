//! Names with several pairs of brackets: all combinations of their numbers.
use crate::Hostlist;
use crate::entry::Entry;
use crate::error::{Limit, MAX_PRODUCT_RANGES, MAX_SUFFIXED_HOSTS};
use crate::stem::{Number, Parts, push_number};
use crate::stems::Interner;

/// Bytes of a name that count as one range.
const NAME_BYTES_PER_RANGE: u64 = 128;

/// The remaining ranges and hosts that names with several brackets may use: it limits the memory of short texts.
#[derive(Debug)]
pub(crate) struct Budget {
    ranges: u64,
    suffixed: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            ranges: MAX_PRODUCT_RANGES,
            suffixed: MAX_SUFFIXED_HOSTS as u64,
        }
    }
}

impl Budget {
    /// Consumes the budget of `count` times as many ranges of long names. Returns false, and consumes nothing, if too
    /// little is left.
    pub(crate) fn take(&mut self, count: u64, ranges: u64, name_len: u64) -> bool {
        let taken = count
            .checked_mul(ranges)
            .and_then(|ranges| ranges.checked_mul(name_len.div_ceil(NAME_BYTES_PER_RANGE).max(1)));
        let left = taken.and_then(|taken| self.ranges.checked_sub(taken));
        self.ranges = left.unwrap_or(self.ranges);
        left.is_some()
    }

    /// Consumes the budget of hosts in brackets before a suffix with digits, in the same way.
    pub(crate) fn take_suffixed(&mut self, hosts: u64) -> bool {
        let left = self.suffixed.checked_sub(hosts);
        self.suffixed = left.unwrap_or(self.suffixed);
        left.is_some()
    }
}

/// Numbers in brackets: a single one, or a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// Its position in the text.
    pub(crate) at: usize,
    pub(crate) lo: Number,
    pub(crate) hi: u64,
}

impl Item {
    fn count(&self) -> u64 {
        (self.hi - self.lo.value).saturating_add(1)
    }
}

/// A pair of brackets and the text after it.
#[derive(Debug)]
struct Dimension {
    items: Vec<Item>,
    behind: String,
}

/// A name that is being read bracket by bracket.
#[derive(Debug)]
pub(crate) struct Product {
    prefix: String,
    dimensions: Vec<Dimension>,
}

impl Product {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            dimensions: Vec::new(),
        }
    }

    /// Adds a pair of brackets and the text after it; a single number is added as text without brackets.
    pub(crate) fn push(&mut self, items: Vec<Item>, behind: &str) {
        if let [Item { lo, hi, .. }] = items[..]
            && lo.value == hi
        {
            let text = self.end();
            push_number(text, hi, lo.len);
            text.push_str(behind);
            return;
        }
        let behind = behind.to_owned();
        self.dimensions.push(Dimension { items, behind });
    }

    fn end(&mut self) -> &mut String {
        match self.dimensions.last_mut() {
            Some(last) => &mut last.behind,
            None => &mut self.prefix,
        }
    }

    /// Appends the hosts, the rightmost number counting up first.
    pub(crate) fn append_to(
        &self,
        list: &mut Hostlist,
        interner: &mut Interner,
        budget: &mut Budget,
    ) -> Result<(), Limit> {
        let Some((inner, outer)) = self.dimensions.split_last() else {
            let entry = list.entry_for(&self.prefix, Some(interner));
            return list.append_entry(entry);
        };
        let counts = || {
            outer.iter().map(|dimension| {
                let counts = dimension.items.iter().map(Item::count);
                counts.fold(0, u64::saturating_add)
            })
        };
        let parts = counts().fold(1, u64::saturating_mul);
        if !budget.take(parts, inner.items.len() as u64, self.name_len()) {
            return Err(Limit::Product);
        }
        let mut name = self.prefix.clone();
        self.append_part(0, &mut name, &mut |name| {
            let parts = Parts {
                prefix: name,
                number: inner.items.first().map(|item| item.lo),
                suffix: &inner.behind,
            };
            let stem = interner.intern(&parts, &mut list.stems);
            for item in &inner.items {
                list.append_entry(Entry::range(stem, item.lo, item.hi)?)?;
            }
            Ok(())
        })
    }

    /// Calls a function with what stands in front of the last number, for each of the numbers there.
    fn append_part(
        &self,
        dimension: usize,
        name: &mut String,
        append: &mut impl FnMut(&str) -> Result<(), Limit>,
    ) -> Result<(), Limit> {
        if dimension + 1 == self.dimensions.len() {
            return append(name);
        }
        let Dimension { items, behind } = &self.dimensions[dimension];
        let start = name.len();
        for item in items {
            let width = item.lo.width();
            for value in item.lo.value..=item.hi {
                push_number(name, value, width);
                name.push_str(behind);
                self.append_part(dimension + 1, name, append)?;
                name.truncate(start);
            }
        }
        Ok(())
    }

    /// No name is longer than this.
    fn name_len(&self) -> u64 {
        let dimensions = self.dimensions.iter().map(|dimension| {
            let lens = dimension.items.iter().map(|item| item.lo.len.max(20));
            usize::from(lens.max().unwrap_or(0)) + dimension.behind.len()
        });
        (self.prefix.len() + dimensions.sum::<usize>()) as u64
    }
}
