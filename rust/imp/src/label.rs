//! Output with a label in front of each line.

/// Bytes at which a line is written although its end has not come.
const MAX_LINE_BYTES: usize = 64 << 10;

/// When output is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffering {
    /// Whole lines at a time.
    Lines,
    /// At once, also parts of lines.
    None,
}

/// Puts a label in front of the lines of a stream.
#[derive(Debug)]
pub struct Label {
    prefix: Vec<u8>,
    buffering: Buffering,
    /// The begin of a line that has not ended.
    line: Vec<u8>,
    /// Whether the next byte begins a line of the stream.
    is_at_line_start: bool,
}

impl Label {
    /// Creates a label. An empty one without buffering changes nothing.
    pub fn new(prefix: Vec<u8>, buffering: Buffering) -> Self {
        Self {
            prefix,
            buffering,
            line: Vec::new(),
            is_at_line_start: true,
        }
    }

    /// Adds labels to output, and returns what is to be written of it.
    pub fn add_to(&mut self, bytes: &[u8]) -> Vec<u8> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.is_at_line_start {
                self.line.extend_from_slice(&self.prefix);
            }
            self.line.extend_from_slice(piece);
            self.is_at_line_start = piece.ends_with(b"\n");
        }
        let complete = self.line.iter().rposition(|byte| *byte == b'\n');
        let length = if self.buffering == Buffering::Lines && self.line.len() <= MAX_LINE_BYTES {
            complete.map_or(0, |end| end + 1)
        } else {
            self.line.len()
        };
        self.line.drain(..length).collect()
    }

    /// Returns what is to be written at the end of the stream: the rest of a line that has not ended.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.line);
        if !rest.is_empty() {
            rest.push(b'\n');
        }
        rest
    }
}
