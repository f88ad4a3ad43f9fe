//! The vocabulary of Flux's protocols: error numbers, roles, message flags, topics, and the payload of every message.
//!
//! There is one module for each protocol or service; each payload is a structure named after its message. [`read`]
//! checks the bytes of a payload and decodes them into its structure; [`Payload::to_payload`] encodes it. Both the
//! specified and the current versions of RFC 27, RFC 28 and RFC 32 are read and written: a key that only the current
//! version has is optional. Unknown keys are skipped, so that later versions may add some. A [`TypedPayload`] is a
//! payload that stays a value between services of one process.
//!
//! The only state is the table of matchtags, [`Matchtags`]: roles that a message requires and the order of messages are
//! up to the peers.
//!
//! ```
//! use penstock_flux::{JobId, Payload, alloc, read};
//!
//! let request = alloc::FreeResponse { id: JobId::new(7) };
//! let bytes = request.to_payload();
//! assert_eq!(bytes, b"{\"id\":7}\0");
//! assert_eq!(read::<alloc::FreeResponse>(bytes.strip_suffix(&[0]))?, request);
//! # Ok::<(), penstock_flux::Error>(())
//! ```

pub mod acquire;
pub mod alloc;
pub mod broker;
pub mod errno;
mod error;
pub mod eventlog;
pub mod exec;
pub mod flags;
pub mod guest_log;
mod histogram;
pub mod hooks;
pub mod job_files;
pub mod job_info;
pub mod job_ingest;
pub mod job_list;
pub mod job_manager;
pub mod job_state;
mod jobspec_document;
mod json_values;
pub mod kvs;
pub mod limits;
pub mod log;
mod matchtag;
mod payload;
pub mod pmix;
pub mod pmix_attribute;
pub mod pmix_exec;
pub mod pmix_server;
pub mod pmix_status;
mod request_error;
pub mod resource;
pub mod role;
pub mod sched;
pub mod topic;
mod typed;
pub mod urgency;

pub use error::Error;
pub use histogram::{Histogram, HistogramStats};
pub use jobspec_document::{JobspecDocument, Simulation};
pub use json_values::count_values;
pub use matchtag::Matchtags;
pub use payload::{Json, Member, Payload, Text, document, object, read};
pub use penstock_jobspec::job_id::JobId;
pub use request_error::RequestError;
pub use role::{Caller, Credentials};
pub use typed::{
    Allocated, Allocation, FreedResources, HookJob, Inventory, InventoryChange, PendingJob,
    RWithText, RequestedResources, StartReport, StartingJob, TypedPayload,
};

use serde::{Deserialize, Serialize};

/// The request that ends an outstanding streaming request of the same peer: `*-cancel` of any service (RFC 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamCancelRequest {
    /// The matchtag of the request to end.
    pub matchtag: u32,
}

impl Payload for StreamCancelRequest {}

/// A request whose keys are ignored, such as `ping`: any object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnyRequest {}

impl Payload for AnyRequest {}

/// The job that a request names by `id`; its other keys are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRequest {
    /// The job.
    pub id: JobId,
}

impl Payload for JobRequest {}

/// A response without keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmptyResponse {}

impl Payload for EmptyResponse {}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
