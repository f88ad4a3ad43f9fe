//! The server of a program, as its tasks meet it.

use penstock_pmi::{ConnectionId, Effect, Placement, Program, Server};
use proptest::prelude::*;

struct World {
    server: Server,
}

impl World {
    fn new(size: u32) -> Self {
        let nodes = (0..size).map(|rank| rank as usize / 2);
        let program = Program::new(size, "fuzz", &Placement::new(nodes));
        let mut server = Server::new(program);
        for rank in 0..size {
            server.connect(ConnectionId(rank));
        }
        Self { server }
    }

    /// A world in which the tasks have negotiated the version.
    fn ready(size: u32) -> Self {
        let mut world = Self::new(size);
        for rank in 0..size {
            let line = "cmd=init pmi_version=1 pmi_subversion=1";
            let response = "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1";
            assert_eq!(world.send(rank, line), [(rank, response.to_owned())]);
        }
        world
    }

    /// Sends a line. Returns the responses with their connections.
    fn send(&mut self, rank: u32, line: &str) -> Vec<(u32, String)> {
        self.server
            .receive(ConnectionId(rank), format!("{line}\n").as_bytes());
        self.responses()
    }

    fn responses(&mut self) -> Vec<(u32, String)> {
        let line = |effect| match effect {
            Effect::Send(ConnectionId(rank), mut line) => {
                assert_eq!(line.pop(), Some('\n'));
                (rank, line)
            }
            Effect::Abort => (u32::MAX, "abort".to_owned()),
            Effect::Reject(violation) => (u32::MAX, violation.to_string()),
        };
        self.server.take_effects().into_iter().map(line).collect()
    }

    fn answer(&mut self, rank: u32, line: &str) -> String {
        let [(to, response)] = <[_; 1]>::try_from(self.send(rank, line)).expect("one response");
        assert_eq!(to, rank);
        response
    }

    fn abortion(&mut self, rank: u32, line: &str) -> String {
        let out = self.send(rank, line);
        let (to, reason) = out.last().expect("the program is aborted").clone();
        assert_eq!(to, u32::MAX);
        reason
    }
}

#[test]
fn tasks_exchange_values_over_a_barrier() {
    let mut world = World::ready(3);
    assert_eq!(
        world.answer(0, "cmd=get_maxes"),
        "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024"
    );
    assert_eq!(
        world.answer(1, "cmd=get_my_kvsname"),
        "cmd=my_kvsname rc=0 kvsname=fuzz"
    );
    assert_eq!(
        world.answer(1, "cmd=get_appnum"),
        "cmd=appnum rc=0 appnum=0"
    );
    assert_eq!(
        world.answer(1, "cmd=get_universe_size"),
        "cmd=universe_size rc=0 size=3"
    );
    for rank in 0..3 {
        let put = format!("cmd=put kvsname=fuzz key=card-{rank} value=tcp://host:{rank}");
        assert_eq!(world.answer(rank, &put), "cmd=put_result rc=0");
    }
    assert_eq!(world.send(2, "cmd=barrier_in"), []);
    assert_eq!(world.send(0, "cmd=barrier_in"), []);
    let out = (0..3).map(|rank| (rank, "cmd=barrier_out rc=0".to_owned()));
    assert_eq!(world.send(1, "cmd=barrier_in"), out.collect::<Vec<_>>());
    for rank in 0..3 {
        let get = "cmd=get kvsname=fuzz key=card-1";
        let value = "cmd=get_result rc=0 value=tcp://host:1";
        assert_eq!(world.answer(rank, get), value);
    }
    for rank in 0..3 {
        assert_eq!(world.answer(rank, "cmd=finalize"), "cmd=finalize_ack rc=0");
        assert!(!world.server.is_finished());
        world.server.disconnect(ConnectionId(rank));
    }
    assert!(world.server.is_finished());
    assert_eq!(world.responses(), []);
}

#[test]
fn the_space_says_where_tasks_run() {
    let mut world = World::ready(4);
    let mut value = |key: &str| world.answer(0, &format!("cmd=get kvsname=fuzz key={key}"));
    let mapping = "cmd=get_result rc=0 value=(vector,(0,2,2))";
    assert_eq!(value("PMI_process_mapping"), mapping);
    assert_eq!(
        value("flux.taskmap"),
        "cmd=get_result rc=0 value=[[0,2,2,1]]"
    );
    assert_eq!(value("flux.instance-level"), "cmd=get_result rc=0 value=1");
    // A missing key of the process manager's is empty.
    assert_eq!(value("PMI_nosuch"), "cmd=get_result rc=0 value=");
    assert_eq!(value("nosuch"), "cmd=get_result rc=-1");
    // A value that is too long is missing.
    let scattered = Placement::new((0..2000).map(|rank| rank * 7 % 500));
    let mut server = Server::new(Program::new(2000, "x", &scattered));
    server.connect(ConnectionId(0));
    let lines =
        b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get kvsname=x key=PMI_process_mapping\n";
    server.receive(ConnectionId(0), lines);
    let last = server.take_effects().pop();
    let empty = "cmd=get_result rc=0 value=\n".to_owned();
    assert_eq!(last, Some(Effect::Send(ConnectionId(0), empty)));
}

#[test]
fn invalid_keys_and_values_are_rejected() {
    let mut world = World::ready(1);
    let mut put = |space: &str, key: &str, value: &str| {
        let line = format!("cmd=put kvsname={space} key={key} value={value}");
        world.answer(0, &line)
    };
    let (long_key, long_value) = ("k".repeat(64), "v".repeat(1024));
    for (space, key, value, code) in [
        ("other", "a", "1", 3),
        ("fuzz", "PMI_mine", "1", 4),
        ("fuzz", "ü", "1", 4),
        ("fuzz", long_key.as_str(), "1", 5),
        ("fuzz", "a", "ü", 6),
        ("fuzz", "a", long_value.as_str(), 7),
        ("fuzz", "a", "with a space", 0),
        ("fuzz", "a", "again", -1),
        ("fuzz", "empty", "", 0),
        ("fuzz", &long_key[1..], &long_value[1..], 0),
    ] {
        assert_eq!(put(space, key, value), format!("cmd=put_result rc={code}"));
    }
    let get = "cmd=get kvsname=other key=a";
    assert_eq!(world.answer(0, get), "cmd=get_result rc=3");
    let get = "cmd=get kvsname=fuzz key=a";
    let value = "cmd=get_result rc=0 value=with a space";
    assert_eq!(world.answer(0, get), value);
}

#[test]
fn the_space_is_bounded() {
    let mut world = World::ready(1);
    let value = "v".repeat(1000);
    let mut stored = 0;
    loop {
        let line = format!("cmd=put kvsname=fuzz key={stored} value={value}");
        match world.answer(0, &line).as_str() {
            "cmd=put_result rc=0" => stored += 1,
            "cmd=put_result rc=2" => break,
            other => panic!("{other}"),
        }
    }
    assert!((60_000..64 << 10).contains(&stored), "{stored}");
}

#[test]
fn versions_are_negotiated() {
    for (version, negotiated) in [
        ((1, 0), Some("pmi_version=1 pmi_subversion=0")),
        ((1, 9), Some("pmi_version=1 pmi_subversion=1")),
        ((2, 0), Some("pmi_version=1 pmi_subversion=1")),
        ((0, 9), None),
    ] {
        let mut world = World::new(1);
        let (version, subversion) = version;
        let line = format!("cmd=init pmi_version={version} pmi_subversion={subversion}");
        let expected = match negotiated {
            Some(negotiated) => format!("cmd=response_to_init rc=0 {negotiated}"),
            None => "cmd=response_to_init rc=-1".to_owned(),
        };
        assert_eq!(world.answer(0, &line), expected);
    }
}

#[test]
fn a_task_that_leaves_fails_the_barrier() {
    let failed = |rank| (rank, "cmd=barrier_out rc=-1".to_owned());
    let mut world = World::ready(3);
    world.send(0, "cmd=barrier_in");
    world.server.disconnect(ConnectionId(1));
    assert_eq!(world.responses(), [failed(0)]);
    assert_eq!(world.send(2, "cmd=barrier_in"), [failed(2)]);
    // One that has said its last word.
    let mut world = World::ready(2);
    world.send(0, "cmd=barrier_in");
    let out = world.send(1, "cmd=finalize");
    assert_eq!(out, [(1, "cmd=finalize_ack rc=0".to_owned()), failed(0)]);
    // One that was in the barrier itself.
    let mut world = World::ready(3);
    world.send(0, "cmd=barrier_in");
    world.send(1, "cmd=barrier_in");
    world.server.disconnect(ConnectionId(0));
    assert_eq!(world.responses(), [failed(1)]);
}

#[test]
fn a_barrier_waits_for_tasks_that_have_not_connected() {
    let mut server = Server::new(Program::new(2, "x", &Placement::new([0, 0])));
    let lines = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=barrier_in\n";
    for rank in 0..2 {
        assert!(!server.is_finished());
        server.connect(ConnectionId(rank));
        server.receive(ConnectionId(rank), lines);
    }
    let sent = server.take_effects();
    assert_eq!(sent.len(), 4);
    let out = |rank| Effect::Send(ConnectionId(rank), "cmd=barrier_out rc=0\n".to_owned());
    assert_eq!(sent[2..], [out(0), out(1)]);
}

#[test]
fn abort_and_violations_abort_the_program() {
    assert_eq!(World::ready(2).abortion(1, "cmd=abort"), "abort");
    assert_eq!(World::new(2).abortion(1, "cmd=abort exitcode=7"), "abort");
    let reason = |world: &mut World, line: &str| world.abortion(0, line);
    let first = "expected `cmd=init` first";
    assert_eq!(reason(&mut World::new(1), "cmd=get_maxes"), first);
    let init = "cmd=init pmi_version=1 pmi_subversion=1";
    let second = "`cmd=init` a second time";
    assert_eq!(reason(&mut World::ready(1), init), second);
    let mut world = World::ready(2);
    world.send(0, "cmd=barrier_in");
    let waiting = "a request before the end of the barrier";
    assert_eq!(reason(&mut world, "cmd=get_maxes"), waiting);
    let mut world = World::ready(1);
    world.send(0, "cmd=finalize");
    let last = "a request after the last one";
    assert_eq!(reason(&mut world, "cmd=get_maxes"), last);
    // Nothing follows.
    assert_eq!(world.send(0, "cmd=get_maxes"), []);
    let mut world = World::ready(3);
    world.send(0, "cmd=barrier_in");
    world.abortion(1, "cmd=abort");
    world.server.disconnect(ConnectionId(1));
    assert_eq!(world.responses(), []);
    let unknown = "unknown command `dance`";
    assert_eq!(reason(&mut World::ready(1), "cmd=dance"), unknown);
}

#[test]
fn dynamic_processes_and_names_are_not_supported() {
    let mut world = World::ready(1);
    for (line, response) in [
        (
            "cmd=publish_name service=s port=p",
            "cmd=publish_result rc=-1 msg=not_supported",
        ),
        (
            "cmd=unpublish_name service=s",
            "cmd=unpublish_result rc=-1 msg=not_supported",
        ),
        (
            "cmd=lookup_name service=s",
            "cmd=lookup_result rc=-1 msg=not_supported",
        ),
        (
            "mcmd=spawn\nnprocs=1\nexecname=x\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\ninfo_num=0\nendcmd",
            "cmd=spawn_result rc=-1",
        ),
    ] {
        assert_eq!(world.answer(0, line), response);
    }
}

proptest! {
    /// The server neither panics nor answers a line more than once.
    #[test]
    fn lines_of_clients_never_break_the_server(
        steps in prop::collection::vec((0..3_u32, 0..12_usize), 1..60)
    ) {
        let mut world = World::new(3);
        for (rank, step) in steps {
            let line = [
                "cmd=init pmi_version=1 pmi_subversion=1", "cmd=get_maxes", "cmd=barrier_in", "cmd=barrier_in",
                "cmd=put kvsname=fuzz key=a value=1", "cmd=get kvsname=fuzz key=a", "cmd=finalize", "cmd=spawn",
                "mcmd=spawn", "endcmd", "cmd=init pmi_version=1 pmi_subversion=1", "",
            ][step];
            if line.is_empty() {
                world.server.disconnect(ConnectionId(rank));
            } else {
                world.server.receive(ConnectionId(rank), format!("{line}\n").as_bytes());
            }
            let out = world.responses();
            let mut ranks: Vec<u32> = out.iter().map(|(rank, _)| *rank).collect();
            let count = ranks.len();
            ranks.dedup();
            prop_assert_eq!(ranks.len(), count);
        }
    }
}
