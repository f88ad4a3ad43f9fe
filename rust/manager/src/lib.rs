//! The job manager: jobs, their states and events (RFC 21, RFC 18), and its ends of the
//! allocation (RFC 27) and execution (RFC 32) protocols.
//!
//! The crate is sans-I/O: [`Manager::handle`] takes messages, [`Manager::take_messages`] hands out the
//! messages to be sent, and [`Manager::commit`] makes the changes durable that they tell. Time is an
//! argument.
//!
//! The facts of a job are its `Record` (module `record`), which only logged events change; the state of
//! the conversations about it is its `Dialogue` (`dialogue`). The four peers `SchedulerPeer` (`scheduler`),
//! `ExecPeer` (`exec`), `Hooks` (`hooks`) and `Elastic` (`elastic`), and `Queries` (`queries`), share a
//! `Context` (`context`), leave `Effect`s (`effect`) in it, and never call each other's methods: the [`Manager`]
//! performs the effects. The conversations that others read (the `Dialogue` of each job, the handshake) are changed
//! by their peer alone, with its writer (`jobs`). One method of `SchedulerPeer` is called by a handler:
//! `commit_allocation` by `kvs.commit` (DESIGN.md says why it is no effect).

// The entry: requests by their topics, and the steps of each job.
mod authorize;
mod manager;
mod router;
mod rpc;
mod steps;

// A job: its facts and its conversations, and the tables that move them on.
mod annotations;
mod dialogue;
mod elastic_state;
mod ended;
mod event;
mod handshake;
mod held_values;
mod jobs;
mod record;
mod spec;
mod state;

// The shared state of the peers, and the store.
mod census;
mod claims;
mod context;
mod disk_space;
mod effect;
mod jobspec_cache;
mod jobspecs;
mod log;
mod meta;
mod policy;
mod queues;
mod reason;
mod replay;
#[cfg(debug_assertions)]
mod replay_check;
mod rotation;
mod settings;
mod storage;
mod store_check;
mod unadded_jobs;

// The peers.
mod elastic;
mod exec;
mod hooks;
mod queries;
mod scheduler;

// The other handlers.
mod bulk;
mod control;
mod depend;
mod expiration;
mod ingest;
mod priority;
mod purge;
mod queue_admin;
mod quota;
mod reload;
mod shared_values;
mod shell_defaults;
mod signed;
mod update;

#[cfg(test)]
mod fixture;

pub use disk_space::DiskSpace;
pub use manager::Manager;
pub use penstock_store::Error;
pub use router::roles;
pub use settings::{
    ElasticLimits, ElasticSettings, ExecHello, JobVisibility, Limits, Queue, Quota, Settings,
    SettingsError,
};
pub use store_check::{JobProblem, ProblemEffect, check_jobs, check_meta};
