//! The files to execute for a program's name.

use std::ffi::{CStr, CString};

/// The search path without a variable `PATH`.
pub const DEFAULT_PATH: &[u8] = b"/bin:/usr/bin";

/// The files to try to execute, in order: the first argument if it has a slash, else the files of that name in the folders of
/// `PATH` in the environment.
pub fn candidates<'a>(
    arguments: &[CString],
    environment: impl Iterator<Item = &'a CStr>,
) -> Vec<CString> {
    let Some(program) = arguments.first() else {
        return Vec::new();
    };
    let name = program.as_bytes();
    if name.is_empty() || name.contains(&b'/') {
        return vec![program.clone()];
    }
    let variables = environment.map(CStr::to_bytes);
    let path = variables
        .filter_map(|variable| variable.strip_prefix(b"PATH="))
        .last()
        .unwrap_or(DEFAULT_PATH);
    let candidate = |folder: &[u8]| {
        let folder = if folder.is_empty() { b"." } else { folder };
        CString::new([folder, b"/", name].concat()).ok()
    };
    path.split(|byte| *byte == b':')
        .filter_map(candidate)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(argument: &str, environment: &[&str]) -> Vec<String> {
        let text = |text: &str| CString::new(text).expect("no NUL");
        let environment: Vec<_> = environment.iter().map(|variable| text(variable)).collect();
        let found = candidates(&[text(argument)], environment.iter().map(CString::as_c_str));
        let lossy = |file: CString| file.to_string_lossy().into_owned();
        found.into_iter().map(lossy).collect()
    }

    #[test]
    fn a_name_is_searched_in_the_folders_of_the_last_path() {
        let environment = ["PATH=/x", "A=b", "PATH=/a::/b"];
        assert_eq!(shown("app", &environment), ["/a/app", "./app", "/b/app"]);
        assert_eq!(shown("app", &[]), ["/bin/app", "/usr/bin/app"]);
        assert_eq!(shown("./app", &environment), ["./app"]);
        assert_eq!(shown("", &environment), [""]);
        assert!(candidates(&[], [].into_iter()).is_empty());
    }
}
