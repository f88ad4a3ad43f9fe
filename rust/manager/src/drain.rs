//! Looking back and waiting: `history.get`, `drain` and `idle`.

use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::info::Cancel;
use crate::manager::Manager;
use crate::rpc::{self, ECANCELED, EINVAL, ENOENT, RequestError};
use crate::watch::Quiet;

#[derive(Deserialize)]
struct Which {
    /// One queue; all where none is named.
    name: Option<String>,
}

#[derive(Deserialize)]
struct History {
    slice: String,
    userid: Option<u32>,
}

/// A Python slice of a list: `[start:stop:step]`, each part optional.
struct Slice {
    first: Option<i64>,
    end: Option<i64>,
    stride: i64,
}

impl Slice {
    fn parse(text: &str) -> Result<Self, RequestError> {
        let wrong = || {
            let text = format!("invalid slice `{text}`: expected `[start:stop:step]`");
            RequestError::new(EINVAL, text)
        };
        let inner = text.trim().strip_prefix('[');
        let inner = inner
            .and_then(|it| it.strip_suffix(']'))
            .ok_or_else(wrong)?;
        let parts = inner.split(':').map(|part| match part.trim() {
            "" => Ok(None),
            number => number.parse::<i64>().map(Some).map_err(|_| wrong()),
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        let (first, end, stride) = match *parts.as_slice() {
            [first, end] => (first, end, None),
            [first, end, stride] => (first, end, stride),
            // A place alone, as in a list: that one element.
            [Some(-1)] => (Some(-1), None, None),
            [Some(place)] => (Some(place), Some(place.saturating_add(1)), None),
            _ => return Err(wrong()),
        };
        match stride.unwrap_or(1) {
            0 => Err(wrong()),
            stride => Ok(Self { first, end, stride }),
        }
    }

    fn of(&self, items: &[u64]) -> Vec<u64> {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let (low, high) = if self.stride > 0 {
            (0, length)
        } else {
            (-1, length - 1)
        };
        let place = |given: Option<i64>, default: i64| {
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
            (place(self.first, low), place(self.end, high))
        } else {
            (place(self.first, high), place(self.end, low))
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

impl Manager {
    /// `job-manager.history.get`: a user's jobs, the newest first.
    pub(crate) fn history(&self, request: &Message) -> Result<Value, RequestError> {
        let history: History = rpc::payload(request)?;
        let slice = Slice::parse(&history.slice)?;
        let userid = history.userid.unwrap_or(request.userid);
        if userid != request.userid {
            self.owner_only(request)?;
        }
        let theirs = self.jobs.values().rev().filter(|job| job.userid == userid);
        // The usual question is for the newest ones: the others need not be looked at.
        let most = match (slice.first.unwrap_or(0), slice.end) {
            (0.., Some(end @ 0..)) if slice.stride > 0 => usize::try_from(end).ok(),
            _ => None,
        };
        let ids: Vec<u64> = theirs
            .take(most.unwrap_or(usize::MAX))
            .map(|job| job.id)
            .collect();
        Ok(json!({ "jobs": slice.of(&ids) }))
    }

    /// `job-manager.drain` (no active jobs) and `job-manager.idle` (no running ones): answered
    /// when it is so.
    pub(crate) fn wait_quiet(&mut self, request: &Message, running: bool) {
        match rpc::payload::<Which>(request) {
            Ok(Which { name: Some(name) }) if !self.settings.queues.contains_key(&name) => {
                let refusal = RequestError::new(ENOENT, format!("unknown queue `{name}`"));
                self.refuse(request, &refusal);
            }
            Ok(Which { name }) => {
                let quiet = Quiet {
                    queue: name,
                    running,
                };
                self.watchers.wait_quiet(request.clone(), quiet);
            }
            Err(refusal) => self.refuse(request, &refusal),
        }
    }

    /// `job-manager.drain-cancel` and `job-manager.idle-cancel`: the call that `matchtag` names, if
    /// it still waits, is answered with ECANCELED.
    pub(crate) fn quiet_cancel(&mut self, request: &Message) -> Result<Value, RequestError> {
        let cancel: Cancel = rpc::payload(request)?;
        let origin = rpc::origin(request);
        let ended = origin.and_then(|it| self.watchers.cancel_quiet(it, cancel.matchtag));
        if let Some(ended) = ended {
            self.refuse(&ended, &RequestError::new(ECANCELED, "cancelled"));
        }
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::Slice;

    #[test]
    fn slices_are_pythons() {
        let items = [10, 11, 12, 13, 14];
        let cases: [(&str, &[u64]); 12] = [
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
