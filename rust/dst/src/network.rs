//! Connections between the daemon and its peers: two streams of bytes each, which arrive in parts, late, or not at all.

use std::collections::{BTreeMap, VecDeque};

/// Bytes in one direction that the other end has not read, above which a socket takes no more.
const SOCKET_BYTES: usize = 64 << 10;

/// The number of a connection.
pub type LinkId = u32;

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The daemon's.
    Daemon,
    /// The peer's.
    Peer,
}

impl End {
    /// The other end.
    pub fn other(self) -> Self {
        match self {
            Self::Daemon => Self::Peer,
            Self::Peer => Self::Daemon,
        }
    }
}

/// One direction: the bytes under way to one end.
#[derive(Debug, Default)]
struct Direction {
    bytes: VecDeque<u8>,
    /// Whether the sender has closed its end: the end of the stream follows the bytes.
    is_ended: bool,
    /// Whether the receiver has closed its end.
    is_closed: bool,
}

/// The result of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Bytes.
    Data(Vec<u8>),
    /// The end of the stream.
    End,
}

/// All connections.
#[derive(Debug, Default)]
pub struct Network {
    links: BTreeMap<LinkId, [Direction; 2]>,
    last: LinkId,
}

fn index(to: End) -> usize {
    match to {
        End::Daemon => 0,
        End::Peer => 1,
    }
}

impl Network {
    /// Opens a connection.
    pub fn open(&mut self) -> LinkId {
        self.last += 1;
        self.links.insert(self.last, Default::default());
        self.last
    }

    fn direction(&mut self, link: LinkId, to: End) -> Option<&mut Direction> {
        self.links.get_mut(&link)?.get_mut(index(to))
    }

    /// Sends bytes to an end, as many as the socket takes. Returns their number.
    pub fn send(&mut self, link: LinkId, to: End, bytes: &[u8]) -> usize {
        let Some(direction) = self.direction(link, to) else {
            return bytes.len();
        };
        if direction.is_ended || direction.is_closed {
            return bytes.len();
        }
        let room = SOCKET_BYTES.saturating_sub(direction.bytes.len());
        let length = bytes.len().min(room);
        direction.bytes.extend(bytes.iter().take(length));
        length
    }

    /// Reads at most `most` bytes at an end; `None` if there is nothing to read.
    pub fn receive(&mut self, link: LinkId, at: End, most: usize) -> Option<Input> {
        let direction = self.direction(link, at)?;
        if direction.is_closed {
            return None;
        }
        if direction.bytes.is_empty() {
            return direction.is_ended.then_some(Input::End);
        }
        let length = direction.bytes.len().min(most);
        Some(Input::Data(direction.bytes.drain(..length).collect()))
    }

    /// Closes an end: it reads nothing more, and what it has sent still arrives.
    pub fn close(&mut self, link: LinkId, at: End) {
        if let Some(to_it) = self.direction(link, at) {
            to_it.is_closed = true;
            to_it.bytes.clear();
        }
        if let Some(from_it) = self.direction(link, at.other()) {
            from_it.is_ended = true;
        }
        let is_over = |link: &[Direction; 2]| link.iter().all(|direction| direction.is_closed);
        if self.links.get(&link).is_some_and(is_over) {
            self.links.remove(&link);
        }
    }

    /// Breaks a connection: of the bytes under way to each end, some at the end of the stream are lost.
    pub fn cut(&mut self, link: LinkId, kept_to_daemon: usize, kept_to_peer: usize) {
        for (to, kept) in [(End::Daemon, kept_to_daemon), (End::Peer, kept_to_peer)] {
            if let Some(direction) = self.direction(link, to) {
                let length = kept % (direction.bytes.len() + 1);
                direction.bytes.truncate(length);
                direction.is_ended = true;
            }
        }
    }

    /// The connections, in the order in which they were opened.
    pub fn links(&self) -> Vec<LinkId> {
        self.links.keys().copied().collect()
    }

    /// The ends that have something to read, in order.
    pub fn readable(&self) -> Vec<(LinkId, End)> {
        let mut readable = Vec::new();
        for (link, directions) in &self.links {
            for at in [End::Daemon, End::Peer] {
                let can_read = directions.get(index(at)).is_some_and(|direction| {
                    !direction.is_closed && (direction.is_ended || !direction.bytes.is_empty())
                });
                if can_read {
                    readable.push((*link, at));
                }
            }
        }
        readable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_before_a_close_arrives_and_then_the_end() {
        let mut network = Network::default();
        let link = network.open();
        assert_eq!(network.send(link, End::Peer, b"abc"), 3);
        network.close(link, End::Daemon);
        assert_eq!(
            network.receive(link, End::Peer, 2),
            Some(Input::Data(b"ab".to_vec()))
        );
        assert_eq!(
            network.receive(link, End::Peer, 2),
            Some(Input::Data(b"c".to_vec()))
        );
        assert_eq!(network.receive(link, End::Peer, 2), Some(Input::End));
        network.close(link, End::Peer);
        assert_eq!(network.readable(), []);
    }

    #[test]
    fn a_cut_keeps_a_prefix() {
        let mut network = Network::default();
        let link = network.open();
        network.send(link, End::Daemon, b"abcdef");
        network.cut(link, 2, 0);
        assert_eq!(
            network.receive(link, End::Daemon, 9),
            Some(Input::Data(b"ab".to_vec()))
        );
        assert_eq!(network.receive(link, End::Daemon, 9), Some(Input::End));
    }

    #[test]
    fn a_full_socket_takes_no_more() {
        let mut network = Network::default();
        let link = network.open();
        let sent = network.send(link, End::Peer, &vec![0; 2 * SOCKET_BYTES]);
        assert_eq!(sent, SOCKET_BYTES);
        assert_eq!(network.send(link, End::Peer, b"x"), 0);
    }
}
