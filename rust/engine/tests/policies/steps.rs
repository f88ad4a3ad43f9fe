//! Operations on an engine and its model: random machines, jobs and steps.

use penstock_jobspec::{Constraint, Count, Request};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) cores: u32,
    pub(crate) gpus: u32,
    pub(crate) big: bool,
    pub(crate) up: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub(crate) nnodes: Option<u32>,
    pub(crate) exclusive: bool,
    pub(crate) slots: u32,
    pub(crate) cores: u32,
    pub(crate) gpus: u32,
    pub(crate) big: bool,
    pub(crate) limit: u32,
    pub(crate) priority: u32,
}

impl Want {
    pub(crate) fn request(self) -> Request {
        Request {
            nnodes: self.nnodes.map(Count::exactly),
            exclusive: self.exclusive && self.nnodes.is_some(),
            slots: Count::exactly(self.slots),
            cores_per_slot: Count::exactly(self.cores),
            gpus_per_slot: Count::exactly(self.gpus),
            duration: f64::from(self.limit),
            constraint: self
                .big
                .then(|| Constraint::Properties(vec!["big".to_owned()])),
        }
    }

    pub(crate) fn limit(self) -> f64 {
        match self.limit {
            0 => f64::INFINITY,
            limit => f64::from(limit),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Submit(Want),
    Wait(u32),
    Finish(usize),
    Cancel(usize),
    Prioritize(usize, u32),
    Mark(usize, bool),
    /// Advances to the next planned end, and ends all jobs that are due.
    Due,
}

pub(crate) fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let node = (1_u32..6, 0_u32..3, any::<bool>(), prop::bool::weighted(0.9));
    let node = node.prop_map(|(cores, gpus, big, up)| Node {
        cores,
        gpus,
        big,
        up,
    });
    prop::collection::vec(node, 1..6)
}

pub(crate) fn want() -> impl Strategy<Value = Want> {
    let shape = (
        prop::option::weighted(0.4, 1_u32..4),
        any::<bool>(),
        1_u32..6,
        1_u32..4,
        prop_oneof![3 => Just(0_u32), 1 => 1_u32..3],
        prop::bool::weighted(0.2),
    );
    // Mostly one-core slots, whose sums decide.
    let pool = (1_u32..12).prop_map(|slots| (None, false, slots, 1, 0, false));
    let shape = prop_oneof![2 => shape, 1 => pool];
    (shape, 0_u32..9, 0_u32..4).prop_map(|(shape, limit, priority)| {
        let (nnodes, exclusive, slots, cores, gpus, big) = shape;
        let slots = if nnodes.is_some() {
            slots.div_ceil(2)
        } else {
            slots
        };
        Want {
            nnodes,
            exclusive: exclusive && nnodes.is_some(),
            slots,
            cores,
            gpus,
            big,
            limit,
            priority,
        }
    })
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => want().prop_map(Step::Submit),
        3 => (0_u32..6).prop_map(Step::Wait),
        4 => (0_usize..20).prop_map(Step::Finish),
        4 => Just(Step::Due),
        1 => (0_usize..20).prop_map(Step::Cancel),
        1 => (0_usize..20, 0_u32..4).prop_map(|(job, to)| Step::Prioritize(job, to)),
        1 => (0_usize..6, any::<bool>()).prop_map(|(node, up)| Step::Mark(node, up)),
    ]
}
