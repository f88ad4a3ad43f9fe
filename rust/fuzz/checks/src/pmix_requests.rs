//! Any bytes as a PMIx allocation request (RFC 0005): its attributes, its demand, and the jobspecs of the demand.

use penstock_elastic::{Attempt, Attribute, Demand, Directive, MAX_ATTRIBUTES, PmixRequest};
use serde_json::Value;

/// Reads the bytes as a JSON array of attributes, and makes the demand of a request with them.
///
/// # Panics
///
/// Panics if an attribute changes when it is written, if the demand is not for what the attributes request, or if it has
/// a jobspec that cannot be read.
pub fn check(data: &[u8]) {
    let Ok(Value::Array(values)) = serde_json::from_slice(data) else {
        return;
    };
    let attributes: Result<Vec<_>, _> = values.iter().map(Attribute::from_json).collect();
    let Ok(attributes) = attributes else {
        return;
    };
    for attribute in &attributes {
        let written = attribute.to_json();
        let again = Attribute::from_json(&written).expect("an attribute that was written");
        assert_eq!(again.to_json(), written);
    }
    let Ok(request) = PmixRequest::read(Directive::Extend, &attributes) else {
        return;
    };
    assert!(request.dropped.len() <= MAX_ATTRIBUTES);
    let Ok(demand) = Demand::of(&request) else {
        return;
    };
    let parts = demand.parts().count();
    assert!((1..=Demand::MAX_PARTS).contains(&parts), "{parts} parts");
    if let (Some(nodes), Some(cpus), None) = (&request.nodes, &request.cpus, &request.cpu_counts) {
        assert_eq!(demand.all_nodes(), Some(nodes.value));
        assert_eq!(demand.all_cpus(), u64::from(cpus.value));
    }
    if let (Some(counts), None) = (&request.cpu_counts, &request.nodes)
        && counts.value.len() > 1
    {
        let cpus: u64 = counts.value.iter().map(|&cpus| u64::from(cpus)).sum();
        assert_eq!(demand.all_cpus(), cpus);
    }
    let written = serde_json::to_string(&demand).expect("a demand");
    let again: Demand = serde_json::from_str(&written).expect("a demand that was written");
    assert_eq!(again, demand);
    assert!(!demand.describe().is_empty());
    for attempt in [Attempt::Preferred, Attempt::Full, Attempt::Partial] {
        if let Ok(jobspec) = demand.jobspec(attempt, Some("batch"), 60.0, "job") {
            let text = jobspec.to_text();
            let again =
                penstock_jobspec::Jobspec::from_json(&text).expect("a jobspec that was written");
            assert_eq!(again.to_text(), text);
        }
    }
}
