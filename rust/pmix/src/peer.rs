//! The user at the other end of a TCP connection within this machine, by `/proc/net/tcp` (proc(5)).

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The tables of connections over IPv4 and IPv6; the latter may hold IPv4 addresses too.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of a connection with both ends open.
const ESTABLISHED: &str = "01";

/// The user id of the process that opened the connection from `local` to `remote`; `None` unless both ends are open.
pub fn owner(local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    TABLES.iter().find_map(|table| {
        let table = fs::read_to_string(table).ok()?;
        owner_in(&table, local, remote)
    })
}

/// Looks a connection up in one table.
fn owner_in(table: &str, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
    let ends = (plain(local), plain(remote));
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, local, remote, state, _, _, _, uid, _, inode, ..] = fields[..] else {
            return None;
        };
        // The kernel attributes a closed socket to root.
        let held = state == ESTABLISHED && inode != "0";
        (held && (address(local)?, address(remote)?) == ends).then(|| uid.parse().ok())?
    })
}

/// Reads an address of the table: 32-bit words in the machine's byte order, and the port.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (words, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for at in (0..words.len()).step_by(8) {
        let word = u32::from_str_radix(words.get(at..at + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(bytes) => bytes.into(),
        Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..]).ok()?).to_canonical(),
    };
    Some((ip, port))
}

fn plain(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    /// 127.0.0.1 from port 4096 to port 80, in this machine's byte order.
    fn row(state: &str, uid: u32, inode: u32) -> String {
        let ip = u32::from_ne_bytes([127, 0, 0, 1]);
        format!(
            "   1: {ip:08X}:1000 {ip:08X}:0050 {state} 00000000:00000000 00:00000000 00000000 {uid:5} 0 {inode} 1 0\n"
        )
    }

    fn look(table: &str) -> Option<u32> {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        owner_in(table, at(4096), at(80))
    }

    #[test]
    fn the_user_is_in_the_row_of_the_other_end() {
        assert_eq!(look(&(HEAD.to_owned() + &row("01", 1000, 7))), Some(1000));
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let turned = owner_in(&(HEAD.to_owned() + &row("01", 1000, 7)), at(80), at(4096));
        assert_eq!(turned, None);
    }

    #[test]
    fn a_closed_socket_is_not_attributed_to_root() {
        // FIN_WAIT2, TIME_WAIT, and a socket that is closed already.
        for row in [row("05", 0, 0), row("06", 0, 0), row("01", 0, 0)] {
            assert_eq!(look(&(HEAD.to_owned() + &row)), None);
        }
    }

    #[test]
    fn malformed_rows_are_skipped() {
        let table = format!(
            "{HEAD}\n x: y\n 0: é:1 :: 01 a b c d e f\n{}",
            row("01", 5, 7)
        );
        assert_eq!(look(&table), Some(5));
        assert_eq!(look(""), None);
    }

    #[test]
    fn a_real_connection_is_attributed_while_it_is_open() {
        let own = fs::metadata("/proc/self").unwrap().uid();
        for listen in ["127.0.0.1:0", "[::]:0"] {
            // A machine without IPv6 cannot listen on `[::]`.
            let Ok(listener) = TcpListener::bind(listen) else {
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            let ends = (
                accepted.peer_addr().unwrap(),
                accepted.local_addr().unwrap(),
            );
            assert_eq!(owner(ends.0, ends.1), Some(own));
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(owner(ends.0, ends.1), None);
        }
    }
}
