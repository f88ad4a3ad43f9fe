//! Any bytes as a jobspec (RFC 14, RFC 25), a constraint (RFC 31), a count (RFC 14), a duration (RFC 23) or a job id (RFC 19).

use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Count, Jobspec, duration};

/// Reads the bytes as each of the forms, and what is valid again from its own text.
///
/// # Panics
///
/// Panics if a value or an error is wrong.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Jobspec::from_json(text) {
        Ok(jobspec) => valid(&jobspec),
        Err(error) => assert!(error.is_jobspec() || error.is_constraint() || error.is_count()),
    }
    if let Ok(constraint) = Constraint::from_json(text) {
        let value = constraint.to_value();
        let again = Constraint::from_value(&value).expect("what was written can be read");
        assert_eq!(again.to_value(), value);
    }
    if let Ok(count) = Count::from_json(text) {
        bounded(&count);
    }
    if let Ok(seconds) = duration::parse(text) {
        assert!(seconds >= 0.0, "{seconds}");
    }
    if let Ok(id) = text.parse::<JobId>() {
        assert_eq!(id.f58().parse::<JobId>().as_ref(), Ok(&id));
        assert_eq!(id.dothex().parse::<JobId>().as_ref(), Ok(&id));
        assert_eq!(id.get().to_string().parse::<JobId>().as_ref(), Ok(&id));
    }
}

fn valid(jobspec: &Jobspec) {
    let text = jobspec.to_text();
    let again = Jobspec::from_json(&text).expect("what was written can be read");
    assert_eq!(again.to_text(), text);
    let defaults = jobspec.with_defaults(Some("batch"), Some(60.0));
    let text = defaults.to_text();
    let again = Jobspec::from_json(&text).expect("a jobspec with defaults can be read");
    assert_eq!(again.to_text(), text);
}

fn bounded(count: &Count) {
    let min = count.min();
    assert!(count.contains(min));
    assert_eq!(count.largest_up_to(min), Some(min));
    if let Some(max) = count.max() {
        assert!(max >= min && count.contains(max) && count.next(max).is_none());
        assert_eq!(count.largest_up_to(u32::MAX), Some(max));
    }
    assert_eq!(
        min.checked_sub(1)
            .and_then(|less| count.largest_up_to(less)),
        None
    );
    if let Some(next) = count.next(min) {
        assert!(next > min && count.contains(next));
        assert_eq!(count.largest_up_to(next - 1), Some(min));
    }
    let again = Count::from_value(&count.to_value()).expect("what was written can be read");
    assert_eq!(again.to_value(), count.to_value());
}
