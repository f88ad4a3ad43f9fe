//! The space that retained output takes and has.
//!
//! The group of a file is the id of the guest whose output it is. The file stays root's and for root alone: its owner could
//! change its permissions, and delay those who open it by a lease.

use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Gid, StatVfs, fchown, fstatvfs, statvfs};
use rustix::io::Errno;

use crate::service::{MIN_FREE_BYTES, OutputFile, Stream};
use crate::types::JobId;

/// The files that one step of a count looks at: some milliseconds if none is in the cache.
const FILES_PER_STEP: usize = 128;
/// The unit in which a file system allocates space for a file.
pub(super) const BLOCK_BYTES: usize = 4096;

/// The number of free inodes below which they limit the space, as bytes do: a shortage ends at twice the least space.
const FEW_INODES: u64 = 2 * MIN_FREE_BYTES / BLOCK_BYTES as u64;

/// Marks a file of retained output as a guest's.
pub(super) fn mark(file: impl AsFd, guest: u32) -> Result<(), Errno> {
    fchown(file, None, Some(Gid::from_raw(guest)))
}

/// The bytes that users can write to the file system of a directory; without a limit if they are not known.
pub(super) fn free_bytes(directory: &Path) -> u64 {
    statvfs(directory).map_or(u64::MAX, |space| available(&space))
}

/// The same for the file system of an open file.
pub(super) fn free_bytes_of(file: impl AsFd) -> u64 {
    fstatvfs(file).map_or(u64::MAX, |space| available(&space))
}

fn available(space: &StatVfs) -> u64 {
    let bytes = space.f_bavail.saturating_mul(space.f_frsize);
    // A file system that makes inodes as they are needed counts 0 files. Where few are free, there is no more space than for
    // as many files of one block.
    let bytes = if space.f_files > 0 && space.f_favail < FEW_INODES {
        bytes.min(space.f_favail * BLOCK_BYTES as u64)
    } else {
        bytes
    };
    if bytes >= MIN_FREE_BYTES { bytes } else { 0 }
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
        bytes: file
            .len()
            .checked_next_multiple_of(BLOCK_BYTES as u64)
            .unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{File, write};

    use rustix::process::geteuid;

    use super::*;

    #[test]
    fn a_count_finds_the_files_of_guests_in_steps() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        for job in 1..=300 {
            write(path(&format!("{job}.stdout")), "four").expect("written");
            write(path(&format!("{job}.stderr")), "").expect("written");
        }
        for name in ["reaper.log", "1.other", "x.stdout", ".empty"] {
            write(path(name), "text").expect("written");
        }
        if geteuid().is_root() {
            for job in 1..=200 {
                let file = File::open(path(&format!("{job}.stdout"))).expect("opened");
                mark(&file, 1001).expect("only root can do that");
            }
        }
        let mut count = OutputCount::new(directory.path()).expect("a directory");
        let mut steps = 0;
        let mut found = Vec::new();
        while let Some(files) = count.step().expect("readable") {
            steps += 1;
            found.extend(files);
        }
        assert_eq!(steps, 604_usize.div_ceil(FILES_PER_STEP));
        if geteuid().is_root() {
            assert!(found.iter().all(|file| file.user == 1001));
            let mut jobs: Vec<_> = found.iter().map(|file| file.job.get()).collect();
            jobs.sort_unstable();
            assert!(jobs.into_iter().eq(1..=200));
            assert_eq!(
                found.iter().map(|file| file.bytes).max(),
                Some(BLOCK_BYTES as u64)
            );
        }
    }

    #[test]
    fn free_space_is_known_for_a_directory_only() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(free_bytes(directory.path()) < u64::MAX);
        assert_eq!(free_bytes(&directory.path().join("missing")), u64::MAX);
    }

    #[test]
    fn little_space_counts_as_0_and_files_need_inodes() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut space = statvfs(directory.path()).expect("a file system");
        (space.f_frsize, space.f_bavail) = (4096, 16);
        (space.f_files, space.f_favail) = (0, 0);
        assert_eq!(available(&space), MIN_FREE_BYTES);
        space.f_files = 1;
        assert_eq!(available(&space), 0);
        space.f_favail = 32;
        assert_eq!(available(&space), MIN_FREE_BYTES);
        space.f_bavail = 15;
        assert_eq!(available(&space), 0);
        // Few inodes are little space, whatever the blocks.
        space.f_bavail = 1 << 20;
        for (inodes, expected) in [(15, 0), (16, MIN_FREE_BYTES), (31, 31 << 12), (32, 1 << 32)] {
            space.f_favail = inodes;
            assert_eq!(available(&space), expected);
        }
    }
}
