use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use penstock_flux::Matchtags;

/// Bytes of requests that are held while there is no connection.
const MAX_HELD_BYTES: usize = 16 << 20;

/// The reaction to the loss of the connection between the write of a request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfLost {
    /// It fails: it may have been carried out.
    Fail,
    /// It is sent again: it changes nothing.
    Repeat,
}

/// The requests without a response, each under a matchtag of its own, over successive connections.
///
/// A request is moved in and moved out, so that it is answered exactly once. Its frame stays here until it is written: a
/// request that no connection has taken whole was not carried out, and is held for the next one.
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
    /// The frame, unless it is written and must not be written again.
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

    /// Adds a request under its matchtag. Returns whether its frame is to be written now; otherwise it is held for the
    /// next connection.
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
    ) -> Result<bool, T> {
        if !self.is_connected && self.held_bytes.saturating_add(frame.len()) > MAX_HELD_BYTES {
            self.matchtags.release(tag);
            return Err(request);
        }
        self.held_bytes += frame.len();
        self.sequence += 1;
        let entry = Entry {
            request,
            sequence: self.sequence,
            if_lost,
            frame: Some(frame),
        };
        self.requests.insert(tag, entry);
        Ok(self.is_connected)
    }

    /// Begins to write a request. Returns its frame; `None` if the request has been removed.
    pub fn begin_write(&mut self, tag: u32) -> Option<Vec<u8>> {
        let entry = self.requests.get_mut(&tag)?;
        match entry.if_lost {
            IfLost::Repeat => entry.frame.clone(),
            IfLost::Fail => {
                let frame = entry.frame.take()?;
                self.held_bytes -= frame.len();
                Some(frame)
            }
        }
    }

    /// Holds a request for the next connection: this one has not taken its whole frame.
    pub fn undo_write(&mut self, tag: u32, frame: Vec<u8>) {
        if let Some(entry) = self.requests.get_mut(&tag)
            && entry.frame.is_none()
        {
            self.held_bytes += frame.len();
            entry.frame = Some(frame);
        }
    }

    /// Removes the request with this matchtag.
    pub fn remove(&mut self, tag: u32) -> Option<T> {
        self.matchtags.release(tag);
        self.delayed.remove(&tag);
        let entry = self.requests.remove(&tag)?;
        self.held_bytes -= entry.frame.as_ref().map_or(0, Vec::len);
        Some(entry.request)
    }

    /// Begins a connection. Returns the matchtags of the requests to write, in the order of their arrival.
    pub fn connect(&mut self) -> Vec<u32> {
        self.is_connected = true;
        // They are written with the others.
        self.delayed.clear();
        let held = self.requests.iter();
        let held = held.filter(|(_, entry)| entry.frame.is_some());
        let held: BTreeMap<u64, u32> = held.map(|(tag, entry)| (entry.sequence, *tag)).collect();
        held.into_values().collect()
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

    /// Returns the matchtags of the delayed requests, which are to be written now.
    pub fn take_delayed(&mut self) -> BTreeSet<u32> {
        mem::take(&mut self.delayed)
    }

    /// Ends the connection, and removes the requests that fail with it: those that were written, once each write has ended.
    pub fn disconnect(&mut self) -> Vec<T> {
        if !mem::replace(&mut self.is_connected, false) {
            return Vec::new();
        }
        let lost = self.requests.iter();
        let lost = lost.filter(|(_, entry)| entry.frame.is_none());
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
        /// Writes a request, whole or in part.
        Write(usize, bool),
        Remove(usize),
        Connect,
        Disconnect,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            5 => Just(Step::Insert(IfLost::Fail)),
            5 => Just(Step::Insert(IfLost::Repeat)),
            8 => any::<(usize, bool)>().prop_map(|(index, is_whole)| Step::Write(index, is_whole)),
            6 => any::<usize>().prop_map(Step::Remove),
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
        is_written: bool,
    }

    impl Request {
        fn has_frame(self) -> bool {
            self.if_lost == IfLost::Repeat || !self.is_written
        }
    }

    proptest! {
        /// Every request is written in order, on each connection if it may be repeated and else until one has taken it, and
        /// is removed once.
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
                        let is_due = outstanding.insert(tag, number, vec![number], if_lost);
                        prop_assert_eq!(is_due, Ok(outstanding.is_connected()));
                        model.push(Request { number, tag, if_lost, is_written: false });
                    }
                    Step::Write(index, is_whole) if !model.is_empty() && outstanding.is_connected() => {
                        let index = index % model.len();
                        let request = &mut model[index];
                        let frame = outstanding.begin_write(request.tag);
                        prop_assert_eq!(&frame, &request.has_frame().then(|| vec![request.number]));
                        if is_whole {
                            request.is_written = true;
                        } else if let Some(frame) = frame {
                            outstanding.undo_write(request.tag, frame);
                        }
                    }
                    Step::Remove(index) if !model.is_empty() => {
                        let request = model.remove(index % model.len());
                        prop_assert_eq!(outstanding.remove(request.tag), Some(request.number));
                        prop_assert_eq!(outstanding.remove(request.tag), None);
                        prop_assert_eq!(outstanding.begin_write(request.tag), None);
                    }
                    Step::Connect if !outstanding.is_connected() => {
                        let due: Vec<_> = model.iter().map(|request| request.tag).collect();
                        prop_assert_eq!(outstanding.connect(), due);
                    }
                    Step::Disconnect if outstanding.is_connected() => {
                        let is_lost = |request: &Request| !request.has_frame();
                        let lost = model.iter().filter(|request| is_lost(request));
                        let lost: Vec<_> = lost.map(|request| request.number).collect();
                        prop_assert_eq!(outstanding.disconnect(), lost);
                        model.retain(|request| !is_lost(request));
                    }
                    _ => {}
                }
                prop_assert_eq!(outstanding.len(), model.len());
                let held = model.iter().filter(|request| request.has_frame()).count();
                prop_assert_eq!(outstanding.held_bytes, held);
            }
        }
    }

    /// Adds a request of one byte.
    fn insert(outstanding: &mut Outstanding<u8>, request: u8, if_lost: IfLost) -> u32 {
        let tag = outstanding.allot();
        let is_due = outstanding.insert(tag, request, vec![request], if_lost);
        assert_eq!(is_due, Ok(outstanding.is_connected()));
        tag
    }

    #[test]
    fn a_request_that_the_lost_connection_has_not_taken_is_held() {
        let mut outstanding = Outstanding::default();
        outstanding.connect();
        let [written, cut, queued] =
            [1, 2, 3].map(|request| insert(&mut outstanding, request, IfLost::Fail));
        assert_eq!(outstanding.begin_write(written), Some(vec![1]));
        // The other end has gone, which its reader does not know yet: the write fails.
        let frame = outstanding.begin_write(cut).unwrap();
        outstanding.undo_write(cut, frame);
        assert_eq!(outstanding.disconnect(), [1]);
        assert_eq!(outstanding.connect(), [cut, queued]);
        assert_eq!(outstanding.begin_write(cut), Some(vec![2]));
        assert_eq!(outstanding.disconnect(), [2]);
        assert_eq!(outstanding.connect(), [queued]);
    }

    #[test]
    fn requests_without_a_connection_are_held_up_to_a_limit() {
        let mut outstanding = Outstanding::default();
        let half = || vec![0; MAX_HELD_BYTES / 2];
        for _ in 0..3 {
            for request in [1, 2] {
                let tag = outstanding.allot();
                let is_due = outstanding.insert(tag, request, half(), IfLost::Fail);
                assert_eq!(is_due, Ok(false));
            }
            let tag = outstanding.allot();
            let rejected = outstanding.insert(tag, 3, vec![0], IfLost::Repeat);
            assert_eq!(rejected, Err(3));
            let due = outstanding.connect();
            assert_eq!(due.len(), 2);
            for tag in due {
                assert_eq!(outstanding.begin_write(tag), Some(half()));
            }
            let tag = outstanding.allot();
            let is_due = outstanding.insert(tag, 4, half(), IfLost::Repeat);
            assert_eq!(is_due, Ok(true));
            assert_eq!(outstanding.disconnect(), [1, 2]);
            assert_eq!(outstanding.remove(tag), Some(4));
        }
    }

    #[test]
    fn only_requests_that_may_be_repeated_are_delayed() {
        let mut outstanding = Outstanding::default();
        outstanding.connect();
        let tags = [
            insert(&mut outstanding, 1, IfLost::Fail),
            insert(&mut outstanding, 2, IfLost::Repeat),
            insert(&mut outstanding, 3, IfLost::Repeat),
        ];
        for (tag, request) in tags.into_iter().zip([1, 2, 3]) {
            assert_eq!(outstanding.begin_write(tag), Some(vec![request]));
        }
        let delayed = tags.map(|tag| outstanding.delay(tag));
        assert_eq!(delayed, [false, true, true]);
        assert_eq!(outstanding.remove(tags[2]), Some(3));
        assert!(!outstanding.delay(tags[2]));
        assert_eq!(outstanding.take_delayed(), [tags[1]].into());
        assert_eq!(outstanding.take_delayed(), [].into());
        assert_eq!(outstanding.begin_write(tags[1]), Some(vec![2]));
        // A new connection begins with all requests that may be repeated.
        assert!(outstanding.delay(tags[1]));
        assert_eq!(outstanding.disconnect(), [1]);
        assert_eq!(outstanding.connect(), [tags[1]]);
        assert_eq!(outstanding.take_delayed(), [].into());
    }

    #[test]
    fn a_connection_that_has_not_begun_is_not_lost() {
        let mut outstanding = Outstanding::default();
        let tag = insert(&mut outstanding, 1, IfLost::Fail);
        assert_eq!(outstanding.disconnect(), [0; 0]);
        assert_eq!(outstanding.connect(), [tag]);
    }
}
