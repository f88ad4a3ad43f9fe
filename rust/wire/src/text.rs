//! The text of payloads: Unicode, without lone surrogates.

/// Describes the first fault in a JSON payload's text: a byte that is not UTF-8, or an escape of a
/// surrogate without its other half, which JSON's grammar allows (RFC 8259, section 8.2) and UTF-8
/// cannot encode. The rest of the syntax is not checked.
pub fn find_text_fault(payload: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(payload) {
        Ok(text) => text,
        Err(error) => return Some(format!("invalid UTF-8 at byte {}", error.valid_up_to())),
    };
    let at = find_lone_surrogate(text)?;
    Some(format!(
        "expected a pair of surrogates at byte {at}, found one alone"
    ))
}

fn find_lone_surrogate(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut from = 0;
    loop {
        // `str::find` compares many bytes at a time.
        let at = from + text.get(from..)?.find('\\')?;
        from = match escaped_unit(bytes, at) {
            Some(0xD800..0xDC00) => match escaped_unit(bytes, at + 6) {
                Some(0xDC00..0xE000) => at + 12,
                _ => return Some(at),
            },
            Some(0xDC00..0xE000) => return Some(at),
            Some(_) => at + 6,
            None if bytes.get(at + 1) == Some(&b'\\') => at + 2,
            None => at + 1,
        };
    }
}

/// The UTF-16 unit of an escape `\uXXXX` at this byte.
fn escaped_unit(text: &[u8], at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit, digit| {
        let value = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(value).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::find_text_fault;

    #[test]
    fn text_without_a_fault() {
        for text in [
            "",
            r#"{"name":"size"}"#,
            r#"["\ud83d\ude00","\uD83D\uDE00","\u0000","\ue000"]"#,
            r#"["\\ud800","\\\\udc00","\n\\"]"#,
            r"\",
            r"\u",
            r"\u12",
            "\u{1f600}",
            "\\\u{1f600}\\",
        ] {
            assert_eq!(find_text_fault(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn lone_surrogates_and_invalid_utf_8_are_found_with_their_byte() {
        let cases: [(&[u8], usize); 9] = [
            (br#"{"name":"\ud800"}"#, 9),
            (br#"["\uDFFF"]"#, 2),
            (br#"["\ud800\ud800"]"#, 2),
            (br#"["\ud800x\udc00"]"#, 2),
            (br#"["\ud83d\ude00\ude00"]"#, 14),
            (br#"["\\\ud800"]"#, 4),
            ("[\"\\\u{e9}\\udfff\"]".as_bytes(), 5),
            (b"\"\xff\"", 1),
            (b"\"\xed\xa0\x80\"", 1),
        ];
        for (text, byte) in cases {
            let fault = find_text_fault(text).unwrap();
            assert!(fault.contains(&format!("at byte {byte}")), "{fault}");
        }
    }
}
