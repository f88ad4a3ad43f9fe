//! The layout of one frame: magic and length, the parts, the header.

use std::io::{self, Write};
use std::ops::Range;

use penstock_flux::flags::{PAYLOAD, ROUTE, TOPIC};
use penstock_flux::limits::MAX_FRAME_BYTES;

use crate::Error;
use crate::body::Body;
use crate::error::Subject;
use crate::message::{Message, MessageType, PART_FLAGS, Topic};

/// The greatest number of hops in a route stack. RFC 3 names no bound; without one a frame of two-byte routes would
/// take twenty times its size in memory.
pub const MAX_ROUTES: usize = 1024;

/// Bytes before the parts: magic and length.
pub(crate) const PREFIX_BYTES: usize = 8;
/// Bytes of the header, without its own length byte.
pub(crate) const HEADER_BYTES: usize = 20;

const MAGIC: [u8; 4] = [0x12, 0x00, 0xEE, 0xFF];
const HEADER_LENGTH: u8 = 20;
const HEADER_MAGIC: u8 = 0x8E;
const VERSION: u8 = 0x01;
/// A part's first byte that announces a 4-byte length.
const LENGTH_ESCAPE: u8 = 0xFF;

fn error<T>(offset: usize, detail: String) -> Result<T, Error> {
    Err(Error::new(Subject::Frame, offset, detail))
}

/// The size in a frame of a part of `len` bytes, its length included.
fn part_len(len: usize) -> usize {
    len.saturating_add(if len < usize::from(LENGTH_ESCAPE) {
        1
    } else {
        5
    })
}

/// The size of a message's frame in bytes, with `payload` in place of its own payload.
pub(crate) fn encoded_len(message: &Message, payload: Option<&[u8]>) -> usize {
    let routes = message
        .routes
        .iter()
        .flatten()
        .map(|route| part_len(route.len()));
    let delimiter = usize::from(message.routes.is_some());
    let topic = message
        .topic
        .iter()
        .map(|topic| part_len(topic.text.len() + usize::from(topic.nul)));
    let payload = payload.iter().map(|payload| part_len(payload.len()));
    let parts = routes.chain(topic).chain(payload);
    parts.fold(
        PREFIX_BYTES + delimiter + 1 + HEADER_BYTES,
        usize::saturating_add,
    )
}

/// Whether the length fits the frame's length field.
pub(crate) fn fits(message: &Message, payload: Option<&[u8]>) -> bool {
    u32::try_from(encoded_len(message, payload) - PREFIX_BYTES).is_ok()
}

/// Whether a peer accepts the frame with `payload`.
pub(crate) fn is_within_limit(message: &Message, payload: &[u8]) -> bool {
    encoded_len(message, Some(payload)) - PREFIX_BYTES <= MAX_FRAME_BYTES
}

/// Checks the start of a frame, of which any number of bytes may have arrived. Returns the size of the whole frame
/// once its length has arrived; fails as soon as a byte is wrong. `max` bounds the length field.
pub(crate) fn check_prefix(bytes: &[u8], max: usize) -> Result<Option<usize>, Error> {
    for (offset, (&found, expected)) in bytes.iter().zip(MAGIC).enumerate() {
        if found != expected {
            return error(
                offset,
                format!("expected magic byte {expected:02X} at byte {offset}, found {found:02X}"),
            );
        }
    }
    let Some(&length) = bytes.get(4..).and_then(<[u8]>::first_chunk::<4>) else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(length) as usize;
    if length <= HEADER_BYTES {
        return error(
            4,
            format!(
                "expected a length of at least {} at byte 4, found {length}",
                HEADER_BYTES + 1
            ),
        );
    }
    if length > max {
        return error(
            4,
            format!("expected a length of at most {max} at byte 4, found {length}"),
        );
    }
    Ok(Some(PREFIX_BYTES.saturating_add(length)))
}

/// Reads the parts before the header.
struct Parts<'a> {
    frame: &'a [u8],
    at: usize,
    /// The offset of the header's part.
    end: usize,
}

impl<'a> Parts<'a> {
    /// Reads the next part; errors name it by `name`, and `flag` as the reason to expect it.
    fn next(&mut self, name: &str, flag: u8) -> Result<&'a [u8], Error> {
        let at = self.at;
        let rest = &self.frame[at..self.end];
        let Some((&short, rest)) = rest.split_first() else {
            return error(
                at,
                format!("expected {name} at byte {at} (flag {flag:02X} is set), found the header"),
            );
        };
        let (len, rest) = if short == LENGTH_ESCAPE {
            let Some((&long, rest)) = rest.split_first_chunk::<4>() else {
                return error(
                    at + 1,
                    format!(
                        "expected a 4-byte length at byte {}, found the header",
                        at + 1
                    ),
                );
            };
            let len = u32::from_be_bytes(long) as usize;
            if len < usize::from(LENGTH_ESCAPE) {
                return error(
                    at + 1,
                    format!(
                        "expected a length of at least 255 at byte {}, found {len}",
                        at + 1
                    ),
                );
            }
            (len, rest)
        } else {
            (usize::from(short), rest)
        };
        let Some(part) = rest.get(..len) else {
            let room = rest.len();
            return error(
                at,
                format!(
                    "expected {name} of at most {room} bytes at byte {at}, found a length of {len}"
                ),
            );
        };
        self.at = self.end - (rest.len() - len);
        Ok(part)
    }

    fn routes(&mut self) -> Result<Vec<Vec<u8>>, Error> {
        let mut routes = Vec::new();
        loop {
            let at = self.at;
            let part = self.next("a route or the empty part after the routes", ROUTE)?;
            if part.is_empty() {
                return Ok(routes);
            }
            if routes.len() == MAX_ROUTES {
                return error(
                    at,
                    format!("expected at most {MAX_ROUTES} routes, found another at byte {at}"),
                );
            }
            routes.push(part.to_vec());
        }
    }

    fn topic(&mut self) -> Result<Topic, Error> {
        let at = self.at;
        let part = self.next("a topic", TOPIC)?;
        let start = self.at - part.len();
        let (bytes, nul) = part
            .strip_suffix(&[0])
            .map_or((part, false), |bytes| (bytes, true));
        if bytes.is_empty() {
            return error(
                at,
                format!("expected a topic at byte {at}, found an empty one"),
            );
        }
        if let Some(place) = bytes.iter().position(|&byte| byte == 0) {
            let place = start + place;
            return error(
                place,
                format!("expected a topic without NUL inside, found one at byte {place}"),
            );
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Topic {
                text: text.to_owned(),
                nul,
            }),
            Err(cause) => {
                let place = start + cause.valid_up_to();
                error(
                    place,
                    format!(
                        "expected a topic in UTF-8, found byte {:02X} at byte {place}",
                        part[place - start]
                    ),
                )
            }
        }
    }
}

/// The header's fields.
struct Header {
    kind: MessageType,
    flags: u8,
    words: [u32; 4],
}

impl Header {
    /// Reads the last part of a frame, which starts with its length byte.
    fn read(frame: &[u8]) -> Result<(Self, usize), Error> {
        let part = frame.split_last_chunk::<HEADER_BYTES>();
        let Some((&length, before, header)) = part.and_then(|(body, header)| {
            body.split_last()
                .map(|(length, before)| (length, before, header))
        }) else {
            let len = frame.len();
            return error(
                len,
                format!("expected a header, found the end at byte {len}"),
            );
        };
        let (start, at) = (before.len(), before.len() + 1);
        if length != HEADER_LENGTH {
            return error(
                start,
                format!("expected the header's length 14 at byte {start}, found {length:02X}"),
            );
        }
        let [magic, version, kind, flags, words @ ..] = *header;
        if magic != HEADER_MAGIC {
            return error(
                at,
                format!("expected header magic 8E at byte {at}, found {magic:02X}"),
            );
        }
        if version != VERSION {
            return error(
                at + 1,
                format!(
                    "expected version 01 at byte {}, found {version:02X}",
                    at + 1
                ),
            );
        }
        let Some(kind) = MessageType::from_wire(kind) else {
            return error(
                at + 2,
                format!(
                    "expected type 01, 02, 04 or 08 at byte {}, found {kind:02X}",
                    at + 2
                ),
            );
        };
        if kind == MessageType::Control && flags & PART_FLAGS != 0 {
            let at = at + 3;
            return error(
                at,
                format!(
                    "expected a control message without flags 01, 02 and 08 at byte {at}, found {flags:02X}"
                ),
            );
        }
        if kind != MessageType::Control && flags & TOPIC == 0 {
            let (at, kind) = (at + 3, kind.name());
            return error(
                at,
                format!(
                    "expected flag 01 (topic) in the {kind} at byte {at}, found flags {flags:02X}"
                ),
            );
        }
        let words = std::array::from_fn(|index| {
            let at = 4 * index;
            u32::from_be_bytes([words[at], words[at + 1], words[at + 2], words[at + 3]])
        });
        Ok((Self { kind, flags, words }, start))
    }
}

impl Header {
    /// The message without its payload, and the flag that announces one.
    fn into_message(self, parts: &mut Parts<'_>) -> Result<Message, Error> {
        let Self { kind, flags, words } = self;
        let routes = if flags & ROUTE == 0 {
            None
        } else {
            Some(parts.routes()?)
        };
        let topic = if flags & TOPIC == 0 {
            None
        } else {
            Some(parts.topic()?)
        };
        let [userid, rolemask, nodeid_errnum_seq, matchtag] = words;
        Ok(Message {
            kind,
            flags,
            userid,
            rolemask,
            nodeid_errnum_seq,
            matchtag,
            routes,
            topic,
            payload: None,
        })
    }
}

/// Reads a whole frame whose first 8 bytes [`check_prefix`] has accepted: the message without its payload, and the bytes
/// of the frame that are the payload.
fn parse_parts(frame: &[u8]) -> Result<(Message, Option<Range<usize>>), Error> {
    let (header, end) = Header::read(frame)?;
    let flags = header.flags;
    let mut parts = Parts {
        frame,
        at: PREFIX_BYTES,
        end,
    };
    let message = header.into_message(&mut parts)?;
    let payload = if flags & PAYLOAD == 0 {
        None
    } else {
        let len = parts.next("a payload", PAYLOAD)?.len();
        Some(parts.at - len..parts.at)
    };
    let at = parts.at;
    if at != end {
        return error(
            at,
            format!(
                "expected the header at byte {at} (flags {flags:02X} announce no further part), found a part"
            ),
        );
    }
    Ok((message, payload))
}

/// Reads a whole frame whose first 8 bytes [`check_prefix`] has accepted.
pub(crate) fn parse(frame: &[u8]) -> Result<Message, Error> {
    let (mut message, payload) = parse_parts(frame)?;
    let payload = payload.and_then(|range| frame.get(range));
    message.payload = payload.map(|bytes| Body::from(bytes.to_vec()));
    Ok(message)
}

/// The same of a frame that is no longer needed: the payload takes its memory.
pub(crate) fn parse_owned(mut frame: Vec<u8>) -> Result<Message, Error> {
    let (mut message, payload) = parse_parts(&frame)?;
    if let Some(range) = payload {
        frame.truncate(range.end);
        frame.drain(..range.start);
        message.payload = Some(Body::from(frame));
    }
    Ok(message)
}

/// Reads routes and topic from the start of a frame, and the header from its end: the message without its payload.
pub(crate) fn parse_without_payload(start: &[u8], end: &[u8]) -> Result<Message, Error> {
    let (header, _) = Header::read(end)?;
    let mut parts = Parts {
        frame: start,
        at: PREFIX_BYTES,
        end: start.len(),
    };
    let mut message = header.into_message(&mut parts)?;
    message.flags = message.wire_flags();
    Ok(message)
}

fn write_part(out: &mut impl Write, pieces: [&[u8]; 2]) -> io::Result<()> {
    let len = pieces[0].len() + pieces[1].len();
    match u8::try_from(len) {
        Ok(short) if short != LENGTH_ESCAPE => out.write_all(&[short])?,
        _ => {
            out.write_all(&[LENGTH_ESCAPE])?;
            out.write_all(&length_field(len))?;
        }
    }
    out.write_all(pieces[0])?;
    out.write_all(pieces[1])
}

fn length_field(len: usize) -> [u8; 4] {
    u32::try_from(len)
        .expect("Message::check rejects what exceeds 4 GiB")
        .to_be_bytes()
}

/// Writes the frame of a message that passed [`Message::check`], with `payload` in place of its own payload;
/// the message must have one if `payload` is `Some`.
pub(crate) fn write(
    message: &Message,
    payload: Option<&[u8]>,
    out: &mut impl Write,
) -> io::Result<()> {
    out.write_all(&MAGIC)?;
    out.write_all(&length_field(encoded_len(message, payload) - PREFIX_BYTES))?;
    if let Some(routes) = &message.routes {
        for route in routes {
            write_part(out, [route, &[]])?;
        }
        out.write_all(&[0])?;
    }
    if let Some(topic) = &message.topic {
        let nul: &[u8] = if topic.nul { &[0] } else { &[] };
        write_part(out, [topic.text.as_bytes(), nul])?;
    }
    if let Some(payload) = payload {
        write_part(out, [payload, &[]])?;
    }
    out.write_all(&[
        HEADER_LENGTH,
        HEADER_MAGIC,
        VERSION,
        message.kind as u8,
        message.wire_flags(),
    ])?;
    for word in [
        message.userid,
        message.rolemask,
        message.nodeid_errnum_seq,
        message.matchtag,
    ] {
        out.write_all(&word.to_be_bytes())?;
    }
    Ok(())
}

/// Appends that frame to a vector.
pub(crate) fn append(message: &Message, payload: Option<&[u8]>, out: &mut Vec<u8>) {
    out.reserve(encoded_len(message, payload));
    let written = write(message, payload, out);
    debug_assert!(written.is_ok(), "a vector takes all bytes");
}
