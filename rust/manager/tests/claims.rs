//! Claims: a scheduler may commit only existing resources, and none of them twice.

mod common;

use common::{Bench, OWNER, body, rejection, topics};
use penstock_flux::errno::ENOENT;
use penstock_rset::ResourceSet;
use serde_json::{Value, json};

/// R with these cores and gpus of each rank.
fn r(ranks: &str, cores: &str, gpus: &str) -> String {
    let mut children = json!({ "core": cores });
    if !gpus.is_empty() {
        children["gpu"] = gpus.into();
    }
    let ranks: penstock_idset::IdSet = ranks.parse().unwrap();
    let hosts: Vec<String> = ranks.iter().map(|rank| format!("n{rank}")).collect();
    json!({"version": 1, "execution": {
        "R_lite": [{"rank": ranks.to_string(), "children": children}],
        "nodelist": hosts, "starttime": 0.0, "expiration": 0.0,
    }})
    .to_string()
}

/// Four nodes of eight cores and two gpus, and jobs whose alloc requests are outstanding.
fn bench(jobs: usize) -> (Bench, Vec<u64>) {
    let mut bench = Bench::new();
    let inventory = ResourceSet::from_json(&r("0-3", "0-7", "0-1")).unwrap();
    bench.manager.set_inventory(inventory);
    bench.scheduler(None);
    bench.executor();
    let ids = (0..jobs).map(|_| bench.submit(&json!({})).0).collect();
    (bench, ids)
}

fn stored(bench: &mut Bench, id: u64) -> Option<String> {
    let out = bench.request("job-info.lookup", &json!({"id": id, "keys": ["R"]}));
    (out[0].errnum() == 0).then(|| body(&out[0])["R"].as_str().unwrap().to_owned())
}

fn name(id: u64) -> String {
    penstock_jobspec::job_id::JobId::new(id).to_string()
}

#[test]
fn r_outside_the_inventory_is_rejected() {
    let (mut bench, ids) = bench(1);
    for (r, what) in [
        (r("4", "0", ""), "rank4"),
        (r("2-5", "0-7", ""), "rank4"),
        (r("3", "6-9", ""), "rank3/core8-9"),
        (r("1", "0", "1-2"), "rank1/gpu2"),
        (r("0", "8", "3"), "rank0/core8,gpu3"),
    ] {
        let (errnum, text) = rejection(&bench.commit_r(ids[0], &r));
        let expected = format!("job {}: there is no {what} to allocate", name(ids[0]));
        assert_eq!((errnum, text), (22, expected));
        assert_eq!(stored(&mut bench, ids[0]), None);
    }
    for coreless in [r("2", "", ""), r("2", "", "0")] {
        let (errnum, text) = rejection(&bench.commit_r(ids[0], &coreless));
        let expected = format!("job {}: R has no core of rank2", name(ids[0]));
        assert_eq!((errnum, text), (22, expected));
    }
    let none = r#"{"version":1,"execution":{"R_lite":[],"nodelist":[]}}"#;
    let (errnum, text) = rejection(&bench.commit_r(ids[0], none));
    assert_eq!(errnum, 22);
    assert!(text.ends_with("R has no execution target"), "{text}");
    assert_eq!(bench.commit_r(ids[0], &r("3", "7", "1"))[0].errnum(), 0);
}

#[test]
fn hosts_of_r_are_the_instances() {
    let (mut bench, ids) = bench(2);
    let own = r("1-2", "0-1", "");
    let other = own.replace("\"n1\",\"n2\"", "\"x[7-8]\"");
    assert_ne!(own, other);
    for (id, response) in [(ids[0], Some(&other)), (ids[1], None)] {
        bench.commit_r(id, &other);
        let stored = stored(&mut bench, id).unwrap();
        let stored = ResourceSet::from_json(&stored).unwrap();
        assert_eq!(stored, ResourceSet::from_json(&own).unwrap());
        let mut success = json!({"id": id, "type": 0});
        if let Some(r) = response {
            success["R"] = serde_json::from_str(r).unwrap();
        }
        let out = bench.answer("sched.alloc", &success);
        assert!(topics(&out).contains(&"job-exec.start"), "{out:?}");
        bench.end(id, 0);
    }
}

#[test]
fn the_number_of_slots_is_one_that_the_jobspec_accepts() {
    let (mut bench, ids) = bench(1);
    let with = |slots: u64| {
        r("0", "0", "").replace(
            "\"starttime\"",
            &format!("\"nslots\":{slots},\"starttime\""),
        )
    };
    for slots in [0, 2, 1 << 40] {
        let (errnum, text) = rejection(&bench.commit_r(ids[0], &with(slots)));
        assert_eq!(errnum, 22);
        let job = name(ids[0]);
        assert_eq!(
            text,
            format!("job {job}: `nslots` is {slots} on 1 nodes, not as the jobspec requests")
        );
    }
    bench.commit_r(ids[0], &with(1));
    assert!(stored(&mut bench, ids[0]).is_some());
}

#[test]
fn without_an_inventory_only_overlaps_are_rejected() {
    let mut bench = Bench::new();
    bench.scheduler(None);
    let (first, _) = bench.submit(&json!({}));
    let (second, _) = bench.submit(&json!({}));
    assert_eq!(bench.commit_r(first, &r("70", "0-1", "0"))[0].errnum(), 0);
    let (errnum, text) = rejection(&bench.commit_r(second, &r("70", "1-2", "0")));
    let expected = format!(
        "job {}: job {} has rank70/core1,gpu0",
        name(second),
        name(first)
    );
    assert_eq!((errnum, text), (22, expected));
}

#[test]
fn resources_of_another_job_are_rejected_whether_allocated_or_only_committed() {
    let (mut bench, ids) = bench(3);
    assert_eq!(bench.commit_r(ids[0], &r("0-3", "0-1", ""))[0].errnum(), 0);
    assert_eq!(bench.commit_r(ids[1], &r("0-3", "2-3", "0"))[0].errnum(), 0);
    bench.answer("sched.alloc", &json!({"id": ids[0], "type": 0}));
    let (errnum, text) = rejection(&bench.commit_r(ids[2], &r("3", "0-4", "")));
    let expected = format!(
        "job {}: job {} has rank3/core0-1",
        name(ids[2]),
        name(ids[0])
    );
    assert_eq!((errnum, text), (22, expected));
    let (_, text) = rejection(&bench.commit_r(ids[2], &r("2", "4", "0")));
    let expected = format!("job {}: job {} has rank2/gpu0", name(ids[2]), name(ids[1]));
    assert_eq!(text, expected);
    assert_eq!(bench.commit_r(ids[2], &r("0-3", "4-7", "1"))[0].errnum(), 0);
}

#[test]
fn a_commit_is_done_whole_or_not_at_all() {
    let (mut bench, ids) = bench(3);
    let out = bench.commit_all(&[
        (ids[0], &r("0", "0-3", "")),
        (ids[1], &r("0", "3-4", "")),
        (ids[2], &r("1", "0", "")),
    ]);
    let (errnum, text) = rejection(&out);
    let expected = format!("job {}: job {} has rank0/core3", name(ids[1]), name(ids[0]));
    assert_eq!((errnum, text), (22, expected));
    for id in &ids {
        assert_eq!(stored(&mut bench, *id), None);
    }
    // None of its resources is claimed either.
    let out = bench.commit_all(&[
        (ids[0], &r("1", "0", "")),
        (ids[1], &r("0", "0-3", "")),
        (ids[2], &r("0", "4", "")),
    ]);
    assert_eq!(out[0].errnum(), 0);
}

#[test]
fn a_commit_with_a_key_below_a_link_loop_changes_nothing() {
    let (mut bench, ids) = bench(2);
    let value = json!({"ver": 1, "type": "val", "data": "MQ=="});
    let link = |target: &str| json!({"ver": 1, "type": "symlink", "data": {"target": target}});
    let op = |key: &str, dirent: &Value| json!({"key": key, "flags": 0, "dirent": dirent});
    let links = [op("p", &link("q")), op("q", &link("p"))];
    let out = bench.request("kvs.commit", &json!({ "ops": links }));
    assert_eq!(out[0].errnum(), 0);
    let writes = [op("x.y", &value), op("p.z", &value)];
    let out = bench.commit_with(&[(ids[0], &r("0", "0", ""))], &writes);
    let text = "`p.z`: more than 10 symbolic links";
    assert_eq!(rejection(&out), (22, text.to_owned()));
    assert_eq!(stored(&mut bench, ids[0]), None);
    let out = bench.request("kvs.lookup", &json!({"key": "x.y", "flags": 0}));
    assert_eq!(rejection(&out).0, ENOENT);
    // None of its resources is claimed.
    assert_eq!(bench.commit_r(ids[1], &r("0", "0", ""))[0].errnum(), 0);
}

#[test]
fn a_second_commit_for_a_job_replaces_the_first_and_a_rejected_one_leaves_it() {
    let (mut bench, ids) = bench(2);
    assert_eq!(bench.commit_r(ids[0], &r("0", "0-7", ""))[0].errnum(), 0);
    assert_eq!(bench.commit_r(ids[0], &r("0", "0-3", ""))[0].errnum(), 0);
    assert_eq!(bench.commit_r(ids[1], &r("0", "4-7", ""))[0].errnum(), 0);
    assert_eq!(rejection(&bench.commit_r(ids[0], &r("0", "0-4", ""))).0, 22);
    // The claim from before the rejection holds, and so does its document.
    assert_eq!(rejection(&bench.commit_r(ids[1], &r("0", "3", ""))).0, 22);
    assert_eq!(stored(&mut bench, ids[0]).unwrap(), r("0", "0-3", ""));
    // Two jobs may exchange resources in one commit, and the last R for a job counts.
    let out = bench.commit_all(&[
        (ids[0], &r("0", "4-7", "")),
        (ids[1], &r("1", "0", "")),
        (ids[1], &r("0", "0-3", "")),
    ]);
    assert_eq!(out[0].errnum(), 0);
    assert_eq!(stored(&mut bench, ids[1]).unwrap(), r("0", "0-3", ""));
    let (spare, _) = bench.submit(&json!({}));
    assert_eq!(bench.commit_r(spare, &r("1", "0", ""))[0].errnum(), 0);
}

#[test]
fn a_claim_ends_with_its_request() {
    for end in ["deny", "cancel", "suspend"] {
        let (mut bench, ids) = bench(1);
        let id = ids[0];
        assert_eq!(bench.commit_r(id, &r("0-3", "0-7", "0-1"))[0].errnum(), 0);
        match end {
            "deny" => {
                bench.answer("sched.alloc", &json!({"id": id, "type": 2}));
            }
            "cancel" => {
                bench.request("job-manager.raise", &json!({"id": id, "type": "cancel"}));
                bench.answer("sched.alloc", &json!({"id": id, "type": 3}));
            }
            _ => {
                bench.request_as("sched", OWNER, "job-manager.disconnect", &Value::Null, 4);
                bench.scheduler(None);
            }
        }
        assert_eq!(stored(&mut bench, id), None, "{end}");
        let (next, _) = bench.submit(&json!({}));
        assert_eq!(
            bench.commit_r(next, &r("0-3", "0-7", ""))[0].errnum(),
            0,
            "{end}"
        );
    }
}

#[test]
fn ranks_are_claimable_again_as_they_are_released() {
    let (mut bench, ids) = bench(3);
    bench.commit_r(ids[0], &r("0-3", "0-7", ""));
    bench.answer("sched.alloc", &json!({"id": ids[0], "type": 0}));
    bench.exec(ids[0], "start", &json!({}));
    bench.exec(ids[0], "finish", &json!({"status": 0}));
    bench.exec(ids[0], "release", &json!({"ranks": "1-2", "final": false}));
    assert_eq!(rejection(&bench.commit_r(ids[1], &r("0-2", "0", ""))).0, 22);
    assert_eq!(bench.commit_r(ids[1], &r("1-2", "0-7", ""))[0].errnum(), 0);
    let out = bench.exec(ids[0], "release", &json!({"ranks": "0,3", "final": true}));
    assert_eq!(topics(&out), ["sched.free"]);
    assert_eq!(bench.commit_r(ids[2], &r("0,3", "0-7", ""))[0].errnum(), 0);
    // The end of the first job has not changed the claim of the second.
    assert_eq!(rejection(&bench.commit_r(ids[2], &r("1", "0", ""))).0, 22);
}

#[test]
fn a_job_on_ranks_that_have_left_is_left_alone() {
    let (mut bench, ids) = bench(2);
    bench.commit_r(ids[0], &r("2-3", "0-7", ""));
    bench.answer("sched.alloc", &json!({"id": ids[0], "type": 0}));
    let smaller = ResourceSet::from_json(&r("0-1", "0-7", "")).unwrap();
    bench.manager.set_inventory(smaller);
    assert_eq!(rejection(&bench.commit_r(ids[1], &r("2", "0", ""))).0, 22);
    assert_eq!(bench.commit_r(ids[1], &r("1", "0", ""))[0].errnum(), 0);
    bench.exec(ids[0], "start", &json!({}));
    bench.exec(ids[0], "finish", &json!({"status": 0}));
    let out = bench.exec(ids[0], "release", &json!({"ranks": "all", "final": true}));
    assert_eq!(topics(&out), ["sched.free"]);
    assert_eq!(bench.row(ids[0])["result"], 1);
}

#[test]
fn resources_of_running_jobs_are_claimed_after_a_restart() {
    let (directory, open) = common::stored_manager("claims");
    let mut bench = Bench::new();
    bench.manager = open(1000.0);
    bench.scheduler(None);
    bench.executor();
    let (running, _) = bench.submit(&json!({}));
    let (committed, _) = bench.submit(&json!({}));
    bench.commit_r(running, &r("0-1", "0-3", ""));
    bench.answer("sched.alloc", &json!({"id": running, "type": 0}));
    bench.exec(running, "start", &json!({}));
    bench.exec(running, "finish", &json!({"status": 0}));
    bench.exec(running, "release", &json!({"ranks": "1", "final": false}));
    bench.commit_r(committed, &r("2", "0-3", ""));
    drop(std::mem::replace(
        &mut bench.manager,
        common::empty_manager(),
    ));
    bench.manager = open(2000.0);
    bench.scheduler(None);
    let (errnum, text) = rejection(&bench.commit_r(committed, &r("0-2", "3-4", "")));
    let expected = format!(
        "job {}: job {} has rank0/core3",
        name(committed),
        name(running)
    );
    assert_eq!((errnum, text), (22, expected));
    assert_eq!(
        bench.commit_r(committed, &r("1-2", "0-4", ""))[0].errnum(),
        0
    );
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn random_commits_never_give_a_core_twice() {
    use std::collections::BTreeMap;
    let seed = 20_260_727_u64;
    eprintln!("seed {seed}");
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut bench, ids) = bench(12);
    // The cores of each job, in a model without ranges.
    let mut model: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
    for _ in 0..400 {
        let mut ops: Vec<(u64, String)> = Vec::new();
        let mut next = model.clone();
        let mut cells: Vec<(u64, Vec<(u64, u64)>)> = Vec::new();
        for _ in 0..=random(3) {
            let id = ids[usize::try_from(random(12)).unwrap()];
            let (rank, first, count) = (random(5), random(8), random(2));
            let listed: Vec<String> = (first..=first + count)
                .map(|core| core.to_string())
                .collect();
            ops.push((id, r(&rank.to_string(), &listed.join(","), "")));
            cells.push((
                id,
                (first..=first + count).map(|core| (rank, core)).collect(),
            ));
        }
        for (id, cells) in cells {
            next.insert(id, cells);
        }
        let all: Vec<(u64, u64)> = next.values().flatten().copied().collect();
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        let inside = all.iter().all(|(rank, core)| *rank < 4 && *core < 8);
        // An op that is replaced within its own commit may have been rejected for what it was.
        let once = ops
            .iter()
            .map(|op| op.0)
            .collect::<std::collections::BTreeSet<_>>();
        let good = inside && distinct.len() == all.len();
        let ops: Vec<(u64, &str)> = ops.iter().map(|(id, r)| (*id, r.as_str())).collect();
        let errnum = bench.commit_all(&ops)[0].errnum();
        if once.len() == ops.len() {
            assert_eq!(errnum == 0, good, "{ops:?}");
        } else if errnum == 0 {
            assert!(good, "{ops:?}");
        }
        if errnum == 0 {
            model = next;
        }
    }
    assert!(model.len() > 3);
}
