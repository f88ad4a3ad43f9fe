//! Properties: names attached to ranks.

use std::collections::BTreeMap;

use penstock_idset::IdSet;

use crate::{Error, ResourceSet};

/// Characters that RFC 20 forbids in a property's name.
const FORBIDDEN_CHARS: &[char] = &['!', '&', '\'', '"', '^', '`', '|', '(', ')'];

/// Marks a property that is local to the instance and left out of a job's R.
const LOCAL_PREFIX: char = '+';

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::rejected(
            "expected a property name, found an empty one",
        ));
    }
    match name
        .char_indices()
        .find(|(_, character)| FORBIDDEN_CHARS.contains(character))
    {
        Some((at, character)) => Err(Error::rejected(format!(
            "invalid property name {name:?}: expected none of ! & ' \" ^ ` | ( ) but found {character} at byte {at}"
        ))),
        None => Ok(()),
    }
}

pub(crate) fn check_ranks(name: &str, targets: &IdSet, ranks: &IdSet) -> Result<(), Error> {
    if targets.is_subset(ranks) {
        return Ok(());
    }
    let strange = targets.difference(ranks);
    let there = if ranks.is_empty() {
        "has no ranks".to_owned()
    } else {
        format!("has ranks {ranks}")
    };
    Err(Error::rejected(format!(
        "property `{name}` is on ranks {strange}, but the set {there}"
    )))
}

impl ResourceSet {
    /// The properties, and the ranks that have each; never empty.
    pub fn properties(&self) -> &BTreeMap<String, IdSet> {
        &self.view().properties
    }

    /// Adds a property to ranks of the set.
    ///
    /// # Errors
    ///
    /// The name is empty or holds one of `` ! & ' " ^ ` | ( ) ``, a rank is not in the set, or the R has no
    /// `execution`.
    pub fn add_property(&mut self, name: &str, ranks: &IdSet) -> Result<(), Error> {
        check_name(name)?;
        let execution = self.execution_mut()?;
        check_ranks(name, ranks, &execution.ranks)?;
        if !ranks.is_empty() {
            execution
                .properties
                .entry(name.to_owned())
                .or_default()
                .union_with(ranks);
        }
        Ok(())
    }

    /// Removes a property from ranks; ranks that are not in the set or do not have it are ignored.
    pub fn remove_property(&mut self, name: &str, ranks: &IdSet) {
        let Some(execution) = &mut self.execution else {
            return;
        };
        if let Some(targets) = execution.properties.get_mut(name) {
            targets.subtract(ranks);
            if targets.is_empty() {
                execution.properties.remove(name);
            }
        }
    }

    /// Returns the set without properties that start with `+`, which are local to the instance.
    #[must_use]
    pub fn without_local_properties(&self) -> Self {
        let mut set = self.clone();
        if let Some(execution) = &mut set.execution {
            execution
                .properties
                .retain(|name, _| !name.starts_with(LOCAL_PREFIX));
        }
        set
    }
}

/// Merges the properties of both sets.
pub(crate) fn union(
    left: &BTreeMap<String, IdSet>,
    right: &BTreeMap<String, IdSet>,
) -> BTreeMap<String, IdSet> {
    let mut both = left.clone();
    for (name, ranks) in right {
        both.entry(name.clone()).or_default().union_with(ranks);
    }
    both
}

/// Restricts properties to `ranks`.
pub(crate) fn restrict(
    properties: &BTreeMap<String, IdSet>,
    ranks: &IdSet,
) -> BTreeMap<String, IdSet> {
    let restricted = properties
        .iter()
        .map(|(name, targets)| (name.clone(), targets.intersection(ranks)));
    restricted
        .filter(|(_, targets)| !targets.is_empty())
        .collect()
}
