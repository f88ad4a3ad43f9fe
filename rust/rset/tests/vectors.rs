//! The shared vectors: what an R means, how it is written, and the whole text of every error.

use std::path::Path;

use penstock_rset::ResourceSet;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Vectors {
    good: Vec<Good>,
    bad: Vec<Bad>,
    problems: Vec<Several>,
}

#[derive(Deserialize)]
struct Good {
    name: String,
    #[serde(rename = "R")]
    r: String,
    /// The canonical form; `null` where JSON readers would not keep every digit.
    encoded: Value,
    summary: String,
    ranks: String,
    nodelist: String,
    nnodes: usize,
    ncores: u64,
    ngpus: u64,
    #[serde(default = "yes")]
    execution: bool,
    scheduling: Option<String>,
    attributes: Option<String>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
struct Bad {
    #[serde(rename = "R")]
    r: String,
    error: String,
    path: String,
    offset: Option<usize>,
}

#[derive(Deserialize)]
struct Several {
    name: String,
    #[serde(rename = "R")]
    r: String,
    problems: Vec<String>,
}

fn vectors() -> Vectors {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/rset.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn good_ones_mean_what_they_say() {
    for vector in vectors().good {
        let name = &vector.name;
        let r = ResourceSet::from_json(&vector.r).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(r.summary(), vector.summary, "{name}");
        assert_eq!(r.ranks().to_string(), vector.ranks, "{name}");
        assert_eq!(r.nodelist().to_string(), vector.nodelist, "{name}");
        assert_eq!(
            (r.nnodes(), r.ncores(), r.ngpus()),
            (vector.nnodes, vector.ncores, vector.ngpus),
            "{name}"
        );
        assert_eq!(r.has_execution(), vector.execution, "{name}");
        if let Some(scheduling) = &vector.scheduling {
            assert_eq!(r.scheduling().unwrap().get(), scheduling, "{name}");
        }
        if let Some(attributes) = &vector.attributes {
            assert_eq!(r.attributes().unwrap().get(), attributes, "{name}");
        }
        let text = r.to_json();
        if !vector.encoded.is_null() {
            assert_eq!(
                serde_json::from_str::<Value>(&text).unwrap(),
                vector.encoded,
                "{name}"
            );
        }
        let again = ResourceSet::from_json(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(again == r, "{name}: {text}");
        assert_eq!(again.to_json(), text, "{name}");
    }
}

#[test]
fn bad_ones_say_what_is_wrong_and_where() {
    let mut wrong = Vec::new();
    for vector in vectors().bad {
        let error = ResourceSet::from_json(&vector.r).expect_err(&vector.r);
        assert!(error.is_document());
        let (found, place) = (error.to_string(), (error.path(), error.offset()));
        if found != vector.error || place != (&*vector.path, vector.offset) {
            wrong.push(format!(
                "{}\n  expected {} {:?} {:?}\n  found    {found} {place:?}",
                vector.r, vector.error, vector.path, vector.offset
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn all_problems_are_reported() {
    for vector in vectors().problems {
        let name = &vector.name;
        let found = ResourceSet::problems_with_graph(&vector.r);
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, vector.problems, "{name}");
        let of_format = ResourceSet::problems(&vector.r);
        match ResourceSet::from_json(&vector.r) {
            Ok(r) => {
                assert!(of_format.is_empty(), "{name}");
                let of_graph = r.graph_problems();
                let of_graph: Vec<_> = of_graph.iter().map(ToString::to_string).collect();
                assert_eq!(of_graph, vector.problems, "{name}");
            }
            Err(error) => assert_eq!(of_format.first(), Some(&error), "{name}"),
        }
    }
}

#[test]
fn good_ones_have_no_problems() {
    for vector in vectors().good {
        assert_eq!(ResourceSet::problems(&vector.r), [], "{}", vector.name);
    }
}
