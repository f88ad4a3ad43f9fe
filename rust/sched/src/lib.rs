//! The scheduler of a Flux instance, sans-IO: it acquires resources (RFC 28), takes allocation
//! requests (RFC 27), and responds with the engine's decisions.
//!
//! The same state machine serves inside the daemon, as a process attached to Penstock's socket,
//! and attached to a Flux broker. [`Scheduler::start`] gives the first messages,
//! [`Scheduler::handle`] handles one, [`Scheduler::schedule`] runs a pass and answers queries, [`Scheduler::advance_forecasts`] those
//! that take long, in parts. Time is an argument.
//!
//! The handshake; each phase begins with the response that ends the one before:
//!
//! | phase | sent | ends with |
//! |---|---|---|
//! | `Registering` | `service.add` of `sched` and `feasibility` | both responses |
//! | `Acquiring` | `resource.acquire` | the first response, which has the inventory |
//! | `Greeting` | `job-manager.sched-hello` | ENODATA, and the R of every announced job |
//! | `Readying` | `job-manager.sched-ready` | the response |
//! | `Running` | responses to alloc requests | – |
//! | `Stopping` | `service.remove` of both names | both responses |
//! | `Stopped` | – | never: the program exits |
//! | `Failed` | – | never: the program logs the reason and exits |

mod acquisition;
mod alloc;
mod annotations;
mod commit;
mod dispatch;
mod error;
mod estimates;
mod forecast_requests;
mod handshake;
mod known_jobs;
mod pass;
mod queries;
mod respond;
mod retries;
mod scheduler;
mod settings;
mod what_if;

pub use dispatch::roles;
pub use scheduler::{Options, Phase, Scheduler};
pub use settings::{JobVisibility, Settings, SettingsError};
