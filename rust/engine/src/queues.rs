//! Named queues: their groups, their orders, and their limits.

use std::collections::HashMap;
use std::fmt;

use crate::ids::{GroupId, QueueId};
use crate::node_table::Size;
use crate::queue::Order;

/// The configuration of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueOptions {
    /// Queues of the same group share one order: a pending job that cannot start blocks the later
    /// ones of its group. By default every queue is a group of its own.
    pub group: Option<String>,
    /// The order of its jobs. Queues of the same group should have the same.
    pub order: Order,
    /// Maximum number of running jobs.
    pub max_jobs: Option<u64>,
    /// Maximum number of nodes allocated to its running jobs together; a node that two jobs share
    /// counts twice.
    pub max_nodes: Option<u64>,
    /// Maximum number of cores allocated to its running jobs together.
    pub max_cores: Option<u64>,
}

#[derive(Clone, Debug)]
struct NamedQueue {
    name: String,
    options: QueueOptions,
    group: GroupId,
    jobs: u64,
    nodes: u64,
    cores: u64,
    /// A limit on the next placements, beside those of the queue.
    placement_limit: Size,
}

impl NamedQueue {
    fn exceeded(&self, counted: Counted, most: u64, excess: Excess) -> LimitExceeded {
        LimitExceeded {
            queue: self.name.clone(),
            counted,
            most,
            excess,
        }
    }
}

/// The quantity that a limit of a queue counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    Jobs,
    Nodes,
    Cores,
}

impl Counted {
    fn noun(self) -> &'static str {
        match self {
            Self::Jobs => "job",
            Self::Nodes => "node",
            Self::Cores => "core",
        }
    }
}

/// The way in which a limit is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    /// By one job alone.
    Alone { needs: u64 },
    /// By the running jobs of the queue together with one more job.
    Together { held: u64, more: u64 },
}

/// The limit of a queue that its running jobs and one more job would exceed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReachedLimit {
    counted: Counted,
    most: u64,
    held: u64,
    more: u64,
}

/// The limit of a queue that a job would exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LimitExceeded {
    queue: String,
    counted: Counted,
    most: u64,
    excess: Excess,
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queue, most, noun) = (&self.queue, self.most, self.counted.noun());
        if let Excess::Alone { needs } = self.excess {
            write!(f, "{needs} {noun}s requested, ")?;
        }
        let plural = if most == 1 { "" } else { "s" };
        write!(
            f,
            "queue `{queue}` is limited to {most} {noun}{plural} at a time"
        )?;
        match self.excess {
            Excess::Together { held, more } if self.counted != Counted::Jobs => {
                write!(f, ": its jobs hold {held}, this one would take {more}")
            }
            _ => Ok(()),
        }
    }
}

/// All queues; the first is the default one, whose name is empty.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    list: Vec<NamedQueue>,
    ids: HashMap<String, QueueId>,
    groups: HashMap<String, GroupId>,
    group_count: u32,
}

impl Default for Queues {
    fn default() -> Self {
        let mut queues = Self {
            list: Vec::new(),
            ids: HashMap::new(),
            groups: HashMap::new(),
            group_count: 0,
        };
        queues.id("");
        queues
    }
}

impl Queues {
    /// The queue with this name, created if there is none.
    pub fn id(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = QueueId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        let group = self.new_group();
        self.list.push(NamedQueue {
            name: name.to_owned(),
            options: QueueOptions::default(),
            group,
            jobs: 0,
            nodes: 0,
            cores: 0,
            placement_limit: Size::UNLIMITED,
        });
        self.ids.insert(name.to_owned(), id);
        id
    }

    fn new_group(&mut self) -> GroupId {
        let group = GroupId::new(self.group_count);
        self.group_count += 1;
        group
    }

    /// Configures a queue.
    pub fn set(&mut self, id: QueueId, options: QueueOptions) {
        let group = match &options.group {
            Some(name) => {
                let known = self.groups.get(name).copied();
                known.unwrap_or_else(|| {
                    let group = self.new_group();
                    self.groups.insert(name.clone(), group);
                    group
                })
            }
            None if self.list[id.0 as usize].options.group.is_none() => {
                self.list[id.0 as usize].group
            }
            None => self.new_group(),
        };
        let queue = &mut self.list[id.0 as usize];
        queue.group = group;
        queue.options = options;
    }

    /// The configuration of a queue.
    pub fn options(&self, id: QueueId) -> &QueueOptions {
        &self.list[id.0 as usize].options
    }

    pub fn name(&self, id: QueueId) -> &str {
        &self.list[id.0 as usize].name
    }

    pub fn group(&self, id: QueueId) -> GroupId {
        self.list[id.0 as usize].group
    }

    /// The order of its jobs.
    pub fn order(&self, id: QueueId) -> Order {
        self.list[id.0 as usize].options.order
    }

    /// Whether a queue belongs to this engine.
    pub fn has(&self, id: QueueId) -> bool {
        (id.0 as usize) < self.list.len()
    }

    /// Whether the queue has any limit.
    pub fn is_limited(&self, id: QueueId) -> bool {
        let options = &self.list[id.0 as usize].options;
        options.max_jobs.is_some() || options.max_nodes.is_some() || options.max_cores.is_some()
    }

    /// Whether any queue has a limit.
    pub fn any_limited(&self) -> bool {
        (0_u32..)
            .zip(&self.list)
            .any(|(id, _)| self.is_limited(QueueId(id)))
    }

    /// The nodes and cores that a queue leaves for another job.
    #[inline]
    pub fn room(&self, id: QueueId) -> Size {
        let queue = &self.list[id.0 as usize];
        let left = |limit: Option<u64>, held: u64| {
            limit.map_or(u64::MAX, |limit| limit.saturating_sub(held))
        };
        let room = Size {
            nodes: left(queue.options.max_nodes, queue.nodes),
            cores: left(queue.options.max_cores, queue.cores),
        };
        room.min(queue.placement_limit)
    }

    /// The limits of a queue on nodes and cores.
    pub fn most(&self, id: QueueId) -> Size {
        let options = &self.list[id.0 as usize].options;
        Size {
            nodes: options.max_nodes.unwrap_or(u64::MAX),
            cores: options.max_cores.unwrap_or(u64::MAX),
        }
    }

    /// Limits the next placements of jobs of a queue.
    pub fn restrict(&mut self, id: QueueId, limit: Size) {
        self.list[id.0 as usize].placement_limit = limit;
    }

    /// The jobs, nodes and cores that each limit of a queue leaves; negative if more are in use,
    /// `None` without a limit.
    pub fn left(&self, id: QueueId) -> [Option<i64>; 3] {
        let queue = &self.list[id.0 as usize];
        let options = &queue.options;
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        [
            (options.max_jobs, queue.jobs),
            (options.max_nodes, queue.nodes),
            (options.max_cores, queue.cores),
        ]
        .map(|(most, held)| most.map(|most| signed(most).saturating_sub(signed(held))))
    }

    /// The limits of a queue, in words.
    pub fn limits(&self, id: QueueId) -> String {
        let queue = &self.list[id.0 as usize];
        let options = &queue.options;
        let limits = [
            ("job", options.max_jobs),
            ("node", options.max_nodes),
            ("core", options.max_cores),
        ];
        let limits = limits.iter().filter_map(|(what, most)| {
            let most = (*most)?;
            let plural = if most == 1 { "" } else { "s" };
            Some(format!("{most} {what}{plural}"))
        });
        let limits: Vec<_> = limits.collect();
        format!(
            "queue `{}` is limited to {} at a time",
            queue.name,
            limits.join(" and ")
        )
    }

    /// Checks whether a job of at least this size may run if no other of the queue does. A limit of
    /// 0 closes the queue until it is raised: its jobs stay pending.
    pub fn may_ever(&self, id: QueueId, least: Size) -> Result<(), LimitExceeded> {
        let queue = &self.list[id.0 as usize];
        for (counted, needs, most) in [
            (Counted::Nodes, least.nodes, queue.options.max_nodes),
            (Counted::Cores, least.cores, queue.options.max_cores),
        ] {
            if let Some(most) = most.filter(|most| (1..needs).contains(most)) {
                return Err(queue.exceeded(counted, most, Excess::Alone { needs }));
            }
        }
        Ok(())
    }

    /// Checks whether one more job of this size may run now.
    pub fn admits(&self, id: QueueId, size: Size) -> Result<(), ReachedLimit> {
        self.check(id, 1, size)
    }

    /// Checks whether a running job may be allocated this many more nodes and cores.
    pub fn admits_more(&self, id: QueueId, size: Size) -> Result<(), ReachedLimit> {
        self.check(id, 0, size)
    }

    fn check(&self, id: QueueId, jobs: u64, size: Size) -> Result<(), ReachedLimit> {
        let queue = &self.list[id.0 as usize];
        let options = &queue.options;
        for (counted, held, more, most) in [
            (Counted::Jobs, queue.jobs, jobs, options.max_jobs),
            (Counted::Nodes, queue.nodes, size.nodes, options.max_nodes),
            (Counted::Cores, queue.cores, size.cores, options.max_cores),
        ] {
            if let Some(most) = most
                && more > 0
                && held.saturating_add(more) > most
            {
                return Err(ReachedLimit {
                    counted,
                    most,
                    held,
                    more,
                });
            }
        }
        Ok(())
    }

    /// The text of a limit that a queue has reached: which one, and what is in use.
    pub fn note(&self, id: QueueId, limit: ReachedLimit) -> String {
        let ReachedLimit {
            counted,
            most,
            held,
            more,
        } = limit;
        let queue = &self.list[id.0 as usize];
        queue
            .exceeded(counted, most, Excess::Together { held, more })
            .to_string()
    }

    /// Adds a starting job of this size to the usage of its queue.
    pub fn count_start(&mut self, id: QueueId, size: Size) {
        let queue = &mut self.list[id.0 as usize];
        queue.jobs += 1;
        queue.nodes += size.nodes;
        queue.cores += size.cores;
    }

    /// Removes a job that was counted with this size from the usage of its queue.
    pub fn count_end(&mut self, id: QueueId, size: Size) {
        let queue = &mut self.list[id.0 as usize];
        queue.jobs = queue.jobs.saturating_sub(1);
        queue.nodes = queue.nodes.saturating_sub(size.nodes);
        queue.cores = queue.cores.saturating_sub(size.cores);
    }
}
