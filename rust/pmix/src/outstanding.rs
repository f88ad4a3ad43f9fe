use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use penstock_flux::Matchtags;

/// Bytes of requests that are held while there is no connection.
const MAX_HELD_BYTES: usize = 16 << 20;

/// The reaction to the loss of the connection before the response to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfLost {
    /// It fails: it may have been carried out.
    Fail,
    /// It is sent again: it changes nothing.
    Repeat,
}

/// The requests without a response, each under a matchtag of its own, over successive connections.
///
/// A request is moved in and moved out, so that it is answered exactly once.
#[derive(Debug)]
pub struct Outstanding<T> {
    requests: BTreeMap<u32, Entry<T>>,
    matchtags: Matchtags,
    sequence: u64,
    is_connected: bool,
    held_bytes: usize,
    /// The requests to send again on this connection.
    delayed: BTreeSet<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    request: T,
    /// The requests in the order of their arrival.
    sequence: u64,
    if_lost: IfLost,
    /// The frame, if it may have to be sent on a later connection.
    frame: Option<Vec<u8>>,
}

impl<T> Default for Outstanding<T> {
    fn default() -> Self {
        Self {
            requests: BTreeMap::new(),
            matchtags: Matchtags::default(),
            sequence: 0,
            is_connected: false,
            held_bytes: 0,
            delayed: BTreeSet::new(),
        }
    }
}

impl<T> Outstanding<T> {
    /// Allots the matchtag of a new request: never 0, nor that of another one.
    pub fn allot(&mut self) -> u32 {
        self.matchtags.allot()
    }

    /// Releases the matchtag of a request that is not added.
    pub fn release(&mut self, tag: u32) {
        self.matchtags.release(tag);
    }

    /// Adds a request under its matchtag. Returns the frame if it is to be sent now; otherwise it is held for the next
    /// connection.
    ///
    /// # Errors
    ///
    /// If too much is held, the request is returned.
    pub fn insert(
        &mut self,
        tag: u32,
        request: T,
        frame: Vec<u8>,
        if_lost: IfLost,
    ) -> Result<Option<Vec<u8>>, T> {
        if !self.is_connected && self.held_bytes.saturating_add(frame.len()) > MAX_HELD_BYTES {
            self.matchtags.release(tag);
            return Err(request);
        }
        let (frame, sent) = match (self.is_connected, if_lost) {
            (true, IfLost::Fail) => (None, Some(frame)),
            (true, IfLost::Repeat) => (Some(frame.clone()), Some(frame)),
            (false, _) => (Some(frame), None),
        };
        self.held_bytes += frame.as_ref().map_or(0, Vec::len);
        self.sequence += 1;
        let entry = Entry {
            request,
            sequence: self.sequence,
            if_lost,
            frame,
        };
        self.requests.insert(tag, entry);
        Ok(sent)
    }

    /// Removes the request with this matchtag.
    pub fn remove(&mut self, tag: u32) -> Option<T> {
        self.matchtags.release(tag);
        self.delayed.remove(&tag);
        let entry = self.requests.remove(&tag)?;
        self.held_bytes -= entry.frame.as_ref().map_or(0, Vec::len);
        Some(entry.request)
    }

    /// Begins a connection. Returns the frames to send, in the order of their requests.
    pub fn connect(&mut self) -> Vec<Vec<u8>> {
        self.is_connected = true;
        // They are sent with the others.
        self.delayed.clear();
        let mut frames = BTreeMap::new();
        for entry in self.requests.values_mut() {
            let frame = match entry.if_lost {
                IfLost::Repeat => entry.frame.clone(),
                IfLost::Fail => entry.frame.take(),
            };
            if let Some(frame) = frame {
                if entry.frame.is_none() {
                    self.held_bytes -= frame.len();
                }
                frames.insert(entry.sequence, frame);
            }
        }
        frames.into_values().collect()
    }

    /// Keeps a request whose response was a temporary error, to be sent again. Returns false for a request that must not be
    /// repeated.
    pub fn delay(&mut self, tag: u32) -> bool {
        let entry = self.requests.get(&tag);
        let repeats = entry.is_some_and(|entry| entry.if_lost == IfLost::Repeat);
        if repeats {
            self.delayed.insert(tag);
        }
        repeats
    }

    /// Returns the frames of the delayed requests, which are to be sent now.
    pub fn take_delayed(&mut self) -> Vec<Vec<u8>> {
        let tags = mem::take(&mut self.delayed);
        let entries = tags.iter().filter_map(|tag| self.requests.get(tag));
        entries.filter_map(|entry| entry.frame.clone()).collect()
    }

    /// Ends the connection, and removes the requests that fail with it.
    pub fn disconnect(&mut self) -> Vec<T> {
        if !mem::replace(&mut self.is_connected, false) {
            return Vec::new();
        }
        let is_lost = |entry: &Entry<T>| entry.if_lost == IfLost::Fail;
        let lost = self.requests.iter().filter(|(_, entry)| is_lost(entry));
        let lost: Vec<_> = lost.map(|(tag, _)| *tag).collect();
        lost.into_iter()
            .filter_map(|tag| self.remove(tag))
            .collect()
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert(IfLost),
        Remove(usize),
        Connect,
        Disconnect,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => Just(Step::Insert(IfLost::Fail)),
            5 => Just(Step::Insert(IfLost::Repeat)),
            8 => any::<usize>().prop_map(Step::Remove),
            2 => Just(Step::Connect),
            2 => Just(Step::Disconnect),
        ]
    }

    /// A request of the model.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Request {
        number: u8,
        tag: u32,
        if_lost: IfLost,
        is_sent: bool,
    }

    proptest! {
        /// Every request is sent in order, on each connection if it may be repeated and else on one, and is removed once.
        #[test]
        fn requests_outlive_connections(steps in prop::collection::vec(step(), 0..60)) {
            let mut outstanding = Outstanding::default();
            let mut model = Vec::<Request>::new();
            let mut number = 0;
            for step in steps {
                match step {
                    Step::Insert(if_lost) => {
                        number += 1;
                        let tag = outstanding.allot();
                        let sent = outstanding.insert(tag, number, vec![number], if_lost);
                        let is_sent = outstanding.is_connected();
                        prop_assert_eq!(sent, Ok(is_sent.then(|| vec![number])));
                        model.push(Request { number, tag, if_lost, is_sent });
                    }
                    Step::Remove(index) if !model.is_empty() => {
                        let request = model.remove(index % model.len());
                        prop_assert_eq!(outstanding.remove(request.tag), Some(request.number));
                        prop_assert_eq!(outstanding.remove(request.tag), None);
                    }
                    Step::Connect if !outstanding.is_connected() => {
                        let due = model.iter().filter(|request| !request.is_sent);
                        let due: Vec<_> = due.map(|request| vec![request.number]).collect();
                        prop_assert_eq!(outstanding.connect(), due);
                        for request in &mut model {
                            request.is_sent = true;
                        }
                    }
                    Step::Disconnect if outstanding.is_connected() => {
                        let is_lost = |request: &Request| request.if_lost == IfLost::Fail;
                        let lost = model.iter().filter(|request| is_lost(request));
                        let lost: Vec<_> = lost.map(|request| request.number).collect();
                        prop_assert_eq!(outstanding.disconnect(), lost);
                        model.retain(|request| !is_lost(request));
                        for request in &mut model {
                            request.is_sent = false;
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(outstanding.len(), model.len());
            }
        }
    }

    #[test]
    fn requests_without_a_connection_are_held_up_to_a_limit() {
        let mut outstanding = Outstanding::default();
        let half = || vec![0; MAX_HELD_BYTES / 2];
        for _ in 0..3 {
            for request in [1, 2] {
                let tag = outstanding.allot();
                let held = outstanding.insert(tag, request, half(), IfLost::Fail);
                assert_eq!(held, Ok(None));
            }
            let tag = outstanding.allot();
            let rejected = outstanding.insert(tag, 3, vec![0], IfLost::Repeat);
            assert_eq!(rejected, Err(3));
            assert_eq!(outstanding.connect().len(), 2);
            let tag = outstanding.allot();
            let sent = outstanding.insert(tag, 4, half(), IfLost::Repeat);
            assert_eq!(sent, Ok(Some(half())));
            assert_eq!(outstanding.disconnect(), [1, 2]);
            assert_eq!(outstanding.remove(tag), Some(4));
        }
    }

    #[test]
    fn only_requests_that_may_be_repeated_are_delayed() {
        let mut outstanding = Outstanding::default();
        outstanding.connect();
        let mut insert = |request, if_lost| {
            let tag = outstanding.allot();
            let sent = outstanding.insert(tag, request, vec![request], if_lost);
            assert_eq!(sent, Ok(Some(vec![request])));
            tag
        };
        let tags = [
            insert(1, IfLost::Fail),
            insert(2, IfLost::Repeat),
            insert(3, IfLost::Repeat),
        ];
        let delayed = tags.map(|tag| outstanding.delay(tag));
        assert_eq!(delayed, [false, true, true]);
        assert_eq!(outstanding.remove(tags[2]), Some(3));
        assert!(!outstanding.delay(tags[2]));
        assert_eq!(outstanding.take_delayed(), [[2]]);
        assert_eq!(outstanding.take_delayed(), [[0; 0]; 0]);
        // A new connection begins with all requests that may be repeated.
        assert!(outstanding.delay(tags[1]));
        assert_eq!(outstanding.disconnect(), [1]);
        assert_eq!(outstanding.connect(), [[2]]);
        assert_eq!(outstanding.take_delayed(), [[0; 0]; 0]);
    }

    #[test]
    fn a_connection_that_has_not_begun_is_not_lost() {
        let mut outstanding = Outstanding::default();
        let tag = outstanding.allot();
        assert_eq!(outstanding.insert(tag, 1, vec![1], IfLost::Fail), Ok(None));
        assert_eq!(outstanding.disconnect(), [0; 0]);
        assert_eq!(outstanding.connect(), [[1]]);
    }
}
