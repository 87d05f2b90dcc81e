//! The hosts in fabric order, and the groups around each.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::agreement::AgreedHost;
use super::known::Known;
use super::networks;
use super::ports::Slots;
use super::remarks::Remarks;
use crate::certainty::{Certainty, Finding};
use crate::evidence::{HostPath, Source};
use crate::natural::Natural;

/// Hosts in fabric order by the most trusted source that places any. Hosts that it does not place
/// follow the others.
pub(super) fn order(
    known: &Known,
    slots: &Slots<'_>,
    remarks: &mut Remarks,
) -> Finding<Vec<AgreedHost>> {
    let paths = paths(known, remarks);
    let named = paths.iter().flatten().map(|path| path.source).max().unwrap_or_default();
    let groups = (named < Source::Lldp)
        .then(|| networks::groups(slots, Source::Lldp, known.machines.len()))
        .filter(|groups| groups.iter().flatten().any(|group| *group > 0));
    let source = if groups.is_some() { Source::Lldp } else { named };
    if source == Source::Nothing {
        let hosts = (0..).zip(&known.machines);
        let value = hosts.map(|(host, machine)| bare(host, *machine)).collect();
        let because = "no evidence places the hosts".to_owned();
        return Finding { value, certainty: Certainty::Unknown, because };
    }
    let value = match groups {
        Some(groups) => by_groups(known, &groups),
        None => by_paths(known, &paths, source),
    };
    let placed = value.iter().filter(|host| host.group.is_some()).count();
    if placed < value.len() {
        let bare = value.len() - placed;
        remarks.add(format!("{source} does not place {bare} of {} hosts", value.len()));
    }
    let because = format!("{source} places {placed} of {} hosts", value.len());
    Finding { value, certainty: Certainty::Certain, because }
}

const fn bare(host: u32, machine: u32) -> AgreedHost {
    AgreedHost { host, machine, group: None, pod: None }
}

/// By host: its path by the most trusted source that has one for it. `None` where ranks of the host
/// disagree.
fn paths<'a>(known: &'a Known, remarks: &mut Remarks) -> Vec<Option<&'a HostPath>> {
    let mut paths: Vec<Option<&HostPath>> = vec![None; known.machines.len()];
    let mut differ = vec![false; known.machines.len()];
    for word in &known.evidence {
        let host = word.host as usize;
        let Some(path) = &word.evidence.path else { continue };
        match paths[host] {
            Some(before) if before.source > path.source => {}
            Some(before) if before.source == path.source => differ[host] |= before != path,
            _ => (paths[host], differ[host]) = (Some(path), false),
        }
    }
    for (host, path) in paths.iter_mut().enumerate().filter(|(host, _)| differ[*host]) {
        if let Some(path) = path.take() {
            remarks.add(format!("ranks of host {host} disagree where {} places it", path.source));
        }
    }
    paths
}

fn by_groups(known: &Known, groups: &[Option<u32>]) -> Vec<AgreedHost> {
    let hosts = (0..).zip(known.machines.iter().zip(groups));
    let mut hosts: Vec<AgreedHost> = hosts
        .map(|(host, (machine, group))| AgreedHost { group: *group, ..bare(host, *machine) })
        .collect();
    hosts.sort_by_key(|host| (host.group.is_none(), host.group, host.host));
    hosts
}

fn by_paths(known: &Known, paths: &[Option<&HostPath>], source: Source) -> Vec<AgreedHost> {
    let placed = |host: u32| paths[host as usize].filter(|path| path.source == source);
    let mut hosts: Vec<u32> = (0..).zip(&known.machines).map(|(host, _)| host).collect();
    hosts.sort_by(|a, b| {
        let by_path = match (placed(*a), placed(*b)) {
            (Some(a), Some(b)) => compare(a, b),
            (a, b) => a.is_none().cmp(&b.is_none()),
        };
        by_path.then(a.cmp(b))
    });
    // A name identifies a group only within the groups around it.
    let (mut leaves, mut pods) = (BTreeMap::new(), BTreeMap::new());
    let mut agreed = Vec::with_capacity(hosts.len());
    for host in hosts {
        let groups = placed(host).map_or(&[][..], |path| &path.groups);
        let around = groups.split_last().map(|(_, around)| around).filter(|it| !it.is_empty());
        agreed.push(AgreedHost {
            group: (!groups.is_empty()).then(|| number(&mut leaves, groups)),
            pod: around.map(|around| number(&mut pods, around)),
            ..bare(host, known.machines[host as usize])
        });
    }
    agreed
}

fn number<'a>(numbers: &mut BTreeMap<&'a [String], u32>, groups: &'a [String]) -> u32 {
    let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    *numbers.entry(groups).or_insert(next)
}

/// Compares by number in fabric order, and then by the names of groups. Numbers in names compare as
/// numbers.
fn compare(a: &HostPath, b: &HostPath) -> Ordering {
    let numbers = (a.order.is_none(), a.order).cmp(&(b.order.is_none(), b.order));
    let mut groups = a.groups.iter().zip(&b.groups).map(|(a, b)| Natural(a).cmp(&Natural(b)));
    let groups = groups.find(|order| order.is_ne()).unwrap_or(Ordering::Equal);
    numbers.then(groups).then(a.groups.len().cmp(&b.groups.len()))
}
