//! Topics, one module for each service. Methods of a service that chooses its name (RFC 32) are suffixes.

/// Declares the topics of one service.
macro_rules! topics {
    ($(#[$doc:meta])* $module:ident: $($name:ident = $topic:literal,)*) => {
        $(#[$doc])*
        pub mod $module {
            $(
                #[doc = concat!("`", $topic, "`.")]
                pub const $name: &str = $topic;
            )*

            /// Every topic of this module: name of its constant, topic.
            pub const ALL: &[(&str, &str)] = &[$((stringify!($name), $topic)),*];
        }
    };
}

topics! {
    /// The broker: registration of services (RFC 6).
    service:
    ADD = "service.add",
    REMOVE = "service.remove",
    LIST = "service.list",
}

topics! {
    /// The broker: subscriptions.
    event:
    SUBSCRIBE = "event.subscribe",
    UNSUBSCRIBE = "event.unsubscribe",
    PUBLISH = "event.publish",
}

topics! {
    /// The broker: attributes, configuration, state.
    broker:
    ATTR_GET = "attr.get",
    ATTR_LIST = "attr.list",
    ATTR_SET = "attr.set",
    ATTR_RM = "attr.rm",
    MODULE_LIST = "module.list",
    CONFIG_GET = "config.get",
    CONFIG_RELOAD = "config.reload",
    CONFIG_LOAD = "config.load",
    PING = "broker.ping",
    STATS_GET = "broker.stats-get",
    SHUTDOWN = "broker.shutdown",
    STATE_GET = "state-machine.get",
    GROUPS_GET = "groups.get",
}

topics! {
    /// The instance's log.
    log:
    APPEND = "log.append",
    CLEAR = "log.clear",
    DMESG = "log.dmesg",
    DMESG_CANCEL = "log.dmesg-cancel",
    STATS_GET = "log.stats-get",
}

topics! {
    /// Submission.
    job_ingest:
    SUBMIT = "job-ingest.submit",
    SUBMIT_PART = "job-ingest.submit-part",
}

topics! {
    /// The job manager: RFC 27, RFC 32, and requests of users about jobs and queues.
    job_manager:
    SCHED_HELLO = "job-manager.sched-hello",
    SCHED_READY = "job-manager.sched-ready",
    EXEC_HELLO = "job-manager.exec-hello",
    ALLOC_QUERY = "job-manager.alloc-query",
    RAISE = "job-manager.raise",
    RAISEALL = "job-manager.raiseall",
    KILL = "job-manager.kill",
    KILLALL = "job-manager.killall",
    URGENCY = "job-manager.urgency",
    PRIORITIZE = "job-manager.prioritize",
    CONFIG_WAIT = "job-manager.config-wait",
    MEMO = "job-manager.memo",
    UPDATE = "job-manager.update",
    PURGE = "job-manager.purge",
    PURGE_ID = "job-manager.purge-id",
    QUEUE_LIST = "job-manager.queue-list",
    QUEUE_STATUS = "job-manager.queue-status",
    QUEUE_ENABLE = "job-manager.queue-enable",
    QUEUE_START = "job-manager.queue-start",
    HISTORY_GET = "job-manager.history.get",
    DRAIN = "job-manager.drain",
    DRAIN_CANCEL = "job-manager.drain-cancel",
    IDLE = "job-manager.idle",
    IDLE_CANCEL = "job-manager.idle-cancel",
    WAIT = "job-manager.wait",
    EVENTS_JOURNAL = "job-manager.events-journal",
    EVENTS_JOURNAL_CANCEL = "job-manager.events-journal-cancel",
    PING = "job-manager.ping",
    STATS_GET = "job-manager.stats-get",
}

topics! {
    /// Listings of jobs.
    job_list:
    LIST = "job-list.list",
    LIST_CANCEL = "job-list.list-cancel",
    LIST_ID = "job-list.list-id",
    LIST_ATTRS = "job-list.list-attrs",
    JOB_STATS = "job-list.job-stats",
    USAGE = "job-list.usage",
    WAIT = "job-list.wait",
    WAIT_CANCEL = "job-list.wait-cancel",
}

topics! {
    /// A job's documents and events.
    job_info:
    LOOKUP = "job-info.lookup",
    EVENTLOG_WATCH = "job-info.eventlog-watch",
    EVENTLOG_WATCH_CANCEL = "job-info.eventlog-watch-cancel",
}

topics! {
    /// The key-value store, by RFC 16's job schema.
    kvs:
    COMMIT = "kvs.commit",
    LOOKUP = "kvs.lookup",
    GETROOT = "kvs.getroot",
    NAMESPACE_LIST = "kvs.namespace-list",
}

topics! {
    /// Watches of keys.
    kvs_watch:
    LOOKUP = "kvs-watch.lookup",
    CANCEL = "kvs-watch.cancel",
}

topics! {
    /// Acquisition (RFC 28) and administration of resources.
    resource:
    ACQUIRE = "resource.acquire",
    ACQUIRE_CANCEL = "resource.acquire-cancel",
    STATUS = "resource.status",
    SCHED_STATUS = "resource.sched-status",
    HISTORY = "resource.history",
    JOURNAL = "resource.journal",
    JOURNAL_CANCEL = "resource.journal-cancel",
    DRAIN = "resource.drain",
    UNDRAIN = "resource.undrain",
    GROW = "resource.grow",
    SHRINK = "resource.shrink",
    PROPERTY_ADD = "resource.property-add",
    PROPERTY_REMOVE = "resource.property-remove",
    RELOAD = "resource.reload",
    EXPIRATION = "resource.expiration",
    MONITOR = "resource.monitor",
    MONITOR_CANCEL = "resource.monitor-cancel",
    UNMONITOR = "resource.unmonitor",
    STATS_GET = "resource.stats-get",
}

topics! {
    /// The scheduler: RFC 27, and requests of users.
    sched:
    ALLOC = "sched.alloc",
    CANCEL = "sched.cancel",
    PRIORITIZE = "sched.prioritize",
    FREE = "sched.free",
    EXPIRATION = "sched.expiration",
    CONFIG_RELOAD = "sched.config-reload",
    EXPLAIN = "sched.explain",
    ESTIMATE = "sched.estimate",
    WHAT_IF = "sched.what-if",
    RESOURCE_STATUS = "sched.resource-status",
    STATS_GET = "sched.stats-get",
    FEASIBILITY_CHECK = "feasibility.check",
    FEASIBILITY_STATS_GET = "feasibility.stats-get",
}

topics! {
    /// Methods of an execution service (RFC 32), after its name and a period.
    exec_method:
    START = "start",
    EXPIRATION = "expiration",
    KILL = "kill",
    REPLACED = "replaced",
    SHRINK = "shrink",
    OUTPUT = "output",
    OUTPUT_CANCEL = "output-cancel",
    INPUT = "input",
    RESIZE = "resize",
    SIGNAL = "signal",
    CONFIG_RELOAD = "config-reload",
}

topics! {
    /// The instance's own execution service: the requests of users. [`exec_method`] has the manager's.
    job_exec:
    OUTPUT = "job-exec.output",
    OUTPUT_CANCEL = "job-exec.output-cancel",
    INPUT = "job-exec.input",
    RESIZE = "job-exec.resize",
    SIGNAL = "job-exec.signal",
}

topics! {
    /// Prolog and epilog commands.
    hooks:
    PROLOG = "hooks.prolog",
    EPILOG = "hooks.epilog",
    CANCEL = "hooks.cancel",
}

topics! {
    /// Flexible allocations (PMIx RFC 0005).
    pmix:
    ALLOC = "pmix.alloc",
    ALLOC_CANCEL = "pmix.alloc-cancel",
    CANCEL = "pmix.cancel",
    QUERY = "pmix.query",
    EVENTS = "pmix.events",
    EVENTS_CANCEL = "pmix.events-cancel",
    ABORT = "pmix.abort",
}

topics! {
    /// PMIx servers for the jobs of an execution service.
    pmix_exec:
    START = "pmix-exec.start",
    ENDED = "pmix-exec.ended",
    STOP = "pmix-exec.stop",
}

topics! {
    /// The PMIx server of a job: requests of the daemon and to it.
    pmix_server:
    START = "pmix.start",
    ENDED = "pmix.ended",
    STATS = "pmix.stats",
    PING = "pmix.ping",
}

/// The event that notifies execution services of a job's exception (RFC 32).
pub const JOB_EXCEPTION: &str = "job-exception";

/// The method that a broker calls when a client of a service has disconnected.
pub const DISCONNECT: &str = "disconnect";
/// The method that every service answers with the request's own payload.
pub const PING: &str = "ping";
/// The method that tells a service's statistics.
pub const STATS_GET: &str = "stats-get";
