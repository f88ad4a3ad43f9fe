//! The tables that are copied row by row.

/// A table with its columns; those of its key order the rows.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: &'static [&'static str],
    pub(super) key: &'static [&'static str],
}

impl Table {
    /// The value of a column in the rows of earlier formats, which lack it.
    pub(super) fn earlier_value(&self, column: &str) -> Option<i64> {
        (self.name == "common_events" && ["seq", "step"].contains(&column)).then_some(0)
    }
}

/// The tables, each after those to which its rows refer, without the row of the database about itself.
pub(super) const TABLES: [Table; 12] = [
    Table {
        name: "meta",
        columns: &["key", "value"],
        key: &["key"],
    },
    Table {
        name: "jobspecs",
        columns: &["id", "text"],
        key: &["id"],
    },
    Table {
        name: "jobs",
        columns: &["id", "userid", "t_submit", "spec", "r"],
        key: &["id"],
    },
    Table {
        name: "events",
        columns: &["job", "seq", "lines"],
        key: &["job", "seq"],
    },
    Table {
        name: "common_events",
        columns: &["seq", "first", "last", "step", "lines"],
        key: &["seq", "first"],
    },
    Table {
        name: "inputs",
        columns: &["job", "seq", "line"],
        key: &["job", "seq"],
    },
    Table {
        name: "unsent_starts",
        columns: &["job"],
        key: &["job"],
    },
    Table {
        name: "purged_jobs",
        columns: &["job"],
        key: &["job"],
    },
    Table {
        name: "resource_events",
        columns: &["seq", "line"],
        key: &["seq"],
    },
    Table {
        name: "submissions",
        columns: &["seq", "userid", "token", "time", "digest", "result"],
        key: &["seq"],
    },
    Table {
        name: "open_submissions",
        columns: &["first", "last"],
        key: &["first"],
    },
    Table {
        name: "kvs",
        columns: &["key", "value"],
        key: &["key"],
    },
];
