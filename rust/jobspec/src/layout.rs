//! Placement of a job's tasks: the slots of a jobspec on the cores and gpus of its R.

use std::fmt;

use penstock_idset::IdSet;
use penstock_rset::{Node, ResourceSet};

use crate::{Count, Jobspec, MAX_TASKS, TaskCount};

/// The reason why the tasks of a job cannot be placed on its R.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutError(Reason);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Reason {
    NoNodes,
    SmallNode { rank: u32, slots: u64 },
    UnevenSlots { slots: u64, nodes: u64 },
    FewSlots { found: u64, requested: u64 },
    ManyTasks { tasks: u64, slots: u64 },
    TasksBeyondLimit { tasks: u64 },
}

impl LayoutError {
    /// Whether R has less than the jobspec requests: no nodes, or too few slots on all of them or on one.
    pub fn is_too_small(&self) -> bool {
        let Self(reason) = self;
        matches!(
            reason,
            Reason::NoNodes | Reason::SmallNode { .. } | Reason::FewSlots { .. }
        )
    }

    /// Whether the slots cannot be distributed evenly over the nodes of R.
    pub fn is_uneven(&self) -> bool {
        matches!(self.0, Reason::UnevenSlots { .. })
    }

    /// Whether the jobspec has more tasks than slots, or more than [`MAX_TASKS`].
    pub fn has_too_many_tasks(&self) -> bool {
        let Self(reason) = self;
        matches!(
            reason,
            Reason::ManyTasks { .. } | Reason::TasksBeyondLimit { .. }
        )
    }
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reason::NoNodes => f.write_str("R has no nodes"),
            Reason::SmallNode { rank, slots } => {
                write!(f, "R has too little for {slots} slots on rank {rank}")
            }
            Reason::UnevenSlots { slots, nodes } => {
                write!(
                    f,
                    "R has {slots} slots on {nodes} nodes: expected the same on each"
                )
            }
            Reason::FewSlots { found, requested } => {
                write!(f, "R has {found} slots, the jobspec asks for {requested}")
            }
            Reason::ManyTasks { tasks, slots } => {
                write!(f, "{tasks} tasks do not fit {slots} slots")
            }
            Reason::TasksBeyondLimit { tasks } => {
                write!(f, "{tasks} tasks: expected at most {MAX_TASKS}")
            }
        }
    }
}

impl std::error::Error for LayoutError {}

/// One task: its rank in the job, its node, and the cores and gpus that it may use there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskPlacement {
    /// The task's rank in the job.
    pub task_rank: u64,
    /// The task's rank on its node.
    pub local_rank: u64,
    /// The position of its node among the nodes of R.
    pub node_index: usize,
    /// The execution target.
    pub target: u32,
    /// The target's host.
    pub host: String,
    /// The logical cores that the task may use.
    pub cores: IdSet,
    /// The logical gpus that the task may use.
    pub gpus: IdSet,
}

/// The layout of a job: the slots and tasks of each node of its R.
///
/// Each slot has one task, unless `tasks[0].count.total` sets the number of tasks, which are then distributed over the
/// nodes in blocks, as evenly as possible. The spare cores of an exclusive node are distributed to its slots. If the
/// shell option `cpu-affinity` is `off`, a task may use all cores of the job on its node; likewise `gpu-affinity` for
/// gpus. The shell option `per-resource`, `{"type": "node" or "core", "count": 1}`, sets the number of tasks on each node
/// or core of R instead; they share the resources of their node. If the shell option `instance` is set, the job is an instance: one task on the first node has the whole node.
///
/// A jobspec with count ranges (RFC 14) has `nslots` slots if R has that key, otherwise as many as fit R, and each slot
/// has the same share of R.
///
/// ```
/// use penstock_jobspec::{Jobspec, Layout};
///
/// # let text = r#"{"version": 1,
/// #     "resources": [{"type": "slot", "count": 3, "label": "task", "with": [{"type": "core", "count": 2}]}],
/// #     "tasks": [{"command": ["hostname"], "slot": "task", "count": {"per_slot": 1}}],
/// #     "attributes": {"system": {"duration": 0}}}"#;
/// let jobspec = Jobspec::from_json(text)?; // three slots of two cores
/// let r = r#"{"version":1,"execution":{"R_lite":[{"rank":"7-8","children":{"core":"0-3"}}],"nodelist":["n[7-8]"]}}"#;
/// let r = r.parse()?;
/// let layout = Layout::new(&jobspec, &r)?;
/// let tasks: Vec<_> = layout.tasks().map(|task| (task.host, task.cores.to_string())).collect();
/// assert_eq!(tasks, [("n7".into(), "0-1".into()), ("n7".into(), "2-3".into()), ("n8".into(), "0-3".into())]);
/// assert_eq!(layout.target_of(2), Some(8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    nodes: Vec<NodeLayout<'a>>,
    cores_per_task: PerTask,
    gpus_per_task: PerTask,
}

/// Which of a job's cores or gpus on a node a task may use.
#[derive(Clone, Copy, Debug)]
enum PerTask {
    /// The cores or gpus of its slot.
    Slot,
    /// All that the job has on the node.
    Node,
}

impl PerTask {
    /// The ids for each slot of a node: consecutive ids, with one more for the first slots if there is a remainder; or all
    /// ids for each slot.
    fn shares(self, ids: &IdSet, slots: u64) -> impl Iterator<Item = IdSet> + use<> {
        let (parts, whole) = match self {
            Self::Slot => (ids.split(slots.max(1)), None),
            Self::Node => (Vec::new(), Some(ids.clone())),
        };
        parts
            .into_iter()
            .chain(std::iter::from_fn(move || whole.clone()))
    }
}

/// The shell option `per-resource`: a number of tasks on each node or core, whatever the slots.
#[derive(Clone, Copy, Debug)]
struct PerResource {
    is_core: bool,
    count: u64,
}

impl PerResource {
    fn read(option: &serde_json::Value) -> Option<Self> {
        let is_core = match option.get("type")?.as_str()? {
            "node" => false,
            "core" => true,
            _ => return None,
        };
        let count = option
            .get("count")
            .map_or(Some(1), serde_json::Value::as_u64)?;
        Some(Self { is_core, count })
    }

    fn tasks_on(self, node: &Node<'_>) -> u64 {
        let resources = if self.is_core { node.cores.len() } else { 1 };
        resources.saturating_mul(self.count)
    }
}

#[derive(Clone, Debug)]
struct NodeLayout<'a> {
    node: Node<'a>,
    slots: u64,
    tasks: u64,
}

/// The slots of a job, and the resources of each.
struct Slots {
    total: u64,
    cores: u64,
    gpus: u64,
}

impl<'a> Layout<'a> {
    /// Places the tasks of a job on its R.
    ///
    /// # Errors
    ///
    /// Fails if R has no nodes, fewer slots than the jobspec requests, or a different number on some nodes although the
    /// jobspec requires the same; if the requested number of tasks does not fit the slots; or if it is greater than
    /// [`MAX_TASKS`].
    pub fn new(jobspec: &Jobspec, r: &'a ResourceSet) -> Result<Self, LayoutError> {
        let nodes: Vec<Node<'a>> = r.nodes().collect();
        let Ok(count @ 1..) = u64::try_from(nodes.len()) else {
            return Err(LayoutError(Reason::NoNodes));
        };
        let slots = granted_slots(jobspec, r, &nodes)?;
        let by_node = if jobspec.request().nnodes.is_some() {
            vec![slots.total / count; nodes.len()]
        } else {
            slots.by_node(&nodes)?
        };
        for (node, &here) in nodes.iter().zip(&by_node) {
            let is_too_small = |ids: &IdSet, of_slot: u64| ids.len() < here.saturating_mul(of_slot);
            if is_too_small(node.cores, slots.cores) || is_too_small(node.gpus, slots.gpus) {
                let rank = node.rank;
                return Err(LayoutError(Reason::SmallNode { rank, slots: here }));
            }
        }
        let option = |name: &str| jobspec.attribute("system.shell.options")?.get(name);
        let is_instance = option("instance").is_some_and(is_set);
        let per_task = |affinity| match option(affinity) {
            _ if is_instance => PerTask::Node,
            Some(value) if value == "off" => PerTask::Node,
            _ => PerTask::Slot,
        };
        let per_resource = option("per-resource").and_then(PerResource::read);
        let tasks: Vec<u64> = match (per_resource, jobspec.tasks) {
            _ if is_instance => (0..nodes.len()).map(|node| u64::from(node == 0)).collect(),
            (Some(per_resource), _) => nodes
                .iter()
                .map(|node| per_resource.tasks_on(node))
                .collect(),
            (None, TaskCount::PerSlot(count)) => by_node
                .iter()
                .map(|slots| slots * u64::from(count))
                .collect(),
            (None, TaskCount::Total(total)) => spread(total, &by_node)?,
        };
        let total = tasks.iter().fold(0, |sum: u64, &on| sum.saturating_add(on));
        if total > MAX_TASKS {
            return Err(LayoutError(Reason::TasksBeyondLimit { tasks: total }));
        }
        // Tasks per resource share what the job has on the node.
        let by_node = if per_resource.is_some() {
            tasks.clone()
        } else {
            by_node
        };
        let shares = nodes.into_iter().zip(by_node).zip(tasks);
        Ok(Self {
            nodes: shares
                .map(|((node, slots), tasks)| NodeLayout { node, slots, tasks })
                .collect(),
            cores_per_task: per_task("cpu-affinity"),
            gpus_per_task: per_task("gpu-affinity"),
        })
    }

    /// The number of tasks of the job.
    pub fn ntasks(&self) -> u64 {
        self.tasks_by_node().sum()
    }

    /// The number of tasks on each node of R. Ranks ascend from node to node.
    pub fn tasks_by_node(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter().map(|layout| layout.tasks)
    }

    /// The tasks by rank.
    pub fn tasks(&self) -> impl Iterator<Item = TaskPlacement> {
        let nodes = self.nodes.iter().enumerate();
        let tasks = nodes.flat_map(|(node_index, layout)| {
            let NodeLayout { node, slots, tasks } = layout;
            let mut cores = self.cores_per_task.shares(node.cores, *slots);
            let mut gpus = self.gpus_per_task.shares(node.gpus, *slots);
            (0..*tasks).map(move |local_rank| TaskPlacement {
                task_rank: 0,
                local_rank,
                node_index,
                target: node.rank,
                host: node.host.clone(),
                cores: cores.next().unwrap_or_default(),
                gpus: gpus.next().unwrap_or_default(),
            })
        });
        (0..)
            .zip(tasks)
            .map(|(task_rank, task)| TaskPlacement { task_rank, ..task })
    }

    /// The execution target of a task; `None` for a rank that the job does not have.
    pub fn target_of(&self, task: u64) -> Option<u32> {
        let mut end = 0;
        let layout = self.nodes.iter().find(|layout| {
            end += layout.tasks;
            task < end
        });
        layout.map(|layout| layout.node.rank)
    }
}

/// The slots of a jobspec on R.
fn granted_slots(
    jobspec: &Jobspec,
    r: &ResourceSet,
    nodes: &[Node<'_>],
) -> Result<Slots, LayoutError> {
    let request = jobspec.request();
    let has_nodes = request.nnodes.is_some();
    let count = nodes.len() as u64;
    let mut slots = Slots {
        total: 0,
        cores: request.cores_per_slot.min().into(),
        gpus: request.gpus_per_slot.min().into(),
    };
    slots.total = if request.slots.is_exact() {
        u64::from(request.slots.min()) * if has_nodes { count } else { 1 }
    } else if let Some(nslots) = r.nslots() {
        nslots
    } else {
        let room = nodes.iter().map(|node| slots.room_on(node));
        if has_nodes {
            largest(&request.slots, room.min().unwrap_or(0)) * count
        } else {
            largest(&request.slots, room.sum())
        }
    };
    if has_nodes {
        // The slots of a node share its resources.
        if !slots.total.is_multiple_of(count) {
            return Err(LayoutError(Reason::UnevenSlots {
                slots: slots.total,
                nodes: count,
            }));
        }
    } else {
        let total = slots.total;
        let share = |ids: u64| ids.checked_div(total).unwrap_or(0);
        if !request.cores_per_slot.is_exact() {
            slots.cores = slots.cores.max(share(r.ncores()));
        }
        if !request.gpus_per_slot.is_exact() {
            slots.gpus = slots.gpus.max(share(r.ngpus()));
        }
    }
    Ok(slots)
}

/// The largest acceptable number not above `most`, or the least acceptable number.
fn largest(count: &Count, most: u64) -> u64 {
    let most = u32::try_from(most).unwrap_or(u32::MAX);
    count.largest_up_to(most).unwrap_or(count.min()).into()
}

impl Slots {
    /// The number of slots that fit a node.
    fn room_on(&self, node: &Node<'_>) -> u64 {
        let by_cores = node.cores.len() / self.cores.max(1);
        let by_gpus = node.gpus.len().checked_div(self.gpus);
        by_gpus.map_or(by_cores, |by_gpus| by_cores.min(by_gpus))
    }

    /// The number of slots of each node; the first nodes are filled first.
    fn by_node(&self, nodes: &[Node<'_>]) -> Result<Vec<u64>, LayoutError> {
        let mut left = self.total;
        let slots = nodes.iter().map(|node| {
            let here = self.room_on(node).min(left);
            left -= here;
            here
        });
        let slots = slots.collect();
        if left > 0 {
            return Err(LayoutError(Reason::FewSlots {
                found: self.total - left,
                requested: self.total,
            }));
        }
        Ok(slots)
    }
}

/// The number of tasks of each node: in turn one more on each node with a free slot, until all are placed.
fn spread(total: u64, slots: &[u64]) -> Result<Vec<u64>, LayoutError> {
    let mut tasks = vec![0; slots.len()];
    let mut left = total;
    while left > 0 {
        let spare: Vec<usize> = (0..slots.len())
            .filter(|&node| tasks[node] < slots[node])
            .collect();
        if spare.is_empty() {
            return Err(LayoutError(Reason::ManyTasks {
                tasks: total,
                slots: slots.iter().sum(),
            }));
        }
        let more_each = (left / spare.len() as u64).max(1);
        for node in spare {
            let more = more_each.min(slots[node] - tasks[node]).min(left);
            tasks[node] += more;
            left -= more;
        }
    }
    Ok(tasks)
}

/// Whether the value of a shell option enables it.
fn is_set(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match value {
        Value::Null => false,
        Value::Bool(is_set) => *is_set,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn jobspec(resources: &Value, count: &Value, options: &Value) -> Jobspec {
        let document = json!({
            "version": 1,
            "resources": [resources],
            "tasks": [{"command": ["app"], "slot": "task", "count": count}],
            "attributes": {"system": {"duration": 0, "shell": {"options": options}}},
        });
        Jobspec::from_json(&document.to_string()).unwrap()
    }

    fn slot(count: &Value, cores: &Value, gpus: u32) -> Value {
        let mut with = vec![json!({"type": "core", "count": cores})];
        if gpus > 0 {
            with.push(json!({"type": "gpu", "count": gpus}));
        }
        json!({"type": "slot", "count": count, "label": "task", "with": with})
    }

    fn node(count: u32, slot: &Value) -> Value {
        json!({"type": "node", "count": count, "with": [slot]})
    }

    fn uniform(nodes: u32, cores: u32, gpus: u32) -> ResourceSet {
        let ids = |count: u32| (0..count).collect::<IdSet>();
        let hosts = format!("node[0-{}]", nodes - 1).parse().unwrap();
        ResourceSet::uniform(&ids(nodes), &hosts, ids(cores), ids(gpus)).unwrap()
    }

    #[test]
    fn tasks_per_resource_share_their_node() {
        let tasks = |kind: &str, count: u32| {
            let options = json!({"per-resource": {"type": kind, "count": count}});
            let slots = slot(&json!(4), &json!(2), 0);
            let jobspec = jobspec(&slots, &json!({"per_slot": 1}), &options);
            let r = uniform(2, 4, 0);
            let layout = Layout::new(&jobspec, &r).unwrap();
            let tasks = layout.tasks();
            tasks
                .map(|task| (task.target, task.cores.to_string()))
                .collect::<Vec<_>>()
        };
        let named = |tasks: &[(u32, &str)]| {
            let owned = |(target, cores): &(u32, &str)| (*target, (*cores).to_owned());
            tasks.iter().map(owned).collect::<Vec<_>>()
        };
        assert_eq!(tasks("node", 1), named(&[(0, "0-3"), (1, "0-3")]));
        let two = [(0, "0-1"), (0, "2-3"), (1, "0-1"), (1, "2-3")];
        assert_eq!(tasks("node", 2), named(&two));
        let cores = ["0", "1", "2", "3"];
        let each = [0, 1]
            .into_iter()
            .flat_map(|target| cores.map(|core| (target, core)));
        assert_eq!(tasks("core", 1), named(&each.collect::<Vec<_>>()));
        // Another option of this name has no effect.
        assert_eq!(tasks("rack", 1).len(), 4);
    }

    fn per_slot() -> Value {
        json!({"per_slot": 1})
    }

    fn shown(jobspec: &Jobspec, r: &ResourceSet) -> Vec<(u32, u64, String, String)> {
        let layout = Layout::new(jobspec, r).unwrap();
        let tasks = layout.tasks().inspect(|task| {
            assert_eq!(layout.target_of(task.task_rank), Some(task.target));
        });
        tasks
            .map(|task| {
                let (cores, gpus) = (task.cores.to_string(), task.gpus.to_string());
                (task.target, task.local_rank, cores, gpus)
            })
            .collect()
    }

    fn row(target: u32, local_rank: u64, cores: &str, gpus: &str) -> (u32, u64, String, String) {
        (target, local_rank, cores.to_owned(), gpus.to_owned())
    }

    #[test]
    fn slots_fill_the_lowest_ranks() {
        let jobspec = jobspec(&slot(&json!(3), &json!(2), 1), &per_slot(), &json!({}));
        let expected = [
            row(0, 0, "0-1", "0"),
            row(0, 1, "2-3", "1"),
            row(1, 0, "0-3", "0-1"),
        ];
        assert_eq!(shown(&jobspec, &uniform(2, 4, 2)), expected);
        assert_eq!(
            Layout::new(&jobspec, &uniform(2, 4, 2))
                .unwrap()
                .target_of(3),
            None
        );
    }

    #[test]
    fn tasks_that_do_not_divide_go_in_blocks() {
        let resources = node(4, &slot(&json!(2), &json!(1), 0));
        let jobspec = jobspec(&resources, &json!({"total": 6}), &json!({}));
        let targets: Vec<u32> = shown(&jobspec, &uniform(4, 4, 0))
            .iter()
            .map(|row| row.0)
            .collect();
        assert_eq!(targets, [0, 0, 1, 1, 2, 3]);
    }

    #[test]
    fn affinity_may_be_off_for_cores_and_for_gpus() {
        let resources = slot(&json!(6), &json!(1), 1);
        let last = |options: Value| {
            let jobspec = jobspec(&resources, &per_slot(), &options);
            shown(&jobspec, &uniform(2, 4, 4)).pop().unwrap()
        };
        assert_eq!(
            last(json!({"cpu-affinity": "off"})),
            row(1, 1, "0-3", "2-3")
        );
        assert_eq!(
            last(json!({"gpu-affinity": "off"})),
            row(1, 1, "2-3", "0-3")
        );
    }

    #[test]
    fn an_instance_is_one_task_with_all_of_its_node() {
        let resources = slot(&json!(6), &json!(1), 1);
        let options = json!({"instance": {"conf": {}}});
        let jobspec = jobspec(&resources, &per_slot(), &options);
        assert_eq!(
            shown(&jobspec, &uniform(2, 4, 4)),
            [row(0, 0, "0-3", "0-3")]
        );
    }

    #[test]
    fn ranges_have_as_many_slots_as_were_granted() {
        let layout = |resources: Value, nslots| {
            let mut r = uniform(2, 5, 0);
            r.set_nslots(nslots);
            shown(&jobspec(&resources, &per_slot(), &json!({})), &r).len()
        };
        let any = || slot(&json!("1+"), &json!(1), 0);
        assert_eq!((layout(any(), Some(7)), layout(any(), None)), (7, 10));
        assert_eq!(layout(slot(&json!("1+:2:*"), &json!(2), 0), None), 4);
        assert_eq!(layout(node(2, &slot(&json!("1-3"), &json!(1), 0)), None), 6);
        let jobspec = jobspec(
            &slot(&json!("1+"), &json!("1-8"), 0),
            &per_slot(),
            &json!({}),
        );
        let mut r = uniform(2, 4, 0);
        r.set_nslots(Some(2));
        assert_eq!(
            shown(&jobspec, &r),
            [row(0, 0, "0-3", ""), row(1, 0, "0-3", "")]
        );
    }

    #[test]
    fn an_r_that_does_not_fit_is_an_error() {
        for (resources, r, nslots, expected) in [
            (
                slot(&json!(3), &json!(1), 0),
                uniform(1, 2, 0),
                None,
                "R has 2 slots, the jobspec asks for 3",
            ),
            (
                node(2, &slot(&json!(3), &json!(1), 0)),
                uniform(2, 2, 0),
                None,
                "R has too little for 3 slots on rank 0",
            ),
            (
                node(2, &slot(&json!("1-3"), &json!(1), 0)),
                uniform(2, 4, 0),
                Some(5),
                "R has 5 slots on 2 nodes: expected the same on each",
            ),
            (
                slot(&json!(1), &json!(1), 0),
                ResourceSet::new(),
                None,
                "R has no nodes",
            ),
        ] {
            let mut r = r;
            r.set_nslots(nslots);
            let error = Layout::new(&jobspec(&resources, &per_slot(), &json!({})), &r).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        assert_eq!(
            spread(7, &[2, 4]).unwrap_err().to_string(),
            "7 tasks do not fit 6 slots"
        );
    }

    #[test]
    fn more_tasks_than_the_limit_are_rejected_before_one_is_placed() {
        for (kind, count, tasks) in [
            ("node", MAX_TASKS, 2 * MAX_TASKS),
            ("core", MAX_TASKS / 4, 2 * MAX_TASKS),
        ] {
            let options = json!({"per-resource": {"type": kind, "count": count}});
            let jobspec = jobspec(&slot(&json!(1), &json!(1), 0), &per_slot(), &options);
            let r = uniform(2, 4, 0);
            let error = Layout::new(&jobspec, &r).unwrap_err();
            assert!(error.has_too_many_tasks());
            assert_eq!(
                error.to_string(),
                format!("{tasks} tasks: expected at most {MAX_TASKS}")
            );
            let r = uniform(1, 4, 0);
            let layout = Layout::new(&jobspec, &r).unwrap();
            assert_eq!(layout.ntasks(), MAX_TASKS);
            assert_eq!(layout.target_of(MAX_TASKS - 1), Some(0));
        }
    }

    proptest! {
        #[test]
        fn tasks_are_spread_one_by_one(slots in prop::collection::vec(0..6_u64, 1..6), part in 0.0..=1.0) {
            let all: u64 = slots.iter().sum();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss,
                     reason = "a part of a small number")]
            let total = (all as f64 * part) as u64;
            let tasks = spread(total, &slots).unwrap();
            prop_assert_eq!(tasks.iter().sum::<u64>(), total);
            // A node has fewer tasks than another by more than one only if its slots are full.
            for (node, &here) in tasks.iter().enumerate() {
                prop_assert!(here <= slots[node]);
                prop_assert!(here == slots[node] || tasks.iter().all(|&there| there <= here + 1));
            }
        }

        #[test]
        fn every_task_has_cores_and_gpus_of_its_own(nodes in 1..4_u32, slots in 1..9_u32, cores in 1..4_u32) {
            let resources = slot(&json!(slots), &json!(cores), 1);
            let jobspec = jobspec(&resources, &per_slot(), &json!({}));
            let r = uniform(nodes, 8, 3);
            let room = nodes * (8 / cores).min(3);
            let layout = Layout::new(&jobspec, &r);
            prop_assert_eq!(layout.is_ok(), slots <= room);
            let Ok(layout) = layout else { return Ok(()) };
            let tasks: Vec<_> = layout.tasks().collect();
            prop_assert_eq!(tasks.len(), slots as usize);
            for (rank, task) in tasks.iter().enumerate() {
                prop_assert_eq!(task.task_rank, rank as u64);
                prop_assert!(task.cores.len() >= u64::from(cores) && !task.gpus.is_empty());
                for other in &tasks[..rank] {
                    prop_assert!(other.target != task.target || other.cores.is_disjoint(&task.cores));
                    prop_assert!(other.target != task.target || other.gpus.is_disjoint(&task.gpus));
                }
            }
        }
    }
}
