//! The results of requests, as PMIx attributes.

use penstock_elastic::{Attribute, AttributeKey, Data, shortened};
use penstock_flux::pmix_attribute;
use penstock_rset::ResourceSet;
use serde_json::Value;

/// Hosts, and the number of cpus of each.
pub(super) fn resources(r: &ResourceSet) -> Vec<Attribute> {
    let cpus: Vec<String> = r.nodes().map(|node| node.cores.len().to_string()).collect();
    vec![
        Attribute::result(AttributeKey::NodeList, Data::Text(r.nodelist().to_string())),
        Attribute::result(AttributeKey::CpuCounts, Data::Text(cpus.join(","))),
    ]
}

/// Adds the wishes that were not met to results and reasons.
pub(super) fn add_dropped(
    mut unmet: Vec<String>,
    results: &mut Vec<Attribute>,
    reasons: &mut Vec<String>,
) {
    unmet.sort_unstable();
    unmet.dedup();
    if unmet.is_empty() {
        return;
    }
    let unmet = shortened(unmet.join(","));
    reasons.push(format!("not met: {unmet}"));
    results.push(Attribute {
        key: pmix_attribute::DROPPED.to_owned(),
        required: false,
        data: Data::Text(unmet),
    });
}

/// Results as JSON.
pub(super) fn to_json(results: &[Attribute]) -> Vec<Value> {
    results.iter().map(Attribute::to_json).collect()
}

/// Seconds rounded to a whole number; 0 if negative.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float out of range saturates"
)]
pub(super) fn whole_seconds(seconds: f64) -> u64 {
    seconds.max(0.0).round() as u64
}
