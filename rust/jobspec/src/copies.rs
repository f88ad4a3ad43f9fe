//! Copies: jobs that share a jobspec, in which `{cc}` stands for a number that each has of its own.

use penstock_idset::IdSet;
use serde_json::{Value, json};

use crate::job_id::JobId;

/// The text in a jobspec for which the id of a copy is put in.
const PLACEHOLDER: &str = "{cc}";

/// Puts the id of a copy into a text, or into the JSON text of a jobspec.
pub fn expand(text: &str, id: u32) -> String {
    text.replace(PLACEHOLDER, &id.to_string())
}

/// Which copy each job of a submission is: the ids of the jobs follow each other, in the order of the ids of the copies.
///
/// A stored jobspec has them as `attributes.system.cc`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CopyIds {
    first: JobId,
    ids: IdSet,
}

impl CopyIds {
    /// The copies with these ids; `first` is the job of the first one.
    pub fn new(first: JobId, ids: IdSet) -> Self {
        Self { first, ids }
    }

    /// The id of the copy that a job is; `None` for any other job.
    pub fn of_job(&self, job: JobId) -> Option<u32> {
        self.ids.nth(self.first.distance(job)?)
    }

    pub(crate) fn to_value(&self) -> Value {
        json!({ "first": self.first.get(), "ids": self.ids.to_string() })
    }

    pub(crate) fn from_value(value: &Value) -> Option<Self> {
        let first = value.get("first")?.as_u64()?;
        let ids = value.get("ids")?.as_str()?.parse().ok()?;
        Some(Self::new(JobId::new(first), ids))
    }
}

#[cfg(test)]
mod tests {
    use super::{CopyIds, expand};
    use crate::Jobspec;
    use crate::job_id::{FluidGenerator, JobId};

    #[test]
    fn each_job_is_the_copy_at_its_position() {
        let mut ids = FluidGenerator::new(5);
        let first = ids.next(1000).unwrap();
        let jobs: Vec<JobId> = std::iter::successors(Some(first), |id| Some(id.successor()))
            .take(3000)
            .collect();
        let copies = CopyIds::new(first, "7,9,100-3098".parse().unwrap());
        let found: Vec<u32> = jobs
            .iter()
            .map(|job| copies.of_job(*job).unwrap())
            .collect();
        assert_eq!(found[..3], [7, 9, 100]);
        assert_eq!(found[2999], 3097);
        let last = jobs[2999].successor();
        assert_eq!(copies.of_job(last), Some(3098));
        assert_eq!(copies.of_job(last.successor()), None);
        assert_eq!(copies.of_job(JobId::new(first.get() - 1)), None);
        // Another generator.
        assert_eq!(copies.of_job(JobId::new(first.get() + (1 << 10))), None);
    }

    #[test]
    fn a_stored_jobspec_has_the_copies_and_an_expanded_one_has_not() {
        let text = r#"{"version":1,"resources":[{"type":"slot","count":1,"label":"task","with":[{"type":"core","count":1}]}],"tasks":[{"command":["run","{cc}-{{cc}}"],"slot":"task","count":{"per_slot":1}}],"attributes":{"system":{"duration":0,"environment":{"N":"{cc}"}}}}"#;
        let mut jobspec = Jobspec::from_json(text).unwrap();
        assert_eq!(jobspec.copy_ids(), None);
        let copies = CopyIds::new(JobId::new(17), "3-5".parse().unwrap());
        jobspec.set_copy_ids(&copies);
        let stored = Jobspec::from_json(&jobspec.to_text()).unwrap();
        assert_eq!(stored.copy_ids(), Some(copies));
        assert_eq!(
            expand(&stored.without_copy_ids().to_text(), 4),
            text.replace("{cc}", "4")
        );
    }
}
