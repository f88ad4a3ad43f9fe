//! The files that a jobspec puts into the directory of its job (RFC 37): `attributes.system.files`.

use std::borrow::Cow;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_jobspec::Jobspec;
use serde_json::{Map, Value};

/// The mask of the permissions in a file's mode: a file that a user has described gets no set-user-ID or set-group-ID bit.
const PERMISSIONS: u32 = 0o777;
/// The permissions of a file whose mode is absent.
const DEFAULT_PERMISSIONS: u32 = 0o600;
/// The mask of the type in a file's mode, and the types.
const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMBOLIC_LINK: u32 = 0o120_000;

/// The greatest length of a path below the directory and of the target of a link, in bytes, as in Linux.
const MAX_PATH_BYTES: usize = 4095;
/// The greatest length of a name, in bytes, as in Linux.
const MAX_NAME_BYTES: usize = 255;
/// The greatest number of names in a path.
const MAX_LEVELS: usize = 64;
/// The greatest number of files of a job, with the directories that they are in.
const MAX_FILES: usize = 4096;
/// Characters of a name of a user that a text shows.
const MAX_SHOWN_CHARACTERS: usize = 200;

/// A file in the directory of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFile {
    /// The path below the directory: names only.
    pub path: PathBuf,
    /// Its type and content.
    pub content: FileContent,
    /// The permissions.
    pub permissions: u32,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileContent {
    /// A regular file of these bytes.
    Regular(Vec<u8>),
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Link(String),
}

/// Why the files of a jobspec are rejected: a text that names the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFiles(String);

impl fmt::Display for InvalidFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InvalidFiles {}

impl From<InvalidFiles> for String {
    fn from(error: InvalidFiles) -> Self {
        error.0
    }
}

impl From<&str> for InvalidFiles {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// The files of a jobspec, by path.
///
/// The work is linear in the length of the jobspec, but for the sort.
///
/// # Errors
///
/// The value of a file is malformed, its path leads out of the directory, or there are too many.
pub fn read(jobspec: &Jobspec) -> Result<Arc<[JobFile]>, InvalidFiles> {
    let Some(files) = jobspec.attribute("system.files") else {
        return Ok(Arc::default());
    };
    let files = files
        .as_object()
        .ok_or("attributes.system.files: expected an object")?;
    if files.len() > MAX_FILES {
        return Err(too_many_files());
    }
    let mut files = files
        .iter()
        .map(|(path, file)| read_file(path, file))
        .collect::<Result<Vec<_>, _>>()?;
    files.sort_by(|one, other| one.path.cmp(&other.path));
    check_places(&files)?;
    Ok(files.into())
}

/// Checks that no file is in another one or has its path, and the number of the files and their directories. The files are sorted.
fn check_places(files: &[JobFile]) -> Result<(), InvalidFiles> {
    let mut count = 0;
    // By their order, all files below a path follow it directly.
    let mut last = Path::new("");
    let mut last_other = None;
    for file in files {
        let path = file.path.as_path();
        let shown = path.display();
        if path == last {
            return Err(note(&shown.to_string(), "it is named twice"));
        }
        // A link would lead out of the directory.
        if last_other.is_some_and(|other| path.starts_with(other)) {
            let text = "it is in another file, which is no directory";
            return Err(note(&shown.to_string(), text));
        }
        if file.content != FileContent::Directory {
            last_other = Some(path);
        }
        let pairs = path.components().zip(last.components());
        let present = pairs.take_while(|(one, other)| one == other).count();
        count += path.components().count() - present;
        if count > MAX_FILES {
            return Err(too_many_files());
        }
        last = path;
    }
    Ok(())
}

fn too_many_files() -> InvalidFiles {
    let text = "attributes.system.files: expected at most";
    InvalidFiles(format!("{text} {MAX_FILES} files and directories"))
}

/// Reads the path of a file.
fn read_path(name: &str) -> Result<&Path, InvalidFiles> {
    if name.len() > MAX_PATH_BYTES {
        let text = format!("expected a path of at most {MAX_PATH_BYTES} bytes");
        return Err(note(name, &text));
    }
    let path = Path::new(name);
    let is_name = |component| matches!(component, Component::Normal(_));
    if name.is_empty() || !path.components().all(is_name) || name.contains('\0') {
        return Err(note(name, "expected a relative path without `..`"));
    }
    let mut names = path.components();
    if names.any(|name| name.as_os_str().len() > MAX_NAME_BYTES) {
        let text = format!("expected names of at most {MAX_NAME_BYTES} bytes");
        return Err(note(name, &text));
    }
    if path.components().count() > MAX_LEVELS {
        let text = format!("expected a path of at most {MAX_LEVELS} names");
        return Err(note(name, &text));
    }
    Ok(path)
}

fn read_file(name: &str, file: &Value) -> Result<JobFile, InvalidFiles> {
    let path = read_path(name)?;
    let file = file
        .as_object()
        .ok_or_else(|| note(name, "expected an object"))?;
    let mode = match file.get("mode") {
        None => REGULAR | DEFAULT_PERMISSIONS,
        Some(mode) => mode
            .as_u64()
            .and_then(|mode| u32::try_from(mode).ok())
            .ok_or_else(|| {
                let mode = mode.to_string();
                note(
                    name,
                    &format!("mode {}: expected an integer", shorten(&mode)),
                )
            })?,
    };
    let content = match mode & TYPE {
        0 | REGULAR => FileContent::Regular(data(file).map_err(|why| note(name, &why))?),
        DIRECTORY => FileContent::Directory,
        SYMBOLIC_LINK => {
            let target = data(file).map_err(|why| note(name, &why))?;
            let target = String::from_utf8(target).ok();
            let is_valid = |target: &String| {
                (1..=MAX_PATH_BYTES).contains(&target.len()) && !target.contains('\0')
            };
            let target = target.filter(is_valid);
            FileContent::Link(target.ok_or_else(|| note(name, "invalid target of a link"))?)
        }
        _ => {
            let text = format!("mode {mode:#o}: expected a regular file, a directory or a link");
            return Err(note(name, &text));
        }
    };
    Ok(JobFile {
        path: path.to_owned(),
        content,
        permissions: mode & PERMISSIONS,
    })
}

fn note(name: &str, why: &str) -> InvalidFiles {
    InvalidFiles(format!("file `{}`: {why}", shorten(name).escape_debug()))
}

/// A text of a user as an error shows it: the first characters of a long one.
pub fn shorten(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_SHOWN_CHARACTERS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

fn data(file: &Map<String, Value>) -> Result<Vec<u8>, String> {
    let data = file.get("data").unwrap_or(&Value::Null);
    match (file.get("encoding").and_then(Value::as_str), data) {
        (None | Some("utf-8" | "UTF-8"), Value::String(text)) => Ok(text.as_bytes().to_vec()),
        (Some("base64"), Value::String(text)) => BASE64
            .decode(text)
            .map_err(|error| format!("invalid base64: {error}")),
        (_, Value::Null) if file.get("size").and_then(Value::as_u64).unwrap_or(0) == 0 => {
            Ok(Vec::new())
        }
        (None, Value::Null) => Err("no data".to_owned()),
        (None, document) => Ok(document.to_string().into_bytes()),
        (Some(encoding), _) => Err(format!(
            "encoding `{}`: expected utf-8 or base64 with a string",
            shorten(encoding).escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use penstock_jobspec::Jobspec;
    use serde_json::{Value, json};

    use super::{FileContent, read};

    fn jobspec(files: &Value) -> Jobspec {
        let document = json!({
            "version": 1,
            "resources": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
            "tasks": [{"command": ["true"], "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": 0, "files": files}},
        });
        Jobspec::from_json(&document.to_string()).unwrap()
    }

    #[test]
    fn files_have_types_permissions_and_decoded_data() {
        let files = read(&jobspec(&json!({
            "script": {"mode": 0o100_700, "encoding": "utf-8", "data": "#!/bin/sh\n"},
            "conf.json": {"data": {"a": 1}},
            "d/raw": {"mode": 0o100_644, "encoding": "base64", "data": "AAE="},
            "d": {"mode": 0o040_755},
            "link": {"mode": 0o120_777, "data": "script"},
            "empty": {"mode": 0o100_600, "size": 0},
        })))
        .unwrap();
        let found: Vec<_> = files
            .iter()
            .map(|file| {
                (
                    file.path.to_str().unwrap(),
                    file.permissions,
                    file.content.clone(),
                )
            })
            .collect();
        let regular = |bytes: &[u8]| FileContent::Regular(bytes.to_vec());
        assert_eq!(
            found,
            [
                ("conf.json", 0o600, regular(b"{\"a\":1}")),
                ("d", 0o755, FileContent::Directory),
                ("d/raw", 0o644, regular(&[0, 1])),
                ("empty", 0o600, regular(b"")),
                ("link", 0o777, FileContent::Link("script".to_owned())),
                ("script", 0o700, regular(b"#!/bin/sh\n")),
            ]
        );
    }

    #[test]
    fn files_outside_of_the_directory_and_malformed_ones_are_rejected() {
        let file = json!({"mode": 0o100_600, "encoding": "utf-8", "data": "x"});
        for (files_value, expected) in [
            (json!([]), "attributes.system.files: expected an object"),
            (
                json!({"../x": file}),
                "file `../x`: expected a relative path without `..`",
            ),
            (
                json!({"/x": file}),
                "file `/x`: expected a relative path without `..`",
            ),
            (
                json!({"": file}),
                "file ``: expected a relative path without `..`",
            ),
            (json!({"x": 1}), "file `x`: expected an object"),
            (
                json!({"a": {"mode": 0o120_777, "data": "/etc"}, "a/b/x": file}),
                "file `a/b/x`: it is in another file, which is no directory",
            ),
            (
                json!({"x": {"mode": "rw"}}),
                "file `x`: mode \"rw\": expected an integer",
            ),
            (
                json!({"x": {"mode": 0o010_600}}),
                "file `x`: mode 0o10600: expected a regular file, a directory or a link",
            ),
            (
                json!({"x": {"encoding": "blobvec", "data": []}}),
                "file `x`: encoding `blobvec`: expected utf-8 or base64 with a string",
            ),
            (
                json!({"x": {"encoding": "base64", "data": "?"}}),
                "file `x`: invalid base64",
            ),
            (
                json!({"x": {"mode": 0o120_777, "data": ""}}),
                "file `x`: invalid target of a link",
            ),
            (
                json!({"x": {"mode": 0o120_777, "data": "x".repeat(4096)}}),
                "file `x`: invalid target of a link",
            ),
        ] {
            let note = read(&jobspec(&files_value)).unwrap_err().to_string();
            assert!(note.starts_with(expected), "{note}");
        }
    }

    #[test]
    fn a_path_is_named_once() {
        let file = json!({"mode": 0o100_600});
        for other in ["a//b", "a/./b", "a/b/"] {
            let named = json!({"a/b": file, other: file});
            let note = read(&jobspec(&named)).unwrap_err().to_string();
            assert!(note.ends_with("`: it is named twice"), "{note}");
        }
    }

    #[test]
    fn privileges_are_no_permissions() {
        let files = read(&jobspec(&json!({
            "program": {"mode": 0o107_755, "encoding": "utf-8", "data": "x"},
            "directory": {"mode": 0o047_777},
        })))
        .unwrap();
        let found: Vec<_> = files.iter().map(|file| file.permissions).collect();
        assert_eq!(found, [0o777, 0o755]);
    }

    fn with_paths(paths: impl IntoIterator<Item = String>) -> Result<usize, String> {
        let file = json!({"mode": 0o100_600});
        let named = paths.into_iter().map(|path| (path, file.clone()));
        let files = read(&jobspec(&named.collect::<Value>()));
        files
            .map(|files| files.len())
            .map_err(|note| note.to_string())
    }

    #[test]
    fn paths_and_their_number_have_the_limits_of_the_kernel_and_of_the_work() {
        let path = |names: usize| vec!["d"; names].join("/");
        assert_eq!(with_paths([path(64), "x".repeat(255)]), Ok(2));
        let numbered = |count: usize| (0..count).map(|number| number.to_string());
        assert_eq!(with_paths(numbered(4096)), Ok(4096));
        let many = "attributes.system.files: expected at most 4096 files and directories";
        assert_eq!(with_paths(numbered(4097)), Err(many.to_owned()));
        // With 63 directories each.
        let deep = |number| format!("{number}/{}", path(63));
        assert_eq!(with_paths((0..64).map(deep)), Ok(64));
        assert_eq!(with_paths((0..65).map(deep)), Err(many.to_owned()));
        for (path, expected) in [
            (path(65), "expected a path of at most 64 names"),
            ("x".repeat(256), "expected names of at most 255 bytes"),
            (path(500_000), "expected a path of at most 4095 bytes"),
        ] {
            let note = with_paths([path]).unwrap_err();
            assert!(note.ends_with(expected), "{note}");
            assert!(note.len() < 500, "{note}");
        }
    }

    #[test]
    fn a_file_below_another_one_is_found_among_its_siblings() {
        let file = json!({"mode": 0o100_600});
        let link = json!({"mode": 0o120_777, "data": "/etc"});
        // `a-b` is before `a/b` as a text, and after it as a path.
        let mut named = json!({"a": link, "a-b": file, "a.b": file, "a/b/c": file, "b": file});
        let note = read(&jobspec(&named)).unwrap_err().to_string();
        assert!(
            note.starts_with("file `a/b/c`: it is in another file"),
            "{note}"
        );
        named["a"] = json!({"mode": 0o040_700});
        let found = read(&jobspec(&named)).unwrap();
        let paths: Vec<_> = found
            .iter()
            .map(|file| file.path.to_str().unwrap())
            .collect();
        assert_eq!(paths, ["a", "a/b/c", "a-b", "a.b", "b"]);
    }
}
