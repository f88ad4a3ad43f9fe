//! The limits of a job's processes together (`attributes.system.limits`).

use penstock_jobspec::Jobspec;
use serde_json::Value;

use crate::error::Note;
use crate::types::CgroupLimits;

/// The least quota of the kernel: a millisecond in a period of a tenth of a second.
const MIN_CPUS: f64 = 0.01;
const MAX_CPUS: f64 = 1_000_000.0;

/// Reads the limits of a job. The error is the note of the job's exception.
pub(super) fn read(jobspec: &Jobspec) -> Result<CgroupLimits, Note> {
    let mut limits = CgroupLimits::default();
    let Some(value) = jobspec.attribute("system.limits") else {
        return Ok(limits);
    };
    let members = value
        .as_object()
        .ok_or_else(|| format!("attribute `system.limits`: expected an object, found `{value}`"))?;
    for (name, value) in members {
        let expect = |expected: &str| {
            Note::from(format!(
                "attribute `system.limits.{name}`: expected {expected}, found `{value}`"
            ))
        };
        match name.as_str() {
            "memory" => {
                let bytes = bytes(value).ok_or_else(|| expect("bytes, or a size like `512M`"))?;
                limits.memory = Some(bytes);
            }
            "pids" => {
                let pids = value.as_u64().filter(|pids| *pids > 0);
                limits.pids = Some(pids.ok_or_else(|| expect("a number above 0"))?);
            }
            "cpu" => {
                let cpus = value.as_f64();
                let cpus = cpus.filter(|cpus| (MIN_CPUS..=MAX_CPUS).contains(cpus));
                let cpus = cpus.ok_or_else(|| expect("a number of cpus of at least 0.01"))?;
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let millis = (cpus * 1000.0).round() as u32;
                limits.cpu_millis = Some(millis);
            }
            _ => {
                let shown = name.escape_debug();
                let text = format!(
                    "attribute `system.limits.{shown}`: unknown limit: expected memory, pids, cpu"
                );
                return Err(text.into());
            }
        }
    }
    Ok(limits)
}

/// A number of bytes above 0: a number, or one with a binary unit.
fn bytes(value: &Value) -> Option<u64> {
    let Value::String(text) = value else {
        return value.as_u64().filter(|bytes| *bytes > 0);
    };
    let digits = text.trim_end_matches(|character: char| !character.is_ascii_digit());
    let shift = match text.get(digits.len()..)? {
        "" | "B" => 0,
        "K" | "KiB" => 10,
        "M" | "MiB" => 20,
        "G" | "GiB" => 30,
        "T" | "TiB" => 40,
        _ => return None,
    };
    let number = digits.parse::<u64>().ok().filter(|number| *number > 0)?;
    number.checked_mul(1 << shift)
}
