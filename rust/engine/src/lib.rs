//! The engine: the inventory, the pending and running jobs, and which job is allocated what.
//!
//! The engine uses no socket, clock, thread or environment: time is an argument, and the same calls
//! give the same answers. [`Engine::schedule`] returns [`Decision`]s and changes only the engine's
//! own state.
//!
//! ```
//! use penstock_engine::{Decision, Engine, Job, QueueId};
//! use penstock_jobspec::Request;
//! use penstock_jobspec::job_id::JobId;
//! use penstock_rset::ResourceSet;
//!
//! let inventory = ResourceSet::from_json(
//!     r#"{"version":1,"execution":{"R_lite":[{"rank":"0-3","children":{"core":"0-7"}}],
//!         "nodelist":["node[0-3]"]}}"#,
//! )?;
//! let mut engine = Engine::new(&inventory)?;
//! engine.mark_up(&inventory.ranks());
//! let request = Request {
//!     nnodes: None,
//!     exclusive: false,
//!     slots: 2.into(),
//!     cores_per_slot: 4.into(),
//!     gpus_per_slot: 0.into(),
//!     duration: 60.0,
//!     constraint: None,
//! };
//! let id = JobId::new(1);
//! engine.submit(Job { id, priority: 16, request, queue: QueueId::default() })?;
//! let decisions = engine.schedule(1000.0, 10);
//! assert_eq!(decisions, [Decision::Alloc { id, backfilled: false }]);
//! let r = engine.r(id)?;
//! assert_eq!(r.summary(), "rank0/core[0-7]");
//! assert_eq!(r.expiration(), Some(1060.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accuracy;
mod allocation;
mod allocation_log;
mod availability_profile;
mod chunked_vec;
mod copy_on_write;
mod engine;
mod error;
mod estimate;
mod explain;
mod ids;
mod inventory;
mod job;
mod memory;
mod node_table;
mod plan;
mod policy;
mod priorities;
mod queue;
mod queue_scan;
mod queues;
mod quotas;
mod resize;
mod running_jobs;
mod shown_constraint;
mod sparse_vec;
mod state;
mod summary;
mod timeline;
mod verdict;
mod whatif;

pub use accuracy::{Accuracy, Band, Errors, StartRange};
pub use engine::{Engine, Options};
pub use error::Error;
pub use estimate::{Estimate, EstimatedJobs, Horizon, SlicedEstimate};
pub use explain::{Field, Lack, Nearest, QueueLimit, Reason, RequestUnit, Shortage};
pub use ids::QueueId;
pub use job::Job;
pub use node_table::{Infeasible, Selection, ShapeId};
pub use policy::Policy;
pub use priorities::ordered_priorities;
pub use queue::Order;
pub use queues::QueueOptions;
pub use running_jobs::OutsideResources;
pub use summary::{AllocationSummary, NodeAllocation, PendingJob};
pub use verdict::{Decision, Interference, Overlong};
pub use whatif::{Change, ChangeEffect, Fit, FitSearch, Moved, SlicedWhatIf, Start};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
