//! Freed intervals: the times at which resources have become free since reservations were last
//! examined.

use crate::availability_profile::Interval;

/// Disjoint intervals in which resources have become free, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct FreedIntervals {
    intervals: Vec<Interval>,
}

impl FreedIntervals {
    /// The interval without beginning and end: any resources may have become free at any time.
    pub fn all() -> Self {
        Self {
            intervals: vec![Interval::ALWAYS],
        }
    }

    pub fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Adds an interval in which resources have become free.
    pub fn add(&mut self, Interval { start, end }: Interval) {
        if start >= end {
            return;
        }
        let intervals = &mut self.intervals;
        let first = intervals.partition_point(|interval| interval.end < start);
        let last = intervals.partition_point(|interval| interval.start <= end);
        let touched = &intervals[first..last];
        let merged = Interval {
            start: touched
                .first()
                .map_or(start, |first| first.start.min(start)),
            end: touched.last().map_or(end, |last| last.end.max(end)),
        };
        intervals.splice(first..last, [merged]);
    }

    /// The start times, within an interval, at which a job that runs for `limit` seconds overlaps a
    /// freed interval: intervals of starts, in order.
    pub fn starts(&self, within: Interval, limit: f64) -> impl Iterator<Item = Interval> {
        let mut from = within.start;
        self.intervals
            .iter()
            .take_while(move |freed| freed.start < within.end + limit)
            .filter_map(move |freed| {
                // The ends of windows are rounded.
                let first = (freed.start - limit).next_down().next_down();
                let starts = Interval::new(first.max(from), freed.end.min(within.end));
                from = from.max(starts.end);
                (starts.start < starts.end).then_some(starts)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::FreedIntervals;
    use crate::availability_profile::Interval;

    /// The start times in `[start, end)` at which a job of `limit` seconds overlaps a freed interval.
    fn starts(freed: &FreedIntervals, start: f64, end: f64, limit: f64) -> Vec<Interval> {
        freed.starts(Interval::new(start, end), limit).collect()
    }

    #[test]
    fn intervals_that_touch_are_merged() {
        let mut freed = FreedIntervals::default();
        for (start, end) in [
            (5.0, 6.0),
            (1.0, 2.0),
            (8.0, 9.0),
            (3.0, 3.0),
            (5.5, 7.0),
            (2.0, 3.0),
        ] {
            freed.add(Interval::new(start, end));
        }
        let merged = [
            Interval::new(1.0, 3.0),
            Interval::new(5.0, 7.0),
            Interval::new(8.0, 9.0),
        ];
        assert_eq!(freed.intervals, merged);
        freed.add(Interval::new(0.0, 8.0));
        assert_eq!(freed.intervals, [Interval::new(0.0, 9.0)]);
    }

    #[test]
    fn starts_reach_into_the_freed_intervals() {
        let mut freed = FreedIntervals::default();
        assert!(freed.is_empty());
        freed.add(Interval::new(10.0, 11.0));
        freed.add(Interval::new(20.0, 30.0));
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let [first, second] = starts(&freed, 0.0, 25.0, 4.0)[..] else {
            panic!("two intervals");
        };
        assert!(close(first.start, 6.0) && close(first.end, 11.0));
        assert!(close(second.start, 16.0) && close(second.end, 25.0));
        assert!(first.start <= 6.0 && second.start <= 16.0);
        // With a limit of twelve seconds, they touch.
        let touching = [Interval::new(5.0, 11.0), Interval::new(11.0, 30.0)];
        assert_eq!(starts(&freed, 5.0, 100.0, 12.0), touching);
        assert!(starts(&freed, 12.0, 14.0, 5.0).is_empty());
        assert_eq!(
            starts(&FreedIntervals::all(), 1.0, 2.0, 5.0),
            [Interval::new(1.0, 2.0)]
        );
    }
}
