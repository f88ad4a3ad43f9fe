//! Classes whose units are the same: how many there are is asked once for all of them.

use std::collections::HashMap;

use crate::machine::{ShapeId, Unit};

/// Classes with one kind of unit.
#[derive(Clone, Debug)]
pub(crate) struct Alike {
    /// One of their shapes.
    pub shape: ShapeId,
    /// Units needed, and the slot; ascending.
    members: Vec<(u64, u32)>,
}

impl Alike {
    /// The fewest units that one of them needs; nothing where there is none.
    pub fn least(&self) -> Option<u64> {
        self.members.first().map(|it| it.0)
    }

    /// Slots of the classes that need no more than so many units.
    pub fn within(&self, units: u64) -> impl Iterator<Item = u32> + '_ {
        let members = self.members.iter().take_while(move |it| it.0 <= units);
        members.map(|it| it.1)
    }
}

/// All classes of a group, by what a unit is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alikes {
    list: Vec<Alike>,
    by_unit: HashMap<Unit, usize, rustc_hash::FxBuildHasher>,
}

impl Alikes {
    pub fn iter(&self) -> impl Iterator<Item = &Alike> {
        self.list.iter()
    }

    pub fn insert(&mut self, unit: Unit, shape: ShapeId, member: (u64, u32)) {
        let at = *self.by_unit.entry(unit).or_insert(self.list.len());
        if at == self.list.len() {
            self.list.push(Alike {
                shape,
                members: Vec::new(),
            });
        }
        let members = &mut self.list[at].members;
        if let Err(place) = members.binary_search(&member) {
            members.insert(place, member);
        }
    }

    pub fn remove(&mut self, unit: Unit, member: (u64, u32)) {
        let Some(at) = self.by_unit.get(&unit) else {
            return;
        };
        let members = &mut self.list[*at].members;
        if let Ok(place) = members.binary_search(&member) {
            members.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use penstock_jobspec::Request;
    use penstock_rset::ResourceSet;

    use super::Alikes;
    use crate::machine::Machine;

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
    fn classes_are_together_by_their_unit_and_found_by_what_they_need() {
        let mut machine = Machine::new(&ResourceSet::new()).unwrap();
        let mut alikes = Alikes::default();
        for (slot, (slots, cores)) in (0..).zip([(3, 1), (1, 1), (8, 1), (2, 4)]) {
            let shape = machine.shape(&request(slots, cores));
            let member = (u64::from(slots), slot);
            alikes.insert(machine.unit(shape), shape, member);
            // Once more is once.
            alikes.insert(machine.unit(shape), shape, member);
        }
        let within = |alikes: &Alikes, units: u64| -> Vec<Vec<u32>> {
            let all = alikes.iter();
            all.map(|alike| alike.within(units).collect()).collect()
        };
        assert_eq!(within(&alikes, 0), [vec![], vec![]] as [Vec<u32>; 2]);
        assert_eq!(within(&alikes, 3), [vec![1, 0], vec![3]]);
        assert_eq!(within(&alikes, 8), [vec![1, 0, 2], vec![3]]);

        let shape = machine.shape(&request(2, 4));
        alikes.remove(machine.unit(shape), (2, 3));
        let shape = machine.shape(&request(1, 1));
        alikes.remove(machine.unit(shape), (1, 1));
        assert_eq!(within(&alikes, 8), [vec![0, 2], vec![]]);
    }
}
