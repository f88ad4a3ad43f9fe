//! R (RFC 20): the resources of nodes.

use std::ffi::c_char;
use std::ptr;

use penstock_idset::IdSet;
use penstock_rset::ResourceSet;

use crate::call::{self, Error, boxed, guarded, reported};
use crate::hostlist::{self, Hostlist};
use crate::idset::{self, Idset};

/// The cores and gpus of nodes, with their hosts and properties.
#[derive(Clone)]
pub struct Rset(ResourceSet);

/// The R behind a pointer.
///
/// # Safety
///
/// `set` is null or comes from this library, was not freed, and is not changed meanwhile.
unsafe fn read<'a>(set: *const Rset) -> Option<&'a ResourceSet> {
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe { set.as_ref() }.map(|set| &set.0)
}

/// Returns a value of an R; the default for null.
///
/// # Safety
///
/// As for [`read`].
unsafe fn got<T: Default>(set: *const Rset, get: impl FnOnce(&ResourceSet) -> T) -> T {
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe { guarded(None, || read(set).map(get)) }.unwrap_or_default()
}

/// Combines two R into a new one.
///
/// # Safety
///
/// As for [`read`]; `error` is null or points to an error.
unsafe fn combined(
    a: *const Rset,
    b: *const Rset,
    error: *mut Error,
    combine: impl FnOnce(&ResourceSet, &ResourceSet) -> Result<ResourceSet, penstock_rset::Error>,
) -> *mut Rset {
    // SAFETY: the caller guarantees it (`# Safety`).
    unsafe {
        reported(error, ptr::null_mut(), || {
            let empty = ResourceSet::new();
            let (a, b) = (read(a).unwrap_or(&empty), read(b).unwrap_or(&empty));
            Ok(boxed(Rset(combine(a, b)?)))
        })
    }
}

/// Reads an R as JSON. Returns NULL, with the error, for other texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_parse(
    text: *const c_char,
    len: usize,
    error: *mut Error,
) -> *mut Rset {
    // SAFETY: the caller passes a text and an error, valid as the crate's `# Safety` requires.
    unsafe {
        reported(error, ptr::null_mut(), || {
            Ok(boxed(Rset(ResourceSet::from_json(call::text(text, len)?)?)))
        })
    }
}

/// Copies an R.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_copy(set: *const Rset) -> *mut Rset {
    // SAFETY: the caller passes an R, valid as the crate's `# Safety` requires.
    let copy = unsafe { guarded(None, || read(set).cloned()) };
    copy.map_or(ptr::null_mut(), |copy| boxed(Rset(copy)))
}

/// Frees an R.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_free(set: *mut Rset) {
    // SAFETY: the caller passes an R, valid as the crate's `# Safety` requires.
    unsafe { call::free(set) };
}

/// Formats an R as JSON, or returns NULL for NULL. The text is freed by `free(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_json(set: *const Rset) -> *mut c_char {
    // SAFETY: the caller passes an R, valid as the crate's `# Safety` requires.
    let text = unsafe { guarded(None, || read(set).map(ResourceSet::to_json)) };
    text.map_or(ptr::null_mut(), |text| call::c_text(&text))
}

/// Formats an R for people: `rank[0-1]/core[0-3]`. The text is freed by `free(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_summary(set: *const Rset) -> *mut c_char {
    // SAFETY: the caller passes an R, valid as the crate's `# Safety` requires.
    call::c_text(&unsafe { got(set, ResourceSet::summary) })
}

/// The ranks of the nodes, as a new set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_ranks(set: *const Rset) -> *mut Idset {
    // SAFETY: the caller passes an R, valid as the crate's `# Safety` requires.
    boxed(Idset(unsafe { got(set, ResourceSet::ranks) }))
}

/// The hosts of the nodes in the order of their ranks, as a new list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_hosts(set: *const Rset) -> *mut Hostlist {
    // SAFETY: the caller passes an R, valid as the crate's `# Safety` requires.
    boxed(Hostlist(unsafe { got(set, ResourceSet::nodelist) }))
}

/// The number of nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_nnodes(set: *const Rset) -> usize {
    // SAFETY: the caller passes an R, valid as the crate's `# Safety` requires.
    unsafe { got(set, ResourceSet::nnodes) }
}

/// The number of cores of all nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_ncores(set: *const Rset) -> u64 {
    // SAFETY: the caller passes an R, valid as the crate's `# Safety` requires.
    unsafe { got(set, ResourceSet::ncores) }
}

/// The number of gpus of all nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_ngpus(set: *const Rset) -> u64 {
    // SAFETY: the caller passes an R, valid as the crate's `# Safety` requires.
    unsafe { got(set, ResourceSet::ngpus) }
}

/// The cores of a node, as a new set; the empty set for a rank that is not in the R.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_cores(set: *const Rset, rank: u32) -> *mut Idset {
    let cores = |set: &ResourceSet| set.resources(rank).map(|(cores, _)| cores.clone());
    // SAFETY: the caller passes an R, valid as the crate's `# Safety` requires.
    let cores: Option<IdSet> = unsafe { got(set, cores) };
    boxed(Idset(cores.unwrap_or_default()))
}

/// The gpus of a node, as a new set; the empty set for a rank that is not in the R.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_gpus(set: *const Rset, rank: u32) -> *mut Idset {
    let gpus = |set: &ResourceSet| set.resources(rank).map(|(_, gpus)| gpus.clone());
    // SAFETY: the caller passes an R, valid as the crate's `# Safety` requires.
    let gpus: Option<IdSet> = unsafe { got(set, gpus) };
    boxed(Idset(gpus.unwrap_or_default()))
}

/// The nodes with the given ranks, those that are in the R, as a new R.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_restrict(
    set: *const Rset,
    ranks: *const Idset,
) -> *mut Rset {
    // SAFETY: the caller passes an R and a set, valid as the crate's `# Safety` requires.
    let part = unsafe { got(set, |set| Some(set.restrict(idset::read(ranks)))) };
    part.map_or(ptr::null_mut(), |part| boxed(Rset(part)))
}

/// The ranks of the nodes on the given hosts, as a new set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_ranks_on(
    set: *const Rset,
    hosts: *const Hostlist,
) -> *mut Idset {
    // SAFETY: the caller passes an R and a list, valid as the crate's `# Safety` requires.
    let ranks = unsafe { got(set, |set| set.ranks_on(hostlist::read(hosts))) };
    boxed(Idset(ranks))
}

/// The resources of either R, as a new R. Returns NULL, with the error, if they contradict each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_union(
    a: *const Rset,
    b: *const Rset,
    error: *mut Error,
) -> *mut Rset {
    // SAFETY: the caller passes two R and an error, valid as the crate's `# Safety` requires.
    unsafe { combined(a, b, error, ResourceSet::union) }
}

/// The resources of both R, as a new R. Returns NULL, with the error, if they contradict each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_intersection(
    a: *const Rset,
    b: *const Rset,
    error: *mut Error,
) -> *mut Rset {
    // SAFETY: the caller passes two R and an error, valid as the crate's `# Safety` requires.
    unsafe { combined(a, b, error, ResourceSet::intersection) }
}

/// The resources of `a` that are not in `b`, as a new R. Returns NULL, with the error, if they contradict each other.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_difference(
    a: *const Rset,
    b: *const Rset,
    error: *mut Error,
) -> *mut Rset {
    // SAFETY: the caller passes two R and an error, valid as the crate's `# Safety` requires.
    unsafe { combined(a, b, error, ResourceSet::difference) }
}

/// Whether two R are equal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn penstock_rset_equal(a: *const Rset, b: *const Rset) -> bool {
    // SAFETY: the caller passes two R, valid as the crate's `# Safety` requires.
    unsafe { guarded(false, || read(a) == read(b)) }
}
