//! Names of PMIx attributes that requests for resources, their results, queries and events have.

/// Declares the names, and the table of them.
macro_rules! names {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        $($(#[$doc])* pub const $constant: &str = $name;)*

        /// Every name with its constant.
        pub const ALL: &[(&str, &str)] = &[$((stringify!($constant), $name)),*];
    };
}

names! {
    /// The user's id of a request, in newer libraries.
    REQUEST_ID = "pmix.alloc.reqid";
    /// The id of an allocation; in RFC 0005, and alone, the user's id of a request.
    ALLOC_ID = "pmix.alloc.id";
    /// Number of nodes.
    NODES = "pmix.alloc.nnodes";
    /// Certain nodes.
    NODE_LIST = "pmix.alloc.nlist";
    /// Number of cpus.
    CPUS = "pmix.alloc.ncpus";
    /// Number of cpus on each listed node.
    CPU_COUNTS = "pmix.alloc.ncpulist";
    /// Certain cpus.
    CPU_LIST = "pmix.alloc.cpulist";
    /// Megabytes.
    MEMORY = "pmix.alloc.msize";
    /// Network resources.
    NETWORK = "pmix.alloc.net";
    /// Name of a network.
    NETWORK_ID = "pmix.alloc.netid";
    /// Mbit/s.
    BANDWIDTH = "pmix.alloc.bw";
    /// Quality of service.
    NETWORK_QOS = "pmix.alloc.netqos";
    /// Seconds.
    TIME = "pmix.alloc.time";
    /// Queue.
    QUEUE = "pmix.alloc.queue";
    /// Queue, as newer libraries name it.
    JOB_QUEUE = "pmix.queue";
    /// Timeout of the caller, seconds.
    TIMEOUT = "pmix.timeout";
    /// A query for the status of requests.
    QUERY = "pmix.query.alloc";
    /// A human-readable text (`PMIX_EVENT_TEXT_MESSAGE`): the reason of a denial.
    TEXT = "pmix.evtext";
    /// A request's status code in events and queries; PMIx has no name for it.
    STATUS = "penstock.alloc.status";
    /// The estimated start of a queued request, seconds since the epoch; PMIx has no name for it.
    ESTIMATE = "penstock.alloc.estimate";
    /// The attributes of a request that had no effect; PMIx has no name for it.
    DROPPED = "penstock.alloc.dropped";
}
