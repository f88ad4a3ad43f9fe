//! Host lists put together from pieces of others.

use std::ops::Range;

use penstock_hostlist::Hostlist;

use crate::Error;

/// Appends `more` to `hosts`, or says that the list would become too long.
pub(crate) fn append(hosts: &mut Hostlist, more: &Hostlist) -> Result<(), Error> {
    hosts.append(more).map_err(|error| refused(&error))
}

/// What a host list refuses, an operation on a set refuses with the same words.
pub(crate) fn refused(error: &penstock_hostlist::Error) -> Error {
    Error::refused(error.to_string())
}

/// Collects consecutive slices of host lists; neighbouring slices of one list are copied at once.
pub(crate) struct HostsBuilder<'a> {
    hosts: Hostlist,
    pending: Option<(&'a Hostlist, Range<usize>)>,
}

impl<'a> HostsBuilder<'a> {
    pub(crate) fn new() -> Self {
        Self {
            hosts: Hostlist::new(),
            pending: None,
        }
    }

    /// Appends the hosts of `from` at the positions `range`.
    pub(crate) fn push(&mut self, from: &'a Hostlist, range: Range<usize>) -> Result<(), Error> {
        match &mut self.pending {
            Some((list, pending)) if std::ptr::eq(*list, from) && pending.end == range.start => {
                pending.end = range.end;
            }
            _ => {
                self.flush()?;
                self.pending = Some((from, range));
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        match self.pending.take() {
            Some((list, range)) if range == (0..list.len()) => append(&mut self.hosts, list),
            Some((list, range)) => append(&mut self.hosts, &list.slice(range)),
            None => Ok(()),
        }
    }

    pub(crate) fn finish(mut self) -> Result<Hostlist, Error> {
        self.flush()?;
        Ok(self.hosts)
    }
}
