//! `Claims`: the cores and gpus that each job has. A scheduler may commit only resources of the
//! inventory, and none of them twice.
//!
//! A job claims its resources when R is committed for it, and loses them rank by rank as they are
//! released, or all at once when its request ends without an allocation. The cost of every operation
//! is proportional to the job's nodes, whatever the size of the instance.

#[cfg(debug_assertions)]
use std::collections::HashSet;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use foldhash::fast::RandomState;
use penstock_flux::{Allocation, RWithText};
use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::{Node, ResourceSet};

/// The cores and gpus of one rank that are claimed, by any job.
#[derive(Debug, Default)]
struct Used {
    cores: IdSet,
    gpus: IdSet,
}

/// The claim of one job.
#[derive(Debug)]
struct Claim {
    r: Arc<ResourceSet>,
    /// Ranks that are no longer claimed.
    released: IdSet,
    /// The JSON text of `r` as committed; `None` since a restart.
    text: Option<Arc<str>>,
}

/// Why a commit of R is rejected.
#[derive(Debug)]
pub(crate) struct ClaimError(String);

impl std::fmt::Display for ClaimError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// The claims of all jobs.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// The resources that may be allocated; if unknown, only overlaps are detected.
    inventory: Option<ResourceSet>,
    used: HashMap<u32, Used, RandomState>,
    jobs: HashMap<JobId, Claim, RandomState>,
    /// Jobs whose resources were claimed by another job at the restart.
    #[cfg(debug_assertions)]
    unclaimed: HashSet<JobId>,
}

impl Claims {
    /// Sets the resources that may be claimed from now on. Existing claims stay.
    pub(crate) fn set_inventory(&mut self, inventory: ResourceSet) {
        self.inventory = Some(inventory);
    }

    /// When the resources expire, seconds since the epoch; `None` if they do not.
    pub(crate) fn expiration(&self) -> Option<f64> {
        let end = self.inventory.as_ref()?.expiration();
        end.filter(|end| *end > 0.0)
    }

    /// The resources that may be allocated, if known.
    pub(crate) fn inventory(&self) -> Option<&ResourceSet> {
        self.inventory.as_ref()
    }

    /// Returns R with the inventory's hosts, if these are other ones: ranks decide where a job runs, and schedulers
    /// have other names of hosts at times. `None` if R needs no change.
    pub(crate) fn with_own_hosts(&self, r: &ResourceSet) -> Option<ResourceSet> {
        let own = r.with_hosts_of(self.inventory.as_ref()?)?;
        (own != *r).then_some(own)
    }

    /// Whether `node` has every core and gpu of that node.
    pub(crate) fn is_whole(&self, node: &Node<'_>) -> bool {
        let all = self.inventory.as_ref();
        all.and_then(|inventory| inventory.resources(node.rank)) == Some((node.cores, node.gpus))
    }

    /// The nodes with this many cores and gpus; `None` if all nodes have as many.
    pub(crate) fn nodes_like(&self, cores: u32, gpus: u32) -> Option<Hostlist> {
        let all = self.inventory.as_ref()?;
        let is_like = |own: &IdSet, wanted: u32| own.len() == u64::from(wanted);
        let mut ranks = IdSet::new();
        let mut others = false;
        for (run, own_cores, own_gpus) in all.runs() {
            if is_like(own_cores, cores) && is_like(own_gpus, gpus) {
                ranks.extend(run);
            } else {
                others = true;
            }
        }
        others.then(|| all.restrict(&ranks).nodelist())
    }

    /// The greatest number of cores that `nodes` nodes (of `among`) can have; 0 if unknown.
    pub(crate) fn most_cores(&self, nodes: u64, among: Option<&Hostlist>) -> u64 {
        let Some(all) = &self.inventory else {
            return 0;
        };
        let among = among.map(|hosts| all.ranks_on(hosts));
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        for (run, cores, _) in all.runs() {
            let run = IdSet::from(run);
            let ranks = among
                .as_ref()
                .map_or_else(|| run.len(), |among| among.intersection(&run).len());
            *sizes.entry(cores.len()).or_default() += ranks;
        }
        let (mut left, mut most) = (nodes, 0_u64);
        for (cores, ranks) in sizes.into_iter().rev() {
            let taken = ranks.min(left);
            left -= taken;
            most = most.saturating_add(taken.saturating_mul(cores));
        }
        most
    }

    /// Claims the resources of all commits or, if one of them cannot be claimed, of none. Replaces an
    /// earlier claim of the same job; of two commits for one job the later counts.
    pub(crate) fn commit(&mut self, commits: &[Allocation]) -> Result<(), ClaimError> {
        // All old claims end first: the jobs of one commit may exchange resources.
        let old: Vec<(JobId, Claim)> = commits
            .iter()
            .filter_map(|commit| Some((commit.id, self.take(commit.id)?)))
            .collect();
        for (at, commit) in commits.iter().enumerate() {
            self.drop(commit.id);
            let Err(error) = self.check(commit.id, &commit.r) else {
                let text = Some(Arc::clone(&commit.text));
                self.put(commit.id, Arc::clone(&commit.r), IdSet::new(), text);
                continue;
            };
            for done in &commits[..at] {
                self.drop(done.id);
            }
            for (id, claim) in old {
                self.put(id, claim.r, claim.released, claim.text);
            }
            return Err(error);
        }
        Ok(())
    }

    /// Claims the resources that a job has held since before a restart, whether they still exist or
    /// not.
    pub(crate) fn restore(
        &mut self,
        id: JobId,
        r: &Arc<ResourceSet>,
        released: &IdSet,
    ) -> Result<(), ClaimError> {
        let left = if released.is_empty() {
            Arc::clone(r)
        } else {
            Arc::new(r.restrict(&r.ranks().difference(released)))
        };
        if let Err(error) = self.check_overlap(id, &left) {
            #[cfg(debug_assertions)]
            self.unclaimed.insert(id);
            return Err(error);
        }
        self.put(id, Arc::clone(r), released.clone(), None);
        Ok(())
    }

    /// Whether a job claims the resources of `r` on all ranks that are not released, and nothing without `r`.
    #[cfg(debug_assertions)]
    pub(crate) fn agrees_on(&self, id: JobId, r: Option<&ResourceSet>, released: &IdSet) -> bool {
        match (self.jobs.get(&id), r) {
            (None, None) => true,
            (None, Some(_)) => self.unclaimed.contains(&id),
            (Some(_), None) => false,
            // The expiration is not part of a claim.
            (Some(claim), Some(r)) => claim.r.runs().eq(r.runs()) && claim.released == *released,
        }
    }

    /// Whether this value is the R that was committed for the job.
    pub(crate) fn is_committed(&self, id: JobId, r: &Arc<ResourceSet>) -> bool {
        let claim = self.jobs.get(&id);
        claim.is_some_and(|claim| Arc::ptr_eq(&claim.r, r) || claim.r == *r)
    }

    /// Whether R was committed for the job and the response has the same R but for its hosts, or none.
    pub(crate) fn agrees(&self, id: JobId, r: Option<&str>) -> bool {
        let Some(claim) = self.jobs.get(&id) else {
            return false;
        };
        match (r, &claim.text) {
            (None, _) => true,
            (Some(r), Some(text)) if **text == *r => true,
            (Some(r), _) => {
                let r = ResourceSet::from_json(r).ok();
                r.and_then(|r| r.with_hosts_of(&claim.r)).as_ref() == Some(&*claim.r)
            }
        }
    }

    /// The JSON text of a job's R: as committed, unless R has changed since.
    pub(crate) fn text(&self, id: JobId, r: &Arc<ResourceSet>) -> Arc<str> {
        let committed = self.committed_text(id, r);
        committed.unwrap_or_else(|| r.to_json().into())
    }

    /// A job's R with its JSON text as committed.
    pub(crate) fn with_text(&self, id: JobId, r: &Arc<ResourceSet>) -> RWithText {
        RWithText {
            r: Arc::clone(r),
            text: self.committed_text(id, r),
        }
    }

    /// The JSON text of a job's R as committed; `None` if R has changed since, or is from before a restart.
    pub(crate) fn committed_text(&self, id: JobId, r: &Arc<ResourceSet>) -> Option<Arc<str>> {
        let claim = self.jobs.get(&id).filter(|claim| Arc::ptr_eq(&claim.r, r));
        claim.and_then(|claim| claim.text.clone())
    }

    /// Ends the claim of a job to some of its ranks.
    pub(crate) fn release(&mut self, id: JobId, ranks: &IdSet) {
        let Some(claim) = self.jobs.get_mut(&id) else {
            return;
        };
        for rank in &ranks.difference(&claim.released) {
            if let Some((cores, gpus)) = claim.r.resources(rank) {
                free(&mut self.used, rank, cores, gpus);
            }
        }
        claim.released.union_with(ranks);
    }

    /// Ends the claim of a job.
    pub(crate) fn drop(&mut self, id: JobId) {
        self.take(id);
    }

    fn take(&mut self, id: JobId) -> Option<Claim> {
        let claim = self.jobs.remove(&id)?;
        for (ranks, cores, gpus) in claim.r.runs() {
            for rank in ranks {
                if !claim.released.contains(rank) {
                    free(&mut self.used, rank, cores, gpus);
                }
            }
        }
        Some(claim)
    }

    fn put(&mut self, id: JobId, r: Arc<ResourceSet>, released: IdSet, text: Option<Arc<str>>) {
        for (ranks, cores, gpus) in r.runs() {
            for rank in ranks {
                if !released.contains(rank) {
                    let used = self.used.entry(rank).or_default();
                    used.cores.union_with(cores);
                    used.gpus.union_with(gpus);
                }
            }
        }
        let claim = Claim { r, released, text };
        self.jobs.insert(id, claim);
    }

    fn check(&self, id: JobId, r: &ResourceSet) -> Result<(), ClaimError> {
        if r.nnodes() == 0 {
            return Err(ClaimError(format!("job {id}: R has no execution target")));
        }
        if let Some((ranks, ..)) = r.runs().find(|(_, cores, _)| cores.is_empty()) {
            let rank = ranks.start();
            return Err(ClaimError(format!("job {id}: R has no core of rank{rank}")));
        }
        if let Some(inventory) = &self.inventory {
            for (ranks, cores, gpus) in r.runs() {
                for rank in ranks {
                    let Some((own_cores, own_gpus)) = inventory.resources(rank) else {
                        let text = format!("job {id}: there is no rank{rank} to allocate");
                        return Err(ClaimError(text));
                    };
                    if !(cores.is_subset(own_cores) && gpus.is_subset(own_gpus)) {
                        let (cores, gpus) =
                            (cores.difference(own_cores), gpus.difference(own_gpus));
                        let what = describe(rank, &cores, &gpus);
                        let text = format!("job {id}: there is no {what} to allocate");
                        return Err(ClaimError(text));
                    }
                }
            }
        }
        self.check_overlap(id, r)
    }

    fn check_overlap(&self, id: JobId, r: &ResourceSet) -> Result<(), ClaimError> {
        for (ranks, cores, gpus) in r.runs() {
            for rank in ranks {
                let Some(used) = self.used.get(&rank) else {
                    continue;
                };
                if !(used.cores.is_disjoint(cores) && used.gpus.is_disjoint(gpus)) {
                    return Err(self.overlap(id, rank, cores, gpus));
                }
            }
        }
        Ok(())
    }

    /// Returns the error that names the job whose claim overlaps. Only a rejected commit pays for the
    /// search.
    fn overlap(&self, id: JobId, rank: u32, cores: &IdSet, gpus: &IdSet) -> ClaimError {
        let shared = |claim: &Claim| {
            let (own_cores, own_gpus) = claim.r.resources(rank)?;
            let shared = (own_cores.intersection(cores), own_gpus.intersection(gpus));
            let any = !(shared.0.is_empty() && shared.1.is_empty());
            (any && !claim.released.contains(rank)).then_some(shared)
        };
        let owners = self.jobs.iter();
        let owner = owners.filter_map(|(id, claim)| Some((*id, shared(claim)?)));
        if let Some((owner, (cores, gpus))) = owner.min_by_key(|(id, _)| *id) {
            let what = describe(rank, &cores, &gpus);
            ClaimError(format!("job {id}: job {owner} has {what}"))
        } else {
            let what = describe(rank, cores, gpus);
            ClaimError(format!("job {id}: {what} is not free"))
        }
    }
}

fn free(used: &mut HashMap<u32, Used, RandomState>, rank: u32, cores: &IdSet, gpus: &IdSet) {
    if let Entry::Occupied(mut entry) = used.entry(rank) {
        let used = entry.get_mut();
        used.cores.subtract(cores);
        used.gpus.subtract(gpus);
        if used.cores.is_empty() && used.gpus.is_empty() {
            entry.remove();
        }
    }
}

/// `rank3/core0-1,gpu0`
fn describe(rank: u32, cores: &IdSet, gpus: &IdSet) -> String {
    let mut text = format!("rank{rank}");
    let mut mark = '/';
    for (name, ids) in [("core", cores), ("gpu", gpus)] {
        if !ids.is_empty() {
            // Writing to a String does not fail.
            let _ = write!(text, "{mark}{name}{ids}");
            mark = ',';
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::Claims;
    use penstock_flux::Allocation;
    use penstock_idset::IdSet;
    use penstock_jobspec::job_id::JobId;
    use penstock_rset::ResourceSet;
    use std::sync::Arc;

    const JOB: JobId = JobId::new(7);
    const OTHER: JobId = JobId::new(8);
    /// R with keys in an order that the library does not write.
    const TEXT: &str = r#"{"execution":{"nodelist":["n0"],"R_lite":[{"children":{"core":"0-1"},"rank":"0"}]},"version":1}"#;

    fn committed() -> (Claims, Arc<ResourceSet>) {
        let r = Arc::new(ResourceSet::from_json(TEXT).unwrap());
        let allocation = Allocation {
            id: JOB,
            r: Arc::clone(&r),
            text: TEXT.into(),
        };
        let mut claims = Claims::default();
        claims.commit(&[allocation]).unwrap();
        (claims, r)
    }

    #[test]
    fn the_text_of_r_is_as_committed_until_r_changes() {
        let (claims, r) = committed();
        assert_eq!(*claims.text(JOB, &r), *TEXT);
        assert_ne!(r.to_json(), TEXT);
        let mut changed = (*r).clone();
        changed.set_expiration(Some(5.5)).unwrap();
        let changed = Arc::new(changed);
        assert_eq!(*claims.text(JOB, &changed), *changed.to_json());
        assert_eq!(claims.committed_text(JOB, &changed), None);
        assert_eq!(*claims.text(OTHER, &r), *r.to_json());
    }

    #[test]
    fn the_text_of_r_is_made_after_a_restart_and_after_a_new_commit_is_the_new_one() {
        let (mut claims, r) = committed();
        claims.drop(JOB);
        claims.restore(JOB, &r, &IdSet::new()).unwrap();
        assert_eq!(*claims.text(JOB, &r), *r.to_json());
        let other = Arc::new((*r).clone());
        let allocation = Allocation {
            id: JOB,
            r: Arc::clone(&other),
            text: "other".into(),
        };
        claims.commit(&[allocation]).unwrap();
        assert_eq!(*claims.text(JOB, &other), *"other");
        assert_eq!(*claims.text(JOB, &r), *r.to_json());
    }

    #[test]
    fn a_value_is_the_committed_r_if_it_is_equal() {
        let (claims, r) = committed();
        assert!(claims.is_committed(JOB, &r));
        assert!(claims.is_committed(JOB, &Arc::new((*r).clone())));
        assert!(!claims.is_committed(OTHER, &r));
        assert!(!claims.is_committed(JOB, &Arc::new(ResourceSet::new())));
    }
}
