//! The statements about each port of each host, and the labels that sources give by name.

use std::collections::BTreeMap;

use super::known::Known;
use super::remarks::Remarks;
use crate::evidence::{Attached, Source};
use crate::fabric::Place;
use crate::machine::Network;

/// Sources, the most trusted first.
pub(super) const TRUST: [Source; 6] =
    [Source::Declared, Source::Site, Source::Fabric, Source::Lldp, Source::Slurm, Source::Subnets];

/// The statement of one source about one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Claim<T> {
    /// No statement.
    #[default]
    Nothing,
    /// One value.
    One(T),
    /// Several values that exclude each other.
    Several,
}

/// A port of a host, as all evidence of the host describes it.
#[derive(Clone, Debug)]
pub(super) struct Slot<'a> {
    pub(super) host: u32,
    pub(super) name: &'a str,
    pub(super) is_tcp: bool,
    /// The lowest index of the port in evidence.
    pub(super) at: usize,
    /// By index of `TRUST`.
    named: [Claim<Place>; TRUST.len()],
    switch: Claim<u64>,
    subnet: Claim<(u64, u64)>,
}

/// All ports.
#[derive(Debug)]
pub(super) struct Slots<'a> {
    pub(super) all: Vec<Slot<'a>>,
    /// By index of evidence and port: the index in `all`.
    of: Vec<Vec<usize>>,
}

impl<T: PartialEq> Claim<T> {
    fn add(&mut self, said: T) {
        match self {
            Self::Nothing => *self = Self::One(said),
            Self::One(before) if *before != said => *self = Self::Several,
            _ => {}
        }
    }

    pub(super) fn one(self) -> Option<T> {
        if let Self::One(said) = self { Some(said) } else { None }
    }
}

impl<'a> Slots<'a> {
    pub(super) fn new(known: &'a Known, remarks: &mut Remarks) -> Self {
        let mut all: Vec<Slot<'a>> = Vec::new();
        let mut of = vec![Vec::new(); known.evidence.len()];
        let mut by_host: Vec<usize> = (0..known.evidence.len()).collect();
        by_host.sort_by_key(|index| known.evidence[*index].host);
        for words in by_host.chunk_by(|a, b| known.evidence[*a].host == known.evidence[*b].host) {
            let mut found: BTreeMap<(&str, bool), usize> = BTreeMap::new();
            for index in words {
                let host = known.evidence[*index].host;
                for (at, port) in known.evidence[*index].evidence.ports.iter().enumerate() {
                    let (name, is_tcp) = (port.name.as_str(), port.network == Network::Tcp);
                    let slot = *found.entry((name, is_tcp)).or_insert_with(|| {
                        all.push(Slot::new(host, name, is_tcp, at));
                        all.len() - 1
                    });
                    all[slot].at = all[slot].at.min(at);
                    port.attached.iter().for_each(|attached| all[slot].add(*attached));
                    of[*index].push(slot);
                }
            }
        }
        for slot in &all {
            let is_unclear = slot.switch == Claim::Several || slot.subnet == Claim::Several;
            if is_unclear || slot.named.contains(&Claim::Several) {
                let what = "the evidence of one source contradicts itself";
                remarks.add(format!("{}: {what}", slot.title()));
            }
        }
        Self { all, of }
    }

    /// By index of slot: the label by the most trusted source that names it. Also a sentence for
    /// each source that gave labels.
    pub(super) fn named(&self, remarks: &mut Remarks) -> (Vec<Option<Place>>, Vec<String>) {
        let mut given = [0_usize; TRUST.len()];
        let labels = self.all.iter().map(|slot| slot.named(&mut given, remarks)).collect();
        let said = TRUST.into_iter().zip(given).filter(|(_, ports)| *ports > 0);
        (labels, said.map(|(source, ports)| because(source, ports)).collect())
    }

    /// The labels of slots, by index of evidence and of its port.
    pub(super) fn by_evidence(
        &self,
        known: &Known,
        labels: &[Option<Place>],
    ) -> Vec<Vec<Option<Place>>> {
        debug_assert_eq!(self.of.len(), known.evidence.len());
        let of = |slots: &Vec<usize>| slots.iter().map(|slot| labels[*slot]).collect();
        self.of.iter().map(of).collect()
    }
}

/// A sentence about the number of labels that a source gave.
pub(super) fn because(source: Source, ports: usize) -> String {
    let plural = if ports == 1 { "" } else { "s" };
    format!("{ports} port{plural} by {source}")
}

impl<'a> Slot<'a> {
    fn new(host: u32, name: &'a str, is_tcp: bool, at: usize) -> Self {
        let named = [Claim::Nothing; TRUST.len()];
        Self { host, name, is_tcp, at, named, switch: Claim::Nothing, subnet: Claim::Nothing }
    }

    /// The name of the port for messages.
    pub(super) fn title(&self) -> String {
        format!("{} of host {}", self.name, self.host)
    }

    /// The network of the port according to `source`, with the port's address there, if it has one.
    pub(super) fn network(&self, source: Source) -> Option<(u64, Option<u64>)> {
        match source {
            Source::Lldp => self.switch.one().map(|switch| (switch, None)),
            Source::Subnets => self.subnet.one().map(|(network, at)| (network, Some(at))),
            _ => None,
        }
    }

    fn add(&mut self, attached: Attached) {
        match attached {
            Attached::Subnet { network, address } => self.subnet.add((network, address)),
            Attached::Switch(switch) => self.switch.add(switch),
            Attached::Rail(place, source) => {
                if let Some(at) = TRUST.iter().position(|it| *it == source) {
                    self.named[at].add(place);
                }
            }
        }
    }

    fn named(&self, given: &mut [usize; TRUST.len()], remarks: &mut Remarks) -> Option<Place> {
        let first = self.named.iter().position(|claim| *claim != Claim::Nothing)?;
        let place = self.named[first].one()?;
        given[first] += 1;
        for (source, claim) in TRUST.iter().zip(&self.named).skip(first + 1) {
            if claim.one().is_some_and(|other| other != place) {
                let winner = TRUST[first];
                remarks.add(format!("{}: {winner} overrules {source}", self.title()));
            }
        }
        Some(place)
    }
}
