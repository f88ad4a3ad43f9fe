//! What libpmix asks of its host. All of it comes on the library's thread, and none of it waits.

#![expect(unsafe_code, reason = "is called by C")]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use penstock_pmix::answer::Answer;
use penstock_pmix::{Info, request, status};

use super::answers::{Caller, Cookie};
use super::native::{Unreadable, read_infos, read_text};
use super::{Waiter, ffi, server};

/// The table of upcalls; what is not in it, the library refuses by itself.
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

/// Says yes.
fn grant(callback: ffi::OpCallback, cbdata: *mut c_void) -> c_int {
    let caller = Caller::Op(callback, Cookie(cbdata));
    server().answers.put(caller, Answer::of(status::SUCCESS));
    ffi::SUCCESS
}

/// The rank of the process that calls.
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
    // SAFETY: the library gives the process, or null.
    if let Some(rank) = unsafe { rank_of(proc) } {
        server().connected(rank);
    }
    grant(callback, cbdata)
}

/// Done at once, so that the library knows of it, too, before it sees the connection's end.
unsafe extern "C" fn client_finalized(
    proc: *const ffi::Proc,
    _object: *mut c_void,
    _callback: ffi::OpCallback,
    _cbdata: *mut c_void,
) -> c_int {
    // SAFETY: the library gives the process, or null.
    if let Some(rank) = unsafe { rank_of(proc) } {
        server().tasks().finalized(rank);
    }
    ffi::OPERATION_SUCCEEDED
}

// The library itself knows who registered for what, and keeps events for those who come late.
unsafe extern "C" fn register_events(
    _codes: *mut c_int,
    _ncodes: usize,
    _info: *const ffi::Info,
    _ninfo: usize,
    callback: ffi::OpCallback,
    cbdata: *mut c_void,
) -> c_int {
    grant(callback, cbdata)
}

unsafe extern "C" fn deregister_events(
    _codes: *mut c_int,
    _ncodes: usize,
    callback: ffi::OpCallback,
    cbdata: *mut c_void,
) -> c_int {
    grant(callback, cbdata)
}

/// All tasks run here: when the library asks, all have come, and what they put in is what they get.
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
        // SAFETY: not null, and the library gives `size` bytes.
        unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec()
    };
    let caller = Caller::Modex(callback, Cookie(cbdata), copy);
    server().answers.put(caller, Answer::of(status::SUCCESS));
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
    // SAFETY: the library gives the process that calls, or null.
    let rank = unsafe { proc.as_ref() }.map_or(ffi::RANK_UNDEF, |proc| proc.rank);
    // SAFETY: null, or text that ends in NUL.
    let text = unsafe { read_text(message) }.unwrap_or_default();
    let caller = Caller::Op(callback, Cookie(cbdata));
    server().ask(
        "pmix.abort",
        &request::abort(rank, code, &text),
        Waiter::Plain(caller),
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
    let caller = Caller::Info(callback, Cookie(cbdata));
    // SAFETY: the library gives the process that calls, or null.
    let rank = unsafe { rank_of(client) };
    // SAFETY: the library gives `ndata` attributes, valid until our callback.
    match unsafe { read_infos(data, ndata) } {
        Ok(infos) => server().ask(
            "pmix.alloc",
            &request::alloc(rank, directive, &infos),
            Waiter::Alloc(caller),
        ),
        Err(fault) => refuse(caller, &fault),
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
    let caller = Caller::Info(callback, Cookie(cbdata));
    // SAFETY: the library gives `nqueries` queries, valid until our callback.
    match unsafe { read_queries(queries, nqueries) } {
        Ok((wanted, foreign)) => server().query(caller, wanted, foreign),
        Err(fault) => refuse(caller, &fault),
    }
    ffi::SUCCESS
}

/// The requests that are asked for, each by its id or all of them, and whether there was a key of another kind.
///
/// # Safety
/// `queries` is null or points to `count` queries that are valid with all they point to.
unsafe fn read_queries(
    queries: *const ffi::Query,
    count: usize,
) -> Result<(Vec<Option<String>>, bool), Unreadable> {
    let (mut wanted, mut foreign) = (Vec::new(), false);
    for index in 0..if queries.is_null() { 0 } else { count } {
        // SAFETY: within what the caller promises.
        let query = unsafe { &*queries.add(index) };
        // SAFETY: the qualifiers are part of a valid query.
        let qualifiers: Vec<Info> = unsafe { read_infos(query.qualifiers, query.nqual)? };
        let mut key = query.keys;
        // SAFETY: the keys are null, or pointers of which the last is null.
        while !key.is_null() && !unsafe { *key }.is_null() {
            // SAFETY: not the last; a key is text that ends in NUL.
            if unsafe { read_text(*key)? } == request::QUERY {
                wanted.push(request::named(&qualifiers).map(str::to_owned));
            } else {
                foreign = true;
            }
            // SAFETY: not past the last.
            key = unsafe { key.add(1) };
        }
    }
    Ok((wanted, foreign))
}

fn refuse(caller: Caller, Unreadable(fault): &Unreadable) {
    eprintln!("penstock-pmix: request refused: {fault}");
    server().answers.put(caller, Answer::of(status::BAD_PARAM));
}
