//! The bytes that each user has in the database.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use penstock_jobspec::job_id::JobId;
use penstock_store::{JOB_BYTES, JOBSPEC_BYTES, Store, Submission, Synchronous, maintenance};
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
        Store::open(&self.database(), Synchronous::Normal).unwrap()
    }

    fn execute(&self, sql: &str) {
        let database = Connection::open(self.database()).unwrap();
        database.execute_batch(sql).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }

    fn text(&mut self) -> String {
        "é".repeat(usize::try_from(self.below(3000)).unwrap())
    }
}

/// The rows that operations refer to.
#[derive(Clone, Default)]
struct Known {
    /// With the user and the key of the jobspec.
    jobs: BTreeMap<u64, (u32, i64)>,
    last: u64,
    tokens: u64,
}

/// Changes a random row.
fn change(store: &mut Store, known: &mut Known, random: &mut Random) {
    let userid = u32::try_from(random.below(3)).unwrap();
    let index = usize::try_from(random.below(known.jobs.len() as u64 + 1)).unwrap();
    let job = known.jobs.iter().nth(index).map(|(id, _)| JobId::new(*id));
    match (random.below(8), job) {
        (0 | 1, _) | (_, None) => {
            let spec = store.add_jobspec(userid, &random.text()).unwrap();
            // Jobs of several users may share it.
            for copy in 0..=random.below(4) {
                known.last += 1;
                let userid = if copy == 3 { 3 } else { userid };
                let id = JobId::new(known.last);
                store.add_job(id, userid, 1.0, spec).unwrap();
                known.jobs.insert(known.last, (userid, spec));
            }
        }
        (2, Some(id)) => store.append_input(id, &random.text()).unwrap(),
        (3, Some(id)) => store.count_job_bytes(id, random.below(5000)).unwrap(),
        (4, _) => {
            known.tokens += 1;
            let time = f64::from(u32::try_from(known.tokens).unwrap());
            let submission = Submission {
                digest: 1,
                result: random.text(),
            };
            let token = format!("token {}", random.below(20));
            store
                .add_submission(userid, &token, time, &submission)
                .unwrap();
        }
        (5, Some(id)) => {
            assert!(store.discard_job(id).unwrap().is_some());
            forget(store, known, &[id]);
        }
        (_, Some(first)) => {
            let ids = first.get()..first.get() + random.below(6);
            let ids: Vec<JobId> = ids.map(JobId::new).collect();
            store.remove_jobs(&ids).unwrap();
            forget(store, known, &ids);
        }
    }
}

/// Removes the jobspecs to which no job refers without these jobs.
fn forget(store: &mut Store, known: &mut Known, ids: &[JobId]) {
    for id in ids {
        let Some((_, spec)) = known.jobs.remove(&id.get()) else {
            continue;
        };
        if !known.jobs.values().any(|(_, other)| *other == spec) {
            store.remove_jobspec(spec).unwrap();
        }
    }
}

fn assert_counted(store: &Store) {
    assert_eq!(store.wrong_user_bytes().unwrap(), Vec::<String>::new());
    let stored = store.bytes_by_user().unwrap();
    for userid in 0..4 {
        let bytes = stored.get(&userid).copied().unwrap_or_default();
        assert_eq!(store.bytes_of(userid), bytes, "{userid}");
    }
}

#[test]
fn the_sums_are_those_of_the_rows_after_random_changes() {
    let folder = Folder::new("user-bytes");
    let mut store = folder.open();
    let (mut known, mut random) = (Known::default(), Random(1));
    let mut committed = known.clone();
    for step in 0..3000 {
        change(&mut store, &mut known, &mut random);
        match random.below(60) {
            0..10 => {
                store.commit().unwrap();
                committed = known.clone();
                assert_counted(&store);
            }
            10 => {
                store.roll_back().unwrap();
                known = committed.clone();
                assert_counted(&store);
            }
            11 => {
                drop(store);
                store = folder.open();
                known = committed.clone();
                assert_counted(&store);
            }
            _ => {}
        }
        assert!(step < 100 || store.bytes_of(0) + store.bytes_of(1) > 0);
    }
    store.commit().unwrap();
    assert_counted(&store);
    let ids: Vec<JobId> = known.jobs.keys().map(|id| JobId::new(*id)).collect();
    store.remove_jobs(&ids).unwrap();
    forget(&mut store, &mut known, &ids);
    let submission = Submission {
        digest: 1,
        result: String::new(),
    };
    store.add_submission(0, "last", 1e6, &submission).unwrap();
    // Stored while the clock was ahead.
    store.add_submission(0, "later", 2e6, &submission).unwrap();
    while store.oldest_submission().unwrap() < Some(1e6) {
        store.remove_expired_submissions(1e6, 3).unwrap();
    }
    assert_eq!(store.oldest_submission().unwrap(), Some(1e6));
    store.remove_expired_submissions(1.5e6, 3).unwrap();
    assert_eq!(store.oldest_submission().unwrap(), Some(2e6));
    // It delays no other one.
    store
        .add_submission(0, "behind", 1.6e6, &submission)
        .unwrap();
    assert_eq!(store.oldest_submission().unwrap(), Some(1.6e6));
    store.remove_expired_submissions(1.7e6, 3).unwrap();
    assert_eq!(store.oldest_submission().unwrap(), Some(2e6));
    store.commit().unwrap();
    assert_counted(&store);
    // Nothing else is left.
    let users: Vec<u32> = store.bytes_by_user().unwrap().into_keys().collect();
    assert_eq!(users, [0]);
}

/// A database with a job of user 7, whose jobspec user 5 has brought.
fn shared(folder: &Folder) -> [u64; 2] {
    let mut store = folder.open();
    let spec = store.add_jobspec(5, "{}").unwrap();
    store.add_job(JobId::new(1), 7, 1.0, spec).unwrap();
    store.append_events(JobId::new(1), 0, "a\n").unwrap();
    store.append_input(JobId::new(1), "input\n").unwrap();
    store.commit().unwrap();
    let bytes = [5, 7].map(|userid| store.bytes_of(userid));
    assert_eq!(bytes, [JOBSPEC_BYTES + 2, JOB_BYTES + 6]);
    bytes
}

fn check(path: &Path) -> Vec<String> {
    maintenance::check(path).unwrap()
}

#[test]
fn a_wrong_sum_is_named_and_repaired() {
    let folder = Folder::new("user-bytes-wrong");
    let expected = shared(&folder);
    assert_eq!(check(&folder.database()), Vec::<String>::new());
    folder.execute("UPDATE user_bytes SET bytes = bytes + 1 WHERE userid = 7");
    let rows = expected[1];
    assert_eq!(
        check(&folder.database()),
        [format!(
            "row 7 of `user_bytes` has {} bytes, the rows of the user have {rows}",
            rows + 1
        )]
    );
    let salvage = maintenance::salvage(&folder.database()).unwrap();
    salvage.install().unwrap();
    assert_eq!(check(&folder.database()), Vec::<String>::new());
    assert_eq!(
        [5, 7].map(|userid| folder.open().bytes_of(userid)),
        expected
    );
}

#[test]
fn bad_rows_are_recomputed_at_a_start() {
    for damage in [
        "UPDATE user_bytes SET bytes = 'x'",
        "UPDATE user_bytes SET bytes = -1 WHERE userid = 5",
        "UPDATE user_bytes SET userid = -1 WHERE userid = 5",
        "INSERT INTO user_bytes VALUES (1, x'')",
    ] {
        let folder = Folder::new("user-bytes-bad");
        let expected = shared(&folder);
        folder.execute(damage);
        assert!(!check(&folder.database()).is_empty(), "{damage}");
        let mut store = folder.open();
        assert_eq!(store.warnings().len(), 1, "{damage}");
        assert_eq!([5, 7].map(|userid| store.bytes_of(userid)), expected);
        store.set_meta("a", "1").unwrap();
        store.commit().unwrap();
        drop(store);
        assert_eq!(check(&folder.database()), Vec::<String>::new(), "{damage}");
        assert!(folder.open().warnings().is_empty());
    }
}

#[test]
fn the_jobs_of_a_discarded_submission_are_not_counted() {
    let folder = Folder::new("user-bytes-open");
    let expected = shared(&folder);
    let mut store = folder.open();
    let spec = store.add_jobspec(7, "another").unwrap();
    let (first, last) = (JobId::new(2), JobId::new(9));
    for id in first.get()..=5 {
        store.add_job(JobId::new(id), 7, 1.0, spec).unwrap();
    }
    store.open_submission(first, last).unwrap();
    store.commit().unwrap();
    assert_eq!(
        store.bytes_of(7),
        expected[1] + 4 * JOB_BYTES + JOBSPEC_BYTES + 7
    );
    drop(store);
    assert_eq!(
        [5, 7].map(|userid| folder.open().bytes_of(userid)),
        expected
    );
    assert_eq!(check(&folder.database()), Vec::<String>::new());
}

#[test]
fn an_import_counts_the_bytes_of_users() {
    let (folder, other) = (
        Folder::new("user-bytes-export"),
        Folder::new("user-bytes-import"),
    );
    let expected = shared(&folder);
    let text = folder.0.join("text");
    maintenance::export_file(&folder.database(), &text).unwrap();
    maintenance::import(&other.database(), &text).unwrap();
    assert_eq!([5, 7].map(|userid| other.open().bytes_of(userid)), expected);
    // An earlier format names no user of a jobspec, and no bytes of a job.
    let lines = fs::read_to_string(&text).unwrap();
    let earlier = lines
        .replace(",\"userid\":5", "")
        .replace(",\"bytes\":6", "");
    assert_ne!(lines, earlier);
    fs::write(&text, earlier).unwrap();
    fs::remove_dir_all(&other.0).unwrap();
    fs::create_dir_all(&other.0).unwrap();
    maintenance::import(&other.database(), &text).unwrap();
    assert_eq!(other.open().bytes_of(5), 0);
    assert_eq!(other.open().bytes_of(7), JOB_BYTES + JOBSPEC_BYTES + 2);
    assert_eq!(check(&other.database()), Vec::<String>::new());
}

#[test]
fn jobspecs_of_an_earlier_format_count_for_a_user_of_their_jobs() {
    let folder = Folder::new("user-bytes-earlier");
    let dump = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats/10.sql");
    folder.execute(&fs::read_to_string(dump).unwrap());
    let store = folder.open();
    let text = store.jobspec(2).unwrap().unwrap();
    let token = [
        "ebf270c5a69b8a960db59e0c60336f35",
        "{\"copies\":[1157627904,2]}",
    ];
    let token: u64 = token.iter().map(|text| text.len() as u64).sum();
    assert_eq!(
        store.bytes_of(1000),
        2 * JOB_BYTES + JOBSPEC_BYTES + text.len() as u64 + 128 + token
    );
    assert_counted(&store);
}
