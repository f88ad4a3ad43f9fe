//! Times in the form of newer PMIx libraries: `months:days:hours:minutes:seconds`.

use crate::error::Error;

/// Seconds of each unit, from the right; a month has 30 days.
const UNIT_LENGTHS_S: [u64; 5] = [1, 60, 3600, 86400, 30 * 86400];

/// Reads seconds, or up to five numbers with colons between, the last of which is seconds. An empty
/// field is 0. A number may exceed the next unit: `90:00` is 90 minutes.
pub fn seconds(text: &str) -> Result<u32, Error> {
    let expected = || {
        Error::new(format!(
            "expected seconds or `months:days:hours:minutes:seconds`, found `{}`",
            text.escape_debug()
        ))
    };
    let fields: Vec<&str> = text.trim().split(':').collect();
    if fields.len() > UNIT_LENGTHS_S.len() || fields.iter().all(|field| field.is_empty()) {
        return Err(expected());
    }
    let mut total = 0_u64;
    for (field, unit) in fields.iter().rev().zip(UNIT_LENGTHS_S) {
        let digits = field.bytes().all(|byte| byte.is_ascii_digit());
        let number = match field.len() {
            0 => 0,
            1..=10 if digits => field.parse::<u64>().map_err(|_| expected())?,
            _ => return Err(expected()),
        };
        total = number
            .checked_mul(unit)
            .and_then(|seconds| total.checked_add(seconds))
            .ok_or_else(expected)?;
    }
    u32::try_from(total).map_err(|_| {
        let most = u32::MAX;
        Error::new(format!(
            "`{text}` is {total} seconds: expected at most {most}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn the_fields_are_read_from_the_right() {
        for (text, expected) in [
            ("0", 0),
            ("90", 90),
            ("1:30", 90),
            ("90:00", 5400),
            ("1:00:00", 3600),
            ("2:0:0:0", 172_800),
            ("1:0:0:0:1", 2_592_001),
            ("::1:", 60),
            (" 15 ", 15),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn malformed_times_are_rejected() {
        for text in [
            "",
            ":",
            "x",
            "1:x",
            "-1",
            "1.5",
            "1:2:3:4:5:6",
            "99999999999",
            "99999:0:0:0:0",
            "+1",
            "1 2",
        ] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
