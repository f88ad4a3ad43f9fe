use std::collections::BTreeMap;

/// The connection of a task to libpmix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// The task has never connected.
    Never,
    /// The task is connected, or has been and has not finalized.
    Open,
    /// The task has finalized.
    Finalized,
}

/// The running tasks, and the ended ones that libpmix still counts.
///
/// libpmix (4.2, 5.0) counts the tasks that a fence waits for, and subtracts one for each connection that is lost
/// without a finalize: from the fences in progress, and from the number for later ones. It never subtracts a task that
/// ends before it connects, or after it has finalized, from the latter. Such a task is *stale*: a stand-in has to
/// connect for it and lose its connection.
#[derive(Debug)]
pub struct Tasks {
    running: BTreeMap<u32, Connection>,
    stale: Vec<u32>,
}

impl Tasks {
    /// Makes the tasks of these ranks, none of which has connected.
    pub fn new(ranks: &[u32]) -> Self {
        Self {
            running: ranks
                .iter()
                .map(|&rank| (rank, Connection::Never))
                .collect(),
            stale: Vec::new(),
        }
    }

    /// Records that a task has connected; a connection for an ended task is a stand-in's.
    pub fn record_connection(&mut self, rank: u32) {
        self.set(rank, Connection::Open);
    }

    /// Records that a task has finalized.
    pub fn record_finalize(&mut self, rank: u32) {
        self.set(rank, Connection::Finalized);
    }

    fn set(&mut self, rank: u32, new: Connection) {
        if let Some(connection) = self.running.get_mut(&rank) {
            *connection = new;
        }
    }

    /// Records that a task has ended. Returns whether libpmix subtracts it by itself, by the loss of its connection; it is
    /// false for a task whose end is recorded already.
    pub fn record_end(&mut self, rank: u32) -> bool {
        match self.running.remove(&rank) {
            Some(Connection::Never | Connection::Finalized) => {
                self.stale.push(rank);
                false
            }
            Some(Connection::Open) => true,
            None => false,
        }
    }

    /// The next stale task; `None` while no task is connected that could wait for it in a fence.
    pub fn next_stale(&mut self) -> Option<u32> {
        if self
            .running
            .values()
            .any(|connection| *connection == Connection::Open)
        {
            self.stale.pop()
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
        /// A model of libpmix: lost connections and stale tasks together are each ended task, once.
        #[test]
        fn each_ended_task_is_subtracted_once(steps in prop::collection::vec(step(), 0..40)) {
            let mut tasks = Tasks::new(&[0, 1, 2, 3]);
            let mut open = [false; 4];
            let mut running = [true; 4];
            let mut counted = 4;
            for step in steps {
                match step {
                    Step::Connect(rank) if running[rank as usize] => {
                        open[rank as usize] = true;
                        tasks.record_connection(rank);
                    }
                    Step::Finalize(rank) if open[rank as usize] => {
                        open[rank as usize] = false;
                        tasks.record_finalize(rank);
                    }
                    Step::End(rank) if running[rank as usize] => {
                        running[rank as usize] = false;
                        let lost = std::mem::take(&mut open[rank as usize]);
                        counted -= u32::from(lost);
                        prop_assert_eq!(tasks.record_end(rank), lost);
                        prop_assert!(!tasks.record_end(rank));
                    }
                    _ => {}
                }
                while let Some(rank) = tasks.next_stale() {
                    prop_assert!(!running[rank as usize]);
                    counted -= 1;
                }
                if open.contains(&true) {
                    let left = running.iter().filter(|is_running| **is_running).count();
                    prop_assert_eq!(counted as usize, left);
                }
            }
        }
    }

    #[test]
    fn a_stand_in_is_no_task() {
        let mut tasks = Tasks::new(&[0, 1]);
        tasks.record_connection(0);
        assert!(!tasks.record_end(1));
        assert_eq!(tasks.next_stale(), Some(1));
        tasks.record_connection(1);
        assert!(tasks.record_end(0));
        assert_eq!(tasks.next_stale(), None);
    }
}
