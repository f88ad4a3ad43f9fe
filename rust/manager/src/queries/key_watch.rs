//! `KeyWatches`: `kvs-watch.lookup`, the values of a key as they change.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::errno::{EISDIR, EOPNOTSUPP};
use penstock_flux::kvs::{
    Dirent, LookupRequest, LookupResponse, WAITCREATE, WATCH, WATCH_APPEND, WATCH_FULL, WATCH_UNIQ,
};
use penstock_flux::{RequestError, StreamCancelRequest};
use penstock_wire::Message;

use super::tree;
use crate::authorize::PermittedKey;
use crate::context::Context;
use crate::rpc::{self, Handled, Reply, Request};

/// A request for the values of a key.
#[derive(Debug)]
struct KeyWatch {
    request: Message,
    key: String,
    flags: i64,
    /// The value that was sent last; `None` before the key exists.
    last: Option<Vec<u8>>,
}

impl KeyWatch {
    fn wants(&self, flag: i64) -> bool {
        self.flags & flag != 0
    }

    /// Sends the value after a commit if the request wants it. Returns whether the stream has ended.
    fn follow(&mut self, cx: &mut Context, written: &WrittenKeys) -> bool {
        let key = tree::resolve(cx, &self.key).ok();
        let change = key.and_then(|key| written.0.get(key.as_str()));
        let is_written = change.is_some();
        if !is_written && !self.wants(WATCH_FULL) {
            return false;
        }
        let value = match read(cx, &self.key) {
            Ok(Some(value)) => value,
            Ok(None) if self.last.is_none() => return false,
            Ok(None) => {
                cx.reject(&self.request, &RequestError::not_found(""));
                return true;
            }
            Err(error) => {
                cx.reject(&self.request, &error);
                return true;
            }
        };
        let is_same = self.last.as_ref() == Some(&value);
        let is_any_wanted = is_written && !self.wants(WATCH_UNIQ | WATCH_FULL);
        if is_same && !is_any_wanted {
            return false;
        }
        let appended = change.and_then(Option::as_deref);
        let appended = appended.filter(|_| self.wants(WATCH_APPEND));
        send(cx, &self.request, appended.unwrap_or(&value));
        self.last = Some(value);
        false
    }
}

/// The keys that a commit has written, with the bytes that were appended if it did nothing else to the key.
struct WrittenKeys<'a>(BTreeMap<&'a str, Option<Vec<u8>>>);

impl<'a> WrittenKeys<'a> {
    fn of(writes: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>) -> Self {
        let mut keys: BTreeMap<&str, Option<Vec<u8>>> = BTreeMap::new();
        for (key, appended) in writes {
            match keys.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(appended.map(<[u8]>::to_vec));
                }
                Entry::Occupied(mut entry) => match (entry.get_mut(), appended) {
                    (Some(before), Some(more)) => before.extend_from_slice(more),
                    (change, _) => *change = None,
                },
            }
        }
        Self(keys)
    }
}

fn send(cx: &mut Context, request: &Message, value: &[u8]) {
    let val = Dirent::val(BASE64.encode(value));
    cx.respond_with(request, &LookupResponse { val });
}

/// The value of a key; `None` if there is none.
fn read(cx: &Context, key: &str) -> Result<Option<Vec<u8>>, RequestError> {
    let key = tree::resolve(cx, key)?;
    let value = cx.read_store(|store| store.value(&key));
    if value.is_none() && tree::is_directory(cx, &key) {
        return Err(RequestError::new(EISDIR, "the key is a directory"));
    }
    Ok(value)
}

/// The open watches.
#[derive(Debug, Default)]
pub(crate) struct KeyWatches {
    open: Vec<KeyWatch>,
}

impl KeyWatches {
    /// `kvs-watch.lookup`: the value of a key, then each further one.
    pub(crate) fn watch(
        &mut self,
        cx: &mut Context,
        request: Request<'_>,
        key: PermittedKey,
    ) -> Handled {
        let LookupRequest { flags, .. } = request.payload()?;
        let known = WATCH | WAITCREATE | WATCH_FULL | WATCH_UNIQ | WATCH_APPEND;
        let PermittedKey::Site(key) = key else {
            let text = "kvs-watch.lookup of a job: watch its logs with job-info.eventlog-watch";
            return Err(RequestError::new(EOPNOTSUPP, text));
        };
        if flags & !known != 0 {
            let text = format!("kvs-watch.lookup: flags {flags}: expected those of a value");
            return Err(RequestError::new(EOPNOTSUPP, text));
        }
        let value = read(cx, &key)?;
        match &value {
            Some(value) => send(cx, request.message, value),
            None if flags & WAITCREATE != 0 => {}
            None => return Err(RequestError::not_found("")),
        }
        self.open.push(KeyWatch {
            request: request.message.header(),
            key,
            flags,
            last: value,
        });
        Ok(Reply::Deferred)
    }

    /// `kvs-watch.cancel`: ends a watch with ENODATA.
    pub(crate) fn cancel(&mut self, cx: &mut Context, request: Request<'_>) -> Handled {
        let cancel: StreamCancelRequest = request.payload()?;
        let is_named = |watch: &KeyWatch| {
            rpc::is_request_of(&watch.request, request.origin(), cancel.matchtag)
        };
        if let Some(index) = self.open.iter().position(is_named) {
            cx.end_stream(&self.open.remove(index).request);
        }
        Ok(Reply::Empty)
    }

    /// Sends values after a commit, by the keys that it has written and what it has appended to them if it has.
    pub(super) fn record_commit<'a>(
        &mut self,
        cx: &mut Context,
        writes: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>,
    ) {
        if self.open.is_empty() {
            return;
        }
        let written = WrittenKeys::of(writes);
        if !written.0.is_empty() {
            self.open.retain_mut(|watch| !watch.follow(cx, &written));
        }
    }

    /// The number of open watches.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Drops the watches of a peer that has disconnected.
    pub(crate) fn disconnect(&mut self, origin: &[u8]) {
        self.open
            .retain(|watch| watch.request.origin() != Some(origin));
    }
}
