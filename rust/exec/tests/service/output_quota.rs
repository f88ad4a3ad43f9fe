//! The limit of a guest's retained output, and the free space that retained output leaves.

use std::mem;

use penstock_exec::service::{Effect, GuestSettings, MIN_FREE_BYTES, OutputFile, OutputPlace};
use penstock_exec::{JobId, OutputReserve, SpawnFailure, Step, TaskRank};
use serde_json::{Value, json};

use crate::job_manager::{ManagedJob, jobspec, resources, with_options};
use crate::world::{World, exited, submit};

const GUEST: u32 = 1001;
const OTHER_GUEST: u32 = 1002;

/// A world whose service runs jobs of guests, each of which may have 100 bytes of output.
fn world_with_guests() -> World {
    let mut world = World::new();
    world.settings.guests = Some(GuestSettings {
        min_uid: GUEST,
        no_new_privs: true,
    });
    world.settings.user_output_limit = 100;
    world.settings.output_limit = 0;
    restart_service(&mut world);
    world
}

/// A world whose service leaves this much space, and has no limit of a guest's output.
fn world_with_reserve_of(bytes: u64) -> World {
    let mut world = world_with_guests();
    world.settings.user_output_limit = 0;
    world.settings.output_reserve = bytes;
    restart_service(&mut world);
    world
}

fn world_with_reserve() -> World {
    world_with_reserve_of(800)
}

/// Lets a second pass.
fn pass_second(world: &mut World) {
    world.advance(1.0);
    world.run();
}

fn pass_seconds(world: &mut World, seconds: u32) {
    for _ in 0..seconds {
        pass_second(world);
    }
}

fn restart_service(world: &mut World) {
    world.crash_service(usize::MAX, 0);
    world.counts = 0;
    world.restart();
}

fn submit_as(world: &mut World, user: u32, id: u64) {
    world.submit_as(user, id, jobspec(1, &["true"]), Some(resources(1)));
    set_up(world);
}

/// Delivers everything, and lets the processes of guests execute their programs.
fn set_up(world: &mut World) {
    world.run();
    for pid in mem::take(&mut world.kernel.setups) {
        let reaper = world.reaper.as_mut().expect("it runs");
        reaper.record_setup(pid, Ok(()));
    }
    world.run_reaper();
    world.run();
}

fn file(job: u64, user: u32, bytes: u64) -> OutputFile {
    OutputFile {
        job: JobId::new(job),
        user,
        bytes,
    }
}

/// Ends the requested count, which has found these files.
fn count(world: &mut World, files: &[OutputFile]) {
    assert_eq!(world.counts, 1);
    world.counts = 0;
    let now = world.now;
    let service = world.service_mut();
    service.take_output_files(files);
    service.finish_output_count(now);
    world.run_service();
    set_up(world);
}

fn write(world: &mut World, job: u64, bytes: usize) {
    let file = world.files.entry((job, "stdout")).or_default();
    file.resize(file.len() + bytes, b'x');
}

fn held_starts(world: &mut World) -> Value {
    let request = World::request("job-exec.stats-get", &json!({}));
    let service = world.service_mut();
    service.handle(&request.with_matchtag(7));
    let [Effect::Send(response)] = &service.take_effects()[..] else {
        panic!("nothing else is to be done");
    };
    let stats: Value = response.read().expect("JSON");
    stats["held_starts"].clone()
}

#[test]
fn a_job_of_a_guest_above_the_limit_ends_without_a_start() {
    let mut world = world_with_guests();
    submit_as(&mut world, GUEST, 1);
    // The first job of a guest starts when the output of all is known.
    assert_eq!(held_starts(&mut world), 1);
    assert!(world.answers(1).is_empty());
    count(&mut world, &[file(9, GUEST, 50)]);
    assert_eq!(held_starts(&mut world), 0);
    assert_eq!(world.answers(1), ["start"]);
    write(&mut world, 1, 60);
    world.end_process(0, exited(0));
    world.run();
    // It has ended before its output was measured in an interval.
    assert!(world.job(1).is_released);
    submit_as(&mut world, GUEST, 2);
    submit_as(&mut world, OTHER_GUEST, 3);
    assert_eq!(
        (world.answers(2).len(), world.answers(3)),
        (0, vec!["start"])
    );
    count(&mut world, &[file(9, GUEST, 50), file(1, GUEST, 60)]);
    let note = "the stored output of user 1001 has 110 bytes, more than 100 (`penstock.exec.user-output-limit`): send output \
                to files with `--output`, or let the instance's owner purge ended jobs";
    assert_eq!(world.job(2).notes, [note]);
    assert!(world.spawned(2).is_empty());
}

#[test]
fn purged_output_no_longer_counts() {
    let mut world = world_with_guests();
    submit_as(&mut world, GUEST, 1);
    count(&mut world, &[file(9, GUEST, 150)]);
    assert_eq!(world.job(1).notes, Vec::<String>::new());
    // It has waited for the first count; whether the guest is above the limit is for a later one to say.
    count(&mut world, &[file(9, GUEST, 150)]);
    assert_eq!(world.job(1).notes.len(), 1);
    submit_as(&mut world, GUEST, 2);
    count(&mut world, &[]);
    assert_eq!(world.answers(2), ["start"]);
}

#[test]
fn purged_output_of_a_job_whose_release_is_not_acknowledged_no_longer_counts() {
    let mut world = world_with_guests();
    submit_as(&mut world, GUEST, 1);
    count(&mut world, &[file(9, GUEST, 50)]);
    write(&mut world, 1, 45);
    world.advance(1.0);
    write(&mut world, 1, 15);
    world.end_process(0, exited(0));
    while world.deliver_one() {}
    assert!(world.job(1).is_released);
    world.submit_as(GUEST, 2, jobspec(1, &["true"]), Some(resources(1)));
    while world.deliver_one() {}
    assert!(world.answers(2).is_empty());
    // The service has the first job still, and its file is gone.
    assert_eq!(world.service().jobs(), 2);
    count(&mut world, &[file(9, GUEST, 50)]);
    assert_eq!(world.answers(2), ["start"]);
}

#[test]
fn a_writing_job_ends_when_its_user_passes_the_limit() {
    let mut world = world_with_guests();
    submit_as(&mut world, GUEST, 1);
    count(&mut world, &[file(9, GUEST, 50)]);
    submit_as(&mut world, GUEST, 2);
    write(&mut world, 2, 10);
    world.advance(1.0);
    assert_eq!(world.counts, 0);
    write(&mut world, 1, 45);
    world.advance(1.0);
    world.run();
    assert!(world.job(1).notes.is_empty());
    count(&mut world, &[file(9, GUEST, 50)]);
    assert!(world.job(1).notes[0].starts_with("the stored output of user 1001 has 105 bytes"));
    assert_eq!(world.job(1).statuses, [15]);
    // The other one has written nothing meanwhile.
    assert!(world.job(2).notes.is_empty());
}

#[test]
fn a_writing_job_continues_if_output_was_purged_meanwhile() {
    let mut world = world_with_guests();
    submit_as(&mut world, GUEST, 1);
    count(&mut world, &[file(9, GUEST, 50)]);
    write(&mut world, 1, 60);
    world.advance(1.0);
    count(&mut world, &[]);
    world.advance(1.0);
    assert!(world.job(1).notes.is_empty());
    assert_eq!(world.counts, 0);
}

#[test]
fn sums_are_right_after_a_restart() {
    let mut world = world_with_guests();
    submit_as(&mut world, GUEST, 1);
    count(&mut world, &[]);
    submit_as(&mut world, GUEST, 2);
    write(&mut world, 1, 40);
    write(&mut world, 2, 30);
    restart_service(&mut world);
    submit_as(&mut world, GUEST, 3);
    // The running jobs are measured, not counted, whether they end meanwhile or not.
    world.advance(1.0);
    world.end_process(0, exited(0));
    world.run();
    assert!(world.job(1).is_released);
    count(
        &mut world,
        &[file(1, GUEST, 40), file(2, GUEST, 30), file(9, GUEST, 30)],
    );
    assert_eq!(world.answers(3), ["start"]);
    write(&mut world, 3, 1);
    world.advance(10.0);
    count(&mut world, &[file(1, GUEST, 40), file(9, GUEST, 30)]);
    assert!(world.job(3).notes[0].starts_with("the stored output of user 1001 has 101 bytes"));
}

#[test]
fn a_count_includes_jobs_whose_output_was_not_measured_yet() {
    let mut world = world_with_guests();
    submit_as(&mut world, GUEST, 1);
    count(&mut world, &[]);
    write(&mut world, 1, 60);
    restart_service(&mut world);
    submit_as(&mut world, GUEST, 2);
    // No second has passed since the start of the service.
    let files = [file(1, GUEST, 60), file(9, GUEST, 50)];
    count(&mut world, &files);
    assert!(world.answers(2).is_empty());
    count(&mut world, &files);
    assert!(world.job(2).notes[0].starts_with("the stored output of user 1001 has 110 bytes"));
    // It is not added again when it is measured.
    write(&mut world, 1, 1);
    world.advance(1.0);
    world.run();
    count(&mut world, &[file(1, GUEST, 61), file(9, GUEST, 50)]);
    assert!(world.job(1).notes[0].starts_with("the stored output of user 1001 has 111 bytes"));
}

/// A world whose service runs job 1 of a guest, of which the instance knows nothing.
fn world_with_unclaimed_job() -> (World, ManagedJob) {
    let mut world = world_with_guests();
    submit_as(&mut world, GUEST, 1);
    count(&mut world, &[]);
    write(&mut world, 1, 60);
    let job = world.jobs.remove(&1).expect("submitted");
    restart_service(&mut world);
    (world, job)
}

#[test]
fn a_count_includes_jobs_that_the_instance_has_not_requested() {
    let (mut world, _) = world_with_unclaimed_job();
    submit_as(&mut world, GUEST, 2);
    let files = [file(1, GUEST, 60), file(9, GUEST, 50)];
    count(&mut world, &files);
    assert!(world.answers(2).is_empty());
    count(&mut world, &files);
    assert!(world.job(2).notes[0].starts_with("the stored output of user 1001 has 110 bytes"));
}

#[test]
fn output_of_an_unclaimed_job_is_added_up_once() {
    let (mut world, job) = world_with_unclaimed_job();
    submit_as(&mut world, GUEST, 2);
    count(&mut world, &[file(1, GUEST, 60), file(9, GUEST, 50)]);
    count(&mut world, &[file(1, GUEST, 90)]);
    assert_eq!(world.answers(2), ["start"]);
    // The instance requests the job.
    world.jobs.insert(1, job);
    world.send_start(1);
    write(&mut world, 1, 35);
    world.run();
    world.advance(1.0);
    world.run();
    assert_eq!(world.answers(1), ["start", "reattached"]);
    // The sum is 95, not 125.
    assert_eq!(world.counts, 0);
}

#[test]
fn output_that_a_count_finds_before_it_was_measured_is_written_now() {
    let mut world = world_with_reserve();
    world.settings.user_output_limit = 100;
    restart_service(&mut world);
    submit_as(&mut world, GUEST, 1);
    let file_of_other = file(9, OTHER_GUEST, 150);
    count(&mut world, &[file_of_other]);
    write(&mut world, 1, 60);
    // This job needs another count, in the first second of the other job.
    submit_as(&mut world, OTHER_GUEST, 2);
    count(&mut world, &[file(1, GUEST, 60)]);
    write(&mut world, 2, 10);
    world.free_space = 0;
    world.advance(1.0);
    world.run();
    assert_eq!([1, 2].map(|id| world.job(id).notes.len()), [1, 0]);
}

#[test]
fn a_count_is_repeated_if_a_job_was_forgotten_whose_output_was_not_measured() {
    let (mut world, _) = world_with_unclaimed_job();
    submit_as(&mut world, GUEST, 2);
    let service = world.service_mut();
    service.take_output_files(&[file(1, GUEST, 60)]);
    // It writes more, and ends.
    world.end_process(0, exited(0));
    world.run();
    count(&mut world, &[file(9, GUEST, 15)]);
    assert!(world.answers(2).is_empty());
    count(&mut world, &[file(1, GUEST, 90), file(9, GUEST, 15)]);
    count(&mut world, &[file(1, GUEST, 90), file(9, GUEST, 15)]);
    assert!(world.job(2).notes[0].starts_with("the stored output of user 1001 has 105 bytes"));
}

#[test]
fn sparse_files_of_any_length_are_added_up() {
    let mut world = world_with_guests();
    submit_as(&mut world, GUEST, 1);
    count(&mut world, &[file(8, GUEST, u64::MAX), file(9, GUEST, 1)]);
    count(&mut world, &[file(9, GUEST, 1)]);
    for _ in 0..2 {
        let service = world.service_mut();
        service.take_output_size(JobId::new(1), u64::MAX);
    }
    world.run_service();
    count(&mut world, &[file(9, GUEST, u64::MAX)]);
    assert_eq!(world.job(1).notes.len(), 1);
}

#[test]
fn counts_take_a_part_of_the_time() {
    let mut world = world_with_guests();
    submit_as(&mut world, GUEST, 1);
    world.advance(2.0);
    count(&mut world, &[file(9, GUEST, 150)]);
    assert_eq!(world.counts, 0);
    world.advance(17.0);
    assert_eq!(world.counts, 0);
    world.advance(1.0);
    count(&mut world, &[file(9, GUEST, 150)]);
    assert_eq!(world.job(1).notes.len(), 1);
}

#[test]
fn jobs_without_retained_output_and_the_owners_have_no_limit() {
    let mut world = world_with_guests();
    submit(&mut world, 1, 1);
    let file = json!({"type": "file", "path": "out"});
    let options = json!({"output": {"stdout": file, "stderr": file}});
    let spec = with_options(jobspec(1, &["true"]), &options);
    world.submit_as(GUEST, 2, spec, Some(resources(1)));
    set_up(&mut world);
    write(&mut world, 1, 1000);
    world.advance(1.0);
    assert_eq!(world.counts, 0);
    assert_eq!(
        (world.answers(1), world.answers(2)),
        (vec!["start"], vec!["start"])
    );
}

#[test]
fn a_job_starts_when_there_is_space_for_its_output() {
    let mut world = world_with_reserve();
    world.free_space = 799;
    submit_as(&mut world, GUEST, 1);
    let options = json!({"output": {"stdout": {"type": "file", "path": "out"}}});
    let spec = with_options(jobspec(1, &["true"]), &options);
    world.submit_as(GUEST, 2, spec, Some(resources(1)));
    set_up(&mut world);
    assert_eq!(held_starts(&mut world), 1);
    assert_eq!(world.answers(1), ["exception"]);
    assert_eq!(world.answers(2), ["start"]);
    let note = "the job starts when there is space for its output: only the reserve of 800 bytes is free \
                (`penstock.exec.output-reserve`)";
    assert_eq!(
        world.job(1).warnings,
        [("exec".to_owned(), note.to_owned())]
    );
    let low = "799 bytes are free for output, 800 are reserved (`penstock.exec.output-reserve`): jobs of guests are held";
    // A little more is not enough, and nothing is reported again.
    for free in [799, 899] {
        world.free_space = free;
        world.advance(1.0);
        world.run();
        assert_eq!(held_starts(&mut world), 1);
    }
    world.free_space = 900;
    world.advance(1.0);
    set_up(&mut world);
    assert_eq!(held_starts(&mut world), 0);
    assert_eq!(world.answers(1), ["exception", "start"]);
    assert_eq!(
        world.logged,
        [
            low,
            "900 bytes are free for output: jobs of guests continue"
        ]
    );
    assert_eq!(world.job(1).warnings.len(), 1);
}

#[test]
fn the_reaper_leaves_the_reserve() {
    let mut world = world_with_reserve();
    assert_eq!(world.kernel.reserve, OutputReserve(800));
    let reload = World::request("job-exec.config-reload", &json!({"output-reserve": 900}));
    world.service_mut().handle(&reload);
    world.run_service();
    world.run();
    assert_eq!(world.kernel.reserve, OutputReserve(900));
    // A reaper without this service's connection gets the latest one with it.
    world.crash_reaper();
    world.kernel.reserve = OutputReserve::default();
    world.connect_reaper();
    world.run();
    assert_eq!(world.kernel.reserve, OutputReserve(900));
}

#[test]
fn dropped_output_is_reported_with_the_release() {
    let mut world = world_with_reserve();
    submit_as(&mut world, GUEST, 1);
    world.kernel.unwritten.insert(JobId::new(1), 70);
    world.end_process(0, exited(0));
    // A service that ends meanwhile reports neither.
    world.run_reaper();
    restart_service(&mut world);
    world.run();
    let note = "70 bytes of output were dropped at the end of the job: only the reserve of 800 bytes is free for output \
                (`penstock.exec.output-reserve`)";
    assert_eq!(
        world.job(1).warnings,
        [("exec".to_owned(), note.to_owned())]
    );
    assert_eq!(
        world.answers(1),
        ["start", "reattached", "finish", "exception", "release"]
    );
}

#[test]
fn running_jobs_of_guests_get_one_exception_when_there_is_no_space() {
    let mut world = world_with_reserve();
    submit(&mut world, 1, 1);
    submit_as(&mut world, GUEST, 2);
    let note = "the job can write more when there is space for its output: only the reserve of 800 bytes is free \
                (`penstock.exec.output-reserve`)";
    let warning = ("exec".to_owned(), note.to_owned());
    for (free, told) in [(800, 1), (850, 1), (900, 1), (700, 2)] {
        world.free_space = free;
        world.advance(1.0);
        world.run();
        assert_eq!(world.job(2).warnings, vec![warning.clone(); told], "{free}");
    }
    assert!(world.job(1).warnings.is_empty());
}

#[test]
fn space_is_low_when_the_reaper_writes_no_more() {
    let mut world = world_with_reserve();
    for (free, expected) in [(851, 1), (850, 0)] {
        world.free_space = free;
        world.advance(1.0);
        submit_as(&mut world, GUEST, free);
        assert_eq!(world.spawned(free).len(), expected, "{free} bytes");
    }
}

#[test]
fn a_held_job_can_be_cancelled() {
    let mut world = world_with_reserve();
    world.free_space = 0;
    submit_as(&mut world, GUEST, 1);
    world.cancel(1);
    world.run();
    assert!(world.job(1).is_released);
    assert_eq!(held_starts(&mut world), 0);
}

#[test]
fn the_largest_writers_are_ended_when_space_runs_out() {
    let mut world = world_with_reserve();
    for id in 1..=4 {
        submit_as(&mut world, GUEST, id);
    }
    world.advance(1.0);
    world.free_space = 500;
    for (id, bytes) in [(1, 5), (2, 40), (3, 30)] {
        write(&mut world, id, bytes);
    }
    world.advance(1.0);
    world.run();
    let is_ended = |world: &World, id| world.job(id).statuses == [15];
    assert_eq!(
        [1, 2, 3, 4].map(|id| is_ended(&world, id)),
        [false, true, false, false]
    );
    let note = "only the reserve of 800 bytes is free for output (`penstock.exec.output-reserve`), and this job was writing most: send \
                its output to a file with `--output`";
    assert_eq!(world.job(2).notes, [note]);
    // Output from now on is compared.
    write(&mut world, 3, 50);
    pass_second(&mut world);
    assert!(!is_ended(&world, 3));
    write(&mut world, 3, 1);
    world.advance(1.0);
    world.run();
    assert_eq!(
        [1, 3, 4].map(|id| is_ended(&world, id)),
        [false, true, false]
    );
}

#[test]
fn a_writer_is_found_although_another_job_is_measured_before_it() {
    let mut world = world_with_reserve();
    submit_as(&mut world, GUEST, 1);
    world.advance(0.5);
    submit_as(&mut world, GUEST, 2);
    write(&mut world, 1, 5);
    write(&mut world, 2, 1000);
    world.free_space = 0;
    // The second job is measured by itself half a second later, when the disk is full and nothing is written.
    world.advance(0.5);
    world.run();
    assert_eq!([1, 2].map(|id| world.job(id).notes.len()), [0, 1]);
}

#[test]
fn output_of_an_earlier_service_is_not_written_now() {
    let mut world = world_with_reserve();
    submit_as(&mut world, GUEST, 1);
    write(&mut world, 1, 1000);
    world.free_space = 0;
    restart_service(&mut world);
    world.advance(1.0);
    world.run();
    world.advance(1.0);
    world.run();
    assert!(world.job(1).notes.is_empty());
    write(&mut world, 1, 100);
    world.advance(1.0);
    world.run();
    assert_eq!(world.job(1).notes.len(), 1);
}

#[test]
fn the_space_that_is_left_is_the_owners() {
    let mut world = world_with_reserve();
    submit(&mut world, 1, 1);
    world.run();
    submit_as(&mut world, GUEST, 2);
    write(&mut world, 1, 1000);
    write(&mut world, 2, 51);
    world.free_space = 1;
    world.advance(1.0);
    world.run();
    assert_eq!([1, 2].map(|id| world.job(id).notes.len()), [0, 1]);
    submit(&mut world, 3, 1);
    world.run();
    assert_eq!(world.answers(3), ["start"]);
}

#[test]
fn jobs_of_the_owner_start_when_there_is_space_for_their_output() {
    let mut world = World::new();
    world.free_space = 0;
    submit(&mut world, 1, 1);
    let file = json!({"type": "file", "path": "out"});
    let options = json!({"output": {"stdout": file, "stderr": file}});
    let spec = with_options(jobspec(1, &["true"]), &options);
    let owner = world.settings.owner;
    world.submit_as(owner, 2, spec, Some(resources(1)));
    world.run();
    pass_second(&mut world);
    assert_eq!(held_starts(&mut world), 1);
    let note = "the job starts when there is space for its output: none is free";
    assert_eq!(
        world.job(1).warnings,
        [("exec".to_owned(), note.to_owned())]
    );
    assert_eq!(world.answers(2), ["start"]);
    // Space for few files does not end the shortage, which would begin again with the next ones.
    world.free_space = 2 * MIN_FREE_BYTES - 1;
    pass_second(&mut world);
    assert_eq!(world.answers(1), ["exception"]);
    world.free_space += 1;
    pass_second(&mut world);
    assert_eq!(world.answers(1), ["exception", "start"]);
    let lines = [
        "no space is free for output: jobs are not started",
        "131072 bytes are free for output: jobs are started",
    ];
    assert_eq!(world.logged, lines);
}

/// A world with a job whose tasks could not write to their files, or not be recorded, for this reason.
fn world_with_failed_start(step: Step, errno: i32) -> World {
    let mut world = World::new();
    for rank in 0..2 {
        let failure = SpawnFailure { step, errno };
        world.kernel.fails.insert(TaskRank(rank), failure);
    }
    submit(&mut world, 1, 2);
    world
}

const SPACE_FAILURES: [(Step, i32); 7] = [
    (Step::Stdout, libc::ENOSPC),
    (Step::Stdout, libc::EDQUOT),
    (Step::Stderr, libc::ENOSPC),
    (Step::Record, libc::ENOSPC),
    // Tasks of other jobs have the reaper's descriptors.
    (Step::Stdout, libc::EMFILE),
    (Step::Stderr, libc::ENFILE),
    (Step::Clone, libc::EMFILE),
];

#[test]
fn a_start_that_fails_for_lack_of_space_is_repeated() {
    for (step, errno) in SPACE_FAILURES {
        let mut world = world_with_failed_start(step, errno);
        world.run();
        pass_second(&mut world);
        pass_second(&mut world);
        assert_eq!(world.answers(1), ["exception"]);
        assert_eq!(held_starts(&mut world), 1);
        let [(_, note)] = &world.job(1).warnings[..] else {
            panic!("one exception: {:?}", world.job(1).warnings);
        };
        assert!(
            note.starts_with("the job starts when there is space: cannot "),
            "{note}"
        );
        world.kernel.fails.clear();
        pass_seconds(&mut world, 4);
        assert_eq!(world.answers(1), ["exception", "start"]);
        assert_eq!(held_starts(&mut world), 0);
        for index in 0..2 {
            world.end_process(index, exited(0));
        }
        world.wind_up();
        assert_eq!(world.job(1).statuses, [0]);
    }
}

#[test]
fn a_start_is_repeated_with_exponential_backoff() {
    let mut world = world_with_failed_start(Step::Stdout, libc::EDQUOT);
    world.run();
    let mut seconds = Vec::new();
    let mut tries = world.kernel.failed;
    for second in 1..250 {
        pass_second(&mut world);
        if world.kernel.failed > tries {
            tries = world.kernel.failed;
            seconds.push(second);
        }
    }
    assert_eq!(seconds, [1, 3, 7, 15, 31, 63, 123, 183, 243]);
}

#[test]
fn a_repeated_start_survives_the_service_and_can_be_cancelled() {
    for is_cancelled in [false, true] {
        let mut world = world_with_failed_start(Step::Stdout, libc::ENOSPC);
        world.run();
        world.crash_service(0, 0);
        world.restart();
        pass_second(&mut world);
        if is_cancelled {
            world.cancel(1);
            world.run();
            assert!(world.job(1).is_released);
            assert!(world.spawned(1).is_empty());
            continue;
        }
        world.kernel.fails.clear();
        pass_seconds(&mut world, 2);
        assert_eq!(world.spawned(1).len(), 2);
    }
}

#[test]
fn a_start_is_repeated_while_the_clock_is_set_back() {
    let mut world = world_with_failed_start(Step::Stdout, libc::ENOSPC);
    world.run();
    world.kernel.fails.clear();
    world.advance(-1000.0);
    pass_second(&mut world);
    assert_eq!(world.spawned(1).len(), 2);
}

/// A failure of which the service learns when it is started again, before the job manager requests the job.
#[test]
fn a_start_that_failed_while_the_service_was_away_is_repeated() {
    let mut world = world_with_failed_start(Step::Stdout, libc::ENOSPC);
    world.deliver_to_service();
    world.crash_service(0, 0);
    world.run_reaper();
    while world.deliver_to_reaper() || world.deliver_from_reaper() {}
    world.restart();
    world.kernel.fails.clear();
    pass_second(&mut world);
    pass_second(&mut world);
    assert_eq!(world.spawned(1).len(), 2);
}

#[test]
fn a_start_after_which_a_program_ran_is_not_repeated() {
    let mut world = world_with_failed_start(Step::Stdout, libc::ENOSPC);
    world.kernel.fails.remove(&TaskRank(0));
    world.run();
    world.end_process(0, exited(0));
    world.wind_up();
    assert!(world.job(1).is_released);
    assert!(world.job(1).notes[0].starts_with("cannot write "));
    assert_eq!(world.spawned(1).len(), 1);
}

/// A world with a job of a guest and a shortage, in which this much is free.
fn world_with_shortage(free: u64) -> World {
    let mut world = world_with_reserve_of(RESERVE);
    submit_as(&mut world, GUEST, 1);
    world.free_space = 0;
    pass_second(&mut world);
    // It stays low until an eighth more than the reserve is free.
    world.free_space = free;
    world
}

const RESERVE: u64 = 16 << 20;
/// The least output in a period for which a job is ended.
const FLOOR: usize = 1 << 20;

#[test]
fn a_job_is_ended_for_more_output_in_a_shortage_than_there_is_room_for() {
    let full = RESERVE + (64 << 10);
    let room = FLOOR + 1000;
    for (free, most) in [(full, FLOOR), (full + room as u64, room)] {
        let mut world = world_with_shortage(free);
        // Bursts of one second do not tell what a job will write.
        let burst = 30_000;
        for bytes in [burst, burst, most - 2 * burst] {
            write(&mut world, 1, bytes);
            pass_second(&mut world);
        }
        assert!(world.job(1).notes.is_empty(), "{free} bytes are free");
        write(&mut world, 1, 1);
        pass_second(&mut world);
        assert_eq!(world.job(1).notes.len(), 1, "{free} bytes are free");
    }
}

#[test]
fn output_in_a_shortage_is_added_up_for_ten_minutes() {
    let mut world = world_with_shortage(0);
    write(&mut world, 1, FLOOR);
    for _ in 0..600 {
        pass_second(&mut world);
    }
    write(&mut world, 1, FLOOR);
    pass_second(&mut world);
    assert!(world.job(1).notes.is_empty());
    write(&mut world, 1, 1);
    pass_second(&mut world);
    assert_eq!(world.job(1).notes.len(), 1);
}

#[test]
fn output_that_was_in_flight_without_room_does_not_end_its_job() {
    let mut world = world_with_shortage(0);
    // Full pipes of many tasks, which the reaper copies at once when there is room.
    let held = 100 * (64 << 10);
    world.kernel.held.insert(JobId::new(1), held as u64);
    write(&mut world, 1, held + FLOOR);
    pass_second(&mut world);
    assert!(world.job(1).notes.is_empty());
    write(&mut world, 1, 1);
    pass_second(&mut world);
    assert_eq!(world.job(1).notes.len(), 1);
}

#[test]
fn output_that_was_in_flight_without_room_is_the_growth_of_one_period() {
    let mut world = world_with_shortage(0);
    let held = 16 * (1 << 20);
    world.kernel.held.insert(JobId::new(1), held as u64);
    write(&mut world, 1, held + FLOOR);
    for _ in 0..601 {
        pass_second(&mut world);
    }
    assert!(world.job(1).notes.is_empty());
    write(&mut world, 1, held + FLOOR);
    pass_second(&mut world);
    assert_eq!(world.job(1).notes.len(), 1);
}

#[test]
fn the_most_output_in_flight_in_a_period_does_not_end_its_job() {
    let mut world = world_with_shortage(0);
    for held in [2 * FLOOR, FLOOR] {
        world.kernel.held.insert(JobId::new(1), held as u64);
        pass_second(&mut world);
    }
    write(&mut world, 1, 3 * FLOOR);
    pass_second(&mut world);
    assert!(world.job(1).notes.is_empty());
    write(&mut world, 1, 1);
    pass_second(&mut world);
    assert_eq!(world.job(1).notes.len(), 1);
}

#[test]
fn writers_are_compared_when_the_reaper_has_listed_what_was_in_flight() {
    let mut world = world_with_shortage(0);
    write(&mut world, 1, 2 * FLOOR);
    world.advance(1.0);
    world.kernel.held.insert(JobId::new(1), FLOOR as u64);
    // The response is late: more is measured, and nothing is compared.
    world.advance(1.0);
    assert!(world.job(1).notes.is_empty());
    world.run();
    assert!(world.job(1).notes.is_empty());
    // The reaper ends without a response.
    write(&mut world, 1, 1);
    world.advance(1.0);
    world.replace_reaper();
    world.run();
    assert!(world.job(1).notes.is_empty());
    pass_second(&mut world);
    assert_eq!(world.job(1).notes.len(), 1);
}

#[test]
fn jobs_are_judged_by_the_file_system_of_their_output() {
    let former = OutputPlace::Former(7);
    for (former_free, present_free) in [(0, u64::MAX), (u64::MAX, 0)] {
        let mut world = world_with_reserve();
        world.former_spaces = vec![(former, u64::MAX)];
        world.former_places.insert(1, former);
        for id in [1, 2] {
            submit_as(&mut world, GUEST, id);
        }
        pass_second(&mut world);
        world.former_spaces = vec![(former, former_free)];
        world.free_space = present_free;
        for id in [1, 2] {
            write(&mut world, id, 100);
        }
        pass_second(&mut world);
        submit_as(&mut world, GUEST, 3);
        let is_former = usize::from(former_free == 0);
        let told = [1, 2].map(|id| (world.job(id).warnings.len(), world.job(id).notes.len()));
        let counts = [is_former, 1 - is_former].map(|count| (count, count));
        assert_eq!(
            told, counts,
            "{former_free} bytes are free in the former directory"
        );
        assert_eq!(world.spawned(3).len(), is_former);
        let name = ["", " in a former directory"][is_former];
        let low = format!("0 bytes are free for output{name}, 800 are reserved");
        assert!(world.logged[0].starts_with(&low), "{:?}", world.logged);
    }
}

#[test]
fn a_job_of_an_earlier_service_is_judged_when_its_output_is_found() {
    let former = OutputPlace::Former(7);
    let mut world = world_with_reserve();
    submit_as(&mut world, GUEST, 1);
    world.former_spaces = vec![(former, u64::MAX)];
    world.former_places.insert(1, former);
    world.free_space = 0;
    restart_service(&mut world);
    // This job needs the free space, in the first second of the other job.
    submit_as(&mut world, GUEST, 2);
    assert_eq!(world.job(2).warnings.len(), 1);
    pass_second(&mut world);
    assert!(world.job(1).warnings.is_empty());
    world.former_spaces = vec![(former, 0)];
    pass_second(&mut world);
    assert_eq!(world.job(1).warnings.len(), 1);
    // Tasks that start later have theirs elsewhere. That is short of space for the first time, too.
    world.former_places.clear();
    pass_second(&mut world);
    assert_eq!(world.job(1).warnings.len(), 2);
}

#[test]
fn a_former_directory_without_output_of_a_job_is_not_reported() {
    let mut world = world_with_reserve();
    submit_as(&mut world, GUEST, 1);
    world.former_spaces = vec![(OutputPlace::Former(7), 0)];
    pass_second(&mut world);
    assert_eq!(world.logged, Vec::<String>::new());
    assert!(world.job(1).warnings.is_empty());
}

#[test]
fn a_task_of_a_guest_above_a_limit_gets_no_time_to_write_more() {
    let mut world = world_with_guests();
    world.settings.user_output_limit = 0;
    world.settings.output_limit = 100;
    restart_service(&mut world);
    submit_as(&mut world, GUEST, 1);
    submit(&mut world, 2, 1);
    world.run();
    for id in [1, 2] {
        let pid = world.spawned(id)[0];
        world.kernel.ignores_sigterm.insert(pid);
        write(&mut world, id, 1000);
    }
    world.advance(1.0);
    world.run();
    world.advance(0.0);
    world.run();
    // The owner's task may end by itself.
    assert_eq!(
        [1, 2].map(|id| world.job(id).statuses == [9]),
        [true, false]
    );
    world.advance(world.settings.kill_timeout_s);
    world.run();
    assert_eq!(world.job(2).statuses, [9]);
}
