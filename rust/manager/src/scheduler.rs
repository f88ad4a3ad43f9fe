//! `SchedulerPeer`: the job manager's end of RFC 27, requests for resources, for which jobs, in which
//! order.
//!
//! Which message moves a job's request on is the table of
//! [`AllocState::after`](crate::dialogue::AllocState::after); which moves the handshake on is that of
//! [`Handshake::after`](crate::handshake::Handshake::after).

mod expiration;
mod handshake;
mod peer;
mod request;
mod response;

pub(crate) use peer::SchedulerPeer;
pub(crate) use request::Withdrawal;
