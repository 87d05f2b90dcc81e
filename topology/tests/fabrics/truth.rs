//! The truth about a fabric, from its design and its actual cables.
//!
//! A port belongs to the leaf switch at the end of its cable, even if the design differs. The right
//! kinds are that of the design, and every other kind whose definition fits (`equivalent`). Hosts
//! in separate networks have no rail in common. So rails are compared within a cluster: hosts that
//! share a network, directly or through others.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use ringfold_topology::fabric::Fabric;

use crate::damage::{Damage, damage};
use crate::design::{Design, ROWS, Row, is_spread};
use crate::emit::emit;
use crate::equivalent::{Accepted, accepted};
use crate::wiring::{Label, Role, Seat, Wiring, root, unite};
use ringfold_harness::Random;

/// The purpose of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortTruth {
    /// It belongs to the ports with the same cluster and label.
    In(usize, Label),
    /// It belongs to no compute rail.
    Storage,
    /// Its cable is missing, so no graph shows its rail.
    Down,
    /// Its cable ends above leaf switches. It may count as part of the rail or plane that only this
    /// switch serves, or of none.
    Above(usize, Option<Label>),
    /// Its cable ends in a network for another purpose.
    Astray,
}

#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) kinds: Vec<Accepted>,
    pub(crate) has_rails: bool,
    /// By index of `Fabric::ports`.
    pub(crate) ports: Vec<PortTruth>,
    pub(crate) rails: Vec<usize>,
    pub(crate) planes: Vec<usize>,
    pub(crate) subnets: RangeInclusive<usize>,
    /// By index of `Fabric::ports`: the part that contains the port, without routers.
    pub(crate) subnet_of: Vec<Option<usize>>,
    /// Whether ports on different rails reach each other; `None` without rails.
    pub(crate) crosses: Option<bool>,
    /// The groups of hosts whose cables all end in the right place; empty without groups.
    pub(crate) groups: BTreeMap<String, usize>,
}

/// A fabric with its truth.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) row: Row,
    pub(crate) design: Design,
    pub(crate) damage: Damage,
    pub(crate) fabric: Fabric,
    pub(crate) truth: Truth,
}

impl Case {
    /// The case of a seed. Rows alternate.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let row = ROWS[usize::try_from(seed).unwrap() % ROWS.len()];
        let design = Design::draw(row, &mut random);
        let built = design.build(&mut random);
        let mut wiring = built.clone();
        let damage = damage(&design, &mut wiring, &mut random);
        let (fabric, outlets) = emit(&design, &wiring, &mut random);
        let truth = truth(&design, &built, &wiring, &outlets);
        Self { seed, row, design, damage, fabric, truth }
    }

    pub(crate) fn is_intact(&self) -> bool {
        self.damage.cables + self.damage.hosts + self.damage.slow == 0
    }
}

fn truth(design: &Design, built: &Wiring, wiring: &Wiring, outlets: &[usize]) -> Truth {
    let clusters = clusters(wiring);
    let of_outlet: Vec<PortTruth> = wiring
        .outlets
        .iter()
        .map(|outlet| match outlet.at.map(|at| (at, wiring.seats[at])) {
            None => PortTruth::Down,
            Some((at, Seat::Leaf { label, .. })) => PortTruth::In(clusters[at], label),
            Some((_, Seat::Storage)) if outlet.role == Role::Storage => PortTruth::Storage,
            Some((at, Seat::Upper { label })) => PortTruth::Above(clusters[at], label),
            Some(_) => PortTruth::Astray,
        })
        .collect();
    let parts = wiring.parts(false);
    let has_rails = design.shape.has_rails();
    let crosses = has_rails.then(|| crosses(wiring));
    let rails = if has_rails { design.nics } else { 0 };
    let mut truth = Truth {
        kinds: accepted(design, built, wiring, crosses),
        has_rails,
        ports: outlets.iter().map(|outlet| of_outlet[*outlet]).collect(),
        // A storage network is no rail, or it adds one or two.
        rails: (rails..=rails + design.storage_nics).collect(),
        planes: vec![design.planes],
        subnets: subnets(built, wiring),
        subnet_of: outlets.iter().map(|o| Some(parts[wiring.outlets[*o].at?])).collect(),
        crosses,
        groups: groups(design, wiring),
    };
    if !has_rails {
        // All ports are on one rail, or none is on any.
        truth.rails.push(1);
    }
    if design.nics == 1 && design.planes > 1 {
        // The interpretation as rail-only, see `equivalent`.
        truth.rails.push(design.planes);
        truth.planes.push(1);
    }
    truth
}

/// For each switch the number of its cluster.
fn clusters(wiring: &Wiring) -> Vec<usize> {
    let mut cluster = wiring.parts(true);
    let mut first = BTreeMap::new();
    for outlet in &wiring.outlets {
        if let Some(at) = outlet.at {
            unite(&mut cluster, *first.entry(outlet.host).or_insert(at), at);
        }
    }
    (0..cluster.len()).map(|switch| root(&cluster, switch)).collect()
}

/// Whether a cable path connects two ports on different rails.
fn crosses(wiring: &Wiring) -> bool {
    let parts = wiring.parts(true);
    let mut rails: BTreeMap<usize, BTreeSet<Option<usize>>> = BTreeMap::new();
    for at in wiring.outlets.iter().filter_map(|outlet| outlet.at) {
        if let Seat::Leaf { label, .. } = wiring.seats[at] {
            rails.entry(parts[at]).or_default().insert(label.rail);
        }
    }
    rails.values().any(|rails| rails.len() > 1)
}

/// The range of possible counts: parts with compute ports, with any ports, or all, in the design or
/// as cabled.
fn subnets(built: &Wiring, wiring: &Wiring) -> RangeInclusive<usize> {
    let mut counts = Vec::new();
    for wiring in [built, wiring] {
        let parts = wiring.parts(false);
        let of = |keep: &dyn Fn(usize) -> bool| {
            let kept = (0..parts.len()).filter(|switch| keep(*switch));
            kept.map(|switch| parts[switch]).collect::<BTreeSet<_>>().len()
        };
        let has = |role: Option<Role>, switch: usize| {
            let is_of = |r: Role| role.is_none_or(|role| role == r);
            wiring.outlets.iter().any(|o| o.at == Some(switch) && is_of(o.role))
        };
        counts.push(of(&|switch| wiring.seats[switch] != Seat::Router));
        counts.push(of(&|switch| has(None, switch)));
        counts.push(of(&|switch| has(Some(Role::Compute), switch)));
    }
    *counts.iter().min().unwrap()..=*counts.iter().max().unwrap()
}

fn groups(design: &Design, wiring: &Wiring) -> BTreeMap<String, usize> {
    let mut groups = BTreeMap::new();
    if is_spread(&design.shape) {
        return groups;
    }
    for host in 0..design.hosts {
        let group = design.group_of(host);
        let mut own = wiring.outlets.iter().filter(|o| o.host == host && o.role == Role::Compute);
        let is_home = |at: usize| match wiring.seats[at] {
            Seat::Leaf { group: g, .. } => g == group,
            _ => false,
        };
        if own.all(|outlet| outlet.at.is_some_and(is_home)) {
            groups.insert(wiring.hosts[host].name.clone(), group);
        }
    }
    groups
}
