//! Conversion of payloads between JSON and CBOR (RFC 8949) in one pass, without an intermediate tree.
//!
//! It accepts the values that both formats represent: null, booleans, integers from `i64::MIN` to `u64::MAX`, finite
//! floats, text, arrays, and maps with text keys. Integers remain integers, and floats remain floats. Duplicate keys
//! are kept. Everything else is rejected with its offset. The codec is hand-written because serde crates build a tree,
//! read JSON integers beyond 64 bits as floats, and locate errors less precisely; the tests compare it with
//! `serde_json` and `ciborium`.

mod from_cbor;
mod from_json;

pub use from_cbor::cbor_to_json;
pub use from_json::json_to_cbor;

/// The greatest nesting depth of arrays and maps, which is also that of `serde_json`.
pub const MAX_DEPTH: usize = 127;

/// Whether a payload is CBOR: a CBOR map starts with `A0` to `BF`, which neither JSON nor UTF-8 text does.
pub fn is_cbor(payload: &[u8]) -> bool {
    matches!(payload.first(), Some(0xA0..=0xBF))
}
