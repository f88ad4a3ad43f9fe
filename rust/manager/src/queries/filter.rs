//! Job constraints of `job-list.list` (RFC 43, Constraint Operators).

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::ops::Not;

use penstock_flux::RequestError;
use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_rset::ResourceSet;
use penstock_store::JobRow;
use serde_json::Value;

use crate::census::Class;
use crate::ended::{EndedJob, SubmissionBounds, hash_of};
use crate::event::EventTime;
use crate::jobs::Job;
use crate::reason::cut_error;
use crate::spec::Spec;
use crate::state::{JobResult, State};

/// The greatest depth of nested operators.
const MAX_FILTER_DEPTH: usize = 64;
/// The greatest number of operators in a filter.
const MAX_FILTER_OPERATORS: usize = 1000;
/// The greatest number of values in the lists of its operators.
const MAX_FILTER_VALUES: usize = 1 << 16;
/// The greatest number of ranges of hosts in a filter: a short text can stand for many.
const MAX_FILTER_RANGES: usize = 1 << 16;

/// A condition on one job.
#[derive(Debug)]
pub enum Filter {
    And(Vec<Filter>),
    Or(Vec<Filter>),
    Not(Vec<Filter>),
    Users(BTreeSet<u64>),
    /// The names, and the hashes of these.
    Names(BTreeSet<String>, BTreeSet<u64>),
    Queues(BTreeSet<String>),
    States(u8),
    Results(u8),
    /// The hosts, and the size of their text.
    Hosts(Hostlist, usize),
    /// The ranks, and the size of their text.
    Ranks(IdSet, usize),
    Time(Stamp, Comparison, f64),
}

/// A timestamp of a job.
#[derive(Clone, Copy, Debug)]
pub enum Stamp {
    Submit,
    Depend,
    Run,
    Cleanup,
    Inactive,
}

/// The comparison of a timestamp with the time of the constraint.
#[derive(Clone, Copy, Debug)]
pub enum Comparison {
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
}

impl Comparison {
    fn holds(self, at: f64, time: f64) -> bool {
        match self {
            Self::Greater => at > time,
            Self::GreaterEqual => at >= time,
            Self::Less => at < time,
            Self::LessEqual => at <= time,
        }
    }
}

/// Whether all of some conditions hold, each of which may be unknown.
fn all(conditions: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut together = Some(true);
    for condition in conditions {
        match condition {
            Some(false) => return Some(false),
            Some(true) => {}
            None => together = None,
        }
    }
    together
}

fn wrong(text: impl std::fmt::Display) -> RequestError {
    cut_error(RequestError::invalid(format!("job constraint: {text}")))
}

fn strings(operator: &str, values: &[Value]) -> Result<Vec<String>, RequestError> {
    let strings = values.iter().map(|value| value.as_str().map(str::to_owned));
    let strings = strings.collect::<Option<_>>();
    strings.ok_or_else(|| wrong(format!("expected `{operator}` to list strings")))
}

fn mask(
    operator: &str,
    values: &[Value],
    name: fn(&str) -> Option<u8>,
) -> Result<u8, RequestError> {
    values.iter().try_fold(0, |mask, value| {
        let number = value.as_u64().and_then(|bits| u8::try_from(bits).ok());
        let bits = number.or_else(|| value.as_str().and_then(name));
        bits.map(|bits| mask | bits)
            .ok_or_else(|| wrong(format!("unknown value `{value}` for `{operator}`")))
    })
}

/// `>=1.5` and the like.
fn comparison(operator: &str, values: &[Value]) -> Result<(Comparison, f64), RequestError> {
    let expected = || {
        wrong(format!(
            "expected `{operator}` to list one string such as \">=1500000000.0\""
        ))
    };
    let [Value::String(text)] = values else {
        return Err(expected());
    };
    let forms = [
        (">=", Comparison::GreaterEqual),
        ("<=", Comparison::LessEqual),
        (">", Comparison::Greater),
        ("<", Comparison::Less),
    ];
    let found = forms.iter().find_map(|(prefix, comparison)| {
        let time = text.strip_prefix(prefix)?.trim().parse::<f64>().ok()?;
        time.is_finite().then_some((*comparison, time))
    });
    found.ok_or_else(expected)
}

impl Filter {
    /// Reads `{"operator": [values]}`; `{}` matches every job.
    pub(crate) fn parse(value: &Value) -> Result<Self, RequestError> {
        parse(value, 0, &mut Parts::default())
    }

    /// Whether an inactive job may satisfy the filter, as far as its operators on states tell.
    pub(crate) fn may_match_inactive(&self) -> bool {
        match self {
            Self::And(filters) => filters.iter().all(Self::may_match_inactive),
            Self::Or(filters) => filters.is_empty() || filters.iter().any(Self::may_match_inactive),
            Self::States(mask) => mask & State::Inactive.bit() != 0,
            _ => true,
        }
    }

    /// The number of its operators: the work for one entry of the index of inactive jobs is proportional to it.
    pub(crate) fn operators(&self) -> usize {
        match self {
            Self::And(filters) | Self::Or(filters) | Self::Not(filters) => {
                1 + filters.iter().map(Self::operators).sum::<usize>()
            }
            _ => 1,
        }
    }

    /// The size of the texts of its hosts and ranks: the work for R of one job is proportional to it.
    pub(crate) fn text_size(&self) -> usize {
        match self {
            Self::And(filters) | Self::Or(filters) | Self::Not(filters) => {
                filters.iter().map(Self::text_size).sum()
            }
            Self::Hosts(_, size) | Self::Ranks(_, size) => *size,
            _ => 0,
        }
    }

    /// Whether every job satisfies the filter.
    pub(crate) fn matches_all(&self) -> bool {
        matches!(self, Self::And(filters) | Self::Or(filters) if filters.is_empty())
    }

    /// Whether an inactive job satisfies the filter, as far as its entry in the index of these tells; `None` if its facts are
    /// to be read.
    pub(crate) fn matches_ended(
        &self,
        job: EndedJob,
        submission: SubmissionBounds,
        class: Class<'_>,
    ) -> Option<bool> {
        self.decide(&|condition| match condition {
            Self::Users(users) => Some(users.contains(&u64::from(class.userid))),
            Self::Names(_, hashes) => Some(hashes.contains(&job.name_hash())),
            Self::Queues(queues) => Some(class.queue.is_some_and(|queue| queues.contains(queue))),
            Self::States(mask) => Some(mask & State::Inactive.bit() != 0),
            Self::Results(mask) => {
                let result = class.result;
                Some(result.is_some_and(|result| mask & (result as u8) != 0))
            }
            Self::Time(Stamp::Inactive, comparison, time) => {
                let end = job.end().0.seconds();
                Some(end > 0.0 && comparison.holds(end, *time))
            }
            Self::Time(Stamp::Submit, comparison, time) => {
                let bounds = [submission.earliest, submission.latest];
                let [earliest, latest] = bounds.map(EventTime::seconds);
                let holds = comparison.holds(earliest, *time);
                let is_known = earliest > 0.0 && holds == comparison.holds(latest, *time);
                is_known.then_some(holds)
            }
            _ => None,
        })
    }

    /// Whether it may be decided by the row of an inactive job, after the index of these.
    pub(crate) fn may_be_decided_by_row(&self) -> bool {
        match self {
            Self::And(filters) | Self::Or(filters) | Self::Not(filters) => {
                filters.iter().any(Self::may_be_decided_by_row)
            }
            _ => matches!(
                self,
                Self::Hosts(..) | Self::Ranks(..) | Self::Time(Stamp::Submit, ..)
            ),
        }
    }

    /// Whether it has conditions on the jobspec.
    pub(crate) fn needs_jobspec(&self) -> bool {
        match self {
            Self::And(filters) | Self::Or(filters) | Self::Not(filters) => {
                filters.iter().any(Self::needs_jobspec)
            }
            _ => matches!(self, Self::Names(..) | Self::Queues(..)),
        }
    }

    /// Whether an inactive job satisfies the filter, as far as its row tells, and its jobspec if that was read; `None` if more
    /// of it is to be read.
    pub(crate) fn matches_row(&self, id: JobId, row: &JobRow, spec: Option<&Spec>) -> Option<bool> {
        let r = LazyCell::new(|| ResourceSet::from_json(row.r.as_deref()?).ok());
        // Without R it has not run; with R it may have run.
        let is_without = |is_there: &dyn Fn(&ResourceSet) -> bool| {
            let is_without = !r.as_ref().is_some_and(is_there);
            is_without.then_some(false)
        };
        self.decide(&|condition| match condition {
            Self::Users(users) => Some(users.contains(&u64::from(row.userid))),
            Self::Names(names, _) => spec.map(|spec| names.contains(&*spec.name_of(id))),
            Self::Queues(queues) => spec.map(|spec| {
                let queue = spec.queue.as_ref();
                queue.is_some_and(|queue| queues.contains(queue))
            }),
            Self::States(mask) => Some(mask & State::Inactive.bit() != 0),
            Self::Time(Stamp::Submit, comparison, time) => {
                Some(row.t_submit > 0.0 && comparison.holds(row.t_submit, *time))
            }
            Self::Hosts(hosts, _) => is_without(&|r| r.has_any_host(hosts)),
            Self::Ranks(ranks, _) => is_without(&|r| !r.ranks().intersection(ranks).is_empty()),
            _ => None,
        })
    }

    /// Whether a job satisfies the filter, of which `known` decides the conditions.
    fn decide(&self, known: &dyn Fn(&Self) -> Option<bool>) -> Option<bool> {
        let decide = |filter: &Self| filter.decide(known);
        match self {
            Self::And(filters) => all(filters.iter().map(decide)),
            // As in RFC 31: an empty `or` matches every job.
            Self::Or(filters) if filters.is_empty() => Some(true),
            Self::Or(filters) => {
                let inner = filters.iter().map(decide);
                all(inner.map(|known| known.map(Not::not))).map(Not::not)
            }
            Self::Not(filters) => all(filters.iter().map(decide)).map(Not::not),
            condition => known(condition),
        }
    }

    /// Whether a job satisfies the filter.
    pub(crate) fn matches(&self, job: &Job) -> bool {
        self.decide(&|condition| condition.holds_for(job)) == Some(true)
    }

    /// Whether a job satisfies the condition; `None` for an operator on other conditions.
    fn holds_for(&self, job: &Job) -> Option<bool> {
        let record = &job.record;
        let has_run = |is_on: &dyn Fn(&ResourceSet) -> bool| ran(job).is_some_and(is_on);
        Some(match self {
            Self::And(_) | Self::Or(_) | Self::Not(_) => return None,
            Self::Users(users) => users.contains(&u64::from(record.userid())),
            Self::Names(names, _) => names.contains(&*record.name()),
            Self::Queues(queues) => {
                let queue = record.spec().queue.as_ref();
                queue.is_some_and(|queue| queues.contains(queue))
            }
            Self::States(mask) => mask & record.state().bit() != 0,
            Self::Results(mask) => {
                let result = record.result();
                result.is_some_and(|result| mask & (result as u8) != 0)
            }
            Self::Hosts(hosts, _) => has_run(&|r| r.has_any_host(hosts)),
            Self::Ranks(ranks, _) => has_run(&|r| !r.ranks().intersection(ranks).is_empty()),
            Self::Time(stamp, comparison, time) => {
                let at = stamp.of(job);
                at.is_some_and(|at| comparison.holds(at, *time))
            }
        })
    }
}

fn ran(job: &Job) -> Option<&ResourceSet> {
    let r = job.record.extent().map(std::convert::AsRef::as_ref);
    r.filter(|_| job.record.t_run() > 0.0)
}

impl Stamp {
    fn of(self, job: &Job) -> Option<f64> {
        let time = match self {
            Self::Submit => job.record.t_submit(),
            Self::Depend => job.record.t_depend(),
            Self::Run => job.record.t_run(),
            Self::Cleanup => job.record.t_cleanup(),
            Self::Inactive => job.record.t_inactive(),
        };
        (time > 0.0).then_some(time)
    }
}

/// `ranges` counts those of all hostlists.
/// The parts of a filter so far.
#[derive(Default)]
struct Parts {
    operators: usize,
    values: usize,
    ranges: usize,
}

fn check_parts(found: usize, most: usize, noun: &str) -> Result<(), RequestError> {
    if found > most {
        return Err(wrong(format!("expected at most {most} {noun}")));
    }
    Ok(())
}

fn parse(value: &Value, depth: usize, parts: &mut Parts) -> Result<Filter, RequestError> {
    parts.operators += 1;
    check_parts(parts.operators, MAX_FILTER_OPERATORS, "operators")?;
    let object = value
        .as_object()
        .ok_or_else(|| wrong(format!("expected an object, found `{value}`")))?;
    let Some((operator, values)) = object.iter().next() else {
        return Ok(Filter::And(Vec::new()));
    };
    if object.len() > 1 {
        return Err(wrong(format!("expected one operator in `{value}`")));
    }
    if depth > MAX_FILTER_DEPTH {
        return Err(wrong(format!(
            "more than {MAX_FILTER_DEPTH} operators nested"
        )));
    }
    let values = values
        .as_array()
        .ok_or_else(|| wrong(format!("expected `{operator}` to have a list")))?;
    let filters = |parts: &mut Parts| {
        let inner = values.iter().map(|value| parse(value, depth + 1, parts));
        inner.collect::<Result<Vec<_>, _>>()
    };
    let is_nested = matches!(operator.as_str(), "and" | "or" | "not");
    parts.values += if is_nested { 0 } else { values.len() };
    check_parts(parts.values, MAX_FILTER_VALUES, "values")?;
    let time = |stamp| {
        let (comparison, time) = comparison(operator, values)?;
        Ok(Filter::Time(stamp, comparison, time))
    };
    Ok(match operator.as_str() {
        "and" => Filter::And(filters(parts)?),
        "or" => Filter::Or(filters(parts)?),
        "not" => Filter::Not(filters(parts)?),
        "userid" => {
            let users = values.iter().map(Value::as_u64).collect::<Option<_>>();
            Filter::Users(users.ok_or_else(|| wrong("expected user ids"))?)
        }
        "name" => {
            let names = strings(operator, values)?;
            let hashes = names.iter().map(|name| hash_of(name)).collect();
            Filter::Names(names.into_iter().collect(), hashes)
        }
        "queue" => Filter::Queues(strings(operator, values)?.into_iter().collect()),
        "states" => Filter::States(mask(operator, values, State::mask)?),
        "results" => Filter::Results(mask(operator, values, JobResult::mask)?),
        "hostlist" => {
            let text = strings(operator, values)?.join(",");
            let hosts: Hostlist = text.parse().map_err(wrong)?;
            parts.ranges += hosts.range_count();
            check_parts(parts.ranges, MAX_FILTER_RANGES, "ranges of hosts")?;
            Filter::Hosts(hosts, text.len())
        }
        "ranks" => {
            let (mut ranks, mut size) = (IdSet::new(), 0);
            for text in strings(operator, values)? {
                ranks.union_with(&text.parse::<IdSet>().map_err(wrong)?);
                size += text.len();
            }
            Filter::Ranks(ranks, size)
        }
        "t_submit" => time(Stamp::Submit)?,
        "t_depend" => time(Stamp::Depend)?,
        "t_run" => time(Stamp::Run)?,
        "t_cleanup" => time(Stamp::Cleanup)?,
        "t_inactive" => time(Stamp::Inactive)?,
        operator => return Err(wrong(format!("unknown operator `{operator}`"))),
    })
}
