//! The log of a database: its length while the writer never pauses, and what a checkpoint that fails leaves.

use std::fs;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use penstock_jobspec::job_id::JobId;
use penstock_store::{LogLimits, Store, Synchronous};
use rusqlite::Connection;

/// A directory that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!(
            "penstock-checkpoints-{name}-{}",
            std::process::id()
        ));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn database(&self) -> PathBuf {
        self.0.join("jobs.sqlite")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const LIMITS: LogLimits = LogLimits {
    piece: 20,
    restart: 40,
    rest: 10,
    max: 200,
};

fn add_job(store: &mut Store, id: u64) {
    store.append_events(JobId::new(id), 0, "a\n").unwrap();
    store.commit().unwrap();
}

fn add_jobs_with_checkpoints(store: &mut Store, ids: RangeInclusive<u64>) {
    for id in ids {
        add_job(store, id);
        store.run_due_checkpoint();
    }
}

/// Opens the database as another program, which reads its present state from now on.
fn begin_to_read(folder: &Folder) -> Connection {
    let reader = Connection::open(folder.database()).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM events")
        .unwrap();
    reader
}

#[test]
fn the_log_restarts_while_the_writer_never_pauses() {
    let folder = Folder::new("calls");
    let mut store = Store::open_without_counter(&folder.database(), Synchronous::Full).unwrap();
    store.set_log_limits(LIMITS);
    let mut restarts = 0;
    let mut before = 0;
    for id in 1..=400 {
        add_job(&mut store, id);
        let pages = store.log_pages();
        restarts += u32::from(pages < before);
        before = pages;
        // Another commit comes before the one that restarts the log.
        if id % 3 == 0 {
            store.run_due_checkpoint();
            add_job(&mut store, 1000 + id);
        }
        assert!(pages <= LIMITS.restart + LIMITS.piece, "{pages} pages");
    }
    assert!(restarts > 5, "{restarts} restarts");
    drop(store);
    assert!(!folder.0.join("jobs.sqlite-wal").exists());
    let store = Store::open_without_counter(&folder.database(), Synchronous::Full).unwrap();
    assert_eq!(store.eventlog(JobId::new(400)).unwrap(), "a\n");
}

#[test]
fn a_thread_keeps_the_log_short() {
    let folder = Folder::new("thread");
    let mut store = Store::open(&folder.database(), Synchronous::Full).unwrap();
    store.set_log_limits(LIMITS);
    let mut longest = 0;
    for id in 1..=2000 {
        add_job(&mut store, id);
        longest = longest.max(store.log_pages());
    }
    // If the thread has no time the writer does its work.
    assert!(longest <= LIMITS.max + LIMITS.piece, "{longest} pages");
    store.close();
    let store = Store::open(&folder.database(), Synchronous::Full).unwrap();
    assert_eq!(store.eventlog(JobId::new(2000)).unwrap(), "a\n");
    assert!(store.warnings().is_empty());
}

#[test]
fn the_log_restarts_after_a_reader() {
    let folder = Folder::new("reader");
    let mut store = Store::open_without_counter(&folder.database(), Synchronous::Full).unwrap();
    store.set_log_limits(LIMITS);
    add_job(&mut store, 1);
    let reader = begin_to_read(&folder);
    add_jobs_with_checkpoints(&mut store, 2..=300);
    assert!(store.log_pages() > LIMITS.max);
    reader.execute_batch("COMMIT").unwrap();
    add_jobs_with_checkpoints(&mut store, 301..=320);
    assert!(store.log_pages() < LIMITS.restart, "{}", store.log_pages());
}

#[test]
fn the_log_of_a_killed_process_is_copied_at_the_start() {
    let folder = Folder::new("killed");
    let mut store = Store::open_without_counter(&folder.database(), Synchronous::Full).unwrap();
    add_job(&mut store, 1);
    let crashed = Folder::new("killed-copy");
    for suffix in ["", "-wal"] {
        let name = format!("jobs.sqlite{suffix}");
        fs::copy(folder.0.join(&name), crashed.0.join(&name)).unwrap();
    }
    let mut store = Store::open_without_counter(&crashed.database(), Synchronous::Full).unwrap();
    add_job(&mut store, 2);
    // The log has the second job alone.
    assert!(store.log_pages() < 10, "{}", store.log_pages());
    assert_eq!(store.eventlog(JobId::new(1)).unwrap(), "a\n");
}

#[test]
fn a_log_that_another_program_reads_is_adopted_by_the_next_process() {
    let folder = Folder::new("adopted");
    let mut store = Store::open_without_counter(&folder.database(), Synchronous::Full).unwrap();
    store.set_log_limits(LIMITS);
    add_job(&mut store, 1);
    let reader = begin_to_read(&folder);
    add_jobs_with_checkpoints(&mut store, 2..=50);
    let pages = store.log_pages();
    drop(store);
    // The pages before the state that is read count as copied.
    let mut store = Store::open_without_counter(&folder.database(), Synchronous::Full).unwrap();
    add_job(&mut store, 51);
    assert!(store.log_pages() > pages);
    for id in 1..=51 {
        assert_eq!(store.eventlog(JobId::new(id)).unwrap(), "a\n");
    }
    let seen = reader.query_row("SELECT count(*) FROM events", [], |row| row.get(0));
    assert_eq!(seen, Ok(1));
    reader.execute_batch("COMMIT").unwrap();
    store.set_log_limits(LIMITS);
    add_jobs_with_checkpoints(&mut store, 52..=80);
    assert!(store.log_pages() < pages);
}

#[test]
fn a_locked_log_is_adopted_by_the_first_transaction() {
    let folder = Folder::new("locked");
    let mut store = Store::open_without_counter(&folder.database(), Synchronous::Full).unwrap();
    add_job(&mut store, 1);
    let other = Connection::open(folder.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(store);
    let mut store = Store::open_without_counter(&folder.database(), Synchronous::Full).unwrap();
    assert_eq!(store.eventlog(JobId::new(1)).unwrap(), "a\n");
    let rejected = store.append_events(JobId::new(2), 0, "a\n");
    assert!(rejected.unwrap_err().is_busy());
    store.roll_back().unwrap();
    other.execute_batch("ROLLBACK").unwrap();
    add_job(&mut store, 2);
    assert_eq!(store.eventlog(JobId::new(2)).unwrap(), "a\n");
}

#[test]
fn the_blocks_that_the_log_has_in_advance_are_no_pages() {
    let folder = Folder::new("blocks");
    let mut store = Store::open(&folder.database(), Synchronous::Full).unwrap();
    add_job(&mut store, 1);
    add_job(&mut store, 2);
    let log = fs::metadata(folder.0.join("jobs.sqlite-wal")).unwrap();
    assert!(log.len() >= 1 << 20 && store.log_pages() < 50);
    let crashed = Folder::new("blocks-copy");
    for suffix in ["sqlite", "sqlite-wal", "generation"] {
        let name = format!("jobs.{suffix}");
        fs::copy(folder.0.join(&name), crashed.0.join(&name)).unwrap();
    }
    let mut store = Store::open(&crashed.database(), Synchronous::Full).unwrap();
    assert!(store.warnings().is_empty());
    add_job(&mut store, 3);
    for id in 1..=3 {
        assert_eq!(store.eventlog(JobId::new(id)).unwrap(), "a\n");
    }
}
