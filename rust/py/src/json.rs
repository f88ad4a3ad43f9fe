//! JSON texts to Python objects and back, by Python's own `json`.

use pyo3::exceptions::{PyRecursionError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict, PyString, PyTuple};

/// Why a text has no object, or an object no text.
pub(crate) enum JsonError {
    /// The problem, and its byte offset in the text if known.
    Invalid(String, Option<usize>),
    /// An exception that is not about JSON.
    Other(PyErr),
}

/// The compact JSON text of a Python object, by `json.JSONEncoder(...).encode`.
pub(crate) fn encode(object: &Bound<'_, PyAny>) -> Result<String, JsonError> {
    static ENCODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let call = || -> PyResult<Bound<'_, PyAny>> {
        let encode = ENCODE.get_or_try_init(py, || -> PyResult<_> {
            let options = PyDict::new(py);
            options.set_item("separators", (",", ":"))?;
            options.set_item("ensure_ascii", false)?;
            options.set_item("allow_nan", false)?;
            let encoder = py.import("json")?.getattr("JSONEncoder")?;
            let encoder = encoder.call((), Some(&options))?;
            Ok(encoder.getattr("encode")?.unbind())
        })?;
        encode.bind(py).call1((object,))
    };
    let text = call().map_err(|error| {
        // A `TypeError` is about an object within that JSON does not have; it names the class.
        if error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyRecursionError>(py)
        {
            JsonError::Invalid(error.value(py).to_string(), None)
        } else {
            JsonError::Other(error)
        }
    })?;
    text.extract::<String>().map_err(|_| {
        let problem = "a string holds a lone surrogate, which has no UTF-8";
        JsonError::Invalid(problem.to_owned(), None)
    })
}

/// The Python object of a JSON text, by `json.JSONDecoder(...).decode`; NaN, infinities and numbers beyond the range of
/// `float` are rejected.
pub(crate) fn decode<'py>(py: Python<'py>, text: &str) -> Result<Bound<'py, PyAny>, JsonError> {
    static DECODE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    static DECODE_LARGE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let decoder = |options: &Bound<'py, PyDict>| -> PyResult<Py<PyAny>> {
        let reject = PyCFunction::new_closure(py, None, None, reject_constant)?;
        options.set_item("parse_constant", reject)?;
        let decoder = py.import("json")?.getattr("JSONDecoder")?;
        let decoder = decoder.call((), Some(options))?;
        Ok(decoder.getattr("decode")?.unbind())
    };
    let call = || -> PyResult<Bound<'py, PyAny>> {
        let decode = if may_have_large_numbers(text) {
            DECODE_LARGE.get_or_try_init(py, || {
                let options = PyDict::new(py);
                let parse = PyCFunction::new_closure(py, None, None, parse_finite)?;
                options.set_item("parse_float", parse)?;
                decoder(&options)
            })?
        } else {
            DECODE.get_or_try_init(py, || decoder(&PyDict::new(py)))?
        };
        decode.bind(py).call1((PyString::new(py, text),))
    };
    call().map_err(|error| {
        if error.is_instance_of::<PyRecursionError>(py) {
            return JsonError::Invalid("nested too deeply".to_owned(), None);
        }
        if !error.is_instance_of::<PyValueError>(py) {
            return JsonError::Other(error);
        }
        let value = error.value(py);
        let place = value.getattr("pos").and_then(|place| place.extract());
        let message = value.getattr("msg").and_then(|text| text.extract());
        let (Ok::<usize, _>(place), Ok::<String, _>(message)) = (place, message) else {
            return JsonError::Invalid(value.to_string(), None);
        };
        // Python counts characters.
        let byte = text.char_indices().nth(place);
        let offset = byte.map_or(text.len(), |(offset, _)| offset);
        JsonError::Invalid(format!("{message} at byte {offset}"), Some(offset))
    })
}

/// Whether a text may have a number beyond the range of `float`: one with an exponent, or with hundreds of digits.
fn may_have_large_numbers(text: &str) -> bool {
    /// The digits that a number without an exponent may have and be in the range of `float`.
    const MAX_FINITE_DIGITS: usize = 300;
    let mut digits = 0;
    text.bytes().any(|byte| {
        let is_exponent = matches!(byte, b'e' | b'E') && digits > 0;
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        is_exponent || digits > MAX_FINITE_DIGITS
    })
}

fn parse_finite(args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>) -> PyResult<f64> {
    let text: String = args.get_item(0)?.extract()?;
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.ok_or_else(|| {
        let shown: String = text.chars().take(32).collect();
        PyValueError::new_err(format!("expected a finite number, found {shown}"))
    })
}

fn reject_constant(args: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let name: String = args.get_item(0)?.extract()?;
    let text = format!("expected a finite number, found {name}");
    Err(PyValueError::new_err(text))
}
