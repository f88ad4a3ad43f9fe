//! The upcalls of libpmix to its host. All come on libpmix's thread, and none of them blocks.

#![expect(unsafe_code, reason = "is called by C")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use penstock_flux::{pmix_attribute, topic};
use penstock_pmix::response::Response;
use penstock_pmix::{Info, request, status};

use super::callbacks::{Callback, CallbackData, callbacks};
use super::ffi;
use super::native::{InvalidInfo, read_infos, read_text};
use super::server::{QueryKeys, TaskRequest, server};

/// The table of upcalls; libpmix rejects those that are not in it.
pub fn module() -> ffi::Module {
    ffi::Module {
        client_connected: ptr::null(),
        client_finalized: Some(client_finalized),
        abort: Some(abort),
        fence: Some(fence),
        unserved_4_to_10: [ptr::null(); 7],
        register_events: Some(register_events),
        deregister_events: Some(deregister_events),
        unserved_13_to_14: [ptr::null(); 2],
        query: Some(query),
        unserved_16_to_17: [ptr::null(); 2],
        allocate: Some(allocate),
        unserved_19_to_26: [ptr::null(); 8],
        client_connected2: Some(client_connected),
        later: [ptr::null(); 100],
    }
}

/// Responds with success.
fn succeed(callback: ffi::OpCallback, cbdata: *mut c_void) -> c_int {
    let callback = Callback::Op(callback, CallbackData(cbdata));
    let response = Response::of_status(status::SUCCESS);
    callbacks().enqueue(callback, response);
    ffi::SUCCESS
}

/// The rank of the calling process.
///
/// # Safety
/// `proc` is null or points to a process.
unsafe fn rank_of(proc: *const ffi::Proc) -> Option<u32> {
    // SAFETY: as the caller promises.
    let rank = unsafe { proc.as_ref() }?.rank;
    (rank < ffi::RANK_VALID).then_some(rank)
}

unsafe extern "C" fn client_connected(
    proc: *const ffi::Proc,
    _object: *mut c_void,
    _info: *mut ffi::Info,
    _ninfo: usize,
    callback: ffi::OpCallback,
    cbdata: *mut c_void,
) -> c_int {
    // SAFETY: libpmix gives the process, or null.
    if let Some(rank) = unsafe { rank_of(proc) } {
        server().record_connection(rank);
    }
    succeed(callback, cbdata)
}

/// Completes at once, so that libpmix records the finalize before it sees the connection's end.
unsafe extern "C" fn client_finalized(
    proc: *const ffi::Proc,
    _object: *mut c_void,
    _callback: ffi::OpCallback,
    _cbdata: *mut c_void,
) -> c_int {
    // SAFETY: libpmix gives the process, or null.
    if let Some(rank) = unsafe { rank_of(proc) } {
        server().tasks().record_finalize(rank);
    }
    ffi::OPERATION_SUCCEEDED
}

// libpmix itself knows who registered for what, and caches events for late registrations.
unsafe extern "C" fn register_events(
    _codes: *mut c_int,
    _ncodes: usize,
    _info: *const ffi::Info,
    _ninfo: usize,
    callback: ffi::OpCallback,
    cbdata: *mut c_void,
) -> c_int {
    succeed(callback, cbdata)
}

unsafe extern "C" fn deregister_events(
    _codes: *mut c_int,
    _ncodes: usize,
    callback: ffi::OpCallback,
    cbdata: *mut c_void,
) -> c_int {
    succeed(callback, cbdata)
}

/// Completes a fence: all tasks are local, so libpmix calls when all have come, with the data of all.
unsafe extern "C" fn fence(
    _procs: *const ffi::Proc,
    _nprocs: usize,
    _info: *const ffi::Info,
    _ninfo: usize,
    data: *mut c_char,
    size: usize,
    callback: ffi::ModexCallback,
    cbdata: *mut c_void,
) -> c_int {
    let copy = if data.is_null() {
        Vec::new()
    } else {
        // SAFETY: not null, and libpmix gives `size` bytes.
        unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec()
    };
    let callback = Callback::Modex(callback, CallbackData(cbdata), copy);
    let response = Response::of_status(status::SUCCESS);
    callbacks().enqueue(callback, response);
    ffi::SUCCESS
}

unsafe extern "C" fn abort(
    proc: *const ffi::Proc,
    _object: *mut c_void,
    code: c_int,
    message: *const c_char,
    _procs: *mut ffi::Proc,
    _nprocs: usize,
    callback: ffi::OpCallback,
    cbdata: *mut c_void,
) -> c_int {
    // SAFETY: libpmix gives the process that calls, or null.
    let rank = unsafe { proc.as_ref() }.map_or(ffi::RANK_UNDEF, |proc| proc.rank);
    // SAFETY: null, or text that ends in NUL.
    let text = unsafe { read_text(message) }.unwrap_or_default();
    let callback = Callback::Op(callback, CallbackData(cbdata));
    server().send_request(
        topic::pmix::ABORT,
        &request::abort(rank, code, &text),
        TaskRequest::Plain(callback),
    );
    ffi::SUCCESS
}

unsafe extern "C" fn allocate(
    client: *const ffi::Proc,
    directive: u8,
    data: *const ffi::Info,
    ndata: usize,
    callback: ffi::InfoCallback,
    cbdata: *mut c_void,
) -> c_int {
    let callback = Callback::Info(callback, CallbackData(cbdata));
    // SAFETY: libpmix gives the process that calls, or null.
    let rank = unsafe { rank_of(client) };
    // SAFETY: libpmix gives `ndata` attributes, valid until our callback.
    match unsafe { read_infos(data, ndata) } {
        Ok(infos) => server().send_request(
            topic::pmix::ALLOC,
            &request::alloc(rank, directive, &infos),
            TaskRequest::Alloc(callback),
        ),
        Err(error) => reject(callback, &error),
    }
    ffi::SUCCESS
}

unsafe extern "C" fn query(
    _proc: *mut ffi::Proc,
    queries: *mut ffi::Query,
    nqueries: usize,
    callback: ffi::InfoCallback,
    cbdata: *mut c_void,
) -> c_int {
    let callback = Callback::Info(callback, CallbackData(cbdata));
    // SAFETY: libpmix gives `nqueries` queries, valid until our callback.
    match unsafe { read_queries(queries, nqueries) } {
        Ok(keys) => server().query(callback, keys),
        Err(error) => reject(callback, &error),
    }
    ffi::SUCCESS
}

/// The keys of queries.
///
/// # Safety
/// `queries` is null or points to `count` queries that are valid with all they point to.
unsafe fn read_queries(queries: *const ffi::Query, count: usize) -> Result<QueryKeys, InvalidInfo> {
    let mut keys = QueryKeys::default();
    for index in 0..if queries.is_null() { 0 } else { count } {
        // SAFETY: within what the caller promises.
        let query = unsafe { &*queries.add(index) };
        // SAFETY: the qualifiers are part of a valid query.
        let qualifiers: Vec<Info> = unsafe { read_infos(query.qualifiers, query.nqual)? };
        let mut key = query.keys;
        // SAFETY: the keys are null, or pointers of which the last is null.
        while !key.is_null() && !unsafe { *key }.is_null() {
            // SAFETY: not the last; a key is text that ends in NUL.
            if unsafe { read_text(*key)? } == pmix_attribute::QUERY {
                keys.ids
                    .push(request::request_id(&qualifiers).map(str::to_owned));
            } else {
                keys.has_unsupported = true;
            }
            // SAFETY: not past the last.
            key = unsafe { key.add(1) };
        }
    }
    Ok(keys)
}

fn reject(callback: Callback, InvalidInfo(text): &InvalidInfo) {
    eprintln!("penstock-pmix: request rejected: {text}");
    let response = Response::of_status(status::BAD_PARAM);
    callbacks().enqueue(callback, response);
}
