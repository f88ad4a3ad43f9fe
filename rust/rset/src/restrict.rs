//! Parts of a set: by rank, by host, by property.

use std::collections::HashMap;

use penstock_hostlist::Hostlist;
use penstock_idset::IdSet;

use crate::execution::{Execution, Segments};
use crate::{Error, ResourceSet, hosts};

/// Greatest number of hosts for which each is searched for individually.
const MAX_SEARCHED_HOSTS: usize = 16;

impl ResourceSet {
    /// Returns the nodes of these ranks; ranks that are not in the set are ignored.
    #[must_use]
    pub fn restrict(&self, ranks: &IdSet) -> Self {
        self.with_execution(
            self.execution
                .as_ref()
                .map(|execution| execution.restrict(ranks)),
        )
    }

    /// Removes the nodes of these ranks; ranks that are not in the set are ignored.
    pub fn remove_ranks(&mut self, ranks: &IdSet) {
        if let Some(execution) = &mut self.execution {
            *execution = execution.restrict(&execution.ranks.difference(ranks));
        }
    }

    /// Returns the same nodes in the same order with the ranks 0, 1, 2 …
    #[must_use]
    pub fn rerank(&self) -> Self {
        // There are never more ranks than there can be.
        self.with_execution(
            self.execution
                .as_ref()
                .and_then(|execution| execution.renumber(0).ok()),
        )
    }

    fn with_execution(&self, execution: Option<Execution>) -> Self {
        Self {
            execution,
            scheduling: self.scheduling.clone(),
            attributes: self.attributes.clone(),
            others: self.others.clone(),
        }
    }

    /// Returns the ranks on any of these hosts; hosts that are not in the set are ignored.
    ///
    /// The cost is proportional to the ranges of the lists.
    ///
    /// ```
    /// use penstock_rset::ResourceSet;
    ///
    /// let r = ResourceSet::uniform(&(0..=99).into(), &"node[0-99]".parse().unwrap(), (0..=7).into(), (0..=0).into())?;
    /// assert_eq!(r.ranks_on(&"node[90-110],other".parse().unwrap()).to_string(), "90-99");
    /// # Ok::<(), penstock_rset::Error>(())
    /// ```
    pub fn ranks_on(&self, hosts: &Hostlist) -> IdSet {
        let execution = self.view();
        hosts::ranks_at(&execution.ranks, &execution.hosts.ranks(hosts))
    }

    /// Whether any of these hosts is in the set.
    pub fn has_any_host(&self, hosts: &Hostlist) -> bool {
        let own = &self.view().hosts;
        if own.len() > MAX_SEARCHED_HOSTS {
            return !self.ranks_on(hosts).is_empty();
        }
        own.iter().any(|host| hosts.contains(&host))
    }

    /// As [`ResourceSet::ranks_on`], but hosts that are not in the set are an error.
    ///
    /// # Errors
    ///
    /// A host is not in the set, or the R has no `execution`. The error names all such hosts.
    pub fn ranks_on_all(&self, hosts: &Hostlist) -> Result<IdSet, Error> {
        self.require_execution()?;
        let own = &self.view().hosts;
        let unknown = hosts.difference(own);
        if unknown.is_empty() {
            Ok(self.ranks_on(hosts))
        } else {
            Err(hosts::unknown(&unknown))
        }
    }

    /// Returns the ranks on these hosts, in the order of `hosts`; all ranks of a host, ascending.
    ///
    /// # Errors
    ///
    /// A host is not in the set, or the R has no `execution`. The error names all such hosts.
    pub fn host_ranks(&self, hosts: &Hostlist) -> Result<Vec<u32>, Error> {
        let ranks = self.ranks_on_all(hosts)?;
        let execution = self.view();
        if hosts::of_part(execution, &ranks) == *hosts && hosts::are_distinct(hosts) {
            return Ok(ranks.iter().collect());
        }
        if hosts.len() <= MAX_SEARCHED_HOSTS {
            let rank_at = |position| execution.ranks.nth(position as u64);
            let ranks = |host: String| {
                let positions = execution.hosts.positions(&host);
                positions.filter_map(rank_at).collect::<Vec<_>>()
            };
            return Ok(hosts.iter().flat_map(ranks).collect());
        }
        // With many hosts one pass over the set is cheaper than a search for each.
        let mut index: HashMap<String, Vec<u32>> = HashMap::new();
        for (host, rank) in hosts::of_part(execution, &ranks).iter().zip(&ranks) {
            index.entry(host).or_default().push(rank);
        }
        let ranks = hosts.iter().filter_map(|host| index.get(&host));
        Ok(ranks.flatten().copied().collect())
    }

    /// Returns the ranks with a property. By RFC 20, `name@suffix` counts as `name` too.
    pub fn ranks_with_property(&self, name: &str) -> IdSet {
        let properties = self.properties();
        let mut ranks = properties.get(name).cloned().unwrap_or_default();
        let from = format!("{name}@");
        let suffixed = properties.range(from.clone()..);
        for (_, more) in suffixed.take_while(|(other, _)| other.starts_with(&from)) {
            ranks.union_with(more);
        }
        ranks
    }
}

impl Execution {
    fn restrict(&self, ranks: &IdSet) -> Self {
        let mut segments = Segments::default();
        let ranks = self.ranks.intersection(ranks);
        for range in ranks.ranges() {
            segments.extend_within(&self.segments, &range);
        }
        self.keep(segments, ranks)
    }
}
