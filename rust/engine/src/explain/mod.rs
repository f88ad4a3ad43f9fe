//! Why a job waits: as data, and as a sentence.

mod lookup;
mod shortage;

pub use shortage::{Lack, Nearest, Shortage, Wanted};

use crate::QueueId;

/// Why a job that waits has not started.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Its priority is 0.
    Held,
    /// Everything there is, up and empty, would not do.
    Impossible {
        /// What is impossible, and the most there is.
        note: String,
    },
    /// The resources end too early for it.
    Outlives {
        /// When it would end, in seconds since the epoch; infinite where it has no time limit.
        end: f64,
        /// When the resources end.
        resources: f64,
    },
    /// Its queue has as much in use as it may.
    QueueLimit {
        /// The queue.
        queue: QueueId,
        /// Which limit, and what is in use.
        note: String,
    },
    /// No node that it may run on is up.
    Down {
        /// The constraint, as JSON; `None` where any node will do.
        constraint: Option<String>,
        /// Nodes that meet it.
        nodes: u32,
    },
    /// What it needs is not free.
    Insufficient {
        /// What is needed, and what there is.
        shortage: Shortage,
        /// The job that is before it, and waits as well.
        behind: Option<u64>,
    },
    /// What it needs is not free, or is kept for others, and will be its own at a time.
    Reserved {
        /// When, in seconds since the epoch.
        at: f64,
        /// What is needed, and what there is; `None` if it would fit now.
        shortage: Option<Shortage>,
        /// Its queue, and which limit of that it would exceed now; `None` if there is none.
        limit: Option<(QueueId, String)>,
    },
    /// It fits, but the job before it waits and nothing may go past that, or those before it have
    /// reserved for good what it needs.
    Behind {
        /// The job that is before it.
        job: u64,
    },
    /// It fits, but would delay a job that has a reservation.
    BehindReservation {
        /// The job with the reservation.
        job: u64,
        /// When that can start as planned, in seconds since the epoch; infinite where nobody
        /// knows, as those that it waits for have no time limit.
        at: f64,
        /// How much it would take; `None` under a policy with several reservations.
        harm: Option<Harm>,
    },
    /// It fits, but would leave too little in the limits of its queue to a job of the same queue that
    /// has a reservation.
    BehindLimit {
        /// The queue.
        queue: QueueId,
        /// The job with the reservation.
        job: u64,
        /// When that can start as planned, in seconds since the epoch; infinite where nobody knows.
        at: f64,
        /// What the limits are.
        note: String,
    },
    /// Nothing is in its way: it was not looked at since something changed.
    Unconsidered,
}

/// What a job would take of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Harm {
    /// Units of the other job's kind that this one would take away when that can start.
    pub takes: u64,
    /// Units that are left over then.
    pub spare: u64,
}

/// A part of a reason: a value for the edges of a program.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// A job's id.
    Job(u64),
    /// A queue.
    Queue(QueueId),
    /// How many.
    Count(u64),
    /// Seconds since the epoch.
    Time(f64),
    /// Words.
    Text(String),
}

impl Reason {
    /// The kind of reason, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Impossible { .. } => "impossible",
            Self::Outlives { .. } => "outlives",
            Self::QueueLimit { .. } => "queue-limit",
            Self::Down { .. } => "down",
            Self::Insufficient { .. } => "insufficient",
            Self::Reserved { .. } => "reserved",
            Self::Behind { .. } => "behind",
            Self::BehindReservation { .. } => "behind-reservation",
            Self::BehindLimit { .. } => "behind-limit",
            Self::Unconsidered => "unconsidered",
        }
    }

    /// Everything that the reason says besides its kind, by name.
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
            Self::QueueLimit { queue, note } => {
                fields.push(("queue", Field::Queue(*queue)));
                fields.push(("note", Field::Text(note.clone())));
            }
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
                if let Some((queue, note)) = limit {
                    fields.push(("queue", Field::Queue(*queue)));
                    fields.push(("note", Field::Text(note.clone())));
                }
            }
            Self::Behind { job } => fields.push(("behind", Field::Job(*job))),
            Self::BehindReservation { job, at, harm } => {
                fields.push(("behind", Field::Job(*job)));
                if at.is_finite() {
                    fields.push(("at", Field::Time(*at)));
                }
                if let Some(Harm { takes, spare }) = harm {
                    fields.push(("takes", Field::Count(*takes)));
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
    /// `now` is what times are told from, `name` how a job is called.
    pub fn sentence(&self, now: f64, name: &dyn Fn(u64) -> String) -> String {
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
            Self::QueueLimit { note, .. } => note.clone(),
            Self::Down { constraint, nodes } => {
                let all = amount(u64::from(*nodes), "node");
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
                    (None, Some((_, note))) => format!("can start in {at}, as planned: {note}"),
                    (Some(shortage), Some((_, note))) => {
                        format!("can start in {at}, as planned: {shortage}; {note}")
                    }
                    (None, None) => {
                        format!("can start in {at}, as planned, without delaying others")
                    }
                }
            }
            Self::Behind { job } => format!("fits, but {} is before it and waits", name(*job)),
            Self::BehindReservation { job, at, harm } => {
                let text = passes(&name(*job), at - now);
                let it = if at.is_finite() { "" } else { "it " };
                match harm {
                    Some(Harm { takes, spare }) => format!(
                        "{text}, and {it}would take {takes} of what that needs, where {spare} can be \
                         spared"
                    ),
                    None => text,
                }
            }
            Self::BehindLimit { job, at, note, .. } => {
                format!("{}, and {note}", passes(&name(*job), at - now))
            }
            Self::Unconsidered => "fits, and is to be looked at".to_owned(),
        }
    }
}

/// That a job fits, but may not pass another that can start in so many seconds.
fn passes(job: &str, wait: f64) -> String {
    if wait.is_finite() {
        let wait = span(wait);
        format!("fits, but would not end before {job} can start, in {wait}")
    } else {
        format!("fits, but {job} is before it and waits, nobody knows how long")
    }
}

/// A number with its noun, which gets an `s` unless there is exactly one.
fn amount(count: u64, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// A time span in the two largest units that it fills, rounded up to the smaller.
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
