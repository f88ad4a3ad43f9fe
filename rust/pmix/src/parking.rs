use std::collections::BTreeMap;

/// Requests that wait for their answer, each under a tag of its own.
///
/// A request is moved in and moved out: it is answered once, whoever comes for it, since only one finds it.
#[derive(Debug)]
pub struct Parking<T> {
    waiting: BTreeMap<u32, T>,
    last: u32,
    open: bool,
}

impl<T> Default for Parking<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            last: 0,
            open: true,
        }
    }
}

impl<T> Parking<T> {
    /// Keeps a request; its tag, never 0 and not that of another that waits. Once closed, the request comes back.
    pub fn park(&mut self, request: T) -> Result<u32, T> {
        if !self.open {
            return Err(request);
        }
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && !self.waiting.contains_key(&self.last) {
                self.waiting.insert(self.last, request);
                return Ok(self.last);
            }
        }
    }

    /// Takes the request with this tag, if it still waits.
    pub fn take(&mut self, tag: u32) -> Option<T> {
        self.waiting.remove(&tag)
    }

    /// Takes every request, and keeps none from now on.
    pub fn close(&mut self) -> Vec<T> {
        self.open = false;
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Park,
        Take(u32),
        Close,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            10 => Just(Step::Park),
            10 => (0_u32..20).prop_map(Step::Take),
            1 => Just(Step::Close),
        ]
    }

    /// A request that notes its answer.
    #[derive(Debug)]
    struct Request(u32, Rc<RefCell<Vec<u32>>>);

    impl Request {
        fn answer(self) {
            self.1.borrow_mut().push(self.0);
        }
    }

    proptest! {
        #[test]
        fn every_request_is_answered_once(steps in prop::collection::vec(step(), 0..60)) {
            let mut parking = Parking::default();
            let answered = Rc::new(RefCell::new(Vec::new()));
            let mut asked = 0;
            for step in steps {
                match step {
                    Step::Park => {
                        asked += 1;
                        if let Err(request) = parking.park(Request(asked, Rc::clone(&answered))) {
                            request.answer();
                        }
                    }
                    Step::Take(tag) => {
                        if let Some(request) = parking.take(tag) {
                            request.answer();
                        }
                    }
                    Step::Close => parking.close().into_iter().for_each(Request::answer),
                }
            }
            parking.close().into_iter().for_each(Request::answer);
            let mut answered = answered.borrow().clone();
            answered.sort_unstable();
            prop_assert_eq!(answered, (1..=asked).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_tag_is_not_given_twice_when_they_start_over() {
        let mut parking = Parking::default();
        let first = parking.park("first").unwrap();
        parking.last = u32::MAX - 1;
        let tags: BTreeSet<u32> = (0..3).map(|_| parking.park("later").unwrap()).collect();
        assert_eq!(tags.len(), 3);
        assert!(!tags.contains(&0) && !tags.contains(&first));
        assert_eq!(parking.take(first), Some("first"));
        assert_eq!(parking.take(first), None);
    }
}
