//! Which places have changed, for those who look later.

/// Changes that are remembered, at the least.
const SHORTEST: usize = 4096;

/// Places that have changed, oldest first. The first are forgotten, in one go, when there are
/// more than those who look would go through.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    changed: Vec<u32>,
    /// Changes before the first that is remembered.
    forgotten: u64,
    longest: usize,
}

impl Journal {
    /// For so many places.
    pub fn new(places: u32) -> Self {
        Self {
            changed: Vec::new(),
            forgotten: 0,
            longest: (places as usize).max(SHORTEST),
        }
    }

    #[inline]
    pub fn push(&mut self, place: u32) {
        if self.changed.len() >= self.longest {
            self.forgotten += self.changed.len() as u64;
            self.changed.clear();
        }
        self.changed.push(place);
    }

    /// Changes there have been.
    #[inline]
    pub fn end(&self) -> u64 {
        self.forgotten + self.changed.len() as u64
    }

    /// The places that have changed after so many changes; `None` where they are forgotten.
    #[inline]
    pub fn since(&self, seen: u64) -> Option<&[u32]> {
        let known = seen.checked_sub(self.forgotten)?;
        self.changed.get(usize::try_from(known).ok()?..)
    }
}
