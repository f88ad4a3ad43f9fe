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
//! performs the effects. Three functions of `scheduler` that change a job's dialogue alone are called by others:
//! `commit_allocation` by `kvs.commit`, `outdate_request` for a changed jobspec, `replace_request` for changed
//! settings.

mod annotations;
mod authorize;
mod census;
mod claims;
mod context;
mod control;
mod depend;
mod dialogue;
mod effect;
mod elastic;
mod elastic_state;
mod error;
mod event;
mod exec;
mod expiration;
#[cfg(test)]
mod fixture;
mod hooks;
mod ingest;
mod jobs;
mod jobspec_cache;
mod jobspecs;
mod log;
mod manager;
mod policy;
mod priority;
mod purge;
mod queries;
mod queue_admin;
mod queues;
mod record;
mod reload;
mod replay;
#[cfg(debug_assertions)]
mod replay_check;
mod router;
mod rpc;
mod scheduler;
mod settings;
mod signed;
mod spec;
mod state;
mod steps;
mod storage;
mod update;

pub use error::Error;
pub use manager::Manager;
pub use settings::{
    ElasticLimits, ElasticSettings, ExecHello, Limits, Queue, Settings, SettingsError,
};
