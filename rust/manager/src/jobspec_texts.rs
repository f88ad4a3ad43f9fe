//! The texts of jobspecs in the store, cached.

use std::collections::HashMap;
use std::sync::Arc;

use crate::storage::Storage;

/// The greatest size of all cached texts, in bytes.
const MAX_CACHED_BYTES: usize = 16 * 1024 * 1024;

/// The texts of the jobspecs in the store, with a cache of those that were added or read last: jobs
/// that were submitted together start with one text.
#[derive(Debug, Default)]
pub(crate) struct JobspecTexts {
    cached: HashMap<i64, Arc<str>>,
    bytes: usize,
}

impl JobspecTexts {
    /// Adds a jobspec to the store. Returns its key.
    pub(crate) fn add(&mut self, storage: &mut Storage, text: Arc<str>) -> i64 {
        let key = storage.run(|store| store.add_jobspec(&text));
        self.cache(key, text);
        key
    }

    /// The text of a jobspec; `None` if it is not in the store.
    pub(crate) fn text(&mut self, storage: &mut Storage, key: i64) -> Option<Arc<str>> {
        if let Some(text) = self.cached.get(&key) {
            return Some(Arc::clone(text));
        }
        let text: Arc<str> = storage.run(|store| store.jobspec(key))?.into();
        self.cache(key, Arc::clone(&text));
        Some(text)
    }

    /// Removes a jobspec from the store.
    pub(crate) fn remove(&mut self, storage: &mut Storage, key: i64) {
        storage.run(|store| store.remove_jobspec(key));
        // The store may give the key to another jobspec.
        if let Some(text) = self.cached.remove(&key) {
            self.bytes -= text.len();
        }
    }

    fn cache(&mut self, key: i64, text: Arc<str>) {
        if text.len() > MAX_CACHED_BYTES - self.bytes {
            self.cached.clear();
            self.bytes = 0;
        }
        if text.len() <= MAX_CACHED_BYTES {
            self.bytes += text.len();
            if let Some(old) = self.cached.insert(key, text) {
                self.bytes -= old.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{JobspecTexts, MAX_CACHED_BYTES};
    use crate::storage::Storage;
    use penstock_store::Store;
    use std::sync::Arc;

    #[test]
    fn a_reused_key_has_the_text_of_its_new_jobspec() {
        let mut storage = Storage::new(Store::in_memory().unwrap());
        let mut texts = JobspecTexts::default();
        let key = texts.add(&mut storage, "one".into());
        assert_eq!(texts.text(&mut storage, key).as_deref(), Some("one"));
        texts.remove(&mut storage, key);
        assert_eq!(texts.text(&mut storage, key), None);
        assert_eq!(texts.add(&mut storage, "two".into()), key);
        assert_eq!(texts.text(&mut storage, key).as_deref(), Some("two"));
    }

    #[test]
    fn the_cache_has_a_bound() {
        let mut storage = Storage::new(Store::in_memory().unwrap());
        let mut texts = JobspecTexts::default();
        let half: Arc<str> = "x".repeat(MAX_CACHED_BYTES / 2 + 1).into();
        let long: Arc<str> = "y".repeat(MAX_CACHED_BYTES + 1).into();
        let keys = [&half, &half, &long].map(|text| texts.add(&mut storage, Arc::clone(text)));
        assert!(texts.bytes <= MAX_CACHED_BYTES && texts.cached.len() <= 1);
        for (key, text) in keys.into_iter().zip([&half, &half, &long]) {
            assert_eq!(texts.text(&mut storage, key).as_ref(), Some(text));
        }
        let cached: usize = texts.cached.values().map(|text| text.len()).sum();
        assert_eq!(cached, texts.bytes);
    }
}
