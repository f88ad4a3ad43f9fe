//! Payloads between JSON and CBOR (RFC 8949), in one pass, without a tree in between.
//!
//! Only values that both can represent pass: null, booleans, integers from `i64::MIN` to `u64::MAX`, finite floats, text,
//! arrays, and maps with text keys. An integer stays an integer and a float a float. Duplicate keys are
//! kept. Everything else is rejected with its offset. The codec is written out here, and not left to
//! a serde crate, because those build a tree, read JSON integers beyond 64 bits as floats, and say less about the
//! place of an error; the tests hold it against `serde_json` and `ciborium`.

mod from_cbor;
mod from_json;

pub use from_cbor::cbor_to_json;
pub use from_json::json_to_cbor;

/// How deep arrays and maps may lie within each other: as deep as `serde_json` reads.
pub const MAX_DEPTH: usize = 127;

/// Whether a payload is CBOR: a CBOR map starts with `A0` to `BF`, which neither JSON nor UTF-8 text does.
pub fn is_cbor(payload: &[u8]) -> bool {
    matches!(payload.first(), Some(0xA0..=0xBF))
}
