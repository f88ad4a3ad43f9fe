//! The table of methods: topic, required role and handler.

use penstock_flux::topic::{self, broker, resource};
use penstock_flux::{EmptyResponse, Payload, RequestError};
use penstock_wire::{Message, MessageType};

use crate::module::{Effect, Handled, Reply, ResourceModule};

/// The role that a method requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Every user.
    Anyone,
    /// The instance owner.
    Owner,
}

type Handler = fn(&mut ResourceModule, &Message, f64) -> Handled;

/// One method.
struct Route {
    /// The topic; of a method that every service has, its last word.
    topic: &'static str,
    role: Role,
    handler: Handler,
}

const fn route(topic: &'static str, role: Role, handler: Handler) -> Route {
    Route {
        topic,
        role,
        handler,
    }
}

/// The topics of the module's services, each with the users who may call it: `all` or `owner`.
pub fn roles() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROUTES.iter().map(|route| match route.role {
        Role::Anyone => (route.topic, "all"),
        Role::Owner => (route.topic, "owner"),
    })
}

/// The methods that every service has.
const COMMON_ROUTES: [Route; 3] = {
    use Role::Anyone;
    [
        route(topic::DISCONNECT, Anyone, |module, request, now| {
            module.disconnect(request.origin().unwrap_or_default(), now);
            Ok(Reply::Deferred)
        }),
        route(topic::PING, Anyone, |_, request, _| {
            request.echo().map(Reply::Payload)
        }),
        route(topic::STATS_GET, Anyone, |_, _, _| {
            Ok(Reply::Payload(EmptyResponse {}.to_payload()))
        }),
    ]
};

/// The methods of one service each, sorted by topic.
const ROUTES: [Route; 20] = {
    use Role::{Anyone, Owner};
    [
        route(broker::GROUPS_GET, Anyone, |module, request, _| {
            module.group(request)
        }),
        route(resource::ACQUIRE, Owner, |module, request, _| {
            Ok(module.acquire(request))
        }),
        route(resource::ACQUIRE_CANCEL, Anyone, |module, request, _| {
            module.cancel_acquire(request)
        }),
        route(resource::DRAIN, Owner, ResourceModule::drain),
        route(resource::EXPIRATION, Owner, ResourceModule::set_expiration),
        route(resource::GROW, Owner, ResourceModule::grow),
        route(resource::HISTORY, Anyone, |module, request, _| {
            module.push_effect(Effect::ReadEvents(request.clone()));
            Ok(Reply::Deferred)
        }),
        route(resource::JOURNAL, Anyone, |module, request, _| {
            module.journal(request)
        }),
        route(resource::JOURNAL_CANCEL, Anyone, |module, request, _| {
            module.cancel_journal(request)
        }),
        route(resource::MONITOR, Owner, ResourceModule::monitor),
        route(
            resource::MONITOR_CANCEL,
            Anyone,
            ResourceModule::cancel_monitor,
        ),
        route(resource::PROPERTY_ADD, Owner, ResourceModule::add_property),
        route(
            resource::PROPERTY_REMOVE,
            Owner,
            ResourceModule::remove_property,
        ),
        route(resource::RELOAD, Owner, ResourceModule::reload),
        route(resource::SCHED_STATUS, Anyone, |module, request, _| {
            module.push_effect(Effect::ReadAllocated(request.clone()));
            Ok(Reply::Deferred)
        }),
        route(resource::SHRINK, Owner, ResourceModule::shrink),
        route(resource::STATS_GET, Anyone, |module, _, _| {
            Ok(Reply::Payload(module.stats()))
        }),
        route(resource::STATUS, Anyone, |module, _, _| {
            Ok(Reply::Payload(module.status()))
        }),
        route(resource::UNDRAIN, Owner, ResourceModule::undrain),
        route(resource::UNMONITOR, Owner, ResourceModule::unmonitor),
    ]
};

fn find(request: &Message) -> Option<&'static Route> {
    let topic = request.topic();
    if let Ok(index) = ROUTES.binary_search_by(|route| route.topic.cmp(topic)) {
        return ROUTES.get(index);
    }
    let mut common = COMMON_ROUTES.iter();
    common.find(|route| route.topic == request.method())
}

impl ResourceModule {
    /// Serves a request; other messages are ignored. [`take_effects`](Self::take_effects) returns what is to be
    /// performed before the next one.
    pub fn handle(&mut self, request: &Message, now: f64) {
        if request.kind == MessageType::Request {
            let handled = self.call(request, now);
            self.respond(request, handled);
        }
    }

    /// Calls a method, if the sender has the role that it requires.
    fn call(&mut self, request: &Message, now: f64) -> Handled {
        let route = find(request).ok_or_else(|| RequestError::unknown_method(request.topic()))?;
        if route.role == Role::Owner {
            request.require_owner()?;
        }
        (route.handler)(self, request, now)
    }
}

#[cfg(test)]
mod tests {
    use penstock_wire::Message;

    use super::{COMMON_ROUTES, ROUTES, find};

    fn found(topic: &str) -> Option<&'static str> {
        find(&Message::request(topic, "")).map(|route| route.topic)
    }

    #[test]
    fn every_topic_is_found_once() {
        assert!(ROUTES.windows(2).all(|pair| pair[0].topic < pair[1].topic));
        for route in &ROUTES {
            assert_eq!(found(route.topic), Some(route.topic));
        }
        assert_eq!(found("resource.nonsense"), None);
    }

    #[test]
    fn every_service_has_the_common_methods() {
        for route in &COMMON_ROUTES {
            assert_eq!(found(&format!("groups.{}", route.topic)), Some(route.topic));
        }
    }
}
