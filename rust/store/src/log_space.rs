//! The space of the log: blocks that it will use are written in advance, many at once.
//!
//! A sync of a file that grows writes its inode and the maps of its blocks, too, which takes many times as long as a sync of
//! blocks that are there.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A page of the log with its header.
pub(crate) const FRAME_BYTES: u64 = 4096 + 24;
/// The log has blocks for as many more pages at the beginning of a transaction.
const MIN_SPARE_PAGES: u64 = 64;
/// Bytes that the log gets at once.
const STEP_BYTES: usize = 1 << 20;

static ZEROS: [u8; STEP_BYTES] = [0; STEP_BYTES];

/// The file of the log. Zeros at its end are no pages: `SQLite` finds no valid header there.
#[derive(Debug)]
pub(crate) struct LogSpace {
    file: File,
    /// The length of the file that is known.
    length: u64,
    /// Whether the disk is full.
    is_full: bool,
}

impl LogSpace {
    /// The existing log of an open database.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(Self {
            file,
            length,
            is_full: false,
        })
    }

    /// Writes blocks for the pages of a transaction, after a log of `pages` pages. The caller has begun that transaction, by
    /// which no other program writes the log; its commit syncs the blocks.
    pub(crate) fn extend(&mut self, pages: u64) {
        let needed = (pages + MIN_SPARE_PAGES) * FRAME_BYTES;
        if self.length >= needed || self.is_full {
            return;
        }
        // A failure is one of this write alone: `SQLite` makes the file longer itself, and reports why it cannot.
        self.is_full = self.write_blocks(needed).is_err();
    }

    fn write_blocks(&mut self, needed: u64) -> io::Result<()> {
        self.length = self.file.metadata()?.len();
        while self.length < needed {
            if let Err(error) = self.file.write_all_at(&ZEROS, self.length) {
                self.file.set_len(self.length)?;
                return Err(error);
            }
            self.length += STEP_BYTES as u64;
        }
        Ok(())
    }
}
