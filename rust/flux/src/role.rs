//! Roles of a message's sender (RFC 12), and the checks on them.

use crate::RequestError;

/// Role: the sender is the instance owner.
pub const OWNER: u32 = 1;
/// Role: the sender is a guest, another user than the owner.
pub const USER: u32 = 2;
/// Role: the sender is connected to this broker, not relayed by another one.
pub const LOCAL: u32 = 4;

/// Credentials of a message's sender: user id and role mask, as the broker stamps them on the message (RFC 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The user id.
    pub userid: u32,
    /// The roles, a sum of [`OWNER`], [`USER`] and [`LOCAL`].
    pub rolemask: u32,
}

/// The users who may send a request to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Every user.
    Anyone,
    /// The user of the job that the request names, and the instance owner: the service checks each job.
    JobUser,
    /// The instance owner.
    Owner,
}

impl Caller {
    /// The name in the table of roles: `all`, `own` or `owner`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Anyone => "all",
            Self::JobUser => "own",
            Self::Owner => "owner",
        }
    }
}

impl Credentials {
    /// The credentials of the instance itself, whose owner has this user id.
    pub const fn owner(userid: u32) -> Self {
        Self {
            userid,
            rolemask: OWNER | LOCAL,
        }
    }

    /// Whether the sender has the owner role.
    pub const fn is_owner(self) -> bool {
        self.rolemask & OWNER != 0
    }

    /// Checks that the sender has the owner role. `action` is what the role is required for: a topic, or a value.
    ///
    /// # Errors
    ///
    /// The sender is a guest: see [`owner_only`].
    pub fn require_owner(self, action: &str) -> Result<(), RequestError> {
        if self.is_owner() {
            return Ok(());
        }
        Err(owner_only(action))
    }

    /// Whether the sender may see and change what belongs to a user: it is that user, or has the owner role.
    pub const fn may_act_for(self, userid: u32) -> bool {
        self.is_owner() || self.userid == userid
    }
}

/// EPERM: a guest has requested an action that requires the owner role.
pub fn owner_only(action: &str) -> RequestError {
    RequestError::not_permitted(format!("{action}: only the instance owner may do this"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_acts_for_everybody_and_a_guest_for_itself() {
        let owner = Credentials::owner(1000);
        let guest = Credentials {
            userid: 1001,
            rolemask: USER | LOCAL,
        };
        assert!(owner.is_owner() && owner.may_act_for(1001));
        assert!(!guest.is_owner() && guest.may_act_for(1001) && !guest.may_act_for(1000));
    }

    #[test]
    fn a_user_id_without_the_role_is_no_owner() {
        let relayed = Credentials {
            userid: 1000,
            rolemask: USER,
        };
        assert!(!relayed.is_owner());
        assert_eq!(Credentials::owner(1000).require_owner("x"), Ok(()));
        let error = relayed.require_owner("resource.drain").unwrap_err();
        assert_eq!(error.errnum, crate::errno::EPERM);
        assert_eq!(
            error.text,
            "resource.drain: only the instance owner may do this"
        );
    }
}
