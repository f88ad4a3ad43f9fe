//! Where something has become free that reservations have not been looked at for.

/// From when to when something has become free: apart from each other, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct FreedIntervals {
    spans: Vec<(f64, f64)>,
}

impl FreedIntervals {
    /// Anything may have become free at any time.
    pub fn all() -> Self {
        Self {
            spans: vec![(f64::NEG_INFINITY, f64::INFINITY)],
        }
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Something has become free from a time until before another.
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

    /// When a job may start, from a time on and before another, that is to have some of it while it
    /// runs for so long: from when to before when, in order.
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
            // Ends of windows are rounded.
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
    fn spans_that_meet_are_one() {
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
    fn a_job_starts_while_something_is_free_or_so_that_it_gets_there() {
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
        // With twelve, they are one after the other.
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
