//! The jobs that an answer may name: an id tells when a job was submitted.

use penstock_flux::Credentials;
use penstock_jobspec::job_id::JobId;

/// The users whose jobs a reader may know.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KnownJobs {
    All,
    /// The jobs for which a sender may act.
    OfSender(Credentials),
    /// The jobs of the user of a job.
    OfUserOf(JobId),
}
