//! `Rotation`: open requests by peer. The peers have their turns in rotation, each with its requests in their order: a peer
//! with many requests does not delay the others.

use std::collections::VecDeque;

/// A peer's open requests, in their order.
#[derive(Debug)]
struct OfPeer<T> {
    /// The first hop of the requests' routes; `None` for the instance's own.
    origin: Option<Vec<u8>>,
    requests: VecDeque<T>,
}

/// The open requests by peer, the peer whose turn is next first.
#[derive(Debug)]
pub(crate) struct Rotation<T> {
    peers: VecDeque<OfPeer<T>>,
}

impl<T> Default for Rotation<T> {
    fn default() -> Self {
        Self {
            peers: VecDeque::new(),
        }
    }
}

impl<T> Rotation<T> {
    /// Adds a request behind those of its peer.
    pub(crate) fn push(&mut self, origin: Option<&[u8]>, request: T) {
        self.of(origin).push_back(request);
    }

    /// Takes the first request of the peer whose turn it is. The next turn of this peer comes behind those of the others.
    pub(crate) fn take_next(&mut self) -> Option<T> {
        self.take_next_if(|_| true)
    }

    /// The same of the peers whose first request `can_continue`.
    pub(crate) fn take_next_if(&mut self, can_continue: impl Fn(&T) -> bool) -> Option<T> {
        let index = self.firsts().position(can_continue)?;
        let mut peer = self.peers.remove(index)?;
        let request = peer.requests.pop_front();
        if !peer.requests.is_empty() {
            self.peers.push_back(peer);
        }
        request
    }

    /// Puts a request back that was taken and has to continue: it is the first one of its peer.
    pub(crate) fn put_back(&mut self, origin: Option<&[u8]>, request: T) {
        self.of(origin).push_front(request);
    }

    /// The requests of a peer, which is the last one in turn if it has none so far.
    fn of(&mut self, origin: Option<&[u8]>) -> &mut VecDeque<T> {
        let mut peers = self.peers.iter();
        let known = peers.position(|peer| peer.origin.as_deref() == origin);
        let at = known.unwrap_or(self.peers.len());
        if known.is_none() {
            self.peers.push_back(OfPeer {
                origin: origin.map(<[u8]>::to_vec),
                requests: VecDeque::new(),
            });
        }
        &mut self.peers[at].requests
    }

    /// Takes the first request out for which `is_wanted`.
    pub(crate) fn remove(&mut self, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
        let mut at = self.peers.iter().enumerate().filter_map(|(number, peer)| {
            let index = peer.requests.iter().position(&is_wanted)?;
            Some((number, index))
        });
        let (number, index) = at.next()?;
        let peer = self.peers.get_mut(number)?;
        let request = peer.requests.remove(index);
        if peer.requests.is_empty() {
            self.peers.remove(number);
        }
        request
    }

    /// The first request of each peer, in the order of their turns. No peer is without a request.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = &T> {
        self.peers.iter().filter_map(|peer| peer.requests.front())
    }

    /// Removes all requests of a peer.
    pub(crate) fn remove_peer(&mut self, origin: Option<&[u8]>) {
        self.peers.retain(|peer| peer.origin.as_deref() != origin);
    }

    /// The requests of a peer.
    pub(crate) fn of_peer(&self, origin: Option<&[u8]>) -> impl Iterator<Item = &T> {
        let peers = self.peers.iter();
        peers
            .filter(move |peer| peer.origin.as_deref() == origin)
            .flat_map(|peer| &peer.requests)
    }

    /// All requests.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.peers.iter().flat_map(|peer| &peer.requests)
    }

    /// All requests.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.peers.iter_mut().flat_map(|peer| &mut peer.requests)
    }

    /// Whether there is no request.
    pub(crate) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::Rotation;

    /// Works on every request `left` times; returns the order of the work.
    fn drain(rotation: &mut Rotation<(&str, char, u32)>) -> String {
        let mut order = String::new();
        while !rotation.is_empty() {
            let (origin, name, left) = rotation.take_next().unwrap();
            order.push(name);
            if left > 1 {
                rotation.put_back(Some(origin.as_bytes()), (origin, name, left - 1));
            }
        }
        order
    }

    #[test]
    fn peers_take_turns_and_each_ends_its_requests_in_their_order() {
        let mut rotation = Rotation::default();
        for (origin, name) in [("a", 'p'), ("a", 'q'), ("b", 'r'), ("a", 's'), ("c", 't')] {
            rotation.push(Some(origin.as_bytes()), (origin, name, 2));
        }
        assert_eq!(rotation.of_peer(Some(b"a")).count(), 3);
        assert_eq!(drain(&mut rotation), "prtprtqqss");
    }

    #[test]
    fn a_peer_whose_first_request_cannot_continue_is_passed_over() {
        let mut rotation = Rotation::default();
        for (origin, name) in [("a", 'p'), ("b", 'q'), ("b", 'r'), ("c", 's')] {
            rotation.push(Some(origin.as_bytes()), (origin, name, 1));
        }
        assert_eq!(rotation.take_next_if(|(_, name, _)| *name == 'r'), None);
        assert_eq!(
            rotation.take_next_if(|(_, name, _)| *name != 'p'),
            Some(("b", 'q', 1))
        );
        // The peer has had its turn.
        let names: String = rotation.firsts().map(|(_, name, _)| *name).collect();
        assert_eq!(names, "psr");
        rotation.remove_peer(Some(b"a"));
        assert_eq!(drain(&mut rotation), "sr");
    }

    #[test]
    fn a_request_that_is_removed_leaves_the_others_in_their_order() {
        let mut rotation = Rotation::default();
        for (origin, name) in [("a", 'p'), ("b", 'q'), ("a", 'r')] {
            rotation.push(Some(origin.as_bytes()), (origin, name, 1));
        }
        let removed = rotation.remove(|(_, name, _)| *name == 'q');
        assert_eq!(removed, Some(("b", 'q', 1)));
        assert_eq!(rotation.remove(|(_, name, _)| *name == 'q'), None);
        assert_eq!(rotation.iter().count(), 2);
        assert_eq!(drain(&mut rotation), "pr");
    }
}
