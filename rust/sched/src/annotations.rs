//! Annotations of pending jobs: why each is pending, and when it is expected to start (RFC 27, Alloc Annotate).
//!
//! The first jobs of the queue are annotated, as many as the settings say, and only with what has
//! changed. This is not part of a pass: the program that runs the scheduler calls
//! [`Scheduler::annotate`] at [`Scheduler::deadline`] and sets the next earliest time by
//! [`Scheduler::defer_annotations`], which bounds the share of time that explanations take.

use penstock_engine::{Engine, Reason};
use penstock_flux::Member;
use penstock_flux::alloc::SchedAnnotations;
use penstock_jobspec::job_id::JobId;

use crate::{Phase, Scheduler};

/// The interval between two annotations, in multiples of the time that the first takes.
const ANNOTATION_INTERVAL_FACTOR: f64 = 20.0;
/// The shortest interval between two annotations, in seconds.
const MIN_ANNOTATION_INTERVAL_S: f64 = 1.0;
/// Estimated starts that differ by less are not annotated again.
const ESTIMATE_TOLERANCE_S: f64 = 1.0;
/// The interval after which jobs are annotated again although nothing has changed: running jobs may exceed their
/// estimated ends.
const REFRESH_INTERVAL_S: f64 = 60.0;

/// The change from one estimated start to another.
fn estimate_change(before: Option<f64>, after: Option<f64>) -> Member<f64> {
    match (before, after) {
        (None, None) => Member::Absent,
        (Some(before), Some(after)) if (before - after).abs() < ESTIMATE_TOLERANCE_S => {
            Member::Absent
        }
        (_, Some(after)) => Member::Value(after),
        (Some(_), None) => Member::Null,
    }
}

/// A reason as text of an annotation: it is read at any later time, so it has no relative times.
fn reason_text(reason: &Reason, now: f64, name: &dyn Fn(JobId) -> String) -> String {
    match reason {
        Reason::Reserved {
            shortage: Some(shortage),
            ..
        } => shortage.to_string(),
        Reason::Reserved {
            limit: Some(limit), ..
        } => limit.note.clone(),
        Reason::Reserved { .. } => "fits, but would delay others: it has a reservation".to_owned(),
        Reason::BehindReservation { job, .. } | Reason::BehindLimit { job, .. } => {
            format!("fits, but would delay {}, which is before it", name(*job))
        }
        _ => reason.sentence(now, name),
    }
}

impl Scheduler {
    /// Annotates the first job of the queue after a pass, unless it has annotations already.
    pub(crate) fn annotate_head(&mut self, now: f64) {
        self.annotator.is_outdated = true;
        if self.needs_pass {
            return;
        }
        let head = self.engine.as_ref().and_then(Engine::head);
        let head = head.filter(|id| !self.annotator.annotated.contains_key(id));
        if let (Some(id), Some(engine)) = (head, &mut self.engine)
            && let Some(reason) = engine.explain(id, now)
        {
            self.annotate_job(id, now, &reason, None);
        }
    }

    /// When [`schedule`](Self::schedule) is to be called although no message has come, in seconds since the epoch. If
    /// the time has come after that call, [`annotate`](Self::annotate) is due, also between the parts of an estimate.
    pub fn deadline(&self) -> Option<f64> {
        if self.phase != Phase::Running {
            return None;
        }
        let times = [self.retries.due(), self.annotations_due()];
        times.into_iter().flatten().min_by(f64::total_cmp)
    }

    /// When jobs are to be annotated; `None` while there is no pending job to annotate, or a pass comes first.
    fn annotations_due(&self) -> Option<f64> {
        if self.needs_pass || self.is_reordering() {
            return None;
        }
        let has_pending = self
            .engine
            .as_ref()
            .is_some_and(|engine| engine.queue_len() > 0);
        if !has_pending || self.options.settings.max_annotated_jobs == 0 {
            return None;
        }
        Some(if self.annotator.is_outdated {
            self.annotator.earliest
        } else {
            self.annotator.refresh
        })
    }

    /// Sets the earliest time of the next [`annotate`](Self::annotate), after one at `now` that took `took` seconds of a
    /// steady clock.
    pub fn defer_annotations(&mut self, now: f64, took: f64) {
        let until = now + (ANNOTATION_INTERVAL_FACTOR * took).max(MIN_ANNOTATION_INTERVAL_S);
        self.annotator.earliest = until;
        self.annotator.refresh = self.annotator.refresh.max(until);
    }

    /// Annotates the first jobs of the queue with the reason why each is pending and its estimated
    /// start, where these have changed.
    pub fn annotate(&mut self, now: f64) {
        if self.phase != Phase::Running || self.annotations_due().is_none() {
            return;
        }
        self.annotator.is_outdated = false;
        self.annotator.refresh = now + REFRESH_INTERVAL_S;
        let max_jobs = self.options.settings.max_annotated_jobs;
        let engine = self.engine.as_mut();
        let reasons = engine.map_or_else(Vec::new, |engine| engine.explain_all(now, max_jobs));
        let ids: Vec<JobId> = reasons.iter().map(|(id, _)| *id).collect();
        let estimates = self.estimates(&ids, now);
        let mut before = std::mem::take(&mut self.annotator.annotated);
        for ((id, reason), estimate) in reasons.into_iter().zip(estimates) {
            if let Some(annotated) = before.remove(&id) {
                self.annotator.annotated.insert(id, annotated);
            }
            self.annotate_job(id, now, &reason, estimate);
        }
        // Jobs that are no longer among the first: their annotations would become stale.
        let mut displaced: Vec<JobId> = before.into_keys().collect();
        displaced.sort_unstable();
        for id in displaced {
            let removed = SchedAnnotations {
                reason_pending: Member::Null,
                t_estimate: Member::Null,
                ..SchedAnnotations::default()
            };
            self.send_annotations(id, removed);
        }
    }

    /// Annotates a job with what differs from its annotations.
    fn annotate_job(&mut self, id: JobId, now: f64, reason: &Reason, estimate: Option<f64>) {
        let known = self.known_to_user_of(id);
        let reason = reason_text(reason, now, &|other| self.job_name(known, other));
        if let Some(estimate) = estimate {
            self.accuracy.expect(id, now, estimate);
        }
        let annotated = self.annotator.annotated.entry(id).or_default();
        let mut changes = SchedAnnotations {
            t_estimate: estimate_change(annotated.estimate, estimate),
            ..SchedAnnotations::default()
        };
        if !changes.t_estimate.is_absent() {
            annotated.estimate = estimate;
        }
        if annotated.reason != reason {
            annotated.reason.clone_from(&reason);
            changes.reason_pending = Member::Value(reason.into());
        }
        if changes != SchedAnnotations::default() {
            self.send_annotations(id, changes);
        }
    }
}
