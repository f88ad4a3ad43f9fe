//! Invariants of the formats, the wire and the services for arbitrary input.
//!
//! Each check takes any bytes, and panics if an invariant is violated. The fuzz targets beside this crate search for
//! such bytes; `tests/corpus.rs` replays the inputs in `corpus/`, on any toolchain.

pub mod constraint_text;
mod conversation;
pub mod hostlist_ops;
pub mod hostlist_text;
pub mod idset_ops;
pub mod idset_text;
mod input;
pub mod intervals;
pub mod jobspec_text;
pub mod manager_messages;
pub mod payload_text;
pub mod pmi_lines;
pub mod pmix_requests;
pub mod resource_messages;
pub mod rset_text;
pub mod scheduler_messages;
pub mod settings_text;
pub mod wire_frames;

/// A check of any bytes.
pub type Check = fn(&[u8]);

/// Every check by the name of its fuzz target and of its folder in `corpus/`.
pub const CHECKS: [(&str, Check); 15] = [
    ("constraint_text", constraint_text::check),
    ("hostlist_ops", hostlist_ops::check),
    ("hostlist_text", hostlist_text::check),
    ("idset_ops", idset_ops::check),
    ("idset_text", idset_text::check),
    ("jobspec_text", jobspec_text::check),
    ("manager_messages", manager_messages::check),
    ("payload_text", payload_text::check),
    ("pmi_lines", pmi_lines::check),
    ("pmix_requests", pmix_requests::check),
    ("resource_messages", resource_messages::check),
    ("rset_text", rset_text::check),
    ("scheduler_messages", scheduler_messages::check),
    ("settings_text", settings_text::check),
    ("wire_frames", wire_frames::check),
];
