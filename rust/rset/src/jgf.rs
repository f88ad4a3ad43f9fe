//! The resource graph in `scheduling`: JSON Graph Format, by RFC 20.

use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;

use crate::problems::{Check, object, required, typed};
use crate::raw::Entries;
use crate::{Error, ResourceSet};

/// The data that RFC 20 requires of a vertex: the keys, and the type of each.
const VERTEX_KEYS: [(&str, &str); 8] = [
    ("type", STRING),
    ("uuid", ANYTHING),
    ("basename", STRING),
    ("name", STRING),
    ("id", NUMBER),
    ("properties", OBJECT),
    ("size", NUMBER),
    ("unit", STRING),
];
/// The data that RFC 20 requires of an edge.
const EDGE_KEYS: [(&str, &str); 2] = [("subsystem", STRING), ("relationship", STRING)];

const STRING: &str = "a string";
const NUMBER: &str = "a whole number";
const OBJECT: &str = "an object";
const ARRAY: &str = "an array";
const ANYTHING: &str = "a value";

impl ResourceSet {
    /// Returns the violations of RFC 20 by vertices and edges of the resource graph in `scheduling`.
    ///
    /// Vertices must have unique ids and eight keys of data; edges must join existing vertices and name their subsystem
    /// and relationship. A set without `scheduling` has no violations. The graph is not compared with `execution`.
    ///
    /// ```
    /// use penstock_rset::ResourceSet;
    ///
    /// let r: ResourceSet = r#"{"version":1,"scheduling":{"graph":{"nodes":[{"id":"0"}],"edges":[]}}}"#.parse()?;
    /// assert_eq!(
    ///     r.graph_problems()[0].to_string(),
    ///     "invalid R: scheduling.graph.nodes[0].metadata: expected an object, found nothing"
    /// );
    /// # Ok::<(), penstock_rset::Error>(())
    /// ```
    pub fn graph_problems(&self) -> Vec<Error> {
        let mut check = Check::default();
        if let Some(scheduling) = self.scheduling() {
            check.check_graph(scheduling);
        }
        check.problems
    }
}

impl Check {
    /// Checks the graph in the value of `scheduling`.
    pub(crate) fn check_graph(&mut self, scheduling: &RawValue) {
        let Some(mut scheduling) = self.keep(object(scheduling, "scheduling")) else {
            return;
        };
        let graph = required(&mut scheduling, "graph", "scheduling.graph", OBJECT);
        let graph = graph.and_then(|raw| object(raw, "scheduling.graph"));
        let Some(mut graph) = self.keep(graph) else {
            return;
        };
        let nodes = self.list(&mut graph, "nodes");
        let edges = self.list(&mut graph, "edges");
        let mut ids = HashMap::new();
        for (index, raw) in nodes.into_iter().flatten().enumerate() {
            self.check_vertex(raw, index, &mut ids);
        }
        let ids: HashSet<String> = ids.into_keys().collect();
        for (index, raw) in edges.into_iter().flatten().enumerate() {
            self.check_edge(raw, &format!("scheduling.graph.edges[{index}]"), &ids);
        }
    }

    fn list<'a>(&mut self, graph: &mut Entries<'a>, key: &str) -> Option<Vec<&'a RawValue>> {
        let path = format!("scheduling.graph.{key}");
        let raw = required(graph, key, &path, ARRAY);
        self.keep(raw.and_then(|raw| typed(raw, &path, ARRAY)))
    }

    /// `ids` maps the ids of earlier vertices to their positions.
    fn check_vertex(&mut self, raw: &RawValue, index: usize, ids: &mut HashMap<String, usize>) {
        let path = format!("scheduling.graph.nodes[{index}]");
        let Some(mut vertex) = self.keep(object(raw, &path)) else {
            return;
        };
        if let Some(id) = self.string(&mut vertex, "id", &path) {
            if let Some(first) = ids.get(&id) {
                let problem = format!("expected an id of its own, found that of nodes[{first}]");
                self.problems.push(Error::at(format!("{path}.id"), problem));
            } else {
                ids.insert(id, index);
            }
        }
        let Some(mut metadata) = self.metadata(&mut vertex, &path, &VERTEX_KEYS) else {
            return;
        };
        if let Some(raw) = metadata.take("rank") {
            let path = format!("{path}.metadata.rank");
            self.keep(typed::<i64>(raw, &path, NUMBER));
        }
    }

    fn check_edge(&mut self, raw: &RawValue, path: &str, ids: &HashSet<String>) {
        let Some(mut edge) = self.keep(object(raw, path)) else {
            return;
        };
        for end in ["source", "target"] {
            let id = self.string(&mut edge, end, path);
            if let Some(id) = id.filter(|id| !ids.contains(id)) {
                let problem = format!("expected the id of a vertex, found {id:?}");
                self.problems
                    .push(Error::at(format!("{path}.{end}"), problem));
            }
        }
        self.metadata(&mut edge, path, &EDGE_KEYS);
    }

    fn string(&mut self, entries: &mut Entries<'_>, key: &str, path: &str) -> Option<String> {
        let path = format!("{path}.{key}");
        let raw = required(entries, key, &path, STRING);
        self.keep(raw.and_then(|raw| typed(raw, &path, STRING)))
    }

    /// Reads the data of a vertex or an edge; checks and removes `keys`.
    fn metadata<'a>(
        &mut self,
        entries: &mut Entries<'a>,
        path: &str,
        keys: &[(&str, &str)],
    ) -> Option<Entries<'a>> {
        let path = format!("{path}.metadata");
        let raw = required(entries, "metadata", &path, OBJECT);
        let mut metadata = self.keep(raw.and_then(|raw| object(raw, &path)))?;
        for (key, what) in keys {
            let path = format!("{path}.{key}");
            let raw = required(&mut metadata, key, &path, what);
            self.keep(raw.and_then(|raw| match *what {
                STRING => typed::<String>(raw, &path, what).map(drop),
                NUMBER => typed::<i64>(raw, &path, what).map(drop),
                OBJECT => object(raw, &path).map(drop),
                _ => Ok(()),
            }));
        }
        Some(metadata)
    }
}
