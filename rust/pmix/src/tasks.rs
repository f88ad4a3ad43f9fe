use std::collections::BTreeMap;

/// How a task stands with the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// It has never connected.
    None,
    /// It is connected, or was and has not said that it goes.
    Open,
    /// It has finalized.
    Finalized,
}

/// The tasks that go on, and those that have ended and that the library still counts.
///
/// libpmix (4.2, 5.0) counts how many tasks a fence waits for, and takes off one for each connection that is lost
/// without a finalize: from the fences that are under way, and from the number for those to come. A task that ends
/// before it connects, or after it has finalized, is never taken off the latter; it is *owed*: somebody has to connect
/// in its place and be lost.
#[derive(Debug)]
pub struct Tasks {
    running: BTreeMap<u32, Link>,
    owed: Vec<u32>,
}

impl Tasks {
    /// None of them has connected yet.
    pub fn new(ranks: &[u32]) -> Self {
        Self {
            running: ranks.iter().map(|&rank| (rank, Link::None)).collect(),
            owed: Vec::new(),
        }
    }

    /// A connection in a task's name; one in the name of a task that has ended is no task's.
    pub fn connected(&mut self, rank: u32) {
        self.set(rank, Link::Open);
    }

    /// A task has said that it goes.
    pub fn finalized(&mut self, rank: u32) {
        self.set(rank, Link::Finalized);
    }

    fn set(&mut self, rank: u32, link: Link) {
        if let Some(it) = self.running.get_mut(&rank) {
            *it = link;
        }
    }

    /// A task has ended: whether the library has taken it off, or takes it off as soon as it sees the connection's end.
    pub fn ended(&mut self, rank: u32) -> bool {
        match self.running.remove(&rank) {
            Some(Link::None | Link::Finalized) => {
                self.owed.push(rank);
                false
            }
            Some(Link::Open) | None => true,
        }
    }

    /// A task that is owed, to be taken off now; none while nobody is connected who could wait for it.
    pub fn next_owed(&mut self) -> Option<u32> {
        if self.running.values().any(|link| *link == Link::Open) {
            self.owed.pop()
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Connect(u32),
        Finalize(u32),
        End(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let rank = 0_u32..4;
        prop_oneof![
            rank.clone().prop_map(Step::Connect),
            rank.clone().prop_map(Step::Finalize),
            rank.prop_map(Step::End),
        ]
    }

    proptest! {
        /// As the library counts: what it takes off by itself and what is owed is each task that has ended, once.
        #[test]
        fn each_task_that_has_ended_is_taken_off_once(steps in prop::collection::vec(step(), 0..40)) {
            let mut tasks = Tasks::new(&[0, 1, 2, 3]);
            let mut open = [false; 4];
            let mut running = [true; 4];
            let mut counted = 4;
            for step in steps {
                match step {
                    Step::Connect(rank) if running[rank as usize] => {
                        open[rank as usize] = true;
                        tasks.connected(rank);
                    }
                    Step::Finalize(rank) if open[rank as usize] => {
                        open[rank as usize] = false;
                        tasks.finalized(rank);
                    }
                    Step::End(rank) if running[rank as usize] => {
                        running[rank as usize] = false;
                        let lost = std::mem::take(&mut open[rank as usize]);
                        counted -= u32::from(lost);
                        prop_assert_eq!(tasks.ended(rank), lost);
                    }
                    _ => {}
                }
                while let Some(rank) = tasks.next_owed() {
                    prop_assert!(!running[rank as usize]);
                    counted -= 1;
                }
                if open.contains(&true) {
                    let left = running.iter().filter(|it| **it).count();
                    prop_assert_eq!(counted as usize, left);
                }
            }
        }
    }

    #[test]
    fn who_connects_in_the_place_of_a_task_is_no_task() {
        let mut tasks = Tasks::new(&[0, 1]);
        tasks.connected(0);
        assert!(!tasks.ended(1));
        assert_eq!(tasks.next_owed(), Some(1));
        tasks.connected(1);
        assert!(tasks.ended(0));
        assert_eq!(tasks.next_owed(), None);
    }
}
