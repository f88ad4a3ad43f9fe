//! The Linux implementation: the reaper's kernel (processes, the log file, the socket), and the event loops of reaper,
//! service and simulated execution.

mod broker;
mod cgroup;
mod client;
mod directory;
mod empty_files;
mod event_source;
mod guests;
mod job_directories;
mod job_places;
mod kernel;
mod output_directories;
mod output_usage;
mod pmi;
mod pmi_server;
mod procfs;
mod remove_directory;
mod serve;
mod service;
mod simulate;
mod spawn;
mod standby;
mod streams;
mod syscalls;

use std::path::Path;

use crate::Error;
use crate::log::LogContents;
use crate::types::{BootId, ProcessId};

pub use cgroup::CgroupPlace;
pub use client::Client;
pub use directory::IfLocked;
pub use pmi_server::{pmi_program, serve_pmi};
pub use serve::{Options, serve};
pub use service::{JournalOwner, ServiceOptions, run_service};
pub use simulate::{SimulationOptions, run_simulation};

/// Reads the log of a reaper's runtime directory, whether the reaper runs or not.
///
/// # Errors
///
/// Fails if there is no log, or if it cannot be read.
pub fn read_log(directory: &Path) -> Result<LogContents, Error> {
    let path = directory.join(directory::LOG_FILE);
    let bytes = std::fs::read(&path)
        .map_err(|error| Error::system(&format!("cannot read `{}`", path.display()), &error))?;
    LogContents::decode(&bytes)
}

/// Whether a process that was recorded in a boot is still running. A zombie is not running.
pub fn is_running(process: ProcessId, boot: BootId) -> bool {
    procfs::boot_id().is_ok_and(|current| current == boot)
        && procfs::stat(process.pid)
            .is_some_and(|stat| !stat.is_zombie && stat.start_time == process.start_time)
}
