use super::MAX_DEPTH;
use crate::Error;
use crate::error::Subject;

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;

fn error<T>(offset: usize, detail: String) -> Result<T, Error> {
    Err(Error::new(Subject::Json, offset, detail))
}

/// Converts one JSON text to CBOR, with definite lengths, integers and lengths in their shortest form, and floats in 64
/// bits.
///
/// # Errors
///
/// Fails on text that is not JSON (RFC 8259), integers outside `i64::MIN` to `u64::MAX`, floats beyond
/// 64 bits, lone surrogates, nesting beyond [`MAX_DEPTH`].
pub fn json_to_cbor(json: &str) -> Result<Vec<u8>, Error> {
    let mut reader = Reader {
        text: json,
        at: 0,
        cbor: Vec::with_capacity(json.len()),
    };
    reader.value(0)?;
    reader.skip_blanks();
    if reader.at != json.len() {
        return reader.expected("the end");
    }
    Ok(reader.cbor)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    cbor: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn expected<T>(&self, what: &str) -> Result<T, Error> {
        // Anywhere but within a character, where no caller stops.
        match self
            .text
            .get(self.at..)
            .and_then(|rest| rest.chars().next())
        {
            Some(found) => error(
                self.at,
                format!("expected {what} at byte {}, found {found:?}", self.at),
            ),
            None => error(
                self.at,
                format!("expected {what} at byte {}, found the end", self.at),
            ),
        }
    }

    fn value(&mut self, depth: usize) -> Result<(), Error> {
        self.skip_blanks();
        match self.peek() {
            Some(b'{') => self.map(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.text(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", 0xF5),
            Some(b'f') => self.word("false", 0xF4),
            Some(b'n') => self.word("null", 0xF6),
            _ => self.expected("a value"),
        }
    }

    fn word(&mut self, word: &str, code: u8) -> Result<(), Error> {
        if !self.text[self.at..].starts_with(word) {
            return self.expected(&format!("`{word}`"));
        }
        self.at += word.len();
        self.cbor.push(code);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), Error> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return self.expected("a digit");
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Error> {
        let start = self.at;
        let negative = self.peek() == Some(b'-');
        if negative {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        let mut integer = true;
        if self.peek() == Some(b'.') {
            integer = false;
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            integer = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        if !integer {
            return match text.parse::<f64>() {
                Ok(value) if value.is_finite() => {
                    self.cbor.push(0xFB);
                    self.cbor.extend_from_slice(&value.to_be_bytes());
                    Ok(())
                }
                _ => error(
                    start,
                    format!(
                        "expected a finite number at byte {start}, found {}",
                        abridged(text)
                    ),
                ),
            };
        }
        let (major, argument) = if negative {
            (
                NEGATIVE,
                text.parse::<i64>()
                    .ok()
                    .map(|value| if value < 0 { value.abs_diff(-1) } else { 0 }),
            )
        } else {
            (UNSIGNED, text.parse::<u64>().ok())
        };
        match argument {
            // RFC 8949 has no negative zero among its integers, and JSON's is an integer.
            Some(0) if text == "-0" => self.cbor.push(0),
            Some(argument) => self.write_head(major, argument),
            None => {
                return error(
                    start,
                    format!(
                        "expected an integer of 64 bits at byte {start}, found {}",
                        abridged(text)
                    ),
                );
            }
        }
        Ok(())
    }

    fn write_head(&mut self, major: u8, argument: u64) {
        let (bytes, len) = head(major, argument);
        self.cbor.extend_from_slice(&bytes[..len]);
    }

    /// Converts the string at the opening quote to CBOR.
    fn text(&mut self) -> Result<(), Error> {
        self.at += 1;
        let plain = self.plain()?;
        if self.peek() == Some(b'"') {
            self.at += 1;
            self.write_head(TEXT, plain.len() as u64);
            self.cbor.extend_from_slice(plain.as_bytes());
            return Ok(());
        }
        let mut whole = plain.to_owned();
        while self.peek() != Some(b'"') {
            self.at += 1;
            whole.push(self.escape()?);
            whole.push_str(self.plain()?);
        }
        self.at += 1;
        self.write_head(TEXT, whole.len() as u64);
        self.cbor.extend_from_slice(whole.as_bytes());
        Ok(())
    }

    /// The characters up to the next quote or backslash.
    fn plain(&mut self) -> Result<&'a str, Error> {
        let start = self.at;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' | b'\\' => return Ok(&self.text[start..self.at]),
                0..0x20 => return self.expected("a character or an escape"),
                _ => self.at += 1,
            }
        }
        self.expected("a closing quote")
    }

    /// The character of the escape whose backslash has been read.
    fn escape(&mut self) -> Result<char, Error> {
        let start = self.at - 1;
        let character = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                let mut code = self.hex()?;
                if (0xD800..0xDC00).contains(&code) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    let low = self.hex()?;
                    if (0xDC00..0xE000).contains(&low) {
                        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                    }
                }
                return match char::from_u32(code) {
                    Some(character) => Ok(character),
                    None => error(
                        start,
                        format!("expected a pair of surrogates at byte {start}, found one alone"),
                    ),
                };
            }
            _ => return self.expected("one of \" \\ / b f n r t u"),
        };
        self.at += 1;
        Ok(character)
    }

    fn hex(&mut self) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                return self.expected("a hexadecimal digit");
            };
            code = code << 4 | digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn nest(&self, depth: usize) -> Result<(), Error> {
        if depth == MAX_DEPTH {
            let at = self.at;
            return error(
                at,
                format!(
                    "expected at most {MAX_DEPTH} arrays and objects within each other, found another at byte {at}"
                ),
            );
        }
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<(), Error> {
        self.nest(depth)?;
        let start = self.cbor.len();
        let mut count = 0;
        self.cbor.push(ARRAY << 5);
        self.at += 1;
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value(depth + 1)?;
            count += 1;
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return self.expected("`,` or `]`"),
            }
        }
        self.at += 1;
        self.write_count(start, ARRAY, count);
        Ok(())
    }

    fn map(&mut self, depth: usize) -> Result<(), Error> {
        self.nest(depth)?;
        let start = self.cbor.len();
        let mut count = 0;
        self.cbor.push(MAP << 5);
        self.at += 1;
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return self.expected("a key in quotes");
            }
            self.text()?;
            self.skip_blanks();
            if self.peek() != Some(b':') {
                return self.expected("`:`");
            }
            self.at += 1;
            self.value(depth + 1)?;
            count += 1;
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return self.expected("`,` or `}`"),
            }
        }
        self.at += 1;
        self.write_count(start, MAP, count);
        Ok(())
    }

    /// Sets the count of the container whose first byte is at `start`. Up to 23 elements it fits there; more
    /// move the content by at most 8 bytes, once for each container, so no byte moves more than `MAX_DEPTH` times.
    fn write_count(&mut self, start: usize, major: u8, count: u64) {
        let (bytes, len) = head(major, count);
        self.cbor
            .splice(start..=start, bytes[..len].iter().copied());
    }
}

/// Encodes an item's head: the major type and its argument in the shortest form.
fn head(major: u8, argument: u64) -> ([u8; 9], usize) {
    let mut bytes = [0; 9];
    let (info, len) = match argument {
        0..=23 => (argument.to_be_bytes()[7], 0),
        24..=0xFF => (24, 1),
        0x100..=0xFFFF => (25, 2),
        0x1_0000..=0xFFFF_FFFF => (26, 4),
        _ => (27, 8),
    };
    bytes[0] = major << 5 | info;
    bytes[1..=len].copy_from_slice(&argument.to_be_bytes()[8 - len..]);
    (bytes, len + 1)
}

/// Shortens a number of any length for an error.
fn abridged(number: &str) -> String {
    match number.get(..40) {
        Some(start) if number.len() > 40 => format!("{start}…"),
        _ => number.to_owned(),
    }
}
