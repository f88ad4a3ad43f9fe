use std::borrow::Cow;

use penstock_flux::alloc::HelloRequest;
use penstock_flux::{TypedPayload, errno, role};

use super::*;

const OWNER: Credentials = Credentials {
    userid: 1000,
    rolemask: role::OWNER | role::LOCAL,
};
const GUEST: Credentials = Credentials {
    userid: 1001,
    rolemask: role::USER | role::LOCAL,
};

fn router() -> Router {
    let mut router = Router::new("broker", OWNER.userid);
    router.add_remote_peer(1, "client", OWNER);
    router.add_remote_peer(2, "service", OWNER);
    router.add_remote_peer(3, "guest", GUEST);
    router.add_service("echo", 2).unwrap();
    router
}

fn one(mut deliveries: Vec<Delivery>) -> (PeerId, Message) {
    assert_eq!(deliveries.len(), 1, "{deliveries:?}");
    let (peer, mut messages) = deliveries.remove(0);
    assert_eq!(messages.len(), 1, "{messages:?}");
    (peer, messages.remove(0))
}

#[test]
fn a_request_reaches_its_service_and_the_response_its_client() {
    let mut router = router();
    let request = Message::request("echo.hello", "{}").with_matchtag(7);
    let (peer, arrived) = one(router.route(3, vec![request]));
    assert_eq!((peer, arrived.userid, arrived.rolemask), (2, 1001, 6));
    assert_eq!(arrived.routes.as_ref().map(Vec::len), Some(2));
    let response = Message::response_to(&arrived, 0, None);
    let (peer, back) = one(router.route(2, vec![response]));
    assert_eq!((peer, back.matchtag, back.errnum()), (3, 7, 0));
    assert_eq!(back.routes.as_ref().map(Vec::len), Some(0));
}

#[test]
fn an_unknown_service_is_enosys_unless_no_response_is_wanted() {
    let mut router = router();
    let request = Message::request("nosuch.thing", "{}");
    let silent = request.clone().with_flags(request.flags | NORESPONSE);
    let (peer, response) = one(router.route(3, vec![silent, request]));
    assert_eq!((peer, response.errnum()), (3, errno::ENOSYS));
    // The response is from the instance.
    assert_eq!((response.userid, response.rolemask), (1000, 5));
    assert_eq!(
        response.error_text().as_deref(),
        Some("No service matching nosuch.thing is registered")
    );
}

#[test]
fn the_requests_of_a_service_that_disconnects_are_answered_in_order() {
    let mut router = router();
    for (client, tag) in (1..=20).rev().flat_map(|tag| [(3, tag), (1, tag)]) {
        let request = Message::request("echo.hello", "{}").with_matchtag(tag);
        router.route(client, vec![request]);
    }
    let answered: Vec<(PeerId, Vec<u32>)> = router
        .remove_peer(2)
        .into_iter()
        .map(|(peer, answers)| (peer, answers.iter().map(|answer| answer.matchtag).collect()))
        .collect();
    let tags: Vec<u32> = (1..=20).collect();
    assert_eq!(answered, [(1, tags.clone()), (3, tags)]);
}

#[test]
fn service_names_are_unique_well_formed_and_removed_with_their_peer() {
    let mut router = router();
    let error = router.add_service("echo", 1).unwrap_err();
    assert!(error.is_taken() && !error.is_unknown());
    for name in ["", "a.b", "a b", "ä"] {
        let error = router.add_service(name, 1).unwrap_err();
        assert!(error.is_invalid_name() && !error.is_taken());
    }
    let error = router.add_service("x", 99).unwrap_err();
    assert!(error.is_unknown() && !error.is_invalid_name());
    assert!(router.remove_service("echo", 1).unwrap_err().is_unknown());
    router.remove_peer(2);
    assert_eq!(router.services().count(), 0);
    assert_eq!(router.add_service("echo", 1), Ok(()));
    assert_eq!(router.remove_service("echo", 1), Ok(()));
}

#[test]
fn outstanding_requests_to_a_peer_that_is_removed_are_answered() {
    let mut router = router();
    let request = |tag| Message::request("echo.hello", "{}").with_matchtag(tag);
    let stream = |tag| {
        let request = request(tag);
        request.streaming()
    };
    let requests = vec![request(1), request(2), stream(3), stream(4), request(0)];
    let arrived = router.route(3, requests).remove(0).1;
    router.route(1, vec![request(1)]);
    let responses = vec![
        Message::response_to(&arrived[0], 0, None),
        Message::response_to(&arrived[2], 0, None),
        Message::error_to(&arrived[3], errno::ENODATA, ""),
    ];
    router.route(2, responses);
    // The requests of a client that has gone are not answered.
    router.remove_peer(1);
    let (peer, answers) = router.remove_peer(2).remove(0);
    let tags: Vec<_> = answers.iter().map(|answer| answer.matchtag).collect();
    assert_eq!((peer, tags), (3, vec![2, 3]));
    for answer in answers {
        assert_eq!(
            (answer.errnum(), answer.userid),
            (errno::EHOSTUNREACH, OWNER.userid)
        );
        assert_eq!(
            answer.error_text().as_deref(),
            Some("echo.hello: the service has disconnected")
        );
        assert_eq!(answer.routes.as_ref().map(Vec::len), Some(0));
    }
}

#[test]
fn the_requests_of_a_failed_service_within_the_daemon_are_answered_once() {
    let mut router = router();
    router.add_peer(9, "inside", OWNER);
    router.add_service("inside", 9).unwrap();
    let request = |tag| Message::request("inside.get", "{}").with_matchtag(tag);
    router.route(3, vec![request(1)]);
    router.track_requests(9);
    let arrived = router.route(3, vec![request(2), request(3)]).remove(0).1;
    router.route(9, vec![Message::response_to(&arrived[0], 0, None)]);
    let (peer, answer) = one(router.abandon_requests(9, errno::ENOSPC, "the disk is full"));
    assert_eq!(
        (peer, answer.matchtag, answer.errnum()),
        (3, 3, errno::ENOSPC)
    );
    assert_eq!(
        answer.error_text().as_deref(),
        Some("inside.get: the disk is full")
    );
    assert!(router.abandon_requests(9, errno::EIO, "again").is_empty());
    assert!(router.remove_peer(9).is_empty());
}

#[test]
fn a_stream_that_the_instance_has_ended_is_not_answered_again() {
    let mut router = router();
    router.add_peer(9, "inside", OWNER);
    router.add_service("inside", 9).unwrap();
    router.track_requests(9);
    let stream = |tag| {
        let request = Message::request("inside.get", "{}").with_matchtag(tag);
        request.streaming()
    };
    let arrived = router.route(3, vec![stream(2), stream(3)]).remove(0).1;
    let first = |request| Message::response_to(request, 0, None);
    router.route(9, arrived.iter().map(first).collect());
    router.end_requests(3, &[first(&arrived[0])]);
    router.end_requests(1, &[first(&arrived[1])]);
    let (_, answer) = one(router.abandon_requests(9, errno::ENOSPC, "the disk is full"));
    assert_eq!(answer.matchtag, 3);
}

#[test]
fn a_stream_that_ends_by_an_error_of_the_instance_counts_no_longer() {
    let mut router = router();
    router.set_limits(Limits {
        watches: 1,
        ..Limits::default()
    });
    let stream = |tag| {
        let request = Message::request("echo.hello", "{}").with_matchtag(tag);
        request.streaming()
    };
    for tag in 1..4 {
        let (peer, arrived) = one(router.route(3, vec![stream(tag)]));
        assert_eq!((peer, arrived.errnum()), (2, 0), "{tag}");
        router.route(2, vec![Message::response_to(&arrived, 0, None)]);
        // The commit of its response has failed.
        router.end_requests(3, &[Message::error_to(&stream(tag), errno::ENOSPC, "")]);
        assert_eq!(router.guests, Load::default());
    }
    // A request with one response has ended when that was routed.
    let request = Message::request("echo.hello", "{}").with_matchtag(7);
    let (_, arrived) = one(router.route(3, vec![request.clone()]));
    router.route(2, vec![Message::response_to(&arrived, 0, None)]);
    router.route(3, vec![request.clone()]);
    router.end_requests(3, &[Message::error_to(&request, errno::ENOSPC, "")]);
    assert_eq!(router.guests.requests, 1);
}

#[test]
fn clients_with_services_of_their_own_are_found() {
    let mut router = router();
    router.add_peer(9, "inside", OWNER);
    router.add_service("inside", 9).unwrap();
    assert!(router.serving_clients(9).is_empty());
    for client in [1, 2, 3] {
        router.route(client, vec![Message::request("inside.get", "{}")]);
    }
    assert_eq!(router.serving_clients(9), [2]);
}

#[test]
fn services_are_notified_of_the_disconnect_of_their_clients() {
    let mut router = router();
    router.route(3, vec![Message::request("echo.hello", "{}")]);
    assert!(router.remove_peer(1).is_empty());
    let (peer, notice) = one(router.remove_peer(3));
    assert_eq!((peer, notice.topic()), (2, "echo.disconnect"));
    assert!(notice.is_noresponse());
    assert_eq!(notice.userid, 1001);
    let origin = notice.routes.as_ref().and_then(|routes| routes.last());
    assert_eq!(origin.map(Vec::as_slice), Some(&b"guest"[..]));
}

#[test]
fn a_disconnect_that_wants_a_response_gets_an_error() {
    let mut router = router();
    let request = Message::request("echo.disconnect", "{}").with_matchtag(7);
    let (peer, response) = one(router.route(3, vec![request.clone()]));
    assert_eq!((peer, response.matchtag), (3, 7));
    assert_eq!(response.errnum(), errno::EPROTO);
    let text = "echo.disconnect: expected a request without a response";
    assert_eq!(response.error_text().as_deref(), Some(text));
    // Without one, a client may cancel its requests.
    let request = request.with_matchtag(0).with_flags(NORESPONSE);
    let (peer, arrived) = one(router.route(3, vec![request]));
    assert_eq!((peer, arrived.topic()), (2, "echo.disconnect"));
}

#[test]
fn a_response_with_a_stale_or_forged_route_is_dropped() {
    let mut router = router();
    let (_, arrived) = one(router.route(3, vec![Message::request("echo.hello", "{}")]));
    let mut forged = Message::response_to(&arrived, 0, None);
    forged.routes = Some(vec![b"guest".to_vec()]);
    assert!(router.route(2, vec![forged]).is_empty());
    router.remove_peer(3);
    let late = Message::response_to(&arrived, 0, None);
    assert!(router.route(2, vec![late]).is_empty());
}

#[test]
fn a_response_of_a_guest_to_a_request_that_it_does_not_serve_is_dropped_and_counted() {
    let mut router = router();
    let request = Message::request("echo.hello", "{}").with_matchtag(7);
    let (_, arrived) = one(router.route(1, vec![request]));
    let response = Message::response_to(&arrived, 0, Some(b"{}".to_vec()));
    assert!(router.route(3, vec![response.clone()]).is_empty());
    assert_eq!(router.rejections().forged_responses, 1);
    let (peer, _) = one(router.route(2, vec![response]));
    assert_eq!(peer, 1);
    // A service of a guest would answer what it serves, once.
    router.add_service("guests", 3).unwrap();
    let request = Message::request("guests.hello", "{}").with_matchtag(8);
    let (_, arrived) = one(router.route(1, vec![request]));
    let response = Message::response_to(&arrived, 0, None);
    assert_eq!(one(router.route(3, vec![response.clone()])).0, 1);
    assert!(router.route(3, vec![response]).is_empty());
    assert_eq!(router.rejections().forged_responses, 2);
}

#[test]
fn events_go_to_subscribers_by_prefix_in_sequence() {
    let mut router = router();
    router.subscribe(1, "job-");
    router.subscribe(3, "job-exception");
    let event = Message::event("job-exception", "{}", 0);
    assert!(router.has_subscriber("job-exception") && !router.has_subscriber("jobs"));
    let deliveries = router.route(2, vec![event.clone()]);
    let got: Vec<_> = deliveries
        .iter()
        .map(|(peer, messages)| (*peer, messages[0].sequence()))
        .collect();
    assert_eq!(got, [(1, 1), (3, 1)]);
    let private = event.clone().with_flags(event.flags | PRIVATE);
    let (peer, second) = one(router.route(2, vec![private]));
    assert_eq!((peer, second.sequence()), (1, 2));
    assert!(router.unsubscribe(1, "job-"));
    assert!(!router.unsubscribe(1, "job-"));
    assert!(router.route(3, vec![event]).is_empty());
}

#[test]
fn text_that_is_not_unicode_reaches_no_service() {
    let mut router = router();
    router.add_peer(9, "inside", OWNER);
    router.add_service("inside", 9).unwrap();
    let request = Message::request("inside.get", r#"{"name":"\ud800"}"#).with_matchtag(7);
    let silent = request.clone().with_flags(request.flags | NORESPONSE);
    let (peer, response) = one(router.route(3, vec![silent, request.clone()]));
    assert_eq!((peer, response.errnum()), (3, errno::EPROTO));
    assert_eq!(
        response.error_text().as_deref(),
        Some("inside.get: invalid JSON: expected a pair of surrogates at byte 9, found one alone")
    );
    let mut cbor = request.clone();
    cbor.set_payload(Some(b"\xa1\x61a".to_vec()));
    let (peer, response) = one(router.route(3, vec![cbor.clone()]));
    assert_eq!((peer, response.errnum()), (3, errno::EPROTO));
    let text = response.error_text().unwrap().into_owned();
    assert!(text.starts_with("inside.get: invalid CBOR"), "{text}");
    // A service outside of the daemon would end its connection.
    for mut outward in [request.clone(), cbor] {
        outward.topic = Message::request("echo.get", "").topic;
        let (peer, response) = one(router.route(3, vec![outward]));
        assert_eq!((peer, response.errnum()), (3, errno::EPROTO));
    }

    let (_, arrived) = one(router.route(9, vec![Message::request("echo.get", "{}")]));
    let body = Message::json_payload(r#"{"name":"\ud800"}"#);
    let bad = Message::response_to(&arrived, 0, Some(body));
    let (peer, response) = one(router.route(2, vec![bad]));
    assert_eq!((peer, response.errnum()), (9, errno::EPROTO));

    router.subscribe(9, "news");
    let event = Message::event("news", r#"{"name":"\ud800"}"#, 0);
    assert!(router.route(1, vec![event]).is_empty());
}

/// Answers each request, and sends `topic` to the other service for each `go`; fails at `fail`.
struct Relay {
    topic: &'static str,
    served: Vec<String>,
}

impl Relay {
    fn new(topic: &'static str) -> Self {
        Self {
            topic,
            served: Vec::new(),
        }
    }
}

impl InMemoryService for Relay {
    type Fault = &'static str;

    fn serve(&mut self, messages: &[Message]) -> Result<Vec<Message>, Self::Fault> {
        let mut posted = Vec::new();
        for message in messages {
            self.served.push(message.topic().to_owned());
            match (message.kind, message.method()) {
                (MessageType::Request, "fail") => return Err("on demand"),
                (MessageType::Request, "go") => posted.push(Message::request(self.topic, "{}")),
                _ => {}
            }
            if message.kind == MessageType::Request && message.matchtag != 0 {
                posted.push(Message::response_to(message, 0, None));
            }
        }
        Ok(posted)
    }
}

fn exchange(
    router: &mut Router,
    topics: &[&str],
    max_iterations: usize,
) -> (Exchange<&'static str>, Relay, Relay) {
    router.add_peer(4, "left", OWNER);
    router.add_peer(5, "right", OWNER);
    router.add_service("left", 4).unwrap();
    router.add_service("right", 5).unwrap();
    let (mut left, mut right) = (Relay::new("right.go"), Relay::new("left.end"));
    let request = |topic: &&str| Message::request(topic, "{}").with_matchtag(7);
    let messages = topics.iter().map(request).collect();
    let services: &mut [(PeerId, &mut dyn InMemoryService<Fault = _>)] =
        &mut [(4, &mut left), (5, &mut right)];
    let exchange = router.exchange(1, messages, services, max_iterations);
    (exchange, left, right)
}

#[test]
fn services_in_memory_exchange_messages_until_there_is_none() {
    let mut router = router();
    let (exchange, left, right) = exchange(&mut router, &["left.go", "echo.hello"], 16);
    assert_eq!(left.served, ["left.go", "left.end"]);
    assert_eq!(right.served, ["right.go"]);
    assert_eq!((exchange.served, exchange.iterations), (vec![4, 5], 3));
    assert!(exchange.posted.is_empty() && exchange.failures.is_empty());
    let summary: Vec<_> = exchange
        .deliveries
        .iter()
        .map(|(sender, (peer, messages))| (*sender, *peer, messages[0].topic()))
        .collect();
    assert_eq!(summary, [(1, 2, "echo.hello"), (4, 1, "left.go")]);
}

#[test]
fn an_exchange_ends_after_its_turns_and_returns_what_is_not_routed() {
    let mut router = router();
    let (exchange, left, right) = exchange(&mut router, &["left.go"], 1);
    assert_eq!((left.served.len(), right.served.len()), (1, 0));
    assert!(exchange.deliveries.is_empty());
    assert_eq!(exchange.posted.len(), 1);
    let (sender, messages) = &exchange.posted[0];
    let topics: Vec<_> = messages.iter().map(Message::topic).collect();
    assert_eq!((*sender, topics), (4, vec!["right.go", "left.go"]));
}

#[test]
fn an_exchange_ends_when_a_service_fails() {
    let mut router = router();
    let (exchange, left, right) = exchange(&mut router, &["left.fail", "left.go", "right.go"], 16);
    assert_eq!(left.served, ["left.fail"]);
    assert_eq!(right.served, ["right.go"]);
    let [failure] = &exchange.failures[..] else {
        panic!("{:?}", exchange.failures);
    };
    assert_eq!((failure.peer, failure.fault), (4, "on demand"));
    assert_eq!(failure.messages.len(), 2);
    // The caller routes the messages that others have posted in this iteration.
    assert_eq!(exchange.posted.len(), 1);
    assert_eq!(exchange.posted[0].0, 5);
}

#[test]
fn an_exchange_serves_nothing_before_a_service_that_is_not_part_of_it() {
    let mut router = router();
    router.add_peer(6, "control", OWNER);
    router.add_service("control", 6).unwrap();
    let topics = ["control.add", "left.go"];
    let (exchange, left, _) = exchange(&mut router, &topics, 16);
    assert!(left.served.is_empty() && exchange.posted.is_empty());
    let receivers: Vec<_> = exchange
        .deliveries
        .iter()
        .map(|(sender, (peer, _))| (*sender, *peer))
        .collect();
    assert_eq!(receivers, [(1, 6), (1, 4)]);
}

#[test]
fn a_matchtag_of_a_guest_stands_for_one_stream() {
    let mut router = router();
    let request = |tag| Message::request("echo.hello", "{}").with_matchtag(tag);
    let mut errnum = |message: Message| one(router.route(3, vec![message])).1.errnum();
    assert_eq!(errnum(request(1).streaming()), 0);
    assert_eq!(errnum(request(2)), 0);
    // Such a response would end the count of the stream, and a second stream would be counted as one.
    assert_eq!(errnum(request(1)), errno::EPROTO);
    assert_eq!(errnum(request(1).streaming()), errno::EPROTO);
    assert_eq!(errnum(request(2).streaming()), errno::EPROTO);
    // Each has one response.
    assert_eq!(errnum(request(2)), 0);
    // The owner may do so.
    router.add_remote_peer(4, "second", OWNER);
    let mut errnum = |message: Message| one(router.route(4, vec![message])).1.errnum();
    assert_eq!(errnum(request(1).streaming()), 0);
    assert_eq!(errnum(request(1)), 0);
    router.remove_peer(4);
    router.remove_peer(3);
    assert!(router.loads.is_empty() && router.guests == Load::default());
}

#[test]
fn a_long_notice_of_a_guest_does_not_reach_a_service_outside() {
    let mut router = router();
    router.add_peer(9, "inside", OWNER);
    router.add_service("inside", 9).unwrap();
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(5000));
    for (peer, topic, payload, delivered) in [
        (3, "echo.kill", long.as_str(), false),
        (3, "echo.cancel", r#"{"matchtag":1}"#, true),
        (3, "inside.hello", long.as_str(), true),
        (1, "echo.kill", long.as_str(), true),
    ] {
        let mut notice = Message::request(topic, payload);
        notice.flags |= NORESPONSE;
        let sent = router.route(peer, vec![notice]);
        assert_eq!(!sent.is_empty(), delivered, "{peer} {topic}");
    }
}

#[test]
fn the_subscriptions_of_a_peer_are_limited() {
    let mut router = router();
    for number in 0..1000 {
        assert!(router.subscribe(3, &number.to_string()));
    }
    assert!(!router.subscribe(3, "one more"));
    assert!(router.unsubscribe(3, "7"));
    assert!(router.subscribe(3, "one more"));
}

#[test]
fn the_streams_of_a_guest_and_of_all_guests_are_limited() {
    let mut router = router();
    let other = Credentials {
        userid: GUEST.userid + 1,
        ..GUEST
    };
    router.add_remote_peer(4, "second", GUEST);
    router.add_remote_peer(5, "third", other);
    router.set_limits(Limits {
        watches: 2,
        all_watches: 3,
        ..Limits::default()
    });
    let request = |tag| Message::request("echo.hello", "{}").with_matchtag(tag);
    let stream = |tag| request(tag).streaming();
    let mut route = |peer, message: Message| {
        let (receiver, message) = one(router.route(peer, vec![message]));
        (
            receiver,
            message.errnum(),
            message.error_text().map(Cow::into_owned),
        )
    };
    // All connections of the user count. Requests with one response do not.
    for (peer, tag) in [(3, 1), (4, 2), (5, 1)] {
        assert_eq!(route(peer, stream(tag)), (2, 0, None));
        assert_eq!(route(peer, request(tag + 10)), (2, 0, None));
    }
    let (receiver, errnum, text) = route(3, stream(3));
    assert_eq!((receiver, errnum), (3, errno::EAGAIN));
    assert!(text.unwrap().contains("(penstock.quota.watches)"));
    let (receiver, errnum, text) = route(5, stream(3));
    assert_eq!((receiver, errnum), (5, errno::EAGAIN));
    assert!(text.unwrap().contains("(penstock.quota.all-watches)"));
    // The owner has no such limit.
    assert_eq!(route(1, stream(3)), (2, 0, None));
    let rejections = router.rejections();
    assert_eq!((rejections.watches, rejections.all_watches), (1, 1));
    // A stream ends by an error, or with its connection.
    router.remove_peer(4);
    assert_eq!(one(router.route(5, vec![stream(4)])).1.errnum(), 0);
    router.remove_peer(3);
    router.remove_peer(5);
    assert!(router.loads.keys().eq([&OWNER.userid]) && router.guests == Load::default());
}

#[test]
fn the_outstanding_requests_of_all_guests_are_limited() {
    let mut router = router();
    let other = Credentials {
        userid: GUEST.userid + 1,
        ..GUEST
    };
    router.add_remote_peer(4, "second", other);
    router.set_limits(Limits {
        all_requests: 3,
        all_request_bytes: 20,
        ..Limits::default()
    });
    let request = |tag, payload| Message::request("echo.hello", payload).with_matchtag(tag);
    let mut errors = |peer, message| {
        let (receiver, message) = one(router.route(peer, vec![message]));
        assert_eq!(receiver == 2, message.errnum() == 0);
        message.error_text().map(Cow::into_owned)
    };
    assert_eq!(errors(3, request(1, "{}")), None);
    assert_eq!(errors(4, request(1, "{}")), None);
    let text = errors(4, request(2, r#"{"a":"0123456789"}"#)).unwrap();
    assert!(text.contains("all guests have"), "{text}");
    assert!(
        text.contains("(penstock.quota.all-request-bytes)"),
        "{text}"
    );
    assert_eq!(errors(3, request(3, "{}")), None);
    let text = errors(4, request(4, "{}")).unwrap();
    assert!(text.contains("(penstock.quota.all-requests)"), "{text}");
    // The owner's do not count.
    assert_eq!(errors(1, request(1, "{}")), None);
    router.remove_peer(3);
    assert_eq!(one(router.route(4, vec![request(5, "{}")])).0, 2);
    let rejections = router.rejections();
    assert_eq!(
        (rejections.all_requests, rejections.all_request_bytes),
        (1, 1)
    );
    router.remove_peer(4);
    assert_eq!(router.guests, Load::default());
}

#[test]
fn the_outstanding_requests_of_the_owner_have_limits_of_their_own() {
    let mut router = router();
    router.add_remote_peer(4, "second", OWNER);
    router.set_limits(Limits {
        owner_requests: 2,
        owner_request_bytes: 40,
        requests: 0,
        watches: 0,
        all_watches: 0,
        ..Limits::default()
    });
    let request = |tag| Message::request("echo.hello", "{}").with_matchtag(tag);
    let first = one(router.route(4, vec![request(1).streaming()])).1;
    assert_eq!(one(router.route(4, vec![request(2)])).0, 2);
    let (peer, error) = one(router.route(4, vec![request(3)]));
    assert_eq!((peer, error.errnum()), (4, errno::EAGAIN));
    assert_eq!(
        error.error_text().as_deref(),
        Some(
            "echo.hello: user 1000 has 2 outstanding requests, expected at most 2 with the 1 of this request (penstock.quota.owner-requests)"
        )
    );
    // A response to a stream does not end it, an error does.
    router.route(2, vec![Message::response_to(&first, 0, None)]);
    assert_eq!(one(router.route(4, vec![request(3)])).0, 4);
    router.route(2, vec![Message::error_to(&first, errno::ENODATA, "")]);
    let long = Message::request("echo.hello", "x".repeat(40).as_str()).with_matchtag(3);
    let (peer, error) = one(router.route(4, vec![long]));
    assert_eq!(peer, 4);
    assert!(
        error
            .error_text()
            .unwrap()
            .contains("(penstock.quota.owner-request-bytes)")
    );
    assert_eq!(one(router.route(4, vec![request(3)])).0, 2);
    let rejected = Rejections {
        owner_requests: 2,
        owner_request_bytes: 1,
        ..Rejections::default()
    };
    assert_eq!(router.rejections(), rejected);
    router.remove_peer(4);
    assert!(router.loads.is_empty() && router.guests == Load::default());
}

#[test]
fn the_requests_of_services_do_not_count_as_the_owners() {
    let mut router = router();
    router.add_remote_peer(4, "execution", OWNER);
    router.set_limits(Limits {
        owner_requests: 1,
        owner_request_bytes: 10,
        ..Limits::default()
    });
    let request = |tag| Message::request("echo.hello", "{}").with_matchtag(tag);
    let errnum = |router: &mut Router, peer, tag| {
        let (_, message) = one(router.route(peer, vec![request(tag)]));
        message.errnum()
    };
    assert_eq!(errnum(&mut router, 4, 1), 0);
    assert_eq!(errnum(&mut router, 4, 2), errno::EAGAIN);
    // From now on they are sent because of other clients, whose own requests are counted.
    router.add_service("exec", 4).unwrap();
    for tag in 2..10 {
        assert_eq!(errnum(&mut router, 4, tag), 0);
    }
    assert_eq!(errnum(&mut router, 1, 1), errno::EAGAIN);
    router.remove_service("exec", 4).unwrap();
    assert_eq!(errnum(&mut router, 4, 10), errno::EAGAIN);
    // The end of its connection ends the one that was counted.
    router.remove_peer(4);
    assert_eq!(errnum(&mut router, 1, 1), 0);
    router.remove_peer(1);
    assert!(router.loads.is_empty());
}

#[test]
fn a_cancellation_without_a_response_passes_at_the_limit_of_outstanding_requests() {
    for peer in [1, 3] {
        let mut router = router();
        router.set_limits(Limits {
            owner_requests: 1,
            requests: 1,
            owner_request_bytes: 2,
            request_bytes: 2,
            ..Limits::default()
        });
        let stream = Message::request("echo.hello", "{}").with_matchtag(1);
        router.route(peer, vec![stream.streaming()]);
        let request = |payload: &str| {
            let cancel = Message::request("echo.hello-cancel", payload);
            let flags = cancel.flags | NORESPONSE;
            cancel.with_flags(flags)
        };
        let (receiver, _) = one(router.route(peer, vec![request(r#"{"matchtag":1}"#)]));
        assert_eq!(receiver, 2);
        let long = "x".repeat(MAX_NOTICE_BYTES + 1);
        assert!(router.route(peer, vec![request(&long)]).is_empty());
    }
}

#[test]
fn the_outstanding_requests_of_a_guest_are_limited() {
    let mut router = router();
    router.add_remote_peer(4, "second", GUEST);
    router.set_limits(Limits {
        requests: 3,
        request_bytes: 40,
        ..Limits::default()
    });
    let request = |tag| Message::request("echo.hello", "{}").with_matchtag(tag);
    let stream = |tag| {
        let request = request(tag);
        request.streaming()
    };
    let arrived = router.route(3, vec![request(1), stream(2)]).remove(0).1;
    // All connections of the user count, the owner's do not.
    assert_eq!(one(router.route(4, vec![request(1)])).0, 2);
    let (peer, error) = one(router.route(4, vec![request(2)]));
    assert_eq!((peer, error.errnum()), (4, errno::EAGAIN));
    assert_eq!(
        error.error_text().as_deref(),
        Some(
            "echo.hello: user 1001 has 3 outstanding requests, expected at most 3 with the 1 of this request (penstock.quota.requests)"
        )
    );
    assert_eq!(one(router.route(1, vec![request(1)])).0, 2);
    assert_eq!(router.rejections().requests, 1);
    // A rejected request ends no other one of the same matchtag.
    assert_eq!(one(router.route(4, vec![request(1)])).0, 4);
    assert_eq!(one(router.route(4, vec![request(1)])).0, 4);
    // A stream is outstanding until its last response.
    let respond = |request: &Message, errnum| match errnum {
        0 => Message::response_to(request, 0, None),
        errnum => Message::error_to(request, errnum, ""),
    };
    router.route(2, vec![respond(&arrived[1], 0)]);
    assert_eq!(one(router.route(4, vec![request(2)])).0, 4);
    router.route(2, vec![respond(&arrived[1], errno::ENODATA)]);
    assert_eq!(one(router.route(4, vec![request(2)])).0, 2);
    router.route(2, vec![respond(&arrived[0], 0)]);
    // A disconnect ends the requests of its connection, with their bytes.
    router.remove_peer(4);
    let large = Message::request("echo.hello", &"x".repeat(41)).with_matchtag(9);
    let (peer, error) = one(router.route(3, vec![large]));
    assert_eq!((peer, error.errnum()), (3, errno::EAGAIN));
    assert!(
        error
            .error_text()
            .unwrap()
            .contains("penstock.quota.request-bytes")
    );
    assert_eq!(router.rejections().request_bytes, 1);
    assert!(router.loads.keys().eq([&OWNER.userid]));
    // An error of the router itself ends a request, too.
    router.remove_peer(2);
    for tag in 0..9 {
        assert_eq!(
            one(router.route(3, vec![request(tag)])).1.errnum(),
            errno::ENOSYS
        );
    }
    assert!(router.loads.is_empty());
}

#[test]
fn routes_that_a_client_gives_are_not_kept() {
    let mut router = router();
    let mut request = Message::request("echo.hello", "{}").with_matchtag(7);
    request.routes = Some(vec![vec![b'x'; 1000]; 50]);
    let (_, arrived) = one(router.route(3, vec![request]));
    assert_eq!(arrived.routes.as_ref().map(Vec::len), Some(2));
}

#[test]
fn the_owner_can_send_a_request_as_a_guest_would() {
    let mut router = router();
    let send = |router: &mut Router, from: PeerId, userid: u32, rolemask: u32| {
        let mut request = Message::request("echo.hello", "{}");
        (request.userid, request.rolemask) = (userid, rolemask);
        let (_, arrived) = one(router.route(from, vec![request]));
        (arrived.userid, arrived.rolemask)
    };
    let lowered = send(&mut router, 1, USERID_UNKNOWN, role::USER);
    assert_eq!(lowered, (OWNER.userid, role::USER));
    assert_eq!(send(&mut router, 1, 7, role::USER), (7, role::USER));
    // No one gets more than the connection has.
    let own = (GUEST.userid, GUEST.rolemask);
    for (userid, rolemask) in [(0, role::OWNER), (7, role::USER)] {
        assert_eq!(send(&mut router, 3, userid, rolemask), own);
    }
    let raised = send(&mut router, 1, 7, role::OWNER | role::USER);
    assert_eq!(raised, (OWNER.userid, OWNER.rolemask));
}

#[test]
fn a_message_that_is_longer_than_a_frame_is_an_error() {
    let mut router = router();
    router.add_peer(4, "inside", OWNER);
    let request = Message::request("echo.hello", "{}").with_matchtag(7);
    for (client, errnum) in [(1, errno::EOVERFLOW), (3, errno::EOVERFLOW), (4, 0)] {
        let (_, arrived) = one(router.route(client, vec![request.clone()]));
        let payload = vec![b'1'; MAX_FRAME_BYTES];
        let response = Message::response_to(&arrived, 0, Some(payload));
        let (peer, back) = one(router.route(2, vec![response]));
        assert_eq!((peer, back.matchtag, back.errnum()), (client, 7, errnum));
        if errnum == 0 {
            continue;
        }
        let text = back.error_text().unwrap_or_default();
        let length = back.topic().len() + MAX_FRAME_BYTES + 28;
        let expected = format!(
            "echo.hello: the response has {length} bytes: expected at most 67108864, the limit of a frame"
        );
        assert_eq!(text, expected);
    }
    // Its routes make a request longer that just fits the frame of its client.
    let mut longest = request;
    longest.set_payload(Some(vec![b'1'; MAX_FRAME_BYTES - 50]));
    assert!(longest.frame_len() <= MAX_FRAME_BYTES);
    let mut silent = longest.clone();
    silent.flags |= NORESPONSE;
    let (peer, back) = one(router.route(1, vec![silent, longest]));
    assert_eq!((peer, back.errnum()), (1, errno::EMSGSIZE));
    let text = back.error_text().unwrap_or_default();
    assert!(
        text.starts_with("echo.hello: the request has 6710"),
        "{text}"
    );
}

#[test]
fn values_between_services_in_the_daemon_are_not_encoded() {
    let mut router = Router::new("broker", OWNER.userid);
    router.add_peer(1, "manager", OWNER);
    router.add_peer(2, "scheduler", OWNER);
    router.add_service("sched", 2).unwrap();
    let value = || TypedPayload::SchedHello(HelloRequest { partial_ok: true });
    let request = Message::request("sched.hello", "").with_typed(value());
    let silent = request.clone().with_flags(request.flags | NORESPONSE);
    for request in [request.with_matchtag(1), silent] {
        let (_, arrived) = one(router.route(1, vec![request]));
        assert!(!arrived.payload.as_ref().unwrap().has_bytes());
        let response = Message::typed_success_to(&arrived, value());
        let (_, back) = one(router.route(2, vec![response]));
        assert!(!back.payload.as_ref().unwrap().has_bytes());
    }
}
