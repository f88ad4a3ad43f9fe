//! Columns: numbers for many jobs at once, from Python and to it.

use std::fmt::Display;

use penstock_jobspec::job_id::JobId;

use pyo3::buffer::{Element, ElementType, PyBuffer, PyUntypedBuffer};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::errors::EngineError;
use crate::shared::type_name;

/// The name of a column, and the numbers that it accepts.
#[derive(Clone, Copy)]
pub(super) struct ColumnType<T> {
    pub name: &'static str,
    pub expected: &'static str,
    pub accepts: fn(T) -> bool,
}

pub(super) const ID_COLUMN: ColumnType<u64> = ColumnType {
    name: "ids",
    expected: "a job id from 0 to 18446744073709551615",
    accepts: |_| true,
};
pub(super) const SHAPE_COLUMN: ColumnType<u32> = ColumnType {
    name: "shapes",
    expected: "a shape of this engine",
    accepts: |_| true,
};
pub(super) const PRIORITY_COLUMN: ColumnType<u32> = ColumnType {
    name: "priorities",
    expected: "a priority from 0 (held) to 4294967295",
    accepts: |_| true,
};
pub(super) const DURATION_COLUMN: ColumnType<f64> = ColumnType {
    name: "durations",
    expected: "seconds from 0 (no limit) on",
    accepts: |seconds| seconds >= 0.0 && seconds.is_finite(),
};

/// A number that a column may hold.
pub(super) trait Number: Copy + Display {
    /// Whether numbers with a fraction will do.
    const FLOAT: bool;
    fn from_int(number: i128) -> Option<Self>;
    fn from_float(number: f64) -> Option<Self>;
}

macro_rules! integer {
    ($type:ty) => {
        impl Number for $type {
            const FLOAT: bool = false;
            fn from_int(number: i128) -> Option<Self> {
                number.try_into().ok()
            }
            fn from_float(_: f64) -> Option<Self> {
                None
            }
        }
    };
}

integer!(u32);
integer!(u64);

impl Number for f64 {
    const FLOAT: bool = true;
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds beyond 2^53 are rounded"
    )]
    fn from_int(number: i128) -> Option<Self> {
        Some(number as Self)
    }
    fn from_float(number: f64) -> Option<Self> {
        Some(number)
    }
}

/// One value for every row, or one for each.
pub(super) enum Column<T> {
    All(T),
    Each(Vec<T>),
}

impl<T: Copy> Column<T> {
    /// The value of a row that is there.
    pub fn at(&self, row: usize) -> T {
        match self {
            Self::All(value) => *value,
            Self::Each(values) => values[row],
        }
    }
}

impl<T: Number> Column<T> {
    /// Reads a column for `rows` ids.
    pub fn read(source: &Bound<'_, PyAny>, kind: ColumnType<T>, rows: usize) -> PyResult<Self> {
        let column = Self::any(source, kind)?;
        if let Self::Each(values) = &column
            && values.len() != rows
        {
            let (name, found) = (kind.name, values.len());
            return Err(EngineError::new_err(format!(
                "{name}: expected one value, or {rows} as there are ids, found {found}"
            )));
        }
        Ok(column)
    }

    fn any(source: &Bound<'_, PyAny>, kind: ColumnType<T>) -> PyResult<Self> {
        if source.is_instance_of::<PyList>() || source.is_instance_of::<PyTuple>() {
            return items(source, kind).map(Self::Each);
        }
        if source.is_instance_of::<PyInt>() || source.is_instance_of::<PyFloat>() {
            return one(source, kind, None).map(Self::All);
        }
        // Texts are sequences, and bytes are arrays, but neither is meant as numbers.
        if source.is_instance_of::<PyString>()
            || source.is_instance_of::<PyBytes>()
            || source.is_instance_of::<PyByteArray>()
        {
            return Err(wrong(source, kind));
        }
        // Numpy's scalars, and its arrays without a dimension.
        if let Ok(dimensions) = source.getattr("ndim")
            && dimensions.eq(0)?
        {
            return one(source, kind, None).map(Self::All);
        }
        if let Ok(buffer) = PyUntypedBuffer::get(source) {
            return match buffer.dimensions() {
                1 if buffer.item_count() == 0 => Ok(Self::Each(Vec::new())),
                1 => array(source, &buffer, kind).map(Self::Each),
                many => Err(PyTypeError::new_err(format!(
                    "{}: expected one dimension, found {many}",
                    kind.name
                ))),
            };
        }
        // Data frames' columns know how to become arrays.
        if let Ok(method) = source.getattr("__array__")
            && !source.is_instance_of::<pyo3::types::PyType>()
        {
            let made = method.call0()?;
            if made.get_type().is(source.get_type()) {
                return items(source, kind).map(Self::Each);
            }
            return Self::any(&made, kind);
        }
        if source.hasattr("__index__")? || (T::FLOAT && source.hasattr("__float__")?) {
            return one(source, kind, None).map(Self::All);
        }
        items(source, kind).map(Self::Each)
    }
}

/// The ids of a call: a number alone is one id.
pub(super) fn ids(source: &Bound<'_, PyAny>) -> PyResult<Vec<JobId>> {
    Ok(match Column::any(source, ID_COLUMN)? {
        Column::All(id) => vec![JobId::new(id)],
        Column::Each(ids) => ids.into_iter().map(JobId::new).collect(),
    })
}

/// The numbers of a column that must have one for each row.
pub(super) fn each<T: Number>(source: &Bound<'_, PyAny>, kind: ColumnType<T>) -> PyResult<Vec<T>> {
    match Column::any(source, kind)? {
        Column::Each(values) => Ok(values),
        Column::All(_) => Err(wrong(source, kind)),
    }
}

fn items<T: Number>(source: &Bound<'_, PyAny>, kind: ColumnType<T>) -> PyResult<Vec<T>> {
    let Ok(iterator) = source.try_iter() else {
        return Err(wrong(source, kind));
    };
    let mut values = Vec::with_capacity(source.len().unwrap_or(0));
    for item in iterator {
        values.push(one(&item?, kind, Some(values.len()))?);
    }
    Ok(values)
}

/// A number, in some row or for all of them.
fn one<T: Number>(item: &Bound<'_, PyAny>, kind: ColumnType<T>, row: Option<usize>) -> PyResult<T> {
    let place = || place(kind.name, row);
    let value = match item.extract::<i64>() {
        Ok(number) => T::from_int(number.into()),
        Err(error) if error.is_instance_of::<PyOverflowError>(item.py()) => {
            let large = item.extract::<u64>().ok();
            large.and_then(|number| T::from_int(number.into()))
        }
        Err(_) if !T::FLOAT => {
            let (place, kind) = (place(), type_name(item));
            return Err(PyTypeError::new_err(format!(
                "{place}: expected an integer, found {kind}"
            )));
        }
        Err(_) if item.is_instance_of::<PyString>() => return Err(not_a_number(item, &place())),
        Err(_) => match item.extract::<f64>() {
            Ok(number) => T::from_float(number),
            Err(_) => return Err(not_a_number(item, &place())),
        },
    };
    value.filter(|value| (kind.accepts)(*value)).ok_or_else(|| {
        let shown = item
            .str()
            .map_or_else(|_| "?".to_owned(), |text| text.to_string());
        outside(kind, row, &shown)
    })
}

fn array<T: Number>(
    source: &Bound<'_, PyAny>,
    buffer: &PyUntypedBuffer,
    kind: ColumnType<T>,
) -> PyResult<Vec<T>> {
    let format = buffer.format();
    let foreign = matches!(format.to_bytes().first(), Some(b'>' | b'!'));
    let element = ElementType::from_format(format);
    if !T::FLOAT && matches!(element, ElementType::Float { .. } | ElementType::Bool) {
        return Err(wrong(source, kind));
    }
    let native = foreign == cfg!(target_endian = "big");
    let read = match element {
        _ if !native => None,
        ElementType::SignedInteger { bytes: 8 } => {
            numbers::<i64, T>(source, kind, |number| T::from_int(number.into()))
        }
        ElementType::UnsignedInteger { bytes: 8 } => {
            numbers::<u64, T>(source, kind, |number| T::from_int(number.into()))
        }
        ElementType::SignedInteger { bytes: 4 } => {
            numbers::<i32, T>(source, kind, |number| T::from_int(number.into()))
        }
        ElementType::UnsignedInteger { bytes: 4 } => {
            numbers::<u32, T>(source, kind, |number| T::from_int(number.into()))
        }
        ElementType::SignedInteger { bytes: 2 } => {
            numbers::<i16, T>(source, kind, |number| T::from_int(number.into()))
        }
        ElementType::UnsignedInteger { bytes: 2 } => {
            numbers::<u16, T>(source, kind, |number| T::from_int(number.into()))
        }
        ElementType::SignedInteger { bytes: 1 } => {
            numbers::<i8, T>(source, kind, |number| T::from_int(number.into()))
        }
        ElementType::UnsignedInteger { bytes: 1 } => {
            numbers::<u8, T>(source, kind, |number| T::from_int(number.into()))
        }
        ElementType::Float { bytes: 8 } => numbers::<f64, T>(source, kind, T::from_float),
        ElementType::Float { bytes: 4 } => {
            numbers::<f32, T>(source, kind, |number| T::from_float(number.into()))
        }
        _ => None,
    };
    // Other byte orders and layouts: converted item by item.
    read.unwrap_or_else(|| items(source, kind))
}

/// The numbers of an array of one element type; none if it cannot be read as such.
fn numbers<E, T>(
    source: &Bound<'_, PyAny>,
    kind: ColumnType<T>,
    convert: impl Fn(E) -> Option<T>,
) -> Option<PyResult<Vec<T>>>
where
    E: Element + Display,
    T: Number,
{
    let buffer = PyBuffer::<E>::get(source).ok()?;
    let check = |row: usize, found: E| {
        let value = convert(found).filter(|value| (kind.accepts)(*value));
        value.ok_or_else(|| outside(kind, Some(row), &found.to_string()))
    };
    Some(buffer.to_vec(source.py()).and_then(|values| {
        let values = values.into_iter().enumerate();
        values.map(|(row, value)| check(row, value)).collect()
    }))
}

pub(super) fn place(name: &str, row: Option<usize>) -> String {
    row.map_or_else(|| name.to_owned(), |row| format!("{name}[{row}]"))
}

fn outside<T>(kind: ColumnType<T>, row: Option<usize>, found: &str) -> PyErr {
    let (place, expected) = (place(kind.name, row), kind.expected);
    EngineError::new_err(format!("{place}: expected {expected}, found {found}"))
}

fn not_a_number(item: &Bound<'_, PyAny>, place: &str) -> PyErr {
    let kind = type_name(item);
    PyTypeError::new_err(format!("{place}: expected a number, found {kind}"))
}

fn wrong<T: Number>(source: &Bound<'_, PyAny>, kind: ColumnType<T>) -> PyErr {
    let (name, mut found) = (kind.name, type_name(source));
    if let Ok(element) = source.getattr("dtype") {
        found = format!("{found} of {element}");
    } else if let Ok(element) = source.getattr("typecode") {
        found = format!("{found} of {element}");
    }
    let what = if T::FLOAT { "numbers" } else { "integers" };
    PyTypeError::new_err(format!(
        "{name}: expected {what} (a list, or an array in one dimension), found {found}"
    ))
}

/// The names in a column: one for every row, or one for each; `None` stands for no name.
pub(super) enum Names {
    All(Option<String>),
    Each(Vec<Option<String>>),
}

impl Names {
    pub fn read(
        source: Option<&Bound<'_, PyAny>>,
        name: &'static str,
        rows: usize,
    ) -> PyResult<Self> {
        let Some(source) = source else {
            return Ok(Self::All(None));
        };
        if let Ok(one) = source.cast::<PyString>() {
            return Ok(Self::All(Some(one.to_str()?.to_owned())));
        }
        let mut names = Vec::with_capacity(rows);
        for item in source.try_iter()? {
            let item = item?;
            names.push(item.extract::<Option<String>>().map_err(|_| {
                let (place, kind) = (place(name, Some(names.len())), type_name(&item));
                PyTypeError::new_err(format!("{place}: expected a name or None, found {kind}"))
            })?);
        }
        if names.len() != rows {
            let found = names.len();
            return Err(EngineError::new_err(format!(
                "{name}: expected one value, or {rows} as there are ids, found {found}"
            )));
        }
        Ok(Self::Each(names))
    }
}
