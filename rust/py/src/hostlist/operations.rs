//! Binary operations of a `Hostlist`, all with one signature, and changes at scattered positions.
use penstock_hostlist::{Error, Hostlist};
use pyo3::prelude::*;

use super::list::MIN_DETACHED_SIZE;
use crate::errors::raised;
use crate::shared::detach_if;

pub(super) type Operation = fn(&Hostlist, &Hostlist) -> Result<Hostlist, Error>;

/// Infallible operations wrapped in `Ok`, for a uniform signature.
pub(super) const INTERSECTION: Operation = |left, right| Ok(left.intersection(right));
pub(super) const DIFFERENCE: Operation = |left, right| Ok(left.difference(right));

pub(super) const CONCATENATION: Operation = |left, right| {
    let mut list = left.clone();
    list.append(right)?;
    Ok(list)
};

pub(super) fn apply(
    py: Python<'_>,
    operation: Operation,
    left: &Hostlist,
    right: &Hostlist,
) -> PyResult<Hostlist> {
    let long = left.len().max(right.len()) > MIN_DETACHED_SIZE;
    detach_if(py, long, || operation(left, right)).map_err(raised)
}

/// A list that is put together from parts of another one and others.
pub(super) struct Parts<'a> {
    from: &'a Hostlist,
    done: usize,
    to: Hostlist,
}

impl<'a> Parts<'a> {
    pub(super) fn new(from: &'a Hostlist) -> Self {
        Self {
            from,
            done: 0,
            to: Hostlist::new(),
        }
    }

    /// Copies the hosts up to a position and replaces the host there by others.
    pub(super) fn replace(&mut self, position: usize, with: &Hostlist) -> Result<(), Error> {
        self.to.append(&self.from.slice(self.done..position))?;
        self.to.append(with)?;
        self.done = position + 1;
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<Hostlist, Error> {
        self.to
            .append(&self.from.slice(self.done..self.from.len()))?;
        Ok(self.to)
    }
}
