//! The shared vectors: malformed frames and payloads with the whole text of their errors, and JSON with its CBOR.

use std::path::Path;

use penstock_wire::{
    DEFAULT_MAX_FRAME_BYTES, Decoder, Error, Message, cbor_to_json, is_cbor, json_to_cbor,
};
use serde_json::Value;

fn vectors(key: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/wire.json");
    let mut all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let Value::Array(vectors) = all[key].take() else {
        panic!("no {key}")
    };
    assert!(!vectors.is_empty());
    vectors
}

fn text<'a>(vector: &'a Value, key: &str) -> &'a str {
    vector[key].as_str().unwrap()
}

fn bytes(vector: &Value, key: &str) -> Vec<u8> {
    let hex = text(vector, key);
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

/// Fails with all vectors whose error is not as they say.
fn assert_errors(outcomes: impl Iterator<Item = (Value, Option<Error>)>) {
    let mut wrong = Vec::new();
    for (vector, error) in outcomes {
        let (found, offset) = error.map_or_else(Default::default, |error| {
            (error.to_string(), error.offset())
        });
        if vector["error"] != found.as_str() || vector["offset"] != offset {
            wrong.push(format!(
                "{}\n  expected {} {}\n  found    {found:?} {offset}",
                vector["name"], vector["error"], vector["offset"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn malformed_frames_name_the_byte() {
    assert_errors(vectors("malformed").into_iter().map(|vector| {
        let mut decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
        let error = decoder
            .feed(&bytes(&vector, "frame"), &mut Vec::new())
            .err();
        (vector, error)
    }));
}

#[test]
fn malformed_frames_fail_alike_when_split_anywhere() {
    let mut good = Vec::new();
    Message::request("a.b", "{}").encode(&mut good);
    for vector in vectors("malformed") {
        let frame = bytes(&vector, "frame");
        for size in [1, 2, 3, 5, 8, 13] {
            let mut decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
            let mut out = Vec::new();
            let stream = [&good[..], &frame].concat();
            let error = stream
                .chunks(size)
                .find_map(|piece| decoder.feed(piece, &mut out).err());
            let error = error.unwrap_or_else(|| panic!("{}", vector["name"]));
            assert_eq!(error.to_string(), text(&vector, "error"));
            assert!(error.is_frame() && !error.is_payload());
            assert_eq!(out.len(), 1, "what came before is out");
            assert_eq!(
                decoder.feed(&good, &mut out),
                Err(error),
                "a lost stream stays lost"
            );
            assert_eq!((out.len(), decoder.pending()), (1, 0));
        }
    }
}

#[test]
fn one_frame_must_be_whole_and_alone() {
    let mut frame = Vec::new();
    Message::request("a.b", "{}").encode(&mut frame);
    let size = frame.len();
    for cut in 0..size {
        let error = Message::decode(&frame[..cut]).unwrap_err();
        assert_eq!(error.offset(), cut);
        let whole = if cut < 8 {
            "the 8 bytes before it".to_owned()
        } else {
            format!("{size} bytes")
        };
        assert_eq!(
            error.to_string(),
            format!("invalid frame: expected {whole}, found the end at byte {cut}")
        );
    }
    frame.push(0x12);
    let error = Message::decode(&frame).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("invalid frame: expected the end at byte {size}, found 1 more bytes")
    );
}

#[test]
fn json_and_cbor_pairs() {
    for vector in vectors("pairs") {
        let (json, cbor) = (text(&vector, "json"), bytes(&vector, "cbor"));
        assert_eq!(json_to_cbor(json).unwrap(), cbor, "{json}");
        let back = cbor_to_json(&cbor).unwrap();
        let (one, other): (Value, Value) = (
            serde_json::from_str(json).unwrap(),
            serde_json::from_str(&back).unwrap(),
        );
        assert_eq!(one, other, "{json}");
        assert_eq!(is_cbor(&cbor), json.starts_with('{'), "{json}");
        assert!(!is_cbor(json.as_bytes()));
    }
}

#[test]
fn cbor_of_others() {
    for vector in vectors("from_cbor") {
        assert_eq!(
            cbor_to_json(&bytes(&vector, "cbor")).unwrap(),
            text(&vector, "json"),
            "{}",
            vector["name"]
        );
    }
}

#[test]
fn values_without_a_counterpart_are_rejected() {
    assert_errors(vectors("rejected_cbor").into_iter().map(|vector| {
        let error = cbor_to_json(&bytes(&vector, "cbor")).err();
        (vector, error)
    }));
    assert_errors(vectors("rejected_json").into_iter().map(|vector| {
        let error = json_to_cbor(text(&vector, "json")).err();
        (vector, error)
    }));
}

#[test]
fn a_payload_whose_cbor_is_longer_than_a_frame_goes_out_as_json() {
    // A fraction has four bytes with its comma, and nine in CBOR.
    let fractions = vec!["0.1"; DEFAULT_MAX_FRAME_BYTES / 8].join(",");
    let response = Message::request("a.b", &format!("{{\"a\":[{fractions}]}}"));
    assert!(response.frame_len() < DEFAULT_MAX_FRAME_BYTES);
    let mut frame = Vec::new();
    response.encode_as_cbor(&mut frame);
    assert_eq!(frame.len(), response.encoded_len());
    let mut messages = Vec::new();
    let mut decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
    decoder.feed(&frame, &mut messages).unwrap();
    assert_eq!(messages, [response]);
}
