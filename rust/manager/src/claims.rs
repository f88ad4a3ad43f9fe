//! `Claims`: which job has which cores and gpus. What a scheduler commits must exist, and nothing
//! may be allocated twice.
//!
//! A job claims its resources when R is committed for it, and loses them rank by rank as they are
//! released, or all at once when its request ends without an allocation. Every step costs what the
//! job's own nodes cost, however large the instance is.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::fluid::Fluid;
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

/// R of a job, as a scheduler commits it.
#[derive(Debug)]
pub(crate) struct RCommit {
    pub(crate) id: u64,
    pub(crate) r: Arc<ResourceSet>,
    pub(crate) text: Arc<str>,
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
    /// What may be allocated; if unknown, only overlaps are detected.
    inventory: Option<ResourceSet>,
    used: HashMap<u32, Used>,
    jobs: HashMap<u64, Claim>,
}

impl Claims {
    /// Sets what may be claimed from now on. Existing claims stay.
    pub(crate) fn set_inventory(&mut self, inventory: ResourceSet) {
        self.inventory = Some(inventory);
    }

    /// When the resources expire, seconds since the epoch; `None` if they do not.
    pub(crate) fn expiration(&self) -> Option<f64> {
        let end = self.inventory.as_ref()?.expiration();
        end.filter(|it| *it > 0.0)
    }

    /// Number of nodes and cores, if known.
    pub(crate) fn size(&self) -> Option<(u64, u64)> {
        let all = self.inventory.as_ref()?;
        Some((all.nnodes() as u64, all.ncores()))
    }

    /// Whether `node` has every core and gpu of that node.
    pub(crate) fn is_whole(&self, node: &Node<'_>) -> bool {
        let all = self.inventory.as_ref();
        all.and_then(|it| it.resources(node.rank)) == Some((node.cores, node.gpus))
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

    /// The greatest number of cores that so many nodes (of `among`) can have; 0 if unknown.
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
                .map_or_else(|| run.len(), |it| it.intersection(&run).len());
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

    /// Claims the resources of all commits or, if one of them cannot be claimed, of none. An earlier
    /// claim of the same job is replaced; of two commits for one job the later counts.
    pub(crate) fn commit(&mut self, commits: &[RCommit]) -> Result<(), ClaimError> {
        // All old claims end first: the jobs of one commit may exchange resources.
        let old: Vec<(u64, Claim)> = commits
            .iter()
            .filter_map(|it| Some((it.id, self.take(it.id)?)))
            .collect();
        for (at, it) in commits.iter().enumerate() {
            self.drop(it.id);
            let Err(error) = self.check(it.id, &it.r) else {
                let text = Some(Arc::clone(&it.text));
                self.put(it.id, Arc::clone(&it.r), IdSet::new(), text);
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

    /// Claims the resources that a job holds since before a restart, whether they still exist or not.
    pub(crate) fn restore(
        &mut self,
        id: u64,
        r: &Arc<ResourceSet>,
        released: &IdSet,
    ) -> Result<(), ClaimError> {
        let left = if released.is_empty() {
            Arc::clone(r)
        } else {
            Arc::new(r.restrict(&r.ranks().difference(released)))
        };
        self.check_overlap(id, &left)?;
        self.put(id, Arc::clone(r), released.clone(), None);
        Ok(())
    }

    /// Whether the R of a response, if it has one, is what was committed for the job.
    pub(crate) fn agrees(&self, id: u64, r: Option<&str>) -> bool {
        let Some(claim) = self.jobs.get(&id) else {
            return false;
        };
        match (r, &claim.text) {
            (None, _) => true,
            (Some(r), Some(text)) if **text == *r => true,
            (Some(r), _) => ResourceSet::from_json(r).is_ok_and(|r| r == *claim.r),
        }
    }

    /// The JSON text of a job's R: as committed, unless R has changed since.
    pub(crate) fn text(&self, id: u64, r: &Arc<ResourceSet>) -> Arc<str> {
        let claim = self.jobs.get(&id).filter(|claim| Arc::ptr_eq(&claim.r, r));
        let committed = claim.and_then(|claim| claim.text.clone());
        committed.unwrap_or_else(|| r.to_json().into())
    }

    /// Ends the claim of a job to some of its ranks.
    pub(crate) fn release(&mut self, id: u64, ranks: &IdSet) {
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
    pub(crate) fn drop(&mut self, id: u64) {
        self.take(id);
    }

    fn take(&mut self, id: u64) -> Option<Claim> {
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

    fn put(&mut self, id: u64, r: Arc<ResourceSet>, released: IdSet, text: Option<Arc<str>>) {
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

    fn check(&self, id: u64, r: &ResourceSet) -> Result<(), ClaimError> {
        let name = Fluid(id);
        if r.nnodes() == 0 {
            return Err(ClaimError(format!("job {name}: R has no execution target")));
        }
        if let Some(inventory) = &self.inventory {
            for (ranks, cores, gpus) in r.runs() {
                for rank in ranks {
                    let Some((own_cores, own_gpus)) = inventory.resources(rank) else {
                        let text = format!("job {name}: there is no rank{rank} to allocate");
                        return Err(ClaimError(text));
                    };
                    if !(cores.is_subset(own_cores) && gpus.is_subset(own_gpus)) {
                        let (cores, gpus) =
                            (cores.difference(own_cores), gpus.difference(own_gpus));
                        let what = describe(rank, &cores, &gpus);
                        let text = format!("job {name}: there is no {what} to allocate");
                        return Err(ClaimError(text));
                    }
                }
            }
        }
        self.check_overlap(id, r)
    }

    fn check_overlap(&self, id: u64, r: &ResourceSet) -> Result<(), ClaimError> {
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

    /// Names the job whose claim overlaps. Only a rejected commit pays for the search.
    fn overlap(&self, id: u64, rank: u32, cores: &IdSet, gpus: &IdSet) -> ClaimError {
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
            ClaimError(format!(
                "job {}: job {} has {what}",
                Fluid(id),
                Fluid(owner)
            ))
        } else {
            let what = describe(rank, cores, gpus);
            ClaimError(format!("job {}: {what} is not free", Fluid(id)))
        }
    }
}

fn free(used: &mut HashMap<u32, Used>, rank: u32, cores: &IdSet, gpus: &IdSet) {
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
