//! Sets of small non-negative integers (ranks, cores, gpus) and their text form,
//! [RFC 22](https://flux-framework.readthedocs.io/projects/flux-rfc/en/latest/spec_22.html).
//!
//! An [`IdSet`] holds ids from 0 to [`IdSet::MAX_ID`] in ascending order. It chooses its own form: a bitmap without
//! heap for ids below 128, else chunks of 65,536 ids, each a bitmap, a list of ids or a list of runs, whichever is
//! small. `0-4294967294` costs little more than `200-300`; nothing is ever sized by the value of an id.
//!
//! It is not a set of any integers: ids are ranks and indices, and 4294967295 is no id.
//!
//! ```
//! use penstock_idset::IdSet;
//!
//! let cores: IdSet = "0-3,8".parse()?;
//! let busy: IdSet = "[2,3]".parse()?;
//! assert_eq!((&cores - &busy).to_string(), "0-1,8");
//! assert_eq!(cores.len(), 5);
//! let error = "1-x".parse::<IdSet>().unwrap_err();
//! assert_eq!(error.to_string(), "invalid idset \"1-x\": expected a number at byte 2");
//! # Ok::<(), penstock_idset::Error>(())
//! ```

#![cfg_attr(not(test), no_std)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod algebra;
mod body;
mod builder;
mod chunks;
mod edit;
mod error;
mod iter;
mod lenient;
#[cfg(feature = "std")]
mod level;
mod op;
mod ops;
mod run;
mod runwise;
#[cfg(feature = "serde")]
mod serde;
mod set;
mod text;
mod traits;
mod wide;
mod words;

pub use error::Error;
pub use iter::{Iter, Ranges};
pub use lenient::Mended;
#[cfg(feature = "std")]
pub use level::{LevelError, simd_level};
pub use set::IdSet;

use set::{Form, INLINE_IDS};

#[cfg(test)]
mod tests;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
