//! EXTEND by time: the scheduler agrees to a later end (RFC 27), one change of a job at a time.

use penstock_elastic::{Attribute, Data, Directive, Entry, Key, Refusal as Denial, Status};

use super::grant::{add_dropped, json_of, whole_seconds};
use super::submission::name_of;
use super::{End, Number};
use crate::manager::Manager;
use crate::policy;
use crate::rpc::{EAGAIN, RequestError};
use crate::update::By;

impl Manager {
    fn time_entry(&self, (job, seq): Number) -> Option<(Entry, u64)> {
        let account = self.elastic.ledger.account(job)?;
        let entry = account.entry(seq).filter(|it| it.is_open())?;
        let extends = entry.directive() == Some(Directive::Extend) && entry.alloc.is_none();
        extends.then(|| (entry.clone(), entry.target.unwrap_or(job)))
    }

    /// Tries a request for more time: whole or, where the caller waits no longer, in part.
    pub(super) fn try_time(&mut self, number: Number, part: bool, now: f64) {
        let Some((entry, target)) = self.time_entry(number) else {
            return;
        };
        if self.is_being_updated(target) {
            // It is tried again when that is over.
            return;
        }
        let Some(job) = self.jobs.get(&target) else {
            return;
        };
        let r = job.r.as_ref();
        let ends = r.and_then(|r| r.expiration()).unwrap_or(0.0);
        let began = r.and_then(|r| r.starttime()).filter(|it| *it > 0.0);
        let began = began.unwrap_or(job.t_run);
        if ends <= 0.0 {
            // It has all the time there is.
            return self.time_answered(number, entry.time, Ok(()), now);
        }
        let latest = self.latest_end(target, began);
        let wanted = ends + f64::from(entry.time);
        let (until, granted) = match latest.filter(|latest| *latest < wanted) {
            None => (wanted, entry.time),
            Some(latest) if part && latest >= ends + 1.0 => {
                let seconds = whole_seconds((latest - ends).floor());
                (latest, u32::try_from(seconds).unwrap_or(u32::MAX))
            }
            Some(_) if part => {
                let denial = Denial::new(Status::TIMEOUT, "no more time became available in time");
                return self.end_request(number, &End::refused(denial), now);
            }
            Some(latest) => {
                if entry.required || entry.deadline.is_none() {
                    let more = (latest - ends).max(0.0).floor();
                    let reason = format!(
                        "{} s more are not available: the job may have {more} s more",
                        entry.time
                    );
                    let denial = Denial::new(Status::OUT_OF_RESOURCE, reason);
                    self.end_request(number, &End::refused(denial), now);
                }
                return;
            }
        };
        let by = By::Elastic(number, granted);
        match self.ask_expiration(target, until - began, by, now) {
            Ok(false) => {}
            Ok(true) => self.time_answered(number, granted, Ok(()), now),
            Err(refusal) => self.time_answered(number, granted, Err(refusal), now),
        }
    }

    /// The latest end that the resources and the site's policy allow; for the instance owner the
    /// policy does not count.
    fn latest_end(&self, id: u64, began: f64) -> Option<f64> {
        let resources = self.claims.expiration();
        let job = self.jobs.get(&id)?;
        let guest = job.userid != self.settings.owner;
        let queue = job.spec.queue.as_deref();
        let limit = policy::longest(queue, &self.settings).filter(|_| guest);
        let policy = limit.map(|limit| began + limit);
        let both = [resources, policy].into_iter().flatten();
        both.min_by(f64::total_cmp)
    }

    /// The scheduler has agreed to more time, or not.
    pub(crate) fn time_answered(
        &mut self,
        number: Number,
        granted: u32,
        outcome: Result<(), RequestError>,
        now: f64,
    ) {
        let Some((entry, target)) = self.time_entry(number) else {
            return;
        };
        let refusal = match outcome {
            Ok(()) => {
                let mut results =
                    vec![Attribute::result(Key::AllocId, Data::Text(name_of(target)))];
                if let Some(id) = entry.id {
                    results.push(Attribute::result(Key::RequestId, Data::Text(id)));
                }
                results.push(Attribute::result(Key::Time, Data::Whole(granted.into())));
                let mut reasons = Vec::new();
                if granted < entry.time {
                    reasons.push(format!("in part: {granted} of {} s", entry.time));
                }
                add_dropped(entry.dropped, &mut results, &mut reasons);
                let end = End {
                    reason: reasons.join("; "),
                    results: json_of(&results),
                    ..End::default()
                };
                return self.end_request(number, &end, now);
            }
            // The scheduler went away: what comes of that is for the next try.
            Err(refusal) if refusal.errnum == EAGAIN => return,
            Err(refusal) => refusal,
        };
        let waits = entry.deadline.is_some_and(|limit| limit > now);
        if waits && !entry.required {
            self.elastic.refused.insert(number);
        } else {
            let status = if entry.deadline.is_some() && !entry.required {
                Status::TIMEOUT
            } else {
                Status::OUT_OF_RESOURCE
            };
            let denial = Denial::new(status, refusal.text);
            self.end_request(number, &End::refused(denial), now);
        }
    }

    /// A job's end was changed: the next request for more time has its turn. One that was refused
    /// a moment ago waits for its limit.
    pub(crate) fn retry_times(&mut self, target: u64, now: f64) {
        let ledger = &self.elastic.ledger;
        let own = ledger.account(target).map(|it| (target, it));
        let accounts = own.into_iter().chain(ledger.about(target));
        let open = accounts.flat_map(|(job, account)| {
            let entries = account.open().filter(|it| it.alloc.is_none());
            entries.map(move |it| (job, it))
        });
        let mine = open.filter(|(job, it)| it.target.unwrap_or(*job) == target);
        let mine: Vec<Number> = mine.map(|(job, it)| (job, it.seq)).collect();
        for number in mine {
            if self.elastic.refused.contains(&number) {
                continue;
            }
            if self.is_being_updated(target) {
                return;
            }
            self.try_time(number, false, now);
        }
    }
}
