//! Job states and results (RFC 21), as the bits that Flux's tools use in rows and masks.

/// Declares the bits, and the table of them.
macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        $($(#[$doc])* pub const $name: u8 = $bit;)*

        /// Every bit with its name.
        pub const ALL: &[(&str, u8)] = &[$((stringify!($name), $bit)),*];
    };
}

bits! {
    /// Submitted, not yet validated.
    NEW = 1;
    /// Waiting for dependencies.
    DEPEND = 2;
    /// Waiting for a priority.
    PRIORITY = 4;
    /// Waiting for resources.
    SCHED = 8;
    /// Has resources; starting or running.
    RUN = 16;
    /// Finished or failed; resources are being freed.
    CLEANUP = 32;
    /// Ended: its record no longer changes.
    INACTIVE = 64;
}

/// DEPEND, PRIORITY or SCHED.
pub const PENDING: u8 = DEPEND | PRIORITY | SCHED;
/// RUN or CLEANUP.
pub const RUNNING: u8 = RUN | CLEANUP;
/// Pending or running.
pub const ACTIVE: u8 = PENDING | RUNNING;

/// The results of inactive jobs.
pub mod result {
    bits! {
        /// Every task ended with status 0.
        COMPLETED = 1;
        /// A task failed, or a fatal exception other than the two below was raised.
        FAILED = 2;
        /// A fatal exception of type `cancel`.
        CANCELED = 4;
        /// A fatal exception of type `timeout`.
        TIMEOUT = 8;
    }
}

/// The bit of a name in a table of this module, in any case.
pub fn bit(table: &[(&str, u8)], name: &str) -> Option<u8> {
    let mut found = table
        .iter()
        .filter(|(own, _)| own.eq_ignore_ascii_case(name));
    found.next().map(|(_, bit)| *bit)
}
