//! The part of libpmix's interface in use, as `pmix_common.h` and `pmix_server.h` (4.2) declare it.
//!
//! Later versions keep these layouts and add to the end of the module struct.

#![expect(unsafe_code, reason = "declares C functions")]

use std::ffi::{c_char, c_int, c_short, c_uint, c_ulong, c_void};

pub const MAX_NAMESPACE_BYTES: usize = 255;
pub const MAX_KEY_BYTES: usize = 511;

/// Flag of an [`Info`]: the request is to be denied if this cannot be met.
pub const REQUIRED: u32 = 1;
/// Returned by an upcall that is answered later.
pub const SUCCESS: c_int = 0;
/// Returned by a function that has done its work and will not call back.
pub const OPERATION_SUCCEEDED: c_int = -157;
/// To every process on this node.
pub const RANGE_LOCAL: u8 = 2;
/// No rank.
pub const RANK_UNDEF: u32 = u32::MAX;
/// The ranks below are those of processes.
pub const RANK_VALID: u32 = u32::MAX - 50;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Proc {
    pub nspace: [c_char; MAX_NAMESPACE_BYTES + 1],
    pub rank: u32,
}

/// A value: its type, and a union of which at most three words are used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Value {
    pub kind: u16,
    pub data: Data,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union Data {
    pub words: [u64; 3],
    pub string: *mut c_char,
    pub proc: *mut Proc,
    pub array: *mut DataArray,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Info {
    pub key: [c_char; MAX_KEY_BYTES + 1],
    pub flags: u32,
    pub value: Value,
}

#[repr(C)]
pub struct Query {
    pub keys: *mut *mut c_char,
    pub qualifiers: *mut Info,
    pub nqual: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DataArray {
    pub kind: u16,
    pub size: usize,
    pub array: *mut c_void,
}

/// `struct pollfd` (poll(2)).
#[repr(C)]
pub struct Poll {
    pub fd: c_int,
    pub events: c_short,
    pub revents: c_short,
}

/// There is something to read.
pub const POLLIN: c_short = 1;
/// The other end has closed its half (Linux).
pub const POLLRDHUP: c_short = 0x2000;
/// No such descriptor.
pub const POLLNVAL: c_short = 0x20;

/// The descriptor is not for programs that this one starts (Linux).
pub const SOCK_CLOEXEC: c_int = 0o2_000_000;

/// No connection is pending (errno).
pub const EAGAIN: c_int = 11;

const _: () = assert!(size_of::<Poll>() == 8);
const _: () = assert!(size_of::<Proc>() == 260);
const _: () = assert!(size_of::<Value>() == 32 && align_of::<Value>() == 8);
const _: () = assert!(size_of::<Info>() == 552);
const _: () = assert!(size_of::<Query>() == 24);
const _: () = assert!(size_of::<DataArray>() == 24);

pub type OpCallback = Option<unsafe extern "C" fn(status: c_int, cbdata: *mut c_void)>;
pub type ReleaseCallback = Option<unsafe extern "C" fn(cbdata: *mut c_void)>;
pub type InfoCallback = Option<
    unsafe extern "C" fn(
        status: c_int,
        info: *mut Info,
        ninfo: usize,
        cbdata: *mut c_void,
        release: ReleaseCallback,
        release_cbdata: *mut c_void,
    ),
>;
pub type ModexCallback = Option<
    unsafe extern "C" fn(
        status: c_int,
        data: *const c_char,
        ndata: usize,
        cbdata: *mut c_void,
        release: ReleaseCallback,
        release_cbdata: *mut c_void,
    ),
>;

pub type FinalizedUpcall =
    unsafe extern "C" fn(*const Proc, *mut c_void, OpCallback, *mut c_void) -> c_int;
pub type AbortUpcall = unsafe extern "C" fn(
    *const Proc,
    *mut c_void,
    c_int,
    *const c_char,
    *mut Proc,
    usize,
    OpCallback,
    *mut c_void,
) -> c_int;
pub type FenceUpcall = unsafe extern "C" fn(
    *const Proc,
    usize,
    *const Info,
    usize,
    *mut c_char,
    usize,
    ModexCallback,
    *mut c_void,
) -> c_int;
pub type RegisterEventsUpcall =
    unsafe extern "C" fn(*mut c_int, usize, *const Info, usize, OpCallback, *mut c_void) -> c_int;
pub type DeregisterEventsUpcall =
    unsafe extern "C" fn(*mut c_int, usize, OpCallback, *mut c_void) -> c_int;
pub type QueryUpcall =
    unsafe extern "C" fn(*mut Proc, *mut Query, usize, InfoCallback, *mut c_void) -> c_int;
pub type AllocateUpcall =
    unsafe extern "C" fn(*const Proc, u8, *const Info, usize, InfoCallback, *mut c_void) -> c_int;
pub type ConnectedUpcall = unsafe extern "C" fn(
    *const Proc,
    *mut c_void,
    *mut Info,
    usize,
    OpCallback,
    *mut c_void,
) -> c_int;

/// A place in the module for an upcall that is not served.
pub type Unserved = *const c_void;

/// `pmix_server_module_4_0_0_t`. Later versions copy a longer one by value: what follows reads as zero.
#[repr(C)]
pub struct Module {
    pub client_connected: Unserved,
    pub client_finalized: Option<FinalizedUpcall>,
    pub abort: Option<AbortUpcall>,
    pub fence: Option<FenceUpcall>,
    pub unserved_4_to_10: [Unserved; 7],
    pub register_events: Option<RegisterEventsUpcall>,
    pub deregister_events: Option<DeregisterEventsUpcall>,
    pub unserved_13_to_14: [Unserved; 2],
    pub query: Option<QueryUpcall>,
    pub unserved_16_to_17: [Unserved; 2],
    pub allocate: Option<AllocateUpcall>,
    pub unserved_19_to_26: [Unserved; 8],
    pub client_connected2: Option<ConnectedUpcall>,
    pub later: [Unserved; 100],
}

const _: () = assert!(std::mem::offset_of!(Module, register_events) == 11 * 8);
const _: () = assert!(std::mem::offset_of!(Module, query) == 15 * 8);
const _: () = assert!(std::mem::offset_of!(Module, allocate) == 18 * 8);
const _: () = assert!(std::mem::offset_of!(Module, client_connected2) == 27 * 8);

#[link(name = "pmix")]
unsafe extern "C" {
    pub fn PMIx_server_init(module: *mut Module, info: *mut Info, ninfo: usize) -> c_int;
    pub fn PMIx_server_register_nspace(
        nspace: *const c_char,
        nlocal: c_int,
        info: *mut Info,
        ninfo: usize,
        callback: OpCallback,
        cbdata: *mut c_void,
    ) -> c_int;
    pub fn PMIx_server_register_client(
        proc: *const Proc,
        uid: u32,
        gid: u32,
        object: *mut c_void,
        callback: OpCallback,
        cbdata: *mut c_void,
    ) -> c_int;
    pub fn PMIx_server_deregister_client(
        proc: *const Proc,
        callback: OpCallback,
        cbdata: *mut c_void,
    );
    pub fn PMIx_server_setup_fork(proc: *const Proc, environment: *mut *mut *mut c_char) -> c_int;
    pub fn PMIx_Notify_event(
        status: c_int,
        source: *const Proc,
        range: u8,
        info: *const Info,
        ninfo: usize,
        callback: OpCallback,
        cbdata: *mut c_void,
    ) -> c_int;
    pub fn PMIx_Init(proc: *mut Proc, info: *mut Info, ninfo: usize) -> c_int;
    pub fn PMIx_Error_string(status: c_int) -> *const c_char;
    pub fn PMIx_Get_version() -> *const c_char;
}

unsafe extern "C" {
    pub fn getuid() -> u32;
    pub fn getgid() -> u32;
    pub fn accept4(socket: c_int, address: *mut c_void, length: *mut c_uint, flags: c_int)
    -> c_int;
    pub fn __errno_location() -> *mut c_int;
    pub fn poll(entries: *mut Poll, count: c_ulong, milliseconds: c_int) -> c_int;
    pub fn alarm(seconds: c_uint) -> c_uint;
    pub fn free(pointer: *mut c_void);
    pub fn _exit(status: c_int) -> !;
}
