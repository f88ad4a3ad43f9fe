//! The layouts of the protocol, of the log and of marks.

use std::ffi::CString;

use penstock_exec::log::{HEADER_BYTES, LogContents, LoggedTask, Record, header};
use penstock_exec::mark::{MAX_SLOTS, MarkSpace};
use penstock_exec::protocol::{
    Event, FrameDecoder, Group, Guest, Hello, Input, Limit, MAX_FRAME_BYTES, Message, Output, Pmi,
    Relay, Request, SignalTarget, TaskSpec, WindowSize,
};
use penstock_exec::service::journal::{self, JournalContents, JournalId};
use penstock_exec::{
    BootId, CgroupId, CgroupLimits, JobId, OutputReserve, Pid, ProcessId, SpawnFailure, Step,
    TaskEnd, TaskId, TaskRank, Usage, WaitStatus,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const JOURNAL: JournalId = JournalId(5);

fn task() -> impl Strategy<Value = TaskId> {
    (any::<u64>(), any::<u32>()).prop_map(|(job, rank)| TaskId {
        job: JobId::new(job),
        rank: TaskRank(rank),
    })
}

fn process() -> impl Strategy<Value = ProcessId> {
    (any::<u32>(), any::<u64>()).prop_map(|(pid, start_time)| ProcessId {
        pid: Pid(pid),
        start_time,
    })
}

fn string() -> impl Strategy<Value = CString> {
    vec(1..=u8::MAX, 0..20).prop_map(|bytes| CString::new(bytes).expect("no zero byte"))
}

fn failure() -> impl Strategy<Value = SpawnFailure> {
    let steps = [Step::Cancelled, Step::Clone, Step::Stderr, Step::Exec];
    (prop::sample::select(steps.to_vec()), any::<i32>())
        .prop_map(|(step, errno)| SpawnFailure { step, errno })
}

fn end() -> impl Strategy<Value = TaskEnd> {
    let signaled = (any::<u8>(), any::<bool>())
        .prop_map(|(signal, core)| WaitStatus::Signaled { signal, core });
    let status = prop_oneof![
        any::<u8>().prop_map(WaitStatus::Exited),
        signaled,
        Just(WaitStatus::Unknown)
    ];
    (status, any::<[u64; 4]>()).prop_map(|(status, [max_rss_kib, user_us, system_us, time_ns])| {
        TaskEnd {
            status,
            usage: Usage {
                max_rss_kib,
                user_us,
                system_us,
            },
            time_ns,
        }
    })
}

fn output() -> impl Strategy<Value = Output> {
    prop_oneof![
        Just(Output::Null),
        string().prop_map(Output::Append),
        string().prop_map(Output::Truncate)
    ]
}

fn window() -> impl Strategy<Value = WindowSize> {
    any::<(u16, u16)>().prop_map(|(rows, columns)| WindowSize { rows, columns })
}

fn spec() -> impl Strategy<Value = TaskSpec> {
    let texts = (vec(string(), 1..4), vec(string(), 0..4), string());
    let stdin = prop_oneof![
        Just(Input::Null),
        Just(Input::Pipe),
        string().prop_map(Input::File)
    ];
    let labels = any::<[bool; 3]>().prop_map(|[stdout, stderr, is_line_buffered]| Relay::Labels {
        stdout,
        stderr,
        is_line_buffered,
    });
    let relay = prop_oneof![
        Just(Relay::None),
        labels,
        window().prop_map(Relay::Terminal)
    ];
    let streams = (
        stdin,
        output(),
        prop_oneof![output(), Just(Output::SameAsStdout)],
        relay,
    );
    let limit = any::<(u32, u64, u64)>().prop_map(|(resource, soft, hard)| Limit {
        resource,
        soft,
        hard,
    });
    let guest = any::<(u32, bool, bool, bool)>().prop_map(
        |(uid, no_new_privs, names_stdout, names_stderr)| Guest {
            uid,
            no_new_privs,
            names_stdout,
            names_stderr,
        },
    );
    let group = prop_oneof![Just(Group::Session), Just(Group::Group)];
    let rest = (
        vec(any::<u32>(), 0..4),
        vec(limit, 0..4),
        any::<(Option<u64>, Option<u64>, Option<u32>)>(),
        any::<u32>(),
        group,
        option::of(guest),
        prop_oneof![
            Just(Pmi::None),
            string().prop_map(Pmi::Server),
            string().prop_map(Pmi::Client)
        ],
    );
    (task(), texts, streams, rest).prop_map(|(task, texts, streams, rest)| {
        let (arguments, environment, directory) = texts;
        let (stdin, stdout, stderr, relay) = streams;
        let (cpus, limits, (memory, pids, cpu_millis), umask, group, guest, pmi) = rest;
        TaskSpec {
            task,
            arguments,
            environment: environment.into_iter().collect(),
            directory,
            stdin,
            stdout,
            stderr,
            relay,
            cpus,
            limits,
            cgroup_limits: CgroupLimits {
                memory,
                pids,
                cpu_millis,
            },
            umask,
            group,
            guest,
            pmi,
        }
    })
}

fn request() -> impl Strategy<Value = Request> {
    let target = prop_oneof![
        task().prop_map(SignalTarget::Task),
        any::<u64>().prop_map(|job| SignalTarget::Job(JobId::new(job)))
    ];
    prop_oneof![
        any::<u32>().prop_map(|version| Request::Hello { version }),
        vec(spec(), 0..4).prop_map(Request::Spawn),
        (target, any::<u32>()).prop_map(|(target, signal)| Request::Signal { target, signal }),
        vec(any::<u64>().prop_map(JobId::new), 0..4).prop_map(Request::Kill),
        vec(task(), 0..4).prop_map(Request::KillTasks),
        vec(any::<u64>().prop_map(JobId::new), 0..4).prop_map(Request::CancelStarts),
        vec(any::<u64>().prop_map(JobId::new), 0..4).prop_map(Request::Forget),
        Just(Request::List),
        Just(Request::Shutdown),
        (
            any::<[u64; 3]>(),
            any::<Option<u32>>(),
            vec(any::<u8>(), 0..20),
            any::<bool>()
        )
            .prop_map(
                |([job, writer, offset], task, data, is_end)| Request::Write {
                    job: JobId::new(job),
                    task: task.map(TaskRank),
                    writer,
                    offset,
                    data,
                    is_end,
                }
            ),
        (any::<u64>(), window()).prop_map(|(job, size)| Request::Resize {
            job: JobId::new(job),
            size,
        }),
        any::<u64>().prop_map(|bytes| Request::ReserveOutput(OutputReserve(bytes))),
        Just(Request::ListHeldOutput),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    let event = prop_oneof![
        (task(), process()).prop_map(|(task, process)| Event::Started { task, process }),
        (task(), failure()).prop_map(|(task, failure)| Event::Failed { task, failure }),
        (task(), end()).prop_map(|(task, end)| Event::Ended { task, end }),
        any::<u64>().prop_map(|job| Event::Empty {
            job: JobId::new(job)
        }),
        task().prop_map(|task| Event::TaskEmpty { task }),
        any::<(u64, u64)>().prop_map(|(job, count)| Event::OomKilled {
            job: JobId::new(job),
            count
        }),
        any::<(u64, u64)>().prop_map(|(job, bytes)| Event::OutputHeld {
            job: JobId::new(job),
            bytes,
        }),
        any::<(u64, u64)>().prop_map(|(job, bytes)| Event::OutputDropped {
            job: JobId::new(job),
            bytes
        }),
    ];
    let hello = (any::<u32>(), any::<u128>(), process()).prop_map(|(version, boot, process)| {
        Message::Hello(Hello {
            version,
            boot: BootId(boot),
            process,
        })
    });
    prop_oneof![
        hello,
        vec(event, 0..5).prop_map(Message::Events),
        any::<(u32, i32)>().prop_map(|(id, errno)| Message::Done { id, errno }),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    // Few jobs and tasks, so that records are about the same ones.
    let id = (0u64..3, 0u32..3).prop_map(|(job, rank)| TaskId {
        job: JobId::new(job),
        rank: TaskRank(rank),
    });
    let id = || id.clone();
    let cgroup = option::of((0..3u32).prop_map(CgroupId));
    prop_oneof![
        (id(), process(), cgroup)
            .prop_map(|(task, process, cgroup)| Record::Started(task, process, cgroup)),
        (id(), failure()).prop_map(|(task, failure)| Record::Failed(task, failure)),
        (id(), end()).prop_map(|(task, end)| Record::Ended(task, end)),
        (0u64..3).prop_map(|job| Record::Forgotten(JobId::new(job))),
    ]
}

fn journal_record() -> impl Strategy<Value = journal::Record> {
    let job = (0..5u64).prop_map(JobId::new);
    let targets = || vec(any::<u32>(), 0..4);
    let intent = (any::<u128>(), targets(), targets()).prop_map(|(boot, targets, shrunk)| {
        let mut intent = journal::Intent::new(BootId(boot), targets);
        intent.shrunk.extend(shrunk);
        intent
    });
    (job, intent, targets(), 0..4).prop_map(|(job, intent, targets, kind)| match kind {
        0 => journal::Record::Intent(job, intent),
        1 => journal::Record::Shrunk(job, targets),
        2 => journal::Record::Warned(job, 1000.5),
        _ => journal::Record::Forgotten(job),
    })
}

fn journal(records: &[journal::Record]) -> Vec<u8> {
    let mut bytes = journal::header("local:///run/socket", JOURNAL);
    for record in records {
        record.encode(&mut bytes);
    }
    bytes
}

fn log(records: &[Record]) -> Vec<u8> {
    let reaper = ProcessId {
        pid: Pid(5),
        start_time: 6,
    };
    let mut bytes = header(BootId(7), reaper);
    for record in records {
        record.encode(&mut bytes);
    }
    bytes
}

proptest! {
    #[test]
    fn requests_survive_any_split(requests in vec((any::<u32>(), request()), 0..4), at in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        for (id, request) in &requests {
            request.encode(*id, &mut bytes).expect("short");
        }
        let (head, tail) = bytes.split_at(at.index(bytes.len() + 1));
        let mut decoder = FrameDecoder::default();
        let mut decoded = Vec::new();
        for part in [head, tail] {
            decoder.push(part);
            while let Some(payload) = decoder.next_payload().expect("short") {
                decoded.push(Request::decode(payload).expect("valid"));
            }
        }
        prop_assert_eq!(decoded, requests);
    }

    #[test]
    fn messages_are_read_as_written(message in message()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).expect("short");
        prop_assert_eq!(Message::decode(&bytes[4..]).expect("valid"), message);
    }

    #[test]
    fn a_cut_request_is_an_error(request in request(), at in any::<prop::sample::Index>()) {
        let mut bytes = Vec::new();
        request.encode(1, &mut bytes).expect("short");
        let payload = &bytes[4..];
        let error = Request::decode(&payload[..at.index(payload.len())]).expect_err("cut");
        prop_assert!(error.is_format());
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = Request::decode(&bytes);
        let _ = Message::decode(&bytes);
        let _ = LogContents::decode(&bytes);
    }

    #[test]
    fn a_torn_log_is_that_of_its_whole_records(records in vec(record(), 0..20), at in any::<prop::sample::Index>()) {
        let whole = log(&records);
        let cut = HEADER_BYTES + at.index(whole.len() - HEADER_BYTES + 1);
        let torn = LogContents::decode(&whole[..cut]).expect("the header is whole");
        let kept = (0..=records.len())
            .rev()
            .find(|kept| log(&records[..*kept]).len() <= cut)
            .expect("none is kept at least");
        let expected = LogContents::decode(&log(&records[..kept])).expect("valid");
        prop_assert_eq!(&torn.jobs, &expected.jobs);
        prop_assert_eq!(torn.valid_len, expected.valid_len);
        prop_assert_eq!(torn.is_torn, torn.valid_len < cut);
        prop_assert!(!expected.is_torn);
    }

    #[test]
    fn a_damaged_record_ends_the_log(records in vec(record(), 1..20), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let mut bytes = log(&records);
        let damaged = HEADER_BYTES + at.index(bytes.len() - HEADER_BYTES);
        bytes[damaged] ^= 1 << bit;
        let contents = LogContents::decode(&bytes).expect("the header is whole");
        prop_assert!(contents.is_torn);
        prop_assert!(contents.valid_len <= damaged);
    }

    #[test]
    fn a_torn_journal_is_that_of_its_whole_records(records in vec(journal_record(), 0..20), at in any::<prop::sample::Index>()) {
        let header = journal::header("local:///run/socket", JOURNAL).len();
        let whole = journal(&records);
        let cut = header + at.index(whole.len() - header + 1);
        let torn = JournalContents::decode(&whole[..cut]).expect("the header is whole");
        let kept = (0..=records.len()).rev().find(|kept| journal(&records[..*kept]).len() <= cut);
        let expected = journal(&records[..kept.expect("the header")]);
        let expected = JournalContents::decode(&expected).expect("valid");
        prop_assert_eq!(&torn.jobs, &expected.jobs);
        prop_assert_eq!(torn.valid_len, expected.valid_len);
        prop_assert_eq!(torn.is_torn, torn.valid_len < cut);
        prop_assert!(!expected.is_torn);
    }

    #[test]
    fn a_damaged_record_ends_the_journal(records in vec(journal_record(), 1..20), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let header = journal::header("local:///run/socket", JOURNAL).len();
        let mut bytes = journal(&records);
        let damaged = header + at.index(bytes.len() - header);
        bytes[damaged] ^= 1 << bit;
        let contents = JournalContents::decode(&bytes).expect("the header is whole");
        prop_assert!(contents.is_torn);
        prop_assert!(contents.valid_len <= damaged);
    }

    #[test]
    fn marks_are_found_at_every_level(slots in [0..MAX_SLOTS, 0..MAX_SLOTS, 0..MAX_SLOTS], other in 0..MAX_SLOTS) {
        let mut limit = u64::MAX;
        let mut spaces = Vec::new();
        for slot in slots {
            let space = MarkSpace::below(limit).expect("three levels");
            prop_assert_eq!(space.slot(limit), None);
            prop_assert!(space.mark(slot) < limit);
            limit = space.mark(slot);
            spaces.push(space);
        }
        for (space, slot) in spaces.iter().zip(slots) {
            prop_assert_eq!(space.slot(limit), Some(slot));
        }
        // The same slots below another job of the outermost reaper are not taken for these.
        prop_assume!(other != slots[0]);
        let elsewhere = MarkSpace::below(spaces[0].mark(other)).expect("two levels are left");
        prop_assert_eq!(spaces[1].slot(elsewhere.mark(slots[1])), None);
    }
}

#[test]
fn a_limit_that_leaves_no_room_gives_no_marks() {
    assert_eq!(MarkSpace::below(1000), None);
    let space = MarkSpace::below(u64::MAX).expect("three levels");
    assert_eq!(space.slot(u64::MAX), None);
    assert_eq!(space.slot(1000), None);
}

#[test]
fn the_last_record_of_a_task_counts() {
    let id = TaskId {
        job: JobId::new(1),
        rank: TaskRank(0),
    };
    let process = ProcessId {
        pid: Pid(2),
        start_time: 3,
    };
    let failure = SpawnFailure {
        step: Step::Exec,
        errno: 2,
    };
    let bytes = log(&[
        Record::Started(id, process, None),
        Record::Failed(id, failure),
    ]);
    let contents = LogContents::decode(&bytes).expect("valid");
    assert_eq!(contents.boot, BootId(7));
    assert_eq!(contents.reaper.pid, Pid(5));
    assert_eq!(
        contents.jobs[&JobId::new(1)][&id],
        LoggedTask::Failed(failure)
    );
}

#[test]
fn a_file_that_is_no_log_is_an_error() {
    for bytes in [
        &b""[..],
        b"PnstkRp2",
        b"something else, longer than a header is",
    ] {
        let error = LogContents::decode(bytes).expect_err("no header");
        assert!(error.is_format(), "{error}");
    }
}

#[test]
fn a_log_or_journal_of_another_version_is_named_as_such() {
    let error = LogContents::decode(b"PnstkRp1 and records").expect_err("version 1");
    assert!(error.is_other_version());
    let text = "a reaper's log of version 1: expected version 2";
    assert_eq!(error.to_string(), text);
    let error = JournalContents::decode(b"PnstkSv3").expect_err("version 3");
    assert!(error.is_other_version());
    let text = "a service's journal of version 3: expected version 2";
    assert_eq!(error.to_string(), text);
}

#[test]
fn the_journal_has_the_jobs_that_were_not_forgotten() {
    let intent = journal::Intent::new(BootId(7), vec![3, 3, 4]);
    let records = [
        journal::Record::Intent(JobId::new(1), intent.clone()),
        journal::Record::Intent(JobId::new(2), intent.clone()),
        journal::Record::Shrunk(JobId::new(2), vec![4]),
        journal::Record::Shrunk(JobId::new(3), vec![4]),
        journal::Record::Warned(JobId::new(2), 1000.5),
        journal::Record::Warned(JobId::new(3), 1000.5),
        journal::Record::Forgotten(JobId::new(1)),
    ];
    let contents = JournalContents::decode(&journal(&records)).expect("valid");
    assert_eq!(contents.instance, "local:///run/socket");
    assert_eq!(contents.id, JOURNAL);
    let mut shrunk = intent;
    shrunk.shrunk.insert(4);
    shrunk.warned_of = Some(1000.5);
    assert_eq!(
        contents.jobs.into_iter().collect::<Vec<_>>(),
        [(JobId::new(2), shrunk)]
    );
    for bytes in [
        &b""[..],
        b"PnstkSv2",
        b"PnstkRp2 and more than a header has",
    ] {
        let error = JournalContents::decode(bytes).expect_err("no header");
        assert!(error.is_format(), "{error}");
    }
}

#[test]
fn a_frame_that_is_too_long_is_an_error() {
    let mut decoder = FrameDecoder::default();
    let length = u32::try_from(MAX_FRAME_BYTES + 1).expect("16 MiB");
    decoder.push(&length.to_le_bytes());
    let error = decoder.next_payload().expect_err("too long");
    assert_eq!(
        error.to_string(),
        "frame of 16777217 bytes: expected at most 16777216"
    );
    let many = Request::Forget(vec![JobId::new(0); MAX_FRAME_BYTES / 8]);
    let mut bytes = vec![1, 2, 3];
    assert!(
        many.encode(1, &mut bytes)
            .expect_err("too long")
            .is_format()
    );
    assert_eq!(bytes, [1, 2, 3]);
}

#[test]
fn errors_name_what_was_expected() {
    let error = Request::decode(&[1, 0, 0, 0, 3, 9]).expect_err("cut");
    assert_eq!(
        error.to_string(),
        "invalid message: expected a number of jobs at byte 5"
    );
    let error = Request::decode(&[1, 0, 0, 0, 5, 9]).expect_err("longer");
    assert_eq!(
        error.to_string(),
        "invalid message: expected the end of the message at byte 5"
    );
}

#[test]
fn boot_ids_are_shown_as_linux_shows_them() {
    let text = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";
    let boot = BootId::parse(&format!("{text}\n")).expect("valid");
    assert_eq!(boot.to_string(), text);
    assert_eq!(BootId::parse("12"), None);
    assert_eq!(BootId::parse("zf1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"), None);
}
