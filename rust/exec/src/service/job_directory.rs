//! The directory of a job.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use penstock_flux::job_files::{FileContent, JobFile};

use crate::types::JobId;

/// The directory of a job, as the event loop makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDirectory {
    /// The job.
    pub job: JobId,
    /// The user to whom it belongs.
    pub owner: DirectoryOwner,
    /// The files in it, each directory directly before the files below it.
    pub files: Arc<[JobFile]>,
}

/// The user to whom the directory of a job belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryOwner {
    /// The user that runs the service.
    Service,
    /// A guest, by user id.
    Guest(u32),
}

/// The places of job directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDirectoryPlaces {
    /// The parent of the directories of guests' jobs.
    pub guests: PathBuf,
    /// The parent of the directories of jobs of the service's user.
    pub own: PathBuf,
    /// The parents of directories that an earlier service with other settings has made.
    pub former: BTreeMap<JobId, PathBuf>,
}

impl JobDirectoryPlaces {
    /// The directory of a job.
    pub fn directory(&self, job: JobId, owner: DirectoryOwner) -> PathBuf {
        let present = match owner {
            DirectoryOwner::Guest(_) => &self.guests,
            DirectoryOwner::Service => &self.own,
        };
        job_directory(self.former.get(&job).unwrap_or(present), job)
    }
}

/// The directory of a job, in the directory of these.
pub fn job_directory(directory: &Path, job: JobId) -> PathBuf {
    directory.join(job.get().to_string())
}
