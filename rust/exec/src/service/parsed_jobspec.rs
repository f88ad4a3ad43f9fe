//! Jobspecs of start requests, read once for equal jobs.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::ops::Deref;
use std::rc::Rc;

use penstock_jobspec::Jobspec;

use super::note::Note;

/// The jobspecs that the cache retains.
const MAX_CACHED_JOBSPECS: usize = 8;
/// The length of a jobspec's text above which the cache does not retain it, in bytes.
const MAX_CACHED_JOBSPEC_BYTES: usize = 64 << 10;

/// A jobspec, with its environment in the form in which tasks get it.
#[derive(Debug)]
pub(super) struct ParsedJobspec {
    jobspec: Jobspec,
    environment: Option<Environment>,
}

impl ParsedJobspec {
    fn from_json(text: &str) -> Result<Self, Note> {
        let jobspec = Jobspec::from_json(text).map_err(|error| error.to_string())?;
        let environment = jobspec.environment().map(|given| {
            let variables = given.iter().filter_map(|(name, value)| {
                let value = value.as_str()?.as_bytes();
                Some((name.as_bytes().to_vec(), value.to_vec()))
            });
            Environment::new(&variables.collect())
        });
        Ok(Self {
            jobspec,
            environment: environment.transpose()?,
        })
    }

    /// The environment that the jobspec gives, if it does.
    pub(super) fn environment(&self) -> Option<&Environment> {
        self.environment.as_ref()
    }
}

impl Deref for ParsedJobspec {
    type Target = Jobspec;

    fn deref(&self) -> &Jobspec {
        &self.jobspec
    }
}

/// Variables of tasks, as entries `NAME=value`, by name.
#[derive(Debug)]
pub(super) struct Environment(Vec<Variable>);

#[derive(Debug)]
struct Variable {
    name: Vec<u8>,
    entry: CString,
}

impl Environment {
    /// The environment of these variables. The error is the note of a job's exception.
    pub(super) fn new(variables: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Self, Note> {
        let variable = |(name, value): (&Vec<u8>, &Vec<u8>)| {
            let name = name.clone();
            Ok(Variable {
                entry: entry(&name, value)?,
                name,
            })
        };
        variables
            .iter()
            .map(variable)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The entries of these variables and of the changes, which replace variables of the same name. Variables whose
    /// name starts with `omitted` are left out, unless they are changes.
    pub(super) fn with(
        &self,
        changes: &BTreeMap<Vec<u8>, Vec<u8>>,
        omitted: &[u8],
    ) -> Result<Vec<CString>, Note> {
        let mut entries = Vec::with_capacity(self.0.len() + changes.len());
        let mut changes = changes.iter().peekable();
        for variable in &self.0 {
            while let Some((name, value)) = changes.next_if(|(name, _)| **name < variable.name) {
                entries.push(entry(name, value)?);
            }
            let is_changed = changes
                .peek()
                .is_some_and(|(name, _)| **name == variable.name);
            if !is_changed && !variable.name.starts_with(omitted) {
                entries.push(variable.entry.clone());
            }
        }
        for (name, value) in changes {
            entries.push(entry(name, value)?);
        }
        Ok(entries)
    }
}

fn entry(name: &[u8], value: &[u8]) -> Result<CString, Note> {
    CString::new([name, value].join(&b'=')).map_err(|_| {
        let shown = String::from_utf8_lossy(name);
        let shown = shown.escape_debug();
        format!("environment variable `{shown}` has a zero byte").into()
    })
}

/// The jobspecs that were used last, by their text: the start requests of equal jobs have equal texts.
#[derive(Debug, Default)]
pub(super) struct JobspecCache(VecDeque<(String, Rc<ParsedJobspec>)>);

impl JobspecCache {
    /// Reads a jobspec. The error is the note of the job's exception.
    pub(super) fn parse(&mut self, text: &str) -> Result<Rc<ParsedJobspec>, Note> {
        let known = self.0.iter().position(|(other, _)| other == text);
        if let Some(known) = known.and_then(|index| self.0.remove(index)) {
            let jobspec = Rc::clone(&known.1);
            self.0.push_front(known);
            return Ok(jobspec);
        }
        let jobspec = Rc::new(ParsedJobspec::from_json(text)?);
        if text.len() <= MAX_CACHED_JOBSPEC_BYTES {
            self.0.truncate(MAX_CACHED_JOBSPECS - 1);
            self.0.push_front((text.to_owned(), Rc::clone(&jobspec)));
        }
        Ok(jobspec)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use serde_json::json;

    use super::{Environment, JobspecCache, MAX_CACHED_JOBSPEC_BYTES, MAX_CACHED_JOBSPECS};

    fn jobspec(name: &str) -> String {
        json!({
            "version": 1,
            "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
            "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": 0, "environment": {"NAME": name}}},
        })
        .to_string()
    }

    #[test]
    fn equal_jobspecs_are_read_once_while_they_are_in_use() {
        let mut cache = JobspecCache::default();
        let first = cache.parse(&jobspec("first")).unwrap();
        for number in 1..MAX_CACHED_JOBSPECS {
            let other = cache.parse(&jobspec(&number.to_string())).unwrap();
            assert!(!Rc::ptr_eq(&other, &first));
        }
        assert!(Rc::ptr_eq(&cache.parse(&jobspec("first")).unwrap(), &first));
        for number in 0..MAX_CACHED_JOBSPECS {
            cache.parse(&jobspec(&format!("later {number}"))).unwrap();
        }
        assert!(!Rc::ptr_eq(
            &cache.parse(&jobspec("first")).unwrap(),
            &first
        ));
        assert_eq!(cache.0.len(), MAX_CACHED_JOBSPECS);
    }

    #[test]
    fn long_and_invalid_jobspecs_are_not_retained() {
        let mut cache = JobspecCache::default();
        let long = jobspec(&"x".repeat(MAX_CACHED_JOBSPEC_BYTES));
        assert!(cache.parse(&long).is_ok());
        assert!(cache.parse("{}").is_err());
        assert!(cache.0.is_empty());
    }

    #[test]
    fn changes_replace_variables_and_keep_the_order_of_names() {
        let map = |pairs: &[(&str, &str)]| {
            let owned = |(name, value): &(&str, &str)| {
                (name.as_bytes().to_vec(), value.as_bytes().to_vec())
            };
            pairs.iter().map(owned).collect::<BTreeMap<_, _>>()
        };
        let given = [
            ("B", "given"),
            ("D", "given"),
            ("MARK_0", "given"),
            ("MARK_1", "given"),
        ];
        let environment = Environment::new(&map(&given)).unwrap();
        let changes = [
            ("A", "1"),
            ("B", "2"),
            ("C", "3"),
            ("MARK_1", "4"),
            ("Z", "5"),
        ];
        let entries = environment.with(&map(&changes), b"MARK_").unwrap();
        let entries: Vec<_> = entries
            .iter()
            .map(|entry| entry.to_str().unwrap())
            .collect();
        assert_eq!(entries, ["A=1", "B=2", "C=3", "D=given", "MARK_1=4", "Z=5"]);
        let zero = map(&[("A", "\0")]);
        let note = environment.with(&zero, b"MARK_").unwrap_err();
        assert_eq!(note.to_string(), "environment variable `A` has a zero byte");
    }
}
