//! Attributes of requests and results (`pmix_info_t`), and their JSON form.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::names::AttributeKey;

/// The greatest length of a key, as in PMIx (`PMIX_MAX_KEYLEN`).
const MAX_KEY_BYTES: usize = 511;

/// The value of an attribute, by the types that RFC 0005 uses.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// A whole number of any width, 0 or more.
    Whole(u64),
    /// A float or double, or a negative number.
    Real(f64),
    /// A string.
    Text(String),
    /// An array of attributes.
    Array(Vec<Attribute>),
    /// A value of a type that RFC 0005 does not use, such as a flag.
    Other,
}

/// One attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// The key as the sender wrote it.
    pub key: String,
    /// The flag `PMIX_INFO_REQD`.
    pub required: bool,
    /// The value.
    pub data: Data,
}

#[derive(Deserialize, Serialize)]
struct JsonAttribute {
    key: String,
    #[serde(default, skip_serializing_if = "is_false")]
    required: bool,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    value: Value,
}

/// Whether the values of a type are numbers of any width, signed or not.
fn is_number(kind: &str) -> bool {
    let width = kind.trim_start_matches('u').trim_start_matches("int");
    let whole = kind.trim_start_matches('u').starts_with("int");
    let whole = whole && matches!(width, "" | "8" | "16" | "32" | "64");
    whole
        || matches!(
            kind,
            "float" | "double" | "size" | "byte" | "time" | "status"
        )
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Attribute {
    /// Makes an attribute of a result.
    pub fn result(key: AttributeKey, data: Data) -> Self {
        Self {
            key: key.name().to_owned(),
            required: false,
            data,
        }
    }

    /// Reads `{"key", "required", "type", "value"}`; all but the key may be left out.
    ///
    /// # Errors
    ///
    /// The object is malformed, its key is too long, or the value is not of its type; the text names the key.
    pub fn from_json(value: &Value) -> Result<Self, Error> {
        let json = JsonAttribute::deserialize(value)
            .map_err(|error| Error::new(format!("attribute: {error}")))?;
        let key = json.key;
        if key.len() > MAX_KEY_BYTES {
            let found = key.len();
            return Err(Error::new(format!(
                "attribute: expected a key of at most {MAX_KEY_BYTES} bytes, found {found}"
            )));
        }
        let wrong = |expected: &str| {
            let found = &json.value;
            Error::new(format!(
                "attribute `{key}`: expected {expected}, found {found}"
            ))
        };
        let data = match (&json.value, json.kind.as_deref()) {
            (Value::String(text), None | Some("string")) => Data::Text(text.clone()),
            // An array of bare values, which RFC 0005 does not use.
            (Value::Array(all), None | Some("array"))
                if !all.iter().all(|element| element["key"].is_string()) =>
            {
                Data::Other
            }
            (Value::Array(all), None | Some("array")) => {
                let all: Result<_, _> = all.iter().map(Self::from_json).collect();
                Data::Array(all.map_err(|error: Error| Error::new(format!("`{key}`: {error}")))?)
            }
            (_, Some(kind @ ("string" | "array"))) => return Err(wrong(kind)),
            (Value::Bool(_) | Value::Null | Value::Object(_), None) => Data::Other,
            (_, Some(kind)) if !is_number(kind) => Data::Other,
            (Value::Number(number), kind) => match (number.as_u64(), kind) {
                (Some(whole), None) => Data::Whole(whole),
                (Some(whole), Some(kind)) if kind != "float" && kind != "double" => {
                    Data::Whole(whole)
                }
                _ => Data::Real(number.as_f64().ok_or_else(|| wrong("a number"))?),
            },
            (_, Some(kind)) => return Err(wrong(kind)),
        };
        Ok(Self {
            key,
            required: json.required,
            data,
        })
    }

    /// The JSON form, with the type that PMIx expects if the value is of its kind; a number out of its range becomes the
    /// largest one.
    pub fn to_json(&self) -> Value {
        let usual = AttributeKey::from_name(&self.key).map(AttributeKey::kind);
        let usual = usual.filter(|kind| is_number(kind));
        let (kind, value) = match &self.data {
            Data::Whole(number) if usual == Some("uint32") => {
                ("uint32", (*number).min(u32::MAX.into()).into())
            }
            Data::Whole(number) => (usual.unwrap_or("uint64"), (*number).into()),
            Data::Real(number) => (usual.unwrap_or("float"), (*number).into()),
            Data::Text(text) => ("string", text.as_str().into()),
            Data::Array(all) => ("array", all.iter().map(Self::to_json).collect()),
            Data::Other => ("undefined", Value::Null),
        };
        let json = JsonAttribute {
            key: self.key.clone(),
            required: self.required,
            kind: Some(kind.to_owned()),
            value,
        };
        serde_json::to_value(json).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Attribute, Data};
    use crate::AttributeKey;
    use serde_json::json;

    #[test]
    fn types_are_given_or_inferred() {
        let read = |value| Attribute::from_json(&value).map(|attribute| attribute.data);
        assert_eq!(read(json!({"key": "k", "value": 3})), Ok(Data::Whole(3)));
        let float = json!({"key": "k", "type": "float", "value": 3});
        assert_eq!(read(float), Ok(Data::Real(3.0)));
        assert_eq!(read(json!({"key": "k", "value": -1})), Ok(Data::Real(-1.0)));
        let text = json!({"key": "k", "type": "string", "value": "a"});
        assert_eq!(read(text), Ok(Data::Text("a".to_owned())));
        for other in [
            json!({"key": "k"}),
            json!({"key": "k", "value": true}),
            json!({"key": "k", "value": [1]}),
            json!({"key": "k", "type": "array", "value": [{"type": "int", "value": 1}]}),
            json!({"key": "k", "type": "bool", "value": true}),
            json!({"key": "k", "type": "proc", "value": ["ns", 1]}),
            json!({"key": "k", "type": "persistence", "value": 3}),
        ] {
            assert_eq!(read(other.clone()), Ok(Data::Other), "{other}");
        }
        for wrong in [
            json!({"value": 1}),
            json!({"key": "k", "type": "int", "value": true}),
            json!({"key": "k", "type": "string", "value": 1}),
            json!({"key": "k", "type": "uint64", "value": "1"}),
            json!([]),
            json!({"key": "k".repeat(512)}),
            json!({"key": "k", "value": [{"key": "k".repeat(512)}]}),
        ] {
            assert!(Attribute::from_json(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_error_about_a_long_key_is_short() {
        let wrong = json!({"key": "k".repeat(100_000), "type": "int", "value": true});
        let error = Attribute::from_json(&wrong).unwrap_err().to_string();
        assert_eq!(
            error,
            "attribute: expected a key of at most 511 bytes, found 100000"
        );
        let longest = json!({"key": "k".repeat(511), "value": 1});
        assert!(Attribute::from_json(&longest).is_ok());
    }

    #[test]
    fn results_have_the_types_of_the_rfc() {
        let time = Attribute::result(AttributeKey::Time, Data::Whole(60)).to_json();
        let expected = json!({"key": "pmix.alloc.time", "type": "uint32", "value": 60});
        assert_eq!(time, expected);
        let endless = Attribute::result(AttributeKey::Time, Data::Whole(1 << 40)).to_json();
        assert_eq!(endless["value"], u32::MAX);
        assert_eq!(
            Attribute::from_json(&time).unwrap().data,
            Data::Whole(60),
            "it reads back"
        );
    }
}
