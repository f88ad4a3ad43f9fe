//! The layout of a request.

use std::ffi::{CStr, CString};
use std::fmt;

use crate::label::Buffering;

const MAGIC: [u8; 8] = *b"PnstkIm3";

/// The greatest number of resource limits.
pub const MAX_RESOURCE_LIMITS: usize = 16;

/// Bytes of the header: the magic number, eleven numbers of four bytes, the number of limits, and the limits.
pub const HEADER_BYTES: usize = 8 + 11 * 4 + 4 + MAX_RESOURCE_LIMITS * LIMIT_BYTES;
const LIMIT_BYTES: usize = 4 + 8 + 8;

/// The greatest length of the strings; the kernel accepts less.
const MAX_STRING_BYTES: u32 = 16 << 20;

/// A step of a start that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The request, or the privilege of the program.
    Request = 1,
    /// The user's entry in the password database, and the user's groups.
    Account,
    /// Closing the other descriptors.
    Descriptors,
    /// A resource limit.
    Limit,
    /// Groups, group and user.
    Identity,
    /// Capabilities and `no_new_privs`.
    Privileges,
    /// The working directory.
    Chdir,
    /// Standard input.
    Stdin,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The program.
    Exec,
}

impl Step {
    pub(crate) const ALL: [Self; 11] = [
        Self::Request,
        Self::Account,
        Self::Descriptors,
        Self::Limit,
        Self::Identity,
        Self::Privileges,
        Self::Chdir,
        Self::Stdin,
        Self::Stdout,
        Self::Stderr,
        Self::Exec,
    ];
}

/// The mode in which a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMode {
    /// For reading.
    Read,
    /// For appending; it is created if it does not exist.
    Append,
    /// As [`Append`](Self::Append), and its contents are removed.
    Truncate,
}

/// A standard stream of the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stream {
    /// The one that the program has.
    Inherited,
    /// A file, which is opened as the user.
    File(FileMode, CString),
    /// The open file of standard output; for standard error.
    SameAsStdout,
}

/// The work of the program as the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It executes the program of a task.
    Execute,
    /// It copies standard input to the output that is a file, until its end, with the first argument as the label of each
    /// line. The socket is closed when the file is open.
    Copy(Buffering),
}

/// A resource limit (`setrlimit`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The resource's number.
    pub resource: u32,
    /// The soft limit; `u64::MAX` for none.
    pub soft: u64,
    /// The hard limit; `u64::MAX` for none.
    pub hard: u64,
}

/// A task to start, or output of one to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The work of the program.
    pub action: Action,
    /// The user.
    pub uid: u32,
    /// Whether the task's programs cannot get privileges, by set-user-ID for instance.
    pub no_new_privs: bool,
    /// The file mode creation mask.
    pub umask: u32,
    /// Whether the task gets the descriptor [`PMI_DESCRIPTOR`](crate::PMI_DESCRIPTOR).
    pub has_pmi: bool,
    /// Standard input, output and error.
    pub streams: [Stream; 3],
    /// The resource limits; the first [`MAX_RESOURCE_LIMITS`] hold.
    pub limits: Vec<Limit>,
    /// The working directory.
    pub directory: CString,
    /// The program and its arguments. A program without a slash is searched in the `PATH` of `environment`.
    pub arguments: Vec<CString>,
    /// The environment: `NAME=value`.
    pub environment: Vec<CString>,
}

/// Bytes that are not a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidRequest;

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid request")
    }
}

impl Request {
    /// Returns the bytes of the request.
    pub fn encode(&self) -> Vec<u8> {
        let mut strings = Vec::new();
        let mut push = |string: &CStr| strings.extend_from_slice(string.to_bytes_with_nul());
        push(&self.directory);
        for stream in &self.streams {
            if let Stream::File(_, path) = stream {
                push(path);
            }
        }
        for string in self.arguments.iter().chain(&self.environment) {
            push(string);
        }
        let count = |items: usize| u32::try_from(items).unwrap_or(u32::MAX);
        let limits = self
            .limits
            .get(..MAX_RESOURCE_LIMITS)
            .unwrap_or(&self.limits);
        let [stdin, stdout, stderr] = &self.streams;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + strings.len());
        bytes.extend_from_slice(&MAGIC);
        for number in [
            match self.action {
                Action::Execute => 0,
                Action::Copy(Buffering::Lines) => 1,
                Action::Copy(Buffering::None) => 2,
            },
            self.uid,
            u32::from(self.no_new_privs),
            self.umask,
            u32::from(self.has_pmi),
            kind(stdin),
            kind(stdout),
            kind(stderr),
            count(self.arguments.len()),
            count(self.environment.len()),
            count(strings.len()),
            count(limits.len()),
        ] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for limit in limits {
            bytes.extend_from_slice(&limit.resource.to_le_bytes());
            bytes.extend_from_slice(&limit.soft.to_le_bytes());
            bytes.extend_from_slice(&limit.hard.to_le_bytes());
        }
        bytes.resize(HEADER_BYTES, 0);
        bytes.append(&mut strings);
        bytes
    }

    /// The length of the strings of the request with this header.
    ///
    /// # Errors
    ///
    /// Fails if it is not the header of a request.
    pub fn string_bytes(header: &[u8; HEADER_BYTES]) -> Result<usize, InvalidRequest> {
        let mut rest = header.strip_prefix(&MAGIC).ok_or(InvalidRequest)?;
        for _ in 0..10 {
            number(&mut rest)?;
        }
        let length = number(&mut rest)?;
        if length > MAX_STRING_BYTES {
            return Err(InvalidRequest);
        }
        usize::try_from(length).map_err(|_| InvalidRequest)
    }

    /// Reads a request: its header, and its strings.
    ///
    /// # Errors
    ///
    /// Fails if it is not a request.
    pub fn decode(header: &[u8; HEADER_BYTES], strings: &[u8]) -> Result<Self, InvalidRequest> {
        if strings.len() != Self::string_bytes(header)? {
            return Err(InvalidRequest);
        }
        let mut rest = header.strip_prefix(&MAGIC).ok_or(InvalidRequest)?;
        let action = match number(&mut rest)? {
            0 => Action::Execute,
            1 => Action::Copy(Buffering::Lines),
            2 => Action::Copy(Buffering::None),
            _ => return Err(InvalidRequest),
        };
        let uid = number(&mut rest)?;
        let no_new_privs = flag(&mut rest)?;
        let umask = number(&mut rest)?;
        let has_pmi = flag(&mut rest)?;
        let kinds = [number(&mut rest)?, number(&mut rest)?, number(&mut rest)?];
        let (arguments, environment) = (number(&mut rest)?, number(&mut rest)?);
        number(&mut rest)?;
        let limits = usize::try_from(number(&mut rest)?).map_err(|_| InvalidRequest)?;
        if arguments == 0 || limits > MAX_RESOURCE_LIMITS || umask > 0o777 {
            return Err(InvalidRequest);
        }
        let limit = |rest: &mut &[u8]| {
            Ok(Limit {
                resource: number(rest)?,
                soft: long(rest)?,
                hard: long(rest)?,
            })
        };
        let limits = (0..limits).map(|_| limit(&mut rest));
        let limits = limits.collect::<Result<_, _>>()?;
        let mut strings = strings;
        let directory = string(&mut strings)?;
        let [stdin, stdout, stderr] = kinds;
        let stdin = match stdin {
            0 => Stream::Inherited,
            1 => Stream::File(FileMode::Read, string(&mut strings)?),
            _ => return Err(InvalidRequest),
        };
        let mut output = |kind| {
            Ok(match kind {
                0 => Stream::Inherited,
                2 => Stream::File(FileMode::Append, string(&mut strings)?),
                3 => Stream::File(FileMode::Truncate, string(&mut strings)?),
                4 => Stream::SameAsStdout,
                _ => return Err(InvalidRequest),
            })
        };
        let (stdout, stderr) = (output(stdout)?, output(stderr)?);
        if stdout == Stream::SameAsStdout {
            return Err(InvalidRequest);
        }
        let mut list = |length| {
            let strings = (0..length).map(|_| string(&mut strings));
            strings.collect::<Result<Vec<_>, _>>()
        };
        let request = Self {
            action,
            uid,
            no_new_privs,
            umask,
            has_pmi,
            streams: [stdin, stdout, stderr],
            limits,
            directory,
            arguments: list(arguments)?,
            environment: list(environment)?,
        };
        if strings.is_empty() {
            Ok(request)
        } else {
            Err(InvalidRequest)
        }
    }
}

fn kind(stream: &Stream) -> u32 {
    match stream {
        Stream::Inherited => 0,
        Stream::File(FileMode::Read, _) => 1,
        Stream::File(FileMode::Append, _) => 2,
        Stream::File(FileMode::Truncate, _) => 3,
        Stream::SameAsStdout => 4,
    }
}

fn number(rest: &mut &[u8]) -> Result<u32, InvalidRequest> {
    let (bytes, after) = rest.split_first_chunk().ok_or(InvalidRequest)?;
    *rest = after;
    Ok(u32::from_le_bytes(*bytes))
}

fn flag(rest: &mut &[u8]) -> Result<bool, InvalidRequest> {
    match number(rest)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(InvalidRequest),
    }
}

fn long(rest: &mut &[u8]) -> Result<u64, InvalidRequest> {
    let (bytes, after) = rest.split_first_chunk().ok_or(InvalidRequest)?;
    *rest = after;
    Ok(u64::from_le_bytes(*bytes))
}

fn string(rest: &mut &[u8]) -> Result<CString, InvalidRequest> {
    let string = CStr::from_bytes_until_nul(rest).map_err(|_| InvalidRequest)?;
    let length = string.to_bytes_with_nul().len();
    let string = string.to_owned();
    *rest = rest.get(length..).unwrap_or_default();
    Ok(string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        Request {
            action: Action::Copy(Buffering::None),
            uid: 1000,
            no_new_privs: true,
            umask: 0o27,
            has_pmi: true,
            streams: [
                Stream::File(FileMode::Read, c"in".into()),
                Stream::File(FileMode::Truncate, c"out".into()),
                Stream::SameAsStdout,
            ],
            limits: vec![Limit {
                resource: 7,
                soft: 64,
                hard: u64::MAX,
            }],
            directory: c"/home/guest".into(),
            arguments: vec![c"sh".into(), c"-c".into(), c"".into()],
            environment: vec![c"PATH=/bin".into()],
        }
    }

    fn decode(bytes: &[u8]) -> Result<Request, InvalidRequest> {
        let (header, strings) = bytes.split_first_chunk().ok_or(InvalidRequest)?;
        Request::decode(header, strings)
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        assert_eq!(decode(&request().encode()), Ok(request()));
    }

    #[test]
    fn a_part_of_a_request_and_more_than_one_are_rejected() {
        let bytes = request().encode();
        for length in 0..bytes.len() {
            assert_eq!(
                decode(bytes.get(..length).expect("a part")),
                Err(InvalidRequest)
            );
        }
        let more = [bytes.as_slice(), b"\0"].concat();
        assert_eq!(decode(&more), Err(InvalidRequest));
    }

    #[test]
    fn no_changed_byte_makes_the_program_fail() {
        let bytes = request().encode();
        for position in 0..bytes.len() {
            for value in [0, 1, 4, 5, 127, 255] {
                let mut changed = bytes.clone();
                if let Some(byte) = changed.get_mut(position) {
                    *byte = value;
                }
                let _ = decode(&changed);
            }
        }
    }
}
