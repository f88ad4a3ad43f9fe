//! Records of append-only files: a length, a CRC-32 and a payload.

use crate::Error;
use crate::codec::Write;

/// Appends a record: the length of the payload and its CRC-32 (four bytes each, little-endian), and the payload.
pub(crate) fn write_record(into: &mut Vec<u8>, payload: &[u8]) {
    into.length(payload.len());
    into.u32(crc32(payload));
    into.bytes(payload);
}

/// Splits off the first record and decodes it; `None` if it is cut off or damaged.
pub(crate) fn split_record<T>(
    bytes: &[u8],
    decode: impl FnOnce(&[u8]) -> Result<T, Error>,
) -> Option<(T, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let (payload, rest) = rest.split_at_checked(length)?;
    if crc32(payload) != u32::from_le_bytes(*checksum) {
        return None;
    }
    Some((decode(payload).ok()?, rest))
}

/// CRC-32 as in zlib.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let carry = 0u32.wrapping_sub(crc & 1);
            crc = (crc >> 1) ^ (0xedb8_8320 & carry);
        }
    }
    !crc
}

/// Checks the magic number of a file: its last byte is the digit of the version. `kind` describes the file.
pub(crate) fn check_magic(bytes: &[u8], magic: [u8; 8], kind: &str) -> Result<(), Error> {
    let ([name @ .., expected], Some([found_name @ .., found])) =
        (&magic, bytes.first_chunk::<8>())
    else {
        return Err(Error::format(format!("not {kind}: expected its header")));
    };
    if name != found_name || !found.is_ascii_digit() {
        return Err(Error::format(format!("not {kind}: expected its header")));
    }
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (char::from(*found), char::from(*expected));
    let text = format!("{kind} of version {found}: expected version {expected}");
    Err(Error::other_version(text))
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn the_checksum_is_that_of_zlib() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
