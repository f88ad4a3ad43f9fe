//! Starts libpmix as the server of a job.

#![expect(unsafe_code, reason = "calls C")]

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use penstock_pmix::{Info, Start, Value, nodes_regex, ranks_regex};

use super::native::{Infos, proc, read_text};
use super::{ffi, upcalls};

/// The variables of a task.
pub type Environment = BTreeMap<String, String>;

/// Settings of the library, and what they are for.
const SETTINGS: [(&str, &str); 3] = [
    // Job data in each client's own memory: the other way needs files that outlive a crash.
    ("PMIX_MCA_gds", "hash"),
    // Who registers late hears of all that is over: of the last 4,096 requests, of a year.
    ("PMIX_MCA_pmix_max_events", "4096"),
    ("PMIX_MCA_pmix_event_caching_window", "31536000"),
];

/// Seconds until a process that is to connect in a task's place ends.
const STAND_IN_LIMIT: c_uint = 10;

/// Sets what the library reads from this process's environment.
///
/// # Safety
/// No other thread runs.
pub unsafe fn prepare_environment() {
    let inherited: Vec<_> = env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.as_encoded_bytes().starts_with(b"PMIX_"))
        .collect();
    for name in inherited {
        // SAFETY: no other thread runs. They belong to the server of a job that this instance runs in.
        unsafe { env::remove_var(name) };
    }
    for (name, value) in SETTINGS {
        // SAFETY: no other thread runs.
        unsafe { env::set_var(name, value) };
    }
}

/// The user and group that this process runs as.
pub fn user() -> (u32, u32) {
    // SAFETY: both always succeed.
    unsafe { (ffi::getuid(), ffi::getgid()) }
}

/// The library's version, as it says it.
pub fn version() -> String {
    // SAFETY: text that ends in NUL and lives as long as the process.
    unsafe { read_text(ffi::PMIx_Get_version()) }.unwrap_or_default()
}

/// Starts the library; the tasks' environments, by rank.
///
/// # Safety
/// Called once, when `server()` is there for the upcalls.
pub unsafe fn start(start: &Start, namespace: &CStr) -> Result<BTreeMap<u32, Environment>, String> {
    let (here, _) = start.served().next().ok_or("no node has the local ranks")?;
    let directory = start
        .directory
        .to_str()
        .ok_or("`directory`: expected UTF-8")?;
    let own = [
        string("pmix.srv.nspace", &format!("{}.server", start.namespace)),
        Info::new("pmix.srv.rank", Value::Rank(0)),
        string("pmix.srvr.tmpdir", directory),
        string("pmix.sys.tmpdir", directory),
        string("pmix.hname", here),
    ];
    let infos = made(&own)?;
    let mut module = upcalls::module();
    // SAFETY: both live until the call returns, which copies them; the upcalls have their server.
    check("PMIx_server_init", unsafe {
        ffi::PMIx_server_init(&raw mut module, infos.first(), infos.count())
    })?;
    let local = c_int::try_from(start.local.len()).map_err(|error| error.to_string())?;
    let infos = made(&job_data(start))?;
    // SAFETY: without a callback the library is done with them when it returns.
    check("PMIx_server_register_nspace", unsafe {
        ffi::PMIx_server_register_nspace(
            namespace.as_ptr(),
            local,
            infos.first(),
            infos.count(),
            None,
            ptr::null_mut(),
        )
    })?;
    let (uid, gid) = user();
    for &rank in &start.local {
        let proc = proc(namespace, rank);
        // SAFETY: as above.
        check("PMIx_server_register_client", unsafe {
            ffi::PMIx_server_register_client(
                &raw const proc,
                uid,
                gid,
                ptr::null_mut(),
                None,
                ptr::null_mut(),
            )
        })?;
    }
    start
        .local
        .iter()
        .map(|&rank| {
            let mut variables = environment(&proc(namespace, rank))?;
            if let Some((node, _)) = start.place(rank) {
                // Where the library has this machine's name, or that of the first of several nodes.
                variables.insert("PMIX_HOSTNAME".to_owned(), start.nodes[node].clone());
            }
            Ok((rank, variables))
        })
        .collect()
}

/// Connects as the task whose variables this process has; an exit code.
pub fn join() -> i32 {
    // SAFETY: nothing is wanted back, and nothing given; `alarm` ends a process that comes to no end.
    let code = unsafe {
        ffi::alarm(STAND_IN_LIMIT);
        ffi::PMIx_Init(ptr::null_mut(), ptr::null_mut(), 0)
    };
    // Statuses are negative, and small.
    -code
}

/// Has the library know a task no more whose connection it has seen closed.
pub fn forget(namespace: &CStr, rank: u32) {
    let proc = proc(namespace, rank);
    // SAFETY: the process is copied; with a callback, the call does not wait.
    unsafe {
        ffi::PMIx_server_deregister_client(&raw const proc, Some(forgotten), ptr::null_mut());
    }
}

unsafe extern "C" fn forgotten(_status: c_int, _cbdata: *mut c_void) {}

/// What every task of the job may know of it.
fn job_data(start: &Start) -> Vec<Info> {
    let list = |ranks: &[u32]| {
        ranks
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };
    let size =
        |key, count: usize| Info::new(key, Value::Uint32(u32::try_from(count).unwrap_or(u32::MAX)));
    let mut infos = vec![
        string("pmix.jobid", &start.job),
        Info::new("pmix.univ.size", Value::Uint32(start.universe)),
        Info::new("pmix.job.size", Value::Uint32(start.size)),
        Info::new("pmix.max.size", Value::Uint32(start.size)),
        size("pmix.num.nodes", start.nodes.len()),
        string("pmix.nmap", &nodes_regex(&start.nodes)),
        string("pmix.pmap", &ranks_regex(&start.ranks_per_node)),
    ];
    infos.extend(
        (0_u32..)
            .zip(start.nodes.iter().zip(&start.ranks_per_node))
            .map(|(number, (node, ranks))| {
                let about = vec![
                    string("pmix.hname", node),
                    Info::new("pmix.nodeid", Value::Uint32(number)),
                    size("pmix.local.size", ranks.len()),
                    size("pmix.node.size", ranks.len()),
                    string("pmix.lpeers", &list(ranks)),
                    Info::new(
                        "pmix.lldr",
                        Value::Rank(ranks.first().copied().unwrap_or(0)),
                    ),
                ];
                Info::new("pmix.node.arr", Value::Infos(about))
            }),
    );
    infos.extend((0..start.size).filter_map(|rank| {
        let (node, place) = start.place(rank)?;
        let place = u16::try_from(place).unwrap_or(u16::MAX);
        Some(Info::new(
            "pmix.pdata",
            Value::Infos(vec![
                Info::new("pmix.rank", Value::Rank(rank)),
                Info::new("pmix.grank", Value::Rank(rank)),
                Info::new("pmix.appnum", Value::Uint32(0)),
                Info::new("pmix.lrank", Value::Uint16(place)),
                Info::new("pmix.nrank", Value::Uint16(place)),
                Info::new(
                    "pmix.nodeid",
                    Value::Uint32(u32::try_from(node).unwrap_or(u32::MAX)),
                ),
                string("pmix.hname", &start.nodes[node]),
            ]),
        ))
    }));
    infos
}

fn string(key: &str, text: &str) -> Info {
    Info::new(key, Value::String(text.to_owned()))
}

fn made(infos: &[Info]) -> Result<Infos, String> {
    let mut faults = Vec::new();
    let infos = Infos::new(infos, &mut faults);
    if faults.is_empty() {
        Ok(infos)
    } else {
        Err(faults.join("; "))
    }
}

fn check(function: &str, code: c_int) -> Result<(), String> {
    if code == ffi::SUCCESS || code == ffi::OPERATION_SUCCEEDED {
        return Ok(());
    }
    // SAFETY: text that ends in NUL and lives as long as the process.
    let text = unsafe { read_text(ffi::PMIx_Error_string(code)) }.unwrap_or_default();
    Err(format!("{function}: {text} ({code})"))
}

/// The variables by which a task finds its server.
fn environment(proc: &ffi::Proc) -> Result<Environment, String> {
    let mut list: *mut *mut c_char = ptr::null_mut();
    // SAFETY: the library makes the list, of text that ends in NUL, with null at its end.
    check("PMIx_server_setup_fork", unsafe {
        ffi::PMIx_server_setup_fork(ptr::from_ref(proc), &raw mut list)
    })?;
    let mut variables = Environment::new();
    let mut next = list;
    // SAFETY: up to the null at its end.
    while !next.is_null() && !unsafe { *next }.is_null() {
        // SAFETY: as above; each was allocated for us.
        let (text, after) = unsafe {
            let text = CString::from(CStr::from_ptr(*next));
            ffi::free((*next).cast());
            (text, next.add(1))
        };
        next = after;
        let text = text.into_string().map_err(|error| error.to_string())?;
        if let Some((name, value)) = text.split_once('=') {
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    // SAFETY: the list was allocated for us, too; null is nothing to free.
    unsafe { ffi::free(list.cast()) };
    Ok(variables)
}
