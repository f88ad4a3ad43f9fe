//! Files that are there already.

use std::path::Path;

use crate::Error;

/// Rejects what is there and is no file: a pipe would be waited for.
pub(crate) fn require_file(path: &Path) -> Result<(), Error> {
    match path.metadata() {
        Ok(metadata) if !metadata.is_file() => {
            let text = format!("`{}` is not a file", path.display());
            Err(Error::invalid(&text))
        }
        _ => Ok(()),
    }
}
