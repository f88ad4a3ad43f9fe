//! Errors of payloads: the reason, and the path of the key.

use std::fmt::{self, Write as _};

use serde_json::error::Category;

/// The reason why a payload is rejected. Its text names the key and the expected value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    path: String,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorKind {
    Syntax,
    MissingKey,
    Value,
}

/// Types of fields: serde's name, and the description in error texts.
const TYPES: [(&str, &str); 11] = [
    ("u8", "an integer from 0 to 255"),
    ("u16", "an integer from 0 to 65535"),
    ("u32", "an integer from 0 to 4294967295"),
    ("u64", "a non-negative integer"),
    ("usize", "a non-negative integer"),
    ("i32", "a 32-bit integer"),
    ("i64", "an integer"),
    ("f64", "a number"),
    ("a borrowed string", "a string"),
    ("a sequence", "an array"),
    ("a map", "an object"),
];

/// Before the address of a value at the end of the text of its error: the parser may be anywhere behind the value.
const PLACE: char = '\0';

/// The text of an error in a part of a payload that the parser has read already, for [`Error::new`].
pub(crate) fn with_place(text: &str, value: &str) -> String {
    format!("{text}{PLACE}{}", value.as_ptr().addr())
}

impl Error {
    pub(crate) fn new(bytes: &[u8], error: &serde_json::Error) -> Self {
        let full_text = error.to_string();
        let (line, column) = (error.line(), error.column());
        let position = format!(" at line {line} column {column}");
        let text = full_text.strip_suffix(&position).unwrap_or(&full_text);
        let mut offset = offset(bytes, line, column);
        if error.classify() != Category::Data {
            return Self {
                kind: ErrorKind::Syntax,
                path: String::new(),
                text: format!("invalid JSON: {text} at byte {offset}"),
            };
        }
        // The parser rejects a document that is not an object only after the end of the enclosing object.
        let place = text.rsplit_once(PLACE).and_then(|(text, place)| {
            let offset = place.parse::<usize>().ok()?;
            let offset = offset.checked_sub(bytes.as_ptr().addr())?;
            (offset < bytes.len()).then_some((text, offset))
        });
        let (text, found) = place.map_or((text, None), |(text, at)| (text, Some(at)));
        if let Some(at) = found {
            offset = at.min(offset);
        } else if text.ends_with(", expected an object")
            && bytes.get(..offset).is_some_and(|read| read.ends_with(b"}"))
        {
            offset -= 1;
        }
        let path = path(bytes, offset);
        if let Some(key) = text.strip_prefix("missing field ") {
            return Self {
                kind: ErrorKind::MissingKey,
                path,
                text: format!("missing key {key}"),
            };
        }
        Self {
            kind: ErrorKind::Value,
            path,
            text: value_text(text),
        }
    }

    /// Whether the payload is not JSON.
    pub fn is_syntax(&self) -> bool {
        self.kind == ErrorKind::Syntax
    }

    /// Whether a required key is missing.
    pub fn is_missing_key(&self) -> bool {
        self.kind == ErrorKind::MissingKey
    }

    /// Whether a value is of the wrong type, out of range, or not one of those allowed.
    pub fn is_wrong_value(&self) -> bool {
        self.kind == ErrorKind::Value
    }

    /// The path of the key in error, e.g. `ops[1].dirent.data`; empty for the payload as a whole.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "`{}`: ", self.path)?;
        }
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// Rewrites serde's text about a value as `expected …, found …`.
fn value_text(text: &str) -> String {
    let prefixes = ["invalid type: ", "invalid value: ", "unknown variant "];
    let about = prefixes.iter().find_map(|prefix| text.strip_prefix(prefix));
    let Some((found, expected)) = about.and_then(|rest| rest.rsplit_once(", expected ")) else {
        return text.to_owned();
    };
    let word = TYPES.iter().find(|(serde, _)| *serde == expected);
    let expected = word.map_or(expected, |(_, word)| word);
    let found = match found {
        "sequence" => "an array",
        "map" => "an object",
        found => found,
    };
    format!("expected {expected}, found {found}")
}

/// The number of bytes before the position that a parser reports: a line and the bytes read of it.
pub(crate) fn offset(bytes: &[u8], line: usize, column: usize) -> usize {
    let lines = bytes.split_inclusive(|&byte| byte == b'\n');
    let before: usize = lines.take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    (before + column).min(bytes.len())
}

/// Position of a parser in one of the objects and arrays that it has entered.
enum JsonStep {
    Key(String),
    Index(usize),
}

/// The path of the value that a parser of well-formed JSON had reached at an offset.
fn path(bytes: &[u8], offset: usize) -> String {
    let mut places = Vec::new();
    let mut key_comes = false;
    let mut at = 0;
    while at < offset {
        match bytes[at] {
            b'{' => {
                places.push(JsonStep::Key(String::new()));
                key_comes = true;
            }
            b'[' => {
                places.push(JsonStep::Index(0));
                key_comes = false;
            }
            b'}' | b']' => {
                places.pop();
                key_comes = false;
            }
            b',' => match places.last_mut() {
                Some(JsonStep::Index(index)) => *index += 1,
                Some(JsonStep::Key(_)) => key_comes = true,
                None => {}
            },
            b'"' => {
                let start = at + 1;
                at = string_end(bytes, start);
                if let Some(JsonStep::Key(key)) = places.last_mut().filter(|_| key_comes) {
                    let text = bytes.get(start..at).unwrap_or_default();
                    *key = String::from_utf8_lossy(text).into_owned();
                    key_comes = false;
                }
            }
            _ => {}
        }
        at += 1;
    }
    let mut path = String::new();
    for place in places {
        match place {
            JsonStep::Index(index) => {
                // Writing to a String does not fail.
                let _ = write!(path, "[{index}]");
            }
            JsonStep::Key(key) => {
                if !path.is_empty() && !key.is_empty() {
                    path.push('.');
                }
                path.push_str(&key);
            }
        }
    }
    path
}

/// The position of the quote that ends the string that begins at `start`.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    at
}
