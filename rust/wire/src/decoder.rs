use penstock_flux::limits;

use crate::frame::{self, HEADER_BYTES, PREFIX_BYTES};
use crate::{Error, Message};

/// The default limit of a frame's length field in a [`Decoder`]: 64 MiB.
pub const DEFAULT_MAX_FRAME_BYTES: usize = limits::MAX_FRAME_BYTES;

/// The capacity a decoder keeps between frames, in bytes.
const MAX_KEPT_BYTES: usize = 64 << 10;

/// The part of a frame that arrives before memory for all of it is reserved: a length alone reserves nothing.
const RESERVED_PER_BYTE: usize = 16;

/// The greatest size of routes and topic of a frame whose payload is skipped, in bytes.
const MAX_START_BYTES: usize = 4096;

/// Decodes a stream of bytes, split anywhere, into messages.
///
/// A decoder buffers at most one unfinished frame, and copies its bytes once. After an error the stream is lost:
/// every further call fails with the same error.
///
/// A decoder of a peer with a lower limit skips the payloads of longer frames: [`Decoder::set_message_limit`].
#[derive(Debug)]
pub struct Decoder {
    max_frame: usize,
    /// Frames longer than this are skipped.
    max_message: usize,
    /// The start of a frame that has not arrived completely.
    partial: Vec<u8>,
    /// The frame that is being skipped.
    skipped: Option<SkippedFrame>,
    oversized: Vec<Message>,
    failed: Option<Error>,
}

/// A frame of which start and end are kept.
#[derive(Debug)]
struct SkippedFrame {
    start: Vec<u8>,
    end: Vec<u8>,
    /// The number of bytes that have not arrived.
    left: usize,
}

impl SkippedFrame {
    /// Takes bytes of the frame; returns those behind it.
    fn skip<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let (taken, rest) = data.split_at(data.len().min(self.left));
        self.left -= taken.len();
        let room = MAX_START_BYTES - self.start.len();
        self.start
            .extend_from_slice(&taken[..taken.len().min(room)]);
        let latest = &taken[taken.len().saturating_sub(HEADER_BYTES + 1)..];
        self.end.extend_from_slice(latest);
        let surplus = self.end.len().saturating_sub(HEADER_BYTES + 1);
        self.end.drain(..surplus);
        rest
    }
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
            max_message: usize::MAX,
            partial: Vec::new(),
            skipped: None,
            oversized: Vec::new(),
            failed: None,
        }
    }

    /// Sets the length, in bytes, from which on the payloads of later frames are skipped as they arrive.
    ///
    /// ```
    /// use penstock_wire::{Decoder, Message};
    ///
    /// let mut bytes = Vec::new();
    /// Message::request("a.b", &"x".repeat(1000)).with_matchtag(7).encode(&mut bytes);
    /// let mut decoder = Decoder::default();
    /// decoder.set_message_limit(500);
    /// let mut messages = Vec::new();
    /// decoder.feed(&bytes, &mut messages)?;
    /// assert!(messages.is_empty());
    /// let oversized = decoder.take_oversized();
    /// assert_eq!((oversized[0].topic(), oversized[0].matchtag), ("a.b", 7));
    /// assert!(oversized[0].payload.is_none());
    /// # Ok::<(), penstock_wire::Error>(())
    /// ```
    pub fn set_message_limit(&mut self, bytes: usize) {
        self.max_message = bytes;
    }

    /// Takes the messages whose payloads were skipped, without these, so that requests can be answered.
    pub fn take_oversized(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.oversized)
    }

    /// The number of buffered bytes of a frame that has not arrived completely.
    pub fn pending(&self) -> usize {
        let skipped = self.skipped.as_ref();
        self.partial.len() + skipped.map_or(0, |frame| frame.start.len() + frame.end.len())
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
            self.skipped = None;
        })
    }

    fn read(&mut self, mut data: &[u8], out: &mut Vec<Message>) -> Result<(), Error> {
        while !data.is_empty() {
            if self.skipped.is_some() {
                data = self.skip(data)?;
            } else if self.partial.is_empty() {
                data = self.begin(data, out)?;
            } else {
                data = self.complete(data, out)?;
            }
        }
        Ok(())
    }

    /// Reads the frame at the start of `data`. Returns the data after it.
    fn begin<'a>(&mut self, data: &'a [u8], out: &mut Vec<Message>) -> Result<&'a [u8], Error> {
        let size = frame::check_prefix(data, self.max_frame)?;
        if let Some(size) = size.filter(|size| self.is_oversized(*size)) {
            return self.begin_skipping(data, size);
        }
        let Some((frame, rest)) = size.and_then(|size| data.split_at_checked(size)) else {
            self.partial.extend_from_slice(data);
            return Ok(&[]);
        };
        out.push(frame::parse(frame)?);
        Ok(rest)
    }

    /// Adds to the unfinished frame, and reads it if that is complete. Returns the data after it.
    fn complete<'a>(
        &mut self,
        mut data: &'a [u8],
        out: &mut Vec<Message>,
    ) -> Result<&'a [u8], Error> {
        if self.partial.len() < PREFIX_BYTES {
            data = self.fill(data, PREFIX_BYTES);
        }
        let Some(size) = frame::check_prefix(&self.partial, self.max_frame)? else {
            return Ok(data);
        };
        if self.is_oversized(size) {
            let start = std::mem::take(&mut self.partial);
            self.begin_skipping(&start, size)?;
            return Ok(data);
        }
        let rest = self.fill(data, size);
        if self.partial.len() < size {
            return Ok(rest);
        }
        if size > MAX_KEPT_BYTES {
            // One large frame must not hold its memory for the life of the connection.
            let frame = std::mem::take(&mut self.partial);
            out.push(frame::parse_owned(frame)?);
        } else {
            out.push(frame::parse(&self.partial)?);
            self.partial.clear();
            self.partial.shrink_to(MAX_KEPT_BYTES);
        }
        Ok(rest)
    }

    /// Moves bytes from `data` until the unfinished frame has `size` of them. Returns the rest of `data`.
    fn fill<'a>(&mut self, data: &'a [u8], size: usize) -> &'a [u8] {
        let (taken, rest) = data.split_at(data.len().min(size - self.partial.len()));
        let len = self.partial.len() + taken.len();
        if len > self.partial.capacity() && len >= size / RESERVED_PER_BYTE {
            self.partial.reserve_exact(size - self.partial.len());
        }
        self.partial.extend_from_slice(taken);
        rest
    }

    /// Whether the payload of a frame of this size, its first 8 bytes included, is skipped.
    fn is_oversized(&self, size: usize) -> bool {
        size - PREFIX_BYTES > self.max_message
    }

    fn begin_skipping<'a>(&mut self, data: &'a [u8], size: usize) -> Result<&'a [u8], Error> {
        self.skipped = Some(SkippedFrame {
            start: Vec::new(),
            end: Vec::new(),
            left: size,
        });
        self.skip(data)
    }

    fn skip<'a>(&mut self, data: &'a [u8]) -> Result<&'a [u8], Error> {
        let Some(mut frame) = self.skipped.take() else {
            return Ok(data);
        };
        let rest = frame.skip(data);
        if frame.left > 0 {
            self.skipped = Some(frame);
        } else {
            let message = frame::parse_without_payload(&frame.start, &frame.end)?;
            self.oversized.push(message);
        }
        Ok(rest)
    }
}
