//! The start of jobs: start requests, plans, and the record that comes before the tasks.

use std::collections::BTreeMap;
use std::io;
use std::panic::{self, AssertUnwindSafe};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_flux::errno::EPROTO;
use penstock_flux::exec::StartRequest;
use penstock_flux::kvs::{LookupRequest, LookupResponse, PRIMARY};
use penstock_flux::{JobRequest, topic};
use penstock_rset::ResourceSet;
use penstock_wire::Message;

use super::effect::Effect;
use super::guests;
use super::job::{
    Attachment, DirectoryState, Job, OutstandingStart, Presence, Task, TaskState, Version,
};
use super::journal::{Intent, Record};
use super::journal_writer::NextStep;
use super::parsed_jobspec::ParsedJobspec;
use super::plan::{Plan, pmix_directory};
use super::pmix_server::PmixServer;
use super::start_failure::complete_note;
use super::state::{InstanceState, Outstanding, ReaperState, Service};
use crate::error::Note;
use crate::types::{JobId, TaskRank};

impl Service {
    pub(super) fn start(&mut self, request: &Message) {
        let start = match request.read::<StartRequest<'_>>() {
            Ok(start) => start,
            Err(error) => {
                let Ok(JobRequest { id }) = request.read() else {
                    let error = Message::error_to(request, EPROTO, &error.to_string());
                    self.messages.push(error);
                    return;
                };
                let note = format!("malformed start request: {error}");
                return self.reject_start(id, request, note);
            }
        };
        let id = start.id;
        let is_this_journal = start
            .journal
            .as_ref()
            .is_some_and(|journal| journal.0 == self.journal_identity());
        let job = self.jobs.entry(id).or_insert_with(|| Job::new(None));
        let is_released = job.is_released();
        if job.outstanding_start.is_some() && !is_released {
            // RFC 32 allows one outstanding request for a job: a second one gets no response.
            let text = format!("job {id} is running already: start request ignored");
            return self.log_job(id, &text);
        }
        let attachment = match (start.reattach, is_this_journal) {
            (false, _) => Attachment::New,
            (true, false) => Attachment::Reattach,
            (true, true) => Attachment::ReattachByJournal,
        };
        let version = match start.r {
            Some(_) => Version::Current,
            None => Version::First,
        };
        job.outstanding_start = Some(OutstandingStart::new(request.header(), attachment, version));
        job.plan_error = None;
        self.changed.insert(id);
        self.followers.await_start(id);
        if is_released {
            withdraw_acknowledgement(&mut self.released, &mut self.outstanding, id);
        }
        let owner = self.settings.owner;
        if start.userid != owner {
            match guests::admit(start.userid, owner, self.settings.guests) {
                Ok(guest) => job.guest = Some(guest),
                Err(note) => return job.fail("exec", note),
            }
        }
        let jobspecs = &mut self.jobspecs;
        let jobspec = match contained(|| jobspecs.parse(start.jobspec.as_str())) {
            Ok(jobspec) => jobspec,
            Err(note) => {
                job.plan_error = Some(note);
                return;
            }
        };
        if let Some(r) = start.r {
            self.make_plan(id, &jobspec, r.as_str());
            return;
        }
        if let Some(start) = &mut job.outstanding_start {
            start.awaiting_r = Some(jobspec);
        }
        let lookup = LookupRequest {
            namespace: Some(PRIMARY.into()),
            key: format!("job.{}.R", id.dothex()).into(),
            flags: 0,
        };
        let lookup = Message::request(topic::kvs::LOOKUP, "").with_payload(&lookup);
        self.send(lookup, Outstanding::Lookup(id));
    }

    fn reject_start(&mut self, id: JobId, request: &Message, note: String) {
        let job = self.jobs.entry(id).or_insert_with(|| Job::new(None));
        if job.outstanding_start.is_none() || job.is_released() {
            job.outstanding_start = Some(OutstandingStart::new(
                request.header(),
                Attachment::New,
                Version::First,
            ));
            job.fail("exec", note);
            self.changed.insert(id);
            withdraw_acknowledgement(&mut self.released, &mut self.outstanding, id);
        }
    }

    pub(super) fn handle_lookup(&mut self, id: JobId, response: &Message) {
        let job = self.jobs.get_mut(&id);
        let start = job.and_then(|job| job.outstanding_start.as_mut());
        let Some(jobspec) = start.and_then(|start| start.awaiting_r.take()) else {
            return;
        };
        self.changed.insert(id);
        match read_looked_up_r(response) {
            Ok(r) => self.make_plan(id, &jobspec, &r),
            Err(note) => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.plan_error = Some(note);
                }
            }
        }
    }

    fn make_plan(&mut self, id: JobId, jobspec: &ParsedJobspec, r: &str) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (context, guest) = (&self.settings.task_context, job.guest);
        let r = contained(|| ResourceSet::from_json(r).map_err(|error| error.to_string().into()));
        if let Ok(r) = &r {
            job.expiration = r.expiration().unwrap_or(0.0);
        }
        match r.and_then(|r| contained(|| Plan::new(id, jobspec, &r, context, guest))) {
            Ok(mut plan) => {
                let directory = pmix_directory(id, &self.settings.task_context, job.guest);
                let server = |tasks| PmixServer::new(id, tasks, directory, job.guest);
                job.pmix = plan.pmix.take().map(server);
                job.redirected_to.clone_from(&plan.redirected_to);
                job.is_output_retained = plan.is_output_retained;
                job.warning = plan.warning;
                job.status_form = plan.status_form;
                complete_note(job, &plan);
                job.directory = plan.directory.as_ref().map(|directory| directory.owner);
                job.plan = Some(plan);
                self.count_descriptors(id);
            }
            Err(note) => job.plan_error = Some(note),
        }
    }

    /// Starts a job of which neither journal nor reaper have a record, or ends it.
    pub(super) fn start_untouched(&mut self, id: JobId) {
        let is_reaper_ready = self.reaper == ReaperState::Ready;
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(start) = &mut job.outstanding_start else {
            let guest = job.guest;
            self.jobs.remove(&id);
            return self.free_descriptors(id, guest);
        };
        if start.attachment == Attachment::ReattachByJournal && is_reaper_ready {
            start.attachment = Attachment::Restart;
        }
        if start.attachment == Attachment::Reattach {
            // Only the reaper can have started it, if the journal was lost.
            if is_reaper_ready {
                let note = "lost: the execution service has no record of the job's start";
                job.fail("exec", note);
            }
        } else if let Some(note) = job.plan_error.take() {
            job.fail("exec", note);
        }
        if job.is_failing() {
            job.send_exception(id, &mut self.messages);
            job.answer_release(id, &mut self.messages);
            let guest = job.guest;
            self.stop_pmix_server(id);
            self.followers.record_job_start(id, &mut self.effects);
            self.followers.record_job_end(id);
            self.output_usage.remove(id);
            self.jobs.remove(&id);
            self.free_descriptors(id, guest);
            return;
        }
        let is_ready = job.plan.is_some() && is_reaper_ready && !job.is_intent_pending;
        if is_ready
            && !self.writer.is_blocked()
            && self.check_output_room(id)
            && self.take_descriptors(id)
        {
            self.record_intent(id);
        }
    }

    /// Records in the journal that a job starts. Then its tasks are handed to the reaper.
    fn record_intent(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id)
            && let Some(plan) = &job.plan
        {
            job.is_intent_pending = true;
            let intent = Intent::new(self.settings.boot, plan.targets.clone());
            let record = Record::Intent(id, intent);
            self.writer.add(record, NextStep::Start(id));
        }
    }

    /// Handles the result of [`Effect::MakeJobDirectory`].
    pub fn finish_job_directory(&mut self, id: JobId, result: io::Result<()>) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        self.changed.insert(id);
        job.directory_state = match result {
            Ok(()) => DirectoryState::Made,
            Err(error) => {
                job.fail("exec", format!("cannot make the job's directory: {error}"));
                DirectoryState::Unknown
            }
        };
    }

    /// Hands the tasks of a job to the reaper, or begins with its directory or PMIx server: the intent is in the journal.
    pub(super) fn hand_over(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            // It has ended meanwhile.
            self.writer.add(Record::Forgotten(id), NextStep::None);
            return;
        };
        job.is_intent_pending = false;
        let Some(plan) = &job.plan else {
            self.writer.add(Record::Forgotten(id), NextStep::None);
            return;
        };
        let shrunk = job.outstanding_start.as_ref().map(|start| &start.shrunk);
        let is_shrunk = |target| shrunk.is_some_and(|shrunk| shrunk.contains(target));
        // They are requested when what they need is there.
        let is_waiting = job.pmix.is_some() || plan.directory.is_some();
        if let Some(server) = plan.pmi.as_ref().filter(|_| !is_waiting) {
            self.spawns.push(server.clone());
            job.pmi_process = Some(Task::new(TaskState::Requested));
        }
        for ((rank, spec), target) in (0..).zip(&plan.specs).zip(&plan.targets) {
            let state = if is_shrunk(*target) {
                TaskState::Abandoned
            } else if is_waiting {
                TaskState::Missing
            } else {
                self.spawns.push(spec.clone());
                TaskState::Requested
            };
            job.tasks.insert(TaskRank(rank), Task::new(state));
        }
        job.intent = Some(Intent::new(self.settings.boot, plan.targets.clone()));
        if !is_waiting {
            job.presence = Presence::Busy;
        }
        self.record_shrink(id);
        self.changed.insert(id);
    }

    /// Starts the tasks of a job that an earlier service has not handed to the reaper, or that wait for its directory
    /// or PMIx server.
    /// Returns whether none is missing any longer because they are abandoned.
    pub(super) fn start_missing(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        let intended = job.intent.as_ref().map(|intent| intent.targets.as_slice());
        let has_changed = |plan: &Plan| intended != Some(plan.targets.as_slice());
        if job.plan.as_ref().is_some_and(has_changed) {
            job.plan_error = Some("R has changed since the job was to start".into());
        }
        if let Some(note) = job.plan_error.take()
            && job.outstanding_start.is_some()
        {
            job.fail("exec", note);
            job.send_exception(id, &mut self.messages);
        }
        if job.is_failing() {
            for task in job.tasks.values_mut() {
                if task.state == TaskState::Missing {
                    task.state = TaskState::Abandoned;
                }
            }
            return true;
        }
        // Until then an exception of the job may be on its way.
        let is_synchronized = self.instance == InstanceState::Synchronized;
        let Some(plan) = job.plan.as_ref().filter(|_| is_synchronized) else {
            return false;
        };
        if let Some(directory) = &plan.directory
            && job.directory_state != DirectoryState::Made
        {
            if job.directory_state == DirectoryState::Unknown {
                job.directory_state = DirectoryState::Requested;
                let effect = Effect::MakeJobDirectory(directory.clone());
                self.effects.push(effect);
            }
            return false;
        }
        if !job.is_pmix_ready() {
            self.advance_pmix_server(id);
            return false;
        }
        let is_fresh = job
            .tasks
            .values()
            .all(|task| task.state == TaskState::Missing);
        let is_unstarted = job
            .tasks
            .values()
            .all(|task| matches!(task.state, TaskState::Missing | TaskState::Abandoned));
        if is_unstarted && !self.check_retry(id) {
            return false;
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        let Some(plan) = &job.plan else {
            return false;
        };
        if let Some(server) = &plan.pmi {
            // The reaper does not start it a second time.
            self.spawns.push(server.clone());
            let process = Task::new(TaskState::Requested);
            job.pmi_process.get_or_insert(process);
        }
        for (spec, task) in plan.specs.iter().zip(job.tasks.values_mut()) {
            if task.state == TaskState::Missing {
                task.state = TaskState::Requested;
                self.spawns.push(spec.clone());
            }
        }
        job.presence = Presence::Busy;
        if let Some(start) = job.outstanding_start.as_mut().filter(|_| is_fresh)
            && start.attachment != Attachment::New
        {
            start.attachment = Attachment::Restart;
        }
        false
    }
}

/// Keeps a released job that is started again: an acknowledgement of that release is not one of the next.
fn withdraw_acknowledgement(
    released: &mut Vec<JobId>,
    outstanding: &mut BTreeMap<u32, Outstanding>,
    id: JobId,
) {
    released.retain(|released| *released != id);
    for request in outstanding.values_mut() {
        if let Outstanding::Acknowledgement(jobs) = request {
            jobs.retain(|job| *job != id);
        }
    }
}

/// The result of a function of a job's own documents. A panic costs that job alone.
fn contained<T>(read: impl FnOnce() -> Result<T, Note>) -> Result<T, Note> {
    panic::catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("internal error: {}", text.unwrap_or("a panic")).into())
    })
}

/// R in the response to its lookup.
fn read_looked_up_r(response: &Message) -> Result<String, Note> {
    if response.errnum() != 0 {
        let text = response.error_text().unwrap_or_default();
        return Err(format!("R is not in the store: {text}").into());
    }
    let found: LookupResponse<'_> = response.read().map_err(|error| format!("R: {error}"))?;
    let bytes = BASE64
        .decode(found.val.data.0.as_bytes())
        .map_err(|error| format!("R: {error}"))?;
    String::from_utf8(bytes).map_err(|error| format!("R: {error}").into())
}

#[cfg(test)]
mod tests {
    use super::contained;
    use crate::error::Note;

    #[test]
    fn a_panic_is_the_note_of_an_exception() {
        let note = contained::<()>(|| Err("its own".into())).unwrap_err();
        assert_eq!(note, Note::from("its own"));
        let ids: [u32; 0] = [];
        let note = contained(|| Ok(ids.iter().max().copied().expect("an id"))).unwrap_err();
        assert_eq!(note, Note::from("internal error: an id"));
    }
}
