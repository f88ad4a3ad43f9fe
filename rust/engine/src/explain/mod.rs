//! Reasons: why a job is pending, as data and as a sentence.

mod lookup;
mod shortage;

pub use shortage::{Field, Lack, Nearest, RequestUnit, Shortage};

use penstock_jobspec::job_id::JobId;

use crate::QueueId;
use crate::node_table::counted;
use crate::verdict::Interference;

/// Why a job is pending.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Its priority is 0.
    Held,
    /// The whole inventory, up and idle, could not run it.
    Impossible {
        /// The note of its denial: which requirement is impossible, and the available maximum.
        note: String,
    },
    /// It would end after the resources expire, and such jobs are denied.
    Outlives {
        /// Its end if it started now, seconds since the epoch; infinite without a time limit.
        end: f64,
        /// The expiration of the resources, seconds since the epoch.
        resources: f64,
    },
    /// Its queue is at a limit.
    QueueLimit(QueueLimit),
    /// No node that its constraint allows is up.
    Down {
        /// The constraint, as JSON; `None` if it has none.
        constraint: Option<String>,
        /// The number of nodes that meet it.
        nodes: u32,
    },
    /// The resources that it needs are not free.
    Insufficient {
        /// Requested and available units.
        shortage: Shortage,
        /// The blocked head of its group of queues, if that is another job, before it.
        behind: Option<JobId>,
    },
    /// It has a reservation.
    Reserved {
        /// When that begins, seconds since the epoch.
        at: f64,
        /// Requested and available units; `None` if it fits now.
        shortage: Option<Shortage>,
        /// The limit of its queue that it would exceed now.
        limit: Option<QueueLimit>,
    },
    /// It fits, but the policy lets no job pass the blocked head.
    Behind {
        /// The blocked head.
        job: JobId,
    },
    /// It fits, but would delay a job with a reservation.
    BehindReservation {
        /// The job with the reservation.
        job: JobId,
        /// When that begins, seconds since the epoch; infinite if it depends on running jobs
        /// without a time limit.
        at: f64,
        /// The units of the reservation that it would take, under EASY backfill.
        interference: Option<Interference>,
    },
    /// It fits, but would leave a job with a reservation too little of the limits of their queue.
    BehindLimit {
        /// The queue.
        queue: QueueId,
        /// The job with the reservation.
        job: JobId,
        /// When that begins, seconds since the epoch; infinite if unknown.
        at: f64,
        /// The limits.
        note: String,
    },
    /// The next pass starts it: something has changed since the last one.
    Unconsidered,
}

/// A limit of a queue that a job would exceed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueLimit {
    /// The queue.
    pub queue: QueueId,
    /// Which limit, and what is in use.
    pub note: String,
}

impl QueueLimit {
    fn fields(&self, fields: &mut Vec<(&'static str, Field)>) {
        fields.push(("queue", Field::Queue(self.queue)));
        fields.push(("note", Field::Text(self.note.clone())));
    }
}

impl Reason {
    /// The kind of the reason, as one word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Impossible { .. } => "impossible",
            Self::Outlives { .. } => "outlives",
            Self::QueueLimit(_) => "queue-limit",
            Self::Down { .. } => "down",
            Self::Insufficient { .. } => "insufficient",
            Self::Reserved { .. } => "reserved",
            Self::Behind { .. } => "behind",
            Self::BehindReservation { .. } => "behind-reservation",
            Self::BehindLimit { .. } => "behind-limit",
            Self::Unconsidered => "unconsidered",
        }
    }

    /// The values of the reason by name, in order.
    pub fn fields(&self) -> Vec<(&'static str, Field)> {
        let mut fields = Vec::new();
        match self {
            Self::Held | Self::Unconsidered => {}
            Self::Impossible { note } => fields.push(("note", Field::Text(note.clone()))),
            Self::Outlives { end, resources } => {
                if end.is_finite() {
                    fields.push(("end", Field::Time(*end)));
                }
                fields.push(("resources_end", Field::Time(*resources)));
            }
            Self::QueueLimit(limit) => limit.fields(&mut fields),
            Self::Down { constraint, nodes } => {
                if let Some(constraint) = constraint {
                    fields.push(("constraint", Field::Text(constraint.clone())));
                }
                fields.push(("nodes", Field::Count(u64::from(*nodes))));
            }
            Self::Insufficient { shortage, behind } => {
                shortage.fields(&mut fields);
                if let Some(job) = behind {
                    fields.push(("behind", Field::Job(*job)));
                }
            }
            Self::Reserved {
                at,
                shortage,
                limit,
            } => {
                fields.push(("at", Field::Time(*at)));
                if let Some(shortage) = shortage {
                    shortage.fields(&mut fields);
                }
                if let Some(limit) = limit {
                    limit.fields(&mut fields);
                }
            }
            Self::Behind { job } => fields.push(("behind", Field::Job(*job))),
            Self::BehindReservation {
                job,
                at,
                interference,
            } => {
                fields.push(("behind", Field::Job(*job)));
                if at.is_finite() {
                    fields.push(("at", Field::Time(*at)));
                }
                if let Some(Interference { takes, spare }) = interference {
                    fields.push(("takes", Field::Count(takes.get())));
                    fields.push(("spare", Field::Count(*spare)));
                }
            }
            Self::BehindLimit {
                queue,
                job,
                at,
                note,
            } => {
                fields.push(("behind", Field::Job(*job)));
                if at.is_finite() {
                    fields.push(("at", Field::Time(*at)));
                }
                fields.push(("queue", Field::Queue(*queue)));
                fields.push(("note", Field::Text(note.clone())));
            }
        }
        fields
    }

    /// The reason as a sentence without its full stop.
    ///
    /// Times are relative to `now`; `name` formats a job id.
    pub fn sentence(&self, now: f64, name: &dyn Fn(JobId) -> String) -> String {
        match self {
            Self::Held => "held: its priority is 0".to_owned(),
            Self::Impossible { note } => format!("can never run here: {note}"),
            Self::Outlives { end, resources } => {
                let left = span(resources - now);
                if *resources <= now {
                    "the resources have expired".to_owned()
                } else if end.is_finite() {
                    let limit = span(end - now);
                    format!("its time limit is {limit}, but the resources end in {left}")
                } else {
                    format!("it has no time limit, but the resources end in {left}")
                }
            }
            Self::QueueLimit(limit) => limit.note.clone(),
            Self::Down { constraint, nodes } => {
                let all = counted(u64::from(*nodes), "node");
                match constraint {
                    Some(constraint) => {
                        let verbs = if *nodes == 1 {
                            "does, but is"
                        } else {
                            "do, but are"
                        };
                        format!(
                            "no node that is up meets the constraint {constraint}: {all} {verbs} \
                             down"
                        )
                    }
                    None => format!("no node is up, of {nodes}"),
                }
            }
            Self::Insufficient { shortage, behind } => match behind {
                Some(job) => format!("{shortage}; {} is before it", name(*job)),
                None => shortage.to_string(),
            },
            Self::Reserved {
                at,
                shortage,
                limit,
            } => {
                let at = span(at - now);
                match (shortage, limit) {
                    (Some(shortage), None) => format!("can start in {at}, as planned: {shortage}"),
                    (None, Some(limit)) => format!("can start in {at}, as planned: {}", limit.note),
                    (Some(shortage), Some(limit)) => {
                        format!("can start in {at}, as planned: {shortage}; {}", limit.note)
                    }
                    (None, None) => {
                        format!("can start in {at}, as planned, without delaying others")
                    }
                }
            }
            Self::Behind { job } => format!("fits, but {} is before it and pending", name(*job)),
            Self::BehindReservation {
                job,
                at,
                interference,
            } => {
                let job = name(*job);
                let text = behind_reservation(&job, at - now);
                let subject = if at.is_finite() { "" } else { "it " };
                match interference {
                    Some(Interference { takes, spare }) => {
                        let units = counted(takes.get(), "unit");
                        format!(
                            "{text}, and {subject}would take {units} of the reservation of {job} \
                             (spare: {spare})"
                        )
                    }
                    None => text,
                }
            }
            Self::BehindLimit { job, at, note, .. } => {
                format!("{}, and {note}", behind_reservation(&name(*job), at - now))
            }
            Self::Unconsidered => "fits: the next pass starts it".to_owned(),
        }
    }
}

/// The sentence for a job that fits but may not pass a pending job whose reservation begins in
/// `seconds`.
fn behind_reservation(job: &str, seconds: f64) -> String {
    if seconds.is_finite() {
        let delay = span(seconds);
        format!("fits, but would not end before {job} can start, in {delay}")
    } else {
        format!("fits, but {job} is before it, with an unknown start time")
    }
}

/// Formats a time span in its two largest units, rounded up to the smaller one.
pub(crate) fn span(seconds: f64) -> String {
    const UNITS: [(u64, &str); 4] = [(86400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    if !seconds.is_finite() || seconds >= 1e15 {
        return "no known time".to_owned();
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 1e15"
    )]
    let whole = seconds.max(0.0).ceil() as u64;
    let first = UNITS.iter().position(|(unit, _)| whole >= *unit);
    let first = first.unwrap_or(UNITS.len() - 1);
    let (unit, letter) = UNITS[first];
    let Some((smaller, small)) = UNITS.get(first + 1) else {
        return format!("{whole} {letter}");
    };
    let whole = whole.div_ceil(*smaller) * smaller;
    match whole % unit / smaller {
        0 => format!("{} {letter}", whole / unit),
        rest => format!("{} {letter} {rest} {small}", whole / unit),
    }
}
