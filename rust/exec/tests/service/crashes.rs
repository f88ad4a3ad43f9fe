//! Random crashes of service and reaper, lost connections, a full disk.

use penstock_exec::WaitStatus;
use proptest::prelude::*;
use serde_json::json;

use crate::job_manager::{SECOND_TARGET, jobspec, two_targets, with_options};
use crate::world::{BEYOND_ALL_TIMEOUTS_S, World, submit};

#[derive(Debug, Clone, Copy)]
enum Action {
    Submit(u32),
    Deliver(u8),
    EndProcess(usize, WaitStatus),
    Fork(usize),
    Cancel(u64),
    SubmitOnTwoTargets,
    SubmitPmix,
    /// A job releases its second target.
    Shrink(u64),
    CrashService(usize, usize),
    CrashReaper,
    /// The standby takes the place of a killed reaper.
    ReplaceReaper,
    LoseConnection,
    Connect,
    ConnectReaper,
    /// Whether the journal can be written from now on.
    Journal(bool),
    EndIdleReaper,
    Advance,
    Run,
}

fn action() -> impl Strategy<Value = Action> {
    let status = prop_oneof![
        any::<u8>().prop_map(WaitStatus::Exited),
        Just(WaitStatus::Signaled {
            signal: 11,
            core: false
        }),
    ];
    prop_oneof![
        4 => (1..4u32).prop_map(Action::Submit),
        24 => (0..4u8).prop_map(Action::Deliver),
        6 => (any::<usize>(), status).prop_map(|(index, status)| Action::EndProcess(index, status)),
        2 => any::<usize>().prop_map(Action::Fork),
        1 => (1..12u64).prop_map(Action::Cancel),
        2 => Just(Action::SubmitOnTwoTargets),
        2 => Just(Action::SubmitPmix),
        3 => (1..12u64).prop_map(Action::Shrink),
        2 => (0..6usize, any::<usize>()).prop_map(|(effects, torn)| Action::CrashService(effects, torn)),
        1 => Just(Action::CrashReaper),
        2 => Just(Action::ReplaceReaper),
        1 => Just(Action::LoseConnection),
        3 => Just(Action::Connect),
        2 => Just(Action::ConnectReaper),
        2 => any::<bool>().prop_map(Action::Journal),
        1 => Just(Action::EndIdleReaper),
        1 => Just(Action::Advance),
        3 => Just(Action::Run),
    ]
}

impl World {
    fn take(&mut self, action: Action) {
        match action {
            Action::Submit(ntasks) => {
                let id = self.jobs.len() as u64 + 1;
                submit(self, id, ntasks);
            }
            Action::Deliver(queue) => {
                match queue {
                    0 => self.deliver_to_service(),
                    1 => self.deliver_to_manager(),
                    2 => self.deliver_to_reaper(),
                    _ => self.deliver_from_reaper(),
                };
            }
            Action::EndProcess(index, status) => self.end_process(index, status),
            Action::Fork(index) => self.fork(index),
            Action::Cancel(id) => self.cancel(id),
            Action::SubmitOnTwoTargets => {
                let id = self.jobs.len() as u64 + 1;
                self.submit(id, jobspec(2, &["true"]), Some(two_targets()));
            }
            Action::SubmitPmix => {
                let id = self.jobs.len() as u64 + 1;
                let spec = with_options(jobspec(2, &["mpi"]), &json!({"pmix": true}));
                self.submit(id, spec, Some(two_targets()));
            }
            Action::Shrink(id) => {
                let job = self.jobs.get(&id);
                if job.is_some_and(|job| job.r == Some(two_targets())) {
                    self.shrink(id, SECOND_TARGET);
                }
            }
            Action::CrashService(effects, torn) => self.crash_service(effects, torn),
            Action::CrashReaper => self.crash_reaper(),
            Action::ReplaceReaper => self.replace_reaper(),
            Action::LoseConnection => self.lose_connection(),
            Action::Connect => {
                if self.service.is_none() {
                    self.start_service();
                    self.connect_reaper();
                }
                self.connect();
            }
            Action::ConnectReaper => {
                if self.reaper.is_none() {
                    self.connect_reaper();
                }
            }
            Action::Journal(is_writable) => self.is_journal_full = !is_writable,
            Action::EndIdleReaper => self.end_idle_reaper(),
            Action::Advance => self.advance(BEYOND_ALL_TIMEOUTS_S),
            Action::Run => {
                self.run();
                self.check_progress();
            }
        }
    }

    /// Ends a reaper without a process: its log has all statuses.
    fn end_idle_reaper(&mut self) {
        while self.deliver_to_reaper() {}
        if self.kernel.processes.is_empty() && self.reaper.is_some() {
            self.reaper = None;
            self.from_reaper.clear();
            if let Some(service) = &mut self.service {
                service.handle_reaper_loss();
            }
            self.run_service();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_job_is_started_twice_and_every_status_is_right(actions in prop::collection::vec(action(), 1..160)) {
        let mut world = World::new();
        for action in actions {
            world.take(action);
        }
        world.wind_up();
        world.check();
    }
}
