//! `HeldValues`: the memory that the jobspecs of active jobs take in job manager and scheduler, by user.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use penstock_flux::RequestedResources;
use penstock_jobspec::Constraint;

use crate::spec::{Attributes, Spec};

/// The size from which on a value counts, in bytes. The number of active jobs limits that of others.
const MIN_COUNTED_BYTES: u64 = 256;

/// The approximate memory of an operator or a list of a constraint, as parsed and as the scheduler has it.
const CONSTRAINT_BYTES: u64 = 640;
/// The approximate memory of a string beside its bytes, and that of a range of hosts.
const STRING_BYTES: u64 = 64;
const RANGE_BYTES: u64 = 128;
/// The number of forms of a text that are in memory: as parsed, and in the job manager or the scheduler.
const COPIES: u64 = 3;

fn string_bytes(text: &str) -> u64 {
    STRING_BYTES + COPIES * text.len() as u64
}

/// The approximate memory of a constraint, in bytes.
fn constraint_bytes(constraint: &Constraint) -> u64 {
    let parts = match constraint {
        Constraint::And(all) | Constraint::Or(all) | Constraint::Not(all) => {
            all.iter().map(constraint_bytes).sum()
        }
        Constraint::Properties(names) => names.iter().map(|name| string_bytes(name)).sum(),
        Constraint::Hostlist(hosts) => RANGE_BYTES * hosts.range_count() as u64,
        Constraint::Ranks(ranks) => string_bytes(&ranks.to_string()),
    };
    CONSTRAINT_BYTES + parts
}

/// The bytes that count of a value.
fn counted(bytes: u64) -> u64 {
    if bytes < MIN_COUNTED_BYTES { 0 } else { bytes }
}

/// The approximate memory of a request and of attributes that a job has for itself, in bytes.
pub(crate) fn bytes_of_own(spec: &Spec, requested: &RequestedResources) -> u64 {
    counted(requested_bytes(requested)) + counted(attributes_bytes(&spec.attributes))
}

/// The approximate memory of what jobs request of the scheduler, in bytes.
fn requested_bytes(requested: &RequestedResources) -> u64 {
    let constraint = requested.request.constraint.as_ref();
    constraint.map_or(0, constraint_bytes)
}

/// The approximate memory of the attributes of jobs, in bytes.
fn attributes_bytes(attributes: &Attributes) -> u64 {
    let texts = [
        &attributes.cwd,
        &attributes.queue,
        &attributes.project,
        &attributes.bank,
    ];
    let texts = texts.into_iter().flatten().map(String::len);
    let dependencies = attributes.dependencies.iter();
    let dependencies =
        dependencies.map(|(scheme, value)| string_bytes(scheme) + string_bytes(value));
    texts.sum::<usize>() as u64 + dependencies.sum::<u64>()
}

/// The addresses of the values that a job shares with others: what it requests, its attributes and its spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses([usize; 3]);

impl Addresses {
    pub(crate) fn of(spec: &Arc<Spec>, requested: &Arc<RequestedResources>) -> Self {
        let attributes = Arc::as_ptr(&spec.attributes).addr();
        Self([
            Arc::as_ptr(requested).addr(),
            attributes,
            Arc::as_ptr(spec).addr(),
        ])
    }
}

/// The request of jobs, and their attributes, if a job refers to equal ones.
pub(crate) type SharedWith = (Option<Arc<RequestedResources>>, Option<Arc<Attributes>>);

/// A value to which active jobs of a user refer.
#[derive(Debug)]
struct HeldValue {
    jobs: u64,
    bytes: u64,
}

/// The values of one user.
#[derive(Debug, Default)]
struct UserValues {
    bytes: u64,
    by_address: HashMap<usize, HeldValue>,
}

impl UserValues {
    fn add(&mut self, address: usize, bytes: impl FnOnce() -> u64) {
        if let Some(value) = self.by_address.get_mut(&address) {
            value.jobs += 1;
            return;
        }
        let bytes = bytes();
        if bytes >= MIN_COUNTED_BYTES {
            self.bytes += bytes;
            self.by_address
                .insert(address, HeldValue { jobs: 1, bytes });
        }
    }

    fn remove(&mut self, address: usize) {
        if let Some(value) = self.by_address.get_mut(&address) {
            value.jobs -= 1;
            if value.jobs == 0 {
                self.bytes -= value.bytes;
                self.by_address.remove(&address);
            }
        }
    }
}

/// The values to which active jobs refer, each counted once for a user. A job holds its values while it is counted: no other
/// has their addresses.
#[derive(Debug, Default)]
pub(crate) struct HeldValues {
    by_user: BTreeMap<u32, UserValues>,
}

impl HeldValues {
    /// Counts the values of a job that is active from now on.
    pub(crate) fn add(
        &mut self,
        userid: u32,
        spec: &Arc<Spec>,
        requested: &Arc<RequestedResources>,
    ) {
        let Addresses([of_requested, of_attributes, of_spec]) = Addresses::of(spec, requested);
        let add = |values: &mut UserValues| {
            values.add(of_requested, || requested_bytes(requested));
            values.add(of_attributes, || attributes_bytes(&spec.attributes));
            values.add(of_spec, || spec.name.len() as u64);
        };
        if let Some(values) = self.by_user.get_mut(&userid) {
            return add(values);
        }
        // Most users have none that counts: no node of the map is made and removed for each of their jobs.
        let mut values = UserValues::default();
        add(&mut values);
        if !values.by_address.is_empty() {
            self.by_user.insert(userid, values);
        }
    }

    /// Counts the values of a job no longer.
    pub(crate) fn remove(&mut self, userid: u32, Addresses(addresses): Addresses) {
        if let Some(values) = self.by_user.get_mut(&userid) {
            for address in addresses {
                values.remove(address);
            }
            if values.by_address.is_empty() {
                self.by_user.remove(&userid);
            }
        }
    }

    /// The approximate memory of a job's values that are not counted for a user yet, in bytes. `shared` are equal values to
    /// which jobs refer.
    pub(crate) fn new_bytes(
        &self,
        userid: u32,
        spec: &Spec,
        requested: &RequestedResources,
        shared: &SharedWith,
    ) -> u64 {
        let new = |is_held: bool, bytes: u64| if is_held { 0 } else { counted(bytes) };
        let (of_requested, of_attributes) = shared;
        let is_requested = of_requested
            .as_ref()
            .is_some_and(|value| self.holds(userid, value));
        let has_attributes = of_attributes
            .as_ref()
            .is_some_and(|value| self.holds(userid, value));
        new(is_requested, requested_bytes(requested))
            + new(has_attributes, attributes_bytes(&spec.attributes))
            + new(false, spec.name.len() as u64)
    }

    /// The approximate memory of a user's values, in bytes.
    pub(crate) fn bytes_of(&self, userid: u32) -> u64 {
        self.by_user.get(&userid).map_or(0, |values| values.bytes)
    }

    /// The same of all users but the instance owner: values to which jobs of several users refer count for each of them.
    pub(crate) fn bytes_of_guests(&self, owner: u32) -> u64 {
        let users = self.by_user.iter();
        let guests = users.filter(|(userid, _)| **userid != owner);
        guests.map(|(_, values)| values.bytes).sum()
    }

    /// Whether an active job of a user refers to what this points to.
    fn holds<T>(&self, userid: u32, value: &Arc<T>) -> bool {
        let values = self.by_user.get(&userid);
        values.is_some_and(|values| values.by_address.contains_key(&Arc::as_ptr(value).addr()))
    }
}
