//! The vectors that Python's tests read too.
use penstock_hostlist::{Error, Hostlist};
use serde_json::Value;

fn vectors() -> Value {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/hostlist.json"
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

fn list(row: &Value, key: &str) -> Hostlist {
    text(row, key).parse().expect("a hostlist")
}

fn check_error(row: &Value, error: &Error) {
    assert_eq!(error.to_string(), text(row, "error"));
    assert_eq!(Some(error.offset() as u64), row["offset"].as_u64(), "{row}");
    assert!(error.is_in_text());
}

#[test]
fn valid_texts_are_read() {
    let vectors = vectors();
    for row in rows(&vectors, "valid") {
        let list = list(row, "text");
        assert_eq!(list.to_string(), text(row, "canonical"), "{row}");
        assert_eq!(Some(list.len() as u64), row["count"].as_u64(), "{row}");
        if let Some(hosts) = row["hosts"].as_array() {
            assert!(
                list.iter().map(Value::from).eq(hosts.iter().cloned()),
                "{row}"
            );
        }
    }
}

#[test]
fn invalid_texts_are_rejected_with_the_byte() {
    let vectors = vectors();
    for row in rows(&vectors, "invalid") {
        let read: Result<Hostlist, Error> = text(row, "text").parse();
        check_error(row, &read.expect_err("an error"));
    }
}

#[test]
fn invalid_names_are_rejected_with_the_byte() {
    let vectors = vectors();
    for row in rows(&vectors, "invalid_names") {
        let mut list = Hostlist::new();
        check_error(row, &list.push(text(row, "text")).expect_err("an error"));
        assert!(list.is_empty());
    }
}

#[test]
fn operations_have_these_results() -> Result<(), Error> {
    let vectors = vectors();
    for row in rows(&vectors, "operations") {
        let (left, right) = (list(row, "left"), list(row, "right"));
        let result = |list: &Hostlist, key| assert_eq!(list.to_string(), text(row, key), "{row}");
        result(&left.union(&right)?, "union");
        result(&left.intersection(&right), "intersection");
        result(&left.difference(&right), "difference");
        result(&left.symmetric_difference(&right)?, "symmetric_difference");
        let mut rest = left.clone();
        let gone = rest.delete(&right);
        assert_eq!(Some(gone as u64), row["deleted"].as_u64(), "{row}");
        result(&rest, "delete");
        let mut sorted = left.clone();
        sorted.sort()?;
        result(&sorted, "sort");
        let mut uniq = left.clone();
        uniq.uniq();
        result(&uniq, "uniq");
        assert_eq!(Some(left == right), row["equal"].as_bool());
    }
    Ok(())
}

#[test]
fn texts_that_are_read_leniently_say_what_was_put_right() {
    let vectors = vectors();
    for row in rows(&vectors, "lenient") {
        let read = Hostlist::parse_lenient(text(row, "text"));
        if let Some(error) = row["error"].as_str() {
            let read = read.expect_err("an error");
            assert_eq!(read.to_string(), error);
            assert_eq!(Some(read.offset() as u64), row["offset"].as_u64(), "{row}");
            continue;
        }
        let (list, mended) = read.expect("a hostlist");
        assert_eq!(list.to_string(), text(row, "canonical"), "{row}");
        let mended: Value = mended.iter().map(ToString::to_string).collect();
        assert_eq!(mended, row["mended"], "{row}");
    }
}

#[test]
fn lists_fold_in_n_dimensions() {
    let vectors = vectors();
    for row in rows(&vectors, "folded") {
        let list = list(row, "text");
        assert_eq!(list.fold_nd(), text(row, "nd"), "{row}");
        let again: Hostlist = text(row, "nd").parse().expect("a hostlist");
        assert_eq!(again.len(), list.len());
        assert!(again.is_subset(&list), "{row}");
    }
}

#[cfg(feature = "serde")]
#[test]
fn lists_are_serialized_as_their_text() {
    let list: Hostlist = "foo[1-3],bar".parse().expect("a hostlist");
    let json = serde_json::to_string(&list).expect("a text");
    assert_eq!(json, "\"foo[1-3],bar\"");
    assert_eq!(
        serde_json::from_str::<Hostlist>(&json).expect("a list"),
        list
    );
    let error = serde_json::from_str::<Hostlist>("\"foo[1-\"").expect_err("an error");
    assert!(error.to_string().contains("expected a number at byte 6"));
}
