//! Classes by their kind of unit: the units available are counted once for all classes with the
//! same kind.

use std::collections::HashMap;

use crate::node_table::{ShapeId, Unit};

/// A class of a group; ordered by need, then slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Member {
    /// The units that a job of it needs.
    pub need: u64,
    /// Its slot in the group.
    pub slot: u32,
    /// Its shape.
    pub shape: ShapeId,
}

/// The classes with one kind of unit.
#[derive(Clone, Debug)]
pub(crate) struct SameUnit {
    unit: Unit,
    /// In ascending order; at least one.
    members: Vec<Member>,
}

impl SameUnit {
    /// The member with the least need.
    pub fn least(&self) -> Option<&Member> {
        self.members.first()
    }

    /// The slots of the members that need at most `units` units.
    pub fn within(&self, units: u64) -> impl Iterator<Item = u32> + '_ {
        self.members
            .iter()
            .take_while(move |member| member.need <= units)
            .map(|member| member.slot)
    }
}

/// The classes of a group, by their kind of unit.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassesByUnit {
    list: Vec<SameUnit>,
    by_unit: HashMap<Unit, usize, rustc_hash::FxBuildHasher>,
}

impl ClassesByUnit {
    pub fn iter(&self) -> impl Iterator<Item = &SameUnit> {
        self.list.iter()
    }

    pub fn insert(&mut self, unit: Unit, member: Member) {
        let at = *self.by_unit.entry(unit).or_insert(self.list.len());
        if at == self.list.len() {
            self.list.push(SameUnit {
                unit,
                members: Vec::new(),
            });
        }
        let members = &mut self.list[at].members;
        if let Err(at) = members.binary_search(&member) {
            members.insert(at, member);
        }
    }

    pub fn remove(&mut self, unit: Unit, member: Member) {
        let Some(at) = self.by_unit.get(&unit).copied() else {
            return;
        };
        let members = &mut self.list[at].members;
        if let Ok(at) = members.binary_search(&member) {
            members.remove(at);
        }
        if !members.is_empty() {
            return;
        }
        self.by_unit.remove(&unit);
        self.list.swap_remove(at);
        if let Some(moved) = self.list.get(at) {
            self.by_unit.insert(moved.unit, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_jobspec::Request;
    use penstock_rset::ResourceSet;

    use super::{ClassesByUnit, Member};
    use crate::node_table::NodeTable;

    fn request(slots: u32, cores: u32) -> Request {
        Request {
            nnodes: None,
            exclusive: false,
            slots: slots.into(),
            cores_per_slot: cores.into(),
            gpus_per_slot: 0.into(),
            duration: 0.0,
            constraint: None,
        }
    }

    #[test]
    fn classes_are_grouped_by_unit_and_found_by_need() {
        let mut node_table = NodeTable::new(&ResourceSet::new()).unwrap();
        let mut alikes = ClassesByUnit::default();
        for (slot, (slots, cores)) in (0..).zip([(3, 1), (1, 1), (8, 1), (2, 4)]) {
            let shape = node_table.shape(&request(slots, cores));
            node_table.hold(shape);
            let member = Member {
                need: u64::from(slots),
                slot,
                shape,
            };
            alikes.insert(node_table.unit(shape), member);
            // A second insertion changes nothing.
            alikes.insert(node_table.unit(shape), member);
        }
        let within = |alikes: &ClassesByUnit, units: u64| -> Vec<Vec<u32>> {
            let all = alikes.iter();
            all.map(|alike| alike.within(units).collect()).collect()
        };
        assert_eq!(within(&alikes, 0), [vec![], vec![]] as [Vec<u32>; 2]);
        assert_eq!(within(&alikes, 3), [vec![1, 0], vec![3]]);
        assert_eq!(within(&alikes, 8), [vec![1, 0, 2], vec![3]]);

        let mut remove = |alikes: &mut ClassesByUnit, slots: u32, cores: u32, slot: u32| {
            let shape = node_table.shape(&request(slots, cores));
            let need = u64::from(slots);
            alikes.remove(node_table.unit(shape), Member { need, slot, shape });
        };
        // A unit without members is removed, and the others are still found.
        remove(&mut alikes, 1, 1, 1);
        assert_eq!(within(&alikes, 8), [vec![0, 2], vec![3]]);
        remove(&mut alikes, 3, 1, 0);
        remove(&mut alikes, 8, 1, 2);
        assert_eq!(within(&alikes, 8), [[3]]);
        remove(&mut alikes, 2, 4, 3);
        assert!(within(&alikes, 8).is_empty() && alikes.by_unit.is_empty());
    }
}
