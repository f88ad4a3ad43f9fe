//! The engine: what exists, who waits, and who gets what.
//!
//! It knows no socket, clock, thread or environment: time comes in as an argument, and the same
//! calls give the same answers. [`Engine::schedule`] returns [`Decision`]s and acts on nothing
//! but its own books.
//!
//! ```
//! use penstock_engine::{Decision, Engine, Job};
//! use penstock_jobspec::Request;
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
//! engine.submit(Job { id: 1, priority: 16, request })?;
//! let Some(Decision::Alloc { r, .. }) = engine.schedule(1000.0, 10).pop() else {
//!     panic!("two slots of four cores fit on node0")
//! };
//! assert_eq!(r.summary(), "rank0/core[0-7]");
//! assert_eq!(r.expiration(), Some(1060.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod engine;
mod error;
mod feasibility;
mod index;
mod inventory;
#[expect(dead_code, reason = "the interface that policies are written against")]
mod machine;
mod matching;
mod queue;

pub use engine::{Decision, Engine};
pub use error::Error;
pub use machine::ShapeId;
pub use queue::Job;
