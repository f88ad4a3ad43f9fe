//! The invalid submissions of a list, which reject all of it.

use penstock_flux::RequestError;
use penstock_idset::IdSet;

/// The greatest number of invalid submissions that are named. The list is not checked further then.
const MAX_NAMED: u64 = 100;

/// The greatest length of all reasons in the error.
const MAX_REASONS_BYTES: usize = 16 * 1024;

/// Invalid submissions by the reason.
#[derive(Debug, Default)]
pub(super) struct InvalidEntries {
    /// The error of the first one with this reason, and the positions of all of them in the list.
    by_reason: Vec<(RequestError, IdSet)>,
    count: u64,
}

impl InvalidEntries {
    /// Adds one, whose error text is cut already.
    pub(super) fn add(&mut self, position: u32, error: RequestError) {
        self.count += 1;
        let mut known = self.by_reason.iter_mut();
        if let Some((_, positions)) = known.find(|(other, _)| other.text == error.text) {
            positions.insert(position);
        } else {
            self.by_reason
                .push((error, std::iter::once(position).collect()));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= MAX_NAMED
    }

    /// The error that names them, with the errno of the first one. The submissions whose reasons go beyond
    /// [`MAX_REASONS_BYTES`] are only counted, and the submissions from position `unchecked` on were not checked.
    pub(super) fn error(&self, unchecked: Option<u32>) -> RequestError {
        let mut reasons = Vec::new();
        let (mut bytes, mut unnamed) = (0, 0);
        for (error, positions) in &self.by_reason {
            let reason = format!("jobs[{positions}]: {}", error.text);
            bytes += reason.len();
            if bytes <= MAX_REASONS_BYTES {
                reasons.push(reason);
            } else {
                unnamed += positions.len();
            }
        }
        if unnamed > 0 {
            reasons.push(format!("and {unnamed} more"));
        }
        if let Some(position) = unchecked {
            reasons.push(format!("jobs from {position} on were not checked"));
        }
        let text = format!("no job is submitted: {}", reasons.join("; "));
        match self.by_reason.first() {
            Some((first, _)) => RequestError::new(first.errnum, text),
            None => RequestError::invalid(text),
        }
    }
}
