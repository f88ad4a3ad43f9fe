//! The functions of `flux/idset.h` and `flux/hostlist.h` (flux-core), with their meaning.

pub mod hostlist;
pub mod idset;
