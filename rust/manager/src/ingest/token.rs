//! The token of a submission, which names it in a day's repetitions, and the digest that tells whether these request the same.

use penstock_flux::{RequestError, errno};
use penstock_store::Submission as StoredSubmission;

use super::results::{Accepted, StoredJobs};
use crate::context::{Context, TOKEN_LIFETIME_S};
use crate::rpc::Request;

/// The greatest length of a token.
const MAX_TOKEN_BYTES: usize = 64;

/// The name of a submission.
#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) userid: u32,
    pub(super) name: String,
    /// Digest of the request.
    pub(super) digest: u64,
}

impl Token {
    pub(super) fn new(userid: u32, name: &str, digest: u64) -> Result<Self, RequestError> {
        if !(1..=MAX_TOKEN_BYTES).contains(&name.len()) {
            let text = format!("expected a `token` of 1 to {MAX_TOKEN_BYTES} bytes");
            return Err(RequestError::invalid(text));
        }
        Ok(Self {
            userid,
            name: name.to_owned(),
            digest,
        })
    }

    pub(super) fn of(request: Request<'_>, name: &str) -> Result<Self, RequestError> {
        let digest = digest(request.message.payload_json().unwrap_or_default());
        Self::new(request.sender.userid, name, digest)
    }

    /// Whether both have the same name and user.
    pub(super) fn is_same_name(&self, other: &Self) -> bool {
        (self.userid, &self.name) == (other.userid, &other.name)
    }

    /// Whether both name the same submission.
    ///
    /// # Errors
    ///
    /// They have the same name, and the requests differ.
    pub(super) fn is_same(&self, other: &Self) -> Result<bool, RequestError> {
        if !self.is_same_name(other) {
            return Ok(false);
        }
        self.check_digest(other.digest).map(|()| true)
    }

    /// Checks that a submission with this token was requested by the same payload.
    pub(super) fn check_digest(&self, digest: u64) -> Result<(), RequestError> {
        if self.digest == digest {
            return Ok(());
        }
        Err(self.taken())
    }

    /// The error that the token names another submission.
    pub(super) fn taken(&self) -> RequestError {
        let text = format!("token `{}` names another submission", self.name);
        RequestError::new(errno::EEXIST, text)
    }

    /// The complete submission that this token names.
    pub(super) fn known(&self, cx: &mut Context) -> Option<StoredSubmission> {
        let expired = cx.now - TOKEN_LIFETIME_S;
        cx.read_store(|store| store.submission(self.userid, &self.name, expired))
    }

    /// The jobs of the submission that is known by this token.
    pub(super) fn read(&self, known: &StoredSubmission) -> Result<Accepted, RequestError> {
        self.check_digest(known.digest)?;
        Ok(self.stored(known)?.into())
    }

    pub(super) fn stored(&self, known: &StoredSubmission) -> Result<StoredJobs, RequestError> {
        serde_json::from_str(&known.result).map_err(|error| {
            let name = &self.name;
            let text = format!("the result of submission `{name}` cannot be read: {error}");
            RequestError::new(errno::EIO, text)
        })
    }
}

/// A digest of a request's content that does not depend on the program's version (FNV-1a).
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A digest of the submissions of a list, whatever the parts in which they come. Like [`digest`] it depends on nothing but
/// them, and it takes a tenth of the time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListDigest(pub(super) u64);

impl Default for ListDigest {
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl ListDigest {
    pub(super) fn add(&mut self, text: &str) {
        let mut hash = self.mixed(text.len() as u64);
        let mut words = text.as_bytes().chunks_exact(8);
        for word in &mut words {
            let word = <[u8; 8]>::try_from(word).map_or(0, u64::from_le_bytes);
            hash = Self(hash).mixed(word);
        }
        for byte in words.remainder() {
            hash = Self(hash).mixed(u64::from(*byte));
        }
        self.0 = hash;
    }

    fn mixed(self, word: u64) -> u64 {
        let product = (self.0 ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        product ^ (product >> 32)
    }
}
