//! Simulation: workloads, read or made, replayed in virtual time by the engine that schedules in
//! production.
//!
//! Like the engine it knows no clock, no file and no thread: text comes in and goes out.

mod error;
mod estimates;
mod failures;
pub mod jsonl;
mod lublin;
mod metrics;
mod mix;
mod random;
mod results;
mod scheduler;
mod series;
mod setup;
mod simulation;
pub mod swf;
mod units;
mod workload;

pub use error::Error;
pub use estimates::Estimates;
pub use lublin::{Kinds, Lublin};
pub use metrics::{EstimateError, SLOWDOWN_BOUND, SizeClass, Spread, Summary, Tally};
pub use mix::Mix;
pub use random::Random;
pub use results::{Fate, Results};
pub use series::Series;
pub use setup::{Chance, Failure, Machine, Setup};
pub use simulation::{Denial, Simulation};
pub use workload::{DEFAULT_PRIORITY, JobShape, MAX_MADE_UP, TraceJob, Workload};
