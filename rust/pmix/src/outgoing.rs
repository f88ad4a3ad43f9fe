use std::io::Write;

/// A message to the instance, for the writing thread of a connection.
#[derive(Debug)]
pub enum Outgoing {
    /// A frame that belongs to this connection.
    Frame(Vec<u8>),
    /// The request with this matchtag, whose frame is held until it is written.
    Request(u32),
    /// The connection has ended.
    End,
}

/// The requests that the writing thread writes: an [`Outstanding`](crate::Outstanding) behind a lock.
pub trait HeldRequests {
    /// Takes the frame of a request; `None` if the request has been removed.
    fn begin_write(&self, tag: u32) -> Option<Vec<u8>>;

    /// Holds a request again whose frame was not written as a whole.
    fn undo_write(&self, tag: u32, frame: Vec<u8>);
}

/// Writes messages until the connection has ended, or until it takes no more: its reader sees the end, too. A request that
/// it has not taken whole stays held.
pub fn write_messages(
    mut connection: impl Write,
    messages: impl IntoIterator<Item = Outgoing>,
    requests: &impl HeldRequests,
) {
    for message in messages {
        let is_written = match message {
            Outgoing::Frame(frame) => connection.write_all(&frame).is_ok(),
            Outgoing::Request(tag) => {
                let Some(frame) = requests.begin_write(tag) else {
                    continue;
                };
                let is_written = connection.write_all(&frame).is_ok();
                if !is_written {
                    requests.undo_write(tag, frame);
                }
                is_written
            }
            Outgoing::End => false,
        };
        if !is_written {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};
    use std::{iter, thread};

    use super::*;
    use crate::{IfLost, Outstanding};

    #[derive(Default)]
    struct Requests(Mutex<Outstanding<u32>>);

    impl HeldRequests for Requests {
        fn begin_write(&self, tag: u32) -> Option<Vec<u8>> {
            self.0.lock().unwrap().begin_write(tag)
        }

        fn undo_write(&self, tag: u32, frame: Vec<u8>) {
            self.0.lock().unwrap().undo_write(tag, frame);
        }
    }

    impl Requests {
        /// Hands a request over to the writing thread, as the server does.
        fn send(&self, outgoing: &Sender<Outgoing>, request: u32, frame: &[u8]) -> u32 {
            let mut outstanding = self.0.lock().unwrap();
            let tag = outstanding.allot();
            let is_due = outstanding.insert(tag, request, frame.to_vec(), IfLost::Fail);
            assert_eq!(is_due, Ok(true));
            outgoing.send(Outgoing::Request(tag)).unwrap();
            tag
        }

        fn connect(&self) -> Vec<u32> {
            self.0.lock().unwrap().connect()
        }

        fn disconnect(&self) -> Vec<u32> {
            self.0.lock().unwrap().disconnect()
        }
    }

    #[test]
    fn a_request_is_held_if_the_instance_has_gone_before_it_is_written() {
        let requests = Requests::default();
        requests.connect();
        let (outgoing, messages) = channel();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        // Unread bytes, so that the reader gets ECONNRESET.
        (&ours).write_all(b"pong").unwrap();
        theirs.read_exact(&mut [0]).unwrap();
        drop(theirs);
        // The reader has not seen the end yet.
        let tags = [b"one", b"two"].map(|frame| requests.send(&outgoing, 1, frame));
        write_messages(&ours, &messages, &requests);
        let error = (&ours).read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        assert_eq!(requests.disconnect(), [0; 0]);

        assert_eq!(requests.connect(), tags);
        let (outgoing, messages) = channel();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for tag in tags {
            outgoing.send(Outgoing::Request(tag)).unwrap();
        }
        outgoing.send(Outgoing::End).unwrap();
        write_messages(ours, &messages, &requests);
        let mut text = String::new();
        theirs.read_to_string(&mut text).unwrap();
        assert_eq!(text, "onetwo");
        assert_eq!(requests.disconnect(), [1, 1]);
    }

    #[test]
    fn a_request_of_which_the_instance_has_read_a_part_is_held() {
        let requests = Requests::default();
        requests.connect();
        let (outgoing, messages) = channel();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        requests.send(&outgoing, 1, b"whole");
        // More than the socket's buffers hold.
        let tag = requests.send(&outgoing, 2, &vec![7; 16 << 20]);
        thread::scope(|scope| {
            scope.spawn(|| write_messages(ours, messages, &requests));
            theirs.read_exact(&mut [0; 6]).unwrap();
            drop(theirs);
        });
        assert_eq!(requests.disconnect(), [1]);
        assert_eq!(requests.connect(), [tag]);
    }

    #[test]
    fn a_request_that_was_removed_is_not_written() {
        let requests = Requests::default();
        requests.connect();
        let (outgoing, messages) = channel();
        let tag = requests.send(&outgoing, 1, b"removed");
        requests.0.lock().unwrap().remove(tag);
        outgoing.send(Outgoing::Frame(b"frame".to_vec())).unwrap();
        outgoing.send(Outgoing::End).unwrap();
        outgoing.send(Outgoing::Frame(b"late".to_vec())).unwrap();
        let mut written = Vec::new();
        write_messages(&mut written, &messages, &requests);
        assert_eq!(written, b"frame");
        assert_eq!(iter::from_fn(|| messages.try_recv().ok()).count(), 1);
    }
}
