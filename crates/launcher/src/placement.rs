//! Places ranks on hosts. This module does no I/O: the same list of hosts gives the same placement
//! everywhere.
//!
//! Ranks fill the hosts in the order in which they are named, slot by slot. Ranks beyond the slots
//! go to the hosts in turn. The ranks of one host are in ascending order. Spare hosts follow.

use ringfold_types::{Rank, limits};

use crate::hosts::Host;

/// A job's ranks on its hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placement {
    /// The number of ranks of the job.
    pub size: usize,
    /// The hosts that have ranks, then the spare ones, which have none at the start.
    pub hosts: Vec<Share>,
}

/// The part of a job that one host runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Share {
    /// The name of the host for the agent.
    pub host: String,
    /// Its ranks. The position in this list is the local rank.
    pub ranks: Vec<Rank>,
    /// How many ranks of other hosts it may take, if it is a spare host.
    pub spare_slots: usize,
}

impl Share {
    /// How many ranks it may have.
    pub(crate) fn slots(&self) -> usize {
        self.ranks.len() + self.spare_slots
    }
}

/// Why a job cannot be placed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// There are no ranks, or more than `limits::RANKS_MAX`.
    #[error("a job has 1 to {} ranks, not {asked}", limits::RANKS_MAX)]
    Ranks {
        /// The requested number of ranks.
        asked: usize,
    },
    /// There are more ranks than slots, without `--oversubscribe`.
    #[error(
        "{asked} ranks do not fit the {slots} slots of the hosts named: \
         add hosts or slots, or pass --oversubscribe"
    )]
    Slots {
        /// The requested number of ranks.
        asked: usize,
        /// The available slots.
        slots: usize,
    },
    /// There is no host to place a rank on.
    #[error("no host is named")]
    NoHost,
    /// A spare host is a host of the job.
    #[error(
        "--spare {host}: this host is one of those for the ranks at the start: name it in one of \
         the two lists only"
    )]
    SpareInUse {
        /// The spare host.
        host: String,
    },
}

impl Placement {
    /// Places `ranks` ranks (by default one per slot) on `hosts`.
    ///
    /// # Errors
    /// There are too few or too many ranks, or too few slots without `oversubscribe`.
    pub fn place(
        ranks: Option<usize>,
        hosts: &[Host],
        oversubscribe: bool,
    ) -> Result<Self, PlacementError> {
        let slots = hosts.iter().map(|host| host.slots).sum::<usize>();
        let size = ranks.unwrap_or(slots);
        if hosts.is_empty() {
            return Err(PlacementError::NoHost);
        }
        if !(1..=limits::RANKS_MAX).contains(&size) {
            return Err(PlacementError::Ranks { asked: size });
        }
        if size > slots && !oversubscribe {
            return Err(PlacementError::Slots { asked: size, slots });
        }
        let in_slots = hosts.iter().enumerate().flat_map(|(at, host)| vec![at; host.slots]);
        let in_turn = (0..hosts.len()).cycle();
        let mut shares = hosts
            .iter()
            .map(|host| Share { host: host.name.clone(), ranks: Vec::new(), spare_slots: 0 })
            .collect::<Vec<_>>();
        for (rank, at) in (0..size).zip(in_slots.chain(in_turn)) {
            shares[at].ranks.push(Rank::at(rank));
        }
        shares.retain(|share| !share.ranks.is_empty());
        Ok(Self { size, hosts: shares })
    }

    /// Adds spare hosts to a placement on `hosts`.
    ///
    /// # Errors
    /// One of the spare hosts is one of `hosts`.
    pub fn with_spares(
        mut self,
        spares: Vec<Host>,
        hosts: &[Host],
    ) -> Result<Self, PlacementError> {
        for Host { name: host, slots } in spares {
            if hosts.iter().any(|other| other.name == host) {
                return Err(PlacementError::SpareInUse { host });
            }
            self.hosts.push(Share { host, ranks: Vec::new(), spare_slots: slots });
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use ringfold_types::limits;

    use super::{Placement, PlacementError};
    use crate::hosts::parse_list;

    fn place(n: Option<usize>, hosts: &str, over: bool) -> Result<Vec<Vec<u32>>, PlacementError> {
        let placement = Placement::place(n, &parse_list(hosts).unwrap(), over)?;
        let shares = placement.hosts.iter().map(|share| share.ranks.iter().map(|r| r.0).collect());
        Ok(shares.collect())
    }

    #[test]
    fn slots_are_filled_in_order() {
        assert_eq!(place(None, "a:2,b:1", false), Ok(vec![vec![0, 1], vec![2]]));
        assert_eq!(place(Some(2), "a:2,b:1", false), Ok(vec![vec![0, 1]]));
        assert_eq!(place(Some(6), "a:2,b:1", true), Ok(vec![vec![0, 1, 3, 5], vec![2, 4]]));
    }

    #[test]
    fn spare_hosts_follow_and_have_no_ranks() {
        let [hosts, spares] = ["a:2,b,c", "d:3,e"].map(|list| parse_list(list).unwrap());
        let placement = Placement::place(Some(3), &hosts, false).unwrap();
        let placement = placement.with_spares(spares, &hosts).unwrap();
        let found = placement.hosts.iter().map(|it| (&*it.host, it.ranks.len(), it.spare_slots));
        assert_eq!(found.collect::<Vec<_>>(), [("a", 2, 0), ("b", 1, 0), ("d", 0, 3), ("e", 0, 1)]);
        // Also a host that needs no rank.
        let error = placement.with_spares(parse_list("f,c").unwrap(), &hosts).unwrap_err();
        assert!(error.to_string().starts_with("--spare c: this host is one of those"), "{error}");
    }

    #[test]
    fn impossible_jobs_are_refused() {
        assert_eq!(place(Some(0), "a", false), Err(PlacementError::Ranks { asked: 0 }));
        let asked = limits::RANKS_MAX + 1;
        assert_eq!(place(Some(asked), "a", true), Err(PlacementError::Ranks { asked }));
        assert_eq!(place(Some(3), "a:2", false), Err(PlacementError::Slots { asked: 3, slots: 2 }));
        assert_eq!(Placement::place(Some(1), &[], true), Err(PlacementError::NoHost));
    }
}
