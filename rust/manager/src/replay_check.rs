//! Debug assertion: replaying a job's eventlog gives its record again.

use std::sync::Arc;

use penstock_jobspec::Jobspec;
use penstock_jobspec::fluid::Fluid;
use penstock_rset::ResourceSet;

use crate::jobs::Jobs;
use crate::record::Record;
use crate::spec::Spec;
use crate::storage::Storage;

/// The greatest number of jobs checked at a time: of the many jobs of one submission a few will do.
const MAX_CHECKED: usize = 16;

/// Asserts that what the store has of these jobs gives their records again.
pub(crate) fn assert_records(jobs: &Jobs, storage: &mut Storage, ids: impl Iterator<Item = u64>) {
    for id in ids.take(MAX_CHECKED) {
        let Some(record) = jobs.record(id) else {
            continue;
        };
        let (userid, key) = (record.userid(), record.spec().key);
        let store = storage.store();
        let stored = (store.eventlog(id), store.r(id), store.jobspec(key));
        // The failure of a store is reported by the next commit.
        let (Ok(eventlog), Ok(r), Ok(Some(jobspec))) = stored else {
            continue;
        };
        let jobspec = Jobspec::from_json(&jobspec).expect("stored jobspecs are valid");
        let spec = Arc::new(Spec::new(key, &jobspec));
        let r = r.and_then(|text| ResourceSet::from_json(&text).ok());
        let r = r.map(Arc::new);
        let replayed = Record::replay(id, userid, spec, r.as_ref(), &eventlog, |_| {});
        let replayed = replayed.expect("the manager's own events are valid");
        let name = Fluid(id);
        assert_eq!(
            &replayed, record,
            "job {name}: its eventlog gives another record:\n{eventlog}"
        );
    }
}
