//! Numbers that occur several times, taken apart.

/// Sets of numbers, as ascending intervals that do not touch: of intervals in the order of their starts those numbers
/// that are in any of them, those that are in two, in three and so on.
pub(crate) fn layers(intervals: &[(u64, u64)]) -> Vec<Vec<(u64, u64)>> {
    let mut ends: Vec<u64> = intervals.iter().map(|&(_, hi)| hi).collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let mut layers: Vec<Vec<(u64, u64)>> = Vec::new();
    // How many intervals go on: so many layers have a last interval whose end is not known yet.
    let mut depth = 0;
    for &(lo, _) in intervals {
        while let Some(end) = ends.next_if(|&end| end < lo) {
            depth -= 1;
            close(&mut layers[depth], end);
        }
        if layers.len() == depth {
            layers.push(Vec::new());
        }
        let layer = &mut layers[depth];
        if layer.last().is_none_or(|&(_, end)| end + 1 < lo) {
            layer.push((lo, lo));
        }
        depth += 1;
    }
    for end in ends {
        depth -= 1;
        close(&mut layers[depth], end);
    }
    layers
}

fn close(layer: &mut [(u64, u64)], end: u64) {
    if let Some(last) = layer.last_mut() {
        last.1 = end;
    }
}
