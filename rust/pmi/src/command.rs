//! The requests of a client: lines of `key=value`.

use std::fmt;

use crate::MAX_LINE_BYTES;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The first request, with the highest version that the client speaks.
    Init {
        /// The version.
        version: u32,
        /// The subversion.
        subversion: u32,
    },
    /// The maximum lengths of names, keys and values.
    GetMaxes,
    /// The greatest possible size of the program.
    GetUniverseSize,
    /// The number of the application.
    GetAppnum,
    /// The name of the key-value space.
    GetMyKvsname,
    /// Stores a value.
    Put {
        /// The name of the key-value space.
        kvsname: String,
        /// The key.
        key: String,
        /// The value; it may be empty.
        value: String,
    },
    /// Requests a value.
    Get {
        /// The name of the key-value space.
        kvsname: String,
        /// The key.
        key: String,
    },
    /// Enters the barrier, and waits for its end.
    BarrierIn,
    /// Ends the use of the protocol.
    Finalize,
    /// Ends the program.
    Abort,
    /// Publishes a name, which is not supported.
    PublishName,
    /// Withdraws a name.
    UnpublishName,
    /// Looks up a name.
    LookupName,
    /// Starts further processes, which is not supported: all lines of the request.
    Spawn,
}

/// A breach of the protocol. RFC 13: the connection is closed, and the program is aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(String);

impl Violation {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// A text of a client, safe in a line of a log.
fn shown(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    let start: String = text.chars().take(MAX_CHARS).collect();
    format!("`{}`", start.escape_debug())
}

/// The tuples of a line. RFC 13: in any order, among other tuples, with any white space between them.
///
/// A value that may have spaces in it ends at the next white space, unless it is the last one of its line as the
/// grammar has it: after all other tuples of its command.
struct Tuples<'a> {
    fields: Vec<(&'a str, &'a str)>,
}

impl<'a> Tuples<'a> {
    fn parse(line: &'a str) -> Result<Self, Violation> {
        let mut fields: Vec<(&str, &str)> = Vec::new();
        let mut rest = line.trim_start_matches([' ', '\t']);
        while !rest.is_empty() {
            let Some((key, after)) = rest.split_once('=') else {
                return Err(Violation::new(format!(
                    "expected `key=value`, found {}",
                    shown(rest)
                )));
            };
            if key.is_empty() || key.contains([' ', '\t']) {
                return Err(Violation::new(format!(
                    "expected a key before `=`, found {}",
                    shown(key)
                )));
            }
            let has = |name: &str| fields.iter().any(|(key, _)| *key == name);
            let is_rest = key == "value" && has("cmd") && has("kvsname") && has("key");
            let end = if is_rest {
                after.len()
            } else {
                after.find([' ', '\t']).unwrap_or(after.len())
            };
            let (value, after) = after.split_at(end);
            fields.push((key, value));
            rest = after.trim_start_matches([' ', '\t']);
        }
        Ok(Self { fields })
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        let mut fields = self.fields.iter();
        fields
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
    }

    fn word(&self, name: &str) -> Result<String, Violation> {
        let value = self.get(name).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| self.missing(name))?;
        Ok(value.to_owned())
    }

    fn number(&self, name: &str) -> Result<u32, Violation> {
        let value = self.get(name).ok_or_else(|| self.missing(name))?;
        let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let number = value.parse().ok().filter(|_| is_number);
        number.ok_or_else(|| {
            let text = format!("{name}: expected a number, found {}", shown(value));
            Violation::new(text)
        })
    }

    fn missing(&self, name: &str) -> Violation {
        let command = self.get("cmd").unwrap_or_default();
        Violation::new(format!("command {} has no `{name}`", shown(command)))
    }
}

/// Reads one line, without its end, that is no part of a spawn request.
fn parse(line: &str) -> Result<Command, Violation> {
    let tuples = Tuples::parse(line)?;
    let Some(command) = tuples.get("cmd") else {
        let text = format!("expected `cmd=`, found {}", shown(line));
        return Err(Violation::new(text));
    };
    Ok(match command {
        "init" => Command::Init {
            version: tuples.number("pmi_version")?,
            subversion: tuples.number("pmi_subversion")?,
        },
        "get_maxes" => Command::GetMaxes,
        "get_universe_size" => Command::GetUniverseSize,
        "get_appnum" => Command::GetAppnum,
        "get_my_kvsname" => Command::GetMyKvsname,
        "put" => Command::Put {
            kvsname: tuples.word("kvsname")?,
            key: tuples.word("key")?,
            value: tuples
                .get("value")
                .ok_or_else(|| tuples.missing("value"))?
                .to_owned(),
        },
        "get" => Command::Get {
            kvsname: tuples.word("kvsname")?,
            key: tuples.word("key")?,
        },
        "barrier_in" => Command::BarrierIn,
        "finalize" => Command::Finalize,
        "abort" => Command::Abort,
        "publish_name" => Command::PublishName,
        "unpublish_name" => Command::UnpublishName,
        "lookup_name" => Command::LookupName,
        other => {
            let text = format!("unknown command {}", shown(other));
            return Err(Violation::new(text));
        }
    })
}

/// The reader of the requests of one connection: bytes go in as they arrive, requests come out.
#[derive(Debug, Default)]
pub struct LineParser {
    /// A line that has not ended.
    partial: Vec<u8>,
    is_in_spawn: bool,
}

impl LineParser {
    /// Takes bytes, and returns the requests that are complete, up to a violation.
    pub fn receive(&mut self, bytes: &[u8]) -> Vec<Result<Command, Violation>> {
        let mut commands = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            let command = if self.partial.is_empty() {
                self.line(line)
            } else {
                self.partial.extend_from_slice(line);
                let whole = std::mem::take(&mut self.partial);
                self.line(&whole)
            };
            let Some(command) = command.transpose() else {
                continue;
            };
            let is_violation = command.is_err();
            commands.push(command);
            if is_violation {
                return commands;
            }
        }
        self.partial.extend_from_slice(rest);
        if self.partial.len() > MAX_LINE_BYTES {
            commands.push(Err(too_long()));
        }
        commands
    }

    /// Reads a line. The lines of a spawn request are one command.
    fn line(&mut self, line: &[u8]) -> Result<Option<Command>, Violation> {
        if line.len() > MAX_LINE_BYTES {
            return Err(too_long());
        }
        let line = std::str::from_utf8(line)
            .ok()
            .filter(|line| !line.contains(|char: char| char.is_control() && char != '\t'));
        let line = line.ok_or_else(|| Violation::new("a line is no text"))?;
        if self.is_in_spawn {
            self.is_in_spawn = line.trim() != "endcmd";
            return Ok((!self.is_in_spawn).then_some(Command::Spawn));
        }
        if line.trim() == "mcmd=spawn" {
            self.is_in_spawn = true;
            return Ok(None);
        }
        parse(line).map(Some)
    }
}

fn too_long() -> Violation {
    Violation::new(format!("a line is longer than {MAX_LINE_BYTES} bytes"))
}

#[cfg(test)]
mod tests {
    use super::{Command, LineParser, MAX_LINE_BYTES};

    fn read(text: &str) -> Vec<Result<Command, String>> {
        let commands = LineParser::default().receive(text.as_bytes());
        let text = |violation: super::Violation| violation.to_string();
        commands
            .into_iter()
            .map(|command| command.map_err(text))
            .collect()
    }

    fn put(key: &str, value: &str) -> Command {
        Command::Put {
            kvsname: "k".to_owned(),
            key: key.to_owned(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn tuples_come_in_any_order_with_spaces_and_further_keys() {
        let init = Command::Init {
            version: 1,
            subversion: 1,
        };
        for line in [
            "cmd=init pmi_version=1 pmi_subversion=1\n",
            "pmi_subversion=1  cmd=init\tpmi_version=1 \n",
            " cmd=init x=y pmi_version=1 pmi_subversion=1 rc=0\n",
        ] {
            assert_eq!(read(line), [Ok(init.clone())], "{line}");
        }
    }

    #[test]
    fn the_value_of_put_has_the_rest_of_the_line_or_a_word() {
        for (line, key, value) in [
            ("cmd=put kvsname=k key=a value=b=c d\te\n", "a", "b=c d\te"),
            ("cmd=put kvsname=k key=a value=\n", "a", ""),
            ("cmd=put value=b=c key=a kvsname=k\n", "a", "b=c"),
            ("kvsname=k key=a cmd=put value= x\n", "a", " x"),
        ] {
            assert_eq!(read(line), [Ok(put(key, value))], "{line}");
        }
    }

    #[test]
    fn lines_may_come_in_parts_and_together() {
        let text = "cmd=get_maxes\ncmd=put kvsname=k key=a value=1\ncmd=barrier_in\n";
        let expected = read(text);
        assert_eq!(expected.len(), 3);
        for size in 1..text.len() {
            let mut parser = LineParser::default();
            let parts = text.as_bytes().chunks(size);
            let found: Vec<_> = parts.flat_map(|part| parser.receive(part)).collect();
            let found: Vec<_> = found.into_iter().map(Result::unwrap).collect();
            let wanted: Vec<_> = expected.iter().cloned().map(Result::unwrap).collect();
            assert_eq!(found, wanted, "{size}");
        }
    }

    #[test]
    fn the_lines_of_spawn_are_one_command() {
        let text = "mcmd=spawn\nnprocs=1\nexecname=a b\narg1=cmd=abort\nendcmd\ncmd=finalize\n";
        assert_eq!(read(text), [Ok(Command::Spawn), Ok(Command::Finalize)]);
    }

    #[test]
    fn other_lines_are_violations_that_say_what_was_expected() {
        for (line, text) in [
            ("\n", "expected `cmd=`, found ``"),
            ("hello\n", "expected `key=value`, found `hello`"),
            (
                "cmd init=1\n",
                "expected a key before `=`, found `cmd init`",
            ),
            ("cmd=nosuch\n", "unknown command `nosuch`"),
            ("x=1\n", "expected `cmd=`, found `x=1`"),
            ("cmd=get key=a\n", "command `get` has no `kvsname`"),
            ("cmd=put kvsname=k key=a\n", "command `put` has no `value`"),
            (
                "cmd=init pmi_version=+1 pmi_subversion=1\n",
                "pmi_version: expected a number, found `+1`",
            ),
            ("cmd=get\u{1}\n", "a line is no text"),
        ] {
            assert_eq!(read(line), [Err(text.to_owned())], "{line:?}");
        }
        let long = "x".repeat(MAX_LINE_BYTES + 1);
        let text = "a line is longer than 16384 bytes".to_owned();
        assert_eq!(read(&long), [Err(text.clone())]);
        assert_eq!(read(&format!("{long}\ncmd=abort\n")), [Err(text)]);
    }
}
