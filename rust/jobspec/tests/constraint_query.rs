//! The query (RFC 35) that a constraint is shown as.

use penstock_jobspec::Constraint;
use serde_json::json;

#[test]
fn a_constraint_is_shown_as_its_query() {
    for (constraint, query) in [
        (json!({"properties": ["gpu"]}), "gpu"),
        (json!({"properties": ["gpu", "^slow"]}), "gpu&-slow"),
        (json!({"not": [{"properties": ["slow"]}]}), "-slow"),
        (json!({"not": [{"properties": ["^slow"]}]}), "not (-slow)"),
        (json!({"not": [{"properties": ["a", "b"]}]}), "not (a&b)"),
        (
            json!({"not": [{"hostlist": ["n1"]}, {"ranks": ["3"]}]}),
            "not (host:n1&rank:3)",
        ),
        (
            json!({"and": [{"hostlist": ["n[1-3]", "x"]}, {"ranks": ["0-3"]}]}),
            "host:n[1-3],x&rank:0-3",
        ),
        (
            json!({"or": [{"and": [{"properties": ["a"]}, {"properties": ["b"]}]}, {"properties": ["c"]}]}),
            "(a&b)|c",
        ),
        (
            json!({"and": [{"or": [{"properties": ["a"]}, {"properties": ["b"]}]}, {"properties": ["c"]}]}),
            "(a|b)&c",
        ),
        (
            json!({"or": [{"properties": ["a", "b"]}, {"not": [{"or": [{"properties": ["c"]}]}]}]}),
            "(a&b)|-c",
        ),
        (
            json!({"properties": ["a,b", "not", "x y"]}),
            r#""a,b"&"not"&"x y""#,
        ),
    ] {
        let parsed = Constraint::from_value(&constraint).expect("valid");
        assert_eq!(parsed.to_string(), query, "{constraint}");
    }
}
