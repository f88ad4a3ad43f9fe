//! Jobspecs of start requests, read once for equal jobs.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::CString;
use std::ops::Deref;
use std::rc::Rc;

use penstock_jobspec::Jobspec;

use crate::EnvironmentBlock;
use crate::error::Note;

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
pub(super) struct Environment {
    variables: Vec<Variable>,
    /// The length of the entries, with the zero byte of each.
    bytes_len: usize,
}

#[derive(Debug)]
struct Variable {
    name: Vec<u8>,
    entry: CString,
    /// Whether the entry may have a `{{…}}` to be filled in for each task.
    is_template: bool,
}

impl Variable {
    fn new(name: &[u8], value: &[u8]) -> Result<Self, Note> {
        let entry = CString::new([name, value].join(&b'=')).map_err(|_| zero_byte_note(name))?;
        Ok(Self {
            name: name.to_vec(),
            is_template: entry.to_str().is_ok_and(|text| text.contains("{{")),
            entry,
        })
    }
}

impl Environment {
    /// The environment of these variables. The error is the note of a job's exception.
    pub(super) fn new(variables: &BTreeMap<Vec<u8>, Vec<u8>>) -> Result<Self, Note> {
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| Variable::new(name, value));
        let variables = variables.collect::<Result<Vec<_>, _>>()?;
        let lengths = variables
            .iter()
            .map(|variable| variable.entry.count_bytes() + 1);
        Ok(Self {
            bytes_len: lengths.sum(),
            variables,
        })
    }

    /// The entries of these variables, with templates filled in, and of the changes, which replace variables of the same
    /// name. Variables whose name starts with one of `omitted` are left out, unless they are changes.
    pub(super) fn with(
        &self,
        changes: &BTreeMap<&[u8], &[u8]>,
        omitted: &[&[u8]],
        fill_in: impl Fn(&str) -> Result<String, Note>,
    ) -> Result<EnvironmentBlock, Note> {
        let changes_len = changes
            .iter()
            .map(|(name, value)| name.len() + value.len() + 2);
        let capacity = self.bytes_len + changes_len.sum::<usize>();
        let mut block = EnvironmentBlock::with_capacity(capacity);
        let mut changes = changes.iter().peekable();
        for variable in &self.variables {
            while let Some((name, value)) = changes.next_if(|(name, _)| ***name < *variable.name) {
                push(&mut block, name, value)?;
            }
            let is_changed = changes
                .peek()
                .is_some_and(|(name, _)| ***name == *variable.name);
            let is_omitted = |prefix: &&[u8]| variable.name.starts_with(prefix);
            if is_changed || omitted.iter().any(is_omitted) {
                continue;
            }
            match variable.entry.to_str() {
                Ok(template) if variable.is_template => {
                    if !block.push_parts(&[fill_in(template)?.as_bytes()]) {
                        return Err(zero_byte_note(&variable.name));
                    }
                }
                _ => block.push(&variable.entry),
            }
        }
        for (name, value) in changes {
            push(&mut block, name, value)?;
        }
        Ok(block)
    }
}

fn push(block: &mut EnvironmentBlock, name: &[u8], value: &[u8]) -> Result<(), Note> {
    if block.push_parts(&[name, b"=", value]) {
        Ok(())
    } else {
        Err(zero_byte_note(name))
    }
}

fn zero_byte_note(name: &[u8]) -> Note {
    let shown = String::from_utf8_lossy(name);
    format!(
        "environment variable `{}` has a zero byte",
        shown.escape_debug()
    )
    .into()
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
        let given = [
            ("B", "given"),
            ("C1", "{{id}}"),
            ("D", "given"),
            ("MARK_0", "given"),
            ("MARK_1", "given"),
        ];
        let owned =
            |(name, value): (&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        let environment = Environment::new(&given.map(owned).into()).unwrap();
        let with = |changes: &[(&'static str, &'static str)]| {
            let changes = changes.iter();
            let changes = changes.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let fill_in = |template: &str| Ok(template.replace("{{id}}", "7"));
            environment.with(&changes.collect(), &[b"MARK_"], fill_in)
        };
        let changes = [
            ("A", "1"),
            ("B", "2"),
            ("C", "3"),
            ("D1", "{{id}}"),
            ("MARK_1", "4"),
            ("Z", "5"),
        ];
        let block = with(&changes).unwrap();
        let entries: Vec<_> = block.iter().map(|entry| entry.to_str().unwrap()).collect();
        let expected = [
            "A=1",
            "B=2",
            "C=3",
            "C1=7",
            "D=given",
            "D1={{id}}",
            "MARK_1=4",
            "Z=5",
        ];
        assert_eq!(entries, expected);
        assert_eq!(block.len(), expected.len());
        let note = with(&[("A", "\0")]).unwrap_err();
        assert_eq!(note.to_string(), "environment variable `A` has a zero byte");
    }
}
