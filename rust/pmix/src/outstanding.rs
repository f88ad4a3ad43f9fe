use std::collections::BTreeMap;

use penstock_flux::Matchtags;

/// The requests in flight, each under a matchtag of its own.
///
/// A request is moved in and moved out, so that it is answered exactly once.
#[derive(Debug)]
pub struct Outstanding<T> {
    requests: BTreeMap<u32, T>,
    matchtags: Matchtags,
    is_open: bool,
}

impl<T> Default for Outstanding<T> {
    fn default() -> Self {
        Self {
            requests: BTreeMap::new(),
            matchtags: Matchtags::default(),
            is_open: true,
        }
    }
}

impl<T> Outstanding<T> {
    /// Adds a request and allots its matchtag: never 0, nor that of another one.
    ///
    /// # Errors
    ///
    /// After [`Outstanding::close`] the request is returned.
    pub fn insert(&mut self, request: T) -> Result<u32, T> {
        if !self.is_open {
            return Err(request);
        }
        let tag = self.matchtags.allot();
        self.requests.insert(tag, request);
        Ok(tag)
    }

    /// Removes the request with this matchtag.
    pub fn remove(&mut self, tag: u32) -> Option<T> {
        self.matchtags.release(tag);
        self.requests.remove(&tag)
    }

    /// Removes every request, and accepts none from now on.
    pub fn close(&mut self) -> Vec<T> {
        self.is_open = false;
        std::mem::take(&mut self.requests).into_values().collect()
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Insert,
        Remove(u32),
        Close,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            10 => Just(Step::Insert),
            10 => (0_u32..20).prop_map(Step::Remove),
            1 => Just(Step::Close),
        ]
    }

    /// A request that records its response.
    #[derive(Debug)]
    struct Request(u32, Rc<RefCell<Vec<u32>>>);

    impl Request {
        fn respond(self) {
            self.1.borrow_mut().push(self.0);
        }
    }

    proptest! {
        #[test]
        fn every_request_is_answered_once(steps in prop::collection::vec(step(), 0..60)) {
            let mut outstanding = Outstanding::default();
            let answered = Rc::new(RefCell::new(Vec::new()));
            let mut count = 0;
            for step in steps {
                match step {
                    Step::Insert => {
                        count += 1;
                        if let Err(request) = outstanding.insert(Request(count, Rc::clone(&answered))) {
                            request.respond();
                        }
                    }
                    Step::Remove(tag) => {
                        if let Some(request) = outstanding.remove(tag) {
                            request.respond();
                        }
                    }
                    Step::Close => outstanding.close().into_iter().for_each(Request::respond),
                }
            }
            outstanding.close().into_iter().for_each(Request::respond);
            let mut answered = answered.borrow().clone();
            answered.sort_unstable();
            prop_assert_eq!(answered, (1..=count).collect::<Vec<_>>());
        }
    }
}
