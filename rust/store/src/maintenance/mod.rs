//! The tools of an administrator: check and copy a database, also while an instance uses it; replace and repair it while
//! no instance does.
//!
//! A database that takes the place of another one is marked: jobs in it may have run since it was written, see
//! [`Store::replaced`](crate::Store::replaced).

mod check;
mod copy;
mod export;
mod salvage;

pub use check::check;
pub use copy::{Replacement, back_up, restore, vacuum};
pub use export::{export, export_file, import};
pub use salvage::{Salvage, salvage};
