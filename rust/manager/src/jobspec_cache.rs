//! Jobspecs that are in the store: their texts, cached, and the submitted texts that they came from.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use penstock_flux::{JobspecDocument, RedactedJobspec};

use crate::spec::{Spec, Stored};
use crate::storage::Storage;

/// The greatest size of all cached texts, in bytes.
const MAX_CACHED_BYTES: usize = 16 * 1024 * 1024;

/// The greatest size of all remembered submissions, in bytes.
const MAX_SUBMITTED_BYTES: usize = 16 * 1024 * 1024;

/// A jobspec in the store, while a job refers to it.
#[derive(Debug)]
struct Submitted {
    spec: Weak<Spec>,
    request: Weak<RedactedJobspec>,
}

/// The jobspecs in the store, by key and by submitted text.
///
/// Jobs start with the text that was added or read last. A submission whose text equals an earlier one shares its
/// jobspec with it, in memory and in the store, and is not parsed.
#[derive(Debug, Default)]
pub(crate) struct JobspecCache {
    documents: HashMap<i64, Arc<JobspecDocument>>,
    document_bytes: usize,
    submitted: HashMap<Arc<str>, Submitted>,
    submitted_bytes: usize,
}

impl JobspecCache {
    /// Adds a jobspec to the store. Returns its key.
    pub(crate) fn add(&mut self, storage: &mut Storage, document: JobspecDocument) -> i64 {
        let key = storage.run(|store| store.add_jobspec(document.text()));
        self.cache(key, Arc::new(document));
        key
    }

    /// A jobspec; `None` if it is not in the store.
    pub(crate) fn document(
        &mut self,
        storage: &mut Storage,
        key: i64,
    ) -> Option<Arc<JobspecDocument>> {
        if let Some(document) = self.documents.get(&key) {
            return Some(Arc::clone(document));
        }
        let text = storage.run(|store| store.jobspec(key))?;
        let document = Arc::new(JobspecDocument::new(text.into()));
        self.cache(key, Arc::clone(&document));
        Some(document)
    }

    /// Removes a jobspec from the store.
    pub(crate) fn remove(&mut self, storage: &mut Storage, key: i64) {
        storage.run(|store| store.remove_jobspec(key));
        // The store may give the key to another jobspec.
        if let Some(document) = self.documents.remove(&key) {
            self.document_bytes -= document.text().len();
        }
    }

    fn cache(&mut self, key: i64, document: Arc<JobspecDocument>) {
        let size = document.text().len();
        if size > MAX_CACHED_BYTES - self.document_bytes {
            self.documents.clear();
            self.document_bytes = 0;
        }
        if size <= MAX_CACHED_BYTES {
            self.document_bytes += size;
            if let Some(old) = self.documents.insert(key, document) {
                self.document_bytes -= old.text().len();
            }
        }
    }

    /// The jobspec that an earlier submission of the same text has put into the store, if a job still refers to it.
    pub(crate) fn submitted(&self, text: &str) -> Option<Stored> {
        let submitted = self.submitted.get(text)?;
        Some(Stored {
            spec: submitted.spec.upgrade()?,
            request: submitted.request.upgrade()?,
        })
    }

    /// Remembers the jobspec that a submitted text has put into the store.
    pub(crate) fn remember(&mut self, text: &str, stored: &Stored) {
        if text.len() > MAX_SUBMITTED_BYTES / 2 {
            return;
        }
        if text.len() > MAX_SUBMITTED_BYTES - self.submitted_bytes {
            self.forget_unused();
        }
        let submitted = Submitted {
            spec: Arc::downgrade(&stored.spec),
            request: Arc::downgrade(&stored.request),
        };
        // Unless defaults have changed it, the text is the one in the store.
        let document = self.documents.get(&stored.spec.key);
        let text = match document.map(|document| document.text()) {
            Some(stored_text) if **stored_text == *text => Arc::clone(stored_text),
            _ => text.into(),
        };
        let size = text.len();
        if self.submitted.insert(text, submitted).is_none() {
            self.submitted_bytes += size;
        }
    }

    /// Forgets every submission: the site's defaults or constraints have changed.
    pub(crate) fn forget_submitted(&mut self) {
        self.submitted.clear();
        self.submitted_bytes = 0;
    }

    /// Forgets the submissions to which no job refers, or all of them if the others leave less than half of the room.
    fn forget_unused(&mut self) {
        self.submitted
            .retain(|_, submitted| submitted.spec.strong_count() > 0);
        self.submitted_bytes = self.submitted.keys().map(|text| text.len()).sum();
        if self.submitted_bytes > MAX_SUBMITTED_BYTES / 2 {
            self.forget_submitted();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{JobspecCache, MAX_CACHED_BYTES, MAX_SUBMITTED_BYTES};
    use crate::spec::{Spec, Stored};
    use crate::storage::Storage;
    use penstock_flux::{JobspecDocument, RedactedJobspec};
    use penstock_jobspec::Jobspec;
    use penstock_store::Store;
    use std::sync::Arc;

    const JOBSPEC: &str = r#"{"version":1,
        "resources":[{"type":"slot","count":1,"label":"task","with":[{"type":"core","count":1}]}],
        "tasks":[{"command":["true"],"slot":"task","count":{"per_slot":1}}],
        "attributes":{"system":{"duration":0}}}"#;

    fn storage() -> Storage {
        Storage::new(Store::in_memory().unwrap())
    }

    fn text(cache: &mut JobspecCache, storage: &mut Storage, key: i64) -> Option<Arc<str>> {
        let document = cache.document(storage, key)?;
        Some(Arc::clone(document.text()))
    }

    fn stored(cache: &mut JobspecCache, storage: &mut Storage, text: &str) -> Stored {
        let jobspec = Jobspec::from_json(JOBSPEC).unwrap();
        let key = cache.add(storage, JobspecDocument::new(text.into()));
        Stored {
            spec: Arc::new(Spec::new(key, &jobspec)),
            request: Arc::new(RedactedJobspec::new(&jobspec)),
        }
    }

    #[test]
    fn a_reused_key_has_the_text_of_its_new_jobspec() {
        let (mut storage, mut cache) = (storage(), JobspecCache::default());
        let key = cache.add(&mut storage, JobspecDocument::new("one".into()));
        assert_eq!(text(&mut cache, &mut storage, key).as_deref(), Some("one"));
        cache.remove(&mut storage, key);
        assert_eq!(text(&mut cache, &mut storage, key), None);
        let again = cache.add(&mut storage, JobspecDocument::new("two".into()));
        assert_eq!(again, key);
        assert_eq!(text(&mut cache, &mut storage, key).as_deref(), Some("two"));
    }

    #[test]
    fn the_cache_of_texts_has_a_bound() {
        let (mut storage, mut cache) = (storage(), JobspecCache::default());
        let half: Arc<str> = "x".repeat(MAX_CACHED_BYTES / 2 + 1).into();
        let long: Arc<str> = "y".repeat(MAX_CACHED_BYTES + 1).into();
        let keys = [&half, &half, &long]
            .map(|text| cache.add(&mut storage, JobspecDocument::new(Arc::clone(text))));
        assert!(cache.document_bytes <= MAX_CACHED_BYTES && cache.documents.len() <= 1);
        for (key, expected) in keys.into_iter().zip([&half, &half, &long]) {
            let found = text(&mut cache, &mut storage, key);
            assert_eq!(found.as_ref(), Some(expected));
        }
        let documents = cache.documents.values();
        let cached: usize = documents.map(|document| document.text().len()).sum();
        assert_eq!(cached, cache.document_bytes);
    }

    #[test]
    fn a_submission_is_remembered_while_a_job_refers_to_it() {
        let (mut storage, mut cache) = (storage(), JobspecCache::default());
        let one = stored(&mut cache, &mut storage, "one");
        cache.remember("one", &one);
        let found = cache.submitted("one").unwrap();
        assert!(Arc::ptr_eq(&found.spec, &one.spec) && Arc::ptr_eq(&found.request, &one.request));
        let document = cache.document(&mut storage, one.spec.key).unwrap();
        let (remembered, _) = cache.submitted.get_key_value("one").unwrap();
        assert!(Arc::ptr_eq(remembered, document.text()), "one copy");
        assert!(cache.submitted("two").is_none());
        drop((one, found));
        assert!(cache.submitted("one").is_none());
    }

    #[test]
    fn the_memory_of_submissions_has_a_bound() {
        let (mut storage, mut cache) = (storage(), JobspecCache::default());
        let long = |letter: &str| letter.repeat(MAX_SUBMITTED_BYTES / 2);
        let first = stored(&mut cache, &mut storage, "first");
        cache.remember(&long("a"), &first);
        drop(stored(&mut cache, &mut storage, "second"));
        let second = stored(&mut cache, &mut storage, "second");
        cache.remember(&long("b"), &second);
        drop(second);
        // No job refers to the second one: there is room for a third.
        let third = stored(&mut cache, &mut storage, "third");
        cache.remember(&long("c"), &third);
        assert!(cache.submitted(&long("a")).is_some() && cache.submitted(&long("c")).is_some());
        assert_eq!(cache.submitted_bytes, MAX_SUBMITTED_BYTES);
        // All submissions are in use: all of them are forgotten.
        cache.remember("d", &third);
        assert!(cache.submitted(&long("a")).is_none() && cache.submitted("d").is_some());
        assert_eq!(cache.submitted_bytes, 1);
        cache.remember(&"e".repeat(MAX_SUBMITTED_BYTES / 2 + 1), &third);
        assert_eq!(cache.submitted_bytes, 1);
    }
}
