//! Implementations of traits of the standard library and serde.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::{Error, ResourceSet};

impl FromStr for ResourceSet {
    type Err = Error;

    /// Reads JSON, as [`ResourceSet::from_json`].
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::from_json(text)
    }
}

impl TryFrom<&[u8]> for ResourceSet {
    type Error = Error;

    /// Reads JSON in UTF-8, as [`ResourceSet::from_json`].
    fn try_from(bytes: &[u8]) -> Result<Self, Error> {
        Self::from_json(std::str::from_utf8(bytes)?)
    }
}

/// Writes the JSON of [`ResourceSet::to_json`]; only for `serde_json`, since `scheduling` is kept as JSON text.
impl Serialize for ResourceSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw = RawValue::from_string(self.to_json()).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

/// Reads JSON as [`ResourceSet::from_json`]; only for `serde_json`.
impl<'de> Deserialize<'de> for ResourceSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get()).map_err(serde::de::Error::custom)
    }
}
