use penstock_flux::Credentials;
use penstock_flux::errno::{ENOENT, ENOSYS, EPERM, EPROTO};
use penstock_flux::role;
use serde_json::json;

use super::*;

const OWNER: u32 = 1000;
const GUEST: u32 = 2000;
const STREAMING: u8 = penstock_flux::flags::STREAMING;
const NORESPONSE: u8 = penstock_flux::flags::NORESPONSE;

/// An instance with its eventlog in memory.
#[derive(Default)]
struct Store {
    events: Vec<String>,
    is_full: bool,
}

impl Instance for Store {
    fn append_event(&mut self, line: &str) -> Result<(), Error> {
        if self.is_full {
            return Err(Error::store("disk full"));
        }
        self.events.push(line.to_owned());
        Ok(())
    }

    fn events(&mut self) -> Result<Vec<String>, Error> {
        Ok(self.events.clone())
    }

    fn allocated_resources(&mut self) -> Result<ResourceSet, Error> {
        Ok(nodes(2))
    }

    fn check_growth(&mut self, grown: &ResourceSet) -> Result<(), Error> {
        if grown.ranks().contains(99) {
            return Err(Error::growth("rank 99 is elsewhere"));
        }
        Ok(())
    }
}

fn nodes(count: u32) -> ResourceSet {
    let ranks: IdSet = (0..=count - 1).into();
    let hosts = format!("node[0-{}]", count - 1).parse().unwrap();
    ResourceSet::uniform(&ranks, &hosts, (0..=1).into(), IdSet::new()).unwrap()
}

struct Bench {
    service: ResourceModule,
    store: Store,
}

impl Bench {
    fn new(count: u32) -> Self {
        Self::over(Store::default(), count)
    }

    fn over(store: Store, count: u32) -> Self {
        let lines = store.events.iter().map(String::as_str);
        let base = Arc::new(nodes(count));
        let service = ResourceModule::new(base, Config::default(), lines).unwrap();
        Self { service, store }
    }

    fn send(&mut self, topic: &str, payload: &Value, userid: u32, flags: u8, matchtag: u32) {
        let sender = match userid {
            OWNER => Credentials::owner(OWNER),
            userid => Credentials {
                userid,
                rolemask: role::USER,
            },
        };
        self.send_as(sender, topic, payload, flags, matchtag);
    }

    fn send_as(
        &mut self,
        sender: Credentials,
        topic: &str,
        payload: &Value,
        flags: u8,
        matchtag: u32,
    ) {
        let text = if payload.is_null() {
            String::new()
        } else {
            payload.to_string()
        };
        let mut request = Message::request(topic, &text)
            .with_matchtag(matchtag)
            .with_flags(flags);
        (request.userid, request.rolemask) = (sender.userid, sender.rolemask);
        self.service.handle(&request, 5.0, &mut self.store);
    }

    /// Sends an owner's request; the response's errnum, and its payload or text.
    fn rpc(&mut self, topic: &str, payload: &Value) -> (u32, Value) {
        self.send(topic, payload, OWNER, 0, 1);
        let [response] = &self.service.flush()[..] else {
            panic!("expected one response to {topic}");
        };
        (response.errnum(), body(response))
    }

    fn status(&mut self) -> Value {
        self.rpc("resource.status", &Value::Null).1
    }
}

fn body(message: &Message) -> Value {
    match message.error_text() {
        Some(text) => text.into_owned().into(),
        None => message
            .payload_json()
            .map_or(Value::Null, |json| serde_json::from_slice(json).unwrap()),
    }
}

#[test]
fn guests_see_the_status_and_change_nothing() {
    let mut bench = Bench::new(4);
    let before = bench.status();
    for (topic, payload) in [
        ("acquire", Value::Null),
        ("monitor", json!({"ranks": "0"})),
        ("drain", json!({"targets": "0"})),
        ("undrain", json!({"targets": "0", "mode": "force"})),
        ("grow", json!({"R": {}})),
        ("shrink", json!({"targets": "0"})),
        ("property-add", json!({"targets": "0", "name": "p"})),
        ("property-remove", json!({"targets": "0", "name": "p"})),
        ("expiration", json!({"expiration": 5})),
        ("unmonitor", json!({"targets": "0"})),
    ] {
        let topic = format!("resource.{topic}");
        // The user id alone does not make an owner.
        for userid in [GUEST, OWNER] {
            let rolemask = role::USER;
            let sender = Credentials { userid, rolemask };
            bench.send_as(sender, &topic, &payload, STREAMING, 1);
            assert_eq!(bench.service.flush()[0].errnum(), EPERM, "{topic}");
        }
    }
    assert!(bench.store.events.is_empty());
    bench.send("resource.status", &Value::Null, GUEST, 0, 1);
    assert_eq!(body(&bench.service.flush()[0]), before);
}

#[test]
fn malformed_requests_are_rejected_by_key() {
    let mut bench = Bench::new(4);
    for (topic, payload, errnum, text) in [
        (
            "resource.drain",
            json!({}),
            EPROTO,
            "resource.drain: missing key `targets`",
        ),
        (
            "resource.drain",
            json!({"targets": "0", "reason": 3}),
            EPROTO,
            "resource.drain: `reason`: expected a string, found integer `3`",
        ),
        (
            "resource.drain",
            json!({"targets": "0", "mode": "maybe"}),
            EINVAL,
            "resource.drain: unknown mode `maybe`: expected update, overwrite, force-overwrite",
        ),
        (
            "resource.undrain",
            json!({"targets": "0-1"}),
            EINVAL,
            "not drained: 0-1 (node[0-1])",
        ),
        (
            "resource.undrain",
            json!({"targets": "0", "mode": "x"}),
            EINVAL,
            "resource.undrain: unknown mode `x`: expected force",
        ),
        (
            "resource.shrink",
            json!({"targets": "0-3"}),
            EINVAL,
            "resource.shrink: expected at least one target to stay",
        ),
        (
            "resource.property-remove",
            json!({"targets": "0", "name": "p"}),
            EINVAL,
            "without the property `p`: 0",
        ),
        (
            "resource.expiration",
            json!({"expiration": -1}),
            EINVAL,
            "resource.expiration: expected `expiration`: seconds since the epoch, 0 for none",
        ),
        (
            "resource.monitor",
            json!({"ranks": "0"}),
            EPROTO,
            "resource.monitor is a streaming request",
        ),
        (
            "resource.acquire-cancel",
            json!({}),
            EPROTO,
            "resource.acquire-cancel: missing key `matchtag`",
        ),
        (
            "groups.get",
            json!({"name": "x"}),
            ENOENT,
            "no group `x`: expected broker.online",
        ),
        (
            "resource.nosuch",
            json!({}),
            ENOSYS,
            "unknown method `resource.nosuch`",
        ),
        (
            "resource.history",
            json!({"targets": "node[1,9],no"}),
            EINVAL,
            "no such hosts: node9,no",
        ),
    ] {
        assert_eq!(bench.rpc(topic, &payload), (errnum, text.into()), "{topic}");
    }
    let more = nodes(1)
        .to_json()
        .replace("\"0\"", "\"99\"")
        .replace("node0", "far");
    let more: Value = serde_json::from_str(&more).unwrap();
    let (errnum, text) = bench.rpc("resource.grow", &json!({"R": more}));
    assert_eq!(
        (errnum, text),
        (EINVAL, "resource.grow: rank 99 is elsewhere".into())
    );
    assert!(bench.store.events.is_empty());
    assert_eq!(
        bench.rpc("resource.ping", &json!({"seq": 7})),
        (0, json!({"seq": 7}))
    );
    assert_eq!(bench.rpc("groups.stats-get", &Value::Null), (0, json!({})));
}

#[test]
fn the_mode_says_what_becomes_of_drained_targets() {
    let mut bench = Bench::new(4);
    let drain = |targets: &str, reason: &str, mode: Value| json!({"targets": targets, "reason": reason, "mode": mode});
    let update = || "update".into();
    bench.rpc("resource.drain", &drain("node[1-2]", "smoke", Value::Null));
    bench.rpc("resource.drain", &drain("1", "other", Value::Null));
    bench.rpc("resource.drain", &drain("3", "", Value::Null));
    bench.rpc("resource.drain", &drain("2-3", "", update()));
    assert_eq!(bench.store.events.len(), 2, "nothing to change is no event");
    bench.rpc("resource.drain", &drain("2-3", "late", update()));
    bench.rpc("resource.drain", &drain("1", "flames", "overwrite".into()));
    let expected = json!({
        "1": {"timestamp": 5.0, "reason": "flames"},
        "2": {"timestamp": 5.0, "reason": "smoke"},
        "3": {"timestamp": 5.0, "reason": "late"},
    });
    assert_eq!(bench.status()["drain"], expected);
    bench.rpc(
        "resource.undrain",
        &json!({"targets": "0-3", "mode": "force", "reason": "swept"}),
    );
    assert_eq!(bench.status()["drain"], json!({}));
    let (_, history) = bench.rpc("resource.history", &json!({"targets": "node2"}));
    let names: Vec<&Value> = history["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["name"])
        .collect();
    assert_eq!(names, ["drain", "undrain"]);
}

#[test]
fn a_change_that_cannot_be_stored_is_not_made() {
    let mut bench = Bench::new(4);
    let before = bench.status();
    bench.store.is_full = true;
    let drain = bench.rpc("resource.drain", &json!({"targets": "0"}));
    assert_eq!(drain, (EIO, "internal error: see the log".into()));
    let exclude = Config {
        exclude: Some("0".to_owned()),
        ..Config::default()
    };
    let error = bench
        .service
        .configure(exclude, 5.0, &mut bench.store)
        .unwrap_err();
    assert!(error.is_store());
    bench.send(
        "resource.monitor",
        &json!({"ranks": "0"}),
        OWNER,
        STREAMING,
        1,
    );
    assert_eq!(bench.service.flush()[0].errnum(), EIO);
    assert_eq!(
        bench.service.take_log(),
        ["resource.drain: disk full", "resource.monitor: disk full"]
    );
    assert_eq!(bench.status(), before);
    let (_, stats) = bench.rpc("resource.stats-get", &Value::Null);
    assert_eq!(stats["monitors"], 0);
}

#[test]
fn changes_of_one_round_are_one_response_to_the_scheduler() {
    let mut bench = Bench::new(4);
    bench.send("resource.acquire", &Value::Null, OWNER, STREAMING, 7);
    assert_eq!(body(&bench.service.flush()[0])["up"], "0-3");
    let targets = |text: &str| json!({ "targets": text });
    bench.send("resource.drain", &targets("0-1"), OWNER, 0, 1);
    bench.send("resource.undrain", &targets("0-1"), OWNER, 0, 1);
    assert_eq!(
        bench.service.flush().len(),
        2,
        "changes that cancel out are not reported"
    );
    bench.send("resource.drain", &targets("0-1"), OWNER, NORESPONSE, 0);
    bench.send("resource.shrink", &targets("3"), OWNER, NORESPONSE, 0);
    bench.send("resource.undrain", &targets("1"), OWNER, NORESPONSE, 0);
    let changes = bench.service.flush();
    assert_eq!(
        changes.iter().map(body).collect::<Vec<_>>(),
        [json!({"shrink": "3", "down": "0,3"})]
    );
    assert_eq!((changes[0].matchtag, changes[0].is_streaming()), (7, true));
    // Changes before an acquire in the same round are in its first response.
    bench.send("resource.disconnect", &Value::Null, OWNER, NORESPONSE, 0);
    bench.send("resource.undrain", &targets("0"), OWNER, NORESPONSE, 0);
    bench.send("resource.acquire", &Value::Null, OWNER, STREAMING, 8);
    assert_eq!(body(&bench.service.flush()[0])["up"], "0-2");
    bench.send(
        "resource.acquire-cancel",
        &json!({"matchtag": 8}),
        OWNER,
        0,
        9,
    );
    let ended = bench.service.flush();
    let ended: Vec<_> = ended
        .iter()
        .map(|response| (response.matchtag, response.errnum()))
        .collect();
    assert_eq!(ended, [(8, ENODATA), (9, 0)]);
}

#[test]
fn the_inventory_is_handed_out_when_it_may_have_changed() {
    let mut bench = Bench::new(4);
    assert_eq!(bench.service.take_inventory(), Some(nodes(4)));
    assert_eq!(bench.service.take_inventory(), None);
    let exclude = Config {
        exclude: Some("node[2-3]".to_owned()),
        ..Config::default()
    };
    bench
        .service
        .configure(exclude, 5.0, &mut bench.store)
        .unwrap();
    assert_eq!(bench.service.take_inventory(), Some(nodes(2)));
    assert!(bench.store.events[0].contains(r#""name":"exclude","context":{"idset":"2-3""#));
    bench.rpc("resource.drain", &json!({"targets": "0"}));
    let (_, status) = bench.rpc("resource.sched-status", &Value::Null);
    let ranks = |key: &str| status[key]["execution"]["R_lite"][0]["rank"].clone();
    assert_eq!(
        (ranks("all"), ranks("down"), ranks("allocated")),
        ("0-1".into(), "0".into(), "0-1".into())
    );
}

#[test]
fn targets_are_offline_when_their_last_monitor_ends() {
    let mut bench = Bench::new(4);
    bench.send(
        "resource.monitor",
        &json!({"ranks": "1-2"}),
        OWNER,
        STREAMING,
        3,
    );
    bench.send(
        "resource.monitor",
        &json!({"ranks": "2"}),
        OWNER,
        STREAMING,
        4,
    );
    let ranks: Vec<Value> = bench.service.flush().iter().map(body).collect();
    assert_eq!(ranks, [json!({"ranks": "1-2"}), json!({"ranks": "2"})]);
    bench.send(
        "resource.monitor-cancel",
        &json!({"matchtag": 3}),
        OWNER,
        0,
        5,
    );
    let ended: Vec<_> = bench
        .service
        .flush()
        .iter()
        .map(|response| (response.matchtag, response.errnum()))
        .collect();
    assert_eq!(ended, [(3, ENODATA), (5, 0)]);
    assert_eq!(bench.status()["offline"], "1");
    bench.send("resource.disconnect", &Value::Null, OWNER, NORESPONSE, 0);
    assert_eq!(bench.status()["offline"], "1-2");
    assert_eq!(
        bench.service.take_log(),
        [
            "resource: ranks 1 are offline",
            "resource: ranks 2 are offline"
        ]
    );
    // A restart has no monitors: monitored targets are offline until a new monitor or `resource.unmonitor`.
    let mut again = Bench::over(bench.store, 4);
    assert_eq!(again.status()["offline"], "1-2");
    again.rpc("resource.unmonitor", &json!({"targets": "0-2"}));
    assert_eq!(
        again.rpc("groups.get", &json!({"name": "broker.online"})).1["members"],
        "0-3"
    );
}

#[test]
fn a_hundred_thousand_nodes_are_a_few_runs() {
    let mut bench = Bench::new(100_000);
    bench.send("resource.acquire", &Value::Null, OWNER, STREAMING, 7);
    let first = bench.service.flush();
    assert!(
        first[0]
            .payload
            .as_ref()
            .is_some_and(|payload| payload.len() < 300)
    );
    let drain = json!({"targets": "node[10-99999]", "reason": "move"});
    bench.send("resource.drain", &drain, OWNER, NORESPONSE, 0);
    assert_eq!(body(&bench.service.flush()[0]), json!({"down": "10-99999"}));
    let groups = bench.service.ledger().drains().groups().len();
    assert_eq!((groups, bench.service.ledger().up()), (1, (0..=9).into()));
    assert!(bench.store.events[0].len() < 200);
}
