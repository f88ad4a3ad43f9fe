//! The directory of a job, and the files that its jobspec puts there (RFC 37).

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use penstock_jobspec::Jobspec;
use serde_json::{Map, Value};

use crate::error::Note;
use crate::types::JobId;

/// The mask of the permissions in a file's mode.
const PERMISSIONS: u32 = 0o7777;
/// The permissions of a file whose mode is absent.
const DEFAULT_PERMISSIONS: u32 = 0o600;
/// The mask of the type in a file's mode, and the types.
const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMBOLIC_LINK: u32 = 0o120_000;

/// The directory of a job, as the event loop makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDirectory {
    /// The job.
    pub job: JobId,
    /// The user to whom it belongs.
    pub owner: DirectoryOwner,
    /// The files in it, directories before what is in them.
    pub files: Rc<[JobFile]>,
}

/// The user to whom the directory of a job belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectoryOwner {
    /// The user that runs the service.
    Service,
    /// A guest, by user id.
    Guest(u32),
}

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

/// The files of a jobspec, by path. The error is the note of the job's exception.
pub(super) fn files(jobspec: &Jobspec) -> Result<Rc<[JobFile]>, Note> {
    let Some(files) = jobspec.attribute("system.files") else {
        return Ok(Rc::default());
    };
    let files = files
        .as_object()
        .ok_or("attributes.system.files: expected an object")?;
    let mut files = files
        .iter()
        .map(|(path, file)| read(path, file))
        .collect::<Result<Vec<_>, _>>()?;
    files.sort_by(|one, other| one.path.cmp(&other.path));
    let is_directory = |file: &JobFile| file.content == FileContent::Directory;
    let others: BTreeSet<_> = files
        .iter()
        .filter(|file| !is_directory(file))
        .map(|file| file.path.as_path())
        .collect();
    // A link would lead out of the directory.
    let mut paths = files.iter().map(|file| file.path.as_path());
    if let Some(path) = paths.find(|path| {
        let mut parents = path.ancestors().skip(1);
        parents.any(|parent| others.contains(parent))
    }) {
        let path = path.display().to_string();
        return Err(note(&path, "it is in another file, which is no directory"));
    }
    Ok(files.into())
}

fn read(name: &str, file: &Value) -> Result<JobFile, Note> {
    let shown = name.escape_debug();
    let path = Path::new(name);
    let is_name = |component| matches!(component, Component::Normal(_));
    if name.is_empty() || !path.components().all(is_name) || name.contains('\0') {
        return Err(format!("file `{shown}`: expected a relative path without `..`").into());
    }
    let file = file
        .as_object()
        .ok_or_else(|| format!("file `{shown}`: expected an object"))?;
    let mode = match file.get("mode") {
        None => REGULAR | DEFAULT_PERMISSIONS,
        Some(mode) => mode
            .as_u64()
            .and_then(|mode| u32::try_from(mode).ok())
            .ok_or_else(|| format!("file `{shown}`: mode {mode}: expected an integer"))?,
    };
    let content = match mode & TYPE {
        0 | REGULAR => FileContent::Regular(data(file).map_err(|why| note(name, &why))?),
        DIRECTORY => FileContent::Directory,
        SYMBOLIC_LINK => {
            let target = data(file).map_err(|why| note(name, &why))?;
            let target = String::from_utf8(target).ok();
            let target = target.filter(|target| !target.is_empty() && !target.contains('\0'));
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

fn note(name: &str, why: &str) -> Note {
    format!("file `{}`: {why}", name.escape_debug()).into()
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
            encoding.escape_debug()
        )),
    }
}

#[cfg(test)]
mod tests {
    use penstock_jobspec::Jobspec;
    use serde_json::{Value, json};

    use super::{FileContent, files};

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
        let files = files(&jobspec(&json!({
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
        ] {
            let note = files(&jobspec(&files_value)).unwrap_err().to_string();
            assert!(note.starts_with(expected), "{note}");
        }
    }
}
