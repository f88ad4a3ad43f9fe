use penstock_flux::Credentials;
use penstock_flux::errno::{ENODATA, ENOENT, EPERM, EPROTO};
use penstock_flux::role;
use serde_json::json;

use super::*;

const OWNER: u32 = 1000;
const GUEST: u32 = 2000;
const STREAMING: u8 = penstock_flux::flags::STREAMING;
const NORESPONSE: u8 = penstock_flux::flags::NORESPONSE;

/// An instance that performs effects in memory.
#[derive(Default)]
struct Instance {
    events: Vec<String>,
    /// The inventory as it was set last.
    inventory: Option<ResourceSet>,
    log: Vec<String>,
    /// Whether the store cannot be read.
    is_broken: bool,
    /// The text of every file.
    file: Option<String>,
}

impl Instance {
    /// Performs effects. Returns the sent messages.
    fn perform(&mut self, service: &mut ResourceModule, effects: Vec<Effect>) -> Vec<Message> {
        let mut sent = Vec::new();
        let broken = || Error::store("disk is broken");
        for effect in effects {
            match effect {
                Effect::Append(line) => self.events.push(line),
                Effect::ReadEvents(request) => {
                    let events = if self.is_broken {
                        Err(broken())
                    } else {
                        Ok(self.events.clone())
                    };
                    service.respond_events(&request, events);
                }
                Effect::ReadAllocated(request) => {
                    let allocated = if self.is_broken {
                        Err(broken())
                    } else {
                        Ok(nodes(2))
                    };
                    service.respond_sched_status(&request, allocated);
                }
                Effect::ReadFile(reload) => {
                    let text = self.file.clone().ok_or_else(|| "no such file".to_owned());
                    service.respond_reload(&reload, text, Ok(nodes(2)));
                }
                Effect::SetInventory(inventory) => self.inventory = Some(*inventory),
                Effect::Send(message) => sent.push(message),
                Effect::Warn(line) => self.log.push(line),
            }
        }
        sent
    }
}

fn nodes(count: u32) -> ResourceSet {
    let ranks: IdSet = (0..=count - 1).into();
    let hosts = format!("node[0-{}]", count - 1).parse().unwrap();
    ResourceSet::uniform(&ranks, &hosts, (0..=1).into(), IdSet::new()).unwrap()
}

struct Bench {
    service: ResourceModule,
    instance: Instance,
}

impl Bench {
    fn new(count: u32) -> Self {
        Self::over(Instance::default(), count)
    }

    fn over(instance: Instance, count: u32) -> Self {
        let lines = (1..).zip(instance.events.iter().map(String::as_str));
        let base = Arc::new(nodes(count));
        let executable = Some((0..=98).into()).filter(|_| count < 99);
        let service = ResourceModule::new(base, Config::default(), executable, lines, 0.5).unwrap();
        Self { service, instance }
    }

    /// Performs the effects of the last call.
    fn perform(&mut self) {
        loop {
            let effects = self.service.take_effects();
            if effects.is_empty() {
                return;
            }
            let sent = self.instance.perform(&mut self.service, effects);
            assert!(sent.is_empty(), "responses are sent at the end of a round");
        }
    }

    /// Ends a round. Returns the sent messages.
    fn settle(&mut self) -> Vec<Message> {
        let effects = self.service.take_output();
        self.instance.perform(&mut self.service, effects)
    }

    fn configure(&mut self, config: Config) {
        self.service.configure(config, 5.0).unwrap();
        self.perform();
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
        self.service.handle(&request, 5.0);
        self.perform();
    }

    /// Sends an owner's request; the response's errnum, and its payload or text.
    fn rpc(&mut self, topic: &str, payload: &Value) -> (u32, Value) {
        self.send(topic, payload, OWNER, 0, 1);
        let [response] = &self.settle()[..] else {
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
        (
            "reload",
            json!({"path": "/etc/R", "xml": false, "force": false}),
        ),
        ("unmonitor", json!({"targets": "0"})),
    ] {
        let topic = format!("resource.{topic}");
        // The user id alone does not make an owner.
        for userid in [GUEST, OWNER] {
            let rolemask = role::USER;
            let sender = Credentials { userid, rolemask };
            bench.send_as(sender, &topic, &payload, STREAMING, 1);
            assert_eq!(bench.settle()[0].errnum(), EPERM, "{topic}");
        }
    }
    assert!(bench.instance.events.is_empty());
    bench.send("resource.status", &Value::Null, GUEST, 0, 1);
    assert_eq!(body(&bench.settle()[0]), before);
}

#[test]
fn the_inventory_becomes_that_of_a_file() {
    let mut bench = Bench::new(4);
    let reload = |bench: &mut Bench, r: &ResourceSet, force| {
        bench.instance.file = Some(r.to_json());
        let payload = json!({"path": "R", "xml": false, "force": force});
        bench.rpc("resource.reload", &payload)
    };
    let all = nodes(6);
    let one_and_five = all.restrict(&"1,5".parse().unwrap());
    let (errnum, text) = reload(&mut bench, &one_and_five, false);
    assert_eq!(errnum, EBUSY);
    assert!(
        text.as_str().unwrap().contains("running on node0"),
        "{text}"
    );
    let without_idle = all.restrict(&"0-1,4-5".parse().unwrap());
    assert_eq!(reload(&mut bench, &without_idle, false), (0, Value::Null));
    let ranks = |bench: &Bench| bench.service.ledger().resources().ranks().to_string();
    assert_eq!(ranks(&bench), "0-1,4-5");
    assert_eq!(bench.instance.events.len(), 2, "both are logged");
    assert_eq!(reload(&mut bench, &one_and_five, true).0, 0);
    assert_eq!(ranks(&bench), "1,5");
    // Nothing changes: nothing is logged.
    assert_eq!(reload(&mut bench, &one_and_five, false).0, 0);
    assert_eq!(bench.instance.events.len(), 3);
    let hosts = "other5".parse().unwrap();
    let other =
        ResourceSet::uniform(&(5..=5).into(), &hosts, (0..=1).into(), IdSet::new()).unwrap();
    let (errnum, text) = reload(&mut bench, &other, false);
    assert_eq!(errnum, EINVAL);
    assert!(text.as_str().unwrap().contains("rank 5 differs"), "{text}");
    assert_eq!(ranks(&bench), "1,5");
    bench.instance.file = None;
    for (is_xml, errnum, text) in [
        (false, EINVAL, "resource.reload: `R`: no such file"),
        (
            true,
            ENOSYS,
            "resource.reload: expected a file with R: XML files of hwloc are not read",
        ),
    ] {
        let payload = json!({"path": "R", "xml": is_xml, "force": false});
        let response = bench.rpc("resource.reload", &payload);
        assert_eq!(response, (errnum, text.into()));
    }
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
            "ranks 0-1 not drained: node[0-1]",
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
    assert!(bench.instance.events.is_empty());
    assert_eq!(
        bench.rpc("resource.ping", &json!({"seq": 7})),
        (
            0,
            json!({"seq": 7, "route": "", "userid": 1000, "rolemask": 5, "rank": 0})
        )
    );
    assert_eq!(bench.rpc("groups.stats-get", &Value::Null), (0, json!({})));
}

#[test]
fn an_inventory_does_not_grow_to_ranks_on_which_no_job_can_be_executed() {
    let mut bench = Bench::new(4);
    let more = nodes(1)
        .to_json()
        .replace("\"0\"", "\"99\"")
        .replace("node0", "far");
    let more: Value = serde_json::from_str(&more).unwrap();
    let (errnum, text) = bench.rpc("resource.grow", &json!({"R": more}));
    assert_eq!(
        (errnum, text),
        (
            EINVAL,
            "resource.grow: jobs run on this machine, which does not have ranks 99\nhint: simulate execution with `--exec sim`, or \
             share this machine's cores among all jobs with `--oversubscribe`"
                .into()
        )
    );
    assert!(bench.instance.events.is_empty());
}

#[test]
fn the_mode_says_what_becomes_of_drained_targets() {
    let mut bench = Bench::new(4);
    let drain = |targets: &str, reason: &str, mode: Value| json!({"targets": targets, "reason": reason, "mode": mode});
    let update = || "update".into();
    bench.rpc("resource.drain", &drain("node[1-2]", "smoke", Value::Null));
    let again = bench.rpc("resource.drain", &drain("0-2", "other", Value::Null));
    let text = "ranks 1-2 already drained: node[1-2]".into();
    assert_eq!(again, (EEXIST, text));
    bench.rpc("resource.drain", &drain("3", "", Value::Null));
    for mode in [Value::Null, update()] {
        let unchanged = bench.rpc("resource.drain", &drain("3", "", mode));
        assert_eq!(unchanged, (0, Value::Null));
    }
    bench.rpc("resource.drain", &drain("2-3", "", update()));
    assert_eq!(
        bench.instance.events.len(),
        2,
        "nothing to change is no event"
    );
    bench.rpc("resource.drain", &drain("2-3", "late", update()));
    bench.rpc("resource.drain", &drain("1", "flames", "overwrite".into()));
    let expected = json!({
        "1": {"timestamp": 5.0, "reason": "flames"},
        "2": {"timestamp": 5.0, "reason": "smoke"},
        "3": {"timestamp": 5.000_001, "reason": "late"},
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
fn an_excluded_target_is_not_drained() {
    let mut bench = Bench::new(4);
    bench.configure(Config {
        exclude: Some("node[2-3]".to_owned()),
        ..Config::default()
    });
    for mode in [Value::Null, "update".into(), "force-overwrite".into()] {
        let request = json!({"targets": "1-2", "reason": "smoke", "mode": mode});
        let rejected = bench.rpc("resource.drain", &request);
        assert_eq!(rejected, (EINVAL, "rank 2 excluded: node2".into()));
    }
    assert_eq!(bench.status()["drain"], json!({}));
}

#[test]
fn an_event_is_to_be_appended_before_its_response_is_sent() {
    let mut bench = Bench::new(4);
    let mut request = Message::request("resource.drain", r#"{"targets":"0"}"#).with_matchtag(1);
    (request.userid, request.rolemask) = (OWNER, role::OWNER);
    bench.service.handle(&request, 5.0);
    assert!(
        matches!(&bench.service.take_effects()[..], [Effect::Append(line)] if line.contains("drain"))
    );
    let effects = bench.service.take_output();
    assert!(matches!(
        &effects[..],
        [Effect::SetInventory(_), Effect::Send(response)] if response.errnum() == 0
    ));
}

#[test]
fn a_store_that_cannot_be_read_is_an_error_with_a_line_in_the_log() {
    let mut bench = Bench::new(4);
    bench.instance.is_broken = true;
    for topic in ["resource.history", "resource.sched-status"] {
        let response = bench.rpc(topic, &json!({}));
        assert_eq!(response, (EIO, "internal error: see the log".into()));
    }
    assert_eq!(
        bench.instance.log,
        [
            "resource.history: disk is broken",
            "resource.sched-status: disk is broken"
        ]
    );
}

#[test]
fn a_module_is_not_made_for_ranks_on_which_no_job_can_be_executed() {
    let executable = Some((0..=2).into());
    let module = ResourceModule::new(Arc::new(nodes(4)), Config::default(), executable, [], 0.5);
    let error = module.unwrap_err();
    assert!(error.is_conflict());
    assert!(error.to_string().contains("does not have ranks 3"));
}

#[test]
fn changes_of_one_round_are_one_response_to_the_scheduler() {
    let mut bench = Bench::new(4);
    bench.send("resource.acquire", &Value::Null, OWNER, STREAMING, 7);
    assert_eq!(body(&bench.settle()[0])["up"], "0-3");
    let targets = |text: &str| json!({ "targets": text });
    bench.send("resource.drain", &targets("0-1"), OWNER, 0, 1);
    bench.send("resource.undrain", &targets("0-1"), OWNER, 0, 1);
    assert_eq!(
        bench.settle().len(),
        2,
        "changes that cancel out are not reported"
    );
    bench.send("resource.drain", &targets("0-1"), OWNER, NORESPONSE, 0);
    bench.send("resource.shrink", &targets("3"), OWNER, NORESPONSE, 0);
    bench.send("resource.undrain", &targets("1"), OWNER, NORESPONSE, 0);
    let changes = bench.settle();
    assert_eq!(
        changes.iter().map(body).collect::<Vec<_>>(),
        [json!({"shrink": "3", "down": "0,3"})]
    );
    assert_eq!((changes[0].matchtag, changes[0].is_streaming()), (7, true));
    // Changes before an acquire in the same round are in its first response.
    bench.send("resource.disconnect", &Value::Null, OWNER, NORESPONSE, 0);
    bench.send("resource.undrain", &targets("0"), OWNER, NORESPONSE, 0);
    bench.send("resource.acquire", &Value::Null, OWNER, STREAMING, 8);
    assert_eq!(body(&bench.settle()[0])["up"], "0-2");
    bench.send(
        "resource.acquire-cancel",
        &json!({"matchtag": 8}),
        OWNER,
        0,
        9,
    );
    let ended = bench.settle();
    let ended: Vec<_> = ended
        .iter()
        .map(|response| (response.matchtag, response.errnum()))
        .collect();
    assert_eq!(ended, [(8, ENODATA), (9, 0)]);
}

#[test]
fn the_inventory_is_handed_out_when_it_may_have_changed() {
    let mut bench = Bench::new(4);
    bench.settle();
    assert_eq!(bench.instance.inventory.take(), Some(nodes(4)));
    bench.settle();
    assert_eq!(bench.instance.inventory.take(), None);
    let exclude = Config {
        exclude: Some("node[2-3]".to_owned()),
        ..Config::default()
    };
    bench.configure(exclude);
    bench.settle();
    assert_eq!(bench.instance.inventory.take(), Some(nodes(2)));
    assert!(bench.instance.events[0].contains(r#""name":"exclude","context":{"idset":"2-3""#));
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
    let ranks: Vec<Value> = bench.settle().iter().map(body).collect();
    assert_eq!(ranks, [json!({"ranks": "1-2"}), json!({"ranks": "2"})]);
    bench.send(
        "resource.monitor-cancel",
        &json!({"matchtag": 3}),
        OWNER,
        0,
        5,
    );
    let ended: Vec<_> = bench
        .settle()
        .iter()
        .map(|response| (response.matchtag, response.errnum()))
        .collect();
    assert_eq!(ended, [(3, ENODATA), (5, 0)]);
    assert_eq!(bench.status()["offline"], "1");
    bench.send("resource.disconnect", &Value::Null, OWNER, NORESPONSE, 0);
    assert_eq!(bench.status()["offline"], "1-2");
    assert_eq!(
        bench.instance.log,
        [
            "resource: ranks 1 are offline",
            "resource: ranks 2 are offline"
        ]
    );
    // A restart has no monitors: monitored targets are offline until a new monitor or `resource.unmonitor`.
    let mut again = Bench::over(bench.instance, 4);
    assert_eq!(again.status()["offline"], "1-2");
    again.rpc("resource.unmonitor", &json!({"targets": "0-2"}));
    assert_eq!(
        again.rpc("groups.get", &json!({"name": "broker.online"})).1["members"],
        "0-3"
    );
}

#[test]
fn invalid_events_of_the_eventlog_are_left_out_and_named() {
    let mut bench = Bench::new(4);
    bench.rpc("resource.drain", &json!({"targets": "1", "reason": "test"}));
    let mut instance = bench.instance;
    let valid = instance.events.len();
    for line in [
        "garbage",
        r#"{"timestamp":1.0,"name":"drain","context":{}}"#,
    ] {
        instance.events.insert(0, line.to_owned());
    }
    let mut again = Bench::over(instance, 4);
    again.settle();
    let named = again.instance.log.iter();
    let named = named.filter(|line| line.contains("of `resource_events` is left out: "));
    assert_eq!(named.count(), 2, "{:?}", again.instance.log);
    assert!(again.instance.log[0].starts_with("store: row 1 "));
    assert!(again.status()["drain"].to_string().contains("test"));
    let (_, history) = again.rpc("resource.history", &json!({}));
    let events = history["events"].as_array().unwrap();
    assert_eq!(events.len(), valid, "{events:?}");
}

#[test]
fn a_hundred_thousand_nodes_are_a_few_runs() {
    let mut bench = Bench::new(100_000);
    bench.send("resource.acquire", &Value::Null, OWNER, STREAMING, 7);
    let first = bench.settle();
    assert!(
        first[0]
            .payload
            .as_ref()
            .is_some_and(|payload| payload.len() < 300)
    );
    let drain = json!({"targets": "node[10-99999]", "reason": "move"});
    bench.send("resource.drain", &drain, OWNER, NORESPONSE, 0);
    assert_eq!(body(&bench.settle()[0]), json!({"down": "10-99999"}));
    let groups = bench.service.ledger().drains().groups().len();
    assert_eq!((groups, bench.service.ledger().up()), (1, (0..=9).into()));
    assert!(bench.instance.events[0].len() < 200);
}

#[test]
fn a_journal_has_the_past_events_the_start_and_each_further_event() {
    let mut bench = Bench::new(4);
    let drain = |targets: &str| json!({"targets": targets, "reason": "a"});
    bench.send("resource.drain", &drain("1"), OWNER, 0, 1);
    bench.settle();
    bench.send("resource.journal", &json!({}), OWNER, STREAMING, 7);
    let sent = bench.settle();
    let bodies: Vec<Value> = sent.iter().map(body).collect();
    let names = |body: &Value| -> Vec<String> {
        let events = body["events"].as_array().unwrap().iter();
        let names = events.map(|event| event["name"].as_str().unwrap().to_owned());
        names.collect()
    };
    let all: Vec<_> = bodies.iter().map(names).collect();
    let start = ["restart", "online", "resource-define"].map(str::to_owned);
    assert_eq!(all, [start.to_vec(), vec!["drain".to_owned()], Vec::new()]);
    assert_eq!(bodies[0]["R"]["execution"]["nodelist"][0], "node[0-3]");
    assert!(bodies[1].get("R").is_none());
    let times: Vec<f64> = bodies[..2]
        .iter()
        .flat_map(|body| body["events"].as_array().unwrap())
        .map(|event| event["timestamp"].as_f64().unwrap())
        .collect();
    assert!(
        times.is_sorted_by(|before, after| before < after),
        "{times:?}"
    );
    // Events of other readers' changes follow; a change of nothing is no event.
    bench.send("resource.drain", &drain("2"), OWNER, 0, 1);
    bench.send("resource.drain", &drain("2"), OWNER, 0, 1);
    let sent = bench.settle();
    let journal: Vec<_> = sent
        .iter()
        .filter(|message| message.matchtag == 7)
        .collect();
    assert_eq!(journal.len(), 1);
    assert_eq!(body(journal[0])["events"][0]["context"]["idset"], "2");
    bench.send(
        "resource.journal-cancel",
        &json!({"matchtag": 7}),
        OWNER,
        0,
        8,
    );
    bench.send("resource.undrain", &json!({"targets": "2"}), OWNER, 0, 9);
    let sent = bench.settle();
    let journal: Vec<_> = sent
        .iter()
        .filter(|message| message.matchtag == 7)
        .collect();
    assert_eq!(
        journal.iter().map(|end| end.errnum()).collect::<Vec<_>>(),
        [ENODATA]
    );
}
