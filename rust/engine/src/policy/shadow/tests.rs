use penstock_idset::IdSet;
use penstock_jobspec::Request;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;

use super::{AtShadowTime, Overlay, Shadow};
use crate::node_table::UnitKind;
use crate::{Engine, Job, QueueId};

fn request(nnodes: Option<u32>, slots: u32, cores: u32, duration: f64) -> Request {
    Request {
        nnodes: nnodes.map(Into::into),
        exclusive: false,
        slots: slots.into(),
        cores_per_slot: cores.into(),
        gpus_per_slot: 0.into(),
        duration,
        constraint: None,
    }
}

/// Nodes of 8, 8, 5 and 4 cores; the first two are full until 10.
fn engine() -> Engine {
    let mut r = ResourceSet::new();
    for (rank, cores) in (0..).zip([8, 8, 5, 4]) {
        r.insert(
            rank,
            &format!("n{rank}"),
            (0..cores).collect(),
            IdSet::new(),
        )
        .unwrap();
    }
    let mut engine = Engine::new(&r).unwrap();
    engine.mark_up(&r.ranks());
    let job = Job {
        id: JobId::new(1),
        priority: 16,
        request: request(Some(2), 1, 8, 10.0),
        queue: QueueId::default(),
    };
    engine.submit(job).unwrap();
    engine.schedule(0.0, 1);
    engine
}

#[test]
fn room_is_what_can_go_without_harm_and_follows_the_node_table() {
    let mut engine = engine();
    // Of three nodes with four cores each, one is spare then; none can be taken now at no cost.
    let first = engine.shape(&request(Some(3), 1, 4, 5.0));
    let mut overlay = Overlay::default();
    let shadow = Shadow::of(&mut engine.state, first, 0.0, &mut overlay);
    assert_eq!((shadow.time, shadow.spare), (10.0, 1));
    // n2 has one core more than needed, n3 none; the other nodes have no free core now.
    assert_eq!(shadow.room(&engine.state.node_table, &mut overlay), 1);
    assert_eq!(overlay.room.units(1, UnitKind::Slot), 1);
    assert_eq!(overlay.room.units(1, UnitKind::Node), 1);
    assert_eq!(overlay.room.units(2, UnitKind::Slot), 0);

    // That core is allocated, and not released by then.
    let one = engine.shape(&request(None, 1, 1, 100.0));
    let node_table = &mut engine.state.node_table;
    let shares = shadow.place_beside(node_table, &mut overlay, one).unwrap();
    assert_eq!(
        shares
            .iter()
            .map(|share| share.node.get())
            .collect::<Vec<_>>(),
        [2]
    );
    shadow.update_overlay(node_table, &mut overlay, &shares, AtShadowTime::Allocated);
    node_table.allocate(&shares);
    assert_eq!(shadow.room(node_table, &mut overlay), 0);
    assert_eq!(shadow.place_beside(node_table, &mut overlay, one), None);

    // Nodes that are down have no room; on nodes that are up, the result is unchanged.
    let mut other = self::engine();
    let mut overlay = Overlay::default();
    let first = other.shape(&request(Some(2), 1, 2, 5.0));
    let shadow = Shadow {
        shape: first,
        fungible: false,
        time: 10.0,
        spare: 0,
    };
    overlay.clear(4);
    let room =
        |engine: &Engine, overlay: &mut Overlay| shadow.room(&engine.state.node_table, overlay);
    assert_eq!(room(&other, &mut overlay), 3 + 2);
    other.mark_down(&IdSet::from_iter([2]));
    assert_eq!(room(&other, &mut overlay), 2);
    other.mark_up(&IdSet::from_iter([2]));
    assert_eq!(room(&other, &mut overlay), 3 + 2);
}
