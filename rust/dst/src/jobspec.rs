//! The jobspecs of submissions.

use crate::dependents::{self, Dependencies};
use crate::world::CORES;

/// A jobspec of a name, one of some shapes, a time limit and dependencies.
pub(crate) fn jobspec(name: &str, shape: u32, seconds: u32, dependencies: &Dependencies) -> String {
    let core = |count: u32| format!(r#"{{"type":"core","count":{count}}}"#);
    let slot = |count: u32, cores: u32| {
        format!(
            r#"{{"type":"slot","count":{count},"label":"task","with":[{}]}}"#,
            core(cores)
        )
    };
    let resources = match shape % 6 {
        0 | 1 => slot(1, 1),
        2 => slot(2, 1),
        3 => slot(1, CORES),
        4 => format!(r#"{{"type":"node","count":2,"with":[{}]}}"#, slot(1, 1)),
        _ => format!(r#"{{"type":"node","count":2,"with":[{}]}}"#, slot(1, CORES)),
    };
    let dependencies = dependents::attribute(dependencies);
    format!(
        r#"{{"version":1,"resources":[{resources}],"tasks":[{{"command":["true"],"slot":"task","count":{{"per_slot":1}}}}],"attributes":{{"system":{{{dependencies}"duration":{seconds},"cwd":"/work","environment":{{}},"job":{{"name":"{name}"}}}}}}}}"#
    )
}
