//! `KeyWatches`: `kvs-watch.lookup`, the values of a key as they change.

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
    /// Whether the commit in progress has written the key.
    is_written: bool,
    /// The bytes that the commit in progress has appended, if it did nothing else and the request wants them.
    appended: Option<Vec<u8>>,
}

impl KeyWatch {
    fn wants(&self, flag: i64) -> bool {
        self.flags & flag != 0
    }

    /// Sends the value after a commit if the request wants it. Returns whether the stream has ended.
    fn follow(&mut self, cx: &mut Context) -> bool {
        let is_written = std::mem::take(&mut self.is_written);
        let appended = self.appended.take();
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
        send(cx, &self.request, appended.as_deref().unwrap_or(&value));
        self.last = Some(value);
        false
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
    if value.is_none() && tree::entries(cx, &key).is_some() {
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
            is_written: false,
            appended: None,
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

    /// Notes that a commit has written a key, and what it has appended if it has.
    pub(super) fn record_write(&mut self, cx: &Context, key: &str, appended: Option<&[u8]>) {
        for watch in &mut self.open {
            if tree::resolve(cx, &watch.key).is_ok_and(|watched| watched == key) {
                let is_first = !watch.is_written;
                watch.is_written = true;
                let wanted = appended.filter(|_| watch.flags & WATCH_APPEND != 0);
                watch.appended = match (wanted, watch.appended.take()) {
                    (Some(more), None) if is_first => Some(more.to_vec()),
                    (Some(more), Some(before)) => Some([before.as_slice(), more].concat()),
                    _ => None,
                };
            }
        }
    }

    /// Sends values after a commit.
    pub(super) fn record_commit(&mut self, cx: &mut Context) {
        self.open.retain_mut(|watch| !watch.follow(cx));
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
