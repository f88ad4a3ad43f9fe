//! The vocabulary of Flux's protocols: error numbers, roles, message flags, topics, and the payload of every message.
//!
//! A module a protocol or service; each payload is a structure named after its message. [`read`] turns the bytes of a
//! payload into one, checking it once; [`Payload::to_payload`] writes one. Both the specified and the current versions
//! of RFC 27, RFC 28 and RFC 32 are read and written: what only the current one has is optional. Unknown keys are
//! skipped, so that later versions may add some.
//!
//! The crate is vocabulary only: the peers decide on roles and on the order of messages.
//!
//! ```
//! use penstock_flux::{Payload, alloc, read};
//!
//! let request = alloc::FreeResponse { id: 7 };
//! let bytes = request.to_payload();
//! assert_eq!(bytes, b"{\"id\":7}\0");
//! assert_eq!(read::<alloc::FreeResponse>(bytes.strip_suffix(&[0]))?, request);
//! # Ok::<(), penstock_flux::Error>(())
//! ```

pub mod acquire;
pub mod alloc;
mod attachment;
pub mod broker;
pub mod errno;
mod error;
pub mod exec;
pub mod flags;
pub mod hooks;
pub mod job_info;
pub mod job_ingest;
pub mod job_list;
pub mod job_manager;
pub mod kvs;
mod payload;
pub mod pmix;
mod request_error;
pub mod resource;
pub mod role;
pub mod sched;
pub mod topic;

pub use attachment::{Allocation, Attached, Attachment, RequestedResources};
pub use error::Error;
pub use payload::{Json, Member, Payload, Text, document, object, read};
pub use request_error::RequestError;
pub use role::Credentials;

use serde::{Deserialize, Serialize};

/// The request that ends an outstanding streaming request of the same peer: `*-cancel` of any service (RFC 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCancelRequest {
    /// The matchtag of the request to end.
    pub matchtag: u32,
}

impl Payload for StreamCancelRequest {}
