//! The messages to services: events to all of them, and responses.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use crate::protocol::{Event, Message};
use crate::types::ConnectionId;

/// Events in one message.
const MAX_EVENTS_PER_MESSAGE: usize = 1 << 16;

/// The services that have said hello, and the messages to them that have not been taken.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    connections: BTreeSet<ConnectionId>,
    outgoing: Vec<Outgoing>,
    /// Whether a message other than those of a start is to be sent.
    is_urgent: bool,
}

#[derive(Debug)]
enum Outgoing {
    Event(ConnectionId, Event),
    Reply(ConnectionId, Message),
}

impl Outbox {
    pub(super) fn connect(&mut self, connection: ConnectionId) {
        self.connections.insert(connection);
    }

    pub(super) fn disconnect(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
    }

    pub(super) fn is_connected(&self, connection: ConnectionId) -> bool {
        self.connections.contains(&connection)
    }

    pub(super) fn has_connection(&self) -> bool {
        !self.connections.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.outgoing.is_empty()
    }

    pub(super) fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// Sends an event to every service. One that says hello later requests what is known.
    pub(super) fn broadcast(&mut self, event: Event) {
        self.is_urgent |= !matches!(event, Event::Started { .. });
        let connections = self.connections.iter();
        let events = connections.map(|connection| Outgoing::Event(*connection, event));
        self.outgoing.extend(events);
    }

    /// Sends what is known to one service.
    pub(super) fn send(
        &mut self,
        connection: ConnectionId,
        events: impl IntoIterator<Item = Event>,
    ) {
        self.is_urgent = true;
        let events = events.into_iter();
        let events = events.map(|event| Outgoing::Event(connection, event));
        self.outgoing.extend(events);
    }

    pub(super) fn reply(&mut self, connection: ConnectionId, message: Message) {
        self.is_urgent = true;
        self.reply_in_time(connection, message);
    }

    /// Sends a response that may wait for the next urgent message.
    pub(super) fn reply_in_time(&mut self, connection: ConnectionId, message: Message) {
        self.outgoing.push(Outgoing::Reply(connection, message));
    }

    /// Removes and returns the messages, in order for each connection.
    pub(super) fn take(&mut self) -> Vec<(ConnectionId, Message)> {
        self.is_urgent = false;
        let mut by_connection = BTreeMap::<ConnectionId, Vec<Message>>::new();
        for outgoing in mem::take(&mut self.outgoing) {
            match outgoing {
                Outgoing::Event(connection, event) => {
                    push_event(by_connection.entry(connection).or_default(), event);
                }
                Outgoing::Reply(connection, message) => {
                    by_connection.entry(connection).or_default().push(message);
                }
            }
        }
        let messages = |(connection, messages): (ConnectionId, Vec<Message>)| {
            messages
                .into_iter()
                .map(move |message| (connection, message))
        };
        by_connection.into_iter().flat_map(messages).collect()
    }
}

fn push_event(messages: &mut Vec<Message>, event: Event) {
    match messages.last_mut() {
        Some(Message::Events(events)) if events.len() < MAX_EVENTS_PER_MESSAGE => {
            events.push(event);
        }
        _ => messages.push(Message::Events(vec![event])),
    }
}
