//! The agreed answer, and the parts of it that a layout takes.

use super::known::{Known, RankEvidence};
use crate::certainty::{Certainty, Finding};
use crate::fabric::Place;
use crate::machine::Network;
use crate::{Path, RankReach, Reach};

/// The answer that all ranks agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Hosts in fabric order. If the order is unknown, they are sorted by number and have no
    /// groups.
    pub hosts: Finding<Vec<AgreedHost>>,
    /// Numbers of the rails, ascending. Empty if they are unknown.
    pub rails: Finding<Vec<u16>>,
    /// Numbers of the planes, ascending.
    pub planes: Vec<u8>,
    /// By index of evidence and of its port: the place of the port, if it is certain.
    pub labels: Vec<Vec<Option<Place>>>,
    /// Whether ports on different rails reach each other, if that is certain.
    pub crosses: Option<bool>,
    /// Sentences about evidence that was ignored, with the reason.
    pub ignored: Vec<String>,
}

/// A host, and the groups around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgreedHost {
    /// The number of the host.
    pub host: u32,
    /// The number of its machine.
    pub machine: u32,
    /// The number of its leaf group; `None` if unknown.
    pub group: Option<u32>,
    /// The number of its pod; `None` if it is unknown or there are no pods.
    pub pod: Option<u32>,
}

impl Agreement {
    /// By number of host: its path. `None` if the order of hosts is not certain. A host whose
    /// groups are unknown gets groups of its own.
    #[must_use]
    pub fn paths(&self) -> Option<Vec<Path>> {
        if self.hosts.certainty != Certainty::Certain {
            return None;
        }
        let hosts = &self.hosts.value;
        let after = |known: Option<u32>| known.map_or(0, |last| last + 1);
        let mut next_group = after(hosts.iter().filter_map(|host| host.group).max());
        let mut next_pod = after(hosts.iter().filter_map(|host| host.pod).max());
        let has_pods = next_pod > 0;
        let take = |next: &mut u32| {
            *next += 1;
            *next - 1
        };
        let mut paths = vec![Path::default(); hosts.len()];
        for (order, host) in (0..).zip(hosts) {
            paths[host.host as usize] = Path {
                order,
                pod: host.pod.unwrap_or_else(|| if has_pods { take(&mut next_pod) } else { 0 }),
                group: host.group.unwrap_or_else(|| take(&mut next_group)),
                machine: host.machine,
            };
        }
        Some(paths)
    }

    /// By rank: the rails and planes of its ports in `networks`. `None` if no rank has any, or if a
    /// set cannot hold them.
    #[must_use]
    pub fn reach(
        &self,
        known: &Known,
        networks: impl Fn(Network) -> bool,
    ) -> Option<Vec<RankReach>> {
        let reach: Option<Vec<RankReach>> =
            known.ranks.iter().map(|rank| self.reach_of(known, *rank, &networks)).collect();
        reach.filter(|all| all.iter().any(|it| !it.reaches.is_empty()))
    }

    /// `None` if a set cannot hold one of the rails or planes of the rank.
    fn reach_of(
        &self,
        known: &Known,
        rank: RankEvidence,
        networks: &impl Fn(Network) -> bool,
    ) -> Option<RankReach> {
        let mut reach = RankReach::default();
        let Some(index) = rank.evidence.map(|index| index as usize) else { return Some(reach) };
        let ports = known.evidence[index].evidence.ports.iter();
        for (at, (port, label)) in ports.zip(&self.labels[index]).enumerate() {
            let Some(place) = label.filter(|_| networks(port.network)) else { continue };
            let set = Reach::of(self.small(place)?)?;
            reach.reaches = reach.reaches.or(set);
            if at < 32 && rank.preferred & 1 << at != 0 {
                reach.prefers = reach.prefers.or(set);
            }
        }
        Some(reach)
    }

    /// The place by numbers that a set can hold. These are its own numbers if all numbers of the
    /// job are small, and otherwise positions in the lists of rails and planes.
    fn small(&self, place: Place) -> Option<Place> {
        let Place { mut rail, mut plane } = place;
        if self.rails.value.last().is_some_and(|last| *last >= Reach::RAILS) {
            rail = u16::try_from(self.rails.value.binary_search(&rail).ok()?).ok()?;
        }
        if self.planes.last().is_some_and(|last| *last >= Reach::PLANES) {
            plane = u8::try_from(self.planes.binary_search(&plane).ok()?).ok()?;
        }
        Some(Place { rail, plane })
    }
}
