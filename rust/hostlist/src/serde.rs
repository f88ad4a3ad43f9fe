//! Lists as their text, for serde.
use std::borrow::Cow;

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use crate::Hostlist;

impl Serialize for Hostlist {
    /// The text of RFC 29.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hostlist {
    /// From the text of RFC 29.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: Cow<'de, str> = Cow::deserialize(deserializer)?;
        text.parse().map_err(Error::custom)
    }
}
