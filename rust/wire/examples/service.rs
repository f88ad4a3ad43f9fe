//! A service and its client on a Unix socket: `cargo run -p penstock-wire --example service`

use std::error::Error;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;

use penstock_wire::{DEFAULT_MAX_FRAME_BYTES, Decoder, Message};

/// A socket that carries messages.
struct Connection {
    socket: UnixStream,
    decoder: Decoder,
}

impl Connection {
    fn new(socket: UnixStream) -> Self {
        let decoder = Decoder::new(DEFAULT_MAX_FRAME_BYTES);
        Self { socket, decoder }
    }

    fn send(&mut self, message: &Message) -> io::Result<()> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        self.socket.write_all(&bytes)
    }

    /// The next messages; none if the peer has closed the socket.
    fn receive(&mut self) -> Result<Vec<Message>, Box<dyn Error>> {
        let mut messages = Vec::new();
        let mut buffer = [0; 4096];
        while messages.is_empty() {
            let count = self.socket.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            self.decoder.feed(&buffer[..count], &mut messages)?;
        }
        Ok(messages)
    }
}

/// Answers each request with its own payload.
fn serve(mut connection: Connection) -> Result<(), String> {
    loop {
        let requests = connection.receive().map_err(|error| error.to_string())?;
        if requests.is_empty() {
            return Ok(());
        }
        for request in requests {
            let payload = request.payload_json().map(<[u8]>::to_vec);
            let payload = payload.map(|mut text| {
                text.push(0);
                text
            });
            let response = Message::response_to(&request, 0, payload);
            connection
                .send(&response)
                .map_err(|error| error.to_string())?;
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (client, service) = UnixStream::pair()?;
    let server = thread::spawn(|| serve(Connection::new(service)));
    let mut client = Connection::new(client);
    client.send(&Message::request("echo.ping", r#"{"seq":1}"#).with_matchtag(1))?;
    for response in client.receive()? {
        let text = String::from_utf8_lossy(response.payload_json().unwrap_or_default());
        println!("{}: {text}", response.topic());
    }
    drop(client);
    server
        .join()
        .map_err(|_| "the service panicked")?
        .map_err(Into::into)
}
