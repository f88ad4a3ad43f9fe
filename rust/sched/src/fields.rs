//! Fields of a question's payload; what is wrong with one is told by its name.

use penstock_wire::Message;
use serde_json::{Map, Value};

/// A payload whose fields are read one by one.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// The payload of a request; none is an empty one.
    pub fn of(request: &Message) -> Result<Self, String> {
        let bytes = request.payload_json().unwrap_or(b"{}");
        match serde_json::from_slice(bytes) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(format!("{}: expected an object", request.topic())),
            Err(error) => Err(format!("{}: malformed payload: {error}", request.topic())),
        }
    }

    /// A field, unless it is absent or null.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let found = read(value).map(Some);
        found.ok_or_else(|| format!("{key}: expected {expected}, found {value}"))
    }

    /// A whole number.
    pub fn whole(&self, key: &str) -> Result<Option<u64>, String> {
        self.read(key, "a whole number", Value::as_u64)
    }

    /// A number of seconds, from 0 on.
    pub fn seconds(&self, key: &str) -> Result<Option<f64>, String> {
        let seconds = |value: &Value| value.as_f64().filter(|it| it.is_finite() && *it >= 0.0);
        self.read(key, "a number of seconds", seconds)
    }

    /// A text.
    pub fn text(&self, key: &str) -> Result<Option<String>, String> {
        self.read(key, "a string", |value| value.as_str().map(str::to_owned))
    }

    /// A job.
    pub fn job(&self, key: &str) -> Result<Option<u64>, String> {
        self.read(key, "a job id", Value::as_u64)
    }

    /// The jobs of `ids`, or the one of `id`.
    pub fn jobs(&self) -> Result<Option<Vec<u64>>, String> {
        let list = |value: &Value| value.as_array()?.iter().map(Value::as_u64).collect();
        match self.read("ids", "a list of job ids", list)? {
            Some(ids) => Ok(Some(ids)),
            None => Ok(self.job("id")?.map(|id| vec![id])),
        }
    }
}
