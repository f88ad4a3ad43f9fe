//! Priorities for an order that a program has chosen.

/// The highest priority that is assigned.
const MAX_PRIORITY: u32 = u32::MAX - 1;

/// Descending priorities for jobs in a chosen order.
///
/// `known` has the priority of each job from an earlier order, `None` for a new job. The known
/// priorities stay if the new ones fit between them; otherwise all change.
///
/// ```
/// use penstock_engine::ordered_priorities;
///
/// assert_eq!(ordered_priorities(&[Some(900), None, Some(100)]), [900, 500, 100]);
/// ```
pub fn ordered_priorities(known: &[Option<u32>]) -> Vec<u32> {
    between(known).unwrap_or_else(|| apart(known.len()))
}

/// The known priorities with new ones between them; `None` if they do not fit.
fn between(known: &[Option<u32>]) -> Option<Vec<u32>> {
    let mut priorities = Vec::with_capacity(known.len());
    let mut above = u32::MAX;
    let mut rest = known;
    while !rest.is_empty() {
        let new = rest
            .iter()
            .take_while(|priority| priority.is_none())
            .count();
        let below = rest.get(new).copied().flatten();
        if below.is_some_and(|below| below >= above) {
            return None;
        }
        let floor = below.unwrap_or(0);
        let step = (above - floor) / u32::try_from(new + 1).ok()?;
        if step == 0 {
            return None;
        }
        for _ in 0..new {
            above -= step;
            if above <= floor {
                return None;
            }
            priorities.push(above);
        }
        if let Some(below) = below {
            priorities.push(below);
            above = below;
        }
        rest = rest.get(new + 1..).unwrap_or_default();
    }
    Some(priorities)
}

/// Descending priorities of `count` jobs, as far apart as possible.
fn apart(count: usize) -> Vec<u32> {
    let step = MAX_PRIORITY / u32::try_from(count).unwrap_or(MAX_PRIORITY).max(1);
    let positions = 0..u32::try_from(count).unwrap_or(MAX_PRIORITY);
    positions
        .map(|position| MAX_PRIORITY - position * step.max(1))
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MAX_PRIORITY, apart, ordered_priorities};

    #[test]
    fn known_priorities_stay_if_new_ones_fit_between_them() {
        for (known, expected) in [
            (vec![], vec![]),
            (vec![Some(7), Some(5)], vec![7, 5]),
            (vec![Some(7), None, Some(5)], vec![7, 6, 5]),
            (vec![Some(90), None, None, Some(60)], vec![90, 80, 70, 60]),
        ] {
            assert_eq!(ordered_priorities(&known), expected);
        }
    }

    #[test]
    fn all_change_if_new_ones_do_not_fit_or_the_order_is_another() {
        for known in [
            vec![Some(6), None, Some(5)],
            vec![Some(1), None],
            vec![Some(5), Some(6)],
            vec![Some(5), Some(5)],
        ] {
            assert_eq!(ordered_priorities(&known), apart(known.len()));
        }
    }

    proptest! {
        #[test]
        fn priorities_descend_and_hold_no_job(
            known in prop::collection::vec(prop::option::of(1..=MAX_PRIORITY), 0..40),
        ) {
            let priorities = ordered_priorities(&known);
            prop_assert_eq!(priorities.len(), known.len());
            prop_assert!(priorities.is_sorted_by(|first, second| first > second));
            prop_assert!(priorities.iter().all(|priority| (1..=MAX_PRIORITY).contains(priority)));
        }
    }
}
