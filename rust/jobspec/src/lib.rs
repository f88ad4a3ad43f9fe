//! Jobspec V1 (RFC 25), the request of a job, with count ranges (RFC 14, RFC 45) and constraints (RFC 31); time
//! limits as Flux Standard Durations (RFC 23); and job ids (RFC 19). A [`Layout`] places the tasks of a jobspec on its
//! R.
//!
//! ```
//! use penstock_jobspec::Jobspec;
//!
//! let jobspec = Jobspec::from_json(r#"{
//!     "version": 1,
//!     "resources": [{"type": "slot", "count": 4, "label": "task",
//!                    "with": [{"type": "core", "count": 2}]}],
//!     "tasks": [{"command": ["hostname"], "slot": "task", "count": {"per_slot": 1}}],
//!     "attributes": {"system": {"duration": 60}}
//! }"#)?;
//! assert_eq!(jobspec.ntasks(), 4);
//! assert_eq!(jobspec.request().cores_per_slot, 2);
//! # Ok::<(), penstock_jobspec::Error>(())
//! ```

pub mod constraint;
pub mod copies;
mod count;
pub mod duration;
mod error;
pub mod job_id;
mod jobspec;
mod layout;
mod request;

pub use constraint::{Constraint, Target};
pub use count::{Count, Operator};
pub use error::Error;
pub use jobspec::{COPY_IDS, Dependency, Jobspec, JobspecBuilder, MAX_TASKS, TaskCount};
pub use layout::{Layout, LayoutError, TaskPlacement};
pub use request::Request;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
