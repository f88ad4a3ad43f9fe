//! Loans: what of them is asked back, by whom and when. What comes back is what was lent, node for
//! node and cpu for cpu.

use std::collections::BTreeMap;

use penstock_elastic::{
    Account, Ask, Directive, Entry, Lend, Part, Refusal as Denial, Request, Status,
};
use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;
use penstock_rset::ResourceSet;
use serde_json::json;

use super::calls::Asker;
use super::submission::name_of;
use super::{End, Number};
use crate::event::Event;
use crate::manager::Manager;
use crate::state::State;

/// Seconds after which a loan is asked back again whose return was refused or cancelled: twice as many
/// each time, up to the most.
const RETRY_INTERVAL_S: f64 = 60.0;
const MAX_RETRY_INTERVAL_S: f64 = 3600.0;

/// A loan whose return was refused or cancelled.
#[derive(Clone, Debug)]
pub(super) struct PostponedReturn {
    /// When it is asked back again, seconds since the epoch.
    pub(super) until: f64,
    /// The seconds between that and the last time.
    seconds: f64,
    /// Why it was not had back.
    pub(super) reason: String,
}

/// Loans by number, and how many nodes of each.
type Returns = Vec<(u32, u32)>;

fn out(reason: impl Into<String>) -> Denial {
    Denial::new(Status::OUT_OF_RESOURCE, reason)
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Manager {
    /// The ranks among those that go back which are no request's, or were not before they were
    /// lent.
    pub(super) fn own_among(&self, target: u64, parts: &[Part]) -> IdSet {
        let mut own = IdSet::new();
        for part in parts {
            let requested = self.jobs.get(&part.alloc).and_then(|it| it.requested());
            if part.alloc == target || requested.is_some_and(|it| it.ask.own) {
                own.union_with(&part.ranks);
            }
        }
        own
    }

    /// What goes back, by kinds of nodes; the rest of each loan is as `lend` has it.
    pub(super) fn lends_of(&self, gone: &ResourceSet, own: &IdSet, lend: &Lend) -> Vec<Lend> {
        let mut kinds: BTreeMap<(bool, bool, u32, u32), IdSet> = BTreeMap::new();
        for node in gone.nodes() {
            let whole = self.claims.is_whole(&node);
            let own = own.contains(node.rank);
            let kind = (own, whole, count(node.cores.len()), count(node.gpus.len()));
            kinds.entry(kind).or_default().insert(node.rank);
        }
        let lends = kinds
            .into_iter()
            .map(|((own, whole, cpus, gpus), ranks)| Lend {
                nodes: count(ranks.len()),
                cpus,
                gpus,
                whole,
                own,
                hosts: gone.restrict(&ranks).nodelist().to_string(),
                ..lend.clone()
            });
        lends.collect()
    }

    /// What a request asks back, by kinds: one request in the queue asks for nodes of one kind.
    fn returns_of(&self, job: u64, wanted: &Request) -> Vec<Returns> {
        let Some(account) = self.elastic.ledger.account(job) else {
            return Vec::new();
        };
        let most = wanted.nodes.as_ref().map(|it| it.value);
        let mut kinds: Vec<(&Lend, Returns)> = Vec::new();
        for (number, nodes) in account.to_return(wanted.alloc.as_deref(), most) {
            let Some(lend) = account.lend(number) else {
                continue;
            };
            match kinds.iter_mut().find(|(kind, _)| kind.is_like(lend)) {
                Some((_, returns)) => returns.push((number, nodes)),
                None => kinds.push((lend, vec![(number, nodes)])),
            }
        }
        kinds.into_iter().map(|(_, returns)| returns).collect()
    }

    /// REACQUIRE: as much as was lent, on the same hosts if they are free. Nodes of different
    /// kinds are asked for by a request each; the first is the caller's.
    pub(super) fn reacquire(
        &mut self,
        (number, asker, wanted): (Number, &Asker, &Request),
        now: f64,
    ) -> Result<(), Denial> {
        let kinds = self.returns_of(number.0, wanted);
        let nodes: u32 = kinds.iter().flatten().map(|it| it.1).sum();
        let most = wanted.nodes.as_ref().map(|it| it.value);
        let short = most.is_some_and(|most| most > nodes);
        if nodes == 0 || (short && wanted.required) {
            let reason = format!("{nodes} nodes are lent and not asked for yet");
            let status = if nodes == 0 {
                Status::NOT_FOUND
            } else {
                Status::OUT_OF_RESOURCE
            };
            return Err(Denial::new(status, reason));
        }
        if kinds.len() > 1 && wanted.required {
            return self.ask_all_back((number, asker, wanted), &kinds, now);
        }
        let mut kinds = kinds.into_iter();
        let first = kinds.next().unwrap_or_default();
        let elsewhere = nodes - first.iter().map(|it| it.1).sum::<u32>();
        self.ask_back((number, asker, wanted), first, elsewhere, now)?;
        for returns in kinds {
            let account = self.elastic.ledger.account(number.0);
            let number = (number.0, account.map_or(1, Account::next));
            let begun = self.ask_back((number, asker, wanted), returns, 0, now);
            if let Err(denial) = begun {
                self.enter(number, asker, wanted, Entry::default(), now);
                self.end_request(number, &End::refused(denial), now);
            }
        }
        Ok(())
    }

    /// Asks for nodes of one kind; `elsewhere` are asked for by other requests.
    fn ask_back(
        &mut self,
        (number, asker, wanted): (Number, &Asker, &Request),
        returns: Returns,
        elsewhere: u32,
        now: f64,
    ) -> Result<(), Denial> {
        let Some((ask, target)) = self.ask_of(number.0, wanted, &returns)? else {
            return Ok(());
        };
        let ask = Ask { elsewhere, ..ask };
        let left = self.time_left(target, now);
        let call = (number, asker, wanted);
        self.ask_for(call, ask, Some(target), left, returns, now)
    }

    /// Asks for nodes of several kinds: all of them or none.
    fn ask_all_back(
        &mut self,
        (number, asker, wanted): (Number, &Asker, &Request),
        kinds: &[Returns],
        now: f64,
    ) -> Result<(), Denial> {
        if kinds.len() > Ask::MOST_PARTS {
            let most = Ask::MOST_PARTS;
            let reason = format!(
                "what was lent is of {} kinds of nodes: at most {most} come back together",
                kinds.len()
            );
            return Err(Denial::new(Status::NOT_SUPPORTED, reason));
        }
        let mut parts = Vec::new();
        for returns in kinds {
            if let Some((ask, target)) = self.ask_of(number.0, wanted, returns)? {
                let joins = Some(target);
                parts.push(Ask { joins, ..ask });
            }
        }
        // The largest first: it is what the fewest nodes can give.
        parts.sort_by_key(|it| std::cmp::Reverse((it.cpus == 0, it.cpus)));
        let mut parts = parts.into_iter();
        let Some(first) = parts.next() else {
            return Ok(());
        };
        let target = first.joins.unwrap_or(asker.job);
        let ask = Ask {
            rest: parts.collect(),
            ..first
        };
        let left = self.time_left(target, now);
        let call = (number, asker, wanted);
        self.ask_for(call, ask, Some(target), left, kinds.concat(), now)
    }

    /// What is asked for to bring these loans back, which are of one kind, and for which allocation.
    fn ask_of(
        &self,
        job: u64,
        wanted: &Request,
        returns: &Returns,
    ) -> Result<Option<(Ask, u64)>, Denial> {
        let account = self.elastic.ledger.account(job);
        let lends = returns.iter();
        let lends = lends.filter_map(|(loan, nodes)| Some((account?.lend(*loan)?, *nodes)));
        let lends: Vec<(&Lend, u32)> = lends.collect();
        let Some((kind, _)) = lends.first().copied() else {
            return Ok(None);
        };
        let mut hosts = Hostlist::default();
        for (lend, _) in &lends {
            let more = hosts.extend_from_str(&lend.hosts);
            more.map_err(|error| out(error.to_string()))?;
        }
        let among = self.claims.nodes_like(kind.cpus, kind.gpus);
        let among = among.filter(|_| kind.whole).map(|it| it.to_string());
        let ask = Ask {
            nodes: Some(lends.iter().map(|it| it.1).sum()),
            cpus: if kind.whole { 0 } else { kind.cpus },
            hosts: Some(hosts.to_string()),
            among,
            own: kind.own,
            required: wanted.required,
            dropped: wanted.dropped.clone(),
            ..Ask::default()
        };
        Ok(Some((ask, kind.target.unwrap_or(job))))
    }

    /// The time of a loan is over: it is asked back.
    pub(super) fn loan_due(&mut self, job: u64, loan: u32, now: f64) {
        let account = self.elastic.ledger.account(job);
        let Some((account, lend)) = account.and_then(|it| Some((it, it.lend(loan)?))) else {
            return;
        };
        let wanted = Request::new(Directive::Reacquire);
        let returns = vec![(loan, lend.outstanding())];
        let number = (job, account.next());
        let asker = Asker {
            job,
            rank: None,
            host: None,
        };
        if let Err(denial) = self.ask_back((number, &asker, &wanted), returns, 0, now) {
            let name = name_of(job);
            self.note(format!("loan of job {name}: {}", denial.reason));
            self.postpone_return(job, loan, &denial.reason, now);
        }
    }

    fn postpone_return(&mut self, job: u64, loan: u32, reason: &str, now: f64) {
        let before = self.elastic.postponed.get(&(job, loan));
        let seconds = before.map_or(RETRY_INTERVAL_S, |it| {
            (it.seconds * 2.0).min(MAX_RETRY_INTERVAL_S)
        });
        let until = now + seconds;
        let postponed = PostponedReturn {
            until,
            seconds,
            reason: reason.to_owned(),
        };
        self.elastic.postponed.insert((job, loan), postponed);
        self.elastic.at(until, job);
    }

    /// A request that has asked these loans back is over. What has not come is asked for again in its
    /// time.
    pub(super) fn expect_loans(&mut self, job: u64, returns: &[(u32, u32)], end: &End, now: f64) {
        let came = end.nodes > 0;
        for (loan, _) in returns {
            let account = self.elastic.ledger.account(job);
            let lend = account.and_then(|it| it.lend(*loan));
            if came || lend.is_none() {
                self.elastic.postponed.remove(&(job, *loan));
            }
            match lend.and_then(|it| it.until) {
                Some(until) if until > now => self.elastic.at(until, job),
                Some(_) => self.postpone_return(job, *loan, &end.reason, now),
                None => {}
            }
        }
    }

    /// What a refusal rested on may be otherwise: loans that were put off are asked back now.
    pub(crate) fn retry_postponed_returns(&mut self, now: f64) {
        for (job, _) in std::mem::take(&mut self.elastic.postponed).into_keys() {
            self.elastic.at(now, job);
        }
    }

    /// An allocation has ended: so have requests for it, and loans of it.
    pub(super) fn end_loans_of(&mut self, target: u64, now: f64) {
        let accounts = self.elastic.ledger.about(target);
        let open = accounts.flat_map(|(job, account)| account.open().map(move |it| (job, it)));
        let open = open.filter(|(_, it)| it.target == Some(target));
        let open: Vec<Number> = open.map(|(job, it)| (job, it.seq)).collect();
        for number in open {
            let denial = Denial::new(Status::CANCELLED, "the allocation has ended");
            self.end_request(number, &End::refused(denial), now);
        }
        let accounts = self.elastic.ledger.about(target);
        let lent = |account: &Account| account.lends().any(|(_, it)| it.target == Some(target));
        let jobs = accounts.filter(|(_, account)| lent(account));
        let runs = |job: &u64| self.jobs.get(job).is_some_and(|it| it.state == State::Run);
        let jobs: Vec<u64> = jobs.map(|(job, _)| job).filter(runs).collect();
        for job in jobs {
            let context = json!({ "target": target });
            self.post(job, &Event::with(now, "penstock.loan-end", context));
        }
    }
}
