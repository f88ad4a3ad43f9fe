//! `job-manager.history.get`: a user's jobs, the newest first.

use penstock_flux::RequestError;
use penstock_flux::job_manager::{HistoryRequest, HistoryResponse};

use crate::authorize::PermittedUser;
use crate::context::Context;
use crate::rpc::{Handled, Reply, Request};
use penstock_jobspec::job_id::JobId;

/// The number of a user's newest jobs of which a slice is taken: lists show the others, in parts.
const MAX_HISTORY_JOBS: usize = 1000;

/// A Python slice of a list: `[start:stop:step]`, each part optional.
struct Slice {
    start: Option<i64>,
    stop: Option<i64>,
    stride: i64,
}

impl Slice {
    fn parse(text: &str) -> Result<Self, RequestError> {
        let wrong = || {
            let text = format!("invalid slice `{text}`: expected `[start:stop:step]`");
            RequestError::invalid(text)
        };
        let inner = text.trim().strip_prefix('[');
        let inner = inner
            .and_then(|rest| rest.strip_suffix(']'))
            .ok_or_else(wrong)?;
        let parts = inner.split(':').map(|part| match part.trim() {
            "" => Ok(None),
            number => number.parse::<i64>().map(Some).map_err(|_| wrong()),
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let (start, stop, stride) = match *parts.as_slice() {
            [start, stop] => (start, stop, None),
            [start, stop, stride] => (start, stop, stride),
            // One index, as in a list: that element.
            [Some(-1)] => (Some(-1), None, None),
            [Some(index)] => (Some(index), Some(index.saturating_add(1)), None),
            _ => return Err(wrong()),
        };
        match stride.unwrap_or(1) {
            0 => Err(wrong()),
            stride => Ok(Self {
                start,
                stop,
                stride,
            }),
        }
    }

    /// Whether the slice has elements at or after this position, or counts from the end.
    fn goes_beyond(&self, length: usize) -> bool {
        let is_beyond = |at: i64| usize::try_from(at).map_or(true, |at| at > length);
        let bounds = [self.start, self.stop].into_iter().flatten();
        bounds.into_iter().any(is_beyond) || (self.stride < 0 && self.start.is_none())
    }

    fn of<T: Copy>(&self, items: &[T]) -> Vec<T> {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let (low, high) = if self.stride > 0 {
            (0, length)
        } else {
            (-1, length - 1)
        };
        let clamp = |given: Option<i64>, default: i64| {
            given.map_or(default, |at| {
                let at = if at < 0 {
                    at.saturating_add(length)
                } else {
                    at
                };
                at.clamp(low, high)
            })
        };
        let (first, end) = if self.stride > 0 {
            (clamp(self.start, low), clamp(self.stop, high))
        } else {
            (clamp(self.start, high), clamp(self.stop, low))
        };
        let mut taken = Vec::new();
        let mut at = first;
        while (self.stride > 0 && at < end) || (self.stride < 0 && at > end) {
            taken.extend(usize::try_from(at).ok().and_then(|at| items.get(at)));
            at = at.saturating_add(self.stride);
        }
        taken
    }
}

/// `job-manager.history.get`.
pub(crate) fn history(cx: &Context, request: Request<'_>, user: &PermittedUser) -> Handled {
    let HistoryRequest { slice: given, .. } = request.payload()?;
    let slice = Slice::parse(&given)?;
    // The usual slice is of the newest: the others need not be looked at.
    let max = match (slice.start.unwrap_or(0), slice.stop) {
        (0.., Some(stop @ 0..)) if slice.stride > 0 => usize::try_from(stop).ok(),
        _ => None,
    };
    let max = max.unwrap_or(usize::MAX).min(MAX_HISTORY_JOBS + 1);
    let mut ids: Vec<JobId> = cx.read_store(|store| store.ids_of_user(user.userid(), max));
    if ids.len() > MAX_HISTORY_JOBS && slice.goes_beyond(MAX_HISTORY_JOBS) {
        let text = format!(
            "slice `{given}` goes beyond the {MAX_HISTORY_JOBS} newest jobs of user {}: lists show the others",
            user.userid()
        );
        return Err(RequestError::invalid(text));
    }
    ids.truncate(MAX_HISTORY_JOBS);
    let jobs = slice.of(&ids);
    Ok(Reply::of(&HistoryResponse { jobs }))
}

#[cfg(test)]
mod tests {
    use super::Slice;

    #[test]
    fn slices_are_pythons() {
        let items = [10, 11, 12, 13, 14];
        let cases: [(&str, &[u8]); 12] = [
            ("[:1]", &[10]),
            ("[:]", &items),
            ("[1:3]", &[11, 12]),
            ("[-2:]", &[13, 14]),
            ("[:-3]", &[10, 11]),
            ("[::2]", &[10, 12, 14]),
            ("[::-1]", &[14, 13, 12, 11, 10]),
            ("[3:0:-2]", &[13, 11]),
            ("[9:]", &[]),
            ("[:9]", &items),
            ("[1]", &[11]),
            ("[-1]", &[14]),
        ];
        for (text, expected) in cases {
            assert_eq!(Slice::parse(text).unwrap().of(&items), expected, "{text}");
        }
        for text in ["", "1:2", "[", "[a:]", "[::0]", "[1:2:3:4]", "[]"] {
            assert!(Slice::parse(text).is_err(), "{text}");
        }
    }
}
