//! The values of a document, and the errors in them.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Error;
use crate::raw::{Entries, describe};

/// Reads a document, and continues after errors.
#[derive(Default)]
pub(crate) struct Check {
    pub(crate) problems: Vec<Error>,
    /// Whether the resource graph is checked as well.
    pub(crate) with_graph: bool,
}

impl Check {
    /// Returns the value; records an error.
    pub(crate) fn keep<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|problem| self.problems.push(problem)).ok()
    }
}

/// Reads a value of a known JSON type; `what` names the type.
pub(crate) fn typed<'a, T: Deserialize<'a>>(
    raw: &'a RawValue,
    path: &str,
    what: &str,
) -> Result<T, Error> {
    serde_json::from_str(raw.get())
        .map_err(|_| Error::at(path, format!("expected {what}, found {}", describe(raw))))
}

pub(crate) fn object<'a>(raw: &'a RawValue, path: &str) -> Result<Entries<'a>, Error> {
    if raw.get().starts_with('{') {
        // The document is well-formed JSON, so the error must be in a key.
        return serde_json::from_str(raw.get()).map_err(|_| {
            Error::at(
                path,
                "expected keys of Unicode characters, found a lone surrogate",
            )
        });
    }
    typed(raw, path, "an object")
}

pub(crate) fn required<'a>(
    entries: &mut Entries<'a>,
    key: &str,
    path: &str,
    what: &str,
) -> Result<&'a RawValue, Error> {
    entries
        .take(key)
        .ok_or_else(|| Error::at(path, format!("expected {what}, found nothing")))
}
