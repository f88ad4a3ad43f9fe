//! Shapes of texts, with what flux 0.88 reads in them.

use super::{largest_range, parse_hostlist, parse_idset};

#[test]
fn idsets() {
    for (text, ids) in [
        ("", ""),
        ("[]", ""),
        (",", ""),
        ("[,]", ""),
        ("1,", "1"),
        (",1", "1"),
        ("1,,2", "1-2"),
        ("1-3,", "1-3"),
        ("[1,]", "1"),
        ("[1,,5-7]", "1,5-7"),
    ] {
        assert_eq!(parse_idset(text).unwrap().to_text(), ids, "{text:?}");
    }
    for text in [
        "2-2", "01", "1-03", " 1", "1 ", "1, 2", "3-1", "1,1", "2,1", "1-3,2", "[1-3]x", "[[1]]",
        "[1,", "1]", "[1],2", ",[1]", "[1],[2]", "[,[1]]", "[]]", "1-3-5", "1-", "-1", "+1", "0x1",
        "1;2", "é",
    ] {
        let error = parse_idset(text).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn hostlists() {
    for (text, hosts) in [
        ("", ""),
        (" \t", ""),
        (", ,", ""),
        (" a", "a"),
        ("a ", "a"),
        ("a b", "a b"),
        ("a\t, b,,c", "a b c"),
        ("foo[1-3] bar", "foo1 foo2 foo3 bar"),
        ("a [1-2]", "a 1 2"),
        ("foo[1, 3]", "foo1 foo03"),
        ("foo[1,  3]", "foo1 foo003"),
        ("foo[01, 3]", "foo01 foo03"),
        ("foo[1- 3]", "foo1 foo2 foo3"),
        ("foo[1 -3]", "foo01 foo02 foo03"),
        ("foo[ 1-3]", "foo01 foo02 foo03"),
        ("foo[+1]", "foo01"),
        ("foo[1-+3]", "foo1 foo2 foo3"),
        ("foo[1-03]", "foo1 foo2 foo3"),
        ("foo[001-03]", "foo001 foo002 foo003"),
        ("foo[9-010]-x", "foo9-x foo10-x"),
        ("foo[2,1,1]", "foo2 foo1 foo1"),
    ] {
        let list = parse_hostlist(text).unwrap();
        let found: Vec<_> = list.iter().collect();
        assert_eq!(found.join(" "), hosts, "{text:?}");
    }
    for text in [
        "foo[1 ]",
        "foo[1-3 ]",
        "foo[1 2]",
        "foo[-1]",
        "foo[1--3]",
        "foo[0x1]",
        "foo[1x]",
        "foo[1-3-5]",
        "foo[,1]",
        "foo[1,]",
        "foo[1,,3]",
        "foo[]",
        "foo[",
        "foo]",
        "foo[[1]]",
        "foo[3-1]",
        "foo[010-9]",
        "foo[1;2]",
        "foo[+]",
        "foo[ ]",
    ] {
        assert!(parse_hostlist(text).is_err(), "{text:?}");
    }
    // Longer than any width of Rust's formats.
    let wide = |blanks: usize| format!("foo[{}1]", " ".repeat(blanks));
    assert!(parse_hostlist(&wide(70_000)).is_err());
    let list = parse_hostlist(&wide(30)).unwrap();
    assert_eq!(list.iter().next().map(|host| host.len()), Some(34));
    let error = parse_hostlist("a b,c[").unwrap_err();
    assert!(error.to_string().contains("a b,c["), "{error}");
}

#[test]
fn the_largest_range_is_that_of_one_piece() {
    for (text, size) in [
        ("a,b", 1),
        ("foo[0-1048575],foo[0-5]", 1_048_576),
        ("foo[0-9,20- 40]x", 21),
        ("foo[0-18446744073709551615]", u64::MAX),
        ("n1-5,0-5", 1),
    ] {
        assert_eq!(largest_range(text), size, "{text:?}");
    }
}
