//! Directories, symbolic links and watches of keys (RFC 11).

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use common::{Bench, OWNER, body, rejection};
use penstock_flux::errno::{EFBIG, EINVAL, EISDIR, ENODATA, ENOENT, EOPNOTSUPP};
use penstock_wire::Message;
use serde_json::{Value, json};

const READDIR: i64 = 1;
const READLINK: i64 = 2;
const WAITCREATE: i64 = 8;
const TREEOBJ: i64 = 16;
const WATCH_FULL: i64 = 64;
const UNIQ: i64 = 128;
const APPEND: i64 = 256;

fn value(text: &str) -> Value {
    json!({"ver": 1, "type": "val", "data": BASE64.encode(text)})
}

fn directory() -> Value {
    json!({"ver": 1, "type": "dir", "data": {}})
}

fn link(target: &str) -> Value {
    json!({"ver": 1, "type": "symlink", "data": {"target": target}})
}

/// Commits an operation for each key.
fn commit(bench: &mut Bench, ops: &[(&str, Value)]) -> Vec<Message> {
    let ops = ops.iter();
    let ops: Vec<Value> = ops
        .map(|(key, dirent)| json!({"key": key, "flags": 0, "dirent": dirent}))
        .collect();
    bench.request(
        "kvs.commit",
        &json!({"namespace": "primary", "flags": 0, "ops": ops}),
    )
}

fn append(bench: &mut Bench, key: &str, text: &str) -> Vec<Message> {
    let op = json!({"key": key, "flags": 32, "dirent": value(text)});
    bench.request("kvs.commit", &json!({"ops": [op]}))
}

fn look_up(bench: &mut Bench, key: &str, flags: i64) -> Result<Value, u32> {
    let out = bench.request("kvs.lookup", &json!({"key": key, "flags": flags}));
    match out[0].errnum() {
        0 => Ok(body(&out[0])["val"].clone()),
        errnum => Err(errnum),
    }
}

/// The names of the entries of a directory, with their types.
fn list(bench: &mut Bench, key: &str) -> Vec<(String, String)> {
    let found = look_up(bench, key, READDIR).unwrap();
    let entries = found["data"].as_object().unwrap().iter();
    let entries = entries.map(|(name, entry)| {
        let kind = entry["type"].as_str().unwrap();
        (name.clone(), kind.to_owned())
    });
    entries.collect()
}

fn named(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    let entries = entries.iter();
    entries
        .map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()))
        .collect()
}

#[test]
fn a_directory_stays_until_it_is_removed() {
    let mut bench = Bench::new();
    commit(&mut bench, &[("a.b", directory())]);
    assert_eq!(list(&mut bench, "a"), named(&[("b", "dirref")]));
    assert_eq!(list(&mut bench, "a.b"), []);
    assert_eq!(
        look_up(&mut bench, "a.b", TREEOBJ).unwrap()["type"],
        "dirref"
    );
    assert_eq!(look_up(&mut bench, "a.b", 0), Err(EISDIR));
    commit(&mut bench, &[("a.b.c", value("1")), ("a.d", value("2"))]);
    assert_eq!(
        list(&mut bench, "a"),
        named(&[("b", "dirref"), ("d", "valref")])
    );
    // One whose last key is removed is empty.
    commit(&mut bench, &[("a.b.c", Value::Null)]);
    assert_eq!(list(&mut bench, "a.b"), []);
    commit(&mut bench, &[("x.y", value("1")), ("x.y", Value::Null)]);
    assert_eq!(list(&mut bench, "x"), []);
    commit(&mut bench, &[("a", Value::Null)]);
    for key in ["a", "a.b", "a.d"] {
        assert_eq!(look_up(&mut bench, key, READDIR), Err(ENOENT), "{key}");
    }
}

#[test]
fn a_directory_is_listed_without_the_keys_in_its_directories() {
    let mut bench = Bench::new();
    let keys: Vec<String> = (0..1000).map(|number| format!("a.b.c.{number}")).collect();
    let ops: Vec<_> = keys.iter().map(|key| (key.as_str(), value("1"))).collect();
    commit(&mut bench, &ops);
    let others = [
        ("a.b-1", value("1")),
        ("a.b0", link("a")),
        ("a.c", value("1")),
    ];
    commit(&mut bench, &others);
    let expected = [
        ("b", "dirref"),
        ("b-1", "valref"),
        ("b0", "symlink"),
        ("c", "valref"),
    ];
    assert_eq!(list(&mut bench, "a"), named(&expected));
    assert_eq!(list(&mut bench, "a.b"), named(&[("c", "dirref")]));
    assert_eq!(list(&mut bench, "a.b.c").len(), 1000);
}

#[test]
fn a_long_key_is_rejected() {
    let mut bench = Bench::new();
    let long = |length: usize| format!("a{}", ".a".repeat(length / 2));
    let key = long(4094);
    commit(&mut bench, &[(&key, value("1"))]);
    assert_eq!(look_up(&mut bench, &key, 0), Ok(value("1")));
    let key = long(4096);
    assert_eq!(
        commit(&mut bench, &[(&key, value("1"))])[0].errnum(),
        EINVAL
    );
    assert_eq!(look_up(&mut bench, &key, 0), Err(EINVAL));
    for prefix in ["job.0000.0000.0000.0001.", ""] {
        let key = format!("{prefix}{key}");
        let watch = json!({"key": key, "flags": WATCH_FULL});
        let out = bench.stream("kvs-watch.lookup", &watch);
        assert_eq!(out[0].errnum(), EINVAL);
    }
}

#[test]
fn a_directory_with_too_many_entries_is_not_listed() {
    let mut bench = Bench::new();
    let keys: Vec<String> = (0..20_001).map(|number| format!("many.{number}")).collect();
    for keys in keys.chunks(5000) {
        let ops: Vec<_> = keys.iter().map(|key| (key.as_str(), value("1"))).collect();
        let out = commit(&mut bench, &ops);
        assert_eq!(out[0].errnum(), 0);
    }
    assert_eq!(look_up(&mut bench, "many", READDIR), Err(EFBIG));
    assert_eq!(
        list(&mut bench, ""),
        named(&[("job", "dirref"), ("many", "dirref")])
    );
    commit(&mut bench, &[("many.0", Value::Null)]);
    assert_eq!(list(&mut bench, "many").len(), 20_000);
}

#[test]
fn what_is_written_takes_the_place_of_what_was_there() {
    let mut bench = Bench::new();
    commit(&mut bench, &[("a", value("1"))]);
    commit(&mut bench, &[("a.b", value("2"))]);
    assert_eq!(look_up(&mut bench, "a.b", 0), Ok(value("2")));
    assert_eq!(look_up(&mut bench, "a", 0), Err(EISDIR));
    commit(&mut bench, &[("a", value("3"))]);
    assert_eq!(look_up(&mut bench, "a", 0), Ok(value("3")));
    assert_eq!(look_up(&mut bench, "a.b", 0), Err(ENOENT));
    commit(&mut bench, &[("a", link("b")), ("b", value("4"))]);
    assert_eq!(look_up(&mut bench, "a", 0), Ok(value("4")));
    commit(&mut bench, &[("a", directory())]);
    assert_eq!(list(&mut bench, "a"), []);
}

#[test]
fn what_a_commit_appends_is_added_in_its_order() {
    let mut bench = Bench::new();
    let append = |key: &str, text: &str| json!({"key": key, "flags": 32, "dirent": value(text)});
    let op = |key: &str, dirent: Value| json!({"key": key, "flags": 0, "dirent": dirent});
    commit(&mut bench, &[("a", value("1")), ("d", link("e"))]);
    let ops = [
        append("a", "2"),
        append("b", "x"),
        append("a", "3"),
        append("b", "y"),
        // Both keys are the same one.
        append("d.k", "1"),
        append("e.k", "2"),
        // Values that are replaced or removed in between.
        append("s", "old"),
        op("s", value("new")),
        append("s", "er"),
        append("r", "old"),
        op("r", Value::Null),
        append("r", "new"),
        append("p.q", "old"),
        append("p", "value"),
        append("p.q", "new"),
        append("u.v.w", "old"),
        op("u", Value::Null),
        append("u.v.w", "new"),
        append("u-x", "1"),
    ];
    let out = bench.request("kvs.commit", &json!({ "ops": ops }));
    assert_eq!(out[0].errnum(), 0);
    for (key, text) in [
        ("a", "123"),
        ("b", "xy"),
        ("e.k", "12"),
        ("s", "newer"),
        ("r", "new"),
        ("p.q", "new"),
        ("u.v.w", "new"),
        ("u-x", "1"),
    ] {
        assert_eq!(look_up(&mut bench, key, 0), Ok(value(text)), "{key}");
    }
    assert_eq!(look_up(&mut bench, "p", 0), Err(EISDIR));
}

#[test]
fn links_stand_for_their_targets() {
    let mut bench = Bench::new();
    commit(
        &mut bench,
        &[("d.v", value("1")), ("l", link("d")), ("m", link("l.v"))],
    );
    assert_eq!(look_up(&mut bench, "m", 0), Ok(value("1")));
    assert_eq!(look_up(&mut bench, "m", READLINK), Ok(link("l.v")));
    assert_eq!(look_up(&mut bench, "l", TREEOBJ), Ok(link("d")));
    assert_eq!(look_up(&mut bench, "l.v", READLINK), Err(EINVAL));
    assert_eq!(look_up(&mut bench, "d", READLINK), Err(EINVAL));
    assert_eq!(list(&mut bench, "l"), named(&[("v", "valref")]));
    let root = [
        ("d", "dirref"),
        ("job", "dirref"),
        ("l", "symlink"),
        ("m", "symlink"),
    ];
    assert_eq!(list(&mut bench, "."), named(&root));
    // A commit follows links to directories, not the one that it replaces.
    commit(&mut bench, &[("l.w", value("2")), ("m", value("3"))]);
    assert_eq!(look_up(&mut bench, "d.w", 0), Ok(value("2")));
    assert_eq!(look_up(&mut bench, "d.v", 0), Ok(value("1")));
    // Links that refer to each other, and links to jobs, which have owners of their own.
    commit(&mut bench, &[("p", link("q")), ("q", link("p"))]);
    assert_eq!(look_up(&mut bench, "p", 0), Err(EINVAL));
    let out = commit(&mut bench, &[("j", link("job"))]);
    assert_eq!(rejection(&out).0, EOPNOTSUPP);
}

#[test]
fn a_commit_with_another_object_changes_nothing() {
    let mut bench = Bench::new();
    let blob = json!({"ver": 1, "type": "valref", "data": ["sha1-00"]});
    let filled = json!({"ver": 1, "type": "dir", "data": {"x": value("1")}});
    let text = json!({"ver": 1, "type": "dir", "data": "x"});
    for dirent in [blob, filled, text] {
        let out = commit(&mut bench, &[("a", value("1")), ("b", dirent)]);
        assert_eq!(rejection(&out).0, EINVAL);
        assert_eq!(look_up(&mut bench, "a", 0), Err(ENOENT));
    }
}

fn watch(bench: &mut Bench, key: &str, flags: i64) -> (u32, Vec<Message>) {
    let out = bench.stream("kvs-watch.lookup", &json!({"key": key, "flags": flags}));
    (bench.tag(), out)
}

/// The values, or errors, in the responses to a watch.
fn values(out: &[Message], tag: u32) -> Vec<Result<String, u32>> {
    let own = out
        .iter()
        .filter(|message| message.topic() == "kvs-watch.lookup" && message.matchtag == tag);
    own.map(|message| match message.errnum() {
        0 => {
            let data = body(message)["val"]["data"].as_str().unwrap().to_owned();
            Ok(String::from_utf8(BASE64.decode(data).unwrap()).unwrap())
        }
        errnum => Err(errnum),
    })
    .collect()
}

fn ok(texts: &[&str]) -> Vec<Result<String, u32>> {
    texts.iter().map(|text| Ok((*text).to_owned())).collect()
}

#[test]
fn a_watch_has_the_value_and_each_further_one() {
    let mut bench = Bench::new();
    let (tag, out) = watch(&mut bench, "a.b", 0);
    assert_eq!(values(&out, tag), [Err(ENOENT)]);
    let (waiting, out) = watch(&mut bench, "a.b", WAITCREATE);
    assert_eq!(values(&out, waiting), []);
    let out = commit(&mut bench, &[("a.b", value("1"))]);
    assert_eq!(values(&out, waiting), ok(&["1"]));
    let (every, _) = watch(&mut bench, "a.b", 0);
    let (uniq, _) = watch(&mut bench, "a.b", UNIQ);
    let (full, _) = watch(&mut bench, "a.b", WATCH_FULL);
    let out = commit(&mut bench, &[("a.b", value("1")), ("c", value("2"))]);
    assert_eq!(values(&out, every), ok(&["1"]));
    assert_eq!(values(&out, uniq), []);
    let out = commit(&mut bench, &[("a.b", value("2"))]);
    for tag in [every, uniq, full] {
        assert_eq!(values(&out, tag), ok(&["2"]));
    }
    // A directory above is removed: only one request watches for that.
    let out = commit(&mut bench, &[("a", Value::Null)]);
    assert_eq!(values(&out, full), [Err(ENOENT)]);
    assert_eq!(values(&out, every), []);
    let out = commit(&mut bench, &[("a.b", value("3"))]);
    assert_eq!(values(&out, every), ok(&["3"]));
    assert_eq!(values(&out, full), []);
    let out = bench.request("kvs-watch.cancel", &json!({"matchtag": every}));
    assert_eq!(values(&out, every), [Err(ENODATA)]);
    bench.request_as("client", OWNER, "kvs-watch.disconnect", &json!({}), 8);
}

#[test]
fn a_watch_can_have_what_is_appended() {
    let mut bench = Bench::new();
    append(&mut bench, "log", "one");
    let (tag, out) = watch(&mut bench, "log", APPEND);
    assert_eq!(values(&out, tag), ok(&["one"]));
    let (whole, _) = watch(&mut bench, "log", 0);
    let out = append(&mut bench, "log", "two");
    assert_eq!(values(&out, tag), ok(&["two"]));
    assert_eq!(values(&out, whole), ok(&["onetwo"]));
    let out = commit(&mut bench, &[("log", value("new"))]);
    assert_eq!(values(&out, tag), ok(&["new"]));
    // Several operations of a commit on the key: appended bytes alone if there is no other.
    let append = |text: &str| json!({"key": "log", "flags": 32, "dirent": value(text)});
    let set = json!({"key": "log", "flags": 0, "dirent": value("set")});
    for (ops, appended) in [
        (vec![append("1"), append("2")], "12"),
        (vec![set.clone(), append("3")], "set3"),
        (vec![append("4"), set], "set"),
    ] {
        let out = bench.request("kvs.commit", &json!({ "ops": ops }));
        assert_eq!(values(&out, tag), ok(&[appended]));
    }
}

#[test]
fn a_watch_of_a_directory_is_rejected() {
    let mut bench = Bench::new();
    commit(&mut bench, &[("a.b", value("1")), ("l", link("a"))]);
    for key in ["a", "l", "."] {
        let (tag, out) = watch(&mut bench, key, WAITCREATE);
        assert_eq!(values(&out, tag), [Err(EISDIR)], "{key}");
    }
}
