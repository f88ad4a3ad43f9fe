//! Random messages and payloads, there and back; other readers as judges.

use penstock_flux::flags::{NORESPONSE, PAYLOAD, ROUTE, STREAMING, TOPIC};
use penstock_wire::{
    DEFAULT_MAX_FRAME_BYTES, Decoder, MAX_DEPTH, Message, MessageType, Topic, cbor_to_json,
    json_to_cbor,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Number, Value};

fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..20),
        (250..260_usize).prop_map(|len| vec![b'x'; len]),
        Just(b"{\"a\":[1,2.5]}\0".to_vec())
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let kind = prop_oneof![
        Just(MessageType::Request),
        Just(MessageType::Response),
        Just(MessageType::Event),
        Just(MessageType::Control)
    ];
    let topic =
        ("[a-zä.-]{1,12}|x{250,260}", any::<bool>()).prop_map(|(text, nul)| Topic { text, nul });
    let routes = proptest::option::of(vec(vec(any::<u8>(), 1..300), 0..4));
    let words = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    (
        kind,
        any::<u8>(),
        words,
        routes,
        topic,
        proptest::option::of(payload()),
    )
        .prop_map(
            |(
                kind,
                flags,
                (userid, rolemask, nodeid_errnum_seq, matchtag),
                routes,
                topic,
                payload,
            )| {
                let control = kind == MessageType::Control;
                let mut message = Message::request("a", "");
                message.kind = kind;
                message.userid = userid;
                message.rolemask = rolemask;
                message.nodeid_errnum_seq = nodeid_errnum_seq;
                message.matchtag = matchtag;
                message.routes = routes.filter(|_| !control);
                message.topic = Some(topic).filter(|_| !control);
                message.set_payload(payload.filter(|_| !control));
                message.with_flags(flags)
            },
        )
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0..70_000_u32).prop_map(Value::from),
        any::<f64>()
            .prop_filter_map("finite", Number::from_f64)
            .prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\\x00-\\x7f\u{1F600}]{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 120, 40, |inner| {
        let entry = (any::<String>(), inner.clone());
        prop_oneof![
            vec(inner, 0..40).prop_map(Value::from),
            vec(entry, 0..30)
                .prop_map(|entries| Value::from(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn messages_come_back(messages in vec(message(), 1..6), cuts in vec(any::<prop::sample::Index>(), 0..8)) {
        let mut stream = Vec::new();
        for message in &messages {
            prop_assert_eq!(message.check(), Ok(()));
            let before = stream.len();
            message.encode(&mut stream);
            prop_assert_eq!(stream.len() - before, message.encoded_len());
            prop_assert_eq!(&Message::decode(&stream[before..]).unwrap(), message);
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let mut decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
        let (mut out, mut at) = (Vec::new(), 0);
        for cut in cuts.into_iter().chain([stream.len()]) {
            decoder.feed(&stream[at..cut], &mut out).unwrap();
            at = cut;
        }
        prop_assert_eq!(out, messages);
    }

    #[test]
    fn a_message_with_any_topic_comes_back_or_is_not_encoded(topic in "\\PC{0,12}|[\\x00-\\x1f.a\u{e9}]{0,6}", text in "(?s).{0,20}") {
        let request = Message::request(&topic, "{}").with_matchtag(7);
        let is_valid = !topic.is_empty() && !topic.contains('\0');
        // A response has the topic of its request, and may have any text.
        for message in [Message::error_to(&request, 5, &text), Message::event(&topic, &text, 3), request] {
            prop_assert_eq!(message.check().is_ok(), is_valid);
            let mut frame = Vec::new();
            message.encode(&mut frame);
            if is_valid {
                prop_assert_eq!(Message::decode(&frame).unwrap(), message);
            } else {
                prop_assert!(frame.is_empty());
            }
        }
    }

    #[test]
    fn the_payloads_of_long_frames_are_skipped(
        messages in vec(message(), 1..6),
        limit in 21_usize..400,
        cuts in vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut stream = Vec::new();
        for message in &messages {
            message.encode(&mut stream);
        }
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let mut decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
        decoder.set_message_limit(limit);
        let (mut out, mut at) = (Vec::new(), 0);
        for cut in cuts.into_iter().chain([stream.len()]) {
            decoder.feed(&stream[at..cut], &mut out).unwrap();
            at = cut;
        }
        let (long, short): (Vec<_>, Vec<_>) = messages
            .into_iter()
            .partition(|message| message.encoded_len() - 8 > limit);
        let headers: Vec<_> = long.iter().map(Message::header).collect();
        prop_assert_eq!(out, short);
        prop_assert_eq!(decoder.take_oversized(), headers);
        prop_assert_eq!(decoder.pending(), 0);
    }

    #[test]
    fn a_changed_byte_is_an_error_or_another_message(message in message(), place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        let place = place.index(frame.len());
        frame[place] = byte;
        if let Ok(other) = Message::decode(&frame) {
            let mut again = Vec::new();
            other.encode(&mut again);
            prop_assert_eq!(again, frame, "what is read is written alike");
        }
    }

    #[test]
    fn noise_is_no_message(noise in vec(any::<u8>(), 0..200)) {
        let mut frame = vec![0x12, 0x00, 0xEE, 0xFF, 0, 0, 0, u8::try_from(noise.len()).unwrap()];
        frame.extend(&noise);
        if let Ok(message) = Message::decode(&frame) {
            let mut again = Vec::new();
            message.encode(&mut again);
            prop_assert_eq!(again, frame);
        }
    }

    #[test]
    fn payloads_go_to_cbor_and_back(value in json()) {
        let text = value.to_string();
        let cbor = json_to_cbor(&text).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Value>(&cbor_to_json(&cbor).unwrap()).unwrap(), &value);
        // ciborium is the judge of what is CBOR.
        prop_assert_eq!(&ciborium::from_reader::<Value, _>(&cbor[..]).unwrap(), &value);
        let mut others = Vec::new();
        ciborium::into_writer(&value, &mut others).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Value>(&cbor_to_json(&others).unwrap()).unwrap(), &value);
        // The pretty form of serde_json has blanks.
        prop_assert_eq!(json_to_cbor(&serde_json::to_string_pretty(&value).unwrap()).unwrap(), cbor);
    }

    #[test]
    fn what_is_json_is_what_serde_json_says(text in r#"[\[\]{}:, \t\n"\\ute0-9.+\-Eaf]{0,24}"#) {
        let ours = json_to_cbor(&text);
        match serde_json::from_str::<Value>(&text) {
            Ok(value) => match ours {
                Ok(cbor) => {
                    let back: Value = serde_json::from_str(&cbor_to_json(&cbor).unwrap()).unwrap();
                    // A negative zero without a point is an integer here and a float there.
                    prop_assert_eq!(back.to_string().replace("-0.0", "0"), value.to_string().replace("-0.0", "0"));
                }
                Err(error) => prop_assert!(error.to_string().contains("64 bits"), "{}: {}", text, error),
            },
            Err(error) => prop_assert!(ours.is_err(), "{}: {}", text, error),
        }
    }

    #[test]
    fn noise_is_no_cbor(noise in vec(any::<u8>(), 0..60)) {
        match cbor_to_json(&noise) {
            Ok(json) => prop_assert!(serde_json::from_str::<Value>(&json).is_ok(), "{}", json),
            Err(error) => prop_assert!(error.is_payload() && error.offset() <= noise.len()),
        }
    }
}

#[test]
fn depth_is_bounded_where_serde_json_bounds_it() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth: usize| format!("{}0{}", open.repeat(depth), close.repeat(depth));
        let deep = nested(MAX_DEPTH);
        assert!(serde_json::from_str::<Value>(&deep).is_ok());
        assert_eq!(cbor_to_json(&json_to_cbor(&deep).unwrap()).unwrap(), deep);
        let deeper = nested(MAX_DEPTH + 1);
        assert!(serde_json::from_str::<Value>(&deeper).is_err());
        assert!(json_to_cbor(&deeper).is_err());
    }
}

#[test]
fn responses_copy_routes_topic_and_matchtag() {
    let mut request = Message::request("sched.alloc", r#"{"id":1}"#)
        .with_matchtag(7)
        .with_flags(STREAMING | 0x90);
    request.push_route(b"first hop");
    request.push_route(b"second hop");
    request.topic = Some(Topic {
        text: "sched.alloc".to_owned(),
        nul: true,
    });
    let response = Message::response_to(&request, 0, Some(Message::json_payload("{}")));
    assert_eq!(response.kind, MessageType::Response);
    assert_eq!(response.flags, TOPIC | PAYLOAD | ROUTE | STREAMING);
    assert_eq!((response.userid, response.rolemask), (u32::MAX, 0));
    assert_eq!((response.errnum(), response.matchtag), (0, 7));
    assert_eq!(
        (&response.routes, &response.topic),
        (&request.routes, &request.topic)
    );
    assert_eq!(response.payload_json(), Some(&b"{}"[..]));
    assert_eq!((response.service(), response.method()), ("sched", "alloc"));

    let error = Message::error_to(&request.clone().with_flags(NORESPONSE), 22, "no such field");
    assert_eq!(error.flags, TOPIC | PAYLOAD | ROUTE);
    assert_eq!(error.payload.as_deref(), Some(&b"no such field\0"[..]));
    assert_eq!(error.error_text().unwrap(), "no such field");
    let error = Message::error_to(&request, 38, "");
    assert_eq!(
        (error.errnum(), error.error_text(), &error.payload),
        (38, None, &None)
    );
}

#[test]
fn the_most_recent_hop_is_the_first_part() {
    let mut message = Message::request("a.b", "");
    assert_eq!(message.pop_route(), None);
    message.push_route(b"client");
    message.push_route(b"broker");
    let mut frame = Vec::new();
    message.encode(&mut frame);
    assert_eq!(frame[8..23], *b"\x06broker\x06client\0");
    assert_eq!(message.pop_route().as_deref(), Some(&b"broker"[..]));
    assert_eq!(message.pop_route().as_deref(), Some(&b"client"[..]));
    assert_eq!(message.routes, Some(Vec::new()));
    message.routes = None;
    assert_eq!(message.pop_route(), None);
}

#[test]
fn messages_without_a_frame_are_rejected() {
    let check = |message: &Message| {
        let mut out = Vec::new();
        message.encode(&mut out);
        assert_eq!(out, b"");
        message.check().unwrap_err().to_string()
    };
    assert_eq!(
        check(&Message::request("", "")),
        "invalid message: expected a topic, found none or an empty one"
    );
    assert_eq!(
        check(&Message::request("a\0", "")),
        "invalid message: expected a topic without NUL"
    );
    let mut message = Message::request("a", "");
    message.routes = Some(vec![Vec::new()]);
    assert_eq!(
        check(&message),
        "invalid message: expected a route, found an empty one"
    );
    message.routes = Some(vec![vec![1]; 1025]);
    assert_eq!(
        check(&message),
        "invalid message: expected at most 1024 routes"
    );
    message.routes = None;
    message.kind = MessageType::Control;
    assert_eq!(
        check(&message),
        "invalid message: a control message has neither routes, topic nor payload"
    );
}

#[test]
fn cbor_is_for_json_objects_only() {
    let encode = |payload: &[u8]| {
        let mut message = Message::request("a.b", "");
        message.set_payload(Some(payload.to_vec()));
        let mut direct = Vec::new();
        message.encode_as_cbor(&mut direct);
        let changed = message.encode_payload_as_cbor();
        let mut frame = Vec::new();
        message.encode(&mut frame);
        assert_eq!(frame, direct);
        (changed, message.payload.unwrap().into_bytes())
    };
    assert_eq!(encode(b"{\"a\":1}\0"), (true, b"\xa1\x61a\x01".to_vec()));
    assert_eq!(encode(b"{\"a\":1}"), (true, b"\xa1\x61a\x01".to_vec()));
    for other in [
        &b"{\"a\":1\0"[..],
        b"no such job\0",
        b"[1]\0",
        b"",
        b"\0",
        b"{\"a\":99999999999999999999}\0",
        b"{\xff}\0",
    ] {
        assert_eq!(encode(other), (false, other.to_vec()));
    }
    let mut message = Message::request("a.b", "");
    message.set_payload(Some(b"\xa1\x61a\x41x".to_vec()));
    let before = message.clone();
    assert!(message.normalise().unwrap_err().is_payload());
    assert_eq!(message, before);
    message.set_payload(Some(b"\xa1\x61a\x01".to_vec()));
    message.normalise().unwrap();
    assert_eq!(message.payload.as_deref(), Some(&b"{\"a\":1}\0"[..]));
}
