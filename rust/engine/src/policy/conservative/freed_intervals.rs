//! Intervals in which something has become free since reservations were last examined.

/// Disjoint intervals in which something has become free, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct FreedIntervals {
    spans: Vec<(f64, f64)>,
}

impl FreedIntervals {
    /// All of time: anything may have become free at any time.
    pub fn all() -> Self {
        Self {
            spans: vec![(f64::NEG_INFINITY, f64::INFINITY)],
        }
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Adds an interval in which something has become free.
    pub fn add(&mut self, (start, end): (f64, f64)) {
        if start >= end {
            return;
        }
        let first = self.spans.partition_point(|it| it.1 < start);
        let last = self.spans.partition_point(|it| it.0 <= end);
        let touched = &self.spans[first..last];
        let start = touched.first().map_or(start, |it| it.0.min(start));
        let end = touched.last().map_or(end, |it| it.1.max(end));
        self.spans.splice(first..last, [(start, end)]);
    }

    /// The start times, within a range, at which a job that runs for `limit` seconds uses some of
    /// what has become free: intervals of starts, in order.
    pub fn starts(
        &self,
        (from, before): (f64, f64),
        limit: f64,
    ) -> impl Iterator<Item = (f64, f64)> {
        let mut from = from;
        let spans = self
            .spans
            .iter()
            .take_while(move |it| it.0 < before + limit);
        spans.filter_map(move |(start, end)| {
            // The ends of windows are rounded.
            let first = (start - limit).next_down().next_down();
            let span = (first.max(from), end.min(before));
            from = from.max(span.1);
            (span.0 < span.1).then_some(span)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::FreedIntervals;

    #[test]
    fn intervals_that_touch_are_merged() {
        let mut freed = FreedIntervals::default();
        for span in [
            (5.0, 6.0),
            (1.0, 2.0),
            (8.0, 9.0),
            (3.0, 3.0),
            (5.5, 7.0),
            (2.0, 3.0),
        ] {
            freed.add(span);
        }
        assert_eq!(freed.spans, [(1.0, 3.0), (5.0, 7.0), (8.0, 9.0)]);
        freed.add((0.0, 8.0));
        assert_eq!(freed.spans, [(0.0, 9.0)]);
    }

    #[test]
    fn starts_reach_into_the_freed_intervals() {
        let mut freed = FreedIntervals::default();
        assert!(freed.is_empty());
        freed.add((10.0, 11.0));
        freed.add((20.0, 30.0));
        let starts = |within, limit| freed.starts(within, limit).collect::<Vec<_>>();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
        let [(a, b), (c, d)] = starts((0.0, 25.0), 4.0)[..] else {
            panic!("two spans");
        };
        assert!(close(a, 6.0) && close(b, 11.0) && close(c, 16.0) && close(d, 25.0));
        assert!(a <= 6.0 && c <= 16.0);
        // With a limit of twelve seconds, they touch.
        let [(a, b), (c, d)] = starts((5.0, 100.0), 12.0)[..] else {
            panic!("two spans");
        };
        assert_eq!((a, b, c, d), (5.0, 11.0, 11.0, 30.0));
        assert!(starts((12.0, 14.0), 5.0).is_empty());
        assert_eq!(
            FreedIntervals::all()
                .starts((1.0, 2.0), 5.0)
                .collect::<Vec<_>>(),
            [(1.0, 2.0)]
        );
    }
}
