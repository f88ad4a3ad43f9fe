//! Selection policies: in which order the nodes that fit are taken.
//!
//! A policy is a [`Walk`](walk::Walk) over the leaves of a tree whose numbers are large enough. To
//! add one, write its walk, and name it in [`Selection`] and in `Search::pick_in_order`.

mod contiguous;
mod thrifty;
mod walk;

use std::fmt;
use std::str::FromStr;

pub(super) use contiguous::{smallest_row, smallest_span};
pub(super) use thrifty::waste;
pub(super) use walk::{First, Pack, Spread, Walk};

use crate::Error;

/// Which of the nodes that fit are allocated to a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Selection {
    /// The nodes with the lowest ranks.
    #[default]
    First,
    /// The fullest nodes: with the fewest free cores (or, if a slot has gpus, with room for the
    /// fewest such slots); of equal ones the lowest ranks.
    Pack,
    /// The emptiest nodes: with the most free cores (or slots, as above); of equal ones the lowest
    /// ranks.
    Spread,
    /// The nodes with the fewest gpus, if none are requested, then with the fewest properties that
    /// the constraint does not name; of equal ones the lowest ranks.
    Thrifty,
    /// If several nodes are needed, the nodes that span the fewest ranks: the first smallest span
    /// among the first nodes that fit, eight for each node or slot requested and at least 64.
    /// Otherwise the nodes with the lowest ranks.
    Contiguous,
}

impl Selection {
    /// All selection policies.
    pub const ALL: [Self; 5] = [
        Self::First,
        Self::Pack,
        Self::Spread,
        Self::Thrifty,
        Self::Contiguous,
    ];

    /// The name of the policy.
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Pack => "pack",
            Self::Spread => "spread",
            Self::Thrifty => "thrifty",
            Self::Contiguous => "contiguous",
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Selection {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL
            .into_iter()
            .find(|selection| selection.name() == text);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let found: String = text.chars().take(40).flat_map(char::escape_debug).collect();
            Error::new(format!(
                "invalid selection policy `{found}`: expected one of {names}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Selection;

    #[test]
    fn names_parse_as_they_are_written() {
        for selection in Selection::ALL {
            assert_eq!(selection.to_string().parse(), Ok(selection));
        }
        assert_eq!(
            "best".parse::<Selection>().unwrap_err().to_string(),
            "invalid selection policy `best`: expected one of first, pack, spread, thrifty, contiguous"
        );
    }
}
