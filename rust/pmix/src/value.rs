use serde_json::{Map, Value as Json, json};

use crate::Error;

/// The greatest nesting depth of arrays; deeper ones are rejected.
pub const MAX_DEPTH: usize = 8;

/// Numbers of PMIx types whose values hold a pointer (`pmix_common.h`).
pub mod types {
    /// Text that ends in NUL.
    pub const STRING: u16 = 3;
    /// A value and its type.
    pub const VALUE: u16 = 21;
    /// A process.
    pub const PROC: u16 = 22;
    /// A key and its value.
    pub const INFO: u16 = 24;
    /// Several of one type.
    pub const DATA_ARRAY: u16 = 39;
}

/// A type whose values lie in the union itself, in its first bytes.
trait Scalar: Sized {
    fn from_word(word: u64) -> Self;
    fn word(&self) -> u64;
    fn json(&self) -> Json;
    fn read(json: &Json) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty, $as:ident;)*) => {$(
        impl Scalar for $number {
            fn from_word(word: u64) -> Self {
                let mut bytes = [0; size_of::<Self>()];
                bytes.copy_from_slice(&word.to_ne_bytes()[..size_of::<Self>()]);
                Self::from_ne_bytes(bytes)
            }
            fn word(&self) -> u64 {
                let mut bytes = [0; 8];
                bytes[..size_of::<Self>()].copy_from_slice(&self.to_ne_bytes());
                u64::from_ne_bytes(bytes)
            }
            fn json(&self) -> Json {
                json!(self)
            }
            fn read(json: &Json) -> Option<Self> {
                Self::try_from(json.$as()?).ok()
            }
        }
    )*};
}

numbers! {
    u8, as_u64;
    u16, as_u64;
    u32, as_u64;
    u64, as_u64;
    i8, as_i64;
    i16, as_i64;
    i32, as_i64;
    i64, as_i64;
}

impl Scalar for bool {
    fn from_word(word: u64) -> Self {
        u8::from_word(word) != 0
    }
    fn word(&self) -> u64 {
        u8::from(*self).word()
    }
    fn json(&self) -> Json {
        json!(self)
    }
    fn read(json: &Json) -> Option<Self> {
        json.as_bool()
    }
}

impl Scalar for f64 {
    fn from_word(word: u64) -> Self {
        Self::from_bits(word)
    }
    fn word(&self) -> u64 {
        self.to_bits()
    }
    // JSON has no number for infinities and NaN.
    fn json(&self) -> Json {
        json!(self)
    }
    fn read(json: &Json) -> Option<Self> {
        json.as_f64()
    }
}

impl Scalar for f32 {
    fn from_word(word: u64) -> Self {
        Self::from_bits(u32::from_word(word))
    }
    fn word(&self) -> u64 {
        self.to_bits().word()
    }
    // The shortest decimal of the same float: 1.386, not 1.38600003719…
    fn json(&self) -> Json {
        self.to_string()
            .parse::<f64>()
            .map_or(Json::Null, |number| json!(number))
    }
    fn read(json: &Json) -> Option<Self> {
        json.to_string().parse().ok()
    }
}

macro_rules! values {
    ($($(#[$doc:meta])* $variant:ident($scalar:ty) = $number:literal, $name:literal;)*) => {
        /// The value of an attribute, by its PMIx type.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Value {
            $($(#[$doc])* $variant($scalar),)*
            /// Text.
            String(String),
            /// A process: its namespace and rank.
            Proc(String, u32),
            /// Several attributes.
            Infos(Vec<Info>),
            /// Several values.
            Values(Vec<Value>),
            /// A value of an unsupported type, by the type's number.
            Other(u16),
        }

        impl Value {
            /// The value of a type that lies in the union itself, whose first eight bytes are `word`; `None` for
            /// other types.
            pub fn from_word(number: u16, word: u64) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant(Scalar::from_word(word))),)*
                    _ => None,
                }
            }

            /// The type's number and the union's first eight bytes, where the value lies in the union itself.
            pub fn word(&self) -> Option<(u16, u64)> {
                match self {
                    $(Self::$variant(scalar) => Some(($number, scalar.word())),)*
                    _ => None,
                }
            }

            /// The bytes that a value of a type takes which lies in the union itself; `None` for other types.
            pub fn width(number: u16) -> Option<usize> {
                match number {
                    $($number => Some(size_of::<$scalar>()),)*
                    _ => None,
                }
            }

            /// The type's name, as payloads have it.
            pub fn type_name(&self) -> String {
                match self {
                    $(Self::$variant(_) => $name.to_owned(),)*
                    Self::String(_) => "string".to_owned(),
                    Self::Proc(..) => "proc".to_owned(),
                    Self::Infos(_) | Self::Values(_) => "array".to_owned(),
                    Self::Other(number) => format!("type {number}"),
                }
            }

            fn json(&self) -> Json {
                match self {
                    $(Self::$variant(scalar) => scalar.json(),)*
                    Self::String(text) => json!(text),
                    Self::Proc(namespace, rank) => json!({"namespace": namespace, "rank": rank}),
                    Self::Infos(infos) => infos.iter().map(Info::to_json).collect(),
                    Self::Values(values) => {
                        values.iter().map(|value| Json::Object(value.members())).collect()
                    }
                    Self::Other(_) => Json::Null,
                }
            }

            fn read_scalar(name: &str, json: &Json) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant(Scalar::read(json)?)),)*
                    _ => None,
                }
            }
        }
    };
}

values! {
    /// True or false.
    Bool(bool) = 1, "bool";
    /// A byte.
    Byte(u8) = 2, "byte";
    /// A size (64 bits).
    Size(u64) = 4, "size";
    /// A process id.
    Pid(i32) = 5, "pid";
    /// A C `int`.
    Int(i32) = 6, "int";
    /// 8 bits, signed.
    Int8(i8) = 7, "int8";
    /// 16 bits, signed.
    Int16(i16) = 8, "int16";
    /// 32 bits, signed.
    Int32(i32) = 9, "int32";
    /// 64 bits, signed.
    Int64(i64) = 10, "int64";
    /// A C `unsigned int`.
    Uint(u32) = 11, "uint";
    /// 8 bits.
    Uint8(u8) = 12, "uint8";
    /// 16 bits.
    Uint16(u16) = 13, "uint16";
    /// 32 bits.
    Uint32(u32) = 14, "uint32";
    /// 64 bits.
    Uint64(u64) = 15, "uint64";
    /// Single precision.
    Float(f32) = 16, "float";
    /// Double precision.
    Double(f64) = 17, "double";
    /// Seconds since the epoch.
    Time(i64) = 19, "time";
    /// A status code.
    Status(i32) = 20, "status";
    /// The recipients of an event.
    Range(u8) = 33, "range";
    /// The rank of a process.
    Rank(u32) = 40, "rank";
    /// An allocation directive.
    Directive(u8) = 43, "directive";
}

impl Value {
    /// The members `type` and `value` of an object.
    fn members(&self) -> Map<String, Json> {
        let mut members = Map::new();
        members.insert("type".to_owned(), json!(self.type_name()));
        members.insert("value".to_owned(), self.json());
        members
    }

    /// Reads the members `type` and `value`.
    ///
    /// # Errors
    ///
    /// The type is missing or unknown, or the value is not of that type.
    pub fn from_json(json: &Json) -> Result<Self, Error> {
        Self::read(json, 0)
    }

    fn read(json: &Json, depth: usize) -> Result<Self, Error> {
        let name = json["type"]
            .as_str()
            .ok_or_else(|| Error::value("expected a `type`"))?;
        let value = &json["value"];
        let read = match name {
            "string" => value.as_str().map(|text| Self::String(text.to_owned())),
            "proc" => value["namespace"]
                .as_str()
                .zip(u32::read(&value["rank"]))
                .map(|(namespace, rank)| Self::Proc(namespace.to_owned(), rank)),
            "array" => return Self::read_array(value, depth),
            _ => Self::read_scalar(name, value),
        };
        read.ok_or_else(|| {
            Error::value(format!("expected a value of type `{name}`, found {value}"))
        })
    }

    fn read_array(json: &Json, depth: usize) -> Result<Self, Error> {
        if depth == MAX_DEPTH {
            let text = format!("expected at most {MAX_DEPTH} nested arrays");
            return Err(Error::value(text));
        }
        let elements = json.as_array().ok_or_else(|| {
            Error::value(format!("expected a value of type `array`, found {json}"))
        })?;
        if elements.iter().all(|element| element.get("key").is_some()) {
            let infos = elements
                .iter()
                .map(|element| Info::read(element, depth + 1));
            infos.collect::<Result<_, _>>().map(Self::Infos)
        } else {
            let values = elements
                .iter()
                .map(|element| Self::read(element, depth + 1));
            values.collect::<Result<_, _>>().map(Self::Values)
        }
    }
}

/// An attribute: a key, whether it is required, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    /// The key, e.g. `pmix.alloc.nnodes`.
    pub key: String,
    /// Whether the request is to be denied if this cannot be met.
    pub required: bool,
    /// The value.
    pub value: Value,
}

impl Info {
    /// Makes an attribute that is not required.
    pub fn new(key: &str, value: Value) -> Self {
        Self {
            key: key.to_owned(),
            required: false,
            value,
        }
    }

    /// The attribute as an object of a payload: `key`, `required`, `type` and `value`.
    pub fn to_json(&self) -> Json {
        let mut members = Map::new();
        members.insert("key".to_owned(), json!(self.key));
        members.insert("required".to_owned(), json!(self.required));
        members.append(&mut self.value.members());
        Json::Object(members)
    }

    /// Reads the object of a payload; `required` may be left out.
    ///
    /// # Errors
    ///
    /// The key is missing, or the value is invalid; the text names the key.
    pub fn from_json(json: &Json) -> Result<Self, Error> {
        Self::read(json, 0)
    }

    fn read(json: &Json, depth: usize) -> Result<Self, Error> {
        let key = json["key"]
            .as_str()
            .ok_or_else(|| Error::value("expected a `key`"))?;
        let value = Value::read(json, depth).map_err(|error| error.at(key))?;
        Ok(Self {
            key: key.to_owned(),
            required: json["required"].as_bool().unwrap_or(false),
            value,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scalar() -> impl Strategy<Value = Value> {
        (0_u16..64, any::<u64>()).prop_filter_map("a type without a scalar", |(number, word)| {
            Value::from_word(number, word)
        })
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            scalar(),
            any::<String>().prop_map(Value::String),
            (any::<String>(), any::<u32>()).prop_map(|(name, rank)| Value::Proc(name, rank)),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(("[a-z.]{1,9}", any::<bool>(), inner.clone()), 0..4)
                    .prop_map(|infos| Value::Infos(
                        infos
                            .into_iter()
                            .map(|(key, required, value)| Info {
                                key,
                                required,
                                value
                            })
                            .collect()
                    )),
                prop::collection::vec(inner, 1..4).prop_map(Value::Values),
            ]
        })
    }

    /// Whether a number in it is not finite.
    fn infinite(value: &Value) -> bool {
        match value {
            Value::Float(number) => !number.is_finite(),
            Value::Double(number) => !number.is_finite(),
            Value::Infos(infos) => infos.iter().any(|info| infinite(&info.value)),
            Value::Values(values) => values.iter().any(infinite),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn an_attribute_is_read_as_it_was_written(value in value(), required in any::<bool>()) {
            prop_assume!(!infinite(&value));
            let info = Info { key: "pmix.alloc.id".to_owned(), required, value };
            let text = info.to_json().to_string();
            prop_assert_eq!(Info::from_json(&serde_json::from_str(&text).unwrap()), Ok(info));
        }

        #[test]
        fn a_scalar_keeps_its_place_in_the_union(value in scalar()) {
            prop_assume!(!infinite(&value));
            let (number, word) = value.word().unwrap();
            prop_assert_eq!(Value::from_word(number, word), Some(value));
        }

        #[test]
        fn any_json_is_read_or_rejected(text in "[\\[\\]{}:,\"a-z0-9.]{0,40}") {
            if let Ok(json) = serde_json::from_str::<Json>(&text) {
                let _ = Info::from_json(&json);
            }
        }
    }

    #[test]
    fn a_request_of_the_rfc_has_this_form() {
        let network = Info {
            key: "pmix.alloc.net".to_owned(),
            required: true,
            value: Value::Infos(vec![
                Info::new("pmix.alloc.netid", Value::String("eth0".to_owned())),
                Info::new("pmix.alloc.bw", Value::Float(1.386)),
            ]),
        };
        assert_eq!(
            network.to_json(),
            json!({"key": "pmix.alloc.net", "required": true, "type": "array", "value": [
                {"key": "pmix.alloc.netid", "required": false, "type": "string", "value": "eth0"},
                {"key": "pmix.alloc.bw", "required": false, "type": "float", "value": 1.386},
            ]})
        );
    }

    #[test]
    fn an_unsupported_type_is_named() {
        let json = Info::new("pmix.x", Value::Other(31)).to_json();
        assert_eq!(json["type"], "type 31");
        assert!(json["value"].is_null());
        let error = Info::from_json(&json).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`pmix.x`: expected a value of type `type 31`, found null"
        );
    }

    #[test]
    fn a_number_out_of_range_is_rejected() {
        let json = json!({"key": "pmix.alloc.time", "type": "uint32", "value": 4_294_967_296_u64});
        let error = Info::from_json(&json).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`pmix.alloc.time`: expected a value of type `uint32`, found 4294967296"
        );
    }

    #[test]
    fn deeply_nested_arrays_are_rejected() {
        let mut json = json!({"type": "array", "value": []});
        for _ in 0..MAX_DEPTH {
            json = json!({"type": "array", "value": [json]});
        }
        assert!(Value::from_json(&json).is_err());
    }
}
