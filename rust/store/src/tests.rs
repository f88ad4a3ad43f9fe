use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, StatementStatus};

use super::*;

fn job(number: u64) -> JobId {
    JobId::new(number)
}

#[test]
fn a_job_comes_back_with_its_events_in_order() {
    let mut store = Store::in_memory().unwrap();
    let spec = store.add_jobspec(1000, "{}").unwrap();
    for id in [7, 9].map(job) {
        store.add_job(id, 1000, 1.5, spec).unwrap();
        store.append_events(id, 0, "a\nb\n").unwrap();
    }
    store.append_events(job(7), 2, "c\n").unwrap();
    assert!(store.set_r(job(7), "R").unwrap());
    assert!(!store.set_r(job(8), "R").unwrap());
    assert!(store.commit().unwrap());
    assert!(!store.commit().unwrap());
    let jobs = store.jobs().unwrap().records;
    assert_eq!(jobs.len(), 2);
    assert_eq!((jobs[0].id, &*jobs[0].eventlog()), (job(7), "a\nb\nc\n"));
    assert_eq!(jobs[0].row.r.as_deref(), Some("R"));
    let row = |r: Option<&str>| JobRow {
        userid: 1000,
        t_submit: 1.5,
        spec,
        r: r.map(str::to_owned),
    };
    assert_eq!(store.job_row(job(7)).unwrap(), Some(row(Some("R"))));
    assert_eq!(store.job_row(job(9)).unwrap(), Some(row(None)));
    assert_eq!(store.job_row(job(8)).unwrap(), None);
    assert_eq!((jobs[1].id, &*jobs[1].eventlog()), (job(9), "a\nb\n"));
    assert_eq!(store.eventlog(job(7)).unwrap(), "a\nb\nc\n");
    assert_eq!(store.eventlog(job(1)).unwrap(), "");
    assert_eq!(store.jobspec(spec).unwrap().as_deref(), Some("{}"));
}

/// The statement has no loop: its cost does not grow with the number of jobs.
#[test]
fn the_removal_of_a_jobspec_reads_no_jobs() {
    let mut store = Store::in_memory().unwrap();
    let spec = store.add_jobspec(1000, "{}").unwrap();
    store.remove_jobspec(spec).unwrap();
    assert_eq!(store.jobspec(spec).unwrap(), None);
    let query = "EXPLAIN DELETE FROM jobspecs WHERE id = 1";
    let mut statement = store.database.connection().prepare(query).unwrap();
    let steps: Vec<String> = statement
        .query_map([], |row| row.get("opcode"))
        .and_then(Iterator::collect)
        .unwrap();
    assert!(steps.iter().any(|step| step == "Delete"), "{steps:?}");
    assert!(!steps.iter().any(|step| step == "Next"), "{steps:?}");
}

#[test]
fn a_statement_is_prepared_once_whatever_the_ends_of_its_range() {
    let store = Store::in_memory().unwrap();
    let statement = store
        .database
        .connection()
        .prepare(common_events::DELETE_UNUSED);
    let mut statement = statement.unwrap();
    for range in [[1, 2, 0], [7, 9, 0]] {
        assert_eq!(statement.execute(range), Ok(0));
    }
    assert_eq!(statement.get_status(StatementStatus::RePrepare), 0);
}

#[test]
fn uncommitted_writes_are_lost_at_reopening() {
    let directory = std::env::temp_dir().join(format!("penstock-store-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("jobs.db");
    let mut store = Store::open(&path, Synchronous::Full).unwrap();
    store.set_meta("epoch", "1").unwrap();
    store.commit().unwrap();
    store.set_meta("epoch", "2").unwrap();
    assert_eq!(store.meta("epoch").unwrap().as_deref(), Some("2"));
    drop(store);
    let store = Store::open(&path, Synchronous::Full).unwrap();
    assert_eq!(store.meta("epoch").unwrap().as_deref(), Some("1"));
    drop(store);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn removing_a_key_removes_the_keys_below_it_only() {
    let mut store = Store::in_memory().unwrap();
    for key in ["a", "a.b", "a.b.c", "ab", "a-b"] {
        store.set_value(key, b"x").unwrap();
    }
    store.remove_value("a").unwrap();
    let left: Vec<_> = ["a", "a.b", "a.b.c", "ab", "a-b"]
        .into_iter()
        .filter(|key| store.value(key).unwrap().is_some())
        .collect();
    assert_eq!(left, ["ab", "a-b"]);
}

/// The steps of the database at a list of the first keys of a directory, at one of all its keys and at its removal.
fn steps_among(others: u32) -> [i32; 3] {
    let mut store = Store::in_memory().unwrap();
    for number in 0..others {
        for directory in ["a", "z"] {
            let key = format!("{directory}.{number}");
            store.set_value(&key, b"x").unwrap();
        }
    }
    for key in ["m", "m-n", "m.\u{e9}", "m.n", "m.n.o", "mn"] {
        store.set_value(key, b"x").unwrap();
    }
    let steps = |store: &Store, statement: &str| {
        let statement = store.database.connection().prepare_cached(statement);
        statement.unwrap().reset_status(StatementStatus::VmStep)
    };
    assert_eq!(store.keys("m.", 2).unwrap(), ["m.n", "m.n.o"]);
    let of_first = steps(&store, values::SELECT_FROM);
    let all = ["m.n", "m.n.o", "m.\u{e9}"];
    assert_eq!(store.keys("m.", usize::MAX).unwrap(), all);
    let of_all = steps(&store, values::SELECT_FROM);
    store.remove_value("m").unwrap();
    let of_removal = steps(&store, values::DELETE);
    assert_eq!(store.keys("m", usize::MAX).unwrap(), ["m-n", "mn"]);
    let count = store.keys("", usize::MAX).unwrap().len();
    assert_eq!(count, 2 * others as usize + 2);
    [of_first, of_all, of_removal]
}

#[test]
fn no_other_keys_are_read_to_list_or_remove_those_of_a_directory() {
    let steps = steps_among(10);
    assert!(steps.iter().all(|steps| *steps > 0), "{steps:?}");
    assert_eq!(steps, steps_among(1000));
}

#[test]
fn a_database_of_another_format_is_rejected() {
    let connection = Connection::open_in_memory().unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    let error = schema::prepare(&connection, Synchronous::Full).unwrap_err();
    assert!(error.is_format() && !error.is_disk_full());
    assert_eq!(
        error.to_string(),
        "store: the database has format 99, this program reads formats 1 to 13"
    );
}

#[test]
fn removing_a_job_leaves_the_others_alone() {
    let mut store = Store::in_memory().unwrap();
    let old = store.add_jobspec(1000, "old").unwrap();
    let new = store.add_jobspec(1000, "new").unwrap();
    for id in [7, 9].map(job) {
        store.add_job(id, 1000, 1.5, old).unwrap();
        store.append_events(id, 0, "a\n").unwrap();
        store.set_r(id, "R").unwrap();
        for line in ["b\n", "c\n"] {
            store.append_input(id, line).unwrap();
        }
    }
    store.set_spec(job(9), new).unwrap();
    assert_eq!(store.remove_jobs(&[job(7)]).unwrap(), [(job(7), old)]);
    assert_eq!(store.purged_jobs().unwrap(), [job(7)]);
    store.forget_purged(&[job(7)]).unwrap();
    assert!(store.purged_jobs().unwrap().is_empty());
    store.remove_jobspec(old).unwrap();
    assert_eq!(store.jobspec(old).unwrap(), None);
    assert_eq!(
        (store.r(job(7)).unwrap(), store.eventlog(job(7)).unwrap()),
        (None, String::new())
    );
    let left = store.jobs().unwrap().records;
    assert_eq!(left.len(), 1);
    assert_eq!(
        [7, 9].map(|id| store.input(job(id)).unwrap()),
        ["", "b\nc\n"]
    );
    assert!(store.has_job(job(9)).unwrap() && !store.has_job(job(7)).unwrap());
    assert_eq!((left[0].id, left[0].row.spec), (job(9), new));
    assert_eq!(left[0].eventlog(), "a\n");
}

#[test]
fn unsent_starts_are_marked_once_and_unmarked() {
    let mut store = Store::in_memory().unwrap();
    for id in [9, 7, 9].map(job) {
        store.add_unsent_start(id).unwrap();
    }
    assert_eq!(store.unsent_starts().unwrap(), [7, 9].map(job));
    for _ in 0..2 {
        store.remove_unsent_start(job(9)).unwrap();
    }
    assert_eq!(store.unsent_starts().unwrap(), [job(7)]);
}

#[test]
fn a_full_disk_has_an_error_of_its_own() {
    let mut store = Store::in_memory().unwrap();
    // SQLite reports its page limit as a full disk.
    store
        .database
        .connection()
        .pragma_update(None, "max_page_count", 1)
        .unwrap();
    let text = "x".repeat(1 << 20);
    let error = store.set_value("key", text.as_bytes()).unwrap_err();
    assert!(error.is_disk_full() && !error.is_format(), "{error}");
}

#[test]
fn a_damaged_row_costs_its_job_only() {
    let mut store = Store::in_memory().unwrap();
    let spec = store.add_jobspec(1000, "{}").unwrap();
    for id in 1..=7 {
        store.add_job(job(id), 1000, 1.5, spec).unwrap();
        store.append_events(job(id), 0, "a\n").unwrap();
    }
    store.commit().unwrap();
    for damage in [
        "UPDATE jobs SET userid = 'root' WHERE id = 1",
        "UPDATE jobs SET userid = -1 WHERE id = 2",
        "UPDATE jobs SET r = x'ff' WHERE id = 3",
        "UPDATE events SET lines = x'ff' WHERE job = 4",
        "UPDATE jobs SET spec = x'' WHERE id = 5",
        "UPDATE events SET job = 'six' WHERE job = 6",
        "UPDATE jobspecs SET text = x'ff'",
    ] {
        store.database.connection().execute_batch(damage).unwrap();
    }
    let jobs = store.jobs().unwrap();
    let left: Vec<_> = jobs.records.iter().map(|job| job.id).collect();
    // Job 6 has lost its events, which its reader will find.
    assert_eq!(left, [6, 7].map(job));
    assert_eq!(jobs.records[0].eventlog(), "");
    assert_eq!(jobs.damaged.len(), 6, "{:?}", jobs.damaged);
    assert!(
        jobs.damaged
            .iter()
            .any(|text| text.starts_with("job ƒ2 is left out: store: it cannot be read: ")),
        "{:?}",
        jobs.damaged
    );
    assert!(store.jobspec(spec).unwrap_err().is_damaged());
}

#[test]
fn writes_are_rolled_back_also_after_an_error() {
    let mut store = Store::in_memory().unwrap();
    store.set_meta("a", "1").unwrap();
    store.commit().unwrap();
    for statement in ["SELECT 1", "ROLLBACK"] {
        store.set_meta("a", "2").unwrap();
        // SQLite rolls back by itself after some errors.
        store
            .database
            .connection()
            .execute_batch(statement)
            .unwrap();
        store.roll_back().unwrap();
        assert!(!store.has_uncommitted());
        assert_eq!(store.meta("a").unwrap().as_deref(), Some("1"));
    }
}

#[test]
fn a_locked_database_has_an_error_of_its_own() {
    let directory = std::env::temp_dir().join(format!("penstock-locked-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("jobs.db");
    let mut store = Store::open(&path, Synchronous::Full).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.set_meta("a", "1").unwrap_err();
    assert!(error.is_busy() && !error.is_input_output(), "{error}");
    other.execute_batch("ROLLBACK").unwrap();
    store.set_meta("a", "1").unwrap();
    store.commit().unwrap();
    drop(store);
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_shared_database_in_memory_has_no_files() {
    let path = Path::new("file:penstock-store-test?mode=memory&cache=shared");
    let mut store = Store::open(path, Synchronous::Full).unwrap();
    store.set_meta("a", "1").unwrap();
    store.commit().unwrap();
    let other = Store::open(path, Synchronous::Full).unwrap();
    assert_eq!(other.meta("a").unwrap().as_deref(), Some("1"));
    Store::check_writable(path).unwrap();
    assert!(!generation::counter_path(path).exists() && !path.exists());
}

/// Two submissions of copies, 4 to 6 and 8 to 9, and a job without common events between them.
fn store_with_common_events() -> Store {
    let mut store = Store::in_memory().unwrap();
    let spec = store.add_jobspec(1000, "{}").unwrap();
    for last in [5, 6] {
        // The second one extends the range.
        let lines = "a\nb\n";
        store.add_common_events(job(4), job(last), lines).unwrap();
    }
    store.add_common_events(job(8), job(9), "x\n").unwrap();
    for id in [4, 5, 6, 7, 8, 9].map(job) {
        store.add_job(id, 1000, 1.5, spec).unwrap();
    }
    store.append_events(job(5), 2, "c\n").unwrap();
    store.append_events(job(7), 0, "s\n").unwrap();
    store.append_events(job(9), 1, "y\n").unwrap();
    store
}

#[test]
fn common_events_come_before_those_of_the_job() {
    let store = store_with_common_events();
    let expected = ["a\nb\n", "a\nb\nc\n", "a\nb\n", "s\n", "x\n", "x\ny\n"];
    let jobs = store.jobs().unwrap();
    assert_eq!((jobs.records.len(), jobs.last), (6, None));
    assert!(jobs.damaged.is_empty());
    for (record, expected) in jobs.records.iter().zip(expected) {
        assert_eq!(record.eventlog(), expected);
        assert_eq!(store.eventlog(record.id).unwrap(), expected);
        assert_eq!(store.job(record.id).unwrap().as_ref(), Some(record));
    }
    assert_eq!(store.eventlog(job(3)).unwrap(), "");
    assert_eq!(store.eventlog(job(10)).unwrap(), "");
}

#[test]
fn jobs_are_read_page_by_page() {
    let store = store_with_common_events();
    let all = store.jobs().unwrap().records;
    for max in 1..=7 {
        let mut records = Vec::new();
        let mut last = None;
        loop {
            let page = store.jobs_after(last, max, &EndedJobs::default()).unwrap();
            assert!(page.records.len() <= max);
            records.extend(page.records);
            last = page.last;
            if last.is_none() {
                break;
            }
        }
        assert_eq!(records, all);
    }
}

#[test]
fn jobs_with_long_events_are_read_few_at_a_time() {
    let mut store = Store::in_memory().unwrap();
    let spec = store.add_jobspec(1000, "{}").unwrap();
    let long = format!("{}\n", "x".repeat(6 << 20));
    for id in 1..=7 {
        store.add_job(job(id), 1000, 1.0, spec).unwrap();
        store.append_events(job(id), 0, &long).unwrap();
    }
    let mut read = Vec::new();
    store
        .visit_jobs(|jobs| {
            read.push(
                jobs.records
                    .iter()
                    .map(|job| job.id.get())
                    .collect::<Vec<_>>(),
            );
            Ok(())
        })
        .unwrap();
    assert_eq!(read, [vec![1, 2, 3], vec![4, 5, 6], vec![7]]);
    assert_eq!(store.jobs().unwrap().records.len(), 7);
}

#[test]
fn common_events_go_with_the_last_of_their_jobs() {
    let mut store = store_with_common_events();
    let count = |store: &Store| {
        let query = "SELECT count(*) FROM common_events";
        let count = store
            .database
            .connection()
            .query_row(query, [], |row| row.get::<_, i64>(0));
        count.unwrap()
    };
    for (id, left) in [(5, 2), (7, 2), (4, 2), (6, 1), (9, 1), (8, 0)] {
        store.remove_jobs(&[job(id)]).unwrap();
        assert_eq!(count(&store), left, "{id}");
        assert_eq!(store.eventlog(job(id)).unwrap(), "", "{id}");
    }
    // Jobs that follow each other are removed together.
    let mut store = store_with_common_events();
    let purged = store.purged_jobs().unwrap();
    assert_eq!(store.remove_jobs(&[3, 5, 6, 7].map(job)).unwrap().len(), 3);
    let again = store.remove_jobs(&[7, 8, 9].map(job)).unwrap();
    assert_eq!(
        again.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        [8, 9].map(job)
    );
    assert!(store.purged_jobs().unwrap().len() == purged.len() + 5 && count(&store) > 0);
    store.remove_jobs(&[4].map(job)).unwrap();
    assert_eq!(count(&store), 0);
    store.forget_purged(&[4, 5, 6, 8].map(job)).unwrap();
    assert_eq!(store.purged_jobs().unwrap(), [7, 9].map(job));
}

/// Lines of a job at a moment, in units of the clock's resolution.
fn lines_at(tick: u32) -> String {
    let seconds = |ticks: u32| 1_795_576_145.5 + f64::from(ticks) / f64::from(1 << 20);
    let [raised, clean] = [seconds(tick), seconds(tick + 5000)];
    format!(
        "{{\"timestamp\":{raised},\"name\":\"exception\",\"context\":{{\"note\":\"at {{1}}\"}}}}\n\
         {{\"timestamp\":{clean},\"name\":\"clean\"}}\n"
    )
}

/// Forty copies, of which the events of most are shared further: those of 10 to 39 but 20, and one by one those of 2 to 4.
fn store_with_shared_events() -> (Store, BTreeMap<u64, String>) {
    let mut store = Store::in_memory().unwrap();
    let spec = store.add_jobspec(1000, "{}").unwrap();
    store.add_common_events(job(1), job(40), "a\nb\n").unwrap();
    let mut expected = BTreeMap::new();
    for id in 1..=40 {
        store.add_job(job(id), 1000, 1.5, spec).unwrap();
        expected.insert(id, "a\nb\n".to_owned());
    }
    for id in [11].into_iter().chain(30..=39) {
        store.append_events(job(id), 2, "own\n").unwrap();
        expected.get_mut(&id).unwrap().push_str("own\n");
    }
    let ids = (2..=4).chain(10..=39);
    let events = ids.map(|id| {
        let seq = if id == 11 || id > 29 { 3 } else { 2 };
        let lines = match id {
            20 => "another line\n".to_owned(),
            id => lines_at(u32::try_from(id * 3).unwrap()),
        };
        expected.get_mut(&id).unwrap().push_str(&lines);
        (job(id), seq, lines)
    });
    store.append_events_of(events).unwrap();
    store.append_events(job(24), 4, "last\n").unwrap();
    expected.get_mut(&24).unwrap().push_str("last\n");
    (store, expected)
}

fn count(store: &Store, table: &str) -> i64 {
    let query = format!("SELECT count(*) FROM {table}");
    let count = store
        .database
        .connection()
        .query_row(&query, [], |row| row.get(0));
    count.unwrap()
}

#[test]
fn events_that_differ_by_a_constant_step_share_a_row() {
    let mut store = Store::in_memory().unwrap();
    let lines = |id: u64| lines_at(u32::try_from(id).unwrap() * 3);
    let events = |ids: std::ops::Range<u64>| ids.map(|id| (job(id), 4, lines(id)));
    store.append_events_of(events(1..1000)).unwrap();
    assert_eq!(
        (count(&store, "common_events"), count(&store, "events")),
        (1, 0)
    );
    // Few jobs, a gap between ids, another step, another `seq`, a great one.
    store.append_events_of(events(2000..2003)).unwrap();
    store
        .append_events_of(events(3000..3020).step_by(2))
        .unwrap();
    let squares = (4000..4020).map(|id| (job(id), 4, lines((id - 4000) * (id - 4000))));
    store.append_events_of(squares).unwrap();
    let counted = (5000..5020)
        .zip(0..)
        .map(|(id, seq)| (job(id), seq, lines(id)));
    store.append_events_of(counted).unwrap();
    let late = events(6000..6020).map(|(id, _, lines)| (id, 64, lines));
    store.append_events_of(late).unwrap();
    assert_eq!(
        (count(&store, "common_events"), count(&store, "events")),
        (1, 3 + 10 + 20 + 20 + 20)
    );
    // A job has the lines of a `seq` once.
    assert!(store.append_events_of(events(1..9)).is_err());
}

#[test]
fn shared_events_are_read_between_those_of_the_job() {
    let (store, expected) = store_with_shared_events();
    assert!(count(&store, "common_events") > 1);
    for max in [1, 7, 40, 100] {
        let (mut last, mut left) = (None, expected.iter());
        loop {
            let page = store.jobs_after(last, max, &EndedJobs::default()).unwrap();
            assert!(page.damaged.is_empty(), "{:?}", page.damaged);
            for (record, (id, expected)) in page.records.iter().zip(left.by_ref()) {
                assert_eq!((record.id, &record.eventlog()), (job(*id), expected));
                assert_eq!(store.eventlog(record.id).unwrap(), *expected);
                assert_eq!(store.job(record.id).unwrap().as_ref(), Some(record));
            }
            last = page.last;
            if last.is_none() {
                break;
            }
        }
        assert_eq!(left.next(), None, "{max}");
    }
}

#[test]
fn shared_events_stay_until_the_last_of_their_jobs_is_removed() {
    let (mut store, mut expected) = store_with_shared_events();
    for id in [13, 10, 14, 1, 40, 27].into_iter().chain(1..=40) {
        store.remove_jobs(&[job(id)]).unwrap();
        expected.remove(&id);
        assert_eq!(store.eventlog(job(id)).unwrap(), "");
        for (id, expected) in &expected {
            assert_eq!(store.eventlog(job(*id)).unwrap(), *expected);
        }
    }
    assert_eq!(
        (count(&store, "common_events"), count(&store, "events")),
        (0, 0)
    );
}

#[test]
fn shared_events_that_cannot_be_read_damage_their_jobs_alone() {
    let (store, expected) = store_with_shared_events();
    store
        .database
        .connection()
        .execute(
            "UPDATE common_events SET lines = x'ff' WHERE seq = 2 AND first = 12",
            [],
        )
        .unwrap();
    let jobs = store.jobs().unwrap();
    assert_eq!(jobs.damaged.len(), 20 - 12, "{:?}", jobs.damaged);
    for record in jobs.records {
        assert_eq!(record.eventlog(), expected[&record.id.get()]);
    }
}

#[test]
fn a_job_without_some_of_its_events_is_damaged() {
    let (store, _) = store_with_shared_events();
    store
        .database
        .connection()
        .execute("UPDATE events SET job = 99 WHERE job = 30", [])
        .unwrap();
    assert_eq!(
        store.jobs().unwrap().damaged,
        ["job ƒX is left out: the event after its first 2 ones is missing"]
    );
}

#[test]
fn an_ended_job_with_the_facts_of_another_one_is_read_from_its_events() {
    let mut store = store_with_common_events();
    let ended = |id: u64, userid| EndedJob {
        id: job(id),
        spec: 1,
        end: 1000.0,
        userid,
        name_hash: 0,
        t_submit: 0.5,
    };
    let jobs = [ended(5, 1000), ended(6, 1001)].map(|job| (job, JobUsage::default()));
    store.add_ended_jobs(&EndedClass::default(), &jobs).unwrap();
    let read = |store: &Store| {
        let ended = store.ended_jobs().unwrap();
        let jobs = store.jobs_after(None, 99, &ended).unwrap();
        assert!(jobs.damaged.is_empty());
        (jobs.stale, jobs.ended.len(), jobs.records.len())
    };
    assert_eq!(read(&store), (vec![job(6)], 1, 5));
    store.remove_ended_rows_of(job(6)).unwrap();
    assert_eq!(read(&store), (Vec::new(), 0, 6));
}

#[test]
fn of_jobs_with_facts_later_events_are_read() {
    let mut store = store_with_common_events();
    let whole = store.jobs().unwrap().records;
    let logs = |jobs: &[JobRecord]| jobs.iter().map(JobRecord::eventlog).collect::<Vec<_>>();
    let count = |log: &String| u32::try_from(log.lines().count()).unwrap();
    let counts: Vec<u32> = logs(&whole).iter().map(count).collect();
    let known: Vec<_> = whole.iter().zip(counts).step_by(2).collect();
    for (job, events) in &known {
        store.set_pending_facts(job.id, 1, "earlier").unwrap();
        store.set_pending_facts(job.id, *events, "facts").unwrap();
        store.append_events(job.id, *events, "later\n").unwrap();
    }
    let read = store
        .jobs_to_restore(None, 99, &EndedJobs::default())
        .unwrap();
    assert_eq!((read.damaged.len(), read.records.len()), (0, whole.len()));
    for (read, before) in read.records.iter().zip(&whole) {
        let facts = known.iter().find(|(job, _)| job.id == before.id);
        let facts = facts.map(|(_, events)| PendingFacts {
            events: *events,
            text: "facts".to_owned(),
        });
        let log = match facts {
            Some(_) => "later\n".to_owned(),
            None => before.eventlog(),
        };
        assert_eq!((&read.facts, read.eventlog()), (&facts, log));
        assert_eq!(store.job_to_restore(read.id).unwrap().as_ref(), Some(read));
    }
    // All other readers get all events.
    let records = store.jobs().unwrap().records;
    assert!(records.iter().all(|job| job.facts.is_none()));
    for (job, _) in &known {
        let log = whole.iter().find(|before| before.id == job.id).unwrap();
        let log = log.eventlog() + "later\n";
        assert_eq!(store.job(job.id).unwrap().unwrap().eventlog(), log);
        assert_eq!(store.eventlog(job.id).unwrap(), log);
    }
    let first = known[0].0.id;
    store.remove_jobs(&[first]).unwrap();
    assert_eq!(store.pending_facts(first).unwrap(), None);
    assert_eq!(store.bad_rows().unwrap(), []);
    store.set_pending_facts(first, 1, "facts").unwrap();
    assert_eq!(store.bad_rows().unwrap().len(), 1);
}

#[test]
fn a_job_without_its_common_events_is_damaged() {
    let store = store_with_common_events();
    store
        .database
        .connection()
        .execute("DELETE FROM common_events WHERE first = 8", [])
        .unwrap();
    assert_eq!(
        store.jobs().unwrap().damaged,
        ["job ƒA is left out: its first events are missing"]
    );
}

#[test]
fn the_eventlogs_of_ended_jobs_are_not_read() {
    let mut store = store_with_common_events();
    let class = |queue: Option<&str>, result| EndedClass {
        queue: queue.map(Arc::from),
        result,
    };
    let ended = |id: u64| EndedJob {
        id: job(id),
        spec: 1,
        end: 1000.0 + f64::from(u32::try_from(id).unwrap()),
        userid: 1000,
        name_hash: u64::MAX - id,
        t_submit: 0.5,
    };
    let used = |id: u64| {
        (
            ended(id),
            JobUsage {
                begin: 1.5,
                nodes: 2,
                cores: 3,
                gpus: u32::MAX,
            },
        )
    };
    let (done, failed) = (class(None, 1), class(Some("batch"), 2));
    store.add_ended_jobs(&done, &[5, 6, 3].map(used)).unwrap();
    store.add_ended_jobs(&failed, &[9].map(used)).unwrap();
    store.add_ended_jobs(&failed, &[]).unwrap();
    store
        .database
        .connection()
        .execute("UPDATE events SET lines = x'00' WHERE job IN (5, 9)", [])
        .unwrap();
    let row = |seq, class: &EndedClass, ids: &[u64]| EndedRow {
        seq,
        class: class.clone(),
        jobs: ids.iter().map(|id| used(*id)).collect(),
    };
    let rows = [row(1, &done, &[5, 6, 3]), row(2, &failed, &[9])];
    assert_eq!(store.ended_rows(i64::MIN, 9).unwrap(), rows);
    assert_eq!(store.ended_rows(i64::MIN, 1).unwrap(), rows[..1]);
    assert_eq!(store.ended_rows(1, 9).unwrap(), rows[1..]);
    let all = store.ended_jobs().unwrap();
    let others = store.jobs().unwrap().records;
    for max in 1..=7 {
        let (mut records, mut found, mut last) = (Vec::new(), Vec::new(), None);
        loop {
            let page = store.jobs_after(last, max, &all).unwrap();
            assert!(page.damaged.is_empty());
            assert!(page.records.len() + page.ended.len() <= max);
            records.extend(page.records);
            found.extend(page.ended);
            last = page.last;
            if last.is_none() {
                break;
            }
        }
        let ids: Vec<JobId> = records.iter().map(|record| record.id).collect();
        assert_eq!(ids, [4, 7, 8].map(job), "{max}");
        assert!(records.iter().all(|record| others.contains(record)));
        // The third job of the first row is not stored.
        let expected = [(5, &done), (6, &done), (9, &failed)];
        let expected = expected.map(|(id, class)| (ended(id), class.clone()));
        assert_eq!(found, expected, "{max}");
    }
}

#[test]
fn a_row_of_ended_jobs_goes_with_the_last_of_its_jobs() {
    let mut store = store_with_common_events();
    let class = EndedClass {
        queue: None,
        result: 1,
    };
    let ended = |id: u64| EndedJob {
        id: job(id),
        spec: 1,
        end: 1.0,
        userid: 1000,
        name_hash: 1,
        t_submit: 0.5,
    };
    let ended = |id: u64| (ended(id), JobUsage::default());
    store.add_ended_jobs(&class, &[4, 6].map(ended)).unwrap();
    for (id, is_left) in [(4, true), (6, true), (5, false)] {
        store.remove_jobs(&[job(id)]).unwrap();
        store.remove_unused_ended_jobs(i64::MIN, None).unwrap();
        let has_rows = store.ended_jobs().unwrap() != EndedJobs::default();
        assert_eq!(has_rows, is_left, "{id}");
    }
}

#[test]
fn unused_rows_of_ended_jobs_are_removed_some_at_a_time() {
    let mut store = store_with_common_events();
    let class = EndedClass {
        queue: None,
        result: 1,
    };
    for id in [4, 5, 4, 6, 4] {
        let ended = EndedJob {
            id: job(id),
            spec: 1,
            end: 1.0,
            userid: 1000,
            name_hash: 1,
            t_submit: 0.5,
        };
        store
            .add_ended_jobs(&class, &[(ended, JobUsage::default())])
            .unwrap();
    }
    store.remove_jobs(&[job(4)]).unwrap();
    let mut sweep = |after| store.remove_unused_ended_jobs(after, Some(2)).unwrap();
    assert_eq!(sweep(i64::MIN), Some(2));
    assert_eq!(sweep(2), Some(4));
    assert_eq!(sweep(4), None);
    let query = "SELECT group_concat(seq) FROM ended_jobs";
    let left = store
        .database
        .connection()
        .query_row(query, [], |row| row.get::<_, String>(0));
    assert_eq!(left.unwrap(), "2,4");
}

#[test]
fn an_invalid_row_of_ended_jobs_is_ignored() {
    let store = store_with_common_events();
    for (result, jobs) in [("'x'", "x'00'"), ("1", "'text'"), ("1", "x'0102'")] {
        let row = format!("INSERT INTO ended_jobs VALUES (NULL, 4, 9, NULL, {result}, {jobs})");
        store.database.connection().execute(&row, []).unwrap();
    }
    let ended = store.ended_jobs().unwrap();
    assert_eq!(
        store.jobs_after(None, 100, &ended).unwrap().records.len(),
        6
    );
}
