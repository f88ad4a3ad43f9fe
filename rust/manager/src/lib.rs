//! The job manager: jobs, their states and events (RFC 21, RFC 18), and its ends of the
//! allocation (RFC 27) and execution (RFC 32) protocols.
//!
//! The crate is sans-IO: [`Manager::handle`] takes messages, [`Manager::flush`] makes what they
//! changed durable and hands out the messages to be sent. Time comes in as an argument.

mod alloc;
mod alloc_response;
mod annotations;
mod census;
mod claims;
mod control;
mod depend;
mod drain;
mod elastic;
mod event;
mod exception;
mod exec;
mod filter;
mod hooks;
mod info;
mod ingest;
mod job;
mod job_list;
mod kvs;
mod log;
mod manager;
mod policy;
mod priority;
mod purge;
mod queues;
mod reload;
mod replay;
mod row;
mod rpc;
mod settings;
mod signed;
mod state;
mod steps;
mod update;
mod watch;

pub use event::Event;
pub use job::{Exception, Job};
pub use manager::Manager;
pub use settings::{ElasticLimits, ElasticSettings, ExecHello, Limits, Queue, Settings};
pub use state::{JobResult, State};
