//! The part of a request that goes to a scheduler, as a jobspec without tasks to run.

use std::collections::BTreeMap;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_jobspec::job_id::JobId;
use penstock_jobspec::{Constraint, Count, Jobspec, JobspecBuilder, Operator};
use penstock_rset::ResourceSet;
use serde::{Deserialize, Serialize};

use crate::names::{AttributeKey, Status};
use crate::request::{Denial, PmixRequest};

/// An attempt to satisfy a request: each is made after the one before it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attempt {
    /// The full amount with all preferences; abandoned unless it is free now.
    Preferred,
    /// The full amount without mere preferences.
    Full,
    /// As much of the amount as is free.
    Partial,
}

/// The resources that are requested of a scheduler.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and has its name in an event"
)]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// The number of nodes; `None` for cpus on any nodes.
    pub nodes: Option<u32>,
    /// Cpus of each node, or in total without a number of nodes; 0 for whole nodes.
    pub cpus: u32,
    /// Preferred nodes: a hostlist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// Whether the nodes are required.
    #[serde(default)]
    pub only_hosts: bool,
    /// Preferred cpus of each node: an idset; of whole nodes, their number is preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_list: Option<String>,
    /// A queue other than the requester's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Whether that queue is required.
    #[serde(default)]
    pub only_queue: bool,
    /// The only nodes that are large enough, if not all are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub among: Option<String>,
    /// Whether the resources were the job's own before they were lent.
    #[serde(default)]
    pub own: bool,
    /// Whether the request is denied unless the resources are free now.
    #[serde(default)]
    pub required: bool,
    /// Nodes requested by the other requests of the same reclaim.
    #[serde(default)]
    pub elsewhere: u32,
    /// Attributes that are not supported and not required.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// Nodes with other numbers of cpus, requested after these are granted; the grant is atomic.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rest: Vec<Self>,
    /// Whether a cpu total was split unevenly over nodes. The request may then be granted in part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// Excluded nodes: those already granted to the same request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<String>,
    /// The allocation that this part joins, if not that of the first part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<JobId>,
}

impl Demand {
    /// The parts: this one and the rest.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.rest)
    }

    /// Nodes of all parts; `None` if a part does not count them.
    pub fn all_nodes(&self) -> Option<u32> {
        let mut nodes = self.parts().map(|part| part.nodes);
        nodes.try_fold(0_u32, |sum, it| Some(sum.saturating_add(it?)))
    }

    /// Cpus of all parts; whole nodes count 0.
    pub fn all_cpus(&self) -> u64 {
        let parts = self.parts();
        let cpus = parts.map(|part| u64::from(part.cpus) * u64::from(part.nodes.unwrap_or(1)));
        cpus.fold(0, u64::saturating_add)
    }

    /// The same demand with another part first.
    #[must_use]
    pub fn beginning_with(&self, place: usize) -> Self {
        let plain = |part: &Self| Self {
            rest: Vec::new(),
            dropped: Vec::new(),
            ..part.clone()
        };
        let mut rest: Vec<Self> = self.parts().map(plain).collect();
        let place = place.min(rest.len() - 1);
        let first = rest.remove(place);
        Self {
            rest,
            dropped: self.dropped.clone(),
            ..first
        }
    }

    /// The demand for the remaining parts once this one is granted; `None` after the last. It excludes
    /// `granted`, the nodes of this part, and the nodes of earlier parts.
    pub fn next(&self, granted: Option<&Hostlist>) -> Option<Self> {
        let (first, rest) = self.rest.split_first()?;
        let excluded = granted.map(|hosts| match &self.apart {
            Some(others) => format!("{others},{hosts}"),
            None => hosts.to_string(),
        });
        Some(Self {
            rest: rest.to_vec(),
            apart: excluded,
            ..first.clone()
        })
    }

    /// The first attempt.
    pub fn first_attempt(&self) -> Attempt {
        let preferred = (self.hosts.is_some() && !self.only_hosts)
            || (self.queue.is_some() && !self.only_queue)
            || (self.cpu_list.is_some() && self.cpus == 0);
        if preferred {
            Attempt::Preferred
        } else {
            Attempt::Full
        }
    }

    /// Whether the request may be granted in part.
    pub fn may_be_partial(&self) -> bool {
        let parts = self.spread || self.rest.is_empty();
        !self.required && parts && self.all_nodes().unwrap_or(self.cpus) > 1
    }

    /// The number of preferred cpus.
    fn listed(&self) -> Option<u32> {
        let list = self.cpu_list.as_ref()?.parse::<IdSet>().ok()?;
        u32::try_from(list.len()).ok()
    }

    /// The queue of an attempt, if not the requester's.
    pub fn queue_in(&self, attempt: Attempt) -> Option<&str> {
        let named = self.only_queue || attempt == Attempt::Preferred;
        self.queue.as_deref().filter(|_| named)
    }

    /// The jobspec of an attempt. `queue` is the requester's, `duration` in seconds (0: none), `name` the job's.
    ///
    /// # Errors
    ///
    /// A name, a duration or a hostlist is not one that a jobspec can have.
    pub fn jobspec(
        &self,
        attempt: Attempt,
        queue: Option<&str>,
        duration: f64,
        name: &str,
    ) -> Result<Jobspec, penstock_jobspec::Error> {
        let count = |number: u32| match attempt {
            Attempt::Partial => Count::range(1.min(number), Some(number), Operator::Add, 1),
            Attempt::Preferred | Attempt::Full => Ok(Count::exactly(number)),
        };
        let (nodes, cpus) = match attempt {
            // Of unequal parts, the least number of cpus on each of their nodes.
            Attempt::Partial => (self.all_nodes(), self.parts().map(|part| part.cpus).min()),
            _ => (self.nodes, Some(self.cpus)),
        };
        let listed = self.listed().filter(|_| attempt == Attempt::Preferred);
        let cpus = cpus.filter(|cpus| *cpus > 0).or(listed).unwrap_or(0);
        let hosts = self.hosts.as_deref();
        let hosts = hosts.filter(|_| self.only_hosts || attempt == Attempt::Preferred);
        let among = hosts
            .or(self.among.as_deref())
            .map(Constraint::on_hosts)
            .transpose()?;
        let apart = self
            .apart
            .as_deref()
            .map(Constraint::on_hosts)
            .transpose()?;
        let apart = apart.map(|hosts| Constraint::Not(vec![hosts]));
        let constraint = match (among, apart) {
            (Some(among), Some(apart)) => Some(Constraint::And(vec![among, apart])),
            (one, None) | (None, one) => one,
        };
        let request = penstock_jobspec::Request {
            nnodes: nodes.map(count).transpose()?,
            exclusive: nodes.is_some() && cpus == 0,
            slots: match nodes {
                Some(_) => Count::exactly(1),
                None => count(self.cpus)?,
            },
            cores_per_slot: Count::exactly(nodes.map_or(1, |_| cpus.max(1))),
            gpus_per_slot: Count::exactly(0),
            duration,
            constraint,
        };
        let queue = self.queue_in(attempt).or(queue);
        let builder = JobspecBuilder {
            request,
            command: vec![name.to_owned()],
            name: Some(name.to_owned()),
            queue: queue.map(str::to_owned),
        };
        builder.build()
    }

    /// The demand in words.
    pub fn describe(&self) -> String {
        let many = |number: u32, noun: &str| {
            let plural = if number == 1 { "" } else { "s" };
            format!("{number} {noun}{plural}")
        };
        let describe = |part: &Self| {
            let mut text = match (part.nodes, part.cpus) {
                (Some(nodes), 0) => many(nodes, "whole node"),
                (Some(1), cpus) => format!("1 node with {}", many(cpus, "cpu")),
                (Some(nodes), cpus) => format!("{nodes} nodes with {} each", many(cpus, "cpu")),
                (None, cpus) => many(cpus, "cpu"),
            };
            if let Some(hosts) = part.hosts.as_ref().filter(|_| part.only_hosts) {
                text.push_str(" of ");
                text.push_str(hosts);
            }
            text
        };
        let parts: Vec<String> = self.parts().map(describe).collect();
        parts.join(" and ")
    }

    /// The granted share in words, if it is not the full amount.
    pub fn partial_note(&self, granted: &ResourceSet) -> Option<String> {
        let (granted, requested, what) = match self.nodes {
            Some(nodes) if self.rest.is_empty() => {
                (granted.nnodes() as u64, u64::from(nodes), "nodes")
            }
            _ => (granted.ncores(), self.all_cpus(), "cpus"),
        };
        (granted < requested).then(|| format!("in part: {granted} of {requested} {what}"))
    }

    /// The preferred attributes that a grant in this queue does not meet.
    pub fn unmet(&self, granted: &ResourceSet, queue: Option<&str>) -> Vec<String> {
        let mut unmet = self.dropped.clone();
        let mut add = |key: AttributeKey| unmet.push(key.name().to_owned());
        let wished_hosts = self.hosts.as_ref().and_then(|hosts| hosts.parse().ok());
        if wished_hosts.is_some_and(|hosts: Hostlist| !granted.nodelist().is_subset(&hosts)) {
            add(AttributeKey::NodeList);
        }
        let wished_cpus: Option<IdSet> = self.cpu_list.as_ref().and_then(|list| list.parse().ok());
        let lacks = |wished: &IdSet| {
            let mut all = granted.nodes();
            all.any(|node| !wished.is_subset(node.cores))
        };
        if wished_cpus.as_ref().is_some_and(lacks) {
            add(AttributeKey::CpuList);
        }
        if self.queue.is_some() && self.queue.as_deref() != queue {
            add(AttributeKey::Queue);
        }
        unmet
    }
}

impl Demand {
    /// The greatest number of parts: each is a job, and carries the remaining ones in its request.
    pub const MAX_PARTS: usize = 64;

    /// The demand of a request for resources.
    ///
    /// # Errors
    ///
    /// The attributes contradict each other, or name no resources.
    pub fn of(request: &PmixRequest) -> Result<Self, Denial> {
        let counts = request
            .cpu_counts
            .as_ref()
            .map(|counts| counts.value.as_slice());
        let listed = listed_hosts(request)?;
        let count = listed.as_ref().map(Hostlist::len);
        let counted = count.or(counts.map(<[u32]>::len));
        let counted = counted.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
        let nodes = request.nodes.as_ref().map(|nodes| nodes.value).or(counted);
        if let (Some(nodes), Some(counted)) = (nodes, counted)
            && nodes > counted
            && request.hosts.as_ref().is_some_and(|hosts| hosts.required)
        {
            return bad_param(
                "`pmix.alloc.nnodes`: expected at most the nodes of `pmix.alloc.nlist`",
            );
        }
        let total = request.cpus.as_ref().map(|cpus| cpus.value);
        let list = request.cpu_list.as_ref().map(|list| &list.value);
        let parts = match (nodes, counts, total) {
            (nodes, Some(counts), _) if counts.len() > 1 => {
                if nodes.is_some_and(|number| number as usize != counts.len()) {
                    return bad_param("`pmix.alloc.ncpulist`: expected a number for each node");
                }
                by_count(counts, listed.as_ref())
            }
            (Some(nodes), None, Some(total)) => {
                let (least, more) = (total / nodes, total % nodes);
                if least == 0 {
                    return bad_param("`pmix.alloc.ncpus`: expected one for each node at least");
                }
                let part = |nodes: u32, cpus: u32| Part {
                    nodes,
                    cpus,
                    hosts: listed.clone(),
                };
                // The first part has no node where the sum would overflow.
                let parts = [
                    part(more, least.saturating_add(1)),
                    part(nodes - more, least),
                ];
                parts.into_iter().filter(|part| part.nodes > 0).collect()
            }
            _ => Vec::new(),
        };
        if parts.len() > Self::MAX_PARTS {
            let most = Self::MAX_PARTS;
            let reason = format!(
                "`pmix.alloc.ncpulist`: expected at most {most} different numbers, found {}",
                parts.len()
            );
            return Err(Denial::new(Status::NOT_SUPPORTED, reason));
        }
        let (nodes, cpus, listed) = match (parts.first(), nodes, counts, total, list) {
            (Some(part), ..) => (Some(part.nodes), part.cpus, part.hosts.clone()),
            (_, _, Some(counts), ..) => (nodes, counts.first().copied().unwrap_or(1), listed),
            (_, None, None, Some(total), _) => (None, total, listed),
            (_, Some(_), None, ..) => (nodes, 0, listed),
            // A list of cpus alone is the amount.
            (_, None, None, None, Some(list)) => {
                let cpus = u32::try_from(list.len()).unwrap_or(u32::MAX);
                (Some(1), cpus, listed)
            }
            (_, None, None, None, None) => {
                return bad_param("expected a number of nodes or cpus");
            }
        };
        let mut demand = Self {
            nodes,
            cpus,
            hosts: listed.map(|hosts| hosts.to_string()),
            only_hosts: request.hosts.as_ref().is_some_and(|hosts| hosts.required),
            cpu_list: list.map(ToString::to_string),
            queue: request.queue.as_ref().map(|queue| queue.value.clone()),
            among: None,
            own: false,
            only_queue: request.queue.as_ref().is_some_and(|queue| queue.required),
            required: request.required,
            elsewhere: 0,
            dropped: request.dropped.clone(),
            rest: Vec::new(),
            spread: counts.is_none(),
            apart: None,
            joins: None,
        };
        let rest = parts.into_iter().skip(1);
        demand.rest = rest
            .map(|part| Self {
                nodes: Some(part.nodes),
                cpus: part.cpus,
                hosts: part.hosts.map(|hosts| hosts.to_string()),
                dropped: Vec::new(),
                ..demand.clone()
            })
            .collect();
        demand.spread &= !demand.rest.is_empty();
        Ok(demand)
    }
}

fn bad_param<T>(reason: &str) -> Result<T, Denial> {
    Err(Denial::new(Status::BAD_PARAM, reason))
}

/// Nodes of a request that have the same number of cpus.
struct Part {
    nodes: u32,
    /// The cpus of each node.
    cpus: u32,
    /// The listed hosts for them.
    hosts: Option<Hostlist>,
}

/// The listed hosts, each once.
fn listed_hosts(request: &PmixRequest) -> Result<Option<Hostlist>, Denial> {
    let Some(list) = &request.hosts else {
        return Ok(None);
    };
    let mut hosts = list.value.clone();
    hosts.uniq();
    if let Some(counts) = &request.cpu_counts {
        let counts = counts.value.len();
        if hosts.len() < list.value.len() {
            return bad_param("`pmix.alloc.nlist`: expected each node once beside numbers of cpus");
        }
        if counts != hosts.len() && counts != 1 {
            return bad_param(
                "`pmix.alloc.ncpulist`: expected a number for each of `pmix.alloc.nlist`",
            );
        }
    }
    Ok(Some(hosts))
}

/// The part for each number of cpus: the largest first, so that the larger nodes go to the parts that need them.
fn by_count(counts: &[u32], hosts: Option<&Hostlist>) -> Vec<Part> {
    let mut places_by_cpus: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, cpus) in counts.iter().enumerate() {
        places_by_cpus.entry(*cpus).or_default().push(place);
    }
    let part = |(cpus, places): (u32, Vec<usize>)| {
        let nodes = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let hosts = hosts.map(|all| {
            let chosen: Vec<String> = places.iter().filter_map(|place| all.get(*place)).collect();
            Hostlist::try_from_hosts(&chosen).unwrap_or_default()
        });
        Part { nodes, cpus, hosts }
    };
    places_by_cpus.into_iter().rev().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::{Attempt, Demand};
    use crate::{Attribute, Directive, PmixRequest};
    use penstock_jobspec::Constraint;
    use penstock_rset::ResourceSet;
    use serde_json::{Value, json};

    /// The demand of a request for a new allocation.
    fn demand(attributes: &Value) -> Result<Demand, i32> {
        let attributes = attributes.as_array().unwrap().iter();
        let attributes: Vec<_> = attributes
            .map(|value| Attribute::from_json(value).unwrap())
            .collect();
        let request = PmixRequest::read(Directive::New, &attributes).unwrap();
        Demand::of(&request).map_err(|denial| denial.status.0)
    }

    /// Nodes, slots, cores of a slot and whether nodes are exclusive, of a attempt.
    fn shape(demand: &Demand, attempt: Attempt) -> (Option<u32>, u32, u32, bool) {
        let jobspec = demand.jobspec(attempt, Some("batch"), 60.0, "extend");
        let jobspec = jobspec.unwrap();
        let request = jobspec.request();
        (
            request.nnodes.as_ref().map(penstock_jobspec::Count::min),
            request.slots.min(),
            request.cores_per_slot.min(),
            request.exclusive,
        )
    }

    #[test]
    fn amounts_become_jobspecs() {
        let nodes = demand(&json!([{"key": "pmix.alloc.nnodes", "value": 3}])).unwrap();
        assert_eq!(shape(&nodes, Attempt::Full), (Some(3), 1, 1, true));
        assert_eq!(shape(&nodes, Attempt::Partial), (Some(1), 1, 1, true));
        let cpus = demand(&json!([{"key": "pmix.alloc.ncpus", "value": 5}])).unwrap();
        assert_eq!(shape(&cpus, Attempt::Full), (None, 5, 1, false));
        let both = demand(&json!([
            {"key": "pmix.alloc.ncpus", "value": 6}, {"key": "pmix.alloc.nnodes", "value": 2}]));
        assert_eq!(shape(&both.unwrap(), Attempt::Full), (Some(2), 1, 3, false));
        let seven = demand(&json!([
            {"key": "pmix.alloc.ncpus", "value": 7}, {"key": "pmix.alloc.nnodes", "value": 2}]));
        let seven = seven.unwrap();
        assert_eq!(shape(&seven, Attempt::Full), (Some(1), 1, 4, false));
        assert_eq!(shape(&seven, Attempt::Partial), (Some(1), 1, 3, false));
        let most = demand(&json!([
            {"key": "pmix.alloc.ncpus", "value": u32::MAX}, {"key": "pmix.alloc.nnodes", "value": 1}]));
        let most = shape(&most.unwrap(), Attempt::Full);
        assert_eq!(most, (Some(1), 1, u32::MAX, false));
        let listed = demand(&json!([
            {"key": "pmix.alloc.nlist", "value": "n1,n2"},
            {"key": "pmix.alloc.ncpulist", "value": "5,5"}]));
        assert_eq!(
            shape(&listed.unwrap(), Attempt::Full),
            (Some(2), 1, 5, false)
        );
        let list = json!({"key": "pmix.alloc.cpulist", "value": "0-3"});
        let alone = demand(&json!([list])).unwrap();
        assert_eq!(shape(&alone, Attempt::Full), (Some(1), 1, 4, false));
        assert_eq!(alone.first_attempt(), Attempt::Full, "it is the amount");
        let wished = demand(&json!([list, {"key": "pmix.alloc.nnodes", "value": 2}])).unwrap();
        assert_eq!(wished.first_attempt(), Attempt::Preferred);
        assert_eq!(shape(&wished, Attempt::Preferred), (Some(2), 1, 4, false));
        assert_eq!(shape(&wished, Attempt::Full), (Some(2), 1, 1, true));
        let counted = [list, json!({"key": "pmix.alloc.ncpus", "value": 3})];
        let counted = demand(&json!(counted)).unwrap();
        assert_eq!(
            shape(&counted, counted.first_attempt()),
            (None, 3, 1, false)
        );
    }

    #[test]
    fn later_parts_exclude_the_nodes_of_earlier_ones() {
        let listed = demand(
            &json!([{"key": "pmix.alloc.nlist", "required": true, "value": "n1,n2,n3"},
                                 {"key": "pmix.alloc.ncpulist", "value": "3,2,1"}]),
        );
        let hosts = |text: &str| text.parse().unwrap();
        let second = listed.unwrap().next(Some(&hosts("n1"))).unwrap();
        let third = second.next(Some(&hosts("n2"))).unwrap();
        assert_eq!(third.next(Some(&hosts("n3"))), None);
        let jobspec = third.jobspec(Attempt::Full, None, 0.0, "new").unwrap();
        let expected = json!({"and": [{"hostlist": ["n3"]}, {"not": [{"hostlist": ["n[1-2]"]}]}]});
        assert_eq!(jobspec.attribute("system.constraints"), Some(&expected));
        assert_eq!(second.next(None).unwrap().apart, None);
    }

    #[test]
    fn any_part_may_be_the_first() {
        let listed = demand(&json!([{"key": "pmix.alloc.nlist", "value": "n1,n2,n3"},
                                 {"key": "pmix.alloc.msize", "value": 1.0},
                                 {"key": "pmix.alloc.ncpulist", "value": "3,2,1"}]));
        let listed = listed.unwrap();
        let cpus = |demand: &Demand| demand.parts().map(|part| part.cpus).collect::<Vec<_>>();
        let turned = listed.beginning_with(1);
        assert_eq!(cpus(&turned), [2, 3, 1]);
        assert_eq!(turned.dropped, ["pmix.alloc.msize"]);
        assert_eq!(turned.beginning_with(1), listed);
    }

    #[test]
    fn preferences_come_first_and_requirements_stay() {
        let preferred = demand(&json!([{"key": "pmix.alloc.nlist", "value": "n1"}])).unwrap();
        assert_eq!(preferred.first_attempt(), Attempt::Preferred);
        let on = |hosts| Constraint::on_hosts(hosts).unwrap();
        let constraint = |demand: &Demand, attempt| {
            let jobspec = demand.jobspec(attempt, None, 0.0, "new").unwrap();
            jobspec.constraints().cloned()
        };
        assert_eq!(constraint(&preferred, Attempt::Preferred), Some(on("n1")));
        assert_eq!(constraint(&preferred, Attempt::Full), None);
        let only = json!([{"key": "pmix.alloc.nlist", "required": true, "value": "n1"}]);
        let only = demand(&only).unwrap();
        assert_eq!(only.first_attempt(), Attempt::Full);
        assert_eq!(constraint(&only, Attempt::Full), Some(on("n1")));
        assert!(!only.may_be_partial());
    }

    #[test]
    fn unmet_preferences_are_named() {
        let mut granted = ResourceSet::new();
        granted
            .insert(
                1,
                "n1",
                "0-1".parse().unwrap(),
                penstock_idset::IdSet::new(),
            )
            .unwrap();
        let demand = demand(&json!([
            {"key": "pmix.alloc.nlist", "value": "n2"}, {"key": "pmix.alloc.cpulist", "value": "2-3"},
            {"key": "pmix.alloc.queue", "value": "fast"}, {"key": "pmix.alloc.msize", "value": 1.0},
        ]))
        .unwrap();
        assert_eq!(
            demand.unmet(&granted, Some("batch")),
            [
                "pmix.alloc.msize",
                "pmix.alloc.nlist",
                "pmix.alloc.cpulist",
                "pmix.alloc.queue"
            ]
        );
    }

    #[test]
    fn contradictions_are_rejected() {
        assert_eq!(demand(&json!([])), Err(-27));
        let counts = json!([{"key": "pmix.alloc.nlist", "value": "n1,n2,n3"},
                            {"key": "pmix.alloc.ncpulist", "value": "5,3"}]);
        assert_eq!(demand(&counts), Err(-27));
        let counts = json!([{"key": "pmix.alloc.nnodes", "value": 3},
                            {"key": "pmix.alloc.ncpulist", "value": "5,3"}]);
        assert_eq!(demand(&counts), Err(-27));
        let more = json!([{"key": "pmix.alloc.nlist", "required": true, "value": "n1"},
                          {"key": "pmix.alloc.nnodes", "value": 2}]);
        assert_eq!(demand(&more), Err(-27));
    }

    /// Nodes, cpus of each and hosts, of each part.
    fn parts(demand: &Demand) -> Vec<(u32, u32, Option<&str>)> {
        let parts = demand.parts();
        parts
            .map(|part| (part.nodes.unwrap(), part.cpus, part.hosts.as_deref()))
            .collect()
    }

    #[test]
    fn different_numbers_of_cpus_are_parts() {
        let counts = |required: bool, hosts: &str, counts: &str| {
            demand(
                &json!([{"key": "pmix.alloc.nlist", "required": required, "value": hosts},
                        {"key": "pmix.alloc.ncpulist", "value": counts}]),
            )
        };
        let three = counts(true, "n3,n2,n1,n7", "1,3,1,2").unwrap();
        let expected = [
            (1, 3, Some("n2")),
            (1, 2, Some("n7")),
            (2, 1, Some("n[3,1]")),
        ];
        assert_eq!(parts(&three), expected);
        assert_eq!((three.all_nodes(), three.all_cpus()), (Some(4), 7));
        assert!(
            three
                .rest
                .iter()
                .all(|demand| demand.only_hosts && demand.required)
        );
        let preferred = counts(false, "n1,n2", "1,3").unwrap();
        assert!(!preferred.may_be_partial(), "atomic");
        assert_eq!(
            preferred.describe(),
            "1 node with 3 cpus and 1 node with 1 cpu"
        );
        assert!(counts(true, "n1,n2", "3,3").unwrap().rest.is_empty());
        assert!(counts(true, "n1,n2", "3").unwrap().rest.is_empty());
        let many = |number: u32| {
            let counts: Vec<String> = (1..=number).map(|number| number.to_string()).collect();
            demand(&json!([{"key": "pmix.alloc.ncpulist", "value": counts.join(",")}]))
        };
        assert_eq!(many(64).unwrap().parts().count(), 64);
        assert_eq!(many(65), Err(-47));
        let unlisted = json!([{"key": "pmix.alloc.ncpulist", "value": "1,3"}]);
        assert_eq!(
            parts(&demand(&unlisted).unwrap()),
            [(1, 3, None), (1, 1, None)]
        );
    }

    #[test]
    fn a_total_that_does_not_divide_is_spread_evenly() {
        let total = |nodes: u32, cpus: u32| {
            demand(&json!([{"key": "pmix.alloc.nnodes", "value": nodes},
                        {"key": "pmix.alloc.ncpus", "value": cpus}]))
        };
        let seven = total(2, 7).unwrap();
        assert_eq!(parts(&seven), [(1, 4, None), (1, 3, None)]);
        assert!(seven.may_be_partial());
        assert!(total(2, 6).unwrap().rest.is_empty());
        assert_eq!(total(3, 2), Err(-27));
        let listed = demand(&json!([{"key": "pmix.alloc.nlist", "value": "n1,n2"},
                                 {"key": "pmix.alloc.ncpus", "value": 7}]));
        let both = Some("n[1-2]");
        assert_eq!(parts(&listed.unwrap()), [(1, 4, both), (1, 3, both)]);
    }

    #[test]
    fn a_repeated_node_counts_once() {
        let twice = demand(&json!([{"key": "pmix.alloc.nlist", "value": "n2,n2"}])).unwrap();
        assert_eq!((twice.nodes, twice.hosts.as_deref()), (Some(1), Some("n2")));
        let counts = json!([{"key": "pmix.alloc.nlist", "value": "n2,n2"},
                            {"key": "pmix.alloc.ncpulist", "value": "1,1"}]);
        assert_eq!(demand(&counts), Err(-27));
    }
}
