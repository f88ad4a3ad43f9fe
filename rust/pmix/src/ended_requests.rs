use std::collections::HashMap;

/// The ended requests that the tasks have been notified of.
///
/// Each stream of the instance begins with all requests of the job that have ended. Two of them can be equal, so they are
/// counted.
#[derive(Debug, Default)]
pub struct EndedRequests {
    counts: HashMap<Vec<u8>, Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    announced: usize,
    in_stream: usize,
}

impl EndedRequests {
    /// Begins another stream.
    pub fn begin_stream(&mut self) {
        for counts in self.counts.values_mut() {
            counts.in_stream = 0;
        }
    }

    /// Counts an item of the stream. Returns whether the tasks are to be notified of it.
    pub fn count(&mut self, payload: &[u8]) -> bool {
        let counts = match self.counts.get_mut(payload) {
            Some(counts) => counts,
            None => self.counts.entry(payload.to_vec()).or_default(),
        };
        counts.in_stream += 1;
        let is_new = counts.in_stream > counts.announced;
        counts.announced = counts.announced.max(counts.in_stream);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_announced_once() {
        let mut ended = EndedRequests::default();
        let mut announced = |stream: &[&'static str]| {
            ended.begin_stream();
            let is_new = |payload: &&&str| ended.count(payload.as_bytes());
            let announced: Vec<_> = stream.iter().filter(is_new).copied().collect();
            announced
        };
        assert_eq!(announced(&["a", "b", "a"]), ["a", "b", "a"]);
        // In another order, with one that is new and one that equals others.
        assert_eq!(announced(&["a", "a", "c", "b", "a"]), ["c", "a"]);
        assert_eq!(announced(&["a"]), [""; 0]);
        assert_eq!(announced(&["c", "a", "b", "a", "a", "b"]), ["b"]);
    }
}
