//! The guests whose jobs are run.

use std::collections::BTreeMap;

use crate::error::Note;
use crate::protocol::Guest;

/// The search path of tasks whose jobspec has no environment: that of the service is root's.
const DEFAULT_GUEST_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// The jobs of guests that a service of root runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestSettings {
    /// The least id of a user whose jobs are run.
    pub min_uid: u32,
    /// Whether programs of their tasks cannot get privileges.
    pub no_new_privs: bool,
}

/// A guest whose job is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Admitted {
    uid: u32,
    no_new_privs: bool,
}

impl Admitted {
    pub(super) fn uid(self) -> u32 {
        self.uid
    }

    /// The user of a task, of which the guest has named no file.
    pub(super) fn task(self) -> Guest {
        Guest {
            uid: self.uid,
            no_new_privs: self.no_new_privs,
            names_stdout: false,
            names_stderr: false,
        }
    }
}

/// Checks whether the jobs of another user than the service's are run. The error is the note of the job's exception.
pub(super) fn admit(
    uid: u32,
    service_uid: u32,
    settings: Option<GuestSettings>,
) -> Result<Admitted, Note> {
    let Some(settings) = settings else {
        let text = format!(
            "the job is user {uid}'s, and the service is user {service_uid}'s: only a service of root runs jobs of \
             guests"
        );
        return Err(text.into());
    };
    if uid == 0 || uid < settings.min_uid {
        let least = settings.min_uid.max(1);
        let text = format!("no job of user {uid} is run: expected a user id of at least {least}");
        return Err(text.into());
    }
    Ok(Admitted {
        uid,
        no_new_privs: settings.no_new_privs,
    })
}

/// The environment of tasks whose jobspec has none. Variables of the user are added when the task starts.
pub(super) fn environment() -> BTreeMap<Vec<u8>, Vec<u8>> {
    BTreeMap::from([(b"PATH".to_vec(), DEFAULT_GUEST_PATH.to_vec())])
}
