//! From the evidence of all ranks to one answer, the same on every rank.
//!
//! * `ports`: what was said of each port, and the labels that sources give by name;
//! * `networks`: labels from switches and subnets, which have no names of their own;
//! * `order`: the hosts in fabric order, and the groups around each;
//! * `apply`: what a layout takes of it.
//!
//! A source that names rails and planes (the user, a site file, a fabric file) is believed port by
//! port, the most trusted first. Switches and subnets only say which ports are together: they add
//! labels where that leaves one answer.

mod apply;
mod networks;
mod order;
mod ports;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::certainty::{Certainty, Finding};
use crate::evidence::{Evidence, Source};
use crate::fabric::Place;

use ports::Slots;

/// Sentences about ignored evidence that an agreement keeps.
const NOTES_MAX: usize = 16;

/// What all ranks have said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// By number of host: the number of its machine. Containers of a machine are several hosts.
    pub machines: Vec<u32>,
    /// Evidence, each of one host. Ranks of a host that see the same share it.
    pub evidence: Vec<HostEvidence>,
    /// By rank.
    pub ranks: Vec<RankEvidence>,
}

/// Evidence, and the host that it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostEvidence {
    /// The number of the host.
    pub host: u32,
    /// What ranks there have said.
    pub evidence: Evidence,
}

/// What one rank has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankEvidence {
    /// The number of its host.
    pub host: u32,
    /// The index of its evidence; nothing if it has none.
    pub evidence: Option<u32>,
    /// The ports of its evidence that it prefers, the first one in the lowest bit.
    pub preferred: u32,
}

/// What all ranks agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Hosts in fabric order. Where the order is unknown: by number, without groups.
    pub hosts: Finding<Vec<AgreedHost>>,
    /// Numbers of the rails, ascending; none if they are unknown.
    pub rails: Finding<Vec<u16>>,
    /// Numbers of the planes, ascending.
    pub planes: Vec<u8>,
    /// By index of evidence and of its port: where the port is, if that is certain.
    pub labels: Vec<Vec<Option<Place>>>,
    /// Whether ports on different rails reach each other, if that is certain.
    pub crosses: Option<bool>,
    /// Evidence that was ignored, and why, in sentences for people.
    pub ignored: Vec<String>,
}

/// A host, and the groups around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgreedHost {
    /// Its number.
    pub host: u32,
    /// The number of its machine.
    pub machine: u32,
    /// The number of its leaf group; nothing if that is unknown.
    pub group: Option<u32>,
    /// The number of its pod; nothing if that is unknown, or there are no pods.
    pub pod: Option<u32>,
}

/// Sentences about what was ignored, as many as people read.
#[derive(Debug, Default)]
struct Notes {
    kept: BTreeSet<String>,
    more: usize,
}

/// What all ranks can rely on. Takes time and memory in proportion to what was said.
///
/// # Panics
/// If `known` has a number of a host, machine or evidence that it does not list.
#[must_use]
pub fn agree(known: &Known) -> Agreement {
    let mut notes = Notes::default();
    let slots = Slots::new(known, &mut notes);
    let (mut labels, mut because) = slots.named(&mut notes);
    for source in [Source::Lldp, Source::Subnets] {
        for is_tcp in [false, true] {
            because.extend(networks::add(&slots, source, is_tcp, &mut labels, &mut notes));
        }
    }
    let rails: BTreeSet<u16> = labels.iter().flatten().map(|place| place.rail).collect();
    let planes: BTreeSet<u8> = labels.iter().flatten().map(|place| place.plane).collect();
    let (certainty, because) = match because.is_empty() {
        true => (Certainty::Unknown, "no evidence tells which ports share a rail".to_owned()),
        false => (Certainty::Certain, because.join("; ")),
    };
    Agreement {
        hosts: order::order(known, &slots, &mut notes),
        rails: Finding { value: rails.into_iter().collect(), certainty, because },
        planes: planes.into_iter().collect(),
        labels: slots.by_evidence(known, &labels),
        crosses: crosses(known, &mut notes),
        ignored: notes.sentences(),
    }
}

/// Whether ports on different rails reach each other, if every source that says so agrees.
fn crosses(known: &Known, notes: &mut Notes) -> Option<bool> {
    let said: BTreeSet<bool> = known.evidence.iter().filter_map(|it| it.evidence.crosses).collect();
    if said.len() > 1 {
        notes.add("ranks differ in whether ports on different rails reach each other".to_owned());
    }
    said.first().copied().filter(|_| said.len() == 1)
}

impl Notes {
    fn add(&mut self, sentence: String) {
        self.kept.insert(sentence);
        if self.kept.len() > NOTES_MAX {
            self.kept.pop_last();
            self.more += 1;
        }
    }

    fn sentences(self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("{} more like these", self.more));
        self.kept.into_iter().chain(more).collect()
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Nothing => "nothing",
            Self::Subnets => "subnets",
            Self::Slurm => "Slurm",
            Self::Lldp => "LLDP",
            Self::Fabric => "the fabric file",
            Self::Site => "the site file",
            Self::Declared => "the user",
        })
    }
}
