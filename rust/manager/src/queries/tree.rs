//! The tree of the keys outside of `job` (RFC 11), over a store of keys and values.
//!
//! A directory follows from the keys in it. One that has been made, or has become empty, has a mark: its key with a period
//! after it. A symbolic link is a value whose key has two periods after it. No key of a client ends with a period.

use std::collections::BTreeMap;

use penstock_flux::kvs::{READLINK, Reference, Symlink, TREEOBJ, TreeObject};
use penstock_flux::{RequestError, errno};

use crate::context::Context;

/// The greatest number of entries of a directory that is listed.
const MAX_ENTRIES: usize = 20_000;

/// Keys that are read at a time, and the most of a directory in the listed one.
const KEYS_PER_READ: usize = 64;

/// The greatest number of links on the way to a key.
const MAX_LINKS: usize = 10;

fn directory_mark(key: &str) -> String {
    format!("{key}.")
}

fn link_mark(key: &str) -> String {
    format!("{key}..")
}

/// The keys of the directories above a key, the highest first.
pub(super) fn directories_above(key: &str) -> impl Iterator<Item = &str> {
    let periods = key.match_indices('.');
    periods.filter_map(|(index, _)| key.get(..index))
}

fn link_target(cx: &Context, key: &str) -> Option<String> {
    let target = cx.read_store(|store| store.value(&link_mark(key)))?;
    String::from_utf8(target).ok()
}

/// The key without links in the directories above it.
pub(super) fn resolve_parent(cx: &Context, key: &str) -> Result<String, RequestError> {
    let mut resolved = key.to_owned();
    for _ in 0..=MAX_LINKS {
        let found = directories_above(&resolved).find_map(|directory| {
            let target = link_target(cx, directory)?;
            let rest = resolved.get(directory.len()..).unwrap_or_default();
            Some(format!("{target}{rest}"))
        });
        match found {
            None => return Ok(resolved),
            Some(next) => resolved = next,
        }
    }
    Err(too_many_links(key))
}

/// The key that a key stands for: without links, itself included.
pub(super) fn resolve(cx: &Context, key: &str) -> Result<String, RequestError> {
    let mut resolved = resolve_parent(cx, key)?;
    for _ in 0..=MAX_LINKS {
        match link_target(cx, &resolved) {
            None => return Ok(resolved),
            Some(target) => resolved = resolve_parent(cx, &target)?,
        }
    }
    Err(too_many_links(key))
}

fn too_many_links(key: &str) -> RequestError {
    RequestError::invalid(format!("`{key}`: more than {MAX_LINKS} symbolic links"))
}

/// The target of the link at a key, if a lookup with these flags wants the link itself.
pub(super) fn link_at(cx: &Context, key: &str, flags: i64) -> Result<Option<String>, RequestError> {
    if flags & (READLINK | TREEOBJ) == 0 || key.is_empty() || key.starts_with("job") {
        return Ok(None);
    }
    let key = resolve_parent(cx, key)?;
    Ok(link_target(cx, &key))
}

/// Whether a key is that of a directory, as the root is.
pub(super) fn is_directory(cx: &Context, key: &str) -> bool {
    if key.is_empty() {
        return true;
    }
    let (below, link) = (directory_mark(key), link_mark(key));
    // The second key, for the first one may be the mark of a link at the key itself.
    let keys = cx.read_store(|store| store.keys(&below, 2));
    keys.iter().any(|key| *key != link)
}

/// The entries of a directory; none if the key names none.
///
/// # Errors
///
/// There are too many for one response.
pub(super) fn entries(
    cx: &Context,
    directory: &str,
) -> Result<BTreeMap<String, TreeObject>, RequestError> {
    let prefix = match directory {
        "" => String::new(),
        directory => directory_mark(directory),
    };
    let mut entries = BTreeMap::new();
    let mut first = prefix.clone();
    loop {
        let keys = cx.read_store(|store| store.keys_from(&prefix, &first, KEYS_PER_READ));
        let is_last = keys.len() < KEYS_PER_READ;
        for key in keys {
            // In a directory that is an entry already.
            if key < first {
                continue;
            }
            first = format!("{key}\0");
            let rest = key.get(prefix.len()..).unwrap_or_default();
            // The mark of a link at the directory's own key.
            if rest == "." {
                continue;
            }
            let (word, entry) = match rest.split_once('.') {
                // Its own mark.
                None if rest.is_empty() => continue,
                None => (rest, TreeObject::Reference(Reference::VALUE)),
                Some((word, ".")) => {
                    let target = link_target(cx, &format!("{prefix}{word}")).unwrap_or_default();
                    (word, TreeObject::Symlink(Symlink::new(target)))
                }
                Some((word, _)) => {
                    // '/' is the character after '.': the keys in this directory are before it.
                    first = format!("{prefix}{word}/");
                    (word, TreeObject::Reference(Reference::DIRECTORY))
                }
            };
            entries.insert(word.to_owned(), entry);
        }
        if entries.len() > MAX_ENTRIES {
            let text =
                format!("`{directory}` has too many entries: expected at most {MAX_ENTRIES}");
            return Err(RequestError::new(errno::EFBIG, text));
        }
        if is_last {
            return Ok(entries);
        }
    }
}

/// Sets a value. A value in the place of a directory above, and what was at the key, are removed.
pub(super) fn set(cx: &mut Context, key: &str, data: &[u8]) {
    clear(cx, key);
    cx.store_value(key, Some(data));
}

/// Makes an empty directory.
pub(super) fn make_directory(cx: &mut Context, key: &str) {
    clear(cx, key);
    cx.store_value(&directory_mark(key), Some(b""));
}

/// Makes a symbolic link.
pub(super) fn link(cx: &mut Context, key: &str, target: &str) {
    clear(cx, key);
    cx.store_value(&link_mark(key), Some(target.as_bytes()));
}

/// Removes a value, a link, or a directory with all that is in it. The directory above stays.
pub(super) fn remove(cx: &mut Context, key: &str) {
    cx.store_value(key, None);
    if let Some((above, _)) = key.rsplit_once('.')
        && !is_directory(cx, above)
    {
        cx.store_value(&directory_mark(above), Some(b""));
    }
}

fn clear(cx: &mut Context, key: &str) {
    for directory in directories_above(key) {
        if cx.read_store(|store| store.value(directory)).is_some() {
            cx.store_value(directory, None);
        }
    }
    cx.store_value(key, None);
}
