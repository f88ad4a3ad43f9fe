//! What of a request a scheduler is asked for, as a jobspec without tasks to run.

use penstock_hostlist::Hostlist;
use penstock_rset::ResourceSet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::names::{Key, Status};
use crate::request::{Refusal, Request};

/// How a request is put to the scheduler: each form is tried after the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// With everything that was wished for; dropped unless it can be had at once.
    Preferred,
    /// The whole amount, without what is only preferred.
    Whole,
    /// As much of the amount as is free.
    Part,
}

impl Form {
    /// The name of the form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preferred => "preferred",
            Self::Whole => "whole",
            Self::Part => "part",
        }
    }

    /// The form with this name.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = [Self::Preferred, Self::Whole, Self::Part].into_iter();
        all.find(|it| it.name() == name)
    }
}

/// What a scheduler is asked for.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and has its name in an event"
)]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// Nodes; none where cpus may be anywhere.
    pub nodes: Option<u32>,
    /// Cpus of each node, or altogether where nodes are not counted; 0 for whole nodes.
    pub cpus: u32,
    /// Certain nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<String>,
    /// Whether no others will do.
    #[serde(default)]
    pub only_hosts: bool,
    /// Certain cpus of each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_list: Option<String>,
    /// Another queue than the requester's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Whether no other will do.
    #[serde(default)]
    pub only_queue: bool,
    /// Nodes, where only these are as large as what is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub among: Option<String>,
    /// Whether it was the job's own before: then it is not from a request.
    #[serde(default)]
    pub own: bool,
    /// Whether it is refused where it cannot be had now.
    #[serde(default)]
    pub required: bool,
    /// Nodes that other requests ask for to the same end.
    #[serde(default)]
    pub elsewhere: u32,
    /// Attributes that are not supported, and were not required.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
}

impl Ask {
    /// What a request for resources asks for.
    pub fn of(request: &Request) -> Result<Self, Refusal> {
        let bad = |reason: &str| Err(Refusal::new(Status::BAD_PARAM, reason));
        let counts = request.cpu_counts.as_ref().map(|it| it.value.as_slice());
        let mut listed = request.hosts.as_ref().map(|it| it.value.clone());
        let named = listed.as_ref().map(Hostlist::len);
        if let Some(list) = &mut listed {
            list.uniq();
        }
        let count = listed.as_ref().map(Hostlist::len);
        if count != named && counts.is_some() {
            return bad("`pmix.alloc.nlist`: a node that is to have cpus is named twice");
        }
        if let (Some(counts), Some(nodes)) = (counts, count)
            && counts.len() != nodes
            && counts.len() != 1
        {
            return bad("`pmix.alloc.ncpulist`: expected a number for each of `pmix.alloc.nlist`");
        }
        let counted = count.or(counts.map(<[u32]>::len));
        let counted = counted.map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        let nodes = request.nodes.as_ref().map(|it| it.value).or(counted);
        if let (Some(nodes), Some(counted)) = (nodes, counted)
            && nodes > counted
            && request.hosts.as_ref().is_some_and(|it| it.required)
        {
            return bad("`pmix.alloc.nnodes`: more than `pmix.alloc.nlist` has");
        }
        let total = request.cpus.as_ref().map(|it| it.value);
        let list = request.cpu_list.as_ref().map(|it| &it.value);
        let cpus = match (nodes, counts, total, list) {
            // A jobspec has nodes of one kind: each gets what the largest of them is to have.
            (_, Some(counts), ..) => counts.iter().copied().max().unwrap_or(1),
            (Some(nodes), None, Some(total), _) => total.div_ceil(nodes.max(1)),
            (None, None, Some(total), _) => total,
            (_, None, None, Some(list)) => u32::try_from(list.len()).unwrap_or(u32::MAX),
            (Some(_), None, None, None) => 0,
            (None, None, None, None) => return bad("expected nodes or cpus that are asked for"),
        };
        let mut dropped = request.dropped.clone();
        let uneven = |counts: &[u32]| counts.iter().any(|it| *it != cpus);
        let unequal = match (nodes, counts, total) {
            (_, Some(counts), _) if uneven(counts) => Some(Key::CpuCounts),
            (Some(nodes), _, Some(total)) if cpus.checked_mul(nodes) != Some(total) => {
                Some(Key::Cpus)
            }
            _ => None,
        };
        if let Some(key) = unequal {
            let name = key.name();
            if request.required {
                let reason = format!("`{name}`: expected as many cpus on each node");
                return Err(Refusal::new(Status::NOT_SUPPORTED, reason));
            }
            dropped.push(name.to_owned());
        }
        Ok(Self {
            nodes: nodes.or(list.map(|_| 1).filter(|_| total.is_none())),
            cpus,
            hosts: listed.map(|it| it.to_string()),
            only_hosts: request.hosts.as_ref().is_some_and(|it| it.required),
            cpu_list: list.map(ToString::to_string),
            queue: request.queue.as_ref().map(|it| it.value.clone()),
            among: None,
            own: false,
            only_queue: request.queue.as_ref().is_some_and(|it| it.required),
            required: request.required,
            elsewhere: 0,
            dropped,
        })
    }

    /// The form that is tried first.
    pub fn first(&self) -> Form {
        let preferred = (self.hosts.is_some() && !self.only_hosts)
            || (self.queue.is_some() && !self.only_queue);
        if preferred {
            Form::Preferred
        } else {
            Form::Whole
        }
    }

    /// Whether a part of the amount is worth something.
    pub fn has_parts(&self) -> bool {
        !self.required && self.nodes.unwrap_or(self.cpus) > 1
    }

    /// The queue that a form names, where it is not the requester's.
    pub fn queue_in(&self, form: Form) -> Option<&str> {
        let named = self.only_queue || form == Form::Preferred;
        self.queue.as_deref().filter(|_| named)
    }

    /// The jobspec. `queue` is the requester's, `duration` in seconds (0: none), `name` the job's.
    pub fn jobspec(&self, form: Form, queue: Option<&str>, duration: f64, name: &str) -> Value {
        let count = |number: u32| -> Value {
            if form == Form::Part && number > 1 {
                format!("1-{number}").into()
            } else {
                number.into()
            }
        };
        let slot = |count: Value, cores: u32| {
            let cores = json!([{"type": "core", "count": cores}]);
            json!({"type": "slot", "count": count, "label": "task", "with": cores})
        };
        let resource = match self.nodes {
            Some(nodes) => {
                let slot = slot(1.into(), self.cpus.max(1));
                let exclusive = self.cpus == 0;
                json!({"type": "node", "count": count(nodes), "exclusive": exclusive, "with": [slot]})
            }
            None => slot(count(self.cpus), 1),
        };
        let mut system = json!({"duration": duration, "job": {"name": name}});
        if let Some(queue) = self.queue_in(form).or(queue) {
            system["queue"] = queue.into();
        }
        let hosts = self.hosts.as_ref();
        let hosts = hosts.filter(|_| self.only_hosts || form == Form::Preferred);
        if let Some(hosts) = hosts.or(self.among.as_ref()) {
            system["constraints"] = json!({ "hostlist": [hosts] });
        }
        json!({
            "version": 1,
            "resources": [resource],
            "tasks": [{"command": [name], "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {"system": system},
        })
    }

    /// How much of the amount was given, in words, where that is not all of it.
    pub fn part(&self, given: &ResourceSet) -> Option<String> {
        let (had, asked, what) = match self.nodes {
            Some(nodes) => (given.nnodes() as u64, nodes, "nodes"),
            None => (given.ncores(), self.cpus, "cpus"),
        };
        (had < u64::from(asked)).then(|| format!("in part: {had} of {asked} {what}"))
    }

    /// The attributes that were wished for and are not met by what was given in this queue.
    pub fn unmet(&self, given: &ResourceSet, queue: Option<&str>) -> Vec<String> {
        let mut unmet = self.dropped.clone();
        let mut add = |key: Key| unmet.push(key.name().to_owned());
        let wished = self.hosts.as_ref().and_then(|it| it.parse().ok());
        if wished.is_some_and(|it: Hostlist| !given.nodelist().is_subset(&it)) {
            add(Key::NodeList);
        }
        let wished = self.cpu_list.as_ref().and_then(|it| it.parse().ok());
        let wished: Option<penstock_idset::IdSet> = wished;
        let lacks = |wished: &penstock_idset::IdSet| {
            let mut all = given.nodes();
            all.any(|node| !wished.is_subset(node.cores))
        };
        if wished.as_ref().is_some_and(lacks) {
            add(Key::CpuList);
        }
        if self.queue.is_some() && self.queue.as_deref() != queue {
            add(Key::Queue);
        }
        unmet
    }
}

#[cfg(test)]
mod tests {
    use super::{Ask, Form};
    use crate::{Attribute, Directive, Request};
    use penstock_jobspec::Jobspec;
    use penstock_rset::ResourceSet;
    use serde_json::{Value, json};

    fn ask(attributes: &Value) -> Result<Ask, i32> {
        let attributes = attributes.as_array().unwrap().iter();
        let attributes: Vec<_> = attributes
            .map(|it| Attribute::from_json(it).unwrap())
            .collect();
        let request = Request::read(Directive::New, &attributes).unwrap();
        Ask::of(&request).map_err(|refusal| refusal.status.0)
    }

    /// Nodes, slots, cores of a slot and whether nodes are exclusive, of a form.
    fn shape(ask: &Ask, form: Form) -> (Option<u32>, u32, u32, bool) {
        let text = ask.jobspec(form, Some("batch"), 60.0, "extend").to_string();
        let jobspec = Jobspec::from_json(&text).unwrap();
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
        let nodes = ask(&json!([{"key": "pmix.alloc.nnodes", "value": 3}])).unwrap();
        assert_eq!(shape(&nodes, Form::Whole), (Some(3), 1, 1, true));
        assert_eq!(shape(&nodes, Form::Part), (Some(1), 1, 1, true));
        let cpus = ask(&json!([{"key": "pmix.alloc.ncpus", "value": 5}])).unwrap();
        assert_eq!(shape(&cpus, Form::Whole), (None, 5, 1, false));
        let both = ask(&json!([
            {"key": "pmix.alloc.ncpus", "value": 5}, {"key": "pmix.alloc.nnodes", "value": 2}]));
        assert_eq!(shape(&both.unwrap(), Form::Whole), (Some(2), 1, 3, false));
        let listed = ask(&json!([
            {"key": "pmix.alloc.nlist", "value": "n1,n2"},
            {"key": "pmix.alloc.ncpulist", "value": "5,3"}]));
        assert_eq!(shape(&listed.unwrap(), Form::Whole), (Some(2), 1, 5, false));
        let cpulist = ask(&json!([{"key": "pmix.alloc.cpulist", "value": "0-3"}])).unwrap();
        assert_eq!(shape(&cpulist, Form::Whole), (Some(1), 1, 4, false));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(ask(&json!([])), Err(-27));
        let counts = json!([{"key": "pmix.alloc.nlist", "value": "n1,n2,n3"},
                            {"key": "pmix.alloc.ncpulist", "value": "5,3"}]);
        assert_eq!(ask(&counts), Err(-27));
        let more = json!([{"key": "pmix.alloc.nlist", "required": true, "value": "n1"},
                          {"key": "pmix.alloc.nnodes", "value": 2}]);
        assert_eq!(ask(&more), Err(-27));
    }

    #[test]
    fn cpus_that_are_not_as_many_on_each_node_are_refused_or_it_is_said() {
        let counts = |required: bool, counts: &str| {
            ask(
                &json!([{"key": "pmix.alloc.nlist", "required": required, "value": "n1,n2"},
                        {"key": "pmix.alloc.ncpulist", "value": counts}]),
            )
        };
        assert_eq!(
            counts(false, "3,1").unwrap().dropped,
            ["pmix.alloc.ncpulist"]
        );
        assert_eq!(counts(true, "3,1"), Err(-47));
        assert!(counts(true, "3,3").unwrap().dropped.is_empty());
        assert!(counts(true, "3").unwrap().dropped.is_empty());
        let total = |required: bool, cpus: u32| {
            ask(
                &json!([{"key": "pmix.alloc.nnodes", "required": required, "value": 2},
                        {"key": "pmix.alloc.ncpus", "value": cpus}]),
            )
        };
        assert_eq!(total(false, 5).unwrap().dropped, ["pmix.alloc.ncpus"]);
        assert_eq!(total(true, 5), Err(-47));
        assert!(total(true, 6).unwrap().dropped.is_empty());
    }

    #[test]
    fn a_node_that_is_named_twice_is_one() {
        let twice = ask(&json!([{"key": "pmix.alloc.nlist", "value": "n2,n2"}])).unwrap();
        assert_eq!((twice.nodes, twice.hosts.as_deref()), (Some(1), Some("n2")));
        let counts = json!([{"key": "pmix.alloc.nlist", "value": "n2,n2"},
                            {"key": "pmix.alloc.ncpulist", "value": "1,1"}]);
        assert_eq!(ask(&counts), Err(-27));
    }

    #[test]
    fn preferences_come_first_and_requirements_stay() {
        let preferred = ask(&json!([{"key": "pmix.alloc.nlist", "value": "n1"}])).unwrap();
        assert_eq!(preferred.first(), Form::Preferred);
        let constraint = |ask: &Ask, form| {
            let jobspec = ask.jobspec(form, None, 0.0, "new");
            jobspec["attributes"]["system"]["constraints"].clone()
        };
        assert_eq!(
            constraint(&preferred, Form::Preferred),
            json!({"hostlist": ["n1"]})
        );
        assert_eq!(constraint(&preferred, Form::Whole), Value::Null);
        let only = json!([{"key": "pmix.alloc.nlist", "required": true, "value": "n1"}]);
        let only = ask(&only).unwrap();
        assert_eq!(only.first(), Form::Whole);
        assert_eq!(constraint(&only, Form::Whole), json!({"hostlist": ["n1"]}));
        assert!(!only.has_parts());
    }

    #[test]
    fn what_is_not_met_is_told() {
        let mut given = ResourceSet::new();
        given
            .insert(
                1,
                "n1",
                "0-1".parse().unwrap(),
                penstock_idset::IdSet::new(),
            )
            .unwrap();
        let ask = ask(&json!([
            {"key": "pmix.alloc.nlist", "value": "n2"}, {"key": "pmix.alloc.cpulist", "value": "2-3"},
            {"key": "pmix.alloc.queue", "value": "fast"}, {"key": "pmix.alloc.msize", "value": 1.0},
        ]))
        .unwrap();
        assert_eq!(
            ask.unmet(&given, Some("batch")),
            [
                "pmix.alloc.msize",
                "pmix.alloc.nlist",
                "pmix.alloc.cpulist",
                "pmix.alloc.queue"
            ]
        );
    }
}
