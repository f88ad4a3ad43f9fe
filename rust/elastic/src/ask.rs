//! What of a request a scheduler is asked for, as a jobspec without tasks to run.

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::names::Key;

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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Certain cpus of each node; of whole nodes so many are preferred.
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
    /// Nodes with other numbers of cpus, to be asked for when these are there: all or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rest: Vec<Self>,
    /// Whether that is a number of cpus that does not divide: it may be had in part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spread: bool,
    /// Nodes that are not meant: what is there of the same request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart: Option<String>,
    /// The allocation that this joins, where it is not the one that the first part does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<u64>,
}

impl Ask {
    /// This and the rest.
    pub fn parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.rest)
    }

    /// Nodes of all parts, where they are counted.
    pub fn all_nodes(&self) -> Option<u32> {
        let mut nodes = self.parts().map(|it| it.nodes);
        nodes.try_fold(0_u32, |sum, it| Some(sum.saturating_add(it?)))
    }

    /// Cpus of all parts; of whole nodes none.
    pub fn all_cpus(&self) -> u64 {
        let parts = self.parts();
        let cpus = parts.map(|it| u64::from(it.cpus) * u64::from(it.nodes.unwrap_or(1)));
        cpus.fold(0, u64::saturating_add)
    }

    /// The same, with another part as the first.
    #[must_use]
    pub fn beginning_with(&self, place: usize) -> Self {
        let plain = |it: &Self| Self {
            rest: Vec::new(),
            dropped: Vec::new(),
            ..it.clone()
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

    /// What is asked for when this part is there, which is on these hosts; none where it is the last.
    /// `apart` says whether the others are to be on other nodes.
    pub fn next(&self, hosts: &Hostlist, apart: bool) -> Option<Self> {
        let (first, rest) = self.rest.split_first()?;
        let mut taken = hosts.to_string();
        if let Some(others) = &self.apart {
            taken = format!("{others},{taken}");
        }
        Some(Self {
            rest: rest.to_vec(),
            apart: Some(taken).filter(|_| apart),
            ..first.clone()
        })
    }

    /// The form that is tried first.
    pub fn first(&self) -> Form {
        let preferred = (self.hosts.is_some() && !self.only_hosts)
            || (self.queue.is_some() && !self.only_queue)
            || (self.cpu_list.is_some() && self.cpus == 0);
        if preferred {
            Form::Preferred
        } else {
            Form::Whole
        }
    }

    /// Whether a part of the amount is worth something.
    pub fn has_parts(&self) -> bool {
        let parts = self.spread || self.rest.is_empty();
        !self.required && parts && self.all_nodes().unwrap_or(self.cpus) > 1
    }

    /// How many cpus are listed.
    fn listed(&self) -> Option<u32> {
        let list = self.cpu_list.as_ref()?.parse::<IdSet>().ok()?;
        u32::try_from(list.len()).ok()
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
        let (nodes, cpus) = match form {
            // Of cpus that do not divide, so many on as many nodes as there are.
            Form::Part => (self.all_nodes(), self.parts().map(|it| it.cpus).min()),
            _ => (self.nodes, Some(self.cpus)),
        };
        let listed = self.listed().filter(|_| form == Form::Preferred);
        let cpus = cpus.filter(|it| *it > 0).or(listed).unwrap_or(0);
        let resource = match nodes {
            Some(nodes) => {
                let slot = slot(1.into(), cpus.max(1));
                let exclusive = cpus == 0;
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
        let among = hosts.or(self.among.as_ref());
        let among = among.map(|hosts| json!({ "hostlist": [hosts] }));
        let apart = self.apart.as_ref();
        let apart = apart.map(|hosts| json!({"not": [{ "hostlist": [hosts] }]}));
        match (among, apart) {
            (Some(among), Some(apart)) => system["constraints"] = json!({"and": [among, apart]}),
            (Some(one), None) | (None, Some(one)) => system["constraints"] = one,
            (None, None) => {}
        }
        json!({
            "version": 1,
            "resources": [resource],
            "tasks": [{"command": [name], "slot": "task", "count": {"per_slot": 1}}],
            "attributes": {"system": system},
        })
    }

    /// What is asked for, in words.
    pub fn describe(&self) -> String {
        let many = |number: u32, noun: &str| {
            let plural = if number == 1 { "" } else { "s" };
            format!("{number} {noun}{plural}")
        };
        let part = |it: &Self| {
            let mut text = match (it.nodes, it.cpus) {
                (Some(nodes), 0) => many(nodes, "whole node"),
                (Some(1), cpus) => format!("1 node with {}", many(cpus, "cpu")),
                (Some(nodes), cpus) => format!("{nodes} nodes with {} each", many(cpus, "cpu")),
                (None, cpus) => many(cpus, "cpu"),
            };
            if let Some(hosts) = it.hosts.as_ref().filter(|_| it.only_hosts) {
                text.push_str(" of ");
                text.push_str(hosts);
            }
            text
        };
        let parts: Vec<String> = self.parts().map(part).collect();
        parts.join(" and ")
    }

    /// How much of the amount was given, in words, where that is not all of it.
    pub fn part(&self, given: &ResourceSet) -> Option<String> {
        let (had, asked, what) = match self.nodes {
            Some(nodes) if self.rest.is_empty() => {
                (given.nnodes() as u64, u64::from(nodes), "nodes")
            }
            _ => (given.ncores(), self.all_cpus(), "cpus"),
        };
        (had < asked).then(|| format!("in part: {had} of {asked} {what}"))
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
        let wished: Option<IdSet> = wished;
        let lacks = |wished: &IdSet| {
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
pub(crate) mod tests {
    use super::{Ask, Form};
    use crate::{Attribute, Directive, Request};
    use penstock_jobspec::Jobspec;
    use penstock_rset::ResourceSet;
    use serde_json::{Value, json};

    /// What a request for a new allocation asks for.
    pub(crate) fn ask(attributes: &Value) -> Result<Ask, i32> {
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
            {"key": "pmix.alloc.ncpus", "value": 6}, {"key": "pmix.alloc.nnodes", "value": 2}]));
        assert_eq!(shape(&both.unwrap(), Form::Whole), (Some(2), 1, 3, false));
        let seven = ask(&json!([
            {"key": "pmix.alloc.ncpus", "value": 7}, {"key": "pmix.alloc.nnodes", "value": 2}]));
        let seven = seven.unwrap();
        assert_eq!(shape(&seven, Form::Whole), (Some(1), 1, 4, false));
        assert_eq!(shape(&seven, Form::Part), (Some(1), 1, 3, false));
        let listed = ask(&json!([
            {"key": "pmix.alloc.nlist", "value": "n1,n2"},
            {"key": "pmix.alloc.ncpulist", "value": "5,5"}]));
        assert_eq!(shape(&listed.unwrap(), Form::Whole), (Some(2), 1, 5, false));
        let list = json!({"key": "pmix.alloc.cpulist", "value": "0-3"});
        let alone = ask(&json!([list])).unwrap();
        assert_eq!(shape(&alone, Form::Whole), (Some(1), 1, 4, false));
        assert_eq!(alone.first(), Form::Whole, "it is the amount");
        let wished = ask(&json!([list, {"key": "pmix.alloc.nnodes", "value": 2}])).unwrap();
        assert_eq!(wished.first(), Form::Preferred);
        assert_eq!(shape(&wished, Form::Preferred), (Some(2), 1, 4, false));
        assert_eq!(shape(&wished, Form::Whole), (Some(2), 1, 1, true));
        let counted = [list, json!({"key": "pmix.alloc.ncpus", "value": 3})];
        let counted = ask(&json!(counted)).unwrap();
        assert_eq!(shape(&counted, counted.first()), (None, 3, 1, false));
    }

    #[test]
    fn a_part_is_asked_for_beside_those_that_are_there() {
        let listed = ask(
            &json!([{"key": "pmix.alloc.nlist", "required": true, "value": "n1,n2,n3"},
                                 {"key": "pmix.alloc.ncpulist", "value": "3,2,1"}]),
        );
        let hosts = |text: &str| text.parse().unwrap();
        let second = listed.unwrap().next(&hosts("n1"), true).unwrap();
        let third = second.next(&hosts("n2"), true).unwrap();
        assert_eq!(third.next(&hosts("n3"), true), None);
        let jobspec = third.jobspec(Form::Whole, None, 0.0, "new");
        let constraints = &jobspec["attributes"]["system"]["constraints"];
        let expected = json!({"and": [{"hostlist": ["n3"]}, {"not": [{"hostlist": ["n1,n2"]}]}]});
        assert_eq!(*constraints, expected);
        assert!(Jobspec::from_json(&jobspec.to_string()).is_ok());
        assert_eq!(second.next(&hosts("n2"), false).unwrap().apart, None);
    }

    #[test]
    fn any_part_may_be_the_first() {
        let listed = ask(&json!([{"key": "pmix.alloc.nlist", "value": "n1,n2,n3"},
                                 {"key": "pmix.alloc.msize", "value": 1.0},
                                 {"key": "pmix.alloc.ncpulist", "value": "3,2,1"}]));
        let listed = listed.unwrap();
        let cpus = |ask: &Ask| ask.parts().map(|it| it.cpus).collect::<Vec<_>>();
        let turned = listed.beginning_with(1);
        assert_eq!(cpus(&turned), [2, 3, 1]);
        assert_eq!(turned.dropped, ["pmix.alloc.msize"]);
        assert_eq!(turned.beginning_with(1), listed);
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
