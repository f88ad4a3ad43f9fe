//! Elastic jobs: requests for other resources (PMIx RFC 0005), and what becomes of them.

#[path = "../common/mod.rs"]
mod common;

mod changes;
mod cores;
mod denials;
mod idle;
mod loans;
mod names;
mod parts;
mod random;
mod reports;
mod requests;
