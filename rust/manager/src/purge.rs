//! Taking inactive jobs out of memory and store: on request, and by the configured limits.

use penstock_jobspec::fluid::Fluid;
use penstock_wire::Message;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::manager::{Manager, milliseconds};
use crate::rpc::{self, EINVAL, ENOENT, RequestError};
use crate::state::State;

/// Where the store keeps the greatest id that was ever purged: it must not be given again.
const META: &str = "max_purged";
/// Seconds between two looks at the limits.
const PURGE_INTERVAL_S: f64 = 1.0;
/// The most jobs that one look removes: others must not wait long for it.
const MAX_PURGED_PER_CHECK: usize = 10_000;

#[derive(Deserialize)]
struct Purge {
    age_limit: Option<f64>,
    num_limit: Option<i64>,
    ids: Option<Vec<u64>>,
    #[serde(default)]
    force: bool,
}

/// What was purged, for those who keep something of their own for each job.
#[derive(Debug, Default)]
pub struct Purged {
    /// Not yet told.
    ids: Vec<u64>,
    /// The greatest id.
    greatest: u64,
    /// When the limits were last looked at.
    looked: f64,
}

impl Manager {
    /// `job-manager.purge`: removes inactive jobs, or counts those that would be removed.
    pub(crate) fn purge(&mut self, request: &Message, now: f64) -> Result<Value, RequestError> {
        self.owner_only(request)?;
        let purge: Purge = rpc::payload(request)?;
        let ids = if let Some(ids) = &purge.ids {
            if purge.age_limit.is_some() || purge.num_limit.is_some() {
                let text = "expected either `ids` or limits";
                return Err(RequestError::new(EINVAL, text));
            }
            self.inactive(ids)?
        } else {
            // Less than nothing is no limit, as in Flux; without limits everything goes.
            let age = purge.age_limit.filter(|age| *age >= 0.0);
            let num = purge.num_limit.and_then(|num| u64::try_from(num).ok());
            let num = num.or(age.is_none().then_some(0));
            self.beyond(age, num, usize::MAX, now)
        };
        let count = ids.len();
        let left = self.census.over().len();
        if !purge.force {
            return Ok(json!({ "count": count, "inactives": left }));
        }
        self.remove(&ids);
        Ok(json!({ "count": count, "inactives": left - count }))
    }

    /// The named jobs, each once, if all of them are over.
    fn inactive(&self, ids: &[u64]) -> Result<Vec<u64>, RequestError> {
        for id in ids {
            let job = self.jobs.get(id).ok_or_else(|| self.unknown(*id))?;
            if job.state != State::Inactive {
                let text = format!("job {} is active", Fluid(*id));
                return Err(RequestError::new(EINVAL, text));
            }
        }
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Inactive jobs older than `age` seconds, or more than `num`: the oldest first.
    fn beyond(&self, age: Option<f64>, num: Option<u64>, most: usize, now: f64) -> Vec<u64> {
        let over = self.census.over();
        let excess = num.map_or(0, |num| {
            over.len()
                .saturating_sub(usize::try_from(num).unwrap_or(usize::MAX))
        });
        let latest = age.map(|age| milliseconds(now - age));
        let gone = over.iter().enumerate().take_while(|(place, (ended, _))| {
            *place < excess || latest.is_some_and(|latest| *ended <= latest)
        });
        gone.map(|(_, (_, id))| *id).take(most).collect()
    }

    /// Removes jobs that are over, from memory and from the store.
    fn remove(&mut self, ids: &[u64]) {
        if ids.is_empty() {
            return;
        }
        // What was logged a moment ago must not come after the removal.
        self.write_lines();
        let before = self.purged.greatest;
        for id in ids {
            let Some(job) = self.jobs.remove(id) else {
                continue;
            };
            self.census.leave(&job);
            self.elastic.forget(*id);
            let stored = self.store.remove_job(*id);
            self.keep(stored);
            self.drop_spec(job.spec);
            self.purged.ids.push(*id);
            self.purged.greatest = self.purged.greatest.max(*id);
        }
        if self.purged.greatest > before {
            let greatest = self.purged.greatest.to_string();
            let stored = self.store.set_meta(META, &greatest);
            self.keep(stored);
        }
    }

    /// Removes what is beyond the configured limits, if it is time to look.
    pub(crate) fn purge_by_limits(&mut self, now: f64) {
        if self.next_purge().is_none_or(|time| time > now) {
            return;
        }
        self.purged.looked = now;
        let (age, num) = (
            self.settings.inactive_age_limit,
            self.settings.inactive_num_limit,
        );
        let ids = self.beyond(age, num, MAX_PURGED_PER_CHECK, now);
        self.remove(&ids);
    }

    /// When the limits ask for the next removal.
    pub(crate) fn next_purge(&self) -> Option<f64> {
        let over = self.census.over();
        let num = self.settings.inactive_num_limit;
        let full = num.is_some_and(|num| over.len() as u64 > num);
        let soon = self.purged.looked + PURGE_INTERVAL_S;
        if full {
            return Some(soon);
        }
        let age = self.settings.inactive_age_limit?;
        #[allow(
            clippy::cast_precision_loss,
            reason = "milliseconds of any real date are exact in a float"
        )]
        let oldest = over.first().map(|(ended, _)| *ended as f64 / 1000.0)?;
        // A millisecond more, since the times were cut off there.
        Some((oldest + age + 0.001).max(soon))
    }

    /// The jobs that were purged since the last call.
    pub fn take_purged(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.purged.ids)
    }

    /// The greatest id that any job has had.
    pub(crate) fn greatest_id(&self) -> u64 {
        let known = self.jobs.last_key_value().map_or(0, |(id, _)| *id);
        known.max(self.purged.greatest)
    }

    /// Brings back which ids must not be given again.
    pub(crate) fn restore_purged(&mut self) -> Result<(), String> {
        let text = self.store.meta(META).map_err(|error| error.to_string())?;
        if let Some(text) = text {
            let greatest = text
                .parse()
                .map_err(|_| format!("store: invalid id `{text}`: expected a number"))?;
            self.purged.greatest = greatest;
            self.ids.observe(greatest);
        }
        Ok(())
    }

    /// The refusal for a job that is not there: it never was, or it was purged.
    pub(crate) fn unknown(&self, id: u64) -> RequestError {
        let name = Fluid(id);
        let text = if id <= self.purged.greatest {
            format!("no job {name}: it may have been purged")
        } else {
            format!("no job {name}")
        };
        RequestError::new(ENOENT, text)
    }
}
