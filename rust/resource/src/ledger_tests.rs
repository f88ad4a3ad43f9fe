use proptest::prelude::*;

use super::*;
use crate::event::Overwrite;

fn ids(text: &str) -> IdSet {
    text.parse().unwrap()
}

fn uniform(ranks: &str, hosts: &str) -> ResourceSet {
    let (ranks, hosts) = (ids(ranks), hosts.parse().unwrap());
    ResourceSet::uniform(&ranks, &hosts, ids("0-1"), IdSet::new()).unwrap()
}

fn config(exclude: &str, properties: &[(&str, &str)]) -> Config {
    let properties = properties.iter();
    Config {
        exclude: Some(exclude.to_owned()).filter(|text| !text.is_empty()),
        properties: properties
            .map(|(name, of)| ((*name).to_owned(), (*of).to_owned()))
            .collect(),
    }
}

fn ledger(config: Config) -> Ledger {
    Ledger::new(Arc::new(uniform("0-3", "node[0-3]")), config).unwrap()
}

fn targets(ranks: &str, hosts: &str) -> Targets {
    Targets {
        ranks: ids(ranks),
        hosts: hosts.parse().unwrap(),
    }
}

fn apply(ledger: &mut Ledger, timestamp: f64, change: Change) {
    ledger.apply(&Event { timestamp, change }).unwrap();
}

fn drain(ledger: &mut Ledger, timestamp: f64, ranks: &str, reason: &str, overwrite: Overwrite) {
    let change = Change::Drain {
        targets: targets(ranks, ""),
        reason: reason.to_owned(),
        overwrite,
    };
    apply(ledger, timestamp, change);
}

fn drains(ledger: &Ledger) -> Vec<(String, f64, &str)> {
    let groups = ledger.drains().groups().into_iter();
    groups
        .map(|(drain, ranks)| (ranks.to_string(), drain.timestamp, drain.reason.as_str()))
        .collect()
}

#[test]
fn a_drain_keeps_its_time_and_reason_by_default() {
    let mut ledger = ledger(Config::default());
    drain(&mut ledger, 1.0, "0-1", "a", Overwrite::Keep);
    drain(&mut ledger, 2.0, "1-2", "", Overwrite::Keep);
    assert_eq!(ledger.drains().without_reason(), ids("2"));
    drain(&mut ledger, 3.0, "0-2", "b", Overwrite::Keep);
    assert_eq!(
        drains(&ledger),
        [("0-1".to_owned(), 1.0, "a"), ("2".to_owned(), 2.0, "b")]
    );
    drain(&mut ledger, 4.0, "0,3", "c", Overwrite::Reason);
    drain(&mut ledger, 5.0, "1", "d", Overwrite::All);
    let undrain = Change::Undrain {
        targets: targets("2", ""),
        reason: None,
    };
    apply(&mut ledger, 6.0, undrain);
    let expected = [
        ("0".to_owned(), 1.0, "c"),
        ("1".to_owned(), 5.0, "d"),
        ("3".to_owned(), 4.0, "c"),
    ];
    assert_eq!(drains(&ledger), expected);
    assert_eq!(ledger.up(), ids("2"));
}

#[test]
fn an_event_follows_hosts_whose_ranks_have_changed() {
    let drained = |base: ResourceSet| {
        let mut ledger = Ledger::new(Arc::new(base), Config::default()).unwrap();
        let change = Change::Drain {
            targets: targets("1-2", "node[1-2]"),
            reason: String::new(),
            overwrite: Overwrite::Keep,
        };
        apply(&mut ledger, 1.0, change);
        ledger.drains().ranks().to_string()
    };
    assert_eq!(drained(uniform("0-3", "node2,node1,a,b")), "0-1");
    assert_eq!(drained(uniform("0-3", "a,b,node2,c")), "2");
    // A host with several ranks: only the ranks can tell.
    assert_eq!(drained(uniform("0-1", "vm,vm")), "1");
}

#[test]
fn configuration_holds_for_targets_that_come_later() {
    let mut ledger = ledger(config("1,5", &[("fast", "0,5")]));
    apply(&mut ledger, 1.0, Change::Grow(uniform("5-6", "late[0-1]")));
    assert_eq!(*ledger.exclude(), ids("1,5"));
    assert_eq!(ledger.resources().properties()["fast"], ids("0,5"));
    assert_eq!(ledger.up(), ids("0,2-3,6"));
}

#[test]
fn commands_override_configured_properties() {
    let mut ledger = ledger(config("", &[("p", "0-1")]));
    let add = |ranks| Change::PropertyAdd {
        targets: targets(ranks, ""),
        name: "p".to_owned(),
    };
    let remove = |ranks| Change::PropertyRemove {
        targets: targets(ranks, ""),
        name: "p".to_owned(),
    };
    apply(&mut ledger, 1.0, remove("1"));
    apply(&mut ledger, 2.0, add("2-3"));
    apply(&mut ledger, 3.0, remove("3"));
    assert_eq!(ledger.resources().properties()["p"], ids("0,2"));
    ledger.configure(config("", &[("p", "node[1-3]")])).unwrap();
    assert_eq!(ledger.resources().properties()["p"], ids("2"));
}

#[test]
fn a_configuration_with_unknown_hosts_changes_nothing() {
    let mut ledger = ledger(config("node1", &[("p", "2")]));
    let wrong = config("node[0,8],x", &[("q", "0-1"), ("r", "y")]);
    let error = ledger.configure(wrong).unwrap_err();
    assert!(error.is_unknown_target());
    assert_eq!(
        error.to_string(),
        "resource.exclude: no such hosts: node8,x\nresource.properties.r: no such hosts: y"
    );
    assert_eq!(*ledger.exclude(), ids("1"));
    assert!(!ledger.resources().properties().contains_key("q"));
    let error = ledger.configure(config("a[", &[])).unwrap_err();
    assert!(error.is_syntax());
    // A host that was there once is no stranger: a restart after a shrink must not fail.
    apply(&mut ledger, 1.0, Change::Shrink(targets("1", "node1")));
    assert_eq!(ledger.check(), Ok(()));
    assert!(ledger.exclude().is_empty());
}

#[test]
fn growth_names_every_conflict() {
    let mut ledger = ledger(Config::default());
    apply(&mut ledger, 1.0, Change::Shrink(targets("3", "node3")));
    let error = ledger
        .check_growth(&uniform("2-4", "node[0-1],new"))
        .unwrap_err();
    assert!(error.is_conflict());
    assert_eq!(
        error.to_string(),
        "ranks that exist already: 2; ranks that were removed for good: 3; \
         hosts that exist already: node[0-1]"
    );
    assert_eq!(ledger.check_growth(&uniform("4", "node3")), Ok(()));
    assert!(
        ledger
            .check_growth(&ResourceSet::new())
            .unwrap_err()
            .is_syntax()
    );
}

#[test]
fn a_text_names_ranks_or_hosts() {
    let nodes = ledger(Config::default());
    assert_eq!(nodes.find("3,1,0"), Ok(ids("0-1,3")));
    assert_eq!(nodes.find("node[1-2]"), Ok(ids("1-2")));
    let numbers = Ledger::new(Arc::new(uniform("0-3", "[3,2,1,0]")), Config::default()).unwrap();
    assert_eq!(numbers.find("3,2"), Ok(ids("0-1")));
    for (text, expected) in [
        ("", "expected at least one rank or host"),
        ("3,9,1", "no such ranks: 9; the ranks are 0-3"),
        ("3,1,03", "no such hosts: [3,1],03; the hosts are node[0-3]"),
        (
            "9,4294967295",
            "no such hosts: [9,4294967295]; the hosts are node[0-3]",
        ),
        ("x,node3", "no such hosts: x; the hosts are node[0-3]"),
    ] {
        assert_eq!(
            nodes.find(text).unwrap_err().to_string(),
            expected,
            "{text}"
        );
    }
}

#[test]
fn monitors_are_counted_by_target() {
    let mut ledger = ledger(Config::default());
    apply(&mut ledger, 1.0, Change::Online(targets("0-2", "")));
    assert_eq!(ledger.add_monitor(&ids("0-1")), ids("0-1"));
    assert_eq!(ledger.add_monitor(&ids("1-2")), ids("2"));
    assert_eq!(ledger.remove_monitor(&ids("0-1")), ids("0"));
    assert_eq!((ledger.offline(), ledger.up()), (ids("0"), ids("1-3")));
    apply(&mut ledger, 2.0, Change::Unmonitor(targets("0", "")));
    assert_eq!(
        (ledger.offline(), ledger.online()),
        (IdSet::new(), ids("0-3"))
    );
}

#[test]
fn events_are_read_as_they_were_written() {
    let all = [
        Change::Drain {
            targets: targets("0-1", "node[0-1]"),
            reason: "dust".to_owned(),
            overwrite: Overwrite::All,
        },
        Change::Undrain {
            targets: targets("0", "node0"),
            reason: Some("wiped".to_owned()),
        },
        Change::Online(targets("0", "node0")),
        Change::Offline(targets("0", "node0")),
        Change::Unmonitor(targets("0", "node0")),
        Change::Grow(uniform("7", "new")),
        Change::Shrink(targets("0", "node0")),
        Change::PropertyAdd {
            targets: targets("0", "node0"),
            name: "p".to_owned(),
        },
        Change::PropertyRemove {
            targets: targets("0", "node0"),
            name: "p".to_owned(),
        },
        Change::Expiration(None),
        Change::Expiration(Some(4e9)),
        Change::Exclude(targets("0", "node0")),
        Change::Unexclude(targets("0", "node0")),
    ];
    for change in all {
        let event = Event {
            timestamp: 1.5,
            change,
        };
        let line = event.to_json().unwrap();
        assert_eq!(Event::from_json(&line), Ok(Some(event)), "{line}");
    }
}

#[test]
fn the_form_of_a_stored_event_stays() {
    let event = Event {
        timestamp: 1.0,
        change: Change::Drain {
            targets: targets("0-1", "node[0-1]"),
            reason: "dust".to_owned(),
            overwrite: Overwrite::Keep,
        },
    };
    let line = r#"{"timestamp":1.0,"name":"drain","context":{"idset":"0-1","nodelist":"node[0-1]","reason":"dust","overwrite":0}}"#;
    assert_eq!(event.to_json().unwrap(), line);
    assert_eq!(Event::from_json(line), Ok(Some(event)));
}

#[test]
fn an_event_of_a_later_version_is_skipped_and_a_malformed_one_is_an_error() {
    let later = r#"{"timestamp":1,"name":"teleport","context":{"idset":7}}"#;
    assert_eq!(Event::from_json(later), Ok(None));
    for (line, expected) in [
        ("[]", "invalid resource event: "),
        (
            r#"{"timestamp":1,"name":"drain","context":{}}"#,
            "invalid resource event: `drain`: expected the key `idset`",
        ),
        (
            r#"{"timestamp":1,"name":"shrink","context":{"idset":"x"}}"#,
            "invalid resource event: `shrink`: ",
        ),
    ] {
        let error = Event::from_json(line).unwrap_err();
        assert!(error.is_event());
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

fn ranks() -> impl Strategy<Value = IdSet> {
    prop::collection::btree_set(0..6_u32, 1..4).prop_map(|ranks| ranks.into_iter().collect())
}

/// A change by ranks; [`admitted`] adds the hosts.
fn change() -> impl Strategy<Value = Change> {
    let some = |ranks| Targets {
        ranks,
        hosts: Hostlist::new(),
    };
    let name = || prop::sample::select(vec!["p", "q"]).prop_map(str::to_owned);
    let reason = || prop::sample::select(vec!["", "a", "b"]).prop_map(str::to_owned);
    let overwrite =
        || prop::sample::select(vec![Overwrite::Keep, Overwrite::Reason, Overwrite::All]);
    prop_oneof![
        (ranks(), reason(), overwrite()).prop_map(move |(ranks, reason, overwrite)| {
            Change::Drain {
                targets: some(ranks),
                reason,
                overwrite,
            }
        }),
        ranks().prop_map(move |ranks| Change::Undrain {
            targets: some(ranks),
            reason: None,
        }),
        ranks().prop_map(move |ranks| Change::Online(some(ranks))),
        ranks().prop_map(move |ranks| Change::Unmonitor(some(ranks))),
        (ranks(), name()).prop_map(move |(ranks, name)| Change::PropertyAdd {
            targets: some(ranks),
            name,
        }),
        (ranks(), name()).prop_map(move |(ranks, name)| Change::PropertyRemove {
            targets: some(ranks),
            name,
        }),
        prop::sample::select(vec![None, Some(7.5)]).prop_map(Change::Expiration),
        (0..6_u32).prop_map(move |rank| Change::Shrink(some((rank..=rank).into()))),
        (4..7_u32)
            .prop_map(|rank| Change::Grow(uniform(&rank.to_string(), &format!("late{rank}")))),
    ]
}

/// The change that a request would cause: restricted to the inventory, with its hosts. `None` if it is rejected.
fn admitted(ledger: &Ledger, mut change: Change) -> Option<Change> {
    let targets = match &mut change {
        Change::Grow(more) => return ledger.check_growth(more).is_ok().then_some(change),
        Change::Drain { targets, .. }
        | Change::Undrain { targets, .. }
        | Change::PropertyAdd { targets, .. }
        | Change::PropertyRemove { targets, .. }
        | Change::Online(targets)
        | Change::Unmonitor(targets)
        | Change::Shrink(targets) => targets,
        _ => return Some(change),
    };
    let present = &targets.ranks & &ledger.resources().ranks();
    *targets = ledger.targets_of(&present);
    (!present.is_empty()).then_some(change)
}

/// Drains as one would keep them without care for cost: by rank.
fn drain_one_by_one(model: &mut BTreeMap<u32, Drain>, event: &Event) {
    let Change::Drain {
        targets,
        reason,
        overwrite,
    } = &event.change
    else {
        return;
    };
    for rank in &targets.ranks {
        let new = Drain {
            timestamp: event.timestamp,
            reason: reason.clone(),
        };
        match model.get_mut(&rank) {
            Some(old) if *overwrite != Overwrite::All => {
                if *overwrite == Overwrite::Reason || old.reason.is_empty() {
                    old.reason = new.reason;
                }
            }
            _ => {
                model.insert(rank, new);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_replay_of_the_eventlog_restores_the_ledger(changes in prop::collection::vec(change(), 0..30)) {
        let settings = || config("1,4", &[("p", "0,5")]);
        let mut live = ledger(settings());
        let mut model = BTreeMap::new();
        let mut log = Vec::new();
        for (timestamp, change) in (1_u32..).zip(changes) {
            let Some(change) = admitted(&live, change) else { continue };
            let event = Event { timestamp: f64::from(timestamp), change };
            live.apply(&event).unwrap();
            drain_one_by_one(&mut model, &event);
            if let Change::Undrain { targets, .. } | Change::Shrink(targets) = &event.change {
                model.retain(|rank, _| !targets.ranks.contains(*rank));
            }
            let drained: BTreeMap<u32, Drain> = live.drains().groups().into_iter()
                .flat_map(|(drain, ranks)| ranks.iter().map(move |rank| (rank, drain.clone())))
                .collect();
            prop_assert_eq!(&drained, &model);
            prop_assert_eq!(live.drains().ranks(), &model.keys().copied().collect::<IdSet>());
            prop_assert!(live.up().is_subset(&live.resources().ranks()));
            prop_assert!(live.up().is_disjoint(live.exclude()));
            log.push(event.to_json().unwrap());
        }
        let mut again = ledger(settings());
        for line in &log {
            again.apply(&Event::from_json(line).unwrap().unwrap()).unwrap();
        }
        prop_assert_eq!(again.resources(), live.resources());
        prop_assert_eq!(again.exclude(), live.exclude());
        prop_assert_eq!(again.drains().groups(), live.drains().groups());
        prop_assert_eq!((again.offline(), again.up()), (live.offline(), live.up()));
    }

    #[test]
    fn monitors_are_counted_as_one_by_one(steps in prop::collection::vec((any::<bool>(), ranks()), 0..20)) {
        let mut liveness = Liveness::default();
        let mut open: Vec<IdSet> = Vec::new();
        let live = |open: &[IdSet]| open.iter().fold(IdSet::new(), |all, ranks| &all | ranks);
        for (begins, ranks) in steps {
            if begins {
                prop_assert_eq!(liveness.add(&ranks), &ranks - &live(&open));
                open.push(ranks);
            } else if let Some(ranks) = open.pop() {
                prop_assert_eq!(liveness.remove(&ranks), &ranks - &live(&open));
            }
            prop_assert_eq!(liveness.live(), live(&open));
        }
    }
}
