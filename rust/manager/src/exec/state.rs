//! `ServiceState`: the execution service as other modules see it.

/// The execution service as far as other modules depend on it. Its field can be set in `exec` alone,
/// so that no other module can make one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServiceState {
    /// Whether the service releases ranks of a running job when they are idle: ranks that the job has
    /// released are not free before.
    pub(super) releases_shrunk: bool,
}

impl ServiceState {
    /// Whether the service releases ranks of a running job when they are idle: ranks that the job has
    /// released are not free before.
    pub(crate) fn releases_shrunk(self) -> bool {
        self.releases_shrunk
    }
}
