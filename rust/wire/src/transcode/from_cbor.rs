use std::fmt::Write as _;

use super::MAX_DEPTH;
use crate::Error;
use crate::error::Subject;

const BREAK: u8 = 0xFF;

fn error<T>(offset: usize, detail: String) -> Result<T, Error> {
    Err(Error::new(Subject::Cbor, offset, detail))
}

/// Converts one CBOR item to compact JSON text, keys in their order in the item.
///
/// # Errors
///
/// Fails on malformed or truncated CBOR, bytes after the item, nesting beyond [`MAX_DEPTH`], and values that JSON
/// cannot represent: byte strings, tags, keys that are not text, `undefined` and other simple values, NaN and
/// infinities, integers below `i64::MIN`.
pub fn cbor_to_json(cbor: &[u8]) -> Result<String, Error> {
    let mut reader = Reader {
        cbor,
        at: 0,
        json: String::with_capacity(cbor.len() + cbor.len() / 2),
    };
    reader.item(0)?;
    if reader.at != cbor.len() {
        return error(reader.at, format!("expected the end at byte {}", reader.at));
    }
    Ok(reader.json)
}

struct Reader<'a> {
    cbor: &'a [u8],
    at: usize,
    json: String,
}

/// The first byte of an item and its argument, which is `None` for an indefinite length.
struct Head {
    at: usize,
    major: u8,
    info: u8,
    argument: Option<u64>,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: u64, what: &str) -> Result<&'a [u8], Error> {
        let rest = &self.cbor[self.at..];
        match usize::try_from(count)
            .ok()
            .and_then(|count| rest.get(..count))
        {
            Some(bytes) => {
                self.at += bytes.len();
                Ok(bytes)
            }
            None => error(
                self.at,
                format!(
                    "expected {what} of {count} bytes at byte {}, found the end at byte {}",
                    self.at,
                    self.cbor.len()
                ),
            ),
        }
    }

    fn head(&mut self) -> Result<Head, Error> {
        let at = self.at;
        let Some(&first) = self.cbor.get(at) else {
            return error(at, format!("expected a value at byte {at}, found the end"));
        };
        self.at += 1;
        let (major, info) = (first >> 5, first & 0x1F);
        let argument = match info {
            0..=23 => Some(u64::from(info)),
            24..=27 => {
                let bytes = self.bytes(1 << (info - 24), "a number")?;
                Some(
                    bytes
                        .iter()
                        .fold(0, |value, &byte| value << 8 | u64::from(byte)),
                )
            }
            31 if matches!(major, 2..=5 | 7) => None,
            _ => {
                return error(
                    at,
                    format!("expected a value at byte {at}, found the reserved byte {first:02X}"),
                );
            }
        };
        Ok(Head {
            at,
            major,
            info,
            argument,
        })
    }

    fn item(&mut self, depth: usize) -> Result<(), Error> {
        let head = self.head()?;
        self.value(&head, depth)
    }

    fn value(&mut self, head: &Head, depth: usize) -> Result<(), Error> {
        let at = head.at;
        if matches!(head.major, 4 | 5) && depth == MAX_DEPTH {
            return error(
                at,
                format!(
                    "expected at most {MAX_DEPTH} arrays and maps within each other, found another at byte {at}"
                ),
            );
        }
        match (head.major, head.argument) {
            (0, Some(value)) => self.write_number(value),
            (1, Some(value)) => match i64::try_from(value) {
                Ok(value) => self.write_number(-1 - value),
                Err(_) => {
                    return error(
                        at,
                        format!(
                            "expected an integer of 64 bits at byte {at}, found {}",
                            -1 - i128::from(value)
                        ),
                    );
                }
            },
            (2, _) => {
                return error(
                    at,
                    format!("expected a value that JSON has at byte {at}, found a byte string"),
                );
            }
            (3, length) => self.text(length)?,
            (4, count) => self.array(count, depth)?,
            (5, count) => self.map(count, depth)?,
            (6, _) => {
                return error(
                    at,
                    format!("expected a value that JSON has at byte {at}, found a tag"),
                );
            }
            _ => self.simple(head)?,
        }
        Ok(())
    }

    fn simple(&mut self, head: &Head) -> Result<(), Error> {
        let at = head.at;
        let Some(bits) = head.argument else {
            return error(at, format!("expected a value at byte {at}, found a break"));
        };
        let float = match head.info {
            20 => {
                self.json.push_str("false");
                return Ok(());
            }
            21 => {
                self.json.push_str("true");
                return Ok(());
            }
            22 => {
                self.json.push_str("null");
                return Ok(());
            }
            25 => half(bits),
            26 => f64::from(f32::from_bits(u32::try_from(bits).unwrap_or(u32::MAX))),
            27 => f64::from_bits(bits),
            23 => {
                return error(
                    at,
                    format!("expected a value that JSON has at byte {at}, found undefined"),
                );
            }
            _ => {
                return error(
                    at,
                    format!(
                        "expected a value that JSON has at byte {at}, found simple value {bits}"
                    ),
                );
            }
        };
        let Some(number) = serde_json::Number::from_f64(float) else {
            return error(
                at,
                format!("expected a finite number at byte {at}, found {float}"),
            );
        };
        self.write_number(number);
        Ok(())
    }

    fn write_number(&mut self, number: impl std::fmt::Display) {
        let written = write!(self.json, "{number}");
        debug_assert!(written.is_ok(), "a string takes all that is written to it");
    }

    fn text(&mut self, length: Option<u64>) -> Result<(), Error> {
        if let Some(length) = length {
            let text = self.chunk(length)?;
            write_text(&mut self.json, text);
            return Ok(());
        }
        let mut whole = String::new();
        loop {
            let head = self.head()?;
            match (head.major, head.argument) {
                (7, None) => break,
                (3, Some(length)) => whole.push_str(self.chunk(length)?),
                _ => {
                    return error(
                        head.at,
                        format!("expected a piece of text or a break at byte {}", head.at),
                    );
                }
            }
        }
        write_text(&mut self.json, &whole);
        Ok(())
    }

    fn chunk(&mut self, length: u64) -> Result<&'a str, Error> {
        let bytes = self.bytes(length, "text")?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(cause) => {
                let place = self.at - bytes.len() + cause.valid_up_to();
                error(
                    place,
                    format!(
                        "expected text in UTF-8, found byte {:02X} at byte {place}",
                        self.cbor[place]
                    ),
                )
            }
        }
    }

    /// Moves to the next element: counts down, or looks for the break. Returns whether there is one.
    fn more(&mut self, left: &mut Option<u64>) -> bool {
        if let Some(left) = left {
            let more = *left > 0;
            *left = left.saturating_sub(1);
            return more;
        }
        let more = self.cbor.get(self.at) != Some(&BREAK);
        if !more {
            self.at += 1;
        }
        more
    }

    fn array(&mut self, mut left: Option<u64>, depth: usize) -> Result<(), Error> {
        self.json.push('[');
        let mut first = true;
        while self.more(&mut left) {
            if !first {
                self.json.push(',');
            }
            first = false;
            self.item(depth + 1)?;
        }
        self.json.push(']');
        Ok(())
    }

    fn map(&mut self, mut left: Option<u64>, depth: usize) -> Result<(), Error> {
        self.json.push('{');
        let mut first = true;
        while self.more(&mut left) {
            if !first {
                self.json.push(',');
            }
            first = false;
            let key = self.head()?;
            if key.major != 3 {
                return error(key.at, format!("expected a text key at byte {}", key.at));
            }
            self.text(key.argument)?;
            self.json.push(':');
            self.item(depth + 1)?;
        }
        self.json.push('}');
        Ok(())
    }
}

fn write_text(json: &mut String, text: &str) {
    json.push('"');
    let mut rest = text;
    while let Some(place) = rest.find(|character: char| matches!(character, '"' | '\\' | '\0'..' '))
    {
        let (plain, special) = rest.split_at(place);
        json.push_str(plain);
        let mut characters = special.chars();
        match characters.next() {
            Some('\n') => json.push_str("\\n"),
            Some('\r') => json.push_str("\\r"),
            Some('\t') => json.push_str("\\t"),
            Some(character @ ('"' | '\\')) => json.extend(['\\', character]),
            Some(character) => {
                let written = write!(json, "\\u{:04x}", u32::from(character));
                debug_assert!(written.is_ok(), "a string takes all that is written to it");
            }
            None => {}
        }
        rest = characters.as_str();
    }
    json.push_str(rest);
    json.push('"');
}

/// The value of a float of 16 bits (RFC 8949, appendix D).
fn half(bits: u64) -> f64 {
    let exponent = i32::try_from(bits >> 10 & 0x1F).unwrap_or(0);
    let fraction = f64::from(u16::try_from(bits & 0x3FF).unwrap_or(0));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (fraction + 1024.0) * 2f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 {
        magnitude
    } else {
        -magnitude
    }
}
