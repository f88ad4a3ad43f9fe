//! Nodes that are all alike, of which every job takes whole ones: which of them a job gets makes
//! no difference to when it starts. The scheduler then has one pool to look after, whose cores are
//! the nodes, and the ranks are counted out here, from the lowest on. The starts and the ranks are
//! those that the nodes themselves would have given; the cost no longer grows with the nodes of a
//! job, but with the ranges of their ranks.

use std::collections::HashMap;

use penstock_engine::{Engine, Options, Selection};
use penstock_idset::IdSet;
use penstock_jobspec::{Count, Request};

use crate::Error;
use crate::setup::{Hardware, Setup};

/// Who has which of the nodes.
pub(crate) struct Units {
    free: IdSet,
    held: HashMap<u32, IdSet>,
    /// Cores of a node.
    cores: u64,
    /// Nodes of a job of each shape.
    counts: Vec<u32>,
    /// Why jobs of some shapes can never run, in the words of the nodes.
    notes: HashMap<u32, String>,
}

impl Units {
    /// The nodes, and what the pool of them is asked for; nothing where it makes a difference which
    /// node a job has.
    pub fn of(
        hardware: &Hardware,
        setup: &Setup,
        requests: &[Request],
    ) -> Result<Option<(Self, Vec<Request>)>, Error> {
        let fails = setup.chance.is_some() || !setup.failures.is_empty();
        if hardware.is_pool || fails || setup.selection != Selection::First {
            return Ok(None);
        }
        let all = hardware.resources.nodes();
        let mut sizes = all.map(|node| (node.cores.len(), node.gpus.len()));
        let Some(size) = sizes.next().filter(|first| sizes.all(|it| it == *first)) else {
            return Ok(None);
        };
        let mut way = None;
        let mut counts = Vec::with_capacity(requests.len());
        let (mut pooled, mut large) = (Vec::with_capacity(requests.len()), Vec::new());
        for (shape, request) in (0u32..).zip(requests) {
            let Some((its, count)) = whole(request, size) else {
                return Ok(None);
            };
            // Beside each other they are not quite the same to every policy.
            if *way.get_or_insert(its) != its {
                return Ok(None);
            }
            if u64::from(count) > hardware.nodes {
                large.push(shape);
            }
            counts.push(count);
            pooled.push(Request {
                nnodes: None,
                exclusive: false,
                slots: Count::exactly(count),
                cores_per_slot: Count::exactly(1),
                gpus_per_slot: Count::exactly(0),
                duration: request.duration,
                constraint: None,
            });
        }
        let mut notes = HashMap::new();
        if !large.is_empty() {
            let mut engine = Engine::with_options(&hardware.resources, Options::default())
                .map_err(|error| Error::new(error.to_string()))?;
            for shape in large {
                if let Err(note) = engine.feasible(&requests[shape as usize]) {
                    notes.insert(shape, note);
                }
            }
        }
        let units = Self {
            free: hardware.resources.ranks(),
            held: HashMap::new(),
            cores: size.0,
            counts,
            notes,
        };
        Ok(Some((units, pooled)))
    }

    /// A job of a shape starts: returns its cores and the ranks of its nodes.
    pub fn take(&mut self, place: u32, shape: u32) -> (u64, &IdSet) {
        let nodes = u64::from(self.counts[shape as usize]);
        let taken = self.free.take_first(nodes).unwrap_or_default();
        let held = self.held.entry(place).or_default();
        *held = taken;
        (nodes * self.cores, held)
    }

    /// A job gives its nodes back.
    pub fn give(&mut self, place: u32) {
        if let Some(ranks) = self.held.remove(&place) {
            self.free.union_with(&ranks);
        }
    }

    /// Why jobs of a shape can never run.
    pub fn note(&self, shape: u32) -> Option<&String> {
        self.notes.get(&shape)
    }
}

/// How a request is for whole nodes, if it is, of which any will do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Cores, each of which is a node.
    Cores,
    /// Nodes for itself.
    Nodes,
}

/// How a request is for whole nodes of so many cores and gpus, and for how many; nothing where it
/// takes parts of nodes, asks for certain ones, or could be met in several ways.
fn whole(request: &Request, (cores, gpus): (u64, u64)) -> Option<(Way, u32)> {
    if request.constraint.is_some() || !request.is_exact() {
        return None;
    }
    let slots = u64::from(request.slots.min());
    let (each, gpus_each) = (request.cores_per_slot.min(), request.gpus_per_slot.min());
    match &request.nnodes {
        Some(nodes) if request.exclusive => {
            let fits = slots * u64::from(each) <= cores && slots * u64::from(gpus_each) <= gpus;
            fits.then(|| (Way::Nodes, nodes.min()))
        }
        None if (cores, each, gpus_each) == (1, 1, 0) => Some((Way::Cores, request.slots.min())),
        _ => None,
    }
}
