//! The number of values in a JSON text, counted without reading them.

/// The number of values in a JSON text, those in lists and objects included: each takes many times its text in memory.
///
/// Of text that is not JSON the number is arbitrary.
///
/// ```
/// use penstock_flux::count_values;
///
/// assert_eq!(count_values("7"), 1);
/// assert_eq!(count_values(r#"{"a": [1, "[,]"], "b": {}}"#), 5);
/// ```
pub fn count_values(text: &str) -> u64 {
    let mut bytes = text.bytes();
    let mut values = 1;
    // Whether the last token has begun a list or an object: the next one is its first value, or its end.
    let mut is_begun = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => continue,
            b'[' | b'{' | b',' => values += 1,
            b']' | b'}' => values -= u64::from(is_begun),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
        is_begun = matches!(byte, b'[' | b'{');
    }
    values
}

/// Skips the rest of a string, with its closing quote.
fn skip_string(bytes: &mut std::str::Bytes<'_>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::count_values;
    use serde_json::{Value, json};

    fn values(value: &Value) -> u64 {
        match value {
            Value::Array(list) => 1 + list.iter().map(values).sum::<u64>(),
            Value::Object(members) => 1 + members.values().map(values).sum::<u64>(),
            _ => 1,
        }
    }

    #[test]
    fn each_value_of_a_document_counts_once() {
        for value in [
            json!(null),
            json!("a\"],[\\"),
            json!([]),
            json!({}),
            json!([[], {}, [[]], "", "\\", 1.5, true]),
            json!({"a": [1, 2, {"b": {}, "c,": "[", "\"": []}], "d": null}),
        ] {
            for text in [
                value.to_string(),
                serde_json::to_string_pretty(&value).unwrap(),
            ] {
                assert_eq!(count_values(&text), values(&value), "{text}");
            }
        }
    }

    #[test]
    fn malformed_text_is_counted_to_its_end() {
        for text in ["", "\"", "\"\\", "]", "]]}}", "[\"", "{\"a\":[", ",,"] {
            count_values(text);
        }
    }
}
