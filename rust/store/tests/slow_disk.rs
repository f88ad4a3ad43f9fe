//! Commits whose sync a thread makes: the disk is slow.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};

use penstock_store::{Commit, Store, Synchronous};

/// A directory that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let id = std::process::id();
        let path = std::env::temp_dir().join(format!("penstock-slow-disk-{name}-{id}"));
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

/// A store on a slow disk, and what can be received at the end of each sync.
fn open_slow(folder: &Folder) -> (Store, Receiver<()>) {
    let mut store = Store::open(&folder.database(), Synchronous::Full).unwrap();
    let (notify, ends) = channel();
    let notify = move || {
        let _ = notify.send(());
    };
    store.sync_in_thread(notify).unwrap();
    store.expect_slow_syncs();
    (store, ends)
}

fn counter(folder: &Folder) -> String {
    fs::read_to_string(folder.0.join("jobs.generation")).unwrap()
}

#[test]
fn a_commit_is_counted_when_its_sync_has_ended() {
    let folder = Folder::new("counted");
    let (mut store, ends) = open_slow(&folder);
    let before = counter(&folder);
    store.set_meta("a", "1").unwrap();
    assert_eq!(store.begin_commit().unwrap(), Commit::Syncing);
    ends.recv().unwrap();
    assert!(!store.is_syncing());
    assert_eq!(counter(&folder), before);
    assert!(store.finish_sync().unwrap());
    assert!(!store.finish_sync().unwrap());
    assert_ne!(counter(&folder), before);
}

#[test]
fn changes_are_collected_during_a_sync_and_a_commit_waits_for_it() {
    let folder = Folder::new("collected");
    let (mut store, ends) = open_slow(&folder);
    for number in 0..50 {
        store.set_meta(&format!("key {number}"), "1").unwrap();
        assert_eq!(store.begin_commit().unwrap(), Commit::Syncing);
    }
    assert_eq!(store.begin_commit().unwrap(), Commit::Unchanged);
    // The last one may come after the wait for it.
    for _ in 0..50 {
        ends.recv().unwrap();
    }
    store.set_meta("last", "1").unwrap();
    assert!(store.commit().unwrap());
    assert!(!store.is_syncing());
    drop(store);
    let store = Store::open(&folder.database(), Synchronous::Full).unwrap();
    assert_eq!(store.meta("last").unwrap().as_deref(), Some("1"));
    assert_eq!(store.warnings(), [""; 0]);
}

#[test]
fn a_store_that_is_closed_during_a_sync_counts_its_commit() {
    let folder = Folder::new("closed");
    let (mut store, _ends) = open_slow(&folder);
    let before = counter(&folder);
    store.set_meta("a", "1").unwrap();
    assert_eq!(store.begin_commit().unwrap(), Commit::Syncing);
    store.close();
    assert_ne!(counter(&folder), before);
}

#[test]
fn a_fast_disk_is_synced_by_the_writer() {
    let folder = Folder::new("fast");
    let mut store = Store::in_memory().unwrap();
    store.sync_in_thread(|| ()).unwrap();
    store.set_meta("a", "1").unwrap();
    assert_eq!(store.begin_commit().unwrap(), Commit::Durable);
    // The time of the first sync is not known before.
    let mut store = Store::open(&folder.database(), Synchronous::Full).unwrap();
    store.sync_in_thread(|| ()).unwrap();
    store.set_meta("a", "1").unwrap();
    assert_eq!(store.begin_commit().unwrap(), Commit::Durable);
}
