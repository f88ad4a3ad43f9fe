//! Named queues: which of them share an order, and how much of each may run.

use std::collections::HashMap;

use crate::machine::Size;
use crate::queue::{Order, QueueId};

/// What a queue is to be like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueOptions {
    /// Queues of the same group share one order: a job that waits for resources blocks the later
    /// ones of its group. By default every queue is a group of its own.
    pub group: Option<String>,
    /// Which of its jobs goes first. Queues of the same group should have the same.
    pub order: Order,
    /// Jobs that may run at the same time.
    pub max_jobs: Option<u64>,
    /// Nodes that its jobs may hold together; one that two jobs share counts twice.
    pub max_nodes: Option<u64>,
    /// Cores that its jobs may hold together.
    pub max_cores: Option<u64>,
}

#[derive(Clone, Debug)]
struct Named {
    name: String,
    options: QueueOptions,
    group: u32,
    jobs: u64,
    nodes: u64,
    cores: u64,
    /// The most that a placement may take, whatever the limits leave.
    cap: Size,
}

/// All queues, the one without a name first.
#[derive(Clone, Debug)]
pub(crate) struct Queues {
    named: Vec<Named>,
    ids: HashMap<String, QueueId>,
    groups: HashMap<String, u32>,
    group_count: u32,
}

impl Default for Queues {
    fn default() -> Self {
        let mut queues = Self {
            named: Vec::new(),
            ids: HashMap::new(),
            groups: HashMap::new(),
            group_count: 0,
        };
        queues.id("");
        queues
    }
}

impl Queues {
    /// The queue with this name, made where there is none.
    pub fn id(&mut self, name: &str) -> QueueId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = QueueId(u32::try_from(self.named.len()).unwrap_or(u32::MAX));
        let group = self.new_group();
        self.named.push(Named {
            name: name.to_owned(),
            options: QueueOptions::default(),
            group,
            jobs: 0,
            nodes: 0,
            cores: 0,
            cap: Size::UNLIMITED,
        });
        self.ids.insert(name.to_owned(), id);
        id
    }

    fn new_group(&mut self) -> u32 {
        let group = self.group_count;
        self.group_count += 1;
        group
    }

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
            None if self.named[id.0 as usize].options.group.is_none() => {
                self.named[id.0 as usize].group
            }
            None => self.new_group(),
        };
        let named = &mut self.named[id.0 as usize];
        named.group = group;
        named.options = options;
    }

    pub fn name(&self, id: QueueId) -> &str {
        &self.named[id.0 as usize].name
    }

    pub fn group(&self, id: QueueId) -> u32 {
        self.named[id.0 as usize].group
    }

    /// Which of its jobs goes first.
    pub fn order(&self, id: QueueId) -> Order {
        self.named[id.0 as usize].options.order
    }

    pub fn has(&self, id: QueueId) -> bool {
        (id.0 as usize) < self.named.len()
    }

    /// Whether the queue has any limit.
    pub fn is_limited(&self, id: QueueId) -> bool {
        let options = &self.named[id.0 as usize].options;
        options.max_jobs.is_some() || options.max_nodes.is_some() || options.max_cores.is_some()
    }

    /// Whether any queue has a limit.
    pub fn any_limited(&self) -> bool {
        (0_u32..)
            .zip(&self.named)
            .any(|(id, _)| self.is_limited(QueueId(id)))
    }

    /// Nodes and cores that the limits of a queue leave for one job more.
    #[inline]
    pub fn room(&self, id: QueueId) -> Size {
        let named = &self.named[id.0 as usize];
        let left =
            |most: Option<u64>, held: u64| most.map_or(u64::MAX, |it| it.saturating_sub(held));
        let room = Size {
            nodes: left(named.options.max_nodes, named.nodes),
            cores: left(named.options.max_cores, named.cores),
        };
        room.min(named.cap)
    }

    /// Nodes and cores that the limits of a queue allow at the most.
    pub fn most(&self, id: QueueId) -> Size {
        let options = &self.named[id.0 as usize].options;
        Size {
            nodes: options.max_nodes.unwrap_or(u64::MAX),
            cores: options.max_cores.unwrap_or(u64::MAX),
        }
    }

    /// From now on, placements of a queue are to take no more than this.
    pub fn restrict(&mut self, id: QueueId, cap: Size) {
        self.named[id.0 as usize].cap = cap;
    }

    /// Jobs, nodes and cores that each limit of a queue leaves; less than nothing where more is
    /// held, `None` where there is no limit.
    pub fn left(&self, id: QueueId) -> [Option<i64>; 3] {
        let named = &self.named[id.0 as usize];
        let options = &named.options;
        let signed = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
        [
            (options.max_jobs, named.jobs),
            (options.max_nodes, named.nodes),
            (options.max_cores, named.cores),
        ]
        .map(|(most, held)| most.map(|most| signed(most).saturating_sub(signed(held))))
    }

    /// What the limits of a queue are, in words.
    pub fn limits(&self, id: QueueId) -> String {
        let named = &self.named[id.0 as usize];
        let options = &named.options;
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
            named.name,
            limits.join(" and ")
        )
    }

    /// Whether a job that takes so much may run when no other of the queue does; else which limit
    /// it exceeds. A limit of 0 closes the queue for a while: jobs wait.
    pub fn may_ever(&self, id: QueueId, least: Size) -> Result<(), String> {
        let named = &self.named[id.0 as usize];
        for (what, needs, most) in [
            ("node", least.nodes, named.options.max_nodes),
            ("core", least.cores, named.options.max_cores),
        ] {
            if let Some(most) = most.filter(|most| (1..needs).contains(most)) {
                let name = &named.name;
                let plural = if most == 1 { "" } else { "s" };
                return Err(format!(
                    "{needs} {what}s requested, queue `{name}` is limited to {most} {what}{plural} \
                     at a time"
                ));
            }
        }
        Ok(())
    }

    /// Whether one more job with so many nodes and cores may run; else which limit it exceeds.
    pub fn admits(&self, id: QueueId, nodes: u64, cores: u64) -> Result<(), String> {
        self.within(id, 1, nodes, cores)
    }

    /// Whether a job that runs may have so many nodes and cores more; else which limit it exceeds.
    pub fn admits_more(&self, id: QueueId, nodes: u64, cores: u64) -> Result<(), String> {
        self.within(id, 0, nodes, cores)
    }

    fn within(&self, id: QueueId, jobs: u64, nodes: u64, cores: u64) -> Result<(), String> {
        let named = &self.named[id.0 as usize];
        let options = &named.options;
        for (what, held, more, most) in [
            ("job", named.jobs, jobs, options.max_jobs),
            ("node", named.nodes, nodes, options.max_nodes),
            ("core", named.cores, cores, options.max_cores),
        ] {
            if let Some(most) = most
                && more > 0
                && held.saturating_add(more) > most
            {
                let name = &named.name;
                let plural = if most == 1 { "" } else { "s" };
                let most = format!("queue `{name}` is limited to {most} {what}{plural} at a time");
                return Err(match what {
                    "job" => most,
                    _ => format!("{most}: its jobs hold {held}, this one would take {more}"),
                });
            }
        }
        Ok(())
    }

    /// A job of the queue starts or is over.
    pub fn count(&mut self, id: QueueId, nodes: u32, cores: u64, starts: bool) {
        let named = &mut self.named[id.0 as usize];
        if starts {
            named.jobs += 1;
            named.nodes += u64::from(nodes);
            named.cores += cores;
        } else {
            named.jobs = named.jobs.saturating_sub(1);
            named.nodes = named.nodes.saturating_sub(u64::from(nodes));
            named.cores = named.cores.saturating_sub(cores);
        }
    }
}
