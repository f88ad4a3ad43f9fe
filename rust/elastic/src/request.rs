//! A request with its attributes in their types, or the denial of one.

use std::borrow::Cow;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;

use crate::attribute::{Attribute, Data};
use crate::lists;
use crate::names::{AttributeKey, Directive, Status};
use crate::time;

/// The greatest number of attributes of a request: PMIx has far fewer names.
pub const MAX_ATTRIBUTES: usize = 64;

/// The greatest length of a reason, and of the names of attributes that had no effect, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// A text as it is, or the beginning of a long one: requests can have any text in their attributes.
pub fn shortened(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        let ellipsis = '…';
        let mut ends = (0..=MAX_TEXT_BYTES - ellipsis.len_utf8()).rev();
        let end = ends.find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.push(ellipsis);
    }
    text
}

/// The denial of a request: its PMIx status and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The PMIx status.
    pub status: Status,
    /// The reason, human-readable.
    pub reason: String,
}

impl Denial {
    /// Makes a denial.
    pub fn new(status: Status, reason: impl Into<String>) -> Self {
        let reason = shortened(reason.into());
        Self { status, reason }
    }

    fn bad(reason: impl Into<String>) -> Self {
        Self::new(Status::BAD_PARAM, reason)
    }
}

/// A value and its `PMIX_INFO_REQD` flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flagged<T> {
    /// The value.
    pub value: T,
    /// Whether the request is denied if the value cannot be met.
    pub required: bool,
}

/// A request with its attributes in their types.
#[derive(Clone, Debug, PartialEq)]
pub struct PmixRequest {
    /// The directive.
    pub directive: Directive,
    /// `pmix.alloc.reqid`: the user's id of this request.
    pub id: Option<String>,
    /// `pmix.alloc.id`: an existing allocation; without `id`, perhaps the user's id.
    pub alloc: Option<String>,
    /// Number of nodes.
    pub nodes: Option<Flagged<u32>>,
    /// Preferred or required nodes.
    pub hosts: Option<Flagged<Hostlist>>,
    /// Cpus in total.
    pub cpus: Option<Flagged<u32>>,
    /// Cpus on each node, in the order of `hosts`.
    pub cpu_counts: Option<Flagged<Vec<u32>>>,
    /// Preferred cpus of each node.
    pub cpu_list: Option<Flagged<IdSet>>,
    /// Time in seconds.
    pub time: Option<Flagged<u32>>,
    /// Queue.
    pub queue: Option<Flagged<String>>,
    /// Timeout of the caller in seconds.
    pub timeout: Option<f64>,
    /// Whether any attribute but `pmix.alloc.id` is required: the request is denied unless it can be granted now.
    pub required: bool,
    /// Whether `pmix.alloc.id` is required: it must name an existing allocation.
    pub alloc_required: bool,
    /// Names of attributes that are not supported and not required.
    pub dropped: Vec<String>,
}

impl PmixRequest {
    /// Makes a request without attributes.
    pub fn new(directive: Directive) -> Self {
        Self {
            directive,
            id: None,
            alloc: None,
            nodes: None,
            hosts: None,
            cpus: None,
            cpu_counts: None,
            cpu_list: None,
            time: None,
            queue: None,
            timeout: None,
            required: false,
            alloc_required: false,
            dropped: Vec::new(),
        }
    }

    /// Reads attributes. Blank keys are skipped; the later of two with the same name counts, and the earlier is not read;
    /// an unsupported one is dropped.
    ///
    /// # Errors
    ///
    /// There are more than [`MAX_ATTRIBUTES`]; or one is malformed, or is required and not supported.
    pub fn read(directive: Directive, attributes: &[Attribute]) -> Result<Self, Denial> {
        let mut request = Self::new(directive);
        for attribute in last_of_each_key(attributes)? {
            request.apply(&attribute)?;
        }
        Ok(request)
    }

    /// Reads the ids alone, for the record of a denied request.
    pub fn ids_of(directive: Directive, attributes: &[Attribute]) -> Self {
        let mut request = Self::new(directive);
        for attribute in attributes {
            let name = word(attribute).ok().map(str::to_owned);
            match AttributeKey::from_name(attribute.key.trim()).filter(|_| name.is_some()) {
                Some(AttributeKey::RequestId) => request.id = name,
                Some(AttributeKey::AllocId) => {
                    request.alloc = name;
                    request.alloc_required |= attribute.required;
                }
                _ => {}
            }
        }
        request
    }

    /// Whether resources are requested, by number or by name.
    pub fn has_resources(&self) -> bool {
        self.nodes.is_some()
            || self.hosts.is_some()
            || self.cpus.is_some()
            || self.cpu_counts.is_some()
            || self.cpu_list.is_some()
    }

    /// Names of attributes that have no effect on a release or a request for time: the unsupported ones and the queue.
    pub fn without_effect(&self) -> Vec<String> {
        let queue = self
            .queue
            .iter()
            .map(|_| AttributeKey::Queue.name().to_owned());
        self.dropped.iter().cloned().chain(queue).collect()
    }

    fn apply(&mut self, attribute: &Attribute) -> Result<(), Denial> {
        let required = attribute.required;
        let Some(key) = AttributeKey::from_name(attribute.key.trim()) else {
            return self.drop_unsupported(attribute, "unknown attribute");
        };
        let flagged = |value| Flagged { value, required };
        match key {
            AttributeKey::AllocId => self.alloc_required |= required,
            _ => self.required |= required,
        }
        match key {
            AttributeKey::RequestId => self.id = Some(word(attribute)?.to_owned()),
            AttributeKey::AllocId => self.alloc = Some(word(attribute)?.to_owned()),
            AttributeKey::Nodes => self.nodes = Some(flagged(amount(attribute)?)),
            AttributeKey::Cpus => self.cpus = Some(flagged(amount(attribute)?)),
            AttributeKey::NodeList => {
                let value = lists::hosts(text(attribute)?);
                let value = value.map_err(|error| wrong(attribute, &error.to_string()))?;
                self.hosts = Some(Flagged { value, required });
            }
            AttributeKey::CpuCounts => {
                let value = lists::counts(text(attribute)?);
                let value = value.map_err(|error| wrong(attribute, &error.to_string()))?;
                self.cpu_counts = Some(Flagged { value, required });
            }
            AttributeKey::CpuList => {
                let value = lists::cpus(text(attribute)?);
                let value = value.map_err(|error| wrong(attribute, &error.to_string()))?;
                if required {
                    let what = "cpus of a node cannot be required, only preferred";
                    return self.drop_unsupported(attribute, what);
                }
                self.cpu_list = Some(Flagged { value, required });
            }
            AttributeKey::Time => {
                let value = match &attribute.data {
                    Data::Whole(number) => u32::try_from(*number)
                        .map_err(|_| wrong(attribute, &format!("{number} is too many seconds")))?,
                    Data::Text(text) => {
                        time::seconds(text).map_err(|error| wrong(attribute, &error.to_string()))?
                    }
                    _ => return Err(wrong(attribute, "expected uint32 or a string")),
                };
                if value == 0 {
                    return Err(wrong(attribute, "expected more than 0 seconds"));
                }
                self.time = Some(flagged(value));
            }
            AttributeKey::Queue => {
                let value = word(attribute)?.to_owned();
                self.queue = Some(Flagged { value, required });
            }
            AttributeKey::Timeout => {
                let seconds = match &attribute.data {
                    #[expect(clippy::cast_precision_loss, reason = "a timeout in seconds")]
                    Data::Whole(number) => *number as f64,
                    Data::Real(number) if *number >= 0.0 => *number,
                    _ => return Err(wrong(attribute, "expected seconds, 0 or more")),
                };
                // PMIx takes 0 for no limit.
                self.timeout = Some(seconds).filter(|timeout| *timeout > 0.0);
            }
            AttributeKey::Memory
            | AttributeKey::Network
            | AttributeKey::NetworkId
            | AttributeKey::Bandwidth
            | AttributeKey::NetworkQos => {
                let what = "not in the inventory";
                // A flag within the array applies to the request.
                if let Data::Array(all) = &attribute.data {
                    for inner in all.iter().filter(|attribute| attribute.required) {
                        self.drop_unsupported(inner, what)?;
                    }
                }
                return self.drop_unsupported(attribute, what);
            }
        }
        Ok(())
    }

    /// Drops an attribute that is not supported, or denies the request if it requires the attribute.
    fn drop_unsupported(&mut self, attribute: &Attribute, what: &str) -> Result<(), Denial> {
        let name = attribute.key.trim();
        if attribute.required {
            let reason = format!("`{}`: {what}", name.escape_debug());
            return Err(Denial::new(Status::NOT_SUPPORTED, reason));
        }
        self.dropped.push(name.to_owned());
        Ok(())
    }
}

/// The last attribute with each name, in order. In place of an array of cpus there are its elements, with its flag.
fn last_of_each_key(attributes: &[Attribute]) -> Result<Vec<Cow<'_, Attribute>>, Denial> {
    let mut all = Vec::new();
    flatten(attributes.iter().map(Cow::Borrowed), &mut all)?;
    let names = all.iter().map(|attribute| attribute.key.trim());
    let keys: Vec<_> = names
        .map(|name| AttributeKey::from_name(name).ok_or(name))
        .collect();
    let is_last = |place: usize| {
        let mut later = keys.iter().skip(place + 1);
        !later.any(|other| keys.get(place) == Some(other))
    };
    let are_last: Vec<_> = (0..keys.len()).map(is_last).collect();
    let last = all.into_iter().zip(are_last);
    Ok(last
        .filter_map(|(attribute, is_last)| is_last.then_some(attribute))
        .collect())
}

/// Appends attributes that have a key, with the elements of an array of cpus in its place.
fn flatten<'a>(
    attributes: impl IntoIterator<Item = Cow<'a, Attribute>>,
    all: &mut Vec<Cow<'a, Attribute>>,
) -> Result<(), Denial> {
    for attribute in attributes {
        let name = attribute.key.trim();
        let reason = || format!("expected at most {MAX_ATTRIBUTES} attributes");
        match &attribute.data {
            Data::Array(inner) if inner.len() > MAX_ATTRIBUTES => {
                return Err(Denial::bad(reason()));
            }
            Data::Array(inner) if AttributeKey::from_name(name) == Some(AttributeKey::Cpus) => {
                let inner = inner.iter().map(|inner| Attribute {
                    required: inner.required || attribute.required,
                    ..inner.clone()
                });
                let inner: Vec<_> = inner.map(Cow::Owned).collect();
                flatten(inner, all)?;
            }
            _ if name.is_empty() => {}
            _ => all.push(attribute),
        }
        if all.len() > MAX_ATTRIBUTES {
            return Err(Denial::bad(reason()));
        }
    }
    Ok(())
}

fn wrong(attribute: &Attribute, what: &str) -> Denial {
    Denial::bad(format!("`{}`: {what}", attribute.key.escape_debug()))
}

fn text(attribute: &Attribute) -> Result<&str, Denial> {
    match &attribute.data {
        Data::Text(text) => Ok(text),
        _ => Err(wrong(attribute, "expected a string")),
    }
}

/// A name: not empty, nothing in it that a terminal would not show.
fn word(attribute: &Attribute) -> Result<&str, Denial> {
    let word = text(attribute)?;
    if word.is_empty() || word.len() > 255 || word.chars().any(char::is_control) {
        return Err(wrong(attribute, "expected 1 to 255 printable characters"));
    }
    Ok(word)
}

fn amount(attribute: &Attribute) -> Result<u32, Denial> {
    let Data::Whole(number) = attribute.data else {
        return Err(wrong(attribute, "expected uint64"));
    };
    match u32::try_from(number) {
        Ok(0) => Err(wrong(attribute, "expected 1 or more")),
        Ok(number) => Ok(number),
        Err(_) => Err(Denial::new(
            Status::OUT_OF_RESOURCE,
            format!("`{}`: {number} exceeds every inventory", attribute.key),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{Flagged, PmixRequest};
    use crate::{Attribute, Directive, Status};
    use serde_json::{Value, json};

    fn read(attributes: &Value) -> Result<PmixRequest, (i32, String)> {
        let attributes = attributes.as_array().unwrap().iter();
        let attributes: Vec<_> = attributes
            .map(|value| Attribute::from_json(value).unwrap())
            .collect();
        PmixRequest::read(Directive::Extend, &attributes)
            .map_err(|denial| (denial.status.0, denial.reason))
    }

    #[test]
    fn the_example_of_the_rfc_with_its_blank_key() {
        let request = read(&json!([
            {"key": "pmix.alloc.id", "value": "MYALLOCATION"},
            {"key": "", "type": "uint64", "value": 0},
            {"key": "pmix.alloc.nnodes", "type": "uint64", "value": 12},
        ]))
        .unwrap();
        assert_eq!(request.alloc.as_deref(), Some("MYALLOCATION"));
        assert_eq!(
            request.nodes,
            Some(Flagged {
                value: 12,
                required: false
            })
        );
        assert!(!request.required);
    }

    #[test]
    fn cpus_may_be_an_array_of_nodes_and_numbers() {
        let request = read(
            &json!([{"key": "pmix.alloc.ncpus", "required": true, "value": [
                {"key": "pmix.alloc.nlist", "value": "node1,node2"},
                {"key": "pmix.alloc.ncpulist", "value": "5,3"},
            ]}]),
        )
        .unwrap();
        assert_eq!(request.hosts.as_ref().unwrap().value.len(), 2);
        assert_eq!(request.cpu_counts.as_ref().unwrap().value, [5, 3]);
        assert!(request.required);
    }

    #[test]
    fn the_last_attribute_of_each_name_counts() {
        let request = read(&json!([
            {"key": "pmix.alloc.nnodes", "value": 12, "required": true},
            {"key": "pmix.alloc.nlist", "value": "n[1"},
            {"key": "PMIX_ALLOC_NUM_NODES", "value": 13},
            {"key": "pmix.alloc.ncpus", "value": [{"key": "pmix.alloc.nlist", "value": "n1"}]},
        ]))
        .unwrap();
        let value = 13;
        let required = false;
        assert_eq!(request.nodes, Some(Flagged { value, required }));
        assert_eq!(request.hosts.unwrap().value.to_string(), "n1");
        assert!(!request.required);
    }

    #[test]
    fn more_attributes_than_the_limit_are_rejected() {
        let attributes = |number: usize| vec![json!({"key": "x", "value": 1}); number];
        assert_eq!(read(&json!(attributes(64))).unwrap().dropped, ["x"]);
        let inner = json!({"key": "pmix.alloc.ncpus", "value": attributes(65)});
        for attributes in [json!(attributes(65)), json!([inner])] {
            let (status, reason) = read(&attributes).unwrap_err();
            assert_eq!(status, Status::BAD_PARAM.0);
            assert_eq!(reason, "expected at most 64 attributes");
        }
    }

    #[test]
    fn any_flag_makes_a_request_required_but_that_of_the_allocation() {
        for (key, value) in [
            ("pmix.alloc.reqid", json!("mine")),
            ("pmix.timeout", json!(0)),
            ("pmix.alloc.time", json!(60)),
        ] {
            let flagged = json!([{"key": key, "required": true, "value": value}]);
            assert!(read(&flagged).unwrap().required, "{key}");
            assert!(
                !read(&json!([{"key": key, "value": value}]))
                    .unwrap()
                    .required
            );
        }
        let named = json!([{"key": "pmix.alloc.id", "required": true, "value": "A"}]);
        let request = read(&named).unwrap();
        assert_eq!((request.required, request.alloc_required), (false, true));
    }

    #[test]
    fn time_in_both_forms() {
        for value in [json!(90), json!("1:30")] {
            let request = read(&json!([{"key": "pmix.alloc.time", "value": value}])).unwrap();
            assert_eq!(request.time.unwrap().value, 90);
        }
    }

    #[test]
    fn unsupported_attributes_are_dropped_or_denied() {
        for (key, value) in [
            ("pmix.alloc.msize", json!(1.5)),
            ("pmix.alloc.netid", json!("eth0")),
            (
                "pmix.alloc.net",
                json!([{"key": "pmix.alloc.bw", "value": 1.386}]),
            ),
            ("some.other", json!(1)),
        ] {
            let flag = json!({"key": "pmix.some.flag", "type": "bool", "value": true});
            let request = read(&json!([{"key": key, "value": value}, flag])).unwrap();
            assert_eq!(request.dropped, [key, "pmix.some.flag"]);
            let required = json!([{"key": key, "required": true, "value": value}]);
            assert_eq!(read(&required).unwrap_err().0, Status::NOT_SUPPORTED.0);
        }
    }

    #[test]
    fn a_flag_in_an_array_counts() {
        let inner = json!([{"key": "pmix.alloc.netid", "value": "eth0"},
                           {"key": "pmix.alloc.bw", "required": true, "value": 1.0}]);
        let net = json!([{"key": "pmix.alloc.net", "value": inner}]);
        let (status, reason) = read(&net).unwrap_err();
        assert_eq!(status, Status::NOT_SUPPORTED.0);
        assert!(reason.contains("pmix.alloc.bw"), "{reason}");
    }

    #[test]
    fn wrong_types_are_named() {
        for (key, value, status) in [
            ("pmix.alloc.nnodes", json!("3"), -27),
            ("pmix.alloc.nnodes", json!(0), -27),
            ("pmix.alloc.nnodes", json!(-1), -27),
            ("pmix.alloc.nnodes", json!(1_u64 << 40), -29),
            ("pmix.alloc.time", json!("soon"), -27),
            ("pmix.alloc.time", json!(0), -27),
            ("pmix.alloc.time", json!(1_u64 << 33), -27),
            ("pmix.alloc.nlist", json!("n[1"), -27),
            ("pmix.alloc.nlist", json!(1), -27),
            ("pmix.alloc.ncpulist", json!("x"), -27),
            ("pmix.alloc.cpulist", json!(""), -27),
            ("pmix.alloc.reqid", json!(""), -27),
            ("pmix.alloc.reqid", json!("a\nb"), -27),
            ("pmix.timeout", json!("1"), -27),
            ("pmix.alloc.nnodes", json!(true), -27),
            ("pmix.alloc.reqid", json!(null), -27),
        ] {
            let (found, reason) = read(&json!([{"key": key, "value": value}])).unwrap_err();
            assert_eq!(found, status, "{key} {value}: {reason}");
            assert!(reason.contains(key), "{reason}");
        }
    }
}
