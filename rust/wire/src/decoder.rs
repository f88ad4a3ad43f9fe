use penstock_flux::limits;

use crate::frame::{self, PREFIX_BYTES};
use crate::{Error, Message};

/// The default limit of a frame's length field in a [`Decoder`]: 64 MiB.
pub const DEFAULT_MAX_FRAME_BYTES: usize = limits::MAX_FRAME_BYTES;

/// Decodes a stream of bytes, split anywhere, into messages.
///
/// A decoder buffers at most one unfinished frame, and copies its bytes once. After an error the stream is lost:
/// every further call fails with the same error.
#[derive(Debug)]
pub struct Decoder {
    max_frame: usize,
    /// The start of a frame that has not arrived completely.
    partial: Vec<u8>,
    failed: Option<Error>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_FRAME_BYTES)
    }
}

impl Decoder {
    /// Returns a decoder at the start of a stream; `max_frame` limits a frame's length in bytes, without its first 8.
    pub fn new(max_frame: usize) -> Self {
        Self {
            max_frame,
            partial: Vec::new(),
            failed: None,
        }
    }

    /// The number of buffered bytes of a frame that has not arrived completely.
    pub fn pending(&self) -> usize {
        self.partial.len()
    }

    /// Decodes the next bytes of the stream; appends the messages that they complete to `out`.
    ///
    /// The cost is proportional to the bytes given, however small the pieces.
    ///
    /// # Errors
    ///
    /// Fails if a frame is malformed or too long, and names the byte and what was expected there. The messages before
    /// that frame are in `out`.
    pub fn feed(&mut self, data: &[u8], out: &mut Vec<Message>) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.read(data, out).inspect_err(|error| {
            self.failed = Some(error.clone());
            self.partial = Vec::new();
        })
    }

    fn read(&mut self, mut data: &[u8], out: &mut Vec<Message>) -> Result<(), Error> {
        if !self.partial.is_empty() {
            let Some(rest) = self.complete(data, out)? else {
                return Ok(());
            };
            data = rest;
        }
        while !data.is_empty() {
            let size = frame::check_prefix(data, self.max_frame)?;
            let Some((frame, rest)) = size.and_then(|size| data.split_at_checked(size)) else {
                self.partial.extend_from_slice(data);
                break;
            };
            out.push(frame::parse(frame)?);
            data = rest;
        }
        Ok(())
    }

    /// Completes the unfinished frame. Returns the data after it, or `None` if it is still unfinished.
    fn complete<'a>(
        &mut self,
        mut data: &'a [u8],
        out: &mut Vec<Message>,
    ) -> Result<Option<&'a [u8]>, Error> {
        if self.partial.len() < PREFIX_BYTES {
            data = self.fill(data, PREFIX_BYTES);
        }
        let Some(size) = frame::check_prefix(&self.partial, self.max_frame)? else {
            return Ok(None);
        };
        let rest = self.fill(data, size);
        if self.partial.len() < size {
            return Ok(None);
        }
        out.push(frame::parse(&self.partial)?);
        self.partial.clear();
        // One large frame must not hold its memory for the life of the connection.
        self.partial.shrink_to(MAX_KEPT_BYTES);
        Ok(Some(rest))
    }

    /// Moves bytes from `data` until the unfinished frame has `size` of them. Returns the rest of `data`.
    fn fill<'a>(&mut self, data: &'a [u8], size: usize) -> &'a [u8] {
        let (taken, rest) = data.split_at(data.len().min(size - self.partial.len()));
        self.partial.extend_from_slice(taken);
        rest
    }
}

/// The capacity a decoder keeps between frames, in bytes.
const MAX_KEPT_BYTES: usize = 64 << 10;
