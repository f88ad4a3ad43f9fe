//! Names of PMIx attributes that requests for resources, their results, queries and events have.

/// The user's id of a request, in newer libraries.
pub const REQUEST_ID: &str = "pmix.alloc.reqid";
/// The id of an allocation; in RFC 0005, and alone, the user's id of a request.
pub const ALLOC_ID: &str = "pmix.alloc.id";
/// Number of nodes.
pub const NODES: &str = "pmix.alloc.nnodes";
/// Certain nodes.
pub const NODE_LIST: &str = "pmix.alloc.nlist";
/// Number of cpus.
pub const CPUS: &str = "pmix.alloc.ncpus";
/// Number of cpus on each listed node.
pub const CPU_COUNTS: &str = "pmix.alloc.ncpulist";
/// Certain cpus.
pub const CPU_LIST: &str = "pmix.alloc.cpulist";
/// Megabytes.
pub const MEMORY: &str = "pmix.alloc.msize";
/// Network resources.
pub const NETWORK: &str = "pmix.alloc.net";
/// Name of a network.
pub const NETWORK_ID: &str = "pmix.alloc.netid";
/// Mbit/s.
pub const BANDWIDTH: &str = "pmix.alloc.bw";
/// Quality of service.
pub const NETWORK_QOS: &str = "pmix.alloc.netqos";
/// Seconds.
pub const TIME: &str = "pmix.alloc.time";
/// Queue.
pub const QUEUE: &str = "pmix.alloc.queue";
/// Queue, as newer libraries name it.
pub const JOB_QUEUE: &str = "pmix.queue";
/// Timeout of the caller, seconds.
pub const TIMEOUT: &str = "pmix.timeout";
/// A query for the status of requests.
pub const QUERY: &str = "pmix.query.alloc";
/// A human-readable text (`PMIX_EVENT_TEXT_MESSAGE`): the reason of a denial.
pub const TEXT: &str = "pmix.evtext";
/// A request's status code in events and queries; PMIx has no name for it.
pub const STATUS: &str = "penstock.alloc.status";
/// The estimated start of a queued request, seconds since the epoch; PMIx has no name for it.
pub const ESTIMATE: &str = "penstock.alloc.estimate";
/// The attributes of a request that had no effect; PMIx has no name for it.
pub const DROPPED: &str = "penstock.alloc.dropped";
