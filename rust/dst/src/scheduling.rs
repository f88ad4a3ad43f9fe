//! A scheduler whose decisions are compared with the messages that it has received.

use penstock_flux::acquire::{ChangeResponse, InventoryResponse};
use penstock_flux::{Json, TypedPayload, topic};
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_sched::{Options, Phase, Scheduler};
use penstock_wire::{Message, MessageType};

/// The place of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Within the daemon.
    Inside,
    /// In a process of its own, over a connection.
    Process,
}

impl Placement {
    /// Its name in scripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::Process => "process",
        }
    }
}

/// A scheduler, and the ranks that are up by the responses that it has received.
pub struct CheckedScheduler {
    scheduler: Scheduler,
    up: IdSet,
    /// The ranks of its inventory.
    ranks: IdSet,
    /// Messages to be sent, checked.
    out: Vec<Message>,
    violations: Vec<String>,
}

impl CheckedScheduler {
    /// A scheduler that has begun its handshake.
    pub fn start() -> Self {
        let mut scheduler = Scheduler::new(Options::default());
        scheduler.start();
        Self {
            scheduler,
            up: IdSet::new(),
            ranks: IdSet::new(),
            out: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// The phase of its handshake.
    pub fn phase(&self) -> &Phase {
        self.scheduler.phase()
    }

    /// When it is to run next.
    pub fn deadline(&self) -> Option<f64> {
        self.scheduler.deadline()
    }

    /// The resources that it counts as allocated; `None` before its inventory is known.
    pub fn allocated(&self) -> Option<ResourceSet> {
        self.scheduler.engine()?.allocated().ok()
    }

    /// The ranks of its inventory.
    pub fn ranks(&self) -> &IdSet {
        &self.ranks
    }

    /// Hands it a message.
    pub fn handle(&mut self, message: &Message) {
        if message.kind == MessageType::Response && message.topic() == topic::resource::ACQUIRE {
            self.record_inventory(message);
        }
        self.scheduler.handle(message);
        self.check_out();
    }

    fn record_inventory(&mut self, message: &Message) {
        if message.errnum() != 0 {
            return;
        }
        // The bytes, not the value that the scheduler reads.
        if let Ok(inventory) = message.read::<InventoryResponse<'_>>() {
            self.up = inventory.up;
            self.ranks = ranks_of(inventory.resources);
        } else if let Ok(change) = message.read::<ChangeResponse<Json<'_>>>() {
            if let Some(up) = &change.up {
                self.up = &self.up | up;
            }
            if let Some(grown) = change.grow {
                self.ranks.union_with(&ranks_of(grown));
            }
            if let Some(removed) = &change.shrink {
                self.ranks = &self.ranks - removed;
            }
            for down in change.down.iter().chain(change.shrink.iter()) {
                self.up = &self.up - down;
            }
        }
    }

    /// Runs a pass, and does a part of the estimates. Returns whether there is more to do at once.
    pub fn schedule(&mut self, now: f64) -> bool {
        let has_more = self.scheduler.schedule(now) | self.scheduler.advance_forecasts(now);
        if self.scheduler.deadline().is_some_and(|at| at <= now) {
            self.scheduler.annotate(now);
            self.scheduler.defer_annotations(now, 0.0);
        }
        has_more
    }

    /// Takes the messages to be sent.
    pub fn take_out(&mut self) -> Vec<Message> {
        self.check_out();
        std::mem::take(&mut self.out)
    }

    /// Checks the allocations since the last message against the ranks that are up after it.
    fn check_out(&mut self) {
        let messages = self.scheduler.take_out();
        for message in &messages {
            let Some(TypedPayload::Commit(allocations)) = message.typed() else {
                continue;
            };
            for allocation in allocations.iter() {
                let down = &allocation.r.ranks() - &self.up;
                if !down.is_empty() {
                    let (id, up) = (allocation.id, &self.up);
                    let text = format!("job {id} is allocated {down}, up are {up}");
                    self.violations.push(text);
                }
            }
        }
        self.out.extend(messages);
    }

    /// Takes the allocations of ranks that it knew to be down.
    pub fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }
}

fn ranks_of(r: Json<'_>) -> IdSet {
    ResourceSet::from_json(r.as_str()).map_or_else(|_| IdSet::new(), |r| r.ranks())
}
