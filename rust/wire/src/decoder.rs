use crate::frame::{self, PREFIX};
use crate::{Error, Message};

/// The greatest length field accepted unless a [`Decoder`] is told otherwise: 64 MiB.
pub const DEFAULT_MAX_FRAME: usize = 64 << 20;

/// Turns a stream of bytes, split anywhere, into messages.
///
/// At most one unfinished frame is held, and its bytes are copied once. After an error the stream is lost:
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
        Self::new(DEFAULT_MAX_FRAME)
    }
}

impl Decoder {
    /// A decoder at the start of a stream; `max_frame` bounds a frame's length in bytes, its first 8 not counted.
    pub fn new(max_frame: usize) -> Self {
        Self {
            max_frame,
            partial: Vec::new(),
            failed: None,
        }
    }

    /// The number of bytes held of a frame that has not arrived completely.
    pub fn pending(&self) -> usize {
        self.partial.len()
    }

    /// Feeds the next bytes of the stream; appends the messages that they complete to `out`.
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
        if self.partial.len() < PREFIX {
            data = self.fill(data, PREFIX);
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
        self.partial.shrink_to(KEPT);
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
const KEPT: usize = 64 << 10;
