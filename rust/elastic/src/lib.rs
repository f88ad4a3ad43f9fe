//! Flexible allocations (PMIx RFC 0005): requests of running jobs for more resources or time, releases, and loans.
//!
//! The crate is pure. [`PmixRequest::read`] turns PMIx attributes into a request, or into a [`Denial`] with its PMIx status
//! and reason; [`Demand`] is the part of it that goes to a scheduler, as a jobspec; [`Ledger`] holds the requests and
//! loans of every job, and changes by events alone, so that a replay restores it.

mod attribute;
mod demand;
mod error;
mod ledger;
mod lists;
mod names;
mod release;
mod request;
mod time;

pub use attribute::{Attribute, Data};
pub use demand::{Attempt, Demand};
pub use error::Error;
pub use ledger::{
    Account, Change, Entry, Ledger, Loan, LoanEnd, MAX_PENDING_REQUESTS, Progress, RequestAgain,
    RequestEnd, Return,
};
pub use names::{AttributeKey, Directive, Status};
pub use release::{Holding, ReleasedPart, select_released};
pub use request::{Denial, Flagged, MAX_ATTRIBUTES, PmixRequest, shortened};
