//! Any bytes as a stream of messages (RFC 3).

use penstock_wire::{Decoder, Message, cbor_to_json, find_text_fault, is_cbor, json_to_cbor};

/// The largest frame that the decoders accept, in bytes.
const MAX_FRAME_BYTES: usize = 1 << 16;
/// The sizes of the pieces in which the second decoder gets the bytes.
const PIECE_SIZES: [usize; 4] = [1, 3, 7, 64];

/// Decodes the bytes whole and in pieces, encodes the messages again, and converts their payloads.
///
/// # Panics
///
/// Panics if a message, its encoding or an error is wrong.
pub fn check(data: &[u8]) {
    let mut messages = Vec::new();
    let mut decoder = Decoder::new(MAX_FRAME_BYTES);
    let result = decoder.feed(data, &mut messages);
    for size in PIECE_SIZES {
        let mut pieces = Vec::new();
        let mut decoder = Decoder::new(MAX_FRAME_BYTES);
        let fed: Result<(), _> = data
            .chunks(size)
            .try_for_each(|piece| decoder.feed(piece, &mut pieces));
        assert_eq!(pieces, messages, "in pieces of {size} bytes");
        assert_eq!(fed.is_err(), result.is_err(), "in pieces of {size} bytes");
    }
    if let Err(error) = &result {
        assert!(error.is_frame() && !error.is_payload(), "{error}");
        assert!(decoder.feed(b"", &mut messages).is_err());
        assert_eq!(decoder.pending(), 0);
    }
    let mut encoded = Vec::new();
    for message in &messages {
        message.encode(&mut encoded);
    }
    let whole = encoded.len();
    if result.is_ok() {
        assert_eq!(whole + decoder.pending(), data.len());
    }
    assert!(data.starts_with(&encoded));
    for message in messages {
        alone(message);
    }
}

/// Checks one message.
fn alone(message: Message) {
    let mut frame = Vec::new();
    message.encode(&mut frame);
    assert_eq!(frame.len(), message.encoded_len());
    assert_eq!(Message::decode(&frame).as_ref(), Ok(&message));
    assert!(message.topic().starts_with(message.service()));
    let payload = message
        .payload
        .as_ref()
        .map(|body| body.as_bytes().to_vec());
    if let Some(payload) = &payload {
        converted(payload);
        let _ = find_text_fault(payload);
    }
    let mut json = message;
    if json.normalise().is_err() {
        assert!(json.has_cbor());
        return;
    }
    assert!(!json.has_cbor());
    if let Some(text) = json.error_text() {
        assert!(text.len() <= 3 * payload.map_or(0, |payload| payload.len()));
    }
}

/// Checks that CBOR, JSON and CBOR again are the same value.
fn converted(payload: &[u8]) {
    if is_cbor(payload) {
        let Ok(json) = cbor_to_json(payload) else {
            return;
        };
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let cbor = json_to_cbor(&json).expect("JSON that came from CBOR");
        let again = cbor_to_json(&cbor).expect("CBOR that came from JSON");
        let again: serde_json::Value = serde_json::from_str(&again).expect("JSON");
        assert_eq!(again, value);
    } else if let Ok(text) = std::str::from_utf8(payload) {
        let text = text.trim_end_matches('\0');
        if let Ok(cbor) = json_to_cbor(text) {
            let json = cbor_to_json(&cbor).expect("CBOR that came from JSON");
            assert_eq!(json_to_cbor(&json).as_ref(), Ok(&cbor));
        }
    }
}
