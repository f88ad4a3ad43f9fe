//! Typed values that messages carry beside their payloads, to receivers in the same process.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use penstock_jobspec::Request;
use penstock_rset::ResourceSet;

/// The typed value of a payload.
///
/// A sender that has a payload's content as a value attaches it, so that a receiver in the same process need not parse
/// the payload. It is never sent over a socket: a receiver without an attachment reads the payload, with the same
/// result.
#[derive(Clone, Debug)]
pub enum Attachment {
    /// Of `sched.alloc`: what the jobspec requests.
    Alloc(Arc<RequestedResources>),
    /// Of `kvs.commit`: the allocations, one for each operation, in their order. There are no other operations.
    Commit(Arc<[Allocation]>),
}

/// What a jobspec requests of a scheduler.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestedResources {
    /// The resources and the time limit.
    pub request: Request,
    /// The queue; `None` for the one without a name.
    pub queue: Option<String>,
}

/// The resources that a scheduler allocates to a job.
#[derive(Clone, Debug)]
pub struct Allocation {
    /// The job.
    pub id: u64,
    /// The resources.
    pub r: Arc<ResourceSet>,
    /// Their JSON text, which is committed.
    pub text: Arc<str>,
}

/// The place for an attachment in a message. It does not count when messages are compared: their payloads do.
#[derive(Clone, Debug, Default)]
pub struct Attached(pub Option<Attachment>);

impl PartialEq for Attached {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Attached {}

impl Hash for Attached {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
