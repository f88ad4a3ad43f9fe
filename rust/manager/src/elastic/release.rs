//! RELEASE and REACQUIRE: what goes back, what is lent, and what of it comes back.

use penstock_elastic::{
    Attribute, Data, Entry, Holding, Key, Lend, Part, Refusal as Denial, Request, Status, share,
};
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use penstock_wire::Message;
use serde_json::json;

use super::calls::Asker;
use super::grant::{add_dropped, document, given, json_of};
use super::submission::name_of;
use super::target::{Target, ids};
use super::{End, Number};
use crate::event::Event;
use crate::job::Exec;
use crate::manager::Manager;
use crate::rpc;

fn out(reason: impl Into<String>) -> Denial {
    Denial::new(Status::OUT_OF_RESOURCE, reason)
}

impl Manager {
    /// The parts of an allocation: its own, then its grants, the oldest first.
    fn holdings(&self, target: u64) -> Vec<Holding> {
        let grants = self.jobs.get(&target).and_then(|it| it.flex.as_ref());
        let grants = grants.map(|it| ids(&it.grants)).unwrap_or_default();
        let parts = std::iter::once(target).chain(grants);
        let holding = |alloc| {
            let job = self.jobs.get(&alloc)?;
            let ranks = job.r.as_ref()?.ranks();
            let ranks = ranks.difference(&job.freed).difference(&job.kept);
            Some(Holding { alloc, ranks })
        };
        parts.filter_map(holding).collect()
    }

    /// RELEASE, which is done at once.
    pub(super) fn release_parts(
        &mut self,
        number: Number,
        asker: &Asker,
        wanted: &Request,
        meant: Target,
        now: f64,
    ) -> Result<(), Denial> {
        let (target, only) = match meant {
            Target::Own => (asker.job, None),
            Target::Allocation(id) => (id, None),
            Target::Grant(id) => (asker.job, Some(id)),
        };
        if wanted.cpus.is_some() || wanted.cpu_counts.is_some() || wanted.cpu_list.is_some() {
            let reason = "nodes go back as a whole: expected nodes to release, found cpus";
            return Err(Denial::new(Status::NOT_SUPPORTED, reason));
        }
        let named = wanted.nodes.is_some() || wanted.hosts.is_some();
        if meant == Target::Own && !named {
            let reason = "expected nodes to release";
            return Err(Denial::new(Status::BAD_PARAM, reason));
        }
        let (parts, lacking) = self.choose(asker, wanted, target, only)?;
        let mut gone = ResourceSet::new();
        for part in &parts {
            let r = self.jobs.get(&part.alloc).and_then(|it| it.r.clone());
            if let Some(r) = r {
                let union = gone.union(&r.restrict(&part.ranks));
                gone = union.map_err(|error| out(error.to_string()))?;
            }
        }
        if wanted.time.is_some() && self.is_all(target, &parts) {
            let reason = "an allocation cannot be lent as a whole: something has to stay";
            return Err(Denial::new(Status::BAD_PARAM, reason));
        }
        let kept = parts.iter().any(|it| !it.all) && !self.allocator.takes_parts();
        if kept && wanted.time.is_some() {
            let reason = "the scheduler takes back whole allocations only: a part cannot be lent";
            return Err(Denial::new(Status::NOT_SUPPORTED, reason));
        }
        let entry = Entry {
            target: Some(target).filter(|it| *it != asker.job),
            nodes: u32::try_from(gone.nnodes()).unwrap_or(u32::MAX),
            ..Entry::default()
        };
        self.enter(number, asker, wanted, entry, now);
        let lent = wanted.time.as_ref().map(|time| {
            let lend = Lend {
                id: wanted.id.clone(),
                target: Some(target).filter(|it| *it != asker.job),
                until: Some(now + f64::from(time.value)),
                ..Lend::default()
            };
            self.lends_of(&gone, &self.own_among(target, &parts), &lend)
        });
        let lent = lent.unwrap_or_default();
        self.give_back(target, &parts, &gone, now);
        let mut results = vec![Attribute::result(Key::AllocId, Data::Text(name_of(target)))];
        if let Some(id) = &wanted.id {
            results.push(Attribute::result(Key::RequestId, Data::Text(id.clone())));
        }
        results.extend(given(&gone));
        if let Some(time) = &wanted.time {
            results.push(Attribute::result(Key::Time, Data::Whole(time.value.into())));
        }
        let mut reasons = Vec::new();
        match wanted.nodes.as_ref().map(|it| it.value as usize) {
            Some(count) if count > gone.nnodes() => {
                reasons.push(format!("in part: {} of {count} nodes", gone.nnodes()));
                reasons.extend(lacking);
            }
            Some(_) => {}
            None => reasons.extend(lacking),
        }
        if kept {
            let when = "not free for others before the allocation ends";
            reasons.push(format!("{when}: the scheduler takes back whole ones only"));
        }
        add_dropped(wanted.meaningless(), &mut results, &mut reasons);
        let end = End {
            reason: reasons.join("; "),
            results: json_of(&results),
            lent,
            ..End::default()
        };
        self.end_request(number, &end, now);
        Ok(())
    }

    /// What goes back, in which parts: never the requester's own node; and why named hosts do not.
    fn choose(
        &mut self,
        asker: &Asker,
        wanted: &Request,
        target: u64,
        only: Option<u64>,
    ) -> Result<(Vec<Part>, Vec<String>), Denial> {
        let mut holdings = self.holdings(target);
        let mut keep = if target == asker.job {
            self.own_node(asker)
        } else {
            IdSet::new()
        };
        let mut kept = "the requester's own node stays";
        let own = holdings.first().filter(|it| it.alloc == asker.job);
        if let Some(own) = own.filter(|it| it.ranks.is_disjoint(&keep)) {
            keep.extend(own.ranks.iter().take(1));
            kept = "one of the nodes that the job began with stays";
        }
        if let Some(only) = only {
            let parts = self.elastic.all_parts(only);
            holdings.retain(|it| parts.contains(&it.alloc));
            // A grant on the requester's own node goes, the node itself stays.
            keep = IdSet::new();
        }
        let mut free = IdSet::new();
        for holding in &holdings {
            free.union_with(&holding.ranks.difference(&keep));
        }
        let (mut named, mut reasons) = (None, Vec::new());
        if let Some(hosts) = &wanted.hosts {
            let extent = self.jobs.get(&target).and_then(|it| it.extent());
            let extent = extent.ok_or_else(|| out("the allocation has no nodes"))?;
            let whose = match (only, target == asker.job) {
                (Some(_), _) => "the grant's",
                (None, true) => "the job's",
                (None, false) => "the allocation's",
            };
            let held = free.union(&keep);
            let hosts_kept = extent.ranks_on(&hosts.value).intersection(&keep);
            let strange = extent.restrict(&held).nodelist();
            let strange = hosts.value.difference(&strange);
            if !strange.is_empty() {
                let are = if strange.len() == 1 { "is" } else { "are" };
                reasons.push(format!("`{strange}` {are} not {whose}"));
            }
            if !hosts_kept.is_empty() {
                let hosts = extent.restrict(&hosts_kept).nodelist();
                reasons.push(format!("`{hosts}`: {kept}"));
            }
            if hosts.required && !reasons.is_empty() {
                return Err(out(reasons.join("; ")));
            }
            free = extent.ranks_on(&hosts.value).intersection(&free);
            named = Some(free.clone());
        }
        let most = free.len();
        let count = wanted.nodes.as_ref().map(|it| u64::from(it.value));
        let short = count.is_some_and(|count| count > most);
        if most == 0 || (short && wanted.required) {
            if named.is_none() && !keep.is_empty() {
                reasons.push(kept.to_owned());
            }
            let what = match count {
                Some(1) => "1 node".to_owned(),
                Some(count) => format!("{count} nodes"),
                None => "nodes".to_owned(),
            };
            reasons.insert(0, format!("{what} to release: {most} can go back"));
            return Err(out(reasons.join("; ")));
        }
        let parts = share(&holdings, named.as_ref(), count, &keep);
        Ok((parts, reasons))
    }

    /// Whether parts are all that an allocation holds.
    fn is_all(&self, target: u64, parts: &[Part]) -> bool {
        let goes = |holding: &Holding| {
            let mut parts = parts.iter().filter(|it| it.all);
            holding.ranks.is_empty() || parts.any(|it| it.alloc == holding.alloc)
        };
        self.holdings(target).iter().all(goes)
    }

    fn give_back(&mut self, target: u64, parts: &[Part], gone: &ResourceSet, now: f64) {
        let own = parts.iter().find(|it| it.alloc == target);
        let ranks = own.map_or_else(IdSet::new, |it| it.ranks.clone());
        let last = own.is_some_and(|it| it.all);
        let all = self.is_all(target, parts);
        let ended: Vec<u64> = parts
            .iter()
            .filter(|it| it.all && it.alloc != target)
            .map(|it| it.alloc)
            .collect();
        if all {
            // An allocation without tasks of which nothing is left: it ends.
            return self.finish_standing(target, now);
        }
        if !ranks.is_empty() {
            self.send_free(target, &ranks, last);
            self.claims.release(target, &ranks);
            self.tell_executor(target, &ranks);
        }
        let context = json!({"R": document(gone), "ranks": ranks.to_string(), "ended": ended});
        let event = Event::with(now, "penstock.resource-remove", context);
        self.post(target, &event);
        for part in parts.iter().filter(|it| it.alloc != target) {
            if part.all {
                self.finish_standing(part.alloc, now);
                continue;
            }
            self.send_free(part.alloc, &part.ranks, false);
            self.claims.release(part.alloc, &part.ranks);
            let r = self.jobs.get(&part.alloc).and_then(|it| it.r.as_ref());
            let r = r.map(|it| document(&it.restrict(&part.ranks)));
            let context = json!({"R": r, "ranks": part.ranks.to_string(), "ended": []});
            let event = Event::with(now, "penstock.resource-remove", context);
            self.post(part.alloc, &event);
        }
    }

    /// The job's tasks on these ranks are to end.
    fn tell_executor(&mut self, id: u64, ranks: &IdSet) {
        let runs = self.jobs.get(&id).map(|job| job.exec) == Some(Exec::Requested);
        if let Some(topic) = self.executor.topic("shrink").filter(|_| runs) {
            let payload = json!({"id": id, "ranks": ranks.to_string()}).to_string();
            let request = Message::request(&topic, &payload);
            self.out.push(rpc::unanswered(request));
        }
    }
}
