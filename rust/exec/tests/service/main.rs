//! The service over a virtual instance and a virtual reaper.

#[path = "../support/job_manager.rs"]
mod job_manager;
#[path = "../support/virtual_kernel.rs"]
mod virtual_kernel;
#[path = "../support/world.rs"]
mod world;

mod clock;
mod crashes;
mod descriptors;
mod directory;
mod hostile;
mod idle_end;
mod input;
mod journal;
mod limits;
mod output;
mod output_quota;
mod pmi;
mod pmix;
mod registration;
mod release;
mod restart;
mod shrink;
mod signals;
mod start;
mod time_limit;
mod usage;
mod user_log;
