//! Databases as an administrator meets them: older formats, copies, damage.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use penstock_jobspec::job_id::JobId;
use penstock_store::{Store, Synchronous, maintenance};
use rusqlite::Connection;

/// A directory that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("penstock-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn database(&self) -> PathBuf {
        self.0.join("jobs.sqlite")
    }

    fn open(&self) -> Store {
        Store::open(&self.database(), Synchronous::Full).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn add_jobs(store: &mut Store, ids: impl IntoIterator<Item = u64>) {
    let spec = store.add_jobspec(1000, "{}").unwrap();
    for id in ids.into_iter().map(JobId::new) {
        store.add_job(id, 1000, 1.5, spec).unwrap();
        store.append_events(id, 0, "a\n").unwrap();
        store.commit().unwrap();
    }
}

/// Jobs without events of their own.
fn add_copies(store: &mut Store, ids: impl IntoIterator<Item = u64>) {
    let spec = store.add_jobspec(1000, "{}").unwrap();
    for id in ids {
        store.add_job(JobId::new(id), 1000, 1.5, spec).unwrap();
    }
}

fn ids(store: &Store) -> Vec<u64> {
    let jobs = store.jobs().unwrap().records;
    jobs.iter().map(|job| job.id.get()).collect()
}

/// The files that a verb which has failed should have removed.
fn unfinished(folder: &Folder) -> Vec<String> {
    let files = fs::read_dir(&folder.0).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.contains(".new") || name.contains("copy") || name.contains("text."))
        .collect()
}

fn log_of(path: &Path) -> PathBuf {
    path.with_file_name("jobs.sqlite-wal")
}

/// Copies the files of a database while it is open, as after a crash: its log is not in the database yet.
fn crash(store: Store, folder: &Folder) {
    let saved = Folder(folder.0.join("saved"));
    fs::create_dir_all(&saved.0).unwrap();
    let files: Vec<PathBuf> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    for file in &files {
        fs::copy(file, saved.0.join(file.file_name().unwrap())).unwrap();
    }
    drop(store);
    for file in fs::read_dir(&saved.0).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.0.join(file.file_name())).unwrap();
    }
}

#[test]
fn every_released_format_is_migrated_and_salvaged() {
    let formats = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats");
    let mut count = 0;
    for dump in fs::read_dir(formats).unwrap() {
        let dump = dump.unwrap().path();
        let folder = Folder::new("formats");
        let old = Connection::open(folder.database()).unwrap();
        old.execute_batch(&fs::read_to_string(&dump).unwrap())
            .unwrap();
        drop(old);
        let salvage = maintenance::salvage(&folder.database()).unwrap();
        let salvaged = salvage.store().jobs().unwrap();
        let mut store = folder.open();
        assert_eq!(ids(&store).len(), 3, "{}", dump.display());
        let jobs = store.jobs().unwrap();
        assert!(
            jobs.damaged.is_empty() && jobs.records.iter().all(|job| !job.eventlog().is_empty())
        );
        assert_eq!(jobs, salvaged, "{}", dump.display());
        assert!(store.warnings().is_empty());
        assert_eq!(store.value("site.key").unwrap().as_deref(), Some(&b"1"[..]));
        add_jobs(&mut store, [u64::MAX >> 1]);
        drop(store);
        assert_eq!(
            maintenance::check(&folder.database()).unwrap(),
            Vec::<String>::new()
        );
        count += 1;
    }
    assert!(count >= 1);
}

#[test]
fn files_that_another_user_has_prepared_are_not_written() {
    let folder = Folder::new("prepared");
    let mut store = folder.open();
    add_jobs(&mut store, 1..=9);
    let other = folder.0.join("other");
    fs::write(&other, "").unwrap();
    let (copy, text) = (folder.0.join("copy"), folder.0.join("text"));
    for name in ["copy.penstock-unfinished", "text.penstock-unfinished"] {
        std::os::unix::fs::symlink(&other, folder.0.join(name)).unwrap();
    }
    maintenance::back_up(&folder.database(), &copy).unwrap();
    maintenance::export_file(&folder.database(), &text).unwrap();
    assert_eq!(fs::metadata(&other).unwrap().len(), 0);
    for made in [&copy, &text] {
        let made = made.symlink_metadata().unwrap();
        assert!(made.is_file() && made.len() > 0);
        assert_eq!(made.permissions().mode() & 0o7777, 0o600);
    }
    // Not even if a link leads nowhere.
    let dangling = folder.0.join("dangling");
    std::os::unix::fs::symlink(folder.0.join("missing"), &dangling).unwrap();
    for made in [
        maintenance::back_up(&folder.database(), &dangling),
        maintenance::export_file(&folder.database(), &dangling),
    ] {
        assert!(made.unwrap_err().to_string().contains("exists already"));
    }
}

#[test]
fn a_removed_log_is_noticed() {
    let folder = Folder::new("log");
    let mut store = folder.open();
    add_jobs(&mut store, 1..=9);
    crash(store, &folder);
    fs::remove_file(log_of(&folder.database())).unwrap();
    let error = Store::open(&folder.database(), Synchronous::Full).unwrap_err();
    assert!(error.is_lost());
    assert!(
        error.to_string().contains("penstock store restore"),
        "{error}"
    );
    let problems = maintenance::check(&folder.database());
    assert!(problems.is_err() || !problems.unwrap().is_empty());
}

#[test]
fn a_damaged_log_is_noticed() {
    let folder = Folder::new("damaged-log");
    let mut store = folder.open();
    add_jobs(&mut store, 1..=9);
    let middle = store.log_pages() / 2 * (4096 + 24);
    crash(store, &folder);
    let mut log = OpenOptions::new()
        .write(true)
        .open(log_of(&folder.database()))
        .unwrap();
    log.seek(SeekFrom::Start(middle)).unwrap();
    log.write_all(&[0xff; 512]).unwrap();
    drop(log);
    let error = Store::open(&folder.database(), Synchronous::Full).unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(error.to_string().contains("the last one was 9"), "{error}");
}

#[test]
fn a_power_failure_may_lose_unsynced_commits_only() {
    let folder = Folder::new("normal");
    let open = || Store::open(&folder.database(), Synchronous::Normal);
    let mut store = open().unwrap();
    add_jobs(&mut store, 1..=3);
    crash(store, &folder);
    let log = log_of(&folder.database());
    OpenOptions::new()
        .write(true)
        .open(&log)
        .unwrap()
        .set_len(0)
        .unwrap();
    // The tables are in the log, too: the database is empty without it.
    assert!(open().unwrap_err().is_lost());

    let folder = Folder::new("normal-after");
    let open = || Store::open(&folder.database(), Synchronous::Normal);
    drop(open().unwrap());
    let mut store = open().unwrap();
    add_jobs(&mut store, 1..=3);
    crash(store, &folder);
    fs::remove_file(log_of(&folder.database())).unwrap();
    let store = open().unwrap();
    assert!(store.warnings()[0].contains("the last 3 commits are lost"));
    drop(store);

    // Each thousandth commit survives.
    let mut store = open().unwrap();
    add_jobs(&mut store, 1..=1100);
    crash(store, &folder);
    fs::remove_file(log_of(&folder.database())).unwrap();
    let store = open().unwrap();
    let warning = store.warnings()[0].clone();
    assert!(!warning.contains("1100"), "{warning}");
    assert!(ids(&store).len() >= 990);
}

#[test]
fn a_removed_database_is_not_made_again() {
    let folder = Folder::new("removed");
    let mut store = folder.open();
    add_jobs(&mut store, 1..=2);
    drop(store);
    File::create(folder.database()).unwrap();
    let error = Store::open(&folder.database(), Synchronous::Full).unwrap_err();
    assert!(error.is_lost());
    assert!(error.to_string().contains("missing or empty"), "{error}");
    fs::remove_file(folder.database()).unwrap();
    assert!(
        Store::open(&folder.database(), Synchronous::Full)
            .unwrap_err()
            .is_lost()
    );
}

#[test]
fn files_that_are_removed_during_use_fail_the_next_commit() {
    for suffix in ["", "-wal", "-shm"] {
        let folder = Folder::new(&format!("unlinked{suffix}"));
        let mut store = folder.open();
        add_jobs(&mut store, 1..=2);
        let mut file = folder.database().into_os_string();
        file.push(suffix);
        fs::remove_file(file).unwrap();
        store.set_meta("a", "1").unwrap();
        let error = store.commit().unwrap_err();
        assert!(error.is_lost(), "{error}");
        store.close();
        assert!(store.meta("a").is_err());
        let opened = Store::open(&folder.database(), Synchronous::Full);
        if suffix.is_empty() {
            assert!(opened.unwrap_err().is_lost());
        } else {
            // Closing has copied the removed log into the database.
            assert_eq!(ids(&opened.unwrap()), [1, 2]);
        }
    }
}

#[test]
fn a_missing_counter_is_reported() {
    let folder = Folder::new("counter");
    let mut store = folder.open();
    add_jobs(&mut store, 1..=2);
    drop(store);
    fs::remove_file(folder.0.join("jobs.generation")).unwrap();
    assert_eq!(maintenance::check(&folder.database()).unwrap().len(), 1);
    assert!(folder.open().warnings()[0].contains("is unknown"));
    assert!(folder.open().warnings().is_empty());
}

#[test]
fn a_restored_backup_is_marked_and_its_ids_are_not_used_again() {
    let folder = Folder::new("restore");
    let mut store = folder.open();
    add_jobs(&mut store, 1..=3);
    let backup = folder.0.join("backup.sqlite");
    // The instance uses the database meanwhile.
    maintenance::back_up(&folder.database(), &backup).unwrap();
    let error = maintenance::back_up(&folder.database(), &backup).unwrap_err();
    assert!(error.to_string().contains("exists already"));
    add_jobs(&mut store, 4..=9);
    drop(store);

    // A copy in the place of the database is noticed.
    let original = fs::read(folder.database()).unwrap();
    fs::copy(&backup, folder.database()).unwrap();
    assert!(
        Store::open(&folder.database(), Synchronous::Full)
            .unwrap_err()
            .is_lost()
    );
    fs::write(folder.database(), &original).unwrap();

    let replacement = maintenance::restore(&folder.database(), Some(&backup)).unwrap();
    assert_eq!(replacement.losses, Vec::<String>::new());
    let old = replacement.old.unwrap();
    assert_eq!(ids(&Store::open_reader(&old).unwrap()).len(), 9);
    let mut store = folder.open();
    assert_eq!(ids(&store), [1, 2, 3]);
    assert_eq!(store.greatest_id(), JobId::new(9));
    assert!(store.replaced().unwrap().is_some());
    store.forget_replaced().unwrap();
    store.commit().unwrap();
    assert_eq!(store.replaced().unwrap(), None);
    drop(store);
    // The database before has lost its place.
    fs::copy(&old, folder.database()).unwrap();
    assert!(
        Store::open(&folder.database(), Synchronous::Full)
            .unwrap_err()
            .is_lost()
    );
}

#[test]
fn a_restoration_that_was_interrupted_keeps_all_of_the_database_before() {
    let log = |path: &Path| PathBuf::from(format!("{}-wal", path.display()));
    for interrupted_after in 0..4 {
        let folder = Folder::new("interrupted");
        let mut store = folder.open();
        add_jobs(&mut store, 1..=3);
        let backup = folder.0.join("backup.sqlite");
        maintenance::back_up(&folder.database(), &backup).unwrap();
        add_jobs(&mut store, 4..=9);
        crash(store, &folder);
        let database = folder.database();
        assert!(log(&database).metadata().unwrap().len() > 0);
        // The name is that of the first of all restorations.
        let other = Folder::new("uninterrupted");
        for file in ["jobs.sqlite", "jobs.sqlite-wal", "jobs.generation"] {
            fs::copy(folder.0.join(file), other.0.join(file)).unwrap();
        }
        let whole = maintenance::restore(&other.database(), Some(&backup)).unwrap();
        let old = folder.0.join(whole.old.unwrap().file_name().unwrap());

        fs::hard_link(&database, &old).unwrap();
        if interrupted_after > 0 {
            fs::hard_link(log(&database), log(&old)).unwrap();
        }
        if interrupted_after > 1 {
            fs::remove_file(log(&database)).unwrap();
        }
        let error = Store::open(&database, Synchronous::Full).unwrap_err();
        assert!(error.to_string().contains("interrupted"), "{error}");
        if interrupted_after > 2 {
            fs::remove_file(&database).unwrap();
        }
        // As it is, or a back-up, if it is gone.
        let of = (interrupted_after > 2).then_some(backup.as_path());
        let replacement = maintenance::restore(&database, of).unwrap();
        assert_eq!(replacement.old.is_none(), interrupted_after > 2);
        let restored = ids(&folder.open()).len();
        assert_eq!(restored, if interrupted_after > 2 { 3 } else { 9 });
        drop(maintenance::restore(&database, Some(&backup)).unwrap());
        assert_eq!(ids(&folder.open()), [1, 2, 3]);
        let kept = Store::open_reader(&old).map(|store| ids(&store));
        let kept = kept.unwrap_or_else(|error| panic!("{interrupted_after}: {error:?}"));
        assert_eq!(kept.len(), 9, "{interrupted_after}");
        assert_eq!(unfinished(&folder), Vec::<String>::new());
    }
}

#[test]
fn a_link_to_a_database_elsewhere_does_not_keep_it_from_being_opened() {
    let folder = Folder::new("linked");
    let mut store = folder.open();
    add_jobs(&mut store, 1..=3);
    drop(store);
    fs::hard_link(folder.database(), folder.0.join("snapshot.sqlite")).unwrap();
    assert_eq!(ids(&folder.open()), [1, 2, 3]);
}

#[test]
fn the_greatest_id_of_a_failed_commit_is_not_that_of_the_last_one() {
    let folder = Folder::new("greatest");
    let mut store = folder.open();
    add_jobs(&mut store, 1..=3);
    let spec = store.add_jobspec(1000, "{}").unwrap();
    store.add_job(JobId::new(9), 1000, 1.5, spec).unwrap();
    store.close();
    let store = folder.open();
    assert_eq!(store.warnings(), Vec::<String>::new());
    assert_eq!(store.greatest_id(), JobId::new(3));
}

#[test]
fn lost_commits_are_accepted_by_a_restoration_as_is() {
    let folder = Folder::new("as-is");
    drop(folder.open());
    let mut store = folder.open();
    add_jobs(&mut store, 1..=3);
    crash(store, &folder);
    fs::remove_file(log_of(&folder.database())).unwrap();
    maintenance::restore(&folder.database(), None).unwrap();
    let store = folder.open();
    assert_eq!(ids(&store), Vec::<u64>::new());
    assert_eq!(store.greatest_id(), JobId::new(3));
}

#[test]
fn an_export_is_imported_without_a_difference() {
    let folder = Folder::new("export");
    let mut store = folder.open();
    add_jobs(&mut store, 1..=3);
    let (first, last) = (JobId::new(4), JobId::new(5));
    store.add_common_events(first, last, "x\n").unwrap();
    add_copies(&mut store, [4, 5]);
    add_copies(&mut store, 10..20);
    let shared = (10..20).map(|id| (JobId::new(id), 0, format!("{{\"timestamp\":{id}.5}}\n")));
    store.append_events_of(shared).unwrap();
    let log_of_14 = store.eventlog(JobId::new(14)).unwrap();
    store.set_value("key", b"\xff\x00").unwrap();
    store.append_resource_event("drain").unwrap();
    store.commit().unwrap();
    drop(store);
    let text = folder.0.join("text");
    maintenance::export_file(&folder.database(), &text).unwrap();
    let error = maintenance::import(&folder.database(), &text).unwrap_err();
    assert!(error.to_string().contains("exists already"));

    let other = Folder::new("import");
    maintenance::import(&other.database(), &text).unwrap();
    let again = other.0.join("again");
    maintenance::export_file(&other.database(), &again).unwrap();
    let of_jobs = |path: &Path| -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        let lines = text
            .lines()
            .filter(|line| !line.contains("\"meta\"") && !line.contains("\"end\""));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(of_jobs(&text), of_jobs(&again));
    let imported = other.open().eventlog(JobId::new(14)).unwrap();
    assert_eq!(
        (imported.as_str(), log_of_14),
        ("{\"timestamp\":14.5}\n", imported.clone())
    );
    assert_eq!(
        other.open().value("key").unwrap().as_deref(),
        Some(&b"\xff\x00"[..])
    );
}

#[test]
fn an_invalid_export_names_the_line() {
    let head = "{\"penstock-store\":1}\n";
    for (text, expected) in [
        (String::new(), "ends after line 0"),
        (
            "{\"meta\":1}\n".to_owned(),
            "line 1: expected the key `penstock-store`",
        ),
        (
            "{\"penstock-store\":9}\n".to_owned(),
            "line 1: expected format 1, found 9",
        ),
        (
            format!("{head}{{\"other\":{{}}}}\n"),
            "line 2: unknown table `other`",
        ),
        (
            format!("{head}{{\"jobspecs\":{{\"id\":1}}}}\n"),
            "line 2: expected the key `text`",
        ),
        (
            format!("{head}{{\"end\":7}}\n"),
            "line 2: expected 7 lines before it, found 1",
        ),
        (head.to_owned(), "ends after line 1"),
        (format!("{head}x\n"), "line 2: expected value"),
    ] {
        let folder = Folder::new("invalid-export");
        let path = folder.0.join("text");
        fs::write(&path, &text).unwrap();
        let error = maintenance::import(&folder.database(), &path).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!folder.database().exists());
        assert_eq!(unfinished(&folder), Vec::<String>::new());
    }
}

#[test]
fn a_damaged_page_costs_the_jobs_on_it() {
    let folder = Folder::new("salvage");
    large_database(&folder);
    let mut file = OpenOptions::new()
        .write(true)
        .open(folder.database())
        .unwrap();
    let page = page_of_events(&fs::read(folder.database()).unwrap());
    file.seek(SeekFrom::Start(page as u64 * 4096)).unwrap();
    file.write_all(&[0xa5; 4096]).unwrap();
    drop(file);
    assert!(!maintenance::check(&folder.database()).unwrap().is_empty());
    let error = folder.open().jobs().unwrap_err();
    assert!(
        error.to_string().contains("penstock store repair"),
        "{error}"
    );

    let salvage = maintenance::salvage(&folder.database()).unwrap();
    let with_events = salvage.store().jobs().unwrap().records;
    let with_events = with_events
        .iter()
        .filter(|job| !job.eventlog().is_empty())
        .count();
    assert!((1800..2000).contains(&with_events), "{with_events}");
    let replacement = salvage.install().unwrap();
    assert!(
        replacement.losses[0].starts_with("rows of `events` are lost"),
        "{replacement:?}"
    );
    assert_eq!(
        maintenance::check(&folder.database()).unwrap(),
        Vec::<String>::new()
    );
    assert!(replacement.old.unwrap().exists());
}

/// A database with many pages of events.
fn large_database(folder: &Folder) -> PathBuf {
    let mut store = folder.open();
    let spec = store.add_jobspec(1000, &"x".repeat(100)).unwrap();
    for id in (1..=2000).map(JobId::new) {
        store.add_job(id, 1000, 1.5, spec).unwrap();
        let events = "event\n".repeat(20);
        store.append_events(id, 0, &events).unwrap();
    }
    store.commit().unwrap();
    drop(store);
    folder.database()
}

/// A page of events in the file of a large database: a leaf, ordered by its key.
fn page_of_events(bytes: &[u8]) -> usize {
    let mut pages = bytes.chunks(4096).enumerate().skip(40);
    pages.find(|(_, page)| page[0] == 10).unwrap().0
}

#[test]
fn a_damaged_database_is_not_copied() {
    let folder = Folder::new("damaged-copy");
    let path = large_database(&folder);
    let mut bytes = fs::read(&path).unwrap();
    // With its first two rows in the wrong order the page still looks valid.
    let page = page_of_events(&bytes) * 4096;
    bytes[page + 8..page + 12].rotate_left(2);
    fs::write(&path, bytes).unwrap();
    let copy = folder.0.join("copy");
    let error = maintenance::back_up(&path, &copy).unwrap_err().to_string();
    assert!(error.contains("is damaged and is not copied"), "{error}");
    assert!(error.contains("penstock store repair"), "{error}");
    let rejected = maintenance::restore(&path, None).unwrap_err();
    assert_eq!(rejected.to_string(), error);
    assert_eq!(unfinished(&folder), Vec::<String>::new());
}

#[test]
fn a_database_without_its_last_pages_is_repaired() {
    let folder = Folder::new("truncated");
    let path = large_database(&folder);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    drop(file);
    let error = maintenance::check(&path).unwrap_err().to_string();
    assert!(error.contains("penstock store repair"), "{error}");
    let salvage = maintenance::salvage(&path).unwrap();
    let found = salvage.store().jobs().unwrap().records.len();
    assert!((100..2000).contains(&found), "{found}");
    let replacement = salvage.install().unwrap();
    assert!(!replacement.losses.is_empty());
    assert_eq!(maintenance::check(&path).unwrap(), Vec::<String>::new());
    assert_eq!(folder.open().jobs().unwrap().records.len(), found);
}

#[test]
fn a_file_that_is_no_database_is_beyond_repair() {
    let folder = Folder::new("no-database");
    let path = folder.database();
    fs::write(&path, [b'x'; 8192]).unwrap();
    let error = maintenance::salvage(&path).unwrap_err().to_string();
    assert!(error.contains("nothing can be read of"), "{error}");
    assert!(!error.contains("store repair"), "{error}");
}

#[test]
fn a_pipe_in_place_of_the_database_is_not_waited_for() {
    let folder = Folder::new("pipe");
    let path = folder.database();
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    let errors = [
        maintenance::check(&path).unwrap_err(),
        maintenance::back_up(&path, &folder.0.join("copy")).unwrap_err(),
        maintenance::export_file(&path, &folder.0.join("text")).unwrap_err(),
        maintenance::salvage(&path).unwrap_err(),
        Store::open(&path, Synchronous::Full).unwrap_err(),
    ];
    for error in errors {
        let text = format!("store: `{}` is not a file", path.display());
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(unfinished(&folder), Vec::<String>::new());
}

#[test]
fn bad_rows_are_found_and_left_out() {
    let folder = Folder::new("rows");
    let mut store = folder.open();
    add_jobs(&mut store, 1..=4);
    drop(store);
    let database = Connection::open(folder.database()).unwrap();
    database
        .execute_batch(
            "UPDATE jobs SET userid = 'root' WHERE id = 1; UPDATE events SET lines = x'ff' WHERE job = 2; \
             INSERT INTO events VALUES (99, 0, 'a'); INSERT INTO kvs VALUES ('n', 3)",
        )
        .unwrap();
    drop(database);
    let problems = maintenance::check(&folder.database()).unwrap();
    let of_jobs = problems
        .iter()
        .filter(|problem| problem.starts_with("job "));
    assert_eq!((of_jobs.count(), problems.len()), (2, 7), "{problems:?}");
    for row in [
        "row 1 of `jobs` is left out: `userid` is not an integer from 0 to 4294967295",
        "row 2,0 of `events` is left out: `lines` is not a text",
        "row 99,0 of `events` is left out: unknown job",
        "row `n` of `kvs` is left out: `value` is not a text or bytes",
    ] {
        assert!(
            problems.iter().any(|problem| problem == row),
            "{problems:?}"
        );
    }
    let mut salvage = maintenance::salvage(&folder.database()).unwrap();
    salvage.leave_out(JobId::new(3), "for a test").unwrap();
    let replacement = salvage.install().unwrap();
    let losses = replacement.losses.join("\n");
    for loss in [
        "job ƒ2",
        "row 2,0 of `events`",
        "row 99,0",
        "row `n`",
        "for a test",
    ] {
        assert!(losses.contains(loss), "{losses}");
    }
    assert_eq!(ids(&folder.open()), [4]);
}

#[test]
fn the_common_events_of_a_submission_that_is_not_complete_are_discarded() {
    let folder = Folder::new("common-events");
    let mut store = folder.open();
    for (first, last) in [(1, 2), (3, 5), (6, 7)] {
        let (first, last) = (JobId::new(first), JobId::new(last));
        store.add_common_events(first, last, "x\n").unwrap();
    }
    add_copies(&mut store, [1, 2, 3, 6, 7]);
    store.open_submission(JobId::new(3), JobId::new(5)).unwrap();
    store.commit().unwrap();
    drop(store);
    let mut store = folder.open();
    assert_eq!(ids(&store), [1, 2, 6, 7]);
    // Its ids are not allotted again; if they were, nothing of it would be left.
    add_copies(&mut store, [3]);
    assert_eq!(store.eventlog(JobId::new(3)).unwrap(), "");
    assert_eq!(store.eventlog(JobId::new(6)).unwrap(), "x\n");
}

#[test]
fn a_job_that_is_left_out_takes_its_common_events_along() {
    let folder = Folder::new("common-salvage");
    let mut store = folder.open();
    for (first, last) in [(1, 1), (3, 4)] {
        let (first, last) = (JobId::new(first), JobId::new(last));
        store.add_common_events(first, last, "x\n").unwrap();
    }
    add_copies(&mut store, [1, 3, 4]);
    store.commit().unwrap();
    drop(store);
    let mut salvage = maintenance::salvage(&folder.database()).unwrap();
    salvage.leave_out(JobId::new(1), "a reason").unwrap();
    salvage.leave_out(JobId::new(3), "a reason").unwrap();
    salvage.install().unwrap();
    assert_eq!(
        maintenance::check(&folder.database()).unwrap(),
        Vec::<String>::new()
    );
    let store = folder.open();
    assert_eq!(ids(&store), [4]);
    assert_eq!(store.eventlog(JobId::new(4)).unwrap(), "x\n");
}

/// Jobs whose events fill many pages.
fn add_large_jobs(store: &mut Store, ids: impl IntoIterator<Item = u64>) {
    let spec = store.add_jobspec(1000, "{}").unwrap();
    let lines = "a".repeat(3000) + "\n";
    for id in ids.into_iter().map(JobId::new) {
        store.add_job(id, 1000, 1.5, spec).unwrap();
        store.append_events(id, 0, &lines).unwrap();
    }
    store.commit().unwrap();
}

fn remove_jobs(store: &mut Store, ids: impl IntoIterator<Item = u64>) {
    for id in ids.into_iter().map(JobId::new) {
        store.remove_jobs(&[id]).unwrap();
        store.forget_purged(&[id]).unwrap();
    }
    store.commit().unwrap();
}

/// Releases all pages that can be, in slices. Returns the number of slices.
fn release_all(store: &mut Store) -> u64 {
    let mut slices = 0;
    loop {
        let before = store.space().unwrap();
        let released = store.release_pages(100).unwrap();
        store.commit().unwrap();
        if released == 0 {
            return slices;
        }
        let after = store.space().unwrap();
        assert!(released <= 100);
        // Pages that say where others are go with those.
        let less = before.pages - after.pages;
        assert!(
            (released..=released + 2).contains(&less),
            "{released} {less}"
        );
        slices += 1;
    }
}

#[test]
fn removed_jobs_leave_a_shorter_file() {
    let folder = Folder::new("shrink");
    let mut store = folder.open();
    add_large_jobs(&mut store, 1..=4000);
    assert_eq!(store.release_pages(u64::MAX).unwrap(), 0);
    let full = store.space().unwrap();
    remove_jobs(&mut store, (1..=4000).filter(|id| id % 10 > 0));
    let slices = release_all(&mut store);
    assert!(slices > 10, "{slices}");
    let space = store.space().unwrap();
    assert!(space.pages < full.pages / 2, "{space:?} of {full:?}");
    assert_eq!(space.excess_pages(), 0);
    assert!(space.free_pages >= 1000, "{space:?}");
    drop(store);
    let length = folder.database().metadata().unwrap().len();
    assert_eq!(length, space.pages * space.page_bytes);
    assert_eq!(
        maintenance::check(&folder.database()).unwrap(),
        Vec::<String>::new()
    );
    let left: Vec<u64> = (1..=4000).filter(|id| id % 10 == 0).collect();
    assert_eq!(ids(&folder.open()), left);
}

#[test]
fn released_pages_of_a_transaction_that_is_undone_stay() {
    let folder = Folder::new("undone");
    let mut store = folder.open();
    add_large_jobs(&mut store, 1..=4000);
    remove_jobs(&mut store, 1..=3990);
    let before = store.space().unwrap();
    assert_eq!(store.release_pages(50).unwrap(), 50);
    store.roll_back().unwrap();
    assert_eq!(store.space().unwrap(), before);
    assert_eq!(ids(&store), (3991..=4000).collect::<Vec<u64>>());
}

/// Makes a database that no free pages can be released from, as older versions did.
fn make_rigid(folder: &Folder) {
    let old = Connection::open(folder.database()).unwrap();
    old.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM")
        .unwrap();
}

#[test]
fn the_database_of_an_older_version_is_rewritten_to_shrink() {
    let folder = Folder::new("rewritten");
    add_large_jobs(&mut folder.open(), 1..=4000);
    make_rigid(&folder);
    let mut store = folder.open();
    assert!(store.warnings().is_empty());
    remove_jobs(&mut store, 1..=3990);
    assert!(release_all(&mut store) > 10);
    assert_eq!(ids(&store), (3991..=4000).collect::<Vec<u64>>());
}

#[test]
fn a_store_is_opened_while_another_program_has_its_lock() {
    let folder = Folder::new("locked");
    add_large_jobs(&mut folder.open(), 1..=2);
    let other = Connection::open(folder.database()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(ids(&folder.open()), [1, 2]);
}

#[test]
fn a_database_that_cannot_be_rewritten_is_used_as_it_is() {
    let folder = Folder::new("unwritten");
    add_large_jobs(&mut folder.open(), 1..=4000);
    make_rigid(&folder);
    // A transaction of another program, which wrote nothing yet.
    let other = Connection::open(folder.database()).unwrap();
    other
        .execute_batch("PRAGMA journal_mode = WAL; BEGIN IMMEDIATE")
        .unwrap();
    let mut store = folder.open();
    let warnings = store.warnings().join("\n");
    assert!(warnings.contains("cannot shrink"), "{warnings}");
    other.execute_batch("COMMIT").unwrap();
    remove_jobs(&mut store, 1..=3990);
    assert_eq!(store.release_pages(100).unwrap(), 0);
    assert_eq!(ids(&store).len(), 10);
}

#[test]
fn a_vacuum_leaves_no_free_pages() {
    let folder = Folder::new("vacuum");
    let mut store = folder.open();
    add_large_jobs(&mut store, 1..=4000);
    remove_jobs(&mut store, 1..=3990);
    drop(store);
    let length = || folder.database().metadata().unwrap().len();
    let before = length();
    maintenance::vacuum(&folder.database()).unwrap();
    let after = length();
    assert!(after < before / 10, "{after} of {before}");
    let store = folder.open();
    assert_eq!(store.space().unwrap().free_pages, 0);
    assert_eq!(ids(&store).len(), 10);
    drop(store);
    let missing = folder.0.join("missing.sqlite");
    let error = maintenance::vacuum(&missing).unwrap_err().to_string();
    assert!(error.contains("cannot read"), "{error}");
    assert!(!missing.exists());
}

#[test]
fn a_restored_database_can_shrink() {
    let folder = Folder::new("restored");
    add_large_jobs(&mut folder.open(), 1..=4000);
    let backup = folder.0.join("backup");
    maintenance::back_up(&folder.database(), &backup).unwrap();
    maintenance::restore(&folder.database(), Some(&backup)).unwrap();
    let mode: i64 = Connection::open(folder.database())
        .unwrap()
        .pragma_query_value(None, "auto_vacuum", |row| row.get(0))
        .unwrap();
    assert_eq!(mode, 2);
}
