//! RFC 21: the names of job events, the contexts of most, and Penstock's own events.
//!
//! An event that is not here has no context, or one with keys of its user's (`memo`). The context of
//! `finish` is [`exec::Finish`](crate::exec::Finish).

use std::sync::Arc;

use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::exec::ReleasedRanks;
use crate::payload::Text;

/// The job was accepted.
pub const SUBMIT: &str = "submit";
/// The job is valid.
pub const VALIDATE: &str = "validate";
/// A dependency exists.
pub const DEPENDENCY_ADD: &str = "dependency-add";
/// A dependency is satisfied.
pub const DEPENDENCY_REMOVE: &str = "dependency-remove";
/// No dependency is left.
pub const DEPEND: &str = "depend";
/// The job has a priority, or another one.
pub const PRIORITY: &str = "priority";
/// The urgency was changed.
pub const URGENCY: &str = "urgency";
/// The instance was started again.
pub const FLUX_RESTART: &str = "flux-restart";
/// The job has another time limit.
pub const JOBSPEC_UPDATE: &str = "jobspec-update";
/// Resources are allocated.
pub const ALLOC: &str = "alloc";
/// R has another expiration.
pub const RESOURCE_UPDATE: &str = "resource-update";
/// The prolog has begun.
pub const PROLOG_START: &str = "prolog-start";
/// The prolog has ended.
pub const PROLOG_FINISH: &str = "prolog-finish";
/// The tasks have started.
pub const START: &str = "start";
/// An execution service has found the tasks of an earlier one.
pub const REATTACHED: &str = "reattached";
/// The user's memo was changed.
pub const MEMO: &str = "memo";
/// An exception was raised.
pub const EXCEPTION: &str = "exception";
/// The tasks have ended.
pub const FINISH: &str = "finish";
/// The epilog has begun.
pub const EPILOG_START: &str = "epilog-start";
/// The epilog has ended.
pub const EPILOG_FINISH: &str = "epilog-finish";
/// The tasks on some ranks are gone.
pub const RELEASE: &str = "release";
/// All resources are free.
pub const FREE: &str = "free";
/// The job has ended.
pub const CLEAN: &str = "clean";
/// The beginning of the names of Penstock's own events.
pub const OWN_PREFIX: &str = "penstock.";
/// The job carries a PMIx request.
pub const REQUEST: &str = "penstock.request";
/// The PMIx request that the job carries has changed.
pub const REQUEST_UPDATE: &str = "penstock.request-update";
/// The resources of a request have joined the job's.
pub const RESOURCE_ADD: &str = "penstock.resource-add";
/// The job has released resources.
pub const RESOURCE_REMOVE: &str = "penstock.resource-remove";
/// The job has made a PMIx request.
pub const ALLOC_REQUEST: &str = "penstock.alloc-request";
/// A PMIx request is made again, for less.
pub const ALLOC_AGAIN: &str = "penstock.alloc-again";
/// A PMIx request has ended.
pub const ALLOC_END: &str = "penstock.alloc-end";
/// A loan has ended.
pub const LOAN_END: &str = "penstock.loan-end";

/// `submit`: the job was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submit {
    /// The job's owner.
    pub userid: u32,
    /// 0 (hold) to 31 (expedite) (RFC 30).
    pub urgency: u8,
    /// Submission flags.
    pub flags: u32,
    /// The version of the eventlog's format.
    pub version: u32,
}

impl Submit {
    /// The current version of the eventlog's format.
    pub const VERSION: u32 = 1;
}

/// `dependency-add` and `dependency-remove`: a dependency exists, or is satisfied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency<'a> {
    /// The dependency, `scheme=value`.
    #[serde(borrow)]
    pub description: Text<'a>,
}

/// `priority`: the job has a priority, or another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Priority {
    /// 0 (held) to 4294967295.
    pub priority: u32,
}

/// `urgency`: the urgency was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Urgency {
    /// 0 (hold) to 31 (expedite) (RFC 30).
    pub urgency: u8,
    /// The user who changed it.
    pub userid: u32,
}

/// `jobspec-update`: the job has another time limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobspecUpdate {
    /// Seconds; 0 for no limit.
    #[serde(rename = "attributes.system.duration")]
    pub duration: f64,
}

/// `alloc`: resources are allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alloc {
    /// The annotations of the allocation (RFC 27).
    #[serde(default)]
    pub annotations: Map<String, Value>,
}

/// `resource-update`: R has another expiration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceUpdate {
    /// Seconds since the epoch; 0 for no expiration.
    pub expiration: f64,
}

/// `prolog-start` and `epilog-start`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookStart<'a> {
    /// The name of the hook.
    #[serde(borrow)]
    pub description: Text<'a>,
}

/// `prolog-finish` and `epilog-finish`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookFinish<'a> {
    /// The name of the hook.
    #[serde(borrow)]
    pub description: Text<'a>,
    /// Its wait status.
    pub status: i64,
}

/// `exception`: an exception was raised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exception<'a> {
    /// The type, a word.
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    /// 0 (fatal) to 7.
    pub severity: i64,
    /// The human-readable text.
    #[serde(borrow, default)]
    pub note: Text<'a>,
    /// The user who raised it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub userid: Option<u32>,
    /// The job's wait status if this is its first fatal exception (RFC 32).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_status: Option<i32>,
}

impl Exception<'_> {
    /// The exception with strings of its own.
    pub fn into_owned(self) -> Exception<'static> {
        Exception {
            kind: self.kind.into_string().into(),
            severity: self.severity,
            note: self.note.into_string().into(),
            userid: self.userid,
            wait_status: self.wait_status,
        }
    }
}

/// `release`: the tasks on these ranks are gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Release {
    /// The ranks.
    pub ranks: ReleasedRanks,
    /// Whether this is the last release of the job.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Whether the ranks are not free before the epilog has ended (Penstock's own).
    #[serde(rename = "kept", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_retained: bool,
}

/// `penstock.resource-add`: the resources of a request have joined the job's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceAdd {
    /// The user's id of the request.
    pub id: Option<String>,
    /// The request job that holds them.
    pub alloc: JobId,
    /// The number of the request within its job.
    pub seq: u32,
    /// The resources.
    #[serde(rename = "R", with = "shared")]
    pub r: Arc<ResourceSet>,
}

/// `penstock.resource-remove`: the job has released resources.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceRemove {
    /// The resources.
    #[serde(rename = "R", with = "shared")]
    pub r: Arc<ResourceSet>,
    /// The ranks among them that are of the job's own R.
    pub ranks: IdSet,
    /// The request jobs whose grants have ended.
    pub ended: Vec<JobId>,
    /// Whether the ranks are in use until the execution service releases them; else they are free.
    #[serde(default, rename = "in-use", skip_serializing_if = "std::ops::Not::not")]
    pub is_in_use: bool,
}

/// A value in an `Arc`, as the value itself.
mod shared {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Arc<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        T::serialize(value, serializer)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Arc<T>, D::Error> {
        T::deserialize(deserializer).map(Arc::new)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{from_str, to_string};

    use super::*;

    fn reads_back<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(
        context: &T,
        expected: &str,
    ) {
        let text = to_string(context).unwrap();
        assert_eq!(text, expected);
        assert_eq!(&from_str::<T>(&text).unwrap(), context);
    }

    #[test]
    fn contexts_have_the_keys_of_the_specification() {
        let submit = Submit {
            userid: 1000,
            urgency: 16,
            flags: 0,
            version: Submit::VERSION,
        };
        let expected = r#"{"userid":1000,"urgency":16,"flags":0,"version":1}"#;
        reads_back(&submit, expected);
        let duration = r#"{"attributes.system.duration":60.5}"#;
        reads_back(&JobspecUpdate { duration: 60.5 }, duration);
        reads_back(&Alloc::default(), r#"{"annotations":{}}"#);
        let released = |is_retained| Release {
            ranks: ReleasedRanks::All,
            is_final: true,
            is_retained,
        };
        reads_back(&released(false), r#"{"ranks":"all","final":true}"#);
        let retained = r#"{"ranks":"all","final":true,"kept":true}"#;
        reads_back(&released(true), retained);
    }

    #[test]
    fn an_exception_may_lack_what_rfc_21_makes_optional() {
        let text = r#"{"type":"oom","severity":3}"#;
        let exception: Exception<'_> = from_str(text).unwrap();
        assert_eq!((&*exception.kind, exception.severity), ("oom", 3));
        assert_eq!((&*exception.note, exception.userid), ("", None));
        assert!(from_str::<Exception<'_>>(r#"{"type":"oom"}"#).is_err());
    }

    #[test]
    fn resources_may_be_none() {
        let none = ResourceAdd {
            id: None,
            alloc: JobId::new(7),
            seq: 1,
            r: Arc::default(),
        };
        let text = to_string(&none).unwrap();
        assert_eq!(from_str::<ResourceAdd>(&text).unwrap(), none);
        for is_in_use in [false, true] {
            let none = ResourceRemove {
                r: Arc::default(),
                ranks: IdSet::new(),
                ended: vec![JobId::new(7)],
                is_in_use,
            };
            let text = to_string(&none).unwrap();
            assert_eq!(text.contains("in-use"), is_in_use);
            assert_eq!(from_str::<ResourceRemove>(&text).unwrap(), none);
        }
    }
}
