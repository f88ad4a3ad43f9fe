//! The space that retained output takes and has.
//!
//! The group of a file is the id of the guest whose output it is. The file stays root's and for root alone: its owner could
//! change its permissions, and delay those who open it by a lease.

use std::fs::{self, DirEntry, Metadata, ReadDir};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Gid, fchown, statvfs};
use rustix::io::Errno;

use crate::service::{OutputFile, Stream};
use crate::types::JobId;

/// The files that one step of a count looks at: some milliseconds if none is in the cache.
const FILES_PER_STEP: usize = 128;
/// The unit of the blocks of a file (`stat(2)`).
const BLOCK_BYTES: u64 = 512;

/// Marks a file of retained output as a guest's.
pub(super) fn mark(file: impl AsFd, guest: u32) -> Result<(), Errno> {
    fchown(file, None, Some(Gid::from_raw(guest)))
}

/// The size of a file, or half of what is allocated for it if that is more: a task can allocate space beyond the end, and
/// a file system may do the same ahead of writes, up to the size again.
pub(super) fn stored_bytes(file: &Metadata) -> u64 {
    file.len()
        .max(file.blocks().saturating_mul(BLOCK_BYTES) / 2)
}

/// The bytes that users can write to the file system of a directory; without a limit if they are not known.
pub(super) fn free_bytes(directory: &Path) -> u64 {
    statvfs(directory).map_or(u64::MAX, |space| {
        space.f_bavail.saturating_mul(space.f_frsize)
    })
}

/// A count of the output of guests in a directory.
#[derive(Debug)]
pub(super) struct OutputCount(ReadDir);

impl OutputCount {
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        fs::read_dir(directory).map(Self)
    }

    /// The guests' files among the next ones; `None` at the end.
    pub(super) fn step(&mut self) -> io::Result<Option<Vec<OutputFile>>> {
        let entries = self.0.by_ref().take(FILES_PER_STEP);
        let entries = entries.collect::<io::Result<Vec<_>>>()?;
        let guests_files = || entries.iter().filter_map(guests_file).collect();
        Ok((!entries.is_empty()).then(guests_files))
    }
}

/// A file of retained output, if it is a guest's.
fn guests_file(entry: &DirEntry) -> Option<OutputFile> {
    let name = entry.file_name();
    let (job, stream) = name.to_str()?.split_once('.')?;
    let job = job.parse().ok()?;
    if !Stream::ALL.iter().any(|known| known.name() == stream) {
        return None;
    }
    let file = entry.metadata().ok()?;
    (file.gid() != 0).then(|| OutputFile {
        job: JobId::new(job),
        user: file.gid(),
        bytes: stored_bytes(&file),
    })
}
