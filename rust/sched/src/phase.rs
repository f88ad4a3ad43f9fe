//! The phase of the handshake, and the progress of hello.

use penstock_jobspec::job_id::JobId;

/// The phase of the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The service names are being registered.
    Registering,
    /// The inventory is requested (RFC 28).
    Acquiring,
    /// The jobs that hold resources are requested (RFC 27, Hello).
    Greeting,
    /// Ready is sent and not answered yet.
    Readying,
    /// Alloc requests are served.
    Running,
    /// The scheduler has ended, with the reason.
    Failed(String),
}

/// A job that holds resources, as a response to hello announces it.
#[derive(Debug)]
pub(crate) struct AllocatedJob {
    pub id: JobId,
    /// An idset of the ranks that it has released already.
    pub freed: Option<String>,
}

/// The progress of hello.
#[derive(Debug, Default)]
pub(crate) struct Hello {
    pub has_ended: bool,
    pub lookups_outstanding: usize,
}
