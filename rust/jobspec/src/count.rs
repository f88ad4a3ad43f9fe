//! Counts (RFC 14): a number, or a set of acceptable numbers.

use std::fmt;
use std::str::FromStr;

use penstock_idset::IdSet;
use serde_json::{Map, Value, json};

use crate::Error;
use crate::constraint::kind;
use crate::error::{Input, shown};

/// The operator that computes the next acceptable number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// Adds the operand.
    Add,
    /// Multiplies by the operand.
    Multiply,
    /// Raises to the power of the operand.
    Power,
}

impl Operator {
    /// The character of RFC 14 and RFC 45.
    pub fn symbol(self) -> char {
        match self {
            Self::Add => '+',
            Self::Multiply => '*',
            Self::Power => '^',
        }
    }

    fn from_symbol(text: &str) -> Option<Self> {
        match text {
            "+" => Some(Self::Add),
            "*" => Some(Self::Multiply),
            "^" => Some(Self::Power),
            _ => None,
        }
    }
}

/// A requested count: a number, a range of numbers, or a set of numbers.
///
/// A number or a range is stored in place, without allocation.
///
/// ```
/// # use penstock_jobspec::Count;
/// let count: Count = "2-20:2:*".parse()?;
/// assert_eq!((count.min(), count.max()), (2, Some(16)));
/// assert_eq!(count.largest_up_to(10), Some(8));
/// assert_eq!(count.largest_up_to(1), None);
/// assert_eq!(Count::exactly(4).max(), Some(4));
/// # Ok::<(), penstock_jobspec::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Count(Form);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    Exactly(u32),
    /// At least two numbers; `max` is one of them.
    Range {
        min: u32,
        max: Option<u32>,
        operator: Operator,
        operand: u32,
    },
    /// At least two numbers, not all of them consecutive.
    Set(Box<IdSet>),
}

impl Count {
    /// Returns the count of exactly this number.
    pub const fn exactly(number: u32) -> Self {
        Self(Form::Exactly(number))
    }

    /// Returns the range that starts at `min` and computes each further number from the previous one by the
    /// operator, up to `max` or without limit.
    ///
    /// # Errors
    ///
    /// Fails if `max` is less than `min`, or if the operator does not increase the numbers: to add, `operand` must be
    /// at least 1; to multiply, `operand` at least 2 and `min` at least 1; to raise, both at least 2. If `max` is `min`,
    /// `min` may be less.
    pub fn range(
        min: u32,
        max: Option<u32>,
        operator: Operator,
        operand: u32,
    ) -> Result<Self, Error> {
        Self::checked(min, max, operator, operand).map_err(|(_, detail)| fail("", detail))
    }

    /// The error is the invalid key, and the expected value.
    fn checked(
        min: u32,
        max: Option<u32>,
        operator: Operator,
        operand: u32,
    ) -> Result<Self, (&'static str, String)> {
        let symbol = operator.symbol();
        let smallest = if operator == Operator::Add { 1 } else { 2 };
        if operand < smallest {
            let detail = format!("expected at least {smallest} with `{symbol}`, found {operand}");
            return Err(("operand", detail));
        }
        let begin = match operator {
            Operator::Add => 0,
            Operator::Multiply => 1,
            Operator::Power => 2,
        };
        if let Some(max) = max.filter(|max| *max < min) {
            return Err(("max", format!("expected at least {min}, found {max}")));
        }
        if max == Some(min) {
            return Ok(Self::exactly(min));
        }
        if min < begin {
            let detail = format!("expected at least {begin} with `{symbol}`, found {min}");
            return Err(("min", detail));
        }
        let range = Form::Range {
            min,
            max,
            operator,
            operand,
        };
        let Some(max) = max else {
            return Ok(Self(range));
        };
        // The last acceptable number, so that equal ranges compare equal.
        let last = Self(range).largest_up_to(max).unwrap_or(min);
        Ok(if last == min {
            Self::exactly(min)
        } else {
            Self(Form::Range {
                min,
                max: Some(last),
                operator,
                operand,
            })
        })
    }

    /// Returns the count of all numbers of a set; `None` if it is empty.
    pub fn of(numbers: &IdSet) -> Option<Self> {
        let (first, last) = (numbers.first()?, numbers.last()?);
        Some(Self(if first == last {
            Form::Exactly(first)
        } else if numbers.len() == u64::from(last - first) + 1 {
            Form::Range {
                min: first,
                max: Some(last),
                operator: Operator::Add,
                operand: 1,
            }
        } else {
            Form::Set(Box::new(numbers.clone()))
        }))
    }

    /// The least acceptable number.
    pub fn min(&self) -> u32 {
        match &self.0 {
            Form::Exactly(number) => *number,
            Form::Range { min, .. } => *min,
            Form::Set(numbers) => numbers.first().unwrap_or(0),
        }
    }

    /// The largest acceptable number; `None` if unlimited.
    pub fn max(&self) -> Option<u32> {
        match &self.0 {
            Form::Exactly(number) => Some(*number),
            Form::Range { max, .. } => *max,
            Form::Set(numbers) => numbers.last(),
        }
    }

    /// Whether only one number is acceptable.
    pub fn is_exact(&self) -> bool {
        matches!(self.0, Form::Exactly(_))
    }

    /// The largest acceptable number not above `limit`.
    pub fn largest_up_to(&self, limit: u32) -> Option<u32> {
        match &self.0 {
            Form::Exactly(number) => Some(*number).filter(|number| *number <= limit),
            Form::Range {
                min,
                max,
                operator,
                operand,
            } => {
                let limit = max.map_or(limit, |max| max.min(limit));
                let room = limit.checked_sub(*min)?;
                if *operator == Operator::Add {
                    return Some(limit - room % operand);
                }
                let steps =
                    std::iter::successors(Some(*min), |number| step(*number, *operator, *operand));
                steps.take_while(|number| *number <= limit).last()
            }
            Form::Set(numbers) => match limit.checked_add(1) {
                Some(above) => numbers.prev(above),
                None => numbers.last(),
            },
        }
    }

    /// The least acceptable number above `number`.
    pub fn next(&self, number: u32) -> Option<u32> {
        match &self.0 {
            Form::Exactly(only) => Some(*only).filter(|only| *only > number),
            Form::Range {
                min,
                max,
                operator,
                operand,
            } => {
                let next = match self.largest_up_to(number) {
                    None => Some(*min),
                    Some(last) => step(last, *operator, *operand),
                };
                next.filter(|next| max.is_none_or(|max| *next <= max))
            }
            Form::Set(numbers) => numbers.next(number),
        }
    }

    /// Whether a number is acceptable.
    pub fn contains(&self, number: u32) -> bool {
        match &self.0 {
            Form::Exactly(only) => *only == number,
            Form::Range { .. } => self.largest_up_to(number) == Some(number),
            Form::Set(numbers) => numbers.contains(number),
        }
    }

    /// Returns the count's JSON in a jobspec: a number, a dictionary (RFC 14), or an idset.
    pub fn to_value(&self) -> Value {
        match &self.0 {
            Form::Exactly(number) => json!(number),
            Form::Range {
                min,
                max,
                operator,
                operand,
            } => {
                let mut range = Map::new();
                range.insert("min".to_owned(), json!(min));
                if let Some(max) = max {
                    range.insert("max".to_owned(), json!(max));
                }
                range.insert("operator".to_owned(), json!(operator.symbol().to_string()));
                range.insert("operand".to_owned(), json!(operand));
                Value::Object(range)
            }
            Form::Set(numbers) => json!(numbers.to_string()),
        }
    }

    /// Reads a count of a jobspec: a whole number of at least one, a dictionary with `min` and
    /// optionally `max`, `operator` and `operand` (RFC 14), or a string (RFC 45, RFC 22).
    ///
    /// # Errors
    ///
    /// Fails if the value is not a count, or if its smallest number is 0.
    pub fn from_value(value: &Value) -> Result<Self, Error> {
        Self::from_value_at(value, "count")
    }

    /// Reads the JSON text of a jobspec's count, as [`from_value`](Self::from_value).
    ///
    /// # Errors
    ///
    /// Fails if the text is not JSON, and as `from_value`.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        let value = serde_json::from_str(json)
            .map_err(|error| Error::new(Input::Count, "", error.to_string()))?;
        Self::from_value(&value)
    }

    pub(crate) fn from_value_at(value: &Value, path: impl fmt::Display) -> Result<Self, Error> {
        let exact = value.as_u64().and_then(|count| u32::try_from(count).ok());
        if let Some(exact) = exact.filter(|exact| *exact >= 1) {
            return Ok(Self::exactly(exact));
        }
        let path = &path.to_string();
        let count = match value {
            Value::Number(_) => Self::exactly(number(value, path)?),
            Value::String(text) => text.parse::<Self>().map_err(|error| {
                let detail = error.detail().to_owned();
                Error::new(Input::Jobspec, path, detail)
            })?,
            Value::Object(range) => dictionary(range, path)?,
            value => {
                let detail = format!("expected a whole number or a range, found {}", kind(value));
                return Err(Error::new(Input::Jobspec, path, detail));
            }
        };
        if count.min() == 0 {
            let detail = format!("expected at least 1, found `{count}`");
            return Err(Error::new(Input::Jobspec, path, detail));
        }
        Ok(count)
    }
}

impl From<u32> for Count {
    fn from(number: u32) -> Self {
        Self::exactly(number)
    }
}

impl PartialEq<u32> for Count {
    fn eq(&self, number: &u32) -> bool {
        self.0 == Form::Exactly(*number)
    }
}

/// The number after this one; `None` if it overflows.
fn step(number: u32, operator: Operator, operand: u32) -> Option<u32> {
    let next = match operator {
        Operator::Add => number.checked_add(operand),
        Operator::Multiply => number.checked_mul(operand),
        Operator::Power => number.checked_pow(operand),
    };
    next.filter(|next| *next > number)
}

fn number(value: &Value, path: &str) -> Result<u32, Error> {
    value
        .as_u64()
        .and_then(|count| u32::try_from(count).ok())
        .filter(|count| *count >= 1)
        .ok_or_else(|| {
            let detail = format!("expected 1 to {}, found {value}", u32::MAX);
            Error::new(Input::Jobspec, path, detail)
        })
}

fn dictionary(range: &Map<String, Value>, path: &str) -> Result<Count, Error> {
    let keys = ["min", "max", "operator", "operand"];
    if let Some(key) = range.keys().find(|key| !keys.contains(&key.as_str())) {
        let key = shown(key);
        let detail = format!("unknown key `{key}`: expected {}", keys.join(", "));
        return Err(Error::new(Input::Jobspec, path, detail));
    }
    let at = |key: &str| format!("{path}.{key}");
    let whole = |key: &str| {
        let value = range.get(key);
        value.map(|value| number(value, &at(key))).transpose()
    };
    let Some(min) = whole("min")? else {
        return Err(Error::new(Input::Jobspec, path, "expected the key `min`"));
    };
    let operator = match range.get("operator") {
        None => Operator::Add,
        Some(value) => value
            .as_str()
            .and_then(Operator::from_symbol)
            .ok_or_else(|| {
                let detail = format!("expected `+`, `*` or `^`, found {value}");
                Error::new(Input::Jobspec, &at("operator"), detail)
            })?,
    };
    let (max, operand) = (whole("max")?, whole("operand")?);
    let operand = match operand {
        Some(operand) => operand,
        None if operator == Operator::Add => 1,
        None => {
            return Err(Error::new(
                Input::Jobspec,
                path,
                "expected the key `operand`",
            ));
        }
    };
    Count::checked(min, max, operator, operand)
        .map_err(|(key, detail)| Error::new(Input::Jobspec, &at(key), detail))
}

fn fail(text: &str, detail: impl fmt::Display) -> Error {
    if text.is_empty() {
        return Error::new(Input::Count, "", detail.to_string());
    }
    let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    Error::new(Input::Count, "", format!("`{shown}`: {detail}"))
}

const COUNT_FORMS: &str =
    "expected a number, a range such as 2-4, 2+, 1-9:2 or 2+:2:*, or an idset";

impl FromStr for Count {
    type Err = Error;

    /// Reads RFC 45's ranges and RFC 22's idsets, with or without brackets around them.
    fn from_str(text: &str) -> Result<Self, Error> {
        let inner = match (text.strip_prefix('['), text.ends_with(']')) {
            (Some(rest), true) => &rest[..rest.len() - 1],
            (None, false) => text,
            _ => return Err(fail(text, "expected both brackets or none")),
        };
        if inner.is_empty() {
            return Err(fail("", COUNT_FORMS));
        }
        if inner.contains(',') {
            let numbers: IdSet = inner.parse().map_err(|_| fail(text, COUNT_FORMS))?;
            return Self::of(&numbers).ok_or_else(|| fail(text, COUNT_FORMS));
        }
        let whole = |digits: &str| {
            let plain = digits.bytes().all(|digit| digit.is_ascii_digit())
                && (digits == "0" || !digits.starts_with('0'));
            let number = digits.parse::<u32>().ok().filter(|_| plain);
            number.ok_or_else(|| fail(text, COUNT_FORMS))
        };
        if !inner.contains([':', '+', '-']) {
            return whole(inner).map(Self::exactly);
        }
        let mut parts = inner.splitn(3, ':');
        let span = parts.next().unwrap_or_default();
        let (min, max) = if let Some(min) = span.strip_suffix('+') {
            (whole(min)?, None)
        } else {
            let (min, max) = span
                .split_once('-')
                .ok_or_else(|| fail(text, COUNT_FORMS))?;
            (whole(min)?, Some(whole(max)?))
        };
        let operand = parts.next().map_or(Ok(1), whole)?;
        let operator = parts.next().unwrap_or("+");
        let operator = Operator::from_symbol(operator)
            .ok_or_else(|| fail(text, "expected `+`, `*` or `^` as the operator"))?;
        Self::checked(min, max, operator, operand)
            .map_err(|(what, detail)| fail(text, format!("{what}: {detail}")))
    }
}

impl fmt::Display for Count {
    /// The shortest form: a number, a range (RFC 45), or an idset (RFC 22).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Exactly(number) => number.fmt(f),
            Form::Range {
                min,
                max,
                operator,
                operand,
            } => {
                match max {
                    Some(max) => write!(f, "{min}-{max}")?,
                    None => write!(f, "{min}+")?,
                }
                match (operator, operand) {
                    (Operator::Add, 1) => Ok(()),
                    (Operator::Add, _) => write!(f, ":{operand}"),
                    _ => write!(f, ":{operand}:{}", operator.symbol()),
                }
            }
            Form::Set(numbers) => numbers.fmt(f),
        }
    }
}
