//! The exchange of messages between services that have all their state in memory.

use std::collections::VecDeque;
use std::fmt;

use penstock_wire::Message;

use crate::{Delivery, PeerId, Router};

/// A service within the daemon that serves messages at once: all that it does is in memory, and in what it posts.
pub trait InMemoryService {
    /// Why it has failed.
    type Fault;

    /// Serves messages, and returns those that it posts.
    ///
    /// # Errors
    ///
    /// The service has failed.
    fn serve(&mut self, messages: &[Message]) -> Result<Vec<Message>, Self::Fault>;
}

/// The result of [`Router::exchange`].
#[derive(Debug)]
pub struct Exchange<F> {
    /// The messages that are not served, by sender, in order.
    pub deliveries: Vec<(PeerId, Delivery)>,
    /// The messages that are still to be routed, by sender, in order: the limit is reached, or a service has failed.
    pub posted: VecDeque<(PeerId, Vec<Message>)>,
    /// The services that have served messages.
    pub served: Vec<PeerId>,
    /// The number of times that services have served messages and posted others.
    pub iterations: usize,
    /// The services that have failed in the last iteration.
    pub failures: Vec<ExchangeFailure<F>>,
}

/// The failure of a service in an exchange.
pub struct ExchangeFailure<F> {
    /// The service.
    pub peer: PeerId,
    /// The messages that it was to serve.
    pub messages: Vec<Message>,
    /// Why it has failed.
    pub fault: F,
}

impl<F> fmt::Debug for ExchangeFailure<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ExchangeFailure")
            .field("peer", &self.peer)
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

impl Router {
    /// Routes messages that peer `from` sends, has `services` serve those for them, routes what they post, and so on,
    /// until there is nothing for them, or for `max_iterations` iterations. An iteration is one batch for each service.
    ///
    /// A message for another peer within the daemon ends the exchange: the last deliveries are then for `services`, too.
    pub fn exchange<F>(
        &mut self,
        from: PeerId,
        messages: Vec<Message>,
        services: &mut [(PeerId, &mut dyn InMemoryService<Fault = F>)],
        max_iterations: usize,
    ) -> Exchange<F> {
        let mut exchange = Exchange {
            deliveries: Vec::new(),
            posted: VecDeque::from([(from, messages)]),
            served: Vec::new(),
            iterations: 0,
            failures: Vec::new(),
        };
        let mut inboxes: Vec<Vec<Message>> = services.iter().map(|_| Vec::new()).collect();
        while exchange.iterations < max_iterations {
            let mut routed = Vec::new();
            while let Some((sender, messages)) = exchange.posted.pop_front() {
                let deliveries = self.route(sender, messages).into_iter();
                routed.extend(deliveries.map(|delivery| (sender, delivery)));
            }
            let is_served = |peer| services.iter().any(|(service, _)| *service == peer);
            let mut receivers = routed.iter().map(|(_, (peer, _))| *peer);
            if receivers.any(|peer| !is_served(peer) && self.is_inside(peer)) {
                // A service such as that of `service.add` gets its messages before those behind them are served.
                exchange.deliveries.extend(routed);
                break;
            }
            for (sender, (peer, messages)) in routed {
                let mut each = services.iter().zip(&mut inboxes);
                match each.find(|((service, _), _)| *service == peer) {
                    Some((_, inbox)) => inbox.extend(messages),
                    None => exchange.deliveries.push((sender, (peer, messages))),
                }
            }
            if inboxes.iter().all(Vec::is_empty) {
                break;
            }
            exchange.iterations += 1;
            for ((peer, service), inbox) in services.iter_mut().zip(&mut inboxes) {
                if inbox.is_empty() {
                    continue;
                }
                let messages = std::mem::take(inbox);
                if !exchange.served.contains(peer) {
                    exchange.served.push(*peer);
                }
                match service.serve(&messages) {
                    Ok(posted) if posted.is_empty() => {}
                    Ok(posted) => exchange.posted.push_back((*peer, posted)),
                    Err(fault) => exchange.failures.push(ExchangeFailure {
                        peer: *peer,
                        messages,
                        fault,
                    }),
                }
            }
            if !exchange.failures.is_empty() {
                break;
            }
        }
        exchange
    }
}
