//! A database as text: one JSON object a line.
//!
//! The first line names the format, the last one counts the lines before it. Jobspecs come before the jobs that refer to
//! them.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;

use rusqlite::types::{Value as Column, ValueRef};
use rusqlite::{Connection, params_from_iter};
use serde_json::{Map, Value, json};

use super::copy::{NewFile, Replacement, Unfinished, install};
use crate::tables::TABLES;
use crate::{Error, Store, Synchronous};

/// The format of the text.
const TEXT_FORMAT: u64 = 1;

/// Writes the database at `path` as text to a new file, as it is at one moment; an instance may use it meanwhile.
///
/// # Errors
///
/// The database cannot be read, or the file exists or cannot be written.
pub fn export_file(path: &Path, to: &Path) -> Result<(), Error> {
    let new = NewFile::create(to)?;
    write_text(path, &mut BufWriter::new(&new.file))?;
    new.finish()
}

/// The same to the standard output.
///
/// # Errors
///
/// The database cannot be read, or the text cannot be written.
pub fn export(path: &Path) -> Result<(), Error> {
    // The one of the standard library writes each line by itself.
    let output = io::stdout().as_fd().try_clone_to_owned();
    let output =
        output.map_err(|error| Error::invalid(&format!("cannot write the text: {error}")))?;
    write_text(path, &mut BufWriter::new(File::from(output)))
}

/// Writes the database as it is at one moment.
fn write_text(path: &Path, out: &mut dyn Write) -> Result<(), Error> {
    let store = Store::open_reader(path)?;
    let connection = store.database.connection();
    let wrap = |error: rusqlite::Error| Error::new("cannot read the database", &error);
    // All tables are read in one transaction.
    connection.execute_batch("BEGIN").map_err(wrap)?;
    let mut lines = 0_u64;
    let mut write = |line: &Value| {
        lines += 1;
        writeln!(out, "{line}")
            .map_err(|error| Error::invalid(&format!("cannot write the text: {error}")))
    };
    write(&json!({"penstock-store": TEXT_FORMAT}))?;
    for table in &TABLES {
        let (columns, order) = (table.columns.join(", "), table.key.join(", "));
        let query = format!("SELECT {columns} FROM {} ORDER BY {order}", table.name);
        let mut statement = connection.prepare(&query).map_err(wrap)?;
        let mut rows = statement.query([]).map_err(wrap)?;
        while let Some(row) = rows.next().map_err(wrap)? {
            let mut values = Map::new();
            for (index, column) in table.columns.iter().enumerate() {
                let value = row.get_ref(index).map_err(wrap)?;
                values.insert((*column).to_owned(), to_json(value));
            }
            write(&json!({ table.name: values }))?;
        }
    }
    let end = json!({ "end": lines });
    writeln!(out, "{end}")
        .and_then(|()| out.flush())
        .map_err(|error| Error::invalid(&format!("cannot write the text: {error}")))
}

/// Makes the database at `path`, which does not exist, from an exported text.
///
/// # Errors
///
/// There is a database, the text is invalid (the error names the line), or the database cannot be written.
pub fn import(path: &Path, source: &Path) -> Result<Replacement, Error> {
    let file = File::open(source).map_err(|error| Error::file("cannot read", source, &error))?;
    read_text(path, &mut BufReader::new(file))
}

fn read_text(path: &Path, text: &mut dyn BufRead) -> Result<Replacement, Error> {
    if path.exists() {
        let text = format!(
            "`{}` exists already\nhint: `penstock store restore` replaces a database by a back-up",
            path.display()
        );
        return Err(Error::invalid(&text));
    }
    let new = Unfinished::new(path, ".new")?;
    let mut store = Store::open_without_counter(new.path(), Synchronous::Full)?;
    store.database.begin()?;
    store
        .database
        .connection()
        .execute_batch("PRAGMA defer_foreign_keys = ON")
        .map_err(|error| Error::new("cannot write the database", &error))?;
    let mut lines = 0_u64;
    let mut is_complete = false;
    for line in text.lines() {
        let fail = |reason: &str| Error::invalid(&format!("line {}: {reason}", lines + 1));
        let line = line.map_err(|error| fail(&error.to_string()))?;
        if is_complete {
            return Err(fail("expected nothing after the last line"));
        }
        let document: Value =
            serde_json::from_str(&line).map_err(|error| fail(&error.to_string()))?;
        let Some((name, value)) = document.as_object().and_then(|object| object.iter().next())
        else {
            return Err(fail("expected an object with a key"));
        };
        match name.as_str() {
            "penstock-store" if lines == 0 => {
                if value.as_u64() != Some(TEXT_FORMAT) {
                    return Err(fail(&format!(
                        "expected format {TEXT_FORMAT}, found {value}"
                    )));
                }
            }
            _ if lines == 0 => return Err(fail("expected the key `penstock-store`")),
            "end" => {
                if value.as_u64() != Some(lines) {
                    return Err(fail(&format!(
                        "expected {value} lines before it, found {lines}"
                    )));
                }
                is_complete = true;
            }
            _ => {
                add_row(store.database.connection(), name, value)
                    .map_err(|reason| fail(&reason))?;
            }
        }
        lines += 1;
    }
    if !is_complete {
        let text =
            format!("the text ends after line {lines}: expected the key `end` in the last one");
        return Err(Error::invalid(&text));
    }
    store.attribute_jobspecs()?;
    store.recount_user_bytes()?;
    store.commit()?;
    drop(store);
    install(path, new, "the database has been imported")
}

/// Adds a row; the error is the reason.
fn add_row(connection: &Connection, name: &str, values: &Value) -> Result<(), String> {
    let Some(table) = TABLES.iter().find(|table| table.name == name) else {
        return Err(format!("unknown table `{name}`"));
    };
    let row: Vec<Column> = table
        .columns
        .iter()
        .map(|column| {
            let Some(value) = values.get(column) else {
                let earlier = table.earlier_value(column);
                return earlier.ok_or(format!("expected the key `{column}`"));
            };
            from_json(value).ok_or(format!("`{column}`: invalid value"))
        })
        .collect::<Result<_, _>>()?;
    let marks = vec!["?"; row.len()].join(", ");
    let columns = table.columns.join(", ");
    let insert = format!("INSERT INTO {name} ({columns}) VALUES ({marks})");
    let mut statement = connection
        .prepare_cached(&insert)
        .map_err(|error| error.to_string())?;
    let added = statement.execute(params_from_iter(row));
    added.map(drop).map_err(|error| error.to_string())
}

/// A column as JSON; bytes that are not a text are an object with their digits.
fn to_json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => json!(number),
        ValueRef::Real(number) => json!({ "real": number }),
        ValueRef::Text(bytes) => match str::from_utf8(bytes) {
            Ok(text) => json!(text),
            Err(_) => json!({ "text": digits(bytes) }),
        },
        ValueRef::Blob(bytes) => json!({ "blob": digits(bytes) }),
    }
}

/// A column from JSON, if it is one.
fn from_json(value: &Value) -> Option<Column> {
    Some(match value {
        Value::Null => Column::Null,
        Value::Number(number) => Column::Integer(number.as_i64()?),
        Value::String(text) => Column::Text(text.clone()),
        Value::Object(object) => match object.iter().next()? {
            (kind, value) if kind == "real" => Column::Real(value.as_f64()?),
            (kind, value) if kind == "blob" || kind == "text" => {
                Column::Blob(bytes(value.as_str()?)?)
            }
            _ => return None,
        },
        _ => return None,
    })
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect()
}
