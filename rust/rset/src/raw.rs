//! Opaque JSON values.

use std::fmt;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// An opaque JSON value, kept as its text.
#[derive(Clone, Debug)]
pub(crate) struct Carried(Arc<RawValue>);

impl Carried {
    pub(crate) fn new(raw: &RawValue) -> Self {
        Self(raw.to_owned().into())
    }

    pub(crate) fn raw(&self) -> &RawValue {
        &self.0
    }
}

/// Equality by value: the order of keys and the notation of numbers and strings do not matter.
impl PartialEq for Carried {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (self.0.get(), other.0.get());
        one == other
            || matches!(
                (serde_json::from_str::<Value>(one), serde_json::from_str::<Value>(other)),
                (Ok(one), Ok(other)) if one == other
            )
    }
}

impl Eq for Carried {}

/// A JSON object's keys with their values' text, in order.
pub(crate) struct Entries<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'a> Entries<'a> {
    /// Removes and returns the value of `key`; of a duplicate key the last value, as JSON readers do.
    pub(crate) fn take(&mut self, key: &str) -> Option<&'a RawValue> {
        let at = self.0.iter().rposition(|(name, _)| name == key)?;
        let (_, value) = self.0.remove(at);
        self.0.retain(|(name, _)| name != key);
        Some(value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(entries)
            }
        }
        deserializer.deserialize_map(Collect).map(Entries)
    }
}

/// Describes the type of a JSON value, for errors.
pub(crate) fn describe(raw: &RawValue) -> String {
    match raw.get().as_bytes().first() {
        Some(b'{') => "an object".to_owned(),
        Some(b'[') => "an array".to_owned(),
        _ => {
            let text = raw.get();
            match text.char_indices().nth(40) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text.to_owned(),
            }
        }
    }
}
