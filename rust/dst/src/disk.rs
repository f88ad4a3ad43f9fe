//! A disk in memory: a write is in the page cache at once, and on the disk after a sync.
//!
//! The end of a process loses nothing of the page cache. A power failure loses every write since the last sync of its
//! file, or keeps it, or keeps some of its sectors, each write by itself: a disk may reorder what is not synced.

use std::collections::BTreeMap;

use crate::random::Random;

/// Bytes that a disk writes completely or not at all.
const SECTOR_BYTES: usize = 512;

/// Why an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No space is left.
    Full,
    /// An input/output error.
    InputOutput,
    /// The process has been killed in this operation, or before: it does not see the result.
    Killed,
}

/// The faults that are armed.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Files cannot grow.
    pub is_full: bool,
    /// Another program holds the lock for writing to the database.
    pub is_busy: bool,
    /// The write or sync after this many fails.
    pub error_after: Option<u32>,
    /// The sync after this many fails.
    pub sync_error_after: Option<u32>,
    /// As many writes and syncs behind that one fail, too.
    pub failing_after_sync: u32,
    failing: u32,
    /// The sync of this file after as many others of it fails.
    pub file_sync_error_after: Option<(&'static str, u32)>,
    /// The process is killed in the write or sync after this many.
    pub kill_after: Option<u32>,
}

#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        match self {
            Self::Write(offset, bytes) => write_at(contents, *offset, bytes),
            Self::Truncate(length) => contents.truncate(*length),
        }
    }
}

fn write_at(contents: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if contents.len() < end {
        contents.resize(end, 0);
    }
    if let Some(target) = contents.get_mut(offset..end) {
        target.copy_from_slice(bytes);
    }
}

/// A file: its contents in the page cache, those on the disk, and the changes between them.
#[derive(Debug, Default)]
struct File {
    cached: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Change>,
}

/// The disk of the daemon.
#[derive(Debug, Default)]
pub struct Disk {
    files: BTreeMap<String, File>,
    /// The armed faults.
    pub faults: Faults,
    is_killed: bool,
}

impl Disk {
    /// Whether the process has been killed: no operation has an effect.
    pub fn is_killed(&self) -> bool {
        self.is_killed
    }

    /// Kills the process that uses the disk.
    pub fn kill(&mut self) {
        self.is_killed = true;
    }

    /// Lets another process use the disk.
    pub fn revive(&mut self) {
        self.is_killed = false;
        self.faults.kill_after = None;
    }

    /// Whether a file exists.
    pub fn exists(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Creates a file, unless it exists.
    ///
    /// # Errors
    ///
    /// The process is killed.
    pub fn create(&mut self, name: &str) -> Result<(), Fault> {
        self.check_alive()?;
        self.files.entry(name.to_owned()).or_default();
        Ok(())
    }

    /// Removes a file, also from the disk.
    ///
    /// # Errors
    ///
    /// The process is killed.
    pub fn remove(&mut self, name: &str) -> Result<(), Fault> {
        self.check_alive()?;
        self.files.remove(name);
        Ok(())
    }

    /// The length of a file.
    pub fn len(&self, name: &str) -> usize {
        self.files.get(name).map_or(0, |file| file.cached.len())
    }

    /// Reads as many bytes as there are; returns their number.
    ///
    /// # Errors
    ///
    /// The process is killed.
    pub fn read(&self, name: &str, offset: usize, into: &mut [u8]) -> Result<usize, Fault> {
        self.check_alive()?;
        let contents = self.files.get(name).map_or(&[][..], |file| &file.cached);
        let found = contents.get(offset..).unwrap_or_default();
        let length = found.len().min(into.len());
        if let (Some(into), Some(found)) = (into.get_mut(..length), found.get(..length)) {
            into.copy_from_slice(found);
        }
        Ok(length)
    }

    /// Writes to the page cache.
    ///
    /// # Errors
    ///
    /// A fault is armed, or the process is killed.
    pub fn write(&mut self, name: &str, offset: usize, bytes: &[u8]) -> Result<(), Fault> {
        self.count()?;
        let is_full = self.faults.is_full;
        let file = self.files.entry(name.to_owned()).or_default();
        if is_full && offset + bytes.len() > file.cached.len() {
            return Err(Fault::Full);
        }
        write_at(&mut file.cached, offset, bytes);
        file.unsynced.push(Change::Write(offset, bytes.to_vec()));
        Ok(())
    }

    /// Shortens a file.
    ///
    /// # Errors
    ///
    /// A fault is armed, or the process is killed.
    pub fn truncate(&mut self, name: &str, length: usize) -> Result<(), Fault> {
        self.count()?;
        if let Some(file) = self.files.get_mut(name) {
            file.cached.truncate(length);
            file.unsynced.push(Change::Truncate(length));
        }
        Ok(())
    }

    /// Whether a file has changes that are in the page cache alone.
    #[cfg(test)]
    pub fn has_unsynced(&self, name: &str) -> bool {
        let file = self.files.get(name);
        file.is_some_and(|file| !file.unsynced.is_empty())
    }

    /// Makes the changes of a file durable. After a failed sync they are in the page cache alone, as with Linux: no later
    /// sync writes them.
    ///
    /// # Errors
    ///
    /// A fault is armed, or the process is killed.
    pub fn sync(&mut self, name: &str) -> Result<(), Fault> {
        let counted = self.count().and_then(|()| {
            if count_down(&mut self.faults.sync_error_after) {
                self.faults.failing = self.faults.failing_after_sync;
                return Err(Fault::InputOutput);
            }
            self.count_sync_of(name)
        });
        if let Err(fault) = counted {
            if fault == Fault::InputOutput
                && let Some(file) = self.files.get_mut(name)
            {
                file.unsynced.clear();
            }
            return Err(fault);
        }
        if let Some(file) = self.files.get_mut(name) {
            for change in file.unsynced.drain(..) {
                change.apply(&mut file.synced);
            }
        }
        Ok(())
    }

    /// Counts a write or sync, and lets an armed fault happen.
    fn count(&mut self) -> Result<(), Fault> {
        self.check_alive()?;
        if count_down(&mut self.faults.kill_after) {
            self.is_killed = true;
            return Err(Fault::Killed);
        }
        if self.faults.failing > 0 {
            self.faults.failing -= 1;
            return Err(Fault::InputOutput);
        }
        if count_down(&mut self.faults.error_after) {
            return Err(Fault::InputOutput);
        }
        Ok(())
    }

    /// Counts a sync of a file, and lets an armed fault happen.
    fn count_sync_of(&mut self, name: &str) -> Result<(), Fault> {
        let Some((file, left)) = &mut self.faults.file_sync_error_after else {
            return Ok(());
        };
        if *file != name {
            return Ok(());
        }
        if *left > 0 {
            *left -= 1;
            return Ok(());
        }
        self.faults.file_sync_error_after = None;
        Err(Fault::InputOutput)
    }

    fn check_alive(&self) -> Result<(), Fault> {
        if self.is_killed {
            return Err(Fault::Killed);
        }
        Ok(())
    }

    /// Loses unsynced writes, as a power failure does. `random` draws which of them.
    pub fn lose_power(&mut self, random: &mut Random) {
        for file in self.files.values_mut() {
            let loses_all = random.one_in(3);
            for change in file.unsynced.drain(..) {
                match (change, random.below(3)) {
                    _ if loses_all => {}
                    (_, 0) => {}
                    (Change::Write(offset, bytes), 1) => {
                        for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                            if random.one_in(2) {
                                write_at(&mut file.synced, offset + index * SECTOR_BYTES, sector);
                            }
                        }
                    }
                    (change, _) => change.apply(&mut file.synced),
                }
            }
            file.cached.clone_from(&file.synced);
        }
    }
}

/// Counts a fault down. Returns whether it happens now; it is disarmed then.
fn count_down(after: &mut Option<u32>) -> bool {
    match after {
        Some(0) => {
            *after = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(disk: &Disk) -> Vec<u8> {
        let mut bytes = vec![0; disk.len("a")];
        disk.read("a", 0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_power_failure_keeps_what_was_synced() {
        for seed in 0..100 {
            let mut disk = Disk::default();
            disk.write("a", 0, b"synced").unwrap();
            disk.sync("a").unwrap();
            disk.write("a", 6, b" or not").unwrap();
            disk.lose_power(&mut Random::new(seed));
            assert!(contents(&disk).starts_with(b"synced"));
        }
    }

    #[test]
    fn a_power_failure_loses_keeps_or_tears_what_was_not_synced() {
        let mut kept = [0; 3];
        for seed in 0..100 {
            let mut disk = Disk::default();
            disk.write("a", 0, &[1; 2 * SECTOR_BYTES]).unwrap();
            disk.lose_power(&mut Random::new(seed));
            let ones: usize = contents(&disk).into_iter().map(usize::from).sum();
            assert_eq!(ones % SECTOR_BYTES, 0);
            kept[ones / SECTOR_BYTES] += 1;
        }
        assert!(kept.iter().all(|count| *count > 0), "{kept:?}");
    }

    #[test]
    fn the_end_of_the_process_loses_nothing() {
        let mut disk = Disk::default();
        disk.write("a", 0, b"cached").unwrap();
        disk.faults.kill_after = Some(0);
        assert_eq!(disk.write("a", 0, b"lost"), Err(Fault::Killed));
        assert_eq!(disk.sync("a"), Err(Fault::Killed));
        disk.revive();
        assert_eq!(contents(&disk), b"cached");
    }

    #[test]
    fn what_a_failed_sync_did_not_write_is_never_written() {
        let mut disk = Disk::default();
        disk.write("a", 0, b"synced").unwrap();
        disk.sync("a").unwrap();
        disk.write("a", 0, b"failed").unwrap();
        disk.faults.error_after = Some(0);
        assert_eq!(disk.sync("a"), Err(Fault::InputOutput));
        disk.sync("a").unwrap();
        assert_eq!(contents(&disk), b"failed");
        disk.lose_power(&mut Random::new(1));
        assert_eq!(contents(&disk), b"synced");
    }

    #[test]
    fn the_sync_of_one_file_fails() {
        let mut disk = Disk::default();
        disk.faults.file_sync_error_after = Some(("a", 1));
        for (name, expected) in [
            ("b", Ok(())),
            ("a", Ok(())),
            ("b", Ok(())),
            ("a", Err(Fault::InputOutput)),
            ("a", Ok(())),
        ] {
            assert_eq!(disk.sync(name), expected);
        }
    }

    #[test]
    fn a_full_disk_takes_no_longer_file_and_overwrites_what_is_there() {
        let mut disk = Disk::default();
        disk.write("a", 0, b"1234").unwrap();
        disk.faults.is_full = true;
        assert_eq!(disk.write("a", 2, b"567"), Err(Fault::Full));
        disk.write("a", 2, b"56").unwrap();
        assert_eq!(contents(&disk), b"1256");
    }
}
