//! Starts libpmix as the server of a job.

#![expect(unsafe_code, reason = "calls C")]

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use penstock_pmix::{Error, Info, Job, NodePosition, Value, nodes_regex, ranks_regex};

use super::native::{Infos, proc, read_text};
use super::{ffi, upcalls};

/// The environment variables by which a task finds its server.
pub type Environment = BTreeMap<String, String>;

/// Settings of libpmix, as environment variables.
const SETTINGS: [(&str, &str); 3] = [
    // Job data in each client's own memory: shared memory needs files that outlive a crash.
    ("PMIX_MCA_gds", "hash"),
    // A task that registers late gets cached events: those of the last 4,096 requests, up to a year old.
    ("PMIX_MCA_pmix_max_events", "4096"),
    ("PMIX_MCA_pmix_event_caching_window", "31536000"),
];

/// Seconds until a stand-in process is killed.
const STAND_IN_TIMEOUT_S: c_uint = 10;

/// Sets the environment variables that libpmix reads.
///
/// # Safety
/// No other thread runs.
pub unsafe fn prepare_environment() {
    let inherited: Vec<_> = env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| name.as_encoded_bytes().starts_with(b"PMIX_"))
        .collect();
    for name in inherited {
        // SAFETY: no other thread runs. In a nested instance they belong to the server of the enclosing job.
        unsafe { env::remove_var(name) };
    }
    for (name, value) in SETTINGS {
        // SAFETY: no other thread runs.
        unsafe { env::set_var(name, value) };
    }
}

/// The user that this process runs as.
pub fn uid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { ffi::getuid() }
}

/// The group that this process runs as.
fn gid() -> u32 {
    // SAFETY: always succeeds.
    unsafe { ffi::getgid() }
}

/// The version text of libpmix.
pub fn version() -> String {
    // SAFETY: text that ends in NUL and lives as long as the process.
    unsafe { read_text(ffi::PMIx_Get_version()) }.unwrap_or_default()
}

/// Starts libpmix, with its files in a directory; the environment of each local task, by rank.
///
/// # Safety
/// Called once, after `server()` is set for the upcalls.
pub unsafe fn start(
    job: &Job,
    namespace: &CStr,
    directory: &str,
) -> Result<BTreeMap<u32, Environment>, Error> {
    let mut own = vec![
        string("pmix.srv.nspace", &format!("{}.server", job.namespace)),
        Info::new("pmix.srv.rank", Value::Rank(0)),
        string("pmix.srvr.tmpdir", directory),
        string("pmix.sys.tmpdir", directory),
    ];
    own.extend(
        job.served()
            .next()
            .map(|(here, _)| string("pmix.hname", here)),
    );
    let infos = to_native(&own)?;
    let mut module = upcalls::module();
    // SAFETY: both live until the call returns, which copies them; the upcalls have their server.
    check("PMIx_server_init", unsafe {
        ffi::PMIx_server_init(&raw mut module, infos.first(), infos.count())
    })?;
    let local = c_int::try_from(job.local.len()).unwrap_or(c_int::MAX);
    let infos = to_native(&job_data(job))?;
    // SAFETY: without a callback libpmix does not use them after the call.
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
    for &rank in &job.local {
        let proc = proc(namespace, rank);
        // SAFETY: as above.
        check("PMIx_server_register_client", unsafe {
            ffi::PMIx_server_register_client(
                &raw const proc,
                uid(),
                gid(),
                ptr::null_mut(),
                None,
                ptr::null_mut(),
            )
        })?;
    }
    job.local
        .iter()
        .map(|&rank| {
            let mut variables = environment(&proc(namespace, rank))?;
            if let Some(NodePosition { node, .. }) = job.position(rank) {
                // libpmix sets this machine's name, or that of the first of several nodes.
                variables.insert("PMIX_HOSTNAME".to_owned(), job.nodes[node].clone());
            }
            Ok((rank, variables))
        })
        .collect()
}

/// Connects as the task whose environment this process has; returns an exit code.
pub fn connect() -> i32 {
    // SAFETY: no arguments and no results; `alarm` kills the process if the call blocks.
    let code = unsafe {
        ffi::alarm(STAND_IN_TIMEOUT_S);
        ffi::PMIx_Init(ptr::null_mut(), ptr::null_mut(), 0)
    };
    // Statuses are negative, and small.
    -code
}

/// Deregisters a task whose connection libpmix has seen closed.
pub fn deregister(namespace: &CStr, rank: u32) {
    let proc = proc(namespace, rank);
    // SAFETY: the process is copied; with a callback, the call does not wait.
    unsafe {
        ffi::PMIx_server_deregister_client(&raw const proc, Some(deregistered), ptr::null_mut());
    }
}

unsafe extern "C" fn deregistered(_status: c_int, _cbdata: *mut c_void) {}

/// The job data that PMIx offers to every task.
fn job_data(job: &Job) -> Vec<Info> {
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
        string("pmix.jobid", &job.job),
        Info::new("pmix.univ.size", Value::Uint32(job.universe)),
        Info::new("pmix.job.size", Value::Uint32(job.size)),
        Info::new("pmix.max.size", Value::Uint32(job.size)),
        size("pmix.num.nodes", job.nodes.len()),
        string("pmix.nmap", &nodes_regex(&job.nodes)),
        string("pmix.pmap", &ranks_regex(&job.ranks_per_node)),
    ];
    infos.extend(
        (0_u32..)
            .zip(job.nodes.iter().zip(&job.ranks_per_node))
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
    infos.extend((0..job.size).filter_map(|rank| {
        let NodePosition { node, on_node } = job.position(rank)?;
        let local_rank = u16::try_from(on_node).unwrap_or(u16::MAX);
        Some(Info::new(
            "pmix.pdata",
            Value::Infos(vec![
                Info::new("pmix.rank", Value::Rank(rank)),
                Info::new("pmix.grank", Value::Rank(rank)),
                Info::new("pmix.appnum", Value::Uint32(0)),
                Info::new("pmix.lrank", Value::Uint16(local_rank)),
                Info::new("pmix.nrank", Value::Uint16(local_rank)),
                Info::new(
                    "pmix.nodeid",
                    Value::Uint32(u32::try_from(node).unwrap_or(u32::MAX)),
                ),
                string("pmix.hname", &job.nodes[node]),
            ]),
        ))
    }));
    infos
}

fn string(key: &str, text: &str) -> Info {
    Info::new(key, Value::String(text.to_owned()))
}

/// The attributes in libpmix's form; the error names those that have none.
fn to_native(infos: &[Info]) -> Result<Infos, Error> {
    let mut errors = Vec::new();
    let infos = Infos::new(infos, &mut errors);
    if errors.is_empty() {
        Ok(infos)
    } else {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Err(Error::library(errors.join("; ")))
    }
}

fn check(function: &str, code: c_int) -> Result<(), Error> {
    if code == ffi::SUCCESS || code == ffi::OPERATION_SUCCEEDED {
        return Ok(());
    }
    // SAFETY: text that ends in NUL and lives as long as the process.
    let text = unsafe { read_text(ffi::PMIx_Error_string(code)) }.unwrap_or_default();
    Err(Error::library(format!("{function}: {text} ({code})")))
}

/// The environment variables by which a task finds its server.
fn environment(proc: &ffi::Proc) -> Result<Environment, Error> {
    let mut list: *mut *mut c_char = ptr::null_mut();
    // SAFETY: libpmix makes the list, of text that ends in NUL, with null at its end.
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
        let text = text
            .into_string()
            .map_err(|error| Error::library(format!("environment: {error}")))?;
        if let Some((name, value)) = text.split_once('=') {
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    // SAFETY: the list was allocated for us, too; null is nothing to free.
    unsafe { ffi::free(list.cast()) };
    Ok(variables)
}
