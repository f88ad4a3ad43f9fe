//! Deterministic simulation of an instance under faults.
//!
//! A run has the production daemon in Rust (router, job manager, resource module, scheduler, store), execution service and
//! reaper, on virtual time, over a network, a disk and a kernel in memory. A [`Script`] drawn from a seed says what
//! happens: requests of clients, which bytes arrive where and when, ends of processes, and faults. After each step, and
//! at the end, invariants are checked; [`shorten`] reduces a script that violates one.
//!
//! | part | module |
//! |---|---|
//! | steps, their text, drawing them | `script` |
//! | the daemon's process: rounds, commits, restarts of failed services | `daemon` |
//! | its connections: responses that a failed commit retracts | `connection` |
//! | prolog and epilog commands | `hooks` |
//! | the owner, cores of execution targets | `site` |
//! | the machine: execution service, reaper, processes | `machine` |
//! | the file system of retained output, and what a service may conclude from it | `output` |
//! | the constraint of the queue in requests and starts | `constraint` |
//! | clients, and what the instance has promised to them | `client` |
//! | connections that delay, split and lose | `network` |
//! | a disk with a page cache; `SQLite`'s file system on it, and copies of the store's log by a thread | `disk`, `vfs`, `copies`, `turns` |
//! | all of it together, and what a step does | `world`, `steps` |
//! | the invariants | `check` |
//! | jobs that depend on others | `dependents` |

mod check;
mod client;
mod connection;
mod constraint;
mod copies;
mod daemon;
mod dependents;
mod disk;
mod eventlog;
mod hooks;
mod jobspec;
mod machine;
mod network;
mod output;
mod random;
mod run;
mod scheduling;
mod script;
mod site;
mod steps;
mod turns;
mod vfs;
#[path = "../../exec/tests/support/virtual_kernel.rs"]
mod virtual_kernel;
mod world;

pub use run::{Run, run, shorten};
pub use scheduling::Placement;
pub use script::{Script, ScriptError, Setup, Step, StepKind};
pub use world::Violation;
