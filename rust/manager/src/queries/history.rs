//! `HistoryRequests`: `job-manager.history.get`, a user's jobs, the newest first.
//!
//! The few jobs of a user among millions of others are searched in slices.

use std::collections::VecDeque;

use penstock_flux::job_manager::{HistoryRequest, HistoryResponse};
use penstock_flux::{RequestError, errno};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use crate::authorize::PermittedUser;
use crate::context::Context;
use crate::rpc::{Handled, Reply, Request};

/// The number of a user's newest jobs of which a slice is taken: lists show the others, in parts.
const MAX_HISTORY_JOBS: usize = 1000;
/// The number of jobs that are looked at in one slice: a millisecond's work.
const JOBS_PER_SLICE: usize = if cfg!(debug_assertions) { 50 } else { 20_000 };
/// The greatest number of open requests of a guest.
const MAX_OPEN_OF_GUEST: usize = 4;

/// A Python slice of a list: `[start:stop:step]`, each part optional.
#[derive(Debug)]
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

    /// Whether the slice names a position at or after this one, or counts from the end. An open end names none.
    fn goes_beyond(&self, length: usize) -> bool {
        let is_beyond = |at: i64| usize::try_from(at).map_or(true, |at| at >= length);
        // An ascending slice ends before its stop.
        let end = self.stop.map(|stop| match self.stride {
            1.. if stop > 0 => stop - 1,
            _ => stop,
        });
        [self.start, end].into_iter().flatten().any(is_beyond)
    }

    /// The number of items at the start of a list that determine the slice, if it is not all of them.
    fn prefix(&self) -> Option<usize> {
        match (self.start.unwrap_or(0), self.stop) {
            (0.., Some(stop @ 0..)) if self.stride > 0 => usize::try_from(stop).ok(),
            _ => None,
        }
    }

    /// The number of first items of which [`of_at_most`](Self::of_at_most) is the slice.
    fn needed(&self, max: usize) -> usize {
        if self.goes_beyond(max) {
            max + 1
        } else {
            self.prefix().unwrap_or(max).min(max)
        }
    }

    /// The slice of the first `max` items; `None` if there are more and it goes beyond these.
    fn of_at_most<T: Copy>(&self, max: usize, items: &[T]) -> Option<Vec<T>> {
        if self.goes_beyond(max) && items.len() > max {
            return None;
        }
        Some(self.of(items.get(..max).unwrap_or(items)))
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

/// An open request.
#[derive(Debug)]
struct OpenHistory {
    request: Message,
    /// The user whose jobs are meant.
    userid: u32,
    slice: Slice,
    /// The text of the slice.
    given: String,
    /// The newest jobs of the user so far.
    found: Vec<JobId>,
    /// The oldest job that was looked at.
    before: Option<JobId>,
}

impl OpenHistory {
    /// Looks at the next jobs. Returns whether the slice of the user's jobs is known.
    fn search(&mut self, cx: &Context) -> bool {
        let needed = self.slice.needed(MAX_HISTORY_JOBS);
        let missing = needed.saturating_sub(self.found.len());
        let (userid, before) = (self.userid, self.before);
        let (ids, oldest) =
            cx.read_store(|store| store.ids_of_user(userid, before, JOBS_PER_SLICE, missing));
        self.found.extend(ids);
        self.before = oldest;
        self.found.len() >= needed || oldest.is_none()
    }

    fn response(&self) -> Result<HistoryResponse, RequestError> {
        let jobs = self.slice.of_at_most(MAX_HISTORY_JOBS, &self.found);
        let jobs = jobs.ok_or_else(|| {
            let text = format!(
                "slice `{}` goes beyond the {MAX_HISTORY_JOBS} newest jobs of user {}: lists show the others",
                self.given, self.userid
            );
            RequestError::invalid(text)
        })?;
        Ok(HistoryResponse { jobs })
    }
}

/// The open requests.
#[derive(Debug, Default)]
pub(crate) struct HistoryRequests {
    open: VecDeque<OpenHistory>,
}

impl HistoryRequests {
    /// `job-manager.history.get`: answers at once if the user has jobs among the newest ones.
    pub(crate) fn get(
        &mut self,
        cx: &Context,
        request: Request<'_>,
        user: &PermittedUser,
    ) -> Handled {
        let HistoryRequest { slice, .. } = request.payload()?;
        let mut open = OpenHistory {
            request: request.message.header(),
            userid: user.userid(),
            slice: Slice::parse(&slice)?,
            given: slice.0.into_owned(),
            found: Vec::new(),
            before: None,
        };
        if open.search(cx) {
            return Ok(Reply::of(&open.response()?));
        }
        let sender = request.sender;
        let of_sender = |open: &&OpenHistory| open.request.userid == sender.userid;
        if !sender.is_owner() && self.open.iter().filter(of_sender).count() >= MAX_OPEN_OF_GUEST {
            let text = format!(
                "{MAX_OPEN_OF_GUEST} requests of the user are open: expected another one after their responses"
            );
            return Err(RequestError::new(errno::EAGAIN, text));
        }
        if !request.message.is_noresponse() {
            self.open.push_back(open);
        }
        Ok(Reply::Deferred)
    }

    /// Does a slice of the request that has waited longest.
    pub(crate) fn run_next_slice(&mut self, cx: &mut Context) {
        let Some(mut open) = self.open.pop_front() else {
            return;
        };
        if !open.search(cx) {
            self.open.push_back(open);
            return;
        }
        match open.response() {
            Ok(response) => cx.respond_with(&open.request, &response),
            Err(error) => cx.reject(&open.request, &error),
        }
    }

    /// Whether a request is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Drops the requests of a peer that has disconnected.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        self.open
            .retain(|open| open.request.origin() != Some(origin));
    }
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

    /// The model of a slice: Python's definition by the positions that it walks through.
    fn sliced(items: &[i64], (start, stop, stride): (Option<i64>, Option<i64>, i64)) -> Vec<i64> {
        let length = i64::try_from(items.len()).unwrap();
        let from_start = |at: i64| if at < 0 { at + length } else { at };
        let (start, stop) = (start.map(from_start), stop.map(from_start));
        let mut positions: Vec<i64> = (0..length).collect();
        if stride < 0 {
            positions.reverse();
        }
        // Ascending: from `start`, before `stop`. Descending: the mirror image.
        let sign = stride.signum();
        positions.retain(|at| {
            start.is_none_or(|start| at * sign >= start * sign)
                && stop.is_none_or(|stop| at * sign < stop * sign)
        });
        let distance = usize::try_from(stride.abs()).unwrap();
        let taken = positions.into_iter().step_by(distance);
        taken
            .map(|at| items[usize::try_from(at).unwrap()])
            .collect()
    }

    #[test]
    fn a_slice_of_the_first_items_is_pythons_or_names_a_position_beyond_them() {
        const MAX: usize = 4;
        let bounds = || std::iter::once(None).chain((-9..=9).map(Some));
        let text = |bound: Option<i64>| bound.map_or(String::new(), |at| at.to_string());
        let (mut beyond, mut within) = (0, 0);
        for length in 0..=7 {
            let items: Vec<i64> = (100..100 + length).collect();
            let first = &items[..MAX.min(items.len())];
            for (start, stop) in bounds().flat_map(|at| bounds().map(move |stop| (at, stop))) {
                for stride in [-3, -2, -1, 1, 2, 3] {
                    let given = format!("[{}:{}:{stride}]", text(start), text(stop));
                    let slice = Slice::parse(&given).unwrap();
                    let needed = slice.needed(MAX).min(items.len());
                    let found = slice.of_at_most(MAX, &items[..needed]);
                    let names_beyond =
                        |at: Option<i64>, last: i64| at.is_some_and(|at| !(0..=last).contains(&at));
                    let greatest_stop = if stride > 0 { 4 } else { 3 };
                    let is_beyond = names_beyond(start, 3) || names_beyond(stop, greatest_stop);
                    let expected = if items.len() > MAX && is_beyond {
                        beyond += 1;
                        None
                    } else {
                        within += 1;
                        Some(sliced(first, (start, stop, stride)))
                    };
                    assert_eq!(found, expected, "{given} of {length}");
                }
            }
        }
        assert!(beyond > 1000 && within > 1000);
    }
}
