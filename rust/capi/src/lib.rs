//! The C library `libpenstock`: idsets (RFC 22), hostlists (RFC 29) and R (RFC 20).
//!
//! `penstock.h`, which cbindgen makes from [`idset`], [`hostlist`] and [`rset`], is its interface. [`flux`] has the
//! functions of `flux/idset.h` and `flux/hostlist.h`, whose headers are in `include/`.
//!
//! # Safety
//!
//! Each exported function takes pointers that the library has returned and that were not freed, or null, and texts of the
//! given length, or ending with a NUL where no length is given. A panic does not reach the caller: the function returns
//! what it returns for a failure.

mod call;
/// cbindgen:ignore
pub mod flux;
pub mod hostlist;
pub mod idset;
pub mod rset;

pub use call::Error;
