//! Constraints in the texts for users.

use std::fmt::{self, Write as _};

use penstock_jobspec::Constraint;

/// The greatest length of a constraint in a text, in bytes: such texts are in eventlogs, annotations and lists of jobs.
const MAX_BYTES: usize = 1000;

/// A constraint as a query (RFC 35), of which a long one ends with `…`.
pub(crate) struct ShownConstraint<'a>(pub(crate) &'a Constraint);

impl fmt::Display for ShownConstraint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut beginning = Beginning(String::new());
        match write!(beginning, "{}", self.0) {
            Ok(()) => f.write_str(&beginning.0),
            Err(fmt::Error) => write!(f, "{}…", beginning.0),
        }
    }
}

/// The beginning of what is written; the rest is an error.
struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_BYTES - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end));
        self.0
            .push_str(text.get(..end.unwrap_or(0)).unwrap_or_default());
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use penstock_jobspec::Constraint;

    use super::{MAX_BYTES, ShownConstraint};

    #[test]
    fn a_long_constraint_is_cut() {
        let short = Constraint::Properties(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(ShownConstraint(&short).to_string(), "a&b");
        for length in MAX_BYTES - 3..MAX_BYTES + 3 {
            let long = Constraint::Properties(vec!["é".repeat(length / 2), "é".to_owned()]);
            let (text, shown) = (long.to_string(), ShownConstraint(&long).to_string());
            assert_eq!(shown == text, text.len() <= MAX_BYTES);
            assert!(text.starts_with(shown.trim_end_matches('…')));
            assert!(shown.len() <= MAX_BYTES + '…'.len_utf8());
        }
    }
}
