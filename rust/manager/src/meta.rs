//! The values of the instance itself in the store.
//!
//! A start leaves out a value that cannot be read, and the check of a store names it: both read it by the same function.

use penstock_store::{BadRow, Error, Store};

/// The key of a value, and how it is read.
pub(crate) struct MetaKey<T> {
    pub(crate) name: &'static str,
    pub(crate) parse: fn(&str) -> Option<T>,
    /// For the log.
    pub(crate) expected: &'static str,
}

/// Reads values for a start.
pub(crate) struct MetaReader<'a> {
    pub(crate) store: &'a Store,
    /// The rows that are left out.
    pub(crate) bad: Vec<BadRow>,
}

impl<'a> MetaReader<'a> {
    pub(crate) fn new(store: &'a Store) -> Self {
        let bad = Vec::new();
        Self { store, bad }
    }

    /// A value; `None` if there is none, or if it cannot be read.
    pub(crate) fn read<T>(&mut self, key: &MetaKey<T>) -> Result<Option<T>, Error> {
        let parsed = match self.store.meta(key.name) {
            Err(error) if error.is_damaged() => Err(error.to_string()),
            text => match text? {
                None => Ok(None),
                Some(text) => (key.parse)(&text).map(Some).ok_or_else(|| {
                    let text = text.escape_debug();
                    format!("invalid value `{text}`: expected {}", key.expected)
                }),
            },
        };
        Ok(parsed.unwrap_or_else(|reason| {
            self.bad.push(BadRow::of_meta(key.name, reason));
            None
        }))
    }
}
