//! `Purger`: removes inactive jobs from memory and store, on request and by the configured limits.

use penstock_flux::RequestError;
use penstock_flux::job_manager::{PurgeRequest, PurgeResponse};
use penstock_jobspec::job_id::JobId;

use crate::census::Census;
use crate::context::{Context, milliseconds, seconds};
use crate::effect::Effect;
use crate::error::Error;
use crate::jobspecs;
use crate::rpc::{Handled, Reply, Request};
use crate::state::State;

/// The store's key for the greatest purged id, which must not be allotted again.
const MAX_PURGED_META: &str = "max_purged";
/// Seconds between two checks of the limits.
const PURGE_INTERVAL_S: f64 = 1.0;
/// The greatest number of jobs removed by one check, which delays other work.
const MAX_PURGED_PER_CHECK: usize = 10_000;

/// The state of purging.
#[derive(Debug, Default)]
pub(crate) struct Purger {
    /// Purged jobs, for modules with state of their own for each job.
    purged: Vec<JobId>,
    /// When the limits were last checked.
    checked: f64,
}

/// The limits on inactive jobs.
struct Excess {
    /// Older than this, in seconds.
    age: Option<f64>,
    /// More than this.
    num: Option<u64>,
}

impl Excess {
    /// The jobs in excess, at most `max`, the oldest first.
    fn of(&self, census: &Census, now: f64, max: usize) -> Vec<JobId> {
        let inactive = census.inactive();
        let num = self
            .num
            .map(|num| usize::try_from(num).unwrap_or(usize::MAX));
        let surplus = num.map_or(0, |num| inactive.len().saturating_sub(num));
        let latest = self.age.map(|age| milliseconds(now - age));
        let excess = inactive.iter().enumerate().take_while(|(index, (end, _))| {
            *index < surplus || latest.is_some_and(|latest| *end <= latest)
        });
        excess.map(|(_, (_, id))| *id).take(max).collect()
    }
}

impl Purger {
    /// `job-manager.purge`: removes inactive jobs, or counts those that would be removed.
    pub(crate) fn purge(
        &mut self,
        cx: &mut Context,
        census: &mut Census,
        request: Request<'_>,
    ) -> Handled {
        let purge: PurgeRequest = request.payload()?;
        let ids = if let Some(ids) = purge.ids {
            if purge.age_limit.is_some() || purge.num_limit.is_some() {
                let text = "expected either `ids` or limits";
                return Err(RequestError::invalid(text));
            }
            inactive(cx, ids)?
        } else {
            // Negative is unlimited, as in Flux; without limits all inactive jobs go.
            let age = purge.age_limit.filter(|age| *age >= 0.0);
            let num = purge.num_limit.and_then(|num| u64::try_from(num).ok());
            let num = num.or(age.is_none().then_some(0));
            Excess { age, num }.of(census, cx.now, usize::MAX)
        };
        let count = ids.len() as u64;
        let mut inactives = census.inactive().len() as u64;
        if purge.force {
            self.remove(cx, census, &ids);
            inactives -= count;
        }
        Ok(Reply::of(&PurgeResponse { count, inactives }))
    }

    fn remove(&mut self, cx: &mut Context, census: &mut Census, ids: &[JobId]) {
        if ids.is_empty() {
            return;
        }
        // Events that were just logged must not be written after the removal.
        cx.write_events();
        let before = cx.jobs.greatest_purged();
        for id in ids.iter().copied() {
            let Some(job) = cx.jobs.purge(id) else {
                continue;
            };
            census.purge(&job.record);
            cx.remove_job(id);
            jobspecs::release(cx, job.record.into_spec());
            cx.add_effect(Effect::Purged(id));
            self.purged.push(id);
        }
        let greatest = cx.jobs.greatest_purged();
        if greatest > before {
            let greatest = greatest.get().to_string();
            cx.store_meta(MAX_PURGED_META, &greatest);
        }
    }

    /// Removes what exceeds the configured limits, if a check is due.
    pub(crate) fn advance(&mut self, cx: &mut Context, census: &mut Census) {
        if self.deadline(cx, census).is_none_or(|time| time > cx.now) {
            return;
        }
        self.checked = cx.now;
        let excess = Excess {
            age: cx.settings.inactive_age_limit,
            num: cx.settings.inactive_num_limit,
        };
        let ids = excess.of(census, cx.now, MAX_PURGED_PER_CHECK);
        self.remove(cx, census, &ids);
    }

    /// When the limits next require a removal, seconds since the epoch.
    pub(crate) fn deadline(&self, cx: &Context, census: &Census) -> Option<f64> {
        let inactive = census.inactive();
        let num = cx.settings.inactive_num_limit;
        let soonest = self.checked + PURGE_INTERVAL_S;
        if num.is_some_and(|num| inactive.len() as u64 > num) {
            return Some(soonest);
        }
        let age = cx.settings.inactive_age_limit?;
        let oldest = inactive.first().map(|(end, _)| seconds(*end))?;
        // One more millisecond, since the ends are rounded down.
        Some((oldest + age + 0.001).max(soonest))
    }

    /// Takes the jobs purged since the last call.
    pub(crate) fn take_purged(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.purged)
    }
}

/// The named jobs, each once, if all of them are inactive.
fn inactive(cx: &Context, mut ids: Vec<JobId>) -> Result<Vec<JobId>, RequestError> {
    for id in ids.iter().copied() {
        let record = cx.jobs.record(id).ok_or_else(|| cx.jobs.unknown(id))?;
        if record.state() != State::Inactive {
            let text = format!("job {id} is active");
            return Err(RequestError::invalid(text));
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// Restores from the store which ids must not be allotted again.
pub(crate) fn restore(cx: &mut Context) -> Result<(), Error> {
    let Some(text) = cx.store().meta(MAX_PURGED_META)? else {
        return Ok(());
    };
    let greatest = text
        .parse()
        .map(JobId::new)
        .map_err(|_| Error::corrupt(MAX_PURGED_META, &text, "a number"))?;
    cx.jobs.set_greatest_purged(greatest);
    cx.reserve_id(greatest);
    Ok(())
}
