//! The environment of a task as one block of bytes.

use std::ffi::{CStr, CString};
use std::iter;

/// The variables of a task, `NAME=value`, each with a zero byte behind it, as in `/proc/PID/environ`. A task has some forty:
/// in one block they are copied, sent and dropped at once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvironmentBlock {
    bytes: Vec<u8>,
    len: usize,
}

impl EnvironmentBlock {
    /// An empty block with room for `bytes` bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            len: 0,
        }
    }

    /// The number of variables.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no variable.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The length of all variables in bytes, with the zero byte of each and its length in a message to the reaper.
    pub(crate) fn bytes_len(&self) -> usize {
        self.bytes.len() + self.len * size_of::<u32>()
    }

    /// Adds a variable.
    pub fn push(&mut self, variable: &CStr) {
        self.bytes.extend_from_slice(variable.to_bytes_with_nul());
        self.len += 1;
    }

    /// Adds a variable that is made of these parts. Returns whether it was added: it is not if a part has a zero byte.
    #[must_use]
    pub(crate) fn push_parts(&mut self, parts: &[&[u8]]) -> bool {
        if parts.iter().any(|part| part.contains(&0)) {
            return false;
        }
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.push(0);
        self.len += 1;
        true
    }

    /// The variables, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &CStr> {
        let mut rest = self.bytes.as_slice();
        iter::from_fn(move || {
            let variable = CStr::from_bytes_until_nul(rest).ok()?;
            rest = rest.get(variable.to_bytes_with_nul().len()..)?;
            Some(variable)
        })
    }

    /// Whether this is one of the variables.
    pub fn contains(&self, variable: &CStr) -> bool {
        self.iter().any(|each| each == variable)
    }
}

impl<S: AsRef<CStr>> Extend<S> for EnvironmentBlock {
    fn extend<I: IntoIterator<Item = S>>(&mut self, variables: I) {
        for variable in variables {
            self.push(variable.as_ref());
        }
    }
}

impl<S: AsRef<CStr>> FromIterator<S> for EnvironmentBlock {
    fn from_iter<I: IntoIterator<Item = S>>(variables: I) -> Self {
        let mut block = Self::default();
        block.extend(variables);
        block
    }
}

impl From<&EnvironmentBlock> for Vec<CString> {
    fn from(block: &EnvironmentBlock) -> Self {
        block.iter().map(CStr::to_owned).collect()
    }
}
