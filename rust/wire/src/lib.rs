//! The wire of Flux (RFC 3, "Message Framing"): messages, their frames, and payloads in JSON or CBOR.
//!
//! The crate is sans-IO: [`Decoder`] decodes bytes, split anywhere, into [`Message`]s, and [`Message::encode`] encodes
//! a message. A decoded message encodes to the same bytes.
//!
//! A frame is the magic `12 00 EE FF`, a 4-byte big-endian length that does not count these 8 bytes,
//! and the parts: routes and the empty part that ends them (both only with [`ROUTE`](penstock_flux::flags::ROUTE)), topic
//! ([`TOPIC`](penstock_flux::flags::TOPIC)), payload ([`PAYLOAD`](penstock_flux::flags::PAYLOAD)), and a header of 20 bytes. A part is a 1-byte length, or `FF`
//! and a 4-byte big-endian length of 255 or more, and that many bytes.
//!
//! ```
//! use penstock_wire::{DEFAULT_MAX_FRAME_BYTES, Decoder, Message};
//!
//! let request = Message::request("attr.get", r#"{"name":"size"}"#);
//! let mut bytes = Vec::new();
//! request.encode(&mut bytes);
//!
//! let mut messages = Vec::new();
//! let mut decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
//! for byte in bytes {
//!     decoder.feed(&[byte], &mut messages)?;
//! }
//! assert_eq!(messages, [request]);
//! # Ok::<(), penstock_wire::Error>(())
//! ```

mod body;
mod decoder;
mod encoding;
mod error;
mod frame;
mod message;
mod text;
mod transcode;

pub use body::Body;
pub use decoder::{DEFAULT_MAX_FRAME_BYTES, Decoder};
pub use error::Error;
pub use frame::MAX_ROUTES;
pub use message::{Message, MessageType, Topic};
pub use text::find_text_fault;
pub use transcode::{MAX_DEPTH, cbor_to_json, is_cbor, json_to_cbor};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
