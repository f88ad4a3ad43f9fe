//! The server of PMI-1 with the bytes of three tasks.

use penstock_pmi::{ConnectionId, Effect, LineParser, Placement, Program, Server};

/// The number of tasks.
const SIZE: u32 = 3;

/// Bytes go to the connections in turn: the first byte of a part is its length and its connection.
///
/// The parser gives the same requests however its input is divided. Each line gets one response at most, and nothing
/// follows the end of the program.
///
/// # Panics
///
/// If one of these does not hold.
pub fn check(data: &[u8]) {
    check_parts(data);
    let mut server = Server::new(Program::new(SIZE, "fuzz", &Placement::new([0, 0, 1])));
    for rank in 0..SIZE {
        server.connect(ConnectionId(rank));
    }
    let (mut rest, mut is_over) = (data, false);
    let (mut lines, mut responses) = (0, 0);
    while let Some((head, after)) = rest.split_first() {
        let id = ConnectionId(u32::from(head % 4));
        let (part, after) = after.split_at(after.len().min(usize::from(head / 4)));
        rest = after;
        if part.is_empty() {
            server.disconnect(id);
        } else {
            server.receive(id, part);
        }
        lines += part.split(|byte| *byte == b'\n').count() - 1;
        for effect in server.take_effects() {
            assert!(!is_over, "{effect:?} after the end of the program");
            match effect {
                Effect::Send(to, line) => {
                    assert!(to.0 < SIZE);
                    assert_eq!(line.find('\n'), Some(line.len() - 1), "{line:?}");
                    responses += 1;
                }
                Effect::Abort | Effect::Reject(_) => is_over = true,
            }
        }
    }
    assert!(responses <= lines);
}

fn check_parts(data: &[u8]) {
    let whole = LineParser::default().receive(data);
    let mut parser = LineParser::default();
    let mut parts = Vec::new();
    for byte in data.chunks(1) {
        parts.extend(parser.receive(byte));
        if parts.last().is_some_and(Result::is_err) {
            break;
        }
    }
    assert_eq!(whole, parts);
}
