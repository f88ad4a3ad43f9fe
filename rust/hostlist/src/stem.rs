//! What the hosts of a range share, and how a name is taken apart.
use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// As many digits as always fit 64 bits.
pub(crate) const DIGITS: u8 = 19;

/// Stands for the number in a stem's text; no name holds it.
const MARK: char = '[';

/// A host name without its number: what stands before and after it, or a whole name that has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stem {
    /// The prefix, and, where there is a number, a mark in its place and the suffix.
    text: Box<str>,
    prefix: usize,
}

impl Stem {
    fn write(text: &mut String, parts: &Parts<'_>) {
        text.push_str(parts.prefix);
        if parts.number.is_some() {
            text.push(MARK);
            text.push_str(parts.suffix);
        }
    }

    pub(crate) fn new(parts: &Parts<'_>) -> Self {
        let mut text = String::with_capacity(parts.prefix.len() + parts.suffix.len() + 1);
        Self::write(&mut text, parts);
        Self {
            text: text.into(),
            prefix: parts.prefix.len(),
        }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.text[..self.prefix]
    }

    pub(crate) fn suffix(&self) -> &str {
        self.text.get(self.prefix + 1..).unwrap_or("")
    }

    /// Whether this is the stem of these parts.
    pub(crate) fn is_of(&self, parts: &Parts<'_>) -> bool {
        self.prefix == parts.prefix.len()
            && self.is_numbered() == parts.number.is_some()
            && self.prefix() == parts.prefix
            && self.suffix() == parts.suffix
    }

    pub(crate) fn is_numbered(&self) -> bool {
        self.text.len() > self.prefix
    }

    pub(crate) fn has_digits(&self) -> bool {
        self.text.bytes().any(|byte| byte.is_ascii_digit())
    }
}

impl Hash for Stem {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

/// A number as it is written: its value and how many digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) value: u64,
    pub(crate) len: u8,
}

impl Number {
    /// Reads digits, of which there are at most 255; none where the value does not fit.
    pub(crate) fn read(digits: &str) -> Option<Self> {
        let len = u8::try_from(digits.len()).ok().filter(|&len| len > 0)?;
        let mut value: u64 = 0;
        for byte in digits.bytes() {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            value = value.checked_mul(10)?.checked_add(digit)?;
        }
        Some(Self { value, len })
    }

    /// The least number of digits for this number and those that follow it: one, unless it begins with a zero.
    pub(crate) fn width(self) -> u8 {
        if digits(self.value) < self.len {
            self.len
        } else {
            1
        }
    }
}

/// How many digits a number has.
pub(crate) fn digits(value: u64) -> u8 {
    value.checked_ilog10().map_or(1, |log| {
        u8::try_from(log + 1).expect("64 bits have at most 20 digits")
    })
}

/// Appends a number, with zeroes in front up to `width` digits.
pub(crate) fn push_number(text: &mut String, value: u64, width: u8) {
    let mut buffer = [b'0'; 256];
    let mut start = buffer.len();
    let mut rest = value;
    while rest > 0 {
        start -= 1;
        buffer[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let start = start.min(buffer.len() - usize::from(width.max(1)));
    text.extend(buffer[start..].iter().map(|&digit| char::from(digit)));
}

/// A host name taken apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) number: Option<Number>,
    pub(crate) suffix: &'a str,
}

impl<'a> Parts<'a> {
    /// Takes the last run of digits as the number; of more than 19 digits the first ones count to the prefix.
    ///
    /// This is the one way that names are compared by: every name has exactly one such form.
    pub(crate) fn split(name: &'a str) -> Self {
        let bytes = name.as_bytes();
        let Some(last) = bytes.iter().rposition(u8::is_ascii_digit) else {
            return Self {
                prefix: name,
                number: None,
                suffix: "",
            };
        };
        let run = bytes[..last]
            .iter()
            .rev()
            .take(usize::from(DIGITS) - 1)
            .take_while(|byte| byte.is_ascii_digit());
        let first = last - run.count();
        Self {
            prefix: &name[..first],
            number: Number::read(&name[first..=last]),
            suffix: &name[last + 1..],
        }
    }
}

/// A stem that is looked up by its text.
#[derive(Debug)]
struct Shared(Arc<Stem>);

impl Borrow<str> for Shared {
    fn borrow(&self) -> &str {
        &self.0.text
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Self) -> bool {
        self.0.text == other.0.text
    }
}

impl Eq for Shared {}

impl Hash for Shared {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.text.hash(state);
    }
}

/// The stems of a list that is being read: each is kept once.
#[derive(Debug, Default)]
pub(crate) struct Stems {
    known: HashSet<Shared>,
    text: String,
}

impl Stems {
    pub(crate) fn intern(&mut self, parts: &Parts<'_>) -> Arc<Stem> {
        self.text.clear();
        Stem::write(&mut self.text, parts);
        // A prefix may end where another's suffix begins only around the mark: the text tells stems apart.
        if let Some(Shared(stem)) = self.known.get(self.text.as_str()) {
            return Arc::clone(stem);
        }
        let stem = Arc::new(Stem::new(parts));
        self.known.insert(Shared(Arc::clone(&stem)));
        stem
    }
}
