//! Roles of a message's sender (RFC 12), and the checks on them.

/// Role: the sender is the instance owner.
pub const OWNER: u32 = 1;
/// Role: the sender is a guest, another user than the owner.
pub const USER: u32 = 2;
/// Role: the sender is connected to this broker, not relayed by another one.
pub const LOCAL: u32 = 4;

/// Who sent a message: user id and role mask, as the broker stamps them on it (RFC 12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The user id.
    pub userid: u32,
    /// The roles, a sum of [`OWNER`], [`USER`] and [`LOCAL`].
    pub rolemask: u32,
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

    /// Whether the sender may see and change what belongs to a user: it is that user, or has the owner role.
    pub const fn may_act_for(self, userid: u32) -> bool {
        self.is_owner() || self.userid == userid
    }
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
    }
}
