//! Constraints (RFC 31) on execution targets.

use std::fmt;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use serde_json::{Value, json};

use crate::Error;
use crate::error::{Input, shown};

/// The greatest nesting depth of operators.
const MAX_DEPTH: usize = 64;

/// The greatest number of ranges of hosts in a constraint: a short text can stand for many, as `a[1-1000]b[1-1000]` does.
const MAX_RANGES: usize = 1 << 16;

/// Greatest number of operators of a constraint.
const MAX_OPERATORS: usize = 1000;

/// Greatest number of properties, hostlists and idsets of a constraint.
const MAX_VALUES: usize = 1 << 16;

/// A condition on one execution target.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Constraint {
    /// All conditions hold; true if empty.
    And(Vec<Constraint>),
    /// At least one condition holds; true if empty (RFC 31).
    Or(Vec<Constraint>),
    /// At least one condition does not hold; false if empty.
    Not(Vec<Constraint>),
    /// The target has each of these properties, and none of those that begin with `^`.
    Properties(Vec<String>),
    /// The target's host is one of these.
    Hostlist(Hostlist),
    /// The target's rank is one of these.
    Ranks(IdSet),
}

/// The facts about an execution target that constraints use.
pub trait Target {
    /// Its rank.
    fn rank(&self) -> u32;
    /// Its host name.
    fn host(&self) -> &str;
    /// Whether it has a property; `name@suffix` also counts as `name`.
    fn has_property(&self, name: &str) -> bool;
}

impl Constraint {
    /// Reads `{"operator": [values]}`. `{}` holds for every target.
    ///
    /// # Errors
    ///
    /// Fails if the value is not a constraint (RFC 31): an operator or the type of its values is unknown, or
    /// it is nested too deeply.
    pub fn from_value(value: &Value) -> Result<Self, Error> {
        Self::from_value_at(value, "")
    }

    /// Reads the JSON text of a constraint, as [`from_value`](Self::from_value).
    ///
    /// # Errors
    ///
    /// Fails if the text is not JSON, and as `from_value`.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        let value = serde_json::from_str(json)
            .map_err(|error| Error::new(Input::Constraint, "", error.to_string()))?;
        Self::from_value(&value)
    }

    /// The condition that the target's host is in a hostlist.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a hostlist.
    pub fn on_hosts(hosts: &str) -> Result<Self, Error> {
        let hosts = hosts.parse().map(Self::Hostlist);
        hosts.map_err(|error: penstock_hostlist::Error| {
            Error::new(Input::Constraint, "hostlist", error.to_string())
        })
    }

    pub(crate) fn from_value_at(value: &Value, path: &str) -> Result<Self, Error> {
        parse(value, path, 0, &mut Parts::default())
    }

    /// Whether the target meets the constraint.
    pub fn matches(&self, target: &dyn Target) -> bool {
        match self {
            Self::And(all) => all.iter().all(|constraint| constraint.matches(target)),
            Self::Or(any) => {
                any.is_empty() || any.iter().any(|constraint| constraint.matches(target))
            }
            Self::Not(all) => !all.iter().all(|constraint| constraint.matches(target)),
            Self::Properties(names) => names.iter().all(|name| match name.strip_prefix('^') {
                Some(absent) => !target.has_property(absent),
                None => target.has_property(name),
            }),
            Self::Hostlist(hosts) => hosts.contains(target.host()),
            Self::Ranks(ranks) => ranks.contains(target.rank()),
        }
    }

    /// Returns the constraint as JSON.
    pub fn to_value(&self) -> Value {
        let list = |all: &[Self]| all.iter().map(Self::to_value).collect::<Vec<_>>();
        match self {
            Self::And(all) => json!({ "and": list(all) }),
            Self::Or(any) => json!({ "or": list(any) }),
            Self::Not(all) => json!({ "not": list(all) }),
            Self::Properties(names) => json!({ "properties": names }),
            Self::Hostlist(hosts) => json!({ "hostlist": [hosts.to_string()] }),
            Self::Ranks(ranks) => json!({ "ranks": [ranks.to_string()] }),
        }
    }
}

/// The query that means the constraint (RFC 35), such as `gpu&-slow`.
impl fmt::Display for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::And(all) => write_joined(f, "&", all),
            Self::Or(any) => write_joined(f, "|", any),
            Self::Not(all) => match all.as_slice() {
                [one] if one.is_term() => write!(f, "-{one}"),
                [one] => write!(f, "not ({one})"),
                all => {
                    f.write_str("not (")?;
                    write_joined(f, "&", all)?;
                    f.write_str(")")
                }
            },
            Self::Properties(names) => {
                for (position, name) in names.iter().enumerate() {
                    let separator = if position == 0 { "" } else { "&" };
                    let (sign, name) = match name.strip_prefix('^') {
                        Some(absent) => ("-", absent),
                        None => ("", name.as_str()),
                    };
                    write!(f, "{separator}{sign}{}", Quoted(name, "_.-/@+=[]"))?;
                }
                Ok(())
            }
            Self::Hostlist(hosts) => write!(f, "host:{}", Quoted(&hosts.to_string(), "_.-/@+=[],")),
            Self::Ranks(ranks) => write!(f, "rank:{ranks}"),
        }
    }
}

impl Constraint {
    /// Whether its query has several parts.
    fn is_compound(&self) -> bool {
        match self {
            Self::And(all) | Self::Or(all) => match all.as_slice() {
                [one] => one.is_compound(),
                all => all.len() > 1,
            },
            Self::Properties(names) => names.len() > 1,
            Self::Not(_) | Self::Hostlist(_) | Self::Ranks(_) => false,
        }
    }

    /// Whether its query is one term without a sign.
    fn is_term(&self) -> bool {
        match self {
            Self::Hostlist(_) | Self::Ranks(_) => true,
            Self::Properties(names) => {
                matches!(names.as_slice(), [name] if !name.starts_with('^'))
            }
            Self::And(all) | Self::Or(all) => matches!(all.as_slice(), [one] if one.is_term()),
            Self::Not(_) => false,
        }
    }
}

fn write_joined(f: &mut fmt::Formatter<'_>, separator: &str, all: &[Constraint]) -> fmt::Result {
    for (position, one) in all.iter().enumerate() {
        if position > 0 {
            f.write_str(separator)?;
        }
        if one.is_compound() && all.len() > 1 {
            write!(f, "({one})")?;
        } else {
            write!(f, "{one}")?;
        }
    }
    Ok(())
}

/// A value in a query, in quotes if it has a character that means something there. The second field has the punctuation
/// that means nothing. No value has a quote.
struct Quoted<'a>(&'a str, &'static str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |character: char| character.is_alphanumeric() || self.1.contains(character);
        let is_word = matches!(self.0, "and" | "or" | "not");
        if self.0.chars().all(is_plain) && !self.0.starts_with('-') && !is_word {
            f.write_str(self.0)
        } else {
            write!(f, "\"{}\"", self.0)
        }
    }
}

/// The parts of a constraint so far.
#[derive(Default)]
struct Parts {
    operators: usize,
    /// The elements of the lists of operators that have no others within.
    values: usize,
    /// The ranges of all hostlists.
    ranges: usize,
}

fn parse(value: &Value, path: &str, depth: usize, parts: &mut Parts) -> Result<Constraint, Error> {
    let fail = |path: &str, detail: String| Error::new(Input::Constraint, path, detail);
    let bounded = |found: usize, most: usize, noun: &str, path: &str| {
        let is_bounded = found <= most;
        is_bounded
            .then_some(())
            .ok_or_else(|| fail(path, format!("expected at most {most} {noun}")))
    };
    parts.operators += 1;
    bounded(parts.operators, MAX_OPERATORS, "operators", path)?;
    if depth > MAX_DEPTH {
        return Err(fail(
            "",
            format!("nested deeper than {MAX_DEPTH} operators"),
        ));
    }
    let object = value
        .as_object()
        .ok_or_else(|| fail(path, format!("expected an object, found {}", kind(value))))?;
    let Some((operator, values)) = object.iter().next() else {
        return Ok(Constraint::And(Vec::new()));
    };
    if object.len() > 1 {
        let names: Vec<&str> = object.keys().map(String::as_str).collect();
        let detail = format!("expected one operator, found {}", names.join(", "));
        return Err(fail(path, detail));
    }
    let known = ["and", "or", "not", "properties", "hostlist", "ranks"];
    let path = if path.is_empty() {
        shown(operator)
    } else {
        format!("{path}.{}", shown(operator))
    };
    if !known.contains(&operator.as_str()) {
        let detail = format!("unknown operator: expected {}", known.join(", "));
        return Err(fail(&path, detail));
    }
    let values = values
        .as_array()
        .ok_or_else(|| fail(&path, format!("expected a list, found {}", kind(values))))?;
    let nested = |parts: &mut Parts| {
        let inner = values.iter().enumerate();
        inner
            .map(|(place, value)| parse(value, &format!("{path}[{place}]"), depth + 1, parts))
            .collect::<Result<Vec<_>, _>>()
    };
    let is_nested = matches!(operator.as_str(), "and" | "or" | "not");
    parts.values += if is_nested { 0 } else { values.len() };
    bounded(parts.values, MAX_VALUES, "values", &path)?;
    let strings = || {
        let parts = values.iter().enumerate();
        parts
            .map(|(place, value)| {
                value.as_str().ok_or_else(|| {
                    let detail = format!("expected a string, found {}", kind(value));
                    fail(&format!("{path}[{place}]"), detail)
                })
            })
            .collect::<Result<Vec<_>, _>>()
    };
    Ok(match operator.as_str() {
        "and" => Constraint::And(nested(parts)?),
        "or" => Constraint::Or(nested(parts)?),
        "not" => Constraint::Not(nested(parts)?),
        "properties" => {
            let names = strings()?;
            for (place, name) in names.iter().enumerate() {
                let bare = name.strip_prefix('^').unwrap_or(name);
                if bare.is_empty() || bare.contains(|character| "!&'\"^`|()".contains(character)) {
                    let detail = format!("invalid property `{}`", shown(name));
                    return Err(fail(&format!("{path}[{place}]"), detail));
                }
            }
            Constraint::Properties(names.into_iter().map(str::to_owned).collect())
        }
        "hostlist" => {
            let mut hosts = Hostlist::new();
            for (place, text) in strings()?.into_iter().enumerate() {
                let more: Hostlist = text.parse().map_err(|error: penstock_hostlist::Error| {
                    fail(&format!("{path}[{place}]"), error.to_string())
                })?;
                parts.ranges += more.range_count();
                let path = format!("{path}[{place}]");
                bounded(parts.ranges, MAX_RANGES, "ranges of hosts", &path)?;
                hosts
                    .append(&more)
                    .map_err(|error| fail(&path, error.to_string()))?;
            }
            Constraint::Hostlist(hosts)
        }
        _ => {
            let mut ranks = IdSet::new();
            for (place, text) in strings()?.into_iter().enumerate() {
                let more: IdSet = text.parse().map_err(|error: penstock_idset::Error| {
                    fail(&format!("{path}[{place}]"), error.to_string())
                })?;
                ranks.union_with(&more);
            }
            Constraint::Ranks(ranks)
        }
    })
}

pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
