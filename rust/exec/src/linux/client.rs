use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::directory;
use crate::protocol::{FrameDecoder, Hello, Message, Request, VERSION};

const READ_BUFFER_BYTES: usize = 64 << 10;

/// The service's end of a connection to a reaper, blocking.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    decoder: FrameDecoder,
    /// Holds the bytes of one read.
    buffer: Vec<u8>,
    hello: Hello,
    last_id: u32,
}

impl Client {
    /// Connects to the reaper of a runtime directory, and sends hello.
    ///
    /// # Errors
    ///
    /// Fails if no reaper listens there, or, with [`io::ErrorKind::Unsupported`], if it speaks another version.
    pub fn connect(directory: &Path) -> io::Result<Self> {
        let mut stream = directory::connect(directory)?;
        let mut decoder = FrameDecoder::default();
        let mut buffer = vec![0; READ_BUFFER_BYTES];
        let mut frame = Vec::new();
        Request::Hello { version: VERSION }
            .encode(0, &mut frame)
            .map_err(io::Error::other)?;
        stream.write_all(&frame)?;
        let hello = match receive(&mut stream, &mut decoder, &mut buffer)? {
            Message::Hello(hello) if hello.version == VERSION => hello,
            Message::Hello(hello) => {
                let found = hello.version;
                let text = format!("the running reaper speaks version {found}: expected {VERSION}");
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            _ => return Err(io::Error::other("the reaper did not say hello")),
        };
        match receive(&mut stream, &mut decoder, &mut buffer)? {
            Message::Done { id: 0, errno: 0 } => {}
            _ => return Err(io::Error::other("the reaper did not accept hello")),
        }
        Ok(Self {
            stream,
            decoder,
            buffer,
            hello,
            last_id: 0,
        })
    }

    /// The reaper's response to hello.
    pub fn hello(&self) -> Hello {
        self.hello
    }

    /// The socket, for time-outs and for polling.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Sends a request. Returns its id, which its [`Message::Done`] carries.
    ///
    /// # Errors
    ///
    /// Fails if the request is too long, or if the connection is lost.
    pub fn send(&mut self, request: &Request) -> io::Result<u32> {
        let id = self.last_id.wrapping_add(1);
        self.send_as(id, request)?;
        Ok(id)
    }

    /// Sends a request under an id of the caller's choice.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn send_as(&mut self, id: u32, request: &Request) -> io::Result<()> {
        self.last_id = id;
        let mut frame = Vec::new();
        request.encode(id, &mut frame).map_err(io::Error::other)?;
        self.stream.write_all(&frame)
    }

    /// Waits for the next message.
    ///
    /// # Errors
    ///
    /// Fails if the connection is lost, or if a message is malformed.
    pub fn receive(&mut self) -> io::Result<Message> {
        receive(&mut self.stream, &mut self.decoder, &mut self.buffer)
    }

    /// Reads once, and returns the messages that have arrived: none if the rest of a message is still to come.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn receive_available(&mut self) -> io::Result<Vec<Message>> {
        let length = self.stream.read(&mut self.buffer)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let bytes = self.buffer.get(..length).unwrap_or_default();
        self.decoder.push(bytes);
        let mut messages = Vec::new();
        while let Some(payload) = self.decoder.next_payload().map_err(io::Error::other)? {
            messages.push(decode(payload)?);
        }
        Ok(messages)
    }
}

fn decode(payload: &[u8]) -> io::Result<Message> {
    Message::decode(payload).map_err(io::Error::other)
}

fn receive(
    stream: &mut UnixStream,
    decoder: &mut FrameDecoder,
    buffer: &mut [u8],
) -> io::Result<Message> {
    loop {
        if let Some(payload) = decoder.next_payload().map_err(io::Error::other)? {
            return decode(payload);
        }
        let length = match stream.read(buffer) {
            // The process was stopped and continued.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result?,
        };
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        decoder.push(buffer.get(..length).unwrap_or_default());
    }
}
