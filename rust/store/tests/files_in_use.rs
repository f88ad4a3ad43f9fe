//! Files of a database that are truncated, overwritten, replaced or removed while it is open.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use penstock_jobspec::job_id::JobId;
use penstock_store::{Error, Store, Synchronous};
use rusqlite::Connection;

/// A directory that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("penstock-files-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn try_open(&self, synchronous: Synchronous) -> Result<Store, Error> {
        Store::open(&self.file(DATABASE), synchronous)
    }

    fn open(&self) -> Store {
        self.try_open(Synchronous::Full).unwrap()
    }

    /// Another program that has the database open.
    fn connect(&self) -> Connection {
        Connection::open(self.file(DATABASE)).unwrap()
    }

    fn truncate(&self, name: &str, length: u64) {
        let file = OpenOptions::new().write(true).open(self.file(name));
        file.unwrap().set_len(length).unwrap();
    }

    fn length(&self, name: &str) -> u64 {
        self.file(name).metadata().unwrap().len()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const DATABASE: &str = "jobs.sqlite";
const LOG: &str = "jobs.sqlite-wal";
const COUNTER: &str = "jobs.generation";
const FRAME_BYTES: u64 = 4096 + 24;

fn add_jobs(store: &mut Store, ids: impl IntoIterator<Item = u64>) {
    for id in ids {
        try_to_add_job(store, id).unwrap();
    }
}

fn try_to_add_job(store: &mut Store, id: u64) -> Result<(), Error> {
    let spec = store.add_jobspec(1000, "{}")?;
    store.add_job(JobId::new(id), 1000, 1.5, spec)?;
    store.append_events(JobId::new(id), 0, "a\n")?;
    store.commit().map(drop)
}

fn ids(store: &Store) -> Vec<u64> {
    let jobs = store.jobs().unwrap().records;
    jobs.iter().map(|job| job.id.get()).collect()
}

/// A database that was opened before, so that its tables are not in its log alone, with jobs that are in its log alone.
fn with_jobs_in_log(folder: &Folder, synchronous: Synchronous) -> Store {
    drop(folder.open());
    let mut store = folder.try_open(synchronous).unwrap();
    add_jobs(&mut store, 1..=9);
    store
}

/// Copies the log into the database by another program. The log stays as long as it is.
fn copy_log(folder: &Folder) {
    let other = folder.connect();
    let copy = || {
        other
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(0))
            .unwrap()
    };
    // The thread may be making a copy.
    while copy() {
        std::thread::yield_now();
    }
}

#[test]
fn a_log_that_is_truncated_between_commits_fails_the_next_one() {
    for synchronous in [Synchronous::Full, Synchronous::Normal] {
        for (divisor, removed) in [(0, None), (2, None), (0, Some(COUNTER)), (2, Some(COUNTER))] {
            let folder = Folder::new(&format!("log-{divisor}"));
            let mut store = with_jobs_in_log(&folder, synchronous);
            let end = store.log_pages() * FRAME_BYTES;
            folder.truncate(LOG, end.checked_div(divisor).unwrap_or(0));
            if let Some(name) = removed {
                fs::remove_file(folder.file(name)).unwrap();
            }
            let error = try_to_add_job(&mut store, 10).unwrap_err();
            assert!(error.is_lost(), "{error}");
            assert!(error.to_string().contains("jobs.sqlite-wal` was truncated"));
            let reader = store.reopen_for_reading(&folder.file(DATABASE));
            assert!(reader.unwrap_err().is_lost());
            // No later start accepts the loss.
            for _ in 0..2 {
                let error = folder.try_open(synchronous).unwrap_err();
                assert!(error.is_lost(), "{error}");
            }
        }
    }
}

#[test]
fn a_log_that_is_truncated_during_a_transaction_fails_its_commit() {
    for removed_pages in [1, 5, 9] {
        let folder = Folder::new("transaction");
        let mut store = with_jobs_in_log(&folder, Synchronous::Full);
        store.set_meta("a", "1").unwrap();
        let kept = store.log_pages() - removed_pages;
        folder.truncate(LOG, 32 + kept * FRAME_BYTES);
        let error = store.commit().unwrap_err();
        assert!(error.is_lost(), "{error}");
        drop(store);
        assert!(folder.try_open(Synchronous::Full).unwrap_err().is_lost());
    }
}

#[test]
fn a_log_with_another_header_fails_the_commit() {
    let folder = Folder::new("header");
    let mut store = with_jobs_in_log(&folder, Synchronous::Full);
    let log = OpenOptions::new().write(true).open(folder.file(LOG));
    log.unwrap().write_all_at(&[7; 32], 0).unwrap();
    let error = try_to_add_job(&mut store, 10).unwrap_err();
    assert!(error.is_lost(), "{error}");
    drop(store);
    assert!(folder.try_open(Synchronous::Full).unwrap_err().is_lost());
}

#[test]
fn nothing_is_lost_with_a_truncated_log_that_was_copied() {
    let folder = Folder::new("copied");
    let mut store = with_jobs_in_log(&folder, Synchronous::Full);
    copy_log(&folder);
    folder.truncate(LOG, 0);
    assert!(try_to_add_job(&mut store, 10).is_err());
    drop(store);
    let mut store = folder.open();
    assert_eq!(ids(&store), (1..=9).collect::<Vec<_>>());
    add_jobs(&mut store, 10..=11);
    assert_eq!(store.warnings(), [""; 0]);
}

#[test]
fn another_program_may_copy_and_truncate_the_log() {
    let folder = Folder::new("other");
    let mut store = with_jobs_in_log(&folder, Synchronous::Full);
    for (id, mode) in (10..).zip(["TRUNCATE", "RESTART", "TRUNCATE", "FULL", "TRUNCATE"]) {
        let other = folder.connect();
        other
            .query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()))
            .unwrap();
        if mode == "TRUNCATE" {
            assert_eq!(folder.length(LOG), 0);
        }
        add_jobs(&mut store, [id, id + 100]);
    }
    assert_eq!(ids(&store).len(), 19);
}

#[test]
fn a_log_that_restarts_in_a_longer_or_shorter_transaction_is_complete() {
    let folder = Folder::new("restart");
    let mut store = with_jobs_in_log(&folder, Synchronous::Full);
    for count in [1, 4000, 1, 10] {
        copy_log(&folder);
        let before = store.log_pages();
        for number in 0..count {
            let text = format!("{number:>4000}");
            store.set_meta(&number.to_string(), &text).unwrap();
        }
        store.commit().unwrap();
        assert!((store.log_pages() > before) == (count == 4000));
    }
}

#[test]
fn the_database_may_become_shorter() {
    let folder = Folder::new("shrunk");
    let mut store = folder.open();
    for number in 0..4000 {
        let text = format!("{number:>4000}");
        store
            .set_value(&format!("a.{number}"), text.as_bytes())
            .unwrap();
    }
    store.commit().unwrap();
    copy_log(&folder);
    add_jobs(&mut store, [1]);
    let long = folder.length(DATABASE);
    store.remove_value("a").unwrap();
    store.commit().unwrap();
    for id in 2.. {
        if store.release_pages(500).unwrap() == 0 {
            break;
        }
        store.commit().unwrap();
        copy_log(&folder);
        add_jobs(&mut store, [id]);
    }
    assert!(folder.length(DATABASE) < long / 2);
}

#[test]
fn a_truncated_database_fails_the_next_commit() {
    for removed in [None, Some(COUNTER)] {
        for part in ["nothing", "half", "all but a page"] {
            let folder = Folder::new("database");
            let mut store = folder.open();
            add_jobs(&mut store, 1..=99);
            copy_log(&folder);
            add_jobs(&mut store, 100..=101);
            let length = folder.length(DATABASE);
            let kept = match part {
                "nothing" => 0,
                "half" => length / 2,
                _ => length - 4096,
            };
            folder.truncate(DATABASE, kept);
            if let Some(name) = removed {
                fs::remove_file(folder.file(name)).unwrap();
            }
            let error = try_to_add_job(&mut store, 102).unwrap_err();
            assert!(error.is_lost(), "{error}");
            assert!(error.to_string().contains("jobs.sqlite` was truncated"));
            drop(store);
            for _ in 0..2 {
                // SQLite may notice it, too.
                let error = folder.try_open(Synchronous::Full).unwrap_err();
                assert!(error.is_lost() || part == "half", "{part}: {error}");
            }
        }
    }
}

#[test]
fn a_counter_that_is_removed_or_replaced_is_written_by_the_next_commit() {
    let folder = Folder::new("counter");
    let mut store = with_jobs_in_log(&folder, Synchronous::Full);
    let counter = folder.file(COUNTER);
    let old = fs::read(&counter).unwrap();
    fs::remove_file(&counter).unwrap();
    add_jobs(&mut store, [10]);
    let written = fs::read(&counter).unwrap();
    assert_ne!(written, old);
    fs::write(folder.file("old"), &old).unwrap();
    fs::rename(folder.file("old"), &counter).unwrap();
    add_jobs(&mut store, [11]);
    assert!(fs::read(&counter).unwrap() > written);
    // Or when the database is closed.
    let written = fs::read(&counter).unwrap();
    fs::remove_file(&counter).unwrap();
    drop(store);
    assert_eq!(fs::read(&counter).unwrap(), written);
    assert_eq!(folder.open().warnings(), [""; 0]);
}

#[test]
fn a_counter_that_cannot_be_written_again_fails_the_commit() {
    let folder = Folder::new("unwritable");
    let mut store = with_jobs_in_log(&folder, Synchronous::Full);
    let counter = folder.file(COUNTER);
    fs::remove_file(&counter).unwrap();
    fs::create_dir(&counter).unwrap();
    let error = try_to_add_job(&mut store, 10).unwrap_err();
    assert!(error.is_input_output(), "{error}");
    assert!(error.to_string().contains("jobs.generation"), "{error}");
}

#[test]
fn a_database_that_is_removed_with_its_counter_is_not_made_again() {
    let folder = Folder::new("both");
    let mut store = with_jobs_in_log(&folder, Synchronous::Full);
    for name in [DATABASE, COUNTER] {
        fs::remove_file(folder.file(name)).unwrap();
    }
    assert!(try_to_add_job(&mut store, 10).unwrap_err().is_lost());
    drop(store);
    let error = folder.try_open(Synchronous::Full).unwrap_err();
    assert!(error.to_string().contains("missing or empty"), "{error}");
}

#[test]
fn another_database_in_its_place_keeps_its_counter() {
    let folder = Folder::new("another");
    let other = Folder::new("another-other");
    let mut store = with_jobs_in_log(&folder, Synchronous::Full);
    drop(other.open());
    for name in [DATABASE, COUNTER] {
        fs::rename(other.file(name), folder.file(name)).unwrap();
    }
    let counter = fs::read(folder.file(COUNTER)).unwrap();
    assert!(try_to_add_job(&mut store, 10).unwrap_err().is_lost());
    drop(store);
    assert_eq!(fs::read(folder.file(COUNTER)).unwrap(), counter);
}
