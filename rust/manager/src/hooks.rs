//! `Hooks`: prolog and epilog, which the site runs before a job starts and after it has ended
//! (RFC 21).
//!
//! The service `hooks` runs them on request. A job starts after its prolog has finished, and its
//! resources are freed after its epilog has.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use penstock_flux::eventlog::{self, HookFinish, HookStart};
use penstock_flux::hooks::{CancelRequest, HookResponse};
use penstock_flux::{HookJob, TypedPayload, topic};
use penstock_jobspec::job_id::JobId;
use penstock_wire::Message;

use crate::context::Context;
use crate::dialogue::{Hook, HookCall, HookInput};
use crate::event::Event;
use crate::jobs::{HooksWriter, Job};
use crate::record::HookStage;
use crate::rpc;
use crate::settings::Settings;
use crate::state::State;

/// The wait status of a hook that could not be run, or was interrupted: exit code 1.
const FAILED_WAIT_STATUS: i64 = 1 << 8;

impl Hook {
    fn topic(self) -> &'static str {
        match self {
            Self::Prolog => topic::hooks::PROLOG,
            Self::Epilog => topic::hooks::EPILOG,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Prolog => "prolog",
            Self::Epilog => "epilog",
        }
    }

    fn start_event(self) -> &'static str {
        match self {
            Self::Prolog => eventlog::PROLOG_START,
            Self::Epilog => eventlog::EPILOG_START,
        }
    }

    fn finish_event(self) -> &'static str {
        match self {
            Self::Prolog => eventlog::PROLOG_FINISH,
            Self::Epilog => eventlog::EPILOG_FINISH,
        }
    }

    fn stage(self, job: &Job) -> HookStage {
        match self {
            Self::Prolog => job.record.prolog(),
            Self::Epilog => job.record.epilog(),
        }
    }

    fn is_configured(self, settings: &Settings) -> bool {
        match self {
            Self::Prolog => settings.prolog,
            Self::Epilog => settings.epilog,
        }
    }

    fn is_due(self, job: &Job, settings: &Settings) -> bool {
        match self {
            Self::Prolog => settings.prolog && !job.record.has_started(),
            Self::Epilog => job.is_epilog_due(settings),
        }
    }
}

/// The conversation with the `hooks` service.
#[derive(Debug)]
pub(crate) struct Hooks {
    writer: HooksWriter,
    /// Outstanding requests by matchtag.
    outstanding: BTreeMap<u32, Outstanding>,
    /// The route of the service.
    service: Option<Vec<u8>>,
    /// The jobs with a hook that may run at a service which has failed: it is requested again of the next one.
    postponed: BTreeSet<JobId>,
}

/// A request for the run or the end of a hook.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    job: JobId,
    hook: Hook,
    command: Command,
}

/// The command of a hook when a request about it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// It was not requested before.
    New,
    /// It was requested by an earlier job manager, and may run whatever becomes of this request.
    MayRun,
}

impl Hooks {
    /// The conversation without outstanding requests.
    pub(crate) fn new(writer: HooksWriter) -> Self {
        Self {
            writer,
            outstanding: BTreeMap::new(),
            service: None,
            postponed: BTreeSet::new(),
        }
    }

    /// Sets the route of the service. One that is registered again has failed before, but its commands continue: it may
    /// have rejected requests about them.
    pub(crate) fn set_service(&mut self, cx: &mut Context, route: Option<&Vec<u8>>) {
        let Some(route) = route else {
            return;
        };
        if self.service.replace(route.clone()).as_ref() == Some(route) {
            return;
        }
        for id in mem::take(&mut self.postponed) {
            cx.revisit(id);
        }
        let cancelled = self.outstanding.values().filter(|request| {
            let job = cx.jobs.get(request.job);
            job.is_some_and(|job| job.dialogue.hooks.of(request.hook) == HookCall::Cancelling)
        });
        let cancelled: Vec<JobId> = cancelled.map(|request| request.job).collect();
        for id in cancelled {
            cx.notify(topic::hooks::CANCEL, &CancelRequest { id });
        }
    }

    /// Runs a hook of a job if it is due. The job waits for it while [`is_running`].
    pub(crate) fn run(&mut self, cx: &mut Context, id: JobId, hook: Hook) {
        let Some(job) = cx.jobs.get(id) else {
            return;
        };
        match hook.stage(job) {
            HookStage::Begun if job.dialogue.hooks.of(hook) != HookCall::Idle => {}
            HookStage::Begun if !hook.is_configured(&cx.settings) => self.request_end(cx, id, hook),
            // A restart of the instance has interrupted the hook. If only the job manager has restarted, the service runs it
            // again after the command that has not ended.
            HookStage::Begun => self.request(cx, id, hook, Command::MayRun),
            HookStage::Idle if hook.is_due(job, &cx.settings) => {
                let description = hook.name().into();
                let context = HookStart { description };
                cx.log(id, Event::with(cx.now, hook.start_event(), &context));
                self.request(cx, id, hook, Command::New);
            }
            HookStage::Idle | HookStage::Done => {}
        }
    }

    fn request(&mut self, cx: &mut Context, id: JobId, hook: Hook, command: Command) {
        let Some((record, calls)) = cx.jobs.hooks_mut(&self.writer, id) else {
            return;
        };
        if !calls.advance(hook, HookInput::Request) {
            return;
        }
        let job = HookJob {
            id,
            userid: record.userid(),
            status: record.wait_status(),
            r: record.r().map(|r| cx.claims.with_text(id, r)),
        };
        let message = rpc::typed_request(hook.topic(), TypedPayload::Hook(job));
        let matchtag = cx.next_matchtag();
        let outstanding = Outstanding {
            job: id,
            hook,
            command,
        };
        self.outstanding.insert(matchtag, outstanding);
        cx.send(message.with_matchtag(matchtag));
    }

    /// Requests the end of a hook that was begun before a restart: its command may still run if only the job manager has
    /// restarted.
    fn request_end(&mut self, cx: &mut Context, id: JobId, hook: Hook) {
        let Some((_, calls)) = cx.jobs.hooks_mut(&self.writer, id) else {
            return;
        };
        if !calls.advance(hook, HookInput::RequestEnd) {
            return;
        }
        let message = rpc::request(topic::hooks::CANCEL, &CancelRequest { id });
        let matchtag = cx.next_matchtag();
        let outstanding = Outstanding {
            job: id,
            hook,
            command: Command::MayRun,
        };
        self.outstanding.insert(matchtag, outstanding);
        cx.send(message.with_matchtag(matchtag));
    }

    /// Handles a response to `hooks.prolog`, `hooks.epilog` or `hooks.cancel`: the command has ended, unless a failed service
    /// has rejected a request about one that it runs.
    pub(crate) fn handle_response(&mut self, cx: &mut Context, response: &Message) {
        let Some(request) = self.outstanding.remove(&response.matchtag) else {
            return;
        };
        let (id, hook) = (request.job, request.hook);
        let Some((record, calls)) = cx.jobs.hooks_mut(&self.writer, id) else {
            return;
        };
        let state = record.state();
        calls.advance(hook, HookInput::Response);
        if request.command == Command::MayRun && response.errnum() != 0 {
            self.postponed.insert(id);
            return;
        }
        if response.topic() == topic::hooks::CANCEL {
            // A hook that is no longer configured does not fail.
            let is_due = hook.is_configured(&cx.settings);
            finish(cx, id, hook, if is_due { FAILED_WAIT_STATUS } else { 0 });
            return cx.revisit(id);
        }
        let (status, note) = result_of(response);
        if status == 0 {
            finish(cx, id, hook, status);
            return cx.revisit(id);
        }
        cx.log_line(format!("{} of job {id}: {note}", hook.name()));
        match hook {
            Hook::Prolog => {
                finish(cx, id, hook, status);
                if state == State::Run {
                    cx.fail_job(id, hook.name(), &note);
                }
            }
            Hook::Epilog => {
                // The result of the job stands, whether its epilog succeeds or not.
                let exception = eventlog::Exception {
                    kind: hook.name().into(),
                    severity: 1,
                    note: note.into(),
                    userid: Some(cx.settings.owner),
                    wait_status: None,
                };
                cx.raise(id, Event::exception(cx.now, exception));
                finish(cx, id, hook, status);
            }
        }
        cx.revisit(id);
    }

    /// Cancels the prolog of a job in CLEANUP, if it is running.
    pub(crate) fn cancel_prolog(&mut self, cx: &mut Context, id: JobId) {
        let Some((record, calls)) = cx.jobs.hooks_mut(&self.writer, id) else {
            return;
        };
        if record.prolog() != HookStage::Begun {
            return;
        }
        match calls.of(Hook::Prolog) {
            HookCall::Idle => self.request_end(cx, id, Hook::Prolog),
            HookCall::Requested => {
                calls.advance(Hook::Prolog, HookInput::Cancel);
                cx.notify(topic::hooks::CANCEL, &CancelRequest { id });
            }
            HookCall::Cancelling => {}
        }
    }
}

/// Whether a hook of a job has begun and not finished.
pub(crate) fn is_running(cx: &Context, id: JobId, hook: Hook) -> bool {
    let job = cx.jobs.get(id);
    job.is_some_and(|job| hook.stage(job) == HookStage::Begun)
}

/// Logs that a hook has finished.
fn finish(cx: &mut Context, id: JobId, hook: Hook, status: i64) {
    let description = hook.name().into();
    let context = HookFinish {
        description,
        status,
    };
    cx.log(id, Event::with(cx.now, hook.finish_event(), &context));
}

/// The wait status and note of a response.
fn result_of(response: &Message) -> (i64, String) {
    if response.errnum() != 0 {
        let text = response.error_text().unwrap_or_default();
        return (
            FAILED_WAIT_STATUS,
            format!("{} failed: {text}", response.topic()),
        );
    }
    match response.read_request::<HookResponse<'_>>() {
        Ok(ended) => (ended.status, ended.note.into_string()),
        Err(error) => (FAILED_WAIT_STATUS, error.text),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use penstock_flux::hooks::HookRequest;
    use penstock_flux::{Allocation, Json, TypedPayload};
    use penstock_jobspec::job_id::JobId;

    use super::{Hooks, is_running};
    use crate::context::Context;
    use crate::dialogue::{Hook, HookCall};
    use crate::effect::Effect;
    use crate::fixture::{add_allocated_job, context, described, effects, response, writers};
    use crate::settings::Settings;

    /// A job whose prolog is running.
    fn job_in_prolog() -> (Context, Hooks, JobId) {
        let mut cx = context(Settings {
            prolog: true,
            ..Settings::default()
        });
        let mut hooks = Hooks::new(writers().hooks);
        let id = add_allocated_job(&mut cx);
        hooks.run(&mut cx, id, Hook::Prolog);
        assert_eq!(
            described(&mut cx),
            ["log prolog-start", "send hooks.prolog"]
        );
        (cx, hooks, id)
    }

    #[test]
    fn a_job_waits_for_its_prolog() {
        let (mut cx, mut hooks, id) = job_in_prolog();
        hooks.run(&mut cx, id, Hook::Prolog);
        assert!(is_running(&cx, id, Hook::Prolog));
        assert!(effects(&mut cx).is_empty());
        hooks.handle_response(&mut cx, &response("hooks.prolog", 1, r#"{"status":0}"#));
        assert_eq!(described(&mut cx), ["log prolog-finish", "revisit"]);
        hooks.run(&mut cx, id, Hook::Prolog);
        assert!(!is_running(&cx, id, Hook::Prolog));
        hooks.handle_response(&mut cx, &response("hooks.prolog", 1, r#"{"status":0}"#));
        assert!(effects(&mut cx).is_empty(), "a second response is not due");
    }

    #[test]
    fn a_hook_gets_r_as_committed() {
        // Not the text that would be made of R.
        const TEXT: &str = r#"{"execution":{},"version":1}"#;
        let mut cx = context(Settings {
            prolog: true,
            ..Settings::default()
        });
        let id = add_allocated_job(&mut cx);
        let r = Arc::clone(cx.jobs.record(id).unwrap().r().unwrap());
        let allocation = Allocation {
            id,
            r: Arc::clone(&r),
            text: TEXT.into(),
        };
        cx.claims.commit(&[allocation]).unwrap();
        Hooks::new(writers().hooks).run(&mut cx, id, Hook::Prolog);
        let Some(Effect::Send(request)) = effects(&mut cx).pop() else {
            panic!("a request is sent");
        };
        let Some(TypedPayload::Hook(job)) = request.typed() else {
            panic!("the payload is a value");
        };
        assert!(Arc::ptr_eq(&job.r.as_ref().unwrap().r, &r));
        let request: HookRequest<'_> = request.read().unwrap();
        assert_eq!(request.r, Some(Json(TEXT)));
    }

    #[test]
    fn a_failed_prolog_is_fatal_while_the_job_is_to_start() {
        let (mut cx, mut hooks, id) = job_in_prolog();
        let failed = r#"{"status":256,"note":"no disk"}"#;
        hooks.handle_response(&mut cx, &response("hooks.prolog", 1, failed));
        let expected = [
            "log prolog-finish",
            "log exception",
            "send job-exception",
            "revisit",
        ];
        assert_eq!(described(&mut cx)[1..], expected);
        let fatal = cx.jobs.record(id).unwrap().fatal_exception().unwrap();
        assert_eq!((&*fatal.kind, &*fatal.note), ("prolog", "no disk"));
    }

    #[test]
    fn a_prolog_is_cancelled_once() {
        let (mut cx, mut hooks, id) = job_in_prolog();
        hooks.cancel_prolog(&mut cx, id);
        assert_eq!(described(&mut cx), ["send hooks.cancel"]);
        hooks.cancel_prolog(&mut cx, id);
        assert!(effects(&mut cx).is_empty());
        assert!(is_running(&cx, id, Hook::Prolog));
        let job = cx.jobs.get(id).unwrap();
        assert_eq!(job.dialogue.hooks.of(Hook::Prolog), HookCall::Cancelling);
    }

    #[test]
    fn no_epilog_is_due_for_a_job_that_nothing_has_touched() {
        let mut cx = context(Settings {
            epilog: true,
            ..Settings::default()
        });
        let id = add_allocated_job(&mut cx);
        Hooks::new(writers().hooks).run(&mut cx, id, Hook::Epilog);
        assert!(!is_running(&cx, id, Hook::Epilog));
        assert!(effects(&mut cx).is_empty());
    }
}
