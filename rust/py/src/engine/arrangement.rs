//! The order of the queue as a callable wants it, in terms of priorities.

use std::cmp::Ordering;

use penstock_engine::{Order, QueueOptions, ordered_priorities};
use penstock_jobspec::job_id::JobId;
use pyo3::prelude::*;

use super::columns::{self, ColumnType};
use super::core_state::{CoreState, EngineCore};
use crate::errors::EngineError;

const ORDER_COLUMN: ColumnType<u64> = ColumnType {
    name: "order",
    expected: "a position in the columns",
    accepts: |_| true,
};
const SCORE_COLUMN: ColumnType<f64> = ColumnType {
    name: "score",
    expected: "a number",
    accepts: |score| !score.is_nan(),
};

impl CoreState {
    /// Orders all queues by priority.
    fn order_by_priority(&mut self) {
        if !std::mem::replace(&mut self.by_priority, true) {
            self.apply_orders();
        }
    }

    /// Orders all queues by their own orders again.
    fn restore_orders(&mut self) {
        if std::mem::take(&mut self.by_priority) {
            self.apply_orders();
        }
    }

    /// Gives the engine the order of each queue that has an order of its own.
    fn apply_orders(&mut self) {
        for (name, options) in &self.queues {
            if options.order != Order::Priority {
                let effective = self.effective(options);
                let queue = self.engine.queue(name);
                self.engine.set_queue(queue, effective);
            }
        }
    }

    /// A queue's options as the engine has them for now.
    pub(super) fn effective(&self, options: &QueueOptions) -> QueueOptions {
        let mut options = options.clone();
        if self.by_priority {
            options.order = Order::Priority;
        }
        options
    }

    /// Whether a job is pending only because the last order does not have it.
    pub(super) fn is_left_out(&self, id: JobId) -> bool {
        let own = self.arranged.get(&id);
        own.is_some_and(|own| *own > 0) && self.engine.priority(id) == Some(0)
    }

    /// The jobs that the last order does not have, by ascending id.
    pub(super) fn left_out(&self) -> Vec<JobId> {
        let ids = self.arranged.keys().copied();
        let mut ids: Vec<_> = ids.filter(|id| self.is_left_out(*id)).collect();
        ids.sort_unstable();
        ids
    }

    /// Puts jobs of the queue in this order, and all others behind, held.
    fn arrange(&mut self, order: &[JobId], others: &[JobId]) -> PyResult<()> {
        self.order_by_priority();
        let mut known = Vec::with_capacity(order.len());
        for id in order.iter().chain(others) {
            let Some(priority) = self.engine.priority(*id) else {
                return Err(EngineError::new_err(format!(
                    "job {} has left the queue while it was put in order",
                    id.get()
                )));
            };
            let is_new = !self.arranged.contains_key(id);
            self.arranged.entry(*id).or_insert(priority);
            if known.len() < order.len() {
                known.push(Some(priority).filter(|priority| !is_new && *priority > 0));
            }
        }
        let priorities = ordered_priorities(&known);
        let mut changes = Vec::new();
        for ((id, priority), known) in order.iter().zip(priorities).zip(known) {
            if known != Some(priority) {
                changes.push((*id, priority));
            }
        }
        changes.extend(others.iter().map(|id| (*id, 0)));
        self.engine.prioritize(&changes);
        Ok(())
    }
}

#[pymethods]
impl EngineCore {
    /// Orders the jobs by positions in `ids`; jobs left out are held.
    fn arrange(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        order: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let ids = columns::ids(ids)?;
        let order = columns::each(order, ORDER_COLUMN)?;
        let mut used = vec![false; ids.len()];
        let mut first = Vec::with_capacity(order.len());
        for (row, found) in order.into_iter().enumerate() {
            let position = usize::try_from(found).ok();
            let Some((position, used)) = position.and_then(|at| Some((at, used.get_mut(at)?)))
            else {
                let behind = ids.len();
                return Err(EngineError::new_err(format!(
                    "order[{row}]: expected a position below {behind}, found {found}"
                )));
            };
            if std::mem::replace(used, true) {
                return Err(EngineError::new_err(format!(
                    "order[{row}]: position {found} occurs twice"
                )));
            }
            first.push(ids[position]);
        }
        let others = ids.iter().zip(&used).filter(|(_, used)| !**used);
        let others: Vec<_> = others.map(|(id, _)| *id).collect();
        let mut state = self.lock()?;
        let state = &mut *state;
        py.detach(|| state.arrange(&first, &others))
    }

    /// Orders the jobs by score, the highest first.
    fn arrange_by_score(
        &self,
        py: Python<'_>,
        ids: &Bound<'_, PyAny>,
        scores: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let ids = columns::ids(ids)?;
        let scores = columns::each(scores, SCORE_COLUMN)?;
        if scores.len() != ids.len() {
            let (expected, found) = (ids.len(), scores.len());
            return Err(EngineError::new_err(format!(
                "score: expected {expected} numbers, one for each job, found {found}"
            )));
        }
        let mut state = self.lock()?;
        let state = &mut *state;
        let arrange = || {
            let mut order: Vec<_> = (0..ids.len()).collect();
            order.sort_by(|a, b| {
                scores[*b]
                    .partial_cmp(&scores[*a])
                    .unwrap_or(Ordering::Equal)
            });
            let order: Vec<_> = order.into_iter().map(|at| ids[at]).collect();
            state.arrange(&order, &[])
        };
        py.detach(arrange)
    }

    /// Restores the jobs' own priorities.
    fn disarrange(&self) -> PyResult<()> {
        let mut state = self.lock()?;
        let changes: Vec<_> = state.arranged.drain().collect();
        state.engine.prioritize(&changes);
        state.restore_orders();
        Ok(())
    }
}
