//! The vectors that Python's tests read too.
use penstock_idset::{Error, IdSet};
use serde_json::Value;

fn vectors() -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/idset.json"
    );
    let text = std::fs::read_to_string(path).expect("the vectors are there");
    serde_json::from_str(&text).expect("the vectors are JSON")
}

fn rows<'a>(vectors: &'a Value, name: &str) -> &'a [Value] {
    let rows = vectors[name].as_array().expect("an array");
    assert!(!rows.is_empty());
    rows
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().expect("a text")
}

fn set(row: &Value, key: &str) -> IdSet {
    text(row, key).parse().expect("an idset")
}

#[test]
fn valid_texts_are_read() {
    let vectors = vectors();
    for row in rows(&vectors, "valid") {
        let set = set(row, "text");
        assert_eq!(set.to_string(), text(row, "canonical"), "{row}");
        assert_eq!(Some(set.len()), row["count"].as_u64(), "{row}");
        if let Some(ids) = row["ids"].as_array() {
            assert!(set.iter().map(Value::from).eq(ids.iter().cloned()), "{row}");
        }
    }
}

#[test]
fn invalid_texts_are_rejected_with_the_byte() {
    let vectors = vectors();
    for row in rows(&vectors, "invalid") {
        let read: Result<IdSet, Error> = text(row, "text").parse();
        let error = read.expect_err("an error");
        assert_eq!(error.to_string(), text(row, "error"));
        assert_eq!(Some(error.offset() as u64), row["offset"].as_u64(), "{row}");
        assert!(error.is_in_text());
    }
}

#[test]
fn texts_of_other_programs_are_corrected_with_a_note() {
    let vectors = vectors();
    for row in rows(&vectors, "lenient") {
        let (set, mended) = IdSet::parse_lenient(text(row, "text")).expect("mended");
        assert_eq!(set.to_string(), text(row, "canonical"), "{row}");
        let notes: Vec<String> = mended.iter().map(ToString::to_string).collect();
        assert_eq!(Value::from(notes), row["mended"], "{row}");
    }
    for row in rows(&vectors, "lenient_invalid") {
        let error = IdSet::parse_lenient(text(row, "text")).expect_err("an error");
        assert_eq!(error.to_string(), text(row, "error"));
        assert_eq!(Some(error.offset() as u64), row["offset"].as_u64(), "{row}");
    }
}

#[test]
fn operations_have_these_results() {
    let vectors = vectors();
    for row in rows(&vectors, "operations") {
        let (left, right) = (set(row, "left"), set(row, "right"));
        assert_eq!(left.union(&right), set(row, "union"), "{row}");
        assert_eq!(left.intersection(&right), set(row, "intersection"), "{row}");
        assert_eq!(left.difference(&right), set(row, "difference"), "{row}");
        let difference = left.symmetric_difference(&right);
        assert_eq!(difference, set(row, "symmetric_difference"), "{row}");
        assert_eq!(Some(left.is_subset(&right)), row["subset"].as_bool());
        assert_eq!(Some(left.is_disjoint(&right)), row["disjoint"].as_bool());
    }
}
