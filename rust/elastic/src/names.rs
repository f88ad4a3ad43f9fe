//! The names and numbers of PMIx: attributes in their older and newer spelling, directives, status codes.

use std::fmt;

use penstock_flux::{pmix_attribute, pmix_status};

/// A PMIx status code, as functions return it and events and queries carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub i32);

impl Status {
    /// `PMIX_SUCCESS`.
    pub const SUCCESS: Self = Self(pmix_status::SUCCESS);
    /// Not a code of PMIx: the request is pending. Only in a response that is not the last one.
    pub const QUEUED: Self = Self(pmix_status::QUEUED);
    /// `PMIX_ERR_NO_PERMISSIONS`.
    pub const NO_PERMISSION: Self = Self(pmix_status::NO_PERMISSIONS);
    /// `PMIX_ERR_TIMEOUT`.
    pub const TIMEOUT: Self = Self(pmix_status::TIMEOUT);
    /// `PMIX_ERR_UNREACH`.
    pub const UNREACHABLE: Self = Self(pmix_status::UNREACHABLE);
    /// `PMIX_ERR_BAD_PARAM`.
    pub const BAD_PARAM: Self = Self(pmix_status::BAD_PARAM);
    /// `PMIX_ERR_OUT_OF_RESOURCE`.
    pub const OUT_OF_RESOURCE: Self = Self(pmix_status::OUT_OF_RESOURCE);
    /// `PMIX_ERR_NOT_FOUND`.
    pub const NOT_FOUND: Self = Self(pmix_status::NOT_FOUND);
    /// `PMIX_ERR_NOT_SUPPORTED`.
    pub const NOT_SUPPORTED: Self = Self(pmix_status::NOT_SUPPORTED);
    /// `PMIX_ERR_JOB_CANCELED`.
    pub const CANCELLED: Self = Self(pmix_status::CANCELED);
}

/// The directive of a request (`pmix_alloc_directive_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Directive {
    /// A new allocation, disjoint from the requester's.
    New,
    /// More resources, or more time, for an existing allocation.
    Extend,
    /// Releases resources, for good or as a loan.
    Release,
    /// Reclaims resources on loan.
    Reacquire,
    /// Cancels a pending request.
    Cancel,
}

impl Directive {
    const ALL: [(u64, &'static str, Self); 5] = [
        (1, "new", Self::New),
        (2, "extend", Self::Extend),
        (3, "release", Self::Release),
        (4, "reacquire", Self::Reacquire),
        (5, "cancel", Self::Cancel),
    ];

    /// The directive with this number; `None` for undefined ones and for those of other
    /// environments, 128 and above.
    pub fn from_number(number: u64) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(own, ..)| *own == number)
            .map(|(.., directive)| directive)
    }

    /// The directive with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|(_, own, _)| own.eq_ignore_ascii_case(name))
            .map(|(.., directive)| directive)
    }

    /// The name in lower case.
    pub fn name(self) -> &'static str {
        let mut all = Self::ALL.into_iter();
        all.find(|(.., directive)| *directive == self)
            .map_or("", |(_, name, _)| name)
    }
}

impl fmt::Display for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A supported attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttributeKey {
    /// The user's id of a request, in newer libraries.
    RequestId,
    /// The id of an allocation; in RFC 0005, and alone, the user's id of a request.
    AllocId,
    /// Number of nodes, uint64.
    Nodes,
    /// Certain nodes, string.
    NodeList,
    /// Number of cpus in total, uint64; or an array of nodes and numbers of cpus.
    Cpus,
    /// Number of cpus on each listed node, string.
    CpuCounts,
    /// Certain cpus, string.
    CpuList,
    /// Megabytes, float.
    Memory,
    /// Network resources, array.
    Network,
    /// Name of a network, string.
    NetworkId,
    /// Mbit/s, float.
    Bandwidth,
    /// Quality of service, string.
    NetworkQos,
    /// Seconds, uint32; in newer libraries `months:days:hours:minutes:seconds`.
    Time,
    /// Queue, string.
    Queue,
    /// Timeout of the caller, seconds.
    Timeout,
}

/// The names of each attribute; results carry the first.
const KEYS: [(&str, AttributeKey); 27] = [
    (pmix_attribute::REQUEST_ID, AttributeKey::RequestId),
    ("PMIX_ALLOC_REQ_ID", AttributeKey::RequestId),
    (pmix_attribute::ALLOC_ID, AttributeKey::AllocId),
    ("PMIX_ALLOC_ID", AttributeKey::AllocId),
    (pmix_attribute::NODES, AttributeKey::Nodes),
    ("PMIX_ALLOC_NUM_NODES", AttributeKey::Nodes),
    (pmix_attribute::NODE_LIST, AttributeKey::NodeList),
    ("PMIX_ALLOC_NODE_LIST", AttributeKey::NodeList),
    (pmix_attribute::CPUS, AttributeKey::Cpus),
    ("PMIX_ALLOC_NUM_CPUS", AttributeKey::Cpus),
    (pmix_attribute::CPU_COUNTS, AttributeKey::CpuCounts),
    ("PMIX_ALLOC_NUM_CPU_LIST", AttributeKey::CpuCounts),
    (pmix_attribute::CPU_LIST, AttributeKey::CpuList),
    ("PMIX_ALLOC_CPU_LIST", AttributeKey::CpuList),
    (pmix_attribute::MEMORY, AttributeKey::Memory),
    ("PMIX_ALLOC_MEM_SIZE", AttributeKey::Memory),
    (pmix_attribute::NETWORK, AttributeKey::Network),
    ("PMIX_ALLOC_NETWORK", AttributeKey::Network),
    ("PMIX_ALLOC_FABRIC", AttributeKey::Network),
    (pmix_attribute::NETWORK_ID, AttributeKey::NetworkId),
    (pmix_attribute::BANDWIDTH, AttributeKey::Bandwidth),
    (pmix_attribute::NETWORK_QOS, AttributeKey::NetworkQos),
    (pmix_attribute::TIME, AttributeKey::Time),
    ("PMIX_ALLOC_TIME", AttributeKey::Time),
    (pmix_attribute::QUEUE, AttributeKey::Queue),
    (pmix_attribute::JOB_QUEUE, AttributeKey::Queue),
    (pmix_attribute::TIMEOUT, AttributeKey::Timeout),
];

impl AttributeKey {
    /// The attribute of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = KEYS.into_iter();
        all.find(|(own, _)| *own == name).map(|(_, key)| key)
    }

    /// The name that results carry.
    pub fn name(self) -> &'static str {
        let mut all = KEYS.into_iter();
        all.find(|(_, key)| *key == self)
            .map_or("", |(name, _)| name)
    }

    /// The PMIx type of the value.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Nodes | Self::Cpus => "uint64",
            Self::Memory | Self::Bandwidth => "float",
            Self::Network => "array",
            Self::Time => "uint32",
            Self::Timeout => "int",
            _ => "string",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AttributeKey, Directive, KEYS};

    #[test]
    fn names_and_attributes_correspond() {
        for (name, key) in KEYS {
            assert_eq!(AttributeKey::from_name(name), Some(key));
            assert_eq!(AttributeKey::from_name(key.name()), Some(key));
            assert!(key.name().starts_with("pmix."), "{name}");
            assert_eq!(
                KEYS.iter().filter(|(own, _)| *own == name).count(),
                1,
                "{name}"
            );
        }
        assert_eq!(AttributeKey::from_name("pmix.alloc.nope"), None);
    }

    #[test]
    fn directives_have_the_numbers_of_the_rfc() {
        let names = ["new", "extend", "release", "reacquire", "cancel"];
        for (number, name) in (1..).zip(names) {
            let directive = Directive::from_number(number).unwrap();
            assert_eq!(directive.name(), name);
            assert_eq!(Directive::from_name(&name.to_uppercase()), Some(directive));
        }
        for number in [0, 6, 127, 128, 255, u64::MAX] {
            assert_eq!(Directive::from_number(number), None);
        }
        assert_eq!(Directive::from_name("shrink"), None);
    }
}
