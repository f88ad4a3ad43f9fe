//! Every frame recorded from a real broker: decoded as recorded, encoded byte for byte, split everywhere.

use std::path::Path;

use penstock_wire::{DEFAULT_MAX_FRAME_BYTES, Decoder, Message, MessageType};
use serde_json::Value;

const RECORDINGS: [&str; 5] = ["client", "exec", "sched", "sched-reload", "services"];

struct Recorded {
    place: String,
    message: Value,
    bytes: Vec<u8>,
}

fn bytes_of_hex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

fn recorded(file: &str) -> Vec<Recorded> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/vectors/flux-wire")
        .join(format!("{file}.jsonl"));
    let text = std::fs::read_to_string(&path).unwrap();
    let frames: Vec<_> = text
        .lines()
        .enumerate()
        .map(|(line, text)| {
            let line = line + 1;
            let value: Value = serde_json::from_str(text).unwrap();
            Recorded {
                place: format!("{file}.jsonl:{line}"),
                message: value["message"].clone(),
                bytes: bytes_of_hex(value["hex"].as_str().unwrap()),
            }
        })
        .collect();
    assert!(!frames.is_empty(), "{} has no frames", path.display());
    frames
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

#[test]
fn every_frame_decodes_as_recorded() {
    let mut seen = 0;
    for Recorded {
        place,
        message: expected,
        bytes,
    } in RECORDINGS.iter().flat_map(|file| recorded(file))
    {
        let message = Message::decode(&bytes).unwrap_or_else(|error| panic!("{place}: {error}"));
        assert_eq!(message.kind.name(), expected["type"], "{place}");
        assert_eq!(message.topic(), expected["topic"], "{place}");
        assert_eq!(
            u32::from(message.flags),
            number(&expected["flags"]),
            "{place}"
        );
        assert_eq!(message.userid, number(&expected["userid"]), "{place}");
        assert_eq!(message.rolemask, number(&expected["rolemask"]), "{place}");
        assert_eq!(message.matchtag, number(&expected["matchtag"]), "{place}");
        assert_eq!(
            message.routes.as_ref().unwrap().len() as u64,
            expected["routes"],
            "{place}"
        );
        match message.kind {
            MessageType::Request => {
                assert_eq!(message.nodeid(), number(&expected["nodeid"]), "{place}");
            }
            MessageType::Response => {
                assert_eq!(message.errnum(), number(&expected["errnum"]), "{place}");
            }
            MessageType::Event => {
                assert_eq!(message.sequence(), number(&expected["sequence"]), "{place}");
            }
            MessageType::Control => panic!("{place}: no control message was recorded"),
        }
        match &expected["payload"] {
            Value::Null => match expected.get("payload_text") {
                None => assert_eq!(message.payload, None, "{place}"),
                Some(text) => assert_eq!(
                    message.error_text().unwrap(),
                    text.as_str().unwrap(),
                    "{place}"
                ),
            },
            payload => {
                let json: Value = serde_json::from_slice(message.payload_json().unwrap()).unwrap();
                assert_eq!(json, *payload, "{place}");
                assert_eq!(
                    message.payload.as_ref().unwrap().last(),
                    Some(&0),
                    "{place}"
                );
            }
        }
        seen += 1;
    }
    assert_eq!(seen, 244);
}

#[test]
fn every_frame_encodes_byte_for_byte() {
    for Recorded { place, bytes, .. } in RECORDINGS.iter().flat_map(|file| recorded(file)) {
        let message = Message::decode(&bytes).unwrap();
        let mut encoded = vec![0xAA];
        message.encode(&mut encoded);
        assert_eq!(encoded[1..], bytes, "{place}");
        assert_eq!(message.encoded_len(), bytes.len(), "{place}");
        message.check().unwrap();
    }
}

#[test]
fn every_payload_survives_cbor() {
    for Recorded { place, bytes, .. } in RECORDINGS.iter().flat_map(|file| recorded(file)) {
        let message = Message::decode(&bytes).unwrap();
        let mut other = message.clone();
        if !other.encode_payload_as_cbor() {
            assert!(
                message
                    .payload_json()
                    .is_none_or(|json| !json.starts_with(b"{")),
                "{place}"
            );
            continue;
        }
        assert!(other.has_cbor() && !message.has_cbor(), "{place}");
        other.normalise().unwrap();
        let read = |message: &Message| {
            serde_json::from_slice::<Value>(message.payload_json().unwrap()).unwrap()
        };
        assert_eq!(read(&other), read(&message), "{place}");
    }
}

#[test]
fn streams_split_at_every_byte() {
    for file in RECORDINGS {
        let frames = recorded(file);
        let stream: Vec<u8> = frames
            .iter()
            .flat_map(|frame| frame.bytes.clone())
            .collect();
        let messages: Vec<_> = frames
            .iter()
            .map(|frame| Message::decode(&frame.bytes).unwrap())
            .collect();
        for size in (1..=64).chain([255, 1000, 4096, stream.len()]) {
            let mut decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
            let mut out = Vec::new();
            for piece in stream.chunks(size) {
                decoder.feed(piece, &mut out).unwrap();
            }
            assert!(out == messages, "{file} in pieces of {size} bytes");
            assert_eq!(decoder.pending(), 0);
        }
        // In two pieces, at every boundary; a stream's frames up to the cut are out, and not one more.
        let mut decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
        let (mut whole, mut end) = (0, 0);
        for cut in 0..=stream.len() {
            if whole < frames.len() && cut == end + frames[whole].bytes.len() {
                end = cut;
                whole += 1;
            }
            let mut out = Vec::new();
            decoder.feed(&stream[end..cut], &mut out).unwrap();
            assert!(out.is_empty());
            assert_eq!(decoder.pending(), cut - end);
            let next = frames
                .get(whole)
                .map_or(cut, |frame| end + frame.bytes.len());
            decoder.feed(&stream[cut..next], &mut out).unwrap();
            assert!(
                out[..] == messages[whole..(whole + 1).min(messages.len())],
                "{file} cut at {cut}"
            );
        }
    }
}
