//! EASY backfill: in each group of queues, the first job that does not fit has a shadow time, the
//! earliest at which it can start as planned. Later jobs start where they end by then, or take
//! only what it leaves over.

use super::shadow::{Overlay, Shadow};
use super::walk::{Backfill, Later, Verdict};
use crate::books::Books;
use crate::machine::{ShapeId, Shares};

/// The job of a group that waits.
#[derive(Clone, Copy, Debug, Default)]
struct First {
    shape: Option<ShapeId>,
    /// Found when a later job fits.
    shadow: Option<Shadow>,
}

/// Scratch memory of the policy, by group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Easy {
    firsts: Vec<First>,
    overlays: Vec<Overlay>,
    now: f64,
}

impl Easy {
    /// To be called before a pass.
    pub fn begin(&mut self, groups: usize, now: f64) {
        self.firsts.clear();
        self.firsts.resize(groups, First::default());
        self.overlays.resize_with(groups, Overlay::default);
        self.now = now;
    }

    fn shadow(&mut self, books: &mut Books, group: u32) -> Option<Shadow> {
        let first = &mut self.firsts[group as usize];
        if first.shadow.is_none() {
            let overlay = &mut self.overlays[group as usize];
            first.shadow = Some(Shadow::of(books, first.shape?, self.now, overlay));
        }
        first.shadow
    }
}

impl Backfill for Easy {
    fn wait(&mut self, books: &mut Books, group: u32, class: u32, _: f64) -> Later {
        self.firsts[group as usize] = First {
            shape: Some(books.queue.classes[class as usize].shape),
            shadow: None,
        };
        Later::Fitting
    }

    fn judge(&mut self, books: &mut Books, group: u32, class: u32, limit: f64) -> Verdict {
        let Some(shares) = books.place(class) else {
            return Verdict::Unfit;
        };
        let Some(shadow) = self.shadow(books, group) else {
            return Verdict::Unfit;
        };
        if self.now + limit <= shadow.time {
            return Verdict::Start(shares);
        }
        let overlay = &self.overlays[group as usize];
        let (machine, shape) = (
            &mut books.machine,
            books.queue.classes[class as usize].shape,
        );
        if shadow.cost(machine, overlay, &shares) <= shadow.spare {
            return Verdict::Start(shares);
        }
        if shadow.fungible {
            // What a placement costs is the same wherever it is, unless the nodes say how much
            // it takes.
            let request = machine.request(shape);
            let passing = request.exclusive || !request.is_exact();
            let by = shadow.time;
            return Verdict::Harm { by, passing };
        }
        match shadow.place_beside(machine, overlay, shape) {
            Some(shares) => Verdict::Start(shares),
            None => Verdict::Harm {
                by: shadow.time,
                passing: true,
            },
        }
    }

    fn admit(&mut self, books: &Books, group: u32, _: u32, limit: f64, shares: &Shares) {
        let Some(shadow) = &mut self.firsts[group as usize].shadow else {
            return;
        };
        let overlay = &mut self.overlays[group as usize];
        let back = self.now + limit <= shadow.time;
        if !back {
            let cost = shadow.cost(&books.machine, overlay, shares);
            shadow.spare = shadow.spare.saturating_sub(cost);
        }
        shadow.settle(&books.machine, overlay, shares, back);
    }
}
