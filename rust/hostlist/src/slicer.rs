//! Parts of a list, copied in turn.
use std::ops::Range;

use crate::Hostlist;
use crate::error::{Error, Limit};
use crate::list::reach;

/// Copies parts of a list to others. A part that begins soon after the start of the one before is not searched for in the
/// whole list.
///
/// ```
/// use penstock_hostlist::Hostlist;
///
/// let (even, odd): (Hostlist, Hostlist) = ("n[0,2,4]".parse()?, "n[1,3,5]".parse()?);
/// let (mut lower, mut higher) = (even.slicer(), odd.slicer());
/// let mut hosts = Hostlist::new();
/// for position in 0..3 {
///     lower.append_to(position..position + 1, &mut hosts)?;
///     higher.append_to(position..position + 1, &mut hosts)?;
/// }
/// assert_eq!(hosts.to_string(), "n[0-5]");
/// # Ok::<(), penstock_hostlist::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Slicer<'a> {
    list: &'a Hostlist,
    /// The position at which the last part began, and the index of the entry that has it.
    position: usize,
    entry: usize,
}

impl<'a> Slicer<'a> {
    pub(crate) fn new(list: &'a Hostlist) -> Self {
        Self {
            list,
            position: 0,
            entry: 0,
        }
    }

    /// Appends the hosts at these positions to a list; positions past the end are ignored.
    ///
    /// # Errors
    ///
    /// The list would become too long; it is unchanged.
    pub fn append_to(&mut self, range: Range<usize>, to: &mut Hostlist) -> Result<(), Error> {
        let range = range.start..range.end.min(self.list.len());
        if range.len() > Hostlist::MAX_LEN - to.len() {
            return Err(Error::limit(Limit::Hosts));
        }
        if self.list.has_suffixed() {
            return to.append(&self.list.slice(range));
        }
        self.copy(range, to);
        to.trim_stems();
        Ok(())
    }

    /// Appends the hosts at these positions to a list that is known to stay within the limits.
    pub(crate) fn copy(&mut self, range: Range<usize>, to: &mut Hostlist) {
        if range.start < self.position {
            self.entry = 0;
        }
        self.position = range.start;
        self.entry += reach(&self.list.entries[self.entry..], range.start);
        let runs = range.len().min(self.list.entries.len());
        let mut renumber = to.renumber(self.list, runs);
        self.list.copy_from(self.entry, range, to, &mut renumber);
    }
}

impl Hostlist {
    /// Returns the hosts at all of these positions, one range after the other; positions past the end are ignored. The
    /// ranges ascend and do not overlap.
    ///
    /// Cheaper than appending slices to each other.
    #[must_use]
    pub fn slices(&self, ranges: impl IntoIterator<Item = Range<usize>>) -> Self {
        let (mut parts, mut start) = (Self::new(), 0);
        let mut slicer = self.slicer();
        for range in ranges {
            // Overlapping ranges could make the list too long.
            let range = range.start.max(start)..range.end;
            start = start.max(range.end);
            slicer.copy(range, &mut parts);
        }
        parts.trim_stems();
        parts
    }

    /// Returns a copier of several parts to other lists.
    pub fn slicer(&self) -> Slicer<'_> {
        Slicer::new(self)
    }
}
