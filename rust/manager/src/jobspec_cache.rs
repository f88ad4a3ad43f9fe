//! Jobspecs that are in the store: interned by their text, their texts cached, and the submitted texts that they
//! came from.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use foldhash::quality::RandomState;
use penstock_flux::{JobspecDocument, RequestError, RequestedResources};
use penstock_jobspec::Jobspec;

use crate::held_values::SharedWith;
use crate::policy;
use crate::settings::Settings;
use crate::shared_values::SharedValues;
use crate::spec::{Attributes, Checked, Spec, Stored};
use crate::storage::Storage;

/// The greatest size of all cached texts, in bytes.
const MAX_CACHED_BYTES: usize = 16 * 1024 * 1024;

/// The greatest size of all remembered submissions, in bytes.
const MAX_SUBMITTED_BYTES: usize = 16 * 1024 * 1024;

/// The greatest length of a text that is kept for the next job with the same jobspec, in bytes.
const MAX_KEPT_BYTES: usize = 64 * 1024;

/// A jobspec in the store, while a job refers to it.
#[derive(Debug)]
struct Shared {
    spec: Weak<Spec>,
    requested: Weak<RequestedResources>,
}

impl Shared {
    fn new(stored: &Stored) -> Self {
        Self {
            spec: Arc::downgrade(&stored.spec),
            requested: Arc::downgrade(&stored.requested),
        }
    }

    fn is_used(&self) -> bool {
        self.spec.strong_count() > 0
    }
}

/// The evicted jobs that refer to a jobspec.
#[derive(Debug)]
struct Evicted {
    jobs: u32,
    /// Whether another job does.
    spec: Weak<Spec>,
}

/// The jobspecs in the store, by key, by stored text and by submitted text.
///
/// Jobs with equal stored texts share the jobspec, in memory and in the store. A submission whose text equals an
/// earlier one is not parsed. Jobs start with the text that was added or read last.
#[derive(Debug, Default)]
pub(crate) struct JobspecCache {
    documents: HashMap<i64, Arc<JobspecDocument>, RandomState>,
    document_bytes: usize,
    /// By the hash of the stored text.
    interned: SharedValues<Spec>,
    attributes: SharedValues<Attributes>,
    requested: SharedValues<RequestedResources>,
    submitted: HashMap<Arc<str>, Shared, RandomState>,
    submitted_bytes: usize,
    /// By key, unless an evicted job is the only one that refers to the jobspec: most jobs may have one of their own.
    evicted: HashMap<i64, Evicted, RandomState>,
    /// The jobspec of the inactive job that was read last.
    read_last: Option<Stored>,
    /// The jobspec that was sent to a scheduler in another process last.
    sent_last: Option<SentJobspec>,
}

/// The form of a jobspec for a scheduler in another process, and what it requests.
#[derive(Clone, Debug)]
pub(crate) struct SentJobspec {
    key: i64,
    /// See [`Context::constraint_changes`](crate::context::Context).
    constraint_changes: u64,
    pub(crate) text: Arc<str>,
    pub(crate) requested: Arc<RequestedResources>,
}

impl JobspecCache {
    /// Counts a job that leaves memory as one that refers to its jobspec.
    pub(crate) fn evict(&mut self, spec: Arc<Spec>) {
        let (key, weak) = (spec.key, Arc::downgrade(&spec));
        let is_shared = Arc::into_inner(spec).is_none();
        if let Some(evicted) = self.evicted.get_mut(&key) {
            evicted.jobs += 1;
        } else if is_shared {
            let evicted = Evicted {
                jobs: 1,
                spec: weak,
            };
            self.evicted.insert(key, evicted);
        }
    }

    /// Counts evicted jobs from before a restart, with a jobspec that other jobs may share.
    pub(crate) fn restore_evicted(&mut self, key: i64, jobs: u32, spec: Weak<Spec>) {
        self.evicted.insert(key, Evicted { jobs, spec });
    }

    /// Whether an evicted job may share the jobspec with other jobs.
    pub(crate) fn is_of_evicted(&self, key: i64) -> bool {
        self.evicted.contains_key(&key)
    }

    /// Counts an evicted job as purged. Returns whether no other job refers to the jobspec.
    pub(crate) fn purge_evicted(&mut self, key: i64) -> bool {
        let Some(evicted) = self.evicted.get_mut(&key) else {
            return true;
        };
        evicted.jobs = evicted.jobs.saturating_sub(1);
        if evicted.jobs > 0 {
            return false;
        }
        let is_unused = evicted.spec.strong_count() == 0;
        self.evicted.remove(&key);
        is_unused
    }

    /// The jobspec of an inactive job that is read, if it is that of the one before.
    pub(crate) fn read_last(&self, key: i64) -> Option<&Stored> {
        self.read_last.as_ref().filter(|last| last.spec.key == key)
    }

    /// Sets the jobspec of the inactive job that was read last.
    pub(crate) fn set_read_last(&mut self, stored: &Stored) {
        self.read_last = Some(stored.clone());
    }

    /// Puts the jobspec of a user into the store, unless one with the same text is there and a job refers to it.
    pub(crate) fn intern(
        &mut self,
        storage: &mut Storage,
        userid: u32,
        checked: Checked,
    ) -> Stored {
        let (document, spec, requested) = checked.into_parts();
        let text = Arc::clone(document.text());
        let hash = self.interned.hash(&*text);
        let spec = self.find_interned(storage, &text, hash).unwrap_or_else(|| {
            let key = self.add(storage, userid, document);
            let spec = self.share(Spec { key, ..spec });
            self.interned.insert(hash, &spec);
            spec
        });
        // The constraint of its queue may have changed since.
        let requested = self.share_requested(requested);
        Stored { spec, requested }
    }

    /// The jobspec with this text, if a job refers to it.
    fn find_interned(&mut self, storage: &mut Storage, text: &str, hash: u64) -> Option<Arc<Spec>> {
        let spec = self.interned.get(hash)?;
        let document = self.document(storage, spec.key)?;
        (**document.text() == *text).then_some(spec)
    }

    /// Enters a jobspec that is in the store into the index by its text.
    pub(crate) fn index(
        &mut self,
        text: &str,
        spec: Spec,
        requested: RequestedResources,
    ) -> Stored {
        let spec = self.share(spec);
        self.interned.insert(self.interned.hash(text), &spec);
        let requested = self.share_requested(requested);
        Stored { spec, requested }
    }

    /// A spec that shares the attributes of an equal one.
    fn share(&mut self, spec: Spec) -> Arc<Spec> {
        let attributes = self.attributes.share(spec.attributes);
        Arc::new(Spec { attributes, ..spec })
    }

    /// Values that equal those of a job with this spec and request, if jobs refer to them.
    pub(crate) fn find_shared(&self, spec: &Spec, requested: &RequestedResources) -> SharedWith {
        let attributes = self.attributes.find(&spec.attributes);
        (self.requested.find(requested), attributes)
    }

    /// The resources that jobs request, shared with those that request the same.
    pub(crate) fn share_requested(
        &mut self,
        requested: RequestedResources,
    ) -> Arc<RequestedResources> {
        self.requested.share(Arc::new(requested))
    }

    /// The form of a jobspec for a scheduler in another process, and the number of bytes of text that were read for it.
    ///
    /// # Errors
    ///
    /// The jobspec cannot be read.
    pub(crate) fn sent(
        &mut self,
        storage: &mut Storage,
        settings: &Settings,
        constraint_changes: u64,
        key: i64,
    ) -> Result<(SentJobspec, usize), RequestError> {
        if let Some(last) = &self.sent_last
            && last.key == key
            && last.constraint_changes == constraint_changes
        {
            return Ok((last.clone(), 0));
        }
        let document = self.document(storage, key);
        let document = document
            .ok_or_else(|| RequestError::invalid("the jobspec is not in the store".to_owned()))?;
        let redacted = Jobspec::from_json(document.text())
            .and_then(|jobspec| policy::redact(jobspec, settings))
            .map_err(|error| RequestError::invalid(error.to_string()))?;
        let sent = SentJobspec {
            key,
            constraint_changes,
            text: redacted.to_text().into(),
            requested: self.share_requested(RequestedResources::of(&redacted)),
        };
        let is_short = sent.text.len() <= MAX_KEPT_BYTES;
        self.sent_last = is_short.then(|| sent.clone());
        Ok((sent, document.text().len()))
    }

    /// Adds the jobspec of a user to the store. Returns its key.
    pub(crate) fn add(
        &mut self,
        storage: &mut Storage,
        userid: u32,
        document: JobspecDocument,
    ) -> i64 {
        let key = storage.run(|store| store.add_jobspec(userid, document.text()));
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
        storage.count_read(text.len());
        let document = Arc::new(JobspecDocument::new(text.into()));
        self.cache(key, Arc::clone(&document));
        Some(document)
    }

    /// Removes a jobspec from the store.
    pub(crate) fn remove(&mut self, storage: &mut Storage, key: i64) {
        storage.run(|store| store.remove_jobspec(key));
        // The store may give the key to another jobspec.
        self.read_last = None;
        self.sent_last = None;
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
            requested: submitted.requested.upgrade()?,
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
        // Unless defaults have changed it, the text is the one in the store.
        let document = self.documents.get(&stored.spec.key);
        let text = match document.map(|document| document.text()) {
            Some(stored_text) if **stored_text == *text => Arc::clone(stored_text),
            _ => text.into(),
        };
        let size = text.len();
        if self.submitted.insert(text, Shared::new(stored)).is_none() {
            self.submitted_bytes += size;
        }
    }

    /// Forgets every submission: the site's defaults, limits or queues have changed.
    pub(crate) fn forget_submitted(&mut self) {
        self.submitted.clear();
        self.submitted_bytes = 0;
    }

    /// Forgets the submissions to which no job refers, or all of them if the others leave less than half of the room.
    fn forget_unused(&mut self) {
        self.submitted.retain(|_, shared| shared.is_used());
        self.submitted_bytes = self.submitted.keys().map(|text| text.len()).sum();
        if self.submitted_bytes > MAX_SUBMITTED_BYTES / 2 {
            self.forget_submitted();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{JobspecCache, MAX_CACHED_BYTES, MAX_SUBMITTED_BYTES};
    use crate::settings::Settings;
    use crate::spec::{Checked, Spec, Stored};
    use crate::storage::Storage;
    use penstock_flux::{JobspecDocument, RequestedResources};
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
        let key = cache.add(storage, 0, JobspecDocument::new(text.into()));
        Stored {
            spec: Arc::new(Spec::new(key, &jobspec)),
            requested: Arc::new(RequestedResources::of(&jobspec)),
        }
    }

    #[test]
    fn a_reused_key_has_the_text_of_its_new_jobspec() {
        let (mut storage, mut cache) = (storage(), JobspecCache::default());
        let key = cache.add(&mut storage, 0, JobspecDocument::new("one".into()));
        assert_eq!(text(&mut cache, &mut storage, key).as_deref(), Some("one"));
        cache.remove(&mut storage, key);
        assert_eq!(text(&mut cache, &mut storage, key), None);
        let again = cache.add(&mut storage, 0, JobspecDocument::new("two".into()));
        assert_eq!(again, key);
        assert_eq!(text(&mut cache, &mut storage, key).as_deref(), Some("two"));
    }

    #[test]
    fn the_cache_of_texts_has_a_bound() {
        let (mut storage, mut cache) = (storage(), JobspecCache::default());
        let half: Arc<str> = "x".repeat(MAX_CACHED_BYTES / 2 + 1).into();
        let long: Arc<str> = "y".repeat(MAX_CACHED_BYTES + 1).into();
        let keys = [&half, &half, &long]
            .map(|text| cache.add(&mut storage, 0, JobspecDocument::new(Arc::clone(text))));
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
        assert!(Arc::ptr_eq(&found.spec, &one.spec));
        assert!(Arc::ptr_eq(&found.requested, &one.requested));
        let document = cache.document(&mut storage, one.spec.key).unwrap();
        let (remembered, _) = cache.submitted.get_key_value("one").unwrap();
        assert!(Arc::ptr_eq(remembered, document.text()), "one copy");
        assert!(cache.submitted("two").is_none());
        drop((one, found));
        assert!(cache.submitted("one").is_none());
    }

    fn interned(cache: &mut JobspecCache, storage: &mut Storage, duration: u32) -> Stored {
        let mut jobspec = Jobspec::from_json(JOBSPEC).unwrap();
        jobspec.set_duration(duration.into());
        let text = jobspec.to_text();
        let checked = Checked::new(jobspec, &text, &Settings::default()).unwrap();
        cache.intern(storage, 0, checked)
    }

    #[test]
    fn equal_texts_are_one_jobspec_and_unequal_ones_with_the_same_hash_are_not() {
        let (mut storage, mut cache) = (storage(), JobspecCache::default());
        let one = interned(&mut cache, &mut storage, 1);
        let again = interned(&mut cache, &mut storage, 1);
        assert!(Arc::ptr_eq(&one.spec, &again.spec));
        assert!(Arc::ptr_eq(&one.requested, &again.requested));
        let two = interned(&mut cache, &mut storage, 2);
        assert_ne!(two.spec.key, one.spec.key);
        let mut jobspec = Jobspec::from_json(JOBSPEC).unwrap();
        jobspec.set_duration(3.0);
        let hash = cache.interned.hash(jobspec.to_text());
        cache.interned.insert(hash, &two.spec);
        let three = interned(&mut cache, &mut storage, 3);
        assert!(three.spec.key != two.spec.key && three.spec.duration > 2.5);
    }

    #[test]
    fn a_jobspec_is_unused_when_the_last_job_is_purged() {
        let (mut storage, mut cache) = (storage(), JobspecCache::default());
        let mut spec = |name| stored(&mut cache, &mut storage, name).spec;
        let (alone, shared, half) = (spec("alone"), spec("shared"), spec("half"));
        let keys = [&alone, &shared, &half].map(|spec| spec.key);
        cache.evict(alone);
        assert!(cache.evicted.is_empty(), "no entry for a single job");
        assert!(cache.purge_evicted(keys[0]));
        cache.evict(Arc::clone(&shared));
        cache.evict(shared);
        assert!(!cache.purge_evicted(keys[1]) && cache.purge_evicted(keys[1]));
        cache.evict(Arc::clone(&half));
        assert!(cache.is_of_evicted(keys[2]));
        assert!(!cache.purge_evicted(keys[2]), "a job in memory has it");
        assert!(cache.evicted.is_empty());
    }

    #[test]
    fn jobspecs_that_differ_by_name_and_command_share_the_rest() {
        let (mut storage, mut cache) = (storage(), JobspecCache::default());
        let mut named = |name: &str, duration: f64| {
            let text = JOBSPEC.replace("true", name);
            let mut jobspec = Jobspec::from_json(&text).unwrap();
            jobspec.set_duration(duration);
            let text = jobspec.to_text();
            let checked = Checked::new(jobspec, &text, &Settings::default()).unwrap();
            cache.intern(&mut storage, 0, checked)
        };
        let (one, other, longer) = (named("one", 1.0), named("other", 1.0), named("one", 2.0));
        assert_eq!([&*one.spec.name, &*other.spec.name], ["one", "other"]);
        assert!(Arc::ptr_eq(&one.spec.attributes, &other.spec.attributes));
        assert!(Arc::ptr_eq(&one.requested, &other.requested));
        assert!(!Arc::ptr_eq(&one.requested, &longer.requested));
        assert_eq!(longer.spec.duration.to_bits(), 2.0_f64.to_bits());
    }

    #[test]
    fn a_scheduler_in_another_process_gets_the_notation_that_was_submitted() {
        let (mut storage, mut cache) = (storage(), JobspecCache::default());
        let own = serde_json::json!({"hostlist": ["a[1-3]b[1-2]", "c1"]});
        let jobspec = Jobspec::from_json(JOBSPEC).unwrap();
        let jobspec = jobspec.redacted(vec![own]).unwrap();
        let text = jobspec.to_text();
        let checked = Checked::new(jobspec, &text, &Settings::default()).unwrap();
        let Stored { spec, requested } = cache.intern(&mut storage, 0, checked);
        let settings = Settings::default();
        let (sent, bytes) = cache.sent(&mut storage, &settings, 0, spec.key).unwrap();
        assert_eq!((&*sent.text, bytes), (&*text, text.len()));
        assert!(Arc::ptr_eq(&sent.requested, &requested));
        let (again, bytes) = cache.sent(&mut storage, &settings, 0, spec.key).unwrap();
        assert!(Arc::ptr_eq(&sent.text, &again.text) && bytes == 0);
        cache.remove(&mut storage, spec.key);
        let error = cache.sent(&mut storage, &settings, 0, spec.key);
        assert_eq!(error.unwrap_err().text, "the jobspec is not in the store");
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
