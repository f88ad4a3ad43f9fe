//! Reading and writing payloads: JSON objects, checked once, borrowed where they can be.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use penstock_jobspec::job_id::JobId;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::count_values;
use crate::error::{Error, offset, with_place};
use crate::limits::{MAX_JOBS_PER_REQUEST, MAX_NAME_BYTES, MAX_NESTED_VALUES, MAX_VALUE_BYTES};

/// Reads a payload: the text of one JSON object, without the NUL at its end.
///
/// `None`, a message without payload, reads as `{}`. Unknown keys are skipped.
///
/// # Errors
///
/// Fails if the text is malformed, is not an object, lacks a key, or has a value of the wrong type. The error names
/// the key and what was expected.
///
/// ```
/// use penstock_flux::{JobId, alloc, read};
///
/// let request: alloc::CancelRequest = read(Some(br#"{"id":7,"later":true}"#))?;
/// assert_eq!(request.id, JobId::new(7));
/// let error = read::<alloc::CancelRequest>(Some(b"[7]")).unwrap_err();
/// assert_eq!(error.to_string(), "expected an object, found an array");
/// # Ok::<(), penstock_flux::Error>(())
/// ```
pub fn read<'a, T: Deserialize<'a>>(payload: Option<&'a [u8]>) -> Result<T, Error> {
    let bytes = payload.unwrap_or(b"{}");
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = object(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| Error::new(bytes, &error))
}

/// Finds one member of a payload and returns its JSON text; the others are neither parsed nor copied.
///
/// `None` if the key is absent or its value is null. Of duplicate keys the last one counts.
///
/// # Errors
///
/// Fails if the payload is malformed or not an object.
pub fn document<'a>(payload: Option<&'a [u8]>, key: &str) -> Result<Option<Json<'a>>, Error> {
    struct Document<'k>(&'k str);

    impl<'de> Visitor<'de> for Document<'_> {
        type Value = Option<Json<'de>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(key) = map.next_key::<Text>()? {
                if *key == *self.0 {
                    found = Some(map.next_value::<Json>()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found.filter(|document| document.0 != "null"))
        }
    }

    let bytes = payload.unwrap_or(b"{}");
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let found = deserializer
        .deserialize_map(Document(key))
        .and_then(|found| deserializer.end().map(|()| found));
    found.map_err(|error| Error::new(bytes, &error))
}

/// A payload that this crate can write.
///
/// Serialization goes straight into the text, without a [`serde_json::Value`] between.
pub trait Payload: Serialize {
    /// Appends the JSON text.
    fn write_to(&self, out: &mut Vec<u8>) {
        write_value(self, out);
    }

    /// The payload as the wire has it: JSON text and a NUL.
    fn to_payload(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128);
        self.write_to(&mut bytes);
        bytes.push(0);
        bytes
    }
}

/// Appends the JSON text of a value.
pub(crate) fn write_value<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) {
    serde_json::to_writer(out, value)
        .expect("keys of payloads are strings, and writing into memory does not fail");
}

/// A string of a payload, borrowed unless it has escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    /// The string, copied if it is borrowed.
    pub fn into_string(self) -> String {
        self.0.into_owned()
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(text.into())
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(text.to_owned().into())
            }

            fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
                Ok(text.into())
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// A document within a payload, such as a jobspec or R, as its JSON text: it is neither parsed nor copied here.
///
/// Text that is not JSON is written as a JSON string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Json<'a>(pub &'a str);

impl Json<'_> {
    /// The JSON text.
    pub fn as_str(&self) -> &str {
        self.0
    }
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match serde_json::from_str::<&RawValue>(self.0) {
            Ok(raw) => raw.serialize(serializer),
            Err(_) => serializer.serialize_str(self.0),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Json<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&'de RawValue>::deserialize(deserializer).map(|raw| Self(raw.get()))
    }
}

/// The value of a key for which null and absence differ.
///
/// A field of this type has `#[serde(default, skip_serializing_if = "Member::is_absent")]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Member<T> {
    /// The key is absent.
    #[default]
    Absent,
    /// The value is null.
    Null,
    /// A value.
    Value(T),
}

impl<T> Member<T> {
    /// Whether the key is absent.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

/// `None` is null.
impl<T> From<Option<T>> for Member<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Self::Value)
    }
}

impl<T: Serialize> Serialize for Member<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(value) => value.serialize(serializer),
            Self::Absent | Self::Null => serializer.serialize_none(),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Member<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::from)
    }
}

/// A field's value that has the right JSON type but is not valid.
#[derive(Debug)]
pub(crate) enum InvalidValue {
    /// A `type` that is not among the expected names.
    TypeName {
        found: String,
        expected: &'static str,
    },
    /// A `type` that is not among the expected numbers.
    TypeNumber { found: u64, expected: &'static str },
    /// The text of an idset that cannot be parsed.
    IdSet(penstock_idset::Error),
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TypeName { found, expected } => {
                write!(f, "unknown type `{found}`: expected {expected}")
            }
            Self::TypeNumber { found, expected } => {
                write!(f, "unknown type {found}: expected {expected}")
            }
            Self::IdSet(error) => error.fmt(f),
        }
    }
}

/// Reads a value from a string. `parse` runs inside the visitor, so that its error gets the position in the payload.
pub(crate) fn parse_str<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, InvalidValue>,
) -> Result<T, D::Error> {
    struct StrVisitor<T>(fn(&str) -> Result<T, InvalidValue>);

    impl<T> Visitor<'_> for StrVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            (self.0)(text).map_err(E::custom)
        }
    }

    deserializer.deserialize_str(StrVisitor(parse))
}

/// Reads a value from a number, as [`parse_str`] does from a string.
pub(crate) fn parse_u64<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: fn(u64) -> Result<T, InvalidValue>,
) -> Result<T, D::Error> {
    struct NumberVisitor<T>(fn(u64) -> Result<T, InvalidValue>);

    impl<T> Visitor<'_> for NumberVisitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("u64")
        }

        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
            (self.0)(number).map_err(E::custom)
        }
    }

    deserializer.deserialize_u64(NumberVisitor(parse))
}

/// A list of at most `MAX` entries: of a longer one the rest is not read, as short entries take many times their text in
/// memory.
struct ShortList<const MAX: usize, T>(Vec<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Deserialize<'de> for ShortList<MAX, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<const MAX: usize, T>(PhantomData<T>);

        impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for ListVisitor<MAX, T> {
            type Value = ShortList<MAX, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = list.next_element()? {
                    if entries.len() == MAX {
                        let text = format!("expected at most {MAX} entries");
                        return Err(A::Error::custom(text));
                    }
                    entries.push(entry);
                }
                Ok(ShortList(entries))
            }
        }

        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// Reads a list of at most `MAX` objects.
pub(crate) fn objects_at_most<'de, const MAX: usize, D, T>(
    deserializer: D,
) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = ShortList::<MAX, Object<T>>::deserialize(deserializer)?;
    Ok(list.0.into_iter().map(|Object(value)| value).collect())
}

/// Reads a name of at most [`MAX_NAME_BYTES`] bytes, for `#[serde(deserialize_with)]`.
pub(crate) fn name<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Text<'a>, D::Error> {
    let name = Text::deserialize(deserializer)?;
    if name.len() > MAX_NAME_BYTES {
        let text = format!(
            "expected at most {MAX_NAME_BYTES} bytes, found {}",
            name.len()
        );
        return Err(serde::de::Error::custom(text));
    }
    Ok(name)
}

/// Reads a name of at most [`MAX_NAME_BYTES`] bytes, or null, for `#[serde(deserialize_with)]`.
pub(crate) fn optional_name<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Text<'a>>, D::Error> {
    struct Name<'a>(Text<'a>);

    impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            name(deserializer).map(Self)
        }
    }

    let name = Option::<Name>::deserialize(deserializer)?;
    Ok(name.map(|Name(name)| name))
}

/// Reads a value from at most [`MAX_VALUE_BYTES`] bytes of a payload.
pub(crate) fn parse_short<T: DeserializeOwned, E: serde::de::Error>(value: &str) -> Result<T, E> {
    check_short(value)?;
    serde_json::from_str(value).map_err(|error| place_at(&error, value))
}

/// The error of a part of a payload, at this place in it.
fn place_at<E: serde::de::Error>(error: &serde_json::Error, place: &str) -> E {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&position).unwrap_or(&text);
    E::custom(with_place(text, place))
}

fn check_short<E: serde::de::Error>(value: &str) -> Result<(), E> {
    if value.len() > MAX_VALUE_BYTES {
        let text = format!("expected at most {MAX_VALUE_BYTES} bytes of JSON");
        return Err(E::custom(with_place(&text, value)));
    }
    // A value has a byte, and a comma behind it.
    if value.len() as u64 / 2 >= MAX_NESTED_VALUES && count_values(value) > MAX_NESTED_VALUES {
        let text = format!("expected at most {MAX_NESTED_VALUES} values");
        return Err(E::custom(with_place(&text, value)));
    }
    Ok(())
}

/// Reads the JSON text of a value of at most [`MAX_VALUE_BYTES`] bytes, or null, for `#[serde(deserialize_with)]`.
pub(crate) fn optional_short_document<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Json<'a>>, D::Error> {
    let document = Option::<Json>::deserialize(deserializer)?;
    if let Some(Json(text)) = document {
        check_short(text)?;
    }
    Ok(document)
}

/// A value of at most [`MAX_VALUE_BYTES`] bytes.
struct ShortValue<T>(T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for ShortValue<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parse_short(Json::deserialize(deserializer)?.0).map(Self)
    }
}

/// Reads a value that names something, of at most [`MAX_NAME_BYTES`] bytes of JSON, for `#[serde(deserialize_with)]`.
pub(crate) fn short_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let Json(value) = Json::deserialize(deserializer)?;
    if value.len() > MAX_NAME_BYTES {
        let text = format!("expected at most {MAX_NAME_BYTES} bytes of JSON");
        return Err(D::Error::custom(with_place(&text, value)));
    }
    parse_short(value)
}

/// Reads a value of at most [`MAX_VALUE_BYTES`] bytes, for `#[serde(deserialize_with)]`.
pub(crate) fn short<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<T, D::Error> {
    ShortValue::deserialize(deserializer).map(|ShortValue(value)| value)
}

/// Reads a value of at most [`MAX_VALUE_BYTES`] bytes, or null, for `#[serde(deserialize_with)]`.
pub(crate) fn optional_short<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = Option::<ShortValue<T>>::deserialize(deserializer)?;
    Ok(value.map(|ShortValue(value)| value))
}

/// Reads the ids of at most [`MAX_JOBS_PER_REQUEST`] jobs, or null, for `#[serde(deserialize_with)]`.
pub(crate) fn optional_job_ids<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<JobId>>, D::Error> {
    let list = Option::<Json>::deserialize(deserializer)?;
    list.map(|Json(text)| parse_job_ids(text)).transpose()
}

/// Reads the ids of at most [`MAX_JOBS_PER_REQUEST`] jobs, for `#[serde(deserialize_with)]`.
pub(crate) fn job_ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<JobId>, D::Error> {
    parse_job_ids(Json::deserialize(deserializer)?.0)
}

fn parse_job_ids<E: serde::de::Error>(list: &str) -> Result<Vec<JobId>, E> {
    if let Some(ids) = compact_job_ids(list) {
        return Ok(ids);
    }
    let ids: Result<ShortList<MAX_JOBS_PER_REQUEST, JobId>, _> = serde_json::from_str(list);
    ids.map(|ids| ids.0).map_err(|error| {
        let read = offset(list.as_bytes(), error.line(), error.column());
        place_at(&error, list.get(read..).unwrap_or(list))
    })
}

/// The ids in the compact JSON text of a list, if it is one: others must not wait for the general parser with a million of them.
fn compact_job_ids(list: &str) -> Option<Vec<JobId>> {
    /// Every number with as many digits fits.
    const MAX_DIGITS: usize = 19;
    let list = list.strip_prefix('[')?.strip_suffix(']')?;
    // Most ids have no fewer digits.
    let mut ids = Vec::with_capacity(list.len() / 10 + 1);
    let (mut id, mut digits) = (0_u64, 0);
    for byte in list.bytes().chain([b',']) {
        match byte {
            b'0'..=b'9' if digits < MAX_DIGITS && (digits == 0 || id > 0) => {
                id = id * 10 + u64::from(byte - b'0');
                digits += 1;
            }
            b',' if digits > 0 && ids.len() < MAX_JOBS_PER_REQUEST => {
                ids.push(JobId::new(id));
                (id, digits) = (0, 0);
            }
            _ => return None,
        }
    }
    Some(ids)
}

/// Reads a list of at most `MAX` entries.
pub(crate) fn at_most<'de, const MAX: usize, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    ShortList::<MAX, T>::deserialize(deserializer).map(|list| list.0)
}

/// Reads a list of at most `MAX` entries, or null.
pub(crate) fn optional_at_most<'de, const MAX: usize, D, T>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Option::<ShortList<MAX, T>>::deserialize(deserializer)?;
    Ok(list.map(|list| list.0))
}

/// Reads a value from a JSON object only: derived implementations accept arrays too.
struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// Reads a field that is an object, for `#[serde(deserialize_with)]`: derived implementations accept arrays too.
///
/// # Errors
///
/// Fails if the value is no object, or as `T` does.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_map(ObjectVisitor(PhantomData))
}

/// Reads a field that is an object as its JSON text, for `#[serde(deserialize_with)]`.
pub(crate) fn object_document<'de: 'a, 'a, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Json<'a>, D::Error> {
    let document = Json::deserialize(deserializer)?;
    if document.0.starts_with('{') {
        return Ok(document);
    }
    let found = match document.0.as_bytes().first() {
        Some(b'[') => Unexpected::Seq,
        Some(b'"') => Unexpected::Other("a string"),
        Some(b'n') => Unexpected::Unit,
        Some(b't' | b'f') => Unexpected::Other("a boolean"),
        _ => Unexpected::Other("a number"),
    };
    Err(D::Error::invalid_type(found, &"an object"))
}

/// A value that is read from a JSON object only, for lists and options of objects.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        object(deserializer).map(Self)
    }
}

/// Reads a field that is an object or null, for `#[serde(deserialize_with)]`.
pub(crate) fn optional_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(value.map(|Object(value)| value))
}

/// Reads a field that has an object for each name, for `#[serde(deserialize_with)]`.
pub(crate) fn objects_by_name<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    let entries = BTreeMap::<String, Object<T>>::deserialize(deserializer)?;
    let values = entries.into_iter();
    Ok(values.map(|(name, Object(value))| (name, value)).collect())
}

/// Reads a field that is a list of objects, for `#[serde(deserialize_with)]`.
pub(crate) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct ObjectsVisitor<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectsVisitor<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array of objects")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut values = Vec::new();
            while let Some(Object(value)) = seq.next_element()? {
                values.push(value);
            }
            Ok(values)
        }
    }

    deserializer.deserialize_seq(ObjectsVisitor(PhantomData))
}

#[cfg(test)]
mod tests {
    use penstock_jobspec::job_id::JobId;

    use super::{MAX_JOBS_PER_REQUEST, ShortList, compact_job_ids};

    fn general(list: &str) -> Option<Vec<JobId>> {
        let list = serde_json::from_str(list).ok();
        list.map(|ShortList::<MAX_JOBS_PER_REQUEST, JobId>(ids)| ids)
    }

    /// Lists of up to three words of each kind of character, with all the separators that JSON has, and some that it has not.
    #[test]
    fn the_parser_of_compact_lists_takes_no_list_that_the_general_one_rejects_or_reads_otherwise() {
        let words = [
            "0",
            "7",
            "10",
            "9177137705",
            "9999999999999999999",
            "18446744073709551615",
            "18446744073709551616",
            "01",
            "00",
            "-1",
            "1.0",
            "1e3",
            "",
            " 1",
            "\"1\"",
            "null",
            "[1]",
        ];
        let mut lists = vec![
            "[]".to_owned(),
            "{}".to_owned(),
            "[1".to_owned(),
            "1]".to_owned(),
        ];
        for first in words {
            lists.push(format!("[{first}]"));
            for second in words {
                lists.push(format!("[{first},{second}]"));
                lists.extend(words.map(|third| format!("[{first},{second},{third}]")));
            }
        }
        let mut compact = 0;
        for list in &lists {
            if let Some(ids) = compact_job_ids(list) {
                assert_eq!(general(list), Some(ids), "{list}");
                compact += 1;
            }
        }
        assert_eq!(compact, 5 + 5 * 5 + 5 * 5 * 5);
    }

    #[test]
    fn a_list_that_is_too_long_is_left_to_the_general_parser() {
        let list = |length: usize| format!("[{}1]", "1,".repeat(length - 1));
        let most = list(MAX_JOBS_PER_REQUEST);
        assert_eq!(compact_job_ids(&most).unwrap().len(), MAX_JOBS_PER_REQUEST);
        let longer = list(MAX_JOBS_PER_REQUEST + 1);
        assert_eq!((compact_job_ids(&longer), general(&longer)), (None, None));
    }
}
