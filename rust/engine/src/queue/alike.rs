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
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
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
