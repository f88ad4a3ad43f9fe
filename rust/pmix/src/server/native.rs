//! Attributes in libpmix's form: read from its memory, and made in ours for it to borrow.

#![expect(unsafe_code, reason = "reads and makes what C declares")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;

use penstock_pmix::{Error, Info, MAX_DEPTH, Value, types};

use super::ffi;

/// The reason why libpmix's attributes cannot be read.
#[derive(Debug)]
pub struct InvalidInfo(pub &'static str);

/// Reads `count` attributes.
///
/// # Safety
/// `infos` is null or points to `count` attributes that are valid, with all they point to.
pub unsafe fn read_infos(infos: *const ffi::Info, count: usize) -> Result<Vec<Info>, InvalidInfo> {
    // SAFETY: as the caller promises.
    unsafe { read_all(infos, count, 0) }
}

/// # Safety
/// As for [`read_infos`].
unsafe fn read_all(
    infos: *const ffi::Info,
    count: usize,
    depth: usize,
) -> Result<Vec<Info>, InvalidInfo> {
    // SAFETY: the caller promises `count` valid attributes.
    let infos = unsafe { slice(infos, count) };
    infos
        .iter()
        .map(|info| {
            Ok(Info {
                key: text_in(&info.key)?,
                required: info.flags & ffi::REQUIRED != 0,
                // SAFETY: the value is part of a valid attribute.
                value: unsafe { read_value(&info.value, depth)? },
            })
        })
        .collect()
}

/// # Safety
/// `value` is valid with all it points to.
unsafe fn read_value(value: &ffi::Value, depth: usize) -> Result<Value, InvalidInfo> {
    match value.kind {
        types::STRING => {
            // SAFETY: a value of this type holds a pointer to text.
            let string = unsafe { value.data.string };
            // SAFETY: null, or text that ends in NUL, as the caller promises.
            unsafe { read_text(string) }.map(Value::String)
        }
        types::PROC => {
            // SAFETY: a value of this type holds a pointer to a process, or null.
            let proc = unsafe { value.data.proc.as_ref() };
            proc.map_or(Ok(Value::Other(types::PROC)), read_proc)
        }
        types::DATA_ARRAY => {
            if depth == MAX_DEPTH {
                return Err(InvalidInfo("too deeply nested arrays"));
            }
            // SAFETY: a value of this type holds a pointer to an array, or null.
            match unsafe { value.data.array.as_ref() } {
                // SAFETY: the array is part of a valid value.
                Some(array) => unsafe { read_array(array, depth + 1) },
                None => Ok(Value::Infos(Vec::new())),
            }
        }
        number => {
            // SAFETY: every bit pattern is a word; its unused bytes are ignored.
            let word = unsafe { value.data.words[0] };
            Ok(Value::from_word(number, word).unwrap_or(Value::Other(number)))
        }
    }
}

/// # Safety
/// `array` is valid with all it points to.
unsafe fn read_array(array: &ffi::DataArray, depth: usize) -> Result<Value, InvalidInfo> {
    let (first, count) = (array.array, array.size);
    match array.kind {
        types::INFO => {
            // SAFETY: an array of this type holds `count` attributes.
            unsafe { read_all(first.cast(), count, depth) }.map(Value::Infos)
        }
        types::VALUE => {
            // SAFETY: an array of this type holds `count` values.
            let values = unsafe { slice(first.cast::<ffi::Value>(), count) };
            // SAFETY: they are valid with all they point to.
            let values = values
                .iter()
                .map(|value| unsafe { read_value(value, depth) });
            values.collect::<Result<_, _>>().map(Value::Values)
        }
        types::STRING => {
            // SAFETY: an array of this type holds `count` pointers to text.
            let texts = unsafe { slice(first.cast::<*const c_char>(), count) };
            // SAFETY: null, or text that ends in NUL.
            let texts = texts
                .iter()
                .map(|&text| unsafe { read_text(text) }.map(Value::String));
            texts.collect::<Result<_, _>>().map(Value::Values)
        }
        types::PROC => {
            // SAFETY: an array of this type holds `count` processes.
            let procs = unsafe { slice(first.cast::<ffi::Proc>(), count) };
            procs
                .iter()
                .map(read_proc)
                .collect::<Result<_, _>>()
                .map(Value::Values)
        }
        number => {
            let Some(width) = Value::width(number) else {
                return Ok(Value::Other(number));
            };
            let size = count
                .checked_mul(width)
                .ok_or(InvalidInfo("an array that exceeds memory"))?;
            // SAFETY: an array of this type holds `count` elements of that width.
            let bytes = unsafe { slice(first.cast::<u8>(), size) };
            let values = bytes.chunks_exact(width).filter_map(|bytes| {
                let mut word = [0; 8];
                word[..width].copy_from_slice(bytes);
                Value::from_word(number, u64::from_ne_bytes(word))
            });
            Ok(Value::Values(values.collect()))
        }
    }
}

/// # Safety
/// `first` is null or points to `count` valid elements, which stay so while the slice is used.
unsafe fn slice<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() {
        &[]
    } else {
        // SAFETY: not null, and as the caller promises.
        unsafe { std::slice::from_raw_parts(first, count) }
    }
}

/// Reads text; null is empty.
///
/// # Safety
/// `text` is null or ends in NUL.
pub unsafe fn read_text(text: *const c_char) -> Result<String, InvalidInfo> {
    if text.is_null() {
        return Ok(String::new());
    }
    // SAFETY: not null, and as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str()
        .map(str::to_owned)
        .map_err(|_| InvalidInfo("a text that is not UTF-8"))
}

fn read_proc(proc: &ffi::Proc) -> Result<Value, InvalidInfo> {
    Ok(Value::Proc(text_in(&proc.nspace)?, proc.rank))
}

/// Reads the text of a field, up to its NUL.
fn text_in(field: &[c_char]) -> Result<String, InvalidInfo> {
    let bytes: Vec<u8> = field
        .iter()
        .map(|&byte| byte.to_ne_bytes()[0])
        .take_while(|&byte| byte != 0)
        .collect();
    String::from_utf8(bytes).map_err(|_| InvalidInfo("a text that is not UTF-8"))
}

/// Makes the name of a process.
pub fn proc(namespace: &CStr, rank: u32) -> ffi::Proc {
    let mut proc = ffi::Proc {
        nspace: [0; ffi::MAX_NAMESPACE_BYTES + 1],
        rank,
    };
    fill(&mut proc.nspace, namespace.to_bytes());
    proc
}

/// Copies bytes into a zeroed field, and leaves a NUL at its end.
fn fill(field: &mut [c_char], bytes: &[u8]) {
    let room = field.len() - 1;
    for (to, &byte) in field[..room].iter_mut().zip(bytes) {
        *to = c_char::from_ne_bytes([byte]);
    }
}

/// Attributes for libpmix, with all that they point to; freed when this is dropped.
pub struct Infos {
    first: *mut ffi::Info,
    count: usize,
    pieces: Vec<Piece>,
}

// SAFETY: it owns what it points to, and nothing else does.
unsafe impl Send for Infos {}

/// A piece of memory that came from `into_raw`.
enum Piece {
    Text(*mut c_char),
    Proc(*mut ffi::Proc),
    Array(*mut ffi::DataArray),
    Infos(*mut ffi::Info, usize),
    Values(*mut ffi::Value, usize),
}

impl Infos {
    /// Makes the attributes; those without a form in libpmix are left out, with an error each.
    pub fn new(infos: &[Info], errors: &mut Vec<Error>) -> Self {
        let mut pieces = Vec::new();
        let (first, count) = make_infos(infos, &mut pieces, errors);
        Self {
            first,
            count,
            pieces,
        }
    }

    /// The first attribute; null if there is none.
    pub fn first(&self) -> *mut ffi::Info {
        if self.count == 0 {
            ptr::null_mut()
        } else {
            self.first
        }
    }

    /// The number of attributes.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Drop for Infos {
    fn drop(&mut self) {
        for piece in self.pieces.drain(..) {
            // SAFETY: each piece came from `into_raw` of its type, and is freed here only.
            unsafe {
                match piece {
                    Piece::Text(text) => drop(CString::from_raw(text)),
                    Piece::Proc(proc) => drop(Box::from_raw(proc)),
                    Piece::Array(array) => drop(Box::from_raw(array)),
                    Piece::Infos(first, count) => {
                        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(first, count)));
                    }
                    Piece::Values(first, count) => {
                        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(first, count)));
                    }
                }
            }
        }
    }
}

fn make_infos(
    infos: &[Info],
    pieces: &mut Vec<Piece>,
    errors: &mut Vec<Error>,
) -> (*mut ffi::Info, usize) {
    let native: Box<[ffi::Info]> = infos
        .iter()
        .filter_map(|info| match make_info(info, pieces, errors) {
            Ok(info) => Some(info),
            Err(error) => {
                errors.push(error);
                None
            }
        })
        .collect();
    let count = native.len();
    let first = Box::into_raw(native).cast::<ffi::Info>();
    pieces.push(Piece::Infos(first, count));
    (first, count)
}

fn make_info(
    info: &Info,
    pieces: &mut Vec<Piece>,
    errors: &mut Vec<Error>,
) -> Result<ffi::Info, Error> {
    let invalid = |text: &str| Error::attribute(&info.key, text);
    let bytes = info.key.as_bytes();
    if bytes.len() > ffi::MAX_KEY_BYTES || bytes.contains(&0) {
        let expected = format!(
            "expected a key of at most {} bytes without NUL",
            ffi::MAX_KEY_BYTES
        );
        return Err(invalid(&expected));
    }
    let mut key = [0; ffi::MAX_KEY_BYTES + 1];
    fill(&mut key, bytes);
    Ok(ffi::Info {
        key,
        flags: if info.required { ffi::REQUIRED } else { 0 },
        value: make_value(&info.value, pieces, errors).map_err(|NoForm(text)| invalid(&text))?,
    })
}

/// Why a value has no form in libpmix.
struct NoForm(String);

fn make_value(
    value: &Value,
    pieces: &mut Vec<Piece>,
    errors: &mut Vec<Error>,
) -> Result<ffi::Value, NoForm> {
    // Zeroed, since libpmix may copy the whole union.
    let mut data = ffi::Data { words: [0; 3] };
    let kind = match value {
        Value::String(text) => {
            let text = CString::new(text.as_str())
                .map_err(|_| NoForm("expected a text without NUL".to_owned()))?;
            data.string = text.into_raw();
            // SAFETY: written in the line above.
            pieces.push(Piece::Text(unsafe { data.string }));
            types::STRING
        }
        Value::Proc(namespace, rank) => {
            let name = CString::new(namespace.as_str())
                .map_err(|_| NoForm("expected no NUL".to_owned()))?;
            let made = Box::into_raw(Box::new(proc(&name, *rank)));
            pieces.push(Piece::Proc(made));
            data.proc = made;
            types::PROC
        }
        Value::Infos(infos) => {
            let (first, count) = make_infos(infos, pieces, errors);
            data.array = make_array(types::INFO, first.cast(), count, pieces);
            types::DATA_ARRAY
        }
        Value::Values(values) => {
            let made: Result<Box<[_]>, _> = values
                .iter()
                .map(|value| make_value(value, pieces, errors))
                .collect();
            let made = made?;
            let count = made.len();
            let first = Box::into_raw(made).cast::<ffi::Value>();
            pieces.push(Piece::Values(first, count));
            data.array = make_array(types::VALUE, first.cast(), count, pieces);
            types::DATA_ARRAY
        }
        scalar => {
            let (kind, word) = scalar
                .word()
                .ok_or_else(|| NoForm(format!("no value of {}", scalar.type_name())))?;
            data.words = [word, 0, 0];
            kind
        }
    };
    Ok(ffi::Value { kind, data })
}

fn make_array(
    kind: u16,
    first: *mut c_void,
    size: usize,
    pieces: &mut Vec<Piece>,
) -> *mut ffi::DataArray {
    let array = Box::into_raw(Box::new(ffi::DataArray {
        kind,
        size,
        array: first,
    }));
    pieces.push(Piece::Array(array));
    array
}
