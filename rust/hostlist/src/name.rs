//! The characters of a host name (RFC 29).
use crate::Error;

pub(crate) const NOT_PRINTABLE: &str = "expected printable ASCII without blanks";

/// A character of a name: printable ASCII but blanks, commas and brackets.
fn in_name(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b',' | b'[' | b']')
}

/// The end of the name that starts at `start`.
pub(crate) fn name_end(text: &str, start: usize) -> usize {
    let rest = &text.as_bytes()[start..];
    start + rest.iter().take_while(|&&byte| in_name(byte)).count()
}

/// Rejects anything but the name of one host.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let end = name_end(name, 0);
    match name.as_bytes().get(end) {
        None if name.is_empty() => Err(Error::name(name, 0, "expected a name")),
        None => Ok(()),
        Some(b'[' | b']' | b',') => Err(Error::name(
            name,
            end,
            "expected the name of one host, without brackets and commas,",
        )),
        Some(_) => Err(Error::name(name, end, NOT_PRINTABLE)),
    }
}
